//! Episodes for policies: converts actions to windows and rates, and measurements to observations
//! and rewards.

use crate::cases::Cases;
use crate::episode::{Episode, FEATURES, StartError, StepError, rate, span};
use crate::error::RunError;
use crate::results::Results;
use crate::reward::{self, Rewards};
use fullpipe_policy::{Action, Network, OBSERVATIONS, Observer, Step, pacing_rate_for, scaled_window};
use fullpipe_units::{Span, Time};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// How actions set the window and the pacing rate.
enum ActionMode {
    /// The window is multiplied by 2^a, up to `max_window` packets. With `paces` the pacing rate is
    /// 2^b windows per round trip.
    Multiplier { max_window: f64, paces: bool },
    /// The window is on a logarithmic scale between 2 and `max_window` packets, and the pacing rate
    /// between `rates`, if given.
    Absolute { max_window: f64, rates: Option<(f64, f64)> },
}

/// Number of values of an observation.
const SIZE: usize = OBSERVATIONS.len();
/// The observation and the rewards of an agent.
type StepResult = ([f64; SIZE], Rewards);

/// The state of an agent.
struct AgentState {
    observer: Observer,
    step: Step,
    srtt: Option<Span>,
    smss: u32,
}

/// Flows controlled by policies, in steps of a round trip or a fixed time.
#[pyclass(module = "fullpipe._fullpipe")]
pub struct Driver {
    episode: Episode,
    mode: ActionMode,
    step: Option<Span>,
    agents: Vec<AgentState>,
    now: Time,
    step_length: Span,
}

/// A step failed.
enum DriverError {
    Ended,
    NotFinite(f64, f64),
    Failed(String),
}

impl DriverError {
    fn into_py(self) -> PyErr {
        match self {
            DriverError::Ended => PyRuntimeError::new_err("the episode has ended: call reset"),
            DriverError::NotFinite(first, second) => {
                PyValueError::new_err(format!("action values must be finite, got {first} and {second}"))
            }
            DriverError::Failed(reason) => RunError::new_err(reason),
        }
    }
}

#[pymethods]
impl Driver {
    /// Starts an episode and simulates it up to the first RTT sample of a flow. `action` is
    /// multiplier, multiplier+pacing, cwnd or cwnd+pacing; `step` is in seconds, or None for
    /// the shortest RTT of the agents.
    #[new]
    #[pyo3(signature = (cases, seed, action, max_window, rates, step, number=0))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments in Python")]
    fn new(
        py: Python<'_>,
        cases: &Cases,
        seed: u64,
        action: &str,
        max_window: f64,
        rates: (f64, f64),
        step: Option<f64>,
        number: usize,
    ) -> PyResult<Driver> {
        let mode = match action {
            "multiplier" => ActionMode::Multiplier { max_window, paces: false },
            "multiplier+pacing" => ActionMode::Multiplier { max_window, paces: true },
            "cwnd" => ActionMode::Absolute { max_window, rates: None },
            "cwnd+pacing" => ActionMode::Absolute { max_window, rates: Some((rates.0.ln(), rates.1.ln())) },
            other => {
                return Err(PyValueError::new_err(format!(
                    "action must be \"multiplier\", \"multiplier+pacing\", \"cwnd\" or \
                     \"cwnd+pacing\", got \"{other}\""
                )));
            }
        };
        let step = step.map(span);
        let mut driver = Driver::start(cases, number, seed, mode, step).map_err(|e| e.into_py(py))?;
        driver.connect().map_err(DriverError::into_py)?;
        Ok(driver)
    }

