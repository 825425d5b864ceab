//! `fullpipe split`: production traffic divided between controllers.

mod calibrate;
mod needs;
mod report;
mod session;
mod start;
mod status;

pub use status::{Told, all, in_short};

use crate::failure::Failure;
use clap::{Args as ClapArgs, Subcommand};
use fullpipe_ebpf::Error;
use fullpipe_split::SplitError;

/// Divide production traffic between controllers, and say which is better, how surely, and when to stop
///
/// New connections get the controller of their arm as they open; sockets whose program or whose route chose one are left
/// alone. It runs in the foreground: when it ends, however it ends, new connections get what they got before.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run a split until it is stopped, and write down what each connection came to
    Start(start::Args),
    /// The splits that run on this machine
    Status(status::StatusArgs),
    /// Change the shares of a split that runs
    Change(status::ChangeArgs),
    /// End a split that runs
    Stop(status::StopArgs),
    /// What a split found, at any moment
    Report(report::Args),
    /// How many connections it takes to see an effect
    Plan(needs::Args),
    /// How far splits of all shares are from whole roll-outs where arms meet at one bottleneck
    Calibrate(calibrate::Args),
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Start(args) => args.run(),
            What::Status(args) => args.run(),
            What::Change(args) => args.run(),
            What::Stop(args) => args.run(),
            What::Report(args) => args.run(),
            What::Plan(args) => args.run(),
            What::Calibrate(args) => args.run(),
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
