//! `split report`: what a split found.

use super::usage;
use crate::failure::Failure;
use crate::print::{print, print_json};
use fullpipe_split::{Reader, Report, SplitError, terminal};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    /// The file that `split start` wrote, or writes
    #[arg(value_name = "FILE", default_value = "split.jsonl", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// For machines
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let named = |e: SplitError| Failure::usage(format_args!("{}: {e}", self.file.display()));
        let file = File::open(&self.file)
            .map_err(|e| Failure::usage(format_args!("{}: {e}", self.file.display())))?;
        let mut reader = Reader::new(BufReader::new(file)).map_err(named)?;
        let plan = reader.plan().clone();
        plan.check().map_err(usage)?;
        let report = Report::of(&plan, &mut reader).map_err(named)?;
        if self.json {
            return print_json(&report);
        }
        print(terminal(&report))
    }
}
