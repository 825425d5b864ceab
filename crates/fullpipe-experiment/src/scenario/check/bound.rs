//! Bounds as written in a check.

use crate::recording::{Edge, Interval};
use fullpipe_units::{Fraction, ParseError, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};
use std::str::FromStr;

/// An interval that a quantity must lie in: `>= 85mbit`, `< 2%`, `35mbit .. 40mbit`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound<Q> {
    low: Option<(Q, bool)>,
    high: Option<(Q, bool)>,
}

impl<Q: FromStr<Err = ParseError>> FromStr for Bound<Q> {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let t = text.trim();
        if let Some((low, high)) = t.split_once("..") {
            return Ok(Bound { low: Some((low.parse()?, true)), high: Some((high.parse()?, true)) });
        }
        for (operator, inclusive) in [(">=", true), (">", false)] {
            if let Some(rest) = t.strip_prefix(operator) {
                return Ok(Bound { low: Some((rest.parse()?, inclusive)), high: None });
            }
        }
        for (operator, inclusive) in [("<=", true), ("<", false)] {
            if let Some(rest) = t.strip_prefix(operator) {
                return Ok(Bound { low: None, high: Some((rest.parse()?, inclusive)) });
            }
        }
        Err(ParseError::new(text, "expected >=, >, <= or < and a value, or a range `low .. high`"))
    }
}

impl<Q: Display> Display for Bound<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.low, &self.high) {
            (Some((low, _)), Some((high, _))) => write!(f, "{low} .. {high}"),
            (Some((low, inclusive)), None) => write!(f, "{} {low}", if *inclusive { ">=" } else { ">" }),
            (None, Some((high, inclusive))) => write!(f, "{} {high}", if *inclusive { "<=" } else { "<" }),
            (None, None) => f.write_str("any"),
        }
    }
}

impl<Q: Display> Serialize for Bound<Q> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de, Q: FromStr<Err = ParseError>> Deserialize<'de> for Bound<Q> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<Q> JsonSchema for Bound<Q> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bound".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": [">= 85mbit", "< 2%", "35ms .. 60ms"] })
    }
}

/// A quantity as a plain number in the unit of the recording.
pub(super) trait Number: Display + Copy {
    fn number(self) -> f64;
}

impl Number for Rate {
    fn number(self) -> f64 {
        self.as_bits_per_sec_f64()
    }
}

impl Number for Fraction {
    fn number(self) -> f64 {
        self.as_f64()
    }
}

impl Number for Span {
    fn number(self) -> f64 {
        self.as_millis_f64()
    }
}

/// A bound, if present, in plain numbers and as written.
pub(super) fn plain<Q: Number>(bound: &Option<Bound<Q>>) -> Option<(Interval, String)> {
    let edge = |(q, inclusive): (Q, bool)| Edge { at: q.number(), inclusive };
    let bound = bound.as_ref()?;
    let interval = Interval { low: bound.low.map(edge), high: bound.high.map(edge) };
    Some((interval, bound.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_without_an_operator_is_rejected() {
        let e = "85mbit".parse::<Bound<Rate>>().unwrap_err().to_string();
        assert!(e.contains(">="), "{e}");
    }

    #[test]
    fn bound_includes_its_edge_only_with_an_inclusive_operator() {
        let holds = |text: &str, ms: f64| {
            let bound: Bound<Span> = text.parse().unwrap();
            plain(&Some(bound)).unwrap().0.contains(ms)
        };
        assert!(holds(">= 5ms", 5.0) && !holds("> 5ms", 5.0));
        assert!(holds("<= 5ms", 5.0) && !holds("< 5ms", 5.0));
        assert!(holds("4ms .. 5ms", 5.0) && !holds("4ms .. 5ms", 5.1) && !holds("< 5ms", f64::NAN));
    }
}
