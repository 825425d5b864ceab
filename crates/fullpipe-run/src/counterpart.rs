//! The simulator's counterparts of the kernel's own BBRs, in batches that run both engines.
//!
//! A scenario's `bbr` is the kernel's in the lab and BBR v1 in the simulator. A kernel built from
//! Google's branch has v3 under that name, or as `bbr3` beside v1: then the simulator runs
//! `bbr3:variant=linux`, which follows Google's code.

use crate::{RunError, engine};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{Case, FlowSpec, Setting};
use fullpipe_units::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// The simulated counterpart of a kernel's own v3.
const GOOGLE: &str = "bbr3:variant=linux";

/// Versions of the kernel's own BBRs, by name, as far as it reported them.
pub type BbrVersions = BTreeMap<String, u8>;

/// The result of [`follow`] for a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Followed {
    /// The kernel's controller is not v3.
    Same,
    /// It is now Google's v3.
    Changed,
    /// It stays as it is, since it has settings of BBR v1 or a variant.
    Kept,
}

/// Changes a flow's controller to Google's v3 if the kernel's controller of that name is v3.
fn follow(flow: &mut FlowSpec, versions: &BbrVersions) -> Followed {
    if versions.get(&flow.cc).is_none_or(|version| *version < 3) {
        return Followed::Same;
    }
    // `hz` is the clock that `lab compare --as-linux` sets; v3 has no such setting.
    let is_own = |key: &String| flow.cc == "bbr3" || key == "hz";
    if flow.settings.contains_key("variant") || !flow.settings.keys().all(is_own) {
        return Followed::Kept;
    }
    flow.settings.remove("hz");
    flow.settings.insert("variant".to_owned(), Setting::Text("linux".to_owned()));
    flow.label.get_or_insert_with(|| flow.cc.clone());
    "bbr3".clone_into(&mut flow.cc);
    Followed::Changed
}

/// Controllers of scenarios that are v3 in the kernel.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Differing {
    /// Those for which the simulator runs Google's v3.
    changed: BTreeSet<String>,
    /// Those that a flow keeps because of its settings.
    kept: BTreeSet<String>,
}

impl Differing {
    /// Adds those of another scenario.
    pub(crate) fn extend(&mut self, other: Differing) {
        self.changed.extend(other.changed);
        self.kept.extend(other.kept);
    }
}

/// The case as the simulator runs it beside a kernel with these BBRs, and the controllers that are v3
/// in the kernel.
pub(crate) fn counterpart(case: &Case, versions: &BbrVersions) -> (Case, Differing) {
    let mut own = case.clone();
    let mut differing = Differing::default();
    for flow in &mut own.scenario.flows {
        let name = flow.cc.clone();
        match follow(flow, versions) {
            Followed::Same => false,
            Followed::Changed => differing.changed.insert(name),
            Followed::Kept => differing.kept.insert(name),
        };
    }
    // A check names a controller or a flow. Rename the controller in it if that selects the same flows.
    let scenario = &case.scenario;
    let (before, after) = (scenario.connections(), own.scenario.connections());
    let selected = |flows: &[FlowSpec], name: &str| -> Vec<bool> {
        flows.iter().map(|flow| flow.cc == name || flow.label.as_deref() == Some(name)).collect()
    };
    for name in own.scenario.checks.iter_mut().filter_map(|check| check.flow.as_mut()) {
        let wanted = selected(&before, name);
        if selected(&after, name) != wanted && selected(&after, "bbr3") == wanted {
            "bbr3".clone_into(name);
        }
    }
    (own, differing)
}

/// One line for the user about controllers that are v3 in the kernel; `None` if there are none.
pub(crate) fn note(differing: &Differing) -> Option<String> {
    let listed = |names: &BTreeSet<String>| {
        let verb = if names.len() == 1 { "is" } else { "are" };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        format!("this kernel's {} {verb} BBR v3", names.join(" and "))
    };
    let names = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" and ");
    let Differing { changed, kept } = differing;
    match (changed.is_empty(), kept.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("{}: the simulator runs {GOOGLE} beside it", listed(changed))),
        (true, false) => Some(format!(
            "{}, and the simulator runs another version beside it: flows with {} keep their settings",
            listed(kept),
            names(kept)
        )),
        (false, false) => Some(format!(
            "{}: the simulator runs {GOOGLE} beside it, except flows with {} that have settings of another \
             version",
            listed(&changed.union(kept).cloned().collect()),
            names(kept)
        )),
    }
}

