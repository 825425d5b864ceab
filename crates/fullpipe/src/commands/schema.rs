//! `fullpipe schema`: the published JSON Schemas.

use crate::failure::Failure;
use crate::print::print_json;

/// Print the JSON Schema of a scenario file or of a recording.
#[derive(clap::Args)]
pub struct Args {
    /// Which.
    #[arg(value_enum)]
    of: Of,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Of {
    /// What `fullpipe run` reads (TOML with this structure)
    Scenario,
    /// What --json and --out FILE.json write
    Recording,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        print_json(&match self.of {
            Of::Scenario => fullpipe_experiment::scenario::schema(),
            Of::Recording => schemars::schema_for!(fullpipe_experiment::Results).to_value(),
        })
    }
}
