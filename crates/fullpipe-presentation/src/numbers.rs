//! Formats numbers for reading: three significant digits and a unit.

pub use fullpipe_experiment::format_number::significant;
use fullpipe_experiment::format_number::trim_zeros;

/// A rate in bits per second with a fitting unit: `92.4 Mbit/s`.
pub fn rate(bps: f64) -> String {
    let (unit, size) = rate_unit(bps);
    format!("{} {unit}", significant(bps / size, 3))
}

/// The unit for rates of up to `bps`, and its size.
pub fn rate_unit(bps: f64) -> (&'static str, f64) {
    match bps.abs() {
        x if x >= 0.9995e9 => ("Gbit/s", 1e9),
        x if x >= 0.9995e6 => ("Mbit/s", 1e6),
        x if x >= 0.9995e3 => ("kbit/s", 1e3),
        _ => ("bit/s", 1.0),
    }
}

/// The unit for sizes of up to `bytes`, and its size.
pub fn size_unit(bytes: f64) -> (&'static str, f64) {
    match bytes.abs() {
        x if x >= 1e9 => ("GB", 1e9),
        x if x >= 1e6 => ("MB", 1e6),
        x if x >= 1e3 => ("kB", 1e3),
        _ => ("B", 1.0),
    }
}

/// A share between 0 and 1 as a percentage: `95.7 %`, `0.013 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", percent_figure(share))
}

/// The figure of [`percent`], without its unit.
pub fn percent_figure(share: f64) -> String {
    let p = share * 100.0;
    if p >= 10.0 {
        format!("{p:.1}")
    } else if p >= 0.1 {
        format!("{p:.2}")
    } else {
        significant(p, 2)
    }
}

/// Milliseconds: `104 ms`, `4.2 ms`, `0.031 ms`.
pub fn millis(ms: f64) -> String {
    format!("{} ms", significant(ms, 3))
}

/// Seconds: `12.4 s`, `30 s`.
pub fn seconds(s: f64) -> String {
    format!("{} s", trim_zeros(&significant(s, 3)))
}

/// Wraps text at `width` columns; a longer word has its own line.
pub fn wrap_text(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// `part / whole`; 0 if `whole` is 0.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_fitting_unit() {
        assert_eq!(rate(92_415_000.0), "92.4 Mbit/s");
        assert_eq!(rate(999_960_000.0), "1.00 Gbit/s");
        assert_eq!(rate(2_400.0), "2.40 kbit/s");
        assert_eq!(rate(0.0), "0 bit/s");
        assert_eq!(millis(104.2), "104 ms");
        assert_eq!(millis(9.996), "10.0 ms");
        assert_eq!(millis(0.0312), "0.0312 ms");
        assert_eq!(millis(f64::NAN), "– ms");
        assert_eq!(seconds(1234.5), "1234 s");
        assert_eq!(seconds(30.0), "30 s");
        assert_eq!(percent(0.9574), "95.7 %");
        assert_eq!(percent(0.01), "1.00 %");
        assert_eq!(percent(0.000_13), "0.013 %");
        assert_eq!(percent(0.0), "0 %");
    }
}
