//! Ranges of values in a sweep: `0.01%..10% log 8`, `10ms..100ms linear 4`, `1bdp..4bdp step
//! 0.5bdp`.

use crate::format_number::{significant, trim_zeros};
use fullpipe_units::{Bytes, Rate, Span};

/// Larger ranges are assumed to be typos.
const MAX_VALUES: usize = 1000;

/// The accepted forms, appended to every error.
const FORMS: &str =
    "write FROM..TO log N, FROM..TO linear N or FROM..TO step BY, for example 0.01%..10% log 8";

/// The values of a range, ends included, or `None` if `text` is not a range. Values between the
/// ends have three significant digits, or as many as keep neighbours distinct.
///
/// # Errors
/// Why the range is invalid, with the accepted forms.
pub fn range(text: &str) -> Option<Result<Vec<String>, String>> {
    text.contains("..").then(|| values(text).map_err(|why| format!("`{text}`: {why}; {FORMS}")))
}

fn values(text: &str) -> Result<Vec<String>, String> {
    let (from, rest) = text.split_once("..").unwrap_or((text, ""));
    let (from, mut words) = (from.trim(), rest.split_whitespace());
    let to = words.next().ok_or("the end is missing")?;
    let (spacing, by) =
        (words.next().ok_or("the spacing is missing: `log`, `linear` or `step`")?, words.next());
    let by = by.filter(|_| words.next().is_none()).ok_or("expected one number or step at the end")?;
    let (start, unit) = split_unit(from)?;
    let end = number_in(to, from, start, unit)?;
    let count = || {
        let n: usize = by.parse().map_err(|_| format!("`{by}` is not a number of values"))?;
        if (2..=MAX_VALUES).contains(&n) {
            Ok(n)
        } else {
            Err(format!("expected 2 to {MAX_VALUES} values, got {n}"))
        }
    };
    let figures: Vec<f64> = match spacing {
        "log" if start <= 0.0 || end <= 0.0 => {
            return Err("both ends of a logarithmic range must be above 0".into());
        }
        "log" => spread(count()?, |share| start * (end / start).powf(share)),
        "linear" => spread(count()?, |share| start + (end - start) * share),
        "step" => {
            let step = number_in(by, from, start, unit)?.abs();
            let steps = (end - start).abs() / step;
            if !(steps.is_finite() && steps < MAX_VALUES as f64) {
                return Err(format!("more than {MAX_VALUES} steps"));
            }
            // Count the last step if it misses the end by rounding only.
            let steps = (steps + 1e-9).floor();
            (0..=steps as usize).map(|i| start + step * i as f64 * (end - start).signum()).collect()
        }
        other => return Err(format!("unknown spacing `{other}`")),
    };
    let last = figures.len().saturating_sub(1);
    let digits = digits(&figures);
    let mut written: Vec<String> = Vec::new();
    for (i, figure) in figures.into_iter().enumerate() {
        let value = match i {
            0 => from.to_owned(),
            i if i == last && spacing != "step" => to.to_owned(),
            // A number without a unit may have to be whole.
            _ if unit.is_empty() && start.fract() == 0.0 && end.fract() == 0.0 && spacing != "step" => {
                format!("{}", figure.round())
            }
            _ => format!("{}{unit}", trim_zeros(&significant(figure, digits))),
        };
        if written.last() != Some(&value) {
            written.push(value);
        }
    }
    Ok(written)
}

/// Digits that keep each figure within a twentieth of the distance to its neighbour.
fn digits(figures: &[f64]) -> i32 {
    let off = |figure: f64, digits| {
        significant(figure, digits).parse().map_or(f64::INFINITY, |written: f64| (written - figure).abs())
    };
    let are_enough = |digits: &i32| {
        figures.windows(2).all(|two| {
            let near = (two[1] - two[0]).abs() / 20.0;
            two.iter().all(|figure| off(*figure, *digits) <= near)
        })
    };
    (3..12).find(are_enough).unwrap_or(12)
}

