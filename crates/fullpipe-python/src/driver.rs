//! Policies' episodes: actions to windows, what was seen to observations and rewards. A step costs what its packets cost and little
//! more.

use crate::cases::Cases;
use crate::episode::{Episode, FEATURES, Refused, Stopped, rate, span};
use crate::error::RunError;
use crate::results::Results;
use crate::reward::{self, Rewards};
use fullpipe_policy::{Action, Network, OBSERVATIONS, Observer, Step, pacing_rate_for, scaled_window};
use fullpipe_units::{Span, Time};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// What an action says.
enum Orders {
    /// The window becomes 2^a times what it was, at most `most` packets; the pacing rate, if that is set, too, 2^b windows a round trip.
    Multiplier { most: f64, paces: bool },
    /// Where between 2 packets and `most` the window is, logarithmic; and where between the `rates` the pacing rate, if that is set, too.
    Place { most: f64, rates: Option<(f64, f64)> },
}

/// Values of an observation.
const SIZE: usize = OBSERVATIONS.len();
/// What one agent sees, and its rewards.
type Told = ([f64; SIZE], Rewards);

/// What is kept for one agent.
struct Post {
    observer: Observer,
    step: Step,
    srtt: Option<Span>,
    smss: u32,
}

/// Flows driven by policies, in steps of a round trip or of a fixed time.
#[pyclass(module = "fullpipe._fullpipe")]
pub struct Driver {
    episode: Episode,
    orders: Orders,
    step: Option<Span>,
    posts: Vec<Post>,
    now: Time,
    took: Span,
}

/// Why a step was not made.
enum Broken {
    Over,
    NotFinite(f64, f64),
    Failed(String),
}

impl Broken {
    fn told(self) -> PyErr {
        match self {
            Broken::Over => PyRuntimeError::new_err("the episode is over: call reset"),
            Broken::NotFinite(first, second) => {
                PyValueError::new_err(format!("an action of {first} and {second}: it must be finite"))
            }
            Broken::Failed(reason) => RunError::new_err(reason),
        }
    }
}

#[pymethods]
impl Driver {
    /// Begins an episode, up to the first round-trip time that a flow knows. `action` is multiplier, multiplier+pacing, cwnd or cwnd+pacing; `step` is in
    /// seconds, None for a round trip: the shortest of the agents'.
    #[new]
    #[pyo3(signature = (cases, seed, action, most, rates, step, number=0))]
    #[allow(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        cases: &Cases,
        seed: u64,
        action: &str,
        most: f64,
        rates: (f64, f64),
        step: Option<f64>,
        number: usize,
    ) -> PyResult<Driver> {
        let orders = match action {
            "multiplier" => Orders::Multiplier { most, paces: false },
            "multiplier+pacing" => Orders::Multiplier { most, paces: true },
            "cwnd" => Orders::Place { most, rates: None },
            "cwnd+pacing" => Orders::Place { most, rates: Some((rates.0.ln(), rates.1.ln())) },
            other => {
                return Err(PyValueError::new_err(format!(
                    "action=\"{other}\": it is \"multiplier\", \"multiplier+pacing\", \"cwnd\" or \"cwnd+pacing\""
                )));
            }
        };
        let step = step.map(span);
        let mut driver =
            Driver::begin(cases, number, seed, orders, step).map_err(|refused| refused.told(py))?;
        driver.connect().map_err(Broken::told)?;
        Ok(driver)
    }

    /// The agents' flows.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.episode.labels()
    }

    /// What the first policy sees now.
    fn observation(&mut self) -> [f64; SIZE] {
        self.posts.first_mut().map_or([0.0; SIZE], |post| post.observer.observe(&post.step))
    }

    /// What each policy sees now.
    fn observations(&mut self) -> Vec<[f64; SIZE]> {
        self.posts.iter_mut().map(|post| post.observer.observe(&post.step)).collect()
    }

    /// Obeys the only policy's action, lets the step pass, and gives the observation, the rewards (orca, aurora, remy), whether the
    /// episode is over, and whether that is because the flow has sent all it had.
    fn step(&mut self, first: f64, second: f64) -> PyResult<([f64; SIZE], Rewards, bool, bool)> {
        self.obey(&[(first, second)]).map_err(Broken::told)?;
        let (seen, rewards) = self.tell(0);
        let over = self.is_over();
        Ok((seen, rewards, over, over && !self.is_whole()))
    }

    /// The same for several: a pair of values for each agent. Gives of each its observation, its rewards and whether its flow has sent all
    /// it had; and whether the scenario's time is over.
    #[allow(clippy::type_complexity, reason = "Python's tuples")]
    fn step_all(&mut self, actions: Vec<(f64, f64)>) -> PyResult<(Vec<([f64; SIZE], Rewards, bool)>, bool)> {
        if actions.len() != self.posts.len() {
            let (given, wanted) = (actions.len(), self.posts.len());
            return Err(PyValueError::new_err(format!("{given} actions for {wanted} agents")));
        }
        self.obey(&actions).map_err(Broken::told)?;
        let whole = self.is_whole();
        let each = (0..self.posts.len()).map(|agent| {
            let (seen, rewards) = self.tell(agent);
            (seen, rewards, !whole && self.episode.has_sent_all(agent))
        });
        Ok((each.collect(), whole))
    }

    /// What was seen in the last step: the values of `Episode.FEATURES`.
    #[pyo3(signature = (agent=0))]
    fn seen(&mut self, agent: usize) -> [f64; FEATURES.len()] {
        self.episode.features(agent, self.now.since(Time::ZERO), self.took)
    }

    /// The greatest delivery rate (bit/s) and the least RTT (s) that the first agent has seen.
    #[getter]
    fn best(&self) -> (f64, f64) {
        self.posts
            .first()
            .map_or((0.0, f64::INFINITY), |post| (post.observer.max_bps(), post.observer.min_rtt()))
    }

    /// Ends the episode and gives its recording.
    fn finish(&mut self) -> PyResult<Results> {
        self.episode.finish()
    }
}

