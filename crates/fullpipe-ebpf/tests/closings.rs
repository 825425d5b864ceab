//! What closes is handed out or counted, and what that costs.
//!
//! `CONNECTIONS=50000 cargo test --test closings -- --nocapture` tells of as many, as root.

use fullpipe_ebpf::closings::{Closings, RING_BYTES, Settings};
use fullpipe_kernel::facts;
use libbpf_rs::query::ProgInfoIter;
use nix::sched::{CloneFlags, unshare};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Has the kernel measure how long programs run, as long as this lives (Linux 5.8).
fn measured() -> OwnedFd {
    // SAFETY: takes a plain number.
    let stats = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    assert!(stats >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the kernel has just opened it for us.
    unsafe { OwnedFd::from_raw_fd(stats) }
}

/// Opens `many` connections one after the other on an address of its own, each with a few bytes both ways, and closes them.
fn connect(host: u8, many: usize) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    for n in 0..many {
        let mut client = TcpStream::connect(address).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.write_all(&[1; 100]).unwrap();
        server.read_exact(&mut [0; 100]).unwrap();
        if n % 2 == 0 { drop((client, server)) } else { drop((server, client)) }
    }
}

#[test]
fn what_closes_is_handed_out_or_counted() {
    let can = unshare(CloneFlags::CLONE_NEWNET).is_ok() && nix::unistd::Uid::effective().is_root();
    assert!(can || std::env::var_os("CI").is_none(), "CI must be able to load programs");
    if !can {
        println!("SKIPPED: needs root");
        return;
    }
    assert!(std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let many: usize = std::env::var("CONNECTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let namespace = Some(facts::network_namespace().unwrap());
    let _stats = measured();
    let closings = Closings::start(&Settings { namespace, ring_bytes: RING_BYTES }).unwrap();
    assert_eq!(closings.counts().unwrap().closed, 0);
    let (ended, mut handed, mut cost) = (AtomicBool::new(false), 0u64, Vec::new());
    let began = Instant::now();
    let mut took = began.elapsed();
    let counts = std::thread::scope(|scope| {
        let ended = &ended;
        scope.spawn(move || {
            std::thread::scope(|scope| {
                for host in 1..=4 {
                    scope.spawn(move || connect(host, many / 4));
                }
            });
            ended.store(true, Relaxed);
        });
        closings.follow(
            |closed| {
                handed += 1;
                assert!(
                    closed.opened.is_some() && closed.local.ip() == closed.remote.ip()
                        || closed.was_established()
                );
            },
            |_| {
                let go_on = !ended.load(Relaxed);
                if !go_on {
                    took = began.elapsed();
                    // Before they are gone.
                    let ours =
                        ProgInfoIter::default().filter(|p| p.name == "fp_opened" || p.name == "fp_closed");
                    cost = ours
                        .map(|p| (p.name.to_string_lossy().into_owned(), p.run_cnt, p.run_time_ns))
                        .collect();
                }
                go_on
            },
        )
    });
    let counts = counts.unwrap();
    let all = 2 * (many / 4 * 4) as u64;
    assert_eq!((counts.closed, handed + counts.lost), (all, all));
    // Two programs of this test and as many of whoever else looks now.
    let time: u64 = cost.iter().map(|(_, _, ns)| ns).sum();
    println!(
        "{all} closings in {took:.1?}, {} lost, {} skipped; {cost:?}: {} ns a closing, with what is noted before",
        counts.lost,
        counts.skipped,
        time / all.max(1)
    );
}
