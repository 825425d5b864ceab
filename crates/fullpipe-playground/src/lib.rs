//! The simulator in a browser page.
//!
//! The page passes a scenario as TOML to [`simulate`] and gets every run back as JSON. Numbers are
//! those of `fullpipe run`: the same scenario and seed give the same bytes.
//!
//! ```
//! let scenario = r#"
//!     duration = "2s"
//!     [path]
//!     rate = "10mbit"
//!     rtt = "40ms"
//!     [[flow]]
//!     cc = "bbr"
//! "#;
//! let outcome = fullpipe_playground::simulate(scenario, &fullpipe_sim::Controllers::new())?;
//! assert!(outcome.results.runs[0].summary.goodput_bps > 8e6);
//! # Ok::<(), fullpipe_playground::Problem>(())
//! ```
#![cfg_attr(not(target_arch = "wasm32"), forbid(unsafe_code))]

#[cfg(target_arch = "wasm32")]
mod bindings;
mod packets;

pub use packets::Packet;

use fullpipe_experiment::scenario::{Case, ScenarioError, Vocabulary, parse};
use fullpipe_experiment::{Recording, Results};
use fullpipe_report::{About, Format};
use fullpipe_sim::{CapturedPacket, Controllers, Simulation};
use packets::joined;
use serde::Serialize;

/// Data packets that a page simulates at most: some ten seconds of work.
pub const MAX_PACKETS: f64 = 20e6;
/// Samples of all flows and links that a page keeps at most: some hundred megabytes as JSON.
pub const MAX_SAMPLES: f64 = 1e6;
/// Most packets that are listed, of all flows together.
pub const MAX_LISTED: usize = 200_000;

/// Why a scenario was not run, for the page to show at its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Problem {
    /// What is wrong.
    pub message: String,
    /// Line in the scenario, from 1; none if it concerns the whole.
    pub line: Option<usize>,
    /// Column, from 1.
    pub column: Option<usize>,
    /// What to do.
    pub help: Option<String>,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl From<ScenarioError> for Problem {
    fn from(error: ScenarioError) -> Self {
        Problem {
            message: error.message,
            line: Some(error.line),
            column: Some(error.column),
            help: error.help,
        }
    }
}

fn problem(message: impl Into<String>, help: &str) -> Problem {
    Problem { message: message.into(), line: None, column: None, help: Some(help.to_owned()) }
}

/// What a scenario would cost, before it is run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// Runs: every combination of the sweep, with its repeats.
    pub runs: usize,
    /// Data packets of all runs at the bottleneck's rate; none if nothing bounds the rate.
    pub packets: Option<f64>,
    /// Rows of all time series.
    pub samples: f64,
}

/// All runs of a scenario.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The recordings, as `fullpipe run --out FILE.json` writes them.
    pub results: Results,
    /// The data packets of the first run, one list per flow; empty if there are too many to show.
    /// The page reads them as numbers: as JSON they would be most of it.
    #[serde(skip)]
    pub packets: Vec<Vec<Packet>>,
}

/// The runs of a scenario, checked but not run.
///
/// # Errors
/// What is wrong with the text, at its line and column; or that it exceeds what a page can run.
pub fn cases(text: &str, controllers: &Controllers) -> Result<Vec<Case>, Problem> {
    let no_files = |name: &str| Err(format!("`{name}` is a file, and a page cannot read files"));
    let vocabulary = Vocabulary::new(controllers.names());
    let cases = parse("scenario.toml", text, &vocabulary, &no_files)?;
    let estimate = estimate(&cases);
    let Some(packets) = estimate.packets else {
        return Err(problem(
            "the path has no rate limit",
            "set `rate` of the path, for example rate = \"20mbit\"",
        ));
    };
    if packets > MAX_PACKETS {
        return Err(problem(
            format!(
                "this scenario sends up to {:.0} million packets; a page runs at most {:.0} million",
                packets / 1e6,
                MAX_PACKETS / 1e6
            ),
            "lower the rate or the duration, or download the scenario and use `fullpipe run`",
        ));
    }
    if estimate.samples > MAX_SAMPLES {
        return Err(problem(
            format!(
                "this scenario records {:.1} million samples; a page keeps at most {:.0} million",
                estimate.samples / 1e6,
                MAX_SAMPLES / 1e6
            ),
            "raise `sample`, for example sample = \"50ms\", or shorten the run",
        ));
    }
    Ok(cases)
}

/// What running `cases` costs.
pub fn estimate(cases: &[Case]) -> Estimate {
    let samples = |case: &Case| {
        let scenario = &case.scenario;
        let rows = scenario.duration.as_secs_f64() / scenario.sample.as_secs_f64();
        let flows: u64 = scenario.flows.iter().map(|flow| u64::from(flow.count)).sum();
        rows * (flows as f64 + (scenario.path.forward.len() + scenario.path.reverse.len()) as f64)
    };
    Estimate {
        runs: cases.len(),
        packets: cases.iter().map(|case| case.scenario.max_packets()).sum(),
        samples: cases.iter().map(samples).sum(),
    }
}

/// Runs a scenario written in TOML, whose flows may name any of `controllers`.
///
/// # Errors
/// As [`cases`], and what a run itself refuses.
pub fn simulate(text: &str, controllers: &Controllers) -> Result<Outcome, Problem> {
    let cases = cases(text, controllers)?;
    let few = |case: &Case| case.scenario.max_packets().is_some_and(|most| most <= MAX_LISTED as f64);
    let mut packets = Vec::new();
    let mut runs = Vec::with_capacity(cases.len());
    for (n, case) in cases.iter().enumerate() {
        let (recording, captured) = run(case, controllers, n == 0 && few(case))?;
        runs.push(recording);
        packets.extend(captured.into_iter().map(|flow| joined(&flow)));
    }
    Ok(Outcome { results: Results::new(runs), packets })
}

/// Runs a case; captures the packets of every flow if `captured`.
fn run(
    case: &Case,
    controllers: &Controllers,
    captured: bool,
) -> Result<(Recording, Vec<Vec<CapturedPacket>>), Problem> {
    let scenario = &case.scenario;
    let simulation = Simulation::new(scenario, scenario.seed).controllers(controllers);
    let outcome = match captured {
        true => simulation.run_captured_at_both_ends(),
        false => simulation.run().map(|recording| (recording, Vec::new())),
    };
    let (mut recording, packets) =
        outcome.map_err(|e| problem(format!("{}: {e}", case.label()), "change the scenario"))?;
    recording.label = case.label();
    recording.contender = case.contender.clone();
    recording.varied = case.varied.clone();
    recording.checks = scenario.judge(&recording);
    for flow in &mut recording.flows {
        flow.distributions = None;
    }
    Ok((recording, packets))
}

/// A report of an outcome as `csv`, `summary.csv`, `json`, `html` or `svg`: the bytes that
/// `fullpipe run --out` writes.
///
/// # Errors
/// A form that this build cannot write.
pub fn export(outcome: &Outcome, extension: &str, title: &str) -> Result<Vec<u8>, Problem> {
    let known = Format::ALL.iter().copied().find(|format| format.extension() == extension);
    let format = known.ok_or_else(|| {
        problem(format!("unknown form `{extension}`"), "use csv, summary.csv, json, html or svg")
    })?;
    let about = About { title: title.to_owned(), command: String::new() };
    let mut bytes = Vec::new();
    format
        .write(&outcome.results, &about, &mut bytes)
        .map_err(|e| problem(e.to_string(), "choose another form"))?;
    Ok(bytes)
}
