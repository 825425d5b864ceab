//! Paths confined to a root directory: neither `..`, nor links (absolute, or replaced during the
//! lookup), nor the magic links of /proc lead out. openat2(2) does this with `RESOLVE_IN_ROOT`
//! since Linux 5.6; before that each component is opened relative to the previous one.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Largest file that is read. The largest needed, modules.dep, has some 2 MB, and an image is
/// untrusted.
pub const MAX_FILE_SIZE: u64 = 16 << 20;

/// Retries of a lookup that concurrent renames interrupted.
const MAX_RETRIES: usize = 100;

/// An open directory that is a root.
#[derive(Debug)]
pub struct Root(OwnedFd);

/// A name in an open directory.
pub struct Place<'a> {
    pub directory: OwnedFd,
    pub name: &'a str,
}

impl Root {
    /// Opens a directory of this machine as the root.
    pub fn open(path: &Path) -> io::Result<Root> {
        Ok(Root(open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?))
    }

    /// Opens `path`, every link followed inside the root.
    pub fn at(&self, path: &str, flags: OFlag) -> io::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
        for _ in 0..MAX_RETRIES {
            match openat2(&self.0, path, how) {
                // A concurrent rename or mount during `..`.
                Err(Errno::EAGAIN) => {}
                // A kernel before 5.6, or a seccomp filter.
                Err(Errno::ENOSYS | Errno::EPERM) => return Ok(self.walk(path, flags)?),
                outcome => return Ok(outcome?),
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// [`Root::at`], component by component.
    fn walk(&self, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
        let step = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let backwards = |path: &str| path.rsplit('/').map(str::to_owned).collect::<Vec<_>>();
        let mut pending = backwards(path);
        let mut way: Vec<OwnedFd> = Vec::new();
        let mut links = 0;
        while let Some(component) = pending.pop() {
            let here = way.last().unwrap_or(&self.0);
            match component.as_str() {
                "" | "." => continue,
                ".." => {
                    way.pop();
                    continue;
                }
                name => match readlinkat(here, name) {
                    Ok(target) => {
                        links += 1;
                        if links > 40 {
                            return Err(Errno::ELOOP);
                        }
                        let target = target.into_string().map_err(|_| Errno::EILSEQ)?;
                        if target.starts_with('/') {
                            way.clear();
                        }
                        pending.extend(backwards(&target));
                    }
                    // A link created in the meantime is refused, not followed.
                    Err(Errno::EINVAL) if pending.iter().all(|c| c.is_empty() || c == ".") => {
                        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                        return openat(here, name, flags, Mode::empty());
                    }
                    Err(Errno::EINVAL) => {
                        let next = openat(here, name, step, Mode::empty())?;
                        way.push(next);
                    }
                    Err(e) => return Err(e),
                },
            }
        }
        openat(way.last().unwrap_or(&self.0), ".", flags | OFlag::O_CLOEXEC, Mode::empty())
    }

    /// The name that `path` ends with, in its directory; a link of that name is not followed.
    pub fn place<'a>(&self, path: &'a str) -> io::Result<Place<'a>> {
        let (directory, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
        if ["", ".", ".."].contains(&name) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("`{path}` has no file name")));
        }
        let directory = if directory.is_empty() { "/" } else { directory };
        Ok(Place { directory: self.at(directory, OFlag::O_PATH | OFlag::O_DIRECTORY)?, name })
    }

    /// Content of the regular file that `path` leads to.
    #[cfg(test)]
    pub fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        read_bounded(&self.regular(path)?, path)
    }

    /// Opens the regular file that `path` leads to. Other types are not opened: a pipe would block, a
    /// device may be endless or have side effects.
    pub fn regular(&self, path: &str) -> io::Result<File> {
        is_regular(&self.at(path, OFlag::O_PATH)?, path)?;
        let file = self.at(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)?;
        is_regular(&file, path)?;
        Ok(File::from(file))
    }

    /// A directory as a root of its own; its name is not followed if it is a link.
    pub fn within(&self, path: &str) -> io::Result<Root> {
        Ok(Root(self.place(path)?.open(OFlag::O_PATH | OFlag::O_DIRECTORY, 0)?))
    }
}

/// An open object: what is read from it belongs to it, whatever its name leads to now.
pub struct Opened {
    /// Its status.
    pub about: FileStat,
    /// The target of a symbolic link.
    pub target: Option<String>,
    /// The content of a regular file.
    file: Option<File>,
}

impl Opened {
    /// The descriptor of a regular file.
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// The content of a regular file, of bounded size; empty for other types.
    pub fn content(&self, path: &str) -> io::Result<Vec<u8>> {
        self.file.as_ref().map_or(Ok(Vec::new()), |file| read_bounded(file, path))
    }
}

