//! `fullpipe run merge`: the recordings of shards as one.

use crate::failure::Failure;
use crate::runs::{self, Outputs, command_line, verdict};
use fullpipe_experiment::Results;
use fullpipe_report::About;
use std::path::{Path, PathBuf};

/// Merge the recordings of all shards into one
///
/// The parts come from `fullpipe run FILE --shard N/M --out PART.json`. The result is the same as
/// if one machine had made all runs.
#[derive(clap::Args)]
pub struct Args {
    /// Recordings of the shards (JSON), in any order
    #[arg(value_name = "PART", required = true, value_hint = clap::ValueHint::FilePath)]
    parts: Vec<PathBuf>,
    /// Print the summary as JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write a report to FILE, in the format of its extension, as for `fullpipe run`; an
    /// existing FILE is replaced; may be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let outputs = Outputs::open(&self.out, self.json)?;
        let parts: Vec<Results> = self.parts.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        let results = fullpipe_run::merge(parts).map_err(Failure::usage)?;
        let about = About { title: "Merged".to_owned(), command: command_line() };
        outputs.report(&results, &about, self.json)?;
        verdict(&results)
    }
}

/// The results in the file at `path`.
fn read(path: &Path) -> Result<Results, Failure> {
    let name = path.display();
    let text = runs::recording_text(path, |_| true)?.unwrap_or_default();
    serde_json::from_slice(&text)
        .map_err(|e| Failure::usage(format!("{name}: not a JSON recording of `fullpipe run`: {e}")))
}
