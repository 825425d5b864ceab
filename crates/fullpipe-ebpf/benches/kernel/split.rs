//! The program of a split: its time for each event, what a connection costs with it and without, by
//! turns, and whether it keeps up with as many connections as this machine makes over loopback.

use crate::cpu::Moment;
use crate::{Sorted, program_time};
use fullpipe_ebpf::Error;
use fullpipe_ebpf::split::{
    ConnectionFilter, Setup, SplitConfig, SplitInfo, SplitOwner, SplitProgram, Table, root_group,
};
use fullpipe_split::{AssignBy, Assigner, cuts};
use fullpipe_units::Fraction;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt,
};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROUNDS: usize = 10;
const ROUND: Duration = Duration::from_secs(2);
const CLIENTS: u8 = 2;
/// What each connection asks for.
const BYTES: usize = 1000;

/// A control group of this process's own, for as long as this lives.
struct Group {
    path: PathBuf,
    before: PathBuf,
}

impl Group {
    fn enter() -> Self {
        let root = root_group().unwrap();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let path = root.join(format!("fullpipe-bench-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("cgroup.procs"), "0").unwrap();
        Group { path, before: root.join(own) }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::write(self.before.join("cgroup.procs"), "0");
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// A connection with an address of the client's own, so that ports in TIME_WAIT do not run out.
fn fetch(client: u8, number: u64, to: u16) {
    let [.., a, b] = (number / 20_000 + 1).to_be_bytes();
    let from = SocketAddrV4::new(Ipv4Addr::new(127, client + 1, a, b), 10_000 + (number % 20_000) as u16);
    let own = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&own, sockopt::ReuseAddr, &true).unwrap();
    bind(own.as_raw_fd(), &SockaddrIn::from(from)).unwrap();
    connect(own.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(Ipv4Addr::LOCALHOST, to))).unwrap();
    let mut stream = TcpStream::from(own);
    let mut got = 0;
    let mut part = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut part) {
        got += n;
    }
    assert_eq!(got, BYTES);
}

/// What a round came to.
struct Round {
    connections: u64,
    /// A second.
    rate: f64,
    /// Processor time of this process for each, µs.
    own_us: f64,
}

/// As many connections as there is time for.
fn round(listener: &TcpListener, first: &AtomicU64, meanwhile: impl FnOnce(&dyn Fn() -> bool)) -> Round {
    let (over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let to = listener.local_addr().unwrap().port();
    let (began, before) = (Instant::now(), Moment::now());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (over, made) = (&over, &made);
                scope.spawn(move || {
                    while !over.load(Relaxed) {
                        fetch(client, first.fetch_add(1, Relaxed), to);
                        made.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        let served = scope.spawn(|| {
            listener.set_nonblocking(false).unwrap();
            while let Ok((mut stream, _)) = listener.accept() {
                if stream.write_all(&[0x5a; BYTES]).is_err() {
                    break;
                }
                let _ = stream.shutdown(Shutdown::Write);
                if over.load(Relaxed) && made.load(Relaxed) == u64::MAX {
                    break;
                }
            }
        });
        meanwhile(&|| began.elapsed() < ROUND);
        while began.elapsed() < ROUND {
            std::thread::sleep(Duration::from_millis(20));
        }
        over.store(true, Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
        let count = made.swap(u64::MAX, Relaxed);
        // One more lets the server see that it is over.
        fetch(CLIENTS, first.fetch_add(1, Relaxed), to);
        served.join().unwrap();
        let spent = before.spent();
        Round {
            connections: count + 1,
            rate: count as f64 / spent.wall,
            own_us: spent.own * 1e6 / count.max(1) as f64,
        }
    })
}

fn start(group: &Group) -> SplitProgram {
    let by = AssignBy::Connection;
    let assigner = Assigner::new(1, by);
    let half = Fraction::from_billionths(500_000_000);
    let arms: Vec<_> = cuts(&[half, half]).into_iter().zip([Some("reno"), Some("cubic")]).collect();
    let owner = SplitOwner { id: std::process::id(), started: 0, pid_namespace: 0 };
    SplitProgram::start(&SplitConfig {
        cgroup: &group.path,
        only: ConnectionFilter::default(),
        setup: Setup::new(assigner.key(), assigner.masks(), 0, &[]),
        about: SplitInfo::new(owner, &["reno", "cubic"], 1, 0, ""),
        table: Table::new(0, &arms),
        lease: Duration::from_secs(60),
    })
    .unwrap()
}

/// Rounds with the program and without, by turns.
pub fn rounds() {
    // SAFETY: takes a number.
    let stats = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(stats >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the descriptor was just made and is owned by nothing else. The kernel counts while it is
    // open.
    let stats = unsafe { OwnedFd::from_raw_fd(stats) };
    let group = Group::enter();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let first = AtomicU64::new(0);
    let (mut with, mut without, mut event_ns, mut events) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut connections, mut lost) = (0, 0);
    for _ in 0..ROUNDS {
        without.push(round(&listener, &first, |_| {}));
        let running = start(&group);
        let mut records = 0;
        let with_it = round(&listener, &first, |goes_on| {
            let taken = running.collect(|closed| -> Result<bool, Error> {
                records += closed.len() as u64;
                closed.clear();
                Ok(goes_on())
            });
            taken.unwrap();
        });
        let (calls, ns) = program_time("fp_split");
        event_ns.push(ns as f64 / calls.max(1) as f64);
        let counts = running.counts().unwrap();
        let opened: u64 = counts.opened.iter().sum();
        events.push(calls as f64 / opened.max(1) as f64);
        assert_eq!(records + counts.lost, counts.closed.iter().sum::<u64>());
        (connections, lost) = (connections + opened, lost + counts.lost);
        assert!(opened >= with_it.connections, "both ends of each are in the group");
        with.push(with_it);
    }
    drop(stats);
    let of = |rounds: &[Round], what: fn(&Round) -> f64, decimals| {
        Sorted::new(rounds.iter().map(what)).text(decimals)
    };
    println!(
        "\nsplit, {ROUNDS} rounds of {} s each way, both ends in the group; medians [quartiles]",
        ROUND.as_secs()
    );
    println!(
        "event: {} ns, {} events an end",
        Sorted::new(event_ns.into_iter()).text(0),
        Sorted::new(events.into_iter()).text(1)
    );
    println!(
        "connections a second: {} without, {} with; processor time of each: {} µs without, {} µs with",
        of(&without, |round| round.rate, 0),
        of(&with, |round| round.rate, 0),
        of(&without, |round| round.own_us, 1),
        of(&with, |round| round.own_us, 1)
    );
    println!("{connections} ends were in an arm, of which {lost} closed unrecorded");
}
