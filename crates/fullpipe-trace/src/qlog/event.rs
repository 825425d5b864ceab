//! One event, from any of the forms in which versions of qlog write it.

use super::header::{Fields, Header, TimeFormat, group, time_format};
use super::value::{self, Object, first, number, text, whole};
use serde_json::Value;

/// An event.
pub(super) struct Event {
    /// Time in the unit of the log.
    pub(super) time: f64,
    /// Whether `time` is since the previous event, if the event itself says so.
    pub(super) is_delta: Option<bool>,
    /// Its name with its namespace, in lower case.
    pub(super) name: String,
    /// The connection that it belongs to.
    pub(super) group: Option<String>,
    /// The path of a multipath connection.
    pub(super) path: u64,
    /// The addresses between which a path runs (`tuple`), by name.
    pub(super) tuple: Option<String>,
    pub(super) data: Object,
}

impl Event {
    /// Reads an event; `None` if it is none.
    pub(super) fn new(content: Value, header: &Header) -> Option<Event> {
        match content {
            Value::Object(o) => Event::from_object(o),
            Value::Array(items) => Event::from_array(items, header.fields.as_ref()?),
            _ => None,
        }
    }

    fn from_object(mut o: Object) -> Option<Event> {
        let (time, is_delta) = match first(&o, &["time", "relative_time"]) {
            Some(time) => (number(time)?, None),
            None => (number(o.get("delta_time")?)?, Some(true)),
        };
        let format = text(&o, "time_format").map(|f| time_format(f) == TimeFormat::Delta);
        let name = match text(&o, "name") {
            Some(name) => value::name(name),
            None => full_name(text(&o, "category"), first(&o, &["event", "event_type", "type"])?.as_str()?),
        };
        let data = match o.remove("data") {
            Some(Value::Object(data)) => data,
            _ => Object::new(),
        };
        let header = data.get("header").and_then(Value::as_object);
        let path = [Some(&data), header, Some(&o)].into_iter().flatten().find_map(|o| first(o, &["path_id"]));
        // Drafts before 2025 call the tuple `path`.
        let tuple =
            first(&o, &["tuple", "path"]).or_else(|| first(&data, &["tuple"])).and_then(Value::as_str);
        let tuple = tuple.map(value::name).filter(|name| !name.is_empty());
        Some(Event {
            time,
            is_delta: format.or(is_delta),
            name: name.to_ascii_lowercase(),
            group: group(&o),
            path: path.and_then(whole).unwrap_or(0),
            tuple,
            data,
        })
    }

    fn from_array(mut items: Vec<Value>, fields: &Fields) -> Option<Event> {
        let item = |i: Option<usize>| i.and_then(|i| items.get(i));
        let time = number(item(fields.time)?)?;
        let event = item(fields.event)?.as_str()?;
        let name = full_name(item(fields.category).and_then(Value::as_str), event).to_ascii_lowercase();
        let group = item(fields.group).and_then(Value::as_str).map(value::name);
        let path = item(fields.path).and_then(whole);
        let data = match fields.data.and_then(|i| items.get_mut(i)).map(Value::take) {
            Some(Value::Object(data)) => data,
            _ => Object::new(),
        };
        Some(Event { time, is_delta: None, name, group, path: path.unwrap_or(0), tuple: None, data })
    }

    /// The name without its namespace.
    pub(super) fn short_name(&self) -> &str {
        self.name.rsplit(':').next().unwrap_or(&self.name)
    }
}

fn full_name(category: Option<&str>, event: &str) -> String {
    match category {
        Some(category) => format!("{}:{}", value::name(category), value::name(event)),
        None => value::name(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn forms_of_all_versions_are_one_event() {
        let mut arrays = Header::default();
        arrays.add("event_fields", &json!(["time", "category", "event", "data"]));
        for (content, header) in [
            (json!({"time": 7, "name": "recovery:metrics_updated", "data": {"cwnd": 1}}), &Header::default()),
            (
                json!({"time": "7", "category": "recovery", "type": "metrics_updated", "data": {"cwnd": 1}}),
                &Header::default(),
            ),
            (json!(["7", "RECOVERY", "METRICS_UPDATED", {"cwnd": 1}]), &arrays),
        ] {
            let event = Event::new(content, header).unwrap();
            assert_eq!((event.time, &*event.name), (7.0, "recovery:metrics_updated"));
            assert_eq!((event.short_name(), &event.data["cwnd"]), ("metrics_updated", &json!(1)));
        }
    }

    #[test]
    fn path_and_tuple_are_found_where_stacks_write_them() {
        for (content, path, tuple) in [
            (json!({"time": 1, "name": "x", "data": {"path_id": 3}, "tuple": "p1"}), 3, Some("p1")),
            (
                json!({"time": 1, "name": "x", "data": {"header": {"path_id": 3}}, "path": "p1"}),
                3,
                Some("p1"),
            ),
            (json!({"time": 1, "name": "x", "data": {}, "path_id": "3", "tuple": ""}), 3, None),
            (json!({"time": 1, "name": "x", "data": {"tuple": "p1"}}), 0, Some("p1")),
        ] {
            let event = Event::new(content.clone(), &Header::default()).unwrap();
            assert_eq!((event.path, event.tuple.as_deref()), (path, tuple), "{content}");
        }
    }

    #[test]
    fn what_is_no_event_is_none() {
        for none in [json!(1), json!({}), json!({"time": 1}), json!({"name": "x"}), json!([1, "a", "b", {}])]
        {
            assert!(Event::new(none.clone(), &Header::default()).is_none(), "{none}");
        }
    }
}
