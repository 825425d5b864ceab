//! Samples grouped by unit, with variances of means and quantiles.

use crate::stats::sequence::half_width;
use std::collections::BTreeMap;

/// Counts by buckets of equal width.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram(BTreeMap<i32, u64>);

impl Histogram {
    fn add(&mut self, bucket: i32) {
        *self.0.entry(bucket).or_default() += 1;
    }

    /// Count in buckets up to and including `bucket`.
    fn up_to(&self, bucket: i32) -> u64 {
        self.0.range(..=bucket).map(|(_, n)| n).sum()
    }

    /// A quantile, interpolated linearly within its bucket; `None` outside 0 to 1.
    fn quantile(&self, q: f64, width: f64) -> Option<f64> {
        let total: u64 = self.0.values().sum();
        if total == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = q * total as f64;
        let mut below = 0.0;
        for (bucket, n) in &self.0 {
            let n = *n as f64;
            if below + n >= rank {
                return Some((f64::from(*bucket) + ((rank - below) / n).clamp(0.0, 1.0)) * width);
            }
            below += n;
        }
        None
    }
}

/// Sums of a unit: a client prefix or period.
#[derive(Clone, Debug, Default, PartialEq)]
struct Unit {
    n: u64,
    sum: f64,
    histogram: Histogram,
}

/// A mean with its variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// Mean of all observations.
    pub mean: f64,
    /// Variance of the mean, between units.
    pub variance: f64,
    /// Number of units.
    pub units: u64,
}

/// Observations of one arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    width: f64,
    n: u64,
    sum: f64,
    squares: f64,
    histogram: Histogram,
    /// Sums by unit, if units have several observations.
    units: Option<BTreeMap<u64, Unit>>,
}

impl Sample {
    /// An empty sample with buckets of `width`; `in_units` if observations are assigned in groups.
    pub fn new(width: f64, in_units: bool) -> Self {
        Sample {
            width,
            n: 0,
            sum: 0.0,
            squares: 0.0,
            histogram: Histogram::default(),
            units: in_units.then(BTreeMap::new),
        }
    }

    /// Adds an observation of a unit.
    pub fn add(&mut self, value: f64, unit: u64) {
        let bucket = (value / self.width).floor().clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i32;
        self.n += 1;
        self.sum += value;
        self.squares += value * value;
        self.histogram.add(bucket);
        if let Some(units) = &mut self.units {
            let unit = units.entry(unit).or_default();
            unit.n += 1;
            unit.sum += value;
            unit.histogram.add(bucket);
        }
    }

    /// Number of observations.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether it has no observations.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Number of units.
    pub fn units(&self) -> u64 {
        self.units.as_ref().map_or(self.n, |units| units.len() as u64)
    }

    /// The mean. With units, a ratio of sums whose variance is that of the units' residuals (the
    /// delta method: Deng, Knoblich and Lu, *Applying the delta method in metric analytics*,
    /// KDD 2018, §3). `None` for fewer than two units.
    pub fn mean(&self) -> Option<Mean> {
        let units = self.units();
        if units < 2 {
            return None;
        }
        let (n, k) = (self.n as f64, units as f64);
        let mean = self.sum / n;
        let squares = match &self.units {
            // The sum of squares around the mean.
            None => (self.squares - n * mean * mean).max(0.0),
            Some(units) => units.values().map(|unit| (unit.sum - mean * unit.n as f64).powi(2)).sum(),
        };
        Some(Mean { mean, variance: squares / (n * n) * k / (k - 1.0), units })
    }

