//! A run that policies drive: they set windows and rates, time goes on, they see what came of it.

use crate::agent::Agent;
use crate::cases::Cases;
use crate::error::{RunError, of_options};
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

/// What an agent sees after a step, in the order of `Episode.FEATURES`.
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

/// A run gone through step by step. Flows whose controller is `agent` are driven from outside; others go their own way.
#[pyclass(module = "fullpipe._fullpipe")]
pub struct Episode {
    /// Nothing ever waits for the lock: who holds the episode holds the run. It lets threads pass an episode on, since a run may be
    /// moved between them, but not be looked at by two at once.
    run: Option<Mutex<SteppedRun>>,
    /// The place of each agent among the connections.
    flows: Vec<usize>,
    labels: Vec<String>,
    title: String,
    duration: Span,
    failed: bool,
}

#[pymethods]
impl Episode {
    /// Begins run `number` of the cases, with all that is random drawn from `seed` (by default the scenario's).
    #[new]
    #[pyo3(signature = (cases, number=0, seed=None))]
    fn new(py: Python<'_>, cases: &Cases, number: usize, seed: Option<u64>) -> PyResult<Episode> {
        Episode::begin(cases, number, seed).map_err(|refused| refused.told(py))
    }

    /// What agents see after a step, in this order. Amounts are of the step, all else is as it is at its end; what is not known yet is NaN.
    #[classattr]
    #[allow(non_snake_case, reason = "a constant of the class")]
    fn FEATURES() -> [&'static str; 17] {
        FEATURES
    }

    /// The agents' flows.
    #[getter]
    pub fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    /// Seconds of the run so far.
    #[getter]
    fn time_s(&mut self) -> f64 {
        self.held().map_or(0.0, |run| seconds(run.now().since(Time::ZERO)))
    }

    /// Seconds that the scenario lasts.
    #[getter]
    pub fn duration_s(&self) -> f64 {
        seconds(self.duration)
    }

    /// Whether the scenario's time is over, or its last flow has ended.
    #[getter]
    fn over(&mut self) -> bool {
        self.held().is_none_or(|run| run.is_over())
    }

    /// Sets each agent's window (bytes) and pacing rate (bit/s; None for none), in the order of `labels`, lets `duration` seconds pass,
    /// and gives what each saw. None for an action changes nothing.
    fn step(
        &mut self,
        actions: Vec<Option<(f64, Option<f64>)>>,
        duration: f64,
    ) -> PyResult<Vec<[f64; FEATURES.len()]>> {
        if actions.len() != self.flows.len() {
            let (given, wanted) = (actions.len(), self.flows.len());
            return Err(PyValueError::new_err(format!("{given} actions for {wanted} agents")));
        }
        if !(duration > 0.0 && duration <= 86_400.0) {
            return Err(PyValueError::new_err(format!(
                "a step of {duration} s: it must be above 0 and at most a day"
            )));
        }
        let wrong = actions
            .iter()
            .flatten()
            .find(|(cwnd, pacing)| !cwnd.is_finite() || pacing.is_some_and(|bps| bps.is_nan() || bps <= 0.0));
        if let Some((cwnd, pacing)) = wrong {
            return Err(PyValueError::new_err(format!(
                "a window of {cwnd} bytes and a rate of {pacing:?} bit/s: the window must be finite, the rate above 0"
            )));
        }
        for (number, action) in actions.into_iter().enumerate() {
            let Some((cwnd, bps)) = action else { continue };
            if let Some(agent) = self.agent(number) {
                agent.order(cwnd, MAX_WINDOW, bps.map(rate));
            }
        }
        let (now, took) = self.advance(span(duration)).map_err(|stopped| match stopped {
            Stopped::Over => PyRuntimeError::new_err("the episode has ended: begin another"),
            Stopped::Failed(reason) => RunError::new_err(reason),
        })?;
        let now = now.since(Time::ZERO);
        Ok((0..self.flows.len()).map(|number| self.features(number, now, took)).collect())
    }

    /// Ends the episode and gives its recording, like that of any run.
    pub fn finish(&mut self) -> PyResult<Results> {
        let Some(run) = self.run.take() else {
            return Err(PyRuntimeError::new_err("the episode has ended: begin another"));
        };
        let run = run.into_inner().unwrap_or_else(PoisonError::into_inner);
        let results = Recordings::new(vec![run.finish()]);
        Ok(Results::new(self.title.clone(), results, vec![0]))
    }
}

