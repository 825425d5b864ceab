//! Controllers written in Python. Each ACK is a call of the interpreter, so they are for learning, not for sweeps.

use crate::cases::Cases;
use crate::error::{RunError, of_options};
use crate::results::Results;
use fullpipe_cc::registry::{Build, BuildError, ControllerInfo, Setting, Settings};
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Snapshot, Span, Time,
};
use fullpipe_experiment::Results as Recordings;
use fullpipe_experiment::scenario::{Scenario, Setting as Given};
use fullpipe_sim::{Controllers, SimError, Simulation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// What a run keeps of its controllers' first error.
type Raised = Arc<Mutex<Option<PyErr>>>;

type Makers = HashMap<u32, (Py<PyAny>, Raised)>;

/// Classes (or functions) that make the controllers of runs under way, by number, and where their errors go.
static MAKERS: LazyLock<Mutex<Makers>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU32 = AtomicU32::new(1);

fn makers() -> MutexGuard<'static, Makers> {
    MAKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers in the list of makers, for as long as a run lasts.
struct Hired(Vec<u32>);

impl Drop for Hired {
    fn drop(&mut self) {
        let mut makers = makers();
        self.0.iter().for_each(|number| drop(makers.remove(number)));
    }
}

/// A controller in Python: an object with `on_ack(event)`, and if it likes `on_loss(event)` and `on_timeout(event)`. What it wants it says by
/// its attributes `cwnd` (bytes) and `pacing_rate` (bit/s, or None), looked at after each call.
struct Own {
    object: Option<Py<PyAny>>,
    raised: Raised,
    cwnd: u64,
    pacing: Option<Rate>,
    state: &'static str,
}

impl Own {
    /// Calls `name` with what happened, if the object has it, and looks at what it wants now. After an error nothing is called any more.
    fn call(&mut self, name: &str, fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>) {
        let Some(object) = self.object.as_ref() else { return };
        let ended = Python::attach(|py| {
            let object = object.bind(py);
            if object.hasattr(name)? {
                let event = PyDict::new(py);
                fill(&event)?;
                object.call_method1(name, (event,))?;
            }
            wishes(object)
        });
        match ended {
            Ok((cwnd, pacing)) => (self.cwnd, self.pacing) = (cwnd, pacing),
            Err(e) => {
                self.object = None;
                self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
            }
        }
    }
}

/// What it wants.
fn wishes(object: &Bound<'_, PyAny>) -> PyResult<(u64, Option<Rate>)> {
    let cwnd: f64 = object.getattr("cwnd")?.extract()?;
    let pacing: Option<f64> = match object.hasattr("pacing_rate")? {
        true => object.getattr("pacing_rate")?.extract()?,
        false => None,
    };
    if !(1.0..=1e12).contains(&cwnd) || pacing.is_some_and(|bps| !(1.0..=1e13).contains(&bps)) {
        return Err(PyValueError::new_err(format!(
            "cwnd = {cwnd}, pacing_rate = {pacing:?}: the window must be from 1 to 1e12 bytes, the rate from 1 to 1e13 bit/s"
        )));
    }
    Ok((cwnd as u64, pacing.map(|bps| Rate::from_bits_per_sec(bps as u64))))
}

impl Build for Own {
    const INFO: ControllerInfo = ControllerInfo {
        name: "python",
        aliases: &[],
        kernel: None,
        about: "a controller written in Python",
        settings: &[Setting { key: "maker", values: "a number", default: "none", about: "what makes it" }],
    };

    fn build<'a>(config: &Config, settings: Settings<'a>) -> Result<Self, BuildError<'a>> {
        let number = settings.number("maker", 0, 1, u32::MAX)?;
        Ok(Python::attach(|py| {
            let found =
                makers().get(&number).map(|(maker, raised)| (maker.clone_ref(py), Arc::clone(raised)));
            let (cwnd, pacing, state) = (config.initial_cwnd, None, "Python");
            let Some((maker, raised)) = found else {
                return Own { object: None, raised: Arc::default(), cwnd, pacing, state };
            };
            let made = maker.call1(py, (config.smss, config.initial_cwnd)).and_then(|object| {
                let (cwnd, pacing) = wishes(object.bind(py))?;
                Ok((object, cwnd, pacing))
            });
            match made {
                Ok((object, cwnd, pacing)) => Own { object: Some(object), raised, cwnd, pacing, state },
                Err(e) => {
                    raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                    Own { object: None, raised, cwnd, pacing, state }
                }
            }
        }))
    }
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

