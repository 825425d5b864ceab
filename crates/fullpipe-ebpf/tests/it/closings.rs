//! What closes is handed out or counted, and what that costs.
//!
//! `CONNECTIONS=50000 cargo test --test it closings:: -- --nocapture` tells of as many, as root.

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

/// A program that does nothing, at the same tracepoint as long as this lives: what measuring adds
/// to each run.
fn nothing() -> [OwnedFd; 2] {
    let instruction = |code: u8, imm: i32| {
        let mut instruction = libbpf_sys::bpf_insn { code, imm, ..Default::default() };
        instruction.set_dst_reg(0);
        instruction
    };
    // r0 = 0; exit.
    let program = [instruction(0xb7, 0), instruction(0x95, 0)];
    // SAFETY: names and license are C strings, and the program as long as is said; all outlive the
    // calls, whose answers are descriptors of our own or errors.
    unsafe {
        let loaded = libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT,
            c"fp_nothing".as_ptr(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as u64,
            std::ptr::null_mut(),
        );
        assert!(loaded >= 0, "{}", std::io::Error::last_os_error());
        let attached = libbpf_sys::bpf_raw_tracepoint_open(c"inet_sock_set_state".as_ptr(), loaded);
        assert!(attached >= 0, "{}", std::io::Error::last_os_error());
        [OwnedFd::from_raw_fd(loaded), OwnedFd::from_raw_fd(attached)]
    }
}

/// Opens `many` connections one after the other on an address of its own, each with a few bytes
/// both ways, and closes them.
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
fn closed_connections_are_delivered_or_counted() {
    let can = unshare(CloneFlags::CLONE_NEWNET).is_ok() && nix::unistd::Uid::effective().is_root();
    assert!(can || std::env::var_os("CI").is_none(), "CI must be able to load programs");
    if !can {
        println!("SKIPPED: needs root");
        return;
    }
    assert!(std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let many: usize = std::env::var("CONNECTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let namespace = Some(facts::network_namespace().unwrap());
    let (_stats, _nothing) = (measured(), nothing());
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
                    let ours = ProgInfoIter::default().filter(|p| {
                        ["fp_opened", "fp_closed", "fp_nothing"].iter().any(|name| p.name == *name)
                    });
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
    // Programs of this test, and of other processes that trace closings now.
    let sum = |of: fn(&(String, u64, u64)) -> u64, nothing: bool| -> u64 {
        cost.iter().filter(|p| (p.0 == "fp_nothing") == nothing).map(of).sum()
    };
    let (time, runs) = (|p: &(String, u64, u64)| p.2, |p: &(String, u64, u64)| p.1);
    let nothing = sum(time, true) as f64 / sum(runs, true).max(1) as f64;
    let gross = sum(time, false) as f64 / all.max(1) as f64;
    let each = sum(runs, false) as f64 / all.max(1) as f64;
    println!(
        "{all} closings in {took:.1?}, {} lost, {} skipped; {cost:?}\n\
         {gross:.0} ns a closing in {each:.1} runs, of which measuring took {:.0} ({nothing:.1} ns a \
         run that does nothing): {:.0} ns",
        counts.lost,
        counts.skipped,
        nothing * each,
        gross - nothing * each
    );
}
