//! `fullpipe records`: every connection that closes is recorded or counted, with its actual bytes.

use crate::loading::can_load;
use crate::program;
use fullpipe_testing::own_test;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// Runs an ignored test of this file in its own network namespace, where no other connections
/// close.
fn in_a_space(part: &str) {
    if !can_load() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let script = format!(
        "ulimit -n 20000 && mount -t bpf bpf /sys/fs/bpf && ip link set lo up && exec {} --exact {part} \
         --ignored --nocapture",
        own.display()
    );
    assert!(Command::new("unshare").args(["-n", "-m", "sh", "-c", &script]).status().unwrap().success());
}

/// A running `fullpipe records`.
struct Recording {
    child: Child,
    printed: BufReader<ChildStderr>,
}

/// Its last line.
struct Summary {
    code: Option<i32>,
    text: String,
}

impl Recording {
    /// Starts it, and returns once it records.
    fn start(args: &[&str]) -> Recording {
        let mut child = program::fullpipe().arg("records").args(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        printed.read_line(&mut line).unwrap();
        assert!(line.starts_with("recording"), "{line}");
        Recording { child, printed }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn end(self) -> Summary {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    fn wait(mut self) -> Summary {
        let mut text = String::new();
        self.printed.read_to_string(&mut text).unwrap();
        Summary { code: self.child.wait().unwrap().code(), text }
    }
}

impl Summary {
    /// The number before `what`.
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

/// The client's end and the server's.
type Ends = (SocketAddr, SocketAddr);
/// Bytes to and from the server of connections between the same ends, since ports are reused.
type Carried = HashMap<Ends, Vec<(usize, usize, End)>>;

/// Opens and closes connections one after the other, and returns the bytes of each in both
/// directions.
fn connect(many: usize) -> Carried {
    connect_at(1, many)
}

/// The same with a server on the `host`th address.
fn connect_at(host: u8, many: usize) -> Carried {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, host], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let mut carried = Carried::new();
    for n in 0..many {
        let end = [End::ClientFirst, End::ServerFirst, End::ClientFirst, End::ResetByClient][n % 4];
        let (there, back) = (n * 7 % 5000, n * 13 % 3000);
        let mut client = TcpStream::connect(address).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.write_all(&vec![1; there]).unwrap();
        server.read_exact(&mut vec![0; there]).unwrap();
        server.write_all(&vec![2; back]).unwrap();
        client.read_exact(&mut vec![0; back]).unwrap();
        let ends: &mut Vec<_> = carried.entry((client.local_addr().unwrap(), address)).or_default();
        ends.push((there, back, end));
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
fn every_connection_is_recorded_with_its_bytes() {
    in_a_space(own_test!(each_of_two_thousand));
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn each_of_two_thousand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let before = retransmitted();
    let recording = Recording::start(&[path.to_str().unwrap(), "--buffer", "32m", "--max-size", "1GB"]);
    // Set `CONNECTIONS=50000` for more.
    let many: usize = std::env::var("CONNECTIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let began = Instant::now();
    let carried: Carried = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=4).map(|host| scope.spawn(move || connect_at(host, many / 4))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let took = began.elapsed();
    let printed = recording.end();
    assert_eq!(printed.code, Some(0), "{}", printed.text);
    let all = 2 * carried.values().map(Vec::len).sum::<usize>();
    let (written, lost) = (printed.figure("written") as usize, printed.figure("dropped") as usize);
    assert_eq!(
        (printed.figure("connections closed") as usize, written + lost),
        (all, all),
        "{}",
        printed.text
    );
    let records = records(&path);
    assert_eq!(records.len(), written);
    let own = std::process::id();
    let mut seen = HashMap::new();
    let mut again = 0;
    for record in &records {
        let client: SocketAddr = record["client"].as_str().unwrap().parse().unwrap();
        let server: SocketAddr = record["server"].as_str().unwrap().parse().unwrap();
        let by_client = record["vantage"]["point"] == "client";
        let bytes = |way: &str| record[way]["bytes"].as_u64().unwrap_or(0) as usize;
        let reported = (bytes("to_server"), bytes("to_client"));
        let those = &carried[&(client, server)];
        let carried = those.iter().find(|(there, back, _)| (*there, *back) == reported);
        let Some((_, _, end)) = carried else { panic!("{those:?} {record}") };
        *seen.entry((client, server, by_client, reported)).or_insert(0) += 1;
        let closing = if *end == End::ResetByClient { "reset_by_client" } else { "closed" };
        assert_eq!(record["closing"], closing, "{end:?} {record}");
        assert_eq!(record["opening"]["handshake"], "seen");
        assert_eq!(record["schema"], "fullpipe/connection/1");
        // A connection that is reset unobserved is known only from its opening.
        if by_client || *end != End::ResetByClient {
            assert_eq!(record["socket"]["owner"]["pid"], own, "{record}");
        }
        let ours = &record[if by_client { "to_server" } else { "to_client" }];
        again += ours["retransmissions"]["segments"].as_u64().unwrap_or(0);
    }
    assert!(seen.len() == written && seen.values().all(|count| *count == 1));
    let truth = retransmitted() - before;
    assert!(if lost == 0 { again == truth } else { again <= truth }, "{again} of {truth}");
    println!(
        "{all} closings in {took:.1?}: {written} recorded with the bytes they carried, {lost} counted as \
         lost; {}",
        printed.text
    );
}

const PORT: u16 = 5213;
/// Connections through the path, and what each sends.
const MOVERS: usize = 12;
const MOVED: usize = 250_000;

/// Runs inside the path at the far end.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn sink() {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).unwrap();
    let ends: Vec<_> = (0..MOVERS)
        .map(|_| {
            let mut from = listener.accept().unwrap().0;
            std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()).unwrap())
        })
        .collect();
    ends.into_iter().for_each(|end| assert_eq!(end.join().unwrap(), MOVED as u64));
}

/// Runs inside the path at the near end.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn mover() {
    let began = Instant::now();
    let connect = || loop {
        match TcpStream::connect(("198.18.0.2", PORT)) {
            Ok(to) => break to,
            // Failed connection attempts count as closed connections, too.
            Err(error) => assert!(began.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let ends: Vec<TcpStream> = (0..MOVERS).map(|_| connect()).collect();
    std::thread::scope(|scope| {
        for mut to in ends {
            scope.spawn(move || {
                to.write_all(&vec![7; MOVED]).unwrap();
                to.shutdown(Shutdown::Write).unwrap();
                assert_eq!(to.read(&mut [0]).unwrap(), 0);
            });
        }
    });
    use std::os::unix::fs::MetadataExt;
    let namespace = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    println!("\nnamespace {namespace} retransmitted {} end", retransmitted());
}

#[test]
fn retransmissions_under_loss_match_the_namespace_counters() {
    if !can_load() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let port = PORT.to_string();
    let recording = Recording::start(&[path.to_str().unwrap(), "--all-namespaces", "dport", "=", &port]);
    let own = std::env::current_exe().unwrap().display().to_string();
    let part = |name: &str| format!("{own} --exact {name} --ignored --nocapture");
    let mut lab = program::fullpipe();
    lab.args([
        "lab",
        "shell",
        "--rate",
        "30mbit",
        "--rtt",
        "20ms",
        "--loss",
        "2%",
        "--server",
        &part(own_test!(sink)),
        "--",
    ]);
    lab.args(part(own_test!(mover)).split(' '));
    let output = program::output_within(&mut lab, Duration::from_secs(120)).expect("the lab did not end");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let printed = recording.end();
    assert_eq!(printed.figure("dropped"), 0, "{}", printed.text);
    let word = |before: &str| -> u64 {
        let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("{before}: {text}"));
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (namespace, truth) = (word("namespace "), word("retransmitted "));
    let records: Vec<Value> =
        records(&path).into_iter().filter(|r| r["socket"]["namespace"] == namespace).collect();
    let sum = |figure: &str| -> u64 {
        records.iter().map(|r| r["to_server"]["retransmissions"][figure].as_u64().unwrap_or(0)).sum()
    };
    let whole: Vec<&Value> = records.iter().filter(|r| r["opening"]["handshake"] == "seen").collect();
    assert_eq!(whole.len(), MOVERS);
    assert!(whole.iter().all(|r| r["to_server"]["bytes"] == MOVED && r["closing"] == "closed"), "{whole:?}");
    // 2 % of at least 2000 segments.
    assert!(truth >= 10, "{truth}");
    assert_eq!(sum("segments"), truth);
    for record in &whole {
        let (sent, again) =
            (&record["to_server"]["bytes_sent"], &record["to_server"]["retransmissions"]["bytes"]);
        assert_eq!(sent.as_u64().unwrap() - again.as_u64().unwrap_or(0), MOVED as u64, "{record}");
    }
    println!("{truth} segments were retransmitted, and {truth} are in the records");
}

#[test]
fn records_dropped_by_a_full_buffer_are_counted() {
    in_a_space(own_test!(with_a_small_buffer));
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn with_a_small_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let recording = Recording::start(&[path.to_str().unwrap(), "--buffer", "8k"]);
    // Nothing reads the buffer.
    recording.signal(Signal::SIGSTOP);
    connect(200);
    recording.signal(Signal::SIGCONT);
    let printed = recording.end();
    let (written, lost) = (printed.figure("written"), printed.figure("dropped"));
    assert_eq!(written + lost, 400, "{}", printed.text);
    assert_eq!(printed.figure("connections closed"), 400);
    assert!(written >= 20 && lost >= 300 && printed.text.contains("--buffer"), "{}", printed.text);
    assert_eq!(records(&path).len() as u64, written);
}

#[test]
fn names_addresses_files_and_filters_follow_the_options() {
    in_a_space(own_test!(options_in_a_namespace));
}

#[test]
#[ignore = "a part of the other tests, which start it"]
fn options_in_a_namespace() {
    let dir = tempfile::tempdir().unwrap();
    // The process name contains a terminal control sequence.
    fs::write("/proc/self/comm", "\x1b[2Jevil\u{9b}31m").unwrap();

    let turns = dir.path().join("turns.jsonl");
    let recording = Recording::start(&[turns.to_str().unwrap(), "--max-size", "40kB", "--files", "3"]);
    connect(200);
    let printed = recording.end();
    assert_eq!((printed.figure("written"), printed.figure("dropped")), (400, 0));
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
    fs::write(&key, "a key that is hard to guess\n").unwrap();
    fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let keyed = ["--anonymise", "hash", "--key-file", key.to_str().unwrap()];
    let (a, b) = (addresses(&keyed), addresses(&keyed));
    assert!(a.starts_with("[100::") && a == b, "{a} {b}");
    assert_ne!(addresses(&["--anonymise", "hash"]), a, "a run without a key has one of its own");

    let path = dir.path().join("filtered.jsonl");
    let recording = Recording::start(&[path.to_str().unwrap(), "pid", "1"]);
    connect(8);
    let printed = recording.end();
    assert_eq!((printed.figure("written"), printed.figure("excluded by the filter")), (0, 16));
}

#[test]
fn a_full_disk_is_reported_and_cuts_no_line() {
    in_a_space(own_test!(on_a_full_disk));
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
        // Parquet is written to the disk only at the end.
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
        let printed = recording.wait();
        assert_eq!(printed.code, Some(2), "{}", printed.text);
        assert!(printed.text.contains("No space left") && printed.text.contains(name), "{}", printed.text);
        let written = printed.figure("written");
        assert!(printed.figure("could not be written") > 0, "{}", printed.text);
        if name.ends_with("jsonl") {
            assert_eq!(records(&path).len() as u64, written);
            fs::remove_file(&path).unwrap();
        } else {
            assert!(written == 0 && !path.exists(), "{}", printed.text);
        }
    }
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["other"]);
    assert!(Command::new("umount").arg(dir.path()).status().unwrap().success());
}

#[test]
fn a_killed_recorder_leaves_nothing_in_the_kernel() {
    in_a_space(own_test!(killed));
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
        // Its programs and maps, by kernel IDs.
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
        let began = Instant::now();
        while !gone() {
            assert!(began.elapsed() < Duration::from_secs(20), "{there:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Nothing was pinned, and all written lines are complete.
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
fn invalid_options_are_rejected() {
    let refused = |args: &[&str], code: i32, printed: &str| {
        let output = program::fullpipe().arg("records").args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && text.contains(printed), "{args:?}: {text}");
    };
    refused(&["x.jsonl", "dprt = :443"], 2, "known conditions: dst");
    refused(&["x.jsonl", "state", "established"], 2, "cannot use `state`");
    refused(&["x.jsonl", "--max-size", "10"], 2, "--max-size");
    refused(&["x.jsonl", "--anonymise", "prefix", "--key-file", "/dev/null"], 2, "secret");
    if can_load() {
        refused(&["x.csv"], 2, ".jsonl");
    }
}

#[test]
fn a_missing_privilege_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user"]).arg(program::path()).arg("records").arg(&path);
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