impl Driver {
    fn begin(
        cases: &Cases,
        number: usize,
        seed: u64,
        orders: Orders,
        step: Option<Span>,
    ) -> Result<Driver, Refused> {
        let episode = Episode::begin(cases, number, Some(seed))?;
        let fresh = || Post { observer: Observer::default(), step: Step::default(), srtt: None, smss: 1 };
        let posts = (0..episode.agents()).map(|_| fresh()).collect();
        Ok(Driver { episode, orders, step, posts, now: Time::ZERO, took: Span::ZERO })
    }

    /// Goes on until one of the flows knows a round-trip time.
    fn connect(&mut self) -> Result<(), Broken> {
        while !self.is_over() && self.posts.iter().all(|post| post.srtt.is_none()) {
            self.advance(Span::from_millis(1))?;
        }
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        self.episode.under_way().is_none_or(|run| run.is_over())
    }

    /// Whether the scenario's time has passed.
    fn is_whole(&self) -> bool {
        self.now.since(Time::ZERO).as_secs_f64() >= self.episode.duration_s()
    }

    fn obey(&mut self, actions: &[(f64, f64)]) -> Result<(), Broken> {
        if self.is_over() {
            return Err(Broken::Over);
        }
        if let Some(&(first, second)) = actions.iter().find(|(a, b)| !a.is_finite() || !b.is_finite()) {
            return Err(Broken::NotFinite(first, second));
        }
        for (number, (post, &(first, second))) in self.posts.iter().zip(actions).enumerate() {
            let Some(agent) = self.episode.agent(number) else { return Err(Broken::Over) };
            match self.orders {
                Orders::Multiplier { most, paces } => {
                    agent.order(scaled_window(agent.cwnd as f64, first), most, agent.pacing);
                    if paces {
                        agent.pacing =
                            pacing_rate_for(agent.cwnd as f64, &post.step, second).or(agent.pacing);
                    }
                }
                Orders::Place { most, rates } => {
                    let smss = f64::from(agent.smss.max(1));
                    let cwnd = 2.0 * smss * (most / 2.0).powf(first.clamp(0.0, 1.0));
                    let bps = rates.map(|(low, high)| (low + (high - low) * second.clamp(0.0, 1.0)).exp());
                    agent.order(cwnd, most, bps.map(rate));
                }
            }
        }
        let shortest = self.posts.iter().filter_map(|post| post.srtt).min();
        let step = self.step.or(shortest).unwrap_or(Span::from_millis(1)).max(Span::from_nanos(1));
        self.advance(step)
    }

    fn advance(&mut self, step: Span) -> Result<(), Broken> {
        (self.now, self.took) = self.episode.advance(step).map_err(|stopped| match stopped {
            Stopped::Over => Broken::Over,
            Stopped::Failed(reason) => Broken::Failed(reason),
        })?;
        for (number, post) in self.posts.iter_mut().enumerate() {
            let Some(agent) = self.episode.agent(number) else { return Err(Broken::Over) };
            post.step = agent.seen.step(self.took, agent.min_rtt, agent.inflight, agent.cwnd);
            (post.srtt, post.smss) = (agent.srtt, agent.smss);
            post.observer.record(&post.step);
        }
        Ok(())
    }

    fn tell(&mut self, agent: usize) -> Told {
        let Post { observer, step, srtt, smss } = &mut self.posts[agent];
        let rewards = reward::of(step, observer, *srtt, *smss);
        (observer.observe(step), rewards)
    }
}

/// Goes through a whole episode with `network` at the wheel, as a loop in Python over the environment would (its numbers are rounded to
/// 32 bits in between as there), while Python's other threads run. Gives the sum of each reward, the same weighted by the length of
/// its step over the whole length, and the number of steps. The window is at most `most` packets.
#[pyfunction]
pub fn rollout(
    py: Python<'_>,
    cases: &Cases,
    number: usize,
    seed: u64,
    network: &crate::policy::Policy,
    step: Option<f64>,
    most: f64,
) -> PyResult<(Rewards, Rewards, u64)> {
    let step = step.map(span);
    let network: &Network = network.network();
    py.detach(|| {
        let paces = network.action() == Action::MultiplierPacing;
        let mut driver = match Driver::begin(cases, number, seed, Orders::Multiplier { most, paces }, step) {
            Ok(driver) => driver,
            Err(refused) => return Err(Python::attach(|py| refused.told(py))),
        };
        driver.connect().map_err(Broken::told)?;
        let rounded = |values: [f64; SIZE]| values.map(|value| f64::from(value as f32));
        let mut seen = rounded(driver.observation());
        let (mut sums, mut weighted) = (Rewards::default(), Rewards::default());
        let (mut steps, mut whole) = (0, 0.0);
        while !driver.is_over() {
            let [first, second] = network.decide(&seen).map(|value| f64::from(value as f32));
            driver.obey(&vec![(first, second); driver.posts.len()]).map_err(Broken::told)?;
            let took = driver.took.as_secs_f64();
            let (next, rewards) = driver.tell(0);
            for ((sum, weighted), reward) in sums.iter_mut().zip(&mut weighted).zip(rewards) {
                *sum += reward;
                *weighted += reward * took;
            }
            seen = rounded(next);
            steps += 1;
            whole += took;
        }
        Ok((sums, weighted.map(|sum| sum / f64::max(whole, 1e-9)), steps))
    })
}
