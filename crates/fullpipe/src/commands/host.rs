//! What the host's commands share: which host, and how its refusals end the program.

use crate::failure::Failure;
use crate::runs::quoted;
use fullpipe_host::Error;
use fullpipe_host::facts::Scope;
use fullpipe_host::host::{Directory, Host, Machine, Model};
use fullpipe_host::journal::Store;
use fullpipe_host::trial;
use std::ffi::OsString;
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
            None => Box::new(Machine::new().with_options(self.options())),
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
                let model = Model::new(Directory::new(&root)).with_options(self.options());
                model.check().map_err(|e| {
                    Failure::usage(format_args!(
                        "--root {}: {e}; correct it, or remove it where the host does not run",
                        root.display()
                    ))
                })?;
                Box::new(model)
            }
        };
        let store = match &self.state {
            Some(directory) if directory.starts_with('/') => Store::at(directory),
            Some(directory) => {
                return Err(Failure::usage(format_args!(
                    "--state {directory}: give an absolute path (on the host)"
                )));
            }
            None => Store::for_scope(&Scope::detect(&*host, &host.identity())),
        };
        Ok((host, store))
    }

    /// What commands are given to act on the same target, for a person to copy.
    fn options(&self) -> String {
        let words = self.arguments();
        words.iter().map(|word| format!(" {}", quoted(&word.to_string_lossy()))).collect()
    }

    /// The same target, for another process of this program.
    pub fn arguments(&self) -> Vec<OsString> {
        let root = self.root.iter().flat_map(|root| {
            let root = root.canonicalize().unwrap_or_else(|_| root.clone());
            ["--root".into(), root.into_os_string()]
        });
        let state = self.state.iter().flat_map(|state| ["--state".into(), state.into()]);
        root.chain(state).collect()
    }

    /// Whether it is this machine, with its journal where it always is.
    pub fn is_this_machine(&self) -> bool {
        self.root.is_none() && self.state.is_none()
    }
}

/// Undoes a trial that is over before anything else is done or said, and tells so.
pub fn settle(host: &dyn Host, store: &Store) -> Result<(), Failure> {
    if trial::revert_expired(host, store).map_err(failure)?.is_some() {
        eprintln!("A change that was not confirmed in time was put back as it was.");
    }
    Ok(())
}

/// The exit code that goes with a refusal.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Check(text) => Failure::Check(text),
        Error::Usage(text) => Failure::Usage(text),
        Error::Impossible(text) => Failure::Impossible(text),
    }
}
