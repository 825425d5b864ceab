//! `fullpipe revert`: put the host back exactly as it was.

use super::host::{Target, failure};
use crate::failure::Failure;
use crate::print::{Document, print_json};
#[cfg(feature = "ebpf")]
use crate::runs::hanging;
use fullpipe_host::revert::{self, Options};
use fullpipe_host::screen::{self, Style};

/// Put everything back exactly as it was before `apply`
#[derive(clap::Args)]
pub struct Args {
    /// Overwrite what someone changed since
    #[arg(long, conflicts_with = "keep_changed")]
    force: bool,
    /// Leave what someone changed since, undo the rest
    #[arg(long)]
    keep_changed: bool,
    /// For machines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        let options = Options { force: self.force, keep_changed: self.keep_changed };
        let reverted = revert::revert(&*host, &store, &options).map_err(failure)?;
        if self.json {
            return print_json(&Document { schema: "fullpipe/revert/1", value: &reverted });
        }
        print!("{}", screen::reverted(Style::for_stdout(), &reverted));
        #[cfg(feature = "ebpf")]
        if self.target.is_this_machine() {
            // Of another network namespace's journal, or an older fullpipe's.
            for split in super::split::in_short() {
                hanging(
                    "",
                    0,
                    &format!("{split}: it is in another journal than this; `fullpipe split stop` ends it"),
                );
            }
        }
        Ok(())
    }
}
