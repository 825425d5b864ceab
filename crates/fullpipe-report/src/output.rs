//! Report files: a path that cannot be written is an error before the run, and an existing report
//! is replaced completely or not at all.

use crate::{About, Format, UnknownFormat};
use fullpipe_experiment::Results;
use fullpipe_files::Replacement;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that a report will be written to, and its format.
#[derive(Debug)]
pub struct Output {
    format: Format,
    file: AtomicFile,
}

/// A file that is replaced completely, or stays as it was: a [`Replacement`] with its path for
/// errors.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    replacement: Replacement,
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
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let reason = |e: io::Error| match (e.kind(), directory) {
            (io::ErrorKind::IsADirectory, _) => Reason::Directory,
            (io::ErrorKind::NotFound, Some(directory)) if !directory.is_dir() => {
                Reason::NoDirectory(directory.to_owned())
            }
            _ => e.into(),
        };
        let replacement = Replacement::open(path, 0o666)
            .map_err(|e| OutputError { path: path.to_owned(), reason: reason(e) })?;
        Ok(AtomicFile { path: path.to_owned(), replacement })
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
    pub fn write_with(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), OutputError> {
        let AtomicFile { path, replacement } = self;
        let mut out = BufWriter::new(replacement.file());
        let written = write(&mut out).and_then(|()| out.flush());
        drop(out);
        let written = written.and_then(|()| replacement.finish());
        written.map_err(|e| OutputError { path, reason: e.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

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
