//! Who owns a split: loads the program, attaches it, and reads what it tells.

use super::raw::{Closed, Counts, Setup, SplitInfo, Table, Wanted};
use super::{ConnectionFilter, refused, unreadable};
use crate::error::{Error, Result};
use crate::loader;
use bytemuck::{Pod, Zeroable};
use libbpf_rs::{Map, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a split begins with.
#[derive(Debug)]
pub struct SplitConfig<'a> {
    /// Whose connections: the directory of a version 2 control group.
    pub cgroup: &'a Path,
    /// What does not change.
    pub setup: Setup,
    /// Which of them.
    pub only: ConnectionFilter,
    /// What others are told.
    pub about: SplitInfo,
    /// The shares.
    pub table: Table,
    /// How long connections are assigned without [`SplitProgram::renew`].
    pub lease: Duration,
}

/// A split that runs, as long as this lives.
#[derive(Debug)]
pub struct SplitProgram {
    cgroup: PathBuf,
    link: RefCell<Option<Attached>>,
    object: Object,
    which: Cell<u32>,
    seen: Cell<u64>,
}

/// A link to a control group, and that group's inode.
#[derive(Debug)]
struct Attached {
    _link: OwnedFd,
    group: u64,
}

/// What has become of the control group since somebody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupState {
    /// It is there.
    Same,
    /// Another one was made in its place, as a unit that is restarted gets one; that has the
    /// program now.
    Replaced,
    /// There is none: connections that open are in no arm.
    Gone,
}

/// What [`SplitProgram::collect`] hands over.
pub type Batch = Vec<Closed>;

/// How long the ring is left to itself. At 10 000 connections a second it then has 500 records, of
/// the 40 000 that it holds.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Records that are taken at a time: what comes faster than it is read is lost and counted, and
/// does not keep the owner from its other duties.
const MAX_BATCH: usize = 20_000;

/// The clock of `bpf_ktime_get_ns()`.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

impl SplitProgram {
    /// Loads the program and attaches it; connections that open from here on are in it.
    ///
    /// # Errors
    /// Without the right to, or when the directory is no control group of version 2.
    pub fn start(start: &SplitConfig<'_>) -> Result<Self> {
        let object = loader::quietly(|| {
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
            which: Cell::new(0),
            seen: Cell::new(0),
        };
        // Everything is in place before the first connection comes.
        running.set_shares(&start.table)?;
        running.renew(start.lease)?;
        let program = running
            .object
            .progs()
            .next()
            .ok_or_else(|| Error::Malformed("the object holds no program".to_owned()))?;
        // Whoever looks finds maps by their program, which does not use this one itself.
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

    /// Attaches the program to the group that its directory is now, and lets go of what it was
    /// attached to.
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
        // SAFETY: the kernel has just made it, for nobody else.
        let link = unsafe { OwnedFd::from_raw_fd(link) };
        self.link.replace(Some(Attached { _link: link, group: inode }));
        Ok(())
    }

    /// Attaches the program to the control group that was made in the place of the one it was
    /// attached to: that of a unit or of a container ends with it, and takes the program out;
    /// restarted it has another of the same name.
    ///
    /// # Errors
    /// When the kernel refuses the program for the new group.
    pub fn reattach(&self) -> Result<CgroupState> {
        let before = self.link.borrow().as_ref().map(|attached| attached.group);
        match std::fs::metadata(&self.cgroup) {
            Ok(about) if Some(about.ino()) == before => return Ok(CgroupState::Same),
            Ok(_) => {}
            Err(_) => return Ok(CgroupState::Gone),
        }
        match self.attach() {
            Ok(()) => Ok(CgroupState::Replaced),
            // It went while we looked.
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

    /// Other shares, at once for all processors: the table that does not count is written, and then
    /// counts.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set_shares(&self, table: &Table) -> Result<()> {
        let next = 1 - self.which.get();
        self.write("tables", next, bytemuck::bytes_of(table))?;
        self.write(".data.which", 0, &next.to_ne_bytes())?;
        self.which.set(next);
        Ok(())
    }

    /// Assigns connections for this much longer.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn renew(&self, lease: Duration) -> Result<()> {
        let until = (now() + lease).as_nanos() as u64;
        self.write(".data.lease", 0, &until.to_ne_bytes())
    }

    /// The shares that somebody asked for since this was asked last, in billionths, by arm.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn requested_shares(&self) -> Result<Option<Vec<u32>>> {
        let wanted: Wanted = read(&self.map("wanted")?)?;
        if self.seen.replace(wanted.number) == wanted.number {
            return Ok(None);
        }
        Ok(Some(wanted.share.to_vec()))
    }

    /// What the program has counted.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn counts(&self) -> Result<Counts> {
        read(&self.map(".data.counts")?)
    }

    /// Takes the program out: connections that open from here on get what they would have got
    /// without it. Those that are open keep their controller, and are not told of any more.
    pub fn detach(&self) {
        self.link.replace(None);
    }

    /// Hands over what closed, about twenty times a second whether there is anything or not, until
    /// `each` says no; then takes the program out and hands over what is left.
    ///
    /// # Errors
    /// What `each` says, or the kernel when the ring cannot be read.
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
            let mut taken = batch.take();
            let many = taken.len() >= MAX_BATCH;
            if !each(&mut taken)? {
                break;
            }
            if !many {
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        self.detach();
        loop {
            ring.consume_raw_n(MAX_BATCH);
            let mut taken = batch.take();
            if taken.is_empty() {
                return Ok(());
            }
            each(&mut taken)?;
        }
    }
}

/// The first element of a map.
pub(super) fn read<T: Pod + Zeroable>(map: &dyn MapCore) -> Result<T> {
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?.unwrap_or_default();
    let size = size_of::<T>();
    if bytes.len() < size {
        return Err(Error::Malformed("a map of the split is smaller than it should be".to_owned()));
    }
    Ok(bytemuck::pod_read_unaligned(&bytes[..size]))
}
