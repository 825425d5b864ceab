//! A curve as a line of text.

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws `values` at rising times `t` from 0 to `end` in `width` characters. Each character is the
/// mean of its interval on a scale from 0 to `top`; without samples in it, the value of the next
/// sample, which describes the time before it. It is a blank where there is no value.
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
    // The interval of a sample ends at its time and begins at the one before.
    let first_start = t.first().map_or(0.0, |first| t.get(1).map_or(*first, |second| 2.0 * first - second));
    let mut line = String::new();
    let mut sample = 0;
    for (cell, (sum, n)) in sums.into_iter().enumerate() {
        let middle = (cell as f64 + 0.5) / width as f64 * end;
        while t.get(sample).is_some_and(|t| *t < middle) {
            sample += 1;
        }
        let held = values.get(sample).filter(|v| v.is_finite() && middle >= first_start);
        let mean = if n > 0 { Some(sum / f64::from(n)) } else { held.copied() };
        line.push(mean.map_or(' ', |mean| {
            let share = if top > 0.0 { mean / top } else { 0.0 };
            LEVELS[((share * 8.0) as usize).min(7)]
        }));
    }
    line
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

    #[test]
    fn sample_is_as_wide_as_its_time() {
        let t: Vec<f64> = (1..=4).map(f64::from).collect();
        assert_eq!(sparkline(&t, &[1.0, 3.0, f64::NAN, 7.0], 4.0, 8.0, 12), "▂▂▂▂▄▄▄  ███");
        // A flow that starts at 2 s.
        assert_eq!(sparkline(&t[2..], &[3.0, 7.0], 4.0, 8.0, 8), "    ▄▄▄█");
        assert_eq!(sparkline(&t[..2], &[3.0, 7.0], 4.0, 8.0, 8), "▄▄▄██   ");
    }
}
