//! A histogram with both classic buckets (fixed bounds) and native buckets (exponential bounds).

use std::collections::BTreeMap;

/// Resolution of native buckets (Prometheus schema 3): 2³ per doubling, so each bound is 1.09 times
/// the one below.
pub const SCHEMA: i32 = 3;
/// Range of native buckets: from 1 µs (2⁻²⁰ s) to about 1 TB/s (2⁴⁰). Values beyond count in the
/// outermost buckets.
const RANGE: (i32, i32) = (-20 << SCHEMA, 40 << SCHEMA);
/// Zero threshold, the default of Prometheus client libraries (2⁻¹²⁸).
pub const ZERO_THRESHOLD: f64 = 2.938_735_877_055_719e-39;

/// Counts of observations by bucket.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// Classic buckets; the last one, beyond all bounds, is +Inf.
    counts: Vec<u64>,
    /// Native buckets: bucket i holds values in (bⁱ⁻¹, bⁱ], b = 2^(1/8).
    native: BTreeMap<i32, u64>,
    zero: u64,
    sum: f64,
}

impl Histogram {
    /// An empty histogram; `bounds` are ascending.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], native: BTreeMap::new(), zero: 0, sum: 0.0 }
    }

    /// Counts a value; NaN is ignored.
    pub fn observe(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
        if value <= ZERO_THRESHOLD {
            self.zero += 1;
        } else {
            let number = (value.log2() * f64::from(1 << SCHEMA)).ceil() as i32;
            *self.native.entry(number.clamp(RANGE.0, RANGE.1)).or_default() += 1;
        }
    }

    /// Classic buckets: each upper bound, +Inf last, with the cumulative count.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }

    /// Non-empty native buckets: index and count, by index.
    pub fn native(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        self.native.iter().map(|(number, count)| (*number, *count))
    }

    /// Observations up to the zero threshold.
    pub fn zero(&self) -> u64 {
        self.zero
    }

    /// Total number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the observations.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        [0.5, 1.0, 1.5, 2.0, 9.0, f64::NAN].into_iter().for_each(|v| histogram.observe(v));
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative, [(1.0, 2), (2.0, 4), (f64::INFINITY, 5)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 14.0));
        // 1 is the bound 2⁰ of bucket 0; 1.5 is in (2^(4/8), 2^(5/8)] = (1.414, 1.542].
        assert_eq!(histogram.native().collect::<Vec<_>>(), [(-8, 1), (0, 1), (5, 1), (8, 1), (26, 1)]);
    }

    #[test]
    fn zeros_and_out_of_range_values_are_counted() {
        let mut histogram = Histogram::new(&[1.0]);
        [0.0, -1.0, 1e-300, 1e300, f64::INFINITY].into_iter().for_each(|v| histogram.observe(v));
        assert_eq!((histogram.zero(), histogram.count()), (3, 5));
        assert_eq!(histogram.native().collect::<Vec<_>>(), [(RANGE.1, 2)]);
        histogram.observe(1e-30);
        assert_eq!(histogram.native().next(), Some((RANGE.0, 1)));
    }
}
