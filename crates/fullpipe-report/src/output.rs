//! A report on its way to a file: whether it can be written is known before the run, and a report
//! that was there before is replaced whole or not at all.

use crate::{About, Format, UnknownFormat};
use fullpipe_experiment::Results;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file that a report will be written to.
#[derive(Debug)]
pub struct Output {
    format: Format,
    to: Replacement,
}

/// A file that will be there whole, or as it was before.
#[derive(Debug)]
pub struct Replacement {
    path: PathBuf,
    file: File,
    /// The unfinished file that will be renamed to `path`; none where `path` is written in place
    /// (devices, pipes).
    partial: Option<PathBuf>,
}

/// Why a report cannot be written: the path and the reason.
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
    /// Makes sure that `path` can be written, without touching what is there.
    ///
    /// # Errors
    /// An extension that no form of report has, a directory that is missing or not writable, a file
    /// that is not.
    pub fn open(path: &Path) -> Result<Output, OutputError> {
        let format =
            Format::of_path(path).map_err(|e| OutputError { path: path.to_owned(), reason: e.into() })?;
        Ok(Output { format, to: Replacement::open(path)? })
    }

    /// The form that the file's name asked for.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Where the report goes.
    pub fn path(&self) -> &Path {
        &self.to.path
    }

    /// Writes the report and puts it in its place.
    ///
    /// # Errors
    /// The disk is full, the pipe was closed.
    pub fn write(self, results: &Results, about: &About) -> Result<(), OutputError> {
        let format = self.format;
        self.write_by(|out| format.write(results, about, out))
    }

    /// Writes what `write` gives and puts it in its place.
    ///
    /// # Errors
    /// The disk is full, the pipe was closed.
    pub fn write_by(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), OutputError> {
        self.to.write_by(write)
    }
}

impl Replacement {
    /// Makes sure that `path` can be written, without touching what is there.
    ///
    /// # Errors
    /// A directory that is missing or not writable, a file that is not.
    pub fn open(path: &Path) -> Result<Replacement, OutputError> {
        let fail = |reason| OutputError { path: path.to_owned(), reason };
        // Through symbolic links, so that the link stays one.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match fs::metadata(&target) {
            Ok(meta) if meta.is_dir() => return Err(fail(Reason::Directory)),
            Ok(meta) if !meta.is_file() => {
                let file = OpenOptions::new().write(true).open(&target).map_err(|e| fail(e.into()))?;
                return Ok(Replacement { path: path.to_owned(), file, partial: None });
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
        Ok(Replacement { path: target, file, partial: Some(partial) })
    }

    /// Puts these bytes at `path`.
    ///
    /// # Errors
    /// As [`Replacement::open`], and when the disk is full.
    pub fn write(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
        Replacement::open(path)?.write_by(|out| out.write_all(bytes))
    }

    /// Writes what `write` gives and puts it in its place.
    ///
    /// # Errors
    /// The disk is full, the pipe was closed.
    pub fn write_by(
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

impl Drop for Replacement {
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
    fn what_cannot_be_written_is_known_beforehand_with_path_and_reason() {
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
    fn an_older_report_stays_until_the_new_one_is_whole() {
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
    fn a_device_is_written_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("null.json");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        Output::open(&link).unwrap().write(&support::race(0.1), &About::default()).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(files(dir.path()), ["null.json"]);
    }
}
