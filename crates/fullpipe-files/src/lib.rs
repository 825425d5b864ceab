//! Safe file operations for commands that may run as root on paths that other users can change.
//!
//! A path is resolved once, to its directory and its last name ([`Location::resolve`]); every later
//! operation uses the open directory and does not follow links. Symbolic links are followed as the
//! kernel does with `fs.protected_symlinks`, whatever that is set to: in a sticky directory such as
//! `/tmp`, only links of the calling user, of root or of the directory's owner. The same holds for
//! the file itself, as with `fs.protected_regular` and `fs.protected_fifos`.
//!
//! Do not call `fs::canonicalize` before opening a file: it reads links in user space, where the
//! kernel cannot refuse them.
//!
//! * Replace a file: [`Replacement`].
//! * Write to a file in place: [`Location::resolve`], then [`create_new`](Location::create_new) or
//!   [`write`](Location::write).
//! * Work in a directory as root: [`create_private_directory`], or [`create_and_open_directory`] for one
//!   of another user.
//! * Write to a file as a shell's `>` or `>>`: [`create`], [`append`].
//! * Read a file named by a user: [`open_regular`], which never waits for a FIFO or a device.
//! * Read a bounded file, such as a configuration: [`read_bounded`].
//! * Read a secret: [`read_secret`], which also refuses files that other users can read.
//! * Read and set extended attributes of an open file: [`attributes`].

#![forbid(unsafe_code)]

pub mod attributes;
mod directory;
mod replacement;

pub use directory::{create_and_open_directory, create_private_directory};
pub use replacement::Replacement;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, fcntl, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path};
use std::time::Duration;

/// Maximum symbolic links in one resolution, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;
/// Sticky and writable by others: the directories in which links are restricted (`may_follow_link`
/// in fs/namei.c).
const STICKY_AND_SHARED: u32 = 0o1002;
/// Maximum length of a secret's file in bytes.
const MAX_SECRET_BYTES: u64 = 64 * 1024;
/// How often a FIFO is checked for a reader.
const READER_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A file name in an open directory. Operations on it are not affected by later changes of the
/// path.
#[derive(Debug)]
pub struct Location {
    directory: OwnedFd,
    name: OsString,
    /// A link in procfs that the kernel has to follow, such as `/dev/stdout`.
    magic: bool,
}

impl Location {
    /// Resolves `path`, following symbolic links. The last name need not exist.
    ///
    /// # Errors
    /// `PermissionDenied` for a link of another user in a sticky directory, `ELOOP` for too many
    /// links, `InvalidInput` for a path without a file name, and errors of opening the
    /// directories.
    pub fn resolve(path: &Path) -> io::Result<Location> {
        let mut pending: VecDeque<OsString> = VecDeque::new();
        let mut directory = open_directory(AT_FDCWD, OsStr::new("."))?;
        let mut links = 0;
        prepend(&mut pending, path, &mut directory)?;
        while let Some(name) = pending.pop_front() {
            let is_last = pending.is_empty();
            if name == ".." {
                directory = open_directory(&directory, &name)?;
                continue;
            }
            let entry = match open_entry(&directory, &name) {
                Err(e) if is_last && e.kind() == io::ErrorKind::NotFound => {
                    return Ok(Location { directory, name, magic: false });
                }
                entry => entry?,
            };
            let status = fstat(&entry)?;
            if kind(&status) != SFlag::S_IFLNK {
                if is_last {
                    check_owner(&fstat(&directory)?, &status, &name)?;
                    return Ok(Location { directory, name, magic: false });
                }
                directory = open_directory(&directory, &name)?;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP.into());
            }
            // Links in procfs stand for open files: only for files on disk is their text a path.
            if is_procfs(&directory)? {
                if is_last {
                    let opened = fstat(open_at(&directory, &name, OFlag::O_PATH, 0)?)?;
                    // The text of a deleted file is not its path.
                    if kind(&opened) == SFlag::S_IFREG && opened.st_nlink > 0 {
                        prepend(&mut pending, Path::new(&read_link(&entry)?), &mut directory)?;
                        continue;
                    }
                    return Ok(Location { directory, name, magic: true });
                }
                directory = open_at(&directory, &name, OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?;
                continue;
            }
            check_owner(&fstat(&directory)?, &status, &name)?;
            prepend(&mut pending, Path::new(&read_link(&entry)?), &mut directory)?;
        }
        Err(no_file_name())
    }

