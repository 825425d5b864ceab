//! Statistics of repeated, interleaved measurements. Pure functions of numbers and a seed.

use fullpipe_experiment::recording::{Estimate, Finding};
use fullpipe_experiment::statistics;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Bootstrap resamples: the ends of a 95 % interval then vary by a fraction of its width.
const RESAMPLES: usize = 10_000;

/// The minimum number of pairs for a 95 % interval of a median: with five, even the full range
/// covers it in only 93.75 % of cases (1 − 2·2⁻⁵).
pub const MIN_PAIRS: usize = 6;

/// Smaller gains are not worth a change, however significant.
pub const MIN_GAIN: f64 = 1.05;

/// The median; 0 for an empty slice.
pub fn median(numbers: &[f64]) -> f64 {
    statistics::median(&mut numbers.to_vec()).unwrap_or(0.0)
}

/// The median of `pairs` with its bootstrap interval: percentiles of the medians of resamples
/// (Efron and Tibshirani, *An Introduction to the Bootstrap*, chapter 13), widened to the order
/// statistics of the sign test, because percentiles alone cover too little for so few pairs.
pub fn estimate(pairs: &[f64], seed: u64) -> Estimate {
    let n = pairs.len();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut resample = vec![0.0; n];
    let draw = || {
        for value in &mut resample {
            *value = pairs[(random.next_u64() % n as u64) as usize];
        }
        median(&resample)
    };
    interval(median(pairs), pairs, draw)
}

