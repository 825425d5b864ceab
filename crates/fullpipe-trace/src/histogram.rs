//! Distributions of positive quantities over many orders of magnitude, in bins of half a per cent.

use std::collections::BTreeMap;

/// Width of a bin as a ratio.
const RATIO: f64 = 1.005;

/// Weights by the logarithm of what they belong to. Memory: one entry for each half per cent that occurs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    bins: BTreeMap<i16, Bin>,
    weight: f64,
    count: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    weight: f64,
    sum: f64,
}

impl Histogram {
    /// Adds `value` with `weight`; what is not positive is not counted.
    #[inline]
    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        if value <= 0.0 || !value.is_finite() {
            return;
        }
        let bin = self.bins.entry((value.ln() / RATIO.ln()).floor() as i16).or_default();
        bin.weight += weight;
        bin.sum += value * weight;
        self.weight += weight;
        self.count += 1;
    }

    /// How many values were added.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The value below which a share `q` of the weight lies.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let mut left = self.weight * q;
        for bin in self.bins.values() {
            left -= bin.weight;
            if left <= 0.0 {
                return Some(bin.sum / bin.weight);
            }
        }
        self.bins.values().next_back().map(|b| b.sum / b.weight)
    }

    /// The highest value about which the weight gathers: the mean over a window of ±`spread` that holds a share of at
    /// least `of_best` of the fullest such window and `of_all` of everything, the highest such window that is fuller
    /// than those beside it.
    pub(crate) fn highest_mode(&self, spread: f64, of_best: f64, of_all: f64) -> Option<f64> {
        let half = ((1.0 + spread).ln() / RATIO.ln()).ceil() as i16;
        let window = |centre: i16| {
            let range = centre.saturating_sub(half)..=centre.saturating_add(half);
            self.bins
                .range(range)
                .fold(Bin::default(), |a, (_, b)| Bin { weight: a.weight + b.weight, sum: a.sum + b.sum })
        };
        let windows: Vec<(i16, Bin)> = self.bins.keys().map(|&k| (k, window(k))).collect();
        let best = windows.iter().map(|w| w.1.weight).fold(0.0, f64::max);
        let needed = (best * of_best).max(self.weight * of_all);
        let (from, _) = windows.iter().rev().find(|(_, w)| w.weight >= needed)?;
        // From the first that is full enough down to the summit it belongs to.
        let near = windows.iter().rev().filter(|(k, _)| k <= from && *k >= from.saturating_sub(2 * half));
        let (_, top) = near.max_by(|a, b| a.1.weight.total_cmp(&b.1.weight))?;
        (top.weight > 0.0).then(|| top.sum / top.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bin() {
        let mut h = Histogram::default();
        for i in 1..=1000 {
            h.add(f64::from(i), 1.0);
        }
        for (q, v) in [(0.5, 500.0), (0.95, 950.0), (1.0, 1000.0)] {
            let found = h.quantile(q).unwrap();
            assert!((found / v - 1.0).abs() < 0.006, "{q}: {found}");
        }
        assert_eq!(h.count(), 1000);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn the_highest_mode_is_neither_an_outlier_nor_a_lower_crowd() {
        let mut h = Histogram::default();
        (0..1000).for_each(|i| h.add(40.0 + f64::from(i % 10) * 0.02, 1.0));
        (0..400).for_each(|i| h.add(99.0 + f64::from(i % 10) * 0.2, 1.0));
        h.add(180.0, 1.0);
        let mode = h.highest_mode(0.015, 0.1, 0.01).unwrap();
        assert!((mode - 100.0).abs() < 1.0, "{mode}");
    }
}
