//! `fullpipe figure`: published results, reproduced.

use crate::failure::Failure;
use crate::runs::{self, Choice, EBPF_CONTROLLERS, Progress, listed, print_hanging};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::Case;
use fullpipe_figures::{FIGURES, Figure, Finding, Outcome, Runs, find, page, tally, unknown_figure};
use fullpipe_report::AtomicFile;
use fullpipe_run::{Batch, Engine, Job, LabOptions};
use std::path::{Path, PathBuf};

/// Reproduce published BBR results and check them
///
/// Writes one page with the figures, and a PNG and an SVG of each. Without an ID, lists the
/// figures. Exits with 1 if a claim of a figure is not reproduced.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe figure fig8 --out figures")]
pub struct Args {
    /// IDs of figures and tables (`fig8`), or `all` [default: list them]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Engine to run on
    #[arg(long, value_enum, default_value_t)]
    engine: Choice,
    /// Make fewer, shorter or smaller runs of the figures that take long. The claims are the same,
    /// and the results are marked as shortened. `all` implies it for slow figures, except those
    /// also named: `all fig10`
    #[arg(long)]
    short: bool,
    /// Directory for the page, the pictures, the chapters and the scenarios; existing files of
    /// these names are replaced
    #[arg(long, value_name = "DIR", default_value = "figures", value_hint = clap::ValueHint::DirPath)]
    out: PathBuf,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.ids.is_empty() {
            for figure in FIGURES {
                print_hanging(
                    &format!("{:<12} ", figure.id),
                    0,
                    &format!("{} ({})", figure.title, figure.source),
                );
            }
            println!("all          all figures");
            return Ok(());
        }
        let figures = self.chosen()?;
        std::fs::create_dir_all(&self.out)
            .map_err(|e| Failure::usage(format!("cannot create directory {}: {e}", self.out.display())))?;
        let &[engine] = self.engine.engines() else {
            return Err(Failure::usage(
                "--engine both is not supported for figures: choose --engine sim or --engine lab",
            ));
        };
        let mut planned: Vec<Planned> = Vec::new();
        for figure in figures {
            planned.push(self.plan(figure, engine)?);
        }
        // In real time all figures in one batch, since runs that leave the machine idle may share it;
        // simulations figure by figure, since recordings are large.
        let batch_size = if engine == Engine::Lab { planned.len() } else { 1 };
        let mut results: Vec<Reproduced> = Vec::new();
        let mut planned = planned.into_iter().peekable();
        while planned.peek().is_some() {
            let some: Vec<Planned> = planned.by_ref().take(batch_size).collect();
            for Planned { figure, cases, short } in &some {
                let short = if *short { ", shortened" } else { "" };
                eprintln!("{}: {} ({} runs{short})", figure.id, figure.title, cases.len());
            }
            let mut runs = run(&some, engine)?.into_iter();
            for Planned { figure, cases, short } in some {
                let runs: Vec<(Case, Recording)> = cases.into_iter().zip(runs.by_ref()).collect();
                results.push(self.judge(figure, short, Runs { source: engine.source(), runs })?);
            }
        }
        let command = self.command(engine);
        let pages: Vec<(&Figure, &Outcome)> = results.iter().map(|one| (one.figure, &one.outcome)).collect();
        let html = page(&pages, engine.source(), &command);
        // The page contains the chapters and scenarios, too; as files they can be edited and run again.
        for one in &results {
            self.write(&format!("{}.md", one.figure.id), one.figure.standalone_chapter().as_bytes())?;
            self.write(&format!("{}.toml", one.figure.id), one.figure.text.as_bytes())?;
        }
        self.write("figures.html", html.as_bytes())?;
        if self.json {
            println!("{}", json(&results));
        } else {
            print(&results);
        }
        let at = self.out.join("figures.html");
        eprintln!("wrote {}", at.display());
        verdict(&results, &at)
    }

    fn plan(&self, figure: &'static Figure, engine: Engine) -> Result<Planned, Failure> {
        let implied =
            figure.is_long() && !listed(&self.ids).iter().any(|id| id.eq_ignore_ascii_case(figure.id));
        let short = if self.short || implied { figure.short_cases().map_err(Failure::usage)? } else { None };
        let is_short = short.is_some();
        let mut cases = match short {
            Some(cases) => cases,
            None => figure.cases().map_err(Failure::usage)?,
        };
        if engine == Engine::Lab {
            skip_unavailable_controllers(&mut cases);
        }
        Ok(Planned { figure, cases, short: is_short })
    }

    /// Checks the runs against the published claims, and writes the picture.
    fn judge(&self, figure: &'static Figure, short: bool, runs: Runs) -> Result<Reproduced, Failure> {
        let invalid: Vec<String> = runs
            .runs
            .iter()
            .filter(|(_, run)| !run.valid)
            .map(|(case, run)| format!("{}: {}", case.label(), run.invalid_because.join("; ")))
            .collect();
        let mut outcome = figure.judge(&runs);
        if short {
            outcome
                .notes
                .insert(0, "Shortened: fewer, shorter or smaller runs than in the full figure.".to_owned());
        }
        outcome.notes.extend(invalid.iter().map(|run| format!("Invalid run: {run}")));
        self.write(&format!("{}.svg", figure.id), outcome.picture.svg().as_bytes())?;
        let png = outcome.picture.png().map_err(|e| Failure::usage(format!("{}: {e}", figure.id)))?;
        self.write(&format!("{}.png", figure.id), &png)?;
        Ok(Reproduced { figure, short, outcome, invalid })
    }

    fn command(&self, engine: Engine) -> String {
        let short = if self.short { " --short" } else { "" };
        format!("fullpipe figure {} --engine {}{short}", listed(&self.ids).join(" "), engine.name())
    }

    fn chosen(&self) -> Result<Vec<&'static Figure>, Failure> {
        let ids = listed(&self.ids);
        if ids.iter().any(|id| id == "all") {
            return Ok(FIGURES.iter().filter(|f| self.engine == Choice::Sim || f.in_lab).collect());
        }
        ids.iter().map(|id| find(id).ok_or_else(|| Failure::usage(unknown_figure(id)))).collect()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        AtomicFile::write(&self.out.join(name), bytes).map_err(Failure::usage)
    }
}

