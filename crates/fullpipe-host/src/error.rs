//! Errors of host operations, in three classes that callers distinguish.

use std::fmt;

/// A failure. The text says what is wrong, where, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The host is not in the expected state. Exit code 1.
    Check(String),
    /// An invalid request: unknown controller, contradictory options. Exit code 2.
    Usage(String),
    /// Not possible on this machine or with these privileges. Exit code 3.
    Impossible(String),
}

impl Error {
    /// The host is not in the expected state.
    pub fn check(text: impl fmt::Display) -> Self {
        Error::Check(text.to_string())
    }

    /// An invalid request.
    pub fn usage(text: impl fmt::Display) -> Self {
        Error::Usage(text.to_string())
    }

    /// Not possible on this machine.
    pub fn impossible(text: impl fmt::Display) -> Self {
        Error::Impossible(text.to_string())
    }

    /// The text alone.
    pub fn text(&self) -> &str {
        match self {
            Error::Check(t) | Error::Usage(t) | Error::Impossible(t) => t,
        }
    }

    /// An operating-system error during `what`, with advice by error kind.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::*;
        let advice = match error.kind() {
            PermissionDenied if nix::unistd::geteuid().is_root() => {
                ": root may not do this here; check for an immutable file (lsattr) or a security module"
            }
            PermissionDenied => ": run it as root (sudo fullpipe …)",
            ReadOnlyFilesystem => ": the file system is read-only (in a container, run fullpipe on the host)",
            StorageFull => ": the disk is full; free some space, then run the command again",
            _ => "",
        };
        Error::Impossible(format!("{what}: {error}{advice}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Error {}

/// Result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_advised_to_check_attributes_and_other_users_to_become_root() {
        let denied = std::io::ErrorKind::PermissionDenied.into();
        let text = Error::io("cannot write /etc/sysctl.conf", &denied).text().to_owned();
        let is_root = nix::unistd::geteuid().is_root();
        assert_eq!((text.contains("lsattr"), text.contains("sudo")), (is_root, !is_root), "{text}");
    }
}
