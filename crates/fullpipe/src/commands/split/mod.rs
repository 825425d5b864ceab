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
/// New connections get the controller of their arm as they open, except sockets whose program or
/// route selects one. The split runs in the foreground. When it ends, for any reason, new
/// connections get their previous controller.
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
    /// Estimate how many connections it takes to detect an effect
    Plan(plan::Args),
    /// Estimate the bias of a split whose arms share a bottleneck
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