    /// Standard deviation of single observations, and the design effect (variance inflation of the
    /// mean). `None` for fewer than two observations, or without variance.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let n = self.n as f64;
        let mean = self.mean()?;
        let variance = (self.squares / n - mean.mean * mean.mean).max(0.0);
        (variance > 0.0).then(|| (variance.sqrt(), mean.variance / (variance / n)))
    }

    /// A quantile.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        self.histogram.quantile(q, self.width)
    }

    /// A quantile with an always-valid interval, by inverting that of the share of observations
    /// below it (Woodruff, *Confidence intervals for medians and other position measures*, JASA
    /// 1952). Bounds beyond the observations are infinite.
    pub fn quantile_interval(&self, q: f64, alpha: f64) -> Option<[f64; 3]> {
        let units = self.units();
        let estimate = self.quantile(q).filter(|_| units >= 2)?;
        let (n, k) = (self.n as f64, units as f64);
        let bucket = (estimate / self.width).ceil() as i32 - 1;
        let variance = match &self.units {
            None => q * (1.0 - q) / (n - 1.0),
            Some(units) => {
                let share = self.histogram.up_to(bucket) as f64 / n;
                let residual = |unit: &Unit| unit.histogram.up_to(bucket) as f64 - share * unit.n as f64;
                units.values().map(|unit| residual(unit).powi(2)).sum::<f64>() / (n * n) * k / (k - 1.0)
            }
        };
        // Scale: an effect of a tenth of a standard deviation.
        let half = half_width(variance, 0.1 * (q * (1.0 - q)).sqrt(), alpha);
        Some([
            self.quantile(q - half).unwrap_or(f64::NEG_INFINITY),
            estimate,
            self.quantile(q + half).unwrap_or(f64::INFINITY),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Normal;

    #[test]
    fn variance_of_a_mean_matches_the_textbook() {
        let mut sample = Sample::new(0.01, false);
        [1.0, 2.0, 3.0, 6.0].into_iter().enumerate().for_each(|(i, x)| sample.add(x, i as u64));
        let mean = sample.mean().unwrap();
        // The sample's variance is 14/3, that of the mean a quarter of it.
        assert_eq!((mean.mean, mean.units), (3.0, 4));
        assert!((mean.variance - 14.0 / 12.0).abs() < 1e-12);
        // Units of one observation are the same.
        let mut units = Sample::new(0.01, true);
        [1.0, 2.0, 3.0, 6.0].into_iter().enumerate().for_each(|(i, x)| units.add(x, i as u64));
        assert!((units.mean().unwrap().variance - mean.variance).abs() < 1e-12);
    }

    #[test]
    fn grouped_observations_have_the_variance_of_groups() {
        // Ten clients of a hundred connections each, which differ by client only.
        let mut sample = Sample::new(0.01, true);
        let mut alone = Sample::new(0.01, false);
        for unit in 0..10 {
            for _ in 0..100 {
                sample.add(unit as f64, unit);
                alone.add(unit as f64, unit);
            }
        }
        let (mean, naive) = (sample.mean().unwrap(), alone.mean().unwrap());
        // The variance of 0..10 is 55/6, of its mean a tenth.
        assert!((mean.variance - 55.0 / 60.0).abs() < 1e-9 && mean.mean == 4.5);
        assert!(naive.variance < mean.variance / 90.0);
        let (deviation, inflation) = sample.spread().unwrap();
        assert!(
            (deviation - 8.25_f64.sqrt()).abs() < 1e-9 && (100.0..112.0).contains(&inflation),
            "{inflation}"
        );
    }

    #[test]
    fn quantiles_are_exact_to_a_bucket() {
        let mut normal = Normal::new(5);
        let mut numbers: Vec<f64> = (0..20_000).map(|_| 3.0 + normal.draw()).collect();
        let mut sample = Sample::new(0.01, false);
        numbers.iter().for_each(|x| sample.add(*x, 0));
        numbers.sort_by(f64::total_cmp);
        for q in [0.05, 0.5, 0.95] {
            let [low, estimate, high] = sample.quantile_interval(q, 0.05).unwrap();
            let exact = numbers[(q * 20_000.0) as usize];
            assert!((estimate - exact).abs() < 0.011, "{q}: {estimate} {exact}");
            assert!(low < estimate && estimate < high && high - low < 0.2, "{low} {high}");
        }
        assert_eq!(Sample::new(0.01, false).quantile(0.5), None);
        let mut few = Sample::new(0.01, false);
        (0..10).for_each(|x| few.add(f64::from(x), 0));
        assert_eq!(few.quantile_interval(0.95, 0.05).unwrap()[2], f64::INFINITY);
    }
}
