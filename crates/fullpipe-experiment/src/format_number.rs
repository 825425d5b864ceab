//! Numbers as people read them.

/// `x` with `digits` significant digits, without an exponent; never fewer digits than its whole part has. A dash for
/// what is not finite.
pub fn significant(x: f64, digits: i32) -> String {
    if !x.is_finite() {
        return "–".to_owned();
    }
    if x == 0.0 {
        return "0".to_owned();
    }
    let magnitude = x.abs().log10().floor() as i32;
    let decimals = (digits - 1 - magnitude).clamp(0, 9) as usize;
    let text = format!("{x:.decimals$}");
    // 9.996 to three digits is 10.00: one digit too many.
    let rounded: f64 = text.parse().unwrap_or(x);
    let carried = rounded.abs().log10().floor() as i32 > magnitude;
    if carried && decimals > 0 { format!("{x:.0$}", decimals - 1) } else { text }
}

/// A decimal without needless zeros: `12.40` is `12.4`, `30.0` is `30`.
pub fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_counted_from_the_first_that_is_not_zero() {
        let three = |x| significant(x, 3);
        assert_eq!([three(0.01234), three(1.5), three(1234.5)], ["0.0123", "1.50", "1234"]);
        assert_eq!([three(9.996), three(0.0), three(f64::NAN)], ["10.0", "0", "–"]);
    }

    #[test]
    fn only_decimals_are_trimmed() {
        assert_eq!(["12.40", "30.0", "100"].map(trim_zeros), ["12.4", "30", "100"]);
    }
}
