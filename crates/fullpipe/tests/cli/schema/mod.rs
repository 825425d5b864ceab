//! Validates documents against the JSON Schemas that `fullpipe schema` prints.

use serde_json::Value;

/// Panics with the place where `value` violates `schema` or has undescribed fields, or where the
/// schema uses an unsupported keyword.
pub fn assert_described(schema: &Value, value: &Value) {
    if let Err(why) = check(schema, schema, value, "$") {
        panic!("{why}");
    }
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let rules = schema.as_object().ok_or_else(|| format!("{at}: {schema} is not a schema"))?;
    for (rule, wanted) in rules {
        match rule.as_str() {
            "$schema" | "$defs" | "title" | "description" | "format" => {}
            "$ref" => {
                let path = wanted.as_str().and_then(|w| w.strip_prefix('#')).unwrap_or("/nowhere");
                let there = root.pointer(path).ok_or_else(|| format!("{at}: {wanted} leads nowhere"))?;
                check(root, there, value, at)?;
            }
            "type" => {
                let names = wanted.as_array().map_or(std::slice::from_ref(wanted), Vec::as_slice);
                if !names.iter().any(|name| is(value, name.as_str().unwrap_or(""))) {
                    return Err(format!("{at}: {value} is not {wanted}"));
                }
            }
            "minimum" | "maximum" => {
                if let (Some(value), Some(bound)) = (value.as_f64(), wanted.as_f64())
                    && (if rule == "minimum" { value < bound } else { value > bound })
                {
                    return Err(format!("{at}: {value} is beyond the {rule} {bound}"));
                }
            }
            "const" if wanted == value => {}
            "enum" if wanted.as_array().is_some_and(|all| all.contains(value)) => {}
            "anyOf" | "oneOf" => {
                let each = wanted.as_array().into_iter().flatten();
                let fit = each.filter(|one| check(root, one, value, at).is_ok()).count();
                if fit == 0 || (rule == "oneOf" && fit > 1) {
                    return Err(format!("{at}: {fit} of {rule} fit {value}"));
                }
            }
            "required" => {
                let missing = wanted.as_array().into_iter().flatten();
                if let Some(key) = missing.flat_map(Value::as_str).find(|key| value.get(key).is_none()) {
                    return Err(format!("{at}: {key} is missing"));
                }
            }
            "properties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}.{key}");
                    let described = wanted.get(key).ok_or_else(|| format!("{at} is not described"))?;
                    check(root, described, value, &at)?;
                }
            }
            "items" => {
                for (number, value) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, wanted, value, &format!("{at}[{number}]"))?;
                }
            }
            _ => return Err(format!("{at}: {value} against {rule}: {wanted}")),
        }
    }
    Ok(())
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}
