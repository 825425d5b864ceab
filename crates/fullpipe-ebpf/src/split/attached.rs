//! Running splits as reported by the kernel, whichever process owns them.

use super::owner::read;
use super::raw::{Counts, MAX_ARMS, SplitInfo, Table, Wanted};
use super::unreadable;
use crate::error::{Error, Result};
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ProgramType};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::ffi::c_int;
use std::time::Duration;

/// Attempts to list all objects while others appear.
const ATTEMPTS: usize = 10;
/// The program's name.
const PROGRAM: &str = "fp_split";

/// A running split.
#[derive(Debug)]
pub struct AttachedSplit {
    /// Inode of its control group; 0 if the program is attached to none: the group is gone, or the
    /// link was detached. The owner attaches it again.
    pub cgroup: u64,
    /// ID of its program in the kernel, which no other split has meanwhile or later.
    pub program: u32,
    /// Information from its owner.
    pub about: SplitInfo,
    maps: HashMap<String, MapHandle>,
}

/// The programs of splits.
fn programs() -> Result<Vec<ProgramInfo>> {
    let all = || {
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        ProgInfoIter::with_query_opts(options)
    };
    let all = complete(all, |program| program.id, |id| next_id(libbpf_sys::bpf_prog_get_next_id, id))?;
    let is_split = |program: &ProgramInfo| program.ty == ProgramType::SockOps && program.name == PROGRAM;
    Ok(all.into_iter().filter(is_split).collect())
}

/// Everything that `iterate` lists. libbpf's iterators end without an error when the kernel refuses
/// or no descriptor is left: an object beyond the last one shows that, unless it is new.
fn complete<I: Iterator>(
    iterate: impl Fn() -> I,
    id: impl Fn(&I::Item) -> u32,
    next: impl Fn(u32) -> nix::Result<u32>,
) -> Result<Vec<I::Item>> {
    for _ in 0..ATTEMPTS {
        let all: Vec<I::Item> = iterate().collect();
        match next(all.last().map_or(0, &id)) {
            // The latter two: a kernel without such objects.
            Err(Errno::ENOENT | Errno::ENOSYS | Errno::EINVAL) => return Ok(all),
            Err(Errno::EPERM) => {
                return Err(Error::impossible("the kernel refuses to list BPF programs", "run as root"));
            }
            Err(e) => {
                return Err(Error::impossible(format!("cannot list BPF programs: {e}"), "try again"));
            }
            Ok(_) => {}
        }
    }
    Err(Error::impossible(
        "cannot list all BPF programs",
        "allow more open files (`ulimit -n`), or try again: other programs may be loaded at the moment",
    ))
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

/// Splits running on this machine: programs attached to a control group.
///
/// # Errors
/// Without permission.
pub fn list_attached() -> Result<Vec<AttachedSplit>> {
    let programs: HashMap<u32, Vec<u32>> =
        programs()?.into_iter().map(|program| (program.id, program.map_ids)).collect();
    let links =
        complete(LinkInfoIter::default, |link| link.id, |id| next_id(libbpf_sys::bpf_link_get_next_id, id))?;
    let mut found = Vec::new();
    for link in links {
        let (LinkTypeInfo::Cgroup(group), Some(ids)) = (&link.info, programs.get(&link.prog_id)) else {
            continue;
        };
        // It may end meanwhile.
        let maps: HashMap<String, MapHandle> = ids
            .iter()
            .filter_map(|id| MapHandle::from_map_id(*id).ok())
            .map(|map| (map.name().to_string_lossy().into_owned(), map))
            .collect();
        let Some(about) = maps.get(".rodata.about").and_then(|map| read(map).ok()) else { continue };
        found.push(AttachedSplit { cgroup: group.cgroup_id, program: link.prog_id, about, maps });
    }
    Ok(found)
}

impl AttachedSplit {
    fn map(&self, name: &str) -> Result<&MapHandle> {
        self.maps.get(name).ok_or_else(|| Error::Malformed(format!("the split has no map {name}")))
    }

    /// The program's counters.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn counts(&self) -> Result<Counts> {
        read(self.map(".data.counts")?)
    }

    /// The active shares.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn table(&self) -> Result<Table> {
        let which: u32 = read(self.map(".data.which")?)?;
        let bytes =
            self.map("tables")?.lookup(&(which & 1).to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
        bytemuck::try_pod_read_unaligned(&bytes.unwrap_or_default())
            .map_err(|_| Error::Malformed("the split's shares have another format".to_owned()))
    }

    /// Remaining time of the lease; zero if it has expired.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn lease(&self) -> Result<Duration> {
        let until: u64 = read(self.map(".data.lease")?)?;
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
        Ok(Duration::from_nanos(until).saturating_sub(now))
    }

    /// Requests new shares from the owner, in billionths per arm. The owner applies them within a
    /// fraction of a second unless it hangs; the generation of [`AttachedSplit::table`] then
    /// changes.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn request_shares(&self, shares: &[u32]) -> Result<()> {
        self.update_wanted(|wanted| {
            // A requested end stays.
            wanted.number = wanted.number.wrapping_add(1);
            wanted.share = [0; MAX_ARMS];
            wanted.share.iter_mut().zip(shares).for_each(|(to, from)| *to = *from);
        })
    }

    /// Requests the end of the split from its owner, unless that is requested already. The owner
    /// ends within a fraction of a second unless it hangs. Nothing is signalled: the owner may belong
    /// to another PID namespace, its ID is then that of another process here, and any program may
    /// claim any ID.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn request_end(&self) -> Result<()> {
        self.update_wanted(|wanted| wanted.end = 1)
    }

    /// Changes the request to the owner. Writes nothing if that changes nothing: the write could undo
    /// the request of another process at the same moment.
    fn update_wanted(&self, change: impl FnOnce(&mut Wanted)) -> Result<()> {
        let map = self.map("wanted")?;
        let before: Wanted = read(map)?;
        let mut wanted = before;
        change(&mut wanted);
        if wanted == before {
            return Ok(());
        }
        map.update(&0u32.to_ne_bytes(), bytemuck::bytes_of(&wanted), MapFlags::ANY).map_err(unreadable)
    }
}

