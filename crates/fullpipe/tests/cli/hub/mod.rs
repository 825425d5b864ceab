//! Sites in their own networks, connected by a path for each direction of each pair.
//!
//! Each network ends in a TUN device whose other side is here: packets between sites pass through a
//! `fullpipe_path::Path`, as in the lab, and leave the other's device when due.

use fullpipe_path::{BuildContext, Direction, LinkSpec, Outcome, Packet, Path};
use fullpipe_units::{Span, Time};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The largest packet in bytes.
const MTU: u32 = 1500;

/// One direction of a pair.
#[derive(Clone, Debug)]
pub struct Way {
    /// The links that every packet passes through.
    pub link: LinkSpec,
    /// Whether a firewall passes only packets of connections that the other end opened.
    pub answers_only: bool,
}

impl Way {
    /// A bottleneck with a queue of one bandwidth-delay product, a delay from one end to the other,
    /// and a loss in percent.
    pub fn plain(mbit: u32, delay_ms: u32, loss: f64) -> Way {
        let text = format!(
            "{{\"rate\": \"{mbit}mbit\", \"delay\": \"{delay_ms}ms\", \"loss\": \"{loss}%\", \"queue\": \
             \"1bdp\"}}"
        );
        Way { link: serde_json::from_str(&text).unwrap(), answers_only: false }
    }
}

/// The networks and the paths between them.
pub struct Hub {
    /// A sleeping process that keeps each network alive.
    holders: Vec<Child>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

nix::ioctl_write_ptr_bad!(tun_set, 0x4004_54ca, [u8; 40]);

/// A TUN device.
fn tun(name: &str) -> io::Result<File> {
    const O_NONBLOCK: i32 = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = File::options().read(true).write(true).custom_flags(O_NONBLOCK).open("/dev/net/tun")?;
    let mut request = [0; 40];
    request[..name.len()].copy_from_slice(name.as_bytes());
    // IFF_TUN | IFF_NO_PI of linux/if_tun.h: packets without a header.
    request[16..18].copy_from_slice(&0x1001u16.to_ne_bytes());
    // SAFETY: TUNSETIFF takes a `struct ifreq`, which has 40 bytes; it outlives the call.
    unsafe { tun_set(file.as_raw_fd(), &raw const request) }?;
    Ok(file)
}

fn run(program: &str, words: &str) {
    let output = Command::new(program).args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{program} {words}: {output:?}");
}

/// The address of a site's network.
pub fn address(site: usize) -> String {
    format!("10.9.0.{}", site + 1)
}

impl Hub {
    /// Networks for this many sites. None without TUN devices.
    pub fn new(sites: usize, way: impl Fn(usize, usize) -> Way) -> Option<Hub> {
        let mut devices = Vec::new();
        let mut holders = Vec::new();
        for site in 0..sites {
            let device = match tun(&format!("site{site}")) {
                Ok(device) => device,
                Err(e) => {
                    assert!(std::env::var_os("CI").is_none(), "no TUN devices: {e}");
                    println!("probe: SKIPPED: this machine has no TUN devices for this user: {e}");
                    return None;
                }
            };
            devices.push(device);
            let mut holder = Command::new("unshare");
            holder.args(["--net", "sleep", "infinity"]).stdin(Stdio::null());
            holders.push(holder.spawn().unwrap());
        }
        for (site, holder) in holders.iter().enumerate() {
            let pid = holder.id();
            // It has its own network once its namespace differs from ours.
            let ours = std::fs::read_link("/proc/self/ns/net").unwrap();
            let began = Instant::now();
            while std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap() == ours {
                assert!(began.elapsed() < Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(5));
            }
            run("ip", &format!("link set site{site} netns {pid}"));
            let inside = |words: &str| run("nsenter", &format!("--net=/proc/{pid}/ns/net ip {words}"));
            inside("link set lo up");
            inside(&format!("link set site{site} mtu {MTU} up"));
            inside(&format!("addr add {}/32 dev site{site}", address(site)));
            inside(&format!("route add default dev site{site}"));
        }
        let path = |from: usize, to: usize| {
            let (there, back) = ([way(from, to).link], [way(to, from).link]);
            let seed = (from * sites + to) as u64;
            let context = BuildContext::for_path(&there, &back, Direction::Forward, MTU, seed);
            Path::new(&there, &context).unwrap()
        };
        let paths: Vec<Path<Vec<u8>>> = (0..sites * sites).map(|at| path(at / sites, at % sites)).collect();
        let stop: Arc<AtomicBool> = Arc::default();
        let flag = Arc::clone(&stop);
        let walled = (0..sites * sites).map(|at| way(at / sites, at % sites).answers_only).collect();
        let thread = std::thread::spawn(move || forward(&devices, paths, walled, &flag));
        Some(Hub { holders, stop, thread: Some(thread) })
    }

    /// The process whose network is that of a site.
    pub fn network(&self, site: usize) -> u32 {
        self.holders[site].id()
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // Its panic has been reported.
        let _ = self.thread.take().map(JoinHandle::join);
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Whether a packet is TCP and does not open a connection.
fn is_answer(packet: &[u8]) -> bool {
    let flags = packet.get(usize::from(packet[0] & 15) * 4 + 13);
    // SYN without ACK.
    packet[9] == 6 && flags.is_some_and(|flags| flags & 0x12 != 0x02)
}

/// Forwards packets until it is stopped.
fn forward(devices: &[File], mut paths: Vec<Path<Vec<u8>>>, walled: Vec<bool>, stop: &AtomicBool) {
    let began = Instant::now();
    let now = || Time::from_nanos(began.elapsed().as_nanos() as u64);
    let sites = devices.len();
    let mut buffer = vec![0; MTU as usize];
    while !stop.load(Relaxed) {
        let next = paths.iter().map(Path::next_event).min().unwrap_or(Time::NEVER);
        let wait = next.since(now()).min(Span::from_millis(100));
        let mut ready: Vec<PollFd<'_>> =
            devices.iter().map(|device| PollFd::new(device.as_fd(), PollFlags::POLLIN)).collect();
        ppoll(&mut ready, Some(TimeSpec::from_duration(Duration::from(wait))), None).unwrap();
        for (from, mut device) in devices.iter().enumerate() {
            loop {
                let length = match device.read(&mut buffer) {
                    Ok(length) => length,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => panic!("the device of site {from}: {e}"),
                };
                let packet = &buffer[..length];
                // Only IPv4 to one of the sites is forwarded.
                let to = match packet {
                    [first, ..] if first >> 4 == 4 && length >= 20 && packet[16..19] == [10, 9, 0] => {
                        usize::from(packet[19]).wrapping_sub(1)
                    }
                    _ => continue,
                };
                if to < sites && to != from && (is_answer(packet) || !walled[from * sites + to]) {
                    let size = length as u32;
                    paths[from * sites + to].push(now(), Packet::new(0, size, packet.to_vec()));
                }
            }
        }
        for (at, path) in paths.iter_mut().enumerate() {
            if path.next_event() <= now() {
                let mut device = &devices[at % sites];
                path.advance(now(), &mut |_, outcome| {
                    if let Outcome::Delivered(packet) = outcome {
                        // A device with a full queue drops, like any other.
                        let _ = device.write(&packet.data);
                    }
                });
            }
        }
    }
}
