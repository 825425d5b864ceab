//! An episode: a run whose windows and pacing rates are set by policies, step by step.

use crate::agent::Agent;
use crate::cases::Cases;
use crate::error::{RunError, option_error};
use crate::results::Results;
use fullpipe_cc::registry::Build;
use fullpipe_experiment::Results as Recordings;
use fullpipe_experiment::scenario::Scenario;
use fullpipe_policy::{MAX_WINDOW, StepTotals};
use fullpipe_sim::{Controllers, Simulation, SteppedRun};
use fullpipe_units::{Rate, Span, Time};
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Measurements of an agent after a step.
pub const FEATURES: [&str; 17] = [
    "time_s",
    "duration_s",
    "sent_bytes",
    "acked_bytes",
    "lost_bytes",
    "acks",
    "ce_marks",
    "timeouts",
    "rtt_mean_s",
    "rtt_min_s",
    "rtt_max_s",
    "srtt_s",
    "min_rtt_s",
    "inflight_bytes",
    "cwnd_bytes",
    "pacing_bps",
    "smss_bytes",
];

/// A run simulated step by step. Flows with the controller `agent` are controlled from outside.
#[pyclass(module = "fullpipe._fullpipe")]
pub struct Episode {
    /// The lock is never contended, as access to the episode is exclusive. It allows passing an
    /// episode between threads: a run is `Send`, but not `Sync`.
    run: Option<Mutex<SteppedRun>>,
    /// Index of each agent among the connections.
    flows: Vec<usize>,
    labels: Vec<String>,
    title: String,
    duration: Span,
    failed: bool,
}

#[pymethods]
impl Episode {
    /// Starts run `number` of the cases with `seed` (default: that of the scenario).
    #[new]
    #[pyo3(signature = (cases, number=0, seed=None))]
    fn new(py: Python<'_>, cases: &Cases, number: usize, seed: Option<u64>) -> PyResult<Episode> {
        Episode::start(cases, number, seed).map_err(|e| e.into_py(py))
    }

    /// Names of the measurements after a step, in order. Amounts cover the step; all others are
    /// values at its end. Unknown values are NaN.
    #[classattr]
    #[allow(non_snake_case, reason = "a constant of the class")]
    fn FEATURES() -> [&'static str; 17] {
        FEATURES
    }

    /// Labels of the agents' flows.
    #[getter]
    pub fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    /// Simulated time, in seconds.
    #[getter]
    fn time_s(&mut self) -> f64 {
        self.run().map_or(0.0, |run| seconds(run.now().since(Time::ZERO)))
    }

    /// Duration of the scenario, in seconds.
    #[getter]
    pub fn duration_s(&self) -> f64 {
        seconds(self.duration)
    }

    /// Whether the scenario has ended, or all its flows.
    #[getter]
    fn done(&mut self) -> bool {
        self.run().is_none_or(|run| run.is_over())
    }

    /// Sets the window (bytes) and pacing rate (bit/s, or None for no pacing) of each agent, in the
    /// order of `labels`, simulates `duration` seconds, and returns the measurements of each
    /// agent. None instead of an action changes nothing.
    fn step(
        &mut self,
        actions: Vec<Option<(f64, Option<f64>)>>,
        duration: f64,
    ) -> PyResult<Vec<[f64; FEATURES.len()]>> {
        if actions.len() != self.flows.len() {
            let (given, wanted) = (actions.len(), self.flows.len());
            return Err(PyValueError::new_err(format!("got {given} actions for {wanted} agents")));
        }
        if !(duration > 0.0 && duration <= 86_400.0) {
            return Err(PyValueError::new_err(format!(
                "step duration must be above 0 and at most 86400 s, got {duration}"
            )));
        }
        let wrong = actions
            .iter()
            .flatten()
            .find(|(cwnd, pacing)| !cwnd.is_finite() || pacing.is_some_and(|bps| bps.is_nan() || bps <= 0.0));
        if let Some((cwnd, pacing)) = wrong {
            return Err(PyValueError::new_err(format!(
                "window {cwnd} bytes, pacing rate {pacing:?} bit/s: the window \
                 must be finite, the rate above 0"
            )));
        }
        for (number, action) in actions.into_iter().enumerate() {
            let Some((cwnd, bps)) = action else { continue };
            if let Some(agent) = self.agent(number) {
                agent.set(cwnd, MAX_WINDOW, bps.map(rate));
            }
        }
        let (now, took) = self.advance(span(duration)).map_err(|e| match e {
            StepError::Ended => PyRuntimeError::new_err("the episode has ended"),
            StepError::Failed(reason) => RunError::new_err(reason),
        })?;
        let now = now.since(Time::ZERO);
        Ok((0..self.flows.len()).map(|number| self.features(number, now, took)).collect())
    }

    /// Ends the episode and returns its results.
    pub fn finish(&mut self) -> PyResult<Results> {
        let Some(run) = self.run.take() else {
            return Err(PyRuntimeError::new_err("the episode has ended"));
        };
        let run = run.into_inner().unwrap_or_else(PoisonError::into_inner);
        let results = Recordings::new(vec![run.finish()]);
        Ok(Results::new(self.title.clone(), results, vec![0]))
    }
}

