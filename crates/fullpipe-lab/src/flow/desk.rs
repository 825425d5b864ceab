//! Where the two ends and the sampler of one connection meet.

use super::connection::Connection;
use super::source::Transfer;
use crate::LabError;
use fullpipe_experiment::scenario::{FlowSpec, Followers};
use fullpipe_units::Time;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of one connection.
#[derive(Default)]
pub(crate) struct Entry {
    /// When it is to start; none while it waits for another.
    pub(crate) start: Option<Time>,
    /// When its application began.
    pub(crate) began: Option<Time>,
    /// The sending socket, once it is connected.
    pub(crate) sender: Option<Arc<TcpStream>>,
    /// A burst or an answer that has been begun and not delivered.
    pub(crate) transfer: Option<Transfer>,
    /// Transfers delivered: when, and how long each took in seconds.
    pub(crate) transfers: Vec<(Time, f64)>,
    /// When the last byte of a flow of given size was delivered.
    pub(crate) completed: Option<Time>,
    /// The sender has stopped and all it wrote has been acknowledged, or it failed.
    pub(crate) over: bool,
    /// What went wrong at the socket.
    pub(crate) trouble: Option<String>,
}

/// The entries of all connections, by number.
#[derive(Clone)]
pub(crate) struct Desk(Arc<Inside>);

struct Inside {
    entries: Vec<Mutex<Entry>>,
    followers: Mutex<Followers>,
    /// The end that each connection sends from.
    ends: Vec<usize>,
    /// An end's, rung when one of its connections may start.
    bells: [EventFd; 2],
}

impl Desk {
    pub(crate) fn new(connections: &[Connection]) -> Result<Self, LabError> {
        let specs: Vec<FlowSpec> = connections.iter().map(|c| c.spec.clone()).collect();
        let followers = Followers::new(&specs).map_err(|(n, e)| LabError::Input(format!("flow {n}: {e}")))?;
        let bell = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .map_err(|e| LabError::failed("eventfd", e))
        };
        let entry = |c: &Connection| Mutex::new(Entry { start: c.start(), ..Entry::default() });
        Ok(Desk(Arc::new(Inside {
            entries: connections.iter().map(entry).collect(),
            followers: Mutex::new(followers),
            ends: connections.iter().map(Connection::sending_end).collect(),
            bells: [bell()?, bell()?],
        })))
    }

    /// The entry of connection `number`.
    pub(crate) fn entry(&self, number: usize) -> MutexGuard<'_, Entry> {
        self.0.entries[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followers(&self) -> MutexGuard<'_, Followers> {
        self.0.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another waits for connection `number`.
    pub(crate) fn is_awaited(&self, number: usize) -> bool {
        self.followers().has_waiting_flows(number)
    }

    /// Connection `number` has come so far at `now`: who has waited for that may start.
    pub(crate) fn has_come(&self, number: usize, delivered: u64, ended: bool, now: Time) {
        let due = self.followers().started_by(number, delivered, ended);
        for follower in due {
            self.entry(follower.flow).start = Some(now + follower.delay);
            // A full counter rings as well.
            let _ = self.bell(self.0.ends[follower.flow]).write(1);
        }
    }

    /// What rings when a connection of end `end` may start.
    pub(crate) fn bell(&self, end: usize) -> &EventFd {
        &self.0.bells[end]
    }
}
