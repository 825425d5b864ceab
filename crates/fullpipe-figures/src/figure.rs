//! A published result, and what became of it here.

use crate::figures::FIGURES;
use fullpipe_cc::CONTROLLERS;
use fullpipe_experiment::recording::Source;
use fullpipe_experiment::{Case, Recording, ScenarioError, Vocabulary, scenario};
use fullpipe_report::picture::Picture;

/// A published figure or table.
pub struct Figure {
    /// What it is asked for by (`fig8`).
    pub id: &'static str,
    /// What it shows, in a line.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// What the reader should know of how it is made here: assumptions, and what differs.
    pub about: &'static str,
    /// Its scenario: file name and text.
    pub file: &'static str,
    /// The text of the file.
    pub text: &'static str,
    /// What a file cannot say of its runs: populations of paths, settings of one controller, combinations left out.
    pub(crate) revise: Option<fn(Vec<Case>) -> Vec<Case>>,
    /// Holds the runs against what was published.
    pub(crate) judge: fn(&Runs) -> Outcome,
    /// Whether kernel TCP in the lab can show it too.
    pub in_lab: bool,
    /// Fewer or shorter runs that still show every claim, for figures that take many minutes in real time.
    pub(crate) short: Option<fn(Vec<Case>) -> Vec<Case>>,
}

/// What a figure's runs came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Claim by claim.
    pub findings: Vec<Finding>,
    /// The plot, drawn like the published one.
    pub picture: Picture,
    /// What the reader should know of this result: reasons of differences, tables of figures.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Whether all claims were seen.
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|f| f.passed)
    }
}

/// One claim.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// What is claimed.
    pub claim: String,
    /// What was published, in words.
    pub published: String,
    /// What was measured here.
    pub measured: String,
    /// What counts as seen.
    pub bound: String,
    /// Whether it was.
    pub passed: bool,
}

impl Finding {
    /// A claim that holds if `passed`.
    pub fn new(
        claim: impl Into<String>,
        published: impl Into<String>,
        measured: impl Into<String>,
        bound: impl Into<String>,
        passed: bool,
    ) -> Self {
        Finding {
            claim: claim.into(),
            published: published.into(),
            measured: measured.into(),
            bound: bound.into(),
            passed,
        }
    }
}

/// The runs of a figure in the order of its cases.
pub struct Runs {
    /// What ran them.
    pub source: Source,
    /// Each case with what was recorded of it.
    pub runs: Vec<(Case, Recording)>,
}

impl Runs {
    /// Recordings of runs with these swept values, in order.
    pub fn with<'a>(
        &'a self,
        key: &'a str,
        value: &'a str,
    ) -> impl Iterator<Item = &'a (Case, Recording)> + 'a {
        self.runs.iter().filter(move |(case, _)| case.value(key) == Some(value))
    }

    /// Recordings of runs of this controller, in order.
    pub fn of<'a>(&'a self, cc: &'a str) -> impl Iterator<Item = &'a (Case, Recording)> + 'a {
        self.runs.iter().filter(move |(case, _)| case.scenario.cc() == cc)
    }

    /// The first run of this controller.
    pub fn first<'a>(&'a self, cc: &'a str) -> Option<&'a Recording> {
        self.of(cc).next().map(|(_, recording)| recording)
    }
}

impl Figure {
    /// The runs that make it.
    ///
    /// # Errors
    /// A mistake in the scenario file.
    pub fn cases(&self) -> Result<Vec<Case>, ScenarioError> {
        let names = CONTROLLERS.iter().map(|c| c.name);
        let no_files = |name: &str| Err(format!("`{name}`: a figure's scenario stands alone"));
        let cases = scenario::parse(self.file, self.text, &Vocabulary::new(names), &no_files)?;
        Ok(match self.revise {
            Some(revise) => revise(cases),
            None => cases,
        })
    }

    /// Fewer or shorter runs than [`cases`](Self::cases), where there is such a form of it.
    ///
    /// # Errors
    /// A mistake in the scenario file.
    pub fn short_cases(&self) -> Result<Option<Vec<Case>>, ScenarioError> {
        let Some(shorten) = self.short else { return Ok(None) };
        Ok(Some(shorten(self.cases()?)))
    }

    /// Holds the runs of [`cases`](Self::cases), or of [`short_cases`](Self::short_cases), against what was
    /// published.
    pub fn judge(&self, runs: &Runs) -> Outcome {
        (self.judge)(runs)
    }

    /// The chapter that explains it, below `docs/`.
    pub fn chapter(&self) -> String {
        format!("figures/{}.md", self.id)
    }
}

/// The figure `id`.
pub fn find(id: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|f| f.id.eq_ignore_ascii_case(id))
}

/// The ids of all figures, for messages about one that is not there.
pub fn nearest(id: &str) -> String {
    let ids: Vec<&str> = FIGURES.iter().map(|f| f.id).collect();
    format!("no figure `{id}`; there are: {}, all", ids.join(", "))
}
