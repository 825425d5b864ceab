//! The draft's example test cases.

use crate::cases::Cases;
use crate::error::{RunError, of_options};
use fullpipe_cc::{Config, Controller};
use fullpipe_conformance::{CASES, Report, Trial, select};
use pyo3::prelude::*;
use std::sync::Arc;

/// Simulates the cases with these `names` (all if there are none) for the controller `cc` with its `settings`: as JSON, as
/// `fullpipe conformance --json` prints it.
#[pyfunction]
pub fn conformance(
    py: Python<'_>,
    cc: &str,
    names: Vec<String>,
    settings: Vec<(String, String)>,
    threads: usize,
) -> PyResult<String> {
    let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (&**key, &**value)).collect();
    Controller::new(cc, &Config::default(), &settings).map_err(|e| of_options(py, &e.to_string(), None))?;
    let selected = select(&names).map_err(|name| {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        let help = format!("there are {}", names.join(", "));
        of_options(py, &format!("there is no case `{name}`"), Some(&help))
    })?;
    let mut checked = Vec::new();
    for case in selected {
        let trial = Trial::new(case, cc, &settings).map_err(|e| of_options(py, &e, None))?;
        let runs = trial.runs().cloned().collect();
        let cases = Cases { title: case.heading.to_owned(), cases: Arc::new(runs) };
        let results = crate::running::run(py, &cases, None, threads, true, None)?;
        checked.extend(trial.judge(results.recordings().runs.clone()));
    }
    serde_json::to_string(&Report::new(cc, &checked)).map_err(|e| RunError::new_err(e.to_string()))
}
