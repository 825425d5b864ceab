//! The scenario files of the project: each runs and passes its checks, and together they cover the
//! scenario language.

use crate::lab;
use fullpipe_experiment::scenario::{App, Case, Check, FlowSpec, Vocabulary, parse};
use fullpipe_path::{
    AggregateSpec, BlackoutSpec, JitterSpec, Limit, LinkSpec, LossSpec, PolicerSpec, QueueSpec, ReorderSpec,
    ScheduledChange,
};
use fullpipe_run::{Batch, Engine, Job};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// Each file's name with its runs.
fn files() -> Vec<(String, Vec<Case>)> {
    files_in(&directory())
}

fn files_in(directory: &Path) -> Vec<(String, Vec<Case>)> {
    let vocabulary = Vocabulary::new(fullpipe_cc::CONTROLLERS.iter().map(|c| c.name));
    let open = |file: &str| fs::read_to_string(directory.join(file)).map_err(|e| e.to_string());
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(directory.join(&name)).unwrap();
        let cases = parse(&name, &text, &vocabulary, &open).unwrap_or_else(|e| panic!("{e}"));
        (name, cases)
    };
    names.into_iter().map(read).collect()
}

/// The keys that the published schema allows in a part of a scenario.
fn keys_of_schema<T: schemars::JsonSchema>() -> BTreeSet<String> {
    let schema = schemars::schema_for!(T).to_value();
    schema["properties"].as_object().unwrap().keys().cloned().collect()
}

/// The keys that `part` uses.
fn keys_in(part: &impl serde::Serialize) -> BTreeSet<String> {
    let written = serde_json::to_value(part).unwrap();
    let printed = |(key, value): (&String, &Value)| (!value.is_null()).then(|| key.clone());
    written.as_object().unwrap().iter().filter_map(printed).collect()
}

fn kind_of(part: &impl serde::Serialize) -> String {
    serde_json::to_value(part).unwrap()["kind"].as_str().unwrap().to_owned()
}

fn assert_nothing_missing(what: &str, all: BTreeSet<String>, used: &BTreeSet<String>) {
    assert!(!all.is_empty());
    let missing: Vec<&String> = all.difference(used).collect();
    assert!(missing.is_empty(), "no scenario shows these {what}: {missing:?}");
}

#[test]
fn every_scenario_passes_its_checks() {
    let files = files();
    assert!(files.len() >= 16, "only {} files", files.len());
    all_pass(&files);
}

/// The packets that a run's bottleneck carries at its initial rate.
fn packets(case: &Case) -> f64 {
    let rates = case.scenario.path.forward.iter().filter_map(|link| link.rate.as_ref());
    let rate = rates.map(|rate| rate.as_bits_per_sec() as f64).fold(f64::INFINITY, f64::min);
    case.scenario.duration.as_secs_f64() * rate / (f64::from(case.scenario.mtu) * 8.0)
}

/// Files with many seeds: of each the runs of the first one, evenly chosen if they are long.
#[test]
fn scenarios_of_the_draft_notes_pass_their_checks() {
    let mut files = files_in(&directory().join("draft-notes"));
    let notes = fs::read_to_string(directory().join("../docs/explanation/draft-notes.md")).unwrap();
    for (name, cases) in &mut files {
        assert!(notes.contains(&format!("scenarios/draft-notes/{name}")), "{name} is in no note");
        assert!(cases.iter().any(|case| !case.scenario.checks.is_empty()), "{name} checks nothing");
        let first = cases[0].scenario.seed;
        cases.retain(|case| case.scenario.seed == first);
        let every = (cases.iter().map(packets).sum::<f64>() / 4e6).ceil().max(1.0) as usize;
        *cases = cases.drain(..).step_by(every).collect();
    }
    assert_eq!(files.len(), 8);
    all_pass(&files);
}

