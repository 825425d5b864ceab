//! Joins an application's log with the arms of its connections by socket cookie (`SO_COOKIE`): CSV
//! with a header, or JSON lines, each with a `cookie` and values of the application.

use crate::SplitError;
use crate::lines::{MAX_LINE_BYTES, next_line};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::BufRead;

/// Name of the join column.
const COOKIE: &str = "cookie";
/// Maximum compared columns.
const MAX_COLUMNS: usize = 16;
/// Maximum bytes of an overlong line that are skipped; beyond, the input is not a text file.
const MAX_SKIPPED_BYTES: u64 = 64 << 20;
/// Maximum number of reported errors.
const MAX_ERRORS: usize = 5;

/// A parsed log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    columns: Vec<Column>,
    /// Valid lines.
    pub rows: u64,
    /// Invalid lines, which are skipped.
    pub invalid: u64,
    /// The first errors, with line numbers.
    pub errors: Vec<String>,
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// No values yet.
    Empty,
    Numbers,
    /// Text, which is not compared.
    Text,
}

#[derive(Clone, Debug, PartialEq)]
struct Column {
    name: String,
    kind: Kind,
    values: Vec<(u64, f64)>,
}

/// A parsed field.
enum Field {
    Empty,
    Number(f64),
    Text(String),
}

impl Field {
    fn from_text(text: &str) -> Field {
        match text.trim() {
            "" => Field::Empty,
            "true" => Field::Number(1.0),
            "false" => Field::Number(0.0),
            text => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Field::Number(number),
                _ => Field::Text(text.to_owned()),
            },
        }
    }

    fn from_json(value: &Value) -> Field {
        match value {
            Value::Null => Field::Empty,
            Value::Bool(is) => Field::Number(f64::from(u8::from(*is))),
            Value::Number(number) => number.as_f64().map_or(Field::Empty, Field::Number),
            other => Field::Text(other.to_string()),
        }
    }
}

impl Log {
    /// Reads a log, as JSON if a line starts with a brace. Invalid lines are skipped, counted and
    /// reported.
    ///
    /// # Errors
    /// When no line can be joined, or reading fails.
    pub fn read(mut from: impl BufRead) -> Result<Log, SplitError> {
        let mut log = Log::default();
        let mut header: Option<Vec<String>> = None;
        let mut number = 0;
        while let Some(line) = next_text(&mut from, number + 1)? {
            number += 1;
            let line = match line {
                Ok(line) => line,
                Err(reason) => {
                    log.add_error(number, &reason);
                    continue;
                }
            };
            if line.trim().is_empty() {
                continue;
            }
            let fields = match &header {
                _ if line.trim_start().starts_with('{') => json(&line),
                Some(header) => csv(&line, header),
                None if log.rows == 0 && log.invalid == 0 => {
                    header =
                        Some(columns(&line).map_err(|reason| SplitError::File { line: number, reason })?);
                    continue;
                }
                None => Err("not JSON, unlike the lines before".to_owned()),
            };
            match fields.and_then(|(cookie, fields)| log.add(cookie, fields)) {
                Ok(()) => log.rows += 1,
                Err(reason) => log.add_error(number, &reason),
            }
        }
        let fail = |reason: String| Err(SplitError::File { line: number.max(1), reason });
        if let Some(header) = &header
            && !header.iter().any(|name| name == COOKIE)
        {
            return fail(format!("no column is named `{COOKIE}`; columns: {}", header.join(", ")));
        }
        if log.rows == 0 {
            let first = log.errors.first().map(|why| format!("; {why}")).unwrap_or_default();
            return fail(format!("no line can be joined{first}"));
        }
        Ok(log)
    }

