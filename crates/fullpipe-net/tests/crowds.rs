//! Many clients on one server: what they cost, and that nobody starves. One test, alone in its process,
//! because it counts the process's descriptors and memory.

mod common;

use common::Running;
use fullpipe_net::client::{self, Config};
use fullpipe_net::iperf3::{Cookie, Params, State};
use fullpipe_net::server::{self, Limits};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Resident memory in kB.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn calm(server: &Running) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.handle.connections() > 0 {
        assert!(Instant::now() < deadline, "{} connections left", server.handle.connections());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// One of eight kinds of rudeness.
fn rude(address: SocketAddr, kind: usize) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let cookie = Cookie::random()?;
    match kind {
        0 => {}
        1 => socket.write_all(&[0x99; 500])?,
        2 => socket.write_all(&cookie.as_bytes()[..11])?,
        3 => socket.write_all(b"GET /download?size=1g HTTP/1.1\r\nHost: h\r\n\r\n")?,
        4 => socket.write_all(b"PUT /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc")?,
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
    // Some leave in good order, some reset.
    if kind % 2 == 1 {
        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO))?;
    }
    Ok(())
}

fn thousand_rude_clients(server: &Running) {
    let address = server.v4();
    std::thread::scope(|s| {
        for thread in 0..10 {
            s.spawn(move || {
                for n in 0..100 {
                    let _ = rude(address, (thread + n) % 8);
                }
            });
        }
    });
    calm(server);
}

fn good_client(port: u16, params: Params) -> f64 {
    let config = Config { params, extensions: false, sample_every: None, ..Config::new("127.0.0.1", port) };
    let outcome = client::run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap();
    outcome.sum(true).unwrap().goodput()
}

#[test]
fn rude_crowds_leave_nothing_behind_and_idle_ones_starve_nobody() {
    let limits =
        Limits { handshake: Duration::from_secs(1), idle: Duration::from_secs(1), ..Limits::default() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    let port = server.address.port();

    // The first thousand fill the allocator's pools; the second must not need more.
    thousand_rude_clients(&server);
    let (before_fds, before_kb) = (descriptors(), resident());
    thousand_rude_clients(&server);
    let (after_fds, after_kb) = (descriptors(), resident());
    println!(
        "descriptors {before_fds} → {after_fds}, resident {before_kb} kB → {after_kb} kB after 1000 rude clients"
    );
    assert_eq!(after_fds, before_fds);
    assert!(after_kb <= before_kb + 3_000, "{before_kb} kB → {after_kb} kB");
    assert!(good_client(port, Params { bytes: 1 << 20, seconds: 0, ..Params::default() }) > 0.0);
    drop(server);

    // 500 that hold a connection and do nothing, 50 that measure at 4 Mbit/s each.
    let server = Running::start(server::Config::default());
    let (address, port) = (server.v4(), server.address.port());
    let before_kb = resident();
    let idle: Vec<TcpStream> = (0..500)
        .map(|_| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(b"ab").unwrap();
            socket
        })
        .collect();
    while server.handle.connections() < idle.len() {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{} kB resident per idle client", (resident() - before_kb) / idle.len());
    let goodputs: Vec<f64> = std::thread::scope(|s| {
        let params = || Params { seconds: 2, rate: 4_000_000, ..Params::default() };
        let clients: Vec<_> = (0..50).map(|_| s.spawn(move || good_client(port, params()))).collect();
        clients.into_iter().map(|c| c.join().unwrap()).collect()
    });
    println!("{} kB resident in all with 50 active clients and their own threads", resident());
    let least = goodputs.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least > 3.2e6, "one of fifty got {least} of 4 Mbit/s");
    assert!(resident() - before_kb < 100_000, "550 clients took {} kB", resident() - before_kb);
}
