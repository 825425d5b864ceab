//! `fullpipe status`: where the host stands.

use super::host::{Target, failure, settle};
use crate::failure::Failure;
use crate::print::{Document, print_json};
use fullpipe_host::screen::{self, Style};
use fullpipe_host::status;
use std::path::PathBuf;
use std::time::Duration;

/// What is in force, what will be after a restart, and what live connections use
#[derive(clap::Args)]
pub struct Args {
    /// Show it again every two seconds
    #[arg(long)]
    watch: bool,
    /// For machines
    #[arg(long)]
    json: bool,
    /// Write it to FILE in Prometheus' text format, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        settle(&*host, &store)?;
        loop {
            let status = status::status(&*host, &store).map_err(failure)?;
            if let Some(file) = &self.prometheus {
                // The collector may read at any moment: it finds the old text or the new one.
                let new = file.with_extension("new");
                std::fs::write(&new, status::prometheus(&status))
                    .and_then(|()| std::fs::rename(&new, file))
                    .map_err(|e| Failure::usage(format_args!("--prometheus {}: {e}", file.display())))?;
            }
            if self.json {
                print_json(&Document { schema: "fullpipe/status/1", value: &status })?;
            } else if self.prometheus.is_none() || self.watch {
                if self.watch {
                    print!("\x1b[2J\x1b[H");
                }
                print!("{}", screen::status(Style::of_stdout(), &status));
            }
            if !self.watch {
                return if status.consistent { Ok(()) } else { Err(Failure::Passed(1)) };
            }
            std::thread::sleep(Duration::from_secs(2));
        }
    }
}
