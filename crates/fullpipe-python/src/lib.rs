//! The part of the Python package `fullpipe` that is in Rust: scenarios, runs, their tables, an episode that is gone through step by
//! step. What people call is in `python/fullpipe`.
#![forbid(unsafe_code)]

mod agent;
mod cases;
mod conformance;
mod driver;
mod episode;
mod error;
mod figure;
mod own;
mod policy;
mod results;
mod reward;
mod running;
mod table;
mod trace;

use pyo3::prelude::*;

/// The part of fullpipe that is in Rust.
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
    m.add_function(wrap_pyfunction!(own::run_with, m)?)?;
    m.add_function(wrap_pyfunction!(trace::trace, m)?)?;
    Ok(())
}
