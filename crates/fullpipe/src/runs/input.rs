//! Reads scenario files, and the files that they name, into cases.

use crate::failure::Failure;
use fullpipe_experiment::regular_file::read_bounded;
use fullpipe_experiment::scenario::{Case, Vocabulary, is_program, parse};
use fullpipe_run::{Engine, files_in, read_scenario, vocabulary};
use std::fs::File;
use std::io::{self, ErrorKind, Read, stdin};
use std::path::Path;

/// Checks that `engines` know a controller.
pub fn check_controller(name: &str, engines: &[Engine]) -> Result<(), Failure> {
    fullpipe_run::check_controller(name, engines).map_err(|fault| match fault.help {
        Some(help) => Failure::Usage(format!("{}\n  help: {help}", fault.reason)),
        None => Failure::Usage(fault.reason),
    })
}

/// The words of a list with any separators: `a b`, `a,b`, or `a, b` in quotes.
pub fn listed(given: &[String]) -> Vec<String> {
    let words = given.iter().flat_map(|text| text.split(|c: char| c == ',' || c.is_whitespace()));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The same for controllers, whose settings are separated by commas, too:
/// `cubic:hystart=off,beta=0.7,bbr`.
pub fn contestants(given: &[String]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for text in given {
        // A program's arguments are separated by blanks, too.
        if is_program(text.trim_start()) {
            all.push(text.trim().to_owned());
            continue;
        }
        let mut settings = false;
        for part in text.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty()) {
            match all.last_mut() {
                Some(last) if settings && !part.contains(':') && part.contains('=') => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => {
                    settings = part.contains(':');
                    all.push(part.to_owned());
                }
            }
        }
    }
    all
}

/// Opens the file at `path`, which should be `expected` ("a scenario file").
pub fn open(path: &Path, expected: &str) -> Result<File, Failure> {
    let file = File::open(path).map_err(|e| unreadable(path, expected, &e))?;
    match file.metadata() {
        Ok(about) if about.is_dir() => Err(unreadable(path, expected, &ErrorKind::IsADirectory.into())),
        _ => Ok(file),
    }
}

/// Longest recording. One takes up to ten times as much memory.
const MAX_RECORDING_BYTES: u64 = 1 << 30;
/// Bytes by which a recording is recognised.
const HEAD_BYTES: u64 = 200;

/// The text of the recording at `path`; `None` if its first bytes are not those of a recording.
pub fn recording_text(path: &Path, is_head: impl Fn(&[u8]) -> bool) -> Result<Option<Vec<u8>>, Failure> {
    let unreadable = |e: io::Error| unreadable(path, "a recording", &e);
    let mut file = open(path, "a recording")?;
    let mut head = Vec::new();
    (&mut file).take(HEAD_BYTES).read_to_end(&mut head).map_err(unreadable)?;
    if !is_head(&head) {
        return Ok(None);
    }
    let length = file.metadata().map_err(unreadable)?.len();
    if length > MAX_RECORDING_BYTES {
        return Err(unreadable(io::Error::other(format!("larger than {} MiB", MAX_RECORDING_BYTES >> 20))));
    }
    read_bounded(io::Cursor::new(head).chain(file), MAX_RECORDING_BYTES).map(Some).map_err(unreadable)
}

/// The failure of reading the file at `path`, which should be `expected`.
pub fn unreadable(path: &Path, expected: &str, error: &io::Error) -> Failure {
    let name = path.display();
    Failure::Usage(match error.kind() {
        ErrorKind::NotFound => format!("cannot read {name}: no such file"),
        ErrorKind::IsADirectory => format!("{name} is a directory, expected {expected}"),
        _ => format!("cannot read {name}: {error}"),
    })
}

/// The cases of the scenario file at `path` for `engines`; `-` is standard input. Files that it
/// names are relative to its directory, or for standard input to the working directory.
pub fn read(path: &Path, engines: &[Engine]) -> Result<Vec<Case>, Failure> {
    read_as(path, &vocabulary(engines))
}

/// The same, with `vocabulary` as the allowed controllers and options.
pub fn read_as(path: &Path, vocabulary: &Vocabulary) -> Result<Vec<Case>, Failure> {
    let (name, text) = if path == Path::new("-") {
        ("standard input".to_owned(), read_scenario("standard input", stdin().lock()))
    } else {
        let name = path.display().to_string();
        let file = open(path, "a scenario file")?;
        let text = read_scenario(&name, file);
        (name, text)
    };
    let open = files_in(path.parent().unwrap_or(Path::new("")).to_owned());
    parse(&name, &text.map_err(Failure::Usage)?, vocabulary, &open).map_err(Failure::usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(all: &[&str]) -> Vec<String> {
        all.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn lists_accept_commas_spaces_or_both() {
        for given in
            [&["bbr", "cubic"][..], &["bbr,cubic"], &["bbr, cubic"], &["bbr cubic"], &["bbr,", "cubic"]]
        {
            assert_eq!(listed(&owned(given)), ["bbr", "cubic"], "{given:?}");
            assert_eq!(contestants(&owned(given)), ["bbr", "cubic"], "{given:?}");
        }
    }

    #[test]
    fn settings_stay_with_their_controller() {
        let given = owned(&["bbr,cubic:hystart=off,beta=0.7,bbr3:ecn=on", "reno", "bbr:a=1,b=2"]);
        let all = contestants(&given);
        assert_eq!(all, ["bbr", "cubic:hystart=off,beta=0.7", "bbr3:ecn=on", "reno", "bbr:a=1,b=2"]);
        let programs = owned(&["bbr,cubic", "exec:./my cc --beta=0.5, a", "exec:./b"]);
        assert_eq!(contestants(&programs), ["bbr", "cubic", "exec:./my cc --beta=0.5, a", "exec:./b"]);
        // `x=1` without a controller is reported as an unknown controller, not taken for a setting.
        assert_eq!(contestants(&owned(&["bbr,x=1"])), ["bbr", "x=1"]);
    }
}
