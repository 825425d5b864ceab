//! What a trace says of itself: who logged, and how times and events are written.

use super::value::{self, Object, first, number, text};
use fullpipe_experiment::connection::Point;
use serde_json::Value;

/// 2000-01-01 in milliseconds since 1970. Earlier reference times are not dates.
const YEAR_2000_MS: f64 = 946_684_800_000.0;

/// How the times of events are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum TimeFormat {
    /// Since a reference time.
    #[default]
    Relative,
    /// Since the previous event.
    Delta,
    /// Since 1970.
    Absolute,
}

/// Positions of the fields of an event that is written as an array (`event_fields`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Fields {
    pub(super) time: Option<usize>,
    pub(super) category: Option<usize>,
    pub(super) event: Option<usize>,
    pub(super) data: Option<usize>,
    pub(super) group: Option<usize>,
    pub(super) path: Option<usize>,
    /// Whether the time is that since the previous event.
    pub(super) is_delta: bool,
}

/// The description of a trace.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Header {
    pub(super) title: String,
    pub(super) writer: String,
    pub(super) point: Point,
    pub(super) controller: Option<String>,
    pub(super) group: Option<String>,
    time_format: TimeFormat,
    reference_ms: Option<f64>,
    is_microseconds: bool,
    pub(super) fields: Option<Fields>,
    /// Message of a trace that could not be converted (`error_description`).
    pub(super) failure: Option<String>,
}

impl Header {
    /// Adds one field of the trace.
    pub(super) fn add(&mut self, name: &str, content: &Value) {
        match (name, content) {
            ("title", Value::String(s)) => self.title = value::name(s),
            ("error_description", Value::String(s)) => self.failure = Some(value::name(s)),
            ("vantage_point", Value::Object(o)) => self.add_vantage_point(o),
            ("vantage_point", Value::String(s)) => self.point = point(s),
            ("common_fields", Value::Object(o)) => self.add_common_fields(o),
            ("configuration", Value::Object(o)) => {
                if let Some(units) = text(o, "time_units") {
                    self.is_microseconds = units == "us";
                }
            }
            ("event_fields", Value::Array(names)) => self.fields = Some(fields(names)),
            _ => {}
        }
    }

    fn add_vantage_point(&mut self, o: &Object) {
        self.writer = value::name(text(o, "name").unwrap_or_default());
        // A log "of the network" names the side whose view it has in `flow`.
        self.point = match text(o, "type") {
            Some("network") => Point::Between,
            Some(side) => point(side),
            None => Point::Unknown,
        };
    }

    fn add_common_fields(&mut self, o: &Object) {
        if let Some(format) = text(o, "time_format") {
            self.time_format = time_format(format);
        }
        if let Some(units) = text(o, "time_units") {
            self.is_microseconds = units == "us";
        }
        self.group = group(o).or_else(|| self.group.take());
        self.controller = controller(o).or_else(|| self.controller.take());
        self.reference_ms = o.get("reference_time").and_then(number).or(self.reference_ms);
    }

    /// Milliseconds of one unit of time.
    pub(super) fn scale(&self) -> f64 {
        if self.is_microseconds { 1e-3 } else { 1.0 }
    }

    /// Whether times are since the previous event.
    pub(super) fn is_delta(&self) -> bool {
        self.time_format == TimeFormat::Delta || self.fields.as_ref().is_some_and(|f| f.is_delta)
    }

    /// Whether times are since 1970, or another origin than the beginning of the log.
    pub(super) fn is_absolute(&self) -> bool {
        self.time_format == TimeFormat::Absolute
    }

    /// Seconds since 1970 at `ms` of the log; `None` if it has no date.
    pub(super) fn date_s(&self, ms: f64) -> Option<f64> {
        let reference = self.reference_ms.map_or(0.0, |r| r * self.scale());
        let since_1970 = if ms >= YEAR_2000_MS { ms } else { reference + ms };
        (YEAR_2000_MS..10.0 * YEAR_2000_MS).contains(&since_1970).then_some(since_1970 / 1e3)
    }

