//! A download from an s2n-quic server.

use crate::harness::Seeded;
use crate::tls;
use crate::wire::{SharedWire, Wire};
use bytes::Bytes;
use fullpipe_path::LinkSpec;
use fullpipe_quic_s2n::{ControllerSpec, Endpoint};
use fullpipe_units::{Span, Time};
use s2n_quic::client::Connect;
use s2n_quic::provider::congestion_controller::{self, Bbr};
use s2n_quic::provider::io::testing::{self, Executor, Handle, primary, spawn};
use s2n_quic::provider::limits::Limits;
use s2n_quic::{Client, Server};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A run of one connection.
pub struct Transfer {
    /// fullpipe's controller, or [`OWN_BBR`].
    pub controller: &'static str,
    pub forward: LinkSpec,
    pub reverse: LinkSpec,
    pub duration: Span,
    pub seed: u64,
    /// The sender pauses this long after each of its writes of 64 KiB.
    pub pause: Span,
}

/// The outcome of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Bytes that the receiving application got.
    pub received: u64,
    /// The same in Mbit/s, over the whole duration with the handshake.
    pub goodput: f64,
    /// Median of the queue in bytes.
    pub median_queue: u64,
    /// Packets sent by the data's sender.
    pub sent: u64,
    /// Its packets that the queue dropped.
    pub overflowed: u64,
    /// Its packets that the queue marked instead.
    pub marked: u64,
    /// Its bytes declared lost, as the controller counts them.
    pub lost: u64,
    /// Hash of all arrivals.
    pub hash: u64,
    /// Whether either end's connection was closed early.
    pub closed: bool,
    /// Longest time between two packets of the sender.
    pub silence: Span,
}

/// What the tasks of a run share.
#[derive(Default)]
struct Tally {
    received: AtomicU64,
    closed: AtomicBool,
    lost: AtomicU64,
}

/// s2n-quic's own BBR, among the names of controllers.
pub const OWN_BBR: &str = "s2n/bbr";

/// Largest window of a receiver here: more than any path's.
const WINDOW: u64 = 256 << 20;

const CHUNK: usize = 64 << 10;

impl Transfer {
    /// 10 s over 100 Mbit/s and 40 ms with a queue of one BDP.
    pub fn over_100mbit(controller: &'static str, loss: &str, seed: u64) -> Self {
        let half = Span::from_millis(20);
        let forward = LinkSpec {
            rate: Some("100mbit".parse().expect("a rate")),
            delay: half,
            loss: (loss != "0").then(|| loss.parse::<fullpipe_units::Fraction>().expect("a share").into()),
            ..LinkSpec::default()
        };
        let reverse = LinkSpec { delay: half, ..LinkSpec::default() };
        Transfer { controller, forward, reverse, duration: Span::from_secs(10), seed, pause: Span::ZERO }
    }

    /// Runs it in virtual time.
    pub fn run(&self) -> Report {
        let wire = Arc::new(Mutex::new(Wire::new(&self.forward, &self.reverse, self.seed)));
        let tally = Arc::new(Tally::default());
        let mut executor = Executor::new(SharedWire(wire.clone()), self.seed);
        let handle = executor.handle().clone();
        executor.enter(|| {
            let address = match self.controller {
                OWN_BBR => self.start_server(&handle, &tally, Bbr::default()),
                _ => self.start_server(&handle, &tally, self.endpoint(&tally)),
            };
            wire.lock().expect("nothing panicked").sender = Some(address.into());
            self.start_client(&handle, address, &tally);
            let end = testing::time::delay(Duration::from_nanos(self.duration.as_nanos()));
            primary::spawn(end);
        });
        executor.run();
        let wire = wire.lock().expect("nothing panicked");
        self.report(&wire, &tally)
    }

