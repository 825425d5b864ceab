//! Order statistics of a few numbers, which are sorted in place. For many samples in constant
//! memory use [`Histogram`](crate::recording::Histogram).

/// The `q`-quantile (0 to 1) by nearest rank; `None` for no values.
///
/// ```
/// use fullpipe_experiment::statistics::quantile;
///
/// assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), Some(2.0));
/// assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.99), Some(3.0));
/// assert_eq!(quantile(&mut [], 0.5), None);
/// ```
pub fn quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[((last as f64 * q).round() as usize).min(last)])
}

/// The median (for an even count the mean of the middle two); `None` for no values.
///
/// ```
/// use fullpipe_experiment::statistics::median;
///
/// assert_eq!(median(&mut [3.0, 1.0, 9.0]), Some(3.0));
/// assert_eq!(median(&mut [3.0, 1.0]), Some(2.0));
/// assert_eq!(median(&mut []), None);
/// ```
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| f64::midpoint(values[(n - 1) / 2], values[n / 2]))
}
