use std::path::{Path, PathBuf};

/// The files `*.EXTENSION` in `directory` and the directories in it, sorted.
///
/// # Panics
/// If a directory cannot be read.
pub fn files_below(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let (mut left, mut files) = (vec![directory.to_owned()], Vec::new());
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|e| e == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}
