//! One quantity of one direction: its baseline, and the evidence for a change.

use std::collections::VecDeque;

/// Values in the baseline: four hours of minutes.
const WINDOW: usize = 240;
/// Recent values, which are tested before they join the baseline; also the longest stretch tested.
pub(super) const RECENT: usize = 12;
/// Minimum values for a baseline.
const MIN_VALUES: usize = 20;
/// The baseline is recomputed after this many values.
const REFRESH: usize = 20;
/// Drift subtracted per value: changes of about half a deviation are ignored.
const DRIFT: f64 = 0.5;

/// The baseline.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Level {
    pub median: f64,
    /// Deviations below and above: rate distributions are skewed.
    below: f64,
    above: f64,
    /// The maximum evidence of a single value, below and above: rarer than all values observed.
    most_below: f64,
    most_above: f64,
}

impl Level {
    fn from_values(values: &VecDeque<f64>, floor: f64) -> Option<Level> {
        if values.len() < MIN_VALUES {
            return None;
        }
        let mut sorted: Vec<f64> = values.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let n = sorted.len();
        let at = |q: f64| sorted[((n - 1) as f64 * q).round() as usize];
        let median = at(0.5);
        let mut apart: Vec<f64> = sorted.iter().map(|x| (x - median).abs()).collect();
        apart.sort_unstable_by(f64::total_cmp);
        // Scale factors from the median absolute deviation and the 5th and 95th percentiles to
        // standard deviations of a normal distribution.
        let middle = apart[(n - 1) / 2] * 1.4826;
        // Few values may underestimate the deviation.
        let wide = |side: f64| side.max(middle).max(floor) * (1.0 + 6.0 / n as f64);
        let (below, above) = (wide((median - at(0.05)) / 1.645), wide((at(0.95) - median) / 1.645));
        let beyond_below = sorted.iter().filter(|x| median - **x > 3.0 * below).count();
        let beyond_above = sorted.iter().filter(|x| **x - median > 3.0 * above).count();
        // The Krichevsky–Trofimov estimate for a value beyond all others.
        let most = |beyond: usize| ((n + 1) as f64 / (beyond as f64 + 0.5)).ln();
        Some(Level { median, below, above, most_below: most(beyond_below), most_above: most(beyond_above) })
    }

    /// The log-likelihood by which a value is rarer than usual under Student's t distribution with
    /// four degrees of freedom; negative for values below the median.
    fn rarity(&self, value: f64) -> f64 {
        let z = if value >= self.median {
            (value - self.median) / self.above
        } else {
            (value - self.median) / self.below
        };
        let rare = 2.5 * (z * z / 4.0).ln_1p();
        if z >= 0.0 { rare.min(self.most_above) } else { -rare.min(self.most_below) }
    }
}

/// Values over time. A `tick` is an observed period.
#[derive(Clone, Debug)]
pub(super) struct Series {
    usual: VecDeque<f64>,
    recent: VecDeque<(u64, f64)>,
    /// Cumulative rarity of the last value, the last two, and so on.
    rarity: [f64; RECENT],
    /// The maximum evidence over all stretches, for a change down and up.
    max_evidence: [f64; 2],
    level: Option<Level>,
    fresh: usize,
    floor: f64,
}

impl Series {
    /// A series that ignores deviations below `floor`.
    pub fn new(floor: f64) -> Self {
        Series {
            usual: VecDeque::new(),
            recent: VecDeque::new(),
            rarity: [0.0; RECENT],
            max_evidence: [0.0; 2],
            level: None,
            fresh: 0,
            floor,
        }
    }

    pub fn push(&mut self, tick: u64, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.recent.push_back((tick, value));
        if self.recent.len() > RECENT
            && let Some((_, old)) = self.recent.pop_front()
        {
            self.usual.push_back(old);
            if self.usual.len() > WINDOW {
                self.usual.pop_front();
            }
            self.fresh += 1;
        }
        let due = if self.usual.len() < 2 * MIN_VALUES { 1 } else { REFRESH };
        if self.fresh >= due {
            self.fresh = 0;
            self.level = Level::from_values(&self.usual, self.floor);
        }
        let mut sum = 0.0;
        let newest = self.recent.iter().rev().map(Some).chain(std::iter::repeat(None));
        for (sums, value) in self.rarity.iter_mut().zip(newest) {
            sum += self.level.zip(value).map_or(0.0, |(level, (_, value))| level.rarity(*value));
            *sums = sum;
        }
        let max_evidence = |up| (1..=self.recent.len()).map(|k| self.evidence(k, up)).fold(0.0, f64::max);
        self.max_evidence = [max_evidence(false), max_evidence(true)];
    }

