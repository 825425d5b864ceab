//! `fullpipe serve` drops privileges, cannot use them afterwards, and still serves.

mod program;

use program::{Serving, fullpipe, output_within};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

struct Server {
    serving: Serving,
    port: String,
    listening: Value,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let (serving, mut log) = Serving::start(&[&["--json"], options].concat());
        let line = &serving.first;
        let listening: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(listening["event"], "listening");
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        let port = listening["address"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        Server { serving, port, listening }
    }

    fn status(&self, field: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.serving.child.id())).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(field)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    }

    /// The response to an HTTP request.
    fn ask(&self, request: &str) -> String {
        let mut socket = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_confined_server_offers_all_services() {
    let server = Server::start(&[]);
    let mut served = 0;
    for options in [
        &["-n", "1m"][..],
        &["-n", "1m", "-R", "-C", "reno"],
        &["-t", "1", "--bidir", "-P", "3", "-C", "bbr"],
        &["-n", "100k", "-u", "-b", "8mbit"],
        &["-n", "100k", "-u", "-b", "8mbit", "-R", "--get-server-output"],
        &["-n", "1m", "-M", "1000", "-w", "128k", "-N", "-b", "80mbit"],
    ] {
        let mut test = fullpipe();
        test.args(["test", "127.0.0.1", "-p", &server.port, "-J"]).args(options);
        let output = output_within(&mut test, Duration::from_secs(60)).expect("it did not end in time");
        assert!(output.status.success(), "{options:?}: {output:?}");
        served += 1;
    }
    let url = format!("http://127.0.0.1:{}/download?size=300000&cc=reno", server.port);
    let mut get = fullpipe();
    get.args(["get", &url, "--output", "-"]);
    let output = output_within(&mut get, Duration::from_secs(60)).unwrap();
    assert!(output.status.success() && output.stdout.len() == 300_000, "{:?}", output.stderr);
    let put = "PUT /upload HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    assert!(server.ask(put).starts_with("HTTP/1.1 200"), "{}", server.ask(put));
    assert!(server.ask("GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
    // The available controllers are read from a file, the only kind that it may read.
    let answer = server.ask("GET /download?cc=nosuch HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 4") && answer.contains("reno"), "{answer}");
    println!("a confined server served {served} tests, a download, an upload and two pages");
}

#[test]
fn a_server_drops_unneeded_privileges() {
    let server = Server::start(&[]);
    println!("{}", server.listening);
    assert_eq!(server.status("NoNewPrivs:"), "1");
    let unchecked = |layer: &str| server.listening[layer].as_str().unwrap().starts_with("no:");
    if unchecked("files_closed") || unchecked("system_calls_filtered") {
        assert!(std::env::var_os("CI").is_none(), "CI has Landlock and seccomp");
        println!("SKIPPED: this kernel does not confine all: {}", server.listening);
    }
    if !unchecked("system_calls_filtered") {
        assert_eq!(server.status("Seccomp:"), "2", "SECCOMP_MODE_FILTER");
    }
    if nix::unistd::Uid::effective().is_root() {
        assert_eq!(server.listening["user"], "nobody");
        assert_ne!(server.status("Uid:"), "0");
        assert_eq!(server.status("Groups:"), "");
        // Only CAP_NET_ADMIN, for controllers reserved for root.
        let effective = u64::from_str_radix(&server.status("CapEff:"), 16).unwrap();
        assert_eq!(effective & !(1 << 12), 0, "{effective:x}");
        let nobody = Server::start(&["--user", "daemon"]);
        assert_eq!(nobody.listening["user"], "daemon");
    }
    let mut wrong = fullpipe();
    wrong.args(["serve", "--port", "0", "--user", "no such user"]);
    let output = output_within(&mut wrong, Duration::from_secs(20)).expect("it did not end");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("cannot switch to user no such user: no such user"),
        "{output:?}"
    );
}

#[test]
fn a_confined_server_shuts_down_cleanly() {
    let mut server = Server::start(&[]);
    let pid = nix::unistd::Pid::from_raw(server.serving.child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(server.serving.child.wait().unwrap().success());
}

/// systemd's exposure level of the units (0 to 10, in tenths).
#[test]
fn units_have_a_low_systemd_exposure() {
    let there = std::process::Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !there {
        assert!(std::env::var_os("CI").is_none(), "CI must have systemd-analyze");
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    let packaging = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    for unit in ["fullpipe-serve.service", "fullpipe-export.service", "fullpipe-probe.service"] {
        let mut analyze = std::process::Command::new("systemd-analyze");
        analyze
            .args(["security", "--offline=true", "--no-pager", "--threshold=20"])
            .arg(packaging.join(unit));
        let output = output_within(&mut analyze, Duration::from_secs(60)).expect("it did not end in time");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{unit}: {printed}");
        println!("{unit}: {}", printed.lines().last().unwrap_or_default());
    }
}
