//! Reports a controller's state after each ACK.

use fullpipe_cc::{Snapshot, Time};
use std::fmt;
use std::sync::Arc;

/// A controller's state after an ACK.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// When the ACK arrived, since the path's first packet.
    pub at: Time,
    /// Bytes acknowledged so far: UDP payload with QUIC's headers and tags, as the window counts.
    pub delivered: u64,
    /// Bytes declared lost so far.
    pub lost: u64,
    /// Bytes in flight.
    pub inflight: u64,
    /// Whether a loss recovery is in progress.
    pub in_recovery: bool,
    /// State, window, pacing rate and estimates.
    pub snapshot: Snapshot,
}

type Callback = dyn Fn(u64, &Observation) + Send + Sync;

/// The observer of one controller, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Observer {
    path: u64,
    callback: Option<Arc<Callback>>,
}

impl Observer {
    pub fn new(callback: impl Fn(u64, &Observation) + Send + Sync + 'static) -> Self {
        Observer { path: 0, callback: Some(Arc::new(callback)) }
    }

    /// The same observer for path `path`.
    pub fn for_path(&self, path: u64) -> Self {
        Observer { path, callback: self.callback.clone() }
    }

    /// Without an observer, an ACK costs a branch.
    pub fn observe(&self, observation: impl FnOnce() -> Observation) {
        if let Some(callback) = &self.callback {
            callback(self.path, &observation());
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({}, {})", self.path, if self.callback.is_some() { "set" } else { "none" })
    }
}
