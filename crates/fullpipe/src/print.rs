//! Text for stdout, and values for machines.

use crate::failure::Failure;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

/// Why something could not be printed, the first time. A command that changes a host must not end at that.
static LOST: OnceLock<String> = OnceLock::new();

/// Prints `text` on `out`. That nobody reads it to its end (`| head`) is no error.
pub fn text(out: &mut impl Write, text: Arguments<'_>) {
    if let Err(why) = printed(out.write_fmt(text).and_then(|()| out.flush())) {
        let _ = LOST.set(why);
    }
}

/// The failure of a command whose output was lost.
pub fn all_was_printed() -> Result<(), Failure> {
    LOST.get().map_or(Ok(()), |why| Err(Failure::usage(why)))
}

/// Prints `text` on stdout, as [`text`] does.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    printed(out.write_all(text.as_ref()).and_then(|()| out.flush())).map_err(Failure::usage)
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
    print(text + "\n")
}
