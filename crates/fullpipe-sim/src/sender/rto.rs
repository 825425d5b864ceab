//! Round-trip time and retransmission timeout: RFC 6298 as in Linux (`tcp_rtt_estimator`,
//! `tcp_set_rto`).

use fullpipe_cc::MinMax;
use fullpipe_cc::{Span, Time};

/// Smallest variance term, and so the smallest difference between timeout and smoothed RTT
/// (`TCP_RTO_MIN`).
pub(crate) const RTO_MIN: Span = Span::from_millis(200);
/// Longest timeout (`TCP_RTO_MAX`).
pub(crate) const RTO_MAX: Span = Span::from_secs(120);
/// Before the first sample (`TCP_TIMEOUT_INIT`, RFC 6298 §2.1).
pub(crate) const RTO_INITIAL: Span = Span::from_secs(1);
/// Window of the minimum RTT (`tcp_min_rtt_wlen`), in milliseconds.
const MIN_RTT_WINDOW_MS: u32 = 300_000;

/// Smoothed round-trip time, its variance and its minimum.
#[derive(Clone, Debug, Default)]
pub(crate) struct RttEstimator {
    /// Smoothed RTT in eighths of a nanosecond.
    srtt_8: i64,
    /// Mean deviation in quarters of a nanosecond.
    mdev_4: i64,
    /// Largest mean deviation of the current round.
    mdev_max_4: i64,
    /// The variance term of the timeout.
    rttvar: i64,
    /// The round ends when this segment is acknowledged.
    round_end: u64,
    min: Option<MinMax<u64>>,
    latest: Option<Span>,
    backoff: u32,
}

impl RttEstimator {
    /// Adds a sample; the connection's first unacknowledged and next segment are `una` and `nxt`.
    pub fn sample(&mut self, rtt: Span, una: u64, nxt: u64) {
        let floor = RTO_MIN.as_nanos() as i64;
        // The bound, far above any RTT, keeps the eighths from overflowing.
        let mut m = rtt.as_nanos().clamp(1, 1 << 58) as i64;
        self.backoff = 0;
        if self.srtt_8 == 0 {
            self.srtt_8 = m << 3;
            self.mdev_4 = m << 1;
            self.rttvar = self.mdev_4.max(floor);
            self.mdev_max_4 = self.rttvar;
            self.round_end = nxt;
            return;
        }
        m -= self.srtt_8 >> 3;
        self.srtt_8 += m;
        if m < 0 {
            // A falling RTT raises the deviation eight times more slowly than a rising one (Eifel).
            m = -m - (self.mdev_4 >> 2);
            if m > 0 {
                m >>= 3;
            }
        } else {
            m -= self.mdev_4 >> 2;
        }
        self.mdev_4 += m;
        if self.mdev_4 > self.mdev_max_4 {
            self.mdev_max_4 = self.mdev_4;
            self.rttvar = self.rttvar.max(self.mdev_max_4);
        }
        if una > self.round_end {
            if self.mdev_max_4 < self.rttvar {
                self.rttvar -= (self.rttvar - self.mdev_max_4) >> 2;
            }
            self.round_end = nxt;
            self.mdev_max_4 = floor;
        }
    }

    /// Adds a sample of the minimum RTT.
    pub fn sample_min(&mut self, now: Time, rtt: Span) {
        let t = (now.as_nanos() / 1_000_000) as u32;
        self.latest = Some(rtt);
        match &mut self.min {
            Some(min) => {
                min.running_min(MIN_RTT_WINDOW_MS, t, rtt.as_nanos());
            }
            none => *none = Some(MinMax::new(t, rtt.as_nanos())),
        }
    }

    /// Smoothed round-trip time.
    pub fn srtt(&self) -> Option<Span> {
        (self.srtt_8 > 0).then(|| Span::from_nanos((self.srtt_8 >> 3) as u64))
    }

    /// Minimum round-trip time of the last five minutes.
    pub fn min(&self) -> Option<Span> {
        self.min.map(|m| Span::from_nanos(m.get()))
    }

    /// Most recent round-trip time.
    pub fn latest(&self) -> Option<Span> {
        self.latest
    }

    /// The timeout without back-off.
    fn base(&self) -> Span {
        match self.srtt() {
            None => RTO_INITIAL,
            Some(srtt) => (srtt + Span::from_nanos(self.rttvar.max(0) as u64)).min(RTO_MAX),
        }
    }

    /// The timeout, doubled for each expiry since the last acknowledgment.
    pub fn rto(&self) -> Span {
        (self.base() * (1 << self.backoff.min(20))).min(RTO_MAX)
    }

    /// The timeout expired.
    pub fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// Something was acknowledged: ends the back-off.
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_path_times_out_200_ms_after_its_round_trip() {
        let mut r = RttEstimator::default();
        assert_eq!(r.rto(), Span::from_secs(1));
        r.sample(Span::from_millis(100), 0, 10);
        assert_eq!(r.rto(), Span::from_millis(300), "RTT/2 · 4 is the first variance");
        for i in 1..200 {
            r.sample(Span::from_millis(100), i * 10, i * 10 + 10);
        }
        assert_eq!(r.srtt(), Some(Span::from_millis(100)));
        assert_eq!(r.rto(), Span::from_millis(300));
    }

    #[test]
    fn the_time_out_doubles_to_two_minutes_and_an_answer_resets_it() {
        let mut r = RttEstimator::default();
        r.sample(Span::from_millis(100), 0, 10);
        r.back_off();
        assert_eq!(r.rto(), Span::from_millis(600));
        for _ in 0..100 {
            r.back_off();
        }
        assert_eq!(r.rto(), RTO_MAX);
        r.reset_backoff();
        assert_eq!(r.rto(), Span::from_millis(300));
    }

    #[test]
    fn a_jump_of_the_round_trip_widens_the_time_out_at_once() {
        let mut r = RttEstimator::default();
        for i in 0..100 {
            r.sample(Span::from_millis(20), i * 10, i * 10 + 10);
        }
        let before = r.rto();
        r.sample(Span::from_millis(1000), 2000, 2010);
        assert!(r.rto() > before + Span::from_millis(300), "{:?}", r.rto());
    }

    #[test]
    fn absurd_samples_do_not_overflow() {
        let mut r = RttEstimator::default();
        for rtt in [Span::MAX, Span::ZERO, Span::MAX, Span::from_nanos(1)] {
            r.sample(rtt, 0, 1);
            assert!(r.rto() <= RTO_MAX);
        }
    }
}
