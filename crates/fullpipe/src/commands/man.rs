//! `fullpipe man`: manual pages, from the same source as --help.

use crate::failure::Failure;
use std::fs;
use std::path::PathBuf;

/// Write the manual pages, one a command, into a directory.
///
/// For example: `fullpipe man /usr/local/share/man/man1`.
#[derive(clap::Args)]
pub struct Args {
    /// Where to; made if it is not there.
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
