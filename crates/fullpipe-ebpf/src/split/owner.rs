//! The owner of a split: loads and attaches the program and reads its records.

use super::raw::{Closed, Counts, Setup, SplitInfo, Table, Wanted};
use super::{ConnectionFilter, refused, unreadable};
use crate::error::{Error, Result};
use crate::libbpf;
use bytemuck::{Pod, Zeroable};
use libbpf_rs::{Map, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The configuration of a split.
#[derive(Debug)]
pub struct SplitConfig<'a> {
    /// The control group: a directory of version 2.
    pub cgroup: &'a Path,
    /// Parameters fixed while it runs.
    pub setup: Setup,
    /// The connections to divide.
    pub only: ConnectionFilter,
    /// Information for other processes.
    pub about: SplitInfo,
    /// The shares.
    pub table: Table,
    /// Time for which connections are assigned without [`SplitProgram::renew`].
    pub lease: Duration,
}

/// A running split; stops on drop.
#[derive(Debug)]
pub struct SplitProgram {
    cgroup: PathBuf,
    link: RefCell<Option<Attached>>,
    object: Object,
    active: Cell<u32>,
    last_request: Cell<u64>,
}

/// A link to a control group, and that group's inode.
#[derive(Debug)]
struct Attached {
    link: OwnedFd,
    group: u64,
}

impl Attached {
    /// Whether the kernel has detached the program: the group was removed, or root detached the link
    /// (`bpftool link detach`).
    fn is_detached(&self) -> bool {
        let information = format!("/proc/self/fdinfo/{}", self.link.as_raw_fd());
        std::fs::read_to_string(information).is_ok_and(|text| {
            let group = text.lines().find_map(|line| line.strip_prefix("cgroup_id:"));
            group.is_some_and(|id| id.trim() == "0")
        })
    }
}

/// State of the control group since the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupState {
    /// Unchanged.
    Same,
    /// Replaced by a new one, as when a unit restarts; the program is attached to it.
    Replaced,
    /// Missing: new connections are not assigned.
    Gone,
    /// Unchanged, but another process detached the program; it is attached again.
    Detached,
}

/// A request of another process to the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Shares per arm, in billionths.
    Shares(Vec<u32>),
    /// The end of the split.
    End,
}

/// Records passed by [`SplitProgram::collect`].
pub type Batch = Vec<Closed>;

/// Interval between reads of the ring. At 10 000 connections per second it then has 500 of its 40
/// 000 records.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Records read at a time. Records that arrive faster are dropped and counted, so that the owner
/// can do its other work.
const MAX_BATCH: usize = 20_000;

/// The clock of `bpf_ktime_get_ns()`.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

