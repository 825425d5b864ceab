//! One module a command: its arguments, and the call into the crate that does the work.

use crate::failure::Failure;
use clap::Subcommand;

#[derive(Subcommand)]
pub enum Command {}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        match self {}
    }
}
