//! `fullpipe figure`: the published results, made again.

use crate::failure::Failure;
use crate::runs::{self, Choice, LENT, Progress, hanging, listed};
use fullpipe_experiment::Recording;
use fullpipe_experiment::scenario::Case;
use fullpipe_figures::{FIGURES, Figure, Finding, Outcome, Runs, find, page, tally, unknown_figure};
use fullpipe_report::AtomicFile;
use fullpipe_run::{Batch, Engine, InRealTime, Job};
use std::path::{Path, PathBuf};

/// Make the published results on BBR again, and hold them against what was published.
///
/// Writes one page with all figures asked for, and a PNG and an SVG of each. Without IDs it lists them.
#[derive(clap::Args)]
pub struct Args {
    /// Figures and tables by their ids (`fig8`), or `all`.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// What runs them.
    #[arg(long, value_enum, default_value_t)]
    engine: Choice,
    /// Fewer, shorter or smaller runs of the figures that take long (marked so); the claims are the same. `all` makes those so that take minutes
    /// to simulate, unless they are named, too.
    #[arg(long)]
    short: bool,
    /// Folder for the page and the pictures.
    #[arg(long, value_name = "DIR", default_value = "figures", value_hint = clap::ValueHint::DirPath)]
    out: PathBuf,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.ids.is_empty() {
            for figure in FIGURES {
                hanging(&format!("{:<12} ", figure.id), 0, &format!("{} ({})", figure.title, figure.source));
            }
            println!("all          every one of them");
            return Ok(());
        }
        let figures = self.chosen()?;
        std::fs::create_dir_all(&self.out)
            .map_err(|e| Failure::usage(format!("{}: cannot make this folder: {e}", self.out.display())))?;
        let &[engine] = self.engine.engines() else {
            return Err(Failure::usage("a figure is made by one engine: --engine sim or --engine lab"));
        };
        let mut to_make: Vec<ToMake> = Vec::new();
        for figure in figures {
            to_make.push(self.to_make(figure, engine)?);
        }
        // In real time everything at once, because runs that leave the machine idle may share it; simulations
        // figure by figure, because recordings are large.
        let together = if engine == Engine::Lab { to_make.len() } else { 1 };
        let mut results: Vec<Made> = Vec::new();
        let mut to_make = to_make.into_iter().peekable();
        while to_make.peek().is_some() {
            let some: Vec<ToMake> = to_make.by_ref().take(together).collect();
            for ToMake { figure, cases, short } in &some {
                let short = if *short { ", shortened" } else { "" };
                eprintln!("{}: {} ({} runs{short})", figure.id, figure.title, cases.len());
            }
            let mut runs = run(&some, engine)?.into_iter();
            for ToMake { figure, cases, short } in some {
                let runs: Vec<(Case, Recording)> = cases.into_iter().zip(runs.by_ref()).collect();
                results.push(self.judge(figure, short, Runs { source: engine.source(), runs })?);
            }
        }
        let command = self.command(engine);
        let pages: Vec<(&Figure, &Outcome)> =
            results.iter().map(|made| (made.figure, &made.outcome)).collect();
        let html = page(&pages, engine.source(), &command);
        // For who wants to read or change them; the page holds them, too.
        for made in &results {
            self.write(&format!("{}.md", made.figure.id), made.figure.standalone_chapter().as_bytes())?;
            self.write(&format!("{}.toml", made.figure.id), made.figure.text.as_bytes())?;
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

    fn to_make(&self, figure: &'static Figure, engine: Engine) -> Result<ToMake, Failure> {
        let among_all =
            figure.is_long() && !listed(&self.ids).iter().any(|id| id.eq_ignore_ascii_case(figure.id));
        let short =
            if self.short || among_all { figure.short_cases().map_err(Failure::usage)? } else { None };
        let is_short = short.is_some();
        let mut cases = match short {
            Some(cases) => cases,
            None => figure.cases().map_err(Failure::usage)?,
        };
        if engine == Engine::Lab {
            leave_out_what_the_kernel_lacks(&mut cases);
        }
        Ok(ToMake { figure, cases, short: is_short })
    }

    /// Holds the runs against what was published, and writes the picture.
    fn judge(&self, figure: &'static Figure, short: bool, runs: Runs) -> Result<Made, Failure> {
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
                .insert(0, "Shortened: fewer, shorter or smaller runs than the figure's own.".to_owned());
        }
        outcome.notes.extend(invalid.iter().map(|run| format!("Not valid: {run}")));
        self.write(&format!("{}.svg", figure.id), outcome.picture.svg().as_bytes())?;
        let png = outcome.picture.png().map_err(|e| Failure::usage(format!("{}: {e}", figure.id)))?;
        self.write(&format!("{}.png", figure.id), &png)?;
        Ok(Made { figure, short, outcome, invalid })
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

/// A figure without one of its controllers still says something of the others.
fn leave_out_what_the_kernel_lacks(cases: &mut Vec<Case>) {
    let mut missing: Vec<String> = Vec::new();
    cases.retain(|case| {
        let lacking = case.scenario.flows.iter().find(|f| !runs::kernel_offers(&f.cc));
        if let Some(flow) = lacking
            && !missing.contains(&flow.cc)
        {
            missing.push(flow.cc.clone());
        }
        lacking.is_none()
    });
    for cc in missing {
        eprintln!("left out: the kernel has no `{cc}`; `fullpipe cc load {cc}` as root may load it");
    }
}

/// A figure and the runs it takes.
struct ToMake {
    figure: &'static Figure,
    cases: Vec<Case>,
    short: bool,
}

/// A figure that was made.
struct Made {
    figure: &'static Figure,
    short: bool,
    outcome: Outcome,
    /// Runs that must not be believed, and why.
    invalid: Vec<String>,
}

/// Runs all cases, or says why not.
fn run(figures: &[ToMake], engine: Engine) -> Result<Vec<Recording>, Failure> {
    let cases = figures.iter().flat_map(|f| &f.cases);
    let jobs: Vec<Job> = cases.map(|case| Job { engine, case: case.clone() }).collect();
    let progress = Progress::of(&jobs);
    let lab = InRealTime { together: true, lend: LENT, ..InRealTime::default() };
    Batch::new(jobs).in_real_time(lab).run(&progress).all().map_err(runs::failure)
}

fn print(results: &[Made]) {
    for Made { figure, short, outcome, .. } in results {
        let short = if *short { " (shortened)" } else { "" };
        println!("\n{} — {}{short}", figure.id, figure.title);
        for finding in &outcome.findings {
            let Finding { claim, published, measured, bound, differs, .. } = finding;
            let mark = finding.agreement().symbol();
            hanging(&format!("  {mark} "), 0, claim);
            hanging("      published: ", 0, published);
            hanging("      measured:  ", 0, measured);
            hanging("      bound:     ", 0, bound);
            if let Some(differs) = differs {
                hanging("      differs:   ", 0, differs);
            }
        }
        for note in &outcome.notes {
            hanging("  note: ", 0, note);
        }
    }
    println!("\n{}", tally(results.iter().map(|made| &made.outcome)));
}

fn json(results: &[Made]) -> serde_json::Value {
    let figures: Vec<serde_json::Value> = results
        .iter()
        .map(|Made { figure, short, outcome, invalid }| {
            let findings: Vec<serde_json::Value> = outcome
                .findings
                .iter()
                .map(|f| {
                    serde_json::json!({
                        "claim": f.claim, "published": f.published, "measured": f.measured,
                        "bound": f.bound, "passed": f.passed, "agreement": f.agreement().name(), "differs": f.differs,
                    })
                })
                .collect();
            serde_json::json!({
                "id": figure.id, "title": figure.title, "source": figure.source, "scenario": figure.file,
                "passed": outcome.passed(), "agreement": outcome.agreement().name(), "shortened": short, "findings": findings, "notes": outcome.notes,
                "not_valid": invalid,
            })
        })
        .collect();
    serde_json::json!({ "schema": "fullpipe/figures/1", "figures": figures })
}

fn verdict(results: &[Made], page: &Path) -> Result<(), Failure> {
    let invalid: Vec<String> = results
        .iter()
        .flat_map(|made| made.invalid.iter().map(|run| format!("{}: {run}", made.figure.id)))
        .collect();
    if !invalid.is_empty() {
        return Err(Failure::Check(format!("{} runs are not valid:\n{}", invalid.len(), invalid.join("\n"))));
    }
    let mut failed = Vec::new();
    for Made { figure, outcome, .. } in results {
        for f in outcome.findings.iter().filter(|f| !f.passed) {
            failed.push(format!(
                "{}: {}: measured {}; bound {}; published {} ({}); to see the run: fullpipe run {} --out report.html",
                figure.id, f.claim, f.measured, f.bound, f.published, figure.source, figure.file
            ));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Check(format!(
        "{} claims not seen (all on {}):\n{}",
        failed.len(),
        page.display(),
        failed.join("\n")
    )))
}
