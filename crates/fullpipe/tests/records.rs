//! `fullpipe records`: every connection that closes is in them or counted, with what it really carried.

mod loading;
mod program;

use loading::can_load;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

/// Runs a part of this file, an ignored test, in a network namespace of its own, where nobody else's connections close.
fn in_a_space(part: &str) {
    if !can_load() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "ulimit -n 20000 && mount -t bpf bpf /sys/fs/bpf && ip link set lo up && exec {} --exact {part} --ignored --nocapture",
        own.display()
    );
    assert!(Command::new("unshare").args(["-n", "-m", "sh", "-c", &script]).status().unwrap().success());
}

/// `fullpipe records` at work.
struct Recording {
    child: Child,
    said: BufReader<ChildStderr>,
}

/// What it said at its end.
struct Said {
    code: Option<i32>,
    text: String,
}

impl Recording {
    /// Starts it, and returns when it sees what closes.
    fn start(args: &[&str]) -> Recording {
        let mut child = program::fullpipe().arg("records").args(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with("recording"), "{line}");
        Recording { child, said }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn end(self) -> Said {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    fn wait(mut self) -> Said {
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        Said { code: self.child.wait().unwrap().code(), text }
    }
}

impl Said {
    /// The figure in front of `what`.
    fn figure(&self, what: &str) -> u64 {
        let (before, _) = self.text.split_once(what).unwrap_or_else(|| panic!("{what}: {}", self.text));
        before.trim_end().rsplit(' ').next().unwrap().parse().unwrap()
    }
}

fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How a connection of the test ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    ClientFirst,
    ServerFirst,
    ResetByClient,
}

/// Opens and closes connections, one after the other, and gives what each carried to the server and back, by the client's
/// end.
fn connect(many: usize) -> HashMap<SocketAddr, (usize, usize, End)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut carried = HashMap::new();
    for n in 0..many {
        let end = [End::ClientFirst, End::ServerFirst, End::ClientFirst, End::ResetByClient][n % 4];
        let (there, back) = (n * 7 % 5000, n * 13 % 3000);
        let mut client = TcpStream::connect(address).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.write_all(&vec![1; there]).unwrap();
        server.read_exact(&mut vec![0; there]).unwrap();
        server.write_all(&vec![2; back]).unwrap();
        client.read_exact(&mut vec![0; back]).unwrap();
        carried.insert(client.local_addr().unwrap(), (there, back, end));
        let (mut first, mut second) =
            if end == End::ServerFirst { (server, client) } else { (client, server) };
        if end == End::ResetByClient {
            let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
            setsockopt(&first, sockopt::Linger, &linger).unwrap();
        } else {
            first.shutdown(Shutdown::Write).unwrap();
            assert_eq!(second.read(&mut [0]).unwrap(), 0);
            second.shutdown(Shutdown::Write).unwrap();
            assert_eq!(first.read(&mut [0]).unwrap(), 0);
        }
        drop(first);
        drop(second);
    }
    carried
}

/// The namespace's `TcpRetransSegs`.
fn retransmitted() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let lines: Vec<Vec<&str>> =
        text.lines().filter(|l| l.starts_with("Tcp:")).map(|l| l.split(' ').collect()).collect();
    let at = lines[0].iter().position(|name| *name == "RetransSegs").unwrap();
    lines[1][at].parse().unwrap()
}

