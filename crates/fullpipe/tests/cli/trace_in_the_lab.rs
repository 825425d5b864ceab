//! Compares the results of `trace` with the lab's own data on the captured runs.

use crate::lab;
use crate::program::{fullpipe, output_within};
#[cfg(feature = "ebpf")]
use crate::space;
use fullpipe_testing::{Attempt, Random, check_claim, invalid_reasons, own_test};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A run and its captures.
struct Run {
    recording: Value,
    /// The records of the connection, captured at the sender and at the receiver.
    seen: [Value; 2],
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Races `controllers` on `path` and traces the captures of both ends. `None` if the lab is not
/// possible on this machine.
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

/// Checks `claim` on a run of `controller` on `path`, as often as it takes to decide.
fn check_trace(controller: &str, path: &[&str], claim: impl Fn(&Run)) {
    check_claim(&format!("the trace of {controller} on {path:?}"), || {
        let runs = races(&[controller], path)?;
        Some(Attempt::run(invalid_reasons(&runs[0].recording), || claim(&runs[0])))
    });
}

#[test]
fn trace_finds_path_and_retransmissions_of_the_lab() {
    let paths: [&[&str]; 3] = [
        &["--rate", "20mbit", "--rtt", "40ms", "--loss", "0.5%", "--duration", "5s"],
        &["--rate", "10mbit", "--rtt", "100ms", "--loss", "0%", "--buffer", "0.5bdp", "--duration", "6s"],
        &["--rate", "40mbit", "--rtt", "10ms", "--loss", "0%", "--buffer", "2bdp", "--duration", "4s"],
    ];
    for path in paths {
        for controller in ["bbr", "cubic", "reno"] {
            check_trace(controller, path, finds_path_and_retransmissions);
        }
    }
}

fn finds_path_and_retransmissions(run: &Run) {
    let truth = &run.recording;
    let rate = number(&truth["path"]["goodput_limit_bps"]);
    let base = number(&truth["path"]["base_rtt_ms"]);
    let again = truth["summary"]["packets_retransmitted"].as_u64().unwrap();
    for (record, place, point) in [(&run.seen[0], "sender", "client"), (&run.seen[1], "receiver", "server")] {
        assert_eq!(record["vantage"]["point"], point, "{:#}", record["vantage"]);
        let d = &record["to_server"];
        assert_eq!(d["place"], place);
        let rtprop = number(&d["rtprop_ms"]);
        assert!(near(rtprop, base, 0.02, 1.0), "at the {place}: RTprop {rtprop} ms, not {base} ms");
        // A controller that underuses the path shows its capacity only for moments.
        if number(&truth["summary"]["utilization"]) > 0.5 {
            let btlbw = number(&d["btlbw_bps"]);
            assert!(near(btlbw, rate, 0.03, 0.0), "at the {place}: BtlBw {btlbw} of {rate}");
        }
        let found = d["retransmissions"]["segments"].as_u64().unwrap();
        if place == "sender" {
            assert_eq!(found, again, "retransmissions at the sender");
        } else {
            // Retransmissions that are lost, too, never arrive: a fraction of a fraction.
            let lost_again = again as f64 * 0.02 + 3.0;
            assert!(
                found <= again && near(found as f64, again as f64, 0.15, lost_again),
                "at the {place}: {found} of {again} retransmissions"
            );
        }
    }
}

#[test]
fn trace_names_the_limit() {
    let path = ["--rate", "20mbit", "--rtt", "40ms", "--loss", "1%", "--duration", "6s"];
    for (controller, by) in [("bbr", "bandwidth"), ("cubic", "congestion_window")] {
        check_trace(controller, &path, |run| {
            for seen in &run.seen {
                let most = &seen["to_server"]["limits"]["shares"][0];
                assert_eq!(most["by"], by, "{:#}", seen["to_server"]["limits"]);
                assert!(number(&most["share"]) > 0.8, "{most}");
            }
        });
    }
}

/// Hybla with a reference RTT of 5 ms under another name: at 40 ms it grows unlike any other
/// controller.
#[cfg(feature = "ebpf")]
#[test]
#[ignore = "a part of another test, which starts it"]
fn odd() {
    let name = "fpx_odd";
    let loaded =
        fullpipe().args(["cc", "load", "hybla", "--name", name, "--set", "rtt0=5"]).output().unwrap();
    assert!(loaded.status.success(), "{loaded:?}");
    let settings = space::status(name).settings;
    assert!(settings.iter().any(|one| one.about.key == "rtt0" && one.value == "5"), "{settings:?}");
    let path = ["--rate", "20mbit", "--rtt", "40ms", "--loss", "0%", "--buffer", "1bdp", "--duration", "8s"];
    let runs = races(&[name], &path);
    space::unload(name);
    let Some(runs) = runs else { return };
    let run = &runs[0];
    if run.recording["valid"] != true {
        println!("NOT SHOWN: a controller that no list has: {}", run.recording["invalid_because"]);
        return;
    }
    for seen in &run.seen {
        let sender = &seen["to_server"]["sender"];
        let words = sender["words"].as_str().unwrap();
        assert!(words.starts_with("none of the known controllers"), "{sender:#}");
    }
}

#[cfg(feature = "ebpf")]
#[test]
fn an_unknown_kernel_controller_is_identified_as_unknown() {
    space::in_a_space(own_test!(odd));
}

/// What a scenario is drawn from.
struct Draw(Random);

impl Draw {
    /// Log-uniform between `from` and `to`.
    fn between(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.0.share())
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[(self.0.share() * all.len() as f64) as usize]
    }
}

