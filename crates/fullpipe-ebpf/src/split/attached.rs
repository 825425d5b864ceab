//! Running splits as reported by the kernel, whichever process owns them.

use super::owner::read;
use super::raw::{Counts, MAX_ARMS, SplitInfo, Table, Wanted};
use super::unreadable;
use crate::error::{Error, Result};
use crate::listing::{self, Listing, Program};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::time::Duration;

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
fn programs() -> Result<Listing<Program>> {
    let is_split =
        |program: &Program| program.kind == libbpf_sys::BPF_PROG_TYPE_SOCK_OPS && program.name == PROGRAM;
    let all = listing::programs()?;
    Ok(Listing { objects: all.objects.into_iter().filter(is_split).collect(), ..all })
}

/// The maps of a program that still exist.
fn maps(ids: &[u32]) -> Result<Vec<MapHandle>> {
    let opened = ids.iter().map(|id| MapHandle::from_map_id(*id));
    let exists =
        |map: &libbpf_rs::Result<MapHandle>| !matches!(map, Err(e) if e.kind() == ErrorKind::NotFound);
    opened.filter(exists).map(|map| map.map_err(unreadable)).collect()
}

/// Splits running on this machine: programs attached to a control group.
///
/// # Errors
/// Without permission.
pub fn list_attached() -> Result<Vec<AttachedSplit>> {
    let programs: HashMap<u32, Vec<u32>> =
        programs()?.objects.into_iter().map(|program| (program.id, program.maps)).collect();
    let mut found = Vec::new();
    for link in listing::cgroup_links()?.objects {
        let Some(ids) = programs.get(&link.program) else { continue };
        // It may end meanwhile.
        let maps: HashMap<String, MapHandle> =
            maps(ids)?.into_iter().map(|map| (map.name().to_string_lossy().into_owned(), map)).collect();
        let Some(about) = maps.get(".rodata.about").and_then(|map| read(map).ok()) else { continue };
        found.push(AttachedSplit { cgroup: link.cgroup, program: link.program, about, maps });
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
/// Without permission, or if the list may be incomplete.
pub fn list_loaded() -> Result<Vec<SplitInfo>> {
    let mut all = Vec::new();
    // A program that is missing may be that of a running split.
    for program in programs()?.complete()? {
        for map in maps(&program.maps)?.iter().filter(|map| map.name() == ".rodata.about") {
            match read::<SplitInfo>(map) {
                Ok(about) => all.push(about),
                // Of another version.
                Err(Error::Malformed(_)) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(all)
}
