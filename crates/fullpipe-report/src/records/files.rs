//! Log rotation: `closed.jsonl` is the current file, `closed.1.jsonl` the one before it, and so on.

use crate::links;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The current file and the rotated ones before it.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    /// Maximum number of files, the current one included.
    max_files: u32,
}

impl Files {
    /// Files at `path`. Symbolic links are resolved, so that a link stays a link.
    ///
    /// # Errors
    /// A link or the file belongs to another user in a directory that everybody may write.
    pub(super) fn at(path: &Path, max_files: u32) -> io::Result<Files> {
        Ok(Files { path: links::resolve(path)?, max_files: max_files.max(1) })
    }

    /// Path of the current file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path is a pipe or a device: these are written in place and never rotated.
    pub(super) fn is_special(&self) -> io::Result<bool> {
        match fs::metadata(&self.path) {
            Ok(metadata) if metadata.is_dir() => Err(ErrorKind::IsADirectory.into()),
            Ok(metadata) => Ok(!metadata.is_file()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Path of the `n`th file before the current one.
    fn earlier(&self, n: u32) -> PathBuf {
        let mut name = OsString::from(self.path.file_stem().unwrap_or_default());
        name.push(format!(".{n}"));
        if let Some(extension) = self.path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.path.with_file_name(name)
    }

    /// Renames each file to the next number and drops the oldest.
    pub(super) fn rotate(&self) -> io::Result<()> {
        let ignore_missing = |outcome: io::Result<()>| match outcome {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        };
        if self.max_files == 1 {
            return ignore_missing(fs::remove_file(&self.path));
        }
        for n in (1..self.max_files - 1).rev() {
            ignore_missing(fs::rename(self.earlier(n), self.earlier(n + 1)))?;
        }
        ignore_missing(fs::rename(&self.path, self.earlier(1)))
    }

    /// Creates a file at `path` with mode 0600: it lists which hosts communicated.
    pub(super) fn create(path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_of_another_user_in_a_shared_directory_is_refused() {
        use std::os::unix::fs::{PermissionsExt, lchown, symlink};
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let link = dir.path().join("closed.jsonl");
        symlink("/etc/passwd", &link).unwrap();
        // Only root can give links away.
        if lchown(&link, Some(54_321), None).is_ok() {
            assert!(Files::at(&link, 3).unwrap_err().to_string().contains("another user"));
        }
    }

    #[test]
    fn rotation_keeps_the_newest_files() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::at(&dir.path().join("closed.jsonl"), 3).unwrap();
        for text in ["a", "b", "c", "d"] {
            files.rotate().unwrap();
            fs::write(files.path(), text).unwrap();
        }
        let mut found: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .map(|p| (p.file_name().unwrap().to_string_lossy().into_owned(), fs::read_to_string(&p).unwrap()))
            .collect();
        found.sort();
        let expected = [("closed.1.jsonl", "c"), ("closed.2.jsonl", "b"), ("closed.jsonl", "d")];
        assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        let one = Files::at(&dir.path().join("closed.jsonl"), 1).unwrap();
        one.rotate().unwrap();
        assert!(!one.path().exists() && dir.path().join("closed.1.jsonl").exists());
    }
}