fn all_pass(files: &[(String, Vec<Case>)]) {
    let runs: Vec<(&String, &Case)> =
        files.iter().flat_map(|(name, cases)| cases.iter().map(move |case| (name, case))).collect();
    let jobs = runs.iter().map(|(_, case)| Job { engine: Engine::Sim, case: (*case).clone() }).collect();
    let recordings =
        Batch::new(jobs).keep_series(false).run(&()).into_runs().unwrap_or_else(|e| panic!("{e}"));
    let mut failed = Vec::new();
    for ((file, case), recording) in runs.iter().zip(recordings) {
        assert_eq!(recording.checks.is_empty(), case.scenario.checks.is_empty());
        for check in recording.checks.iter().filter(|c| !c.passed) {
            failed.push(format!("{file}, {}: {} but {}", case.label(), check.check, check.measured));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn every_scenario_has_a_description_and_checks() {
    for (name, cases) in files() {
        let first = &cases[0].scenario;
        assert!(!first.title.is_empty(), "{name} has no title");
        assert!(first.about.len() > first.title.len(), "{name} does not say what it is about");
        assert!(cases.iter().any(|case| !case.scenario.checks.is_empty()), "{name} checks nothing");
    }
}

#[test]
fn the_table_names_every_scenario() {
    let table = fs::read_to_string(directory().join("README.md")).unwrap();
    for (name, _) in files() {
        assert!(table.contains(&format!("({name})")), "{name} is not in scenarios/README.md");
    }
}

#[test]
fn scenarios_cover_every_element_of_a_path() {
    let (mut keys, mut queues, mut losses) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut triggers, mut chains) = (0, 0);
    for case in files().iter().flat_map(|(_, cases)| cases) {
        let path = &case.scenario.path;
        triggers += case.scenario.triggers.len();
        chains += usize::from(path.forward.len() > 1);
        for link in path.forward.iter().chain(&path.reverse) {
            keys.extend(keys_in(link));
            queues.extend(link.queue.iter().map(kind_of));
            losses.extend(link.loss.iter().chain(&link.ingress_loss).map(kind_of));
        }
    }
    assert_nothing_missing("parts of a link", keys_of_schema::<LinkSpec>(), &keys);
    assert_nothing_missing("queues", QueueSpec::kinds().map(|(name, _)| name).collect(), &queues);
    assert_nothing_missing("losses", LossSpec::kinds().map(|(name, _)| name).collect(), &losses);
    assert!(triggers > 0 && chains > 0, "{triggers} triggers, {chains} paths of several links");
}

#[test]
fn scenarios_cover_every_key_of_the_elements() {
    let mut used: [BTreeSet<String>; 6] = Default::default();
    let mut limits = BTreeSet::new();
    for case in files().iter().flat_map(|(_, cases)| cases) {
        let path = &case.scenario.path;
        for link in path.forward.iter().chain(&path.reverse) {
            used[0].extend(link.aggregate.iter().flat_map(keys_in));
            used[1].extend(link.blackouts.iter().flat_map(keys_in));
            used[2].extend(link.jitter.iter().flat_map(keys_in));
            used[3].extend(link.policer.iter().flat_map(keys_in));
            used[4].extend(link.reorder.iter().flat_map(keys_in));
            used[5].extend(link.schedule.iter().flat_map(keys_in));
            limits.extend(link.queue.iter().map(limit_of));
        }
    }
    assert_nothing_missing("keys of `aggregate`", keys_of_schema::<AggregateSpec>(), &used[0]);
    assert_nothing_missing("keys of `blackouts`", keys_of_schema::<BlackoutSpec>(), &used[1]);
    assert_nothing_missing("keys of `jitter`", keys_of_schema::<JitterSpec>(), &used[2]);
    assert_nothing_missing("keys of `policer`", keys_of_schema::<PolicerSpec>(), &used[3]);
    assert_nothing_missing("keys of `reorder`", keys_of_schema::<ReorderSpec>(), &used[4]);
    assert_nothing_missing("keys of `schedule`", keys_of_schema::<ScheduledChange>(), &used[5]);
    let all = ["bytes", "packets", "time", "bdp"].map(str::to_owned).into();
    assert_nothing_missing("ways to write a buffer", all, &limits);
}

/// The unit in which a queue's limit is written.
fn limit_of(queue: &QueueSpec) -> String {
    let written = serde_json::to_value(queue).unwrap();
    let limit: Limit = serde_json::from_value(written["limit"].clone()).unwrap();
    let unit = match limit {
        Limit::Bytes(_) => "bytes",
        Limit::Packets(_) => "packets",
        Limit::Time(_) => "time",
        Limit::Bdp(_) => "bdp",
    };
    unit.to_owned()
}

#[test]
fn scenarios_cover_every_flow_application_and_check() {
    let (mut keys, mut apps, mut checks) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for case in files().iter().flat_map(|(_, cases)| cases) {
        for flow in &case.scenario.flows {
            keys.extend(keys_in(flow));
            apps.insert(kind_of(&flow.app));
        }
        for check in &case.scenario.checks {
            checks.extend(keys_in(check));
        }
    }
    assert_nothing_missing("settings of a flow", keys_of_schema::<FlowSpec>(), &keys);
    let schema = schemars::schema_for!(App).to_value();
    let kinds = schema["oneOf"].as_array().unwrap();
    let kinds = kinds.iter().map(|kind| kind["properties"]["kind"]["const"].as_str().unwrap().to_owned());
    assert_nothing_missing("applications", kinds.collect(), &apps);
    // A check's `where` is resolved once its run is known.
    let bounds = keys_of_schema::<Check>().into_iter().filter(|key| key != "where").collect();
    assert_nothing_missing("bounds", bounds, &checks);
}

#[test]
fn lab_shell_uses_the_path_of_a_scenario_file() {
    let shell = |file: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.args(["lab", "shell", "--json", "--path"]).arg(directory().join(file)).args(["--", "true"]);
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stderr.clone()).unwrap();
        (output, printed)
    };
    let (output, printed) = shell("reordering.toml");
    assert!(output.status.code() == Some(2) && printed.contains("varies the path"), "{printed}");

    let (output, printed) = shell("long-chain.toml");
    if lab::is_missing(&output) {
        return;
    }
    let report: Value = serde_json::from_str(&printed).unwrap();
    let files = files();
    let path = &files.iter().find(|(name, _)| name == "long-chain.toml").unwrap().1[0].scenario.path;
    assert_eq!(
        report["links"].as_array().unwrap().len(),
        path.forward.len() + path.reverse.len(),
        "{printed}"
    );
}

