//! `fullpipe trace --live`: the packets of an interface, in a network namespace of the test.

use crate::program::{fullpipe, output_within, tied};
use fullpipe_kernel::tcp_info::TcpInfo;
use fullpipe_testing::own_test;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Runs an ignored test of this file as root of its own namespaces. False if that is not possible.
fn in_a_space(part: &str) -> bool {
    let script = "ip link set lo up && exec \"$0\" --exact \"$1\" --ignored --nocapture";
    let mut inside = Command::new("unshare");
    inside.args(["-Urn", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).arg(part);
    let possible = Command::new("unshare").args(["-Urn", "true"]).status().is_ok_and(|s| s.success());
    assert!(possible || std::env::var_os("CI").is_none(), "CI must have user and network namespaces");
    if possible {
        assert!(tied(&mut inside).status().unwrap().success());
    } else {
        println!("SKIPPED: no namespaces for {part}");
    }
    possible
}

/// A `trace --live` that has started to capture.
fn looking(args: &[&str]) -> Child {
    let mut command = fullpipe();
    command.args(["trace", "--json", "--live"]).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut printed = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut printed).unwrap();
    assert!(printed.starts_with("capturing on"), "{printed}");
    child
}

/// Sends `bytes` over loopback on a new connection and closes it. Returns how many bytes the kernel
/// retransmitted: if the receiver waits for a processor, its window closes and the last data are
/// probed again.
fn transfer(listener: &TcpListener, bytes: usize) -> u64 {
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| listener.accept().unwrap().0.read_to_end(&mut Vec::new()).unwrap());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&vec![7; bytes]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // The peer closes once it has read everything.
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        TcpInfo::query(&stream).unwrap().bytes_retrans.expect("Linux 4.19 counts them")
    })
}

/// The reported connections, after it ended by itself or by `signal`.
fn captured_connections(child: Child, signal: Option<Signal>) -> Vec<Value> {
    if let Some(signal) = signal {
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    found["connections"].as_array().unwrap().clone()
}

/// Packet sockets of this network namespace.
fn sockets() -> usize {
    std::fs::read_to_string("/proc/net/packet").unwrap().lines().count() - 1
}

#[test]
fn a_transfer_is_captured_once_and_completely() {
    in_a_space(own_test!(inside_a_transfer_is_captured_once_and_completely));
}

#[test]
#[ignore = "runs in a namespace"]
fn inside_a_transfer_is_captured_once_and_completely() {
    let (wanted, other) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::1]:0").unwrap());
    let port = format!("port {}", wanted.local_addr().unwrap().port());
    for (interface, signal) in [("lo", Signal::SIGINT), ("any", Signal::SIGTERM)] {
        let child = looking(&[interface, "--for", "60s", "--filter", &port]);
        assert_eq!(sockets(), 1);
        let sent_again = transfer(&wanted, 3_000_000);
        transfer(&other, 50_000);
        let connections = captured_connections(child, Some(signal));
        assert_eq!(connections.len(), 1, "{connections:#?}");
        let c = &connections[0];
        assert_eq!(c["to_server"]["bytes"], 3_000_000, "{c:#}");
        assert_eq!(c["to_server"]["bytes_missed"].as_u64().unwrap_or_default(), 0, "{c:#}");
        assert_eq!((&c["opening"]["handshake"], &c["closing"]), (&"seen".into(), &"closed".into()));
        // In bytes, since the number of segments per packet depends on the kernel.
        let seen_again = &c["to_server"]["retransmissions"]["bytes"];
        assert_eq!(seen_again.as_u64().unwrap_or_default(), sent_again, "{c:#}");
        assert_eq!(sockets(), 0, "nothing is left behind");
    }
    // Without a filter, for both versions of IP, until its time limit.
    let child = looking(&["any", "--for", "1500ms"]);
    transfer(&other, 70_000);
    transfer(&wanted, 90_000);
    let bytes: Vec<_> =
        captured_connections(child, None).iter().map(|c| c["to_server"]["bytes"].clone()).collect();
    assert_eq!(bytes, [70_000, 90_000]);
}

#[test]
fn impossible_captures_name_the_reason() {
    in_a_space(own_test!(inside_impossible_captures_name_the_reason));
}

#[test]
#[ignore = "runs in a namespace"]
fn inside_impossible_captures_name_the_reason() {
    let ended = |command: &mut Command| {
        let output = output_within(command, Duration::from_secs(20)).unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, printed) = ended(fullpipe().args(["trace", "--live", "eth77", "--for", "1s"]));
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("no interface eth77") && printed.contains("lo"), "{printed}");
    let (code, printed) = ended(fullpipe().args(["trace", "--live", "lo", "--filter", "port http"]));
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("port http"), "{printed}");
    // In a nested user namespace it has no privileges over this network.
    let mut below = Command::new("unshare");
    below.args(["-U", env!("CARGO_BIN_EXE_fullpipe"), "trace", "--live", "lo", "--for", "1s"]);
    let (code, printed) = ended(tied(&mut below));
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("CAP_NET_RAW") && printed.contains("sudo"), "{printed}");
    assert_eq!(sockets(), 0);
}
