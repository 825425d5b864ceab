//! Scenario files to cases, and the files beside them.

use crate::failure::Failure;
use fullpipe_experiment::scenario::{Case, parse};
use fullpipe_run::{Engine, vocabulary};
use std::fs;
use std::path::Path;

/// Whether a controller may be named where `engines` run it.
pub fn check_controller(name: &str, engines: &[Engine]) -> Result<(), Failure> {
    vocabulary(engines).check_controller(name).map_err(|fault| match fault.help {
        Some(help) => Failure::Usage(format!("{}\n  help: {help}", fault.reason)),
        None => Failure::Usage(fault.reason),
    })
}

/// The cases of the scenario file at `path`, which `engines` are to run.
pub fn read(path: &Path, engines: &[Engine]) -> Result<Vec<Case>, Failure> {
    let name = path.display().to_string();
    let bytes = fs::read(path).map_err(|e| Failure::usage(format!("cannot read {name}: {e}")))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|b| **b == b'\n').count() + 1;
        Failure::usage(format!("{name}:{line}: not a scenario file: not UTF-8 text"))
    })?;
    // Files that a scenario names lie beside it.
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let open = |file: &str| {
        let path = directory.join(file);
        fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))
    };
    parse(&name, &text, &vocabulary(engines), &open).map_err(Failure::usage)
}
