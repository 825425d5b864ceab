//! A distribution, counted in buckets: in a few whose bounds are chosen, and in many whose bounds grow evenly.

use std::collections::BTreeMap;

/// How finely evenly growing buckets divide: each doubling into 2³, so that a bound is 1.09 times the one below it (Prometheus' schema 3).
pub const SCHEMA: i32 = 3;
/// The least and the greatest of them: from a microsecond (2⁻²⁰ s) to a terabyte a second (2⁴⁰). What lies beyond counts in the last.
const ENDS: (i32, i32) = (-20 << SCHEMA, 40 << SCHEMA);
/// At most this is counted as nothing: what Prometheus' own clients take (2⁻¹²⁸).
pub const ZERO: f64 = 2.938_735_877_055_719e-39;

/// How many observations were at most each bound.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: the last is of what is above them all.
    counts: Vec<u64>,
    /// By the number of the bucket: number i holds what is above b to the power of i - 1 and at most b to the power of i, b = 2^(1/8).
    even: BTreeMap<i32, u64>,
    zero: u64,
    sum: f64,
}

impl Histogram {
    /// An empty one; `bounds` rise.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], even: BTreeMap::new(), zero: 0, sum: 0.0 }
    }

    /// Counts a value; what is no number is left out.
    pub fn observe(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
        if value <= ZERO {
            self.zero += 1;
        } else {
            let number = (value.log2() * f64::from(1 << SCHEMA)).ceil() as i32;
            *self.even.entry(number.clamp(ENDS.0, ENDS.1)).or_default() += 1;
        }
    }

    /// Each bound, the last of them infinite, with the number of observations that were at most that.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
    }

    /// The evenly growing buckets in which something was counted: number and count, by number.
    pub fn even(&self) -> impl Iterator<Item = (i32, u64)> + '_ {
        self.even.iter().map(|(number, count)| (*number, *count))
    }

    /// Observations of nothing.
    pub fn zero(&self) -> u64 {
        self.zero
    }

    /// All observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_holds_what_is_equal_to_it() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        [0.5, 1.0, 1.5, 2.0, 9.0, f64::NAN].into_iter().for_each(|v| histogram.observe(v));
        let told: Vec<_> = histogram.cumulative().collect();
        assert_eq!(told, [(1.0, 2), (2.0, 4), (f64::INFINITY, 5)]);
        assert_eq!((histogram.count(), histogram.sum()), (5, 14.0));
        // 1 is eight times nothing above 2⁰; 1.5 is in (2^(4/8), 2^(5/8)] = (1.414, 1.542].
        assert_eq!(histogram.even().collect::<Vec<_>>(), [(-8, 1), (0, 1), (5, 1), (8, 1), (26, 1)]);
    }

    #[test]
    fn what_is_nothing_or_beyond_all_measure_has_its_place() {
        let mut histogram = Histogram::new(&[1.0]);
        [0.0, -1.0, 1e-300, 1e300, f64::INFINITY].into_iter().for_each(|v| histogram.observe(v));
        assert_eq!((histogram.zero(), histogram.count()), (3, 5));
        assert_eq!(histogram.even().collect::<Vec<_>>(), [(ENDS.1, 2)]);
        histogram.observe(1e-30);
        assert_eq!(histogram.even().next(), Some((ENDS.0, 1)));
    }
}