/// Simulates `case` as changed by [`counterpart`], on up to `threads` threads, and judges its
/// checks by the names of the scenario.
pub(crate) fn simulate(
    case: &Case,
    versions: &BbrVersions,
    threads: usize,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, RunError> {
    let (own, differing) = counterpart(case, versions);
    if differing.changed.is_empty() {
        return engine::simulate_case(case, threads, progress);
    }
    let mut recording = engine::simulate_case(&own, threads, progress)?;
    // With the settings of the user, which distinguish contenders.
    let contender = case.contender.clone().unwrap_or_else(|| case.scenario.cc());
    recording.contender = Some(format!("{contender} (as {GOOGLE})"));
    recording.label = case.label();
    let connections = case.scenario.connections();
    let simulated: Vec<String> = recording.flows.iter().map(|flow| flow.cc.clone()).collect();
    recording.flows.iter_mut().zip(connections).for_each(|(flow, connection)| flow.cc = connection.cc);
    recording.checks = case.scenario.judge(&recording);
    recording.flows.iter_mut().zip(simulated).for_each(|(flow, cc)| flow.cc = cc);
    Ok(recording)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Engine, Job, LabOptions, Monitor, vocabulary};
    use fullpipe_units::Span;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn case(flows: &str) -> Case {
        let text = format!("duration = '2s'\n[path]\nrate = '10mbit'\nrtt = '20ms'\n{flows}");
        let none = |_: &str| Err(String::new());
        fullpipe_experiment::scenario::parse("x", &text, &vocabulary(&[Engine::Sim]), &none)
            .unwrap()
            .remove(0)
    }

    fn versions(all: &[(&str, u8)]) -> BbrVersions {
        all.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect()
    }

    /// The controllers and settings of the flows that the simulator runs.
    fn runs(flows: &str, kernel: &[(&str, u8)]) -> Vec<String> {
        let case = case(flows);
        let (own, _) = counterpart(&case, &versions(kernel));
        let text = |flow: &FlowSpec| format!("{} {:?}", flow.cc, flow.settings);
        own.scenario.flows.iter().map(text).collect()
    }

    #[test]
    fn only_a_kernel_with_v3_changes_what_the_simulator_runs() {
        const BBR: &str = "[[flow]]\ncc = 'bbr'\n";
        const BBR3: &str = "[[flow]]\ncc = 'bbr3'\n";
        const LINUX: &str = r#"bbr3 {"variant": Text("linux")}"#;
        let (v1, v3) = ([("bbr", 1)], [("bbr", 3)]);
        assert_eq!(runs(BBR, &v1), ["bbr {}"]);
        assert_eq!(runs(BBR, &v3), [LINUX]);
        // `bbr3` in the lab is fp_bbr3 unless the kernel has its own.
        assert_eq!(runs(BBR3, &v3), ["bbr3 {}"]);
        assert_eq!(runs(&(BBR.to_owned() + BBR3), &[("bbr", 1), ("bbr3", 3)]), ["bbr {}", LINUX]);
        assert_eq!(runs("[[flow]]\ncc = 'cubic'\n", &v3), ["cubic {}"]);
        // Settings of v1 and a variant are the user's choice; the clock is not a setting of v3.
        let set = |cc: &str, settings: &str| format!("[[flow]]\ncc = '{cc}'\nsettings = {{ {settings} }}\n");
        assert!(runs(&set("bbr", "high_gain = 2.5"), &v3)[0].starts_with("bbr {"));
        assert_eq!(runs(&set("bbr", "hz = 250"), &v3), [LINUX]);
        let own = runs(&set("bbr3", "variant = 'letter'"), &[("bbr3", 3)]);
        assert_eq!(own, [r#"bbr3 {"variant": Text("letter")}"#]);
        let both = runs(&set("bbr3", "beta_percent = 80"), &[("bbr3", 3)]);
        assert_eq!(both, [r#"bbr3 {"beta_percent": Integer(80), "variant": Text("linux")}"#]);
    }

    #[test]
    fn recording_names_the_simulated_version_and_judges_checks_by_the_scenarios_names() {
        let checked = "[[flow]]\ncc = 'bbr'\ncount = 2\n[[flow]]\ncc = 'cubic'\n\
                       [[check]]\nflow = 'bbr'\ngoodput = '>= 0.1mbit'\n\
                       [[check]]\nflow = 'bbr'\nnever = ['ProbeBW']\n";
        let case = case(checked);
        let run = |kernel: &[(&str, u8)]| {
            simulate(&case, &versions(kernel), 1, &mut |_| ControlFlow::Continue(())).unwrap()
        };
        let (v1, v3) = (run(&[("bbr", 1)]), run(&[("bbr", 3)]));
        assert_eq!((v1.label.as_str(), v1.contender.as_deref()), ("bbr+cubic", None));
        assert_eq!(
            (v3.label.as_str(), v3.contender.as_deref()),
            ("bbr+cubic", Some("bbr+cubic (as bbr3:variant=linux)"))
        );
        let flows =
            |run: &Recording| run.flows.iter().map(|f| format!("{} {}", f.label, f.cc)).collect::<Vec<_>>();
        assert_eq!(flows(&v1), ["bbr 1 bbr", "bbr 2 bbr", "cubic cubic"]);
        assert_eq!(flows(&v3), ["bbr 1 bbr3", "bbr 2 bbr3", "cubic cubic"]);
        let passed = |run: &Recording| run.checks.iter().map(|check| check.passed).collect::<Vec<_>>();
        assert_eq!(passed(&v3), [true; 3], "{:?}", v3.checks);
        assert_eq!(passed(&v1), [true, false, false], "{:?}", v1.checks);
        let states = |run: &Recording| run.flows[0].states.iter().any(|s| s.state.starts_with("ProbeBW_"));
        assert!(!states(&v1) && states(&v3), "{:?}", v3.flows[0].states);
        // The scenario of the recording reproduces it, with its checks.
        let text = &v3.provenance.scenario;
        assert!(text.contains("variant = \"linux\"") && text.contains("goodput = \">= 100kbit\""), "{text}");
        let none = |_: &str| Err(String::new());
        let again = fullpipe_experiment::scenario::parse("x", text, &vocabulary(&[Engine::Sim]), &none);
        let again = again.unwrap_or_else(|e| panic!("{e}: {text}")).remove(0);
        let again = engine::simulate_case(&again, 1, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!((again.summary.goodput_bps, passed(&again)), (v3.summary.goodput_bps, vec![true; 3]));
    }

    #[test]
    fn contenders_with_other_settings_or_names_stay_apart_in_all_their_seeds() {
        const SET: &str = "[[flow]]\ncc = 'bbr3'\nsettings = { beta_percent = 80 }\n";
        let contestants = [
            ("[[flow]]\ncc = 'bbr'\n", None),
            ("[[flow]]\ncc = 'bbr3'\n", None),
            (SET, Some("bbr3:beta_percent=80".to_owned())),
        ];
        let kernel = versions(&[("bbr", 3), ("bbr3", 3)]);
        let mut names: Vec<(String, u64)> = Vec::new();
        for (flows, contender) in contestants {
            for seed in [1, 2] {
                let mut one = case(flows);
                one.scenario.seed = seed;
                one.contender = contender.clone();
                let run = simulate(&one, &kernel, 1, &mut |_| ControlFlow::Continue(())).unwrap();
                assert_eq!(run.cc, "bbr3");
                names.push((crate::agreement::label_without_seed(&run), run.seed));
            }
        }
        let named = |name: &str| [1, 2].map(|seed| (format!("{name} (as bbr3:variant=linux)"), seed));
        assert_eq!(names, [named("bbr"), named("bbr3"), named("bbr3:beta_percent=80")].concat());
    }

    /// Collects the notes.
    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl Monitor for Notes {
        fn note(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    #[test]
    fn batch_with_both_engines_notes_the_simulated_version_in_one_line() {
        let job = |engine, cc: &str| Job { engine, case: case(&format!("[[flow]]\ncc = '{cc}'\n")) };
        let notes = |jobs: Vec<Job>, kernel: &[(&str, u8)]| {
            let lab = LabOptions { bbr_versions: Some(versions(kernel)), ..LabOptions::default() };
            let notes = Notes::default();
            Batch::new(jobs).with_lab(lab).announce_counterparts(&notes);
            notes.0.into_inner().unwrap()
        };
        let both = |cc: &str| vec![job(Engine::Sim, cc), job(Engine::Lab, cc)];
        let line = "this kernel's bbr is BBR v3: the simulator runs bbr3:variant=linux beside it";
        assert_eq!(notes([both("bbr"), both("bbr"), both("cubic")].concat(), &[("bbr", 3)]), [line]);
        assert_eq!(notes(both("bbr"), &[("bbr", 1)]), [""; 0]);
        assert_eq!(notes(vec![job(Engine::Sim, "bbr")], &[("bbr", 3)]), [""; 0], "the simulator alone");
        assert_eq!(notes(vec![job(Engine::Lab, "bbr")], &[("bbr", 3)]), [""; 0], "the lab alone");
        let named = notes([both("bbr"), both("bbr3")].concat(), &[("bbr", 3), ("bbr3", 3)]);
        assert!(
            named.len() == 1 && named[0].starts_with("this kernel's bbr and bbr3 are BBR v3"),
            "{named:?}"
        );
        // Settings of v1 stay.
        let set = |settings: &str| {
            let flow = format!("[[flow]]\ncc = 'bbr'\nsettings = {{ {settings} }}\n");
            [Engine::Sim, Engine::Lab].map(|engine| Job { engine, case: case(&flow) }).to_vec()
        };
        let kept = "this kernel's bbr is BBR v3, and the simulator runs another version beside it: flows \
                    with bbr keep their settings";
        assert_eq!(notes(set("high_gain = 2.5"), &[("bbr", 3)]), [kept]);
        assert_eq!(notes(set("high_gain = 2.5"), &[("bbr", 1)]), [""; 0]);
        let some = "this kernel's bbr is BBR v3: the simulator runs bbr3:variant=linux beside it, except \
                    flows with bbr that have settings of another version";
        assert_eq!(notes([both("bbr"), set("high_gain = 2.5")].concat(), &[("bbr", 3)]), [some]);
    }

    /// Stops the batch after its first run, before the lab's.
    #[derive(Default)]
    struct FirstRun(AtomicBool);

    impl Monitor for FirstRun {
        fn finished(&self, _: Span) {
            self.0.store(true, Ordering::Relaxed);
        }

        fn interrupted(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn beside_a_kernel_with_v3_the_batch_simulates_it() {
        let simulated = |version| {
            let jobs =
                [Engine::Sim, Engine::Lab].map(|engine| Job { engine, case: case("[[flow]]\ncc = 'bbr'\n") });
            let lab =
                LabOptions { bbr_versions: Some(versions(&[("bbr", version)])), ..LabOptions::default() };
            let outcome = Batch::new(jobs.into()).with_lab(lab).run(&FirstRun::default());
            assert_eq!((outcome.numbers.as_slice(), outcome.interrupted), (&[0][..], true));
            outcome.results.runs.into_iter().next().unwrap().cc
        };
        assert_eq!((simulated(1).as_str(), simulated(3).as_str()), ("bbr", "bbr3"));
    }

    #[test]
    fn the_simulator_alone_runs_bbr_v1_whatever_the_kernel_has() {
        let lab = LabOptions { bbr_versions: Some(versions(&[("bbr", 3)])), ..LabOptions::default() };
        let jobs = vec![Job { engine: Engine::Sim, case: case("[[flow]]\ncc = 'bbr'\n") }];
        let run = Batch::new(jobs).with_lab(lab).run(&()).results.runs.remove(0);
        assert_eq!((run.cc.as_str(), run.contender), ("bbr", None));
    }
}
