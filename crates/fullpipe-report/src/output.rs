//! Report files: a path that cannot be written is an error before the run, and an existing report
//! is replaced completely or not at all.

use crate::{About, Format, UnknownFormat};
use fullpipe_experiment::Results;
use fullpipe_files::Location;
use std::fs::{self, File, Permissions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// A file that a report will be written to, and its format.
#[derive(Debug)]
pub struct Output {
    format: Format,
    file: AtomicFile,
}

/// A file that is replaced completely, or stays as it was. A symbolic link stays one, unless it
/// belongs to another user in a directory that everybody may write; that is an error. The mode and
/// the owner of an existing file are kept.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    location: Location,
    file: File,
    /// The temporary file that will be renamed; `None` for a device or a pipe, which are written in
    /// place.
    partial: Option<Location>,
    /// The existing file, if its owner cannot be given to another file: the temporary file is
    /// copied into it.
    existing: Option<File>,
}

/// A report could not be written: the path and the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {reason}", .path.display())]
pub struct OutputError {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error(transparent)]
    Format(#[from] UnknownFormat),
    #[error("it is a directory")]
    Directory,
    #[error("the directory {} does not exist", .0.display())]
    NoDirectory(PathBuf),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Output {
    /// Checks that `path` can be written, without changing an existing file.
    ///
    /// # Errors
    /// The extension is not that of a report format, or the directory or file is missing or not
    /// writable.
    pub fn open(path: &Path) -> Result<Output, OutputError> {
        let format =
            Format::from_path(path).map_err(|e| OutputError { path: path.to_owned(), reason: e.into() })?;
        Ok(Output { format, file: AtomicFile::open(path)? })
    }

    /// The format, from the file's extension.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The path of the report.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Writes the report.
    ///
    /// # Errors
    /// An I/O error, as when the disk is full or the pipe was closed.
    pub fn write(self, results: &Results, about: &About) -> Result<(), OutputError> {
        let format = self.format;
        self.write_with(|out| format.write(results, about, out))
    }

    /// Writes the output of `write` and puts the file in place.
    ///
    /// # Errors
    /// An I/O error, as when the disk is full or the pipe was closed.
    pub fn write_with(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), OutputError> {
        self.file.write_with(write)
    }
}

impl AtomicFile {
    /// Checks that `path` can be written, without changing an existing file.
    ///
    /// # Errors
    /// The directory or file is missing or not writable.
    pub fn open(path: &Path) -> Result<AtomicFile, OutputError> {
        let fail = |reason| OutputError { path: path.to_owned(), reason };
        let io = |e: io::Error| fail(e.into());
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let location = Location::resolve(path).map_err(|e| match directory {
            Some(directory) if e.kind() == io::ErrorKind::NotFound && !directory.is_dir() => {
                fail(Reason::NoDirectory(directory.to_owned()))
            }
            _ => io(e),
        })?;
        let existing = match location.metadata().map_err(io)? {
            Some(found) if found.is_dir() => return Err(fail(Reason::Directory)),
            Some(_) => {
                // Waits for the reader of a FIFO.
                let file = location.write_when_ready(&|| false).map_err(io)?;
                let opened = file.metadata().map_err(io)?;
                if !opened.is_file() {
                    let path = path.to_owned();
                    return Ok(AtomicFile { path, location, file, partial: None, existing: None });
                }
                Some((file, opened))
            }
            None => None,
        };
        let name = location.name().to_string_lossy();
        let name = format!(".{name}.{:016x}.part", RandomState::new().build_hasher().finish());
        let partial = location.sibling(name).map_err(io)?;
        let mode = if existing.is_some() { 0o600 } else { 0o666 };
        let file = partial.create_new(mode).map_err(io)?;
        let path = path.to_owned();
        let mut output = AtomicFile { path, location, file, partial: Some(partial), existing: None };
        if let Some((existing, metadata)) = existing {
            let is_kept = output.take_owner_and_mode(&metadata).map_err(io)?;
            output.existing = Some(existing).filter(|_| !is_kept);
        }
        Ok(output)
    }

    /// Gives the temporary file the owner and the mode of an existing file. Returns whether the
    /// owner was allowed.
    fn take_owner_and_mode(&self, existing: &fs::Metadata) -> io::Result<bool> {
        let own = self.file.metadata()?;
        let is_same = (own.uid(), own.gid()) == (existing.uid(), existing.gid());
        if !is_same && fchown(&self.file, Some(existing.uid()), Some(existing.gid())).is_err() {
            return Ok(false);
        }
        self.file.set_permissions(Permissions::from_mode(existing.mode() & 0o777))?;
        Ok(true)
    }

    /// Writes `bytes` to `path`.
    ///
    /// # Errors
    /// As [`AtomicFile::open`], or an I/O error.
    pub fn write(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
        AtomicFile::open(path)?.write_with(|out| out.write_all(bytes))
    }

    /// Writes the output of `write` and puts the file in place.
    ///
    /// # Errors
    /// An I/O error, as when the disk is full or the pipe was closed.
    pub fn write_with(
        mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), OutputError> {
        let fail = |path: &Path, e: io::Error| OutputError { path: path.to_owned(), reason: e.into() };
        let mut out = BufWriter::new(&self.file);
        let written = write(&mut out).and_then(|()| out.flush());
        drop(out);
        written.map_err(|e| fail(&self.path, e))?;
        if let Some(existing) = &mut self.existing {
            let copied = self.file.rewind().and_then(|()| existing.set_len(0));
            copied.and_then(|()| io::copy(&mut self.file, existing)).map_err(|e| fail(&self.path, e))?;
        } else if let Some(partial) = &self.partial {
            partial.rename_to(&self.location).map_err(|e| fail(&self.path, e))?;
            self.partial = None;
        }
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = partial.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;

    fn files(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn unwritable_paths_are_errors_before_writing() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("no/such/report.html");
        let e = Output::open(&missing).unwrap_err().to_string();
        assert!(e.contains("no/such/report.html") && e.contains("does not exist"), "{e}");
        let e = Output::open(&dir.path().join("x.docx")).unwrap_err().to_string();
        assert!(e.contains("x.docx") && e.contains(".html"), "{e}");
        fs::create_dir(dir.path().join("d.html")).unwrap();
        let e = Output::open(&dir.path().join("d.html")).unwrap_err().to_string();
        assert!(e.contains("directory"), "{e}");
        assert_eq!(files(dir.path()), ["d.html"]);
    }

    #[test]
    fn existing_report_stays_until_the_new_one_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, "old").unwrap();
        drop(Output::open(&path).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(files(dir.path()), ["r.json"]);
        Output::open(&path).unwrap().write(&support::race(0.1), &About::default()).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("{\"schema\""));
        assert_eq!(files(dir.path()), ["r.json"]);
    }

    #[test]
    fn mode_and_owner_of_an_existing_file_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        // Only root can give files away.
        let _ = std::os::unix::fs::chown(&path, Some(54_321), Some(12_345));
        let before = fs::metadata(&path).unwrap();
        AtomicFile::write(&path, b"new").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!((after.mode(), after.uid(), after.gid()), (before.mode(), before.uid(), before.gid()));
        assert_eq!(files(dir.path()), ["r.json"]);
    }

    #[test]
    fn file_whose_owner_cannot_be_kept_is_written_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, "a long old report").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        let mut output = AtomicFile::open(&path).unwrap();
        // As after a refused fchown.
        output.existing = Some(fs::OpenOptions::new().write(true).open(&path).unwrap());
        output.write_with(|out| out.write_all(b"new")).unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), fs::metadata(&path).unwrap().ino()),
            ("new", inode)
        );
        assert_eq!(files(dir.path()), ["r.json"]);
    }

    #[test]
    fn link_of_another_user_in_a_shared_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, target) = (dir.path().join("shared"), dir.path().join("target.json"));
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        fs::write(&target, "secret").unwrap();
        let link = shared.join("report.json");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        // Only root can give links away.
        if std::os::unix::fs::lchown(&link, Some(54_321), None).is_err() {
            return;
        }
        let e = Output::open(&link).unwrap_err().to_string();
        assert!(e.contains("report.json") && e.contains("another user"), "{e}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "secret");
        assert_eq!(files(&shared), ["report.json"]);
    }

    #[test]
    fn device_is_written_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("null.json");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        Output::open(&link).unwrap().write(&support::race(0.1), &About::default()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(files(dir.path()), ["null.json"]);
    }
}
