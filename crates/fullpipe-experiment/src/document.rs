//! Errors in TOML files written by hand: the place, the reason and a remedy.

use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An error at a place of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// The file's name as the user gave it.
    pub file: String,
    /// Line, from 1; 0 if the error concerns the whole file.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The line, or the part of a long line around the place.
    excerpt: String,
    /// Characters of the excerpt before the place, and of the place itself.
    ahead: u16,
    marked: u16,
}

/// Characters of a line that are shown: the marker stays below its place in 80 columns.
const EXCERPT_LENGTH: usize = 72;

/// The excerpt of `line` around `marked` characters after the first `ahead`, and both counts
/// within the excerpt.
fn excerpt(line: &str, ahead: usize, marked: usize) -> (String, usize, usize) {
    let long = line.chars().count();
    if long <= EXCERPT_LENGTH {
        return (line.to_owned(), ahead, marked);
    }
    let from = ahead.saturating_sub(EXCERPT_LENGTH / 3).min(long - EXCERPT_LENGTH);
    let inside: String = line.chars().skip(from).take(EXCERPT_LENGTH).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if from + EXCERPT_LENGTH < long { "…" } else { "" };
    let marked = marked.min((from + EXCERPT_LENGTH).saturating_sub(ahead)).max(1);
    (format!("{before}{inside}{after}"), ahead - from + before.chars().count(), marked)
}

impl FileError {
    /// An error about the file as a whole.
    pub fn whole(file: &str, message: impl Into<String>) -> Self {
        FileError {
            file: file.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            help: None,
            excerpt: String::new(),
            ahead: 0,
            marked: 0,
        }
    }

    /// An error at the bytes `span` of `text`.
    pub fn at(file: &str, text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let start = floor_boundary(text, span.start);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let end = floor_boundary(text, span.end.clamp(start, line_end));
        let column = text[line_start..start].chars().count();
        let marked = text[start..end].chars().count().max(1);
        let (excerpt, ahead, marked) = excerpt(text[line_start..line_end].trim_end(), column, marked);
        FileError {
            line: before.matches('\n').count() + 1,
            column: column + 1,
            excerpt,
            ahead: u16::try_from(ahead).unwrap_or(u16::MAX),
            marked: u16::try_from(marked).unwrap_or(u16::MAX),
            ..FileError::whole(file, message)
        }
    }

    /// Adds a remedy, if one is known.
    #[must_use]
    pub fn with_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }
}

fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.file, self.message)?;
        } else {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            let pad: String = self
                .excerpt
                .chars()
                .take(self.ahead.into())
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
            writeln!(f, "{margin} |")?;
            writeln!(f, "{number} | {}", self.excerpt)?;
            write!(f, "{margin} | {pad}{}", "^".repeat(self.marked.into()))?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for FileError {}

/// The entry of `known` closest to `written`, if at most a third of the characters differ.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = written.to_lowercase();
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&lower, &k.to_lowercase()), k))
        .filter(|(distance, _)| distance * 3 <= written.chars().count().max(3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// An invalid value in a file, at one of its keys (`flow.0.cc`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The dotted key; list entries are numbered from 0.
    pub key: String,
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Fault {
    /// A fault of the value at `key`.
    pub fn new(key: &str, reason: impl Into<String>) -> Self {
        Fault { key: key.to_owned(), reason: reason.into(), help: None }
    }

    /// Adds a remedy.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Prefixes the key with `prefix`, for a part nested in a larger document.
    pub fn under(mut self, prefix: &str) -> Self {
        self.key = if self.key.is_empty() { prefix.to_owned() } else { format!("{prefix}.{}", self.key) };
        self
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// A file's name and text, to locate errors in it.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// The file's name as the user gave it.
    pub name: &'a str,
    /// Its contents.
    pub text: &'a str,
}

impl Document<'_> {
    /// An error at the bytes `span` of the text.
    pub fn at(&self, span: Range<usize>, reason: impl Into<String>) -> FileError {
        FileError::at(self.name, self.text, span, reason)
    }

    /// The TOML parser's error, with the key that was probably meant.
    pub fn toml_error(&self, error: &toml::de::Error) -> FileError {
        let message = error.message().trim().to_owned();
        let help = did_you_mean(&message);
        match error.span() {
            Some(span) => self.at(span, message),
            None => FileError::whole(self.name, message),
        }
        .with_help(help)
    }

    /// Locates a fault at its value in the file; `more` is appended to its message.
    pub fn fault(&self, fault: &Fault, table: &DeTable<'_>, more: &str) -> FileError {
        let message = format!("{}: {}{more}", fault.key, fault.reason);
        match find(table, &fault.key) {
            Some(span) => self.at(span, message),
            None => FileError::whole(self.name, message),
        }
        .with_help(fault.help.clone())
    }
}

/// The span of the value at the dotted `key`, or of the nearest enclosing key present in the file.
fn find(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let mut value: Option<&Spanned<DeValue<'_>>> = None;
    for part in key.split('.').filter(|p| !p.is_empty()) {
        let next = match value.map(Spanned::get_ref) {
            None => table.get(part),
            Some(DeValue::Table(inner)) => inner.get(part),
            Some(DeValue::Array(items)) => part.parse().ok().and_then(|i: usize| items.get(i)),
            Some(_) => None,
        };
        let Some(found) = next else { break };
        value = Some(found);
    }
    value.map(Spanned::span)
}

/// Suggests the nearest of the names that an "expected one of" message lists.
fn did_you_mean(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let written = quoted.next()?;
    if !message.starts_with("unknown ") {
        return None;
    }
    nearest(written, quoted).map(|close| format!("did you mean `{close}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_shows_the_line_and_marks_the_place() {
        let text = "title = \"ä\"\nrate = \"10mb\"\n";
        let at = text.find("\"10mb\"").unwrap();
        let e =
            FileError::at("a.toml", text, at..at + 6, "unknown unit").with_help(Some("write 10mbit".into()));
        assert_eq!(
            e.to_string(),
            "a.toml:2:8: unknown unit\n  |\n2 | rate = \"10mb\"\n  |        ^^^^^^\n  help: write 10mbit"
        );
    }

    #[test]
    fn error_in_a_long_line_shows_the_part_around_the_place() {
        let text = format!("{}wrong{}   \n", "ä".repeat(100_000), "b".repeat(100_000));
        for (at, marked) in
            [(0..2, "ä"), (200_000..200_005, "wrong"), (200_004..9_000_000, "g"), (300_006..300_007, "")]
        {
            let text_shown = FileError::at("a.toml", &text, at, "no").to_string();
            let lines: Vec<&str> = text_shown.lines().collect();
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text_shown}");
            let [shown, mark] = [lines[2], lines[3]].map(|line| line.chars().collect::<Vec<_>>());
            let from = mark.iter().position(|c| *c == '^').unwrap();
            let below: String = shown.iter().skip(from).take(marked.chars().count()).collect();
            assert_eq!(below, marked, "{text_shown}");
        }
    }

    #[test]
    fn nearest_finds_typos_and_rejects_unrelated_words() {
        assert_eq!(nearest("bbr33", ["bbr", "bbr3", "cubic"]), Some("bbr3"));
        assert_eq!(nearest("Cubik", ["bbr", "cubic"]), Some("cubic"));
        for unrelated in ["xyzzy", "foo", "quic"] {
            assert_eq!(nearest(unrelated, ["bbr", "cubic", "flow"]), None);
        }
    }
}
