//! A controller around the sending end's, which records its calls and lets the harness see it.
//! Compiled once for each stack, whose types it finds in its parent module.

use super::adapter;
use super::end::Factory;
use super::proto::congestion::{Controller, ControllerFactory};
use crate::harness::log::Log;
use crate::harness::pair::Inspect;
use fullpipe_cc::{Rate, Snapshot, Time};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The observed controller.
pub(super) enum Inner {
    /// The stack's.
    Own(Box<dyn Controller>),
    /// One of fullpipe's.
    Ours(Box<adapter::Controller>),
}

impl Inner {
    pub(super) fn get(&self) -> &dyn Controller {
        match self {
            Inner::Own(controller) => controller.as_ref(),
            Inner::Ours(controller) => controller.as_ref(),
        }
    }

    pub(super) fn get_mut(&mut self) -> &mut dyn Controller {
        match self {
            Inner::Own(controller) => controller.as_mut(),
            Inner::Ours(controller) => controller.as_mut(),
        }
    }
}

/// The controller with what it was called with.
pub(super) struct Observed {
    pub(super) inner: Inner,
    pub(super) log: Log,
    /// The state of a stack's own controller as it was read last, after so many changes.
    own_state: Option<(u64, Option<&'static str>)>,
}

impl Observed {
    /// The state of a stack's own controller, read again only after an event that can change it.
    fn own_state(&mut self) -> Option<&'static str> {
        let Inner::Own(controller) = &self.inner else { return None };
        match self.own_state {
            Some((changes, state)) if changes == self.log.changes => state,
            _ => {
                let state = super::own_state(controller.as_ref());
                self.own_state = Some((self.log.changes, state));
                state
            }
        }
    }
}

/// What the stack holds.
pub(super) struct Observer {
    shared: Arc<Mutex<Observed>>,
    base: Instant,
}

impl Observer {
    pub(super) fn lock(&self) -> MutexGuard<'_, Observed> {
        lock(&self.shared)
    }

    pub(super) fn time(&self, at: Instant) -> Time {
        Time::from_instant(self.base, at)
    }

    /// A copy that is not observed: a path that the connection left.
    pub(super) fn unobserved(&self) -> Box<dyn Controller> {
        self.lock().inner.get().clone_box()
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// Locks what is observed; after a panic in a controller the run has failed anyway.
fn lock(shared: &Mutex<Observed>) -> MutexGuard<'_, Observed> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The source of the sending end's controller.
pub(crate) enum Source {
    /// The stack.
    Own(Factory),
    /// fullpipe.
    Ours(adapter::Factory),
}

/// Builds an observed controller.
pub(crate) struct Observing {
    source: Source,
    base: Instant,
    slot: Arc<Slot>,
}

/// The latest controller that was built.
#[derive(Default)]
struct Slot(Mutex<Option<Arc<Mutex<Observed>>>>);

impl Observing {
    /// The factory, and what the harness sees of its controllers.
    pub(crate) fn new(source: Source, base: Instant) -> (Arc<Self>, Box<dyn Inspect>) {
        let slot = Arc::<Slot>::default();
        let handle = Handle { slot: slot.clone() };
        (Arc::new(Observing { source, base, slot }), Box::new(handle))
    }
}

impl ControllerFactory for Observing {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let (inner, episodes) = match &self.source {
            Source::Own(factory) => (Inner::Own(factory.clone().build(now, mtu)), true),
            Source::Ours(factory) => (Inner::Ours(Box::new(factory.controller(self.base, mtu))), false),
        };
        let shared = Arc::new(Mutex::new(Observed { inner, log: Log::new(episodes), own_state: None }));
        *self.slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared.clone());
        Box::new(Observer { shared, base: self.base })
    }
}

/// What the harness holds.
struct Handle {
    slot: Arc<Slot>,
}

impl Handle {
    /// Calls `read` with the controller, once there is one.
    fn with<T>(&self, read: impl FnOnce(&mut Observed) -> T) -> Option<T> {
        let slot = self.slot.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.as_ref().map(|shared| read(&mut lock(shared)))
    }

    /// Calls `read` with the adapter of one of fullpipe's controllers.
    fn with_ours<T>(&self, read: impl FnOnce(&mut adapter::Controller) -> T) -> Option<T> {
        self.with(|observed| match &mut observed.inner {
            Inner::Ours(controller) => Some(read(controller)),
            Inner::Own(_) => None,
        })
        .flatten()
    }
}

impl Inspect for Handle {
    fn snapshot(&self) -> Option<Snapshot> {
        self.with(|observed| match &mut observed.inner {
            Inner::Ours(controller) => Some(controller.adapter_mut().snapshot()),
            Inner::Own(controller) => super::own_snapshot(controller.as_ref()),
        })
        .flatten()
    }

    fn state(&self) -> Option<&'static str> {
        self.with(|observed| match &mut observed.inner {
            Inner::Ours(controller) => Some(controller.adapter_mut().state()),
            Inner::Own(_) => observed.own_state(),
        })
        .flatten()
    }

    fn delivery_rate(&self) -> Option<Rate> {
        self.with_ours(|controller| controller.adapter_mut().delivery_rate()).flatten()
    }

    fn departure(&self) -> (Time, u64) {
        self.with_ours(|controller| controller.adapter_mut().departure()).unwrap_or((Time::ZERO, u64::MAX))
    }

    fn with_log(&self, read: &mut dyn FnMut(&mut Log)) {
        self.with(|observed| {
            if let Inner::Ours(controller) = &mut observed.inner {
                let adapter = controller.adapter_mut();
                observed.log.on_recovery_state(adapter.recovery());
            }
            read(&mut observed.log);
        });
    }
}
