//! Kernel TCP over the emulated path, as a caller uses it.
//!
//! Programs that run inside the lab are this test binary, controlled by the environment.

use fullpipe_experiment::recording::{EventKind, Recording, column};
use fullpipe_experiment::scenario::{
    AckFrequency, After, CpuSpec, FlowRef, FlowSpec, PathSpec, Scenario, Start,
};
use fullpipe_lab::{LabError, Shell, run, shell};
use fullpipe_path::LinkSpec;
use fullpipe_testing::{Attempt, check_claim, check_repeatedly, own_test};
use fullpipe_units::{Span, Time};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

fullpipe_lab::reenter_before_main!();

/// How long is waited for what must come: it tells a hang from work that is done late.
const PATIENCE: Duration = Duration::from_secs(120);
const TASK: &str = "FULLPIPE_LAB_TEST";

/// Runs are measured in real time: one at a time. None where the machine cannot run any, which
/// continuous integration treats as a failure.
fn lab() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match shell(&command(["true"])) {
        Err(LabError::Impossible(reason)) if std::env::var_os("CI").is_none() => {
            println!("SKIPPED: {reason}");
            None
        }
        Err(e) => panic!("{e}"),
        Ok(_) => Some(turn),
    }
}

fn link(text: &str) -> LinkSpec {
    serde_json::from_str(text).unwrap()
}

fn command<const N: usize>(words: [&str; N]) -> Shell {
    let both = link(r#"{"rate": "100mbit", "delay": "5ms"}"#);
    Shell {
        forward: vec![both.clone()],
        reverse: vec![both],
        mtu: 1500,
        seed: 7,
        command: words.map(Into::into).to_vec(),
        ..Shell::default()
    }
}

/// A command line that runs `task` in a copy of this program.
fn line(task: &str) -> String {
    let exe = std::env::current_exe().unwrap();
    format!("{TASK}='{task}' exec {} --exact {} --nocapture", exe.display(), own_test!(the_program_inside))
}

fn scenario(path: &str, flows: Vec<FlowSpec>, duration: &str) -> Scenario {
    let path: PathSpec = serde_json::from_str(path).unwrap();
    Scenario { duration: duration.parse().unwrap(), ..Scenario::new(path, flows) }
}

fn record(scenario: &Scenario) -> Recording {
    run(scenario, 1, &mut |_| ControlFlow::Continue(())).unwrap_or_else(|e| panic!("{e}"))
}

/// What this binary does inside a lab; nothing when the tests are run.
#[test]
fn the_program_inside() {
    let Ok(task) = std::env::var(TASK) else { return };
    let words: Vec<&str> = task.split(' ').collect();
    match words[..] {
        ["serve", address, bytes] => serve(address.parse().unwrap(), bytes.parse().unwrap()),
        ["fetch", address, bytes] => fetch(address.parse().unwrap(), bytes.parse().unwrap()),
        ["listen", address] => {
            let _listener = TcpListener::bind(SocketAddr::new(address.parse().unwrap(), 7000)).unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        ["abandon", address] => {
            let address = SocketAddr::new(address.parse().unwrap(), 7000);
            let mut sockets: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
            // Less than a socket takes at once, more than the path carries before this ends.
            sockets.iter_mut().for_each(|socket| socket.write_all(&[0; 50_000]).unwrap());
        }
        ["run"] => {
            let path = r#"{"rate": "20mbit", "rtt": "20ms"}"#;
            check_repeatedly("a run inside", || {
                let bytes =
                    record(&scenario(path, vec![FlowSpec::bulk("cubic")], "1s")).summary.bytes_delivered;
                if bytes > 500_000 { Ok(()) } else { Err(format!("{bytes} bytes of 2.5 MB")) }
            });
        }
        ["connect", address, level, deeper] => {
            let (level, deeper): (u32, u32) = (level.parse().unwrap(), deeper.parse().unwrap());
            let connect = || {
                let started = Instant::now();
                TcpStream::connect(SocketAddr::new(address.parse().unwrap(), 7000)).unwrap();
                let took = started.elapsed();
                assert!(took >= Duration::from_millis(10) * level, "level {level}: {took:?}");
            };
            connect();
            if deeper > 0 {
                let inner = line(&format!("connect {address} {} {}", level + 1, deeper - 1));
                let report = shell(&command(["sh", "-c", &inner])).unwrap();
                assert_eq!(report.exit_code, 0);
                let packets = |link: usize| report.links[link].link.packets_out;
                assert!(packets(0) > 0 && packets(1) > 0, "{:?}", report.links);
                // This level's own path is as it was.
                connect();
            }
        }
        ["within", ref inner @ ..] => {
            let report = shell(&command(["sh", "-c", &line(&inner.join(" "))])).unwrap();
            assert_eq!(report.exit_code, 0);
            assert!(report.links[1].bytes_out > 4_000_000, "{:?}", report.links);
        }
        ["beside"] => {
            let error = shell(&Shell { mtu: 9000, ..command(["true"]) }).unwrap_err();
            assert!(matches!(error, LabError::Input(_)), "{error}");
            assert!(error.to_string().contains("--mtu 1500"), "{error}");

            let directory = tempfile::tempdir().unwrap();
            let (begun, over) = (directory.path().join("begun"), directory.path().join("over"));
            let program =
                format!("touch {}; while [ ! -e {} ]; do sleep 0.1; done", begun.display(), over.display());
            let first = std::thread::spawn(move || shell(&command(["sh", "-c", &program])).unwrap());
            let started = Instant::now();
            while !begun.exists() {
                assert!(started.elapsed() < PATIENCE, "the first does not begin");
                std::thread::sleep(Duration::from_millis(5));
            }
            let error = shell(&command(["true"])).unwrap_err().to_string();
            assert!(error.contains("another shell") && error.contains("--server"), "{error}");
            // No process listens, so the connection is refused: the packets reached this shell's server, not
            // the other shell.
            let error = TcpStream::connect("198.18.0.2:7000").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
            std::fs::write(&over, "").unwrap();
            let first = first.join().unwrap();
            assert_eq!(first.exit_code, 0);
            assert_eq!(first.links[1].link.packets_in, 0, "packets for others: {:?}", first.links[1]);
            assert_eq!(shell(&command(["true"])).unwrap().exit_code, 0, "the path is free again");
        }
        ["impossible"] => {
            let error = shell(&command(["true"])).unwrap_err();
            println!("{error}");
            assert!(matches!(error, LabError::Impossible(_)), "{error}");
            assert!(error.to_string().contains("max_user_namespaces"), "{error}");
        }
        ["linger"] => {
            let path = r#"{"rate": "20mbit", "rtt": "20ms"}"#;
            record(&scenario(path, vec![FlowSpec::bulk("cubic"), FlowSpec::bulk("reno")], "30s"));
        }
        ["linger-shell"] => {
            let mut shell_ = command(["sleep", "30"]);
            shell_.servers = vec![line("serve 198.18.0.2 1000")];
            shell_.pcap = Some(Path::new("capture").to_owned());
            let _ = shell(&shell_);
        }
        ["linger-nested"] => {
            let _ = shell(&command(["sh", "-c", &line("linger-shell-inside")]));
        }
        ["linger-shell-inside"] => {
            let _ = shell(&command(["sleep", "30"]));
        }
        _ => panic!("no task {task}"),
    }
}

/// The same bytes at both ends, without a pattern that a misplaced segment could hide in.
fn stream() -> impl Iterator<Item = u8> {
    let mut x = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    })
}

