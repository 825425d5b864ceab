//! A store's directory, handled through a descriptor: its owner is another user than the root
//! process that prepares it, so no path inside it can be trusted twice.

use super::FILE;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::{Gid, Uid, fchownat};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The name of the budget file.
pub(crate) const BUDGET: &str = "budget";

/// An open directory of a store.
#[derive(Debug)]
pub struct Directory {
    handle: OwnedFd,
    path: PathBuf,
    owner: Uid,
}

/// The files that a node keeps in its directory.
fn file_names() -> [OsString; 5] {
    let database = |suffix: &str| OsString::from(format!("{FILE}{suffix}"));
    [database(""), database("-wal"), database("-shm"), database("-journal"), BUDGET.into()]
}

impl Directory {
    /// Opens the directory at `path`, which is created with this mode if it is missing. Symbolic
    /// links on the way are followed if they belong to root or the caller.
    ///
    /// # Errors
    /// If it cannot be created, is not a directory, or another user's link is on the way.
    pub fn open(path: &Path, mode: u32) -> io::Result<Directory> {
        let handle = fullpipe_files::create_and_open_directory(path, mode)?;
        // As the kernel knows it: without links.
        let path = std::fs::read_link(descriptor_path(&handle))?;
        let owner = Uid::from_raw(fstat(&handle)?.st_uid);
        Ok(Directory { handle, path, owner })
    }

    /// The path of the directory, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this directory whatever its name stands for in the meantime.
    pub fn descriptor_path(&self) -> PathBuf {
        descriptor_path(&self.handle)
    }

    /// The owner of the directory when it was opened.
    pub fn owner(&self) -> Uid {
        self.owner
    }

    /// Makes `uid` and `gid` the owner of the directory and of the store's files in it. Only
    /// regular files with a single link are changed, through the descriptor that was checked,
    /// and only where the owner differs.
    ///
    /// # Errors
    /// If the directory belongs to another user and contains other files than a store's, or a
    /// change of owner fails.
    pub fn give_to(&self, uid: Uid, gid: Gid) -> io::Result<()> {
        if self.owner != uid {
            self.refuse_other_contents()?;
        }
        for (file, stat) in self.store_files()? {
            change_owner(&file, &stat, uid, gid)?;
        }
        change_owner(&self.handle, &fstat(&self.handle)?, uid, gid)
    }

    /// A mistyped `--store` must not give away a system directory.
    fn refuse_other_contents(&self) -> io::Result<()> {
        let known = file_names();
        let handle = File::from(self.handle.try_clone()?);
        let mut directory = nix::dir::Dir::from_fd(handle.into())?;
        for entry in directory.iter() {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let ignored = [".", "..", "lost+found"].contains(&name.as_str());
            if !ignored && !known.iter().any(|known| known.as_os_str() == name.as_str()) {
                let path = self.path.display();
                return Err(io::Error::other(format!(
                    "{path} belongs to another user and contains `{name}`, which is not a store's file"
                )));
            }
        }
        Ok(())
    }

    /// The store's files, opened without following links and without side effects (`O_PATH`).
    fn store_files(&self) -> io::Result<Vec<(OwnedFd, FileStat)>> {
        let mut files = Vec::new();
        for name in file_names() {
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let file = match openat(&self.handle, name.as_os_str(), flags, Mode::empty()) {
                Err(Errno::ENOENT) => continue,
                opened => opened?,
            };
            let stat = fstat(&file)?;
            let regular = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
            if regular && stat.st_nlink == 1 {
                files.push((file, stat));
            }
        }
        Ok(files)
    }
}

fn descriptor_path(handle: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", handle.as_raw_fd()).into()
}

fn change_owner(file: &impl AsFd, stat: &FileStat, uid: Uid, gid: Gid) -> io::Result<()> {
    if stat.st_uid == uid.as_raw() && stat.st_gid == gid.as_raw() {
        return Ok(());
    }
    Ok(fchownat(file, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, lchown, symlink};

    fn inodes(directory: &Directory) -> Vec<u64> {
        directory.store_files().unwrap().iter().map(|(_, stat)| stat.st_ino).collect()
    }

    #[test]
    fn links_and_special_files_in_a_store_never_change_owner() {
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret");
        fs::write(&secret, "root's").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let directory = Directory::open(folder.path(), 0o700).unwrap();
        symlink(&secret, at(FILE)).unwrap();
        fs::hard_link(&secret, at("mesh.db-wal")).unwrap();
        nix::unistd::mkfifo(&at("mesh.db-shm"), Mode::S_IRWXU).unwrap();
        assert!(inodes(&directory).is_empty());
        fs::write(at(BUDGET), "").unwrap();
        let budget = fs::metadata(at(BUDGET)).unwrap().ino();
        assert_eq!(inodes(&directory), [budget]);
        // A file that is exchanged for a link after it was checked keeps its own descriptor.
        let opened = directory.store_files().unwrap();
        fs::rename(at(BUDGET), at("moved")).unwrap();
        symlink(&secret, at(BUDGET)).unwrap();
        let owner = (Uid::from_raw(fs::metadata(&secret).unwrap().uid()), Gid::current());
        change_owner(&opened[0].0, &opened[0].1, owner.0, owner.1).unwrap();
        assert_eq!(fstat(&opened[0].0).unwrap().st_ino, budget);
        assert!(inodes(&directory).is_empty(), "the link in its place is not opened");
    }

    #[test]
    fn a_path_with_a_link_of_another_user_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir_all(real.join("a/store")).unwrap();
        symlink(real.join("a"), real.join("b")).unwrap();
        symlink(real.join("a/store"), real.join("c")).unwrap();
        for name in ["a/store", "b/store", "c"] {
            let directory = Directory::open(&real.join(name), 0o700).unwrap();
            assert_eq!(directory.path(), real.join("a/store"));
            assert_eq!(directory.descriptor_path().canonicalize().unwrap(), real.join("a/store"));
        }
        for link in ["b", "c"] {
            if let Err(e) = lchown(real.join(link), Some(65534), None) {
                println!("SKIPPED: cannot change the owner of a link: {e}");
                return;
            }
        }
        for name in ["b/store", "b/new", "c"] {
            let error = Directory::open(&real.join(name), 0o700).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}: {error}");
        }
        assert!(!real.join("a/new").exists());
    }

    #[test]
    fn a_directory_with_other_files_is_not_given_away() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("passwd"), "").unwrap();
        let directory = Directory::open(folder.path(), 0o700).unwrap();
        let other = Uid::from_raw(directory.owner().as_raw() + 1);
        let error = directory.give_to(other, Gid::current()).unwrap_err().to_string();
        assert!(error.contains("`passwd`, which is not a store's file"), "{error}");
        // Nothing changes where the owner is right already.
        directory
            .give_to(directory.owner(), Gid::from_raw(fs::metadata(folder.path()).unwrap().gid()))
            .unwrap();
    }
}