    /// The name in the directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Another name in the same directory.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn sibling(&self, name: impl Into<OsString>) -> io::Result<Location> {
        Ok(Location { directory: self.directory.try_clone()?, name: name.into(), magic: false })
    }

    /// As [`resolve`](Self::resolve), but a link under the last name is not followed: operations
    /// concern the link itself, and writing to it fails.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_parent(path: &Path) -> io::Result<Location> {
        let name = path.file_name().ok_or_else(no_file_name)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = match parent {
            Some(parent) => open_resolved(parent)?,
            None => open_directory(AT_FDCWD, OsStr::new("."))?,
        };
        Ok(Location { directory, name: name.to_owned(), magic: false })
    }

    /// Opens an existing file for writing, in place, without truncating it. It does not wait for
    /// the reader of a FIFO: the error is `ENXIO` then.
    ///
    /// # Errors
    /// `PermissionDenied` for a file of another user in a sticky directory, and the error of
    /// openat(2).
    pub fn write(&self) -> io::Result<File> {
        let file = self.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY, 0)?;
        // Another file may have taken the name since the path was resolved.
        check_owner(&fstat(&self.directory)?, &fstat(&file)?, &self.name)?;
        Ok(file.into())
    }

    /// As [`write`](Self::write), but waits for the reader of a FIFO until `should_stop` returns
    /// true. Writes to the file block.
    ///
    /// # Errors
    /// `Interrupted` when stopped, and the error of openat(2).
    pub fn write_when_ready(&self, should_stop: &dyn Fn() -> bool) -> io::Result<File> {
        let file = loop {
            match self.write() {
                // Sockets and `/dev/tty` without a terminal cause this error, too, and for ever.
                Err(e) if e.raw_os_error() == Some(Errno::ENXIO as i32) && self.is_fifo()? => {
                    if should_stop() {
                        return Err(io::Error::new(
                            io::ErrorKind::Interrupted,
                            "stopped while waiting for a reader",
                        ));
                    }
                    std::thread::sleep(READER_POLL_INTERVAL);
                }
                file => break file?,
            }
        };
        let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
        fcntl(&file, FcntlArg::F_SETFL(flags & !OFlag::O_NONBLOCK))?;
        Ok(file)
    }

    fn is_fifo(&self) -> io::Result<bool> {
        Ok(self.metadata()?.is_some_and(|about| about.file_type().is_fifo()))
    }

    /// Creates a file with this mode (before the umask), for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists`, and other errors of openat(2).
    pub fn create_new(&self, mode: u32) -> io::Result<File> {
        Ok(self.open(OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL, mode)?.into())
    }

    /// The file's metadata; `None` if it does not exist.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn metadata(&self) -> io::Result<Option<std::fs::Metadata>> {
        match self.open(OFlag::O_PATH, 0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Ok(Some(File::from(file?).metadata()?)),
        }
    }

    /// Renames the file, replacing an existing one at `to`.
    ///
    /// # Errors
    /// The error of renameat(2).
    pub fn rename_to(&self, to: &Location) -> io::Result<()> {
        Ok(renameat(&self.directory, &*self.name, &to.directory, &*to.name)?)
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The error of unlinkat(2).
    pub fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.directory, &*self.name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Opens the file for writing, or creates it with mode 0666 (before the umask). Waits for the
    /// reader of a FIFO.
    fn write_or_create(&self) -> io::Result<File> {
        if self.metadata()?.is_none() {
            match self.create_new(0o666) {
                // Another process created it in the meantime.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                file => return file,
            }
        }
        self.write_when_ready(&|| false)
    }

    fn open(&self, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
        let follow = if self.magic { OFlag::empty() } else { OFlag::O_NOFOLLOW };
        open_at(&self.directory, &self.name, flags | follow, mode)
    }
}

/// Creates a file for writing or empties an existing one, as `>` does in a shell.
///
/// # Errors
/// As [`Location::resolve`], and the error of openat(2).
pub fn create(path: &Path) -> io::Result<File> {
    let file = Location::resolve(path)?.write_or_create()?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens a file for appending and creates it if it does not exist, as `>>` does in a shell.
///
/// # Errors
/// As [`create`].
pub fn append(path: &Path) -> io::Result<File> {
    let file = Location::resolve(path)?.write_or_create()?;
    let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL)?);
    fcntl(&file, FcntlArg::F_SETFL(flags | OFlag::O_APPEND))?;
    Ok(file)
}