fn serve(address: IpAddr, bytes: usize) {
    let listener = TcpListener::bind(SocketAddr::new(address, 7000)).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let data: Vec<u8> = stream().take(bytes).collect();
    socket.write_all(&data).unwrap();
}

fn fetch(address: IpAddr, bytes: usize) {
    let mut socket = TcpStream::connect(SocketAddr::new(address, 7000)).unwrap();
    let mut data = Vec::new();
    socket.read_to_end(&mut data).unwrap();
    assert_eq!(data.len(), bytes);
    let different = data.iter().zip(stream()).position(|(a, b)| *a != b);
    assert_eq!(different, None, "first wrong byte");
    let snmp = std::fs::read_to_string("/proc/self/net/snmp").unwrap();
    let tcp: Vec<&str> = snmp.lines().filter(|l| l.starts_with("Tcp:")).collect();
    let at = tcp[0].split_whitespace().position(|n| n == "InCsumErrors").unwrap();
    assert_eq!(tcp[1].split_whitespace().nth(at), Some("0"), "checksum errors");
}

/// What `claim` asserts of a run, shown or not ([`shows`]).
fn judged<T>(what: &str, run: impl Fn() -> T, doubts: impl Fn(&T) -> Vec<String>, claim: impl Fn(&T)) {
    check_claim(what, || {
        let seen = run();
        Some(Attempt::run(doubts(&seen), || claim(&seen)))
    });
}

/// Why the lab does not vouch for a run.
fn doubts(recording: &Recording) -> Vec<String> {
    if recording.valid { Vec::new() } else { recording.invalid_because.clone() }
}

