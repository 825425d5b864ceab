//! Identification of controllers in captures of simulated runs.

use fullpipe_experiment::connection::Sender;
use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
use fullpipe_path::LossSpec;
use fullpipe_sim::{Controllers, End};
use fullpipe_trace::{TracedConnection, simulate_capture, text};

/// A simulated run of `cc`, captured at `end`.
fn simulate(cc: &str, path: [&str; 4], seconds: &str, end: End, seed: u64) -> TracedConnection {
    let [rate, rtt, buffer, loss] = path;
    let mut path = PathSpec::bottleneck(rate.parse().unwrap(), rtt.parse().unwrap(), buffer.parse().unwrap());
    path.forward[0].loss = Some(LossSpec::from(loss.parse::<fullpipe_units::Fraction>().unwrap()));
    let mut scenario = Scenario::new(path, vec![FlowSpec::bulk(cc)]);
    scenario.duration = seconds.parse().unwrap();
    simulate_capture(&scenario, seed, &Controllers::new(), end, None).unwrap().unwrap()
}

/// Identifies the sender of such a run.
fn identify(cc: &str, path: [&str; 4], seconds: &str, end: End, seed: u64) -> Sender {
    let mut traced = simulate(cc, path, seconds, end, seed);
    traced.identify();
    traced.record.bulk().0.sender.clone().unwrap()
}

#[test]
fn each_controller_is_identified_at_both_ends() {
    let lossy = ["20mbit", "60ms", "1bdp", "0.1%"];
    let queue = ["10mbit", "100ms", "2bdp", "0%"];
    for cc in ["bbr", "bbr3", "cubic", "reno", "hybla"] {
        for (path, end, seed) in [(lossy, End::Sender, 7), (queue, End::Receiver, 8)] {
            let sender = identify(cc, path, "15s", end, seed);
            assert_eq!(sender.name.as_deref(), Some(cc), "{path:?} at the {end:?}: {sender:#?}");
            let sum: f64 = sender.likelihoods.iter().map(|l| l.share).sum();
            assert!((sum - 1.0).abs() < 1e-9 && !sender.evidence.is_empty(), "{sender:#?}");
        }
    }
}

#[test]
fn short_connections_are_insufficient() {
    let sender = identify("cubic", ["20mbit", "60ms", "1bdp", "0%"], "1s", End::Sender, 1);
    assert_eq!(sender.name, None);
    assert!(sender.words.starts_with("insufficient data"), "{sender:#?}");
    assert!(sender.likelihoods.is_empty());
}

#[test]
fn receiver_counts_lost_retransmissions() {
    let path = ["20mbit", "40ms", "1bdp", "2%"];
    for seed in 1..=2 {
        let [sent, counted] = [End::Sender, End::Receiver].map(|end| {
            let traced = simulate("bbr", path, "10s", end, seed);
            traced.record.bulk().0.retransmissions.segments as f64
        });
        // Retransmissions lost a third time (1/2500) and those of the last round trip are not visible.
        assert!(sent > 100.0 && (counted / sent - 1.0).abs() <= 0.02, "seed {seed}: {counted} of {sent}");
    }
}

#[test]
fn comparison_shows_both_connections() {
    let path = ["20mbit", "60ms", "1bdp", "1%"];
    let [before, after] = ["reno", "bbr"].map(|cc| simulate(cc, path, "8s", End::Sender, 5));
    let table = text::comparison(("before.pcap", &before.record), ("after.pcap", &after.record), None);
    let [a, b] = [&before, &after].map(|t| t.record.bulk().0.goodput.unwrap());
    let line = table.lines().find(|l| l.trim_start().starts_with("goodput")).unwrap();
    for part in [text::rate(a), text::rate(b), "× ".to_owned()] {
        assert!(line.contains(&part), "{table}");
    }
    assert!(table.contains("before.pcap") && table.contains("limited by"), "{table}");
}
