//! Quantities and places in sentences.

use fullpipe_experiment::connection::Point;
use fullpipe_units::{Rate, Span};

/// `12.3 Mbit/s`.
pub fn rate(r: Rate) -> String {
    scaled(r.as_bits_per_sec_f64(), 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// `12.3 MB`.
pub fn bytes(n: u64) -> String {
    if n < 1000 { format!("{n} B") } else { scaled(n as f64, 1000.0, &["B", "kB", "MB", "GB", "TB"]) }
}

/// `12.3 ms`, `4.56 s`.
pub fn span(s: Span) -> String {
    let ms = s.as_millis_f64();
    if ms >= 1000.0 { format!("{} s", digits(ms / 1000.0)) } else { format!("{} ms", digits(ms)) }
}

fn scaled(mut v: f64, by: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while v >= by && unit + 1 < units.len() {
        v /= by;
        unit += 1;
    }
    format!("{} {}", digits(v), units[unit])
}

/// Three significant digits, or all before the decimal point.
pub(crate) fn digits(v: f64) -> String {
    match v.abs() {
        v0 if v0 >= 100.0 => format!("{v:.0}"),
        v0 if v0 >= 10.0 => format!("{v:.1}"),
        v0 if v0 >= 1.0 || v0 == 0.0 => format!("{v:.2}"),
        _ => format!("{v:.3}"),
    }
}

/// `1 segment`, `2 segments`.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `recorded at the client`.
pub(crate) fn logged_at(point: Point) -> &'static str {
    match point {
        Point::Client => "recorded at the client",
        Point::Server => "recorded at the server",
        Point::Between => "recorded in the network",
        Point::Unknown => "recorded at an unknown end",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits_and_a_unit() {
        assert_eq!(rate(Rate::from_bits_per_sec(96_530_000)), "96.5 Mbit/s");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(20_100_000), "20.1 MB");
        assert_eq!(span(Span::from_micros(12_345)), "12.3 ms");
        assert_eq!(span(Span::from_millis(3_140)), "3.14 s");
    }
}
