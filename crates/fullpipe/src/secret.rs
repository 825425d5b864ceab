//! Secrets, which are in files: on a command line everybody on the host would see them.

use crate::failure::Failure;
use std::path::Path;

/// The first line of a file.
pub fn read(path: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::usage(format!("cannot read the secret {}: {e}", path.display())))?;
    match text.lines().next().map(str::trim) {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(Failure::usage(format!("{} holds no secret in its first line", path.display()))),
    }
}
