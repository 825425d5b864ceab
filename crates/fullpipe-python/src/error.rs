//! What goes wrong, as Python's exceptions.

use fullpipe_experiment::scenario;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    fullpipe,
    ScenarioError,
    PyValueError,
    "A scenario that cannot be run: what is wrong, where, and what to do. Attributes: file, line, column (0 if the whole is meant), \
     message, help (or None)."
);
create_exception!(fullpipe, RunError, PyRuntimeError, "A run that did not end as it should.");

/// The error of a scenario, with its place.
pub fn of_scenario(py: Python<'_>, e: &scenario::ScenarioError) -> PyErr {
    let told = told(py, e.to_string(), &e.message, e.help.as_deref());
    let value = told.value(py);
    let place = [("line", e.line), ("column", e.column)];
    let set = value
        .setattr("file", &e.file)
        .and_then(|()| place.into_iter().try_for_each(|(name, number)| value.setattr(name, number)));
    set.err().unwrap_or(told)
}

/// An error of options that nobody wrote into a file.
pub fn of_options(py: Python<'_>, message: &str, help: Option<&str>) -> PyErr {
    let text = match help {
        Some(help) => format!("{message}\n  help: {help}"),
        None => message.to_owned(),
    };
    told(py, text, message, help)
}

fn told(py: Python<'_>, text: String, message: &str, help: Option<&str>) -> PyErr {
    let told = PyErr::new::<ScenarioError, _>(text);
    let value = told.value(py);
    let nothing = [("line", 0), ("column", 0)];
    let set = value
        .setattr("message", message)
        .and_then(|()| value.setattr("help", help))
        .and_then(|()| value.setattr("file", ""))
        .and_then(|()| nothing.into_iter().try_for_each(|(name, number)| value.setattr(name, number)));
    set.err().unwrap_or(told)
}
