//! Symbolic links and files of other users in directories that everybody may write, such as /tmp.
//! The rules are those of the kernel's `fs.protected_symlinks` and `fs.protected_regular`, and
//! apply even where these are off.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Maximum number of links on the way to a file, as in the kernel.
const MAX_LINKS: usize = 40;

/// Sticky and writable by everybody.
const SHARED_MODE: u32 = 0o1002;

/// The file that `path` names through symbolic links, so that a link stays one when the file is
/// replaced. The file need not exist.
///
/// # Errors
/// A link or the file is in a sticky directory that everybody may write, and belongs neither to the
/// caller nor to the owner of the directory.
pub(crate) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let metadata = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(path),
            metadata => metadata?,
        };
        check_owner(&path, &metadata)?;
        if !metadata.is_symlink() {
            return Ok(path);
        }
        let target = directory(&path).join(fs::read_link(&path)?);
        // Links below /proc lead to open files, such as pipes, which have no path.
        let is_magic =
            fs::symlink_metadata(&target).is_err_and(|e| e.kind() == ErrorKind::NotFound) && path.exists();
        if is_magic {
            return Ok(path);
        }
        path = target;
    }
    Err(io::Error::other("too many symbolic links"))
}

/// The directory of the file at `path`.
pub(crate) fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn check_owner(path: &Path, metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    if kind.is_dir() || kind.is_char_device() || kind.is_block_device() {
        return Ok(());
    }
    let directory = fs::metadata(directory(path))?;
    if directory.mode() & SHARED_MODE != SHARED_MODE {
        return Ok(());
    }
    let caller = fs::metadata("/proc/self").ok().map(|process| process.uid());
    let owner = metadata.uid();
    if owner == 0 || owner == directory.uid() || Some(owner) == caller {
        return Ok(());
    }
    let kind = if kind.is_symlink() { "symbolic link" } else { "file" };
    Err(io::Error::new(
        ErrorKind::PermissionDenied,
        format!("{} is a {kind} of another user in a directory that everybody may write", path.display()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    #[test]
    fn links_are_followed_to_existing_and_missing_files() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("file", at("one")).unwrap();
        symlink(at("one"), at("two")).unwrap();
        symlink("missing", at("dangling")).unwrap();
        symlink("loop", at("loop")).unwrap();
        assert_eq!(resolve(&at("two")).unwrap(), at("file"));
        assert_eq!(resolve(&at("dangling")).unwrap(), at("missing"));
        assert_eq!(resolve(&at("none")).unwrap(), at("none"));
        assert!(resolve(&at("loop")).unwrap_err().to_string().contains("too many"));
    }

    #[test]
    fn links_and_files_of_others_in_shared_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let (link, file) = (shared.join("link.json"), shared.join("file.json"));
        symlink("../target", &link).unwrap();
        fs::write(&file, "").unwrap();
        // The caller's own.
        assert_eq!(resolve(&link).unwrap(), shared.join("../target"));
        assert_eq!(resolve(&file).unwrap(), file);
        // Only root can give files away.
        if lchown(&link, Some(54_321), None).is_err() {
            return;
        }
        lchown(&file, Some(54_321), None).unwrap();
        for path in [&link, &file] {
            let error = resolve(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("another user"), "{error}");
        }
        // Elsewhere, who may write the directory is trusted.
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(resolve(&link).is_ok() && resolve(&file).is_ok());
    }
}
