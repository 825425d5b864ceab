//! Bursts of a sender, and whether ACKs trigger them.

use crate::histogram::Histogram;
use fullpipe_experiment::connection::Pacing;
use fullpipe_units::{Span, Time};

/// Maximum gap within a burst. On paths below 1 Gbit/s, Linux's pacing timer and `fq` wait longer
/// between bursts of at least two segments, and a stack sends the data released by an ACK faster.
const MAX_BURST_GAP: Span = Span::from_micros(20);
/// Maximum reaction time of a stack to an ACK, interrupt coalescing and a busy processor included.
const MAX_REACTION: Span = Span::from_micros(250);
/// Minimum number of bursts for statistics.
const MIN_BURSTS: u64 = 10;

/// The bursts of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Bursts {
    last: Option<Time>,
    bytes: u64,
    largest: u64,
    sizes: Histogram,
    unprompted: u64,
}

impl Bursts {
    /// Adds `bytes` sent at `at`; the last ACK came at `answered`.
    #[inline]
    pub(super) fn add(&mut self, at: Time, bytes: u64, answered: Option<Time>) {
        if self.last.is_some_and(|last| at.since(last) < MAX_BURST_GAP) {
            self.bytes += bytes;
        } else {
            self.close();
            self.bytes = bytes;
            if answered.is_none_or(|a| at.since(a) > MAX_REACTION) {
                self.unprompted += 1;
            }
        }
        self.last = Some(at);
    }

    fn close(&mut self) {
        self.sizes.add(self.bytes as f64, 1.0);
        self.largest = self.largest.max(self.bytes);
    }

    /// The sizes, in bytes.
    pub(super) fn sizes(&self) -> &Histogram {
        &self.sizes
    }

    /// Statistics; `None` with too few bursts.
    pub(super) fn pacing(mut self) -> Option<Pacing> {
        self.close();
        let bursts = self.sizes.count();
        let quantile = |q| self.sizes.quantile(q).map(|b| b.round() as u64);
        Some(Pacing {
            burst_p50_bytes: quantile(0.5).filter(|_| bursts >= MIN_BURSTS)?,
            burst_p95_bytes: quantile(0.95)?,
            burst_max_bytes: self.largest,
            unprompted: self.unprompted as f64 / bursts as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred pairs of packets, a millisecond apart, each `after` its ACK.
    fn pairs(after: Span) -> Pacing {
        let mut b = Bursts::default();
        for ms in 1..=100 {
            let at = Time::ZERO + Span::from_millis(ms);
            b.add(at, 1000, Some(at - after));
            b.add(at + Span::from_micros(5), 1000, Some(at - after));
        }
        b.pacing().unwrap()
    }

    #[test]
    fn close_packets_are_one_burst() {
        let p = pairs(Span::from_micros(10));
        assert_eq!((p.burst_p50_bytes, p.burst_p95_bytes, p.burst_max_bytes), (2000, 2000, 2000));
    }

    #[test]
    fn paced_sender_does_not_wait_for_acks() {
        assert_eq!(pairs(Span::from_micros(10)).unprompted, 0.0);
        assert_eq!(pairs(Span::from_micros(600)).unprompted, 1.0);
        assert_eq!(Bursts::default().pacing(), None);
    }
}
