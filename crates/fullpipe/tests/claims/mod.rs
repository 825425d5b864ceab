//! Claims about kernel TCP in the lab, which a busy machine may be unable to show.
#![allow(dead_code)] // Each test program uses its part.

use serde_json::Value;

/// How often a claim is tried.
const ATTEMPTS: usize = 3;

/// One attempt to show a claim.
pub struct Attempt {
    /// Why the lab does not vouch for it; empty if it does.
    pub doubts: Vec<String>,
    /// What is not as claimed; empty if all is.
    pub wrong: Vec<String>,
}

/// Tries until all is as claimed. What two attempts that the lab vouches for do not show is not so: one may be the error that a 95 %
/// confidence interval has by definition, or a moment that no audit sees. What a busy machine cannot show is said on a line that
/// `./x test` counts, and neither passes nor fails. `None` ends it: there is no lab.
pub fn shows(claim: &str, mut attempt: impl FnMut() -> Option<Attempt>) {
    let (mut failures, mut doubted) = (Vec::new(), Vec::new());
    for _ in 0..ATTEMPTS {
        let Some(Attempt { doubts, wrong }) = attempt() else { return };
        if wrong.is_empty() {
            return;
        }
        println!("{claim}: {wrong:#?}, {doubts:?}");
        if doubts.is_empty() {
            failures.push(wrong);
        } else {
            doubted = doubts;
        }
        assert!(
            failures.len() < 2,
            "{claim}: not so in two attempts that the lab vouches for: {failures:#?}"
        );
    }
    println!("NOT SHOWN: {claim}: {}", doubted.join("; "));
}

/// Why a recording is not valid.
pub fn doubts(run: &Value) -> Vec<String> {
    let because = run["invalid_because"].as_array().into_iter().flatten();
    because.map(|why| format!("{}: {}", run["label"], why)).collect()
}

/// Those of `checks` that do not hold, in words.
pub fn failed<const N: usize>(checks: [(bool, String); N]) -> Vec<String> {
    checks.into_iter().filter_map(|(holds, said)| (!holds).then_some(said)).collect()
}
