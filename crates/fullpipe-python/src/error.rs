//! Python exceptions.

use fullpipe_experiment::scenario;
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

create_exception!(
    fullpipe,
    ScenarioError,
    PyValueError,
    "An invalid scenario or option. Attributes: file, line, column (0 if there is no position), \
     message, help (or None)."
);
create_exception!(fullpipe, RunError, PyRuntimeError, "A run failed.");

/// A scenario error with its position.
pub fn scenario_error(py: Python<'_>, e: &scenario::ScenarioError) -> PyErr {
    let error = new_error(py, e.to_string(), &e.message, e.help.as_deref());
    let value = error.value(py);
    let place = [("line", e.line), ("column", e.column)];
    let set = value
        .setattr("file", &e.file)
        .and_then(|()| place.into_iter().try_for_each(|(name, number)| value.setattr(name, number)));
    set.err().unwrap_or(error)
}

/// An error of an option, without a position.
pub fn option_error(py: Python<'_>, message: &str, help: Option<&str>) -> PyErr {
    let text = match help {
        Some(help) => format!("{message}\n  help: {help}"),
        None => message.to_owned(),
    };
    new_error(py, text, message, help)
}

fn new_error(py: Python<'_>, text: String, message: &str, help: Option<&str>) -> PyErr {
    let error = PyErr::new::<ScenarioError, _>(text);
    let value = error.value(py);
    let no_position = [("line", 0), ("column", 0)];
    let set = value
        .setattr("message", message)
        .and_then(|()| value.setattr("help", help))
        .and_then(|()| value.setattr("file", ""))
        .and_then(|()| no_position.into_iter().try_for_each(|(name, number)| value.setattr(name, number)));
    set.err().unwrap_or(error)
}
