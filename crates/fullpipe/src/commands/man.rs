//! `fullpipe man`: manual pages, generated from the same definition as --help.

use crate::failure::Failure;
use clap_mangen::Man;
use fullpipe_files::Replacement;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

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
        // As `clap_mangen::generate_to`, which follows links that others put into the directory.
        let mut command = crate::command().disable_help_subcommand(true);
        command.build();
        write_pages(&command, &self.directory).map_err(fail)
    }
}

/// Writes the page of a command and those of its subcommands.
fn write_pages(command: &clap::Command, directory: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_pages(subcommand, directory)?;
    }
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text)?;
    Replacement::write(&directory.join(page.get_filename()), 0o644, &text)
}
