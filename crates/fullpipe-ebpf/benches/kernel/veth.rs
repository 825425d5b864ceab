//! Two network namespaces joined by a veth pair without any shaping.
//!
//! Only threads of this process are in the namespaces: when it ends, in whatever way, the kernel
//! removes them and the pair with them.

use nix::sched::{CloneFlags, unshare};
use nix::unistd::gettid;
use std::process::Command;
use std::sync::mpsc;

pub const SENDER: &str = "198.18.0.1";
pub const RECEIVER: &str = "198.18.0.2";

/// A thread in the receiving end's namespace, with a descriptor table of its own, that runs what it
/// is given. Sockets must not pass between it and other threads.
pub struct Receiver {
    jobs: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl Receiver {
    /// Runs `what` in the receiver's namespace and gives its result through a channel.
    pub fn run<T: Send + 'static>(&self, what: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
        let (done, result) = mpsc::channel();
        self.jobs.send(Box::new(move || drop(done.send(what())))).unwrap();
        result
    }
}

/// Runs `ip` in the calling thread's namespace.
fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Moves the calling thread, and threads that it starts later, into the sender's namespace.
pub fn join() -> Receiver {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    let (jobs, work) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let (there, peer) = mpsc::channel();
    std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_FILES).unwrap();
        there.send(gettid()).unwrap();
        for job in work {
            job();
        }
    });
    let thread = peer.recv().unwrap();
    let receiver = Receiver { jobs };
    ip("link set lo up");
    ip("link add veth0 type veth peer name veth1");
    ip(&format!("link set veth1 netns /proc/{}/task/{thread}/ns/net", std::process::id()));
    ip(&format!("addr add {SENDER}/30 dev veth0"));
    ip("link set veth0 up");
    receiver
        .run(|| {
            ip("link set lo up");
            ip(&format!("addr add {RECEIVER}/30 dev veth1"));
            ip("link set veth1 up");
        })
        .recv()
        .unwrap();
    receiver
}
