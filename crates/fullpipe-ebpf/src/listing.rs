//! Lists the BPF programs and links of the kernel.
//!
//! The iterators of libbpf-rs end without an error at the first object that they cannot open or
//! describe. Such an object may exist all the time, for example a link of a type that the kernel cannot
//! describe (uprobe_multi in Linux 6.6).

use crate::error::{Error, Result};
use nix::errno::Errno;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A loaded program.
pub(crate) struct Program {
    pub(crate) id: u32,
    /// `BPF_PROG_TYPE_…`.
    pub(crate) kind: u32,
    /// Truncated to 15 characters.
    pub(crate) name: String,
    /// IDs of its maps, at most 16.
    pub(crate) maps: Vec<u32>,
}

impl Program {
    /// Describes the program with this ID.
    pub(crate) fn with_id(id: u32) -> std::result::Result<Program, Unlisted> {
        let fd = open(libbpf_sys::bpf_prog_get_fd_by_id, id)?;
        let mut maps = [0u32; 16];
        let mut info = libbpf_sys::bpf_prog_info {
            nr_map_ids: maps.len() as u32,
            map_ids: maps.as_mut_ptr() as u64,
            ..Default::default()
        };
        let mut size = size_of_val(&info) as u32;
        // SAFETY: the descriptor is a program's; `info` and the array it points to are writable, and
        // their sizes are given.
        let result = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut size) };
        if result != 0 {
            return Err(Errno::from_raw(-result).into());
        }
        let name = info.name.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        let name = String::from_utf8(name).unwrap_or_default();
        let maps = maps[..maps.len().min(info.nr_map_ids as usize)].to_vec();
        Ok(Program { id, kind: info.type_, name, maps })
    }
}

/// Why an object is not listed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unlisted {
    /// It no longer exists.
    Gone,
    /// It has another type, or the kernel cannot describe it.
    Other,
    /// A security module protects it, even from root.
    Refused,
    /// There are too many open files, or too little memory.
    Exhausted(Errno),
}

impl From<Errno> for Unlisted {
    fn from(error: Errno) -> Unlisted {
        match error {
            Errno::ENOENT => Unlisted::Gone,
            Errno::EPERM | Errno::EACCES => Unlisted::Refused,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => Unlisted::Exhausted(error),
            // For example EAGAIN: a link that is not complete yet.
            _ => Unlisted::Other,
        }
    }
}

/// All loaded programs, ascending by ID, except those that a security module protects.
///
/// # Errors
/// Without permission, or if there are too many open files.
pub(crate) fn programs() -> Result<Listing<Program>> {
    described(ids(|id| next_id(libbpf_sys::bpf_prog_get_next_id, id))?, Program::with_id)
}

/// A link of a program to a control group.
pub(crate) struct CgroupLink {
    pub(crate) program: u32,
    /// Inode of the control group; 0 if it is gone or the link is detached.
    pub(crate) cgroup: u64,
}

/// All links to control groups, except those that a security module protects.
///
/// # Errors
/// Without permission, or if there are too many open files.
pub(crate) fn cgroup_links() -> Result<Listing<CgroupLink>> {
    described(ids(|id| next_id(libbpf_sys::bpf_link_get_next_id, id))?, |id| {
        let fd = open(libbpf_sys::bpf_link_get_fd_by_id, id)?;
        let mut info = libbpf_sys::bpf_link_info::default();
        let mut size = size_of_val(&info) as u32;
        // SAFETY: the descriptor is a link's; `info` is writable and its size is given.
        let result = unsafe { libbpf_sys::bpf_link_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut size) };
        if result != 0 {
            return Err(Errno::from_raw(-result).into());
        }
        if info.type_ != libbpf_sys::BPF_LINK_TYPE_CGROUP {
            return Err(Unlisted::Other);
        }
        // SAFETY: of a link to a control group, this is what the kernel has written.
        let cgroup = unsafe { info.__bindgen_anon_1.cgroup.cgroup_id };
        Ok(CgroupLink { program: info.prog_id, cgroup })
    })
}

/// Objects of a kind.
pub(crate) struct Listing<T> {
    pub(crate) objects: Vec<T>,
    /// Number of objects that a security module protects and that are missing in the list.
    pub(crate) refused: usize,
}

