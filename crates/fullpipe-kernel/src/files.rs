//! Safe file operations for commands that may run as root on paths that other users can change.
//!
//! A path is resolved once, to its directory and its last name ([`Location::resolve`]); every later
//! operation uses the open directory and does not follow links. Symbolic links are followed as the
//! kernel does with `fs.protected_symlinks`, whatever that is set to: in a sticky directory such as
//! `/tmp`, only links of the calling user or of the directory's owner.
//!
//! Do not call `fs::canonicalize` before opening a file: it reads links in user space, where the
//! kernel cannot refuse them.
//!
//! * Write or replace a file: [`Location::resolve`], then [`create_new`](Location::create_new) a
//!   [`sibling`](Location::sibling) and [`rename`](Location::rename_to) it, or
//!   [`write`](Location::write).
//! * Read a file named by a user: [`open_regular`], which never waits for a FIFO or a device.
//! * Read a bounded file, such as a configuration: [`read_bounded`].
//! * Read a secret: [`read_secret`], which also refuses files that other users can read.

use nix::errno::Errno;
use std::collections::VecDeque;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path};
use std::time::Duration;

/// Maximum symbolic links in one resolution, as in the kernel (`MAXSYMLINKS`).
const MAX_LINKS: u32 = 40;
/// Sticky and writable by others: the directories in which links are restricted (`may_follow_link`
/// in fs/namei.c).
const STICKY_AND_SHARED: u32 = libc::S_ISVTX | libc::S_IWOTH;
/// Maximum length of a secret's file in bytes.
const MAX_SECRET_BYTES: u64 = 64 * 1024;
/// How often a FIFO is checked for a reader.
const READER_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// `PROC_SUPER_MAGIC` (linux/magic.h).
const PROC_SUPER_MAGIC: i64 = 0x9fa0;

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
        let mut directory = open_directory(libc::AT_FDCWD, OsStr::new("."))?;
        let mut links = 0;
        prepend(&mut pending, path, &mut directory)?;
        while let Some(name) = pending.pop_front() {
            let is_last = pending.is_empty();
            if name == ".." {
                directory = open_directory(directory.as_raw_fd(), &name)?;
                continue;
            }
            let entry = match open_entry(&directory, &name) {
                Err(e) if is_last && e.kind() == io::ErrorKind::NotFound => {
                    return Ok(Location { directory, name, magic: false });
                }
                entry => entry?,
            };
            let status = stat(&entry)?;
            if status.st_mode & libc::S_IFMT != libc::S_IFLNK {
                if is_last {
                    return Ok(Location { directory, name, magic: false });
                }
                directory = open_directory(directory.as_raw_fd(), &name)?;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Errno::ELOOP.into());
            }
            // Links in procfs stand for open files: only for files on disk is their text a path.
            if is_procfs(&directory)? {
                if is_last {
                    let opened = stat(&open_at(&directory, &name, libc::O_PATH, 0)?)?;
                    if opened.st_mode & libc::S_IFMT == libc::S_IFREG {
                        prepend(&mut pending, Path::new(&read_link(&entry)?), &mut directory)?;
                        continue;
                    }
                    return Ok(Location { directory, name, magic: true });
                }
                directory = open_at(&directory, &name, libc::O_PATH | libc::O_DIRECTORY, 0)?;
                continue;
            }
            check_link(&stat(&directory)?, &status, &name)?;
            prepend(&mut pending, Path::new(&read_link(&entry)?), &mut directory)?;
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))
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

    /// Opens an existing file for writing, in place, without truncating it. It does not wait for
    /// the reader of a FIFO: the error is `ENXIO` then.
    ///
    /// # Errors
    /// The error of openat(2).
    pub fn write(&self) -> io::Result<File> {
        Ok(self.open(libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY, 0)?.into())
    }

    /// As [`write`](Self::write), but waits for the reader of a FIFO until `should_stop` returns
    /// true. Writes to the file block.
    ///
    /// # Errors
    /// `Interrupted` when stopped, and the error of openat(2).
    pub fn write_when_ready(&self, should_stop: &dyn Fn() -> bool) -> io::Result<File> {
        let file = loop {
            match self.write() {
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) && !should_stop() => {
                    std::thread::sleep(READER_POLL_INTERVAL);
                }
                Err(e) if e.raw_os_error() == Some(libc::ENXIO) => {
                    return Err(io::Error::new(
                        io::ErrorKind::Interrupted,
                        "stopped while waiting for a reader",
                    ));
                }
                file => break file?,
            }
        };
        // SAFETY: fcntl(2) with integer arguments on an open descriptor.
        unsafe {
            let flags = Errno::result(libc::fcntl(file.as_raw_fd(), libc::F_GETFL))?;
            Errno::result(libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK))?;
        }
        Ok(file)
    }

    /// Creates a file with this mode (before the umask).
    ///
    /// # Errors
    /// `AlreadyExists`, and other errors of openat(2).
    pub fn create_new(&self, mode: u32) -> io::Result<File> {
        Ok(self.open(libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, mode)?.into())
    }

    /// The file's metadata; `None` if it does not exist.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn metadata(&self) -> io::Result<Option<std::fs::Metadata>> {
        match self.open(libc::O_PATH, 0) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Ok(Some(File::from(file?).metadata()?)),
        }
    }

    /// Renames the file, replacing an existing one at `to`.
    ///
    /// # Errors
    /// The error of renameat(2).
    pub fn rename_to(&self, to: &Location) -> io::Result<()> {
        let (from_name, to_name) = (c_name(&self.name)?, c_name(&to.name)?);
        // SAFETY: both names end with a zero byte and outlive the call; the descriptors are open.
        let result = unsafe {
            libc::renameat(
                self.directory.as_raw_fd(),
                from_name.as_ptr(),
                to.directory.as_raw_fd(),
                to_name.as_ptr(),
            )
        };
        Errno::result(result)?;
        Ok(())
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The error of unlinkat(2).
    pub fn remove(&self) -> io::Result<()> {
        let name = c_name(&self.name)?;
        // SAFETY: the name ends with a zero byte and outlives the call; the descriptor is open.
        Errno::result(unsafe { libc::unlinkat(self.directory.as_raw_fd(), name.as_ptr(), 0) })?;
        Ok(())
    }

    fn open(&self, flags: i32, mode: u32) -> io::Result<OwnedFd> {
        let follow = if self.magic { 0 } else { libc::O_NOFOLLOW };
        open_at(&self.directory, &self.name, flags | follow, mode)
    }
}