/// Opens a regular file for reading. FIFOs, devices and files of procfs are refused without waiting
/// for them.
///
/// # Errors
/// `InvalidInput` for anything but a regular file, and errors of open(2).
pub fn open_regular(path: &Path) -> io::Result<File> {
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    // Opening a device may act on it, and a FIFO's writer notices a reader: the file is examined
    // before it is opened.
    let entry = open_at(AT_FDCWD, path.as_os_str(), OFlag::O_PATH, 0)?;
    if kind(&fstat(&entry)?) != SFlag::S_IFREG || is_procfs(&entry)? {
        return Err(refused());
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
        .open(path)?;
    // Another file may have taken its place in between.
    if kind(&fstat(&file)?) != SFlag::S_IFREG || is_procfs(&file)? {
        return Err(refused());
    }
    Ok(file)
}

/// Reads a regular file of at most `max` bytes.
///
/// # Errors
/// As [`open_regular`]; `FileTooLarge` beyond `max`.
pub fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    read_all(open_regular(path)?, max)
}

/// Reads a secret: a regular file of at most 64 KiB that other users cannot read.
///
/// # Errors
/// As [`read_bounded`]; `PermissionDenied` if the mode allows access to others.
pub fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let mode = file.metadata()?.mode() & 0o7777;
    if mode & 0o007 != 0 {
        let text = format!("other users can read it (mode {mode:o}); run: chmod 600 {}", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    read_all(file, MAX_SECRET_BYTES)
}

fn read_all(file: File, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {max} bytes")));
    }
    Ok(bytes)
}

fn no_file_name() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name")
}

/// Opens a directory by its path, which is resolved as a [`Location`].
fn open_resolved(path: &Path) -> io::Result<OwnedFd> {
    match Location::resolve(path) {
        Ok(location) => open_directory(&location.directory, &location.name),
        // The root, or a path that ends with `..`, which has no links of others under its last name.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
            open_at(AT_FDCWD, path.as_os_str(), OFlag::O_PATH | OFlag::O_DIRECTORY, 0)
        }
        Err(e) => Err(e),
    }
}

/// Puts the components of `path` before the pending ones; an absolute path restarts at the root.
fn prepend(pending: &mut VecDeque<OsString>, path: &Path, directory: &mut OwnedFd) -> io::Result<()> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => *directory = open_directory(AT_FDCWD, OsStr::new("/"))?,
            Component::ParentDir => names.push(OsString::from("..")),
            Component::Normal(name) => names.push(name.to_owned()),
            Component::CurDir | Component::Prefix(_) => {}
        }
    }
    for name in names.into_iter().rev() {
        pending.push_front(name);
    }
    Ok(())
}

fn kind(status: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(status.st_mode & SFlag::S_IFMT.bits())
}

