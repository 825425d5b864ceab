//! `fullpipe confirm`: keep what `apply --confirm` put on trial.

use super::host::{Target, failure};
use crate::failure::Failure;
use fullpipe_host::trial;

/// Keep what `apply --confirm` put in force on trial, and write what is for the next boot
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        let plan = trial::confirm(&*host, &store).map_err(failure)?;
        println!("Kept: {} is in force for good.", plan.controller);
        Ok(())
    }
}
