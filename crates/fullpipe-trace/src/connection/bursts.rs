//! How data leaves its sender: in bursts, and whether ACKs prompt them.

use crate::histogram::Histogram;
use fullpipe_experiment::connection::Pacing;
use fullpipe_units::{Span, Time};

/// Packets closer than this left together: Linux's pacing timer and `fq` wait longer between two bursts on any path
/// slower than 1 Gbit/s (a quantum of at least two segments), and a stack hands down an ACK's worth in less.
const TOGETHER: Span = Span::from_micros(20);
/// A stack answers an ACK within this: interrupt coalescing and a busy processor included.
const PROMPT: Span = Span::from_micros(250);
/// Fewer bursts than this are no habit.
const FEWEST: u64 = 10;

/// The bursts of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Bursts {
    last: Option<Time>,
    bytes: u64,
    most: u64,
    sizes: Histogram,
    unprompted: u64,
}

impl Bursts {
    /// `bytes` leave at `at`; the last ACK came at `answered`.
    #[inline]
    pub(super) fn leave(&mut self, at: Time, bytes: u64, answered: Option<Time>) {
        if self.last.is_some_and(|last| at.since(last) < TOGETHER) {
            self.bytes += bytes;
        } else {
            self.close();
            self.bytes = bytes;
            if answered.is_none_or(|a| at.since(a) > PROMPT) {
                self.unprompted += 1;
            }
        }
        self.last = Some(at);
    }

    fn close(&mut self) {
        self.sizes.add(self.bytes as f64, 1.0);
        self.most = self.most.max(self.bytes);
    }

    /// What there was; none where there were too few bursts to tell.
    pub(super) fn pacing(mut self) -> Option<Pacing> {
        self.close();
        let bursts = self.sizes.count();
        let quantile = |q| self.sizes.quantile(q).map(|b| b.round() as u64);
        Some(Pacing {
            burst_p50_bytes: quantile(0.5).filter(|_| bursts >= FEWEST)?,
            burst_p95_bytes: quantile(0.95)?,
            burst_max_bytes: self.most,
            unprompted: self.unprompted as f64 / bursts as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred pairs of packets a millisecond apart, each pair so long after its ACK.
    fn pairs(after: Span) -> Pacing {
        let mut b = Bursts::default();
        for ms in 1..=100 {
            let at = Time::ZERO + Span::from_millis(ms);
            b.leave(at, 1000, Some(at - after));
            b.leave(at + Span::from_micros(5), 1000, Some(at - after));
        }
        b.pacing().unwrap()
    }

    #[test]
    fn packets_that_leave_together_are_one_burst() {
        let p = pairs(Span::from_micros(10));
        assert_eq!((p.burst_p50_bytes, p.burst_p95_bytes, p.burst_max_bytes), (2000, 2000, 2000));
    }

    #[test]
    fn a_paced_sender_does_not_wait_for_acks() {
        assert_eq!(pairs(Span::from_micros(10)).unprompted, 0.0);
        assert_eq!(pairs(Span::from_micros(600)).unprompted, 1.0);
        assert_eq!(Bursts::default().pacing(), None);
    }
}