/// Removes cases whose controller the kernel lacks: the figure still compares the others.
fn skip_unavailable_controllers(cases: &mut Vec<Case>) {
    let mut missing: Vec<String> = Vec::new();
    cases.retain(|case| {
        let unavailable = case.scenario.flows.iter().find(|f| !runs::kernel_offers(&f.cc));
        if let Some(flow) = unavailable
            && !missing.contains(&flow.cc)
        {
            missing.push(flow.cc.clone());
        }
        unavailable.is_none()
    });
    for cc in missing {
        eprintln!("skipping {cc}: not available in this kernel; try `fullpipe cc load {cc}` as root");
    }
}

/// A figure and the runs it needs.
struct Planned {
    figure: &'static Figure,
    cases: Vec<Case>,
    short: bool,
}

/// A figure that was reproduced, with its findings.
struct Reproduced {
    figure: &'static Figure,
    short: bool,
    outcome: Outcome,
    /// Invalid runs, each with its reasons.
    invalid: Vec<String>,
}

/// Runs all cases.
fn run(figures: &[Planned], engine: Engine) -> Result<Vec<Recording>, Failure> {
    let cases = figures.iter().flat_map(|f| &f.cases);
    let jobs: Vec<Job> = cases.map(|case| Job { engine, case: case.clone() }).collect();
    let progress = Progress::new(&jobs);
    let lab = LabOptions { share_machine: true, loader: EBPF_CONTROLLERS, ..LabOptions::default() };
    Batch::new(jobs).with_lab(lab).run(&progress).into_runs().map_err(runs::failure)
}

fn print(results: &[Reproduced]) {
    for Reproduced { figure, short, outcome, .. } in results {
        let short = if *short { " (shortened)" } else { "" };
        println!("\n{} — {}{short}", figure.id, figure.title);
        for finding in &outcome.findings {
            let Finding { claim, published, measured, bound, differs, .. } = finding;
            let mark = finding.agreement().symbol();
            print_hanging(&format!("  {mark} "), 0, claim);
            print_hanging("      published: ", 0, published);
            print_hanging("      measured:  ", 0, measured);
            print_hanging("      accepted:  ", 0, bound);
            if let Some(differs) = differs {
                print_hanging("      differs:   ", 0, differs);
            }
        }
        for note in &outcome.notes {
            print_hanging("  note: ", 0, note);
        }
    }
    println!("\n{}", tally(results.iter().map(|one| &one.outcome)));
}

fn json(results: &[Reproduced]) -> serde_json::Value {
    let figures: Vec<serde_json::Value> = results
        .iter()
        .map(|Reproduced { figure, short, outcome, invalid }| {
            let findings: Vec<serde_json::Value> = outcome
                .findings
                .iter()
                .map(|f| {
                    serde_json::json!({
                        "claim": f.claim, "published": f.published, "measured": f.measured,
                        "bound": f.bound, "passed": f.passed, "agreement": f.agreement().name(),
                        "differs": f.differs,
                    })
                })
                .collect();
            serde_json::json!({
                "id": figure.id, "title": figure.title, "source": figure.source, "scenario": figure.file,
                "passed": outcome.passed(), "agreement": outcome.agreement().name(), "shortened": short,
                "findings": findings, "notes": outcome.notes,
                "not_valid": invalid,
            })
        })
        .collect();
    serde_json::json!({ "schema": "fullpipe/figures/1", "figures": figures })
}

fn verdict(results: &[Reproduced], page: &Path) -> Result<(), Failure> {
    let invalid: Vec<String> = results
        .iter()
        .flat_map(|one| one.invalid.iter().map(|run| format!("{}: {run}", one.figure.id)))
        .collect();
    if !invalid.is_empty() {
        return Err(Failure::Check(format!("{} runs are invalid:\n{}", invalid.len(), invalid.join("\n"))));
    }
    let mut failed = Vec::new();
    for Reproduced { figure, outcome, .. } in results {
        for f in outcome.findings.iter().filter(|f| !f.passed) {
            failed.push(format!(
                "{}: {}: measured {}; bound {}; published {} ({}); to inspect the run: fullpipe run {} \
                 --out report.html",
                figure.id, f.claim, f.measured, f.bound, f.published, figure.source, figure.file
            ));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Check(format!(
        "{} claims not reproduced (all are in {}):\n{}",
        failed.len(),
        page.display(),
        failed.join("\n")
    )))
}
