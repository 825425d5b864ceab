//! Access to the state of controllers that the kernel does not report.
//!
//! `TCP_CC_INFO` reports the estimates of the kernel's own BBR; a controller loaded as eBPF cannot
//! answer it. A program that loaded one can read its state another way, and passes that to a run as
//! [`Options::inspect`].
//!
//! [`Options::inspect`]: crate::Options

use fullpipe_units::{Rate, Span};
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The state and the estimates of a controller; `None` where it has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControllerState {
    /// Name of the state (`Startup`, `ProbeBW_UP`).
    pub state: Option<&'static str>,
    /// Estimated bandwidth.
    pub bw: Option<Rate>,
    /// BBR v3's windowed maximum of the delivery rate, an upper bound of the estimate.
    pub max_bw: Option<Rate>,
    /// BBR v3's short-term bound on the estimate.
    pub bw_shortterm: Option<Rate>,
    /// Minimum round-trip time.
    pub min_rtt: Option<Span>,
    /// Factor between bandwidth and pacing rate.
    pub pacing_gain: Option<f64>,
    /// Factor between the bandwidth-delay product and the window.
    pub cwnd_gain: Option<f64>,
    /// BBR v3's long-term bound on inflight, in bytes.
    pub inflight_longterm: Option<u64>,
    /// BBR v3's short-term bound on inflight, in bytes.
    pub inflight_shortterm: Option<u64>,
    /// Round trips counted so far.
    pub rounds: Option<u64>,
}

/// Counters of a tracked socket, in addition to `TCP_INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// Sum of the RTT samples.
    pub rtt_sum: Span,
    /// Number of RTT samples.
    pub rtts: u32,
    /// ACKs received.
    pub acks: u32,
    /// Packets marked lost.
    pub lost: u32,
}

/// Sets the windows and pacing rates of sockets that use a steerable controller.
pub trait Steer: Debug + Send + Sync {
    /// The kernel's name of the steerable controller.
    fn controller(&self) -> String;

    /// Starts to count events of a socket.
    ///
    /// # Errors
    /// The socket cannot be tracked.
    fn track(&self, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// The counters of a tracked socket.
    ///
    /// # Errors
    /// The socket is not tracked.
    fn counters(&self, socket: BorrowedFd<'_>) -> io::Result<SocketCounters>;

    /// Sets a socket's window to `cwnd` packets and, if given, its pacing rate, from the next ACK
    /// on.
    ///
    /// # Errors
    /// The kernel refuses.
    fn set(&self, socket: BorrowedFd<'_>, cwnd: u32, pacing: Option<Rate>) -> io::Result<()>;
}

/// Reads the state of controllers.
///
/// It is called in a process with its own user namespace, where nothing that needs privilege can be
/// loaded or opened: all that it uses must be open before the run begins. That process recreates it
/// from the [`descriptors`](Self::descriptors) of the one passed to the run
/// ([`reenter_with`](crate::reenter_with)).
pub trait Inspect: Debug + Send + Sync {
    /// Duplicates of its file descriptors, from which it can be recreated.
    ///
    /// # Errors
    /// Too many open files.
    fn descriptors(&self) -> io::Result<Vec<OwnedFd>>;

    /// Whether it can read the state of the controller with the kernel's name `name`.
    fn supports(&self, name: &str) -> bool;

    /// Adds `socket`, which has such a controller, to the sampled ones, as `number`.
    ///
    /// # Errors
    /// The socket cannot be added.
    fn watch(&self, socket: BorrowedFd<'_>, number: usize) -> io::Result<()>;

    /// Samples all added sockets at once; calls `seen` with the number and the state of each.
    ///
    /// # Errors
    /// The state cannot be read.
    fn sample(&self, seen: &mut dyn FnMut(usize, ControllerState)) -> io::Result<()>;

    /// The interface by which trained controllers set windows, if there is one.
    fn steer(&self) -> Option<&dyn Steer> {
        None
    }
}
