//! `fullpipe run`: a scenario file.

mod merge;

use crate::failure::Failure;
use crate::runs::{self, Reporting};
use fullpipe_run::Shard;
use std::path::PathBuf;

/// Run a scenario file with its sweeps, repeats and checks
///
/// `fullpipe schema scenario` describes the file. An error in it is reported with its line, and
/// nothing is run. To run a file named `merge`, write `./merge`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Example: fullpipe run scenarios/lossy-wan.toml --jobs 4 --out lossy.html"
)]
pub struct Args {
    /// Scenario file (TOML); file names in it are relative to it. `-` reads standard input; file
    /// names are then relative to the working directory
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Run only part N of M, 1/M to M/M: every M-th run, beginning with the N-th, to divide the
    /// work between machines. `fullpipe run merge` merges the parts
    #[arg(long, value_name = "N/M")]
    shard: Option<Shard>,
    #[command(flatten)]
    reporting: Reporting,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    Merge(merge::Args),
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if let Some(Command::Merge(args)) = self.command {
            return args.run();
        }
        let file = self.file.ok_or_else(|| Failure::usage("name a scenario FILE"))?;
        let cases = runs::read(&file, self.reporting.engine().engines())?;
        let title = cases.first().map(|c| c.scenario.title.clone()).filter(|t| !t.is_empty());
        let name = || match file.file_stem() {
            Some(stem) if stem != "-" => stem.to_string_lossy().into_owned(),
            _ => "Scenario".to_owned(),
        };
        self.reporting.run(title.unwrap_or_else(name), cases, self.shard)
    }
}
