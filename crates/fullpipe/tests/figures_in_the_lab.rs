//! The paper's figures on kernel TCP, those that take many minutes in a shorter form.
//!
//! A claim fails when valid runs do not show it twice. What a busy machine cannot show in time is "not shown": it is said on a line
//! that `./x test` counts, and neither passes nor fails.

mod lab;
mod program;

use program::{fullpipe, output_within};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Output;
use std::time::{Duration, Instant};

/// How long all of them may take together: twice what they take where processors run. Longer would show no more.
fn budget() -> Duration {
    Duration::from_secs(if fullpipe_testing::processors_are_taken() { 180 } else { 330 })
}

/// The least time in which another attempt can show anything: the longest figure, alone.
const AN_ATTEMPT: Duration = Duration::from_secs(90);

/// What `fullpipe figure` did within `limit`.
fn figures(ids: &[&str], out: &std::path::Path, limit: Duration) -> Option<Output> {
    let mut command = fullpipe();
    command.arg("figure").args(ids).args(["--engine", "lab", "--short", "--json", "--out"]).arg(out);
    output_within(&mut command, limit)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The claims of a figure that its runs did not show.
fn not_seen(figure: &Value) -> Vec<String> {
    let findings = figure["findings"].as_array().unwrap();
    assert!(!findings.is_empty(), "{} claims nothing", figure["id"]);
    let failed = findings.iter().filter(|finding| finding["passed"] != true);
    failed.map(|f| format!("{}: measured {}, bound {}", f["claim"], f["measured"], f["bound"])).collect()
}

#[test]
fn what_the_paper_shows_is_seen_on_kernel_tcp() {
    let mut pending = vec!["fig2", "fig3", "fig4", "fig5", "fig6", "fig8", "fig10", "long-fat"];
    let mut failures: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut doubts: BTreeMap<&str, String> = BTreeMap::new();
    let begun = Instant::now();
    while !pending.is_empty() {
        let left = budget().saturating_sub(begun.elapsed());
        if left < AN_ATTEMPT {
            break;
        }
        let directory = tempfile::tempdir().unwrap();
        let Some(output) = figures(&pending, directory.path(), left) else {
            for id in &pending {
                doubts.entry(id).or_insert_with(|| "its runs did not end in time".to_owned());
            }
            break;
        };
        if lab::is_missing(&output) {
            return;
        }
        let made: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {:?}, {}", output.status, stderr(&output)));
        let made = made["figures"].as_array().unwrap();
        assert_eq!(made.len(), pending.len());
        let mut all_seen = true;
        for (figure, id) in made.iter().zip(pending.clone()) {
            assert_eq!(figure["id"], id);
            assert_eq!(figure["shortened"], matches!(id, "fig8" | "fig10"), "{id}");
            assert!(std::fs::metadata(directory.path().join(format!("{id}.png"))).unwrap().len() > 1000);
            let (not_seen, not_valid) = (not_seen(figure), figure["not_valid"].as_array().unwrap());
            assert_eq!(figure["passed"] == true, not_seen.is_empty(), "{id}");
            all_seen &= not_seen.is_empty() && not_valid.is_empty();
            if !not_valid.is_empty() {
                doubts.insert(id, format!("{} runs not valid: {}", not_valid.len(), not_valid[0]));
            } else if not_seen.is_empty() {
                pending.retain(|other| *other != id);
                failures.remove(id);
                doubts.remove(id);
            } else {
                println!("{id}: {}", not_seen.join("; "));
                failures.entry(id).or_default().push(not_seen.join("; "));
            }
        }
        assert_eq!(output.status.success(), all_seen, "{}", stderr(&output));
        // What two sets of valid runs did not show is not so.
        pending.retain(|id| failures.get(id).is_none_or(|seen| seen.len() < 2));
    }
    failures.retain(|_, seen| seen.len() >= 2);
    assert!(failures.is_empty(), "not seen in valid runs, twice: {failures:#?}");
    for id in pending {
        let why = doubts.get(id).map_or("one attempt on valid runs did not show it, and time is over", |d| d);
        println!("NOT SHOWN: {id}: {why}");
    }
}
