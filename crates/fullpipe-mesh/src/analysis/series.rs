//! One quantity of one direction: its baseline, and the evidence for a change.

use std::collections::VecDeque;

/// Values in the baseline: four hours of minutes.
const WINDOW: usize = 240;
/// Recent values, which are tested before they join the baseline; also the longest stretch tested.
pub(super) const RECENT: usize = 12;
/// Minimum values for a baseline.
const MIN_VALUES: usize = 20;
/// The baseline is recomputed after this many values.
const REFRESH: u32 = 20;
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
    fn from_values(values: &VecDeque<f32>, floor: f64) -> Option<Level> {
        if values.len() < MIN_VALUES {
            return None;
        }
        let mut values: Vec<f32> = values.iter().copied().collect();
        let n = values.len();
        let at = |values: &mut [f32], q: f64| quantile(values, ((n - 1) as f64 * q).round() as usize);
        let (low, median, high) = (at(&mut values, 0.05), at(&mut values, 0.5), at(&mut values, 0.95));
        let mut apart: Vec<f32> = values.iter().map(|x| (f64::from(*x) - median).abs() as f32).collect();
        // Scale factors from the median absolute deviation and the 5th and 95th percentiles to
        // standard deviations of a normal distribution.
        let middle = quantile(&mut apart, (n - 1) / 2) * 1.4826;
        // Few values may underestimate the deviation.
        let wide = |side: f64| side.max(middle).max(floor) * (1.0 + 6.0 / n as f64);
        let (below, above) = (wide((median - low) / 1.645), wide((high - median) / 1.645));
        let beyond_below = values.iter().filter(|x| median - f64::from(**x) > 3.0 * below).count();
        let beyond_above = values.iter().filter(|x| f64::from(**x) - median > 3.0 * above).count();
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

/// The value that would be at `nth` if they were sorted.
fn quantile(values: &mut [f32], nth: usize) -> f64 {
    f64::from(*values.select_nth_unstable_by(nth, f32::total_cmp).1)
}

/// Values over time. A `tick` is an observed period.
///
/// A mesh of 64 sites has 30 000 series, so values are stored with single precision.
#[derive(Clone, Debug)]
pub(super) struct Series {
    usual: VecDeque<f32>,
    recent: VecDeque<(u32, f32)>,
    /// Cumulative rarity of the last value, the last two, and so on.
    rarity: [f32; RECENT],
    /// The maximum evidence over all stretches, for a change down and up.
    max_evidence: [f32; 2],
    level: Option<Level>,
    fresh: u32,
    floor: f32,
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
            floor: floor as f32,
        }
    }

    pub fn push(&mut self, tick: u64, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.recent.push_back((tick as u32, value as f32));
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
            self.level = Level::from_values(&self.usual, self.floor.into());
        }
        let mut sum = 0.0;
        let newest = self.recent.iter().rev().map(Some).chain(std::iter::repeat(None));
        for (sums, value) in self.rarity.iter_mut().zip(newest) {
            sum += self.level.zip(value).map_or(0.0, |(level, (_, value))| level.rarity(f64::from(*value)));
            *sums = sum as f32;
        }
        let max_evidence = |up| (1..=self.recent.len()).map(|k| self.evidence(k, up)).fold(0.0, f64::max);
        self.max_evidence = [max_evidence(false) as f32, max_evidence(true) as f32];
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
        self.recent.back().map(|(tick, _)| u64::from(*tick))
    }

    /// The tick of the first of the last `k` values.
    pub fn tick_of(&self, k: usize) -> Option<u64> {
        self.recent.iter().rev().nth(k.checked_sub(1)?).map(|(tick, _)| u64::from(*tick))
    }

    /// The evidence of the last `k` values for a change up or down.
    pub fn evidence(&self, k: usize, up: bool) -> f64 {
        let k = k.min(self.recent.len());
        let Some(rarity) = k.checked_sub(1).and_then(|last| self.rarity.get(last)) else { return 0.0 };
        let rarity = f64::from(*rarity);
        if up { rarity - DRIFT * k as f64 } else { -rarity - DRIFT * k as f64 }
    }

    /// The maximum evidence over all stretches.
    pub fn max_evidence(&self, up: bool) -> f64 {
        self.max_evidence[usize::from(up)].into()
    }

    /// The difference between the median of the last `k` values and the baseline.
    pub fn effect(&self, k: usize) -> Option<f64> {
        let level = self.level?;
        let last: Vec<f64> = self.last(k).collect();
        (!last.is_empty()).then(|| fullpipe_net::compare::median(&last) - level.median)
    }

    /// The last values, newest first.
    pub fn last(&self, k: usize) -> impl Iterator<Item = f64> {
        self.recent.iter().rev().take(k).map(|(_, value)| f64::from(*value))
    }

    /// All values, oldest first, except the last `but`.
    pub fn kept(&self, but: usize) -> Vec<f64> {
        let recent = self.recent.iter().take(self.recent.len().saturating_sub(but)).map(|(_, value)| *value);
        self.usual.iter().copied().chain(recent).map(f64::from).collect()
    }

    /// Restarts the baseline at `tick` and returns the former series.
    pub fn restart(&mut self, tick: u64) -> Series {
        let former = self.clone();
        self.usual.clear();
        self.recent.retain(|(at, _)| u64::from(*at) >= tick);
        self.level = None;
        self.rarity = [0.0; RECENT];
        self.max_evidence = [0.0; 2];
        self.fresh = 0;
        Series {
            recent: former.recent.iter().filter(|(at, _)| u64::from(*at) < tick).copied().collect(),
            ..former
        }
    }

    /// Resumes `former` with the values from `tick` on.
    pub fn resume(&mut self, mut former: Series, tick: u64) {
        former.recent.extend(self.recent.iter().filter(|(at, _)| u64::from(*at) >= tick).copied());
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
