//! The other controllers of Linux: BIC, CDG, DCTCP, H-TCP, HighSpeed TCP, Illinois, TCP-LP, NV,
//! Scalable TCP, Vegas, Veno, Westwood+ and YeAH (feature `linux`).
//!
//! Each is a [`Module`]: the callbacks of the kernel's `tcp_congestion_ops`, in the kernel's
//! integers, which wrap where the kernel's do. Recordings of the kernel's own modules are replayed
//! through them call by call (`tests/it/linux_modules.rs`, `docs/evidence/linux-controllers.md`).
//! [`Modular`] turns a module into a controller.
//!
//! # Differences to the modules in a kernel
//! The callbacks compute as the kernel does; what a transport of this crate reports to them differs:
//! - Sequence numbers count delivered bytes, so selectively acknowledged data counts when it is
//!   reported and not when the hole before it is filled. Rounds end when what was in flight is
//!   delivered.
//! - On an ACK that changes the recovery state the kernel reports the round-trip time
//!   (`pkts_acked`) before the change, this crate after it.
//! - Divisors that only absurd inputs make zero are one here; the kernel would stop.

mod adapter;
pub mod bic;
pub mod cdg;
pub mod dctcp;
pub mod highspeed;
pub mod htcp;
pub mod illinois;
pub mod lp;
pub mod nv;
pub mod scalable;
pub mod vegas;
pub mod veno;
pub mod westwood;
pub mod yeah;

use crate::jiffies::HZ_RANGE;
use crate::loss_based::Window;
use crate::registry::{BuildError, Setting, Settings};
pub use adapter::Modular;
use fullpipe_units::Span;

/// The state of the kernel's loss recovery (`enum tcp_ca_state`), in its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum CaState {
    /// No loss outstanding.
    #[default]
    Open,
    /// Duplicate or selective ACKs seen.
    Disorder,
    /// The window is being reduced outside loss recovery.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// Events of the kernel's `enum tcp_ca_event` that modules use on the sending side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CaEvent {
    /// Transmission starts with nothing in flight.
    TxStart,
    /// An idle period is about to shrink the window.
    CwndRestart,
    /// A reduction is complete.
    CompleteCwr,
    /// A timeout set the threshold.
    Loss,
}

/// What modules read of a connection, in the kernel's units (`struct tcp_sock`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp {
    /// State before the call.
    pub state: CaState,
    /// The coarse clock (`tcp_jiffies32`).
    pub jiffies: u32,
    /// The fine clock in µs (`tcp_mstamp`).
    pub mstamp_us: u64,
    /// First unacknowledged sequence number.
    pub snd_una: u32,
    /// Next sequence number to be sent.
    pub snd_nxt: u32,
    /// Maximum segment size in bytes (`mss_cache`).
    pub mss: u32,
    /// Packets delivered so far.
    pub delivered: u32,
    /// Packets delivered with an ECN echo so far.
    pub delivered_ce: u32,
    /// Packets selectively acknowledged above a hole.
    pub sacked_out: u32,
    /// Whether the window limited sending.
    pub is_cwnd_limited: bool,
    /// Most packets outstanding in the last round trip.
    pub max_packets_out: u32,
    /// The peer's timestamp in ms, and the echo of this end's.
    pub rcv_tsval: u32,
    /// See [`rcv_tsval`](Self::rcv_tsval).
    pub rcv_tsecr: u32,
    /// A random number, new with every call, if the module [uses](Module::RANDOM) any.
    pub random: u32,
}

impl Tcp {
    /// `tcp_is_cwnd_limited`.
    fn is_limiting(&self, window: &Window) -> bool {
        self.is_cwnd_limited || window.in_slow_start() && window.cwnd < self.max_packets_out.wrapping_mul(2)
    }

    /// `tcp_reno_cong_avoid`.
    fn reno(&self, window: &mut Window, acked: u32) {
        if self.is_limiting(window) {
            window.reno(acked);
        }
    }

    /// `tcp_current_ssthresh`.
    fn current_ssthresh(&self, window: &Window) -> u32 {
        if matches!(self.state, CaState::Cwr | CaState::Recovery) {
            window.ssthresh
        } else {
            window.ssthresh.max((window.cwnd >> 1) + (window.cwnd >> 2))
        }
    }
}

/// What an ACK reports (`struct ack_sample`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckSample {
    /// Packets acknowledged.
    pub pkts_acked: u32,
    /// Round-trip time in µs; negative if unknown.
    pub rtt_us: i32,
    /// Bytes that were in flight when the acknowledged packet was sent.
    pub in_flight: u32,
}

/// A controller of the kernel: its `tcp_congestion_ops`. Callbacks that a module does not implement
/// have the kernel's default.
pub trait Module: Send {
    /// Whether the module uses random numbers.
    const RANDOM: bool = false;

    /// The connection is established, or the module starts anew (`init`).
    fn init(&mut self, _window: &mut Window, _tcp: &Tcp) {}

    /// An ACK was received, before the state changes (`pkts_acked`).
    fn pkts_acked(&mut self, _window: &mut Window, _tcp: &Tcp, _sample: &AckSample) {}

    /// As [`pkts_acked`](Self::pkts_acked), later (`in_ack_event`); `slow_path` if the ACK was more
    /// than an advance.
    fn in_ack_event(&mut self, _tcp: &Tcp, _slow_path: bool) {}

    /// The state is about to change to `state` (`set_state`).
    fn set_state(&mut self, _window: &mut Window, _tcp: &Tcp, _state: CaState) {}

    /// An event (`cwnd_event`).
    fn cwnd_event(&mut self, _window: &mut Window, _tcp: &Tcp, _event: CaEvent) {}

    /// `acked` packets were acknowledged and the window may grow (`cong_avoid`).
    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32);

    /// The threshold after a loss (`ssthresh`).
    fn ssthresh(&mut self, window: &Window, tcp: &Tcp) -> u32;

    /// The window after a spurious loss, where `prior` is the one before the loss (`undo_cwnd`).
    fn undo_cwnd(&mut self, window: &Window, prior: u32) -> u32 {
        window.cwnd.max(prior)
    }

    /// Whether the last [`cong_avoid`](Self::cong_avoid) called `tcp_enter_cwr`.
    fn enters_cwr(&mut self) -> bool {
        false
    }

    /// The minimum round-trip time it uses, if any.
    fn min_rtt(&self) -> Option<Span> {
        None
    }
}

/// Whether sequence number `a` is before `b` (`before`).
fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// `tcp_reno_ssthresh`.
fn half(window: &Window) -> u32 {
    (window.cwnd >> 1).max(2)
}

/// A minimum in µs as a span; `none` means not measured.
fn micros(us: u32, none: u32) -> Option<Span> {
    (us != none).then(|| Span::from_micros(u64::from(us)))
}

/// The setting of modules that count in ticks.
const HZ_SETTING: Setting =
    Setting { key: "hz", values: "24 to 1200", default: "1000", about: "clock ticks per second (CONFIG_HZ)" };

fn read_hz<'a>(settings: &Settings<'a>) -> Result<u32, BuildError<'a>> {
    settings.number("hz", crate::jiffies::HZ, *HZ_RANGE.start(), *HZ_RANGE.end())
}
