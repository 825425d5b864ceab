//! `fullpipe run`: a scenario file.

use crate::failure::Failure;
use crate::runs::{self, Reporting};
use fullpipe_run::Shard;
use std::path::PathBuf;

/// Run a scenario file, with all its sweeps, repeats and checks.
///
/// `fullpipe schema scenario` describes the file; an error in it is shown at its place, and nothing is run.
#[derive(clap::Args)]
pub struct Args {
    /// The scenario file (TOML); `-` reads it from standard input, and the files that it names from the working directory.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Make only the N-th of M parts of the runs, for as many machines: every M-th run. `fullpipe merge` puts the parts,
    /// written as JSON, together again.
    #[arg(long, value_name = "N/M")]
    shard: Option<Shard>,
    #[command(flatten)]
    reporting: Reporting,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let cases = runs::read(&self.file, self.reporting.engine().engines())?;
        let title = cases.first().map(|c| c.scenario.title.clone()).filter(|t| !t.is_empty());
        let name = || match self.file.file_stem() {
            Some(stem) if stem != "-" => stem.to_string_lossy().into_owned(),
            _ => "Scenario".to_owned(),
        };
        self.reporting.run(title.unwrap_or_else(name), cases, self.shard)
    }
}
