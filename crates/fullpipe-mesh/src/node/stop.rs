//! Ending: whoever sleeps wakes, and whoever waits at a socket finds it closed.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the node is to end.
#[derive(Debug, Default)]
pub(super) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
    sockets: Mutex<Vec<Weak<TcpStream>>>,
}

impl Stop {
    pub fn stop(&self) {
        *lock(&self.stopped) = true;
        self.changed.notify_all();
        for socket in lock(&self.sockets).drain(..).filter_map(|s| s.upgrade()) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    pub fn is_stopped(&self) -> bool {
        *lock(&self.stopped)
    }

    /// Sleeps, and says whether the node goes on.
    pub fn sleep(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut stopped = lock(&self.stopped);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if *stopped || left.is_zero() {
                return !*stopped;
            }
            stopped = self.changed.wait_timeout(stopped, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes this socket, too, when the node ends. Says whether it goes on.
    pub fn watch(&self, socket: &Arc<TcpStream>) -> bool {
        let mut sockets = lock(&self.sockets);
        sockets.retain(|s| s.strong_count() > 0);
        sockets.push(Arc::downgrade(socket));
        drop(sockets);
        if self.is_stopped() {
            let _ = socket.shutdown(Shutdown::Both);
            return false;
        }
        true
    }
}
