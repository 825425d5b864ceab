//! `fullpipe schema`: the published JSON Schemas.

use crate::failure::Failure;
use crate::print::print_json;

/// Print the JSON Schema of a file format
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe schema scenario > scenario.schema.json")]
pub struct Args {
    /// Format to describe
    #[arg(value_enum, value_name = "FORMAT")]
    format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Scenario file of `fullpipe run` (TOML with this structure)
    Scenario,
    /// Output of `race`, `run` and `test --compare` with --json or --out FILE.json
    Recording,
    /// Output of `fullpipe trace --json` and records of `fullpipe records`
    Connection,
    /// Lines of a controller in another program (`exec:PROGRAM`), in both directions
    Controller,
    /// Output of `fullpipe rpm --json`
    #[cfg(feature = "net")]
    Rpm,
    /// Output of `fullpipe rpm --compare --json`
    #[cfg(feature = "net")]
    RpmComparison,
    /// Each line of `fullpipe watch --json`
    #[cfg(feature = "live")]
    Watch,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        print_json(&match self.format {
            Format::Scenario => fullpipe_experiment::scenario::schema(),
            Format::Recording => schemars::schema_for!(fullpipe_experiment::Results).to_value(),
            Format::Connection => {
                schemars::schema_for!(fullpipe_experiment::connection::Connections).to_value()
            }
            Format::Controller => fullpipe_run::exec::schema(),
            #[cfg(feature = "net")]
            Format::Rpm => schemars::schema_for!(fullpipe_net::rpm::Outcome).to_value(),
            #[cfg(feature = "net")]
            Format::RpmComparison => schemars::schema_for!(fullpipe_net::rpm::Comparison).to_value(),
            #[cfg(feature = "live")]
            Format::Watch => fullpipe_live::Snapshot::schema(),
        })
    }
}
