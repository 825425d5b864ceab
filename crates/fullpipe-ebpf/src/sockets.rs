//! Inspects TCP sockets that use fullpipe's controllers, and moves them to other controllers.

use crate::error::{Error, Result};
use crate::libbpf::{self, NAME_SIZE};
use crate::namespaces::Namespace;
use crate::native::MODES;
use crate::storage::put;
use bytemuck::{Pod, Zeroable};
use libbpf_rs::{Iter, Link, MapCore, Object, ObjectBuilder};
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `struct fp_socket` of bpf/status.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Raw {
    controller: [u8; NAME_SIZE],
    private: [u64; 13],
    pacing_rate: u64,
    bytes_acked: u64,
    cookie: u64,
    snd_cwnd: u32,
    mss: u32,
    srtt_us: u32,
    tcp_state: u32,
    pacing_status: u32,
    spare: u32,
}

/// A socket and its controller's state.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Socket {
    /// The controller's name.
    pub controller: String,
    /// The socket cookie; `None` until one is assigned, for example by a sock_diag dump.
    #[serde(skip)]
    pub cookie: Option<NonZeroU64>,
    /// Whether it is a listener, whose connections inherit the controller.
    pub listens: bool,
    /// Congestion window in packets.
    pub cwnd: u32,
    /// Pacing rate in bytes/s.
    pub pacing_rate: u64,
    /// Whether pacing is active, in TCP or in the qdisc.
    pub is_paced: bool,
    /// Smoothed RTT in µs.
    pub srtt_us: u32,
    /// Bytes acknowledged so far.
    pub bytes_acked: u64,
    /// State of the controller's state machine, if any.
    pub state: Option<&'static str>,
    /// Estimated bandwidth in bytes/s.
    pub bw: Option<u64>,
    /// BBR v3's windowed maximum of the delivery rate in bytes/s, if known.
    pub max_bw: Option<u64>,
    /// BBR v3's short-term bandwidth bound in bytes/s.
    pub bw_shortterm: Option<u64>,
    /// min_rtt in µs.
    pub min_rtt_us: Option<u64>,
    /// Pacing gain.
    pub pacing_gain: Option<f64>,
    /// Window gain.
    pub cwnd_gain: Option<f64>,
    /// BBR v3's long-term inflight bound in bytes.
    pub inflight_longterm: Option<u64>,
    /// BBR v3's short-term inflight bound in bytes.
    pub inflight_shortterm: Option<u64>,
    /// Round trips counted so far.
    pub rounds: Option<u64>,
}

const TCP_LISTEN: u32 = 10;
/// `FP_STATUS_MAGIC`.
const BBR3_MAGIC: u64 = 0x6670_6262_7233_0000;
const BBR1_MODES: [&str; 4] = ["Startup", "Drain", "ProbeBW", "ProbeRTT"];

