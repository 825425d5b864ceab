//! Controllers that the kernel tells nothing of.
//!
//! `TCP_CC_INFO` shows what the kernel's own BBR believes of its path; a controller loaded as eBPF cannot
//! answer it. Whoever loaded one may know another way, and gives it to a run as [`Options::inspect`].
//!
//! [`Options::inspect`]: crate::Options

use fullpipe_units::{Rate, Span};
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// What a controller believes, as far as it has such a thing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControllerState {
    /// The state in the field's term (`Startup`, `ProbeBW_UP`).
    pub state: Option<&'static str>,
    /// Estimated bandwidth.
    pub bw: Option<Rate>,
    /// BBR v3's windowed maximum of the delivery rate, which the estimate is at most.
    pub max_bw: Option<Rate>,
    /// Its short-term bound on the estimate.
    pub bw_shortterm: Option<Rate>,
    /// Shortest round-trip time.
    pub min_rtt: Option<Span>,
    /// Factor between bandwidth and pacing rate.
    pub pacing_gain: Option<f64>,
    /// Factor between the bandwidth-delay product and the window.
    pub cwnd_gain: Option<f64>,
    /// BBR v3's long-term bound of inflight, in bytes.
    pub inflight_longterm: Option<u64>,
    /// The short-term one, in bytes.
    pub inflight_shortterm: Option<u64>,
    /// Round trips counted so far.
    pub rounds: Option<u64>,
}

/// What has happened to a connection since it was taken, beyond what `TCP_INFO` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// Sum of the round-trip times measured.
    pub rtt_sum: Span,
    /// How many they were.
    pub rtts: u32,
    /// ACKs that came.
    pub acks: u32,
    /// Packets marked lost.
    pub lost: u32,
}

/// A way to set the windows and pacing rates of sockets that use a controller which obeys.
pub trait Steer: Debug + Send + Sync {
    /// The kernel's name of that controller.
    fn controller(&self) -> String;

    /// Begins to count what happens to a socket.
    ///
    /// # Errors
    /// When it cannot be.
    fn track(&self, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// What has happened to a socket that was taken.
    ///
    /// # Errors
    /// When it was not.
    fn counters(&self, socket: BorrowedFd<'_>) -> io::Result<SocketCounters>;

    /// From the next ACK on its window is `cwnd` packets, and it is paced at `pacing`, if that is given.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set(&self, socket: BorrowedFd<'_>, cwnd: u32, pacing: Option<Rate>) -> io::Result<()>;
}

/// A way to see what controllers believe.
///
/// It is called in a process inside a user namespace of its own, where nothing can be loaded or opened that needs
/// privilege: what it takes must be open before the run begins. That process has its own, made from the
/// [`descriptors`](Self::descriptors) of the one that a run is given ([`reenter_with`](crate::reenter_with)).
pub trait Inspect: Debug + Send + Sync {
    /// What it is made of, opened once more.
    ///
    /// # Errors
    /// When there are too many open files.
    fn descriptors(&self) -> io::Result<Vec<OwnedFd>>;

    /// Whether it sees anything of the controller that the kernel knows as `name`.
    fn supports(&self, name: &str) -> bool;

    /// From now on `socket`, which has such a controller, is looked at under `number`.
    ///
    /// # Errors
    /// When it cannot be.
    fn watch(&self, socket: BorrowedFd<'_>, number: usize) -> io::Result<()>;

    /// Looks at all of them at once: tells the number and the controller_state of each.
    ///
    /// # Errors
    /// When it cannot.
    fn sample(&self, seen: &mut dyn FnMut(usize, ControllerState)) -> io::Result<()>;

    /// How trained controllers set their windows; none if it cannot be done.
    fn steer(&self) -> Option<&dyn Steer> {
        None
    }
}