#[test]
fn bbr_keeps_the_rate_under_random_loss_and_cubic_does_not() {
    let Some(_turn) = lab() else { return };
    let run = |cc: &str| {
        let path = r#"{"rate": "50mbit", "rtt": "60ms", "loss": "1%"}"#;
        let mut scenario = scenario(path, vec![FlowSpec::bulk(cc)], "6s");
        scenario.warmup = Span::from_secs(2);
        record(&scenario)
    };
    let both_doubts = |both: &[Recording; 2]| both.iter().flat_map(doubts).collect();
    judged(
        "BBR under random loss",
        || ["bbr", "cubic"].map(run),
        both_doubts,
        |both| {
            for recording in both {
                // The path's own delay is there, and not much more of the machine's.
                let least = recording.summary.rtt_ms.min.unwrap();
                assert!((60.0..66.0).contains(&least), "least RTT {least} ms");
                let lost = recording.links[0].drops["loss"] as f64 / recording.links[0].packets_in as f64;
                assert!((0.003..0.03).contains(&lost), "{lost} of the packets were lost");
            }
            let [bbr, cubic] = both.each_ref().map(|recording| recording.summary.goodput_bps);
            // 100 Mbit/s, 100 ms, 1 %: 80–89 and 2.5 Mbit/s measured; here the square root law gives CUBIC
            // more.
            assert!(bbr > 5.0 * cubic, "BBR {bbr} bit/s, CUBIC {cubic} bit/s");
            assert!(bbr > 25e6, "BBR {bbr} bit/s of 48 Mbit/s");
        },
    );
}

#[test]
fn flows_start_stop_and_write_as_the_scenario_specifies() {
    let Some(_turn) = lab() else { return };
    let flows: Vec<FlowSpec> = serde_json::from_str(
        r#"[
            {"cc": "cubic", "stop": "1500ms"},
            {"cc": "reno", "label": "sized", "size": "200k", "start": "500ms"},
            {"cc": "bbr", "label": "asked",
             "app": {"kind": "request-response", "response": "20k", "think": "50ms"}},
            {"cc": "cubic", "label": "back", "direction": "reverse", "size": "300k"},
            {"cc": "reno", "label": "far", "extra_rtt": "80ms",
             "app": {"kind": "rate", "rate": "1mbit", "chunk": "1k"}},
            {"cc": "reno", "label": "bursts", "app": {"kind": "bursts", "size": "30k", "every": "400ms"}}
        ]"#,
    )
    .unwrap();
    let path = r#"{"rate": "40mbit", "rtt": "20ms"}"#;
    let run = || record(&scenario(path, flows.clone(), "3s"));
    judged("flows that keep to the scenario", run, doubts, |recording| {
        let flow = |label: &str| recording.flows.iter().find(|f| f.label == label).unwrap();

        let cubic = flow("cubic");
        let last_row = cubic.series.t_s.last().copied().unwrap();
        assert!((1.4..2.2).contains(&last_row), "it stopped at 1.5 s; its last row is of {last_row} s");
        assert!(cubic.series.get(column::CWND_BYTES).is_some() && cubic.series.get(column::BW_BPS).is_none());
        let sized = flow("sized");
        assert_eq!(sized.summary.bytes_delivered, 200 << 10);
        assert!(sized.summary.completion_s.is_some_and(|s| s < 2.0), "{:?}", sized.summary.completion_s);
        assert_eq!(sized.events.iter().filter(|e| e.kind == EventKind::Completed).count(), 1);
        let asked = flow("asked");
        let answers: Vec<f64> = asked
            .events
            .iter()
            .filter(|e| e.kind == EventKind::TransferDelivered)
            .filter_map(|e| e.value)
            .collect();
        assert!((5..60).contains(&answers.len()), "{} answers", answers.len());
        assert!(answers.iter().all(|s| *s >= 0.020), "no answer is quicker than a round trip: {answers:?}");
        assert!(asked.series.get(column::BW_BPS).is_some() && !asked.states.is_empty());
        assert_eq!(flow("back").summary.bytes_delivered, 300 << 10);
        assert!(recording.links[1].packets_in > 200, "its data went the other way");
        let far = flow("far").summary.rtt_ms.min.unwrap();
        assert!((100.0..110.0).contains(&far), "20 ms of the path and 80 ms of its own: {far} ms");
        let rate = flow("far").summary.goodput_bps;
        assert!((0.8e6..1.05e6).contains(&rate), "{rate} bit/s of 1 Mbit/s");
        // Beside the bursts there may be recoveries: the flows share a queue.
        let bursts = flow("bursts").events.iter().filter(|e| e.kind == EventKind::TransferDelivered).count();
        assert!((5..=8).contains(&bursts), "{:?}", flow("bursts").events);

        for link in &recording.links {
            let dropped: u64 = link.drops.values().sum();
            let inside = link.packets_in - link.packets_out - dropped;
            assert!(inside < 200, "{}: {inside} packets unaccounted for", link.label);
        }
        assert!(recording.provenance.kernel.is_some() && recording.health.is_some());
        let versions = fullpipe_kernel::tcp_info::bbr_versions();
        assert_eq!(recording.provenance.bbr_versions, versions, "the kernel's BBRs");
    });
}

