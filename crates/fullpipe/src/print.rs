//! Output: text for people, JSON for programs.

use crate::failure::Failure;
use clap::error::{ContextKind, ContextValue};
use fullpipe_kernel::printable;
use fullpipe_report::wrap_text;
use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

/// The first error of printing. A command that changes a host must not stop because of it.
static FIRST_ERROR: OnceLock<String> = OnceLock::new();

/// Prints `text` on `out` with control sequences from outside escaped. A closed pipe (`| head`) is
/// not an error.
pub fn text(out: &mut impl Write, text: Arguments<'_>) {
    let text = match text.as_str() {
        Some(literal) => Cow::Borrowed(literal),
        None => Cow::Owned(printable::coloured(&text.to_string()).into_owned()),
    };
    if let Err(why) = ignore_closed_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush())) {
        let _ = FIRST_ERROR.set(why);
    }
}

/// Prints `text` on stderr, wrapped to the width of the terminal.
pub fn message(text: Arguments<'_>) {
    let whole = text.to_string();
    let whole = wrapped_for(whole, io::stderr().is_terminal(), console::Term::stderr);
    self::text(&mut io::stderr(), format_args!("{whole}"));
}

/// Prints `text` on stdout, wrapped to the width of the terminal. For sentences, not tables.
#[cfg(any(feature = "net", feature = "mesh"))]
pub fn prose(text: &str) {
    self::text(&mut io::stdout(), format_args!("{}", wrapped_to_stdout(text)));
}

/// `text` wrapped to the width of stdout. For sentences, not tables.
#[cfg(any(feature = "ebpf", feature = "mesh", feature = "net", feature = "trace"))]
pub fn wrapped_to_stdout(text: &str) -> String {
    columns().map_or_else(|| text.to_owned(), |width| fitted(text, width))
}

/// The width of stdout: of the terminal, or according to `COLUMNS`; none if stdout is a file or
/// pipe without it.
pub fn columns() -> Option<usize> {
    width(io::stdout().is_terminal(), console::Term::stdout)
}

/// `text` after `lead`, wrapped to this width with a hanging indent.
pub fn hanging_indent(lead: &str, text: &str, width: usize) -> String {
    let indent = lead.chars().count();
    let lines = wrap_text(text, width.saturating_sub(indent));
    let line = |(i, line): (usize, &String)| match i {
        0 => format!("{lead}{line}\n"),
        _ => format!("{:indent$}{line}\n", ""),
    };
    lines.iter().enumerate().map(line).collect()
}

/// Exits with help or a usage error, wrapped to the width of the terminal. Usage errors have the
/// form of the program's own.
pub fn exit_with(mut error: clap::Error) -> ! {
    // clap lists the best suggestion last.
    for kind in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue] {
        if let Some(ContextValue::Strings(suggestions)) = error.get(kind) {
            let best_first = suggestions.iter().rev().cloned().collect();
            error.insert(kind, ContextValue::Strings(best_first));
        }
    }
    let plain = error.render().to_string();
    if error.use_stderr() {
        let own = match plain.strip_prefix("error: ") {
            Some(rest) => format!("fullpipe: {}", rest.replace("\n  tip: ", "\n  help: ")),
            None => plain.clone(),
        };
        let whole = wrapped_for(own, io::stderr().is_terminal(), console::Term::stderr);
        if whole != plain {
            self::text(&mut io::stderr(), format_args!("{whole}"));
            std::process::exit(error.exit_code());
        }
    }
    error.exit()
}

/// `text` wrapped to the width of a terminal or of `COLUMNS`; unchanged if neither is known.
fn wrapped_for(text: String, is_terminal: bool, terminal: fn() -> console::Term) -> String {
    width(is_terminal, terminal).map_or_else(|| text.clone(), |width| fitted(&text, width))
}

fn width(is_terminal: bool, terminal: fn() -> console::Term) -> Option<usize> {
    let from_env = || std::env::var("COLUMNS").ok()?.parse().ok();
    if is_terminal { Some(terminal().size().1.into()) } else { from_env() }
}

/// The maximum width of a name and the blanks after it, before its description.
const MAX_NAME_WIDTH: usize = 24;

/// Wraps lines longer than `width` between words. Continuation lines are indented like their line
/// or, if the line has a name and two blanks or more before a description, like the description.
fn fitted(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches('\n');
        if body.chars().count() <= width || body.contains(char::is_control) {
            out += line;
            continue;
        }
        let content = body.trim_matches(' ');
        let indent = body.find(content).unwrap_or(0);
        let name_width = content
            .find("  ")
            .map(|at| at + content[at..].len() - content[at..].trim_start_matches(' ').len());
        let lead = indent + name_width.filter(|&lead| lead <= MAX_NAME_WIDTH).unwrap_or(0);
        out += hanging_indent(&body[..lead], &body[lead..], width.max(lead + 20)).trim_end_matches('\n');
        out += &line[body.len()..];
    }
    out
}

/// Fails if some output could not be printed.
pub fn check_output() -> Result<(), Failure> {
    FIRST_ERROR.get().map_or(Ok(()), |why| Err(Failure::usage(why)))
}

/// Prints `text` on stdout, as [`text`] does.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let text = String::from_utf8_lossy(text.as_ref());
    let text = printable::coloured(&text);
    ignore_closed_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map_err(Failure::usage)
}

/// Prints bytes unchanged, for a file or another program.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    ignore_closed_pipe(out.write_all(bytes).and_then(|()| out.flush())).map_err(Failure::usage)
}

/// Prints JSON text.
pub fn print_as_json(text: &str) -> Result<(), Failure> {
    // Control characters are escaped as JSON requires, so `print` finds nothing more to escape.
    print(printable::json(text).as_bytes())
}

/// Prints a value as one line of JSON, streamed since it may be large. Returns whether the reader
/// is still there, so that endless output can stop.
#[cfg(feature = "live")]
pub fn print_json_line(value: &impl serde::Serialize) -> Result<bool, Failure> {
    /// Escapes control characters in strings.
    struct Printable;
    impl serde_json::ser::Formatter for Printable {
        fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
            out.write_all(printable::json(text).as_bytes())
        }
    }
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Printable));
    let line = written.map_err(io::Error::from).and_then(|()| out.write_all(b"\n"));
    match line.and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        outcome => ignore_closed_pipe(outcome).map(|()| true).map_err(Failure::usage),
    }
}

/// The outcome of writing, without the error of a closed pipe.
fn ignore_closed_pipe(outcome: io::Result<()>) -> Result<(), String> {
    match outcome {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("cannot print: {e}")),
        _ => Ok(()),
    }
}

/// A JSON document with the name and version of its schema. Removing a field or changing its
/// meaning changes the version; new fields do not.
#[derive(serde::Serialize)]
pub struct Document<'a, T> {
    pub schema: &'static str,
    #[serde(flatten)]
    pub value: &'a T,
}

/// Prints a value as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::usage)?;
    print_as_json(&(text + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_and_others_are_unchanged() {
        assert_eq!(fitted("one two three four five six seven\n", 22), "one two three four\nfive six seven\n");
        assert_eq!(fitted("a:\n  help: one two three four\n", 24), "a:\n  help: one two three\n  four\n");
        assert_eq!(
            fitted("  limited by   one two three four five\n", 36),
            "  limited by   one two three four\n               five\n"
        );
        for kept in [
            "short\n",
            "no end",
            "/a/path/that/is/longer/than/the/width\n",
            "\r\x1b[K a line that moves the cursor\n",
        ] {
            assert_eq!(fitted(kept, 20), kept);
        }
    }
}
