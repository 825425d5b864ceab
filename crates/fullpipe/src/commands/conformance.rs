//! `fullpipe conformance`: the example test cases of the BBR draft.

use crate::failure::Failure;
use crate::print::print_as_json;
use crate::runs::{self, Progress, check_controller, listed};
use fullpipe_conformance::{
    CASES, Case, CaseResult, DRAFT_COMMIT, DRAFT_REVISION, LISTS, OUTCOMES, Report, Trial, Verdict, select,
    trial_run, why_not_the_draft,
};
use fullpipe_experiment::{Results, scenario};
use fullpipe_report::{About, Output, wrap_text};
use fullpipe_run::{Batch, Engine, Job, Outcome, split_settings};
use std::path::PathBuf;

/// Check a controller against the test cases of the BBR draft
///
/// A BBR v3 is checked against the examples of draft-ietf-ccwg-bbr, and any controller against
/// outcome cases: bounds on goodput, loss and queueing. Each case is simulated on several paths. A
/// case is not judged if the controller does not report the values that it needs. Exits with 1 if
/// any case fails; runs of failed cases are kept as qlog.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe conformance --cc bbr3")]
pub struct Args {
    /// Names of cases, or `draft` or `outcomes` for a whole list [default: all that apply]
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// Controller to check, as in `fullpipe race`: `bbr3:variant=letter`, `bbr3@noq` in a QUIC
    /// stack, a stack's own `noq/bbr3`, or a program `exec:./mycc`
    #[arg(long, value_name = "NAME", default_value = "bbr3")]
    cc: String,
    /// Setting of the controller, such as `beta_percent=50`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Directory for the qlog files of failed cases
    #[arg(long, value_name = "DIR", default_value = "conformance", value_hint = clap::ValueHint::DirPath)]
    logs: PathBuf,
    /// Print the verdicts as JSON
    #[arg(long)]
    json: bool,
    /// List the cases and exit
    #[arg(long)]
    list: bool,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.list {
            list();
            return Ok(());
        }
        let (cc, own) = split_settings(&self.cc);
        check_controller(cc, &[Engine::Sim])?;
        let set = [listed(&[own.to_owned()]), listed(&self.set)].concat();
        let settings: Vec<(&str, &str)> = set
            .iter()
            .map(|s| {
                s.split_once('=').ok_or_else(|| Failure::usage(format!("setting `{s}`: expected KEY=VALUE")))
            })
            .collect::<Result<_, _>>()?;
        let (name, _) = cc.split_once('@').unwrap_or((cc, ""));
        if fullpipe_cc::registry::find(name).is_some() {
            fullpipe_cc::ControllerSpec::new(name, &settings).map_err(|e| Failure::usage(e.to_string()))?;
        }
        let mut cases = self.cases()?;
        let mut no_draft = None;
        if self.cases.is_empty() {
            no_draft = draft_does_not_apply(cc, &settings)?;
            if no_draft.is_none() {
                cases.extend(CASES);
            }
            cases.extend(OUTCOMES);
        }
        let mut checked = Vec::new();
        for case in &cases {
            checked.extend(check(case, cc, &settings)?);
        }
        let failed = checked.iter().filter(|c| c.verdict() == Verdict::Failed).count();
        if failed > 0 {
            self.write_logs(&checked)?;
        }
        if self.json {
            let report = Report::new(&self.cc, &checked).without_the_draft(no_draft.as_deref());
            let line = serde_json::to_string(&report).map_err(Failure::usage)?;
            print_as_json(&(line + "\n"))?;
        } else {
            if let Some(reason) = no_draft {
                println!("– the draft's {} cases: not judged: {reason}\n", CASES.len());
            }
            print(&cases, &checked);
        }
        if failed == 0 {
            return Ok(());
        }
        let logs = self.logs.display();
        Err(Failure::Check(format!(
            "{} failed {failed} of {} combinations of case and path; qlog files are in {logs}",
            self.cc,
            checked.len()
        )))
    }

    /// The cases that were named.
    fn cases(&self) -> Result<Vec<&'static Case>, Failure> {
        let named = listed(&self.cases);
        if named.is_empty() {
            return Ok(Vec::new());
        }
        select(&named).map_err(|name| {
            if check_controller(name, &[Engine::Sim]).is_ok() {
                return Failure::usage(format!("`{name}` is a controller, not a case: use --cc {name}"));
            }
            let names: Vec<&str> = CASES.iter().chain(OUTCOMES).map(|c| c.name).collect();
            Failure::usage(format!("unknown case `{name}`; the cases are:\n  {}", names.join("\n  ")))
        })
    }

    /// Writes a log of each run of a failed case.
    fn write_logs(&self, checked: &[CaseResult]) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.logs)
            .map_err(|e| Failure::usage(format!("cannot create directory {}: {e}", self.logs.display())))?;
        for c in checked.iter().filter(|c| c.verdict() == Verdict::Failed) {
            let path = self.logs.join(format!("{}-{}-{}.qlog", c.case.name, c.path.rate, c.path.rtt));
            let results = Results::new(c.runs.clone());
            let about = About { title: c.case.heading.to_owned(), command: String::new() };
            Output::open(&path).and_then(|log| log.write(&results, &about)).map_err(Failure::usage)?;
        }
        Ok(())
    }
}

