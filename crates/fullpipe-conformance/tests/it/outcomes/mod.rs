//! The outcome cases: every controller of fullpipe passes, and one with a planted fault fails the
//! case that is meant for it, with a sentence that names the fault's effect.

mod planted;

use fullpipe_cc::registry::LINUX;
use fullpipe_conformance::{Case, OUTCOMES};
use fullpipe_experiment::{Recording, scenario};
use fullpipe_sim::Simulation;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Simulates a run.
type Run<'a> = dyn Fn(&scenario::Case) -> Result<Recording, String> + Sync + 'a;

/// What `cases` on their paths find wrong with `cc`.
fn judged<'a>(cases: impl IntoIterator<Item = &'a Case>, cc: &str, simulate: &Run<'_>) -> Vec<String> {
    let jobs: Vec<_> =
        cases.into_iter().flat_map(|case| case.paths().into_iter().map(move |path| (case, path))).collect();
    let found = fullpipe_run::in_parallel(&jobs, 0, |_, (case, path)| {
        let runs = case.runs(path, cc, &[]).unwrap();
        let recordings: Vec<_> = runs.iter().map(simulate).collect();
        let found = case.judge(path, &runs, &recordings);
        let lines = found.failures.iter().chain(&found.not_judged);
        ControlFlow::Continue(lines.map(|line| format!("{} ({path}): {line}", case.name)).collect::<Vec<_>>())
    });
    found.into_iter().flatten().flatten().collect()
}

/// The same for controllers over TCP, with those with a fault.
fn failures<'a>(cases: impl IntoIterator<Item = &'a Case>, cc: &str) -> Vec<String> {
    let controllers = planted::controllers();
    judged(cases, cc, &|run| {
        let simulation = Simulation::new(&run.scenario, run.scenario.seed).controllers(&controllers);
        simulation.run().map_err(|e| e.to_string())
    })
}

/// A constant window, without congestion control.
const NO_CONGESTION_CONTROL: &str = "fixed";

#[test]
fn every_controller_passes_except_for_the_losses_of_several_bbr_v1() {
    // Of Linux's other controllers, some fail by design: see `docs/evidence/linux-controllers.md`.
    let judged = |name| name != NO_CONGESTION_CONTROL && !LINUX.contains(&name);
    for about in fullpipe_cc::CONTROLLERS.iter().filter(|about| judged(about.name)) {
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
    ("halves-for-each-packet", "fills-the-link", "of the link's rate from 15.3 to 25.3 s (at least 92 %)"),
    ("ignores-loss", "drains-its-queue", "of the buffer (at most 60 %), median"),
    ("ignores-loss", "bounds-its-losses", "% of the packets lost from 4.7 to 24.7 s (at most 2 %)"),
    ("never-grows-again", "carries-data-despite-random-loss", "of TCP's throughput equation"),
    ("believes-neighbouring-acks", "carries-data-despite-jitter", "% of the packets lost from 4.7 to 14.7 s"),
    (
        "fears-delay",
        "carries-data-despite-ack-aggregation",
        "of the link's rate from 4.7 to 14.7 s (at least 80 %)",
    ),
    (
        "remembers-its-first-loss",
        "finds-ten-times-the-bandwidth",
        "of ten times the rate from 10.7 to 20.7 s (at least 70 %)",
    ),
    (
        "ignores-loss",
        "gives-up-nine-tenths-of-the-bandwidth",
        "of the packets lost from 10.7 to 25.7 s (at most 2 %)",
    ),
    ("paces-far-above-the-link", "paces-an-application-that-pauses", "paced at 400.0 times the link's rate"),
    (
        "stops-after-timeout",
        "returns-after-a-blackout",
        "of the link's rate from 19.3 to 27.3 s (at least 80 %)",
    ),
    ("keeps-a-queue", "is-fair-with-itself", "(at least 0.8): "),
];

#[test]
fn each_case_fails_a_controller_with_its_fault() {
    for case in OUTCOMES {
        let (cc, _, sentence) = PLANTED.iter().find(|(_, name, _)| *name == case.name).unwrap();
        let found = failures([case], cc);
        assert!(found.iter().any(|line| line.contains(sentence)), "{cc}: {found:#?}");
    }
}

/// The names of the cases that `cc` fails over QUIC; of a case that was not judged, with the reason.
fn failed_over_quic(cc: &str) -> BTreeSet<String> {
    let simulate = |run: &scenario::Case| {
        fullpipe_run::run(run, &mut |_| ControlFlow::Continue(())).map_err(|e| e.to_string())
    };
    let found = judged(OUTCOMES, cc, &simulate);
    println!("{cc}: {found:#?}");
    found.iter().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
#[ignore = "takes long: ./x test nightly"]
fn loss_based_controllers_and_bbr3_pass_over_quic() {
    for cc in ["noq/cubic", "noq/reno", "quinn/cubic", "quinn/reno", "bbr3@noq", "bbr3@quinn"] {
        assert_eq!(failed_over_quic(cc), BTreeSet::new(), "{cc}");
    }
}

/// What fails in the stacks' own BBRs, which draw from the system's entropy: each run differs. A
/// release that passes has fixed it.
#[test]
#[ignore = "takes long: ./x test nightly"]
fn the_faults_of_the_stacks_own_bbrs_are_found() {
    let faults: [(&str, &[&str]); 2] = [
        // The maximum of the bandwidth is forgotten every round; the pacing rate stays at its first value
        // while the application limits the flow.
        ("noq/bbr3", &["fills-the-link", "paces-an-application-that-pauses"]),
        // The bandwidth is measured between neighbouring ACKs.
        (
            "quinn/bbr",
            &[
                "drains-its-queue",
                "bounds-its-losses",
                "carries-data-despite-jitter",
                "carries-data-despite-ack-aggregation",
                "gives-up-nine-tenths-of-the-bandwidth",
            ],
        ),
    ];
    for (cc, cases) in faults {
        let failed = failed_over_quic(cc);
        let missing: Vec<_> = cases.iter().filter(|case| !failed.contains(**case)).collect();
        assert!(missing.is_empty(), "{cc} passes {missing:?}");
    }
}
