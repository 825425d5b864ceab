//! `fullpipe report`: what records of connections come to.

use crate::failure::Failure;
use crate::print::print;
use crate::runs::command_line;
use fullpipe_report::About;
use fullpipe_report::Replacement;
use fullpipe_report::records::{By, Distributions, page, read, text};
use std::path::PathBuf;

/// Show what records of connections come to: durations, sizes, goodput, round trips, retransmissions, by controller and more
///
/// Reads what `fullpipe records` writes (.jsonl, .parquet) and what `fullpipe trace --json` prints; - is standard input.
#[derive(clap::Args)]
pub struct Args {
    /// The records; of files that take turns name all: closed*.jsonl
    #[arg(value_name = "RECORDS", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// By what connections are told apart; may be repeated. By default by each
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Vec<What>,
    /// Also write a page to FILE.html
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    Controller,
    Prefix,
    Port,
    Hour,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let is_page = |path: &PathBuf| path.extension().is_some_and(|e| e == "html" || e == "htm");
        if let Some(out) = self.out.as_ref().filter(|path| !is_page(path)) {
            return Err(Failure::usage(format!(
                "--out {}: a report on records is a page, .html",
                out.display()
            )));
        }
        // Before anything is read: what cannot be written must not be noticed at the end.
        let output = self.out.as_deref().map(Replacement::open).transpose().map_err(Failure::usage)?;
        let mut all = Distributions::default();
        for file in &self.files {
            let found = read(file, &mut all).map_err(Failure::usage)?;
            if found.cut {
                eprintln!("{}: its last line is cut, and left out", file.display());
            }
        }
        let kinds: Vec<By> = match self.by.as_slice() {
            [] => By::ALL.to_vec(),
            some => some.iter().map(|what| what.by()).collect(),
        };
        print(text(&all, &kinds))?;
        if let (Some(output), Some(path)) = (output, &self.out) {
            let about = About { title: "Connections that closed".to_owned(), command: command_line() };
            output.write_by(|out| page(&all, &kinds, &about, out)).map_err(Failure::usage)?;
            eprintln!("wrote {}", path.display());
        }
        Ok(())
    }
}

impl What {
    fn by(self) -> By {
        match self {
            What::Controller => By::Controller,
            What::Prefix => By::Prefix,
            What::Port => By::Port,
            What::Hour => By::Hour,
        }
    }
}
