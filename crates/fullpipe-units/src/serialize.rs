//! Serde in text form: `"40ms"` instead of a count of nanoseconds.

use crate::{Bytes, Fraction, Rate, Span};

macro_rules! impl_text_serde {
    ($type:ident, $example:literal, $pattern:literal) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $type;
                    fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                        write!(f, concat!("a quantity such as `", $example, "`"))
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$type, E> {
                        text.parse().map_err(E::custom)
                    }
                    fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<$type, E> {
                        n.to_string().parse().map_err(E::custom)
                    }
                    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<$type, E> {
                        n.to_string().parse().map_err(E::custom)
                    }
                    fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<$type, E> {
                        n.to_string().parse().map_err(E::custom)
                    }
                }
                d.deserialize_any(Visitor)
            }
        }

        #[cfg(feature = "schemars")]
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": ["string", "number"],
                    "examples": [$example],
                    "pattern": $pattern,
                })
            }
        }
    };
}

impl_text_serde!(Span, "40ms", "^\\s*[0-9][0-9_.eE+-]*\\s*\\S*\\s*$");
impl_text_serde!(Rate, "100mbit", "^\\s*[0-9][0-9_.eE+-]*\\s*\\S*\\s*$");
impl_text_serde!(Bytes, "64k", "^\\s*[0-9][0-9_.eE+-]*\\s*\\S*\\s*$");
impl_text_serde!(Fraction, "1%", "^\\s*[0-9][0-9_.eE+-]*\\s*%?\\s*$");
