//! Reads a scenario file and expands it into its runs.

use super::sweep::Sweep;
use super::{Fault, Scenario, ScenarioError, is_program};
use crate::document::{Document, FileError, nearest};
use crate::recording::Variation;
use fullpipe_path::{LinkSpec, TraceError, TraceSpec};
use serde::Deserialize;
use std::collections::BTreeSet;
use toml::de::DeTable;

/// The controllers a scenario may use and the engine's limitations: supplied by the caller, not
/// part of the file format.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Vocabulary {
    /// Names of congestion controllers.
    pub controllers: Vec<String>,
    /// Controllers that exist but cannot be used here.
    pub unavailable: Vec<UnavailableController>,
    /// Whether the engine counts lost packets per run only, not over time.
    pub whole_run_loss_only: bool,
    /// Whether the endpoints use a kernel's TCP, with its own ACK policy and timer ticks.
    pub uses_kernel_tcp: bool,
}

/// A controller that exists but is not available to the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnavailableController {
    /// Its name.
    pub name: String,
    /// Why it cannot be used.
    pub reason: String,
    /// What to do instead.
    pub help: String,
}

impl Vocabulary {
    /// A vocabulary of these controllers.
    pub fn new<S: Into<String>>(controllers: impl IntoIterator<Item = S>) -> Self {
        let controllers = controllers.into_iter().map(Into::into).collect();
        Vocabulary { controllers, ..Vocabulary::default() }
    }

    /// Checks that a flow may use the controller `name`.
    ///
    /// # Errors
    /// Why not, with the nearest name or the list of known names as help.
    pub fn check_controller(&self, name: &str) -> Result<(), Fault> {
        if self.controllers.iter().any(|c| c == name) {
            return Ok(());
        }
        if let Some(refused) = self.unavailable.iter().find(|r| r.name == name) {
            return Err(Fault::new("cc", refused.reason.clone()).help(refused.help.clone()));
        }
        // A scenario is data, possibly of a stranger's: it must not start programs.
        if is_program(name) {
            let reason = format!("`{}` would start a program, which a file must not", name.escape_debug());
            return Err(Fault::new("cc", reason).help(
                "name it on the command line: `fullpipe race exec:./mycc`, \
                 `fullpipe conformance --cc exec:./mycc`",
            ));
        }
        if name.trim_end_matches(':') == "policy" {
            return Err(Fault::new("cc", "`policy` needs a file").help("write `cc = \"policy:FILE.json\"`"));
        }
        let unavailable = self.unavailable.iter().map(|refused| refused.name.as_str());
        let known = self.controllers.iter().map(String::as_str).chain(unavailable);
        let fault = Fault::new("cc", format!("unknown controller `{name}`"));
        Err(match nearest(name, known) {
            Some(close) => fault.help(format!("did you mean `{close}`?")),
            None => fault.help(format!("known: {}", self.controllers.join(", "))),
        })
    }
}

/// One run of a file, with sweep and repeats resolved.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// The run, with its own seed.
    pub scenario: Scenario,
    /// What the run compares, if its controllers alone do not identify it.
    pub contender: Option<String>,
    /// The swept keys and their values in this run, and its seed if it is repeated.
    pub varied: Vec<Variation>,
}

impl Case {
    /// The value of the swept `key` in this run; `None` if the key is not swept.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.varied.iter().find(|v| v.key == key).map(|v| v.value.as_str())
    }

    /// A label that distinguishes it from the file's other runs (`bbr, rate 10mbit`).
    pub fn label(&self) -> String {
        let mut parts = vec![self.contender.clone().unwrap_or_else(|| self.scenario.cc())];
        parts.extend(self.varied.iter().filter(|v| !v.is_cc()).map(Variation::label));
        parts.join(", ")
    }
}

/// Limit on the runs of one file.
const MAX_CASES: usize = 100_000;