/// Opens a regular file for reading. FIFOs, devices and files of procfs are refused without waiting
/// for them.
///
/// # Errors
/// `InvalidInput` for anything but a regular file, and errors of open(2).
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() || is_procfs(&file)? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
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

/// Puts the components of `path` before the pending ones; an absolute path restarts at the root.
fn prepend(pending: &mut VecDeque<OsString>, path: &Path, directory: &mut OwnedFd) -> io::Result<()> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::RootDir => *directory = open_directory(libc::AT_FDCWD, OsStr::new("/"))?,
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

/// Refuses links that the kernel would refuse with `fs.protected_symlinks` (`may_follow_link` in
/// fs/namei.c).
fn check_link(directory: &libc::stat, link: &libc::stat, name: &OsStr) -> io::Result<()> {
    // SAFETY: takes no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    let is_restricted = directory.st_mode & STICKY_AND_SHARED == STICKY_AND_SHARED;
    if is_restricted && link.st_uid != user && link.st_uid != directory.st_uid {
        let name = crate::printable::line(&name.to_string_lossy()).into_owned();
        let text = format!(
            "refusing to follow {name}, a symbolic link of user {} in a shared directory",
            link.st_uid
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn open_directory(at: i32, name: &OsStr) -> io::Result<OwnedFd> {
    open_raw(at, name, libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)
}

/// The directory entry itself, even if it is a link.
fn open_entry(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    open_at(directory, name, libc::O_PATH | libc::O_NOFOLLOW, 0)
}

fn open_at(directory: &OwnedFd, name: &OsStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    open_raw(directory.as_raw_fd(), name, flags, mode)
}

fn open_raw(at: i32, name: &OsStr, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    let name = c_name(name)?;
    // SAFETY: the name ends with a zero byte and outlives the call.
    let fd = unsafe { libc::openat(at, name.as_ptr(), flags | libc::O_CLOEXEC, mode) };
    let fd = Errno::result(fd)?;
    // SAFETY: a new descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn stat(file: &OwnedFd) -> io::Result<libc::stat> {
    let mut status = MaybeUninit::uninit();
    // SAFETY: the kernel fills in the structure, which outlives the call; it is initialised on success.
    unsafe {
        Errno::result(libc::fstat(file.as_raw_fd(), status.as_mut_ptr()))?;
        Ok(status.assume_init())
    }
}

fn is_procfs(file: &impl AsRawFd) -> io::Result<bool> {
    let mut status = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the kernel fills in the structure, which outlives the call; it is initialised on success.
    let status = unsafe {
        Errno::result(libc::fstatfs(file.as_raw_fd(), status.as_mut_ptr()))?;
        status.assume_init()
    };
    #[allow(clippy::unnecessary_cast, reason = "the type differs by architecture and C library")]
    Ok(status.f_type as i64 == PROC_SUPER_MAGIC)
}

/// The target of the link that `link` was opened at.
fn read_link(link: &OwnedFd) -> io::Result<OsString> {
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    // SAFETY: the empty path ends with a zero byte; pointer and length describe `target`.
    let length =
        unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), target.as_mut_ptr().cast(), target.len()) };
    target.truncate(Errno::result(length)? as usize);
    if target.is_empty() {
        return Err(Errno::ENOENT.into());
    }
    Ok(OsString::from_vec(target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Write;
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
        for path in ["file", "directory/target"] {
            let e = error(Location::resolve(&shared.join(path)));
            assert_eq!(e.kind(), io::ErrorKind::PermissionDenied, "{path}: {e}");
            assert!(e.to_string().contains("user 65534"), "{e}");
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
        assert_eq!(error(location.write()).raw_os_error(), Some(libc::ELOOP));
        assert_eq!(fs::read_to_string(dir.path().join("target")).unwrap(), "as before");
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
    fn link_loops_end_and_standard_output_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        symlink(dir.path().join("b"), dir.path().join("a")).unwrap();
        symlink(dir.path().join("a"), dir.path().join("b")).unwrap();
        assert_eq!(error(Location::resolve(&dir.path().join("a"))).raw_os_error(), Some(libc::ELOOP));
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
        assert_eq!(e.raw_os_error(), Some(libc::ENXIO), "no reader: {e}");
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
