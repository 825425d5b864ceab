//! `fullpipe schema`: the published JSON Schemas.

use crate::failure::Failure;
use crate::print::print_json;

/// Print the JSON Schema of a scenario file, of a recording, of the record of a connection, or of what is watched.
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
    /// What `fullpipe trace --json` writes
    Connection,
    /// What `fullpipe watch --json` writes in each line
    #[cfg(feature = "live")]
    Watch,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        print_json(&match self.of {
            Of::Scenario => fullpipe_experiment::scenario::schema(),
            Of::Recording => schemars::schema_for!(fullpipe_experiment::Results).to_value(),
            Of::Connection => schemars::schema_for!(fullpipe_experiment::connection::Connections).to_value(),
            #[cfg(feature = "live")]
            Of::Watch => fullpipe_live::Snapshot::schema(),
        })
    }
}
