//! The final state of every closing TCP socket, reported by BPF programs (`bpf/closed.bpf.c`).
//!
//! Nothing is pinned: the programs are unloaded when the process ends.

use crate::error::{Error, Result};
use crate::libbpf;
use crate::ring;
use bytemuck::{Pod, Zeroable};
use fullpipe_kernel::closed::{ClosedSocket, NegotiatedOptions, Opening};
use fullpipe_kernel::facts;
use fullpipe_kernel::tcp_info::State;
use fullpipe_units::{Rate, Span, Time};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// `struct fp_closed` of bpf/closed.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
struct Raw {
    opened_ns: u64,
    closed_ns: u64,
    cookie: u64,
    netns_cookie: u64,
    cgroup: u64,
    bytes_sent: u64,
    bytes_acked: u64,
    bytes_received: u64,
    bytes_retrans: u64,
    controller: [u8; 16],
    process: [u8; 16],
    local: [u8; 16],
    remote: [u8; 16],
    netns: u32,
    pid: u32,
    uid: u32,
    error: u32,
    segs_out: u32,
    segs_in: u32,
    data_segs_out: u32,
    data_segs_in: u32,
    total_retrans: u32,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    delivered: u32,
    delivered_ce: u32,
    srtt_us: u32,
    min_rtt_us: u32,
    snd_cwnd: u32,
    snd_ssthresh: u32,
    mss: u32,
    peer_mss: u32,
    rate_delivered: u32,
    rate_interval_us: u32,
    busy_ticks: u32,
    rwnd_ticks: u32,
    sndbuf_ticks: u32,
    idle_ticks: u32,
    local_port: u16,
    remote_port: u16,
    family: u16,
    total_rto: u16,
    state: u8,
    opened_by: u8,
    window_scale: u8,
    own_window_scale: u8,
    flags: u32,
}

const AF_INET: u16 = 2;
const OPENED_HERE: u8 = 1;
const OPENED_THERE: u8 = 2;
const FIN_CAME: u32 = 1;
const ALL_ACKED: u32 = 2;
const RATE_APP_LIMITED: u32 = 4;
const ECN: u32 = 8;
const SACK: u32 = 16;
const TIMESTAMPS: u32 = 32;
const WINDOW_SCALE: u32 = 64;

impl Raw {
    fn read(&self, ticks: u32) -> ClosedSocket {
        let is = |flag: u32| self.flags & flag != 0;
        let time = |count: u32| Span::from_nanos(u64::from(count) * 1_000_000_000 / u64::from(ticks.max(1)));
        let interval = Span::from_micros(self.rate_interval_us.into());
        let delivered = u64::from(self.rate_delivered) * u64::from(self.mss);
        ClosedSocket {
            local: self.end(&self.local, self.local_port),
            remote: self.end(&self.remote, self.remote_port),
            opened: match self.opened_by {
                OPENED_HERE | OPENED_THERE => Some(Opening {
                    active: self.opened_by == OPENED_HERE,
                    at: Time::from_nanos(self.opened_ns),
                }),
                _ => None,
            },
            closed: Time::from_nanos(self.closed_ns),
            state: State::from_number(self.state),
            error: self.error,
            fin_received: is(FIN_CAME),
            all_acked: is(ALL_ACKED),
            cookie: NonZeroU64::new(self.cookie),
            netns: self.netns,
            netns_cookie: self.netns_cookie,
            cgroup: Some(self.cgroup).filter(|inode| *inode != 0),
            uid: self.uid,
            process: (self.pid != 0).then(|| (self.pid, text(&self.process))),
            controller: text(&self.controller),
            bytes_sent: self.bytes_sent,
            bytes_acked: self.bytes_acked,
            bytes_received: self.bytes_received,
            bytes_retrans: self.bytes_retrans,
            segs_out: self.segs_out,
            segs_in: self.segs_in,
            data_segs_out: self.data_segs_out,
            data_segs_in: self.data_segs_in,
            total_retrans: self.total_retrans,
            dsack_dups: self.dsack_dups,
            reord_seen: self.reord_seen,
            rcv_ooopack: self.rcv_ooopack,
            delivered: self.delivered,
            delivered_ce: self.delivered_ce,
            total_rto: self.total_rto,
            srtt: Some(self.srtt_us >> 3).filter(|us| *us > 0).map(|us| Span::from_micros(us.into())),
            min_rtt: Some(self.min_rtt_us)
                .filter(|us| *us != u32::MAX)
                .map(|us| Span::from_micros(us.into())),
            snd_cwnd: self.snd_cwnd,
            snd_ssthresh: self.snd_ssthresh,
            mss: self.mss,
            peer_mss: self.peer_mss as u16,
            // tcp_compute_delivery_rate()
            delivery_rate: (delivered > 0 && !interval.is_zero())
                .then(|| Rate::from_bytes_in(delivered, interval)),
            delivery_rate_app_limited: is(RATE_APP_LIMITED),
            busy: time(self.busy_ticks) + time(self.rwnd_ticks) + time(self.sndbuf_ticks),
            rwnd_limited: time(self.rwnd_ticks),
            sndbuf_limited: time(self.sndbuf_ticks),
            idle: time(self.idle_ticks),
            options: NegotiatedOptions {
                sack: is(SACK),
                timestamps: is(TIMESTAMPS),
                window_scale: is(WINDOW_SCALE).then_some((self.window_scale, self.own_window_scale)),
                ecn: is(ECN),
            },
        }
    }

