//! Serialisation of quantities as numbers; the field name ends with the unit.

/// A [`fullpipe_units::Span`] as milliseconds.
pub(super) mod ms {
    use fullpipe_units::Span;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Span, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(span.as_millis_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Span, D::Error> {
        Ok(from(f64::deserialize(d)?))
    }

    // Rounded, so that a double just below a whole nanosecond does not lose one.
    pub(super) fn from(ms: f64) -> Span {
        Span::from_nanos((ms * 1e6).round() as u64)
    }
}

/// An optional [`fullpipe_units::Span`] as milliseconds.
pub(super) mod optional_ms {
    use fullpipe_units::Span;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Option<Span>, s: S) -> Result<S::Ok, S::Error> {
        span.map(Span::as_millis_f64).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Span>, D::Error> {
        Ok(Option::<f64>::deserialize(d)?.map(super::ms::from))
    }
}

/// A [`fullpipe_units::Span`] as seconds.
pub(super) mod s {
    use fullpipe_units::Span;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Span, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(span.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Span, D::Error> {
        Ok(super::ms::from(f64::deserialize(d)? * 1e3))
    }
}

/// A [`fullpipe_units::Rate`] as bits per second, if present.
pub(super) mod optional_bps {
    use fullpipe_units::Rate;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(rate: &Option<Rate>, s: S) -> Result<S::Ok, S::Error> {
        rate.map(Rate::as_bits_per_sec_f64).serialize(s)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Rate>, D::Error> {
        Ok(Option::<f64>::deserialize(d)?.map(|r| Rate::from_bits_per_sec(r as u64)))
    }
}