impl<T> Listing<T> {
    /// The objects if none is missing.
    ///
    /// # Errors
    /// If a security module protects one or more.
    pub(crate) fn complete(self) -> Result<Vec<T>> {
        if self.refused > 0 {
            return Err(Error::impossible(
                format!(
                    "a security module of the kernel refuses access to BPF programs ({} in all)",
                    self.refused
                ),
                "allow `bpf` to fullpipe in its policy",
            ));
        }
        Ok(self.objects)
    }
}

fn described<T>(
    ids: Vec<u32>,
    describe: impl Fn(u32) -> std::result::Result<T, Unlisted>,
) -> Result<Listing<T>> {
    let mut listing = Listing { objects: Vec::new(), refused: 0 };
    for id in ids {
        match describe(id) {
            Ok(object) => listing.objects.push(object),
            Err(Unlisted::Gone | Unlisted::Other) => {}
            Err(Unlisted::Refused) => listing.refused += 1,
            Err(Unlisted::Exhausted(e)) => return Err(cannot_list(e)),
        }
    }
    Ok(listing)
}

/// IDs of all objects of a kind; `next` returns the ID after another.
fn ids(next: impl Fn(u32) -> nix::Result<u32>) -> Result<Vec<u32>> {
    let mut all = Vec::new();
    loop {
        match next(all.last().copied().unwrap_or(0)) {
            Ok(id) => all.push(id),
            // ENOSYS and EINVAL: the kernel has no such objects.
            Err(Errno::ENOENT | Errno::ENOSYS | Errno::EINVAL) => return Ok(all),
            Err(e) => return Err(cannot_list(e)),
        }
    }
}

/// The ID after `id`, of any object of a kind.
fn next_id(query: unsafe extern "C" fn(u32, *mut u32) -> c_int, id: u32) -> nix::Result<u32> {
    let mut next = 0;
    // SAFETY: `next` is writable for the call; the function keeps no pointer.
    match unsafe { query(id, &mut next) } {
        0 => Ok(next),
        e => Err(Errno::from_raw(-e)),
    }
}

/// Opens the object with an ID.
fn open(by_id: unsafe extern "C" fn(u32) -> c_int, id: u32) -> std::result::Result<OwnedFd, Unlisted> {
    // SAFETY: takes a plain number.
    let fd = unsafe { by_id(id) };
    if fd < 0 {
        return Err(Errno::from_raw(-fd).into());
    }
    // SAFETY: the kernel has just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn cannot_list(error: Errno) -> Error {
    let help = match error {
        Errno::EPERM => "run as root; a container needs CAP_SYS_ADMIN of the host",
        Errno::EMFILE | Errno::ENFILE => "allow more open files (`ulimit -n`)",
        _ => "try again",
    };
    Error::impossible(format!("cannot list BPF programs: {error}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_list_that_ends_early_is_an_error() {
        let until = |last: u32, end: Errno| ids(move |id| if id < last { Ok(id + 1) } else { Err(end) });
        assert_eq!(until(3, Errno::ENOENT).unwrap(), [1, 2, 3]);
        assert_eq!(until(0, Errno::ENOENT).unwrap(), [] as [u32; 0]);
        for last in [0, 2] {
            assert!(until(last, Errno::EPERM).unwrap_err().to_string().contains("run as root"));
        }
    }

    #[test]
    fn an_object_that_cannot_be_described_does_not_hide_the_others() {
        for one in [Errno::ENOENT, Errno::EAGAIN, Errno::ENODEV, Errno::E2BIG, Errno::EPERM, Errno::EACCES] {
            let describe = |id| if id == 2 { Err(one.into()) } else { Ok(id) };
            let listing = described(vec![1, 2, 3], describe).unwrap();
            assert_eq!(listing.objects, [1, 3], "{one}");
            // The protected object may be the one that is looked for.
            let is_protected = [Errno::EPERM, Errno::EACCES].contains(&one);
            assert_eq!(listing.complete().is_err(), is_protected, "{one}");
        }
        let seen = Cell::new(0);
        let full = |id| {
            seen.set(id);
            if id == 2 { Err(Errno::EMFILE.into()) } else { Ok(id) }
        };
        assert!(described(vec![1, 2, 3], full).err().unwrap().to_string().contains("ulimit -n"));
        assert_eq!(seen.get(), 2);
    }
}
