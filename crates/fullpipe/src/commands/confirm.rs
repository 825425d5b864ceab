//! `fullpipe confirm`: keeps the change that `apply --confirm` has on trial.

use super::host::{Target, failure};
use crate::failure::Failure;
use fullpipe_host::trial;

/// Keep the change that `apply --confirm` has on trial
///
/// Also writes the files for the next boot.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        let plan = trial::confirm(&*host, &store).map_err(failure)?;
        println!("Confirmed: {} stays enabled.", plan.controller);
        Ok(())
    }
}
