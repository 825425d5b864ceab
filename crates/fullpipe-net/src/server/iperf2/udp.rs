//! Tests of iperf 2 over UDP: each client port is a test of its own.
//!
//! A source address can be forged, so the server sends nothing but one short report for the
//! datagrams of a whole test: no data, and no connection back.

use crate::iperf2::{Datagram, Mode, Report};
use crate::iperf3::UdpHeader;
use crate::server::{Account, Event, Shared, admission, limits};
use crate::transfer::{Allowance, Budget, ReceiveStats, is_excess, wall_clock_us};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A client that is silent for this long is gone: its address may have been forged.
const MAX_SILENCE: Duration = Duration::from_secs(10);
/// How long a report is followed by silence if it has arrived.
const REPORT_SILENCE: Duration = Duration::from_millis(250);
/// Maximum reports of a test.
const MAX_REPORTS: usize = 10;

/// A test whose socket is connected.
pub(in crate::server) struct Flow {
    pub peer: SocketAddr,
    socket: UdpSocket,
    wide: bool,
    /// Datagrams that arrived before it was connected, with their lengths: at the server's socket,
    /// and at its own.
    pub before: Vec<(Datagram, usize)>,
    pub early: Vec<(Datagram, usize)>,
    permits: [admission::Permit; 2],
    account: Option<Arc<Account>>,
}

impl Flow {
    /// Begins a test with a client's first datagram, if it is one of iperf 2. `connect` opens a
    /// socket for the peer.
    pub fn begin(
        shared: &Shared,
        bytes: &[u8],
        peer: SocketAddr,
        connect: impl FnOnce() -> io::Result<UdpSocket>,
    ) -> Option<Flow> {
        let (wide, mode) = Datagram::opening(bytes)?;
        let ip = peer.ip().to_canonical();
        if !limits::allowed(&shared.config.allow, ip) {
            return None;
        }
        let refused = |reason: &str| {
            shared.log(Event::new("refused", Some(peer)).with("client", "iperf 2").with("reason", reason));
            None
        };
        if shared.config.secret.is_some() {
            return refused("this server requires a secret, which iperf 2 cannot prove");
        }
        if mode != Mode::Forward {
            return refused("UDP from the server is not supported: the address may be forged");
        }
        let permits = match (shared.iperf2_udp.acquire(ip), shared.admission.acquire(ip)) {
            (Ok(place), Ok(connection)) => [place, connection],
            (Err(full), _) | (_, Err(full)) => return refused(full.clients_reason()),
        };
        let first = (Datagram::parse(bytes, wide)?, bytes.len());
        let socket = match connect() {
            Ok(socket) => socket,
            Err(e) => return refused(&e.to_string()),
        };
        let account = shared.account(ip);
        Some(Flow { peer, socket, wide, before: vec![first], early: Vec::new(), permits, account })
    }

    /// Parses a datagram of this client.
    pub fn parse(&self, bytes: &[u8]) -> Option<(Datagram, usize)> {
        Datagram::parse(bytes, self.wide).map(|datagram| (datagram, bytes.len()))
    }

    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Serves the test in a thread of its own.
    pub fn start(self, shared: &Arc<Shared>) {
        let (shared_by_thread, peer) = (Arc::clone(shared), self.peer);
        let spawned =
            std::thread::Builder::new().stack_size(256 * 1024).spawn(move || self.serve(&shared_by_thread));
        if let Err(e) = spawned {
            shared.log(Event::new("refused", Some(peer)).with("reason", e.to_string()));
        }
    }

