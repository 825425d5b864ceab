//! What `trace` says of captures, held to what the lab knows of the runs they were made in.

mod lab;
mod program;

use program::{fullpipe, output_within};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// A run and what it was.
struct Run {
    recording: Value,
    /// The records of the connection, seen at the sender and at the receiver.
    seen: [Value; 2],
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Races `controllers` on `path` and traces the captures of both ends. `None` when this machine cannot make a lab.
fn races(controllers: &[&str], path: &[&str]) -> Option<Vec<Run>> {
    let dir = tempfile::tempdir().unwrap();
    let (prefix, out) = (dir.path().join("capture"), dir.path().join("run.json"));
    let mut race = fullpipe();
    race.arg("race").args(controllers).args(path).args(["--engine", "lab", "--pcap"]).arg(&prefix);
    let output =
        output_within(race.arg("--out").arg(&out), Duration::from_secs(150)).expect("it did not end in time");
    if lab::is_missing(&output) {
        return None;
    }
    let runs = json(&out)["runs"].as_array().unwrap().clone();
    let several = runs.len() > 1;
    let run = |(i, recording): (usize, Value)| {
        let seen = ["client", "server"].map(|end| {
            let number = if several { format!("-{}", i + 1) } else { String::new() };
            let file = format!("{}{number}-{end}.pcap", prefix.display());
            let output =
                output_within(fullpipe().args(["trace", "--json", &file]), Duration::from_secs(60)).unwrap();
            assert!(output.status.success(), "{output:?}");
            let found: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(found["schema"], "fullpipe/connection/1");
            assert_eq!(found["connections"].as_array().unwrap().len(), 1, "{found:#}");
            found["connections"][0].clone()
        });
        Run { recording, seen }
    };
    Some(runs.into_iter().enumerate().map(run).collect())
}

fn number(v: &Value) -> f64 {
    v.as_f64().unwrap_or_else(|| panic!("no number: {v}"))
}

/// Within `share` of `truth`, or within `least`.
fn near(found: f64, truth: f64, share: f64, least: f64) -> bool {
    (found - truth).abs() <= (truth * share).max(least)
}

#[test]
fn path_and_retransmissions_are_what_the_lab_made_them() {
    let paths: [&[&str]; 3] = [
        &["--rate", "20mbit", "--rtt", "40ms", "--loss", "0.5%", "--duration", "5s"],
        &["--rate", "10mbit", "--rtt", "100ms", "--loss", "0%", "--buffer", "0.5bdp", "--duration", "6s"],
        &["--rate", "40mbit", "--rtt", "10ms", "--loss", "0%", "--buffer", "2bdp", "--duration", "4s"],
    ];
    for path in paths {
        let Some(runs) = races(&["bbr", "cubic", "reno"], path) else { return };
        if runs.iter().all(|run| run.recording["valid"] != true) {
            println!("NOT SHOWN: traces of {path:?}: {}", runs[0].recording["invalid_because"]);
        }
        for run in runs {
            let truth = &run.recording;
            let name = format!("{} on {}", truth["label"], truth["path"]["description"]);
            if truth["valid"] != true {
                continue;
            }
            let rate = number(&truth["path"]["goodput_limit_bps"]);
            let base = number(&truth["path"]["base_rtt_ms"]);
            let again = truth["summary"]["packets_retransmitted"].as_u64().unwrap();
            for (record, place, point) in
                [(&run.seen[0], "sender", "client"), (&run.seen[1], "receiver", "server")]
            {
                assert_eq!(record["vantage"]["point"], point, "{name}: {:#}", record["vantage"]);
                let d = &record["to_server"];
                assert_eq!(d["place"], place, "{name}");
                let rtprop = number(&d["rtprop_ms"]);
                assert!(near(rtprop, base, 0.02, 1.0), "{name} at the {place}: RTprop {rtprop} ms");
                // A controller that keeps the path half empty shows what it carries for moments only.
                if number(&truth["summary"]["utilization"]) > 0.5 {
                    let btlbw = number(&d["btlbw_bps"]);
                    assert!(near(btlbw, rate, 0.03, 0.0), "{name} at the {place}: BtlBw {btlbw} of {rate}");
                }
                let found = d["retransmissions"]["segments"].as_u64().unwrap();
                if place == "sender" {
                    assert_eq!(found, again, "{name}: retransmissions at the sender");
                } else {
                    // Those that were lost again never arrive; the path's loss of them is a fraction of a fraction.
                    let lost_again = again as f64 * 0.02 + 3.0;
                    assert!(
                        found <= again && near(found as f64, again as f64, 0.15, lost_again),
                        "{name}: {found} of {again}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_limits_is_named() {
    let Some(runs) =
        races(&["bbr", "cubic"], &["--rate", "20mbit", "--rtt", "40ms", "--loss", "1%", "--duration", "6s"])
    else {
        return;
    };
    for (run, by) in runs.iter().zip(["bandwidth", "congestion_window"]) {
        if run.recording["valid"] != true {
            println!(
                "NOT SHOWN: what limits {}: {}",
                run.recording["label"], run.recording["invalid_because"]
            );
            continue;
        }
        for seen in &run.seen {
            let most = &seen["to_server"]["limits"]["shares"][0];
            assert_eq!(most["by"], by, "{:#}", seen["to_server"]["limits"]);
            assert!(number(&most["share"]) > 0.8, "{most}");
        }
    }
}
