//! Unit of assignment.

use crate::SplitError;
use fullpipe_units::Span;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The unit of randomisation, and hence of the analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum AssignBy {
    /// Each connection separately. Arms share bottlenecks, so one may take bandwidth from the
    /// other.
    Connection,
    /// All connections of a client prefix together.
    ClientPrefix {
        /// IPv4 prefix length, at most 32.
        v4: u8,
        /// IPv6 prefix length, at most 128.
        v6: u8,
    },
    /// The whole host, alternating by period (switchback).
    Time {
        /// Length of a period.
        period: Span,
        /// Excluded start of each period, while connections of the previous arm remain.
        wash_out: Span,
    },
}

/// Minimum period: connections of the previous period must have closed for most of it.
const MIN_PERIOD: Span = Span::from_secs(1);

impl Display for AssignBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AssignBy::Connection => f.write_str("connection"),
            AssignBy::ClientPrefix { v4, v6 } => write!(f, "client-prefix/{v4},/{v6}"),
            AssignBy::Time { period, wash_out } => write!(f, "time={period},wash-out={wash_out}"),
        }
    }
}

impl From<AssignBy> for String {
    fn from(by: AssignBy) -> String {
        by.to_string()
    }
}

impl TryFrom<String> for AssignBy {
    type Error = SplitError;
    fn try_from(text: String) -> Result<AssignBy, SplitError> {
        text.parse()
    }
}

/// Parses a duration, accepting `m` for minutes.
fn parse_duration(text: &str) -> Result<Span, SplitError> {
    let minutes = text.strip_suffix('m').filter(|n| n.ends_with(|c: char| c.is_ascii_digit()));
    let text = minutes.map_or_else(|| text.to_owned(), |n| format!("{n}min"));
    text.parse().map_err(|e: fullpipe_units::ParseError| SplitError::invalid(text, e.to_string()))
}

impl FromStr for AssignBy {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<AssignBy, SplitError> {
        let wrong = |reason: &str| Err(SplitError::invalid(text, reason));
        if text == "connection" {
            return Ok(AssignBy::Connection);
        }
        if let Some(rest) = text.strip_prefix("client-prefix") {
            let (mut v4, mut v6) = (24, 56);
            for (i, part) in rest.split(',').filter(|part| !part.is_empty()).enumerate() {
                let (max, length) = match i {
                    0 => (32, &mut v4),
                    1 => (128, &mut v6),
                    _ => {
                        return wrong(
                            "expected one prefix length for IPv4 and one for IPv6, such as \
                             client-prefix/24,/56",
                        );
                    }
                };
                match part.strip_prefix('/').and_then(|n| n.parse().ok()).filter(|n| (1..=max).contains(n)) {
                    Some(bits) => *length = bits,
                    None => return wrong("invalid prefix length; write for example client-prefix/24,/56"),
                }
            }
            return Ok(AssignBy::ClientPrefix { v4, v6 });
        }
        if let Some(rest) = text.strip_prefix("time=") {
            let (period, wash_out) = match rest.split_once(",wash-out=") {
                Some((period, wash_out)) => (parse_duration(period)?, parse_duration(wash_out)?),
                None => {
                    let period = parse_duration(rest)?;
                    (period, Span::from_nanos(period.as_nanos() / 10))
                }
            };
            if period < MIN_PERIOD || wash_out.as_nanos() > period.as_nanos() / 2 {
                return wrong("the period must be at least 1s, and the wash-out at most half of it");
            }
            return Ok(AssignBy::Time { period, wash_out });
        }
        wrong("expected connection, client-prefix/24,/56 or time=10m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_assignment_round_trip() {
        for text in [
            "connection",
            "client-prefix/24,/56",
            "client-prefix/32,/128",
            "time=600s,wash-out=60s",
            "time=1.5s,wash-out=0s",
        ] {
            assert_eq!(text.parse::<AssignBy>().unwrap().to_string(), text);
        }
        assert_eq!("client-prefix".parse(), Ok(AssignBy::ClientPrefix { v4: 24, v6: 56 }));
        assert_eq!("client-prefix/16".parse(), Ok(AssignBy::ClientPrefix { v4: 16, v6: 56 }));
        let ten_minutes = AssignBy::Time { period: Span::from_secs(600), wash_out: Span::from_secs(60) };
        assert_eq!(("time=10m".parse(), "time=10min".parse()), (Ok(ten_minutes), Ok(ten_minutes)));
        for bad in [
            "",
            "prefix",
            "client-prefix/33",
            "client-prefix/24,/0",
            "time=0",
            "time=10m,wash-out=6m",
            "time=x",
        ] {
            assert!(bad.parse::<AssignBy>().is_err(), "{bad}");
        }
    }
}