    fn report(&self, wire: &Wire, tally: &Tally) -> Report {
        let received = tally.received.load(Ordering::Relaxed);
        let mut queue = wire.queue.clone();
        queue.sort_unstable();
        let end = Time::ZERO + self.duration;
        Report {
            received,
            goodput: received as f64 * 8e3 / self.duration.as_nanos() as f64,
            median_queue: queue[queue.len() / 2],
            sent: wire.sent,
            overflowed: wire.overflowed,
            marked: wire.marked(),
            lost: tally.lost.load(Ordering::Relaxed),
            hash: wire.hash,
            closed: tally.closed.load(Ordering::Relaxed),
            silence: wire.silence.max(end.since(wire.last_sent)),
        }
    }

    fn endpoint(&self, tally: &Arc<Tally>) -> Endpoint {
        let tally = tally.clone();
        Endpoint::new(spec(self.controller)).with_seed(self.seed).with_observer(move |_, observation| {
            tally.lost.store(observation.lost, Ordering::Relaxed);
        })
    }

    fn start_server(
        &self,
        handle: &Handle,
        tally: &Arc<Tally>,
        controller: impl congestion_controller::Endpoint,
    ) -> std::net::SocketAddr {
        let mut server = Server::builder()
            .with_io(handle.builder().build().expect("the test's network"))
            .expect("infallible")
            .with_tls(tls::server())
            .expect("infallible")
            .with_limits(limits())
            .expect("infallible")
            .with_random(Seeded::new(self.seed))
            .expect("infallible")
            .with_congestion_controller(controller)
            .expect("infallible")
            .start()
            .expect("the test's network accepts any address");
        let address = server.local_addr().expect("it has started");
        let (tally, pause) = (tally.clone(), Duration::from_nanos(self.pause.as_nanos()));
        spawn(async move {
            let Some(mut connection) = server.accept().await else { return };
            let Ok(Some(mut stream)) = connection.accept_bidirectional_stream().await else { return };
            while stream.send(Bytes::from_static(&[0x55; CHUNK])).await.is_ok() {
                if !pause.is_zero() {
                    testing::time::delay(pause).await;
                }
            }
            tally.closed.store(true, Ordering::Relaxed);
        });
        address
    }

    fn start_client(&self, handle: &Handle, server: std::net::SocketAddr, tally: &Arc<Tally>) {
        // It sends little more than ACKs.
        let answering = if self.controller == OWN_BBR { "cubic" } else { self.controller };
        let client = Client::builder()
            .with_io(handle.builder().build().expect("the test's network"))
            .expect("infallible")
            .with_tls(tls::client())
            .expect("infallible")
            .with_limits(limits())
            .expect("infallible")
            .with_random(Seeded::new(!self.seed))
            .expect("infallible")
            .with_congestion_controller(Endpoint::new(spec(answering)).with_seed(self.seed))
            .expect("infallible")
            .start()
            .expect("the test's network accepts any address");
        let tally = tally.clone();
        spawn(async move {
            let received = async {
                let mut connection =
                    client.connect(Connect::new(server).with_server_name("localhost")).await.ok()?;
                let mut stream = connection.open_bidirectional_stream().await.ok()?;
                stream.send(Bytes::from_static(b"GET")).await.ok()?;
                while let Some(data) = stream.receive().await.ok()? {
                    tally.received.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                Some(())
            };
            received.await;
            tally.closed.store(true, Ordering::Relaxed);
        });
    }
}

fn spec(controller: &str) -> ControllerSpec {
    ControllerSpec::parse(controller).expect("the test's specification is valid")
}

/// Limits that leave the path and the controller as the only ones.
fn limits() -> Limits {
    let build = || {
        Limits::new()
            .with_data_window(WINDOW)?
            .with_bidirectional_local_data_window(WINDOW)?
            .with_bidirectional_remote_data_window(WINDOW)?
            .with_max_send_buffer_size(WINDOW as u32)?
            .with_max_handshake_duration(Duration::from_secs(60))?
            .with_max_idle_timeout(Duration::from_secs(60))
    };
    build().expect("valid limits")
}
