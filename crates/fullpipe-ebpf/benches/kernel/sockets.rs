//! Many connections at once over the veth pair, all of them carrying data.
//!
//! Counted is the sending end of each connection: only it has the controller. The receiving ends
//! are on the other namespace's default controller in every case, so that they cancel out in the
//! difference.

use crate::transfer::connect;
use crate::veth::{RECEIVER, Receiver};
use fullpipe_ebpf::loader::Loaded;
use nix::libc::linger;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 12_000;
/// What each connection carries, in this many turns in which all of them send.
const TURNS: usize = 10;
const BYTES_A_TURN: usize = 10_000;
const REPEATS: usize = 3;

/// Lets each of this process's descriptor tables hold all connections.
fn raise_descriptor_limit() {
    let most = CONNECTIONS as u64 + 500;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.max(soft), most.max(hard)).unwrap();
}

/// Bytes of kernel memory that cannot be given back while in use: all slabs but caches of files.
fn slab_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("SUnreclaim:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0
}

/// What one set of connections came to.
struct Crowd {
    /// Slab bytes of a connection, both ends.
    bytes: f64,
    /// Sockets with storage while all were open.
    stored: usize,
    /// Gbit/s of all together.
    rate: f64,
}

/// The receiving ends: says where to connect, then each connection that it got, then each turn
/// whose data came; holds them until `end`.
fn receive(address: &mpsc::Sender<SocketAddr>, done: &mpsc::Sender<()>, end: &mpsc::Receiver<()>) {
    let listener = TcpListener::bind((RECEIVER, 0)).unwrap();
    address.send(listener.local_addr().unwrap()).unwrap();
    let mut ends: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let (from, _) = listener.accept().unwrap();
            done.send(()).unwrap();
            from
        })
        .collect();
    for turn in 0..TURNS {
        for from in &mut ends {
            let mut data = [0; BYTES_A_TURN];
            from.read_exact(&mut data).unwrap();
            assert!(data.iter().all(|byte| usize::from(*byte) == turn));
        }
        done.send(()).unwrap();
    }
    end.recv().unwrap();
}

/// Opens all connections with `name` on their sending ends, sends through all of them in turns, and
/// closes them.
fn crowd(receiver: &Receiver, name: &str, loaded: &Loaded) -> Crowd {
    let before = slab_bytes();
    let ((bound, address), (done, is_done), (end, ending)) =
        (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let receiving = receiver.run(move || receive(&bound, &done, &ending));
    let address = address.recv().unwrap();
    let mut ends: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let to = connect(address, name);
            // Closes without TIME_WAIT, so that the next connections find their ports free.
            setsockopt(&to, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
            is_done.recv().unwrap();
            to
        })
        .collect();

    let started = Instant::now();
    for turn in 0..TURNS {
        for to in &mut ends {
            to.write_all(&[turn as u8; BYTES_A_TURN]).unwrap();
        }
        is_done.recv().unwrap();
    }
    let rate = (CONNECTIONS * TURNS * BYTES_A_TURN) as f64 * 8e-9 / started.elapsed().as_secs_f64();
    // Delayed ACKs come; then no packet takes memory.
    std::thread::sleep(Duration::from_millis(500));
    let bytes = (slab_bytes() - before) / CONNECTIONS as f64;
    let stored = loaded.sockets_with_storage().unwrap();
    drop(ends);
    end.send(()).unwrap();
    receiving.recv().unwrap();
    let closed = Instant::now();
    while loaded.sockets_with_storage().unwrap() > 0 {
        assert!(closed.elapsed() < Duration::from_secs(30), "closed sockets left their storage behind");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The next set must not find memory that is about to be freed.
    std::thread::sleep(Duration::from_secs(1));
    Crowd { bytes, stored, rate }
}

/// Connections on fp_bbr3 and on the kernel's bbr in turn, with the memory of each. `bbr3` is what
/// `bench_bbr3` was loaded as.
pub fn many(receiver: &Receiver, bbr3: &Loaded) {
    raise_descriptor_limit();
    println!("\n{CONNECTIONS} connections at once, each carries {} bytes", TURNS * BYTES_A_TURN);
    let mut differences = Vec::new();
    for _ in 0..REPEATS {
        let [bbr, ours] = ["bbr", "bench_bbr3"].map(|name| crowd(receiver, name, bbr3));
        assert_eq!((bbr.stored, ours.stored), (0, CONNECTIONS));
        println!(
            "kernel bbr: {:.0} bytes of slab a connection, {:.1} Gbit/s; fp_bbr3: {:.0} bytes, {:.1} Gbit/s",
            bbr.bytes, bbr.rate, ours.bytes, ours.rate
        );
        differences.push(ours.bytes - bbr.bytes);
    }
    differences.sort_by(f64::total_cmp);
    println!(
        "fp_bbr3 has {CONNECTIONS} sockets and takes {:.0} bytes more for each ({:.0} to {:.0})",
        differences[REPEATS / 2],
        differences[0],
        differences[REPEATS - 1]
    );
}