    fn add_error(&mut self, line: u64, reason: &str) {
        self.invalid += 1;
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(format!("line {line}: {reason}"));
        }
    }

    /// Adds the values of a line, all or none.
    fn add(&mut self, cookie: u64, fields: Vec<(String, Field)>) -> Result<(), String> {
        for (name, field) in &fields {
            let kind =
                self.columns.iter().find(|column| column.name == *name).map_or(Kind::Empty, |c| c.kind);
            if let (Kind::Numbers, Field::Text(text)) = (kind, field) {
                return Err(format!("{name} is not a number: {text}"));
            }
        }
        for (name, field) in fields {
            let place = match self.columns.iter().position(|column| column.name == name) {
                Some(place) => place,
                None if self.columns.len() < MAX_COLUMNS => {
                    self.columns.push(Column { name, kind: Kind::Empty, values: Vec::new() });
                    self.columns.len() - 1
                }
                None => continue,
            };
            let column = &mut self.columns[place];
            match field {
                Field::Empty => {}
                Field::Number(number) => {
                    if column.kind == Kind::Empty {
                        column.kind = Kind::Numbers;
                    }
                    if column.kind == Kind::Numbers {
                        column.values.push((cookie, number));
                    }
                }
                Field::Text(_) => column.kind = Kind::Text,
            }
        }
        Ok(())
    }

    /// Numeric columns by name, as (cookie, value).
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&str, &[(u64, f64)])> {
        let figures = self.columns.iter().filter(|column| column.kind == Kind::Numbers);
        figures.map(|column| (column.name.as_str(), &column.values[..]))
    }

    /// Number of cookies in the experiment, and of others.
    pub(crate) fn matches<T>(&self, known: &HashMap<u64, T>) -> (u64, u64) {
        let all = self.figures().flat_map(|(_, values)| values);
        let cookies: HashSet<u64> = all.map(|(cookie, _)| *cookie).collect();
        let matched = cookies.iter().filter(|cookie| known.contains_key(cookie)).count() as u64;
        (matched, cookies.len() as u64 - matched)
    }
}

type Fields = (u64, Vec<(String, Field)>);

/// The next line, or why it is invalid; `None` at the end.
fn next_text(from: &mut impl BufRead, line: u64) -> Result<Option<Result<String, String>>, SplitError> {
    let wrong = |e| SplitError::File { line, reason: format!("cannot be read: {e}") };
    let Some(mut bytes) = next_line(from).map_err(wrong)? else { return Ok(None) };
    if bytes.len() as u64 > MAX_LINE_BYTES {
        // Skip the rest of the line.
        let mut skipped = bytes.len() as u64;
        while bytes.last() != Some(&b'\n') {
            if skipped > MAX_SKIPPED_BYTES {
                let reason =
                    format!("more than {} MiB without a line break: not a log", MAX_SKIPPED_BYTES >> 20);
                return Err(SplitError::File { line, reason });
            }
            match next_line(from).map_err(wrong)? {
                Some(rest) => {
                    skipped += rest.len() as u64;
                    bytes = rest;
                }
                None => break,
            }
        }
        return Ok(Some(Err(format!("longer than {MAX_LINE_BYTES} bytes"))));
    }
    Ok(Some(String::from_utf8(bytes).map_err(|_| "not text (UTF-8)".to_owned())))
}

fn cookie(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("invalid socket cookie {text:?}"))
}

fn json(line: &str) -> Result<Fields, String> {
    let object: serde_json::Map<String, Value> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let cookie = match object.get(COOKIE) {
        Some(Value::Number(number)) => cookie(&number.to_string())?,
        Some(Value::String(text)) => cookie(text)?,
        _ => return Err(format!("missing `{COOKIE}`")),
    };
    let fields = object.iter().filter(|(name, _)| *name != COOKIE);
    Ok((cookie, fields.map(|(name, value)| (name.clone(), Field::from_json(value))).collect()))
}

/// Column names in the header of a CSV log.
fn columns(line: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = split(line)?.into_iter().map(|name| name.trim().to_owned()).collect();
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(format!("duplicate column `{twice}`: column names must be unique")),
        None => Ok(names),
    }
}

fn csv(line: &str, header: &[String]) -> Result<Fields, String> {
    let texts = split(line)?;
    if texts.len() != header.len() {
        return Err(format!("{} fields, the header has {}", texts.len(), header.len()));
    }
    let place = header.iter().position(|name| name == COOKIE).ok_or_else(|| format!("missing `{COOKIE}`"))?;
    let cookie = cookie(&texts[place])?;
    let fields = header.iter().zip(&texts).enumerate().filter(|(at, _)| *at != place);
    Ok((cookie, fields.map(|(_, (name, text))| (name.clone(), Field::from_text(text))).collect()))
}

