//! Extended attributes of files (xattr(7)): labels and access lists.

use nix::NixPath;
use nix::errno::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// Reads an attribute of an open file into `value`; gives its length in bytes (fgetxattr(2)).
///
/// # Errors
/// `ENODATA` if the file has none of this name, `ERANGE` if it is longer than `value`, `EOPNOTSUPP` where the file system has none.
pub fn get_file(file: &impl AsFd, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the name ends with a zero byte; the pointer and the length describe `value`, which outlives the call; the
    // descriptor is borrowed from its owner.
    let length = Errno::result(unsafe {
        let fd = file.as_fd().as_raw_fd();
        libc::fgetxattr(fd, name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    })?;
    Ok(length as usize)
}

/// The same of what a path names, which is not followed if it is a link (lgetxattr(2)).
///
/// # Errors
/// As [`get_file`], and what is wrong with the path.
pub fn get_path(path: &Path, name: &CStr, value: &mut [u8]) -> io::Result<usize> {
    let length = path.with_nix_path(|path| {
        // SAFETY: both texts end with a zero byte; the pointer and the length describe `value`, which outlives the call.
        Errno::result(unsafe {
            libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
        })
    })??;
    Ok(length as usize)
}

/// Gives what a path names an attribute, in place of the one that it had; a link is not followed (lsetxattr(2)).
///
/// # Errors
/// What is wrong with the path; `EOPNOTSUPP` where the file system has none, `EPERM` where it may not be set.
pub fn set_path(path: &Path, name: &CStr, value: &[u8]) -> io::Result<()> {
    path.with_nix_path(|path| {
        // SAFETY: both texts end with a zero byte; the pointer and the length describe `value`, which outlives the call.
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
    fn what_is_set_is_read_and_what_is_not_there_is_an_error() {
        const NAME: &CStr = c"user.fullpipe";
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let file = File::create(&path).unwrap();
        let mut value = [0; 8];
        let code = |result: io::Result<usize>| result.unwrap_err().raw_os_error();
        match set_path(&path, NAME, b"label") {
            // Memory's file system takes these since Linux 6.6.
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

        // A link itself has no attributes of users, and what it leads to is not asked.
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(get_path(&link, NAME, &mut longer).is_err() && set_path(&link, NAME, b"label").is_err());
    }
}
