//! The example test cases of the IETF draft on BBR (draft-ietf-ccwg-bbr, appendix "BBR Example Test
//! Cases"), for any controller that claims to follow it.
//!
//! Each [`Case`] is scenario files, one a path setting, and a judge of what was recorded: the
//! sequence of states, the model's values, the gains. An engine runs them; the simulator is the
//! usual one.
//!
//! ```
//! use fullpipe_conformance::{CASES, Trial, find};
//!
//! assert_eq!(CASES.len(), 22);
//! let case = find("exiting-drain-based-on-inflight").unwrap();
//! assert_eq!(case.heading, "Exiting DRAIN Based on Inflight");
//! let trial = Trial::new(case, "bbr3", &[])?;
//! let engine = fullpipe_run::Engine::Sim;
//! let jobs = trial.runs().map(|run| fullpipe_run::Job { engine, case: run.clone() });
//! let recordings = fullpipe_run::Batch::new(jobs.collect()).run(&()).results.runs;
//! assert!(trial.judge(recordings).iter().all(|checked| checked.failures.is_empty()));
//! # Ok::<(), String>(())
//! ```
#![forbid(unsafe_code)]

mod cases;
mod experiment;
mod observed;
mod outcomes;
mod trial;

pub use cases::CASES;
pub use outcomes::{OUTCOMES, bound};

pub use trial::{CaseResult, Report, Trial};

use experiment::Experiment;
use fullpipe_experiment::{Recording, scenario};
use fullpipe_units::{Rate, Span};
use observed::{Failures, Observed};

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

/// One of the draft's cases.
pub struct Case {
    /// Its name: the heading in lower case with hyphens.
    pub name: &'static str,
    /// The draft's heading.
    pub heading: &'static str,
    pub(crate) path_texts: &'static [(&'static str, &'static str)],
    pub(crate) experiments: fn(&TestPath) -> Vec<Experiment>,
}

impl Case {
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

    /// Judges the `recordings` of its [`runs`](Self::runs) on `path`, in the same order. Returns
    /// the failures; empty if the case passed.
    pub fn judge(&self, path: &TestPath, runs: &[scenario::Case], recordings: &[Recording]) -> Vec<String> {
        let mut failures = Failures::default();
        for ((experiment, run), recording) in (self.experiments)(path).iter().zip(runs).zip(recordings) {
            let scenario = &run.scenario;
            let end = scenario.duration.as_secs_f64();
            let observed = Observed::new(recording, path, scenario.smss(), end);
            (experiment.judge)(&observed, &mut failures);
        }
        failures.0
    }
}

/// The cases with these names, or all cases for no names.
///
/// # Errors
/// The first unknown name.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static Case>, &str> {
    if names.is_empty() {
        return Ok(CASES.iter().collect());
    }
    names.iter().map(|name| find(name.as_ref()).ok_or(name.as_ref())).collect()
}

/// The case `name`.
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|c| c.name.eq_ignore_ascii_case(name))
}
