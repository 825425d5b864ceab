//! Jain's fairness index (Jain, Chiu, Hawe 1984).

/// (Σx)² / (n·Σx²): 1 for equal shares, 1/n if one flow has everything; 1 if all shares are zero.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_one_and_a_monopoly_is_one_over_n() {
        assert_eq!(jain(&[5.0; 7]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
    }
}
