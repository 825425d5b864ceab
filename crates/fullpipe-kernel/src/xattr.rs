//! Extended attributes of files (xattr(7)): labels and access lists.

use nix::NixPath;
use nix::errno::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Reads an attribute of an open file into `value` and returns its length in bytes (fgetxattr(2)).
///
/// # Errors
/// `ENODATA` if the file lacks the attribute, `ERANGE` if it is longer than `value`, `EOPNOTSUPP`
/// if the file system has no extended attributes.
pub fn get_file(file: &impl AsFd, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the name ends with a zero byte; the pointer and the length describe `value`, which
    // outlives the call; the descriptor is borrowed from its owner.
    let length = Errno::result(unsafe {
        let fd = file.as_fd().as_raw_fd();
        libc::fgetxattr(fd, name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    })?;
    Ok(length as usize)
}

/// Reads an attribute of the file at `path` without following a symbolic link (lgetxattr(2)).
///
/// # Errors
/// As [`get_file`], and errors of path resolution.
pub fn get_path(path: &Path, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
    let length = path.with_nix_path(|path| {
        // SAFETY: both texts end with a zero byte; the pointer and the length describe `value`, which
        // outlives the call.
        Errno::result(unsafe {
            libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
        })
    })??;
    Ok(length as usize)
}

/// Sets an attribute of the file at `path` without following a symbolic link (lsetxattr(2)).
///
/// # Errors
/// Errors of path resolution; `EOPNOTSUPP` if the file system has no extended attributes, `EPERM`
/// if not permitted.
pub fn set_path(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    path.with_nix_path(|path| {
        // SAFETY: both texts end with a zero byte; the pointer and the length describe `value`, which
        // outlives the call.
        Errno::result(unsafe {
            libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
        })
    })??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn attributes_round_trip_and_missing_ones_are_errors() {
        const NAME: &CStr = c"user.fullpipe";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let mut value = [0; 8];
        let code = |result: io::Result<usize>| result.unwrap_err().raw_os_error();
        match set_path(&path, NAME, b"label") {
            // tmpfs supports them since Linux 6.6.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                assert_eq!(code(get_file(&file, NAME, &mut value)), Some(libc::EOPNOTSUPP));
                return;
            }
            set => set.unwrap(),
        }
        assert_eq!(get_file(&file, NAME, &mut value).unwrap(), 5);
        assert_eq!(&value, b"label\0\0\0");
        assert_eq!(code(get_path(&path, NAME, &mut value[..4])), Some(libc::ERANGE));
        set_path(&path, NAME, b"other one").unwrap();
        let mut longer = [0; 16];
        let length = get_path(&path, NAME, &mut longer).unwrap();
        assert_eq!(&longer[..length], b"other one");
        assert_eq!(code(get_path(&path, c"user.none", &mut value)), Some(libc::ENODATA));

        // Symbolic links have no user attributes, and their targets are not followed.
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(get_path(&link, NAME, &mut longer).is_err() && set_path(&link, NAME, b"label").is_err());
    }
}
