//! The stop signal: wakes sleeping threads and shuts down watched sockets.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stop signal of a node.
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

    /// Sleeps for `time`; `false` if the node stops.
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

    /// Shuts this socket down when the node stops; `false` if it already stops.
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