    pub fn level(&self) -> Option<Level> {
        self.level
    }

    /// The number of baseline values.
    pub fn rests_on(&self) -> usize {
        self.usual.len()
    }

    /// The newest tick.
    pub fn newest(&self) -> Option<u64> {
        self.recent.back().map(|(tick, _)| *tick)
    }

    /// The tick of the first of the last `k` values.
    pub fn tick_of(&self, k: usize) -> Option<u64> {
        self.recent.iter().rev().nth(k.checked_sub(1)?).map(|(tick, _)| *tick)
    }

    /// The evidence of the last `k` values for a change up or down.
    pub fn evidence(&self, k: usize, up: bool) -> f64 {
        let k = k.min(self.recent.len());
        let Some(rarity) = k.checked_sub(1).and_then(|last| self.rarity.get(last)) else { return 0.0 };
        if up { rarity - DRIFT * k as f64 } else { -rarity - DRIFT * k as f64 }
    }

    /// The maximum evidence over all stretches.
    pub fn max_evidence(&self, up: bool) -> f64 {
        self.max_evidence[usize::from(up)]
    }

    /// The difference between the median of the last `k` values and the baseline.
    pub fn effect(&self, k: usize) -> Option<f64> {
        let level = self.level?;
        let last: Vec<f64> = self.recent.iter().rev().take(k).map(|(_, value)| *value).collect();
        (!last.is_empty()).then(|| fullpipe_net::compare::median(&last) - level.median)
    }

    /// The last values, newest first.
    pub fn last(&self, k: usize) -> impl Iterator<Item = f64> {
        self.recent.iter().rev().take(k).map(|(_, value)| *value)
    }

    /// All values, oldest first, except the last `but`.
    pub fn kept(&self, but: usize) -> Vec<f64> {
        let recent = self.recent.iter().take(self.recent.len().saturating_sub(but)).map(|(_, value)| *value);
        self.usual.iter().copied().chain(recent).collect()
    }

    /// Restarts the baseline at `tick` and returns the former series.
    pub fn restart(&mut self, tick: u64) -> Series {
        let former = self.clone();
        self.usual.clear();
        self.recent.retain(|(at, _)| *at >= tick);
        self.level = None;
        self.rarity = [0.0; RECENT];
        self.max_evidence = [0.0; 2];
        self.fresh = 0;
        Series { recent: former.recent.iter().filter(|(at, _)| *at < tick).copied().collect(), ..former }
    }

    /// Resumes `former` with the values from `tick` on.
    pub fn resume(&mut self, mut former: Series, tick: u64) {
        former.recent.extend(self.recent.iter().filter(|(at, _)| *at >= tick).copied());
        while former.recent.len() > RECENT {
            if let Some((_, old)) = former.recent.pop_front() {
                former.usual.push_back(old);
            }
        }
        *self = former;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;

    fn noise(random: &mut Pcg64Mcg) -> f64 {
        (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    #[test]
    fn a_large_shift_is_detected_after_three_values_and_noise_never() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let mut series = Series::new(0.01);
        let mut most = 0.0_f64;
        for tick in 0..2000 {
            series.push(tick, noise(&mut random) * 0.1);
            most = (1..=RECENT)
                .flat_map(|k| [series.evidence(k, true), series.evidence(k, false)])
                .fold(most, f64::max);
        }
        assert!(most < 13.0, "{most}");
        for tick in 2000..2003 {
            series.push(tick, -1.0 + noise(&mut random) * 0.1);
        }
        assert!(series.evidence(3, false) > 16.0 && series.evidence(3, true) < 0.0);
        assert!((series.effect(3).unwrap() + 1.0).abs() < 0.3);
    }

    #[test]
    fn the_baseline_is_restored_after_a_change() {
        let mut series = Series::new(0.01);
        (0..100).for_each(|tick| series.push(tick, 1.0));
        (100..110).for_each(|tick| series.push(tick, 5.0));
        let former = series.restart(100);
        assert_eq!((series.level(), former.level().map(|l| l.median)), (None, Some(1.0)));
        (110..112).for_each(|tick| series.push(tick, 1.0));
        series.resume(former, 110);
        assert_eq!(series.level().map(|l| l.median), Some(1.0));
        assert!(series.kept(0).iter().all(|value| *value == 1.0));
    }
}
