//! Scenario files to cases, and the files beside them.

use crate::failure::Failure;
use fullpipe_experiment::scenario::{Case, parse};
use fullpipe_run::{Engine, beside, scenario_text, vocabulary};
use std::fs::File;
use std::io::stdin;
use std::path::Path;

/// Whether a controller may be named where `engines` run it.
pub fn check_controller(name: &str, engines: &[Engine]) -> Result<(), Failure> {
    vocabulary(engines).check_controller(name).map_err(|fault| match fault.help {
        Some(help) => Failure::Usage(format!("{}\n  help: {help}", fault.reason)),
        None => Failure::Usage(fault.reason),
    })
}

/// The cases of the scenario file at `path`, which `engines` are to run; `-` is what comes by standard input. Files that it names lie
/// beside it, those of standard input in the working directory.
pub fn read(path: &Path, engines: &[Engine]) -> Result<Vec<Case>, Failure> {
    let (name, text) = if path == Path::new("-") {
        ("standard input".to_owned(), scenario_text("standard input", stdin().lock()))
    } else {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|e| Failure::usage(format!("cannot read {name}: {e}")))?;
        let text = scenario_text(&name, file);
        (name, text)
    };
    let open = beside(path.parent().unwrap_or(Path::new("")).to_owned());
    parse(&name, &text.map_err(Failure::Usage)?, &vocabulary(engines), &open).map_err(Failure::usage)
}
