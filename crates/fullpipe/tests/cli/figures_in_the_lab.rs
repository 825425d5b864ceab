//! The paper's figures on kernel TCP; those that take many minutes are shortened.
//!
//! A claim fails if three sets of valid runs do not show it. Two are not enough: an ACK that the
//! machine delays beside a probe makes BBR v3 overestimate the path for two of its cycles, and
//! leaves a queue in fig5 that the algorithm does not cause (4 of 14 valid runs beside eight
//! compilers, 90th percentile 1.02 to 1.11 BDP where the others have 0.60 to 0.78). A claim that a
//! busy machine cannot show in time neither passes nor fails: it is reported as "not shown", which
//! `./x test` counts.

use crate::lab;
use crate::program::{fullpipe, output_within};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::process::Output;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for figures that run together: 1.5 times what they need, so that repeated runs do not
/// use up the time of others.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(190);

/// With less time than this, no attempt is made.
const TOO_SHORT: Duration = Duration::from_secs(60);

/// Groups of figures: those that leave processors idle run in parallel, the others alone.
const USUAL: [&[&str]; 2] = [&["fig2", "fig3", "fig4", "fig5", "fig10"], &["fig8"]];
/// As long again, for `./x test nightly`.
const SLOW: [&[&str]; 2] = [&["fig6"], &["long-fat"]];

/// Time limit for the groups of a test: at least a third more than they need on idle processors.
const BUDGET: Duration = Duration::from_secs(370);

/// Held by the test that runs: two at once would disturb each other's runs.
static MACHINE: Mutex<()> = Mutex::new(());

/// The output of `fullpipe figure` within `limit`.
fn figures(ids: &[&str], out: &std::path::Path, limit: Duration) -> Option<Output> {
    let mut command = fullpipe();
    command.arg("figure").args(ids).args(["--engine", "lab", "--short", "--json", "--out"]).arg(out);
    output_within(&mut command, limit)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The number of sets of valid runs that may miss a true claim.
const MAX_MISSES: usize = 2;

/// The claims of a figure that its runs did not show, with the measured values.
fn not_seen(figure: &Value) -> Vec<(String, String)> {
    let findings = figure["findings"].as_array().unwrap();
    assert!(!findings.is_empty(), "{} claims nothing", figure["id"]);
    let failed = findings.iter().filter(|finding| finding["passed"] != true);
    failed
        .map(|f| (f["claim"].to_string(), format!("measured {}, bound {}", f["measured"], f["bound"])))
        .collect()
}

/// The outcome of an attempt.
enum Attempt {
    /// All claims.
    Shown,
    /// In valid runs, these claims failed, with the measured values.
    NotShown(Vec<(String, String)>),
    /// The reason why it is inconclusive.
    Inconclusive(String),
}

/// The outcome of each of `ids`; `None` if the lab is not possible.
fn attempt(ids: &[&str], limit: Duration) -> Option<Vec<Attempt>> {
    let directory = tempfile::tempdir().unwrap();
    let Some(output) = figures(ids, directory.path(), limit) else {
        let late = |_| Attempt::Inconclusive(format!("its runs did not end within {} s", limit.as_secs()));
        return Some(ids.iter().map(late).collect());
    };
    if lab::is_missing(&output) {
        return None;
    }
    let made: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{ids:?}: {e}: {:?}, {}", output.status, stderr(&output)));
    let made = made["figures"].as_array().unwrap();
    assert_eq!(made.len(), ids.len());
    let mut whole = true;
    let judge = |(figure, id): (&Value, &&str)| {
        assert_eq!(figure["id"], *id);
        assert_eq!(figure["shortened"], matches!(*id, "fig8" | "fig10"), "{id}");
        assert!(std::fs::metadata(directory.path().join(format!("{id}.png"))).unwrap().len() > 1000);
        let (not_seen, not_valid) = (not_seen(figure), figure["not_valid"].as_array().unwrap());
        assert_eq!(figure["passed"] == true, not_seen.is_empty(), "{id}");
        whole &= not_seen.is_empty() && not_valid.is_empty();
        match not_valid.first() {
            Some(first) => Attempt::Inconclusive(format!("{} runs not valid: {first}", not_valid.len())),
            None if not_seen.is_empty() => Attempt::Shown,
            None => Attempt::NotShown(not_seen),
        }
    };
    let seen = made.iter().zip(ids).map(judge).collect();
    assert_eq!(output.status.success(), whole, "{ids:?}: {}", stderr(&output));
    Some(seen)
}

#[test]
fn figures_of_the_paper_are_reproduced_on_kernel_tcp() {
    reproduce(&USUAL);
}

#[test]
#[ignore = "takes long: ./x test nightly"]
fn slow_figures_are_reproduced_on_kernel_tcp() {
    reproduce(&SLOW);
}

fn reproduce(groups: &[&[&'static str]]) {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pending: VecDeque<Vec<&str>> = groups.iter().map(|ids| ids.to_vec()).collect();
    let mut failures: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    let mut doubts: BTreeMap<&str, String> = BTreeMap::new();
    let begun = Instant::now();
    // Figures that failed are repeated after the others.
    while let Some(ids) = pending.pop_front() {
        let left = BUDGET.saturating_sub(begun.elapsed());
        if left < TOO_SHORT {
            pending.push_front(ids);
            break;
        }
        let started = Instant::now();
        let Some(seen) = attempt(&ids, left.min(ATTEMPT_LIMIT)) else { return };
        println!("{}: {:.0} s", ids.join(", "), started.elapsed().as_secs_f64());
        let mut again = Vec::new();
        for (id, seen) in ids.into_iter().zip(seen) {
            match seen {
                Attempt::Shown => println!("{id}: seen"),
                Attempt::Inconclusive(why) => {
                    println!("{id}: {why}");
                    doubts.insert(id, why);
                    again.push(id);
                }
                Attempt::NotShown(claims) => {
                    let mut open = true;
                    for (claim, what) in claims {
                        println!("{id}: {claim}: {what}");
                        let seen = failures.entry((id, claim)).or_default();
                        seen.push(what);
                        open &= seen.len() <= MAX_MISSES;
                    }
                    if open {
                        again.push(id);
                    }
                }
            }
        }
        if !again.is_empty() {
            pending.push_back(again);
        }
    }
    let not_so: BTreeMap<_, _> = failures.iter().filter(|(_, seen)| seen.len() > MAX_MISSES).collect();
    assert!(not_so.is_empty(), "not seen in three sets of valid runs: {not_so:#?}");
    for id in pending.into_iter().flatten() {
        let why = match doubts.get(id) {
            Some(doubt) => doubt,
            None if failures.keys().any(|(failed, _)| failed == &id) => {
                "valid runs did not show all of it, fewer than three times, before the time limit"
            }
            None => "the time limit came before its turn",
        };
        println!("NOT SHOWN: {id}: {why}");
    }
}