/// The fields of a line (RFC 4180, without multi-line fields).
fn split(line: &str) -> Result<Vec<String>, String> {
    let mut fields = Vec::new();
    let mut rest = line.trim_end_matches(['\n', '\r']);
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
            Some(quoted) => {
                let mut field = String::new();
                let mut left = quoted;
                loop {
                    let Some((before, after)) = left.split_once('"') else {
                        return Err("unclosed quotation mark".to_owned());
                    };
                    field += before;
                    left = after;
                    match left.strip_prefix('"') {
                        Some(more) => {
                            field.push('"');
                            left = more;
                        }
                        None => break (field, left),
                    }
                }
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None if after.is_empty() => return Ok(fields),
            None => return Err("unexpected text after a closing quotation mark".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Log, String> {
        Log::read(text.as_bytes()).map_err(|e| e.to_string())
    }

    fn figures(log: &Log) -> Vec<(&str, Vec<(u64, f64)>)> {
        log.figures().map(|(name, values)| (name, values.to_vec())).collect()
    }

    #[test]
    fn csv_and_json_are_equivalent() {
        let csv = "cookie,url,ttfb_ms,failed\n\
                   18446744073709551615,\"/a,\"\"b\"\"\",12.5,false\n\n7,/c,,true\n";
        let json = "{\"cookie\": 18446744073709551615, \"url\": \"/a\", \"ttfb_ms\": 12.5, \
                    \"failed\": false}\n\
                    {\"cookie\": \"7\", \"url\": \"/c\", \"failed\": true, \"ttfb_ms\": null}";
        for text in [csv, json] {
            let log = read(text).unwrap();
            let mut all = figures(&log);
            all.sort_by_key(|(name, _)| *name);
            let failed = vec![(u64::MAX, 0.0), (7, 1.0)];
            assert_eq!(all, [("failed", failed), ("ttfb_ms", vec![(u64::MAX, 12.5)])]);
            assert_eq!((log.rows, log.invalid), (2, 0));
        }
    }

    #[test]
    fn invalid_lines_are_skipped_and_reported() {
        let text = "cookie,ttfb_ms\n1,10\nx,11\n2,slow\n3\n4,\"5\n5,6,\n6,\"7\"8\n7,12\n";
        let log = read(text).unwrap();
        assert_eq!(figures(&log), [("ttfb_ms", vec![(1, 10.0), (7, 12.0)])]);
        assert_eq!((log.rows, log.invalid), (2, 6));
        assert_eq!(log.errors[0], "line 3: invalid socket cookie \"x\"");
        assert_eq!(log.errors[1], "line 4: ttfb_ms is not a number: slow");
        assert!(log.errors[2].starts_with("line 5: 1 fields"), "{:?}", log.errors);
        let log =
            read(&format!("{{\"cookie\":1,\"a\":2}}\n{}\n{{\"cookie\":2,\"a\":3}}\n", "x".repeat(200_000)))
                .unwrap();
        assert_eq!((log.rows, log.invalid), (2, 1));
        assert!(log.errors[0].contains("line 2: longer than"), "{:?}", log.errors);
    }

    #[test]
    fn an_endless_line_is_an_error() {
        let endless = std::io::BufReader::with_capacity(1 << 16, std::io::repeat(0));
        let error = Log::read(endless).unwrap_err().to_string();
        assert!(error.contains("without a line break"), "{error}");
    }

    #[test]
    fn logs_that_cannot_be_joined_are_errors() {
        for (text, expected) in [
            ("", "no line can be joined"),
            ("id,ttfb\n1,2\n", "no column is named `cookie`; columns: id, ttfb"),
            ("cookie,a, a\n1,2,3\n", "line 1: duplicate column `a`"),
            ("{\"a\": 1}\n", "missing `cookie`"),
            ("cookie,a\n\u{1},2\n", "line 2: invalid socket cookie"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_log_panics(text in "(cookie|[{}\":,0-9a.\n\r-]|\\PC){0,80}") {
            if let Ok(log) = Log::read(text.as_bytes()) {
                proptest::prop_assert!(log.rows > 0);
            }
        }
    }
}