#[test]
fn every_connection_is_recorded_with_what_it_carried() {
    in_a_space("each_of_two_thousand");
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn each_of_two_thousand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let before = retransmitted();
    let recording = Recording::start(&[path.to_str().unwrap()]);
    let carried = connect(2000);
    let said = recording.end();
    assert_eq!(said.code, Some(0), "{}", said.text);
    assert_eq!(
        (said.figure("connections closed"), said.figure("written"), said.figure("lost")),
        (4000, 4000, 0)
    );
    let records = records(&path);
    assert_eq!(records.len(), 4000);
    let own = std::process::id();
    let mut seen = HashMap::new();
    let mut again = 0;
    for record in &records {
        let client: SocketAddr = record["client"].as_str().unwrap().parse().unwrap();
        let (there, back, end) = carried[&client];
        let by_client = record["vantage"]["point"] == "client";
        *seen.entry((client, by_client)).or_insert(0) += 1;
        let bytes = |way: &str| record[way]["bytes"].as_u64().unwrap_or(0) as usize;
        assert_eq!((bytes("to_server"), bytes("to_client")), (there, back), "{end:?} {record}");
        let closing = if end == End::ResetByClient { "reset_by_client" } else { "closed" };
        assert_eq!(record["closing"], closing, "{end:?} {record}");
        assert_eq!(record["opening"]["handshake"], "seen");
        assert_eq!(record["schema"], "fullpipe/connection/1");
        // Whoever is reset while nobody looks is known by its opening alone.
        if by_client || end != End::ResetByClient {
            assert_eq!(record["socket"]["owner"]["pid"], own, "{record}");
        }
        let ours = &record[if by_client { "to_server" } else { "to_client" }];
        again += ours["retransmissions"]["segments"].as_u64().unwrap_or(0);
    }
    assert!(seen.len() == 4000 && seen.values().all(|count| *count == 1));
    assert_eq!(again, retransmitted() - before);
    println!("4000 of 4000 closings were recorded with the bytes they carried");
}

#[test]
fn what_finds_the_buffer_full_is_counted() {
    in_a_space("with_a_small_buffer");
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn with_a_small_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let recording = Recording::start(&[path.to_str().unwrap(), "--buffer", "8k"]);
    // Nobody takes what closes.
    recording.signal(Signal::SIGSTOP);
    connect(200);
    recording.signal(Signal::SIGCONT);
    let said = recording.end();
    let (written, lost) = (said.figure("written"), said.figure("lost"));
    assert_eq!(written + lost, 400, "{}", said.text);
    assert_eq!(said.figure("connections closed"), 400);
    assert!(written >= 20 && lost >= 300 && said.text.contains("--buffer"), "{}", said.text);
    assert_eq!(records(&path).len() as u64, written);
}

#[test]
fn names_addresses_files_and_filters_are_as_asked_for() {
    in_a_space("as_asked_for");
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    // The process calls itself what a terminal would obey.
    fs::write("/proc/self/comm", "\x1b[2Jevil\u{9b}31m").unwrap();

    let turns = dir.path().join("turns.jsonl");
    let recording = Recording::start(&[turns.to_str().unwrap(), "--max-size", "40kB", "--files", "3"]);
    connect(200);
    let said = recording.end();
    assert_eq!((said.figure("written"), said.figure("lost")), (400, 0));
    let mut numbers = Vec::new();
    for name in ["turns.2.jsonl", "turns.1.jsonl", "turns.jsonl"] {
        let path = dir.path().join(name);
        assert!(fs::metadata(&path).unwrap().len() <= 40_000);
        numbers.extend(records(&path).iter().map(|r| r["number"].as_u64().unwrap()));
    }
    assert!(!dir.path().join("turns.3.jsonl").exists());
    assert!(numbers.windows(2).all(|w| w[1] == w[0] + 1) && numbers.last() == Some(&400), "{numbers:?}");
    let text = fs::read_to_string(&turns).unwrap();
    assert!(text.contains("u{1b}[2Jevil") && !text.contains(['\x1b', '\u{9b}']), "{text}");

    let addresses = |args: &[&str]| {
        let path = dir.path().join("replaced.jsonl");
        let recording = Recording::start(&[&[path.to_str().unwrap()], args].concat());
        connect(8);
        assert_eq!(recording.end().code, Some(0));
        let mut all: Vec<String> =
            records(&path).iter().map(|r| r["client"].as_str().unwrap().to_owned()).collect();
        all.iter_mut().for_each(|end| end.truncate(end.rfind(':').unwrap()));
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    };
    assert_eq!(addresses(&["--anonymise", "prefix"]), "127.0.0.0");
    let key = dir.path().join("key");
    fs::write(&key, "a key that nobody would guess\n").unwrap();
    let keyed = ["--anonymise", "hash", "--key-file", key.to_str().unwrap()];
    let (a, b) = (addresses(&keyed), addresses(&keyed));
    assert!(a.starts_with("[100::") && a == b, "{a} {b}");
    assert_ne!(addresses(&["--anonymise", "hash"]), a, "a run without a key has one of its own");

    let path = dir.path().join("filtered.jsonl");
    let recording = Recording::start(&[path.to_str().unwrap(), "pid", "1"]);
    connect(8);
    let said = recording.end();
    assert_eq!((said.figure("written"), said.figure("left out by the filter")), (0, 16));
}

