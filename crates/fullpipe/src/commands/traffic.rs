//! What the host's connections do now, by controller: for `status` and `doctor`.

use fullpipe_live::{Filter, Reader, Snapshot, text};
use std::time::Duration;

/// Looks again and again at the connections beyond loopback.
pub struct Traffic {
    reader: Reader,
    looked: bool,
}

/// Between the first two looks: rates are what happened between two.
const APART: Duration = Duration::from_millis(500);

impl Traffic {
    /// None where the kernel does not tell of its sockets.
    pub fn open() -> Option<Traffic> {
        let filter = Filter::parse("not dst 127.0.0.0/8 and not dst ::1").ok()?;
        Some(Traffic { reader: Reader::open(filter).ok()?.without_owners(), looked: false })
    }

    /// What happened since the look before, or in the half second before now. A host without a connection is not waited for.
    pub fn look(&mut self) -> Option<Snapshot> {
        if !self.looked {
            self.looked = true;
            let first = self.reader.look().ok()?;
            if first.connections.is_empty() {
                return Some(first);
            }
            std::thread::sleep(APART);
        }
        self.reader.look().ok()
    }
}

/// A line a controller.
pub fn lines(snapshot: &Snapshot) -> Vec<String> {
    match snapshot.connections.is_empty() {
        true => Vec::new(),
        false => text::totals(snapshot),
    }
}
