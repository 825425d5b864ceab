//! Directories to work in.

use crate::{MAX_LINKS, attributes, kind, open_at, open_directory, open_entry, prepend, read_link};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::{getegid, geteuid};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Creates the directory `path` with mode 0700 where it is missing, with missing parents, for
/// programs that are given paths in it.
///
/// Other users can change neither it nor what is in it: every directory on the way, also to the
/// targets of symbolic links, belongs to root or the caller. It is writable only by its owner and
/// by the group root or the caller's own group, unless it is sticky like `/tmp`. Links of other users
/// are refused.
///
/// # Errors
/// `PermissionDenied` with the name of the directory that others can change, `ELOOP` for too many
/// links, and errors of openat(2) and mkdirat(2).
pub fn create_private_directory(path: &Path) -> io::Result<()> {
    walk(path, 0o700, require_own).map(drop)
}

/// Opens the directory `path`, which is created with this mode (before the umask) where it is
/// missing, with missing parents. Unlike in [`create_private_directory`], it and its parents may
/// belong to other users. Symbolic links of others are refused, wherever they are: only root and
/// the caller may decide which directory the path stands for. The descriptor is for reading the
/// directory.
///
/// # Errors
/// `PermissionDenied` with the name of a link of another user, and errors of openat(2) and
/// mkdirat(2).
pub fn create_and_open_directory(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let directory = walk(path, mode, |_, _, _| Ok(()))?;
    open_at(&directory, OsStr::new("."), OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)
}

/// Opens the directories of a path one after the other, and creates what is missing. `check` is
/// called with each of them, its path, and whether it is the last one.
fn walk(
    path: &Path,
    mode: u32,
    check: impl Fn(&OwnedFd, &Path, bool) -> io::Result<()>,
) -> io::Result<OwnedFd> {
    let path = std::path::absolute(path)?;
    let mut directory = open_directory(AT_FDCWD, OsStr::new("/"))?;
    let mut so_far = PathBuf::from("/");
    let mut links = 0;
    let mut pending = VecDeque::new();
    prepend(&mut pending, &path, &mut directory)?;
    check(&directory, &so_far, false)?;
    while let Some(name) = pending.pop_front() {
        match mkdirat(&directory, &*name, Mode::from_bits_truncate(mode)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            // A file system that is read-only may have it already.
            Err(Errno::EROFS | Errno::EACCES) => {}
            Err(e) => return Err(e.into()),
        }
        let entry = open_entry(&directory, &name)?;
        let status = fstat(&entry)?;
        if kind(&status) == SFlag::S_IFLNK {
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP.into());
            }
            so_far.push(&name);
            if ![0, geteuid().as_raw()].contains(&status.st_uid) {
                let text = format!(
                    "refusing {}, a symbolic link of another user ({})",
                    so_far.display(),
                    status.st_uid
                );
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
            }
            let target = PathBuf::from(read_link(&entry)?);
            so_far.pop();
            if target.is_absolute() {
                so_far = PathBuf::from("/");
            }
            prepend(&mut pending, &target, &mut directory)?;
            continue;
        }
        directory = open_directory(&directory, &name)?;
        if name == ".." {
            so_far.pop();
        } else {
            so_far.push(&name);
        }
        check(&directory, &so_far, false)?;
    }
    check(&directory, &so_far, true)?;
    Ok(directory)
}

