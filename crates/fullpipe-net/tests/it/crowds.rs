//! Many clients on one server: their cost, and fairness between them. One test alone in its
//! process, because it counts the process's descriptors, threads and memory. It bounds those
//! numbers and the clients' shares, not the machine's speed.

use crate::common::{PATIENCE, Running, patient, until};
use fullpipe_kernel::socket;
use fullpipe_net::client::{self, ClientError, Config};
use fullpipe_net::iperf3::{Cookie, Params, State};
use fullpipe_net::server;
use nix::sys::resource::{UsageWho, getrusage};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The resources held by this process.
#[derive(Clone, Copy, Debug)]
struct Resources {
    descriptors: usize,
    threads: usize,
    /// Bytes allocated and not freed.
    allocated: i64,
}

fn resources() -> Resources {
    let count = |folder| std::fs::read_dir(folder).unwrap().count();
    // SAFETY: mallinfo2 takes nothing and returns numbers; it locks each arena that it counts.
    let heap = unsafe { nix::libc::mallinfo2() };
    Resources {
        descriptors: count("/proc/self/fd"),
        threads: count("/proc/self/task"),
        allocated: (heap.uordblks + heap.hblkhd) as i64,
    }
}

/// Resident memory in kB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// CPU seconds used by this process.
fn used() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
    let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// One of eight kinds of misbehaviour.
fn rude(address: SocketAddr, kind: usize) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let cookie = Cookie::random()?;
    match kind {
        0 => {}
        1 => socket.write_all(&[0x99; 500])?,
        2 => socket.write_all(&cookie.as_bytes()[..11])?,
        3 => socket.write_all(b"GET /download?size=1g HTTP/1.1\r\nHost: localhost\r\n\r\n")?,
        4 => socket
            .write_all(b"PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nabc")?,
        _ => {
            socket.write_all(cookie.as_bytes())?;
            socket.read_exact(&mut [0])?;
            let params = Params { reverse: kind == 6, ..Params::default() };
            let text = params.to_json().to_string();
            socket.write_all(&(text.len() as u32).to_be_bytes())?;
            socket.write_all(text.as_bytes())?;
            if kind >= 6 {
                socket.read_exact(&mut [0])?;
                let mut stream = TcpStream::connect(address)?;
                stream.write_all(cookie.as_bytes())?;
                socket.read_exact(&mut [0; 2])?;
                if kind == 7 {
                    socket.write_all(&[State::TestEnd.byte(), 0xff, 0xff, 0xff, 0xff])?;
                }
            }
        }
    }
    // Some close, some reset.
    if kind % 2 == 1 {
        socket::reset_on_close(&socket)?;
    }
    Ok(())
}

const CROWD: usize = 1000;

/// Threads of a server without clients: one accepts, and one serves what comes over TLS.
const SERVER_THREADS: usize = if cfg!(feature = "rpm") { 2 } else { 1 };

/// A server with all its threads, and their number with those of this process.
fn start() -> (Running, usize) {
    let threads = resources().threads + SERVER_THREADS;
    let server = Running::without_events(server::Config { limits: patient(), ..server::Config::default() });
    until("the server has not started", || resources().threads == threads);
    (server, threads)
}

/// The resources held after a crowd of clients has left, with at most `threads` threads.
fn after_a_crowd(server: &Running, threads: usize) -> Resources {
    let (address, served) = (server.v4(), AtomicU64::new(0));
    std::thread::scope(|s| {
        for thread in 0..10 {
            let served = &served;
            s.spawn(move || {
                for n in 0..CROWD / 10 {
                    if rude(address, (thread + n) % 8).is_ok() {
                        served.fetch_add(1, Relaxed);
                    }
                }
            });
        }
    });
    assert!(served.into_inner() as usize > CROWD / 2, "too few completed their script");
    // No timeout is involved here: it is enough that the clients are gone.
    until("connections outlive their clients", || server.handle.connections() == 0);
    // A thread frees its memory when it ends, shortly after its permit is released.
    until("threads are left", || resources().threads <= threads);
    resources()
}

/// Performs `count` one-byte downloads in sequence.
fn downloads(address: SocketAddr, count: usize) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for _ in 0..count {
        socket.write_all(b"GET /download?size=1 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"\r\n\r\n") {
            socket.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        socket.read_exact(&mut byte).unwrap();
    }
}

fn good_client(port: u16, params: Params) -> Config {
    Config { params, extensions: false, sample_every: None, ..Config::new("127.0.0.1", port) }
}