impl Raw {
    fn read(&self) -> Socket {
        let end = self.controller.iter().position(|byte| *byte == 0).unwrap_or(self.controller.len());
        let mut socket = Socket {
            controller: String::from_utf8_lossy(&self.controller[..end]).into_owned(),
            cookie: NonZeroU64::new(self.cookie),
            listens: self.tcp_state == TCP_LISTEN,
            cwnd: self.snd_cwnd,
            pacing_rate: self.pacing_rate,
            // SK_PACING_NONE is 0.
            is_paced: self.pacing_status != 0,
            srtt_us: self.srtt_us >> 3,
            bytes_acked: self.bytes_acked,
            state: None,
            bw: None,
            max_bw: None,
            bw_shortterm: None,
            min_rtt_us: None,
            pacing_gain: None,
            cwnd_gain: None,
            inflight_longterm: None,
            inflight_shortterm: None,
            rounds: None,
        };
        let bounded = |value: u64| (value != u64::MAX).then_some(value);
        if socket.listens {
            return socket;
        }
        let p = &self.private;
        if p[0] & !0xff == BBR3_MAGIC {
            socket.state = MODES.get((p[0] & 0xff) as usize).copied();
            socket.bw = Some(p[1]);
            socket.min_rtt_us = bounded(p[2]).map(|ns| ns / 1000);
            socket.pacing_gain = Some((p[3] & 0xffff_ffff) as f64 / 256.0);
            socket.cwnd_gain = Some((p[3] >> 32) as f64 / 256.0);
            socket.inflight_longterm = bounded(p[4]);
            socket.inflight_shortterm = bounded(p[5]);
            socket.rounds = Some(p[6]);
            socket.max_bw = Some(p[7]).filter(|&bw| bw > 0);
            // Programs of earlier versions leave zero.
            socket.bw_shortterm = bounded(p[8]).filter(|&bw| bw > 0);
        } else if socket.controller.contains("bbr1") {
            let words: &[u32; 26] = bytemuck::cast_ref(p);
            let (modes, gains) = (words[14], words[19]);
            // Before the connection is established the state is all zero.
            if gains & 1023 == 0 {
                return socket;
            }
            socket.state = BBR1_MODES.get((modes & 7) as usize).copied();
            // bbr_get_info(): packets/µs << 24 to bytes/s.
            let bw = u64::from(if modes >> 31 == 1 { words[15] } else { words[4] });
            socket.bw = Some(((u128::from(bw) * u128::from(self.mss) * 1_000_000) >> 24) as u64);
            socket.min_rtt_us = (words[0] != u32::MAX).then_some(words[0].into());
            socket.pacing_gain = Some(f64::from(gains & 1023) / 256.0);
            socket.cwnd_gain = Some(f64::from(gains >> 10 & 1023) / 256.0);
            socket.rounds = Some(words[9].into());
        }
        socket
    }
}

impl Socket {
    /// Parses a socket's record.
    fn parse(bytes: &[u8]) -> Socket {
        bytemuck::pod_read_unaligned::<Raw>(bytes).read()
    }
}

/// A loaded BPF iterator over TCP sockets.
#[derive(Debug)]
pub(crate) struct Walker {
    object: Object,
    program: &'static str,
}

/// What a [`Walker`] is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Lists the sockets of fullpipe's controllers.
    Sockets,
    /// Lists sockets selected by their descriptors.
    Watched,
    /// As `Watched`, among the open files of the process that reads (Linux 5.11): a socket with several
    /// descriptors is listed several times.
    WatchedFiles,
    /// Counts sockets with an entry in a socket storage map.
    Storage,
    /// Moves sockets from one controller to another.
    Migration {
        /// The name of their controller.
        from: &'a str,
        /// The name of the new one.
        to: &'a str,
    },
}

impl Purpose<'_> {
    fn program(self) -> &'static str {
        match self {
            Purpose::Sockets => "fp_sockets",
            Purpose::Watched => "fp_watched",
            Purpose::WatchedFiles => "fp_watched_files",
            Purpose::Storage => "fp_kept",
            Purpose::Migration { .. } => "fp_migrate",
        }
    }
}

impl Walker {
    /// Loads the iterator of `purpose`, and no other: older kernels reject fp_migrate, and a
    /// security module may refuse to iterate socket storage.
    ///
    /// # Errors
    /// If BPF programs may not be loaded.
    pub(crate) fn load(purpose: Purpose<'_>) -> Result<Self> {
        let wanted = purpose.program();
        let migration = match purpose {
            Purpose::Migration { from, to } => Some((from, to)),
            _ => None,
        };
        libbpf::quietly(|| {
            let mut open = ObjectBuilder::default().open_memory(object!("sockets"))?;
            for mut program in open.progs_mut() {
                let is_wanted = program.name() == wanted;
                program.set_autoload(is_wanted);
            }
            for mut map in open.maps_mut() {
                let Some(value) = map.initial_value_mut() else { continue };
                if let Some((from, to)) = migration
                    && value.len() >= 2 * NAME_SIZE
                {
                    libbpf::write_name(&mut value[..NAME_SIZE], from);
                    libbpf::write_name(&mut value[NAME_SIZE..2 * NAME_SIZE], to);
                }
            }
            open.load()
        })
        .map(|object| Walker { object, program: wanted })
    }

