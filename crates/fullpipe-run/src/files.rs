//! Scenario files, and the files that they name.

use fullpipe_experiment::regular_file::{self, read_bounded};
use std::io::Read;
use std::path::PathBuf;

/// What a scenario may have: far more than people write, or write programs to write.
const SCENARIO: u64 = 64 << 20;
/// What a file that it names may have: a trace of a cellular link of many hours has some tens of megabytes.
const NAMED: u64 = 256 << 20;

/// The text of a scenario, read from `source`, which is called `name`. It may come by a pipe.
///
/// Errors, in words: what cannot be read, has more than 64 MiB, or is not UTF-8 text (with the line where it ceases to be).
pub fn scenario_text(name: &str, source: impl Read) -> Result<String, String> {
    let bytes = read_bounded(source, SCENARIO).map_err(|e| format!("cannot read {name}: {e}"))?;
    String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
        format!("{name}:{line}: not a scenario file: not UTF-8 text")
    })
}

/// Reads the files that a scenario names, which lie in `directory`.
///
/// A scenario may be someone else's, who wrote the names: only what is a regular file, of at most 256 MiB, is read. A device would
/// never end, and a named pipe never begin.
pub fn beside(directory: PathBuf) -> impl Fn(&str) -> Result<String, String> {
    move |file| {
        let path = directory.join(file);
        regular_file::read_text(&path, NAMED).map_err(|e| format!("cannot read {}: {e}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn what_never_ends_is_not_read() {
        let told = scenario_text("s.toml", io::repeat(b' ')).unwrap_err();
        assert_eq!(told, "cannot read s.toml: it has more than 64 MiB");
        let read = beside(PathBuf::from("/dev"));
        assert_eq!(read("zero").unwrap_err(), "cannot read /dev/zero: not a regular file");
    }

    #[test]
    fn the_line_that_is_no_text_is_named() {
        let told = scenario_text("s.toml", &b"a = 1\nb = \xff"[..]).unwrap_err();
        assert_eq!(told, "s.toml:2: not a scenario file: not UTF-8 text");
    }
}
