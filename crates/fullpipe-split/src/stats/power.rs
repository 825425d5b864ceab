//! Sample-size calculation.

use super::normal::Normal;
use super::sequence::half_width;

/// Design of a comparison of two arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Standard deviation of an observation.
    pub deviation: f64,
    /// Variance inflation of a mean due to units (design effect); 1 without units.
    pub inflation: f64,
    /// Shares of the two arms.
    pub shares: [f64; 2],
    /// Error probability of the confidence sequence.
    pub alpha: f64,
    /// Effect size for which the confidence sequence is narrowest.
    pub scale: f64,
}

/// Simulated paths: a power of 80 % then has a standard error of 0.8 points.
const PATHS: usize = 2500;
/// Growth of the sample between checks.
const STEP: f64 = 1.02;
/// Maximum sample size.
const MAX_SAMPLES: f64 = 1e12;

impl Design {
    /// Variance of the estimated difference after `n` observations in total, including other arms.
    pub fn variance(&self, n: f64) -> f64 {
        let each = self.deviation * self.deviation * self.inflation / n;
        each / self.shares[0] + each / self.shares[1]
    }

    /// Sample sizes at which the interval first excludes zero, for simulated paths of a Brownian
    /// motion with the effect as drift (the joint distribution of sequential estimates:
    /// Jennison and Turnbull, *Group Sequential Methods*, 2000, §3.1); sorted, infinite if it
    /// never does.
    fn crossings(&self, effect: f64, first: f64) -> Vec<f64> {
        let mut normal = Normal::new(0x5eed);
        // Twice what one look would need for a power of 99.99 %, and the log of the mixture: nearly all
        // have violation.
        let last = (first * 2.0).max(40.0 * self.variance(1.0) / (effect * effect)).max(100.0) * 4.0;
        let mut times = vec![f64::INFINITY; PATHS];
        for time in &mut times {
            let (mut n, mut information, mut sum) = (first.max(2.0), 0.0, 0.0);
            while n < last.min(MAX_SAMPLES) {
                let variance = self.variance(n);
                let more = 1.0 / variance - information;
                sum += effect * more + more.max(0.0).sqrt() * normal.draw();
                information = 1.0 / variance;
                if (sum * variance).abs() > half_width(variance, self.scale, self.alpha) {
                    *time = n;
                    break;
                }
                n *= STEP;
            }
        }
        times.sort_by(f64::total_cmp);
        times
    }

    /// Observations needed, including other arms, to detect an effect with probability `power`,
    /// with checks from `first` on. `None` if impossible.
    pub fn needed(&self, effect: f64, power: f64, first: u64) -> Option<u64> {
        let usable = effect != 0.0 && effect.is_finite() && (0.0..1.0).contains(&power);
        let sound = self.deviation > 0.0 && self.shares.iter().all(|share| *share > 0.0);
        if !usable || !sound {
            return None;
        }
        let times = self.crossings(effect.abs(), first as f64);
        let time = times[(power * PATHS as f64) as usize];
        time.is_finite().then_some(time.ceil() as u64)
    }

    /// Probability of detecting an effect within `n` observations.
    pub fn power(&self, effect: f64, n: u64, first: u64) -> f64 {
        let times = self.crossings(effect.abs(), first as f64);
        times.partition_point(|time| *time <= n as f64) as f64 / PATHS as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: Design =
        Design { deviation: 0.5, inflation: 1.0, shares: [0.5, 0.5], alpha: 0.05, scale: 0.1 };

    #[test]
    fn always_valid_needs_one_to_three_times_the_fixed_sample() {
        for effect in [0.05, 0.1, 0.2] {
            let needed = EVEN.needed(effect, 0.8, 200).unwrap() as f64;
            // Two-sided z-test at 5 % with 80 % power: (1.96 + 0.84)² V(1) / effect².
            let once = 7.849 * EVEN.variance(1.0) / (effect * effect);
            assert!(needed > once && needed < 3.0 * once.max(200.0), "{effect}: {needed} {once}");
            let power = EVEN.power(effect, needed as u64, 200);
            assert!((power - 0.8).abs() < 0.02, "{power}");
        }
    }

    #[test]
    fn harder_designs_need_more_observations() {
        let needed = |design: Design, effect| design.needed(effect, 0.8, 200).unwrap();
        let all = needed(EVEN, 0.1);
        assert!(needed(EVEN, 0.05) > 3 * all);
        assert!(needed(Design { inflation: 4.0, ..EVEN }, 0.1) > 3 * all);
        assert!(needed(Design { shares: [0.9, 0.1], ..EVEN }, 0.1) > 2 * all);
        assert_eq!(EVEN.needed(0.0, 0.8, 200), None);
        assert_eq!(Design { shares: [1.0, 0.0], ..EVEN }.needed(0.1, 0.8, 200), None);
        assert_eq!(all, needed(EVEN, -0.1));
    }
}
