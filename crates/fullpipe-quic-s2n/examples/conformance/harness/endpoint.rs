//! An s2n-quic endpoint without a socket, a clock and a task: it is called, as a state machine.

use fullpipe_cc::Time;
use fullpipe_path::Ecn;
use fullpipe_sim::Datagram;
use s2n_quic::provider::io;
use s2n_quic_core::endpoint::Endpoint;
use s2n_quic_core::inet::datagram::Header;
use s2n_quic_core::inet::{ExplicitCongestionNotification, SocketAddress};
use s2n_quic_core::io::{rx, tx};
use s2n_quic_core::path::{Tuple, mtu};
use s2n_quic_core::time::{Clock, NoopClock, Timestamp};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Packets that the endpoint sends before the application can write more: a packet that leaves the
/// stack without data counts as limited by the application.
pub const BATCH: usize = 8;

/// What [`Time::ZERO`] is: s2n-quic's clock has no zero.
fn epoch() -> Timestamp {
    NoopClock.get_time()
}

/// `now` in s2n-quic's clock, in whole microseconds.
fn timestamp(now: Time) -> Timestamp {
    epoch() + Duration::from_nanos(now.as_nanos())
}

/// A time of s2n-quic's clock.
pub fn time(at: Timestamp) -> Time {
    Time::ZERO + at.saturating_duration_since(epoch()).into()
}

/// An endpoint of any configuration.
pub trait Driven: Send {
    /// Processes a datagram that arrives.
    fn receive(&mut self, now: Time, datagram: Datagram);
    /// Processes requests of the application.
    fn wake(&mut self, now: Time, context: &mut Context<'_>);
    /// Processes timers, and sends up to [`BATCH`] datagrams. Returns their number.
    fn transmit(&mut self, now: Time, out: &mut VecDeque<Datagram>) -> usize;
    /// When [`transmit`](Self::transmit) is to be called next.
    fn timeout(&self) -> Option<Time>;
}

/// Where an endpoint is found once it has started.
pub type Slot = Arc<Mutex<Option<Box<dyn Driven>>>>;

/// The provider that puts the endpoint into its [`Slot`] instead of spawning it.
pub struct Io {
    pub slot: Slot,
    pub local: SocketAddress,
    pub remote: SocketAddress,
    /// Size of packets from the start, IP header included.
    pub mtu: u16,
}

impl io::Provider for Io {
    type PathHandle = Tuple;
    type Error = Infallible;

    fn start<E: Endpoint<PathHandle = Tuple>>(self, mut endpoint: E) -> Result<SocketAddress, Infallible> {
        let config = mtu::Config::builder().with_max_mtu(self.mtu);
        let config = config.and_then(|config| config.with_initial_mtu(self.mtu));
        // Equal to the maximum: the path is not probed.
        let config = config.and_then(|config| config.with_base_mtu(self.mtu)).and_then(|c| c.build());
        endpoint.set_mtu_config(config.expect("the transport has checked the MTU"));
        let path = Tuple { remote_address: self.remote.into(), local_address: self.local.into() };
        let driver = Driver { endpoint, path, mtu: self.mtu.into() };
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(driver));
        Ok(self.local)
    }
}

struct Driver<E> {
    endpoint: E,
    path: Tuple,
    mtu: usize,
}

impl<E: Endpoint<PathHandle = Tuple>> Driven for Driver<E> {
    fn receive(&mut self, now: Time, datagram: Datagram) {
        let ecn = match datagram.ecn {
            Ecn::NotEct => ExplicitCongestionNotification::NotEct,
            Ecn::Ect0 => ExplicitCongestionNotification::Ect0,
            Ecn::Ect1 => ExplicitCongestionNotification::Ect1,
            Ecn::Ce => ExplicitCongestionNotification::Ce,
        };
        let header = Header { path: self.path, ecn };
        let mut queue = Received { header, payload: Some(datagram.payload) };
        self.endpoint.receive(&mut queue, &timestamp(now));
    }

    fn wake(&mut self, now: Time, context: &mut Context<'_>) {
        // An error means that the endpoint is closed; the connection has reported it.
        let _: Poll<_> = self.endpoint.poll_wakeups(context, &timestamp(now));
    }

    fn transmit(&mut self, now: Time, out: &mut VecDeque<Datagram>) -> usize {
        let mut queue = Sent { out, mtu: self.mtu, pushed: 0 };
        self.endpoint.transmit(&mut queue, &timestamp(now));
        queue.pushed
    }

    fn timeout(&self) -> Option<Time> {
        self.endpoint.timeout().map(time)
    }
}

/// One datagram as a receive queue.
struct Received {
    header: Header<Tuple>,
    payload: Option<Vec<u8>>,
}

impl rx::Queue for Received {
    type Handle = Tuple;

    fn for_each<F: FnMut(Header<Tuple>, &mut [u8])>(&mut self, mut on_packet: F) {
        if let Some(mut payload) = self.payload.take() {
            on_packet(self.header, &mut payload);
        }
    }

    fn is_empty(&self) -> bool {
        self.payload.is_none()
    }
}

/// The send queue.
struct Sent<'a> {
    out: &'a mut VecDeque<Datagram>,
    mtu: usize,
    pushed: usize,
}

impl tx::Queue for Sent<'_> {
    type Handle = Tuple;

    const SUPPORTS_ECN: bool = true;

    fn push<M: tx::Message<Handle = Tuple>>(&mut self, mut message: M) -> Result<tx::Outcome, tx::Error> {
        if self.capacity() == 0 {
            return Err(tx::Error::AtCapacity);
        }
        let ecn = match message.ecn() {
            ExplicitCongestionNotification::NotEct => Ecn::NotEct,
            ExplicitCongestionNotification::Ect0 => Ecn::Ect0,
            ExplicitCongestionNotification::Ect1 => Ecn::Ect1,
            ExplicitCongestionNotification::Ce => Ecn::Ce,
        };
        let mut payload = vec![0; self.mtu];
        let len = message.write_payload(tx::PayloadBuffer::new(&mut payload), 0)?;
        payload.truncate(len);
        self.out.push_back(Datagram { payload, ecn });
        self.pushed += 1;
        Ok(tx::Outcome { len, index: self.pushed - 1 })
    }

    fn capacity(&self) -> usize {
        BATCH - self.pushed
    }
}
