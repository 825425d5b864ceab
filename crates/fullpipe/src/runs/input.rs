//! Scenario text to cases: what there is to know of controllers and of files beside it.

use crate::failure::Failure;
use fullpipe_experiment::scenario::{Case, Vocabulary, parse};
use std::fs;
use std::path::Path;

/// The controllers that scenarios may name.
pub fn vocabulary() -> Vocabulary {
    Vocabulary::new(fullpipe_cc::CONTROLLERS.iter().map(|c| c.name))
}

/// The cases of the scenario file at `path`.
pub fn read(path: &Path) -> Result<Vec<Case>, Failure> {
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
    parse(&name, &text, &vocabulary(), &open).map_err(Failure::usage)
}
