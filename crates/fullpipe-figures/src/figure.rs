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
    /// What the picture shows as published, and where in the source it is; or that no number was published, and what was.
    pub published: &'static str,
    /// Its scenario: file name and text.
    pub file: &'static str,
    /// The text of the file.
    pub text: &'static str,
    /// The chapter that explains it, as Markdown.
    pub chapter: &'static str,
    /// What a file cannot say of its runs: populations of paths, settings of one controller, combinations left out.
    pub(crate) revise: Option<fn(Vec<Case>) -> Vec<Case>>,
    /// Holds the runs against what was published.
    pub(crate) judge: fn(&Runs) -> Outcome,
    /// Whether kernel TCP in the lab can show it too.
    pub in_lab: bool,
    /// Fewer, shorter or smaller runs that still show every claim, for figures that take many minutes: in real time, or simulated if the lab cannot
    /// make them.
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

    /// How all claims together compare with what was published.
    pub fn agreement(&self) -> Agreement {
        self.findings.iter().map(Finding::agreement).max().unwrap_or(Agreement::AsPublished)
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
    /// What differs from what was published although the claim was seen, and why; none if nothing does that a reader would miss.
    pub differs: Option<String>,
}

/// How what was measured compares with what was published.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Agreement {
    /// The claim was seen, and the figures are near.
    AsPublished,
    /// The claim was seen, and something beside it differs, for a reason that is told.
    Differs,
    /// The claim was not seen.
    NotSeen,
}

impl Agreement {
    /// As a line begins with.
    pub fn symbol(self) -> &'static str {
        match self {
            Agreement::AsPublished => "✓",
            Agreement::Differs => "≠",
            Agreement::NotSeen => "✗",
        }
    }

    /// In words.
    pub fn description(self) -> &'static str {
        match self {
            Agreement::AsPublished => "as published",
            Agreement::Differs => "differs, and why",
            Agreement::NotSeen => "not seen",
        }
    }

    /// As JSON and style sheets name it.
    pub fn name(self) -> &'static str {
        match self {
            Agreement::AsPublished => "as_published",
            Agreement::Differs => "differs",
            Agreement::NotSeen => "not_seen",
        }
    }
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
            differs: None,
        }
    }

    /// The same, with what `differs` from the published figures, and why, if `so`.
    pub(crate) fn differing(self, so: bool, differs: &str) -> Self {
        Finding { differs: so.then(|| differs.to_owned()), ..self }
    }

    /// How the claim compares with what was published.
    pub fn agreement(&self) -> Agreement {
        match (self.passed, &self.differs) {
            (false, _) => Agreement::NotSeen,
            (true, Some(_)) => Agreement::Differs,
            (true, None) => Agreement::AsPublished,
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
    pub fn with_value<'a>(
        &'a self,
        key: &'a str,
        value: &'a str,
    ) -> impl Iterator<Item = &'a (Case, Recording)> + 'a {
        self.runs.iter().filter(move |(case, _)| case.value(key) == Some(value))
    }

    /// Recordings of runs of this controller, in order.
    pub fn for_controller<'a>(&'a self, cc: &'a str) -> impl Iterator<Item = &'a (Case, Recording)> + 'a {
        self.runs.iter().filter(move |(case, _)| case.scenario.cc() == cc)
    }

    /// The first run of this controller.
    pub fn first<'a>(&'a self, cc: &'a str) -> Option<&'a Recording> {
        self.for_controller(cc).next().map(|(_, recording)| recording)
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

    /// Whether its own runs take minutes of simulation: made beside others, it is made short.
    pub fn is_long(&self) -> bool {
        self.short.is_some() && !self.in_lab
    }

    /// The runs that make it where all figures are made, each within seconds.
    ///
    /// # Errors
    /// A mistake in the scenario file.
    pub fn brief_cases(&self) -> Result<Vec<Case>, ScenarioError> {
        let short = if self.is_long() { self.short_cases()? } else { None };
        short.map_or_else(|| self.cases(), Ok)
    }

    /// Holds the runs of [`cases`](Self::cases), or of [`short_cases`](Self::short_cases), against what was
    /// published.
    pub fn judge(&self, runs: &Runs) -> Outcome {
        let mut outcome = (self.judge)(runs);
        outcome.picture.footer = format!("Published: {}", self.published);
        outcome
    }

    /// The chapter as it can stand beside the figure's picture and scenario, outside the repository: links that lead out of its
    /// folder have only their text left.
    pub fn standalone_chapter(&self) -> String {
        let mut text = String::new();
        let mut rest = self.chapter;
        while let Some(at) = rest.find("](../") {
            let (before, link) = rest.split_at(at);
            let end = link.find(')').map_or(link.len(), |end| end + 1);
            if link.starts_with("](../../scenarios/figures/") {
                text += before;
                text += &format!("]({}.toml)", self.id);
            } else {
                // From `[text](../elsewhere)` the text.
                let open = before.rfind('[').unwrap_or(before.len());
                text += &before[..open];
                text += before.get(open + 1..).unwrap_or_default();
            }
            rest = &link[end..];
        }
        text + rest
    }
}

/// The figure `id`.
pub fn find(id: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|f| f.id.eq_ignore_ascii_case(id))
}

/// The ids of all figures, for messages about one that is not there.
pub fn unknown_figure(id: &str) -> String {
    let ids: Vec<&str> = FIGURES.iter().map(|f| f.id).collect();
    format!("no figure `{id}`; there are: {}, all", ids.join(", "))
}