    /// Whether events that were read with `used` were read as this header has it.
    pub(super) fn agrees(&self, used: &Header) -> bool {
        self.fields == used.fields
            && self.is_delta() == used.is_delta()
            && self.is_microseconds == used.is_microseconds
    }
}

pub(super) fn time_format(name: &str) -> TimeFormat {
    match name {
        "delta" | "relative_to_previous_event" => TimeFormat::Delta,
        "absolute" => TimeFormat::Absolute,
        _ => TimeFormat::Relative,
    }
}

/// The group of events of one connection.
pub(super) fn group(o: &Object) -> Option<String> {
    match first(o, &["group_id", "group_ids", "ODCID", "odcid"])? {
        Value::String(s) if !s.is_empty() => Some(value::name(s)),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    }
}

/// The controller that parameters or common fields name.
pub(super) fn controller(o: &Object) -> Option<String> {
    let names = [
        "congestion_control",
        "congestion_controller",
        "congestion_control_algorithm",
        "congestion_control_type",
        "cc_algorithm",
    ];
    first(o, &names)?.as_str().map(value::name).filter(|name| !name.is_empty())
}

fn point(name: &str) -> Point {
    match name.to_ascii_lowercase().as_str() {
        "client" => Point::Client,
        "server" => Point::Server,
        "network" => Point::Between,
        _ => Point::Unknown,
    }
}

fn fields(names: &[Value]) -> Fields {
    let mut fields = Fields::default();
    for (i, name) in names.iter().enumerate() {
        let name = name.as_str().unwrap_or_default().to_ascii_lowercase();
        match name.as_str() {
            "time" | "relative_time" => fields.time = Some(i),
            "delta_time" => (fields.time, fields.is_delta) = (Some(i), true),
            "category" => fields.category = Some(i),
            "event" | "event_type" | "type" | "name" => fields.event = Some(i),
            "data" => fields.data = Some(i),
            "group_id" | "odcid" => fields.group = Some(i),
            "path_id" => fields.path = Some(i),
            _ => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn header(fields: &[(&str, Value)]) -> Header {
        let mut header = Header::default();
        fields.iter().for_each(|(name, value)| header.add(name, value));
        header
    }

    #[test]
    fn microseconds_and_array_fields_are_of_the_oldest_versions() {
        let old = header(&[
            ("configuration", json!({"time_units": "us"})),
            ("event_fields", json!(["relative_time", "path_id", "CATEGORY", "EVENT_TYPE", "DATA"])),
            ("common_fields", json!({"reference_time": "1600000000000000"})),
            ("vantage_point", json!({"name": "backend-67", "type": "server"})),
        ]);
        assert_eq!((old.scale(), old.point), (1e-3, Point::Server));
        let fields = old.fields.clone().unwrap();
        assert_eq!(
            (fields.time, fields.path, fields.event, fields.data),
            (Some(0), Some(1), Some(3), Some(4))
        );
        assert_eq!(old.date_s(500.0), Some(1_600_000_000.5));
    }

    #[test]
    fn dates_are_not_invented() {
        assert_eq!(header(&[]).date_s(12.0), None);
        let monotonic = json!({"clock_type": "monotonic", "epoch": "unknown"});
        assert_eq!(header(&[("common_fields", json!({"reference_time": monotonic}))]).date_s(12.0), None);
        assert_eq!(header(&[]).date_s(1_600_000_000_000.0), Some(1_600_000_000.0));
    }

    #[test]
    fn previous_event_is_the_reference_of_deltas() {
        for name in ["delta", "relative_to_previous_event"] {
            assert!(header(&[("common_fields", json!({ "time_format": name }))]).is_delta());
        }
        assert!(header(&[("event_fields", json!(["delta_time", "event", "data"]))]).is_delta());
        assert!(!header(&[("common_fields", json!({"time_format": "relative_to_epoch"}))]).is_delta());
    }
}
