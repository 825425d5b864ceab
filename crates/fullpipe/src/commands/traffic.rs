//! The host's current traffic by controller, for `status` and `doctor`.

use fullpipe_live::{Filter, Reader, Snapshot, text};
use std::time::Duration;

/// Samples the connections beyond loopback.
pub struct Traffic {
    reader: Reader,
    sampled: bool,
}

/// Time between the first two samples, from which rates are computed.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

impl Traffic {
    /// None where the kernel does not report its sockets.
    pub fn open() -> Option<Traffic> {
        let filter = Filter::parse("not dst 127.0.0.0/8 and not dst ::1").ok()?;
        Some(Traffic { reader: Reader::open(filter).ok()?.without_owners(), sampled: false })
    }

    /// The traffic since the previous sample, or over half a second. Without a connection it does
    /// not wait.
    pub fn sample(&mut self) -> Option<Snapshot> {
        if !self.sampled {
            self.sampled = true;
            let first = self.reader.sample().ok()?;
            if first.connections.is_empty() {
                return Some(first);
            }
            std::thread::sleep(SAMPLE_INTERVAL);
        }
        self.reader.sample().ok()
    }
}

/// One line per controller.
pub fn lines(snapshot: &Snapshot) -> Vec<String> {
    match snapshot.connections.is_empty() {
        true => Vec::new(),
        false => text::totals(snapshot),
    }
}
