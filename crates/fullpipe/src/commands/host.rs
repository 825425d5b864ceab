//! What the host commands share: the target host, and exit codes of its errors.

use crate::failure::Failure;
use crate::runs::quoted;
use fullpipe_host::Error;
use fullpipe_host::facts::Scope;
use fullpipe_host::host::{Directory, Host, Machine, Model};
use fullpipe_host::journal::Store;
use fullpipe_host::{revert, trial};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Target {
    /// Directory to treat as the host's root, such as a mounted disk image (see
    /// docs/reference/host-commands.md) [default: /]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Directory of fullpipe's journal, its record of changes to roll back [default:
    /// /var/lib/fullpipe]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    state: Option<String>,
}

/// What to do with settings that were changed by hand after fullpipe set them.
#[derive(clap::Args)]
pub struct ChangedSettings {
    /// Also restore settings that were changed by hand after fullpipe set them
    #[arg(long, conflicts_with = "keep_changed")]
    force: bool,
    /// Keep settings that were changed by hand after fullpipe set them, and restore the rest
    #[arg(long)]
    keep_changed: bool,
}

impl ChangedSettings {
    pub fn options(&self) -> revert::Options {
        let ChangedSettings { force, keep_changed } = *self;
        revert::Options { force, keep_changed, ..revert::Options::default() }
    }
}

impl Target {
    /// The host and its journal.
    pub fn open(&self) -> Result<(Box<dyn Host>, Store), Failure> {
        let host: Box<dyn Host> = match &self.root {
            None => Box::new(Machine::new().with_options(self.options())),
            Some(root) => {
                let root = root.canonicalize().map_err(|e| {
                    Failure::usage(format_args!(
                        "--root {}: {e}; name a directory with the files of a host",
                        root.display()
                    ))
                })?;
                if !root.is_dir() {
                    return Err(Failure::usage(format_args!("--root {}: not a directory", root.display())));
                }
                let model = Model::new(Directory::new(&root)).with_options(self.options());
                model.check().map_err(|e| {
                    Failure::usage(format_args!(
                        "--root {}: {e}; correct the file, or remove it if the host does not run",
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
                    "--state {directory}: must be an absolute path on the host"
                )));
            }
            None => Store::for_scope(&Scope::detect(&*host, &host.identity())),
        };
        Ok((host, store))
    }

    /// The options that select this target, as text to be copied.
    fn options(&self) -> String {
        let words = self.arguments();
        words.iter().map(|word| format!(" {}", quoted(&word.to_string_lossy()))).collect()
    }

    /// The options that select this target, for another process of this program.
    pub fn arguments(&self) -> Vec<OsString> {
        let root = self.root.iter().flat_map(|root| {
            let root = root.canonicalize().unwrap_or_else(|_| root.clone());
            ["--root".into(), root.into_os_string()]
        });
        let state = self.state.iter().flat_map(|state| ["--state".into(), state.into()]);
        root.chain(state).collect()
    }

    /// Whether the target is this machine with its usual journal.
    pub fn is_this_machine(&self) -> bool {
        self.root.is_none() && self.state.is_none()
    }
}

/// Rolls back an expired trial, and reports it, before anything else is done.
pub fn settle(host: &dyn Host, store: &Store) -> Result<(), Failure> {
    if let Some(reverted) = trial::revert_expired(host, store).map_err(failure)? {
        eprintln!("A change was not confirmed in time: {}.", reverted.summary());
    }
    Ok(())
}

/// The failure, and so the exit code, for an error of the host.
pub fn failure(error: Error) -> Failure {
    match error {
        Error::Check(text) => Failure::Check(text),
        Error::Usage(text) => Failure::Usage(text),
        Error::Impossible(text) => Failure::Impossible(text),
    }
}
