//! A distribution, counted in buckets.

/// How many observations were at most each bound.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than there are bounds: the last is of what is above them all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty one; `bounds` rise.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts a value; what is no number is left out.
    pub fn observe(&mut self, value: f64) {
        if value.is_nan() {
            return;
        }
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Each bound, the last of them infinite, with the number of observations that were at most that.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        }))
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
    }
}