#[test]
fn a_flow_that_stops_has_little_left_in_its_socket() {
    let Some(_turn) = lab() else { return };
    let flow = FlowSpec { stop: Some(Span::from_secs(1)), ..FlowSpec::bulk("cubic") };
    let path = r#"{"rate": "20mbit", "rtt": "20ms", "buffer": "1bdp"}"#;
    let run = || record(&scenario(path, vec![flow.clone()], "4s"));
    judged("a flow that stops", run, doubts, |recording| {
        // 20 Mbit/s for a second; then 100 ms of what is not sent yet, 40 ms of queue and path, and the
        // last write.
        let most = 20e6 / 8.0 * 1.3;
        let delivered = recording.summary.bytes_delivered as f64;
        assert!(
            delivered > 1.5e6 && delivered < most,
            "{delivered} bytes arrived of a flow that stopped after a second"
        );
    });
}

#[test]
fn flows_follow_each_other_through_links_of_their_own() {
    let Some(_turn) = lab() else { return };
    let megabyte = |label: &str, start| FlowSpec {
        label: Some(label.to_owned()),
        size: Some(fullpipe_units::Bytes(1_000_000)),
        start,
        ..FlowSpec::bulk("reno")
    };
    let after = |number, bytes| {
        let delay = Span::from_millis(200);
        Start::After(After { after: FlowRef::Number(number), bytes, delay })
    };
    let own = FlowSpec {
        access: Some(serde_json::from_str(r#"{"rate": "8mbit", "delay": "10ms", "queue": "30p"}"#).unwrap()),
        size: Some(fullpipe_units::Bytes(2_000_000)),
        ..megabyte("own", after(0, None))
    };
    let half = megabyte("half", after(1, Some(fullpipe_units::Bytes(500_000))));
    let path = r#"{"rate": "40mbit", "rtt": "20ms", "buffer": "2bdp"}"#;
    let flows = vec![megabyte("first", Start::default()), own, half];
    let run = || record(&scenario(path, flows.clone(), "8s"));
    judged("flows that follow others", run, doubts, |recording| {
        let [first, own, half] = [0, 1, 2].map(|n| &recording.flows[n]);
        let done = |n: usize| recording.flows[n].summary.completion_s.expect("all is delivered");
        let wait = own.start_s - done(0);
        assert!((wait - 0.2).abs() < 1e-6, "{wait}");
        assert!(first.series.t_s.iter().chain(&half.series.t_s).all(|t| *t > 0.0));
        // At 8 Mbit/s half a megabyte takes half a second at least.
        let wait = half.start_s - own.start_s;
        assert!(wait > 0.7 && wait < 0.2 + done(1), "{wait} {}", done(1));
        assert!((2.0..3.5).contains(&done(1)), "{}", done(1));
        let least = own.summary.rtt_ms.min.unwrap();
        assert!((29.9..34.0).contains(&least), "{least}");
        let link = &recording.links[2];
        assert_eq!((link.label.as_str(), recording.links.len()), ("access of own", 3));
        assert!(link.packets_in >= 1382 && !link.series.is_empty(), "{}", link.packets_in);
        // It waits in its own queue, of 30 packets of 1.5 ms, and up to 40 ms in that of the path.
        let (waited, shared) = (own.summary.queue_ms.max.unwrap(), first.summary.queue_ms.max.unwrap());
        assert!((30.0..90.0).contains(&waited) && shared < 45.0, "{waited} {shared}");
    });
}

/// Without pacing the kernel sends bursts on ACKs, which a queue of twenty packets cannot hold.
#[test]
fn a_paced_cubic_fits_where_an_unpaced_one_does_not() {
    let Some(_turn) = lab() else { return };
    let path = r#"{"rate": "100mbit", "rtt": "40ms", "buffer": "20p"}"#;
    let rates = || {
        [false, true]
            .map(|paced| record(&scenario(path, vec![FlowSpec { paced, ..FlowSpec::bulk("cubic") }], "8s")))
    };
    let doubts_of = |both: &[Recording; 2]| both.iter().flat_map(doubts).collect();
    judged("a paced CUBIC", rates, doubts_of, |[unpaced, paced]| {
        let [unpaced, paced] = [unpaced, paced].map(|r| r.summary.goodput_bps);
        assert!(paced > 1.5 * unpaced, "{paced} {unpaced}");
    });
}

/// What waits behind a hole has arrived: read in order it would come all at once when the hole is
/// filled.
#[test]
fn payload_counts_when_it_arrives() {
    let Some(_turn) = lab() else { return };
    let path = r#"{"rate": "20mbit", "rtt": "300ms", "loss": "0.5%"}"#;
    let run = || {
        let mut scenario = scenario(path, vec![FlowSpec::bulk("bbr")], "8s");
        scenario.warmup = Span::from_secs(3);
        record(&scenario)
    };
    judged("payload as it arrives", run, doubts, |recording| {
        let goodput = recording.flows[0].series.get(column::GOODPUT_BPS).unwrap();
        let most = goodput.iter().copied().filter(|g| g.is_finite()).fold(0.0, f64::max);
        // Of 20 Mbit/s; a sample may be late. Read in order: 100 Mbit/s and more.
        assert!((10e6..30e6).contains(&most), "{most}");
        let utilization = recording.summary.utilization.unwrap();
        assert!((0.5..=1.001).contains(&utilization), "{utilization}");
    });
}

#[test]
fn rate_changes_at_the_scheduled_times() {
    let Some(_turn) = lab() else { return };
    let path = r#"{
        "forward": [{"rate": "40mbit", "delay": "10ms", "schedule": [{"at": "2s", "rate": "8mbit"}]}],
        "reverse": [{"delay": "10ms"}]
    }"#;
    let run = || record(&scenario(path, vec![FlowSpec::bulk("cubic")], "4s"));
    judged("a schedule's rates", run, doubts, |recording| {
        let series = &recording.flows[0].series;
        let mean = |from: f64, to: f64| {
            let goodput = series.get(column::GOODPUT_BPS).unwrap();
            let rows =
                series.t_s.iter().zip(goodput).filter(|(t, g)| (from..to).contains(t) && g.is_finite());
            let (sum, n) = rows.fold((0.0, 0.0), |(sum, n), (_, g)| (sum + g, n + 1.0));
            sum / n
        };
        let (before, after) = (mean(1.0, 2.0), mean(2.5, 4.0));
        assert!((30e6..42e6).contains(&before), "{before}");
        assert!((6e6..8.5e6).contains(&after), "{after}");
    });
}

#[test]
fn bytes_arrive_intact_through_loss_and_no_checksum_is_wrong() {
    let Some(_turn) = lab() else { return };
    for server in ["198.18.0.2", "2001:2::2"] {
        let bytes = 4_000_001;
        let lossy = link(r#"{"rate": "200mbit", "delay": "2ms", "loss": "1%"}"#);
        let serve = line(&format!("serve {server} {bytes}"));
        let fetch = line(&format!("fetch {server} {bytes}"));
        let report = shell(&Shell {
            forward: vec![lossy.clone()],
            reverse: vec![lossy],
            servers: vec![serve],
            ..command(["sh", "-c", &fetch])
        })
        .unwrap();
        assert_eq!(report.exit_code, 0);
        assert!(report.links[1].link.drops["loss"] > 5, "{:?}", report.links[1]);
        assert!(report.links[1].bytes_out > bytes);
    }
}

#[test]
fn a_command_passes_its_exit_code_on_and_labs_nest() {
    let Some(_turn) = lab() else { return };
    assert_eq!(shell(&command(["sh", "-c", "exit 42"])).unwrap().exit_code, 42);
    assert_eq!(shell(&command(["sh", "-c", "kill -9 $$"])).unwrap().exit_code, 128 + 9);
    assert_eq!(shell(&command(["sh", "-c", &line("run")])).unwrap().exit_code, 0, "a lab inside a lab");
}

#[test]
fn a_nested_shell_extends_the_path() {
    let Some(_turn) = lab() else { return };
    for server in ["198.18.0.2", "2001:2::2"] {
        let servers = vec![line(&format!("listen {server}"))];
        let client = line(&format!("connect {server} 1 2"));
        let report = shell(&Shell { servers, ..command(["sh", "-c", &client]) }).unwrap();
        assert_eq!(report.exit_code, 0, "{server}");
    }
    // Loss outside, and all the bytes inside.
    let bytes = 4_000_001;
    let lossy = link(r#"{"rate": "200mbit", "delay": "2ms", "loss": "1%"}"#);
    let report = shell(&Shell {
        forward: vec![lossy.clone()],
        reverse: vec![lossy],
        servers: vec![line(&format!("serve 198.18.0.2 {bytes}"))],
        ..command(["sh", "-c", &line(&format!("within fetch 198.18.0.2 {bytes}"))])
    })
    .unwrap();
    assert_eq!(report.exit_code, 0);
    assert!(report.links[1].link.drops["loss"] > 5, "{:?}", report.links[1]);
}

#[test]
fn only_one_nested_shell_extends_a_path_at_a_time() {
    let Some(_turn) = lab() else { return };
    assert_eq!(shell(&command(["sh", "-c", &line("beside")])).unwrap().exit_code, 0);
}

/// Threads that allocate and print hold locks that a copy of the process would find locked for
/// good.
#[test]
fn labs_start_in_a_program_whose_threads_are_busy() {
    let Some(_turn) = lab() else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let names: Vec<String> = (0..500).map(|i| format!("{n} {i}")).collect();
                    std::io::stdout().lock().write_all(&names[0].as_bytes()[..0]).unwrap();
                    assert!(std::env::var("PATH").is_ok());
                    std::thread::yield_now();
                }
            });
        }
        let codes: Vec<u8> =
            (0..5).map(|_| shell(&command(["sh", "-c", "exit 3"])).unwrap().exit_code).collect();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(codes, [3; 5]);
    });
}