/// Content of an open file of bounded size.
pub fn read_bounded(file: &File, path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_SIZE {
        let text = format!("{path} is larger than {} MiB", MAX_FILE_SIZE >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

impl Place<'_> {
    /// Opens the object of this name; a link is not followed, and only a regular file is opened for
    /// reading.
    pub fn object(&self) -> io::Result<Opened> {
        for _ in 0..MAX_RETRIES {
            let seen = self.open(OFlag::O_PATH, 0)?;
            let about = fstat(&seen)?;
            match kind(&about) {
                SFlag::S_IFLNK => {
                    let target = readlinkat(&seen, "")?.to_string_lossy().into_owned();
                    return Ok(Opened { about, target: Some(target), file: None });
                }
                SFlag::S_IFREG => {}
                _ => return Ok(Opened { about, target: None, file: None }),
            }
            match self.open(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY, 0) {
                Ok(file) => {
                    let now = fstat(&file)?;
                    if (now.st_dev, now.st_ino) == (about.st_dev, about.st_ino) {
                        return Ok(Opened { about: now, target: None, file: Some(file.into()) });
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if e.raw_os_error() == Some(Errno::ELOOP as i32) => {}
                Err(e) => return Err(e),
            }
            // Replaced in the meantime.
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Opens the name itself.
    pub fn open(&self, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.directory, self.name, flags, Mode::from_bits_truncate(mode))?)
    }

    /// Status of the name itself.
    pub fn stat(&self) -> io::Result<FileStat> {
        Ok(fstatat(&self.directory, self.name, AtFlags::AT_SYMLINK_NOFOLLOW)?)
    }
}

/// File type.
pub fn kind(about: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT
}

/// Fails unless the file is regular.
pub fn is_regular(file: &OwnedFd, path: &str) -> io::Result<()> {
    match kind(&fstat(file)?) {
        SFlag::S_IFREG => Ok(()),
        SFlag::S_IFDIR => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is not a regular file"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_path_leaves_the_root_with_either_method() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "outside").unwrap();
        let root = outside.path().join("root");
        std::fs::create_dir_all(root.join("etc/deep")).unwrap();
        std::fs::write(root.join("etc/file"), "inside").unwrap();
        let up = outside.path().join("secret");
        let absolute = up.to_str().unwrap();
        for (name, target) in [
            ("absolute", absolute),
            ("relative", "../../secret"),
            ("deep/up", "../../../secret"),
            ("directory", outside.path().to_str().unwrap()),
            ("loop", "loop"),
            ("good", "/etc/../etc/deep/.././file"),
        ] {
            symlink(target, root.join("etc").join(name)).unwrap();
        }
        let root = Root::open(&root).unwrap();
        let text = |file: io::Result<OwnedFd>| {
            let mut text = String::new();
            File::from(file?).read_to_string(&mut text).map(|_| text)
        };
        for method in ["openat2", "step by step"] {
            let open = |path: &str| match method {
                "openat2" => root.at(path, OFlag::O_RDONLY),
                _ => Ok(root.walk(path, OFlag::O_RDONLY)?),
            };
            for inside in ["/etc/good", "etc/file", "/../../etc/./file", "/etc/deep/../good"] {
                assert_eq!(text(open(inside)).unwrap(), "inside", "{method}: {inside}");
            }
            let out = [
                "/etc/absolute",
                "/etc/relative",
                "/etc/deep/up",
                "/etc/directory/secret",
                "/../secret",
                "/etc/loop",
            ];
            for path in out {
                assert!(open(path).is_err(), "{method}: {path} leads out");
            }
        }
    }

    #[test]
    fn an_open_directory_and_an_open_file_are_read_whatever_their_names_lead_to_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for (name, text) in [("state", "genuine"), ("other", "forged")] {
            std::fs::create_dir(path(name)).unwrap();
            std::fs::write(path(name).join("file"), text).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        let state = root.within("/state").unwrap();
        let place = root.place("/state/file").unwrap();
        let opened = place.object().unwrap();
        std::fs::rename(path("state"), path("moved")).unwrap();
        std::fs::rename(path("other"), path("state")).unwrap();
        assert_eq!(root.read("/state/file").unwrap(), b"forged");
        assert_eq!(state.place("/file").unwrap().object().unwrap().content("").unwrap(), b"genuine");
        assert_eq!(place.object().unwrap().content("").unwrap(), b"genuine");
        // The file itself is replaced between the status and the content.
        std::fs::write(path("new"), "forged").unwrap();
        std::fs::rename(path("new"), path("moved/file")).unwrap();
        assert_eq!(opened.content("").unwrap(), b"genuine");
        symlink("state", path("link")).unwrap();
        assert!(root.within("/link").is_err(), "a link is not followed");
        assert!(root.within("/state/file").is_err());
    }

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let error = root.read("/fifo").unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
        let large = File::create(dir.path().join("large")).unwrap();
        large.set_len(MAX_FILE_SIZE + 1).unwrap();
        assert_eq!(root.read("/large").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        large.set_len(MAX_FILE_SIZE).unwrap();
        assert_eq!(root.read("/large").unwrap().len() as u64, MAX_FILE_SIZE);
        assert_eq!(root.read("/").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
