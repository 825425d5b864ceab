//! Running splits as reported by the kernel, whichever process owns them.

use super::owner::read;
use super::raw::{Counts, MAX_ARMS, SplitInfo, Table, Wanted};
use super::unreadable;
use crate::error::{Error, Result};
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ProgramType};
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

/// Splits running on this machine: programs attached to a control group.
///
/// # Errors
/// Without permission.
pub fn list_attached() -> Result<Vec<AttachedSplit>> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let programs: HashMap<u32, Vec<u32>> = ProgInfoIter::with_query_opts(options)
        .filter(|program| program.ty == ProgramType::SockOps && program.name == PROGRAM)
        .map(|program| (program.id, program.map_ids))
        .collect();
    let mut found = Vec::new();
    for link in LinkInfoIter::default() {
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
        let map = self.map("wanted")?;
        let before: Wanted = read(map)?;
        // A requested end stays.
        let mut request = Wanted { number: before.number.wrapping_add(1), share: [0; MAX_ARMS], ..before };
        request.share.iter_mut().zip(shares).for_each(|(to, from)| *to = *from);
        map.update(&0u32.to_ne_bytes(), bytemuck::bytes_of(&request), MapFlags::ANY).map_err(unreadable)
    }

    /// Requests the end of the split from its owner, unless that is requested already. The owner
    /// ends within a fraction of a second unless it hangs. Nothing is signalled: the owner may belong
    /// to another PID namespace, its ID is then that of another process here, and any program may
    /// claim any ID.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn request_end(&self) -> Result<()> {
        let map = self.map("wanted")?;
        let before: Wanted = read(map)?;
        if before.end != 0 {
            return Ok(());
        }
        let request = Wanted { end: 1, ..before };
        map.update(&0u32.to_ne_bytes(), bytemuck::bytes_of(&request), MapFlags::ANY).map_err(unreadable)
    }
}

/// Information of all loaded splits, attached or not.
///
/// # Errors
/// Without permission.
pub fn list_loaded() -> Result<Vec<SplitInfo>> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    Ok(ProgInfoIter::with_query_opts(options)
        .filter(|program| program.ty == ProgramType::SockOps && program.name == PROGRAM)
        .flat_map(|program| program.map_ids)
        .filter_map(|id| MapHandle::from_map_id(id).ok())
        .filter(|map| map.name() == ".rodata.about")
        .filter_map(|map| read::<SplitInfo>(&map).ok())
        .collect())
}
