//! A case on all its paths, for whoever makes its runs.

use crate::{Case, Setting};
use fullpipe_experiment::{Recording, scenario};
use serde::Serialize;

/// A case's runs on each of its paths, to be made by an engine.
pub struct Trial {
    case: &'static Case,
    on_each: Vec<(Setting, Vec<scenario::Case>)>,
}

/// One case on one path, with what came of it.
pub struct Checked {
    /// The case.
    pub case: &'static Case,
    /// The path.
    pub setting: Setting,
    /// What did not hold; nothing if it passed.
    pub complaints: Vec<String>,
    /// The runs, if something did not hold.
    pub runs: Vec<Recording>,
}

impl Trial {
    /// The runs of `case` on all its paths with the controller `cc`, whose own settings are `settings`.
    ///
    /// # Errors
    /// A mistake in a scenario.
    pub fn new(case: &'static Case, cc: &str, settings: &[(&str, &str)]) -> Result<Trial, String> {
        let on = |setting: Setting| Ok((setting, case.runs(&setting, cc, settings)?));
        Ok(Trial { case, on_each: case.settings().into_iter().map(on).collect::<Result<_, String>>()? })
    }

    /// The runs to be made, in their order.
    pub fn runs(&self) -> impl Iterator<Item = &scenario::Case> {
        self.on_each.iter().flat_map(|(_, runs)| runs)
    }

    /// What came of them: `recordings` are of [`runs`](Self::runs), in that order.
    pub fn judge(self, recordings: Vec<Recording>) -> Vec<Checked> {
        let mut recordings = recordings.into_iter();
        let judged = |(setting, runs): (Setting, Vec<scenario::Case>)| {
            let mut own: Vec<Recording> = recordings.by_ref().take(runs.len()).collect();
            let complaints = self.case.judge(&setting, &runs, &own);
            // Recordings are large, and only those of failed cases are asked for.
            if complaints.is_empty() {
                own.clear();
            }
            Checked { case: self.case, setting, complaints, runs: own }
        };
        self.on_each.into_iter().map(judged).collect()
    }
}

/// What came of several cases, for machines.
#[derive(Serialize)]
pub struct Verdicts<'a> {
    schema: &'static str,
    cc: &'a str,
    runs: Vec<Verdict<'a>>,
}

#[derive(Serialize)]
struct Verdict<'a> {
    case: &'static str,
    heading: &'static str,
    rate: String,
    rtt: String,
    passed: bool,
    complaints: &'a [String],
}

impl<'a> Verdicts<'a> {
    /// Of the controller `cc`.
    pub fn new(cc: &'a str, checked: &'a [Checked]) -> Self {
        let verdict = |c: &'a Checked| Verdict {
            case: c.case.name,
            heading: c.case.heading,
            rate: c.setting.rate.to_string(),
            rtt: c.setting.rtt.to_string(),
            passed: c.complaints.is_empty(),
            complaints: &c.complaints,
        };
        Verdicts { schema: "fullpipe/conformance/1", cc, runs: checked.iter().map(verdict).collect() }
    }
}
