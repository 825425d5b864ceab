//! Whether an acknowledgment can be one of this connection. A host with a half-open connection of
//! the same ports answers with its numbers (RFC 9293 §3.5.1), and so may a middlebox.

use super::half::Half;
use crate::sequence::unwrap;

/// Window that a receiver may have without having been captured.
const MIN_WINDOW: u64 = 1 << 16;
/// The same if the window scale is unknown.
const MAX_UNSCALED_WINDOW: u64 = 1 << 26;
/// Largest scale (RFC 7323 §2.3).
const MAX_SCALE: u32 = 14;

/// Acknowledgments that were not believed.
#[derive(Clone, Debug, Default)]
pub(super) struct Disbelief {
    pub(super) count: u64,
    /// The last one.
    latest: Option<u32>,
    /// The last one beyond what was sent. If the next ACK is a little further, the capture missed
    /// the data between.
    beyond: Option<u64>,
}

impl Disbelief {
    /// Whether `seq` is that of a reset that answers an ACK that was not believed (RFC 9293
    /// §3.10.7.3). It resets another connection.
    pub(super) fn is_answered_by(&self, seq: u32) -> bool {
        self.latest == Some(seq)
    }
}

impl Half {
    /// Whether the acknowledgment number `ack` can be one of this data; if not, it is counted.
    #[inline]
    pub(super) fn believes(&mut self, ack: u32) -> bool {
        if !self.begun {
            return true;
        }
        let ack = unwrap(self.next, ack);
        let is_usual = self.una <= ack && ack <= self.next && self.disbelief.beyond.is_none();
        let believed = is_usual || self.believes_unusual(ack);
        if believed {
            self.acked_here = self.acked_here.max(ack);
        }
        believed
    }

    fn believes_unusual(&mut self, ack: u64) -> bool {
        let window = self.window_bound();
        // RFC 5961 §5.2: at most a window behind; and a sender sends at most up to the window's edge.
        let is_behind = ack.saturating_add(window) < self.una || self.isn.is_some_and(|isn| ack < isn);
        let is_beyond = ack > self.window_edge().unwrap_or(0).max(self.next).saturating_add(window);
        let beyond = self.disbelief.beyond;
        let continues = beyond.is_some_and(|before| ack > before && ack - before <= window);
        if !is_behind && (continues || !is_beyond) {
            if continues {
                self.disbelief.count -= 1;
            }
            self.disbelief.beyond = None;
            return true;
        }
        self.disbelief.count += 1;
        self.disbelief.latest = Some(ack as u32);
        if is_beyond {
            self.disbelief.beyond = Some(ack);
        }
        false
    }

    /// Whether `seq` is at most a window from the data captured so far.
    pub(super) fn expects(&self, seq: u32) -> bool {
        !self.begun || unwrap(self.next, seq).abs_diff(self.next) <= self.window_bound()
    }

    /// Upper bound of the receive window.
    fn window_bound(&self) -> u64 {
        let window = &self.counts.window;
        let most = match window.max_bytes {
            Some(bytes) if window.scale_unknown => (bytes << MAX_SCALE).min(MAX_UNSCALED_WINDOW),
            Some(bytes) => bytes,
            None if self.isn.is_some() => 0,
            None => MAX_UNSCALED_WINDOW,
        };
        most.max(MIN_WINDOW)
    }
}
