//! How fast a link serves packets: at a rate, or at the opportunities of a recorded trace.

mod cellular;
mod constant;
mod trace;

use fullpipe_units::{Rate, Time};

pub(crate) use cellular::Cellular;
pub use cellular::CellularSpec;
pub(crate) use constant::Constant;
pub(crate) use trace::TraceServer;
pub use trace::{Trace, TraceError, TraceSpec};

/// Serves one packet after another. Time never runs backwards inside it: a service begins at the
/// earliest when the one before has ended.
pub(crate) enum Server {
    Constant(Constant),
    Trace(TraceServer),
}

impl Server {
    /// When a packet that is ready at `ready` can begin to be served.
    #[inline]
    pub fn next_start(&self, ready: Time) -> Time {
        match self {
            Server::Constant(server) => server.next_start(ready),
            Server::Trace(server) => server.next_start(ready),
        }
    }

    /// Serves `bytes` from `start` on; the time when the last of them has left.
    #[inline]
    pub fn serve(&mut self, start: Time, bytes: u32) -> Time {
        match self {
            Server::Constant(server) => server.serve(start, bytes),
            Server::Trace(server) => server.serve(start, bytes),
        }
    }

    /// Changes the rate at `now`, in the middle of the service of `in_service` (when it was to
    /// end, its bytes). Returns when that service ends now. A trace has no rate to change.
    pub fn set_rate(&mut self, now: Time, rate: Rate, in_service: Option<(Time, u32)>) -> Option<Time> {
        match self {
            Server::Constant(server) => server.set_rate(now, rate, in_service),
            Server::Trace(_) => in_service.map(|(end, _)| end),
        }
    }
}
