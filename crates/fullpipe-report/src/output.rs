//! Report files: a path that cannot be written is an error before the run, and an existing report is replaced completely
//! or not at all.

use crate::{About, Format, UnknownFormat};
use fullpipe_experiment::Results;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that a report will be written to, and its format.
#[derive(Debug)]
pub struct Output {
    format: Format,
    file: AtomicFile,
}

/// A file that is replaced completely, or stays as it was.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    file: File,
    /// The temporary file that will be renamed to `path`; `None` if `path` is a device or a pipe, which are written in
    /// place.
    partial: Option<PathBuf>,
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
    /// The extension is not that of a report format, or the directory or file is missing or not writable.
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
        // Through symbolic links, so that the link stays one.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&target) {
            Ok(meta) if meta.is_dir() => return Err(fail(Reason::Directory)),
            Ok(meta) if !meta.is_file() => {
                let file = OpenOptions::new().write(true).open(&target).map_err(|e| fail(e.into()))?;
                return Ok(AtomicFile { path: path.to_owned(), file, partial: None });
            }
            Ok(_) => drop(OpenOptions::new().write(true).open(&target).map_err(|e| fail(e.into()))?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(fail(e.into())),
        }
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        if !directory.is_dir() {
            return Err(fail(Reason::NoDirectory(directory)));
        }
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let partial = directory.join(format!(".{name}.{}.part", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&partial);
        let file = file.map_err(|e| fail(e.into()))?;
        Ok(AtomicFile { path: target, file, partial: Some(partial) })
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
        if let Some(partial) = &self.partial {
            fs::rename(partial, &self.path).map_err(|e| fail(&self.path, e))?;
            self.partial = None;
        }
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = fs::remove_file(partial);
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
    fn device_is_written_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("null.json");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        Output::open(&link).unwrap().write(&support::race(0.1), &About::default()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(files(dir.path()), ["null.json"]);
    }
}