/// A command inherits neither the lab's descriptors nor its signal mask.
#[test]
fn a_command_inherits_no_descriptors_and_no_ignored_signals() {
    let Some(_turn) = lab() else { return };
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("output");
    let program =
        format!("exec 9>{}; (ls /proc/self/fd; grep SigIgn /proc/self/status) >&9", output.display());
    let read = || {
        let text = std::fs::read_to_string(&output).unwrap();
        let (files, ignored) = text.split_once("SigIgn:").unwrap();
        // Signals above 31 belong to the C library. SIGINT and SIGQUIT are ignored if a shell without job
        // control started the suite in the background; a command of the lab receives them all the
        // same.
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap() & 0x7fff_fff9;
        (files.to_owned(), ignored)
    };
    assert!(Command::new("sh").args(["-c", &program]).status().unwrap().success());
    let outside = read();
    assert_eq!(shell(&command(["sh", "-c", &program])).unwrap().exit_code, 0);
    assert_eq!(read(), outside);
}

/// More busy programs in an end than there are processors: some wait, whatever else the machine
/// does.
#[test]
fn a_shell_whose_programs_wait_for_processors_is_not_valid() {
    let Some(_turn) = lab() else { return };
    let programs = std::thread::available_parallelism().map_or(1, usize::from) + 2;
    let busy = "timeout 1 sh -c 'while :; do :; done' &";
    let run = || shell(&command(["sh", "-c", &format!("{} wait", busy.repeat(programs))])).unwrap();
    // That the lab does not vouch for these runs is what is claimed.
    judged(
        "programs that wait for processors",
        run,
        |_| Vec::new(),
        |report| {
            let waits = report.health.waits.as_ref().unwrap();
            assert!(waits.client > 0.2, "{waits:?}");
            assert!(waits.server < waits.client, "nothing runs there: {waits:?}");
            let told = report
                .invalid_because
                .iter()
                .any(|reason| reason.contains("client's end waited for a processor"));
            assert!(told, "{:?}", report.invalid_because);
        },
    );
}

