//! Controllers in other programs: the same results as in this one, and an error for each way in
//! which a program can fail. The programs are this test program itself, hence its own `main`.

#[path = "exec_controllers/child.rs"]
mod child;

use fullpipe_cc::{Config, CongestionControl, ControllerSpec};
use fullpipe_conformance::Verdict;
use fullpipe_experiment::recording::Recording;
use fullpipe_experiment::scenario::{Case, Vocabulary, parse};
use fullpipe_run::exec::{ProgramError, seed};
use fullpipe_run::{Batch, Engine, Job, Monitor, RunError};
use fullpipe_sim::{ControllerSource, Simulation};
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The first argument of a child.
const AS_CHILD: &str = "--as-child";

type Test = (&'static str, fn());

const TESTS: [Test; 10] = [
    ("controllers_behind_the_protocol_give_the_same_recordings", controllers_behind_the_protocol),
    ("the_drafts_cases_notice_a_changed_constant", the_drafts_cases),
    ("the_same_seed_gives_the_same_bytes", the_same_seed_gives_the_same_bytes),
    ("settings_reach_the_program", settings_reach_the_program),
    ("faults_at_the_start_are_errors_of_the_flow", faults_at_the_start),
    ("faults_during_a_run_are_its_error", faults_during_a_run),
    ("a_hanging_program_is_an_error_within_the_limit", a_hanging_program),
    ("one_failing_program_fails_its_run_only", one_failing_program),
    ("an_interrupted_run_ends_its_programs", an_interrupted_run),
    ("nothing_is_left_running", nothing_is_left_running),
];

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == AS_CHILD) {
        child::run(&words[1..]);
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.into_iter().filter(|(name, _)| is_wanted(name)) {
        let outcome = catch_unwind(AssertUnwindSafe(test));
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        *if outcome.is_ok() { &mut passed } else { &mut failed } += 1;
    }
    let ignored = TESTS.len() - passed - failed;
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {ignored} \
         filtered out"
    );
    ExitCode::from(u8::from(failed > 0))
}

/// This program as a child.
fn name(arguments: &str) -> String {
    format!("exec:'{}' {AS_CHILD} {arguments}", env::current_exe().expect("a path").display())
}

/// The only case of a scenario file whose controllers `exec:X` stand for `--as-child X`.
fn case(file: &str) -> Case {
    let mut programs = Vec::new();
    let lines = file.lines().map(|line| match line.split_once("cc = 'exec:") {
        Some((lead, rest)) => {
            let program = name(rest.trim_end().trim_end_matches('\''));
            let line = format!("{lead}cc = {}", toml::Value::from(program.as_str()));
            programs.push(program);
            line
        }
        None => line.to_owned(),
    });
    let file: Vec<String> = lines.collect();
    let mut vocabulary = fullpipe_run::vocabulary(&[Engine::Sim]);
    vocabulary.controllers.extend(programs);
    parsed(&file.join("\n"), &vocabulary)
}

fn parsed(file: &str, vocabulary: &Vocabulary) -> Case {
    let none = |_: &str| Err(String::new());
    parse("x.toml", file, vocabulary, &none).expect("a scenario").remove(0)
}

fn jobs(cases: &[Case]) -> Vec<Job> {
    cases.iter().map(|case| Job { engine: Engine::Sim, case: case.clone() }).collect()
}

fn run(case: &Case) -> Result<Recording, RunError> {
    let outcome = Batch::new(jobs(std::slice::from_ref(case))).run(&());
    outcome.into_runs().map(|mut runs| runs.remove(0))
}

/// BBR v3 behind the protocol passes a case of the draft, and with half of its Beta it does not.
fn the_drafts_cases() {
    let case = "decreasing-bandwidth-10x-and-ensuring-max-bandwidth-adapts-down";
    let case = fullpipe_conformance::find(case).expect("a case");
    let path = case.paths()[0];
    let judged = |settings: &[(&str, &str)]| {
        let runs = case.runs(&path, &name("controller bbr3"), settings).expect("scenarios");
        let recordings: Vec<_> = runs.iter().map(|case| run(case).map_err(|e| e.to_string())).collect();
        case.judge(&path, &runs, &recordings)
    };
    let drafted = judged(&[]);
    assert_eq!(drafted.verdict(), Verdict::Passed, "{drafted:?}");
    let changed = judged(&[("beta_percent", "50")]);
    assert!(changed.failures.iter().any(|failure| failure.contains("(Beta)")), "{changed:?}");
}

/// The controllers of `exec:… controller NAME` in this process, with the seeds of programs.
struct InProcess;

impl ControllerSource for InProcess {
    fn knows(&self, name: &str) -> bool {
        name.contains(AS_CHILD)
    }

    fn create(
        &self,
        _: usize,
        name: &str,
        config: &Config,
        settings: &[(&str, &str)],
    ) -> Result<Box<dyn CongestionControl>, String> {
        let name = name.split(' ').next_back().unwrap_or_default();
        let config = Config { seed: seed(config.seed), ..*config };
        Ok(Box::new(ControllerSpec::new(name, settings).map_err(|e| e.to_string())?.build(&config)))
    }
}