/// As docs/explanation/lab.md states.
#[test]
fn a_lab_shell_shares_all_but_the_network_with_the_host() {
    const ACCESS: &str = "test -w /proc/sys/kernel/panic; echo $?; test -w /sys/fs/cgroup; echo $?; id -u";
    let script = format!(
        "ls /sys/class/net && echo -- && ip -o link | cut -d : -f 2 && echo -- && {{ {ACCESS}; }} && \
         echo written >shared"
    );
    let devices = || -> Vec<String> {
        let names = std::fs::read_dir("/sys/class/net").unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    };
    let before = devices();
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(["lab", "shell", "--", "sh", "-c", &script]).current_dir(directory.path());
    let output = command.output().unwrap();
    if lab::is_missing(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let parts: Vec<Vec<&str>> =
        printed.split("--\n").map(|part| part.split_ascii_whitespace().collect()).collect();
    // Other tests create and remove devices meanwhile.
    let kept: Vec<String> = devices().into_iter().filter(|name| before.contains(name)).collect();
    assert!(kept.iter().all(|name| parts[0].contains(&name.as_str())), "{kept:?}: {printed}");
    assert!(parts[1].iter().any(|name| !parts[0].contains(name)), "{printed}");
    let outside = Command::new("sh").args(["-c", ACCESS]).output().unwrap();
    assert_eq!(parts[2].join("\n") + "\n", String::from_utf8(outside.stdout).unwrap(), "access inside");
    assert_eq!(std::fs::read_to_string(directory.path().join("shared")).unwrap(), "written\n");
}
