//! The failure of a program.

use super::child::{End, Fault};
use fullpipe_units::Span;
use std::fmt;

/// Most characters of a line in an error.
const MAX_SHOWN: usize = 200;
/// Most lines of standard error in an error.
const MAX_ERROR_LINES: usize = 10;

/// A program failed as a controller: the run has no result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramError {
    /// The controller's name.
    pub cc: String,
    /// Index of the connection, from 0.
    pub flow: usize,
    /// Virtual time.
    pub at: Span,
    /// What is wrong, in words.
    pub reason: String,
    /// What the program wrote, shortened and without control characters.
    pub line: Option<String>,
    /// How it ended, in words.
    pub end: String,
    /// The last lines that it wrote to standard error, shortened and without control characters.
    pub errors: Vec<String>,
}

impl ProgramError {
    pub(super) fn new(cc: &str, flow: usize, at: Span, fault: Fault, end: &End) -> Self {
        let (reason, line) = described(fault, end);
        let text = String::from_utf8_lossy(&end.errors);
        let mut errors: Vec<String> = text.lines().filter(|l| !l.trim().is_empty()).map(shown).collect();
        let surplus = errors.len().saturating_sub(MAX_ERROR_LINES);
        errors.drain(..surplus);
        ProgramError {
            cc: cc.to_owned(),
            flow,
            at,
            reason,
            line: line.map(|line| shown(&String::from_utf8_lossy(&line))),
            end: match end.status {
                _ if end.killed => "was still running and has been killed".to_owned(),
                Some(status) => format!("ended with {status}"),
                None => "ended, its exit status is not known".to_owned(),
            },
            errors,
        }
    }
}

/// A fault in words, with the line to show.
fn described(fault: Fault, end: &End) -> (String, Option<Vec<u8>>) {
    let seconds = |limit: std::time::Duration| Span::from(limit);
    match fault {
        Fault::NoAnswer(limit) => (format!("no answer within {}", seconds(limit)), None),
        Fault::NotReading(limit) => (format!("did not read its input for {}", seconds(limit)), None),
        Fault::Closed if end.killed => ("closed its standard input or output".to_owned(), None),
        Fault::Closed => ("exited before the run was over".to_owned(), None),
        Fault::Invalid(reason, line) => (format!("invalid answer: {reason}"), Some(line)),
        Fault::TooLong(line) => {
            (format!("wrote a line of more than {} KiB", super::child::MAX_LINE_BYTES >> 10), Some(line))
        }
        Fault::Unasked(lines) => {
            let reason = "wrote more than one line as an answer, or answered a `sent` or `lost` line";
            (reason.to_owned(), lines.split(|byte| *byte == b'\n').next().map(<[u8]>::to_vec))
        }
        Fault::Io(e) => (format!("cannot exchange lines with it: {e}"), None),
    }
}

/// Text for a terminal: control characters are escaped, and what is too long is cut.
fn shown(text: &str) -> String {
    printable(text, MAX_SHOWN)
}

/// The first `most` characters of `text` without control characters.
pub(super) fn printable(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == most {
            shown.push('…');
            break;
        }
        // `escape_debug` also escapes quotes, which JSON is full of.
        match c {
            '"' | '\'' | '\\' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

impl ProgramError {
    /// Everything but the controller, the flow and the time.
    pub(super) fn without_place(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = self.write_reason(&mut text);
        text
    }

    fn write_reason(&self, f: &mut impl fmt::Write) -> fmt::Result {
        let ProgramError { reason, line, end, errors, .. } = self;
        f.write_str(reason)?;
        if let Some(line) = line {
            write!(f, "\n  line: {line}")?;
        }
        write!(f, "\n  the program {end}")?;
        for (i, error) in errors.iter().enumerate() {
            let lead = if i == 0 { "its standard error:" } else { "                   " };
            write!(f, "\n  {lead} {error}")?;
        }
        if line.is_some() {
            f.write_str(
                "\n  help: standard output carries answers only: print other text to standard error",
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow.{}: {} at {}: ", self.flow, shown(&self.cc), self.at)?;
        self.write_reason(f)
    }
}

impl std::error::Error for ProgramError {}
