//! The example test cases of the draft.

use crate::cases::Cases;
use crate::error::{RunError, option_error};
use fullpipe_cc::ControllerSpec;
use fullpipe_conformance::{CASES, Report, Trial, select};
use pyo3::prelude::*;
use std::sync::Arc;

/// Simulates the cases `names` (all if empty) with the controller `cc` and its `settings`. Returns
/// the JSON of `fullpipe conformance --json`.
#[pyfunction]
pub fn conformance(
    py: Python<'_>,
    cc: &str,
    names: Vec<String>,
    settings: Vec<(String, String)>,
    threads: usize,
) -> PyResult<String> {
    let settings: Vec<(&str, &str)> = settings.iter().map(|(key, value)| (&**key, &**value)).collect();
    ControllerSpec::new(cc, &settings).map_err(|e| option_error(py, &e.to_string(), None))?;
    let selected = select(&names).map_err(|name| {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        let help = format!("the cases are {}", names.join(", "));
        option_error(py, &format!("no case `{name}`"), Some(&help))
    })?;
    let mut checked = Vec::new();
    for case in selected {
        let trial = Trial::new(case, cc, &settings).map_err(|e| option_error(py, &e, None))?;
        let runs = trial.runs().cloned().collect();
        let cases = Cases { title: case.heading.to_owned(), cases: Arc::new(runs) };
        let results = crate::running::run(py, &cases, None, threads, true, None)?;
        checked.extend(trial.judge(results.recordings().runs.iter().cloned().map(Ok).collect()));
    }
    serde_json::to_string(&Report::new(cc, &checked)).map_err(|e| RunError::new_err(e.to_string()))
}