/// Information of all loaded splits, attached or not.
///
/// # Errors
/// Without permission.
pub fn list_loaded() -> Result<Vec<SplitInfo>> {
    Ok(programs()?
        .into_iter()
        .flat_map(|program| program.map_ids)
        .filter_map(|id| MapHandle::from_map_id(id).ok())
        .filter(|map| map.name() == ".rodata.about")
        .filter_map(|map| read::<SplitInfo>(&map).ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Lists 1 to `shown` of `present`; the rest cannot be opened until the `recovers`-th attempt.
    fn list(shown: u32, present: u32, recovers: usize) -> (Result<Vec<u32>>, usize) {
        let attempts = Cell::new(0);
        let iterate = || {
            attempts.set(attempts.get() + 1);
            1..=(if attempts.get() >= recovers { present } else { shown })
        };
        let next = |id| if id < present { Ok(id + 1) } else { Err(Errno::ENOENT) };
        (complete(iterate, |id| *id, next), attempts.get())
    }

    #[test]
    fn a_list_that_ends_early_is_an_error() {
        assert_eq!(list(3, 3, 1).0.unwrap(), [1, 2, 3]);
        assert_eq!(list(0, 0, 1).0.unwrap(), [] as [u32; 0]);
        let (all, attempts) = list(2, 3, 4);
        assert_eq!((all.unwrap(), attempts), (vec![1, 2, 3], 4));
        for shown in [0, 2] {
            let (all, attempts) = list(shown, 3, usize::MAX);
            assert_eq!(attempts, ATTEMPTS);
            assert!(all.unwrap_err().to_string().contains("cannot list all BPF programs"));
        }
    }

    #[test]
    fn a_refusal_is_not_an_empty_list() {
        let refused = complete(|| [0; 0].into_iter(), |id| *id, |_| Err(Errno::EPERM));
        assert!(refused.unwrap_err().to_string().contains("run as root"));
    }
}
