//! What is assigned to an arm as a whole.

use crate::SplitError;
use fullpipe_units::Span;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The unit of randomisation, and so of the analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum By {
    /// Each connection for itself. Arms meet at every bottleneck, so that one may take from the other.
    Connection,
    /// All connections of a client's prefix together.
    ClientPrefix {
        /// Bits of an IPv4 address that count, at most 32.
        v4: u8,
        /// Bits of an IPv6 address, at most 128.
        v6: u8,
    },
    /// The whole host for a time: a switchback.
    Time {
        /// How long an arm has the host.
        period: Span,
        /// The beginning of each period, which is left out: connections of the arm before are still there.
        wash_out: Span,
    },
}

/// The shortest period: connections of the one before must be gone for most of it.
const SHORTEST: Span = Span::from_secs(1);

impl Display for By {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            By::Connection => f.write_str("connection"),
            By::ClientPrefix { v4, v6 } => write!(f, "client-prefix/{v4},/{v6}"),
            By::Time { period, wash_out } => write!(f, "time={period},wash-out={wash_out}"),
        }
    }
}

impl From<By> for String {
    fn from(by: By) -> String {
        by.to_string()
    }
}

impl TryFrom<String> for By {
    type Error = SplitError;
    fn try_from(text: String) -> Result<By, SplitError> {
        text.parse()
    }
}

/// A time, with `m` for minutes as people write it beside `h`.
fn time(text: &str) -> Result<Span, SplitError> {
    let minutes = text.strip_suffix('m').filter(|n| n.ends_with(|c: char| c.is_ascii_digit()));
    let text = minutes.map_or_else(|| text.to_owned(), |n| format!("{n}min"));
    text.parse().map_err(|e: fullpipe_units::ParseError| SplitError::asked(text, e.to_string()))
}

impl FromStr for By {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<By, SplitError> {
        let wrong = |reason: &str| Err(SplitError::asked(text, reason));
        if text == "connection" {
            return Ok(By::Connection);
        }
        if let Some(rest) = text.strip_prefix("client-prefix") {
            let (mut v4, mut v6) = (24, 56);
            for (i, part) in rest.split(',').filter(|part| !part.is_empty()).enumerate() {
                let (most, place) = match i {
                    0 => (32, &mut v4),
                    1 => (128, &mut v6),
                    _ => return wrong("one length for IPv4 and one for IPv6: client-prefix/24,/56"),
                };
                match part.strip_prefix('/').and_then(|n| n.parse().ok()).filter(|n| (1..=most).contains(n)) {
                    Some(bits) => *place = bits,
                    None => return wrong("lengths of prefixes such as client-prefix/24,/56"),
                }
            }
            return Ok(By::ClientPrefix { v4, v6 });
        }
        if let Some(rest) = text.strip_prefix("time=") {
            let (period, wash_out) = match rest.split_once(",wash-out=") {
                Some((period, wash_out)) => (time(period)?, time(wash_out)?),
                None => {
                    let period = time(rest)?;
                    (period, Span::from_nanos(period.as_nanos() / 10))
                }
            };
            if period < SHORTEST || wash_out.as_nanos() > period.as_nanos() / 2 {
                return wrong("a period of at least 1s, and a wash-out of at most half of it");
            }
            return Ok(By::Time { period, wash_out });
        }
        wrong("connection, client-prefix/24,/56 or time=10m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_assigned_is_written_as_it_is_read() {
        for text in [
            "connection",
            "client-prefix/24,/56",
            "client-prefix/32,/128",
            "time=600s,wash-out=60s",
            "time=1.5s,wash-out=0ns",
        ] {
            assert_eq!(text.parse::<By>().unwrap().to_string(), text);
        }
        assert_eq!("client-prefix".parse(), Ok(By::ClientPrefix { v4: 24, v6: 56 }));
        assert_eq!("client-prefix/16".parse(), Ok(By::ClientPrefix { v4: 16, v6: 56 }));
        let ten_minutes = By::Time { period: Span::from_secs(600), wash_out: Span::from_secs(60) };
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
            assert!(bad.parse::<By>().is_err(), "{bad}");
        }
    }
}
