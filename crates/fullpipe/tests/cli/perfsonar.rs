//! The pScheduler plug-in of `packaging/perfsonar`: every stage, as pScheduler runs them, in a
//! network namespace of its own.

use crate::program;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn plugin() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("packaging/perfsonar/fullpipe")
}

/// Starts a stage, which finds the program under test as `fullpipe`.
fn start(stage: &str, input: &Value) -> Child {
    let mut command = Command::new(plugin().join(stage));
    let directory = program::path().parent().unwrap().to_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", directory.display())).env("PYTHONDONTWRITEBYTECODE", "1");
    program::tied(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{stage}: {e}"));
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    child
}

fn answer(output: &Output) -> Value {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {err}"))
}

fn stage(name: &str, input: &Value) -> Value {
    answer(&start(name, input).wait_with_output().unwrap())
}

/// A task that begins now.
fn task(participant: u32, data: &Value, spec: &Value) -> Value {
    let start = "2026-01-01T00:00:00+00:00";
    json!({
        "participant": participant,
        "participant-data": data,
        "schedule": { "start": start, "duration": "PT9S" },
        "test": { "type": "throughput", "spec": spec },
    })
}

/// The schema of a result, as pScheduler's throughput test publishes it: names and types.
fn check(result: &Value) {
    let known = ["succeeded", "error", "diags", "intervals", "summary"];
    assert!(result.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{result}");
    let part = |values: &Value| {
        for (key, value) in values.as_object().unwrap() {
            match key.as_str() {
                "throughput-bits"
                | "throughput-bytes"
                | "receiver-throughput-bits"
                | "start"
                | "end"
                | "jitter"
                | "rtt" => assert!(value.is_number(), "{key}: {value}"),
                "sent" | "lost" | "retransmits" | "tcp-window-size" | "stream-id" => {
                    assert!(value.is_u64(), "{key}: {value}")
                }
                "omitted" => assert!(value.is_boolean(), "{key}: {value}"),
                _ => panic!("unknown: {key}"),
            }
        }
    };
    let both = |of: &Value| {
        of["streams"].as_array().unwrap().iter().for_each(part);
        part(&of["summary"]);
    };
    result["intervals"].as_array().unwrap().iter().for_each(both);
    both(&result["summary"]);
    assert!(result["diags"].is_string());
}

/// This thread, and the programs it starts, get a loopback interface of their own.
fn isolated() -> bool {
    let isolated = unshare(CloneFlags::CLONE_NEWNET).is_ok();
    if !isolated {
        assert!(std::env::var_os("CI").is_none(), "no network namespace");
        println!("SKIPPED: no permission for a network namespace");
        return false;
    }
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    true
}

/// What two participants measured together, or nothing if the time that pScheduler reserves ended
/// first: a second of measuring has taken 13 s beside other programs.
fn measure(spec: &Value) -> Option<Value> {
    let data = [0, 1].map(|n| stage("participant-data", &json!({ "participant": n })));
    assert_eq!(data[1]["_secret"].as_str().map(str::len), Some(64));
    let data = json!(data);
    let server = start("run", &task(1, &data, spec));
    let client = start("run", &task(0, &data, spec));
    let results = [client, server].map(|child| answer(&child.wait_with_output().unwrap()));
    let merged = stage("merged-results", &json!({ "test": { "spec": spec }, "results": results }));
    check(&merged);
    let diags = merged["diags"].as_str().unwrap();
    assert!(diags.contains("fullpipe serve"), "{merged}");
    if diags.ends_with("\nended after 13 s") {
        println!("{merged}");
        return None;
    }
    assert_eq!(merged["succeeded"], true, "{merged}");
    Some(merged["summary"].clone())
}

#[test]
fn two_participants_measure_with_a_secret_and_both_results_are_merged() {
    if !isolated() {
        return;
    }
    for (spec, streams) in [
        (json!({ "schema": 1, "dest": "127.0.0.1", "duration": "PT1S", "parallel": 2, "mss": 1400 }), 2),
        (
            json!({ "schema": 4, "dest": "127.0.0.1", "duration": "PT1S", "reverse": true, "ip-version": 4 }),
            1,
        ),
        (json!({ "dest": "127.0.0.1", "duration": "PT1S", "udp": true, "bandwidth": 10_000_000 }), 1),
    ] {
        assert_eq!(
            stage("can-run", &json!({ "type": "throughput", "spec": spec })),
            json!({ "can-run": true })
        );
        // The machine may stand still for the whole second: then nothing arrives.
        let moves = (0..3).any(|_| {
            let Some(summary) = measure(&spec) else { return false };
            assert_eq!(summary["streams"].as_array().unwrap().len(), streams, "{summary}");
            let moves = summary["summary"]["throughput-bits"].as_f64().unwrap() > 1e6;
            if !moves {
                println!("{summary}");
            }
            moves
        });
        assert!(moves, "{spec}: three tests ended early or moved less than 1 Mbit/s");
    }
}

#[test]
fn one_participant_measures_over_loopback_and_a_refusal_is_an_error() {
    if !isolated() {
        return;
    }
    let spec = json!({ "schema": 5, "dest": "127.0.0.1", "duration": "PT1S", "loopback": true });
    let result = stage("run", &task(0, &json!([{}]), &spec));
    check(&result);
    assert_eq!(result["succeeded"], true, "{result}");
    let spec = json!({ "schema": 2, "dest": "127.0.0.1", "single-ended": true, "single-ended-port": 9 });
    let result =
        stage("merged-results", &json!({ "results": [stage("run", &task(0, &json!([{}]), &spec))] }));
    check(&result);
    assert_eq!(result["succeeded"], false, "{result}");
    assert!(result["error"].as_str().unwrap().contains("Connection refused"), "{result}");
}

#[test]
fn a_server_without_a_client_ends_with_its_run() {
    if !isolated() {
        return;
    }
    let spec = json!({ "dest": "127.0.0.1", "duration": "PT1H" });
    let data = json!([{}, { "port": 5201, "_secret": "s" }]);
    let run = start("run", &task(1, &data, &spec));
    let id = run.id();
    let children = || std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    let began = Instant::now();
    let server = loop {
        let server = children().trim().to_owned();
        let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp6").unwrap();
        // Port 5201.
        if !server.is_empty() && sockets.contains(":1451 ") {
            break server;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no server");
        std::thread::sleep(Duration::from_millis(20));
    };
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(id as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    assert!(!Path::new(&format!("/proc/{server}")).exists(), "the server {server} is left");
}

#[test]
fn what_cannot_run_has_a_reason() {
    let ask = |task: Value| stage("can-run", &task);
    for (task, reason) in [
        (json!({ "type": "rtt", "spec": {} }), "throughput tests only"),
        (json!({ "type": "throughput" }), "no specification"),
        (json!({ "type": "throughput", "spec": { "dest": "h", "zero-copy": true } }), "zero-copy"),
        (json!({ "type": "throughput", "spec": { "schema": 99, "dest": "h" } }), "newer than 7"),
        (json!({ "type": "throughput", "spec": { "dest": "h", "duration": "P1Y" } }), "not a duration"),
        (json!({ "type": "throughput", "spec": { "dest": "h", "udp": true, "congestion": "bbr" } }), "UDP"),
    ] {
        let answer = ask(task);
        assert_eq!(answer["can-run"], false);
        assert!(answer["reasons"][0].as_str().unwrap().contains(reason), "{answer}");
    }
    let spec = json!({ "dest": "h", "duration": "PT1M30S", "omit": "PT5S", "link-rtt": "PT0.1S" });
    assert_eq!(stage("duration", &json!({ "spec": spec })), json!({ "duration": "PT109S" }));
    let text = Command::new(plugin().join("enumerate")).output().unwrap();
    assert_eq!(answer(&text)["tests"], json!(["throughput"]));
    let bad = start("run", &json!([])).wait_with_output().unwrap();
    assert_eq!(bad.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&bad.stderr).starts_with("run: the input lacks a field"), "{bad:?}");
}