/// Why an episode does not begin.
pub enum Refused {
    /// There are not so many runs.
    Number { asked: usize, there: usize },
    /// What is wrong with the scenario, and what to do.
    Scenario { message: String, help: Option<&'static str> },
}

impl Refused {
    /// As Python hears it.
    pub fn told(self, py: Python<'_>) -> PyErr {
        match self {
            Refused::Number { asked, there } => {
                PyIndexError::new_err(format!("there is no run {asked}: they are {there}"))
            }
            Refused::Scenario { message, help } => of_options(py, &message, help),
        }
    }
}

/// Why a step was not made.
pub enum Stopped {
    /// The episode has ended.
    Over,
    /// The run failed, and why.
    Failed(String),
}

impl Episode {
    /// Lets `step` pass; what agents have seen afterwards is of it alone. Gives when it ended, and how long it was.
    pub fn advance(&mut self, step: Span) -> Result<(Time, Span), Stopped> {
        let Some(run) = held(&mut self.run).filter(|_| !self.failed) else { return Err(Stopped::Over) };
        for &flow in &self.flows {
            if let Some(agent) = run.controller::<Agent>(flow) {
                agent.seen = StepTotals::default();
            }
        }
        let began = run.now();
        if let Err(e) = run.advance(began + step) {
            self.failed = true;
            return Err(Stopped::Failed(e.to_string()));
        }
        Ok((run.now(), run.now().since(began)))
    }

    /// Begins run `number` of the cases.
    pub fn begin(cases: &Cases, number: usize, seed: Option<u64>) -> Result<Episode, Refused> {
        let Some(case) = cases.cases.get(number) else {
            return Err(Refused::Number { asked: number, there: cases.cases.len() });
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
            return Err(Refused::Scenario {
                message: "no flow of the scenario has the controller `agent`".to_owned(),
                help: Some("give a [[flow]] `cc = \"agent\"`"),
            });
        }
        let controllers = Controllers::new().with::<Agent>();
        let seed = seed.unwrap_or(scenario.seed);
        let run = Simulation::new(&scenario, seed)
            .controllers(&controllers)
            .start()
            .map_err(|e| Refused::Scenario { message: e.to_string(), help: None })?;
        Ok(Episode {
            run: Some(Mutex::new(run)),
            flows,
            labels,
            title: cases.title.clone(),
            duration: scenario.duration,
            failed: false,
        })
    }

    /// The run; none once it has ended.
    pub fn under_way(&mut self) -> Option<&mut SteppedRun> {
        held(&mut self.run).filter(|_| !self.failed)
    }

    fn held(&mut self) -> Option<&mut SteppedRun> {
        held(&mut self.run)
    }

    /// How many agents it has.
    pub fn agents(&self) -> usize {
        self.flows.len()
    }

    /// One of them, while the run is under way.
    pub fn agent(&mut self, number: usize) -> Option<&mut Agent> {
        let flow = *self.flows.get(number)?;
        self.under_way()?.controller(flow)
    }

    /// What an agent has seen of the step that ended at `now`, in the order of [`FEATURES`].
    pub fn features(&mut self, number: usize, now: Span, took: Span) -> [f64; FEATURES.len()] {
        self.agent(number).map_or([f64::NAN; FEATURES.len()], |agent| features(agent, now, took))
    }

    /// Whether the flow of that agent has sent all it had.
    pub fn has_sent_all(&mut self, agent: usize) -> bool {
        held(&mut self.run).zip(self.flows.get(agent)).is_none_or(|(run, flow)| run.is_flow_over(*flow))
    }
}

fn held(run: &mut Option<Mutex<SteppedRun>>) -> Option<&mut SteppedRun> {
    run.as_mut().map(|run| run.get_mut().unwrap_or_else(PoisonError::into_inner))
}

/// What people give in seconds, to the nanosecond and at least one.
pub fn span(seconds: f64) -> Span {
    Span::from_nanos((seconds * 1e9).round().max(1.0) as u64)
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

/// A pacing rate as people give it, from a kilobit a second to a terabit.
pub fn rate(bps: f64) -> Rate {
    Rate::from_bits_per_sec(bps.clamp(1e3, 1e12) as u64)
}

fn features(agent: &Agent, now: Span, took: Span) -> [f64; FEATURES.len()] {
    let seen = &agent.seen;
    let known = |span: Option<Span>| span.map_or(f64::NAN, seconds);
    let mean = if seen.rtts > 0 { seen.rtt_sum as f64 / seen.rtts as f64 / 1e9 } else { f64::NAN };
    [
        seconds(now),
        seconds(took),
        seen.sent as f64,
        seen.acked as f64,
        seen.lost as f64,
        seen.acks as f64,
        seen.marks as f64,
        seen.timeouts as f64,
        mean,
        known(seen.rtt_min),
        known(seen.rtt_max),
        known(agent.srtt),
        known(agent.min_rtt),
        agent.inflight as f64,
        agent.cwnd as f64,
        agent.pacing.map_or(f64::NAN, Rate::as_bits_per_sec_f64),
        f64::from(agent.smss),
    ]
}