    /// An endpoint: IPv4 for an IPv4 connection regardless of the socket's family, as with
    /// `sock_diag`.
    fn end(&self, bytes: &[u8; 16], port: u16) -> SocketAddr {
        let ip = match (self.family, bytes) {
            (AF_INET, [a, b, c, d, ..]) => IpAddr::V4(Ipv4Addr::new(*a, *b, *c, *d)),
            _ => Ipv6Addr::from(*bytes).to_canonical(),
        };
        SocketAddr::new(ip, port)
    }
}

fn text(bytes: &[u8; 16]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Parses a record, from a kernel with `ticks` ticks per second; `None` if it is not a record.
pub fn parse(bytes: &[u8], ticks: u32) -> Option<ClosedSocket> {
    (bytes.len() == size_of::<Raw>()).then(|| bytemuck::pod_read_unaligned::<Raw>(bytes).read(ticks))
}

/// Which sockets are reported, and the buffer size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A network namespace to restrict to, by cookie ([`facts::network_namespace`]); `None` for
    /// all.
    pub namespace: Option<u64>,
    /// Size of the kernel's ring buffer in bytes, at least a page, rounded up to a power of two. A
    /// connection takes 264 bytes; records that do not fit are dropped and counted.
    pub ring_bytes: u32,
}

/// Default ring buffer: 31 000 connections.
pub const RING_BYTES: u32 = 8 << 20;

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sockets that closed.
    pub closed: u64,
    /// Records dropped because the ring was full.
    pub lost: u64,
    /// Times the kernel skipped the program because it was already running on that CPU. Each may
    /// have been a closing socket or any other state change.
    pub skipped: u64,
}

/// Longest delay until records are read.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Milliseconds to wait for running programs after detaching.
const DETACH_WAIT_MS: u32 = 100;

const PROGRAMS: [&str; 2] = ["fp_opened", "fp_closed"];

/// The programs, attached.
#[derive(Debug)]
pub struct Closings {
    object: Object,
    links: Vec<Link>,
    ticks: u32,
}

impl Closings {
    /// Loads and attaches them.
    ///
    /// # Errors
    /// If BPF programs may not be loaded, or the kernel lacks the tracepoint.
    pub fn start(settings: &Settings) -> Result<Self> {
        let ring_bytes = settings.ring_bytes.clamp(4096, 1 << 30).next_power_of_two();
        let object = libbpf::quietly(|| {
            let mut open = ObjectBuilder::default().open_memory(object!("closed"))?;
            for mut map in open.maps_mut() {
                if map.name() == "closings" {
                    map.set_max_entries(ring_bytes)?;
                } else if map.name().to_string_lossy().ends_with(".rodata.closings")
                    && let Some(config) = map.initial_value_mut()
                    && config.len() >= 16
                {
                    config[0..8].copy_from_slice(&settings.namespace.unwrap_or(0).to_ne_bytes());
                    config[8..16].copy_from_slice(&u64::from(ring_bytes / 4).to_ne_bytes());
                }
            }
            open.load()
        })?;
        let refused = |error: libbpf_rs::Error| {
            Error::impossible(
                format!("closing sockets cannot be traced: {error}"),
                "Linux 5.11 or newer with CONFIG_TRACEPOINTS and CONFIG_DEBUG_INFO_BTF",
            )
        };
        // The program that records openings first, so that every later closing has its opening.
        let mut links = Vec::new();
        for name in PROGRAMS {
            let program = object.progs_mut().find(|program| program.name() == name);
            let program =
                program.ok_or_else(|| Error::Malformed(format!("the object has no program {name}")))?;
            links.push(program.attach().map_err(refused)?);
        }
        Ok(Closings { object, links, ticks: facts::tick_rate().unwrap_or(1000) })
    }