/// The episode cannot start.
pub enum StartError {
    /// The run number is out of range.
    Number { number: usize, count: usize },
    /// The scenario is invalid.
    Scenario { message: String, help: Option<&'static str> },
}

impl StartError {
    /// Converts to a Python exception.
    pub fn into_py(self, py: Python<'_>) -> PyErr {
        match self {
            StartError::Number { number, count } => {
                PyIndexError::new_err(format!("no run {number}: there are {count}, from 0"))
            }
            StartError::Scenario { message, help } => option_error(py, &message, help),
        }
    }
}

/// A step failed.
pub enum StepError {
    /// The episode has ended.
    Ended,
    /// The run failed with this reason.
    Failed(String),
}

impl Episode {
    /// Simulates a step, over which the agents measure. Returns its end and its length.
    pub fn advance(&mut self, step: Span) -> Result<(Time, Span), StepError> {
        let Some(run) = locked(&mut self.run).filter(|_| !self.failed) else { return Err(StepError::Ended) };
        for &flow in &self.flows {
            if let Some(agent) = run.controller::<Agent>(flow) {
                agent.totals = StepTotals::default();
            }
        }
        let began = run.now();
        if let Err(e) = run.advance(began + step) {
            self.failed = true;
            return Err(StepError::Failed(e.to_string()));
        }
        Ok((run.now(), run.now().since(began)))
    }

    /// Starts run `number` of the cases.
    pub fn start(cases: &Cases, number: usize, seed: Option<u64>) -> Result<Episode, StartError> {
        let Some(case) = cases.cases.get(number) else {
            return Err(StartError::Number { number, count: cases.cases.len() });
        };
        let mut scenario: Scenario = case.scenario.clone();
        scenario.flows = scenario.connections();
        let (mut flows, mut labels) = (Vec::new(), Vec::new());
        for (i, flow) in scenario.flows.iter().enumerate() {
            if flow.cc == Agent::INFO.name {
                flows.push(i);
                labels.push(flow.label.clone().unwrap_or_else(|| format!("agent {}", i + 1)));
            }
        }
        if flows.is_empty() {
            return Err(StartError::Scenario {
                message: "no flow of the scenario has the controller `agent`".to_owned(),
                help: Some("set `cc = \"agent\"` in a [[flow]]"),
            });
        }
        let controllers = Controllers::new().with::<Agent>();
        let seed = seed.unwrap_or(scenario.seed);
        let run = Simulation::new(&scenario, seed)
            .controllers(&controllers)
            .start()
            .map_err(|e| StartError::Scenario { message: e.to_string(), help: None })?;
        Ok(Episode {
            run: Some(Mutex::new(run)),
            flows,
            labels,
            title: cases.title.clone(),
            duration: scenario.duration,
            failed: false,
        })
    }

    /// The run, until it ends or fails.
    pub fn active_run(&mut self) -> Option<&mut SteppedRun> {
        locked(&mut self.run).filter(|_| !self.failed)
    }

    fn run(&mut self) -> Option<&mut SteppedRun> {
        locked(&mut self.run)
    }

    /// Number of agents.
    pub fn agents(&self) -> usize {
        self.flows.len()
    }

    /// An agent, while the run is active.
    pub fn agent(&mut self, number: usize) -> Option<&mut Agent> {
        let flow = *self.flows.get(number)?;
        self.active_run()?.controller(flow)
    }

    /// Measurements of an agent in the step that ended at `now`, in the order of [`FEATURES`].
    pub fn features(&mut self, number: usize, now: Span, took: Span) -> [f64; FEATURES.len()] {
        self.agent(number).map_or([f64::NAN; FEATURES.len()], |agent| features(agent, now, took))
    }

    /// Whether the flow of an agent has sent all its data.
    pub fn has_sent_all(&mut self, agent: usize) -> bool {
        locked(&mut self.run).zip(self.flows.get(agent)).is_none_or(|(run, flow)| run.is_flow_over(*flow))
    }
}

fn locked(run: &mut Option<Mutex<SteppedRun>>) -> Option<&mut SteppedRun> {
    run.as_mut().map(|run| run.get_mut().unwrap_or_else(PoisonError::into_inner))
}

/// Converts seconds, rounded to nanoseconds and at least one.
pub fn span(seconds: f64) -> Span {
    Span::from_nanos((seconds * 1e9).round().max(1.0) as u64)
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

/// Converts a pacing rate, limited to 1 kbit/s to 1 Tbit/s.
pub fn rate(bps: f64) -> Rate {
    Rate::from_bits_per_sec(bps.clamp(1e3, 1e12) as u64)
}

fn features(agent: &Agent, now: Span, took: Span) -> [f64; FEATURES.len()] {
    let totals = &agent.totals;
    let known = |span: Option<Span>| span.map_or(f64::NAN, seconds);
    let mean = if totals.rtts > 0 { totals.rtt_sum as f64 / totals.rtts as f64 / 1e9 } else { f64::NAN };
    [
        seconds(now),
        seconds(took),
        totals.sent as f64,
        totals.acked as f64,
        totals.lost as f64,
        totals.acks as f64,
        totals.marks as f64,
        totals.timeouts as f64,
        mean,
        known(totals.rtt_min),
        known(totals.rtt_max),
        known(agent.srtt),
        known(agent.min_rtt),
        agent.inflight as f64,
        agent.cwnd as f64,
        agent.pacing.map_or(f64::NAN, Rate::as_bits_per_sec_f64),
        f64::from(agent.smss),
    ]
}