#[test]
fn misbehaving_crowds_leak_nothing_and_idle_ones_starve_no_client() {
    let (server, threads) = start();
    let port = server.address.port();

    // The sockets of the latest 1024 downloads are kept for `/transfer`, including those of
    // misbehaving clients that received the head, whose number varies. The first crowds fill all
    // such caches; a leak would grow with every further crowd.
    downloads(server.v4(), 1100);
    after_a_crowd(&server, threads);
    let before = after_a_crowd(&server, threads);
    let crowds: Vec<Resources> = (0..3).map(|_| after_a_crowd(&server, threads)).collect();
    println!("after two crowds of {CROWD} rude clients {before:?}, after further ones {crowds:?}");
    until("descriptors are left", || resources().descriptors <= before.descriptors);
    let growth = |(earlier, later): (&Resources, &Resources)| later.allocated - earlier.allocated;
    let least = [&before].into_iter().chain(&crowds).zip(&crowds).map(growth).min().unwrap();
    // The smallest malloc allocation is 32 bytes with its overhead.
    assert!(least < 32 * CROWD as i64, "every crowd leaves {least} bytes");

    let outcome = client::run(
        &good_client(port, Params { bytes: 1 << 20, seconds: 0, ..Params::default() }),
        &AtomicBool::new(false),
        &mut |_| {},
    );
    assert_eq!(outcome.unwrap().sum(true).unwrap().received, Some(1 << 20));
    drop(server);

    // 500 idle connections.
    const IDLE: usize = 500;
    let (server, _) = start();
    let (address, port) = (server.v4(), server.address.port());
    let (before, before_kb) = (resources(), resident());
    let idle: Vec<TcpStream> = (0..IDLE)
        .map(|_| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(b"ab").unwrap();
            socket
        })
        .collect();
    until("not all are connected", || server.handle.connections() == IDLE);
    until("each has a thread", || resources().threads == before.threads + IDLE);
    let each_kb = (resident() - before_kb) / IDLE as i64;
    let each_allocated = (resources().allocated - before.allocated) / IDLE as i64;
    // Their CPU time while idle: the minimum of five samples, because other load affects some of
    // them.
    let look = |_| {
        let (began, before) = (Instant::now(), used());
        std::thread::sleep(Duration::from_millis(500));
        (used() - before) / began.elapsed().as_secs_f64()
    };
    let share = (0..5).map(look).fold(f64::INFINITY, f64::min);
    println!(
        "per idle client {each_kb} kB resident, {each_allocated} bytes allocated; all take {share:.3} of \
            a processor"
    );
    assert_eq!(resources().descriptors, before.descriptors + 2 * IDLE, "a socket at either end");
    assert!(each_kb < 64 && each_allocated < 16_384, "{each_kb} kB, {each_allocated} bytes");
    // 500 threads that poll once a second: measured 0.000, and 0.43 of two busy ones when spinning.
    assert!(share < 0.1, "idle clients take {share} of a processor");

    // 50 clients at 4 Mbit/s each beside them, half of them in each direction. In each window, no
    // client gets less than half of the median.
    let (end, moved) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 50]);
    let bytes = || -> Vec<u64> { moved.iter().map(|m| m.load(Relaxed)).collect() };
    let least_and_median = |mut numbers: Vec<u64>| {
        numbers.sort_unstable();
        (numbers[0], numbers[numbers.len() / 2])
    };
    std::thread::scope(|s| {
        for (n, moved) in moved.iter().enumerate() {
            let (reverse, end) = (n % 2 == 1, &end);
            let params = Params { seconds: 3600, rate: 4_000_000, reverse, ..Params::default() };
            let config = Config { interval: Duration::from_millis(100), ..good_client(port, params) };
            s.spawn(move || {
                let outcome = client::run(&config, end, &mut |interval| {
                    moved.fetch_add(interval.streams[0].bytes, Relaxed);
                });
                assert!(matches!(outcome, Err(ClientError::Interrupted)), "{outcome:?}");
            });
        }
        // Stop them even after a panic, which would otherwise wait for them.
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("one of fifty receives nothing", || bytes().iter().all(|&bytes| bytes > 0));
            // Five windows of two seconds' worth of data: starved clients get little in each of
            // them.
            let window = || {
                let from = bytes();
                let since = || bytes().iter().zip(&from).map(|(now, from)| now - from).collect();
                until("no client receives data any more", || least_and_median(since()).1 >= 1_000_000);
                least_and_median(since())
            };
            let fair = |(least, median): &(u64, u64)| least * 2 >= *median;
            let mut windows = vec![window()];
            while windows.len() < 5 && !windows.last().is_some_and(fair) {
                windows.push(window());
            }
            windows
        }));
        end.store(true, Relaxed);
        let windows = looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        println!("of fifty beside the idle ones, the least and the median got {windows:?} bytes");
        assert!(windows.last().is_some_and(|(least, median)| least * 2 >= *median), "{windows:?}");
    });
    drop(idle);
    until("connections outlive their clients", || server.handle.connections() == 0);
}
