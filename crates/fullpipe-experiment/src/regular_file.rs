//! Files that are read whole, whoever named them: none that never ends, and none that never begins.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Opens what is a regular file: a device would never end, and a named pipe never begin.
///
/// # Errors
/// When it is something else, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    // Before it is opened: to open a named pipe is to wait for its writer.
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    File::open(path)
}

/// All that comes of `source`, if that is no more than `limit` bytes.
///
/// # Errors
/// When it is more, or cannot be read.
pub fn read_bounded(source: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let said =
            if limit < 1 << 20 { format!("{} KiB", limit >> 10) } else { format!("{} MiB", limit >> 20) };
        return Err(io::Error::other(format!("it has more than {said}")));
    }
    Ok(bytes)
}

/// The text of a regular file of at most `limit` bytes.
///
/// # Errors
/// When it is something else or more, cannot be read, or is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    String::from_utf8(read_bounded(open(path)?, limit)?).map_err(|_| io::Error::other("not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_not_read() {
        assert_eq!(read_text(Path::new("/dev/zero"), 9).unwrap_err().to_string(), "not a regular file");
        assert_eq!(
            read_bounded(io::repeat(b' '), 2 << 10).unwrap_err().to_string(),
            "it has more than 2 KiB"
        );
        assert_eq!(read_bounded(&b"abc"[..], 3).unwrap(), b"abc");
    }
}
