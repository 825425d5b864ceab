//! Files that are replaced completely or stay as they were.

use crate::Location;
use crate::attributes::{self, ACCESS_LIST, CAPABILITY};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::unistd::linkat;
use std::fs::{File, Metadata, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

/// A file that is replaced completely, or stays as it was.
///
/// The new text goes to a temporary file, which an error or a drop before
/// [`finish`](Self::finish) removes. Where the file system can do that it has no name, so that even
/// a killed process leaves nothing, unless it is killed between the two system calls of `finish`
/// that link and rename it.
///
/// The new file has the owner, mode, access list, label and other extended attributes of the old
/// one, but neither set-ID bits nor capabilities. Where they cannot be given to another file, the
/// text is copied into the existing one. A symbolic link is followed; one of another user in a
/// world-writable sticky directory is an error.
#[derive(Debug)]
pub struct Replacement {
    location: Location,
    file: File,
    text: Text,
}

/// Where the new text is.
#[derive(Debug)]
enum Text {
    /// In a temporary file without a name.
    Unnamed,
    /// In a temporary file that will be renamed.
    Named(Location),
    /// In a temporary file that will be copied into the existing one.
    Copied { temporary: Option<Location>, existing: File },
    /// In a device or a pipe, which is written in place.
    InPlace,
}

/// Types of existing files that are written.
#[derive(Clone, Copy)]
enum Types {
    /// Also devices and pipes, in place.
    All,
    /// Only regular files.
    Regular,
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")
}

impl Replacement {
    /// Prepares a new text for the file at `path`, which stays as it is. A file that does not exist
    /// gets `mode` (before the umask).
    ///
    /// # Errors
    /// `IsADirectory`, and the errors of [`Location::resolve`] and openat(2).
    pub fn open(path: &Path, mode: u32) -> io::Result<Replacement> {
        Replacement::at(Location::resolve(path)?, mode, Types::All)
    }

    /// As [`open`](Self::open), but for directories of other users: a symbolic link at `path` is
    /// replaced, not followed, and other types than regular files are neither written nor waited for.
    ///
    /// # Errors
    /// `InvalidInput` for a file that is not regular, and as [`open`](Self::open).
    pub fn open_without_following(path: &Path, mode: u32) -> io::Result<Replacement> {
        Replacement::at(Location::resolve_parent(path)?, mode, Types::Regular)
    }

    fn at(location: Location, mode: u32, types: Types) -> io::Result<Replacement> {
        let existing = match location.metadata()? {
            Some(found) if found.is_dir() => return Err(Errno::EISDIR.into()),
            Some(found) if found.is_symlink() => None,
            Some(found) => {
                let file = match types {
                    // Waits for the reader of a FIFO.
                    Types::All => location.write_when_ready(&|| false)?,
                    // Opening a device may have side effects.
                    Types::Regular if !found.is_file() => return Err(not_regular()),
                    Types::Regular => location.write()?,
                };
                let metadata = file.metadata()?;
                match types {
                    _ if metadata.is_file() => Some((file, metadata)),
                    Types::All => return Ok(Replacement { location, file, text: Text::InPlace }),
                    Types::Regular => return Err(not_regular()),
                }
            }
            None => None,
        };
        let mode = if existing.is_some() { 0o600 } else { mode };
        let (file, temporary) = location.temporary(mode)?;
        // From here on, an error removes it.
        let text = temporary.map_or(Text::Unnamed, Text::Named);
        let mut replacement = Replacement { location, file, text };
        if let Some((existing, metadata)) = existing
            && !take_metadata(&replacement.file, &existing, &metadata)?
        {
            let temporary = match std::mem::replace(&mut replacement.text, Text::Unnamed) {
                Text::Named(temporary) => Some(temporary),
                _ => None,
            };
            replacement.text = Text::Copied { temporary, existing };
        }
        Ok(replacement)
    }

    /// Replaces the file at `path` with `bytes`.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`finish`](Self::finish).
    pub fn write(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
        let replacement = Replacement::open(path, mode)?;
        io::Write::write_all(&mut replacement.file(), bytes)?;
        replacement.finish()
    }

    /// The file for the new text.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Puts the new text in place. After a power failure there is either the old or the new text.
    ///
    /// # Errors
    /// An I/O error, such as a full disk. The file stays as it was, unless its owner or attributes
    /// could not be given to another file.
    pub fn finish(mut self) -> io::Result<()> {
        match &mut self.text {
            Text::InPlace => return Ok(()),
            Text::Copied { existing, .. } => {
                self.file.rewind()?;
                existing.set_len(0)?;
                io::copy(&mut self.file, existing)?;
                return existing.sync_all();
            }
            Text::Unnamed => {
                self.file.sync_all()?;
                let named = self.location.temporary_name()?;
                named.link(&self.file)?;
                // From here on, an error removes it.
                self.text = Text::Named(named);
            }
            Text::Named(_) => self.file.sync_all()?,
        }
        if let Text::Named(named) = &self.text {
            named.rename_to(&self.location)?;
        }
        self.text = Text::InPlace;
        self.location.sync_directory()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Text::Named(temporary) | Text::Copied { temporary: Some(temporary), .. } = &self.text {
            let _ = temporary.remove();
        }
    }
}

impl Location {
    /// A temporary file in the same directory: without a name, or its location.
    fn temporary(&self, mode: u32) -> io::Result<(File, Option<Location>)> {
        match self.open_unnamed(mode) {
            Ok(file) if is_linkable(&file) => Ok((file, None)),
            Ok(_) => self.named_temporary(mode),
            // Not all file systems have them (openat(2)); older kernels take it for a directory.
            Err(e)
                if matches!(
                    e.raw_os_error().map(Errno::from_raw),
                    Some(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::ENOENT | Errno::EINVAL)
                ) =>
            {
                self.named_temporary(mode)
            }
            Err(e) => Err(e),
        }
    }

    fn named_temporary(&self, mode: u32) -> io::Result<(File, Option<Location>)> {
        let location = self.temporary_name()?;
        Ok((location.create_new(mode)?, Some(location)))
    }

    /// A random name that shows what it belongs to.
    fn temporary_name(&self) -> io::Result<Location> {
        let random = RandomState::new().build_hasher().finish();
        self.sibling(format!(".{}.{random:016x}.part", self.name().to_string_lossy()))
    }

    fn open_unnamed(&self, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_TMPFILE | OFlag::O_RDWR;
        Ok(crate::open_at(&self.directory, std::ffi::OsStr::new("."), flags, mode)?.into())
    }

    /// Gives the name to a file without one.
    fn link(&self, file: &File) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(AT_FDCWD, path.as_str(), &self.directory, &*self.name, AtFlags::AT_SYMLINK_FOLLOW)?)
    }

    fn sync_directory(&self) -> io::Result<()> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        match crate::open_at(&self.directory, std::ffi::OsStr::new("."), flags, 0) {
            Ok(directory) => match File::from(directory).sync_all() {
                // Not all file systems can.
                Err(e) if e.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(()),
                synced => synced,
            },
            // A directory that may be written but not read.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// Whether a file without a name can be given one later, which takes procfs.
fn is_linkable(file: &File) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let same = |found: Metadata| file.metadata().is_ok_and(|own| own.ino() == found.ino());
    std::fs::metadata(path).is_ok_and(same)
}

