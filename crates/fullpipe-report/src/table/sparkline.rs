//! A curve as a line of text.

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws `values` at rising times `t` from 0 to `end` in `width` characters. Each character is the mean of its interval on
/// a scale from 0 to `top`, or a blank if the interval has no values.
pub(crate) fn sparkline(t: &[f64], values: &[f64], end: f64, top: f64, width: usize) -> String {
    let mut sums = vec![(0.0, 0u32); width];
    for (&t, &v) in t.iter().zip(values) {
        let cell = (t / end * width as f64) as usize;
        if v.is_finite() && (0.0..=end).contains(&t) && width > 0 {
            let (sum, n) = &mut sums[cell.min(width - 1)];
            *sum += v;
            *n += 1;
        }
    }
    let level = |(sum, n): (f64, u32)| {
        if n == 0 {
            return ' ';
        }
        let share = if top > 0.0 { sum / f64::from(n) / top } else { 0.0 };
        LEVELS[((share * 8.0) as usize).min(7)]
    };
    sums.into_iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramp_rises_and_gap_is_blank() {
        let t: Vec<f64> = (0..80).map(|i| f64::from(i) / 8.0).collect();
        let ramp: Vec<f64> = (0..80).map(|i| if i < 70 { f64::from(i) } else { f64::NAN }).collect();
        assert_eq!(sparkline(&t, &ramp, 10.0, 80.0, 8), "▁▂▃▄▅▆▇ ");
        assert_eq!(sparkline(&t, &ramp, 0.0, 80.0, 3).chars().count(), 3);
        assert_eq!(sparkline(&[], &[], 10.0, 0.0, 3), "   ");
        assert_eq!(sparkline(&t, &ramp, 10.0, 80.0, 0), "");
    }
}
