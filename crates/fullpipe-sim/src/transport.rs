//! Connections of other transports: a crate that has a transport (QUIC, SCTP, …) as state machines
//! without sockets and clocks runs them over the simulated path, beside TCP and with the same
//! recordings, triggers and checks.

use fullpipe_cc::{Rate, Snapshot, Span, Time};
use fullpipe_experiment::recording::{EventKind, TransportFacts};
use fullpipe_experiment::scenario::{Fault, FlowSpec};
use fullpipe_path::Ecn;
use std::fmt;

/// What a datagram takes on the path beyond its payload.
pub use fullpipe_experiment::scenario::DATAGRAM_HEADER_BYTES;

/// The ends of a connection. The scenario's application writes at the sending end, which also
/// opens the connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransportEnd {
    /// The end that opens the connection and sends the application's data.
    Sender,
    /// The other end.
    Receiver,
}

/// A UDP datagram.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Datagram {
    /// Its payload.
    pub payload: Vec<u8>,
    /// The ECN bits of its IP header.
    pub ecn: Ecn,
}

/// What a connection reports. Events are polled after each call that can cause one.
#[derive(Clone, PartialEq, Debug)]
pub enum TransportEvent {
    /// The sending end may send the application's data.
    Established,
    /// The receiving end may send requests ([`Transport::request`]).
    Accepted,
    /// The sending end measured a round-trip time.
    Rtt(Span),
    /// A request of the receiving application ([`Transport::request`]) arrived in full at the
    /// sending end.
    Requested,
    /// An event for the recording: losses, time-outs, recovery.
    Recorded(EventKind, Option<f64>),
    /// The connection failed, with the transport's own reason: the run is an error.
    Failed(String),
}

/// The state and the counters of the sending end, for time series and summaries.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Telemetry {
    /// The controller's state; its window and rate are the effective ones.
    pub snapshot: Snapshot,
    /// Latest round-trip time.
    pub rtt: Option<Span>,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    /// Bytes in flight, as the window counts them.
    pub inflight: u64,
    /// The effective congestion window in bytes.
    pub window: u64,
    /// The effective pacing rate; `None` if unpaced.
    pub pacing_rate: Option<Rate>,
    /// The latest delivery-rate sample; `None` if the transport takes none.
    pub delivery_rate: Option<Rate>,
    /// Bytes acknowledged, as the window counts them.
    pub delivered: u64,
    /// Packets sent, retransmissions included.
    pub sent: u64,
    /// Of these, retransmissions; for a transport that retransmits frames instead of packets, the
    /// packets whose frames had to be.
    pub retransmitted: u64,
    /// Packets declared lost.
    pub lost: u64,
}

/// A connection of another transport: both ends in virtual time. No call blocks or reads a clock;
/// the same calls give the same results.
///
/// After each call the simulation polls events, and then the datagrams of the end that the call
/// concerned, until there are none.
pub trait Transport: Send + fmt::Debug {
    /// The sending end opens the connection.
    fn open(&mut self, now: Time);

    /// `datagram` arrives at `end`.
    fn on_datagram(&mut self, now: Time, end: TransportEnd, datagram: Datagram);

    /// The next datagram that `end` sends at `now`, if any.
    fn poll_transmit(&mut self, now: Time, end: TransportEnd) -> Option<Datagram>;

    /// When a timer of `end` is due (loss detection, delayed acknowledgements, pacing);
    /// [`Time::NEVER`] if none is set.
    fn next_timer(&self, end: TransportEnd) -> Time;

    /// Processes the timers of `end` that are due.
    fn on_timer(&mut self, now: Time, end: TransportEnd);

    /// The next event.
    fn poll_event(&mut self) -> Option<TransportEvent>;

    /// The application at the sending end writes `bytes` more. Everything is accepted: what the
    /// transport has no room for waits.
    fn write(&mut self, now: Time, bytes: u64);

    /// The application at the sending end writes no more; with `truncate`, data that has not been
    /// sent is discarded.
    fn finish(&mut self, now: Time, truncate: bool);

    /// Discards data that was written and not passed to the transport. Returns the bytes written
    /// without it.
    fn discard_unsent(&mut self) -> u64;

    /// The application at the receiving end sends a request of `bytes`.
    fn request(&mut self, now: Time, bytes: u64);

    /// Bytes that the receiving application has read, in order.
    fn delivered(&self) -> u64;

    /// Whether everything written has been sent and acknowledged.
    fn is_idle(&self) -> bool;

    /// The controller's state ([`Snapshot::state`]), queried after each call at the sending end.
    fn state(&self) -> &'static str;

    /// State and counters of the sending end.
    fn telemetry(&self) -> Telemetry;
}

/// A connection to create.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The flow: its controller (`cc`), settings, buffers, ECN, initial window.
    pub flow: &'a FlowSpec,
    /// Largest packet in bytes, IP header included.
    pub mtu: u32,
    /// Seed of everything random in the connection.
    pub seed: u64,
}

impl Opening<'_> {
    /// Checks that the flow asks for nothing that only the simulated TCP has, nor for anything
    /// `more` that `transport` lacks: a key, whether the flow has it, and why that has no effect.
    ///
    /// # Errors
    /// The key, the reason, and what to do.
    pub fn check(&self, transport: &str, more: &[(&'static str, bool, &'static str)]) -> Result<(), Fault> {
        let flow = self.flow;
        let of_tcp = [
            ("auto_tuning", flow.auto_tuning, "its receive windows are fixed"),
            ("first_receive_buffer", flow.first_receive_buffer.is_some(), "its receive windows are fixed"),
            ("tso", flow.tso.is_some(), "the stack decides how much is sent at once"),
            ("paced", flow.paced, "the stack paces every controller"),
            ("timer_hz", flow.timer_hz.is_some(), "its timers are exact"),
            ("cpu", flow.cpu.is_some(), "its endpoints have no CPU model"),
            ("ack_frequency", flow.ack_frequency.is_some(), "the stack's receiver acknowledges as it does"),
        ];
        match more.iter().chain(&of_tcp).find(|(_, asked, _)| *asked) {
            Some((key, _, why)) => {
                Err(Fault::new(key, format!("not supported over {transport}: {why}")).help("omit it"))
            }
            None => Ok(()),
        }
    }
}

/// The transports that a simulation knows besides its own TCP
/// ([`Simulation::transports`](crate::Simulation::transports)).
pub trait Transports: Sync {
    /// The names of controllers (`cc`) that these transports run.
    fn names(&self) -> Vec<String>;

    /// Whether `name` is one of [`names`](Self::names).
    fn knows(&self, name: &str) -> bool {
        self.names().iter().any(|known| known == name)
    }

    /// What the recording says about the transport of a flow whose controller is one of
    /// [`names`](Self::names).
    fn facts(&self, flow: &FlowSpec) -> TransportFacts;

    /// A connection for a flow whose controller is one of [`names`](Self::names).
    ///
    /// # Errors
    /// What the transport does not support: the key of the flow, the reason and what to do.
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Transport>, Fault>;
}
