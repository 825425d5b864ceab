//! The paper's figures on kernel TCP, those that take many minutes in a shorter form.
//!
//! A claim fails when three sets of valid runs do not show it. Not two: an ACK that the machine holds back beside a probe makes BBR v3
//! believe too much of the path for two of its cycles, and leaves a queue in fig5 that is none of the algorithm's (4 of 14 valid runs
//! beside eight compilers, 90th percentile 1.02 to 1.11 BDP where the others have 0.60 to 0.78). What a busy machine cannot show in time is "not shown": it is said on a line
//! that `./x test` counts, and neither passes nor fails.

mod lab;
mod program;

use program::{fullpipe, output_within};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::process::Output;
use std::time::{Duration, Instant};

/// How long all of them may take together: a third more than they take where processors run. Longer would show no more.
fn budget() -> Duration {
    Duration::from_secs(if fullpipe_testing::processors_are_taken() { 180 } else { 540 })
}

/// How long those that are asked for at once may take: half as much again as they need. What repeats its runs without end takes no
/// other's time.
const AN_ATTEMPT: Duration = Duration::from_secs(190);

/// In less than this none is shown.
const TOO_SHORT: Duration = Duration::from_secs(60);

/// What fills no processor runs side by side, the others each alone.
const AT_ONCE: [&[&str]; 4] =
    [&["fig2", "fig3", "fig4", "fig5", "fig10"], &["fig6"], &["fig8"], &["long-fat"]];

/// What `fullpipe figure` did within `limit`.
fn figures(ids: &[&str], out: &std::path::Path, limit: Duration) -> Option<Output> {
    let mut command = fullpipe();
    command.arg("figure").args(ids).args(["--engine", "lab", "--short", "--json", "--out"]).arg(out);
    output_within(&mut command, limit)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How many sets of valid runs a claim that is so may miss.
const CHANCE: usize = 2;

/// The claims of a figure that its runs did not show, and what they showed.
fn not_seen(figure: &Value) -> Vec<(String, String)> {
    let findings = figure["findings"].as_array().unwrap();
    assert!(!findings.is_empty(), "{} claims nothing", figure["id"]);
    let failed = findings.iter().filter(|finding| finding["passed"] != true);
    failed
        .map(|f| (f["claim"].to_string(), format!("measured {}, bound {}", f["measured"], f["bound"])))
        .collect()
}

/// What an attempt came to.
enum Seen {
    All,
    /// In valid runs, these claims are not so, and what is.
    Not(Vec<(String, String)>),
    /// Why it says nothing.
    Doubted(String),
}

/// What each of `ids` came to; `None` where there is no lab.
fn attempt(ids: &[&str], limit: Duration) -> Option<Vec<Seen>> {
    let directory = tempfile::tempdir().unwrap();
    let Some(output) = figures(ids, directory.path(), limit) else {
        let late = |_| Seen::Doubted(format!("its runs did not end within {} s", limit.as_secs()));
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
            Some(first) => Seen::Doubted(format!("{} runs not valid: {first}", not_valid.len())),
            None if not_seen.is_empty() => Seen::All,
            None => Seen::Not(not_seen),
        }
    };
    let seen = made.iter().zip(ids).map(judge).collect();
    assert_eq!(output.status.success(), whole, "{ids:?}: {}", stderr(&output));
    Some(seen)
}

#[test]
fn what_the_paper_shows_is_seen_on_kernel_tcp() {
    let mut pending: VecDeque<Vec<&str>> = AT_ONCE.map(<[_]>::to_vec).into();
    let mut failures: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    let mut doubts: BTreeMap<&str, String> = BTreeMap::new();
    let begun = Instant::now();
    // Whatever did not come right waits until the others have had their turn.
    while let Some(ids) = pending.pop_front() {
        let left = budget().saturating_sub(begun.elapsed());
        if left < TOO_SHORT {
            pending.push_front(ids);
            break;
        }
        let started = Instant::now();
        let Some(seen) = attempt(&ids, left.min(AN_ATTEMPT)) else { return };
        println!("{}: {:.0} s", ids.join(", "), started.elapsed().as_secs_f64());
        let mut again = Vec::new();
        for (id, seen) in ids.into_iter().zip(seen) {
            match seen {
                Seen::All => println!("{id}: seen"),
                Seen::Doubted(why) => {
                    println!("{id}: {why}");
                    doubts.insert(id, why);
                    again.push(id);
                }
                Seen::Not(claims) => {
                    let mut open = true;
                    for (claim, what) in claims {
                        println!("{id}: {claim}: {what}");
                        let seen = failures.entry((id, claim)).or_default();
                        seen.push(what);
                        open &= seen.len() <= CHANCE;
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
    let not_so: BTreeMap<_, _> = failures.iter().filter(|(_, seen)| seen.len() > CHANCE).collect();
    assert!(not_so.is_empty(), "not seen in three sets of valid runs: {not_so:#?}");
    for id in pending.into_iter().flatten() {
        let why = match doubts.get(id) {
            Some(doubt) => doubt,
            None if failures.keys().any(|(failed, _)| failed == &id) => {
                "valid runs did not show all of it, fewer than three times, and time is over"
            }
            None => "time was over before its turn",
        };
        println!("NOT SHOWN: {id}: {why}");
    }
}
