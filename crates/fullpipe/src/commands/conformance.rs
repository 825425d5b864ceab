//! `fullpipe conformance`: the example test cases of the BBR draft.

use crate::failure::Failure;
use crate::print::print_as_json;
use crate::runs::{self, Progress, check_controller, listed};
use fullpipe_conformance::{CASES, Case, CaseResult, DRAFT_COMMIT, DRAFT_REVISION, Report, Trial, select};
use fullpipe_experiment::Results;
use fullpipe_report::{About, Output};
use fullpipe_run::{Batch, Engine, Job, is_program, split_settings};
use std::path::PathBuf;

/// Check a controller against the test cases of the BBR draft
///
/// The cases are the examples of draft-ietf-ccwg-bbr. Each is simulated on several paths. Exits
/// with 1 if any fails; runs of failed cases are kept as qlog.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe conformance --cc bbr3")]
pub struct Args {
    /// Names of cases [default: all]
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// Simulated controller to check, with settings as in `fullpipe race`:
    /// `bbr3:variant=letter`, `exec:./mycc`
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
            for case in CASES {
                println!("{}\n    {}", case.name, case.heading);
            }
            return Ok(());
        }
        let named = listed(&self.cases);
        let cases = select(&named).map_err(|name| {
            if check_controller(name, &[Engine::Sim]).is_ok() {
                return Failure::usage(format!("`{name}` is a controller, not a case: use --cc {name}"));
            }
            let names: Vec<&str> = CASES.iter().map(|c| c.name).collect();
            Failure::usage(format!("unknown case `{name}`; the cases are:\n  {}", names.join("\n  ")))
        })?;
        let (cc, own) = split_settings(&self.cc);
        check_controller(cc, &[Engine::Sim])?;
        let set = [listed(&[own.to_owned()]), listed(&self.set)].concat();
        let settings: Vec<(&str, &str)> = set
            .iter()
            .map(|s| {
                s.split_once('=').ok_or_else(|| Failure::usage(format!("setting `{s}`: expected KEY=VALUE")))
            })
            .collect::<Result<_, _>>()?;
        if !is_program(cc) {
            fullpipe_cc::ControllerSpec::new(cc, &settings).map_err(|e| Failure::usage(e.to_string()))?;
        }
        let mut checked = Vec::new();
        for case in &cases {
            checked.extend(check(case, cc, &settings)?);
        }
        let failed = checked.iter().filter(|c| !c.failures.is_empty()).count();
        if failed > 0 {
            self.write_logs(&checked)?;
        }
        if self.json {
            let line = serde_json::to_string(&Report::new(&self.cc, &checked)).map_err(Failure::usage)?;
            print_as_json(&(line + "\n"))?;
        } else {
            print(&cases, &checked);
        }
        if failed == 0 {
            return Ok(());
        }
        let logs = self.logs.display();
        Err(Failure::Check(format!(
            "{} failed {failed} of {} runs; their logs are in {logs}",
            self.cc,
            checked.len()
        )))
    }

    /// Writes a log of each run of a failed case.
    fn write_logs(&self, checked: &[CaseResult]) -> Result<(), Failure> {
        std::fs::create_dir_all(&self.logs)
            .map_err(|e| Failure::usage(format!("cannot create directory {}: {e}", self.logs.display())))?;
        for c in checked.iter().filter(|c| !c.failures.is_empty()) {
            let path = self.logs.join(format!("{}-{}-{}.qlog", c.case.name, c.path.rate, c.path.rtt));
            let results = Results::new(c.runs.clone());
            let about = About { title: c.case.heading.to_owned(), command: String::new() };
            Output::open(&path).and_then(|log| log.write(&results, &about)).map_err(Failure::usage)?;
        }
        Ok(())
    }
}

/// Simulates a case on each of its paths.
fn check(case: &'static Case, cc: &str, settings: &[(&str, &str)]) -> Result<Vec<CaseResult>, Failure> {
    let trial = Trial::new(case, cc, settings).map_err(Failure::usage)?;
    let jobs: Vec<Job> = trial.runs().map(|run| Job { engine: Engine::Sim, case: run.clone() }).collect();
    let progress = Progress::new(&jobs);
    let recordings = Batch::new(jobs).run(&progress).into_runs().map_err(runs::failure)?;
    drop(progress);
    Ok(trial.judge(recordings))
}

fn print(cases: &[&'static Case], checked: &[CaseResult]) {
    let mut passed = 0;
    for case in cases {
        let runs: Vec<&CaseResult> = checked.iter().filter(|c| std::ptr::eq(c.case, *case)).collect();
        let failed = runs.iter().filter(|c| !c.failures.is_empty()).count();
        passed += usize::from(failed == 0);
        let mark = if failed == 0 { "✓" } else { "✗" };
        let paths: Vec<String> = runs.iter().map(|c| c.path.to_string()).collect();
        println!("{mark} {}\n      on {}", case.heading, paths.join("; "));
        for c in runs {
            for failure in &c.failures {
                println!("      ✗ {}: {failure}", c.path);
            }
        }
    }
    println!("\n{passed} of {} cases passed, {} runs", cases.len(), checked.len());
    println!("cases of {DRAFT_REVISION}, pseudocode reviewed at {DRAFT_COMMIT:.7}");
}