fn since_start(time: Time) -> f64 {
    seconds(time.since(Time::ZERO))
}

impl CongestionControl for Own {
    fn on_lost(&mut self, lost: &Lost) {
        self.call("on_loss", |event| {
            event.set_item("now_s", since_start(lost.now))?;
            event.set_item("bytes", lost.bytes)?;
            event.set_item("lost_bytes", lost.lost)?;
            event.set_item("delivered_bytes", lost.delivered)
        });
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.call("on_ack", |event| {
            event.set_item("now_s", since_start(ack.now))?;
            event.set_item("acked_bytes", ack.newly_acked)?;
            event.set_item("newly_lost_bytes", ack.newly_lost)?;
            event.set_item("rtt_s", ack.rtt.map(seconds))?;
            event.set_item("srtt_s", ack.srtt.map(seconds))?;
            event.set_item("inflight_bytes", ack.inflight)?;
            event.set_item("delivered_bytes", ack.delivered)?;
            event.set_item("lost_bytes", ack.lost)?;
            event.set_item("delivery_rate_bps", ack.sample.rate.map(Rate::as_bits_per_sec_f64))?;
            event.set_item("app_limited", ack.sample.app_limited)?;
            event.set_item("cwnd_limited", ack.cwnd_limited)?;
            event.set_item("ce_marks", ack.ce_count)
        });
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        if event == Recovery::EnterRto {
            self.call("on_timeout", |event| {
                event.set_item("now_s", since_start(context.now))?;
                event.set_item("inflight_bytes", context.inflight)
            });
        }
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        u64::MAX
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { state: self.state, cwnd: self.cwnd, pacing_rate: self.pacing, ..Snapshot::default() }
    }

    fn state(&self) -> &'static str {
        self.state
    }
}

/// Simulates the cases, one after another, with the controllers that `own` makes beside the built-in ones: name to a class that takes
/// `smss` and `initial_cwnd`. What a controller raises ends the run and is raised here.
#[pyfunction]
pub fn run_with(py: Python<'_>, cases: &Cases, own: HashMap<String, Py<PyAny>>) -> PyResult<Results> {
    let raised = Raised::default();
    let mut hired = Hired(Vec::new());
    let mut numbers: HashMap<String, u32> = HashMap::new();
    for (name, maker) in own {
        let number = NEXT.fetch_add(1, Relaxed);
        makers().insert(number, (maker, Arc::clone(&raised)));
        hired.0.push(number);
        numbers.insert(name, number);
    }
    let controllers = Controllers::new().with::<Own>();
    let mut runs = Vec::new();
    for case in cases.cases.iter() {
        let mut scenario: Scenario = case.scenario.clone();
        let mut names = Vec::new();
        scenario.flows = scenario.connections();
        for flow in &mut scenario.flows {
            names.push(flow.cc.clone());
            if let Some(number) = numbers.get(&flow.cc) {
                flow.label.get_or_insert_with(|| flow.cc.clone());
                flow.cc = Own::INFO.name.to_owned();
                flow.settings = [("maker".to_owned(), Given::Integer(i64::from(*number)))].into();
            }
        }
        let mut look = |_: Time| {
            let failed = raised.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            match !failed && py.check_signals().map_err(|e| keep(&raised, e)).is_ok() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let ended = Simulation::new(&scenario, scenario.seed).controllers(&controllers).run_with(&mut look);
        if let Some(e) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(e);
        }
        let mut recording = ended.map_err(|e| match e {
            SimError::Scenario(_) => of_options(py, &e.to_string(), None),
            e => RunError::new_err(e.to_string()),
        })?;
        for (flow, name) in recording.flows.iter_mut().zip(&names) {
            flow.cc.clone_from(name);
        }
        let mut distinct: Vec<&str> = Vec::new();
        for name in &names {
            if !distinct.contains(&name.as_str()) {
                distinct.push(name);
            }
        }
        recording.cc = distinct.join("+");
        recording.label = case.label();
        recording.contender.clone_from(&case.contender);
        recording.varied.clone_from(&case.varied);
        recording.provenance.scenario = case.scenario.to_toml();
        recording.checks = case.scenario.judge(&recording);
        recording.flows.iter_mut().for_each(|flow| flow.distributions = None);
        runs.push(recording);
    }
    let numbers = (0..runs.len()).collect();
    Ok(Results::new(cases.title.clone(), Recordings::new(runs), numbers))
}

fn keep(raised: &Raised, e: PyErr) {
    raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
}
