//! The example test cases of the IETF draft on BBR (draft-ietf-ccwg-bbr, appendix "BBR Example Test
//! Cases"), for any controller that claims to follow it.
//!
//! Each [`Case`] is scenario files, one a path setting, and a judge of what was recorded: the
//! sequence of states, the model's values, the gains. An engine runs them; the simulator is the
//! usual one.
//!
//! ```
//! use fullpipe_conformance::{CASES, Trial, Verdict, find};
//!
//! assert_eq!(CASES.len(), 22);
//! let case = find("exiting-drain-based-on-inflight").unwrap();
//! assert_eq!(case.heading, "Exiting DRAIN Based on Inflight");
//! let trial = Trial::new(case, "bbr3", &[])?;
//! let engine = fullpipe_run::Engine::Sim;
//! let jobs = trial.runs().map(|run| fullpipe_run::Job { engine, case: run.clone() });
//! let recordings = fullpipe_run::Batch::new(jobs.collect()).run(&()).results.runs;
//! let judged = trial.judge(recordings.into_iter().map(Ok).collect());
//! assert!(judged.iter().all(|result| result.verdict() == Verdict::Passed));
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]

mod cases;
mod experiment;
mod observed;
mod outcomes;
mod trial;

pub use cases::CASES;
pub use observed::why_not_the_draft;
pub use outcomes::OUTCOMES;

pub use trial::{CaseResult, Report, Trial};

use experiment::Experiment;
use fullpipe_experiment::{Recording, scenario};
use fullpipe_units::{Rate, Span};
use observed::Observed;
use serde::Serialize;

// The cases are of the revision that `bbr3` follows.
pub use fullpipe_cc::bbr::v3::{DRAFT_COMMIT, DRAFT_REVISION};

/// A path for a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TestPath {
    /// Rate of the bottleneck.
    pub rate: Rate,
    /// Two-way propagation delay.
    pub rtt: Span,
}

impl std::fmt::Display for TestPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.rate, self.rtt)
    }
}

/// Verdict on a case on one path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Verdict {
    /// All expectations are met.
    #[serde(rename = "passed")]
    Passed,
    /// An expectation is not met.
    #[serde(rename = "failed")]
    Failed,
    /// Undecided: the recording lacks a value that the case needs.
    #[serde(rename = "not judged")]
    NotJudged,
}

impl Verdict {
    /// The verdict over several: failed if one failed, and passed if one passed and none failed.
    pub fn from_all(all: impl IntoIterator<Item = Verdict>) -> Verdict {
        all.into_iter().fold(Verdict::NotJudged, |verdict, next| match (verdict, next) {
            (Verdict::Failed, _) | (_, Verdict::Failed) => Verdict::Failed,
            (Verdict::Passed, _) | (_, Verdict::Passed) => Verdict::Passed,
            _ => Verdict::NotJudged,
        })
    }
}

/// Findings of a case on one path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Judgement {
    /// Expectations that are not met.
    pub failures: Vec<String>,
    /// What could not be judged, and why.
    pub not_judged: Vec<String>,
    /// What was measured, each beside its bound: only for outcome cases.
    pub measured: Vec<String>,
}

impl Judgement {
    /// Passed only if everything was judged.
    pub fn verdict(&self) -> Verdict {
        match (self.failures.is_empty(), self.not_judged.is_empty()) {
            (false, _) => Verdict::Failed,
            (true, false) => Verdict::NotJudged,
            (true, true) => Verdict::Passed,
        }
    }

    pub(crate) fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.fail(what());
        }
    }

    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    /// Notes what was measured beside its bound; a failure unless it `holds`.
    pub(crate) fn bounded(&mut self, holds: bool, measured: String) {
        if !holds {
            self.fail(measured.as_str());
        }
        self.measured.push(measured);
    }

    /// The recording lacks what the case needs.
    pub(crate) fn not_judged(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        if !self.not_judged.contains(&reason) {
            self.not_judged.push(reason);
        }
    }
}

