//! Queue limits in the units that users write: `64k`, `100p`, `20ms`, `1bdp`.

use std::fmt;
use std::str::FromStr;

use fullpipe_units::{Bytes, ParseError, Rate, Span};

use crate::backlog::Backlog;

/// The size of a buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Limit {
    /// Bytes of waiting packets: `64k`, `1000kB`, `1500 bytes`.
    Bytes(u64),
    /// Number of waiting packets: `100p`.
    Packets(u64),
    /// Time at the link's own rate: `20ms`.
    Time(Span),
    /// Multiple of the path's bottleneck rate times its base RTT: `1bdp`, `0.1bdp`.
    Bdp(f64),
}

/// A limit in bytes and packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Capacity {
    pub bytes: u64,
    pub packets: u64,
}

impl Limit {
    /// Converts the limit to bytes and packets, for a link of rate `link` on a path whose
    /// bandwidth-delay product is `bdp` bytes.
    pub(crate) fn resolve(self, link: Rate, bdp: u64) -> Capacity {
        let bytes = |bytes| Capacity { bytes, packets: u64::MAX };
        match self {
            Limit::Bytes(b) => bytes(b),
            Limit::Packets(packets) => Capacity { bytes: u64::MAX, packets },
            Limit::Time(t) => bytes(link.bytes_in(t)),
            // A float cast saturates, as it should for an absurd multiple.
            Limit::Bdp(n) => bytes((bdp as f64 * n) as u64),
        }
    }
}

impl Capacity {
    /// Whether a queue with `backlog` has room for a packet of `len` bytes.
    #[inline]
    pub fn has_room(self, backlog: Backlog, len: u32) -> bool {
        backlog.bytes + u64::from(len) <= self.bytes && (backlog.packets as u64) < self.packets
    }

    /// Whether a queue with `backlog` is within the limit.
    #[inline]
    pub fn holds(self, backlog: Backlog) -> bool {
        backlog.bytes <= self.bytes && backlog.packets as u64 <= self.packets
    }

    /// Like [`has_room`](Self::has_room), but an empty queue always has room for one packet:
    /// otherwise a packet larger than the limit could never pass.
    #[inline]
    pub fn has_room_or_empty(self, backlog: Backlog, len: u32) -> bool {
        backlog.packets == 0 || self.has_room(backlog, len)
    }
}

impl FromStr for Limit {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Limit, ParseError> {
        let lower = text.trim().to_lowercase();
        let stem = |suffixes: &[&str]| {
            suffixes.iter().find_map(|s| lower.strip_suffix(s)).map(|n| n.trim().replace('_', ""))
        };
        if let Some(number) = stem(&["bdps", "bdp"]) {
            let n: f64 = number
                .parse()
                .map_err(|_| ParseError::new(text, "expected a number before `bdp`, such as `1bdp`"))?;
            if !n.is_finite() || n < 0.0 {
                return Err(ParseError::new(text, "a buffer holds a finite, non-negative number of BDPs"));
            }
            return Ok(Limit::Bdp(n));
        }
        if let Some(number) = stem(&["packets", "packet", "pkts", "p"]) {
            return number.parse().map(Limit::Packets).map_err(|_| {
                ParseError::new(text, "expected a whole number of packets, such as `100p` or `100 packets`")
            });
        }
        let bare = lower.ends_with(|c: char| c.is_ascii_digit() || c == '.');
        if let Ok(bytes) = text.parse::<Bytes>() {
            // A number without a unit means packets in most tools; as bytes it would be useless here.
            if bare && bytes.0 > 0 {
                let reason = format!(
                    "of what? write packets (`{lower}p`), bytes (`{lower} bytes`, `64k`), time at the \
                     link's rate (`20ms`) or bandwidth-delay products (`1bdp`)"
                );
                return Err(ParseError::new(text, reason));
            }
            return Ok(Limit::Bytes(bytes.0));
        }
        text.parse().map(Limit::Time).map_err(|_| {
            ParseError::new(
                text,
                "a buffer is written in bytes (`64k`, `1000kB`), packets (`100p`), time at the link's rate \
                 (`20ms`) or bandwidth-delay products (`1bdp`)",
            )
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Bytes(b) => {
                let text = Bytes(*b).to_string();
                let unit = if text.bytes().all(|c| c.is_ascii_digit()) { " bytes" } else { "" };
                write!(f, "{text}{unit}")
            }
            Limit::Packets(n) => write!(f, "{n}p"),
            Limit::Time(t) => t.fmt(f),
            Limit::Bdp(n) => write!(f, "{n}bdp"),
        }
    }
}

impl serde::Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Limit {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Limit;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a buffer size such as `64k`, `100p`, `20ms` or `1bdp`")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Limit, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Limit, E> {
                n.to_string().parse().map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Limit, E> {
                n.to_string().parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

impl schemars::JsonSchema for Limit {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Limit".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": ["string", "integer"],
            "description": "The size of a buffer: bytes (`64k`), packets (`100p`), time at the link's \
                            rate (`20ms`) or bandwidth-delay products (`1bdp`)",
            "examples": ["1bdp", "64k", "100p", "20ms"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_are_parsed_in_all_units() {
        assert_eq!("64k".parse(), Ok(Limit::Bytes(65_536)));
        assert_eq!("0".parse(), Ok(Limit::Bytes(0)));
        assert_eq!("1500 bytes".parse(), Ok(Limit::Bytes(1500)));
        assert_eq!("100p".parse(), Ok(Limit::Packets(100)));
        assert_eq!("100 packets".parse(), Ok(Limit::Packets(100)));
        assert_eq!("20ms".parse(), Ok(Limit::Time(Span::from_millis(20))));
        assert_eq!("1s".parse(), Ok(Limit::Time(Span::from_secs(1))));
        assert_eq!("0.5BDP".parse(), Ok(Limit::Bdp(0.5)));
    }

    #[test]
    fn invalid_limits_are_refused_with_examples() {
        for bad in ["", "100", "1500.0", "bdp", "-1bdp", "nanbdp", "1.5p", "-3p", "10 apples", "p"] {
            let e = bad.parse::<Limit>().unwrap_err().to_string();
            assert!(e.contains(&format!("`{bad}`")), "{e}");
        }
        assert!("100".parse::<Limit>().unwrap_err().to_string().contains("`100p`"));
        assert!("10 apples".parse::<Limit>().unwrap_err().to_string().contains("1bdp"));
    }

    #[test]
    fn a_limit_in_time_uses_the_links_rate_and_one_in_bdp_the_paths() {
        let rate = Rate::from_bits_per_sec(8_000_000);
        let time = Limit::Time(Span::from_millis(20)).resolve(rate, 7);
        assert_eq!(time, Capacity { bytes: 20_000, packets: u64::MAX });
        assert_eq!(Limit::Bdp(0.5).resolve(rate, 1000).bytes, 500);
        assert_eq!(Limit::Bdp(1e300).resolve(rate, 1000).bytes, u64::MAX);
    }

    proptest! {
        #[test]
        fn written_data_is_read_back(n in 0u64..1 << 40, which in 0..4) {
            let limit = match which {
                0 => Limit::Bytes(n),
                1 => Limit::Packets(n),
                2 => Limit::Time(Span::from_nanos(n)),
                _ => Limit::Bdp(n as f64 / 1024.0),
            };
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}") {
            let _ = text.parse::<Limit>();
        }
    }
}
