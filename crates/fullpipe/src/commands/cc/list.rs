//! `fullpipe cc list`: what can be loaded into this kernel, found by having it verify the programs.

use super::{failure, settings};
use crate::failure::Failure;
use crate::print::print_json;
use crate::runs::hanging;
use fullpipe_ebpf::features::Feature;
use fullpipe_ebpf::kernel::{self, Kernel};
use fullpipe_ebpf::{Controller, Error, lifecycle, loader, pins};
use serde::Serialize;

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    /// Whether controllers are registered by links; without, an update takes their name away for a moment. None where that
    /// cannot be asked.
    links: Option<bool>,
    features: Vec<Has>,
    controllers: Vec<Row>,
}

/// What controllers need of the kernel.
#[derive(Serialize)]
struct Has {
    feature: &'static str,
    about: &'static str,
    /// The version of Linux that it came with.
    since: &'static str,
    /// None where that cannot be asked.
    there: Option<bool>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    state: State,
    /// Whether the kernel takes its programs; none for the kernel's own, and where that cannot be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    loadable: Option<bool>,
    about: String,
    /// Why it cannot be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// By us.
    Loaded,
    /// By somebody, or the kernel's own.
    There,
    /// Not there.
    Absent,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            State::Loaded => "loaded",
            State::There => "there",
            State::Absent => "-",
        }
    }
}

/// An error without what would help.
fn short(error: &Error) -> String {
    error.missing().map_or_else(|| error.to_string(), |(what, _)| what)
}

pub fn run(json: bool) -> Result<(), Failure> {
    let available = kernel::available().map_err(failure)?;
    let loaded = lifecycle::loaded().map_err(failure)?;
    let kernel = Kernel::detect();
    // Only root may see what is pinned.
    let seen = std::fs::read_dir(pins::BPFFS).is_ok();
    let about = |name: &str, controller: Controller| {
        let set = lifecycle::tune(name, &[]).ok().and_then(|all| settings::changed(&all));
        format!("{}{}", controller.about(), set.map_or_else(String::new, |set| format!("; {set}")))
    };
    let mut rows: Vec<Row> = Controller::ALL
        .into_iter()
        .map(|controller| {
            let is_there = available.iter().any(|name| name == controller.name());
            let why_not = match &kernel {
                Ok(_) if is_there => None,
                Ok(kernel) => loader::verify(controller, kernel).err().as_ref().map(short),
                Err(error) => Some(short(error)),
            };
            // Who may not load cannot tell.
            let may = is_there || nix::unistd::Uid::effective().is_root();
            let loadable = may.then_some(why_not.is_none());
            let missing = why_not.filter(|_| may);
            Row {
                name: controller.name().to_owned(),
                state: if is_there { State::Loaded } else { State::Absent },
                loadable,
                about: about(controller.name(), controller),
                missing,
            }
        })
        .collect();
    for name in available.iter().filter(|name| !Controller::ALL.iter().any(|ours| ours.name() == *name)) {
        let (state, about) = match loaded.iter().find(|(pinned, _)| pinned == name) {
            Some((_, Some(controller))) => (State::Loaded, about(name, *controller)),
            Some((_, None)) => (State::Loaded, "by another version of fullpipe".to_owned()),
            None if seen => (State::There, "the kernel's".to_owned()),
            None => (State::There, "the kernel's, or loaded by root under another name".to_owned()),
        };
        rows.push(Row { name: name.clone(), state, loadable: None, about, missing: None });
    }
    if json {
        let has = |feature: Feature| Has {
            feature: feature.name(),
            about: feature.about(),
            since: feature.since(),
            there: feature.is_available().ok(),
        };
        return print_json(&Document {
            schema: "fullpipe/cc-list/1",
            links: kernel.ok().map(|kernel| kernel.links),
            features: Feature::ALL.map(has).into(),
            controllers: rows,
        });
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(10);
    println!("{:<width$} {:<10} what it is", "name", "state");
    for Row { name, state, about, missing, .. } in &rows {
        let state = if missing.is_some() { "cannot be" } else { state.text() };
        hanging(&format!("{name:<width$} {state:<10} "), 0, about);
        if let Some(missing) = missing {
            hanging(&format!("{:<width$} {:<10} ", "", ""), 0, missing);
        }
    }
    Ok(())
}
