//! The example test cases of the IETF draft on BBR (draft-ietf-ccwg-bbr, appendix "BBR Example Test
//! Cases"), for any controller that claims to follow it.
//!
//! Each [`Case`] is scenario files, one a path setting, and a judge of what was recorded: the sequence of
//! states, the model's values, the gains. An engine runs them; the simulator is the usual one.
//!
//! ```
//! use fullpipe_conformance::{CASES, find};
//!
//! assert_eq!(CASES.len(), 22);
//! let case = find("exiting-drain-based-on-inflight").unwrap();
//! assert_eq!(case.heading, "Exiting DRAIN Based on Inflight");
//! let verdict = case.check(&case.settings()[0], "bbr3", &[], &mut |scenario| {
//!     fullpipe_sim::run(scenario, scenario.seed, &mut |_| std::ops::ControlFlow::Continue(())).map_err(|e| e.to_string())
//! });
//! assert!(verdict.complaints.is_empty(), "{:?}", verdict.complaints);
//! ```
#![forbid(unsafe_code)]

mod cases;
mod experiment;
mod observed;

pub use cases::CASES;

use experiment::Experiment;
use fullpipe_experiment::{Recording, Scenario};
use fullpipe_units::{Rate, Span};
use observed::{Complaints, Observed};

/// A path that a case is run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Rate of the bottleneck.
    pub rate: Rate,
    /// Two-way propagation delay.
    pub rtt: Span,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.rate, self.rtt)
    }
}

/// One of the draft's cases.
pub struct Case {
    /// Its name: the heading in small letters and hyphens.
    pub name: &'static str,
    /// The draft's heading.
    pub heading: &'static str,
    pub(crate) paths: &'static [(&'static str, &'static str)],
    pub(crate) experiments: fn(&Setting) -> Vec<Experiment>,
}

/// What came of a case on one path.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// What did not hold; empty if the case passed.
    pub complaints: Vec<String>,
    /// The runs, for logs.
    pub runs: Vec<Recording>,
}

/// What runs a scenario; an error says in words why it could not.
pub type Engine<'a> = dyn FnMut(&Scenario) -> Result<Recording, String> + 'a;

impl Case {
    /// The paths it is run on.
    pub fn settings(&self) -> Vec<Setting> {
        let written =
            |(rate, rtt): &(&str, &str)| Some(Setting { rate: rate.parse().ok()?, rtt: rtt.parse().ok()? });
        self.paths.iter().filter_map(written).collect()
    }

    /// Its scenario files on the path `setting`, with the flow under `cc`.
    ///
    /// # Errors
    /// A mistake in a scenario.
    pub fn scenarios(
        &self,
        setting: &Setting,
        cc: &str,
        settings: &[(&str, &str)],
    ) -> Result<Vec<Scenario>, String> {
        (self.experiments)(setting).iter().map(|e| e.scenario(self.name, cc, settings)).collect()
    }

    /// Runs it on the path `setting` with the controller `cc`, whose own settings are `settings`.
    pub fn check(
        &self,
        setting: &Setting,
        cc: &str,
        settings: &[(&str, &str)],
        engine: &mut Engine<'_>,
    ) -> Verdict {
        let mut verdict = Verdict { complaints: Vec::new(), runs: Vec::new() };
        for experiment in (self.experiments)(setting) {
            let run = experiment.scenario(self.name, cc, settings).and_then(|scenario| {
                let recording = engine(&scenario)?;
                Ok((scenario, recording))
            });
            match run {
                Ok((scenario, recording)) => {
                    let mut complaints = Complaints::default();
                    let end = scenario.duration.as_secs_f64();
                    let observed = Observed::new(&recording, setting, scenario.smss(), end);
                    (experiment.judge)(&observed, &mut complaints);
                    verdict.complaints.append(&mut complaints.0);
                    verdict.runs.push(recording);
                }
                Err(reason) => verdict.complaints.push(reason),
            }
        }
        verdict
    }
}

/// The case `name`.
pub fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|c| c.name.eq_ignore_ascii_case(name))
}