fn list() {
    for (name, cases) in LISTS {
        println!("{name}:");
        for case in cases {
            println!("  {}", case.name);
            for line in wrap_text(case.bound.unwrap_or(case.heading), 74) {
                println!("      {line}");
            }
        }
    }
}

/// Why the draft's cases do not apply to the controller, if they do not.
fn draft_does_not_apply(cc: &str, settings: &[(&str, &str)]) -> Result<Option<String>, Failure> {
    let case = trial_run(cc, settings).map_err(Failure::usage)?;
    let recordings = simulate([&case]).into_runs().map_err(runs::failure)?;
    Ok(recordings.first().and_then(why_not_the_draft))
}

fn simulate<'a>(cases: impl IntoIterator<Item = &'a scenario::Case>) -> Outcome {
    let jobs: Vec<Job> =
        cases.into_iter().map(|case| Job { engine: Engine::Sim, case: case.clone() }).collect();
    let progress = Progress::new(&jobs);
    Batch::new(jobs).run(&progress)
}

/// Simulates a case on each of its paths.
fn check(case: &'static Case, cc: &str, settings: &[(&str, &str)]) -> Result<Vec<CaseResult>, Failure> {
    let trial = Trial::new(case, cc, settings).map_err(Failure::usage)?;
    let each = simulate(trial.runs()).into_each().map_err(runs::failure)?;
    let judged = each.into_iter().map(|ended| match ended {
        Ok(recording) => Ok(Ok(recording)),
        // A stack that closes a connection says nothing about its controller.
        Err(failure) => failure.closed_connection().map(Err).ok_or_else(|| runs::failure(failure)),
    });
    Ok(trial.judge(judged.collect::<Result<_, _>>()?))
}

fn print(cases: &[&'static Case], checked: &[CaseResult]) {
    for (list, _) in LISTS {
        let own: Vec<&&Case> = cases.iter().filter(|case| case.list() == list).collect();
        if own.is_empty() {
            continue;
        }
        let mut count = [0; 2];
        let mut runs = 0;
        for case in &own {
            let of_case: Vec<&CaseResult> = checked.iter().filter(|c| std::ptr::eq(c.case, **case)).collect();
            runs += of_case.len();
            match print_case(case, &of_case) {
                Verdict::Passed => count[0] += 1,
                Verdict::Failed => {}
                Verdict::NotJudged => count[1] += 1,
            }
        }
        let [passed, not_judged] = count;
        let rest = if not_judged == 0 { String::new() } else { format!(", {not_judged} not judged") };
        println!("\n{passed} of {} cases passed{rest} ({runs} combinations of case and path)", own.len());
        match list {
            "draft" => println!("cases of {DRAFT_REVISION}, pseudocode reviewed at {DRAFT_COMMIT:.7}"),
            _ => println!("for the bounds of outcome cases, run with --list"),
        }
    }
}

/// Prints a case with its runs.
fn print_case(case: &Case, runs: &[&CaseResult]) -> Verdict {
    let verdict = Verdict::from_all(runs.iter().map(|c| c.verdict()));
    let mark = match verdict {
        Verdict::Passed => "✓",
        Verdict::Failed => "✗",
        Verdict::NotJudged => "–",
    };
    let paths: Vec<String> = runs.iter().map(|c| c.path.to_string()).collect();
    println!("{mark} {}\n      on {}", case.heading, paths.join("; "));
    for c in runs {
        for failure in &c.found.failures {
            println!("      ✗ {}: {failure}", c.path);
        }
        for measured in c.found.measured.iter().filter(|m| !c.found.failures.contains(m)) {
            println!("      ✓ {}: {measured}", c.path);
        }
        for reason in &c.found.not_judged {
            println!("      – {}: not judged: {reason}", c.path);
        }
    }
    verdict
}
