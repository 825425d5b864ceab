//! Where the two ends and the sampler of one connection meet.

use super::source::Transfer;
use fullpipe_units::Time;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of one connection.
#[derive(Default)]
pub(crate) struct Entry {
    /// When its application began.
    pub(crate) began: Option<Time>,
    /// The sending socket, once it is connected.
    pub(crate) sender: Option<Arc<TcpStream>>,
    /// The receiving socket, once it is accepted.
    pub(crate) receiver: Option<Arc<TcpStream>>,
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
pub(crate) struct Desk(Arc<[Mutex<Entry>]>);

impl Desk {
    pub(crate) fn new(connections: usize) -> Self {
        Desk((0..connections).map(|_| Mutex::default()).collect())
    }

    /// The entry of connection `number`.
    pub(crate) fn entry(&self, number: usize) -> MutexGuard<'_, Entry> {
        self.0[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
