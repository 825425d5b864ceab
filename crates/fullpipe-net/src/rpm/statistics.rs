//! Statistics of the draft (section 4.3). Pure functions of numbers.

/// The mean of the lowest `share` of `numbers` (single-sided trimmed mean); `None` without numbers.
pub fn trimmed_mean(numbers: &[f64], share: f64) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The tolerance keeps 19 of 20, whatever the rounding of 0.95.
    let kept = (sorted.len() as f64 * share - 1e-9).ceil().max(1.0) as usize;
    let kept = sorted.get(..kept.min(sorted.len()))?;
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

/// The standard deviation of a whole population; 0 without numbers.
pub fn standard_deviation(numbers: &[f64]) -> f64 {
    let n = numbers.len().max(1) as f64;
    let mean = numbers.iter().sum::<f64>() / n;
    (numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trimmed_mean_leaves_out_the_highest_twentieth() {
        // 1 to 19 and an outlier: the mean of 1 to 19 is 10.
        let mut twenty: Vec<f64> = (1..20).map(f64::from).collect();
        twenty.insert(3, 1000.0);
        assert_eq!(trimmed_mean(&twenty, 0.95), Some(10.0));
        // With fewer than twenty, a twentieth is less than one.
        assert_eq!(trimmed_mean(&[1.0, 2.0, 6.0], 0.95), Some(3.0));
        assert_eq!(trimmed_mean(&[7.0], 0.95), Some(7.0));
        assert_eq!(trimmed_mean(&[], 0.95), None);
    }

    #[test]
    fn the_standard_deviation_is_that_of_a_population() {
        // Mean 5; squares of the deviations 9, 1, 1, 1, 0, 0, 4, 16: 32 in eight.
        assert_eq!(standard_deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), 2.0);
        assert_eq!(standard_deviation(&[3.0]), 0.0);
        assert_eq!(standard_deviation(&[]), 0.0);
    }
}
