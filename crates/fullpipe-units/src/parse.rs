//! Parsing and formatting of quantities: `100mbit`, `40ms`, `64k`, `1%`.

use crate::{Rate, Span};
use core::fmt;
use core::str::FromStr;

/// An amount of data in bytes. Multiples follow tc and iperf3: `k`, `m`, `g` are powers of 1024
/// (as are `KiB`, `MiB`, `GiB`), `kB`, `MB`, `GB` are powers of 1000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bytes(pub u64);

/// A share between 0 and 1 (`1%`, `0.01`, `0`), in units of 10⁻⁹.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Fraction(u32);

impl Fraction {
    /// Zero.
    pub const ZERO: Fraction = Fraction(0);
    /// One (100 %).
    pub const ONE: Fraction = Fraction(1_000_000_000);

    /// `n`·10⁻⁹; values above one are clamped to one.
    pub const fn from_billionths(n: u32) -> Self {
        Fraction(if n > 1_000_000_000 { 1_000_000_000 } else { n })
    }

    /// In units of 10⁻⁹.
    pub const fn as_billionths(self) -> u32 {
        self.0
    }

    /// As a number between 0 and 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e9
    }
}

/// Why a quantity is invalid: the text, the reason and what is accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    written: String,
    reason: String,
}

impl ParseError {
    /// An error about the text `written`.
    pub fn new(written: impl Into<String>, reason: impl Into<String>) -> Self {
        ParseError { written: written.into(), reason: reason.into() }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.written, self.reason)
    }
}

impl std::error::Error for ParseError {}

/// A unit: its spellings (lower case) and the factor to the base unit.
type Unit = (&'static [&'static str], f64);

const TIME_UNITS: &[Unit] = &[
    (&["ns"], 1.0),
    (&["us", "µs", "usec"], 1e3),
    (&["ms", "msec"], 1e6),
    (&["s", "sec", "secs"], 1e9),
    (&["min"], 60e9),
    (&["h"], 3600e9),
];

/// In bytes per second.
const RATE_UNITS: &[Unit] = &[
    (&["bit", "bit/s", "bps"], 0.125),
    (&["kbit", "kbit/s", "kbps", "k"], 0.125e3),
    (&["mbit", "mbit/s", "mbps", "m"], 0.125e6),
    (&["gbit", "gbit/s", "gbps", "g"], 0.125e9),
    (&["tbit", "tbit/s", "tbps", "t"], 0.125e12),
    (&["b/s"], 1.0),
    (&["kb/s"], 1e3),
    (&["mb/s"], 1e6),
    (&["gb/s"], 1e9),
];

const SIZE_UNITS: &[Unit] = &[
    (&["", "b", "bytes"], 1.0),
    (&["k", "kib"], 1024.0),
    (&["m", "mib"], 1_048_576.0),
    (&["g", "gib"], 1_073_741_824.0),
    (&["t", "tib"], 1_099_511_627_776.0),
    (&["kb"], 1e3),
    (&["mb"], 1e6),
    (&["gb"], 1e9),
    (&["tb"], 1e12),
];

/// Splits `text` into a non-negative number and its unit, in lower case.
fn split(text: &str) -> Result<(f64, String), ParseError> {
    let t = text.trim();
    if t.starts_with('-') {
        return Err(ParseError::new(text, "must not be negative"));
    }
    let end = t
        .char_indices()
        .find(|&(i, c)| {
            let exponent = (c == 'e' || c == 'E')
                && i > 0
                && t[i + 1..].starts_with(|d: char| d.is_ascii_digit() || d == '-' || d == '+');
            let sign = (c == '-' || c == '+') && i > 0 && matches!(t.as_bytes()[i - 1], b'e' | b'E');
            !(c.is_ascii_digit() || c == '.' || c == '_' || exponent || sign)
        })
        .map_or(t.len(), |(i, _)| i);
    let digits = t[..end].replace('_', "");
    let number: f64 =
        digits.parse().map_err(|_| ParseError::new(text, "expected a number followed by a unit"))?;
    if !number.is_finite() {
        return Err(ParseError::new(text, "too large"));
    }
    Ok((number, t[end..].trim().to_lowercase()))
}

fn quantity(text: &str, what: &str, units: &[Unit], example: &str) -> Result<u64, ParseError> {
    let (number, unit) = split(text)?;
    if number == 0.0 && unit.is_empty() {
        return Ok(0);
    }
    let Some((_, factor)) = units.iter().find(|(names, _)| names.contains(&unit.as_str())) else {
        let known: Vec<&str> = units.iter().map(|(names, _)| names[0]).filter(|n| !n.is_empty()).collect();
        let reason = if unit.is_empty() {
            format!("{what} needs a unit, for example `{example}` (one of {})", known.join(", "))
        } else {
            format!(
                "unknown unit `{unit}` for {what}; write for example `{example}` (one of {})",
                known.join(", ")
            )
        };
        return Err(ParseError::new(text, reason));
    };
    let value = number * factor;
    if value >= u64::MAX as f64 {
        return Err(ParseError::new(text, "too large"));
    }
    Ok(value.round() as u64)
}

impl FromStr for Span {
    type Err = ParseError;
    /// Reads `40ms`, `1.5s`, `200us`, `2min`; `0` needs no unit.
    fn from_str(text: &str) -> Result<Span, ParseError> {
        quantity(text, "a time", TIME_UNITS, "40ms").map(Span::from_nanos)
    }
}

impl FromStr for Rate {
    type Err = ParseError;
    /// Reads `100mbit`, `1.5gbit`, `128kbit`, `12.5MB/s`, and as iperf3 has it `100M`; `0` needs no
    /// unit.
    fn from_str(text: &str) -> Result<Rate, ParseError> {
        quantity(text, "a rate", RATE_UNITS, "100mbit").map(Rate::from_bytes_per_sec)
    }
}