fn spread(n: usize, at: impl Fn(f64) -> f64) -> Vec<f64> {
    (0..n).map(|i| at(i as f64 / (n - 1) as f64)).collect()
}

/// Number and unit of a quantity.
fn split_unit(text: &str) -> Result<(f64, &str), String> {
    let at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number = number.parse().map_err(|_| format!("`{text}` does not start with a number"))?;
    Ok((number, unit))
}

/// The number of `text`, converted to the unit of `first`.
fn number_in(text: &str, first: &str, number: f64, unit: &str) -> Result<f64, String> {
    let (own, own_unit) = split_unit(text)?;
    if own_unit == unit {
        return Ok(own);
    }
    match (size(text), size(first)) {
        (Some((kind, size)), Some((of_first, whole))) if kind == of_first && whole > 0.0 => {
            Ok(size / whole * number)
        }
        _ => Err(format!("`{text}` and `{first}` have different units")),
    }
}

/// The kind of quantity, and its amount in the kind's base unit.
fn size(text: &str) -> Option<(&'static str, f64)> {
    let rate = || Some(("rate", text.parse::<Rate>().ok()?.as_bytes_per_sec() as f64));
    let span = || Some(("time", text.parse::<Span>().ok()?.as_secs_f64()));
    let bytes = || Some(("bytes", text.parse::<Bytes>().ok()?.0 as f64));
    rate().or_else(span).or_else(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values_of(text: &str) -> Vec<String> {
        range(text).unwrap().unwrap()
    }

    #[test]
    fn range_supports_log_linear_and_step() {
        assert_eq!(
            values_of("0.01%..10% log 8"),
            ["0.01%", "0.0268%", "0.072%", "0.193%", "0.518%", "1.39%", "3.73%", "10%"]
        );
        assert_eq!(values_of("10ms..100ms linear 4"), ["10ms", "40ms", "70ms", "100ms"]);
        assert_eq!(values_of("1bdp .. 3bdp step 0.5bdp"), ["1bdp", "1.5bdp", "2bdp", "2.5bdp", "3bdp"]);
        assert_eq!(values_of("1..10 log 4"), ["1", "2", "5", "10"]);
        assert_eq!(values_of("8..2 step 3"), ["8", "5", "2"]);
        assert_eq!(values_of("1000p..1010p step 5p"), ["1000p", "1005p", "1010p"]);
        assert_eq!(values_of("100ms..101ms step 0.5ms"), ["100ms", "100.5ms", "101ms"]);
        assert_eq!(values_of("1000ms..1010ms linear 3"), ["1000ms", "1005ms", "1010ms"]);
        assert_eq!(values_of("1mbit..1.02mbit log 3"), ["1mbit", "1.01mbit", "1.02mbit"]);
    }

    #[test]
    fn range_ends_may_use_different_units_of_one_kind() {
        assert_eq!(values_of("1mbit..1gbit log 4"), ["1mbit", "10mbit", "100mbit", "1gbit"]);
        assert_eq!(values_of("500us..2ms linear 4"), ["500us", "1000us", "1500us", "2ms"]);
        assert!(range("1ms..1mbit log 3").unwrap().unwrap_err().contains("different units"));
    }

    #[test]
    fn range_error_names_the_fault_and_the_accepted_forms() {
        for (text, why) in [
            ("0%..10% log 8", "above 0"),
            ("1%..10%", "spacing is missing"),
            ("1%..", "the end is missing"),
            ("1%..10% log", "at the end"),
            ("1%..10% log 8 9", "at the end"),
            ("1%..10% log 1", "2 to 1000"),
            ("1%..10% cubic 8", "unknown spacing"),
            ("1s..10s step 0s", "steps"),
            ("1s..10s step 1us", "steps"),
            ("x..10% log 3", "start with a number"),
        ] {
            let error = range(text).unwrap().unwrap_err();
            assert!(error.contains(why) && error.contains("FROM..TO log N"), "{text}: {error}");
        }
        assert_eq!(range("10%"), None);
    }
}
