//! What an application says of its connections, joined to their arms by the kernel's lasting name for a socket
//! (`SO_COOKIE`): a log of lines, CSV with a head or JSON, each with a `cookie` and figures of the application's own.

use crate::SplitError;
use crate::lines::{MOST_LINE, next_line};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::io::BufRead;

/// The column that joins.
const COOKIE: &str = "cookie";
/// Figures that are compared.
const MOST_COLUMNS: usize = 16;
/// A line that is too long is passed over up to here, bytes: one that goes on has no end, as a device's.
const ENDLESS: u64 = 64 << 20;
/// Lines in question that are named.
const MOST_NAMED: usize = 5;

/// A log that was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    columns: Vec<Column>,
    /// Lines with a cookie and figures.
    pub rows: u64,
    /// Lines that could not be read, of which the first are named.
    pub bad: u64,
    /// The places of these, and why.
    pub troubles: Vec<String>,
}

/// What stands in a column.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Nothing yet.
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

/// A field as it stands in a line.
enum Field {
    Nothing,
    Number(f64),
    Text(String),
}

impl Field {
    fn of_text(text: &str) -> Field {
        match text.trim() {
            "" => Field::Nothing,
            "true" => Field::Number(1.0),
            "false" => Field::Number(0.0),
            text => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Field::Number(number),
                _ => Field::Text(text.to_owned()),
            },
        }
    }

    fn of_json(value: &Value) -> Field {
        match value {
            Value::Null => Field::Nothing,
            Value::Bool(is) => Field::Number(f64::from(u8::from(*is))),
            Value::Number(number) => number.as_f64().map_or(Field::Nothing, Field::Number),
            other => Field::Text(other.to_string()),
        }
    }
}

impl Log {
    /// Reads a log; a line that begins with a brace says that it is JSON. A line that cannot be read is left out, counted
    /// and named.
    ///
    /// # Errors
    /// When nothing in it can be joined, or it cannot be read at all.
    pub fn read(mut from: impl BufRead) -> Result<Log, SplitError> {
        let mut log = Log::default();
        let mut head: Option<Vec<String>> = None;
        let mut number = 0;
        while let Some(line) = next_text(&mut from, number + 1)? {
            number += 1;
            let line = match line {
                Ok(line) => line,
                Err(reason) => {
                    log.trouble(number, &reason);
                    continue;
                }
            };
            if line.trim().is_empty() {
                continue;
            }
            let fields = match &head {
                _ if line.trim_start().starts_with('{') => json(&line),
                Some(head) => csv(&line, head),
                None if log.rows == 0 && log.bad == 0 => {
                    head = Some(columns(&line).map_err(|reason| SplitError::File { line: number, reason })?);
                    continue;
                }
                None => Err("neither JSON as the lines before nor anything else that is known".to_owned()),
            };
            match fields.and_then(|(cookie, fields)| log.add(cookie, fields)) {
                Ok(()) => log.rows += 1,
                Err(reason) => log.trouble(number, &reason),
            }
        }
        let nothing = |reason: String| Err(SplitError::File { line: number.max(1), reason });
        if let Some(head) = &head
            && !head.iter().any(|name| name == COOKIE)
        {
            return nothing(format!("no column is called `{COOKIE}`: there are {}", head.join(", ")));
        }
        if log.rows == 0 {
            let first = log.troubles.first().map(|why| format!("; {why}")).unwrap_or_default();
            return nothing(format!("no line could be joined{first}"));
        }
        Ok(log)
    }

    fn trouble(&mut self, line: u64, reason: &str) {
        self.bad += 1;
        if self.troubles.len() < MOST_NAMED {
            self.troubles.push(format!("line {line}: {reason}"));
        }
    }

    /// Adds a line's figures, all of them or none.
    fn add(&mut self, cookie: u64, fields: Vec<(String, Field)>) -> Result<(), String> {
        for (name, field) in &fields {
            let kind =
                self.columns.iter().find(|column| column.name == *name).map_or(Kind::Empty, |c| c.kind);
            if let (Kind::Numbers, Field::Text(text)) = (kind, field) {
                return Err(format!("{name} is no number: {text}"));
            }
        }
        for (name, field) in fields {
            let place = match self.columns.iter().position(|column| column.name == name) {
                Some(place) => place,
                None if self.columns.len() < MOST_COLUMNS => {
                    self.columns.push(Column { name, kind: Kind::Empty, values: Vec::new() });
                    self.columns.len() - 1
                }
                None => continue,
            };
            let column = &mut self.columns[place];
            match field {
                Field::Nothing => {}
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

    /// The figures, by the column's name, each with the connection's cookie.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&str, &[(u64, f64)])> {
        let figures = self.columns.iter().filter(|column| column.kind == Kind::Numbers);
        figures.map(|column| (column.name.as_str(), &column.values[..]))
    }

    /// How many figures belong to connections of the split, and how many do not.
    pub(crate) fn matches<T>(&self, known: &HashMap<u64, T>) -> (u64, u64) {
        let all = self.figures().flat_map(|(_, values)| values);
        let cookies: HashSet<u64> = all.map(|(cookie, _)| *cookie).collect();
        let there = cookies.iter().filter(|cookie| known.contains_key(cookie)).count() as u64;
        (there, cookies.len() as u64 - there)
    }
}

type Fields = (u64, Vec<(String, Field)>);

/// The next line, or why it is none; nothing at the end.
fn next_text(from: &mut impl BufRead, line: u64) -> Result<Option<Result<String, String>>, SplitError> {
    let wrong = |e| SplitError::File { line, reason: format!("cannot be read: {e}") };
    let Some(mut bytes) = next_line(from).map_err(wrong)? else { return Ok(None) };
    if bytes.len() as u64 > MOST_LINE {
        // The rest of it is of no use either.
        let mut passed = bytes.len() as u64;
        while bytes.last() != Some(&b'\n') {
            if passed > ENDLESS {
                let reason =
                    format!("more than {} MiB without the end of a line: this is no log", ENDLESS >> 20);
                return Err(SplitError::File { line, reason });
            }
            match next_line(from).map_err(wrong)? {
                Some(rest) => {
                    passed += rest.len() as u64;
                    bytes = rest;
                }
                None => break,
            }
        }
        return Ok(Some(Err(format!("longer than {MOST_LINE} bytes"))));
    }
    Ok(Some(String::from_utf8(bytes).map_err(|_| "not text (UTF-8)".to_owned())))
}

fn cookie(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("{COOKIE} is no number of a socket: {text:?}"))
}

fn json(line: &str) -> Result<Fields, String> {
    let object: serde_json::Map<String, Value> = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let cookie = match object.get(COOKIE) {
        Some(Value::Number(number)) => cookie(&number.to_string())?,
        Some(Value::String(text)) => cookie(text)?,
        _ => return Err(format!("it has no `{COOKIE}`")),
    };
    let fields = object.iter().filter(|(name, _)| *name != COOKIE);
    Ok((cookie, fields.map(|(name, value)| (name.clone(), Field::of_json(value))).collect()))
}

/// The names in the head of a log of CSV.
fn columns(line: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = split(line)?.into_iter().map(|name| name.trim().to_owned()).collect();
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(format!("two columns are called `{twice}`: name each figure once")),
        None => Ok(names),
    }
}

