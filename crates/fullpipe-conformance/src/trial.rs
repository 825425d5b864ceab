//! A case on all its paths, for whoever makes its runs.

use crate::{Case, TestPath};
use fullpipe_experiment::{Recording, scenario};
use serde::Serialize;

/// A case's runs on each of its paths, to be made by an engine.
pub struct Trial {
    case: &'static Case,
    on_each: Vec<(TestPath, Vec<scenario::Case>)>,
}

/// One case on one path, with what came of it.
pub struct CaseResult {
    /// The case.
    pub case: &'static Case,
    /// The path.
    pub path: TestPath,
    /// What did not hold; nothing if it passed.
    pub failures: Vec<String>,
    /// The runs, if something did not hold.
    pub runs: Vec<Recording>,
}

impl Trial {
    /// The runs of `case` on all its paths with the controller `cc`, whose own settings are `settings`.
    ///
    /// # Errors
    /// A mistake in a scenario.
    pub fn new(case: &'static Case, cc: &str, settings: &[(&str, &str)]) -> Result<Trial, String> {
        let on = |path: TestPath| Ok((path, case.runs(&path, cc, settings)?));
        Ok(Trial { case, on_each: case.paths().into_iter().map(on).collect::<Result<_, String>>()? })
    }

    /// The runs to be made, in their order.
    pub fn runs(&self) -> impl Iterator<Item = &scenario::Case> {
        self.on_each.iter().flat_map(|(_, runs)| runs)
    }

    /// What came of them: `recordings` are of [`runs`](Self::runs), in that order.
    pub fn judge(self, recordings: Vec<Recording>) -> Vec<CaseResult> {
        let mut recordings = recordings.into_iter();
        let judged = |(path, runs): (TestPath, Vec<scenario::Case>)| {
            let mut own: Vec<Recording> = recordings.by_ref().take(runs.len()).collect();
            let failures = self.case.judge(&path, &runs, &own);
            // Recordings are large, and only those of failed cases are asked for.
            if failures.is_empty() {
                own.clear();
            }
            CaseResult { case: self.case, path, failures, runs: own }
        };
        self.on_each.into_iter().map(judged).collect()
    }
}

/// What came of several cases, for machines.
#[derive(Serialize)]
pub struct Report<'a> {
    schema: &'static str,
    cc: &'a str,
    runs: Vec<RunReport<'a>>,
}

#[derive(Serialize)]
struct RunReport<'a> {
    case: &'static str,
    heading: &'static str,
    rate: String,
    rtt: String,
    passed: bool,
    failures: &'a [String],
}

impl<'a> Report<'a> {
    /// Of the controller `cc`.
    pub fn new(cc: &'a str, checked: &'a [CaseResult]) -> Self {
        let verdict = |c: &'a CaseResult| RunReport {
            case: c.case.name,
            heading: c.case.heading,
            rate: c.path.rate.to_string(),
            rtt: c.path.rtt.to_string(),
            passed: c.failures.is_empty(),
            failures: &c.failures,
        };
        Report { schema: "fullpipe/conformance/1", cc, runs: checked.iter().map(verdict).collect() }
    }
}
