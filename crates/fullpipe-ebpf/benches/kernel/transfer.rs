//! Bulk transfers over the veth pair, one controller after the other.

use crate::cpu::{Moment, wait_until_quiet};
use crate::veth::{RECEIVER, Receiver};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, setsockopt, socket, sockopt};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Startup and the first rounds are not measured.
const WARM_UP: Duration = Duration::from_millis(150);
/// Short, so that what is compared is close together in time.
const SPAN: Duration = Duration::from_millis(400);
/// Each end's socket buffer in bytes: many times what fits between the two.
const BUFFER: usize = 8 << 20;
const WRITE: usize = 1 << 18;

/// What a transfer came to.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Gbit/s at the receiver.
    pub rate: f64,
    /// Seconds of this process per gigabit.
    pub own: f64,
    /// Seconds of the machine per gigabit.
    pub machine: f64,
    /// Other programs ran meanwhile.
    pub disturbed: bool,
}

/// Connects with the controller `name` from the first packet on. Chosen afterwards, it would follow
/// the default: where that is kernel bbr, the kernel goes on pacing whatever comes next, and
/// packets that a pacing timer releases on one processor overtake those sent on another. To
/// controllers that go by loss that reordering is loss.
pub fn connect(address: SocketAddr, name: &str) -> TcpStream {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    if let Err(error) = setsockopt(&socket, sockopt::TcpCongestion, &name.into()) {
        panic!("{name}: {error}");
    }
    nix::sys::socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
    socket.into()
}

/// Sends with a controller for [`SPAN`] after the warm-up.
fn transfer(receiver: &Receiver, name: &str) -> Transfer {
    let received = Arc::new(AtomicU64::new(0));
    let (counter, (bound, address)) = (Arc::clone(&received), std::sync::mpsc::channel());
    let reading = receiver.run(move || {
        let listener = TcpListener::bind((RECEIVER, 0)).unwrap();
        setsockopt(&listener, sockopt::RcvBufForce, &BUFFER).unwrap();
        bound.send(listener.local_addr().unwrap()).unwrap();
        let (mut from, _) = listener.accept().unwrap();
        let mut buffer = vec![0; WRITE];
        loop {
            match from.read(&mut buffer).unwrap() {
                0 => break,
                size => counter.fetch_add(size as u64, Ordering::Relaxed),
            };
        }
    });
    let mut to = connect(address.recv().unwrap(), name);
    setsockopt(&to, sockopt::SndBufForce, &BUFFER).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let sending = std::thread::spawn(move || {
        let buffer = vec![0; WRITE];
        while !stopping.load(Ordering::Relaxed) {
            to.write_all(&buffer).unwrap();
        }
    });

    std::thread::sleep(WARM_UP);
    let (before, start) = (received.load(Ordering::Relaxed), Moment::now());
    std::thread::sleep(SPAN);
    let (after, spent) = (received.load(Ordering::Relaxed), start.spent());
    stop.store(true, Ordering::Relaxed);
    sending.join().unwrap();
    reading.recv().unwrap();

    let gigabits = (after - before) as f64 * 8e-9;
    Transfer {
        rate: gigabits / spent.wall,
        own: spent.own / gigabits,
        machine: spent.busy / gigabits,
        disturbed: spent.disturbed,
    }
}

/// Sees to it that measurements are taken on a quiet machine.
pub struct Quiet {
    until: Instant,
    /// Measurements that count although other programs ran.
    pub disturbed: usize,
}

impl Quiet {
    /// For so long it waits and has disturbed measurements taken again.
    pub fn new(patience: Duration) -> Self {
        Quiet { until: Instant::now() + patience, disturbed: 0 }
    }

    /// Sends with each of `names` in turn, close together. When the time is up, returns nothing,
    /// or the results so far if they are `needed`.
    pub fn transfers<const N: usize>(
        &mut self,
        receiver: &Receiver,
        names: [&str; N],
        needed: bool,
    ) -> Option<[Transfer; N]> {
        loop {
            wait_until_quiet(self.until.saturating_duration_since(Instant::now()));
            let late = Instant::now() >= self.until;
            if late && !needed {
                return None;
            }
            let transfers = names.map(|name| transfer(receiver, name));
            let disturbed = transfers.iter().any(|transfer| transfer.disturbed);
            if !disturbed || late {
                self.disturbed += usize::from(disturbed);
                return Some(transfers);
            }
        }
    }
}
