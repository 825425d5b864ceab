//! Text for stdout, and values for machines.

use crate::failure::Failure;
use fullpipe_kernel::printable;
use fullpipe_report::wrap_text;
use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

/// Why something could not be printed, the first time. A command that changes a host must not end at that.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints `text` on `out`, in which what others said and a terminal would obey is written out. That nobody reads it to its end
/// (`| head`) is no error.
pub fn text(out: &mut impl Write, text: Arguments<'_>) {
    let text = match text.as_str() {
        Some(ours) => Cow::Borrowed(ours),
        None => Cow::Owned(printable::coloured(&text.to_string()).into_owned()),
    };
    if let Err(why) = printed(out.write_all(text.as_bytes()).and_then(|()| out.flush())) {
        let _ = LOST.set(why);
    }
}

/// Prints `text` on stderr, for a person: lines are broken between words to fit the terminal.
pub fn told(text: Arguments<'_>) {
    let whole = text.to_string();
    let whole = shown(whole, io::stderr().is_terminal(), console::Term::stderr);
    self::text(&mut io::stderr(), format_args!("{whole}"));
}

/// Prints `text` on stdout, for a person, in the same way: sentences, not tables.
#[cfg(any(feature = "net", feature = "mesh"))]
pub fn prose(text: &str) {
    self::text(&mut io::stdout(), format_args!("{}", in_lines(text)));
}

/// `text` as it fits stdout: sentences, not tables.
#[cfg(any(feature = "net", feature = "mesh", feature = "trace", feature = "live"))]
pub fn in_lines(text: &str) -> String {
    columns().map_or_else(|| text.to_owned(), |width| fitted(text, width))
}

/// Columns of the terminal that stdout is, or what `COLUMNS` says that it will be shown in; none if it is only kept.
pub fn columns() -> Option<usize> {
    width(io::stdout().is_terminal(), console::Term::stdout)
}

/// `text` after `lead`, in lines of this width, its further ones below its first word.
pub fn hung(lead: &str, text: &str, width: usize) -> String {
    let indent = lead.chars().count();
    let lines = wrap_text(text, width.saturating_sub(indent));
    let line = |(i, line): (usize, &String)| match i {
        0 => format!("{lead}{line}\n"),
        _ => format!("{:indent$}{line}\n", ""),
    };
    lines.iter().enumerate().map(line).collect()
}

/// Ends the program over how it was called: with help, or what is wrong in it, broken between words to fit the terminal.
pub fn refuse(error: clap::Error) -> ! {
    let plain = error.render().to_string();
    if error.use_stderr() {
        let whole = shown(plain.clone(), io::stderr().is_terminal(), console::Term::stderr);
        if whole != plain {
            self::text(&mut io::stderr(), format_args!("{whole}"));
            std::process::exit(error.exit_code());
        }
    }
    error.exit()
}

/// `text` as it fits a terminal, or what `COLUMNS` says that it will be shown in; else it is left as it is.
fn shown(text: String, is_terminal: bool, terminal: fn() -> console::Term) -> String {
    width(is_terminal, terminal).map_or_else(|| text.clone(), |width| fitted(&text, width))
}

fn width(is_terminal: bool, terminal: fn() -> console::Term) -> Option<usize> {
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    if is_terminal { Some(terminal().size().1.into()) } else { told() }
}

/// Characters of a name in front of what is said of it, with the blanks between, at most.
const NAME_MOST: usize = 24;

/// The same text with no line longer than `width` that could be broken between words; what follows is indented as its line was
/// or, of a line with a name before two blanks or more, as what it says of it.
fn fitted(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches('\n');
        if body.chars().count() <= width || body.contains(char::is_control) {
            out += line;
            continue;
        }
        let words = body.trim_matches(' ');
        let indent = body.find(words).unwrap_or(0);
        let named =
            words.find("  ").map(|at| at + words[at..].len() - words[at..].trim_start_matches(' ').len());
        let lead = indent + named.filter(|&lead| lead <= NAME_MOST).unwrap_or(0);
        out += hung(&body[..lead], &body[lead..], width.max(lead + 20)).trim_end_matches('\n');
        out += &line[body.len()..];
    }
    out
}

/// The failure of a command whose output was lost.
pub fn all_was_printed() -> Result<(), Failure> {
    LOST.get().map_or(Ok(()), |why| Err(Failure::usage(why)))
}

/// Prints `text` on stdout, as [`text`] does.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let text = String::from_utf8_lossy(text.as_ref());
    let text = printable::coloured(&text);
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map_err(Failure::usage)
}

/// Prints bytes as they are, for a file or another program.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(out.write_all(bytes).and_then(|()| out.flush())).map_err(Failure::usage)
}

/// Prints what is JSON already.
pub fn print_as_json(text: &str) -> Result<(), Failure> {
    // Escaped as JSON does, there is nothing left for `print` to escape in another way.
    print(printable::json(text).as_bytes())
}

/// Prints a value as a line of JSON, without keeping it as text: it may be a large host's. Tells whether anybody still
/// reads, for what would go on for ever.
#[cfg(feature = "live")]
pub fn print_json_line(value: &impl serde::Serialize) -> Result<bool, Failure> {
    /// Escapes in strings what a terminal would obey.
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
        outcome => printed(outcome).map(|()| true).map_err(Failure::usage),
    }
}

/// What writing came to, or why it failed.
fn printed(outcome: io::Result<()>) -> Result<(), String> {
    match outcome {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("cannot print: {e}")),
        _ => Ok(()),
    }
}

/// A value for machines, with the name and version of its form. A field that is removed or changes its meaning
/// changes the version; new fields do not.
#[derive(serde::Serialize)]
pub struct Document<'a, T> {
    pub schema: &'static str,
    #[serde(flatten)]
    pub value: &'a T,
}

/// Prints a value for machines.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::usage)?;
    print_as_json(&(text + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_between_words_and_all_else_is_left_alone() {
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
