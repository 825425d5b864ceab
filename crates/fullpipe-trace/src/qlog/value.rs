//! Values of qlog, which stacks write as numbers or as strings.

use serde_json::{Map, Value};

pub(super) type Object = Map<String, Value>;

/// Names from a file are shortened to this number of characters.
pub(super) const MAX_NAME: usize = 64;

/// A finite number.
pub(super) fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    };
    number.filter(|n: &f64| n.is_finite())
}

/// A whole number that is not negative.
pub(super) fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(n) => n.as_u64().or_else(|| {
            // 2⁵³: beyond, a float does not represent every whole number.
            n.as_f64().filter(|v| (0.0..=9e15).contains(v) && v.fract() == 0.0).map(|v| v as u64)
        }),
        Value::String(s) => s.trim().parse().ok(),
        _ => None,
    }
}

/// `true`, `"true"`, or a number other than 0.
pub(super) fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(b) => Some(*b),
        Value::Number(_) => number(value).map(|n| n != 0.0),
        Value::String(s) => match s.as_str() {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

/// The text of a name, without control characters and shortened.
pub(super) fn name(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()
}

/// The first of these fields that the object has.
pub(super) fn first<'a>(object: &'a Object, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|n| object.get(*n)).filter(|v| !v.is_null())
}

/// The text of a field.
pub(super) fn text<'a>(object: &'a Object, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_may_be_strings_and_nonsense_is_none() {
        assert_eq!(number(&json!("12.5")), Some(12.5));
        assert_eq!(number(&json!("inf")), None);
        assert_eq!(number(&json!([1])), None);
        assert_eq!(whole(&json!(3.0)), Some(3));
        assert_eq!(whole(&json!("18446744073709551615")), Some(u64::MAX));
        for none in [json!(-1), json!(0.5), json!(1e300), json!("x"), json!(null)] {
            assert_eq!(whole(&none), None, "{none}");
        }
        assert_eq!(name("a\u{1b}[31mb"), "a[31mb");
    }
}
