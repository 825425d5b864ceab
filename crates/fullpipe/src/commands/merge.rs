//! `fullpipe merge`: parts of many runs, made apart.

use crate::failure::Failure;
use crate::runs::{Outputs, command_line, verdict};
use fullpipe_experiment::Results;
use fullpipe_report::About;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Put the parts of many runs together, made by `fullpipe run FILE --shard N/M --out PART.json`.
///
/// The result is what one machine would have made of all runs.
#[derive(clap::Args)]
pub struct Args {
    /// The parts (JSON), in any order.
    #[arg(value_name = "PART", required = true, value_hint = clap::ValueHint::FilePath)]
    parts: Vec<PathBuf>,
    /// Print figures as JSON instead of the table.
    #[arg(long)]
    json: bool,
    /// Also write a report to FILE; its extension tells the form, as of `fullpipe run`. May be repeated.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let outputs = Outputs::open(&self.out, self.json)?;
        let parts: Vec<Results> = self.parts.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        let results = fullpipe_run::merge(parts).map_err(Failure::usage)?;
        let about = About { title: "Merged".to_owned(), command: command_line() };
        outputs.tell(&results, &about, self.json)?;
        verdict(&results)
    }
}

/// The results in the file at `path`.
fn read(path: &Path) -> Result<Results, Failure> {
    let name = path.display();
    let file = File::open(path).map_err(|e| Failure::usage(format!("cannot read {name}: {e}")))?;
    serde_json::from_reader(BufReader::new(file)).map_err(|e| {
        Failure::usage(format!("{name}: not results in JSON, as `fullpipe run` writes them: {e}"))
    })
}
