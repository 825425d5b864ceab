//! Files under a directory that stands for a host's root; `/` is this machine. Links are followed
//! inside the directory, never out of it.

use super::rooted::{MAX_FILE_SIZE, Place, Root, is_regular, kind, read_bounded};
use super::{Attributes, Files, Node, Object, Stat, View, parent};
use fullpipe_files::attributes;
use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, geteuid, symlinkat, unlinkat};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The files under a directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Opened once, so that a later rename of the path has no effect.
    root: Result<Root, io::ErrorKind>,
    /// Whether it is a part of this machine, not of an image.
    is_machine: bool,
    /// What was read of an image.
    reads: Mutex<Reads>,
}

/// Most bytes that are read of all files of an image. A root file system has some 10 MB of boot
/// files and lists of modules.
const MAX_TOTAL_SIZE: u64 = 64 << 20;
/// Most names that are listed in a directory of an image.
const MAX_NAMES: usize = 100_000;
/// Most bytes that are read again of files of an image: a command reads its boot files some thirty
/// times, and by every name that links give them.
const MAX_AGAIN: u64 = 1 << 30;
/// Most names that are listed of all directories of an image, which may be reached by many links.
const MAX_TOTAL_NAMES: usize = 1_000_000;

/// What was read, with bounds for an image, which is untrusted: thousands of files may each be small
/// enough.
#[derive(Debug, Default)]
struct Reads {
    /// Device and inode of each file, so that one that is read twice counts once.
    files: HashSet<(u64, u64)>,
    /// Bytes by directory.
    by_directory: HashMap<String, u64>,
    /// Bytes of all.
    total: u64,
    /// Bytes that were read again.
    again: u64,
    /// Names that were listed.
    names: usize,
    /// What was not read, each with its reason.
    refused: BTreeMap<String, String>,
}

impl Reads {
    /// Counts a file, or refuses it.
    fn count(&mut self, path: &str, about: &FileStat) -> io::Result<()> {
        #[allow(clippy::useless_conversion, reason = "32 bits on other architectures")]
        let file = (u64::from(about.st_dev), u64::from(about.st_ino));
        let size = u64::try_from(about.st_size).unwrap_or(0);
        if self.files.contains(&file) {
            self.again = self.again.saturating_add(size);
            if self.again > MAX_AGAIN {
                let text = format!("and other files were read repeatedly, over {} MiB", MAX_AGAIN >> 20);
                return self.refuse(path, io::ErrorKind::FileTooLarge, text);
            }
            return Ok(());
        }
        let directory = parent(path);
        let in_directory = self.by_directory.get(directory).copied().unwrap_or(0).saturating_add(size);
        let total = self.total.saturating_add(size);
        let too_large = io::ErrorKind::FileTooLarge;
        if size > MAX_FILE_SIZE {
            return self.refuse(path, too_large, format!("is larger than {} MiB", MAX_FILE_SIZE >> 20));
        }
        if in_directory > MAX_FILE_SIZE {
            let text = format!("and other files in {directory} are larger than {} MiB", MAX_FILE_SIZE >> 20);
            return self.refuse(path, too_large, text);
        }
        if total > MAX_TOTAL_SIZE {
            let text = format!("and other files that are read are larger than {} MiB", MAX_TOTAL_SIZE >> 20);
            return self.refuse(path, too_large, text);
        }
        self.files.insert(file);
        self.by_directory.insert(directory.to_owned(), in_directory);
        self.total = total;
        Ok(())
    }

    fn refuse<T>(&mut self, path: &str, kind: io::ErrorKind, why: String) -> io::Result<T> {
        const MAX_REFUSED: usize = 16;
        let text = format!("{path} {why}");
        if self.refused.len() < MAX_REFUSED {
            self.refused.insert(path.to_owned(), text.clone());
        }
        Err(io::Error::new(kind, text))
    }
}

impl Directory {
    /// Uses `root` as a host's `/`. If it cannot be opened every operation fails with that error.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let path = root.into();
        let is_machine = path == Path::new("/");
        Directory { root: Root::open(&path).map_err(|e| e.kind()), path, is_machine, reads: Mutex::default() }
    }

    fn real(&self) -> bool {
        self.path == Path::new("/")
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn root(&self) -> io::Result<&Root> {
        self.root.as_ref().map_err(|&kind| kind.into())
    }

    /// Creates a file; all of it goes to one descriptor.
    fn create_file(
        &self,
        path: &str,
        content: &[u8],
        (mode, uid, gid): (u32, u32, u32),
        attributes: Option<&Attributes>,
    ) -> io::Result<()> {
        let place = self.root()?.place(path)?;
        let mut file = File::from(place.open(OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, 0o600)?);
        let made = (|| {
            file.write_all(content)?;
            let now = fstat(&file)?;
            if (now.st_uid, now.st_gid) != (uid, gid) {
                let (uid, gid) = owner(uid, gid);
                fchown(&file, uid, gid)?;
            }
            // After the owner: changing that clears set-id bits.
            fchmod(&file, mode_of(mode))?;
            attributes.map_or(Ok(()), |attributes| attributes::set(&file, attributes))
        })();
        made.inspect_err(|_: &io::Error| {
            // Remove a partial file, and report the first error.
            let _ = unlinkat(&place.directory, place.name, UnlinkatFlags::NoRemoveDir);
        })
    }
}