    /// Labels of the agents' flows.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.episode.labels()
    }

    /// The current observation of the first agent.
    fn observation(&mut self) -> [f64; SIZE] {
        self.agents.first_mut().map_or([0.0; SIZE], |agent| agent.observer.observe(&agent.step))
    }

    /// The current observations of all agents.
    fn observations(&mut self) -> Vec<[f64; SIZE]> {
        self.agents.iter_mut().map(|agent| agent.observer.observe(&agent.step)).collect()
    }

    /// Applies the action of the only agent and simulates a step. Returns the observation, the
    /// rewards (orca, aurora, remy), whether the episode ended, and whether it ended because
    /// the flow has sent all its data.
    fn step(&mut self, first: f64, second: f64) -> PyResult<([f64; SIZE], Rewards, bool, bool)> {
        self.apply(&[(first, second)]).map_err(DriverError::into_py)?;
        let (observation, rewards) = self.result(0);
        let done = self.is_done();
        Ok((observation, rewards, done, done && !self.is_timed_out()))
    }

    /// Like `step` for several agents, with a pair of values for each. Returns for each agent the
    /// observation, the rewards, and whether its flow has sent all its data; and whether the
    /// scenario has timed out.
    #[allow(clippy::type_complexity, reason = "tuples in Python")]
    fn step_all(&mut self, actions: Vec<(f64, f64)>) -> PyResult<(Vec<([f64; SIZE], Rewards, bool)>, bool)> {
        if actions.len() != self.agents.len() {
            let (given, wanted) = (actions.len(), self.agents.len());
            return Err(PyValueError::new_err(format!("got {given} actions for {wanted} agents")));
        }
        self.apply(&actions).map_err(DriverError::into_py)?;
        let timed_out = self.is_timed_out();
        let each = (0..self.agents.len()).map(|agent| {
            let (observation, rewards) = self.result(agent);
            (observation, rewards, !timed_out && self.episode.has_sent_all(agent))
        });
        Ok((each.collect(), timed_out))
    }

    /// Measurements of the last step, in the order of `Episode.FEATURES`.
    #[pyo3(signature = (agent=0))]
    fn measurements(&mut self, agent: usize) -> [f64; FEATURES.len()] {
        self.episode.features(agent, self.now.since(Time::ZERO), self.step_length)
    }

    /// Maximum delivery rate (bit/s) and minimum RTT (s) of the first agent.
    #[getter]
    fn extremes(&self) -> (f64, f64) {
        self.agents
            .first()
            .map_or((0.0, f64::INFINITY), |agent| (agent.observer.max_bps(), agent.observer.min_rtt()))
    }

    /// Ends the episode and returns its results.
    fn finish(&mut self) -> PyResult<Results> {
        self.episode.finish()
    }
}

impl Driver {
    fn start(
        cases: &Cases,
        number: usize,
        seed: u64,
        mode: ActionMode,
        step: Option<Span>,
    ) -> Result<Driver, StartError> {
        let episode = Episode::start(cases, number, Some(seed))?;
        let fresh =
            || AgentState { observer: Observer::default(), step: Step::default(), srtt: None, smss: 1 };
        let agents = (0..episode.agents()).map(|_| fresh()).collect();
        Ok(Driver { episode, mode, step, agents, now: Time::ZERO, step_length: Span::ZERO })
    }

    /// Simulates until a flow has an RTT sample.
    fn connect(&mut self) -> Result<(), DriverError> {
        while !self.is_done() && self.agents.iter().all(|agent| agent.srtt.is_none()) {
            self.advance(Span::from_millis(1))?;
        }
        Ok(())
    }

    fn is_done(&mut self) -> bool {
        self.episode.active_run().is_none_or(|run| run.is_over())
    }

    /// Whether the duration of the scenario has passed.
    fn is_timed_out(&self) -> bool {
        self.now.since(Time::ZERO).as_secs_f64() >= self.episode.duration_s()
    }

