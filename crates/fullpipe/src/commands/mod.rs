//! One module a command: its arguments, and the call into the crate that does the work.

mod apply;
#[cfg(feature = "ebpf")]
mod cc;
mod doctor;
mod host;
mod lab;
mod plan;
mod revert;
#[cfg(feature = "net")]
mod serve;
mod status;
#[cfg(feature = "net")]
mod test;

use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    #[cfg(feature = "ebpf")]
    Cc(cc::Args),
    Doctor(doctor::Args),
    Plan(plan::Args),
    Apply(apply::Args),
    Revert(revert::Args),
    Status(status::Args),
    Lab(lab::Args),
    #[cfg(feature = "net")]
    Serve(serve::Args),
    #[cfg(feature = "net")]
    Test(test::Args),
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            #[cfg(feature = "ebpf")]
            Command::Cc(args) => args.run(),
            Command::Doctor(args) => args.run(),
            Command::Plan(args) => args.run(),
            Command::Apply(args) => args.run(),
            Command::Revert(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Lab(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Serve(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Test(args) => args.run(),
        }
    }
}
