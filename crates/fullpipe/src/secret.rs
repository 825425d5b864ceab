//! Secrets are read from files, since command lines are visible to all users of the host.

use crate::failure::Failure;
use std::path::Path;

/// The first line of a file.
pub fn read(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::usage(format!("cannot read the secret in {}: {e}", path.display())))?;
    match text.lines().next().map(str::trim) {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(Failure::usage(format!("{}: the first line must contain the secret", path.display()))),
    }
}
