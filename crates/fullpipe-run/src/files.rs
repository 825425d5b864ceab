//! Reading scenario files, and the files they refer to.

use fullpipe_experiment::regular_file::{self, read_bounded};
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

/// Largest scenario file, in bytes; generated ones are far smaller, too.
const MAX_SCENARIO_BYTES: u64 = 64 << 20;
/// Largest file that a scenario refers to, in bytes: a cellular trace of many hours has some tens
/// of megabytes.
const MAX_REFERENCED_BYTES: u64 = 256 << 20;

/// Reads the text of a scenario from `source`, which may be a pipe. `name` is used in errors.
///
/// # Errors
/// A message for the user: `source` cannot be read, has more than 64 MiB, or is not UTF-8 (with the
/// line).
pub fn read_scenario(name: &str, source: impl Read) -> Result<String, String> {
    let bytes = read_bounded(source, MAX_SCENARIO_BYTES).map_err(|e| format!("cannot read {name}: {e}"))?;
    String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
        format!("{name}:{line}: not a scenario file: not UTF-8 text")
    })
}

/// Returns a reader of the files that a scenario refers to, relative to `directory`.
///
/// A scenario may be untrusted: the reader opens only regular files of at most 256 MiB. A device
/// would never end, and reading a named pipe would block.
pub fn files_in(directory: PathBuf) -> impl Fn(&str) -> Result<String, String> {
    move |file| {
        let path = directory.join(file);
        regular_file::read_text(&path, MAX_REFERENCED_BYTES).map_err(|e| match e.kind() {
            ErrorKind::NotFound => format!("cannot read {}: no such file", path.display()),
            _ => format!("cannot read {}: {e}", path.display()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn endless_files_are_refused() {
        let error = read_scenario("s.toml", io::repeat(b' ')).unwrap_err();
        assert_eq!(error, "cannot read s.toml: larger than 64 MiB");
        let read = files_in(PathBuf::from("/dev"));
        assert_eq!(read("zero").unwrap_err(), "cannot read /dev/zero: not a regular file");
    }

    #[test]
    fn the_first_line_that_is_not_utf8_is_named() {
        let error = read_scenario("s.toml", &b"a = 1\nb = \xff"[..]).unwrap_err();
        assert_eq!(error, "s.toml:2: not a scenario file: not UTF-8 text");
    }
}
