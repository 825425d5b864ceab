//! Scenario text to cases: what there is to know of controllers and of files beside it.

use super::engine::Choice;
use crate::failure::Failure;
use fullpipe_experiment::scenario::{Case, Refused, Vocabulary, parse};
use fullpipe_host::controllers::{EBPF, LINUX};
use std::fs;
use std::path::Path;

/// The controllers that scenarios may name where `engine` runs them. In the lab those are the kernel's, too, some
/// of which only show when a run asks for them.
pub fn vocabulary(engine: Choice) -> Vocabulary {
    let simulated = fullpipe_cc::CONTROLLERS.iter().map(|c| c.name.to_owned());
    let mut vocabulary = Vocabulary::new(simulated);
    let there = fullpipe_lab::controllers();
    let named = EBPF.map(|(name, _)| name).into_iter().chain(LINUX).map(str::to_owned);
    for name in named.chain(there) {
        if vocabulary.controllers.contains(&name) || vocabulary.refused.iter().any(|r| r.name == name) {
            continue;
        }
        if engine == Choice::Lab {
            vocabulary.controllers.push(name);
            continue;
        }
        let help = match EBPF.iter().find(|(ebpf, _)| *ebpf == name) {
            Some((_, same)) => format!("`{same}` is the same algorithm; or run it with `--engine lab`"),
            None => "run it with `--engine lab`".to_owned(),
        };
        let reason = format!("`{name}` is a controller of the kernel only: the simulator has none");
        vocabulary.refused.push(Refused { name, reason, help });
    }
    vocabulary
}

/// Whether a controller may be named where `engine` runs it.
pub fn check_controller(name: &str, engine: Choice) -> Result<(), Failure> {
    vocabulary(engine).check_controller(name).map_err(|fault| match fault.help {
        Some(help) => Failure::Usage(format!("{}\n  help: {help}", fault.reason)),
        None => Failure::Usage(fault.reason),
    })
}

/// The cases of the scenario file at `path`, which `engine` is to run.
pub fn read(path: &Path, engine: Choice) -> Result<Vec<Case>, Failure> {
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
    parse(&name, &text, &vocabulary(engine), &open).map_err(Failure::usage)
}