/// Parses the scenario file `name` with the contents `text` into its runs: every combination of
/// the values in `[sweep]`, each repeated with ascending seeds.
///
/// # Errors
/// What is wrong, where in the file, and what to do. A check whose `where` matches none of the
/// runs is an error.
/// Files named in it (path traces, policies) are read through `open`, which receives the name as
/// written and returns the reason if it fails.
pub fn parse(
    name: &str,
    text: &str,
    vocabulary: &Vocabulary,
    open: &dyn Fn(&str) -> Result<String, String>,
) -> Result<Vec<Case>, ScenarioError> {
    let reader = Document { name, text };
    let mut document = DeTable::parse(text).map_err(|e| reader.toml_error(&e))?;
    let sweep = Sweep::extract_from(document.get_mut()).map_err(|(span, reason)| reader.at(span, reason))?;
    if sweep.combinations() > MAX_CASES {
        return Err(reader
            .at(sweep.span(), format!("expands to {} runs, more than {MAX_CASES}", sweep.combinations())));
    }
    let mut cases = Vec::new();
    let mut memory: u64 = 0;
    let (mut checks, mut in_use) = (0, BTreeSet::new());
    for i in 0..sweep.combinations() {
        let mut table = document.clone();
        // Swept values keep their span, so errors point at them.
        let varied = sweep.apply(i, table.get_mut()).map_err(|(span, reason)| reader.at(span, reason))?;
        let deserializer = toml::Deserializer::from(table.clone());
        let mut scenario = Scenario::deserialize(deserializer).map_err(|e| {
            let missing = |key: &str| {
                table.get_ref().get(key).is_none() && e.message().contains(&format!("missing field `{key}`"))
            };
            let shown = match () {
                () if missing("path") => "[path]",
                () if missing("flow") => "[[flow]]",
                () => return reader.toml_error(&e),
            };
            FileError::whole(name, format!("the table {shown} is missing"))
                .with_help(Some("`fullpipe schema scenario` describes the file".to_owned()))
        })?;
        load_files(&mut scenario, open)
            .map_err(|fault| reader.fault(&fault, table.get_ref(), &run_suffix(&varied)))?;
        scenario
            .validate(vocabulary)
            .map_err(|fault| reader.fault(&fault, table.get_ref(), &run_suffix(&varied)))?;
        checks = scenario.checks.len();
        in_use.extend((0..checks).filter(|&n| scenario.checks[n].applies_to(&varied)));
        scenario.checks.retain(|check| check.applies_to(&varied));
        for check in &mut scenario.checks {
            check.case.clear();
        }
        let repeats = std::mem::replace(&mut scenario.repeats, 1);
        if u64::from(repeats) > (MAX_CASES - cases.len()) as u64 {
            let fault = Fault::new("repeats", format!("makes more than {MAX_CASES} runs"));
            return Err(reader.fault(&fault, table.get_ref(), &run_suffix(&varied)));
        }
        memory = memory.saturating_add(bytes_of(&scenario).saturating_mul(repeats.into()));
        if memory > MAX_BYTES {
            let reason = format!("makes runs that together hold more than {} GiB", MAX_BYTES >> 30);
            let key = if repeats > 1 { "repeats" } else { "path" };
            let fault = Fault::new(key, reason)
                .help("make fewer runs, or use `count` for flows that are alike, and a shorter trace");
            return Err(reader.fault(&fault, table.get_ref(), &run_suffix(&varied)));
        }
        for i in 0..repeats {
            let mut one = scenario.clone();
            one.seed = scenario.seed.wrapping_add(u64::from(i));
            let mut varied = varied.clone();
            if repeats > 1 {
                varied.push(Variation::new(Variation::SEED, one.seed.to_string()));
            }
            cases.push(Case { scenario: one, contender: None, varied });
        }
    }
    // A misspelt value would otherwise disable the check silently.
    if let Some(n) = (0..checks).find(|n| !in_use.contains(n)) {
        let fault = Fault::new(&format!("check.{n}.where"), "no run of the sweep has these values")
            .help(format!("the sweep has {}", sweep.description()));
        return Err(reader.fault(&fault, document.get_ref(), ""));
    }
    Ok(cases)
}

/// Maximum bytes that the runs of a file hold before the first one begins.
const MAX_BYTES: u64 = 4 << 30;

/// The bytes that a run's scenario holds, roughly: each run has its own copy, except of policies.
fn bytes_of(scenario: &Scenario) -> u64 {
    let links = scenario.path.forward.iter().chain(&scenario.path.reverse);
    let link = |link: &LinkSpec| {
        let times = match &link.trace {
            Some(TraceSpec::Inline(trace)) => trace.ms.len(),
            _ => 0,
        };
        (size_of::<LinkSpec>() + times * size_of::<u64>() + size_of_val(&*link.schedule)) as u64
    };
    size_of_val(&*scenario.flows) as u64 + links.map(link).sum::<u64>()
}

