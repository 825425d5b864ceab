//! A published result and its reproduction.

use crate::figures::FIGURES;
use fullpipe_cc::CONTROLLERS;
use fullpipe_experiment::recording::Source;
use fullpipe_experiment::{Case, Recording, ScenarioError, Vocabulary, scenario};
use fullpipe_report::picture::Picture;

/// A published figure or table.
pub struct Figure {
    /// Identifier (`fig8`).
    pub id: &'static str,
    /// Title, one line.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// Assumptions of the reproduction, and differences from the original.
    pub about: &'static str,
    /// The published values in the picture and their place in the source, or a remark that no
    /// number was published.
    pub published: &'static str,
    /// File name of the scenario.
    pub file: &'static str,
    /// The text of the file.
    pub text: &'static str,
    /// The explaining chapter, as Markdown.
    pub chapter: &'static str,
    /// Changes to the runs that the file cannot express: populations of paths, settings of one
    /// controller, omitted combinations.
    pub(crate) revise: Option<fn(Vec<Case>) -> Vec<Case>>,
    /// Compares the runs with the published result.
    pub(crate) judge: fn(&Runs) -> Outcome,
    /// Whether it can be reproduced with kernel TCP in the lab.
    pub in_lab: bool,
    /// Fewer, shorter or smaller runs that still show every claim, for figures that take many
    /// minutes in the lab or, if the lab cannot run them, in the simulator.
    pub(crate) short: Option<fn(Vec<Case>) -> Vec<Case>>,
}

/// The result of the runs of a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// One finding per claim.
    pub findings: Vec<Finding>,
    /// The plot, in the style of the published one.
    pub picture: Picture,
    /// Remarks: reasons for differences, tables of values.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Whether all claims hold.
    pub fn passed(&self) -> bool {
        self.findings.iter().all(|f| f.passed)
    }

    /// The worst agreement of all claims.
    pub fn agreement(&self) -> Agreement {
        self.findings.iter().map(Finding::agreement).max().unwrap_or(Agreement::AsPublished)
    }
}

/// A claim and its measurement.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// The claim.
    pub claim: String,
    /// The published value or statement.
    pub published: String,
    /// The measured value.
    pub measured: String,
    /// The bound within which the claim holds.
    pub bound: String,
    /// Whether the claim holds.
    pub passed: bool,
    /// A relevant difference from the published result although the claim holds, with its reason.
    pub differs: Option<String>,
}

/// Agreement of a measurement with the published result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Agreement {
    /// The claim holds, with similar values.
    AsPublished,
    /// The claim holds, with an explained difference.
    Differs,
    /// The claim does not hold.
    NotSeen,
}

impl Agreement {
    /// Symbol at the start of a line.
    pub fn symbol(self) -> &'static str {
        match self {
            Agreement::AsPublished => "✓",
            Agreement::Differs => "≠",
            Agreement::NotSeen => "✗",
        }
    }

    /// Description.
    pub fn description(self) -> &'static str {
        match self {
            Agreement::AsPublished => "as published",
            Agreement::Differs => "differs (explained)",
            Agreement::NotSeen => "not reproduced",
        }
    }

    /// Name in JSON and style sheets.
    pub fn name(self) -> &'static str {
        match self {
            Agreement::AsPublished => "as_published",
            Agreement::Differs => "differs",
            Agreement::NotSeen => "not_seen",
        }
    }
}

impl Finding {
    /// A finding without differences.
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

    /// Adds an explained difference if `condition` holds.
    pub(crate) fn differing(self, condition: bool, differs: &str) -> Self {
        Finding { differs: condition.then(|| differs.to_owned()), ..self }
    }

    /// Agreement with the published result.
    pub fn agreement(&self) -> Agreement {
        match (self.passed, &self.differs) {
            (false, _) => Agreement::NotSeen,
            (true, Some(_)) => Agreement::Differs,
            (true, None) => Agreement::AsPublished,
        }
    }
}

/// The runs of a figure, in the order of its cases.
pub struct Runs {
    /// The engine.
    pub source: Source,
    /// Each case with its recording.
    pub runs: Vec<(Case, Recording)>,
}

impl Runs {
    /// Runs with this value of a swept parameter, in order.
    pub fn with_value<'a>(
        &'a self,
        key: &'a str,
        value: &'a str,
    ) -> impl Iterator<Item = &'a (Case, Recording)> + 'a {
        self.runs.iter().filter(move |(case, _)| case.value(key) == Some(value))
    }

    /// Runs of this controller, in order.
    pub fn for_controller<'a>(&'a self, cc: &'a str) -> impl Iterator<Item = &'a (Case, Recording)> + 'a {
        self.runs.iter().filter(move |(case, _)| case.scenario.cc() == cc)
    }

    /// The first run of this controller.
    pub fn first<'a>(&'a self, cc: &'a str) -> Option<&'a Recording> {
        self.for_controller(cc).next().map(|(_, recording)| recording)
    }
}

impl Figure {
    /// The runs of the figure.
    ///
    /// # Errors
    /// The scenario file is invalid.
    pub fn cases(&self) -> Result<Vec<Case>, ScenarioError> {
        let names = CONTROLLERS.iter().map(|c| c.name);
        let no_files =
            |name: &str| Err(format!("`{name}`: the scenario of a figure cannot refer to other files"));
        let cases = scenario::parse(self.file, self.text, &Vocabulary::new(names), &no_files)?;
        Ok(match self.revise {
            Some(revise) => revise(cases),
            None => cases,
        })
    }

    /// Fewer or shorter runs than [`cases`](Self::cases); `None` if the figure has no short form.
    ///
    /// # Errors
    /// The scenario file is invalid.
    pub fn short_cases(&self) -> Result<Option<Vec<Case>>, ScenarioError> {
        let Some(shorten) = self.short else { return Ok(None) };
        Ok(Some(shorten(self.cases()?)))
    }

    /// Whether the simulation takes minutes: together with other figures, the short form is used.
    pub fn is_long(&self) -> bool {
        self.short.is_some() && !self.in_lab
    }

    /// The runs for reproducing all figures, each within seconds.
    ///
    /// # Errors
    /// The scenario file is invalid.
    pub fn brief_cases(&self) -> Result<Vec<Case>, ScenarioError> {
        let short = if self.is_long() { self.short_cases()? } else { None };
        short.map_or_else(|| self.cases(), Ok)
    }

    /// Compares the runs of [`cases`](Self::cases) or [`short_cases`](Self::short_cases) with the
    /// published result.
    pub fn judge(&self, runs: &Runs) -> Outcome {
        let mut outcome = (self.judge)(runs);
        outcome.picture.footer = format!("Published: {}", self.published);
        outcome
    }

    /// The chapter for use outside the repository, next to the picture and the scenario: of links
    /// to other folders only the text remains.
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
                // Keep the text of `[text](../elsewhere)`.
                let open = before.rfind('[').unwrap_or(before.len());
                text += &before[..open];
                text += before.get(open + 1..).unwrap_or_default();
            }
            rest = &link[end..];
        }
        text + rest
    }
}

/// Finds a figure by its identifier.
pub fn find(id: &str) -> Option<&'static Figure> {
    FIGURES.iter().find(|f| f.id.eq_ignore_ascii_case(id))
}

/// The error message for an unknown identifier, with all existing ones.
pub fn unknown_figure(id: &str) -> String {
    let ids: Vec<&str> = FIGURES.iter().map(|f| f.id).collect();
    format!("no figure `{id}`; use one of {}, all", ids.join(", "))
}
