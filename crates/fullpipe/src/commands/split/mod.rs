//! `fullpipe split`: A/B tests of controllers on production traffic.

mod calibrate;
mod kernel;
mod plan;
mod report;
mod start;
mod status;

pub use status::{Status, all, summaries};

use crate::failure::Failure;
use clap::{Args as ClapArgs, Subcommand};
use fullpipe_ebpf::Error;
use fullpipe_split::SplitError;

/// Divide production traffic between controllers and compare them
///
/// A split has arms, each with a controller and a share of the new connections. A new connection
/// gets the controller of its arm when it opens, unless its program or route selects another. The
/// split runs in the foreground. When it ends, for any reason, new connections get the host's
/// controller again.
#[derive(ClapArgs)]
#[command(after_help = "Example: sudo fullpipe split start bbr=50% cubic=50% --for 1h")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a split, and record the outcome of each connection
    Start(start::Args),
    /// Show the splits that run on this machine
    Status(status::StatusArgs),
    /// Change the shares of a running split
    Change(status::ChangeArgs),
    /// Stop a running split
    Stop(status::StopArgs),
    /// Report the results of a split, finished or running
    Report(report::Args),
    Plan(plan::Args),
    Calibrate(calibrate::Args),
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Start(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Change(args) => args.run(),
            Command::Stop(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Calibrate(args) => args.run(),
        }
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Impossible { .. } | Error::MissingFeature { .. } | Error::Io { .. } => {
            Failure::Impossible(error.to_string())
        }
        Error::Unknown { .. } | Error::Malformed(_) => Failure::Usage(error.to_string()),
    }
}

fn usage(error: SplitError) -> Failure {
    Failure::usage(error)
}
