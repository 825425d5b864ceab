//! The factory and controller of a stack: what both have in common. Compiled once for each stack,
//! whose types it finds in its parent module.

use super::proto::congestion;
use super::{InFlightPackets, NAME};
use crate::adapter::{Adapter, Settings};
use fullpipe_cc::{ControllerSpec, Rate, RecoveryState, Snapshot};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Builds a controller for each path of each connection: the value of
/// `TransportConfig::congestion_controller_factory`.
#[derive(Debug)]
pub struct Factory {
    settings: Settings,
    paced: bool,
}

impl Factory {
    /// Controllers as `spec` describes. Their random numbers (BBR's probing times) differ from
    /// process to process, see [`with_seed`](Self::with_seed).
    pub fn new(spec: ControllerSpec) -> Self {
        Factory { settings: Settings::new(spec), paced: super::PACED }
    }

    /// Seeds the controllers' random numbers. Path `n` that this factory serves, from 0, uses
    /// `seed + n`.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// The initial window in bytes of UDP payload, instead of ten packets or 14 720 bytes (RFC 9002
    /// §7.2).
    #[must_use]
    pub fn with_initial_window(mut self, bytes: u64) -> Self {
        self.settings.initial_window = Some(bytes);
        self
    }

    /// Whether packets on a path with UDP payloads of `mtu` bytes may be marked.
    #[cfg(feature = "harness")]
    pub(crate) fn claims_ecn(&self, mtu: u16) -> bool {
        use fullpipe_cc::CongestionControl;
        self.settings.peek(mtu).claims_ecn()
    }

    /// The caller paces by [`Controller::departure`].
    #[cfg(feature = "harness")]
    pub(crate) fn paced_by_caller(mut self) -> Self {
        self.paced = true;
        self
    }

    /// A controller for a path with UDP payloads of `mtu` bytes, whose first event is not before
    /// `now`.
    pub(crate) fn controller(&self, now: Instant, mtu: u16) -> Controller {
        let adapter = Adapter::new(self.settings.build(mtu), now, mtu);
        let initial_window = self.settings.initial_window(mtu);
        Controller { adapter: Mutex::new(adapter), initial_window, paced: self.paced }
    }
}

impl congestion::ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn congestion::Controller> {
        Box::new(self.controller(now, current_mtu))
    }
}

/// One of fullpipe's controllers on one path of a connection.
///
/// To read its state: `connection.congestion_state()`, then `clone_box().into_any()` downcast to
/// this type.
pub struct Controller {
    /// Behind a lock because the stack asks for the window through a shared reference, which
    /// finishes the open event. It is never contended.
    pub(super) adapter: Mutex<Adapter<InFlightPackets>>,
    pub(super) initial_window: u64,
    /// Whether packets leave as the pacer says.
    pub(super) paced: bool,
}

impl Controller {
    pub(super) fn lock(&self) -> MutexGuard<'_, Adapter<InFlightPackets>> {
        self.adapter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn adapter(&mut self) -> &mut Adapter<InFlightPackets> {
        self.adapter.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// The algorithm's state, with its window, rates and estimates.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    /// The latest delivery-rate sample.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.lock().delivery_rate()
    }

    /// The loss-recovery state.
    pub fn recovery(&self) -> RecoveryState {
        self.lock().recovery()
    }

    /// The adapter, for the harness.
    #[cfg(feature = "harness")]
    pub(crate) fn adapter_mut(&mut self) -> &mut Adapter<InFlightPackets> {
        self.adapter()
    }

    /// A copy for the same path after a change of the peer's port.
    pub(super) fn on_new_port(&self) -> Controller {
        Controller {
            adapter: Mutex::new(self.lock().on_new_port()),
            initial_window: self.initial_window,
            paced: self.paced,
        }
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(NAME).field("snapshot", &self.snapshot()).finish_non_exhaustive()
    }
}