/// Gives a temporary file the owner, mode and extended attributes of the existing file, without
/// set-ID bits and capabilities. Returns whether that was possible.
fn take_metadata(file: &File, existing: &File, metadata: &Metadata) -> io::Result<bool> {
    let own = file.metadata()?;
    let is_same = (own.uid(), own.gid()) == (metadata.uid(), metadata.gid());
    if !is_same && fchown(file, Some(metadata.uid()), Some(metadata.gid())).is_err() {
        return Ok(false);
    }
    let Ok(mut wanted) = attributes::read(existing) else { return Ok(false) };
    wanted.remove(CAPABILITY);
    // With an access list the bits of the group are its mask. Until the list is set they would be
    // permissions of the group itself.
    let bits = if wanted.contains_key(ACCESS_LIST) { 0o700 } else { 0o777 };
    file.set_permissions(Permissions::from_mode(metadata.mode() & bits))?;
    // Labels that cannot be set are no error there.
    Ok(attributes::set(file, &wanted).is_ok() && attributes::read(file).is_ok_and(|now| now == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_testing::access_list;
    use std::fs;
    use std::io::Write;

    fn names(directory: &Path) -> Vec<String> {
        fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn access_list_and_attributes_of_an_existing_file_are_kept_and_capabilities_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        fs::write(&path, "old").unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let wanted = [(ACCESS_LIST.to_owned(), access_list()), ("user.note".to_owned(), b"kept".to_vec())];
        if let Err(e) = attributes::set(&file, &wanted.into()) {
            assert!(std::env::var_os("CI").is_none(), "no access lists: {e}");
            println!("SKIPPED: no access lists here: {e}");
            return;
        }
        let metadata =
            |file: &File| (attributes::read(file).unwrap(), file.metadata().unwrap().mode() & 0o7777);
        let before = metadata(&file);
        assert_eq!(before.1, 0o660);
        // CAP_NET_RAW in the form of linux/capability.h, version 2.
        let mut capability = [0; 20];
        (capability[3], capability[5]) = (2, 0x20);
        let with = [(CAPABILITY.to_owned(), capability.to_vec())].into_iter().chain(before.0.clone());
        if let Err(e) = attributes::set(&file, &with.collect()) {
            println!("SKIPPED capabilities: {e}");
        }
        Replacement::write(&path, 0o666, b"new").unwrap();
        let after = fs::File::open(&path).unwrap();
        assert_eq!(metadata(&after), before);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_ne!(after.metadata().unwrap().ino(), file.metadata().unwrap().ino(), "written in place");
        assert_eq!(names(dir.path()), ["report"]);
    }

    #[test]
    fn an_error_removes_the_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("report"), "old").unwrap();
        let location = Location::resolve(&dir.path().join("report")).unwrap();
        let (file, temporary) = location.named_temporary(0o600).unwrap();
        // A directory cannot be replaced by a file.
        fs::remove_file(dir.path().join("report")).unwrap();
        fs::create_dir(dir.path().join("report")).unwrap();
        let text = Text::Named(temporary.unwrap());
        Replacement { location, file, text }.finish().unwrap_err();
        assert_eq!(names(dir.path()), ["report"]);
    }

    #[test]
    fn nothing_is_left_of_a_replacement_that_is_not_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        for existing in [false, true] {
            let replacement = Replacement::open(&path, 0o666).unwrap();
            replacement.file().write_all(b"half").unwrap();
            let unnamed = matches!(replacement.text, Text::Unnamed);
            // As if the process were killed: on these file systems, there is no name to remove.
            if unnamed {
                assert_eq!(names(dir.path()), if existing { vec!["report"] } else { vec![] });
            }
            drop(replacement);
            assert_eq!(names(dir.path()), if existing { vec!["report"] } else { vec![] });
            fs::write(&path, "old").unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    }

    #[test]
    fn replacements_with_and_without_temporary_names_are_complete() {
        let dir = tempfile::tempdir().unwrap();
        let location = || Location::resolve(&dir.path().join("report")).unwrap();
        for bytes in [b"first", b"other"] {
            let (file, temporary) = location().named_temporary(0o640).unwrap();
            let text = Text::Named(temporary.unwrap());
            (&file).write_all(bytes).unwrap();
            Replacement { location: location(), file, text }.finish().unwrap();
            assert_eq!(fs::read(dir.path().join("report")).unwrap(), bytes);
            assert_eq!(names(dir.path()), ["report"]);
        }
        let existing = location().write().unwrap();
        let inode = existing.metadata().unwrap().ino();
        let (file, temporary) = location().named_temporary(0o600).unwrap();
        (&file).write_all(b"new").unwrap();
        let text = Text::Copied { temporary, existing };
        Replacement { location: location(), file, text }.finish().unwrap();
        assert_eq!(fs::read(dir.path().join("report")).unwrap(), b"new");
        assert_eq!(fs::metadata(dir.path().join("report")).unwrap().ino(), inode);
        assert_eq!(names(dir.path()), ["report"]);
    }

    #[test]
    fn a_fifo_in_a_directory_of_others_is_neither_waited_for_nor_written() {
        use nix::sys::stat::Mode;
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let error = || Replacement::open_without_following(&fifo, 0o644).unwrap_err().to_string();
        assert_eq!(error(), "not a regular file");
        let _reader = nix::fcntl::open(&fifo, OFlag::O_RDONLY | OFlag::O_NONBLOCK, Mode::empty()).unwrap();
        assert_eq!(error(), "not a regular file");
        assert_eq!(names(dir.path()), ["fifo"]);
    }

    #[test]
    fn a_link_in_a_directory_of_others_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("target"), "as before").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("target", &link).unwrap();
        let replacement = Replacement::open_without_following(&link, 0o644).unwrap();
        replacement.file().write_all(b"text").unwrap();
        replacement.finish().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("target")).unwrap(), "as before");
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
        assert_eq!(fs::read_to_string(&link).unwrap(), "text");
    }
}
