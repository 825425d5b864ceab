//! Files that take turns: `closed.jsonl` is the one that is written, `closed.1.jsonl` the one before it, and so on.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that is written and those before it.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    /// How many there are at the most, with the one that is written.
    most: u32,
}

impl Files {
    /// Those at `path`, through symbolic links, so that a link stays one.
    pub(super) fn at(path: &Path, most: u32) -> Files {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Files { path, most: most.max(1) }
    }

    /// The one that is written.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is something that is no file, as a pipe: it is written in place, and nothing takes its turn.
    pub(super) fn is_special(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(about) if about.is_dir() => Err(ErrorKind::IsADirectory.into()),
            Ok(about) => Ok(!about.is_file()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Where the `n`th file before the one that is written is.
    fn earlier(&self, n: u32) -> PathBuf {
        let mut name = OsString::from(self.path.file_stem().unwrap_or_default());
        name.push(format!(".{n}"));
        if let Some(extension) = self.path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.path.with_file_name(name)
    }

    /// Moves each file that is there one further, the last away.
    pub(super) fn turn(&self) -> io::Result<()> {
        let absent = |outcome: io::Result<()>| match outcome {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        };
        if self.most == 1 {
            return absent(fs::remove_file(&self.path));
        }
        for n in (1..self.most - 1).rev() {
            absent(fs::rename(self.earlier(n), self.earlier(n + 1)))?;
        }
        absent(fs::rename(&self.path, self.earlier(1)))
    }

    /// A new file at `path`. It tells who spoke with whom: others may not read it.
    pub(super) fn create(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_move_on_and_the_last_one_goes() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::at(&dir.path().join("closed.jsonl"), 3);
        for text in ["a", "b", "c", "d"] {
            files.turn().unwrap();
            fs::write(files.path(), text).unwrap();
        }
        let mut there: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&p).unwrap()))
            .collect();
        there.sort();
        let expected = [("closed.1.jsonl", "c"), ("closed.2.jsonl", "b"), ("closed.jsonl", "d")];
        assert_eq!(there, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let one = Files::at(&dir.path().join("closed.jsonl"), 1);
        one.turn().unwrap();
        assert!(!one.path().exists() && dir.path().join("closed.1.jsonl").exists());
    }
}
