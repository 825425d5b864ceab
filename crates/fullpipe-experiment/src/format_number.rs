//! Formats numbers for tables and messages.

/// Formats `x` with `digits` significant digits and no exponent. The integer part is never
/// shortened; a value that is not finite becomes a dash.
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

/// Removes trailing zeros of a decimal: `12.40` becomes `12.4`, `30.0` becomes `30`.
pub fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_count_from_the_first_nonzero_digit() {
        let three = |x| significant(x, 3);
        assert_eq!([three(0.01234), three(1.5), three(1234.5)], ["0.0123", "1.50", "1234"]);
        assert_eq!([three(9.996), three(0.0), three(f64::NAN)], ["10.0", "0", "–"]);
    }

    #[test]
    fn trim_zeros_leaves_integers_alone() {
        assert_eq!(["12.40", "30.0", "100"].map(trim_zeros), ["12.4", "30", "100"]);
    }
}
