//! One line of JSON per connection, without the fields that are not known.

use fullpipe_experiment::connection::{Connection, SCHEMA};
use serde_json::{Map, Value};

/// Writes the line of a connection. Fields that are null, empty or all zero are omitted to save
/// space; `serde(default)` restores them on reading.
pub(super) fn line(record: &Connection, into: &mut Vec<u8>) -> serde_json::Result<()> {
    let Value::Object(fields) = serde_json::to_value(record)? else { return Ok(()) };
    let mut known = Map::new();
    known.insert("schema".to_owned(), SCHEMA.into());
    known.extend(fields);
    known.retain(|name, value| is_known(value) || name == "to_server" || name == "to_client");
    serde_json::to_writer(&mut *into, &known)?;
    into.push(b'\n');
    Ok(())
}

/// Whether a field carries information. Nested fields that do not are removed.
fn is_known(value: &mut Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => {
            fields.retain(|_, value| is_known(value));
            fields.values().any(|value| match value {
                Value::Number(number) => number.as_f64() != Some(0.0),
                Value::Bool(is) => *is,
                _ => true,
            })
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}
