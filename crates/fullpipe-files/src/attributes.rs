//! Extended attributes of open files (xattr(7)): access lists, labels, and others.

use rustix::fs::{Mode, XattrFlags, fchmod, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

/// Extended attributes: names and values.
pub type Attributes = BTreeMap<String, Vec<u8>>;

/// Attribute of an access list (acl(5)).
pub const ACCESS_LIST: &str = "system.posix_acl_access";

/// Attribute of a program's capabilities (capabilities(7)).
pub const CAPABILITY: &str = "security.capability";

/// Maximum bytes of a list of names, and of one value (`XATTR_LIST_MAX` and `XATTR_SIZE_MAX` of
/// uapi/linux/limits.h).
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// Maximum bytes of all attributes of a file, which may be of an untrusted image.
const MAX_TOTAL_BYTES: usize = 1 << 20;

/// Attributes that a new file can get from its directory. File systems list others that cannot be
/// removed, such as `system.nfs4_acl` on NFS.
const INHERITED: [&str; 2] = [ACCESS_LIST, "btrfs.compression"];

/// Whether an attribute is a label of a security module, which the kernel sets by its own policy.
pub fn is_label(name: &str) -> bool {
    name.starts_with("security.") && name != CAPABILITY
}

/// Whether the kernel computes an attribute: checksums of a file's content and inode, and XFS' own
/// form of an access list, which [`ACCESS_LIST`] sets.
pub fn is_computed(name: &str) -> bool {
    ["security.ima", "security.evm", "trusted.SGI_ACL_FILE"].contains(&name)
}

/// The value of one attribute; `None` where the file or the file system has none of this name.
///
/// # Errors
/// The error of fgetxattr(2).
pub fn get(file: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; MAX_VALUE_BYTES];
    get_into(file, name, &mut value)
}

fn get_into(file: impl AsFd, name: &str, value: &mut [u8]) -> io::Result<Option<Vec<u8>>> {
    match fgetxattr(file, name, &mut *value) {
        Err(e) if e == Errno::NODATA || is_unsupported(e) => Ok(None),
        length => Ok(Some(value[..length?].to_vec())),
    }
}

fn is_unsupported(e: Errno) -> bool {
    [Errno::NOTSUP, Errno::NOSYS].contains(&e)
}

/// The attributes of a file without those that the kernel computes; none where the file system has
/// none. Attributes that the caller may not list (`trusted.*`) are left out.
///
/// # Errors
/// `FileTooLarge` for more than 1 MiB, and errors of flistxattr(2) and fgetxattr(2).
pub fn read(file: impl AsFd) -> io::Result<Attributes> {
    let mut buffer = vec![0; MAX_VALUE_BYTES];
    let length = match flistxattr(&file, &mut buffer[..]) {
        Err(e) if is_unsupported(e) => return Ok(Attributes::new()),
        length => length?,
    };
    let names = String::from_utf8(buffer[..length].to_vec())
        .map_err(|_| io::Error::other("the name of an extended attribute is not UTF-8"))?;
    let mut all = Attributes::new();
    let mut total = 0;
    for name in names.split('\0').filter(|name| !name.is_empty() && !is_computed(name)) {
        // Removed since, or listed by the file system without a value.
        let Some(value) = get_into(&file, name, &mut buffer)? else { continue };
        total += name.len() + value.len();
        if total > MAX_TOTAL_BYTES {
            let text = "extended attributes of more than 1 MiB";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        all.insert(name.to_owned(), value);
    }
    Ok(all)
}

/// Gives a new file these attributes, and removes what it inherited from its directory (an access
/// list) unless it is among them. Of labels only those are set that the system's policy permits;
/// attributes that the kernel computes are not set.
///
/// # Errors
/// The error of fsetxattr(2) or fremovexattr(2), with the name of the attribute.
pub fn set(file: impl AsFd, attributes: &Attributes) -> io::Result<()> {
    let failed = |name: &str, e: Errno| {
        let e = io::Error::from(e);
        io::Error::new(e.kind(), format!("the extended attribute {name} cannot be kept ({e})"))
    };
    let now = read(&file)?;
    for name in INHERITED.iter().filter(|&&name| now.contains_key(name) && !attributes.contains_key(name)) {
        fremovexattr(&file, *name).map_err(|e| failed(name, e))?;
    }
    for (name, value) in attributes {
        if is_computed(name) || now.get(name) == Some(value) {
            continue;
        }
        match set_one(&file, name, value) {
            Err(e) if is_label(name) && is_refusal(e) => {}
            outcome => outcome.map_err(|e| failed(name, e))?,
        }
    }
    Ok(())
}

/// Whether the file system or the security policy refuses an attribute.
fn is_refusal(e: Errno) -> bool {
    is_unsupported(e) || [Errno::PERM, Errno::ACCESS].contains(&e)
}

fn set_one(file: impl AsFd, name: &str, value: &[u8]) -> Result<(), Errno> {
    let set = || fsetxattr(&file, name, value, XattrFlags::empty());
    match set() {
        // The kernel asks for the permission to write the file, even of its owner (xattr_permission).
        Err(e) if name.starts_with("user.") && [Errno::PERM, Errno::ACCESS].contains(&e) => {
            let mode = Mode::from_raw_mode(fstat(&file)?.st_mode);
            fchmod(&file, mode | Mode::WUSR)?;
            let outcome = set();
            fchmod(&file, mode)?;
            outcome
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn attributes<const N: usize>(all: [(&str, &[u8]); N]) -> Attributes {
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect()
    }

    #[test]
    fn attributes_round_trip_and_missing_ones_are_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("file")).unwrap();
        // tmpfs supports them since Linux 6.6.
        if let Err(e) = set(&file, &attributes([("user.fullpipe", b"label")])) {
            assert!(std::env::var_os("CI").is_none(), "no attributes: {e}");
            println!("SKIPPED: no extended attributes here: {e}");
            return;
        }
        assert_eq!(get(&file, "user.fullpipe").unwrap().as_deref(), Some(&b"label"[..]));
        assert_eq!(get(&file, "user.missing").unwrap(), None);
        let both = attributes([("user.fullpipe", b"another\0one"), ("user.empty", b"")]);
        set(&file, &both).unwrap();
        assert_eq!(read(&file).unwrap(), both);
        set(&file, &attributes([("trusted.SGI_ACL_FILE", b"of XFS")])).unwrap();
        assert_eq!(read(&file).unwrap(), both, "the kernel computes it");
        match fsetxattr(&file, "trusted.SGI_ACL_FILE", b"\0\0\0\0", XattrFlags::empty()) {
            Ok(()) => assert!(!read(&file).unwrap().contains_key("trusted.SGI_ACL_FILE")),
            Err(e) => println!("SKIPPED trusted attributes: {e}"),
        }
        let error = set(&file, &attributes([("nonsense", b"")])).unwrap_err();
        assert!(error.to_string().contains("the extended attribute nonsense cannot be kept"), "{error}");
    }
}