/// A path and its flows, one per controller: 3 to 40 Mbit/s, 8 to 120 ms, 0.3 to 4 BDP, loss up to
/// 2 %, packets of 1280 to 9000 bytes, initial windows of 4 to 32. Six of ten are bulk transfers;
/// the others are limited by the receive or send buffer, or send bursts with pauses.
fn scenario(draw: &mut Draw) -> String {
    let (rate, rtt) = (draw.between(3e6, 40e6), draw.between(0.008, 0.12));
    let bdp = rate / 8.0 * rtt;
    let mtu = draw.pick(&[1500.0, 1500.0, 1500.0, 1280.0, 9000.0]);
    let buffer = (draw.between(0.3, 4.0) * bdp).max(8.0 * mtu);
    let loss = draw.pick(&["0%", "0%", "0.02%", "0.1%", "0.5%", "2%"]);
    let window = draw.pick(&[10, 10, 10, 4, 32]);
    let seconds = (60.0 * rtt).max(5.0);
    let held = draw.pick(&["", "", "", "", "", "", "", "receive", "send", "bursts"]);
    let part = draw.between(0.5, 1.5) * bdp.max(16.0 * mtu);
    let held = match held {
        "bursts" => format!(
            "app = {{ kind = \"bursts\", size = \"{:.0} bytes\", every = \"{:.0}ms\" }}",
            4.0 * part,
            1e3 * (40.0 * rtt).max(0.5)
        ),
        "" => String::new(),
        end => format!("{end}_buffer = \"{part:.0} bytes\""),
    };
    format!(
        "duration = \"{seconds:.2}s\"\nsample = \"20ms\"\nmtu = {mtu}\n[path]\nrate = \"{:.0}kbit\"\nrtt = \
         \"{:.0}us\"\n\
         buffer = \"{buffer:.0} bytes\"\nloss = \"{loss}\"\n[[flow]]\ncc = \"bbr\"\ninitial_window = \
         {window}\n{held}\n\
         [sweep]\n\"flow.cc\" = [\"bbr\", \"bbr3\", \"cubic\", \"reno\", \"hybla\"]\n",
        rate / 1e3,
        rtt * 1e6
    )
}

