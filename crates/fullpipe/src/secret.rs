//! Secrets are read from files, since command lines are visible to all users of the host.

use crate::failure::Failure;
use std::path::Path;

/// The first line of a private, regular file of bounded size.
pub fn read(path: &Path) -> Result<String, Failure> {
    let fail = |e: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the secret in {}: {e}", path.display()))
    };
    let bytes = fullpipe_files::read_secret(path).map_err(|e| fail(&e))?;
    let text = String::from_utf8(bytes).map_err(|_| fail(&"not text (UTF-8)"))?;
    match text.lines().next().map(str::trim) {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(Failure::usage(format!("{}: the first line must contain the secret", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_must_be_private_regular_files_of_bounded_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let error = |path: &Path| read(path).unwrap_err().to_string();
        fs::write(&path, "open sesame\nsecond line\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(error(&path).contains("chmod 600"), "{}", error(&path));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap(), "open sesame");
        for endless in ["/dev/zero", "/dev/null"] {
            assert!(error(Path::new(endless)).contains("not a regular file"));
        }
        fs::write(&path, "x".repeat(100_000)).unwrap();
        assert!(error(&path).contains("larger than"), "{}", error(&path));
    }
}
