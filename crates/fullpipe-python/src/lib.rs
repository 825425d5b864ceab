//! The Rust extension of the Python package `fullpipe`: scenarios, runs, tables, and episodes
//! simulated step by step. The public API is in `python/fullpipe`.
#![forbid(unsafe_code)]

mod agent;
mod cases;
mod conformance;
mod driver;
mod episode;
mod error;
mod figure;
mod policy;
mod python_controller;
mod results;
mod reward;
mod running;
mod table;
mod trace;

use pyo3::prelude::*;

/// The Rust extension of fullpipe.
#[pymodule]
fn _fullpipe(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("ScenarioError", m.py().get_type::<error::ScenarioError>())?;
    m.add("RunError", m.py().get_type::<error::RunError>())?;
    m.add_class::<cases::Cases>()?;
    m.add_class::<driver::Driver>()?;
    m.add_class::<episode::Episode>()?;
    m.add_class::<policy::Policy>()?;
    m.add_class::<results::Results>()?;
    m.add_class::<table::Table>()?;
    m.add_function(wrap_pyfunction!(cases::parse, m)?)?;
    m.add_function(wrap_pyfunction!(cases::race, m)?)?;
    m.add_function(wrap_pyfunction!(cases::controllers, m)?)?;
    m.add_function(wrap_pyfunction!(cases::quantity, m)?)?;
    m.add_function(wrap_pyfunction!(conformance::conformance, m)?)?;
    m.add_function(wrap_pyfunction!(figure::figures, m)?)?;
    m.add_function(wrap_pyfunction!(figure::figure, m)?)?;
    m.add("REWARDS", reward::REWARDS)?;
    m.add("OBSERVATIONS", fullpipe_policy::OBSERVATIONS)?;
    m.add_function(wrap_pyfunction!(driver::rollout, m)?)?;
    m.add_function(wrap_pyfunction!(running::run, m)?)?;
    m.add_function(wrap_pyfunction!(python_controller::run_with, m)?)?;
    m.add_function(wrap_pyfunction!(trace::trace, m)?)?;
    Ok(())
}
