//! Files under a directory that stands for a host's root; `/` is this machine. Links are followed inside the
//! directory, never out of it.

use super::{Files, Node, Stat, View, parent, resolve_by};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The files under a directory.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
}

impl Directory {
    /// Takes `root` for a host's `/`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Directory { root: root.into() }
    }

    fn real(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where a path without links is on this machine.
    fn literal(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Where `path` is on this machine, a final link followed.
    fn place(&self, path: &str) -> io::Result<PathBuf> {
        if self.real() { Ok(PathBuf::from(path)) } else { self.resolve(path).map(|p| self.literal(&p)) }
    }

    /// Where the name `path` itself is on this machine, a final link not followed.
    fn name(&self, path: &str) -> io::Result<PathBuf> {
        if self.real() {
            return Ok(PathBuf::from(path));
        }
        let directory = self.resolve(parent(path))?;
        let last = path.rsplit('/').next().unwrap_or_default();
        Ok(self.literal(&format!("{directory}/{last}")))
    }
}

fn stat_of(place: &Path) -> io::Result<Stat> {
    let meta = fs::symlink_metadata(place)?;
    let kind = meta.file_type();
    let node = if kind.is_symlink() {
        Node::Link(fs::read_link(place)?.to_string_lossy().into_owned())
    } else if kind.is_dir() {
        Node::Directory
    } else if kind.is_file() {
        Node::File
    } else {
        Node::Other
    };
    Ok(Stat { node, mode: meta.mode() & 0o7777, uid: meta.uid(), gid: meta.gid() })
}

impl View for Directory {
    fn stat(&self, path: &str) -> io::Result<Stat> {
        stat_of(&self.name(path)?)
    }

    fn stat_literal(&self, path: &str) -> io::Result<Stat> {
        stat_of(&self.literal(path))
    }

    fn resolve(&self, path: &str) -> io::Result<String> {
        resolve_by(path, &|p| self.stat_literal(p))
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        fs::read(self.place(path)?)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut names: Vec<String> = fs::read_dir(self.place(directory)?)?
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        Ok(names)
    }
}

impl Files for Directory {
    fn create(&self, path: &str, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
        let place = self.name(path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place)?;
        let made = (|| {
            file.write_all(content)?;
            let now = file.metadata()?;
            if (now.uid(), now.gid()) != (uid, gid) {
                std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
            }
            // After the owner: changing that clears set-id bits.
            file.set_permissions(fs::Permissions::from_mode(mode))
        })();
        made.inspect_err(|_| {
            // Nothing half-written stays; the first error is the one to tell.
            let _ = fs::remove_file(&place);
        })
    }

    fn append(&self, path: &str, content: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(self.place(path)?)?.write_all(content)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.name(from)?, self.name(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.name(path)?)
    }

    fn link(&self, path: &str, target: &str, uid: u32, gid: u32) -> io::Result<()> {
        let place = self.name(path)?;
        std::os::unix::fs::symlink(target, &place)?;
        let now = fs::symlink_metadata(&place)?;
        if (now.uid(), now.gid()) != (uid, gid) {
            std::os::unix::fs::lchown(&place, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn make_directory(&self, path: &str, mode: u32) -> io::Result<()> {
        let place = self.name(path)?;
        fs::create_dir(&place)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(mode))
    }

    fn remove_directory(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.name(path)?)
    }

    fn sync(&self, path: &str) -> io::Result<()> {
        File::open(self.place(path)?)?.sync_all()
    }

    fn lock(&self, path: &str) -> io::Result<Box<dyn std::any::Any>> {
        let place = self.name(path)?;
        for _ in 0..100 {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&place)?;
            if file.try_lock().is_err() {
                let holder = fs::read_to_string(&place).unwrap_or_default();
                return Err(io::Error::new(io::ErrorKind::WouldBlock, holder.trim().to_owned()));
            }
            // The last holder removes the file: a lock on a removed file excludes nobody.
            let same = fs::metadata(&place).is_ok_and(|m| file.metadata().is_ok_and(|f| f.ino() == m.ino()));
            if same {
                file.set_len(0)?;
                (&file).write_all(format!("process {}\n", std::process::id()).as_bytes())?;
                return Ok(Box::new(Lock { _file: file, place }));
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "a process that keeps taking it"))
    }

    fn copy_labels(&self, from: &str, to: &str) {
        if !self.real() {
            return;
        }
        let mut label = [0u8; 1024];
        if let Ok(length) = rustix::fs::lgetxattr(from, "security.selinux", &mut label[..]) {
            // A file system that takes no labels had none to lose.
            let _ = rustix::fs::lsetxattr(
                to,
                "security.selinux",
                &label[..length],
                rustix::fs::XattrFlags::empty(),
            );
        }
    }
}

/// An exclusive lock that also removes its file, so that a host is left as it was found.
struct Lock {
    _file: File,
    place: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If it is already gone there is nothing to tidy.
        let _ = fs::remove_file(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_inside_the_root_even_when_absolute() {
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
    fn a_second_lock_is_refused_until_the_first_is_gone() {
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