/// A case: scenarios on paths, and what is expected of the recordings.
pub struct Case {
    /// Its name: the heading in lower case with hyphens.
    pub name: &'static str,
    /// Its heading, in the draft if it is one of the draft's.
    pub heading: &'static str,
    /// What an outcome case asks for, and where its bound comes from; the draft's cases have theirs
    /// in the draft.
    pub bound: Option<&'static str>,
    pub(crate) path_texts: &'static [(&'static str, &'static str)],
    pub(crate) experiments: fn(&TestPath) -> Vec<Experiment>,
}

impl Case {
    /// Its list: `draft` or `outcomes`.
    pub fn list(&self) -> &'static str {
        if self.bound.is_none() { "draft" } else { "outcomes" }
    }

    /// The paths it runs on.
    pub fn paths(&self) -> Vec<TestPath> {
        let written =
            |(rate, rtt): &(&str, &str)| Some(TestPath { rate: rate.parse().ok()?, rtt: rtt.parse().ok()? });
        self.path_texts.iter().filter_map(written).collect()
    }

    /// Its runs on `path` with the controller `cc` and its `settings`.
    ///
    /// # Errors
    /// An invalid scenario.
    pub fn runs(
        &self,
        path: &TestPath,
        cc: &str,
        settings: &[(&str, &str)],
    ) -> Result<Vec<scenario::Case>, String> {
        (self.experiments)(path).iter().map(|e| e.case(self.name, cc, settings)).collect()
    }

    /// Judges the `recordings` of its [`runs`](Self::runs) on `path`, in the same order; an
    /// `Err` holds the reason why a run has no recording.
    pub fn judge(
        &self,
        path: &TestPath,
        runs: &[scenario::Case],
        recordings: &[Result<Recording, String>],
    ) -> Judgement {
        let mut found = Judgement::default();
        for ((experiment, run), recording) in (self.experiments)(path).iter().zip(runs).zip(recordings) {
            match recording {
                Ok(recording) => {
                    let observed = Observed::new(recording, path, &run.scenario);
                    match why_not_the_draft(recording).filter(|_| self.bound.is_none()) {
                        Some(reason) => found.not_judged(reason),
                        None => observed.judge(experiment.judge, &mut found),
                    }
                }
                Err(reason) => found.not_judged(reason.as_str()),
            }
        }
        found
    }
}

/// The names of both lists: all cases of the draft, and all outcome cases.
pub const LISTS: [(&str, &[Case]); 2] = [("draft", CASES), ("outcomes", OUTCOMES)];

/// The cases with these names, of which `draft` and `outcomes` are those of a whole list; for no
/// names the draft's.
///
/// # Errors
/// The first unknown name.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static Case>, &str> {
    if names.is_empty() {
        return Ok(CASES.iter().collect());
    }
    let mut selected = Vec::new();
    for name in names.iter().map(AsRef::as_ref) {
        match LISTS.iter().find(|(list, _)| list.eq_ignore_ascii_case(name)) {
            Some((_, cases)) => selected.extend(cases.iter()),
            None => selected.push(find(name).ok_or(name)?),
        }
    }
    Ok(selected)
}

/// The case `name`, of either list.
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().chain(OUTCOMES).find(|c| c.name.eq_ignore_ascii_case(name))
}

/// A short run whose recording shows whether the draft's cases apply to the controller `cc`
/// ([`why_not_the_draft`]): a bulk flow that passes through every state of a BBR v3.
///
/// # Errors
/// An invalid scenario.
pub fn trial_run(cc: &str, settings: &[(&str, &str)]) -> Result<scenario::Case, String> {
    let path = TestPath { rate: Rate::from_bits_per_sec(10_000_000), rtt: Span::from_millis(40) };
    Experiment::new(&path, 10.0, 0.1, "2bdp", |_, _| {}).case("trial", cc, settings)
}
