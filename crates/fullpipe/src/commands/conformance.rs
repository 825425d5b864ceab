//! `fullpipe conformance`: the draft's example test cases.

use crate::failure::Failure;
use crate::runs::{Choice, check_controller};
use fullpipe_conformance::{CASES, Case, Setting, Verdict, find};
use fullpipe_experiment::Results;
use fullpipe_report::{About, Format};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Hold a controller against the example test cases of the IETF draft on BBR (draft-ietf-ccwg-bbr).
///
/// Each case is simulated on several paths. Exits with 1 if any fails; the runs of failed cases are kept as
/// qlog.
#[derive(clap::Args)]
pub struct Args {
    /// Cases by name; by default all.
    #[arg(value_name = "CASE")]
    cases: Vec<String>,
    /// The controller.
    #[arg(long, value_name = "NAME", default_value = "bbr3")]
    cc: String,
    /// A setting of the controller, as `beta_percent=50`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder for the logs of failed cases.
    #[arg(long, value_name = "DIR", default_value = "conformance", value_hint = clap::ValueHint::DirPath)]
    logs: PathBuf,
    /// Print the verdicts as JSON.
    #[arg(long)]
    json: bool,
    /// List the cases.
    #[arg(long)]
    list: bool,
}

/// One case on one path, with what came of it.
struct Checked {
    case: &'static Case,
    setting: Setting,
    verdict: Verdict,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.list {
            for case in CASES {
                println!("{}\n    {}", case.name, case.heading);
            }
            return Ok(());
        }
        let cases = self.chosen()?;
        check_controller(&self.cc, Choice::Sim)?;
        let settings: Vec<(&str, &str)> = self
            .set
            .iter()
            .map(|s| s.split_once('=').ok_or_else(|| Failure::usage(format!("`{s}`: write KEY=VALUE"))))
            .collect::<Result<_, _>>()?;
        fullpipe_cc::Controller::new(&self.cc, &fullpipe_cc::Config::default(), &settings)
            .map_err(|e| Failure::usage(e.to_string()))?;
        let checked = check(&cases, &self.cc, &settings);
        let failed = checked.iter().filter(|c| !c.verdict.complaints.is_empty()).count();
        if failed > 0 {
            self.keep(&checked)?;
        }
        if self.json {
            println!("{}", json(&self.cc, &checked));
        } else {
            print(&cases, &checked);
        }
        if failed == 0 {
            return Ok(());
        }
        let logs = self.logs.display();
        Err(Failure::Check(format!(
            "{} fails {failed} of {} runs; their logs are in {logs}",
            self.cc,
            checked.len()
        )))
    }

    fn chosen(&self) -> Result<Vec<&'static Case>, Failure> {
        if self.cases.is_empty() {
            return Ok(CASES.iter().collect());
        }
        let one = |name: &String| {
            find(name).ok_or_else(|| {
                let names: Vec<&str> = CASES.iter().map(|c| c.name).collect();
                Failure::usage(format!("no case `{name}`; there are:\n  {}", names.join("\n  ")))
            })
        };
        self.cases.iter().map(one).collect()
    }

    /// Writes a log of each run of a failed case.
    fn keep(&self, checked: &[Checked]) -> Result<(), Failure> {
        let cannot = |path: &std::path::Path, e: std::io::Error| {
            Failure::usage(format!("{}: cannot write: {e}", path.display()))
        };
        std::fs::create_dir_all(&self.logs).map_err(|e| cannot(&self.logs, e))?;
        for c in checked.iter().filter(|c| !c.verdict.complaints.is_empty()) {
            let path = self.logs.join(format!("{}-{}-{}.qlog", c.case.name, c.setting.rate, c.setting.rtt));
            let results = Results::new(c.verdict.runs.clone());
            let about = About { title: c.case.heading.to_owned(), command: String::new() };
            let mut file = std::fs::File::create(&path).map_err(|e| cannot(&path, e))?;
            Format::Qlog.write(&results, &about, &mut file).map_err(|e| cannot(&path, e))?;
        }
        Ok(())
    }
}

/// Simulates every case on every of its paths, on all cores, in the order of the cases.
fn check(cases: &[&'static Case], cc: &str, settings: &[(&str, &str)]) -> Vec<Checked> {
    let jobs: Vec<(&'static Case, Setting)> =
        cases.iter().flat_map(|case| case.settings().into_iter().map(|s| (*case, s))).collect();
    let checked = fullpipe_sim::in_parallel(&jobs, 0, |_, &(case, setting)| {
        let mut verdict = case.check(&setting, cc, settings, &mut |scenario| {
            fullpipe_sim::run(scenario, scenario.seed, &mut |_| ControlFlow::Continue(()))
                .map_err(|e| e.to_string())
        });
        // Recordings are large, and only those of failed cases are written.
        if verdict.complaints.is_empty() {
            verdict.runs.clear();
        }
        ControlFlow::Continue(Checked { case, setting, verdict })
    });
    checked.into_iter().flatten().collect()
}

fn print(cases: &[&'static Case], checked: &[Checked]) {
    let mut passed = 0;
    for case in cases {
        let of_case: Vec<&Checked> = checked.iter().filter(|c| std::ptr::eq(c.case, *case)).collect();
        let failed = of_case.iter().filter(|c| !c.verdict.complaints.is_empty()).count();
        passed += usize::from(failed == 0);
        let mark = if failed == 0 { "✓" } else { "✗" };
        let paths: Vec<String> = of_case.iter().map(|c| c.setting.to_string()).collect();
        println!("{mark} {}\n      on {}", case.heading, paths.join("; "));
        for c in of_case {
            for complaint in &c.verdict.complaints {
                println!("      ✗ {}: {complaint}", c.setting);
            }
        }
    }
    println!("\n{passed} of {} cases pass, {} runs", cases.len(), checked.len());
}

fn json(cc: &str, checked: &[Checked]) -> serde_json::Value {
    let runs: Vec<serde_json::Value> = checked
        .iter()
        .map(|c| {
            serde_json::json!({
                "case": c.case.name, "heading": c.case.heading, "rate": c.setting.rate.to_string(),
                "rtt": c.setting.rtt.to_string(), "passed": c.verdict.complaints.is_empty(),
                "complaints": c.verdict.complaints,
            })
        })
        .collect();
    serde_json::json!({ "schema": "fullpipe/conformance/1", "cc": cc, "runs": runs })
}
