//! Runs in the lab during which the machine stalls.

use crate::lab;
use crate::program::fullpipe;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

const RUN: Duration = Duration::from_secs(4);

/// Starts a race of one run, stops it repeatedly for 300 ms during its first three quarters, and
/// returns the processes it had then.
fn stalled_race(again: &str) -> (Child, Vec<u32>) {
    let child = fullpipe()
        .args(["race", "cubic", "--engine", "lab", "--rate", "20mbit", "--rtt", "40ms", "--loss", "0"])
        .args(["--duration", "4s", "--json", "--again", again])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut all = inside(&child, &[]);
    let started = Instant::now();
    while started.elapsed() < RUN * 3 / 4 {
        std::thread::sleep(Duration::from_millis(400));
        all = with_descendants(child.id());
        all.iter().for_each(|&pid| send(pid, Signal::SIGSTOP));
        std::thread::sleep(Duration::from_millis(300));
        all.iter().for_each(|&pid| send(pid, Signal::SIGCONT));
    }
    (child, all)
}

/// Waits for a process of the lab that is not in `before`, and returns all of them; none if `child`
/// ends first.
fn inside(child: &Child, before: &[u32]) -> Vec<u32> {
    loop {
        let all = with_descendants(child.id());
        let gone = std::fs::read_to_string(format!("/proc/{}/stat", child.id()))
            .map_or(true, |stat| stat.contains(") Z "));
        if gone || all[1..].iter().any(|pid| !before.contains(pid)) {
            return all[1..].to_vec();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The process may have ended meanwhile.
fn send(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
}

fn with_descendants(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children: String =
        threads.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default()).collect();
    let children = children.split_whitespace().map(|id| id.parse().unwrap());
    std::iter::once(pid).chain(children.flat_map(with_descendants)).collect()
}

/// The printed run; `None` if the lab is not possible on this machine.
fn run(output: &Output) -> Option<Value> {
    if lab::is_missing(output) {
        return None;
    }
    let results: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(results["runs"].as_array().unwrap().len(), 1);
    Some(results["runs"][0].clone())
}

#[test]
fn a_stalled_run_is_invalid_with_a_reason() {
    let output = stalled_race("0").0.wait_with_output().unwrap();
    let Some(run) = run(&output) else { return };
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 of 1 runs are invalid"));
    assert_eq!(run["valid"], false);
    assert!(run["invalid_because"].to_string().contains("the emulator stalled for"), "{run:#}");
}

#[test]
fn an_invalid_run_is_repeated_with_a_note() {
    let output = stalled_race("3").0.wait_with_output().unwrap();
    let Some(run) = run(&output) else { return };
    // On a busy machine the repeats may be invalid, too.
    assert_eq!(run["valid"], output.status.success(), "{run:#}");
    let notes = run["health"]["notes"].to_string();
    assert!(notes.contains("repeated: the previous run was invalid ("), "{notes}");
    let announced = String::from_utf8_lossy(&output.stderr);
    assert!(
        announced.contains("repeating the invalid run") && announced.contains("stalled for"),
        "{announced}"
    );
    assert!(announced.contains("another 4s (--again 0"), "{announced}");
}

#[test]
fn an_interrupted_repeat_keeps_the_first_run() {
    let (child, first) = stalled_race("1");
    // New processes mean that the second attempt has started; it takes four seconds.
    inside(&child, &first);
    std::thread::sleep(Duration::from_millis(500));
    send(child.id(), Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    let Some(run) = run(&output) else { return };
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(run["valid"], false, "{run:#}");
    assert!(run["invalid_because"].to_string().contains("stalled for"), "{run:#}");
    assert!(!run["health"]["notes"].to_string().contains("repeated:"), "{run:#}");
}