    fn serve(self, shared: &Shared) {
        let started = Event::new("test_started", Some(self.peer)).with("client", "iperf 2");
        shared.log(started.with("protocol", "udp").with("direction", "forward").with("streams", 1));
        let mut count = Count::default();
        let result = self.receive(shared, &mut count);
        let report = count.report();
        if result.is_ok() {
            let _ = self.answer(shared, &report);
        }
        let is_complete = result.is_ok();
        let kind = if is_complete { "test_finished" } else { "test_failed" };
        let mut event = Event::new(kind, Some(self.peer))
            .with("client", "iperf 2")
            .with("direction", "forward")
            .with("streams", 1)
            .with("received", report.bytes)
            .with("datagrams", report.datagrams)
            .with("lost", report.lost)
            .with("out_of_order", report.out_of_order)
            .with("received_report", report.line());
        if let Err(reason) = result {
            event = event.with("reason", reason);
        }
        shared.log(event);
        drop(self.permits);
        shared.finish(is_complete);
    }

    /// Counts datagrams to the last one.
    fn receive(&self, shared: &Shared, count: &mut Count) -> Result<(), String> {
        let limits = &shared.config.limits;
        let budget = limits.bytes.map(Budget::limit);
        let bucket = self.account.as_ref().map(|account| &account.received);
        let allowance = Allowance { bucket, budget: budget.as_ref() };
        let began = Instant::now();
        let silence = MAX_SILENCE.min(limits.idle);
        // 100 ms: how soon a stop of the server is noticed.
        self.socket.set_read_timeout(Some(Duration::from_millis(100))).map_err(|e| e.to_string())?;
        let mut queued = self.before.iter().chain(&self.early).copied();
        let mut buffer = vec![0; 65_536];
        let mut last = began;
        loop {
            let next = queued.next().map_or_else(|| self.read(&mut buffer), |one| Ok(Some(one)));
            if let Some((datagram, bytes)) = next.map_err(|e| e.to_string())? {
                last = Instant::now();
                allowance.arrived(bytes).map_err(|e| {
                    if is_excess(&e) { e.to_string() } else { "the allowance is used up".to_owned() }
                })?;
                count.add(datagram, bytes, last);
                if datagram.is_last {
                    return Ok(());
                }
            }
            if last.elapsed() >= silence {
                return Err(format!("no datagram for {silence:?}"));
            }
            if began.elapsed() > Duration::from_secs(limits.seconds.into()) {
                return Err(format!("{} s allowed", limits.seconds));
            }
            if shared.stopping() {
                return Err("the server is stopping".to_owned());
            }
        }
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<Option<(Datagram, usize)>> {
        use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
        match self.socket.recv(buffer) {
            Ok(n) => Ok(self.parse(&buffer[..n])),
            Err(e) if matches!(e.kind(), WouldBlock | TimedOut | Interrupted | ConnectionRefused) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sends the report until the client is silent, never more than it has sent.
    fn answer(&self, shared: &Shared, report: &Report) -> io::Result<()> {
        let bytes = report.to_bytes();
        let affordable = usize::try_from(report.bytes / bytes.len() as u64).unwrap_or(usize::MAX);
        self.socket.set_read_timeout(Some(REPORT_SILENCE))?;
        let mut buffer = [0; 64];
        for _ in 0..MAX_REPORTS.min(affordable) {
            if let Some(account) = &self.account {
                account.sent.owe(bytes.len());
            }
            self.socket.send(&bytes)?;
            if self.read(&mut buffer)?.is_none() || shared.stopping() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// What was received.
#[derive(Default)]
struct Count {
    stats: ReceiveStats,
    bytes: u64,
    /// Versions before 2.1 count from 0.
    from_zero: bool,
    times: Option<(Instant, Instant)>,
}

impl Count {
    fn add(&mut self, datagram: Datagram, bytes: usize, now: Instant) {
        if self.times.is_none() {
            self.from_zero = datagram.number == 0;
        }
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
        self.bytes += bytes as u64;
        let number = datagram.number.saturating_add(u64::from(self.from_zero));
        self.stats.record(UdpHeader { sent_us: datagram.sent_us, number }, wall_clock_us());
    }

    fn report(&self) -> Report {
        Report {
            bytes: self.bytes,
            seconds: self.times.map_or(0.0, |(first, last)| (last - first).as_secs_f64()),
            lost: self.stats.lost,
            out_of_order: self.stats.out_of_order,
            datagrams: self.stats.highest,
            jitter: self.stats.jitter,
        }
    }
}