#[test]
fn run_beside_busy_programs_reports_how_long_its_ends_waited() {
    let Some(_turn) = lab() else { return };
    let run = || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 * std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let path = r#"{"rate": "20mbit", "rtt": "20ms"}"#;
            let recording = record(&scenario(path, vec![FlowSpec::bulk("cubic")], "2s"));
            stop.store(true, Ordering::Relaxed);
            recording
        })
    };
    // Whatever else the machine does, what it did is reported.
    let recording = run();
    let waits = recording.health.as_ref().unwrap().waits.as_ref().unwrap();
    assert!(waits.client > 0.0 && waits.server > 0.0 && waits.end_max_ms > 0.0, "{waits:?}");
    assert!(waits.pressure.is_none_or(|share| share > 0.1), "{waits:?}");
    let too_long = waits.client.max(waits.server) > 0.2 || waits.end_max_ms >= 200.0;
    // The queue drains in 20 ms: it overflows in bursts after half of that, if at all.
    let may_burst = waits.end_p99_ms > 9.5;
    let reported = recording.invalid_because.iter().any(|reason| reason.contains("for a processor"));
    assert!(reported || !too_long, "{waits:?} {:?}", recording.invalid_because);
    assert!(!reported || too_long || may_burst, "{waits:?} {:?}", recording.invalid_because);
    assert!(!(reported && recording.valid));
}

