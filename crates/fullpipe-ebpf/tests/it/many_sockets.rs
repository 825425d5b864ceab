//! Thousands of connections on fp_bbr3, whose state is beside the socket: each gets its own,
//! and it is released.

use fullpipe_ebpf::kernel::Kernel;
use fullpipe_ebpf::{Controller, loader};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 2_000;
/// Three times a first window, so that every connection has acknowledgements to work on.
const BYTES: usize = 45_000;

/// Whether controllers can be loaded here; in CI they must. When they can, the calling thread is in
/// a network namespace of its own afterwards.
fn can_load() -> bool {
    let can = unshare(CloneFlags::CLONE_NEWNET).is_ok() && Kernel::detect().is_ok();
    assert!(can || std::env::var_os("CI").is_none(), "CI must be able to load controllers");
    if !can {
        println!("SKIPPED: needs root and BTF");
    }
    can
}

/// Lets this process have two descriptors a connection, and some.
fn raise_descriptor_limit() {
    let most = 2 * CONNECTIONS as u64 + 500;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.max(soft), most.max(hard)).unwrap();
}

#[test]
fn each_of_two_thousand_connections_has_its_own_state_and_none_is_left_behind() {
    if !can_load() {
        return;
    }
    raise_descriptor_limit();
    assert!(std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    let name = "fpt_many";
    let mut loaded = loader::load(Controller::Bbr3, Some(name), &Kernel::detect().unwrap()).unwrap();
    let _link = loaded.attach().unwrap();
    // A security module of the kernel may refuse this iterator, and only this one, to root.
    let is_refused = |e: &fullpipe_ebpf::Error| e.to_string().contains("'fp_kept': failed to load: -EPERM");
    let is_counted = !loaded.sockets_with_storage().is_err_and(|e| is_refused(&e));
    if !is_counted {
        // Not a skipped test: all but the count of what is left behind is tested.
        println!("this kernel refuses to iterate socket storage: what is left behind is not counted");
    }
    let has_storage = |sockets: usize| !is_counted || loaded.sockets_with_storage().unwrap() == sockets;
    assert!(has_storage(0));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut connections: Vec<(TcpStream, TcpStream)> = (0..CONNECTIONS)
        .map(|_| {
            let to = TcpStream::connect(address).unwrap();
            setsockopt(&to, sockopt::TcpCongestion, &name.into()).unwrap();
            (to, listener.accept().unwrap().0)
        })
        .collect();
    assert!(has_storage(CONNECTIONS));

    // All of them send at once, each something of its own.
    for (number, (to, _)) in connections.iter_mut().enumerate() {
        to.write_all(&vec![number as u8; BYTES]).unwrap();
    }
    for (number, (_, from)) in connections.iter_mut().enumerate() {
        let mut got = vec![0; BYTES];
        from.read_exact(&mut got).unwrap();
        assert!(got.iter().all(|byte| *byte == number as u8), "connection {number}");
    }
    assert!(has_storage(CONNECTIONS));

    // Half of them end; the others keep what they have.
    connections.truncate(CONNECTIONS / 2);
    let expect = |count: usize| {
        let started = Instant::now();
        // The last reference to a socket goes after a grace period.
        while !has_storage(count) && started.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(has_storage(count), "{count} of {:?}", loaded.sockets_with_storage());
    };
    expect(CONNECTIONS / 2);
    drop(connections);
    expect(0);
}
