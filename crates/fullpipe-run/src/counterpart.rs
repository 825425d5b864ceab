//! The simulator's counterparts of the kernel's own BBRs, in batches that run both engines.
//!
//! A scenario's `bbr` is the kernel's in the lab and BBR v1 in the simulator. A kernel built from
//! Google's branch has v3 under that name, or as `bbr3` beside v1: then the simulator runs
//! `bbr3:variant=linux`, which follows Google's code.

use crate::{RunError, engine};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::{Case, FlowSpec, Setting};
use fullpipe_units::Time;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// What the simulator runs beside a kernel's own v3.
const GOOGLE: &str = "bbr3:variant=linux";

/// Versions of the kernel's own BBRs, by name, as far as it reported them.
pub type BbrVersions = BTreeMap<String, u8>;

/// Makes a flow's controller Google's v3 if the kernel's of that name is; returns whether it did. A
/// flow with settings of BBR v1, or with a variant, stays as it is.
fn follow(flow: &mut FlowSpec, versions: &BbrVersions) -> bool {
    if versions.get(&flow.cc).is_none_or(|version| *version < 3) {
        return false;
    }
    // The clock that `lab compare --as-linux` sets; v3 has no such setting.
    let is_own = |key: &String| flow.cc == "bbr3" || key == "hz";
    if flow.settings.contains_key("variant") || !flow.settings.keys().all(is_own) {
        return false;
    }
    flow.settings.remove("hz");
    flow.settings.insert("variant".to_owned(), Setting::Text("linux".to_owned()));
    flow.label.get_or_insert_with(|| flow.cc.clone());
    "bbr3".clone_into(&mut flow.cc);
    true
}

/// The case as the simulator runs it beside a kernel with these BBRs, and the names of the
/// controllers that differ; `None` if nothing does.
pub(crate) fn counterpart(case: &Case, versions: &BbrVersions) -> Option<(Case, Vec<String>)> {
    let mut own = case.clone();
    let mut names = Vec::new();
    for flow in &mut own.scenario.flows {
        let name = flow.cc.clone();
        if follow(flow, versions) && !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then_some((own, names))
}

/// One line for the user about the controllers `names`.
pub(crate) fn note(names: &[String]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("this kernel's {} {verb} BBR v3: the simulator runs {GOOGLE} beside it", names.join(" and "))
}

/// Simulates `case` as [`counterpart`] has it, and judges its checks by the names of the scenario.
pub(crate) fn simulate(
    case: &Case,
    versions: &BbrVersions,
    progress: &mut dyn FnMut(Time) -> ControlFlow<()>,
) -> Result<Recording, RunError> {
    let Some((mut own, _)) = counterpart(case, versions) else { return engine::simulate(case, progress) };
    own.scenario.checks.clear();
    let mut recording = engine::simulate(&own, progress)?;
    let mut contender: Vec<String> = Vec::new();
    for flow in &own.scenario.flows {
        let is_google = flow.settings.get("variant") == Some(&Setting::Text("linux".to_owned()));
        let name = if is_google { GOOGLE } else { &flow.cc };
        if !contender.iter().any(|known| known == name) {
            contender.push(name.to_owned());
        }
    }
    recording.contender = Some(contender.join("+"));
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
        let own = counterpart(&case, &versions(kernel)).map_or(case, |(own, _)| own);
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
    fn the_recording_says_what_ran_and_checks_go_by_the_scenarios_names() {
        let checked = "[[flow]]\ncc = 'bbr'\ncount = 2\n[[flow]]\ncc = 'cubic'\n\
                       [[check]]\nflow = 'bbr'\ngoodput = '>= 0.1mbit'\n\
                       [[check]]\nflow = 'bbr'\nnever = ['ProbeBW']\n";
        let case = case(checked);
        let run = |kernel: &[(&str, u8)]| {
            simulate(&case, &versions(kernel), &mut |_| ControlFlow::Continue(())).unwrap()
        };
        let (v1, v3) = (run(&[("bbr", 1)]), run(&[("bbr", 3)]));
        assert_eq!((v1.label.as_str(), v1.contender.as_deref()), ("bbr+cubic", None));
        assert_eq!(
            (v3.label.as_str(), v3.contender.as_deref()),
            ("bbr+cubic", Some("bbr3:variant=linux+cubic"))
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
        assert!(v3.provenance.scenario.contains("variant = \"linux\""), "{}", v3.provenance.scenario);
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
    fn a_batch_with_both_engines_says_so_in_one_line() {
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
