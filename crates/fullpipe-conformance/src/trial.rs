//! A case on all its paths, for engines.

use crate::{Case, DRAFT_COMMIT, DRAFT_REVISION, Judgement, TestPath, Verdict};
use fullpipe_experiment::{Recording, scenario};
use serde::Serialize;

/// A case's runs on each of its paths.
pub struct Trial {
    case: &'static Case,
    runs_by_path: Vec<(TestPath, Vec<scenario::Case>)>,
}

/// The result of one case on one path.
pub struct CaseResult {
    /// The case.
    pub case: &'static Case,
    /// The path.
    pub path: TestPath,
    /// The findings.
    pub found: Judgement,
    /// The recordings, if it failed.
    pub runs: Vec<Recording>,
}

impl CaseResult {
    /// The verdict.
    pub fn verdict(&self) -> Verdict {
        self.found.verdict()
    }
}

impl Trial {
    /// The runs of `case` on all its paths with the controller `cc` and its `settings`.
    ///
    /// # Errors
    /// An invalid scenario.
    pub fn new(case: &'static Case, cc: &str, settings: &[(&str, &str)]) -> Result<Trial, String> {
        let on = |path: TestPath| Ok((path, case.runs(&path, cc, settings)?));
        Ok(Trial { case, runs_by_path: case.paths().into_iter().map(on).collect::<Result<_, String>>()? })
    }

    /// The runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = &scenario::Case> {
        self.runs_by_path.iter().flat_map(|(_, runs)| runs)
    }

    /// Judges the `recordings` of the [`runs`](Self::runs), in the same order; an `Err` holds
    /// the reason why a run has no recording.
    pub fn judge(self, recordings: Vec<Result<Recording, String>>) -> Vec<CaseResult> {
        let mut recordings = recordings.into_iter();
        let judged = |(path, runs): (TestPath, Vec<scenario::Case>)| {
            let mut own: Vec<_> = recordings.by_ref().take(runs.len()).collect();
            let found = self.case.judge(&path, &runs, &own);
            // Recordings are large; keep only those of failed cases.
            if found.failures.is_empty() {
                own.clear();
            }
            CaseResult { case: self.case, path, found, runs: own.into_iter().flatten().collect() }
        };
        self.runs_by_path.into_iter().map(judged).collect()
    }
}

/// The results of several cases, as JSON output.
#[derive(Serialize)]
pub struct Report<'a> {
    schema: &'static str,
    draft: &'static str,
    draft_commit: &'static str,
    cc: &'a str,
    /// Why the draft's cases were not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    draft_not_judged: Option<&'a str>,
    runs: Vec<RunReport<'a>>,
}

#[derive(Serialize)]
struct RunReport<'a> {
    list: &'static str,
    case: &'static str,
    heading: &'static str,
    rate: String,
    rtt: String,
    verdict: Verdict,
    failures: &'a [String],
    not_judged: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    measured: &'a [String],
}

impl<'a> Report<'a> {
    /// A report for the controller `cc`.
    pub fn new(cc: &'a str, checked: &'a [CaseResult]) -> Self {
        let verdict = |c: &'a CaseResult| RunReport {
            list: c.case.list(),
            case: c.case.name,
            heading: c.case.heading,
            rate: c.path.rate.to_string(),
            rtt: c.path.rtt.to_string(),
            verdict: c.verdict(),
            failures: &c.found.failures,
            not_judged: &c.found.not_judged,
            measured: &c.found.measured,
        };
        Report {
            schema: "fullpipe/conformance/2",
            draft: DRAFT_REVISION,
            draft_commit: DRAFT_COMMIT,
            cc,
            draft_not_judged: None,
            runs: checked.iter().map(verdict).collect(),
        }
    }

    /// Records why the draft's cases were not run.
    #[must_use]
    pub fn without_the_draft(mut self, reason: Option<&'a str>) -> Self {
        self.draft_not_judged = reason;
        self
    }
}