/// Refuses a directory in which others can rename or replace entries.
fn require_own(directory: &OwnedFd, path: &Path, is_last: bool) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    let status = fstat(directory)?;
    let is_owned = [0, geteuid().as_raw()].contains(&status.st_uid);
    let is_shared = (is_last || status.st_mode & STICKY == 0) && is_writable_by_others(directory, &status);
    if is_owned && !is_shared {
        return Ok(());
    }
    let reason = if is_owned {
        "other users can write to it".into()
    } else {
        format!("user {} owns it", status.st_uid)
    };
    let text =
        format!("other users can change files in {}: {reason}; choose another directory", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Whether users outside the group root and the caller's own group can write to a directory.
fn is_writable_by_others(directory: &OwnedFd, status: &FileStat) -> bool {
    const GROUP: u32 = 0o020;
    const OTHERS: u32 = 0o002;
    if status.st_mode & GROUP == 0 {
        return status.st_mode & OTHERS != 0;
    }
    // With an access list, the bits of the group are the most that other users may have.
    let has_list = || {
        let opened = open_at(directory, OsStr::new("."), OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0);
        let list = opened.and_then(|directory| attributes::get(&directory, attributes::ACCESS_LIST));
        list.map_or(true, |list| list.is_some())
    };
    let is_own_group = [0, getegid().as_raw()].contains(&status.st_gid);
    status.st_mode & OTHERS != 0 || !is_own_group || has_list()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_testing::access_list;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn refused(path: &Path) -> String {
        create_private_directory(path).unwrap_err().to_string()
    }

    #[test]
    fn links_of_others_are_refused_anywhere_in_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        let created = create_and_open_directory(&real.join("a"), 0o700).unwrap();
        assert_eq!(fstat(&created).unwrap().st_ino, fs::metadata(real.join("a")).unwrap().ino());
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o700);
        // An own link to an own link to a directory, and one that leads nowhere yet.
        symlink("real", dir.path().join("one")).unwrap();
        symlink(dir.path().join("one/a"), dir.path().join("two")).unwrap();
        symlink("real/b/c", dir.path().join("three")).unwrap();
        for (path, same) in [("two", "real/a"), ("one/../real/a/.", "real/a"), ("three", "real/b/c")] {
            let opened = create_and_open_directory(&dir.path().join(path), 0o700).unwrap();
            assert_eq!(fstat(&opened).unwrap().st_ino, fs::metadata(dir.path().join(same)).unwrap().ino());
        }
        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(create_and_open_directory(&dir.path().join("loop"), 0o700).is_err());
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(create_and_open_directory(&dir.path().join("file"), 0o700).is_err());
        if let Err(e) = std::os::unix::fs::lchown(dir.path().join("one"), Some(65534), None) {
            println!("SKIPPED: cannot change the owner of a link: {e}");
            return;
        }
        for path in ["one", "one/a", "one/new", "two", "two/new"] {
            let error = create_and_open_directory(&dir.path().join(path), 0o700).unwrap_err().to_string();
            assert!(error.contains("one, a symbolic link of another user (65534)"), "{path}: {error}");
        }
        assert!(!real.join("new").exists() && !real.join("a/new").exists());
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        set_mode(&shared, 0o1777);
        let own = shared.join("a/b");
        create_private_directory(&own).unwrap();
        create_private_directory(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        assert!(refused(&shared).contains("other users can write to it"), "{}", refused(&shared));
        set_mode(&own, 0o707);
        assert!(refused(&own.join("c")).contains("other users can write to it"));
        set_mode(&own, 0o700);
        if chown(&own, Some(65534), None).is_err() {
            println!("SKIPPED: cannot change the owner of a directory");
            return;
        }
        assert!(refused(&own.join("c")).contains("user 65534 owns it"), "{}", refused(&own.join("c")));
        assert!(refused(&own).contains("user 65534 owns it"));
    }

    #[test]
    fn the_own_group_may_write_and_other_groups_and_access_lists_may_not() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own");
        fs::create_dir(&own).unwrap();
        chown(&own, None, Some(getegid().as_raw())).unwrap();
        set_mode(&own, 0o775);
        create_private_directory(&own.join("a")).unwrap();
        create_private_directory(&own).unwrap();
        let list = [(attributes::ACCESS_LIST.to_owned(), access_list())].into();
        match attributes::set(fs::File::open(&own).unwrap(), &list) {
            Ok(()) => assert!(refused(&own).contains("other users can write to it")),
            Err(e) => println!("SKIPPED access lists: {e}"),
        }
        attributes::set(fs::File::open(&own).unwrap(), &attributes::Attributes::new()).unwrap();
        set_mode(&own, 0o775);
        create_private_directory(&own).unwrap();
        if chown(&own, None, Some(4712)).is_err() {
            println!("SKIPPED: cannot change the group of a directory");
            return;
        }
        set_mode(&own, 0o775);
        assert!(refused(&own.join("b")).contains("other users can write to it"));
    }

    #[test]
    fn directories_on_the_way_to_the_target_of_a_link_are_checked() {
        let dir = tempfile::tempdir().unwrap();
        let (open, own) = (dir.path().join("open"), dir.path().join("own"));
        fs::create_dir_all(open.join("target")).unwrap();
        fs::create_dir(&own).unwrap();
        symlink("../open/./target", own.join("relative")).unwrap();
        symlink(open.join("target"), own.join("absolute")).unwrap();
        symlink("relative", own.join("twice")).unwrap();
        symlink("loop", own.join("loop")).unwrap();
        for name in ["relative", "absolute", "twice"] {
            create_private_directory(&own.join(name).join("made")).unwrap();
            assert!(open.join("target/made").is_dir());
            fs::remove_dir(open.join("target/made")).unwrap();
        }
        // The target itself belongs to the caller, and others can rename it.
        set_mode(&open, 0o777);
        for name in ["relative", "absolute", "twice"] {
            let text = refused(&own.join(name).join("made"));
            assert!(text.contains(&format!("{}: other users can write", open.display())), "{text}");
            refused(&own.join(name));
        }
        assert!(!open.join("target/made").exists());
        let error = create_private_directory(&own.join("loop")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::ELOOP as i32));
    }
}
