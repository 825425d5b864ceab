//! Log rotation: `closed.jsonl` is the current file, `closed.1.jsonl` the one before it, and so on.

use fullpipe_files::Location;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The current file and the rotated ones before it.
#[derive(Debug)]
pub(super) struct Files {
    current: Location,
    /// Maximum number of files, the current one included.
    max_files: u32,
}

impl Files {
    /// Files at `path`. Symbolic links are resolved, so that a link stays a link.
    ///
    /// # Errors
    /// A link or the file belongs to another user in a world-writable directory.
    pub(super) fn at(path: &Path, max_files: u32) -> io::Result<Files> {
        Ok(Files { current: Location::resolve(path)?, max_files: max_files.max(1) })
    }

    /// The current file.
    pub(super) fn current(&self) -> &Location {
        &self.current
    }

    /// Whether the path is a pipe or a device: these are written in place and never rotated.
    pub(super) fn is_special(&self) -> io::Result<bool> {
        match self.current.metadata()? {
            Some(metadata) if metadata.is_dir() => Err(ErrorKind::IsADirectory.into()),
            Some(metadata) => Ok(!metadata.is_file()),
            None => Ok(false),
        }
    }

    /// The `n`th file before the current one.
    fn earlier(&self, n: u32) -> io::Result<Location> {
        let path = Path::new(self.current.name());
        let mut name = OsString::from(path.file_stem().unwrap_or_default());
        name.push(format!(".{n}"));
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.current.sibling(name)
    }

    /// Renames each file to the next number and drops the oldest.
    pub(super) fn rotate(&self) -> io::Result<()> {
        let ignore_missing = |outcome: io::Result<()>| match outcome {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        };
        if self.max_files == 1 {
            return ignore_missing(self.current.remove());
        }
        for n in (1..self.max_files - 1).rev() {
            ignore_missing(self.earlier(n)?.rename_to(&self.earlier(n + 1)?))?;
        }
        ignore_missing(self.current.rename_to(&self.earlier(1)?))
    }

    /// Creates the current file with mode 0600: it lists which hosts communicated.
    pub(super) fn create(&self) -> io::Result<File> {
        self.current.create_new(0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_of_another_user_in_a_shared_directory_is_refused() {
        use std::fs;
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
        use std::fs;
        let dir = tempfile::tempdir().unwrap();
        let current = dir.path().join("closed.jsonl");
        let files = Files::at(&dir.path().join("closed.jsonl"), 3).unwrap();
        for text in ["a", "b", "c", "d"] {
            files.rotate().unwrap();
            fs::write(&current, text).unwrap();
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
        assert!(!current.exists() && dir.path().join("closed.1.jsonl").exists());
    }
}
