//! Connections whose sending end has a controller, and exchanges over them.

use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Both ends of connections whose first end uses the controller `name`.
pub struct Connections {
    pub name: &'static str,
    pub ends: Vec<(TcpStream, TcpStream)>,
}

impl Connections {
    pub fn open(name: &'static str, count: usize) -> Self {
        let choose = |to: &TcpStream| setsockopt(to, sockopt::TcpCongestion, &name.into()).unwrap();
        Connections::that(name, count, choose)
    }

    /// The same where `name` is the default: both ends use it.
    pub fn by_default(name: &'static str, count: usize) -> Self {
        Connections::that(name, count, |_| {})
    }

    fn that(name: &'static str, count: usize, choose: impl Fn(&TcpStream)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = |_| {
            let to = TcpStream::connect(address).unwrap();
            to.set_nodelay(true).unwrap();
            choose(&to);
            (to, listener.accept().unwrap().0)
        };
        Connections { name, ends: (0..count).map(open).collect() }
    }

    /// A request and a response over each connection, `times` times.
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
