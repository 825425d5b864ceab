//! Controllers and connections in network and mount namespaces of a test's own.

use crate::loading::can_load;
use fullpipe_ebpf::life::{self, Status};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

/// Runs a part of the test's file, an ignored test, in namespaces of its own with a BPF file system.
pub fn in_a_space(part: &str) {
    if !can_load() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "ulimit -n 5000 && mount -t bpf bpf /sys/fs/bpf && ip link set lo up && \
         exec {} --exact {part} --ignored --nocapture",
        own.display()
    );
    assert!(Command::new("unshare").args(["-n", "-m", "sh", "-c", &script]).status().unwrap().success());
}

/// What `cc status` knows of the controller that is loaded as `name`.
pub fn status(name: &str) -> Status {
    life::status().unwrap().into_iter().find(|one| one.name == name).unwrap()
}

/// Takes it out again.
pub fn unload(name: &str) {
    let mut fullpipe = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    // Whichever controller has the name.
    assert!(fullpipe.args(["cc", "unload", "bbr3", "--name", name]).status().unwrap().success());
}

/// Both ends of connections of which the first sends by the controller `name`.
pub struct Connections {
    #[allow(dead_code, reason = "not every test asks for it")]
    pub name: &'static str,
    pub ends: Vec<(TcpStream, TcpStream)>,
}

impl Connections {
    pub fn open(name: &'static str, count: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = |_| {
            let to = TcpStream::connect(address).unwrap();
            to.set_nodelay(true).unwrap();
            setsockopt(&to, sockopt::TcpCongestion, &name.into()).unwrap();
            (to, listener.accept().unwrap().0)
        };
        Connections { name, ends: (0..count).map(open).collect() }
    }

    /// A question and an answer over each, `times` times: as many round trips.
    pub fn talk(&mut self, times: u32) {
        for n in 0..times {
            for (number, (to, from)) in self.ends.iter_mut().enumerate() {
                exchange(to, from, [number as u8, n as u8]);
            }
        }
    }
}

fn exchange(to: &mut TcpStream, from: &mut TcpStream, words: [u8; 2]) {
    let mut got = [0; 2];
    to.write_all(&words).unwrap();
    from.read_exact(&mut got).unwrap();
    assert_eq!(got, words);
    from.write_all(&got).unwrap();
    to.read_exact(&mut got).unwrap();
    assert_eq!(got, words);
}
