//! Controllers written in Python. Every ACK calls the interpreter, so they are for learning, not
//! for sweeps.

use crate::cases::Cases;
use crate::error::{RunError, option_error};
use crate::results::Results;
use fullpipe_cc::registry::{Build, BuildError, ControllerInfo, Setting, Settings};
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Snapshot, Span, Time,
};
use fullpipe_experiment::Results as Recordings;
use fullpipe_experiment::scenario::{Scenario, Setting as SettingValue};
use fullpipe_sim::{Controllers, SimError, Simulation};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// The first exception raised by a controller of a run.
type RaisedError = Arc<Mutex<Option<PyErr>>>;

type Factories = HashMap<u32, (Py<PyAny>, RaisedError)>;

/// The factories (classes or functions) of the controllers of active runs by number, and where
/// their exceptions go.
static FACTORIES: LazyLock<Mutex<Factories>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU32 = AtomicU32::new(1);

fn factories() -> MutexGuard<'static, Factories> {
    FACTORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registered factories, removed at the end of the run.
struct Registration(Vec<u32>);

impl Drop for Registration {
    fn drop(&mut self) {
        let mut factories = factories();
        self.0.iter().for_each(|number| drop(factories.remove(number)));
    }
}

/// A controller in Python: an object with `on_ack(event)` and optionally `on_loss(event)` and
/// `on_timeout(event)`. After each call its attributes `cwnd` (bytes) and `pacing_rate` (bit/s, or
/// None) are read.
struct PythonController {
    object: Option<Py<PyAny>>,
    raised: RaisedError,
    cwnd: u64,
    pacing: Option<Rate>,
    state: &'static str,
}

impl PythonController {
    /// Calls the method `name` with an event, if the object has it, and reads the window and the
    /// rate. After an exception the object is not called again.
    fn call(&mut self, name: &str, fill: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>) {
        let Some(object) = self.object.as_ref() else { return };
        let ended = Python::attach(|py| {
            let object = object.bind(py);
            if object.hasattr(name)? {
                let event = PyDict::new(py);
                fill(&event)?;
                object.call_method1(name, (event,))?;
            }
            read_output(object)
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
fn read_output(object: &Bound<'_, PyAny>) -> PyResult<(u64, Option<Rate>)> {
    let cwnd: f64 = object.getattr("cwnd")?.extract()?;
    let pacing: Option<f64> = match object.hasattr("pacing_rate")? {
        true => object.getattr("pacing_rate")?.extract()?,
        false => None,
    };
    if !(1.0..=1e12).contains(&cwnd) || pacing.is_some_and(|bps| !(1.0..=1e13).contains(&bps)) {
        return Err(PyValueError::new_err(format!(
            "cwnd = {cwnd}, pacing_rate = {pacing:?}: cwnd must be \
             1 to 1e12 bytes, pacing_rate 1 to 1e13 bit/s"
        )));
    }
    Ok((cwnd as u64, pacing.map(|bps| Rate::from_bits_per_sec(bps as u64))))
}

impl Build for PythonController {
    const INFO: ControllerInfo = ControllerInfo {
        name: "python",
        aliases: &[],
        kernel: None,
        about: "a controller written in Python",
        settings: &[Setting {
            key: "factory",
            values: "a number",
            default: "none",
            about: "number of its factory",
        }],
    };

    /// The number of its factory.
    type Params = u32;

    fn parse<'a>(settings: Settings<'a>) -> Result<u32, BuildError<'a>> {
        settings.number("factory", 0, 1, u32::MAX)
    }

    fn build(config: &Config, number: &u32) -> Self {
        Python::attach(|py| {
            let found =
                factories().get(number).map(|(factory, raised)| (factory.clone_ref(py), Arc::clone(raised)));
            let (cwnd, pacing, state) = (config.initial_cwnd, None, "Python");
            let Some((factory, raised)) = found else {
                return PythonController { object: None, raised: Arc::default(), cwnd, pacing, state };
            };
            let made = factory.call1(py, (config.smss, config.initial_cwnd)).and_then(|object| {
                let (cwnd, pacing) = read_output(object.bind(py))?;
                Ok((object, cwnd, pacing))
            });
            match made {
                Ok((object, cwnd, pacing)) => {
                    PythonController { object: Some(object), raised, cwnd, pacing, state }
                }
                Err(e) => {
                    raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                    PythonController { object: None, raised, cwnd, pacing, state }
                }
            }
        })
    }
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

fn since_start(time: Time) -> f64 {
    seconds(time.since(Time::ZERO))
}

impl CongestionControl for PythonController {
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

    /// Marks are reported to it.
    fn claims_ecn(&self) -> bool {
        true
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

/// Simulates the cases one after another. `controllers` maps names to classes that are called with
/// `smss` and `initial_cwnd`, in addition to the built-in controllers. An exception of a controller
/// ends the run and is raised here.
#[pyfunction]
pub fn run_with(py: Python<'_>, cases: &Cases, controllers: HashMap<String, Py<PyAny>>) -> PyResult<Results> {
    let raised = RaisedError::default();
    let mut registration = Registration(Vec::new());
    let mut numbers: HashMap<String, u32> = HashMap::new();
    for (name, factory) in controllers {
        let number = NEXT.fetch_add(1, Relaxed);
        factories().insert(number, (factory, Arc::clone(&raised)));
        registration.0.push(number);
        numbers.insert(name, number);
    }
    let known = Controllers::new().with::<PythonController>();
    let mut runs = Vec::new();
    for case in cases.cases.iter() {
        let mut scenario: Scenario = case.scenario.clone();
        let mut names = Vec::new();
        scenario.flows = scenario.connections();
        for flow in &mut scenario.flows {
            names.push(flow.cc.clone());
            if let Some(number) = numbers.get(&flow.cc) {
                flow.label.get_or_insert_with(|| flow.cc.clone());
                flow.cc = PythonController::INFO.name.to_owned();
                flow.settings = [("factory".to_owned(), SettingValue::Integer(i64::from(*number)))].into();
            }
        }
        let mut on_progress = |_: Time| {
            let failed = raised.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            match !failed && py.check_signals().map_err(|e| keep_first(&raised, e)).is_ok() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let ended = Simulation::new(&scenario, scenario.seed).controllers(&known).run_with(&mut on_progress);
        if let Some(e) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(e);
        }
        let mut recording = ended.map_err(|e| match e {
            SimError::Scenario(_) => option_error(py, &e.to_string(), None),
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

fn keep_first(raised: &RaisedError, e: PyErr) {
    raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
}