/// The values of a column of a run's flow, and its times.
fn series(run: &Value, name: &str) -> Vec<(f64, f64)> {
    let series = &run["flows"][0]["series"];
    let column = series["columns"].as_array().unwrap().iter().find(|c| c["name"] == name);
    let values = column.map(|c| c["values"].as_array().unwrap().as_slice()).unwrap_or_default();
    let times = series["t_s"].as_array().unwrap();
    times.iter().zip(values).filter_map(|(t, v)| Some((t.as_f64()?, v.as_f64()?))).collect()
}

/// Whether the path was full, with 97 % of its capacity delivered, for ten round trips and half a
/// second.
fn was_filled(run: &Value, limit: f64, base: f64) -> bool {
    let delivered = series(run, "delivered_bytes");
    let length = (10.0 * base / 1e3).max(0.5);
    let mut first = 0;
    delivered.iter().any(|&(t, bytes)| {
        while delivered[first + 1..].first().is_some_and(|next| next.0 <= t - length) {
            first += 1;
        }
        let (from, before) = delivered[first];
        t - from >= length * 0.99 && (bytes - before) * 8.0 / (t - from) >= 0.97 * limit
    })
}

/// The number of correct results and of all results, by kind.
#[derive(Default)]
struct Right(BTreeMap<(String, &'static str), (u32, u32)>);

impl Right {
    fn count(&mut self, run: &str, what: &'static str, right: bool, reported: impl FnOnce() -> String) {
        let cc = run.split(' ').next().unwrap_or_default();
        for who in [cc, "all"] {
            let n = self.0.entry((who.to_owned(), what)).or_default();
            n.0 += u32::from(right);
            n.1 += 1;
        }
        if !right {
            println!("{what}: {run}: {}", reported());
        }
    }
}

/// Shares of time according to TCP_INFO and according to `d`: idle, limited by the receive window,
/// limited by the send buffer.
fn shares(run: &Value, d: &Value) -> Option<[(f64, f64); 3]> {
    let last = |name| series(run, name).last().map(|v| v.1);
    let active = number(&d["active_s"]);
    let (busy, window, buffer) =
        (last("busy_s")?, last("receive_window_limited_s")?, last("send_buffer_limited_s")?);
    let by = |name: &str| {
        let shares = d["limits"]["shares"].as_array().unwrap();
        shares.iter().find(|s| s["by"] == name).map_or(0.0, |s| number(&s["share"]))
    };
    // With data in flight, a pause counts as busy in the kernel, but as application-limited in a
    // capture.
    let idle = d["idle"]["total_s"].as_f64().unwrap_or_default() / active;
    let truth = [1.0 - busy / active, window / active, buffer / active];
    let found = [idle, by("receive_window"), by("send_buffer")];
    Some(std::array::from_fn(|i| (found[i], truth[i].clamp(0.0, 1.0))))
}

/// `docs/evidence/trace.md` has the output. FULLPIPE_SEED overrides the seed 2. FULLPIPE_KEEP names
/// a directory that keeps the captures: runs that exist there are only analysed again.
#[test]
#[ignore = "takes a quarter of an hour: the table in docs/evidence/trace.md"]
fn trace_matches_the_truth_of_two_hundred_runs() {
    let seed = std::env::var("FULLPIPE_SEED").map_or(2, |s| s.parse().unwrap());
    let own = tempfile::tempdir().unwrap();
    let dir = std::env::var_os("FULLPIPE_KEEP").map_or(own.path().to_owned(), PathBuf::from);
    let mut right = Right::default();
    let (mut valid, mut all) = (0, 0);
    for n in 0..44_u64 {
        let mut draw = Draw(Random::new(seed << 32 | n));
        let prefix = dir.join(format!("{n}"));
        let (file, out) = (prefix.with_extension("toml"), prefix.with_extension("json"));
        std::fs::write(&file, scenario(&mut draw)).unwrap();
        if !out.exists() {
            let mut run = fullpipe();
            run.arg("run").arg(&file).args(["--engine", "lab", "--side-by-side", "--pcap"]).arg(&prefix);
            let output = output_within(run.arg("--out").arg(&out), Duration::from_secs(300)).expect("no end");
            if lab::is_missing(&output) {
                return;
            }
            if !out.exists() {
                println!("path {n}: {}", String::from_utf8_lossy(&output.stderr));
                continue;
            }
        }
        for (i, run) in json(&out)["runs"].as_array().unwrap().iter().enumerate() {
            all += 1;
            if run["valid"] != true {
                continue;
            }
            valid += 1;
            compare_with_truth(run, &format!("{}-{}", prefix.display(), i + 1), &mut right);
        }
    }
    println!("\n{valid} of {all} runs are valid.\n");
    let mut whats: Vec<&str> = right.0.keys().map(|k| k.1).collect();
    whats.sort_unstable();
    whats.dedup();
    let whos = ["bbr", "bbr3", "cubic", "reno", "hybla", "all"];
    println!("| | {} |\n|---|{}", whos.join(" | "), "---|".repeat(whos.len()));
    for what in whats {
        let cells = whos.map(|who| {
            let (right, of) = right.0.get(&(who.to_owned(), what)).copied().unwrap_or_default();
            format!("{right}/{of}")
        });
        println!("| {what} | {} |", cells.join(" | "));
        let (right, of) = right.0[&("all".to_owned(), what)];
        assert!(right * 10 >= of * 9, "{what}: {right} of {of}");
    }
}

/// Counts the correct results for the captures of `run`, whose files begin with `prefix`.
fn compare_with_truth(run: &Value, prefix: &str, right: &mut Right) {
    let limit = number(&run["path"]["goodput_limit_bps"]);
    let base = number(&run["path"]["base_rtt_ms"]);
    let again = run["summary"]["packets_retransmitted"].as_f64().unwrap();
    let filled = was_filled(run, limit, base);
    let file = Path::new(prefix).file_name().unwrap().to_string_lossy();
    let name = format!("{} ({file}, {})", run["cc"].as_str().unwrap(), run["path"]["description"]);
    let ends: [(&str, [&'static str; 5]); 2] = [
        (
            "client",
            ["sender: place", "sender: RTprop", "sender: BtlBw", "sender: retransmitted", "sender: limits"],
        ),
        (
            "server",
            [
                "receiver: place",
                "receiver: RTprop",
                "receiver: BtlBw",
                "receiver: retransmitted",
                "receiver: limits",
            ],
        ),
    ];
    for (end, [place, rtprop, btlbw, sent_again, limits]) in ends {
        let capture = format!("{prefix}-{end}.pcap");
        let traced = output_within(fullpipe().args(["trace", "--json", &capture]), Duration::from_secs(100));
        let found: Value = serde_json::from_slice(&traced.unwrap().stdout).unwrap();
        let record = &found["connections"][0];
        let d = &record["to_server"];
        right.count(&name, place, record["vantage"]["point"] == end, || record["vantage"].to_string());
        let least = d["rtprop_ms"].as_f64().unwrap_or(f64::NAN);
        right.count(&name, rtprop, near(least, base, 0.02, 1.0), || format!("{least} of {base} ms"));
        if filled {
            let most = d["btlbw_bps"].as_f64().unwrap_or(f64::NAN);
            right.count(&name, btlbw, near(most, limit, 0.03, 0.0), || format!("{most} of {limit}"));
        }
        let n = number(&d["retransmissions"]["segments"]);
        let exact = if end == "client" { n == again } else { near(n, again, 0.02, 1.0) };
        right.count(&name, sent_again, exact, || format!("{n} of {again}"));
        if let Some(shares) = shares(run, d) {
            let alike = shares.iter().all(|(found, truth)| (found - truth).abs() <= 0.05);
            right.count(&name, limits, alike, || {
                format!("{shares:.3?} (found, TCP_INFO: idle, window, buffer); {}", d["limits"]["shares"])
            });
        }
    }
}
