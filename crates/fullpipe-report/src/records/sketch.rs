//! Quantiles of a distribution in bounded memory.

use std::collections::BTreeMap;

/// Values counted in buckets that grow by 4 % each, so that every quantile is within 2 % of the
/// exact one (Masson, Rim and Lee, "DDSketch", PVLDB 12, 2019).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct QuantileSketch {
    /// Number of values that are not above 0.
    zeros: u64,
    buckets: BTreeMap<i32, u64>,
    count: u64,
}

/// Ratio of the upper to the lower bound of a bucket.
const GROWTH: f64 = 1.04;

impl QuantileSketch {
    /// Counts a value. Infinite values and NaN are ignored.
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.count += 1;
        if value <= 0.0 {
            self.zeros += 1;
        } else {
            // At most 36 000 buckets over the whole range of `f64`; some hundred for network measurements.
            *self.buckets.entry((value.ln() / GROWTH.ln()).ceil() as i32).or_insert(0) += 1;
        }
    }

    /// Number of values counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The value that a share `q` of all values does not exceed; `None` without values.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let wanted = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        self.steps().find(|(_, up_to)| *up_to >= wanted).map(|(value, _)| value)
    }

    /// Each value in rising order with the share of all values that do not exceed it. Values of 0
    /// and below count as 0.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.steps().map(|(value, up_to)| (value, up_to as f64 / self.count as f64))
    }

    fn steps(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let zeros = (self.zeros > 0).then_some((0.0, self.zeros));
        let middle = |bucket: i32| 2.0 * GROWTH.powi(bucket) / (GROWTH + 1.0);
        let above = self.buckets.iter().scan(self.zeros, move |sum, (bucket, count)| {
            *sum += count;
            Some((middle(*bucket), *sum))
        });
        zeros.into_iter().chain(above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_sketch_has_no_quantile() {
        let mut sketch = QuantileSketch::default();
        sketch.add(f64::NAN);
        assert_eq!((sketch.count(), sketch.quantile(0.5)), (0, None));
        sketch.add(0.0);
        sketch.add(10.0);
        assert_eq!(sketch.quantile(0.5), Some(0.0));
        assert_eq!(sketch.cumulative().map(|(_, share)| share).collect::<Vec<_>>(), [0.5, 1.0]);
    }

    proptest! {
        #[test]
        fn quantiles_are_within_two_percent(
            mut values in prop::collection::vec(1e-6f64..1e12, 1..300), q in 0.0f64..=1.0,
        ) {
            let mut sketch = QuantileSketch::default();
            values.iter().for_each(|v| sketch.add(*v));
            values.sort_by(f64::total_cmp);
            let at = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len()) - 1;
            let estimate = sketch.quantile(q).unwrap();
            prop_assert!((estimate / values[at] - 1.0).abs() <= 0.0201, "{estimate} {}", values[at]);
        }
    }
}