/// `middle` with the percentiles of values from `draw`, widened to the order statistics of `pairs`.
fn interval(middle: f64, pairs: &[f64], draw: impl FnMut() -> f64) -> Estimate {
    if pairs.is_empty() {
        return Estimate { median: 0.0, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    let mut drawn: Vec<f64> = std::iter::repeat_with(draw).take(RESAMPLES).collect();
    drawn.sort_by(f64::total_cmp);
    let at = |q: f64| drawn[((RESAMPLES - 1) as f64 * q).round() as usize];
    let mut sorted = pairs.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = sign_rank(sorted.len());
    Estimate {
        median: middle,
        low: at(0.025).min(sorted[rank]).min(middle),
        high: at(0.975).max(sorted[sorted.len() - 1 - rank]).max(middle),
    }
}

/// The median of `numbers` with its 95 % interval by order statistics (the sign test): fast for
/// many numbers, wider than [`estimate`]'s for few.
pub fn median_interval(numbers: &[f64]) -> Estimate {
    if numbers.is_empty() {
        return Estimate { median: 0.0, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (n, rank) = (sorted.len(), sign_rank(sorted.len()));
    let middle = f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]);
    Estimate { median: middle, low: sorted[rank], high: sorted[n - 1 - rank] }
}

/// Above this, the binomial distribution is approximated by a normal one, and ½ⁿ underflows.
const MAX_EXACT: usize = 1000;

/// How many of `n` sorted numbers can be left out at each end so that the rest spans the true
/// median in 95 % of cases: binomial tails with probability ½.
fn sign_rank(n: usize) -> usize {
    if n > MAX_EXACT {
        let n = n as f64;
        return ((n - 1.0) / 2.0 - 1.96 * n.sqrt() / 2.0).floor() as usize;
    }
    let mut tail = 0.5_f64.powi(n as i32);
    let mut term = tail;
    let mut rank = 0;
    loop {
        term *= (n - rank) as f64 / (rank + 1) as f64;
        tail += term;
        if tail > 0.025 || rank + 1 >= n.div_ceil(2) {
            return rank;
        }
        rank += 1;
    }
}

/// `combine` of the medians of two series measured in the same rounds. Rounds are resampled whole,
/// so that effects on both series cancel; the interval is widened to the order statistics of
/// `combine` round by round.
fn contrast(a: &[f64], b: &[f64], seed: u64, combine: fn(f64, f64) -> f64) -> Estimate {
    let n = a.len().min(b.len());
    let (a, b) = (&a[..n], &b[..n]);
    let pairs: Vec<f64> = a.iter().zip(b).map(|(&a, &b)| combine(a, b)).collect();
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let (mut some_a, mut some_b) = (vec![0.0; n], vec![0.0; n]);
    let draw = || {
        for (a_slot, b_slot) in some_a.iter_mut().zip(&mut some_b) {
            let round = (random.next_u64() % n as u64) as usize;
            (*a_slot, *b_slot) = (a[round], b[round]);
        }
        combine(median(&some_a), median(&some_b))
    };
    interval(combine(median(a), median(b)), &pairs, draw)
}

/// The difference of the medians of two series measured in the same rounds.
pub fn difference(a: &[f64], b: &[f64], seed: u64) -> Estimate {
    contrast(a, b, seed, |a, b| a - b)
}

/// The ratio of the medians of two series measured in the same rounds, and the finding. Rounds in
/// which one transferred nothing count as a factor of 1000.
pub fn compare(candidate: &[f64], baseline: &[f64], seed: u64) -> (Estimate, Finding) {
    let floor = |x: f64, other: f64| x.max(other / 1000.0).max(1e-9);
    let pairs = candidate.iter().zip(baseline).map(|(&a, &b)| (floor(a, b), floor(b, a)));
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let log = contrast(&a, &b, seed, |a, b| (a / b).ln());
    let ratio = Estimate { median: log.median.exp(), low: log.low.exp(), high: log.high.exp() };
    (ratio, finding(&log, a.len()))
}

fn finding(log: &Estimate, pairs: usize) -> Finding {
    let min_gain = MIN_GAIN.ln();
    if pairs < MIN_PAIRS {
        return Finding::Inconclusive { more_rounds: MIN_PAIRS - pairs };
    }
    if log.low > 0.0 && log.median >= min_gain {
        return Finding::Faster;
    }
    if log.high < 0.0 && log.median <= -min_gain {
        return Finding::Slower;
    }
    // Significantly small, or significantly not an advantage.
    if log.high <= min_gain && log.low >= -min_gain {
        return Finding::Same;
    }
    if (log.low > 0.0 || log.high < 0.0) && log.median.abs() < min_gain {
        return Finding::Same;
    }
    // The interval shrinks with the square root of the rounds, to half the distance to resolve.
    let half = (log.high - log.low) / 2.0;
    let distance = if log.median.abs() > min_gain { log.median.abs() } else { min_gain - log.median.abs() };
    let needed = pairs as f64 * (half / distance.max(min_gain / 4.0)).powi(2) * 1.2;
    Finding::Inconclusive { more_rounds: (needed.ceil() as usize).saturating_sub(pairs).clamp(2, 100) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Approximately normal numbers: the sum of twelve uniform ones.
    fn normal(random: &mut Pcg64Mcg) -> f64 {
        (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0
    }

    #[test]
    fn the_interval_covers_the_true_median_in_95_of_100_cases() {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        for n in [6, 10] {
            let covered = (0..200)
                .filter(|&seed| {
                    let numbers: Vec<f64> = (0..n).map(|_| 3.0 + normal(&mut random)).collect();
                    let e = estimate(&numbers, seed);
                    e.low <= 3.0 && 3.0 <= e.high
                })
                .count();
            // 200 draws at 95 %: standard deviation 1.5 %.
            assert!(covered >= 200 * 91 / 100, "{covered} of 200 with {n} numbers");
        }
    }

    #[test]
    fn the_interval_covers_the_true_ratio_of_medians_also_while_the_path_drifts() {
        let mut random = Pcg64Mcg::seed_from_u64(11);
        for (n, drift) in [(6, 0.0), (6, 0.5), (10, 0.5)] {
            let covered = (0..200)
                .filter(|&seed| {
                    let path: Vec<f64> = (0..n).map(|_| drift * normal(&mut random)).collect();
                    let mut of = |times: f64| -> Vec<f64> {
                        path.iter().map(|p| times * (p + 0.3 * normal(&mut random)).exp()).collect()
                    };
                    let (ratio, _) = compare(&of(3.0), &of(1.0), seed);
                    ratio.low <= 3.0 && 3.0 <= ratio.high
                })
                .count();
            assert!(covered >= 200 * 91 / 100, "{covered} of 200 with {n} rounds");
        }
    }

    #[test]
    fn the_ratio_is_that_of_the_medians_beside_it() {
        // The median of the round ratios is 5.5.
        let (a, b) = ([44.9, 44.9, 44.9, 11.0, 20.9, 44.9], [3.8, 3.8, 20.0, 2.0, 3.8, 20.0]);
        let (ratio, _) = compare(&a, &b, 1);
        assert!((ratio.median - median(&a) / median(&b)).abs() < 1e-9, "{ratio:?}");
        assert!(ratio.low <= ratio.median && ratio.median <= ratio.high, "{ratio:?}");
        assert_eq!(difference(&a, &b, 1).median, median(&a) - median(&b));
    }

    #[test]
    fn order_statistics_cover_the_true_median_of_few_and_of_many() {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        for n in [6, 30, 3000] {
            let covered = (0..200)
                .filter(|_| {
                    let numbers: Vec<f64> = (0..n).map(|_| 3.0 + normal(&mut random)).collect();
                    let e = median_interval(&numbers);
                    e.low <= 3.0 && 3.0 <= e.high && e.low <= e.median && e.median <= e.high
                })
                .count();
            assert!(covered >= 200 * 91 / 100, "{covered} of 200 with {n} numbers");
        }
        assert_eq!(median_interval(&[1.0, 4.0]).median, median(&[1.0, 4.0]));
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let numbers = [1.0, 5.0, 2.0, 8.0, 3.0, 9.0, 4.0];
        assert_eq!(estimate(&numbers, 1), estimate(&numbers, 1));
    }

    #[test]
    fn ranks_are_those_of_the_sign_test() {
        // From tables: 6 to 8 numbers leave out none, 9 to 11 one, 12 to 14 two, 20 five.
        let ranks: Vec<usize> = [6, 8, 9, 11, 12, 14, 20].into_iter().map(sign_rank).collect();
        assert_eq!(ranks, [0, 0, 1, 1, 2, 2, 5]);
        assert_eq!([1000, 1001].map(sign_rank), [468, 468]);
        assert_eq!(sign_rank(1), 0);
        assert_eq!(sign_rank(2), 0);
    }

    #[test]
    fn a_fivefold_goodput_in_every_round_is_faster() {
        let (ratio, finding) =
            compare(&[50.0, 49.0, 52.0, 48.0, 50.0, 51.0], &[10.0, 9.0, 11.0, 10.0, 12.0, 10.0], 1);
        assert_eq!(finding, Finding::Faster);
        assert!(ratio.low > 4.0 && ratio.high < 6.0, "{ratio:?}");
        let (_, finding) = compare(&[10.0; 6], &[20.0, 21.0, 19.0, 20.0, 22.0, 20.0], 1);
        assert_eq!(finding, Finding::Slower);
    }

    #[test]
    fn a_significant_but_small_difference_is_the_same() {
        let (_, finding) =
            compare(&[94.0, 94.1, 94.0, 93.9, 94.2, 94.0], &[93.0, 93.1, 93.0, 93.0, 93.2, 93.1], 1);
        assert_eq!(finding, Finding::Same);
        assert_eq!(compare(&[94.0; 6], &[94.0; 6], 1).1, Finding::Same);
    }

    #[test]
    fn noise_is_inconclusive_and_needs_more_rounds() {
        let (_, finding) =
            compare(&[10.0, 30.0, 8.0, 25.0, 9.0, 28.0], &[20.0, 12.0, 22.0, 14.0, 19.0, 13.0], 1);
        let Finding::Inconclusive { more_rounds } = finding else { panic!("{finding:?}") };
        assert!(more_rounds >= 2);
        // Few rounds are never conclusive.
        assert_eq!(compare(&[9.0; 3], &[1.0; 3], 1).1, Finding::Inconclusive { more_rounds: 3 });
        assert!(matches!(compare(&[], &[], 1).1, Finding::Inconclusive { .. }));
    }

    #[test]
    fn rounds_without_data_give_finite_ratios() {
        let (ratio, _) = compare(&[10.0; 6], &[0.0; 6], 1);
        assert!(ratio.high <= 1000.1, "{ratio:?}");
        let (ratio, finding) = compare(&[0.0; 6], &[0.0; 6], 1);
        assert_eq!((ratio.median, finding), (1.0, Finding::Same));
    }
}
