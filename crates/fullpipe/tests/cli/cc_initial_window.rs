//! `C.InitialCwnd` of a connection with fp_bbr3 is the `initcwnd` of its route, or ten packets if
//! it has sent data before.

use crate::space::{in_a_space, status, unload};
use fullpipe_ebpf::Controller;
use fullpipe_ebpf::lifecycle;
use fullpipe_testing::own_test;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

const NAME: &str = "fpi_bbr3";

/// A new connection to `host`, and its other end.
fn connect(listener: &TcpListener, host: &str) -> (TcpStream, TcpStream) {
    let to = TcpStream::connect((host, listener.local_addr().unwrap().port())).unwrap();
    (to, listener.accept().unwrap().0)
}

/// Sets the controller of the connection, and returns what it may send in its first round trip:
/// InitPacingRate() times the RTT, which is 2.77 times the initial window.
fn begin(to: &TcpStream) -> f64 {
    setsockopt(to, sockopt::TcpCongestion, &NAME.into()).unwrap();
    let sockets = status(NAME).sockets;
    let [socket] = &sockets[..] else { panic!("{sockets:?}") };
    assert!(socket.srtt_us > 0 && socket.rounds == Some(0), "{socket:?}");
    setsockopt(to, sockopt::TcpCongestion, &"reno".into()).unwrap();
    socket.pacing_rate as f64 * f64::from(socket.srtt_us)
}

#[test]
#[ignore = "a part of another test, which starts it"]
fn routes() {
    let mut ip = Command::new("ip");
    ip.args("route add local 127.0.0.2 dev lo table local initcwnd 40".split(' '));
    assert!(ip.status().unwrap().success());
    lifecycle::load(Controller::Bbr3, Some(NAME)).unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();

    let ten = begin(&connect(&listener, "127.0.0.1").0);
    let forty = begin(&connect(&listener, "127.0.0.2").0);
    let (mut to, mut from) = connect(&listener, "127.0.0.2");
    for _ in 0..5 {
        to.write_all(b"?").unwrap();
        from.read_exact(&mut [0]).unwrap();
        from.write_all(b"!").unwrap();
        to.read_exact(&mut [0]).unwrap();
    }
    let later = begin(&to);
    println!("{:.2} times the kernel's ten packets, {:.2} once data was sent", forty / ten, later / ten);
    // They are four and one, except for srtt, which is reported in whole microseconds.
    assert!((2.5..6.0).contains(&(forty / ten)), "{forty} against {ten}");
    assert!((0.6..1.6).contains(&(later / ten)), "{later} against {ten}");
    unload(NAME);
}

#[test]
fn the_initial_window_is_that_of_the_route() {
    in_a_space(own_test!(routes));
}