/// Refuses links and files that the kernel would refuse with `fs.protected_symlinks`,
/// `fs.protected_regular` and `fs.protected_fifos` (`may_follow_link` and `may_create_in_sticky` in
/// fs/namei.c).
fn check_owner(directory: &FileStat, entry: &FileStat, name: &OsStr) -> io::Result<()> {
    let what = match kind(entry) {
        SFlag::S_IFLNK => "a symbolic link",
        SFlag::S_IFREG => "a file",
        SFlag::S_IFIFO => "a FIFO",
        _ => return Ok(()),
    };
    let is_restricted = directory.st_mode & STICKY_AND_SHARED == STICKY_AND_SHARED;
    let trusted = [0, directory.st_uid, geteuid().as_raw()];
    if is_restricted && !trusted.contains(&entry.st_uid) {
        let text = format!(
            "refusing {name:?}, {what} of another user ({}) in a world-writable sticky directory",
            entry.st_uid
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

fn open_directory(at: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    open_at(at, name, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW, 0)
}

/// The directory entry itself, even if it is a link.
fn open_entry(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    open_at(directory, name, OFlag::O_PATH | OFlag::O_NOFOLLOW, 0)
}

fn open_at(directory: impl AsFd, name: &OsStr, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
    Ok(openat(directory, name, flags | OFlag::O_CLOEXEC, Mode::from_bits_truncate(mode))?)
}

fn is_procfs(file: &impl AsFd) -> io::Result<bool> {
    Ok(fstatfs(file)?.filesystem_type() == PROC_SUPER_MAGIC)
}

/// The target of the link that `link` was opened at.
fn read_link(link: &OwnedFd) -> io::Result<OsString> {
    let target = readlinkat(link, "")?;
    if target.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(target) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn error(result: io::Result<impl Sized>) -> io::Error {
        result.err().expect("an error")
    }

    /// A sticky directory that everyone can write, as `/tmp`, and a file outside of it.
    fn shared() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        fs::write(dir.path().join("target"), "as before").unwrap();
        (dir, shared)
    }

    #[test]
    fn links_of_other_users_in_sticky_directories_are_refused() {
        let (dir, shared) = shared();
        symlink(dir.path().join("target"), shared.join("file")).unwrap();
        symlink(dir.path(), shared.join("directory")).unwrap();
        assert_eq!(Location::resolve(&shared.join("file")).unwrap().name(), "target");
        if let Err(e) = std::os::unix::fs::lchown(shared.join("file"), Some(65534), None) {
            println!("SKIPPED: cannot change the owner of a link: {e}");
            return;
        }
        std::os::unix::fs::lchown(shared.join("directory"), Some(65534), None).unwrap();
        fs::write(shared.join("own"), "").unwrap();
        assert_eq!(Location::resolve(&shared.join("own")).unwrap().name(), "own");
        fs::write(shared.join("planted"), "").unwrap();
        std::os::unix::fs::chown(shared.join("planted"), Some(65534), None).unwrap();
        for path in ["file", "directory/target", "planted"] {
            let e = error(Location::resolve(&shared.join(path)));
            assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{path}: {e}");
            assert!(e.to_string().contains("another user (65534)"), "{e}");
        }
        // Without the sticky bit, the link is followed as usual.
        fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Location::resolve(&shared.join("file")).unwrap().name(), "target");
    }

    #[test]
    fn a_resolved_location_does_not_follow_a_link_created_later() {
        let (dir, shared) = shared();
        let location = Location::resolve(&shared.join("report")).unwrap();
        assert!(location.metadata().unwrap().is_none());
        symlink(dir.path().join("target"), shared.join("report")).unwrap();
        assert_eq!(error(location.create_new(0o600)).kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(error(location.write()).raw_os_error(), Some(Errno::ELOOP as i32));
        assert_eq!(fs::read_to_string(dir.path().join("target")).unwrap(), "as before");
    }

    #[test]
    fn a_file_that_another_user_creates_after_resolution_is_not_written() {
        let (_dir, shared) = shared();
        let location = Location::resolve(&shared.join("report")).unwrap();
        fs::write(shared.join("report"), "").unwrap();
        if std::os::unix::fs::chown(shared.join("report"), Some(65534), None).is_err() {
            println!("SKIPPED: cannot change the owner of a file");
            return;
        }
        for opened in [location.write(), location.write_when_ready(&|| true)] {
            assert_eq!(error(opened).kind(), io::ErrorKind::PermissionDenied);
        }
        let replaced = Replacement::open(&shared.join("report"), 0o644).map(drop);
        assert_eq!(error(replaced).kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn files_are_created_renamed_and_removed_in_their_directory() {
        let dir = tempfile::tempdir().unwrap();
        symlink(dir.path(), dir.path().join("here")).unwrap();
        let location = Location::resolve(&dir.path().join("here/../here/new")).unwrap_err();
        assert_eq!(location.kind(), io::ErrorKind::NotFound, "`..` of the target, not of the link");
        let location = Location::resolve(&dir.path().join("here/new")).unwrap();
        let partial = location.sibling(".new.part").unwrap();
        let mut file = partial.create_new(0o600).unwrap();
        file.write_all(b"whole").unwrap();
        partial.rename_to(&location).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("new")).unwrap(), "whole");
        assert_eq!(location.metadata().unwrap().unwrap().mode() & 0o777, 0o600);
        location.remove().unwrap();
        assert!(location.metadata().unwrap().is_none());
        assert_eq!(error(Location::resolve(Path::new("/"))).kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn create_and_append_refuse_files_of_other_users() {
        let (dir, shared) = shared();
        let path = shared.join("log");
        create(&path).unwrap().write_all(b"first").unwrap();
        create(&path).unwrap().write_all(b"one").unwrap();
        let mut one = append(&path).unwrap();
        append(&path).unwrap().write_all(b" two").unwrap();
        one.write_all(b" three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one two three");
        append(&shared.join("new")).unwrap().write_all(b"x").unwrap();
        symlink(dir.path().join("target"), shared.join("link")).unwrap();
        create(&shared.join("link")).unwrap().write_all(b"own link").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("target")).unwrap(), "own link");
        create(Path::new("/dev/null")).unwrap().write_all(b"x").unwrap();
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            std::os::unix::fs::lchown(shared.join("link"), Some(65534), None).unwrap();
            for path in [&path, &shared.join("link")] {
                assert_eq!(error(create(path)).kind(), io::ErrorKind::PermissionDenied);
                assert_eq!(error(append(path)).kind(), io::ErrorKind::PermissionDenied);
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), "one two three");
        }
    }

    #[test]
    fn link_loops_end_and_standard_output_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        symlink(dir.path().join("b"), dir.path().join("a")).unwrap();
        symlink(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert_eq!(error(Location::resolve(&dir.path().join("a"))).raw_os_error(), Some(Errno::ELOOP as i32));
        let (reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        Location::resolve(Path::new(&path)).unwrap().write().unwrap().write_all(b"x").unwrap();
        let mut byte = [0];
        { reader }.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        let file = fs::File::create(dir.path().join("file")).unwrap();
        let redirected =
            Location::resolve(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap();
        assert_eq!(redirected.name(), "file");
        fs::remove_file(dir.path().join("file")).unwrap();
        create(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap().write_all(b"x").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1, "written to the deleted file");
        assert!(fs::read_dir(dir.path()).unwrap().all(|e| e.unwrap().path().is_symlink()), "a new file");
    }

    #[test]
    fn fifos_and_devices_are_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&*fifo, Path::new("/dev/zero"), Path::new("/proc/version"), dir.path()] {
            assert_eq!(error(open_regular(path)).kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        let e = error(Location::resolve(&fifo).unwrap().write());
        assert_eq!(e.raw_os_error(), Some(Errno::ENXIO as i32), "no reader: {e}");
    }

    #[test]
    fn waiting_for_a_reader_ends_when_it_opens_or_on_request() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let location = Location::resolve(&fifo).unwrap();
        let stopped = error(location.write_when_ready(&|| true));
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
        let reader = std::thread::spawn(move || fs::read_to_string(fifo).unwrap());
        location.write_when_ready(&|| false).unwrap().write_all(b"record").unwrap();
        assert_eq!(reader.join().unwrap(), "record");
    }

    #[test]
    fn a_socket_has_no_reader_to_wait_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let refused = error(Location::resolve(&path).unwrap().write_when_ready(&|| true));
        assert_eq!(refused.raw_os_error(), Some(Errno::ENXIO as i32), "{refused}");
    }

    #[test]
    fn several_writers_create_a_file_at_once() {
        const WRITERS: usize = 8;
        let dir = tempfile::tempdir().unwrap();
        for round in 0..100 {
            let path = dir.path().join(round.to_string());
            let start = std::sync::Barrier::new(WRITERS);
            let write = || {
                start.wait();
                append(&path).unwrap().write_all(b"x").unwrap();
            };
            std::thread::scope(|scope| {
                (0..WRITERS).for_each(|_| drop(scope.spawn(write)));
            });
            assert_eq!(fs::read(&path).unwrap().len(), WRITERS);
        }
    }

    #[test]
    fn reads_are_bounded_and_secrets_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "correct horse").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(error(read_secret(&path)).to_string().contains("chmod 600"));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read_secret(&path).unwrap(), b"correct horse");
        assert_eq!(read_bounded(&path, 13).unwrap().len(), 13);
        assert_eq!(error(read_bounded(&path, 12)).kind(), io::ErrorKind::FileTooLarge);
        fs::write(&path, vec![b'x'; 100_000]).unwrap();
        assert_eq!(error(read_secret(&path)).kind(), io::ErrorKind::FileTooLarge);
    }
}
