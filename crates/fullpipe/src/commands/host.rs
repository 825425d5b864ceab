//! What the host's commands share: which host, and how its refusals end the program.

use crate::failure::Failure;
use fullpipe_host::Error;
use fullpipe_host::facts::Scope;
use fullpipe_host::host::{Directory, Host, Machine, Model};
use fullpipe_host::journal::Store;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Target {
    /// Treat DIR as the root of the host: an image on disk, or a model with proc, sys and kernel.json
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Keep the journal in DIR instead of /var/lib/fullpipe
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    state: Option<String>,
}

impl Target {
    /// The host and the place of its journal.
    pub fn open(&self) -> Result<(Box<dyn Host>, Store), Failure> {
        let host: Box<dyn Host> = match &self.root {
            None => Box::new(Machine::new()),
            Some(root) => {
                let root = root.canonicalize().map_err(|e| {
                    Failure::usage(format_args!(
                        "--root {}: {e}; name a directory that holds a host's files",
                        root.display()
                    ))
                })?;
                if !root.is_dir() {
                    return Err(Failure::usage(format_args!("--root {}: not a directory", root.display())));
                }
                Box::new(Model::new(Directory::new(root)))
            }
        };
        let store = match &self.state {
            Some(directory) if directory.starts_with('/') => Store::at(directory),
            Some(directory) => {
                return Err(Failure::usage(format_args!(
                    "--state {directory}: give an absolute path (on the host)"
                )));
            }
            None => Store::of(&Scope::of(&*host, &host.identity())),
        };
        Ok((host, store))
    }
}

/// The exit code that goes with a refusal.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Check(text) => Failure::Check(text),
        Error::Usage(text) => Failure::Usage(text),
        Error::Impossible(text) => Failure::Impossible(text),
    }
}