    /// The counters, summed over all CPUs.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn counts(&self) -> Result<Counts> {
        counts(&self.object)
    }

    /// Passes closing sockets to `each` until `resume` returns false; it is called about twenty
    /// times a second with the counters. Then detaches the programs and passes the remaining
    /// records.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn follow(
        self,
        mut each: impl FnMut(ClosedSocket),
        mut resume: impl FnMut(Counts) -> bool,
    ) -> Result<Counts> {
        let Closings { object, links, ticks } = self;
        let consumed = std::cell::Cell::new(0u64);
        let mut outcome = Ok(());
        ring::follow::<Raw>(
            &object,
            "closings",
            |raw| {
                consumed.set(consumed.get() + 1);
                each(raw.read(ticks));
            },
            |ring| {
                loop {
                    ring.consume();
                    match counts(&object) {
                        Ok(now) if resume(now) => {}
                        Ok(_) => break,
                        Err(error) => {
                            outcome = Err(error);
                            break;
                        }
                    }
                    // Wakes early only if the ring fills up.
                    ring.wait(POLL_INTERVAL);
                }
                drop(links);
                for _ in 0..DETACH_WAIT_MS {
                    ring.consume();
                    if counts(&object).is_ok_and(|now| consumed.get() >= now.closed.saturating_sub(now.lost))
                    {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            },
        )?;
        outcome.and_then(|()| counts(&object))
    }
}

/// IDs of these programs in the kernel, loaded by any process.
pub fn loaded() -> Vec<u32> {
    let all = libbpf_rs::query::ProgInfoIter::default();
    all.filter(|program| program.name.to_str().is_some_and(|name| PROGRAMS.contains(&name)))
        .map(|p| p.id)
        .collect()
}

fn counts(object: &Object) -> Result<Counts> {
    let each = ring::map(object, "closing_counts")?
        .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(ring::unreadable)?;
    let mut all = Counts { skipped: skipped(object), ..Counts::default() };
    for processor in each.unwrap_or_default() {
        let word = |at: usize| {
            let bytes = processor.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        all.closed += word(0);
        all.lost += word(8);
    }
    Ok(all)
}

/// `recursion_misses` of the program that reports closings (Linux 5.12).
fn skipped(object: &Object) -> u64 {
    let Some(program) = object.progs().find(|program| program.name() == PROGRAMS[1]) else { return 0 };
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the descriptor is a live program's; `info` is writable and its size is given.
    let result =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut size) };
    if result == 0 { info.recursion_misses } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_parsed() {
        let mut raw = Raw {
            opened_ns: 1_000,
            closed_ns: 5_000,
            family: AF_INET,
            local_port: 40_000,
            remote_port: 443,
            opened_by: OPENED_HERE,
            state: 5,
            flags: FIN_CAME | ALL_ACKED | WINDOW_SCALE,
            window_scale: 7,
            own_window_scale: 10,
            srtt_us: 8 * 40_000,
            min_rtt_us: u32::MAX,
            busy_ticks: 100,
            rwnd_ticks: 25,
            rate_delivered: 10,
            rate_interval_us: 1000,
            mss: 1000,
            pid: 7,
            ..Raw::zeroed()
        };
        raw.local[..4].copy_from_slice(&[10, 0, 0, 1]);
        raw.remote[..4].copy_from_slice(&[192, 0, 2, 7]);
        raw.controller[..3].copy_from_slice(b"bbr");
        // The kernel cuts names at 15 bytes, within a character if need be.
        raw.process.copy_from_slice(b"\x1b[2Jname-is-long");
        let read = parse(bytemuck::bytes_of(&raw), 250).unwrap();
        assert_eq!(read.local, "10.0.0.1:40000".parse().unwrap());
        assert_eq!(read.remote, "192.0.2.7:443".parse().unwrap());
        assert_eq!(read.opened, Some(Opening { active: true, at: Time::from_nanos(1_000) }));
        assert_eq!((read.state, read.fin_received, read.all_acked), (State::FinWait2, true, true));
        assert_eq!((read.srtt, read.min_rtt), (Some(Span::from_millis(40)), None));
        assert_eq!((read.busy, read.rwnd_limited), (Span::from_millis(500), Span::from_millis(100)));
        assert_eq!(read.delivery_rate, Some(Rate::from_bytes_per_sec(10_000_000)));
        assert_eq!(read.options.window_scale, Some((7, 10)));
        assert_eq!((read.controller.as_str(), read.process.unwrap().0), ("bbr", 7));
        assert_eq!(parse(&[0; 255], 250), None);
        assert_eq!(size_of::<Raw>(), 256);
    }

    #[test]
    fn ipv4_mapped_address_becomes_ipv4() {
        let mut raw = Raw { family: 10, ..Raw::zeroed() };
        raw.remote = Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().octets();
        raw.local = "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets();
        let read = raw.read(0);
        assert_eq!(read.remote.ip(), "192.0.2.7".parse::<IpAddr>().unwrap());
        assert_eq!(read.local.ip(), "2001:db8::1".parse::<IpAddr>().unwrap());
    }
}
