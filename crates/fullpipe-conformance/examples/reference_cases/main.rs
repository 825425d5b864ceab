//! Simulates the draft's cases on the paths of the reference series, for `scripts/reference-series`.
//!
//! usage: `reference_cases [--short] DIR`
//!
//! DIR receives `draft` and `linux` with a folder for each case, an index, and in `pictures` the
//! pictures of the book. With `--short` each case runs only on the path of its picture.

mod pictures;
mod runs;
mod tables;
mod whole;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (short, folder) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--short", folder] => (true, folder),
        [folder] if !folder.starts_with('-') => (false, folder),
        _ => {
            eprintln!("usage: reference_cases [--short] DIR");
            return ExitCode::from(2);
        }
    };
    match whole::make(Path::new(folder), short) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("reference_cases: {error}");
            ExitCode::FAILURE
        }
    }
}
