//! Always-valid intervals: Robbins' normal mixture (Robbins 1970, *Statistical methods related to
//! the law of the iterated logarithm*), as the mixture sequential probability ratio test has it
//! (Johari, Koomen, Pekelis and Walsh, *Always valid inference: continuous monitoring of A/B
//! tests*, Operations Research 2022, eq. 10) and as an asymptotic confidence sequence for estimates
//! whose variance is itself estimated (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas,
//! *Time-uniform central limit theory and asymptotic confidence sequences*, Annals of Statistics
//! 2024; two-sided normal mixture of Howard, Ramdas, McAuliffe and Sekhon, Annals of Statistics
//! 2021, eq. 14).

/// Minimum variance, from rounding in large sums.
const MIN_VARIANCE: f64 = 1e-18;

/// Half-width of the interval around an estimate with this variance, such that the intervals at all
/// times together contain the true value with probability 1 − `alpha`. It is narrowest for effects
/// of about `scale`, but valid for any.
pub fn half_width(variance: f64, scale: f64, alpha: f64) -> f64 {
    let variance = variance.max(MIN_VARIANCE);
    let prior = scale * scale;
    let sum = variance + prior;
    (2.0 * variance * sum / prior * ((1.0 / alpha).ln() + 0.5 * (sum / variance).ln())).sqrt()
}

/// Always-valid p-value: the reciprocal of the mixture likelihood ratio against no effect.
pub fn p_value(estimate: f64, variance: f64, scale: f64) -> f64 {
    let variance = variance.max(MIN_VARIANCE);
    let prior = scale * scale;
    let sum = variance + prior;
    let log = 0.5 * (variance / sum).ln() + prior * estimate * estimate / (2.0 * variance * sum);
    (-log).exp().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Normal;

    #[test]
    fn interval_and_p_value_agree() {
        for variance in [1e-4, 1e-3, 0.01, 1.0] {
            let half = half_width(variance, 0.1, 0.05);
            assert!((p_value(half, variance, 0.1) - 0.05).abs() < 1e-9);
            // Wider than a fixed-sample interval, but not much more than twice.
            let once = 1.96 * variance.sqrt();
            assert!(half > once && (half < 3.0 * once || variance == 1.0), "{variance}: {half} {once}");
        }
        // Without variance, only rounding errors remain.
        assert!(half_width(0.0, 0.1, 0.05) < 1e-8);
        assert_eq!((p_value(1e-13, 0.0, 0.1), p_value(0.1, 0.0, 0.1)), (1.0, 0.0));
    }

    /// Repeated checks inflate the error of fixed-sample intervals, but not of these.
    #[test]
    fn continuous_checks_are_valid() {
        let (mut always, mut once) = (0, 0);
        for seed in 0..400 {
            let mut normal = Normal::new(seed);
            let (mut sum, mut wrong, mut peeked) = (0.0, false, false);
            for n in 1..=3000 {
                sum += normal.draw();
                let (mean, variance) = (sum / f64::from(n), 1.0 / f64::from(n));
                wrong |= mean.abs() > half_width(variance, 0.1, 0.05);
                peeked |= n >= 20 && mean.abs() > 1.96 * variance.sqrt();
            }
            always += i32::from(wrong);
            once += i32::from(peeked);
        }
        // 5 % of 400 and three standard deviations; the naive one is wrong in a third of cases and more.
        assert!(always <= 33, "{always}");
        assert!(once > 100, "{once}");
    }
}
