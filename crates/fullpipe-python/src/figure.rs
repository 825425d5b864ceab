//! Reproduces published figures.

use crate::cases::Cases;
use crate::error::{RunError, option_error, scenario_error};
use fullpipe_experiment::Source;
use fullpipe_figures::{FIGURES, Runs, find, unknown_figure};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;

/// The figures: id, title and source.
#[pyfunction]
pub fn figures() -> Vec<(&'static str, &'static str, &'static str)> {
    FIGURES.iter().map(|figure| (figure.id, figure.title, figure.source)).collect()
}

/// Simulates the runs of a figure and checks its claims. Returns a dictionary with `id`, `title`,
/// `source`, `passed`, `findings` (each with claim, published, measured, bound, passed), `notes`,
/// `svg`, `png` and `results`.
#[pyfunction]
pub fn figure<'py>(py: Python<'py>, id: &str) -> PyResult<Bound<'py, PyDict>> {
    let Some(figure) = find(id) else {
        return Err(option_error(py, &unknown_figure(id), None));
    };
    let cases = figure.cases().map_err(|e| scenario_error(py, &e))?;
    let cases = Cases { title: figure.title.to_owned(), cases: Arc::new(cases) };
    let results = crate::running::run(py, &cases, None, 0, true, None)?;
    let runs = cases.cases.iter().cloned().zip(results.recordings().runs.iter().cloned()).collect();
    let outcome = figure.judge(&Runs { source: Source::Sim, runs });
    let out = PyDict::new(py);
    out.set_item("id", figure.id)?;
    out.set_item("title", figure.title)?;
    out.set_item("source", figure.source)?;
    out.set_item("passed", outcome.passed())?;
    let findings = outcome.findings.iter().map(|f| {
        let finding = PyDict::new(py);
        for (key, value) in
            [("claim", &f.claim), ("published", &f.published), ("measured", &f.measured), ("bound", &f.bound)]
        {
            finding.set_item(key, value)?;
        }
        finding.set_item("passed", f.passed)?;
        Ok(finding)
    });
    out.set_item("findings", findings.collect::<PyResult<Vec<_>>>()?)?;
    out.set_item("notes", &outcome.notes)?;
    out.set_item("svg", outcome.picture.svg())?;
    let png = outcome.picture.png().map_err(|e| RunError::new_err(e.to_string()))?;
    out.set_item("png", pyo3::types::PyBytes::new(py, &png))?;
    out.set_item("results", results)?;
    Ok(out)
}