    fn apply(&mut self, actions: &[(f64, f64)]) -> Result<(), DriverError> {
        if self.is_done() {
            return Err(DriverError::Ended);
        }
        if let Some(&(first, second)) = actions.iter().find(|(a, b)| !a.is_finite() || !b.is_finite()) {
            return Err(DriverError::NotFinite(first, second));
        }
        for (number, (state, &(first, second))) in self.agents.iter().zip(actions).enumerate() {
            let Some(agent) = self.episode.agent(number) else { return Err(DriverError::Ended) };
            match self.mode {
                ActionMode::Multiplier { max_window, paces } => {
                    agent.set(scaled_window(agent.cwnd as f64, first), max_window, agent.pacing);
                    if paces {
                        agent.pacing =
                            pacing_rate_for(agent.cwnd as f64, &state.step, second).or(agent.pacing);
                    }
                }
                ActionMode::Absolute { max_window, rates } => {
                    let smss = f64::from(agent.smss.max(1));
                    let cwnd = 2.0 * smss * (max_window / 2.0).powf(first.clamp(0.0, 1.0));
                    let bps = rates.map(|(low, high)| (low + (high - low) * second.clamp(0.0, 1.0)).exp());
                    agent.set(cwnd, max_window, bps.map(rate));
                }
            }
        }
        let shortest = self.agents.iter().filter_map(|agent| agent.srtt).min();
        let step = self.step.or(shortest).unwrap_or(Span::from_millis(1)).max(Span::from_nanos(1));
        self.advance(step)
    }

    fn advance(&mut self, step: Span) -> Result<(), DriverError> {
        (self.now, self.step_length) = self.episode.advance(step).map_err(|e| match e {
            StepError::Ended => DriverError::Ended,
            StepError::Failed(reason) => DriverError::Failed(reason),
        })?;
        for (number, state) in self.agents.iter_mut().enumerate() {
            let Some(agent) = self.episode.agent(number) else { return Err(DriverError::Ended) };
            state.step = agent.totals.step(self.step_length, agent.min_rtt, agent.inflight, agent.cwnd);
            (state.srtt, state.smss) = (agent.srtt, agent.smss);
            state.observer.record(&state.step);
        }
        Ok(())
    }

    fn result(&mut self, agent: usize) -> StepResult {
        let AgentState { observer, step, srtt, smss } = &mut self.agents[agent];
        let rewards = reward::all(step, observer, *srtt, *smss);
        (observer.observe(step), rewards)
    }
}

/// Simulates a total episode with the policy `network`, with the same numbers as a Python loop over
/// the environment (values are rounded to 32 bits in between), and without the GIL. Returns the sum
/// of each reward, the time-weighted mean of each reward, and the number of steps. The window is
/// limited to `max_window` packets.
#[pyfunction]
pub fn rollout(
    py: Python<'_>,
    cases: &Cases,
    number: usize,
    seed: u64,
    network: &crate::policy::Policy,
    step: Option<f64>,
    max_window: f64,
) -> PyResult<(Rewards, Rewards, u64)> {
    let step = step.map(span);
    let network: &Network = network.network();
    py.detach(|| {
        let paces = network.action() == Action::MultiplierPacing;
        let mut driver =
            match Driver::start(cases, number, seed, ActionMode::Multiplier { max_window, paces }, step) {
                Ok(driver) => driver,
                Err(e) => return Err(Python::attach(|py| e.into_py(py))),
            };
        driver.connect().map_err(DriverError::into_py)?;
        let rounded = |values: [f64; SIZE]| values.map(|value| f64::from(value as f32));
        let mut observation = rounded(driver.observation());
        let (mut sums, mut weighted) = (Rewards::default(), Rewards::default());
        let (mut steps, mut total) = (0, 0.0);
        while !driver.is_done() {
            let [first, second] = network.decide(&observation).map(|value| f64::from(value as f32));
            driver.apply(&vec![(first, second); driver.agents.len()]).map_err(DriverError::into_py)?;
            let length = driver.step_length.as_secs_f64();
            let (next, rewards) = driver.result(0);
            for ((sum, weighted), reward) in sums.iter_mut().zip(&mut weighted).zip(rewards) {
                *sum += reward;
                *weighted += reward * length;
            }
            observation = rounded(next);
            steps += 1;
            total += length;
        }
        Ok((sums, weighted.map(|sum| sum / f64::max(total, 1e-9)), steps))
    })
}
