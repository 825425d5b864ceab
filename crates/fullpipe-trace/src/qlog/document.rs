//! A log that is one JSON text: read as a stream, event by event.

use super::builder::Builder;
use super::source::Position;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt::{self, Formatter};
use std::io::Read;

/// Reads the JSON text into `builder`.
///
/// # Errors
/// It is not JSON, is cut short, or has no traces; `builder` has what precedes the error.
pub(super) fn read(
    source: impl Read,
    position: &Position,
    builder: &mut Builder,
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(source);
    File { builder, position }.deserialize(&mut json)?;
    position.begin();
    json.end()
}

struct File<'a> {
    builder: &'a mut Builder,
    position: &'a Position,
}

impl<'de> DeserializeSeed<'de> for File<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for File<'_> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a qlog file")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let File { builder, position } = self;
        let mut has_traces = false;
        loop {
            position.begin();
            let Some(key) = map.next_key::<String>()? else { break };
            match key.as_str() {
                "qlog_version" | "qlog_format" | "file_schema" | "serialization_format" => {
                    let content: Value = map.next_value()?;
                    builder.add_file_field(&key, &content);
                }
                "traces" => {
                    has_traces = true;
                    map.next_value_seed(Traces { builder, position })?;
                }
                "trace" => {
                    has_traces = true;
                    map.next_value_seed(Trace { builder, position })?;
                }
                "constants" => return Err(A::Error::custom("Chrome's NetLog")),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if has_traces { Ok(()) } else { Err(A::Error::custom("there are no `traces`")) }
    }
}

struct Traces<'a> {
    builder: &'a mut Builder,
    position: &'a Position,
}

impl<'de> DeserializeSeed<'de> for Traces<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Traces<'_> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a list of traces")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Traces { builder, position } = self;
        while seq.next_element_seed(Trace { builder: &mut *builder, position })?.is_some() {
            position.begin();
        }
        Ok(())
    }
}

struct Trace<'a> {
    builder: &'a mut Builder,
    position: &'a Position,
}

impl<'de> DeserializeSeed<'de> for Trace<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Trace<'_> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Trace { builder, position } = self;
        let is_read = builder.begin_trace();
        loop {
            position.begin();
            let Some(key) = map.next_key::<String>()? else { return Ok(()) };
            if key == "events" && is_read {
                map.next_value_seed(Events { builder, position })?;
            } else if is_read {
                let content: Value = map.next_value()?;
                builder.add_field(&key, &content);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
}

struct Events<'a> {
    builder: &'a mut Builder,
    position: &'a Position,
}

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();
    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.position.begin();
        while let Some(event) = seq.next_element::<Value>()? {
            self.builder.add_event(event);
            self.position.begin();
        }
        Ok(())
    }
}