/// Replaces the names of trace files by their contents, and adds the contents of policy files.
fn load_files(scenario: &mut Scenario, open: &dyn Fn(&str) -> Result<String, String>) -> Result<(), Fault> {
    struct Unreadable(String);
    impl From<TraceError> for Unreadable {
        fn from(e: TraceError) -> Self {
            Unreadable(e.to_string())
        }
    }
    for (direction, links) in
        [("forward", &mut scenario.path.forward), ("reverse", &mut scenario.path.reverse)]
    {
        for (i, link) in links.iter_mut().enumerate() {
            link.load_trace(|file| open(file).map_err(Unreadable))
                .map_err(|Unreadable(reason)| Fault::new(&format!("path.{direction}.{i}.trace"), reason))?;
        }
    }
    for (i, flow) in scenario.flows.iter_mut().enumerate() {
        flow.load_policy(open).map_err(|fault| fault.under(&format!("flow.{i}")))?;
    }
    Ok(())
}

/// The published JSON Schema of a scenario file.
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Scenario).to_value();
    if let Some(properties) = schema.get_mut("properties").and_then(|p| p.as_object_mut()) {
        properties.insert(
            "sweep".into(),
            serde_json::json!({
                "description": "Dotted keys of this file, each with a list of values or a range such as \
                    `0.01%..10% log 8`; every combination is run",
                "type": "object",
                "additionalProperties": {
                    "anyOf": [{ "type": "array", "minItems": 1 }, { "type": "string" }]
                }
            }),
        );
    }
    schema
}

