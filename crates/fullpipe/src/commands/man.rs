//! `fullpipe man`: manual pages, generated from the same definition as --help.

use crate::failure::Failure;
use std::fs;
use std::path::PathBuf;

/// Write the manual pages into a directory
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe man /usr/local/share/man/man1")]
pub struct Args {
    /// Directory to write to; created if missing
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    directory: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let fail = |e| Failure::usage(format!("cannot write {}: {e}", self.directory.display()));
        fs::create_dir_all(&self.directory).map_err(fail)?;
        clap_mangen::generate_to(crate::command(), &self.directory).map_err(fail)
    }
}