#[test]
fn missing_requirements_are_named() {
    let Some(_turn) = lab() else { return };
    let error = shell(&command(["no-such-program"])).unwrap_err();
    assert!(matches!(&error, LabError::Input(text) if text.contains("`no-such-program`")), "{error}");
    let mut with_server = command(["true"]);
    with_server.servers = vec!["exit 3".to_owned()];
    let error = shell(&with_server).unwrap_err().to_string();
    assert!(error.contains("`exit 3`") && error.contains("exit code 3"), "{error}");
    let path = r#"{"rate": "10mbit", "rtt": "20ms"}"#;
    let held = |tso: Option<bool>| FlowSpec { tso, ..FlowSpec::bulk("cubic") };
    let mixed = scenario(path, vec![held(Some(false)), held(None)], "1s");
    let error = run(&mixed, 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(&error, LabError::Input(text) if text.contains("`tso = false`")), "{error}");
    assert!(record(&scenario(path, vec![held(Some(false)); 2], "1s")).summary.bytes_delivered > 0);
    let simulated = [
        (
            "`ack_frequency`",
            FlowSpec { ack_frequency: Some(AckFrequency::default()), ..FlowSpec::bulk("cubic") },
        ),
        ("`cpu`", FlowSpec { cpu: Some(CpuSpec::default()), ..FlowSpec::bulk("cubic") }),
        ("`timer_hz`", FlowSpec { timer_hz: Some(250), ..FlowSpec::bulk("cubic") }),
    ];
    for (key, asked) in simulated {
        let error =
            run(&scenario(path, vec![asked], "1s"), 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert!(matches!(&error, LabError::Input(text) if text.contains(key)), "{error}");
    }
    let unknown = scenario(path, vec![FlowSpec::bulk("nosuchcc")], "1s");
    let error = run(&unknown, 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LabError::Impossible(_)) && text.contains("modprobe tcp_nosuchcc"), "{text}");
    let asleep = format!("echo 0 > /proc/sys/user/max_user_namespaces && {}", line("impossible"));
    if nix_uid() == 0 {
        assert_eq!(shell(&command(["sh", "-c", &asleep])).unwrap().exit_code, 0);
    }
}

