//! State of the connections that both ends and the sampler share.

use super::connection::Connection;
use super::source::Transfer;
use crate::LabError;
use fullpipe_experiment::scenario::{FlowSpec, Followers};
use fullpipe_units::Time;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The shared state of one connection.
#[derive(Default)]
pub(crate) struct Entry {
    /// When to start; `None` while it waits for another connection.
    pub(crate) start: Option<Time>,
    /// When its application started.
    pub(crate) began: Option<Time>,
    /// The sending socket, once it is connected.
    pub(crate) sender: Option<Arc<TcpStream>>,
    /// The burst or response in progress.
    pub(crate) transfer: Option<Transfer>,
    /// Delivered transfers: when, and how long each took in seconds.
    pub(crate) transfers: Vec<(Time, f64)>,
    /// When the last byte of a flow with a size was delivered.
    pub(crate) completed: Option<Time>,
    /// Whether the sender has stopped and all its data has been acknowledged, or it failed.
    pub(crate) over: bool,
    /// An error of the socket.
    pub(crate) problem: Option<String>,
}

/// The entries of all connections, by number.
#[derive(Clone)]
pub(crate) struct Registry(Arc<Inside>);

struct Inside {
    entries: Vec<Mutex<Entry>>,
    followers: Mutex<Followers>,
    /// The end that each connection sends from.
    ends: Vec<usize>,
    /// Per end, an eventfd that is signalled when one of its connections may start.
    wakeups: [EventFd; 2],
}

impl Registry {
    pub(crate) fn new(connections: &[Connection]) -> Result<Self, LabError> {
        let specs: Vec<FlowSpec> = connections.iter().map(|c| c.spec.clone()).collect();
        let followers = Followers::new(&specs).map_err(|(n, e)| LabError::Input(format!("flow {n}: {e}")))?;
        let wakeup = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|e| LabError::failed("eventfd", e))
        };
        let entry = |c: &Connection| Mutex::new(Entry { start: c.start(), ..Entry::default() });
        Ok(Registry(Arc::new(Inside {
            entries: connections.iter().map(entry).collect(),
            followers: Mutex::new(followers),
            ends: connections.iter().map(Connection::sending_end).collect(),
            wakeups: [wakeup()?, wakeup()?],
        })))
    }

    /// The entry of connection `number`.
    pub(crate) fn entry(&self, number: usize) -> MutexGuard<'_, Entry> {
        self.0.entries[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followers(&self) -> MutexGuard<'_, Followers> {
        self.0.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another connection waits for connection `number`.
    pub(crate) fn is_awaited(&self, number: usize) -> bool {
        self.followers().has_waiting_flows(number)
    }

    /// Records the progress of connection `number` at `now`: connections that waited for it may
    /// start.
    pub(crate) fn has_come(&self, number: usize, delivered: u64, ended: bool, now: Time) {
        let due = self.followers().started_by(number, delivered, ended);
        for follower in due {
            self.entry(follower.flow).start = Some(now + follower.delay);
            // A full counter wakes the end as well.
            let _ = self.wakeup(self.0.ends[follower.flow]).write(1);
        }
    }

    /// The eventfd that is signalled when a connection of end `end` may start.
    pub(crate) fn wakeup(&self, end: usize) -> &EventFd {
        &self.0.wakeups[end]
    }
}