/// Pauses, loss, reordering, and a blackout that ends in timeouts, each with a thinned reverse path
/// or marks.
const PATHS: [&str; 4] = [
    "[path]\nrate = '20mbit'\nrtt = '40ms'\nbuffer = '0.5bdp'\n",
    "[path]\nrate = '10mbit'\nrtt = '30ms'\nloss = '3%'\nbuffer = '2bdp'\n",
    "[[path.forward]]\nrate = '10mbit'\ndelay = '20ms'\nqueue = 'codel'\n\
     blackouts = [{ at = '3s', for = '1.5s' }]\n\
     [[path.reverse]]\ndelay = '20ms'\njitter = '8ms'\nloss = '1%'\n",
    "[[path.forward]]\nrate = '5mbit'\ndelay = '50ms'\nreorder = { share = '1%', by = '30ms' }\n\
     [[path.reverse]]\ndelay = '50ms'\n",
];

fn controllers_behind_the_protocol() {
    let mut compared = 0;
    for (i, path) in PATHS.iter().enumerate() {
        for cc in ["bbr", "bbr3", "cubic", "reno", "hybla"] {
            // Pauses longer than the timeout restart the connection from idle.
            let app = if i == 0 { "app = { kind = 'bursts', size = '200kB', every = '1.5s' }\n" } else { "" };
            let ecn = if cc.starts_with("bbr") { "ecn = true\n" } else { "" };
            let case = case(&format!(
                "duration = '9s'\nseed = {i}\n{path}[[flow]]\ncc = 'exec:controller {cc}'\n{app}{ecn}"
            ));
            let outside = run(&case).unwrap_or_else(|e| panic!("{cc}, path {i}: {e}"));
            let scenario = &case.scenario;
            let simulation = Simulation::new(scenario, scenario.seed).controller_source(&InProcess);
            let mut inside = simulation.run().expect("a run");
            inside.flows[0].distributions = None;
            assert!(inside.summary.goodput_bps > 5e5, "{cc}, path {i}");
            // Series have gaps (NaN), which equal nothing but print the same.
            let text = |run: &Recording| format!("{:?}\n{:?}", run.flows, run.links);
            assert!(text(&outside) == text(&inside), "{cc}, path {i}: the recordings differ");
            compared += 1;
        }
    }
    assert_eq!(compared, 20);
}

const SHORT: &str = "duration = '2s'\n[path]\nrate = '10mbit'\nrtt = '20ms'\nloss = '1%'\n[[flow]]\n";

fn the_same_seed_gives_the_same_bytes() {
    let case = case(&format!(
        "repeats = 1\n{SHORT}cc = 'exec:controller bbr3'\n[[flow]]\ncc = 'exec:controller cubic'\n"
    ));
    let bytes = |seed: u64| {
        let mut case = case.clone();
        case.scenario.seed = seed;
        serde_json::to_string(&run(&case).expect("a run")).expect("JSON")
    };
    let first = bytes(1);
    assert!(first == bytes(1));
    assert!(first != bytes(2));
}

fn settings_reach_the_program() {
    let gain = |settings: &str| {
        let case = case(&format!("{SHORT}cc = 'exec:controller bbr3'\n{settings}\n"));
        run(&case).expect("a run").flows[0].series.get("pacing_gain").expect("gains").to_vec()
    };
    assert!(gain("settings = { startup_pacing_gain = 2.5 }").contains(&2.5));
    assert!(!gain("").contains(&2.5));
}

/// The error of a run with a child that fails.
fn failure(child: &str) -> ProgramError {
    match run(&case(&format!("{SHORT}cc = 'exec:{child}'\n"))) {
        Err(RunError::Program { error, .. }) => *error,
        other => panic!("{child}: {other:?}"),
    }
}

fn faults_at_the_start() {
    let reason = |child: &str| match run(&case(&format!("{SHORT}cc = 'exec:{child}'\n"))) {
        Err(error @ RunError::Sim { .. }) => error.to_string(),
        other => panic!("{child}: {other:?}"),
    };
    for (child, parts) in [
        ("exits", &["flow.0.cc: exited before the run was over", "exit status: 7"][..]),
        ("version", &["`schema` must be \"fullpipe/controller/1\", got \"fullpipe/controller/9\""]),
        ("'{}' 0", &["the first answer must have \"schema\":\"fullpipe/controller/1\""]),
        ("nonsense 0", &["invalid answer"]),
    ] {
        let reason = reason(child);
        assert!(parts.iter().all(|part| reason.contains(part)), "{child}: {reason}");
        assert!(!reason.contains(char::is_control) || reason.lines().count() > 1, "{reason:?}");
    }
    let missing =
        "duration = '1s'\n[path]\nrate = '1mbit'\nrtt = '9ms'\n[[flow]]\ncc = 'exec:./no-such-program'\n";
    let error = run(&parsed(missing, &Vocabulary::new(["exec:./no-such-program"]))).unwrap_err().to_string();
    assert!(error.contains("cannot start `./no-such-program`: no such file"), "{error}");
}