fn owner(uid: u32, gid: u32) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode)
}

fn stat_of(about: &FileStat, target: Option<String>) -> Stat {
    let node = match (target, kind(about)) {
        (Some(target), _) => Node::Link(target),
        (_, SFlag::S_IFDIR) => Node::Directory,
        (_, SFlag::S_IFREG) => Node::File,
        _ => Node::Other,
    };
    let (mode, links) = (about.st_mode & 0o7777, about.st_nlink);
    #[allow(clippy::useless_conversion, reason = "32 bits on other architectures")]
    Stat { node, mode, uid: about.st_uid, gid: about.st_gid, links: links.into() }
}

impl View for Directory {
    fn stat(&self, path: &str) -> io::Result<Stat> {
        if path.trim_matches('/').is_empty() {
            let about = fstat(self.root()?.at("/", OFlag::O_PATH)?)?;
            let mode = about.st_mode & 0o7777;
            return Ok(Stat { node: Node::Directory, mode, uid: about.st_uid, gid: about.st_gid, links: 1 });
        }
        let place = self.root()?.place(path)?;
        let about = place.stat()?;
        let target = match kind(&about) {
            SFlag::S_IFLNK => Some(readlinkat(&place.directory, place.name)?.to_string_lossy().into_owned()),
            _ => None,
        };
        Ok(stat_of(&about, target))
    }

    fn object(&self, path: &str) -> io::Result<Object> {
        if path.trim_matches('/').is_empty() {
            return Ok(Object { stat: self.stat(path)?, content: Vec::new(), attributes: Attributes::new() });
        }
        let opened = self.root()?.place(path)?.object()?;
        let attributes = opened.file().map_or(Ok(Attributes::new()), attributes::read)?;
        let content = opened.content(path)?;
        Ok(Object { stat: stat_of(&opened.about, opened.target), content, attributes })
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let file = self.root()?.regular(path)?;
        if !self.is_machine {
            self.reads().count(path, &fstat(&file)?)?;
        }
        read_bounded(&file, path)
    }

    fn unread(&self) -> Vec<String> {
        self.reads().refused.values().cloned().collect()
    }

