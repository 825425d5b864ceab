//! Directories to work in.

use crate::{Location, open_at, open_directory};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::geteuid;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

/// Creates the directory `path` with mode 0700 where it is missing, with missing parents, for
/// programs that are given paths in it.
///
/// Other users can change neither it nor what is in it: every directory on the way belongs to root
/// or the caller and is not writable by others, unless it is sticky like `/tmp`. Symbolic links on
/// the way are refused where they belong to others.
///
/// # Errors
/// `PermissionDenied` with the name of the directory that others can change, and errors of
/// openat(2) and mkdirat(2).
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let mut directory = open_directory(AT_FDCWD, OsStr::new("/"))?;
    let mut so_far = std::path::PathBuf::from("/");
    let mut names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        Component::ParentDir => Some(OsStr::new("..")),
        _ => None,
    });
    require_own(&directory, &so_far, names.clone().next().is_none())?;
    while let Some(name) = names.next() {
        so_far.push(name);
        directory = enter(&directory, name, &so_far)?;
        require_own(&directory, &so_far, names.clone().next().is_none())?;
    }
    Ok(())
}

/// Opens a directory, which is created if it is missing.
fn enter(parent: &OwnedFd, name: &OsStr, path: &Path) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        // A file system that is read-only may have it already.
        Err(Errno::EROFS | Errno::EACCES) => {}
        Err(e) => return Err(e.into()),
    }
    match open_directory(parent, name) {
        // A link of the caller or of root, such as /home to /var/home.
        Err(e) if e.raw_os_error() == Some(Errno::ENOTDIR as i32) => {
            let location = Location::resolve(path)?;
            open_at(
                &location.directory,
                location.name(),
                OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW,
                0,
            )
        }
        directory => directory,
    }
}

/// Refuses a directory in which others can rename or replace entries.
fn require_own(directory: &OwnedFd, path: &Path, is_last: bool) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let status = fstat(directory)?;
    let is_owned = [0, geteuid().as_raw()].contains(&status.st_uid);
    let is_shared = status.st_mode & WRITABLE_BY_OTHERS != 0 && (is_last || status.st_mode & STICKY == 0);
    if is_owned && !is_shared {
        return Ok(());
    }
    let reason =
        if is_owned { "other users can write it".into() } else { format!("user {} owns it", status.st_uid) };
    let text =
        format!("other users can change files in {}: {reason}; choose another directory", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        let own = shared.join("a/b");
        create_private_directory(&own).unwrap();
        create_private_directory(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        symlink(&own, dir.path().join("link")).unwrap();
        create_private_directory(&dir.path().join("link/c")).unwrap();
        assert!(own.join("c").is_dir());
        let refused = |path: &Path| create_private_directory(path).unwrap_err().to_string();
        assert!(refused(&shared).contains("other users can write it"), "{}", refused(&shared));
        fs::set_permissions(&own, Permissions::from_mode(0o770)).unwrap();
        assert!(refused(&own.join("c")).contains("other users can write it"));
        fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
        if chown(&own, Some(65534), None).is_err() {
            println!("SKIPPED: cannot change the owner of a directory");
            return;
        }
        assert!(refused(&own.join("c")).contains("user 65534 owns it"), "{}", refused(&own.join("c")));
        assert!(refused(&own).contains("user 65534 owns it"));
    }
}