fn nix_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[test]
fn progress_is_reported_and_a_break_stops_the_run() {
    let Some(_turn) = lab() else { return };
    let path = r#"{"rate": "10mbit", "rtt": "20ms"}"#;
    let long = scenario(path, vec![FlowSpec::bulk("cubic")], "600s");
    let (began, mut heard) = (Instant::now(), Time::ZERO);
    let outcome = run(&long, 1, &mut |at| {
        heard = at;
        if at >= Time::ZERO + Span::from_millis(300) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(outcome.unwrap_err(), LabError::Stopped);
    assert!(heard >= Time::ZERO + Span::from_millis(300));
    assert!(began.elapsed() < PATIENCE, "of ten minutes");
}

/// Orphaned TCP sockets of the whole machine, which still have data to send.
fn orphans() -> u64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap();
    let mut words = text.lines().find(|line| line.starts_with("TCP:")).unwrap().split_whitespace();
    words.find(|word| *word == "orphan").unwrap();
    words.next().unwrap().parse().unwrap()
}

/// Those of other programs come and go; one that cannot send gives up after more than a minute and
/// a half (`tcp_orphan_retries`, tcp(7)).
fn few_orphans(before: u64) {
    let began = Instant::now();
    while orphans() >= before + 10 {
        assert!(began.elapsed() < Duration::from_secs(30), "{before} orphans before, {} after", orphans());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_socket_with_unsent_data_outlives_the_path() {
    let Some(_lab) = lab() else { return };
    let before = orphans();
    let path = r#"{
        "forward": [{"rate": "1mbit", "delay": "20ms", "queue": "100p"}],
        "reverse": [{"delay": "20ms"}]
    }"#;
    // Twenty sockets, each with a queue of data.
    record(&scenario(path, vec![FlowSpec::bulk("cubic"); 20], "1s"));
    few_orphans(before);
}

#[test]
fn unsent_data_of_programs_does_not_outlive_the_shell() {
    let Some(_lab) = lab() else { return };
    let before = orphans();
    let slow = link(r#"{"rate": "1mbit", "delay": "20ms"}"#);
    let mut shell_ = command(["/bin/sh", "-c", &line("abandon 198.18.0.2")]);
    shell_.forward = vec![slow.clone()];
    shell_.reverse = vec![slow];
    shell_.servers = vec![line("listen 198.18.0.2")];
    assert_eq!(shell(&shell_).unwrap().exit_code, 0);
    few_orphans(before);
}

#[test]
fn an_ordinary_user_needs_no_privilege() {
    let Some(_turn) = lab() else { return };
    if nix_uid() != 0 {
        println!("already an ordinary user: every other test shows it");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("lab");
    fullpipe_testing::copy_program(&std::env::current_exe().unwrap(), &copy);
    let outcome = Command::new(&copy)
        .args(["--exact", own_test!(the_program_inside)])
        .env(TASK, "run")
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    assert!(outcome.status.success(), "{}", String::from_utf8_lossy(&outcome.stdout));
}

/// Processes that were started with `marker` in their environment, and how many network namespaces
/// they and their threads are in. The dead that wait for their parent do not count.
fn marked(marker: &str) -> (Vec<i32>, usize) {
    let (mut pids, mut rooms) = (Vec::new(), BTreeSet::new());
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        if environment.windows(marker.len()).any(|w| w == marker.as_bytes()) {
            pids.push(pid);
            for task in std::fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten() {
                rooms.extend(std::fs::read_link(task.path().join("ns/net")));
            }
        }
    }
    (pids, rooms.len())
}

/// Namespaces and their interfaces live as long as a process in them, a descriptor or a mount,
/// which belong to processes again: no process, no namespace. `FULLPIPE_LAB_ABORTS` says how often;
/// 200 is the full test.
#[test]
fn an_abort_at_any_time_leaves_nothing_behind() {
    let Some(_turn) = lab() else { return };
    let aborts: u64 = std::env::var("FULLPIPE_LAB_ABORTS").ok().and_then(|n| n.parse().ok()).unwrap_or(16);
    let interfaces = || std::fs::read_to_string("/proc/self/net/dev").unwrap().lines().count();
    let mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap();
    let before = (interfaces(), mounts());
    let mut random = stream();
    let mut labs_seen = 0;
    for n in 0..aborts {
        let directory = tempfile::tempdir().unwrap();
        let marker = directory.path().to_str().unwrap();
        let task = ["linger", "linger-shell", "linger-nested"][n as usize % 3];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", own_test!(the_program_inside), "--nocapture"])
            .env(TASK, task)
            .env("TMPDIR", directory.path())
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let wait = u64::from(random.next().unwrap()) * 2;
        // How long a lab takes to come, the machine decides: some aborts wait for it.
        let started = Instant::now();
        while n % 4 == 3 && marked(marker).1 <= 1 && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(wait));
        labs_seen += usize::from(marked(marker).1 > 1);
        let signals = [
            Signal::SIGKILL,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGABRT,
            Signal::SIGUSR1,
            Signal::SIGALRM,
        ];
        let signal = signals[usize::from(random.next().unwrap()) % signals.len()];
        // The child has not been waited for, so the id is its own.
        let _ = kill(Pid::from_raw(child.id() as i32), signal);
        let _ = child.wait();

        let deadline = Instant::now() + PATIENCE;
        let left = loop {
            let (pids, _) = marked(marker);
            if pids.is_empty() || Instant::now() > deadline {
                break pids;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(left, Vec::<i32>::new(), "processes left by signal {signal} after {wait} ms of {task}");
        let files = std::fs::read_dir(directory.path()).unwrap().flatten().map(|e| e.file_name());
        // The captures were asked for, and where.
        let strays: Vec<_> =
            files.filter(|f| !f.to_str().is_some_and(|f| f.starts_with("capture-"))).collect();
        assert!(strays.is_empty(), "files left: {strays:?}");
    }
    assert!(labs_seen > 0, "no abort came while a lab was there: the test looked at nothing");
    assert_eq!((interfaces(), mounts()), before, "interfaces or mounts left");
}

#[test]
fn both_ends_are_captured() {
    let Some(_turn) = lab() else { return };
    let directory = tempfile::tempdir().unwrap();
    let bytes = 50_000;
    let run = || {
        let report = shell(&Shell {
            servers: vec![line(&format!("serve 198.18.0.2 {bytes}"))],
            pcap: Some(directory.path().join("run")),
            ..command(["sh", "-c", &line(&format!("fetch 198.18.0.2 {bytes}"))])
        });
        let report = report.unwrap();
        assert_eq!(report.exit_code, 0);
        report
    };
    // Of each packet: time of capture (ns), captured and real length.
    let packets = |end: &str| {
        let bytes = std::fs::read(directory.path().join(format!("run-{end}.pcap"))).unwrap();
        assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_le_bytes());
        let (mut rest, mut packets) = (&bytes[24..], Vec::new());
        while let [head @ .., _] = &rest[..rest.len().min(17)]
            && head.len() == 16
        {
            let word = |i: usize| u32::from_le_bytes(head[i..i + 4].try_into().unwrap());
            packets.push((u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)), word(12)));
            rest = &rest[16 + word(8) as usize..];
        }
        assert!(rest.is_empty());
        packets
    };
    judged(
        "the time at which each end has a packet",
        run,
        |report| report.invalid_because.clone(),
        |_| {
            let (client, server) = (packets("client"), packets("server"));
            let payload = |packets: &[(u64, u32)]| packets.iter().map(|p| u64::from(p.1)).sum::<u64>();
            assert!(payload(&client) > bytes && payload(&server) > bytes);
            // The SYN leaves the client and is at the server 5 ms later.
            let delay = server[0].0 - client[0].0;
            assert!((5_000_000..9_000_000).contains(&delay), "{delay} ns");
        },
    );
}
