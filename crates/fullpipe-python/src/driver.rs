//! One policy's episode: actions to windows, what was seen to an observation and rewards. A step costs what its packets cost and
//! little more.

use crate::agent::Seen;
use crate::cases::Cases;
use crate::episode::{Episode, WINDOWS, features};
use crate::error::{RunError, of_options};
use crate::results::Results;
use fullpipe_units::{Rate, Span, Time};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// What an action says.
enum Orders {
    /// The window becomes 2^a times what it was.
    Multiplier,
    /// Where between 2 packets and `most` the window is, logarithmic; and where between the `rates` the pacing rate, if that is set, too.
    Place { most: f64, rates: Option<(f64, f64)> },
}

/// What the episode has shown of its path so far.
struct Memory {
    most_bps: f64,
    least_rtt: f64,
    last_rtt: f64,
}

/// Values of an observation.
const SIZE: usize = 8;
/// Each is cut to this.
const MOST: f64 = 10.0;

/// One flow driven by a policy, in steps of a round trip or of a fixed time.
#[pyclass(module = "fullpipe._fullpipe", unsendable)]
pub struct Driver {
    episode: Episode,
    orders: Orders,
    step: Option<Span>,
    memory: Memory,
    seen: [f64; 17],
}

#[pymethods]
impl Driver {
    /// Begins an episode, up to the first round-trip time that the flow knows. `action` is multiplier, cwnd or cwnd+pacing; `step` is in
    /// seconds, None for a round trip.
    #[new]
    fn new(
        py: Python<'_>,
        cases: &Cases,
        seed: u64,
        action: &str,
        most: f64,
        rates: (f64, f64),
        step: Option<f64>,
    ) -> PyResult<Driver> {
        let orders = match action {
            "multiplier" => Orders::Multiplier,
            "cwnd" => Orders::Place { most, rates: None },
            "cwnd+pacing" => Orders::Place { most, rates: Some((rates.0.ln(), rates.1.ln())) },
            other => {
                return Err(PyValueError::new_err(format!(
                    "action=\"{other}\": it is \"multiplier\", \"cwnd\" or \"cwnd+pacing\""
                )));
            }
        };
        let mut episode = Episode::new(py, cases, 0, Some(seed))?;
        if episode.alone().is_none() {
            let help = "several policies on one path are driven by `fullpipe._fullpipe.Episode`";
            return Err(of_options(
                py,
                "one flow is driven here, the scenario has several of `agent`",
                Some(help),
            ));
        }
        let memory = Memory { most_bps: 0.0, least_rtt: f64::INFINITY, last_rtt: f64::NAN };
        let step = step.map(|s| Span::from_nanos((s * 1e9).round().max(1.0) as u64));
        let mut driver = Driver { episode, orders, step, memory, seen: [f64::NAN; 17] };
        loop {
            driver.advance(None, Span::from_millis(1))?;
            if driver.srtt() > 0.0 || driver.is_over() {
                return Ok(driver);
            }
        }
    }

    /// What the policy sees now.
    fn observation(&mut self) -> [f64; SIZE] {
        self.observe()
    }

    /// Obeys the action, lets the step pass, and gives the observation, the rewards of Orca and of Aurora, whether the episode is over, and
    /// whether that is because the flow has sent all it had.
    fn step(&mut self, first: f64, second: f64) -> PyResult<([f64; SIZE], f64, f64, bool, bool)> {
        if self.is_over() {
            return Err(PyRuntimeError::new_err("the episode is over: call reset"));
        }
        if !first.is_finite() || !second.is_finite() {
            return Err(PyValueError::new_err(format!(
                "an action of {first} and {second}: it must be finite"
            )));
        }
        let smss = self.seen[16];
        let (cwnd, pacing) = match self.orders {
            Orders::Multiplier => (self.seen[14] * first.clamp(-1.0, 1.0).exp2(), None),
            Orders::Place { most, rates } => {
                let cwnd = 2.0 * smss * (most / 2.0).powf(first.clamp(0.0, 1.0));
                let rate = rates.map(|(low, high)| (low + (high - low) * second.clamp(0.0, 1.0)).exp());
                (cwnd, rate)
            }
        };
        let step = self.step.unwrap_or_else(|| Span::from_nanos((self.srtt() * 1e9).max(1.0) as u64));
        self.advance(Some((cwnd, pacing)), step)?;
        let (orca, aurora) = (self.orca(), self.aurora());
        let over = self.is_over();
        let whole = self.seen[0] >= self.episode.duration_s();
        Ok((self.observe(), orca, aurora, over, over && !whole))
    }