#[test]
fn a_full_disk_is_told_and_cuts_no_line() {
    in_a_space("on_a_full_disk");
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn on_a_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=128k", "none"]).arg(dir.path()).status();
    assert!(mounted.unwrap().success());
    for name in ["closed.jsonl", "closed.parquet"] {
        let path = dir.path().join(name);
        let mut recording = Recording::start(&[path.to_str().unwrap()]);
        // Parquet goes to the disk at its end alone.
        let mut filled = 0;
        while recording.child.try_wait().unwrap().is_none() && filled < 40 {
            connect(50);
            filled += 1;
            if name.ends_with("parquet") {
                fs::write(dir.path().join("other"), vec![0; 256 << 10]).unwrap_err();
                recording.signal(Signal::SIGTERM);
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let said = recording.wait();
        assert_eq!(said.code, Some(2), "{}", said.text);
        assert!(said.text.contains("No space left") && said.text.contains(name), "{}", said.text);
        let written = said.figure("written");
        assert!(said.figure("could not be written") > 0, "{}", said.text);
        if name.ends_with("jsonl") {
            assert_eq!(records(&path).len() as u64, written);
            fs::remove_file(&path).unwrap();
        } else {
            assert!(written == 0 && !path.exists(), "{}", said.text);
        }
    }
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["other"]);
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
}

#[test]
fn killed_it_leaves_nothing_in_the_kernel() {
    in_a_space("killed");
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn killed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    for pause in [0, 30, 200] {
        let recording = Recording::start(&[path.to_str().unwrap()]);
        connect(20);
        std::thread::sleep(Duration::from_millis(pause));
        // What it has there, by the kernel's numbers.
        let mut there = Vec::new();
        for entry in fs::read_dir(format!("/proc/{}/fdinfo", recording.child.id())).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            there.extend(text.lines().filter_map(|line| {
                let (what, id) = line.split_once(":\t")?;
                ["prog_id", "map_id", "link_id"]
                    .contains(&what)
                    .then(|| (what.to_owned(), id.parse::<u32>().unwrap()))
            }));
        }
        let count = |what: &str| there.iter().filter(|(kind, _)| kind == what).count();
        assert!(count("prog_id") >= 2 && count("map_id") >= 3 && count("link_id") >= 2, "{there:?}");
        recording.signal(Signal::SIGKILL);
        assert_eq!(recording.wait().code, None);
        // The kernel frees them after a grace period.
        let gone = || {
            let all = fullpipe_ebpf::closings::loaded();
            all.iter().all(|id| !there.contains(&("prog_id".to_owned(), *id)))
        };
        let began = std::time::Instant::now();
        while !gone() {
            assert!(began.elapsed() < Duration::from_secs(20), "{there:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Nothing was pinned, and what was written are whole lines.
        assert_eq!(
            fs::read_dir("/sys/fs/bpf")
                .unwrap()
                .filter(|e| { !e.as_ref().unwrap().file_name().to_string_lossy().ends_with(".debug") })
                .count(),
            0
        );
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'));
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |args: &[&str], code: i32, said: &str| {
        let output = program::fullpipe().arg("records").args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && text.contains(said), "{args:?}: {text}");
    };
    refused(&["x.jsonl", "dprt = :443"], 2, "known are dst");
    refused(&["x.jsonl", "state", "established"], 2, "leave `state` out");
    refused(&["x.jsonl", "--max-size", "10"], 2, "--max-size");
    refused(&["x.jsonl", "--anonymise", "prefix", "--key-file", "/dev/null"], 2, "secret");
    if can_load() {
        refused(&["x.csv"], 2, ".jsonl");
    }
}

#[test]
fn without_privilege_it_says_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", env!("CARGO_BIN_EXE_fullpipe"), "records"]).arg(&path);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.starts_with("unshare:") {
        assert!(std::env::var_os("CI").is_none(), "no user namespaces");
        println!("SKIPPED: no user namespaces");
        return;
    }
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("not permitted") && text.contains("run as root"), "{text}");
    assert!(!path.exists());
}
