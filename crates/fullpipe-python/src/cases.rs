//! Resolves scenarios and race options to runs, as `fullpipe run` and `fullpipe race` do.

use crate::error::{option_error, scenario_error};
use fullpipe_experiment::scenario::{self, Case};
use fullpipe_run::race::{Axis, Contestant, DEFAULT_CONTROLLERS, Race, RaceError};
use fullpipe_run::{Engine, files_in, vocabulary};
use fullpipe_units::{Bytes, Fraction, Rate, Span};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// The runs of a scenario, with its sweep and repeats resolved.
#[pyclass(frozen, module = "fullpipe._fullpipe")]
pub struct Cases {
    pub title: String,
    pub cases: Arc<Vec<Case>>,
}

#[pymethods]
impl Cases {
    fn __len__(&self) -> usize {
        self.cases.len()
    }

    /// Title of the runs.
    #[getter]
    fn title(&self) -> &str {
        &self.title
    }

    /// Label of each run.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.cases.iter().map(Case::label).collect()
    }

    /// Each run as a scenario file with its seed.
    #[getter]
    fn scenarios(&self) -> Vec<String> {
        self.cases.iter().map(|case| case.scenario.to_toml()).collect()
    }

    /// Values of the swept parameters of each run, and its seed if it is repeated.
    #[getter]
    fn varied<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let varied = |case: &Case| {
            let dict = PyDict::new(py);
            case.varied.iter().try_for_each(|v| dict.set_item(&v.key, &v.value))?;
            Ok(dict)
        };
        self.cases.iter().map(varied).collect()
    }

    /// Estimated cost of each run, in packets, for splitting the work evenly.
    #[getter]
    fn costs(&self) -> Vec<f64> {
        self.cases.iter().map(cost).collect()
    }
}

/// Packets that the path can carry during the run, plus 100 per second. A path without a rate
/// counts as 100 Mbit/s.
fn cost(case: &Case) -> f64 {
    let scenario = &case.scenario;
    let facts = scenario.path.facts(scenario.mtu, scenario.smss());
    let seconds = scenario.duration.as_nanos() as f64 / 1e9;
    let rate = facts.rate_bps.unwrap_or(100e6);
    seconds * (rate / 8.0 / f64::from(scenario.mtu.max(1)) + 100.0)
}

/// Parses the scenario file `text`. Files that it refers to are relative to `directory`.
#[pyfunction]
#[pyo3(signature = (text, name, directory=None, more=Vec::new()))]
pub fn parse(
    py: Python<'_>,
    text: &str,
    name: &str,
    directory: Option<PathBuf>,
    more: Vec<String>,
) -> PyResult<Cases> {
    let open = files_in(directory.unwrap_or_default());
    let mut known = vocabulary(&[Engine::Sim]);
    known.controllers.extend(more);
    let cases = scenario::parse(name, text, &known, &open).map_err(|e| scenario_error(py, &e))?;
    let title = cases.first().map(|case| case.scenario.title.clone()).unwrap_or_default();
    Ok(Cases { title, cases: Arc::new(cases) })
}

/// The runs of a race on one path, with the options of `fullpipe race`.
#[pyfunction]
pub fn race(
    py: Python<'_>,
    controllers: Vec<String>,
    options: &Bound<'_, PyDict>,
    sweep: Vec<String>,
) -> PyResult<Cases> {
    let mut race = Race::default();
    for (key, value) in options.iter() {
        let (key, value): (String, String) = (key.extract()?, value.str()?.extract()?);
        set(&mut race, &key, &value)
            .map_err(|(message, help)| option_error(py, &message, help.as_deref()))?;
    }
    let error = |e: RaceError| option_error(py, &e.message, e.help.as_deref());
    for axis in sweep {
        race.sweep
            .push(Axis::parse(&axis).map_err(|e| option_error(py, &format!("sweep `{axis}`: {e}"), None))?);
    }
    let names: Vec<&str> = match controllers.as_slice() {
        [] => DEFAULT_CONTROLLERS.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    let engines = &[Engine::Sim];
    let contestants: Vec<Contestant> = names
        .into_iter()
        .map(|name| Contestant::parse(name, engines))
        .collect::<Result<_, _>>()
        .map_err(error)?;
    let cases = race.cases(&contestants, engines).map_err(error)?;
    Ok(Cases { title: race.title(&contestants), cases: Arc::new(cases) })
}

const OPTIONS: [&str; 17] = [
    "rate",
    "rtt",
    "buffer",
    "queue",
    "loss",
    "reverse_rate",
    "mtu",
    "duration",
    "warmup",
    "together",
    "flows",
    "stagger",
    "size",
    "ecn",
    "seed",
    "repeats",
    "sample",
];

fn set(race: &mut Race, key: &str, value: &str) -> Result<(), (String, Option<String>)> {
    fn read<T: FromStr>(key: &str, value: &str) -> Result<T, (String, Option<String>)>
    where
        T::Err: std::fmt::Display,
    {
        value.parse().map_err(|e| (format!("{key}: {e}"), None))
    }
    let flag = |value: &str| match value {
        "True" | "true" => Ok(true),
        "False" | "false" => Ok(false),
        other => Err((format!("{key}: expected True or False, got `{other}`"), None)),
    };
    match key {
        "rate" => race.rate = read::<Rate>(key, value)?,
        "rtt" => race.rtt = read::<Span>(key, value)?,
        "buffer" => race.buffer = Some(read(key, value)?),
        "queue" => race.queue = Some(value.to_owned()),
        "loss" => race.loss = read::<Fraction>(key, value)?,
        "reverse_rate" => race.reverse_rate = Some(read(key, value)?),
        "mtu" => race.mtu = read(key, value)?,
        "duration" => race.duration = read::<Span>(key, value)?,
        "warmup" => race.warmup = Some(read(key, value)?),
        "together" => race.together = flag(value)?,
        "flows" => race.flows = read(key, value)?,
        "stagger" => race.stagger = Some(read(key, value)?),
        "size" => race.size = Some(read::<Bytes>(key, value)?),
        "ecn" => race.ecn = flag(value)?,
        "seed" => race.seed = read(key, value)?,
        "repeats" => race.repeats = read(key, value)?,
        "sample" => race.sample = read::<Span>(key, value)?,
        other => {
            return Err((
                format!("race has no option `{other}`"),
                Some(format!("the options are {}", OPTIONS.join(", "))),
            ));
        }
    }
    Ok(())
}

/// The controllers of the simulator: name and description.
#[pyfunction]
pub fn controllers() -> Vec<(&'static str, &'static str)> {
    fullpipe_cc::CONTROLLERS.iter().map(|about| (about.name, about.about)).collect()
}

/// Parses a quantity such as "100mbit", "40ms", "64k" or "1%" to bit/s, seconds, bytes or a
/// fraction. None if the text is not a quantity.
#[pyfunction]
pub fn quantity(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    if let Ok(share) = text.parse::<Fraction>() {
        return Some(share.as_f64());
    }
    if let Ok(time) = text.parse::<Span>() {
        return Some(time.as_nanos() as f64 / 1e9);
    }
    if let Ok(rate) = text.parse::<Rate>() {
        return Some(rate.as_bits_per_sec_f64());
    }
    text.parse::<Bytes>().ok().map(|bytes| bytes.0 as f64)
}
