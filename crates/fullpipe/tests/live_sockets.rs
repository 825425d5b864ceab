//! Live sockets that are given another controller, in the lab: what was sent before counts, and what a controller
//! arranged for itself is gone with it.
#![cfg(feature = "ebpf")]

mod loading;

use loading::can_load;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

const PORT: u16 = 5209;

/// Run inside the path, at its far end: takes what comes and answers how much it was.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn sink() {
    let (mut from, _) = TcpListener::bind(("0.0.0.0", PORT)).unwrap().accept().unwrap();
    let (mut bytes, mut piece) = (0u64, vec![0; 1 << 20]);
    loop {
        match from.read(&mut piece).unwrap() {
            0 => break,
            n => bytes += n as u64,
        }
    }
    from.write_all(&bytes.to_be_bytes()).unwrap();
}

/// Run inside the path, at its near end: sends, and changes controllers as `PLAN` says ("cubic@0 bbr@60", in
/// milliseconds, "end@5000" at the end).
#[test]
#[ignore = "a part of the other tests, which start it"]
fn mover() {
    let plan = std::env::var("PLAN").unwrap();
    let mut plan = plan.split(' ').map(|step| {
        let (name, at) = step.split_once('@').unwrap();
        (name, Duration::from_millis(at.parse().unwrap()))
    });
    let started = Instant::now();
    let mut to = loop {
        match TcpStream::connect(("198.18.0.2", PORT)) {
            Ok(to) => break to,
            Err(error) => assert!(started.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    to.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    // The lab lets a socket buffer grow without limit; what is in it would have to arrive after the plan's end.
    setsockopt(&to, sockopt::SndBuf, &(1 << 20)).unwrap();
    let started = Instant::now();
    let (mut bytes, piece) = (0u64, vec![0x5a; 64 << 10]);
    let (name, _) = plan.next().unwrap();
    setsockopt(&to, sockopt::TcpCongestion, &name.into()).unwrap();
    for (name, at) in plan {
        while started.elapsed() < at {
            match to.write(&piece) {
                Ok(n) => bytes += n as u64,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
            }
        }
        if name != "end" {
            setsockopt(&to, sockopt::TcpCongestion, &name.into()).unwrap();
        }
    }
    to.shutdown(Shutdown::Write).unwrap();
    let mut answer = [0; 8];
    to.read_exact(&mut answer).unwrap();
    assert_eq!(u64::from_be_bytes(answer), bytes);
}

/// A socket of one of our controllers as `cc status` saw it, and how long after the path was there at most.
struct Seen {
    after: Duration,
    controller: String,
    socket: Value,
}

/// Moves a socket on a path of 40 Mbit/s and 50 ms as `plan` says; loads `controllers` (short names) under names that
/// begin with `prefix`.
fn move_as(plan: &str, prefix: &str, controllers: &[&str], loss: &str) -> Vec<Seen> {
    let own = std::env::current_exe().unwrap();
    let own = own.display();
    let each = |command: &str| -> String {
        let of = |cc: &&str| format!("$FULLPIPE cc {command} {cc} --name {prefix}_{cc} >&2 &&\n");
        controllers.iter().map(of).collect()
    };
    let script = format!(
        "mount -t bpf bpf /sys/fs/bpf &&\n{}\
         {{ $FULLPIPE lab shell --rate 40mbit --rtt 50ms --loss {loss} --server 'exec {own} --exact sink --ignored' -- \
         {own} --exact mover --ignored >&2 & }} &&\nlab=$! &&\n\
         while kill -0 $lab 2>/dev/null; do $FULLPIPE cc status --json | tr -d '\\n' || exit 1; echo; sleep 0.1; done\n\
         wait $lab &&\n{} true",
        each("load"),
        each("unload"),
    );
    let started = Instant::now();
    let mut child = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("FULLPIPE", env!("CARGO_BIN_EXE_fullpipe"))
        .env("PLAN", plan)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = Vec::new();
    for line in std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap())) {
        let line = line.unwrap();
        if line.is_empty() {
            continue;
        }
        let status: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for one in status["controllers"].as_array().unwrap() {
            let name = one["name"].as_str().unwrap().to_owned();
            for socket in one["sockets"].as_array().unwrap() {
                let after = started.elapsed();
                seen.push(Seen { after, controller: name.clone(), socket: socket.clone() });
            }
        }
    }
    assert!(child.wait().unwrap().success(), "{script}");
    seen
}

#[test]
fn a_socket_moved_to_bbr3_counts_rounds_by_what_it_had_delivered_before() {
    if !can_load() {
        return;
    }
    let seen = move_as("cubic@0 fpl_bbr3@60 end@4000", "fpl", &["bbr3"], "0");
    assert!(!seen.is_empty());
    for Seen { after, socket, .. } in &seen {
        // A round takes 50 ms at least. (With every ACK a round, it would be thousands.)
        let rounds = socket["rounds"].as_u64().unwrap();
        let most = after.as_millis() as u64 / 50 + 2;
        assert!(rounds <= most, "{rounds} rounds, at most {most}: {socket}");
    }
    let last = &seen.last().unwrap().socket;
    assert!(last["state"].as_str().unwrap().starts_with("Probe"), "{last}");
}

#[test]
fn sockets_go_from_each_controller_to_each_and_what_was_sent_arrives() {
    if !can_load() {
        return;
    }
    let names = ["cubic", "fpm_bbr3", "reno", "fpm_bbr1", "bbr", "fpm_hybla"];
    let mut plan = Vec::new();
    // Soon after the start, later, and so long after that ProbeBW is reached; losses bring each into recovery.
    for pause in [30, 100, 400] {
        for from in 0..names.len() {
            for to in (0..names.len()).filter(|to| *to != from) {
                plan.extend([(names[from], pause), (names[to], pause)]);
            }
        }
    }
    // At last each of ours, long enough to be looked at.
    plan.extend([("fpm_bbr1", 1500), ("fpm_bbr3", 1500), ("bbr", 100), ("fpm_hybla", 1500), ("end", 0)]);
    let mut at = 0;
    let steps: Vec<String> = plan
        .iter()
        .map(|(name, pause)| {
            let step = format!("{name}@{at}");
            at += pause;
            step
        })
        .collect();
    let seen = move_as(&steps.join(" "), "fpm", &["bbr3", "bbr1", "hybla"], "1%");
    for Seen { controller, socket, .. } in &seen {
        // Hybla does not pace, whoever had the socket before; BBR does.
        assert_eq!(socket["is_paced"], *controller != "fpm_hybla", "{controller}: {socket}");
        assert!(
            socket["cwnd"].as_u64().unwrap() >= 1 && socket["cwnd"].as_u64().unwrap() < 100_000,
            "{socket}"
        );
    }
    for name in ["fpm_bbr3", "fpm_bbr1", "fpm_hybla"] {
        assert!(seen.iter().any(|seen| seen.controller == name), "{name} was not seen");
    }
}