    fn refuse(&self, path: &str, why: &str) {
        // The error is for callers that read.
        let _ = self.reads().refuse::<()>(path, io::ErrorKind::FileTooLarge, why.to_owned());
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        Ok(fstat(self.root()?.at(path, OFlag::O_PATH)?)?.st_size.try_into().unwrap_or(0))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let opened = self.root()?.at(directory, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let most = if self.is_machine { usize::MAX } else { MAX_NAMES };
        let mut names = Vec::new();
        for entry in Dir::from_fd(opened)? {
            let entry = entry?;
            let name = match entry.file_name().to_str() {
                Ok("." | "..") => continue,
                Ok(name) => name.to_owned(),
                // Such a file takes effect, and has no path here.
                Err(_) => {
                    let name = entry.file_name().to_bytes().escape_ascii();
                    let text = format!("has a file whose name is not UTF-8 (\"{name}\")");
                    return self.reads().refuse(directory, io::ErrorKind::InvalidData, text);
                }
            };
            if names.len() >= most {
                let text = format!("has more than {MAX_NAMES} files");
                return self.reads().refuse(directory, io::ErrorKind::FileTooLarge, text);
            }
            names.push(name);
        }
        if !self.is_machine {
            let mut reads = self.reads();
            reads.names = reads.names.saturating_add(names.len());
            if reads.names > MAX_TOTAL_NAMES {
                let text = format!("and other directories have more than {MAX_TOTAL_NAMES} files");
                return reads.refuse(directory, io::ErrorKind::FileTooLarge, text);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn attributes(&self, path: &str) -> io::Result<Attributes> {
        let file = self.root()?.at(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?;
        match kind(&fstat(&file)?) {
            SFlag::S_IFDIR => {}
            _ => is_regular(&file, path)?,
        }
        attributes::read(&file)
    }

    fn trusts_owner(&self, uid: u32) -> bool {
        uid == if self.is_machine { 0 } else { geteuid().as_raw() }
    }
}

impl Files for Directory {
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
        self.create_file(path, content, (mode, uid, gid), None)
    }

    fn create_with(
        &self,
        path: &str,
        content: &[u8],
        metadata: (u32, u32, u32),
        attributes: &Attributes,
    ) -> io::Result<()> {
        self.create_file(path, content, metadata, Some(attributes))
    }

    fn within<'a>(&'a self, directory: &str) -> io::Result<Box<dyn Files + 'a>> {
        let root = Ok(self.root()?.within(directory)?);
        let path = self.path.join(directory.trim_start_matches('/'));
        Ok(Box::new(Directory { path, root, is_machine: self.is_machine, reads: Mutex::default() }))
    }

    fn append(&self, path: &str, content: &[u8]) -> io::Result<()> {
        let file =
            self.root()?.place(path)?.open(OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_NONBLOCK, 0)?;
        is_regular(&file, path)?;
        File::from(file).write_all(content)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (self.root()?.place(from)?, self.root()?.place(to)?);
        Ok(renameat(&from.directory, from.name, &to.directory, to.name)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let place = self.root()?.place(path)?;
        Ok(unlinkat(&place.directory, place.name, UnlinkatFlags::NoRemoveDir)?)
    }

    fn link(&self, path: &str, target: &str, uid: u32, gid: u32) -> io::Result<()> {
        let place = self.root()?.place(path)?;
        symlinkat(target, &place.directory, place.name)?;
        let now = place.stat()?;
        if (now.st_uid, now.st_gid) != (uid, gid) {
            let (uid, gid) = owner(uid, gid);
            fchownat(&place.directory, place.name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW).inspect_err(
                |_| {
                    // Report the first error.
                    let _ = unlinkat(&place.directory, place.name, UnlinkatFlags::NoRemoveDir);
                },
            )?;
        }
        Ok(())
    }

    fn make_directory(&self, path: &str, mode: u32) -> io::Result<()> {
        let place = self.root()?.place(path)?;
        mkdirat(&place.directory, place.name, mode_of(mode))?;
        // The umask may have removed bits.
        let directory = place.open(OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?;
        match fstat(&directory)?.st_mode & 0o7777 == mode {
            true => Ok(()),
            false => Ok(fchmod(directory, mode_of(mode))?),
        }
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        let place = self.root()?.place(path)?;
        Ok(unlinkat(&place.directory, place.name, UnlinkatFlags::RemoveDir)?)
    }

    fn sync(&self, path: &str) -> io::Result<()> {
        let file = self.root()?.at(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?;
        File::from(file).sync_all()
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn std::any::Any>> {
        let place = self.root()?.place(path)?;
        for _ in 0..100 {
            let Some(file) = open_lock(&place, path)? else { continue };
            let about = fstat(&file)?;
            // A file of another user or with a second hard link is locked, but not written to.
            let own = about.st_nlink == 1 && about.st_uid == geteuid().as_raw();
            if file.try_lock().is_err() {
                let mut holder = [0; 64];
                let length = if own { file.read_at(&mut holder, 0).unwrap_or(0) } else { 0 };
                let holder = String::from_utf8_lossy(&holder[..length]).trim().to_owned();
                return Err(io::Error::new(io::ErrorKind::WouldBlock, holder));
            }
            // The last holder removes the file, and a lock on a removed file has no effect.
            if place.stat().is_ok_and(|now| now.st_ino == about.st_ino) {
                if own {
                    // Fixed length, so that it overwrites the previous holder's text.
                    file.write_all_at(format!("process {:<10}\n", std::process::id()).as_bytes(), 0)?;
                }
                let name = place.name.to_owned();
                return Ok(Box::new(Lock { _file: file, directory: place.directory, name }));
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "a process that takes it repeatedly"))
    }

    fn real_path(&self, path: &str) -> String {
        if self.real() { path.to_owned() } else { format!("{}{path}", self.path.display()) }
    }

    fn set_attributes(&self, path: &str, attributes: &Attributes) -> io::Result<()> {
        // Attributes need no descriptor for writing, and a file with mode 0444 may not be opened so.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = self.root()?.place(path)?.open(flags, 0)?;
        is_regular(&file, path)?;
        attributes::set(&file, attributes)
    }
}

/// Opens or creates a lock file; `None` if another process created or removed it meanwhile. Other types
/// are not opened: a device of an image is one of this machine, and opening it may have side effects.
fn open_lock(place: &Place<'_>, path: &str) -> io::Result<Option<File>> {
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    match place.open(OFlag::O_PATH, 0) {
        Ok(seen) => is_regular(&seen, path)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return match place.open(flags | OFlag::O_CREAT | OFlag::O_EXCL, 0o600) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(None),
                created => Ok(Some(created?.into())),
            };
        }
        Err(e) => return Err(e),
    }
    match place.open(flags, 0) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        file => {
            let file = file?;
            is_regular(&file, path)?;
            Ok(Some(file.into()))
        }
    }
}

/// An exclusive lock that removes its file when dropped.
struct Lock {
    _file: File,
    directory: OwnedFd,
    name: String,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A file that is already removed needs no cleanup.
        let _ = unlinkat(&self.directory, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn lock_file_that_is_a_link_is_neither_followed_nor_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(&victim, "precious").unwrap();
        let host = Directory::new(&root);
        std::os::unix::fs::symlink("../victim", root.join("lock")).unwrap();
        assert!(host.lock("/lock").is_err());
        fs::remove_file(root.join("lock")).unwrap();
        fs::hard_link(&victim, root.join("lock")).unwrap();
        drop(host.lock("/lock").unwrap());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn lock_file_that_is_not_regular_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        let host = Directory::new(&root);
        let fifo = root.join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // A reader would see that a writer has opened it: the end of the data instead of an error.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK;
        let reader = nix::fcntl::open(&fifo, flags, nix::sys::stat::Mode::empty()).unwrap();
        let error = host.lock("/fifo").err().unwrap();
        assert_eq!(error.to_string(), "/fifo is not a regular file");
        let mut fds = [nix::poll::PollFd::new(
            std::os::fd::AsFd::as_fd(&reader),
            nix::poll::PollFlags::POLLIN | nix::poll::PollFlags::POLLHUP,
        )];
        // POLLHUP is reported once a writer has opened and closed it (fifo(7)).
        assert_eq!(nix::poll::poll(&mut fds, 0u8).unwrap(), 0);
        assert!(host.lock("/lock").is_ok());
        assert!(!root.join("lock").exists());
    }

    #[test]
    fn no_operation_leaves_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        fs::write(dir.path().join("victim"), "precious").unwrap();
        std::os::unix::fs::symlink(dir.path(), root.join("out")).unwrap();
        std::os::unix::fs::symlink("../victim", root.join("name")).unwrap();
        let host = Directory::new(&root);
        let me = fs::metadata(dir.path()).unwrap();
        assert!(host.create("/out/new", b"", 0o644, me.uid(), me.gid()).is_err());
        assert!(host.create("/name", b"", 0o644, me.uid(), me.gid()).is_err());
        assert!(host.make_directory("/out/new", 0o755).is_err());
        assert!(host.append("/name", b"more").is_err() && host.append("/out/victim", b"more").is_err());
        assert!(host.rename("/out/victim", "/mine").is_err() && host.remove("/out/victim").is_err());
        assert!(
            host.stat("/out/victim").is_err() && host.read("/name").is_err() && host.sync("/name").is_err()
        );
        host.remove("/name").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("victim")).unwrap(), "precious");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn absolute_links_resolve_inside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let host = Directory::new(dir.path());
        host.make_directory("/etc", 0o755).unwrap();
        host.create("/etc/sysctl.conf", b"a = 1\n", 0o644, 0, 0).unwrap_or_else(|_| {
            // Not root: keep the caller as the owner.
            let me = fs::metadata(dir.path()).unwrap();
            host.create("/etc/sysctl.conf", b"a = 1\n", 0o644, me.uid(), me.gid()).unwrap();
        });
        let me = fs::metadata(dir.path()).unwrap();
        host.make_directory("/etc/sysctl.d", 0o755).unwrap();
        for (name, target) in [("absolute", "/etc/sysctl.conf"), ("relative", "../sysctl.conf")] {
            let path = format!("/etc/sysctl.d/{name}");
            host.link(&path, target, me.uid(), me.gid()).unwrap();
            assert_eq!(host.text(&path).as_deref(), Some("a = 1"), "{name}");
            assert_eq!(host.resolve(&path).unwrap(), "/etc/sysctl.conf");
            assert_eq!(host.stat(&path).unwrap().node, Node::Link(target.into()));
        }
        host.link("/etc/out", "../../../../../../etc/sysctl.conf", me.uid(), me.gid()).unwrap();
        assert_eq!(host.resolve("/etc/out").unwrap(), "/etc/sysctl.conf", "`..` stops at the root");
        host.link("/etc/loop", "loop", me.uid(), me.gid()).unwrap();
        assert!(host.resolve("/etc/loop").is_err());
    }

    #[test]
    fn second_lock_is_refused_until_the_first_is_released() {
        let dir = tempfile::tempdir().unwrap();
        let host = Directory::new(dir.path());
        let held = host.lock("/lock").unwrap();
        let refused = host.lock("/lock").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("process"), "{refused}");
        drop(held);
        assert!(!host.exists("/lock"));
        assert!(host.lock("/lock").is_ok());
    }
}
