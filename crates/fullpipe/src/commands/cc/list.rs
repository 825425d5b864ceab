//! `fullpipe cc list`: the controllers that this kernel can load, determined by its verifier.

use super::{failure, settings};
use crate::failure::Failure;
use crate::print::print_json;
use crate::runs::print_hanging;
use fullpipe_cc::bbr::v3::{DRAFT_COMMIT, DRAFT_REVISION};
use fullpipe_ebpf::features::Feature;
use fullpipe_ebpf::kernel::{self, Kernel};
use fullpipe_ebpf::{Controller, Error, lifecycle, loader, pins};
use fullpipe_host::facts::Facts;
use fullpipe_host::host::Machine;
use serde::Serialize;

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    /// The draft's revision that `fp_bbr3` follows, and the reviewed commit of its repository.
    draft: &'static str,
    draft_commit: &'static str,
    /// Whether the kernel registers controllers by BPF links; without, a name is unavailable for a
    /// moment during an update. None if unknown.
    links: Option<bool>,
    features: Vec<FeatureSupport>,
    controllers: Vec<Row>,
}

/// A kernel feature that controllers need.
#[derive(Serialize)]
struct FeatureSupport {
    feature: &'static str,
    about: &'static str,
    /// The first version of Linux that has it.
    since: &'static str,
    /// None if unknown.
    available: Option<bool>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    state: State,
    /// Whether the kernel accepts its programs; none for the kernel's own controllers, and if
    /// unknown.
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
    /// By fullpipe.
    Loaded,
    /// The kernel's own, or loaded by another program.
    Available,
    Absent,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            State::Loaded => "loaded",
            State::Available => "available",
            State::Absent => "-",
        }
    }
}

/// An error without its help.
fn short(error: &Error) -> String {
    error.missing().map_or_else(|| error.to_string(), |(what, _)| what)
}

pub fn run(json: bool) -> Result<(), Failure> {
    let available = kernel::available().map_err(failure)?;
    let loaded = lifecycle::loaded().map_err(failure)?;
    let kernel = Kernel::detect();
    // Only root can see what is pinned.
    let pins_readable = pins::are_readable();
    let about = |name: &str, controller: Controller| {
        let set = lifecycle::tune(name, &[]).ok().and_then(|all| settings::changed(&all));
        format!("{}{}", controller.about(), set.map_or_else(String::new, |set| format!("; {set}")))
    };
    let mut rows: Vec<Row> = Controller::ALL
        .into_iter()
        .map(|controller| {
            let is_available = available.iter().any(|name| name == controller.name());
            let why_not = match &kernel {
                Ok(_) if is_available => None,
                Ok(kernel) => loader::verify(controller, kernel).err().as_ref().map(short),
                Err(error) => Some(short(error)),
            };
            // Without permission to load, the verifier cannot be asked.
            let is_known = is_available || nix::unistd::Uid::effective().is_root();
            let loadable = is_known.then_some(why_not.is_none());
            let missing = why_not.filter(|_| is_known);
            Row {
                name: controller.name().to_owned(),
                state: if is_available { State::Loaded } else { State::Absent },
                loadable,
                about: about(controller.name(), controller),
                missing,
            }
        })
        .collect();
    let host = Machine::new();
    let facts = Facts::gather(&host);
    // The same name is v1 in Linux and v3 in kernels built from Google's branch.
    let version_of = |name: &str| facts.bbr_version(&host, name).map(|version| version.describe());
    for name in available.iter().filter(|name| !Controller::ALL.iter().any(|ours| ours.name() == *name)) {
        let (state, about) = match loaded.iter().find(|(pinned, _)| pinned == name) {
            Some((_, Some(controller))) => (State::Loaded, about(name, *controller)),
            Some((_, None)) => (State::Loaded, "loaded by another version of fullpipe".to_owned()),
            None if pins_readable => {
                let version = version_of(name).map_or_else(String::new, |version| format!(": {version}"));
                (State::Available, format!("part of the kernel{version}"))
            }
            None => (State::Available, "part of the kernel, or loaded by root under another name".to_owned()),
        };
        rows.push(Row { name: name.clone(), state, loadable: None, about, missing: None });
    }
    if json {
        let support = |feature: Feature| FeatureSupport {
            feature: feature.name(),
            about: feature.about(),
            since: feature.since(),
            available: feature.is_available().ok(),
        };
        return print_json(&Document {
            schema: "fullpipe/cc-list/1",
            draft: DRAFT_REVISION,
            draft_commit: DRAFT_COMMIT,
            links: kernel.ok().map(|kernel| kernel.links),
            features: Feature::ALL.map(support).into(),
            controllers: rows,
        });
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(10);
    println!("{:<width$} {:<10} description", "name", "state");
    for Row { name, state, about, missing, .. } in &rows {
        let state = if missing.is_some() { "unusable" } else { state.text() };
        print_hanging(&format!("{name:<width$} {state:<10} "), 0, about);
        if let Some(missing) = missing {
            print_hanging(&format!("{:<width$} {:<10} ", "", ""), 0, missing);
        }
    }
    println!("\nfp_bbr3 follows {DRAFT_REVISION}, reviewed at {DRAFT_COMMIT:.7}");
    Ok(())
}