    /// Attaches the iterator, to the entries of `map` if it iterates those of a map.
    fn attach(&self, map: Option<BorrowedFd<'_>>) -> Result<Link> {
        let program = self
            .object
            .progs_mut()
            .find(|candidate| candidate.name() == self.program)
            .ok_or_else(|| Error::Malformed(format!("the object has no program {}", self.program)))?;
        match map {
            Some(map) => program.attach_iter(map),
            None => program.attach(),
        }
        .map_err(refused)
    }

    fn walk(&self, namespace: &Namespace) -> Result<Vec<u8>> {
        let link = self.attach(None)?;
        // The iterator uses the namespace of the thread that opens it.
        namespace.enter(|| read(&link))
    }

    /// Number of sockets with an entry in a socket storage map, in all namespaces.
    ///
    /// # Errors
    /// If the map has another type or cannot be iterated.
    pub(crate) fn storage_count(&self, map: BorrowedFd<'_>) -> Result<usize> {
        read(&self.attach(Some(map))?).map(|bytes| bytes.len())
    }

    /// Sockets of a namespace that use one of fullpipe's controllers.
    ///
    /// # Errors
    /// If sockets cannot be iterated.
    pub(crate) fn sockets(&self, namespace: &Namespace) -> Result<Vec<Socket>> {
        let bytes = self.walk(namespace)?;
        Ok(bytes.chunks_exact(std::mem::size_of::<Raw>()).map(Socket::parse).collect())
    }

    /// Moves the sockets of a namespace as configured in [`load`](Self::load).
    ///
    /// # Errors
    /// If sockets cannot be iterated.
    pub(crate) fn migrate(&self, namespace: &Namespace) -> Result<()> {
        self.walk(namespace).map(drop)
    }
}

/// Samples all sockets of a network namespace that use one of fullpipe's controllers.
#[derive(Debug)]
pub struct Survey {
    /// The link keeps the program loaded.
    link: OwnedFd,
    read: Vec<u8>,
}

impl Survey {
    /// Loads the iterator; it is unloaded on drop.
    ///
    /// # Errors
    /// If BPF programs may not be loaded.
    pub fn load() -> Result<Self> {
        let link = Walker::load(Purpose::Sockets)?.attach(None)?;
        Ok(Survey { link: link.as_fd().try_clone_to_owned().map_err(refused)?, read: Vec::new() })
    }

    /// Samples the sockets in the network namespace of the calling thread.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn sample(&mut self, seen: impl FnMut(Socket)) -> io::Result<()> {
        iterate(self.link.as_fd(), &mut self.read)?;
        self.read.chunks_exact(size_of::<Raw>()).map(Socket::parse).for_each(seen);
        Ok(())
    }
}

/// Samples sockets selected by their descriptors. The owner may use it with its own sockets,
/// unprivileged and in any network namespace.
///
/// It consists of two descriptors, which can be passed to another process.
#[derive(Debug)]
pub struct Watch {
    watched: OwnedFd,
    /// The link keeps the program loaded, and the program the map.
    link: OwnedFd,
    read: Vec<u8>,
}

/// Size of a watched socket's record: its number, then the socket.
const WATCHED: usize = 8 + size_of::<Raw>();

impl Watch {
    /// Loads the iterator without sockets; it is unloaded on drop.
    ///
    /// # Errors
    /// If BPF programs may not be loaded.
    pub fn load() -> Result<Self> {
        // A security module may refuse to iterate socket storage. The sockets are then found among
        // the files of the process that samples.
        Watch::by(Purpose::Watched).or_else(|error| Watch::by(Purpose::WatchedFiles).map_err(|_| error))
    }