    /// What was seen in the last step: the values of `Episode.FEATURES`.
    fn seen(&self) -> [f64; 17] {
        self.seen
    }

    /// The greatest delivery rate (bit/s) and the least RTT (s) of the episode.
    #[getter]
    fn best(&self) -> (f64, f64) {
        (self.memory.most_bps, self.memory.least_rtt)
    }

    /// Ends the episode and gives its recording.
    fn finish(&mut self) -> PyResult<Results> {
        self.episode.finish()
    }
}

impl Driver {
    fn srtt(&self) -> f64 {
        self.seen[11]
    }

    fn is_over(&mut self) -> bool {
        self.episode.alone().is_none_or(|(_, run)| run.is_over())
    }

    fn advance(&mut self, orders: Option<(f64, Option<f64>)>, step: Span) -> PyResult<()> {
        let Some((place, run)) = self.episode.alone() else {
            return Err(PyRuntimeError::new_err("the episode is over: call reset"));
        };
        {
            let mut desk = place.desk();
            desk.seen = Seen::default();
            if let Some((cwnd, pacing)) = orders {
                let smss = f64::from(desk.smss.max(1));
                desk.cwnd = cwnd.clamp(WINDOWS.0 * smss, WINDOWS.1 * smss) as u64;
                desk.pacing = pacing.map(|bps| Rate::from_bits_per_sec(bps.clamp(1e3, 1e12) as u64));
            }
        }
        let began = run.now();
        if let Err(e) = run.advance(began + step) {
            self.episode.fail();
            return Err(RunError::new_err(e.to_string()));
        }
        self.seen = features(place, run.now().since(Time::ZERO), run.now().since(began));
        self.memory.most_bps = self.memory.most_bps.max(self.delivered_bps());
        if self.seen[12] > 0.0 {
            self.memory.least_rtt = self.memory.least_rtt.min(self.seen[12]);
        }
        Ok(())
    }

    fn delivered_bps(&self) -> f64 {
        share(self.seen[3] * 8.0, self.seen[1])
    }

    fn observe(&mut self) -> [f64; SIZE] {
        let Memory { most_bps: rate, least_rtt: least, last_rtt } = self.memory;
        let [_, took, sent, acked, lost, acks, marks, _, rtt, .., inflight, cwnd, _, _] = self.seen;
        let known = rtt > 0.0 && least.is_finite();
        let change = if known && last_rtt > 0.0 { (rtt - last_rtt) / least } else { 0.0 };
        if rtt > 0.0 {
            self.memory.last_rtt = rtt;
        }
        let bdp = if least.is_finite() { rate / 8.0 * least } else { 0.0 };
        let values = [
            share(share(acked * 8.0, took), rate),
            share(share(sent * 8.0, took), rate),
            if known { rtt / least - 1.0 } else { 0.0 },
            change,
            share(lost, sent),
            share(inflight, cwnd),
            if bdp > 0.0 && cwnd > 0.0 { (cwnd / bdp).log2() } else { 0.0 },
            share(marks, acks),
        ];
        values.map(|value| value.clamp(-MOST, MOST))
    }

    /// Orca's reward (Abbasloo et al., SIGCOMM 2020, § 4).
    fn orca(&self) -> f64 {
        let Memory { most_bps, least_rtt, .. } = self.memory;
        if most_bps <= 0.0 || !least_rtt.is_finite() {
            return 0.0;
        }
        let rtt = self.seen[8];
        let delay = if rtt > 1.25 * least_rtt { rtt } else { least_rtt };
        let lost_bps = share(self.seen[4] * 8.0, self.seen[1]);
        (self.delivered_bps() - 5.0 * lost_bps) / delay / (most_bps / least_rtt)
    }

    /// Aurora's reward (Jay et al., ICML 2019, § 4).
    fn aurora(&self) -> f64 {
        let packets = self.delivered_bps() / 8.0 / self.seen[16].max(1.0);
        let latency = [self.seen[8], self.srtt()].into_iter().find(|rtt| *rtt > 0.0).unwrap_or(0.0);
        10.0 * packets - 1000.0 * latency - 2000.0 * share(self.seen[4], self.seen[2])
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
