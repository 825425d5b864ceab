//! Counts of rare events: lost probes, failed transfers.

use std::collections::VecDeque;

/// Default number of ticks in the baseline: four hours of minutes.
const WINDOW: u16 = 240;
const RECENT: usize = super::series::RECENT;

/// Hits and totals by tick.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    window: u16,
    usual: VecDeque<Run>,
    /// Ticks in `usual`.
    ticks: u16,
    hits: u64,
    all: u64,
    recent: VecDeque<(u64, u32, u32)>,
}

/// Consecutive ticks with the same hits and total: most have neither losses nor failures.
#[derive(Clone, Copy, Debug)]
struct Run {
    ticks: u16,
    hits: u16,
    all: u16,
}

impl Default for Counts {
    fn default() -> Self {
        Counts::over(WINDOW)
    }
}

impl Counts {
    /// Counts with a baseline of `window` ticks.
    pub fn over(window: u16) -> Self {
        Counts { window, usual: VecDeque::new(), ticks: 0, hits: 0, all: 0, recent: VecDeque::new() }
    }

    /// Adds a tick to the baseline, from which the oldest is removed when it is full.
    fn push_usual(&mut self, hits: u32, all: u32) {
        let clamp = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
        let (hits, all) = (clamp(hits), clamp(all));
        match self.usual.back_mut().filter(|run| (run.hits, run.all) == (hits, all)) {
            Some(run) => run.ticks += 1,
            None => self.usual.push_back(Run { ticks: 1, hits, all }),
        }
        self.ticks += 1;
        self.hits += u64::from(hits);
        self.all += u64::from(all);
        if self.ticks > self.window
            && let Some(oldest) = self.usual.front_mut()
        {
            oldest.ticks -= 1;
            self.ticks -= 1;
            self.hits -= u64::from(oldest.hits);
            self.all -= u64::from(oldest.all);
            if oldest.ticks == 0 {
                self.usual.pop_front();
            }
        }
    }

    /// Adds `hits` of `all` in a tick; repeated calls for the newest tick add up.
    pub fn push(&mut self, tick: u64, hits: u32, all: u32) {
        if all == 0 {
            return;
        }
        if let Some(last) = self.recent.back_mut().filter(|last| last.0 == tick) {
            last.1 = last.1.saturating_add(hits);
            last.2 = last.2.saturating_add(all);
            return;
        }
        self.recent.push_back((tick, hits, all));
        if self.recent.len() > RECENT
            && let Some((_, hits, all)) = self.recent.pop_front()
        {
            self.push_usual(hits, all);
        }
    }

    /// The baseline share (the Krichevsky–Trofimov estimate, which is never zero).
    pub fn usual(&self) -> f64 {
        (self.hits as f64 + 0.5) / (self.all as f64 + 1.0)
    }

    /// The share over the baseline and the recent ticks.
    pub fn whole_share(&self) -> f64 {
        let kept = (self.hits, self.all);
        let (hits, all) = self
            .recent
            .iter()
            .fold(kept, |(h, a), (_, hits, all)| (h + u64::from(*hits), a + u64::from(*all)));
        if all == 0 { 0.0 } else { hits as f64 / all as f64 }
    }

    /// Restarts the baseline at `tick` and returns the former counts.
    pub fn restart(&mut self, tick: u64) -> Counts {
        let (since, before) = self.recent.iter().partition(|(at, ..)| *at >= tick);
        let fresh = Counts { recent: since, ..Counts::over(self.window) };
        Counts { recent: before, ..std::mem::replace(self, fresh) }
    }

    /// Resumes `former` with the counts from `tick` on.
    pub fn resume(&mut self, former: Counts, tick: u64) {
        let since: Vec<_> = self.recent.iter().filter(|(at, ..)| *at >= tick).copied().collect();
        *self = former;
        since.into_iter().for_each(|(at, hits, all)| self.push(at, hits, all));
    }

    /// The total count in the baseline.
    pub fn rests_on(&self) -> u64 {
        self.all
    }

    /// Hits and totals of the last `k` ticks, newest first.
    pub fn last(&self, k: usize) -> impl Iterator<Item = (u32, u32)> {
        self.recent.iter().rev().take(k).map(|(_, hits, all)| (*hits, *all))
    }

    pub fn newest(&self) -> Option<u64> {
        self.recent.back().map(|(tick, ..)| *tick)
    }

    pub fn tick_of(&self, k: usize) -> Option<u64> {
        self.recent.iter().rev().nth(k.checked_sub(1)?).map(|(tick, ..)| *tick)
    }

    /// The share in the last `k` ticks.
    pub fn share(&self, k: usize) -> f64 {
        let (hits, all) =
            self.last(k).fold((0u64, 0u64), |(h, a), (hits, all)| (h + u64::from(hits), a + u64::from(all)));
        if all == 0 { 0.0 } else { hits as f64 / all as f64 }
    }

    /// The log-likelihood ratio of `other` against the baseline share over the last `k` ticks, at
    /// most `most` per tick: losses come in bursts.
    pub fn evidence(&self, k: usize, other: f64, most: f64) -> f64 {
        let usual = self.usual();
        let (hit, miss) = ((other / usual).ln(), ((1.0 - other) / (1.0 - usual)).ln());
        let of = |(hits, all): (u32, u32)| {
            (f64::from(hits) * hit + f64::from(all.saturating_sub(hits)) * miss).min(most)
        };
        self.last(k).map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_baseline_is_that_of_the_window() {
        let (mut counts, mut all) = (Counts::over(5), VecDeque::new());
        for tick in 0..200u32 {
            let (hits, total) = (tick * tick % 3 % 2, 1 + tick / 7 % 3);
            counts.push(tick.into(), hits, total);
            all.push_back((hits, total));
            let usual = all.iter().rev().skip(RECENT).take(5);
            let (hits, total) = usual.fold((0, 0), |(h, a), (hits, all)| (h + hits, a + all));
            assert_eq!((counts.hits, counts.all), (hits.into(), total.into()));
        }
    }

    #[test]
    fn three_failures_in_a_row_are_stronger_evidence_than_one() {
        let mut counts = Counts::default();
        (0..100).for_each(|tick| counts.push(tick, 0, 2));
        counts.push(100, 1, 2);
        assert!(counts.evidence(1, 0.9, 12.0) < 6.0);
        (101..104).for_each(|tick| counts.push(tick, 2, 2));
        assert!(counts.evidence(3, 0.9, 12.0) > 20.0);
        assert_eq!(counts.share(3), 1.0);
    }
}
