//! What is wrong with a scenario file: the place, the reason, and what to do.

use std::fmt;
use std::ops::Range;

/// An error at a place of a scenario file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    /// The file's name as the user gave it.
    pub file: String,
    /// Line, from 1; 0 if the whole file is meant.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    source_line: String,
    marked: usize,
}

impl ScenarioError {
    /// An error about the file as a whole.
    pub fn whole(file: &str, message: impl Into<String>) -> Self {
        ScenarioError {
            file: file.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            help: None,
            source_line: String::new(),
            marked: 0,
        }
    }

    /// An error at the bytes `span` of `text`.
    pub(super) fn at(file: &str, text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let start = floor_boundary(text, span.start);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let end = floor_boundary(text, span.end.clamp(start, line_end));
        ScenarioError {
            line: before.matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            source_line: text[line_start..line_end].trim_end().to_owned(),
            marked: text[start..end].chars().count().max(1),
            ..ScenarioError::whole(file, message)
        }
    }

    pub(super) fn with_help(mut self, help: Option<String>) -> Self {
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

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(f, "{}: {}", self.file, self.message)?;
        } else {
            let number = self.line.to_string();
            let margin = " ".repeat(number.len());
            let pad: String = self
                .source_line
                .chars()
                .take(self.column - 1)
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
            writeln!(f, "{margin} |")?;
            writeln!(f, "{number} | {}", self.source_line)?;
            write!(f, "{margin} | {pad}{}", "^".repeat(self.marked))?;
        }
        match &self.help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ScenarioError {}

/// The one of `known` that `written` was probably meant to be.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = written.to_lowercase();
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(&lower, &k.to_lowercase()), k))
        .filter(|(distance, k)| *distance <= k.chars().count().max(3) / 2)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_shown_with_its_line_and_a_mark() {
        let text = "title = \"ä\"\nrate = \"10mb\"\n";
        let at = text.find("\"10mb\"").unwrap();
        let e = ScenarioError::at("a.toml", text, at..at + 6, "unknown unit")
            .with_help(Some("write 10mbit".into()));
        assert_eq!(
            e.to_string(),
            "a.toml:2:8: unknown unit\n  |\n2 | rate = \"10mb\"\n  |        ^^^^^^\n  help: write 10mbit"
        );
    }

    #[test]
    fn a_near_miss_is_recognised_and_nonsense_is_not() {
        assert_eq!(nearest("bbr33", ["bbr", "bbr3", "cubic"]), Some("bbr3"));
        assert_eq!(nearest("Cubik", ["bbr", "cubic"]), Some("cubic"));
        assert_eq!(nearest("xyzzy", ["bbr", "cubic"]), None);
    }
}
