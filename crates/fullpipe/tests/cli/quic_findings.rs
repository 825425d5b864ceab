//! The findings in QUIC stacks reproduce (`docs/evidence/quic`): a stack that has been fixed, or
//! another version of it, makes its page out of date.

use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{Case, parse};
use fullpipe_run::{Batch, Engine, Job, Outcome, agreement, vocabulary};
use fullpipe_units::Span;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The runs of a page's scenario.
fn cases(page: &str) -> Vec<Case> {
    let file = format!("docs/evidence/quic/{page}.toml");
    let no_files = |name: &str| Err(format!("{name}: a finding's scenario is one file"));
    parse(&file, &read(&file), &vocabulary(&[Engine::Sim]), &no_files)
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Runs these cases, of `max` at most.
fn run(mut cases: Vec<Case>, max: Span) -> Outcome {
    for case in &mut cases {
        assert!(case.scenario.duration <= max || agreement::shorten(case, max));
    }
    let jobs = cases.into_iter().map(|case| Job { engine: Engine::Sim, case }).collect();
    Batch::new(jobs).keep_series(false).run(&())
}

/// Runs the first seeds of a page's scenario: its checks hold, but fail in the runs that `faulty`
/// selects.
fn fails_only(page: &str, seeds: u64, max: Span, faulty: impl Fn(&Recording) -> bool) -> Vec<Recording> {
    let mut cases = cases(page);
    let first = cases[0].scenario.seed;
    cases.retain(|case| case.scenario.seed < first + seeds);
    let runs = run(cases, max).into_runs().unwrap_or_else(|error| panic!("{page}: {error}"));
    assert!(runs.iter().any(&faulty) && runs.iter().any(|run| !faulty(run)), "{page}: nothing to compare");
    for run in &runs {
        assert!(!run.checks.is_empty(), "{page}, {}: nothing is checked", run.label);
        for check in &run.checks {
            let found = format!("{page}, {}: {}, measured {}", run.label, check.check, check.measured);
            println!("{found}");
            if faulty(run) {
                assert!(
                    !check.passed,
                    "fixed, or no longer shown: update docs/evidence/quic/{page}.md: {found}"
                );
            } else {
                assert!(check.passed, "{found}");
            }
        }
    }
    runs
}

fn mean_goodput(runs: &[Recording], cc: &str) -> f64 {
    let goodputs: Vec<f64> =
        runs.iter().filter(|run| run.cc == cc).map(|run| run.summary.goodput_bps).collect();
    goodputs.iter().sum::<f64>() / goodputs.len() as f64
}

#[test]
fn noq_advances_its_max_bandwidth_filter_every_round() {
    let runs = fails_only("noq-max-bw-filter", 2, Span::from_secs(20), |run| run.cc == "noq/bbr3");
    let share = mean_goodput(&runs, "noq/bbr3") / mean_goodput(&runs, "bbr3@noq");
    assert!(share <= 0.92, "{share}: update docs/evidence/quic/noq-max-bw-filter.md");
}

#[test]
fn noq_does_not_pace_an_application_limited_flow() {
    fails_only("noq-unpaced", 2, Span::from_secs(5), |run| run.cc == "noq/bbr3");
}

#[test]
fn jitter_makes_quinns_bbr_lose_half_of_its_packets() {
    fails_only("quinn-bbr-samples", 1, Span::from_secs(10), |run| {
        run.cc == "quinn/bbr" && run.varied.iter().any(|key| key.value == "1ms")
    });
}

#[test]
fn more_than_1024_pieces_close_a_connection() {
    let outcome = run(cases("stream-gaps"), Span::from_secs(1));
    let mut closed: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
    closed.sort();
    // Each with the label of its run.
    let expected = [
        "bbr3@noq, receive_buffer 16MB, loss 0%:",
        "bbr3@noq, receive_buffer 16MB, loss 1%:",
        "bbr3@noq, receive_buffer 4MB, loss 1%:",
        "noq/cubic, receive_buffer 16MB, loss 0%:",
        "quinn/cubic, receive_buffer 16MB, loss 0%:",
    ];
    let as_expected = closed.len() == expected.len()
        && closed.iter().zip(expected).all(|(failure, run)| {
            failure.starts_with(run) && failure.contains("too many gaps in stream buffer")
        });
    assert!(as_expected, "update docs/evidence/quic/stream-gaps.md: {closed:#?}");
    assert_eq!(outcome.results.runs.len(), 11);
}

/// The version of a crate in a lock file.
fn locked(lock: &str, name: &str) -> String {
    let lock = read(lock).replace("\r\n", "\n");
    let entry = format!("name = \"{name}\"\nversion = \"");
    let start = lock.find(&entry).unwrap_or_else(|| panic!("no {name} in the lock file")) + entry.len();
    lock[start..].split('"').next().unwrap_or_default().to_owned()
}

#[test]
fn the_pages_name_the_versions_that_are_tested() {
    let workspace = "Cargo.lock";
    let pages = [
        ("noq-max-bw-filter", "noq-proto", workspace),
        ("noq-unpaced", "noq-proto", workspace),
        ("noq-loss-underflow", "noq-proto", "crates/fullpipe-quic/noq-1.1/Cargo.lock"),
        ("quinn-bbr-samples", "quinn-proto", workspace),
        ("stream-gaps", "quinn-proto", workspace),
        ("stream-gaps", "noq-proto", workspace),
        ("s2n-bbr-queue", "s2n-quic", "crates/fullpipe-quic-s2n/Cargo.lock"),
    ];
    let index = read("docs/evidence/quic.md");
    for (page, name, lock) in pages {
        let text = read(format!("docs/evidence/quic/{page}.md"));
        let version = format!("{name} {}", locked(lock, name));
        assert!(text.contains(&version), "{page}.md is not about {version}");
        assert!(index.contains(&format!("(quic/{page}.md)")), "{page}.md is not in quic.md");
    }
    for entry in fs::read_dir(root().join("docs/evidence/quic")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let (page, kind) = file.split_once('.').unwrap();
        assert!(pages.iter().any(|(name, ..)| *name == page), "{file} belongs to no page");
        if kind == "toml" {
            let text = read(format!("docs/evidence/quic/{page}.md"));
            assert!(text.contains(&format!("docs/evidence/quic/{file}")), "{page}.md does not run {file}");
        }
    }
}
