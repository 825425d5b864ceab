//! A distribution in bounded memory.

use std::collections::BTreeMap;

/// Values counted in buckets that grow by 4 % each: a quantile is right to 2 %, whatever the values are (Masson, Rim and Lee,
/// "DDSketch", PVLDB 12, 2019).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Spread {
    /// Not above 0.
    least: u64,
    buckets: BTreeMap<i32, u64>,
    count: u64,
}

const GROWTH: f64 = 1.04;

impl Spread {
    /// Counts a value; what is no number is left out.
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.count += 1;
        if value <= 0.0 {
            self.least += 1;
        } else {
            // At the most 36 000 buckets for all numbers there are; some hundred for what networks do.
            *self.buckets.entry((value.ln() / GROWTH.ln()).ceil() as i32).or_insert(0) += 1;
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The value that the share `q` of all does not exceed; none of nothing.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let wanted = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        self.steps().find(|(_, up_to)| *up_to >= wanted).map(|(value, _)| value)
    }

    /// Each value with the share of all that does not exceed it, rising; 0 for what is not above it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.steps().map(|(value, up_to)| (value, up_to as f64 / self.count as f64))
    }

    fn steps(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let least = (self.least > 0).then_some((0.0, self.least));
        let middle = |bucket: i32| 2.0 * GROWTH.powi(bucket) / (GROWTH + 1.0);
        let above = self.buckets.iter().scan(self.least, move |sum, (bucket, count)| {
            *sum += count;
            Some((middle(*bucket), *sum))
        });
        least.into_iter().chain(above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_nothing_there_is_no_quantile() {
        let mut spread = Spread::default();
        spread.add(f64::NAN);
        assert_eq!((spread.count(), spread.quantile(0.5)), (0, None));
        spread.add(0.0);
        spread.add(10.0);
        assert_eq!(spread.quantile(0.5), Some(0.0));
        assert_eq!(spread.cumulative().map(|(_, share)| share).collect::<Vec<_>>(), [0.5, 1.0]);
    }

    proptest! {
        #[test]
        fn a_quantile_is_right_to_two_percent(mut values in prop::collection::vec(1e-6f64..1e12, 1..300), q in 0.0f64..=1.0) {
            let mut spread = Spread::default();
            values.iter().for_each(|v| spread.add(*v));
            values.sort_by(f64::total_cmp);
            let at = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len()) - 1;
            let told = spread.quantile(q).unwrap();
            prop_assert!((told / values[at] - 1.0).abs() <= 0.0201, "{told} {}", values[at]);
        }
    }
}