impl SplitProgram {
    /// Loads and attaches the program; it applies to connections opened afterwards.
    ///
    /// # Errors
    /// Without permission, or if the directory is not a version 2 control group.
    pub fn start(start: &SplitConfig<'_>) -> Result<Self> {
        let object = libbpf::quietly(|| {
            let object = object!("split");
            let mut open = ObjectBuilder::default().open_memory(object)?;
            for mut map in open.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                let bytes: &[u8] = match name.as_str() {
                    name if name.ends_with(".rodata.setup") => bytemuck::bytes_of(&start.setup),
                    name if name.ends_with(".rodata.where") => start.only.bytes(),
                    name if name.ends_with(".rodata.about") => bytemuck::bytes_of(&start.about),
                    _ => continue,
                };
                if let Some(value) = map.initial_value_mut()
                    && value.len() >= bytes.len()
                {
                    value[..bytes.len()].copy_from_slice(bytes);
                }
            }
            open.load()
        })?;
        let running = SplitProgram {
            cgroup: start.cgroup.to_owned(),
            link: RefCell::new(None),
            object,
            active: Cell::new(0),
            last_request: Cell::new(0),
        };
        // Set up everything before the first connection.
        running.set_shares(&start.table)?;
        running.renew(start.lease)?;
        let program = running
            .object
            .progs()
            .next()
            .ok_or_else(|| Error::Malformed("the object holds no program".to_owned()))?;
        // Other processes find maps through the program, which does not use this one itself.
        let wanted = running.map("wanted")?;
        // SAFETY: both descriptors are alive; there are no options.
        let bound = unsafe {
            libbpf_sys::bpf_prog_bind_map(
                program.as_fd().as_raw_fd(),
                wanted.as_fd().as_raw_fd(),
                std::ptr::null(),
            )
        };
        if bound != 0 {
            let reason = std::io::Error::from_raw_os_error(-bound);
            return Err(Error::impossible(
                format!("the split's maps cannot be bound to its program: {reason}"),
                "Linux 5.10 or newer",
            ));
        }
        running.attach()?;
        Ok(running)
    }

    /// Attaches the program to the current group at its directory, and detaches it from the
    /// previous one.
    fn attach(&self) -> Result<()> {
        let reading = Error::io("cannot open the control group", &self.cgroup);
        let (group, inode) = File::open(&self.cgroup)
            .and_then(|group| group.metadata().map(|about| (group, about.ino())))
            .map_err(reading)?;
        let program = self.object.progs().next();
        let program = program.ok_or_else(|| Error::Malformed("the object holds no program".to_owned()))?;
        // SAFETY: both descriptors are alive; there are no options.
        let link = unsafe {
            libbpf_sys::bpf_link_create(
                program.as_fd().as_raw_fd(),
                group.as_raw_fd(),
                libbpf_sys::BPF_CGROUP_SOCK_OPS,
                std::ptr::null(),
            )
        };
        if link < 0 {
            return Err(refused(&self.cgroup, &std::io::Error::from_raw_os_error(-link)));
        }
        // SAFETY: the kernel has just created it for this process.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        self.link.replace(Some(Attached { link, group: inode }));
        Ok(())
    }

    /// Attaches the program again if the control group was replaced (a restarted unit or container
    /// gets a new group of the same name), or if another process detached the program.
    ///
    /// # Errors
    /// If the kernel rejects the program for the new group.
    pub fn reattach(&self) -> Result<CgroupState> {
        let before = self.link.borrow().as_ref().map(|attached| attached.group);
        let is_detached = self.link.borrow().as_ref().is_some_and(Attached::is_detached);
        let state = match std::fs::metadata(&self.cgroup) {
            Ok(about) if Some(about.ino()) == before && !is_detached => return Ok(CgroupState::Same),
            Ok(about) if Some(about.ino()) == before => CgroupState::Detached,
            Ok(_) => CgroupState::Replaced,
            Err(_) => return Ok(CgroupState::Gone),
        };
        match self.attach() {
            Ok(()) => Ok(state),
            // It disappeared meanwhile.
            Err(_) if !self.cgroup.exists() => Ok(CgroupState::Gone),
            Err(error) => Err(error),
        }
    }

    fn map(&self, name: &str) -> Result<Map<'_>> {
        let found = self.object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
        found.ok_or_else(|| Error::Malformed(format!("the object has no map {name}")))
    }

    fn write(&self, name: &str, key: u32, value: &[u8]) -> Result<()> {
        self.map(name)?.update(&key.to_ne_bytes(), value, MapFlags::ANY).map_err(unreadable)
    }

    /// Sets new shares atomically for all CPUs: writes the inactive table, then activates it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_shares(&self, table: &Table) -> Result<()> {
        let next = 1 - self.active.get();
        self.write("tables", next, bytemuck::bytes_of(table))?;
        self.write(".data.which", 0, &next.to_ne_bytes())?;
        self.active.set(next);
        Ok(())
    }

    /// Extends the lease.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn renew(&self, lease: Duration) -> Result<()> {
        let until = (now() + lease).as_nanos() as u64;
        self.write(".data.lease", 0, &until.to_ne_bytes())
    }

    /// The request of another process since the last call.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn request(&self) -> Result<Option<Request>> {
        let request: Wanted = read(&self.map("wanted")?)?;
        if request.end != 0 {
            return Ok(Some(Request::End));
        }
        if self.last_request.replace(request.number) == request.number {
            return Ok(None);
        }
        Ok(Some(Request::Shares(request.share.to_vec())))
    }

    /// The program's counters.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn counts(&self) -> Result<Counts> {
        read(&self.map(".data.counts")?)
    }

    /// Detaches the program: new connections use their usual controller. Open connections keep
    /// theirs and are no longer reported.
    pub fn detach(&self) {
        self.link.replace(None);
    }

    /// Passes closed connections to `each` about twenty times a second, even if there are none,
    /// until it returns false. Then detaches the program and passes the remaining records.
    ///
    /// # Errors
    /// Errors of `each`, or if the ring cannot be read.
    pub fn collect<E: From<Error>>(
        &self,
        mut each: impl FnMut(&mut Batch) -> std::result::Result<bool, E>,
    ) -> std::result::Result<(), E> {
        let ring_map = self.map("closed")?;
        let batch = RefCell::new(Vec::new());
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&ring_map, |bytes| {
                if bytes.len() == size_of::<Closed>() {
                    batch.borrow_mut().push(bytemuck::pod_read_unaligned::<Closed>(bytes));
                }
                0
            })
            .map_err(unreadable)?;
        let ring = builder.build().map_err(unreadable)?;
        loop {
            ring.consume_raw_n(MAX_BATCH);
            let mut records = batch.take();
            let many = records.len() >= MAX_BATCH;
            if !each(&mut records)? {
                break;
            }
            if !many {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        self.detach();
        loop {
            ring.consume_raw_n(MAX_BATCH);
            let mut records = batch.take();
            if records.is_empty() {
                return Ok(());
            }
            each(&mut records)?;
        }
    }
}

/// The first element of a map.
pub(super) fn read<T: Pod + Zeroable>(map: &dyn MapCore) -> Result<T> {
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?.unwrap_or_default();
    let size = size_of::<T>();
    if bytes.len() < size {
        return Err(Error::Malformed("a map of the split is too small".to_owned()));
    }
    Ok(bytemuck::pod_read_unaligned(&bytes[..size]))
}
