//! Files under a directory that stands for a host's root; `/` is this machine. Links are followed
//! inside the directory, never out of it.

use super::rooted::{Root, is_regular, kind};
use super::{Attributes, Files, Node, Stat, View};
use fullpipe_kernel::xattr;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, readlinkat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, geteuid, symlinkat, unlinkat};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The files under a directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Opened once, so that a later rename of the path has no effect.
    root: Result<Root, io::ErrorKind>,
}

impl Directory {
    /// Uses `root` as a host's `/`. If it cannot be opened every operation fails with that error.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let path = root.into();
        Directory { root: Root::open(&path).map_err(|e| e.kind()), path }
    }

    fn real(&self) -> bool {
        self.path == Path::new("/")
    }

    fn root(&self) -> io::Result<&Root> {
        self.root.as_ref().map_err(|&kind| kind.into())
    }
}

fn owner(uid: u32, gid: u32) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_bits_truncate(mode)
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
        let node = match kind(&about) {
            SFlag::S_IFLNK => {
                let target = readlinkat(&place.directory, place.name)?;
                Node::Link(target.to_string_lossy().into_owned())
            }
            SFlag::S_IFDIR => Node::Directory,
            SFlag::S_IFREG => Node::File,
            _ => Node::Other,
        };
        let (mode, links) = (about.st_mode & 0o7777, about.st_nlink);
        #[allow(clippy::useless_conversion, reason = "32 bits on other architectures")]
        Ok(Stat { node, mode, uid: about.st_uid, gid: about.st_gid, links: links.into() })
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.root()?.read(path)
    }

    fn size(&self, path: &str) -> io::Result<u64> {
        Ok(fstat(self.root()?.at(path, OFlag::O_PATH)?)?.st_size.try_into().unwrap_or(0))
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let directory = self.root()?.at(directory, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        let mut names: Vec<String> = Dir::from_fd(directory)?
            .into_iter()
            .map_while(Result::ok)
            .filter_map(|e| e.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| name != "." && name != "..")
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn attributes(&self, path: &str) -> io::Result<Attributes> {
        let file = self.root()?.at(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?;
        is_regular(&file, path)?;
        read_attributes(&file)
    }

    fn user(&self) -> u32 {
        geteuid().as_raw()
    }
}

impl Files for Directory {
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
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
            Ok(fchmod(&file, mode_of(mode))?)
        })();
        made.inspect_err(|_: &io::Error| {
            // Remove a partial file, and report the first error.
            let _ = unlinkat(&place.directory, place.name, UnlinkatFlags::NoRemoveDir);
        })
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
            fchownat(&place.directory, place.name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?;
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
            let file = File::from(place.open(OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NONBLOCK, 0o600)?);
            let about = fstat(&file)?;
            // A file of another user or with a second hard link is locked, but not written to.
            let own =
                kind(&about) == SFlag::S_IFREG && about.st_nlink == 1 && about.st_uid == geteuid().as_raw();
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
        Err(io::Error::new(io::ErrorKind::WouldBlock, "a process that takes it again and again"))
    }

    fn real_path(&self, path: &str) -> String {
        if self.real() { path.to_owned() } else { format!("{}{path}", self.path.display()) }
    }

    fn set_attributes(&self, path: &str, attributes: &Attributes) -> io::Result<()> {
        // Attributes need no descriptor for writing, and a file with mode 0444 may not be opened so.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = self.root()?.place(path)?.open(flags, 0)?;
        is_regular(&file, path)?;
        let failed = |name: &str, e: io::Error| {
            let text = format!("the extended attribute {name} cannot be kept ({e})");
            io::Error::new(e.kind(), text)
        };
        let now = read_attributes(&file)?;
        for name in INHERITED.iter().filter(|&&name| now.contains_key(name) && !attributes.contains_key(name))
        {
            xattr::remove_file(&file, &c_name(name)?).map_err(|e| failed(name, e))?;
        }
        for (name, value) in attributes.iter().filter(|(name, value)| now.get(*name) != Some(value)) {
            match set_attribute(&file, name, value) {
                Err(e) if is_label(name) && is_refusal(&e) => {}
                outcome => outcome.map_err(|e| failed(name, e))?,
            }
        }
        Ok(())
    }
}

/// Attribute of an access list (acl(5)).
pub(crate) const ACCESS_LIST: &str = "system.posix_acl_access";

/// Attributes that a new file can get from its directory. File systems list others that cannot be
/// removed, such as `system.nfs4_acl` on NFS.
const INHERITED: [&str; 2] = [ACCESS_LIST, "btrfs.compression"];

/// Whether the file system or the security policy refuses an attribute.
fn is_refusal(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
}

/// Whether an attribute is a label of a security module, which the kernel sets by its own policy.
pub fn is_label(name: &str) -> bool {
    name.starts_with("security.")
}

fn set_attribute(file: &OwnedFd, name: &str, value: &[u8]) -> io::Result<()> {
    match xattr::set_file(file, &c_name(name)?, value) {
        // The kernel asks for the permission to write the file, even of its owner (xattr_permission).
        Err(e) if name.starts_with("user.") && e.kind() == io::ErrorKind::PermissionDenied => {
            let mode = fstat(file)?.st_mode & 0o7777;
            fchmod(file, mode_of(mode | 0o200))?;
            let outcome = xattr::set_file(file, &c_name(name)?, value);
            fchmod(file, mode_of(mode))?;
            outcome
        }
        outcome => outcome,
    }
}

fn c_name(name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The attributes of an open file.
fn read_attributes(file: &OwnedFd) -> io::Result<Attributes> {
    /// Checksums that the kernel computes from a file's content and inode, and XFS' own form of an
    /// access list, which `system.posix_acl_access` sets.
    const COMPUTED: [&str; 3] = ["security.ima", "security.evm", "trusted.SGI_ACL_FILE"];
    /// Bound of one value (XATTR_SIZE_MAX) and of all: an image is untrusted.
    const MAX_VALUE: usize = 65_536;
    const MAX_TOTAL: usize = 1 << 20;
    let none = |e: &io::Error| e.kind() == io::ErrorKind::Unsupported;
    let names = match xattr::names(file) {
        Err(e) if none(&e) => return Ok(Attributes::new()),
        names => names?,
    };
    let mut all = Attributes::new();
    let mut total = 0;
    let mut value = vec![0; MAX_VALUE];
    for name in names {
        let Ok(text) = name.to_str().map(str::to_owned) else {
            return Err(io::Error::other("the name of an extended attribute is not UTF-8"));
        };
        if COMPUTED.contains(&text.as_str()) {
            continue;
        }
        let length = match xattr::get_file(file, &name, &mut value) {
            // Removed since, or listed by the file system without a value.
            Err(e) if none(&e) || e.raw_os_error() == Some(Errno::ENODATA as i32) => continue,
            length => length?,
        };
        total += text.len() + length;
        if total > MAX_TOTAL {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "extended attributes of more than 1 MiB",
            ));
        }
        all.insert(text, value[..length].to_vec());
    }
    Ok(all)
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