fn faults_during_a_run() {
    for (child, reason, line) in [
        ("exits 40", "exited before the run was over", None),
        ("crashes 40", "exited before the run was over", None),
        ("shuts 40", "closed its standard input or output", None),
        ("nonsense 40", "invalid answer: expected value", Some("\\u{1b}]0;owned\\u{7} \\u{202e}")),
        ("endless 40", "wrote a line of more than 64 KiB", Some("xxxx")),
        ("twice 40", "wrote more than one line as an answer", Some("{}")),
        ("answers-all", "wrote more than one line as an answer", Some("{}")),
        ("chatters", "", Some("debug: got an ACK")),
        ("'{\"window\":0}' 40", "invalid answer: `window` must be between 1 and", Some("{\"window\":0}")),
        (
            "'{\"pacing_rate\":9223372036854775808}' 40",
            "invalid answer: `pacing_rate` must be",
            Some("{\"pacing"),
        ),
        ("'{\"window\":1e3}' 40", "invalid answer: invalid type: floating point", Some("{\"window\":1e3}")),
    ] {
        let error = failure(child);
        assert!(error.reason.contains(reason), "{child}: {error}");
        assert_eq!(error.flow, 0);
        assert!(error.line.is_some() == line.is_some(), "{child}: {error}");
        assert!(error.line.iter().all(|shown| shown.contains(line.unwrap_or_default())), "{child}: {error}");
        assert!(error.line.iter().all(|shown| shown.chars().count() <= 201), "{child}: {error}");
        let text = error.to_string();
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.len() < 4000, "{text}");
        match child {
            "exits 40" => {
                assert_eq!(
                    (error.end.as_str(), error.errors.as_slice()),
                    ("ended with exit status: 3", &["out of luck".to_owned()][..])
                );
                assert!(error.at.as_nanos() > 0);
            }
            "crashes 40" => assert!(error.end.contains("signal: 6"), "{text}"),
            "shuts 40" => assert_eq!(error.end, "was still running and has been killed"),
            "nonsense 40" => {
                assert_eq!(error.errors.len(), 10);
                assert_eq!(error.errors[9], "line 999 of \\u{1b}[31mtoo many");
            }
            _ => {}
        }
    }
}

fn a_hanging_program() {
    let cases: Vec<Case> = ["silent", "silent 40", "dribbles 40", "deaf"]
        .into_iter()
        .map(|child| case(&format!("{SHORT}cc = 'exec:{child}'\n")))
        .collect();
    let started = Instant::now();
    let outcome = Batch::new(jobs(&cases)).threads(4).run(&());
    // 10 s for the first answer; the rest is room for a busy machine.
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    let reasons: Vec<String> = outcome.failures.iter().map(RunError::to_string).collect();
    assert_eq!(reasons.len(), 4, "{reasons:?}");
    assert!(reasons[0].contains("no answer within 10s"), "{}", reasons[0]);
    for reason in &reasons[1..] {
        assert!(reason.contains("no answer within 5s"), "{reason}");
    }
    assert!(
        reasons.iter().all(|reason| reason.contains("was still running and has been killed")),
        "{reasons:?}"
    );
}

fn one_failing_program() {
    let cases = [
        case(&format!("{SHORT}cc = 'exec:controller reno'\n")),
        case(&format!("{SHORT}cc = 'exec:controller reno'\n[[flow]]\ncc = 'exec:exits 9'\n")),
        case(&format!("{SHORT}cc = 'exec:controller reno'\n")),
    ];
    let outcome = Batch::new(jobs(&cases)).run(&());
    assert_eq!(outcome.numbers, [0, 2]);
    assert_eq!(outcome.failures.len(), 1);
    assert!(outcome.failures[0].to_string().contains("flow.1: "), "{}", outcome.failures[0]);
}

/// Stops everything at the first report of progress.
struct StopAtOnce(std::sync::atomic::AtomicBool);

impl Monitor for StopAtOnce {
    fn interrupted(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn advanced(&self, _: fullpipe_units::Span) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn an_interrupted_run() {
    // It would take minutes.
    let long = case(&format!("{SHORT}cc = 'exec:controller bbr3'\n").replace("'2s'", "'2000s'"));
    let outcome = Batch::new(jobs(&[long])).run(&StopAtOnce(false.into()));
    assert!(outcome.interrupted && outcome.failures.is_empty(), "{:?}", outcome.failures);
    nothing_is_left_running();
}

/// Every child of this process has ended and been waited for.
fn nothing_is_left_running() {
    let own = std::process::id().to_string();
    let parent = |stat: &str| {
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1).map(str::to_owned))
    };
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        assert_ne!(parent(&stat).as_deref(), Some(own.as_str()), "left running: {stat}");
    }
}
