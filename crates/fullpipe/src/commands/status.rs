//! `fullpipe status`: the state of the host.

use super::host::{Target, failure, settle};
#[cfg(feature = "live")]
use super::traffic::{self, Traffic};
use crate::failure::Failure;
use crate::print::{Document, print_json};
#[cfg(any(feature = "live", feature = "ebpf"))]
use crate::runs::print_hanging;
use fullpipe_files::Replacement;
use fullpipe_host::screen::{self, Style};
use fullpipe_host::status;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Show what is enabled now and at the next boot
///
/// Also counts open connections by controller. Exits with 1 if the applied changes, the boot files
/// and the running kernel disagree. As root, rolls back a trial whose deadline has passed.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe status --watch")]
pub struct Args {
    /// Refresh every two seconds
    #[arg(long)]
    watch: bool,
    /// Print the status as JSON
    #[arg(long)]
    json: bool,
    /// File to write in Prometheus' text format, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        // A file for a collector is written at once and has no rates, which take two samples.
        #[cfg(feature = "live")]
        let mut traffic =
            (self.target.is_this_machine() && self.prometheus.is_none()).then(Traffic::open).flatten();
        loop {
            settle(&*host, &store)?;
            let mut status = status::status(&*host, &store).map_err(failure)?;
            // The trial expired in between.
            if status.confirm_within == Some(0) {
                settle(&*host, &store)?;
                status = status::status(&*host, &store).map_err(failure)?;
            }
            if let Some(file) = &self.prometheus {
                // The collector may read at any moment: it finds either the old or the new text.
                replace(file, &status::prometheus(&status))
                    .map_err(|e| Failure::usage(format_args!("--prometheus {}: {e}", file.display())))?;
            }
            #[cfg(feature = "live")]
            let snapshot = traffic.as_mut().and_then(Traffic::sample);
            if self.json {
                let value = Output {
                    status: &status,
                    #[cfg(feature = "live")]
                    traffic: snapshot.map(|snapshot| snapshot.totals),
                    #[cfg(feature = "ebpf")]
                    splits: if self.target.is_this_machine() { super::split::all() } else { Vec::new() },
                };
                print_json(&Document { schema: "fullpipe/status/1", value: &value })?;
            } else if self.prometheus.is_none() || self.watch {
                if self.watch {
                    print!("\x1b[2J\x1b[H");
                }
                print!("{}", screen::status(Style::for_stdout(), &status));
                #[cfg(feature = "live")]
                for line in snapshot.iter().flat_map(traffic::lines) {
                    print_hanging("  ", 10, &line);
                }
                #[cfg(feature = "live")]
                for line in snapshot.iter().flat_map(fullpipe_live::text::states) {
                    print_hanging("  ", 10, &line);
                }
                #[cfg(feature = "ebpf")]
                if self.target.is_this_machine() {
                    super::split::summaries().iter().for_each(|split| print_hanging("", 0, split));
                }
            }
            if !self.watch {
                return if status.consistent { Ok(()) } else { Err(Failure::Passed(1)) };
            }
            std::thread::sleep(Duration::from_secs(2));
        }
    }
}

/// The JSON output.
#[derive(serde::Serialize)]
struct Output<'a> {
    #[serde(flatten)]
    status: &'a status::Status,
    /// Totals by controller over half a second, without loopback.
    #[cfg(feature = "live")]
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<Vec<fullpipe_live::Total>>,
    /// The splits that run, of all journals.
    #[cfg(feature = "ebpf")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    splits: Vec<super::split::Status>,
}

/// Replaces the file at `path` atomically. Other users may be able to write to a textfile
/// collector's directory, so a link at `path` is replaced, not followed.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let replacement = Replacement::open_without_following(path, 0o644)?;
    replacement.file().write_all(text.as_bytes())?;
    replacement.finish()
}