fn csv(line: &str, head: &[String]) -> Result<Fields, String> {
    let texts = split(line)?;
    if texts.len() != head.len() {
        return Err(format!("{} fields where the head has {}", texts.len(), head.len()));
    }
    let place = head.iter().position(|name| name == COOKIE).ok_or_else(|| format!("no `{COOKIE}`"))?;
    let cookie = cookie(&texts[place])?;
    let fields = head.iter().zip(&texts).enumerate().filter(|(at, _)| *at != place);
    Ok((cookie, fields.map(|(_, (name, text))| (name.clone(), Field::of_text(text))).collect()))
}

/// The fields of a line (RFC 4180, but that no field goes on in the next line).
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
                        return Err("a quotation mark is not closed".to_owned());
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
            None => return Err("something stands behind a closed quotation mark".to_owned()),
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
    fn csv_and_json_say_the_same() {
        let csv = "cookie,url,ttfb_ms,failed\n\
                   18446744073709551615,\"/a,\"\"b\"\"\",12.5,false\n\n7,/c,,true\n";
        let json = "{\"cookie\": 18446744073709551615, \"url\": \"/a\", \"ttfb_ms\": 12.5, \"failed\": false}\n\
                    {\"cookie\": \"7\", \"url\": \"/c\", \"failed\": true, \"ttfb_ms\": null}";
        for text in [csv, json] {
            let log = read(text).unwrap();
            let mut all = figures(&log);
            all.sort_by_key(|(name, _)| *name);
            let failed = vec![(u64::MAX, 0.0), (7, 1.0)];
            assert_eq!(all, [("failed", failed), ("ttfb_ms", vec![(u64::MAX, 12.5)])]);
            assert_eq!((log.rows, log.bad), (2, 0));
        }
    }

    #[test]
    fn lines_that_cannot_be_read_are_left_out_and_named() {
        let text = "cookie,ttfb_ms\n1,10\nx,11\n2,slow\n3\n4,\"5\n5,6,\n6,\"7\"8\n7,12\n";
        let log = read(text).unwrap();
        assert_eq!(figures(&log), [("ttfb_ms", vec![(1, 10.0), (7, 12.0)])]);
        assert_eq!((log.rows, log.bad), (2, 6));
        assert_eq!(log.troubles[0], "line 3: cookie is no number of a socket: \"x\"");
        assert_eq!(log.troubles[1], "line 4: ttfb_ms is no number: slow");
        assert!(log.troubles[2].starts_with("line 5: 1 fields"), "{:?}", log.troubles);
        let log =
            read(&format!("{{\"cookie\":1,\"a\":2}}\n{}\n{{\"cookie\":2,\"a\":3}}\n", "x".repeat(200_000)))
                .unwrap();
        assert_eq!((log.rows, log.bad), (2, 1));
        assert!(log.troubles[0].contains("line 2: longer than"), "{:?}", log.troubles);
    }

    #[test]
    fn a_line_without_an_end_is_not_waited_for() {
        let endless = std::io::BufReader::with_capacity(1 << 16, std::io::repeat(0));
        let error = Log::read(endless).unwrap_err().to_string();
        assert!(error.contains("without the end of a line"), "{error}");
    }

    #[test]
    fn what_cannot_be_joined_is_refused() {
        for (text, said) in [
            ("", "no line could be joined"),
            ("id,ttfb\n1,2\n", "no column is called `cookie`: there are id, ttfb"),
            ("cookie,a, a\n1,2,3\n", "line 1: two columns are called `a`"),
            ("{\"a\": 1}\n", "it has no `cookie`"),
            ("cookie,a\n\u{1},2\n", "line 2: cookie is no number"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(said), "{text:?}: {told}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_log_is_too_strange(text in "(cookie|[{}\":,0-9a.\n\r-]|\\PC){0,80}") {
            if let Ok(log) = Log::read(text.as_bytes()) {
                proptest::prop_assert!(log.rows > 0);
            }
        }
    }
}
