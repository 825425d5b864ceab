//! `[sweep]`: dotted keys with lists or ranges of values; every combination is one run.

use super::range;
use crate::recording::Variation;
use std::borrow::Cow;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The place in the file, in bytes, and the reason.
type SweepError = (Range<usize>, String);

/// The swept keys with their values and spans in the file.
#[derive(Default)]
pub(super) struct Sweep<'i> {
    axes: Vec<(String, Range<usize>, Vec<Spanned<DeValue<'i>>>)>,
    span: Range<usize>,
}

impl<'i> Sweep<'i> {
    /// Removes `[sweep]` from `document`.
    pub(super) fn extract_from(document: &mut DeTable<'i>) -> Result<Self, SweepError> {
        let Some(section) = document.remove("sweep") else {
            return Ok(Sweep::default());
        };
        let span = section.span();
        let DeValue::Table(table) = section.into_inner() else {
            return Err((
                span,
                "`sweep` must be a table of keys, each with a list of values or a range".into(),
            ));
        };
        let mut axes = Vec::new();
        for (key, value) in table {
            let place = value.span();
            let name = key.get_ref();
            let values = match value.into_inner() {
                DeValue::Array(values) => values.iter().cloned().collect(),
                DeValue::String(text) => expand_range(&text, &place)
                    .map_err(|reason| (place.clone(), format!("sweep of `{name}`: {reason}")))?,
                _ => {
                    return Err((place, format!("sweep of `{name}`: expected a list of values, or a range")));
                }
            };
            if values.is_empty() {
                return Err((place, format!("sweep of `{name}`: the list is empty")));
            }
            axes.push((name.to_string(), key.span(), values));
        }
        Ok(Sweep { axes, span })
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The number of combinations; 1 without a sweep.
    pub(super) fn combinations(&self) -> usize {
        self.axes.iter().fold(1, |n: usize, (_, _, values)| n.saturating_mul(values.len()))
    }

    /// Describes the keys and values as a check's `where` names them.
    pub(super) fn description(&self) -> String {
        if self.axes.is_empty() {
            return "no keys".into();
        }
        let axis = |(key, _, values): &(String, Range<usize>, Vec<Spanned<DeValue<'_>>>)| {
            let values: Vec<String> =
                values.iter().map(|v| format!("`{}`", format_value(v.get_ref()))).collect();
            format!("`{key}` = {}", values.join(", "))
        };
        self.axes.iter().map(axis).collect::<Vec<_>>().join("; ")
    }

    /// Writes combination `i` into `document` and returns its values. The last key varies fastest.
    pub(super) fn apply(&self, i: usize, document: &mut DeTable<'i>) -> Result<Vec<Variation>, SweepError> {
        let mut rest = i;
        let mut varied = Vec::with_capacity(self.axes.len());
        for (key, place, values) in self.axes.iter().rev() {
            let value = &values[rest % values.len()];
            rest /= values.len();
            let parts: Vec<&str> = key.split('.').collect();
            set_in_table(document, &parts, value)
                .map_err(|reason| (place.clone(), format!("sweep of `{key}`: {reason}")))?;
            varied.push(Variation::new(key.as_str(), format_value(value.get_ref())));
        }
        varied.reverse();
        Ok(varied)
    }
}

/// The values of a range, each with the range's span.
fn expand_range<'i>(text: &str, place: &Range<usize>) -> Result<Vec<Spanned<DeValue<'i>>>, String> {
    let values = range(text).ok_or("expected a list of values, or a range such as `0.01%..10% log 8`")??;
    if values.iter().any(|value| value.parse::<f64>().is_ok()) {
        return Err("numbers without a unit must be a list, such as [1, 2, 4]".into());
    }
    let value = |text| Spanned::new(place.clone(), DeValue::String(Cow::Owned(text)));
    Ok(values.into_iter().map(value).collect())
}

fn set_in_table<'i>(
    table: &mut DeTable<'i>,
    key: &[&str],
    value: &Spanned<DeValue<'i>>,
) -> Result<(), String> {
    let Some((&first, rest)) = key.split_first() else {
        return Err("the key is empty".into());
    };
    if first.is_empty() {
        return Err("the key has an empty part".into());
    }
    if rest.is_empty() {
        let name = Spanned::new(value.span(), Cow::Owned(first.to_owned()));
        table.remove(first);
        table.insert(name, value.clone());
        return Ok(());
    }
    if !table.contains_key(first) {
        let name = Spanned::new(value.span(), Cow::Owned(first.to_owned()));
        table.insert(name, Spanned::new(value.span(), DeValue::Table(DeTable::new())));
    }
    match table.get_mut(first) {
        Some(inner) => set_in_value(inner.get_mut(), first, rest, value),
        None => Ok(()),
    }
}

/// In a list, a number selects that entry; any other key applies to all entries.
fn set_in_value<'i>(
    at: &mut DeValue<'i>,
    name: &str,
    key: &[&str],
    value: &Spanned<DeValue<'i>>,
) -> Result<(), String> {
    match at {
        DeValue::Table(table) => set_in_table(table, key, value),
        DeValue::Array(items) => {
            match key.split_first().and_then(|(n, rest)| Some((n.parse::<usize>().ok()?, rest))) {
                Some((n, rest)) => {
                    let count = items.len();
                    let item = items.get_mut(n).ok_or_else(|| {
                        format!("`{name}` has entries 0 to {}, not {n}", count.saturating_sub(1))
                    })?;
                    if rest.is_empty() {
                        *item = value.clone();
                        return Ok(());
                    }
                    set_in_value(item.get_mut(), name, rest, value)
                }
                None => items.iter_mut().try_for_each(|item| set_in_value(item.get_mut(), name, key, value)),
            }
        }
        _ => Err(format!("`{name}` is a single value without keys")),
    }
}

/// Formats a value for a label.
fn format_value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(n) => n.to_string(),
        DeValue::Float(n) => n.to_string(),
        DeValue::Boolean(b) => b.to_string(),
        DeValue::Datetime(d) => d.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|i| format_value(i.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(table) => {
            // A table with only a kind or a label is identified by it.
            let named = table.get("kind").or_else(|| table.get("label"));
            match named {
                Some(kind) if table.len() == 1 => format_value(kind.get_ref()),
                _ => {
                    let pairs: Vec<String> = table
                        .iter()
                        .map(|(k, v)| format!("{} {}", k.get_ref(), format_value(v.get_ref())))
                        .collect();
                    pairs.join(" ")
                }
            }
        }
    }
}
