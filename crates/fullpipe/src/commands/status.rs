//! `fullpipe status`: where the host stands.

use super::host::{Target, failure, settle};
#[cfg(feature = "live")]
use super::traffic::{self, Traffic};
use crate::failure::Failure;
use crate::print::{Document, print_json};
#[cfg(any(feature = "live", feature = "ebpf"))]
use crate::runs::hanging;
use fullpipe_host::screen::{self, Style};
use fullpipe_host::status;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
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
        // A file for a collector is written at once, and has no rates.
        #[cfg(feature = "live")]
        let mut traffic =
            (self.target.is_this_machine() && self.prometheus.is_none()).then(Traffic::open).flatten();
        loop {
            settle(&*host, &store)?;
            let mut status = status::status(&*host, &store).map_err(failure)?;
            // Its time was up in between.
            if status.confirm_within == Some(0) {
                settle(&*host, &store)?;
                status = status::status(&*host, &store).map_err(failure)?;
            }
            if let Some(file) = &self.prometheus {
                // The collector may read at any moment: it finds the old text or the new one.
                replace(file, &status::prometheus(&status))
                    .map_err(|e| Failure::usage(format_args!("--prometheus {}: {e}", file.display())))?;
            }
            #[cfg(feature = "live")]
            let seen = traffic.as_mut().and_then(Traffic::look);
            if self.json {
                let value = Told {
                    status: &status,
                    #[cfg(feature = "live")]
                    traffic: seen.map(|seen| seen.totals),
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
                for line in seen.iter().flat_map(traffic::lines) {
                    hanging("  ", 10, &line);
                }
                #[cfg(feature = "ebpf")]
                if self.target.is_this_machine() {
                    super::split::in_short().iter().for_each(|split| hanging("", 0, split));
                }
            }
            if !self.watch {
                return if status.consistent { Ok(()) } else { Err(Failure::Passed(1)) };
            }
            std::thread::sleep(Duration::from_secs(2));
        }
    }
}

/// The host's state, and what its connections do.
#[derive(serde::Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    status: &'a status::Status,
    /// By controller, beyond loopback, of half a second.
    #[cfg(feature = "live")]
    #[serde(skip_serializing_if = "Option::is_none")]
    traffic: Option<Vec<fullpipe_live::Total>>,
    /// Those that run, whoever's journal has them.
    #[cfg(feature = "ebpf")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    splits: Vec<super::split::Told>,
}

/// Puts a file with this text at `path` at once. Textfile collectors read directories that others may write: what is
/// prepared has a name that nobody can have taken (`O_EXCL` follows no link either), and a link at `path` is replaced, not
/// followed.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let mut refused = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..100 {
        let mut new = std::ffi::OsString::from(".");
        new.push(name);
        new.push(format!(".{}-{attempt}.new", std::process::id()));
        let new = path.with_file_name(new);
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                refused = e;
                continue;
            }
            Err(e) => return Err(e),
        };
        let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&new, path));
        return written.inspect_err(|_| {
            // The first error is the one to tell.
            let _ = std::fs::remove_file(&new);
        });
    }
    Err(refused)
}