impl FromStr for Bytes {
    type Err = ParseError;
    /// Reads `64k`, `1500`, `10MB`, `1GiB`.
    fn from_str(text: &str) -> Result<Bytes, ParseError> {
        quantity(text, "a size", SIZE_UNITS, "64k").map(Bytes)
    }
}

impl FromStr for Fraction {
    type Err = ParseError;
    /// Reads `1%`, `0.001%`, `0.01`. A bare number from 1 on is rejected: `1` for a loss usually
    /// means one percent, but would lose everything.
    fn from_str(text: &str) -> Result<Fraction, ParseError> {
        let (number, unit) = split(text)?;
        let value = match unit.as_str() {
            "%" => number / 100.0,
            "" => number,
            _ => {
                return Err(ParseError::new(
                    text,
                    format!("unknown unit `{unit}` for a share; write `1%` or `0.01`"),
                ));
            }
        };
        if unit.is_empty() && (1.0..=100.0).contains(&number) {
            let reason = format!("ambiguous: write `{number}%`, or a share below 1 such as `0.01`");
            let reason = if number == 1.0 { "ambiguous: write `1%` or `100%`".to_owned() } else { reason };
            return Err(ParseError::new(text, reason));
        }
        if value > 1.0 {
            return Err(ParseError::new(text, "must be between 0% and 100%"));
        }
        Ok(Fraction((value * 1e9).round() as u32))
    }
}

/// Writes `value` in the largest of `units` that needs few decimals.
fn write_in(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, size) = units
        .iter()
        .find(|&&(_, size)| value >= size && (value % size == 0 || (value * 1_000) % size == 0))
        .or_else(|| units.iter().find(|&&(_, size)| value >= size))
        .copied()
        .unwrap_or(units[units.len() - 1]);
    let number = value as f64 / size as f64;
    if value % size == 0 {
        write!(f, "{}{name}", value / size)
    } else {
        let text = format!("{number:.6}");
        write!(f, "{}{name}", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.as_nanos();
        if ns == 0 {
            return f.write_str("0s");
        }
        if ns > u64::MAX / 1_000 {
            return write!(f, "{}s", ns / 1_000_000_000);
        }
        write_in(f, ns, &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)])
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.as_bytes_per_sec() > u64::MAX / 8_000 {
            return write!(f, "{}B/s", self.as_bytes_per_sec());
        }
        write_in(
            f,
            self.as_bits_per_sec(),
            &[("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)],
        )
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size && self.0 % size == 0 {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        for (unit, size) in [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)] {
            if self.0 >= size && self.0 % size == 0 {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.7}", f64::from(self.0) / 1e7);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_parse_in_common_notations() {
        assert_eq!("40ms".parse(), Ok(Span::from_millis(40)));
        assert_eq!("1.5 s".parse(), Ok(Span::from_millis(1500)));
        assert_eq!("1e-3s".parse(), Ok(Span::from_millis(1)));
        assert_eq!("100Mbit".parse(), Ok(Rate::from_bits_per_sec(100_000_000)));
        assert_eq!("12.5MB/s".parse(), Ok(Rate::from_bits_per_sec(100_000_000)));
        assert_eq!("64k".parse(), Ok(Bytes(65_536)));
        assert_eq!("1000kB".parse(), Ok(Bytes(1_000_000)));
        assert_eq!("1%".parse(), Ok(Fraction::from_billionths(10_000_000)));
        assert_eq!("0.00001".parse(), Ok(Fraction::from_billionths(10_000)));
    }

    #[test]
    fn errors_name_the_text_the_reason_and_a_remedy() {
        let e = "100".parse::<Rate>().unwrap_err().to_string();
        assert!(e.contains("`100`") && e.contains("100mbit"), "{e}");
        let e = "40fortnights".parse::<Span>().unwrap_err().to_string();
        assert!(e.contains("fortnights") && e.contains("ms"), "{e}");
        assert!("-1ms".parse::<Span>().unwrap_err().to_string().contains("negative"));
        assert!("101%".parse::<Fraction>().is_err());
        let e = |text: &str| text.parse::<Fraction>().unwrap_err().to_string();
        assert!(e("1").contains("`1%` or `100%`") && e("1.0").contains("`1%`"), "{}", e("1"));
        assert!(e("2.5").contains("`2.5%`") && e("1000").contains("between 0% and 100%"), "{}", e("2.5"));
        assert_eq!(("0".parse(), "100%".parse()), (Ok(Fraction::ZERO), Ok(Fraction::ONE)));
        assert!("1e300gbit".parse::<Rate>().unwrap_err().to_string().contains("too large"));
        assert!("".parse::<Bytes>().is_err());
        assert!("ms".parse::<Span>().is_err());
    }

    proptest! {
        #[test]
        fn formatted_quantities_parse_back(
            ms in 0u64..10_000_000,
            kbit in 0u64..1_000_000_000,
            b in 0u64..1 << 40,
            share in 0u32..=1_000_000_000,
        ) {
            let span = Span::from_millis(ms);
            prop_assert_eq!(span.to_string().parse::<Span>(), Ok(span));
            let rate = Rate::from_bits_per_sec(kbit * 1000);
            prop_assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate));
            prop_assert_eq!(Bytes(b).to_string().parse::<Bytes>(), Ok(Bytes(b)));
            let f = Fraction::from_billionths(share);
            prop_assert_eq!(f.to_string().parse::<Fraction>(), Ok(f));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = (text.parse::<Span>(), text.parse::<Rate>());
            let _ = (text.parse::<Bytes>(), text.parse::<Fraction>());
        }
    }
}
