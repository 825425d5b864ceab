//! `fullpipe watch` on real connections.

use crate::busy::Busy;
use crate::program;
use crate::schema;
#[cfg(feature = "ebpf")]
use crate::space;
use fullpipe_testing::{check_repeatedly, own_test};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

fn watch(args: &[&str]) -> Output {
    program::fullpipe().arg("watch").args(args).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_sample_has_rates_limits_and_owners() {
    let busy = Busy::start();
    let filter = format!("sport = :{} or dport = :{}", busy.port, busy.port);
    let output = watch(&[&filter, "--once", "--interval", "300ms"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("2 connections, sending") && text.contains("limited by"), "{text}");
    assert!(text.contains("application") && text.contains(&format!("({})", std::process::id())), "{text}");

    // A machine that stalls for the whole time sends nothing.
    check_repeatedly("a connection that sends", || {
        let output = watch(&[&filter, "--json", "--interval", "200ms", "--for", "3s"]);
        let lines = output.stdout.split(|b| *b == b'\n').filter(|l| !l.is_empty());
        let looks: Vec<Value> = lines.map(|l| serde_json::from_slice(l).unwrap()).collect();
        assert!(looks.len() >= 2, "{looks:?}");
        assert_eq!(looks[0]["schema"], "fullpipe/watch/1");
        let sender = |look: &Value| {
            let ours = format!(":{}", busy.port);
            let mut all = look["connections"].as_array().unwrap().iter();
            all.find(|c| c["local"].as_str().unwrap().ends_with(&ours)).cloned().unwrap()
        };
        let looks: Vec<Value> = looks.iter().map(sender).collect();
        assert!(looks[0].get("sending_bps").is_none(), "nothing is known of the time before");
        let acked = |look: &Value| look["acked_bytes"].as_u64().unwrap();
        for pair in looks.windows(2) {
            let (sent, reported) =
                (acked(&pair[1]) - acked(&pair[0]), pair[1]["sending_bps"].as_f64().unwrap());
            assert_eq!(sent > 0, reported > 0.0, "{sent} bytes: {}", pair[1]);
            assert!(pair[1]["srtt_ms"].as_f64().unwrap() > 0.0, "{}", pair[1]);
        }
        let sent = acked(&looks[looks.len() - 1]) - acked(&looks[0]);
        if sent > 0 { Ok(()) } else { Err(format!("{looks:?}")) }
    });
}

#[test]
fn every_line_matches_the_published_schema() {
    let printed = program::fullpipe().args(["schema", "watch"]).output().unwrap();
    let described: Value = serde_json::from_slice(&printed.stdout).unwrap();
    // Both ends of a connection with BBR's model if the kernel has bbr, one without a model, and
    // one that is closing.
    let (modelled, plain) =
        (Busy::driven_by(Some("bbr").filter(|_| offers_bbr())), Busy::driven_by(Some("reno")));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = listener.local_addr().unwrap();
    drop(std::net::TcpStream::connect(closed).unwrap());
    let ports = [modelled.port, plain.port, closed.port()];
    let filter = ports.map(|port| format!("sport = :{port} or dport = :{port}")).join(" or ");
    let began = Instant::now();
    let look = loop {
        let output = watch(&[&filter, "--json", "--once", "--interval", "300ms"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let look: Value = serde_json::from_slice(&output.stdout).unwrap();
        schema::assert_described(&described, &look);
        let any = |wanted: fn(&Value) -> bool| look["connections"].as_array().unwrap().iter().any(wanted);
        if any(|c| c["limits"].is_array() && c["sending_bps"].is_number())
            && (!offers_bbr() || any(|c| c["model"]["bw_bps"].is_number()))
        {
            break look;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{look}");
    };

    // Deviations are detected.
    for (place, wrong) in
        [("/t_s", "soon"), ("/connections/0/cookie", "none"), ("/totals/0/connections", "many")]
    {
        let mut look = look.clone();
        *look.pointer_mut(place).unwrap() = wrong.into();
        assert!(std::panic::catch_unwind(|| schema::assert_described(&described, &look)).is_err(), "{place}");
    }
    let mut look = look.clone();
    look["connections"][0].as_object_mut().unwrap().remove("cookie");
    assert!(std::panic::catch_unwind(|| schema::assert_described(&described, &look)).is_err());
}

fn offers_bbr() -> bool {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    fullpipe_kernel::tcp_info::pin(&socket, "bbr").is_ok()
}

#[test]
fn recordings_of_watch_are_read_by_report() {
    let busy = Busy::start();
    let dir = tempfile::tempdir().unwrap();
    for name in ["live.json", "live.html"] {
        let path = dir.path().join(name);
        let file = path.to_str().unwrap();
        let output = watch(&[
            &format!("sport = :{}", busy.port),
            "--record",
            file,
            "--interval",
            "100ms",
            "--for",
            "3s",
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let json: Value = serde_json::from_slice(&std::fs::read(dir.path().join("live.json")).unwrap()).unwrap();
    let run = &json["runs"][0];
    assert_eq!((&run["engine"], run["flows"].as_array().unwrap().len()), (&"live".into(), 1));
    assert!(run["flows"][0]["summary"]["goodput_bps"].as_f64().unwrap() > 0.0, "{run}");
    assert!(run["flows"][0]["series"]["t_s"].as_array().unwrap().len() >= 3, "{run}");
    let page = std::fs::read_to_string(dir.path().join("live.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains(&busy.port.to_string()));
}

#[test]
fn watch_ends_when_its_reader_exits() {
    let mut command = program::fullpipe();
    command.args(["watch", "--json", "--interval", "50ms"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let began = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if began.elapsed() > Duration::from_secs(60) => {
                child.kill().unwrap();
                panic!("it goes on");
            }
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    assert!(status.success() && line.starts_with("{\"schema\":\"fullpipe/watch/1\""), "{status}: {line}");
}

#[test]
fn watch_writes_its_recording_on_sigterm() {
    let busy = Busy::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("live.json");
    let mut command = program::fullpipe();
    command.arg("watch").arg(format!("sport = :{}", busy.port)).args([
        "--json",
        "--interval",
        "50ms",
        "--record",
    ]);
    let mut child = command.arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.by_ref().take(3).for_each(|line| assert!(line.unwrap().starts_with('{')));
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    lines.for_each(drop);
    assert!(child.wait().unwrap().success());
    let json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(json["runs"][0]["flows"].as_array().unwrap().len(), 1);
}

#[test]
fn invalid_filters_are_reported_with_their_place() {
    for (args, printed) in [
        (&["dprt = :443", "--once"][..], "^^^^"),
        (&["--interval", "1ms"], "at least 50ms"),
        (&["--record", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
    ] {
        let output = watch(args);
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && reported.contains(printed), "{args:?}: {reported}");
    }
}

#[cfg(feature = "ebpf")]
#[test]
#[ignore = "a part of the next test, which starts it"]
fn loaded_controllers() {
    use crate::connections::Connections;
    use fullpipe_ebpf::{Controller, lifecycle};

    let look = |command: &mut std::process::Command, port: u16| -> Value {
        let output = command
            .args(["--json", "--once", "--interval", "50ms", &format!("sport = :{port}")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for (controller, name) in [(Controller::Bbr1, "fpw_bbr1"), (Controller::Bbr3, "fpw_bbr3")] {
        lifecycle::load(controller, Some(name)).unwrap();
        {
            let mut connections = Connections::open(name, 3);
            connections.talk(20);
            // All data is acknowledged, so the model does not change.
            for socket in &space::status(name).sockets {
                assert!(socket.bw > Some(0) && socket.min_rtt_us.is_some(), "{socket:?}");
            }
            let mut reported = Vec::new();
            for (to, _) in &connections.ends {
                let port = to.local_addr().unwrap().port();
                let seen = look(program::fullpipe().arg("watch"), port);
                let one = &seen["connections"][0];
                assert_eq!((&one["controller"], seen["unseen"].as_array().unwrap().len()), (&name.into(), 0));
                let beliefs = &one["model"];
                let number = |key: &str| beliefs[key].as_f64().unwrap_or_else(|| panic!("{key}: {one}"));
                let state = beliefs["state"].as_str().unwrap().to_owned();
                reported.push((
                    state,
                    (number("bw_bps") / 8.0).round() as u64,
                    (number("min_rtt_ms") * 1000.0).round() as u64,
                    number("pacing_gain").to_string(),
                ));
            }
            let mut known: Vec<_> = space::status(name)
                .sockets
                .iter()
                .map(|s| {
                    let gain = s.pacing_gain.unwrap().to_string();
                    (s.state.unwrap().to_owned(), s.bw.unwrap(), s.min_rtt_us.unwrap(), gain)
                })
                .collect();
            reported.sort();
            known.sort();
            assert_eq!(reported, known);

            // Without permission to load programs, everything else is reported, with the reason for
            // the missing part.
            let port = connections.ends[0].0.local_addr().unwrap().port();
            let mut confined = std::process::Command::new("setpriv");
            confined.args(["--bounding-set", "-sys_admin,-bpf,-perfmon,-net_admin"]);
            confined.arg(program::path()).arg("watch");
            let seen = look(program::tied(&mut confined).stdin(Stdio::null()), port);
            let (one, unseen) = (&seen["connections"][0], seen["unseen"].to_string());
            assert!(one.get("model").is_none() && one["srtt_ms"].as_f64().unwrap() > 0.0, "{one}");
            assert!(unseen.contains("loaded by fullpipe") && unseen.contains("CAP_BPF"), "{unseen}");
        }
        space::unload(name);
    }
}

#[cfg(feature = "ebpf")]
#[test]
fn watch_agrees_with_cc_status_on_loaded_controllers() {
    space::in_a_space(own_test!(loaded_controllers));
}

/// The output of `ss` for sockets whose local or remote port is `port`, by both ends.
fn ss(port: u16) -> BTreeMap<(String, String), Vec<String>> {
    let output = std::process::Command::new("ss")
        .args(["-tinOH", &format!("( sport = :{port} or dport = :{port} )")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let of = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (_state, _queues) = (words.next().unwrap(), (words.next().unwrap(), words.next().unwrap()));
        ((words.next().unwrap(), words.next().unwrap()), words.collect())
    };
    text.lines().filter(|line| line.starts_with("ESTAB")).map(of).collect()
}

/// The parts of the output of `ss` that are constant while nothing is sent.
fn lasting(words: &[String]) -> Vec<&String> {
    words.iter().filter(|w| !["lastsnd:", "lastrcv:", "lastack:"].iter().any(|p| w.starts_with(p))).collect()
}

/// A field of `watch` and its name in `ss`: `key:VALUE`, `key:VALUE/…`, or `key VALUE` with a unit.
///
/// `ss` omits zeros.
const FIELDS: [(&str, &str); 14] = [
    ("srtt_ms", "rtt:"),
    ("min_rtt_ms", "minrtt:"),
    ("rto_ms", "rto:"),
    ("mss_bytes", "mss:"),
    ("cwnd_segments", "cwnd:"),
    ("ssthresh_segments", "ssthresh:"),
    ("inflight_segments", "unacked:"),
    ("acked_bytes", "bytes_acked:"),
    ("received_bytes", "bytes_received:"),
    ("sent_segments", "data_segs_out:"),
    ("unsent_bytes", "notsent:"),
    ("receive_window_bytes", "snd_wnd:"),
    ("pacing_bps", "pacing_rate"),
    ("delivery_bps", "delivery_rate"),
];

fn ss_field(words: &[String], key: &str) -> Option<f64> {
    let at = words.iter().position(|w| if key.ends_with(':') { w.starts_with(key) } else { w == key })?;
    let text = if key.ends_with(':') { &words[at][key.len()..] } else { &words[at + 1] };
    let digits = text.split('/').next().unwrap().trim_end_matches("bps");
    Some(digits.parse().unwrap_or_else(|_| panic!("{key} {text}")))
}

/// `ss` prints fractions with six digits.
fn agree(ours: f64, theirs: f64) -> bool {
    (ours - theirs).abs() <= 1e-5 * theirs.abs().max(1e-3)
}

#[test]
fn watch_agrees_with_ss_on_a_hundred_sockets() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let offered = offers_bbr();
    let mut ends = Vec::new();
    for number in 0..50_usize {
        let mut to = TcpStream::connect(address).unwrap();
        let (mut from, _) = listener.accept().unwrap();
        fullpipe_kernel::tcp_info::pin(&to, if offered && number % 2 == 0 { "bbr" } else { "cubic" })
            .unwrap();
        // Different amounts, so that nothing matches by chance.
        let (there, back) = (vec![1; 3000 + 997 * number], vec![2; 100 + 13 * number]);
        for _ in 0..3 {
            to.write_all(&there).unwrap();
            from.read_exact(&mut there.clone()).unwrap();
            from.write_all(&back).unwrap();
            to.read_exact(&mut back.clone()).unwrap();
        }
        ends.push((to, from));
    }
    let filter = format!("sport = :{0} or dport = :{0}", address.port());
    let still = |ss: &BTreeMap<(String, String), Vec<String>>| -> Vec<Vec<String>> {
        ss.values().map(|words| lasting(words).into_iter().cloned().collect()).collect()
    };
    // The last delayed ACKs are still to come: only values that are equal before and after the
    // sample are compared.
    let began = Instant::now();
    let (reported, look) = loop {
        let before = ss(address.port());
        let output = watch(&[&filter, "--json", "--once", "--interval", "50ms"]);
        let after = ss(address.port());
        if still(&before) == still(&after) {
            break (after, serde_json::from_slice::<Value>(&output.stdout).unwrap());
        }
        assert!(began.elapsed() < Duration::from_secs(60), "the sockets do not come to rest");
    };
    let connections = look["connections"].as_array().unwrap();
    assert_eq!((connections.len(), reported.len()), (100, 100));
    let (mut compared, mut beliefs) = (0, 0);
    for one in connections {
        let end = |key: &str| one[key].as_str().unwrap().to_owned();
        let words = &reported[&(end("local"), end("remote"))];
        assert!(words.contains(&end("controller")), "{one}\n{words:?}");
        assert_eq!(
            one["delivery_app_limited"].as_bool().unwrap(),
            words.iter().any(|w| w == "app_limited"),
            "{one}\n{words:?}"
        );
        for (name, key) in FIELDS {
            let (ours, theirs) = (one[name].as_f64(), ss_field(words, key));
            assert!(
                agree(ours.unwrap_or(0.0), theirs.unwrap_or(0.0)),
                "{name}: {ours:?} here, {theirs:?} there\n{one}\n{words:?}"
            );
            compared += usize::from(theirs.is_some());
        }
        // bbr:(bw:1234bps,mrtt:0.02,pacing_gain:2.88672,cwnd_gain:2.88672); without a sample,
        // ss prints no model.
        let Some(bbr) = words.iter().find_map(|w| w.strip_prefix("bbr:(")) else { continue };
        let theirs: Vec<f64> = bbr
            .trim_end_matches(')')
            .split(',')
            .map(|part| part.split_once(':').unwrap().1.trim_end_matches("bps").parse().unwrap())
            .collect();
        if theirs[0] == 0.0 {
            assert!(one.get("model").is_none(), "{one}\n{words:?}");
            continue;
        }
        for (key, theirs) in ["bw_bps", "min_rtt_ms", "pacing_gain", "cwnd_gain"].into_iter().zip(theirs) {
            let ours = one["model"][key].as_f64().unwrap_or_else(|| panic!("{key}: {one}"));
            assert!(agree(ours, theirs), "{key}: {ours} here, {theirs} there\n{one}\n{words:?}");
        }
        beliefs += 1;
    }
    println!(
        "{compared} values of 100 sockets, and what {beliefs} of them believe of the path, as ss has them"
    );
    assert!(compared >= 1000 && (beliefs >= 25 || !offered), "{compared} values, {beliefs} beliefs");
}
