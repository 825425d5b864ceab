//! Linux's timer wheel (`kernel/time/timer.c`): timers expire late, by up to an eighth of their
//! duration.

use fullpipe_cc::{Span, Time};

/// Buckets per level, and how much coarser each level is than the one before, as a shift.
const LEVEL: u32 = 64;
const COARSER: u32 = 3;
/// The coarsest level.
const LAST: u32 = 8;

/// The timer wheel of one kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wheel {
    tick: u64,
    /// Age of the kernel's tick counter when the run begins, in nanoseconds.
    offset: u64,
}

impl Wheel {
    /// The wheel of a kernel with `hz` ticks per second; `seed` determines the phase at which the
    /// run begins.
    pub fn new(hz: u32, seed: u64) -> Self {
        let tick = 1_000_000_000 / u64::from(hz.max(1));
        // Any phase of the fourth level's buckets; coarser levels hold timers of more than ten seconds. The
        // golden ratio spreads neighbouring seeds.
        let bucket = tick << (3 * COARSER);
        let part = u128::from(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Wheel { tick, offset: ((part * u128::from(bucket)) >> 64) as u64 }
    }

    /// When a timer that is set at `now` for `at` expires (`calc_wheel_index`, `calc_index`).
    pub fn expiry(&self, now: Time, at: Time) -> Time {
        let ticks = |time: Time| time.as_nanos().saturating_add(self.offset) / self.tick;
        let away = at.since(now).as_nanos().div_ceil(self.tick);
        let expires = ticks(now).saturating_add(away);
        let level = (0..LAST).find(|level| away < u64::from(LEVEL - 1) << (level * COARSER)).unwrap_or(LAST);
        let shift = level * COARSER;
        let bucket = ((expires >> shift) + 1) << shift;
        Time::ZERO + Span::from_nanos(bucket.saturating_mul(self.tick).saturating_sub(self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn a_timer_expires_with_the_next_bucket_of_its_level() {
        let wheel = Wheel { tick: 4_000_000, offset: 0 };
        // 62 ticks are the most of the first level, whose buckets are a tick.
        assert_eq!(wheel.expiry(ms(0), ms(248)), ms(252));
        assert_eq!(wheel.expiry(ms(3), ms(250)), ms(252));
        // From 63 on they are eight.
        assert_eq!(wheel.expiry(ms(0), ms(252)), ms(256));
        assert_eq!(wheel.expiry(ms(4), ms(256)), ms(288));
        assert_eq!(wheel.expiry(ms(28), ms(280)), ms(288));
        // 504 ticks, and 64 to a bucket.
        assert_eq!(wheel.expiry(ms(0), ms(2016)), ms(2048));
        assert_eq!(wheel.expiry(ms(40), ms(2056)), ms(2304));
    }

    #[test]
    fn a_timer_is_never_early_and_at_most_an_eighth_and_two_ticks_late() {
        for seed in 0..2000 {
            for hz in [24, 100, 250, 1000, 1200] {
                let wheel = Wheel::new(hz, seed);
                let now = Time::ZERO + Span::from_micros(seed * 7919);
                let wait = Span::from_micros(seed * seed * 3);
                let late = wheel.expiry(now, now + wait);
                assert!(late >= now + wait, "{seed} {hz}");
                let most = wait / 7 + Span::from_nanos(2 * wheel.tick);
                assert!(late.since(now + wait) <= most, "{seed} {hz} {:?}", late.since(now + wait));
            }
        }
    }
}
