//! Which controller a sender runs, concluded from captures of simulated runs.

use fullpipe_experiment::connection::Sender;
use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario};
use fullpipe_path::LossSpec;
use fullpipe_sim::{Controllers, End};
use fullpipe_trace::simulated;

/// What is concluded of a run of `cc` that lasts so many seconds, with all that is random drawn from `seed`.
fn concluded(cc: &str, path: [&str; 4], seconds: &str, end: End, seed: u64) -> Sender {
    let [rate, rtt, buffer, loss] = path;
    let mut path = PathSpec::bottleneck(rate.parse().unwrap(), rtt.parse().unwrap(), buffer.parse().unwrap());
    path.forward[0].loss = Some(LossSpec::from(loss.parse::<fullpipe_units::Fraction>().unwrap()));
    let mut scenario = Scenario::new(path, vec![FlowSpec::bulk(cc)]);
    scenario.duration = seconds.parse().unwrap();
    let mut traced = simulated(&scenario, seed, &Controllers::new(), end, None).unwrap().unwrap();
    traced.identify();
    traced.record.bulk().0.sender.clone().unwrap()
}

#[test]
fn each_controller_is_named_at_both_ends() {
    let lossy = ["20mbit", "60ms", "1bdp", "0.1%"];
    let queue = ["10mbit", "100ms", "2bdp", "0%"];
    for cc in ["bbr", "bbr3", "cubic", "reno", "hybla"] {
        for (path, end, seed) in [(lossy, End::Sender, 7), (queue, End::Receiver, 8)] {
            let sender = concluded(cc, path, "15s", end, seed);
            assert_eq!(sender.name.as_deref(), Some(cc), "{path:?} at the {end:?}: {sender:#?}");
            let sum: f64 = sender.likelihoods.iter().map(|l| l.share).sum();
            assert!((sum - 1.0).abs() < 1e-9 && !sender.evidence.is_empty(), "{sender:#?}");
        }
    }
}

#[test]
fn too_little_is_called_too_little() {
    let sender = concluded("cubic", ["20mbit", "60ms", "1bdp", "0%"], "1s", End::Sender, 1);
    assert_eq!(sender.name, None);
    assert!(sender.words.starts_with("not enough seen"), "{sender:#?}");
    assert!(sender.likelihoods.is_empty());
}