    fn by(purpose: Purpose<'_>) -> Result<Self> {
        let walker = Walker::load(purpose)?;
        let watched = walker.object.maps().find(|map| map.name() == "watched");
        let watched = watched.ok_or_else(|| Error::Malformed("the object has no map watched".to_owned()))?;
        let map = matches!(purpose, Purpose::Watched).then(|| watched.as_fd());
        let link = walker.attach(map)?;
        let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(refused);
        Ok(Watch { watched: own(watched.as_fd())?, link: own(link.as_fd())?, read: Vec::new() })
    }

    /// Duplicates its descriptors, for [`from_descriptors`](Self::from_descriptors).
    ///
    /// # Errors
    /// If there are too many open files.
    pub fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        [&self.watched, &self.link].into_iter().map(OwnedFd::try_clone).collect()
    }

    /// Restores it from its [`descriptors`](Self::descriptors), in this or another process.
    ///
    /// # Errors
    /// If the number of descriptors is wrong.
    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let [watched, link] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|got| {
            let text = format!("expected two descriptors, got {}", got.len());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(Watch { watched, link, read: Vec::new() })
    }

    /// Adds a socket until it is closed, identified by the caller's `number`.
    ///
    /// # Errors
    /// If the kernel refuses: the descriptor is not a socket, or only root may use BPF.
    pub fn add(&self, socket: BorrowedFd<'_>, number: u64) -> io::Result<()> {
        put(&self.watched, socket, &number)
    }

    /// Samples all added sockets: their numbers and their controllers' state.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn sample(&mut self, mut seen: impl FnMut(u64, Socket)) -> io::Result<()> {
        iterate(self.link.as_fd(), &mut self.read)?;
        for one in self.read.chunks_exact(WATCHED) {
            let (number, socket) = one.split_at(8);
            seen(u64::from_ne_bytes(number.try_into().unwrap_or_default()), Socket::parse(socket));
        }
        Ok(())
    }
}

/// Runs a link's iterator to its end and replaces the contents of `into` by its output.
fn iterate(link: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<()> {
    // SAFETY: takes a plain number.
    let iterator = unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) };
    if iterator < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for us.
    let mut iterator = File::from(unsafe { OwnedFd::from_raw_fd(iterator) });
    into.clear();
    iterator.read_to_end(into).map(drop)
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::impossible(format!("TCP sockets cannot be iterated: {error}"), "Linux 5.9 or newer, as root")
}

/// Runs a link's iterator to its end and returns its output.
fn read(link: &Link) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    Iter::new(link).map_err(refused)?.read_to_end(&mut bytes).map_err(refused)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_sockets_are_found_in_their_storage_and_among_files() {
        let may_load = nix::unistd::Uid::effective().is_root() && crate::kernel::Kernel::detect().is_ok();
        assert!(may_load || std::env::var_os("CI").is_none(), "CI must be able to load programs");
        if !may_load {
            println!("SKIPPED: needs root and BTF");
            return;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        let seen = |watch: &mut Watch| {
            let mut seen = Vec::new();
            watch.sample(|number, _| seen.push(number)).unwrap();
            seen.sort_unstable();
            seen
        };
        let mut ways = 0;
        for purpose in [Purpose::Watched, Purpose::WatchedFiles] {
            let mut watch = match Watch::by(purpose) {
                Ok(watch) => watch,
                // A security module of the kernel.
                Err(e) if e.to_string().contains("failed to load: -EPERM") => continue,
                Err(e) => panic!("{e}"),
            };
            ways += 1;
            assert_eq!(seen(&mut watch), [] as [u64; 0]);
            watch.add(one.as_fd(), 7).unwrap();
            assert_eq!(seen(&mut watch), [7]);
            watch.add(other.as_fd(), 8).unwrap();
            assert_eq!(seen(&mut watch), [7, 8]);
        }
        assert!(ways > 0, "neither way is possible");
    }
}
