//! The outcome cases: every controller of fullpipe passes, and one with a planted fault fails the
//! case that is meant for it, with a sentence that names the fault's effect.

mod planted;

use fullpipe_conformance::{Case, OUTCOMES};
use fullpipe_sim::Simulation;
use std::ops::ControlFlow;

/// What `cases` on their paths find wrong with `cc`.
fn failures<'a>(cases: impl IntoIterator<Item = &'a Case>, cc: &str) -> Vec<String> {
    let controllers = planted::controllers();
    let jobs: Vec<_> =
        cases.into_iter().flat_map(|case| case.paths().into_iter().map(move |path| (case, path))).collect();
    let found = fullpipe_run::in_parallel(&jobs, 0, |_, (case, path)| {
        let runs = case.runs(path, cc, &[]).unwrap();
        let simulate = |run: &fullpipe_experiment::scenario::Case| {
            Simulation::new(&run.scenario, run.scenario.seed).controllers(&controllers).run().unwrap()
        };
        let recordings: Vec<_> = runs.iter().map(|run| Ok(simulate(run))).collect();
        let lines = case.judge(path, &runs, &recordings).failures.into_iter();
        ControlFlow::Continue(lines.map(|line| format!("{} ({path}): {line}", case.name)).collect::<Vec<_>>())
    });
    found.into_iter().flatten().flatten().collect()
}

/// A constant window, without congestion control.
const NO_CONGESTION_CONTROL: &str = "fixed";

#[test]
fn every_controller_passes_except_for_the_losses_of_several_bbr_v1() {
    for about in fullpipe_cc::CONTROLLERS.iter().filter(|about| about.name != NO_CONGESTION_CONTROL) {
        let found = failures(OUTCOMES, about.name);
        // RFC 9743 §5.1.3 names this failure of BBR v1: several flows lose a lot in a buffer of less than
        // 1.5 BDP.
        let (known, other): (Vec<_>, Vec<_>) = found
            .into_iter()
            .partition(|line| about.name == "bbr" && line.starts_with("bounds-its-losses ("));
        assert_eq!(other, Vec::<String>::new(), "{}", about.name);
        assert_eq!(known.len(), if about.name == "bbr" { 2 } else { 0 }, "{known:?}");
    }
}

#[test]
fn a_plain_aimd_without_a_fault_passes() {
    assert_eq!(failures(OUTCOMES, "sound"), Vec::<String>::new());
}

/// A controller with a fault, the case that must fail, and what it says.
const PLANTED: &[(&str, &str, &str)] = &[
    ("halves-for-each-packet", "fills-the-link", "(100mbit, 40ms): 46 % of the link from 15.3 to 25.3 s"),
    ("ignores-loss", "drains-its-queue", "the queue is above 96 % of the buffer for nine tenths of the time"),
    ("ignores-loss", "bounds-its-losses", "50.3 % of the packets lost from 4.7 to 24.7 s, above 2 %"),
    ("never-grows-again", "carries-data-despite-random-loss", "23 % of what TCP's throughput equation gives"),
    ("believes-neighbouring-acks", "carries-data-despite-jitter", "% of the packets lost from 4.7 to 14.7 s"),
    ("fears-delay", "carries-data-despite-ack-aggregation", "4 % of the link from 4.7 to 14.7 s, below 80 %"),
    ("remembers-its-first-loss", "finds-ten-times-the-bandwidth", "15 % of ten times the rate"),
    ("ignores-loss", "gives-up-nine-tenths-of-the-bandwidth", "72.7 % of the packets lost"),
    ("paces-far-above-the-link", "paces-an-application-that-pauses", "paced at 400.0 times the link's rate"),
    ("stops-after-timeout", "returns-after-a-blackout", "3 % of the link from 19.3 to 27.3 s, below 80 %"),
    ("keeps-a-queue", "is-fair-with-itself", "Jain's index"),
];

#[test]
fn each_case_fails_a_controller_with_its_fault() {
    for case in OUTCOMES {
        let (cc, _, sentence) = PLANTED.iter().find(|(_, name, _)| *name == case.name).unwrap();
        let found = failures([case], cc);
        assert!(found.iter().any(|line| line.contains(sentence)), "{cc}: {found:#?}");
    }
}