/// The suffix of an error message that names the run of the sweep.
fn run_suffix(varied: &[Variation]) -> String {
    if varied.is_empty() {
        return String::new();
    }
    let case: Vec<String> = varied.iter().map(|v| format!("{} = {}", v.key, v.value)).collect();
    format!(" (in the run with {})", case.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::{Rate, Span};
    use proptest::prelude::*;

    const FILE: &str = r#"
title = "two flows"
duration = "20s"

[path]
rate = "100mbit"
rtt = "40ms"

[[flow]]
cc = "bbr"

[[flow]]
cc = "cubic"
start = "2s"
count = 2
"#;

    fn vocabulary() -> Vocabulary {
        Vocabulary::new(["bbr", "bbr3", "cubic", "reno"])
    }

    fn read(text: &str) -> Result<Vec<Case>, ScenarioError> {
        parse("a.toml", text, &vocabulary(), &|file| Err(format!("no file `{file}`")))
    }

    #[test]
    fn runs_that_would_fill_the_memory_are_refused() {
        let path = "duration = '1s'\n[path]\nrate = '1mbit'\nrtt = '20ms'\n";
        let flows = "[[flow]]\ncc = 'bbr'\n".repeat(1000);
        let refused = error(&format!("repeats = 100000\n{path}{flows}"));
        assert!(refused.to_string().contains("together hold more than 4 GiB"), "{refused}");
        let long = "1\n".repeat(10_000_000);
        let text = "duration = '1s'\nrepeats = REPEATS\n[path]\n[[path.forward]]\ntrace = 'long'\n\
                    [[path.reverse]]\ndelay = '1ms'\n[[flow]]\ncc = 'bbr'\n";
        let read = |repeats| {
            let text = text.replace("REPEATS", repeats);
            parse("a.toml", &text, &vocabulary(), &|_| Ok(long.clone())).map(|cases| cases.len())
        };
        assert!(read("100").unwrap_err().to_string().contains("together hold more than 4 GiB"));
        assert_eq!(read("2"), Ok(2));
    }

    fn error(text: &str) -> ScenarioError {
        read(text).expect_err("an error")
    }

    #[test]
    fn file_without_a_sweep_is_one_run() {
        let cases = read(FILE).unwrap();
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].label(), "bbr+cubic");
        let scenario = &cases[0].scenario;
        assert_eq!(scenario.duration, Span::from_secs(20));
        let labels: Vec<_> = scenario.connections().into_iter().filter_map(|f| f.label).collect();
        assert_eq!(labels, ["bbr", "cubic 1", "cubic 2"]);
    }

    #[test]
    fn sweep_runs_every_combination_and_repeat() {
        let text = format!(
            "repeats = 2\n{FILE}\n[sweep]\n\
             \"path.rate\" = [\"10mbit\", \"20mbit\", \"30mbit\"]\n\"flow.cc\" = [\"reno\", \"cubic\"]\n"
        );
        let cases = read(&text).unwrap();
        assert_eq!(cases.len(), 12);
        assert_eq!(cases[0].label(), "reno, rate 10mbit, seed 1");
        let seeds: Vec<u64> = cases.iter().map(|c| c.scenario.seed).take(4).collect();
        assert_eq!(seeds, [1, 2, 1, 2]);
        assert!(cases.iter().all(|c| c.scenario.flows[0].cc == c.scenario.flows[1].cc));
        let last = &cases[11].scenario;
        assert_eq!(last.path.forward[0].nominal_rate(), Some(Rate::from_bits_per_sec(30_000_000)));
    }

    #[test]
    fn range_expands_to_its_values_and_reports_errors_in_place() {
        let cases = read(&format!("{FILE}[sweep]\n\"path.rate\" = \"1mbit..100mbit log 3\"\n")).unwrap();
        let rates: Vec<_> = cases.iter().map(|case| case.value("path.rate").unwrap()).collect();
        assert_eq!(rates, ["1mbit", "10mbit", "100mbit"]);
        let text = format!("{FILE}[sweep]\n\"path.rate\" = \"1mbit..10mbit log\"\n");
        let e = error(&text);
        assert!(e.message.contains("sweep of `path.rate`") && e.message.contains("FROM..TO log N"), "{e}");
        let e = error(&format!("{FILE}[sweep]\n\"flow.count\" = \"1..8 log 4\"\n"));
        assert!(e.message.contains("must be a list"), "{e}");
    }

    #[test]
    fn swept_key_may_be_missing_from_the_tables() {
        let cases =
            read("[path]\nrtt='1ms'\n[[flow]]\n[sweep]\n'path.rate'=['1mbit']\n'flow.cc'=['bbr','reno']\n")
                .unwrap();
        assert_eq!(cases.len(), 2);
    }

    #[test]
    fn errors_point_at_line_and_column_and_suggest() {
        let e = error(&FILE.replace("rtt =", "rtd ="));
        assert_eq!((e.line, e.column), (7, 1));
        assert_eq!(e.help.as_deref(), Some("did you mean `rtt`?"));
        let e = error(&FILE.replace("100mbit", "100furlong"));
        assert_eq!((e.line, e.column), (6, 8), "{e}");
        assert!(e.message.contains("furlong"));
        let e = error(&FILE.replace("\"bbr\"", "\"bbr33\""));
        assert_eq!((e.line, e.column), (10, 6), "{e}");
        assert_eq!(e.help.as_deref(), Some("did you mean `bbr3`?"));
        let e = error(&FILE.replace("\"2s\"", "\"2min\""));
        assert_eq!((e.line, e.column), (14, 9), "{e}");
        let e = error("title = ");
        assert_eq!(e.line, 1);
    }

    #[test]
    fn error_in_a_swept_value_points_into_the_sweep() {
        let text = format!("{FILE}[sweep]\n\"path.rate\" = [\"10mbit\", \"20mbeet\"]\n");
        let e = error(&text);
        assert_eq!((e.line, e.column), (17, 26), "{e}");
        let text = format!("{FILE}[sweep]\n\"flow.cc\" = [\"bbr\", \"cubik\"]\n");
        let e = error(&text);
        assert_eq!((e.line, e.column), (17, 21), "{e}");
        assert!(e.message.contains("flow.cc = cubik"), "{e}");
        let e = error(&format!("{FILE}[sweep]\n\"path.rate\" = \"10mbit\"\n"));
        assert!(e.message.contains("list"), "{e}");
        let e = error(&format!("{FILE}[sweep]\n\"path.speed\" = [\"10mbit\"]\n"));
        assert!(e.message.contains("speed"), "{e}");
    }

    #[test]
    fn check_with_where_applies_to_matching_runs_only() {
        let text = format!(
            "{FILE}[[check]]\ngoodput = '>= 1mbit'\nwhere = {{ 'path.rate' = '10mbit' }}\n\
             [sweep]\n'path.rate' = ['10mbit', '20mbit']\n"
        );
        let counts: Vec<usize> = read(&text).unwrap().iter().map(|c| c.scenario.checks.len()).collect();
        assert_eq!(counts, [1, 0]);
    }

    #[test]
    fn check_that_matches_no_run_is_an_error() {
        let text = format!(
            "{FILE}[[check]]\ngoodput = '>= 1mbit'\nwhere = {{ 'path.rate' = '10 mbit' }}\n\
             [sweep]\n'path.rate' = ['10mbit', '20mbit']\n"
        );
        let e = error(&text);
        assert_eq!((e.line, e.column), (18, 9), "{e}");
        assert!(e.message.contains("check.0.where"), "{e}");
        assert_eq!(e.help.as_deref(), Some("the sweep has `path.rate` = `10mbit`, `20mbit`"));
        let e = error(&format!("{FILE}[[check]]\ngoodput = '>= 1mbit'\nwhere = {{ 'flow.cc' = 'bbr' }}\n"));
        assert_eq!(e.help.as_deref(), Some("the sweep has no keys"));
    }

    #[test]
    fn scenario_survives_a_round_trip_through_toml() {
        let case = &read(FILE).unwrap()[0];
        let again = read(&case.scenario.to_toml()).unwrap();
        assert_eq!(again[0].scenario, case.scenario);
    }

    #[test]
    fn policy_is_loaded_from_its_file_once() {
        let policy = r#"{"schema": "fullpipe/policy/1", "action": "multiplier", "activation": "tanh",
            "layers": [{"weights": [[0, 0, 0, 0, 0, 0, 0, 0]], "bias": [0.5]}]}"#;
        let open = |file: &str| match file {
            "up.json" => Ok(policy.to_owned()),
            "bad.json" => Ok(policy.replace("[0.5]", "[0.5, 1]")),
            other => Err(format!("no file `{other}`")),
        };
        let read =
            |cc: &str| parse("a.toml", &FILE.replace("\"bbr\"", &format!("\"{cc}\"")), &vocabulary(), &open);
        let case = &read("policy:up.json").unwrap()[0];
        assert_eq!(case.label(), "policy:up.json+cubic");
        let network = case.scenario.flows[0].policy.as_ref().unwrap();
        assert_eq!(network.layers()[0].bias, [0.5]);
        // The scenario in a recording includes the policy, so it needs no file.
        let again = super::tests::read(&case.scenario.to_toml()).unwrap();
        assert_eq!(again[0].scenario, case.scenario);

        let error_of = |cc: &str| {
            let e = read(cc).unwrap_err();
            assert_eq!((e.line, e.column), (10, 6), "{e}");
            format!("{} {}", e.message, e.help.unwrap_or_default())
        };
        assert!(error_of("policy:none.json").contains("no file `none.json`"));
        assert!(
            error_of("policy:bad.json")
                .contains("bad.json is not a valid policy: layer 0: 1 rows of weights, but 2")
        );
        assert!(error_of("policy").contains("policy:FILE.json"));
        let e = error(&FILE.replace("cc = \"bbr\"", &format!("cc = \"bbr\"\npolicy = {}", as_toml(policy))));
        assert!(e.message.contains("`policy` needs a `policy:` controller"), "{e}");
    }

    fn as_toml(policy: &str) -> String {
        policy.replace("\":", "\" =").replace(['\n'], " ")
    }

    #[test]
    fn absurd_values_are_errors_with_a_place() {
        for (from, to) in [
            ("duration = \"20s\"", "duration = \"0s\""),
            ("duration = \"20s\"", "duration = \"20s\"\nsample = \"1ns\""),
            ("duration = \"20s\"", "duration = \"20s\"\nmtu = 10"),
            ("duration = \"20s\"", "duration = \"-20s\""),
            ("count = 2", "count = 0"),
            ("count = 2", "count = -2"),
            ("count = 2", "size = \"0\""),
            ("count = 2", "stop = \"1s\""),
            ("count = 2", "receive_buffer = \"10\""),
            ("count = 2", "app = { kind = \"rate\", rate = \"0\" }"),
            ("count = 2", "app = { kind = \"rate\" }"),
            ("count = 2", "[[check]]"),
            ("count = 2", "[[check]]\nfairness = \">= 0.9\"\nflow = \"missing\""),
            ("count = 2", "[[trigger]]\nwhen = { state = \"Drain\", flow = 9 }\nthen = { rate = \"1mbit\" }"),
        ] {
            let e = error(&FILE.replace(from, to));
            assert!(e.line > 0, "{to}: {e}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z\\[\\]=\"'\\n .0-9{},]{0,80}") {
            let _ = read(&text);
        }

        #[test]
        fn no_damage_to_a_file_panics(at in 0usize..300, with in "\\PC{0,3}") {
            let at = (0..=at.min(FILE.len())).rev().find(|i| FILE.is_char_boundary(*i)).unwrap_or(0);
            let _ = read(&format!("{}{with}{}", &FILE[..at], &FILE[at..]));
            let _ = read(&FILE[..at]);
        }
    }
}
