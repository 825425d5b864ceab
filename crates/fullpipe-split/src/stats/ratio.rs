//! Sample-ratio test: a mismatch means that assignment, recording or analysis treats the arms
//! differently, which invalidates all effects.

/// Always-valid p-value of counts given shares: the reciprocal of the Bayes factor of a Dirichlet
/// mixture (Lindon and Malek, *Anytime-valid inference for multinomial count data*, NeurIPS 2022,
/// eq. 5), multiplied over rounds with different shares. Non-positive shares and their arms are
/// ignored.
pub fn ratio_p_value<'a>(rounds: impl IntoIterator<Item = (&'a [u64], &'a [f64])>) -> f64 {
    let log: f64 = rounds.into_iter().map(|(counts, shares)| log_factor(counts, shares)).sum();
    (-log).exp().min(1.0)
}

/// Concentration of the mixture: deviations as expected among this many draws.
const CONCENTRATION: f64 = 1000.0;

fn log_factor(counts: &[u64], shares: &[f64]) -> f64 {
    let all: Vec<(f64, f64)> = counts
        .iter()
        .zip(shares)
        .filter(|(_, share)| **share > 0.0)
        .map(|(n, share)| (*n as f64, *share))
        .collect();
    let (total, sum) = all.iter().fold((0.0, 0.0), |(n, s), (count, share)| (n + count, s + share));
    if all.len() < 2 || total == 0.0 {
        return 0.0;
    }
    let mut log = libm::lgamma(CONCENTRATION) - libm::lgamma(CONCENTRATION + total);
    for (count, share) in all {
        let share = share / sum;
        let prior = CONCENTRATION * share;
        log += libm::lgamma(prior + count) - libm::lgamma(prior) - count * share.ln();
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Normal;

    #[test]
    fn mismatches_are_detected() {
        let p = |counts: &[u64], shares: &[f64]| ratio_p_value([(counts, shares)]);
        assert!(p(&[5000, 5010], &[0.5, 0.5]) > 0.5);
        assert!(p(&[821_588, 815_482], &[0.5, 0.5]) < 0.001, "a mismatch of 0.19 points among 1.6 million");
        assert!(p(&[900, 1100], &[0.5, 0.5]) < 0.05);
        assert!(p(&[100, 900], &[0.1, 0.9]) > 0.5);
        assert_eq!(p(&[], &[]), 1.0);
        assert_eq!(p(&[7, 0], &[0.5, 0.0]), 1.0);
        let rounds: [(&[u64], &[f64]); 2] = [(&[950, 1050], &[0.5, 0.5]), (&[190, 1810], &[0.05, 0.95])];
        assert!(ratio_p_value(rounds) < 0.01, "significant together");
    }

    #[test]
    fn continuous_checks_have_at_most_5_percent_false_positives() {
        let wrong = (0..300)
            .filter(|seed| {
                let mut random = Normal::new(*seed);
                let mut counts = [0u64; 2];
                (0..3000).any(|_| {
                    counts[usize::from(random.uniform() > 0.3)] += 1;
                    ratio_p_value([(&counts[..], &[0.3, 0.7][..])]) < 0.05
                })
            })
            .count();
        // 5 % and three standard deviations.
        assert!(wrong <= 26, "{wrong} of 300");
    }
}
