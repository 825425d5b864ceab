//! Extended attributes of files (xattr(7)): labels and access lists.

use nix::errno::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

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

/// Names of an open file's attributes (flistxattr(2)). Attributes that the caller may not
/// list (`trusted.*`) are left out.
///
/// # Errors
/// `EOPNOTSUPP` if the file system has no extended attributes.
pub fn names(file: &impl AsFd) -> io::Result<Vec<CString>> {
    // The kernel's own limit of a list (XATTR_LIST_MAX).
    let mut list = vec![0u8; 65_536];
    // SAFETY: the pointer and the length describe `list`, which outlives the call; the descriptor is
    // borrowed from its owner.
    let length = Errno::result(unsafe {
        libc::flistxattr(file.as_fd().as_raw_fd(), list.as_mut_ptr().cast(), list.len())
    })?;
    list.truncate(length as usize);
    let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

/// Sets an attribute of an open file (fsetxattr(2)).
///
/// # Errors
/// `EOPNOTSUPP` if the file system does not have this attribute, `EPERM` if not permitted.
pub fn set_file(file: &impl AsFd, name: &CStr, value: &[u8]) -> io::Result<()> {
    // SAFETY: the name ends with a zero byte; the pointer and the length describe `value`, which
    // outlives the call; the descriptor is borrowed from its owner.
    Errno::result(unsafe {
        let fd = file.as_fd().as_raw_fd();
        libc::fsetxattr(fd, name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    })?;
    Ok(())
}

/// Removes an attribute of an open file (fremovexattr(2)).
///
/// # Errors
/// As [`set_file`], and `ENODATA` if the file lacks the attribute.
pub fn remove_file(file: &impl AsFd, name: &CStr) -> io::Result<()> {
    // SAFETY: the name ends with a zero byte; the descriptor is borrowed from its owner.
    Errno::result(unsafe { libc::fremovexattr(file.as_fd().as_raw_fd(), name.as_ptr()) })?;
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
        let file = File::create(directory.path().join("file")).unwrap();
        let mut value = [0; 8];
        let code = |error: io::Error| error.raw_os_error();
        match set_file(&file, NAME, b"label") {
            // tmpfs supports them since Linux 6.6.
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                assert_eq!(get_file(&file, NAME, &mut value).map_err(code), Err(Some(libc::EOPNOTSUPP)));
                return;
            }
            set => set.unwrap(),
        }
        assert_eq!(get_file(&file, NAME, &mut value).unwrap(), 5);
        assert_eq!(&value, b"label\0\0\0");
        assert_eq!(get_file(&file, NAME, &mut value[..4]).map_err(code), Err(Some(libc::ERANGE)));
        set_file(&file, NAME, b"other one").unwrap();
        let mut longer = [0; 16];
        let length = get_file(&file, NAME, &mut longer).unwrap();
        assert_eq!(&longer[..length], b"other one");
        assert!(names(&file).unwrap().contains(&NAME.to_owned()));
        remove_file(&file, NAME).unwrap();
        assert!(!names(&file).unwrap().contains(&NAME.to_owned()));
        assert_eq!(remove_file(&file, NAME).map_err(code), Err(Some(libc::ENODATA)));
        assert_eq!(get_file(&file, NAME, &mut value).map_err(code), Err(Some(libc::ENODATA)));
    }
}
