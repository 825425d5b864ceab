//! `fullpipe revert`: restores the host exactly as it was.

use super::host::{ChangedSettings, Target, failure};
use crate::failure::Failure;
use crate::print::{Document, print_json};
#[cfg(feature = "ebpf")]
use crate::runs::print_hanging;
use fullpipe_host::revert;
use fullpipe_host::screen::{self, Style};

/// Restore the host exactly as it was before `apply`
///
/// If settings were changed by hand after `apply`, reverts nothing and lists them, unless --force or
/// --keep-changed is given.
#[derive(clap::Args)]
#[command(after_help = "Example: sudo fullpipe revert")]
pub struct Args {
    #[command(flatten)]
    changed: ChangedSettings,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        let reverted = revert::revert(&*host, &store, &self.changed.options()).map_err(failure)?;
        if self.json {
            return print_json(&Document { schema: "fullpipe/revert/1", value: &reverted });
        }
        print!("{}", screen::reverted(Style::for_stdout(), &reverted));
        #[cfg(feature = "ebpf")]
        if self.target.is_this_machine() {
            // Splits of another network namespace's journal, or of an older fullpipe.
            for split in super::split::summaries() {
                print_hanging(
                    "",
                    0,
                    &format!("{split}; it is in another journal; end it with `fullpipe split stop`"),
                );
            }
        }
        Ok(())
    }
}
