//! Reads whole files named by a user or another host: regular files only, up to a size limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file. Devices may never end, named pipes block until they have a writer, and
/// files of procfs may block as well (`/proc/kmsg`).
///
/// # Errors
/// If the path is not a regular file or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    return fullpipe_files::open_regular(path);
    #[cfg(not(target_os = "linux"))]
    match path.metadata()?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Reads all of `source`, at most `limit` bytes.
///
/// # Errors
/// If there is more, or `source` cannot be read.
pub fn read_bounded(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let limit =
            if limit < 1 << 20 { format!("{} KiB", limit >> 10) } else { format!("{} MiB", limit >> 20) };
        return Err(io::Error::other(format!("larger than {limit}")));
    }
    Ok(bytes)
}

/// Reads a regular file of at most `limit` bytes as UTF-8.
///
/// # Errors
/// If the file is not regular, is larger, cannot be read, or is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_bounded(open(path)?, limit)?).map_err(|_| io::Error::other("not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_oversized_input_are_rejected() {
        assert_eq!(read_text(Path::new("/dev/zero"), 9).unwrap_err().to_string(), "not a regular file");
        #[cfg(target_os = "linux")]
        assert_eq!(read_text(Path::new("/proc/version"), 999).unwrap_err().to_string(), "not a regular file");
        assert_eq!(read_bounded(io::repeat(b' '), 2 << 10).unwrap_err().to_string(), "larger than 2 KiB");
        assert_eq!(read_bounded(&b"abc"[..], 3).unwrap(), b"abc");
    }
}
