//! One module a command: its arguments, and the call into the crate that does the work.

#[cfg(feature = "ebpf")]
mod cc;
mod lab;
#[cfg(feature = "net")]
mod serve;
#[cfg(feature = "net")]
mod test;

use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {
    #[cfg(feature = "ebpf")]
    Cc(cc::Args),
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
            Command::Lab(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Serve(args) => args.run(),
            #[cfg(feature = "net")]
            Command::Test(args) => args.run(),
        }
    }
}
