//! `fullpipe figure`: the published results, made again.

use crate::failure::Failure;
use crate::runs::{Batch, Choice, Job};
use fullpipe_experiment::recording::Engine;
use fullpipe_experiment::scenario::Case;
use fullpipe_figures::{FIGURES, Figure, Finding, Outcome, Runs, find, nearest, page};
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
                println!("{:<12} {} ({})", figure.id, figure.title, figure.source);
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
        let mut results: Vec<(&Figure, Outcome)> = Vec::new();
        for figure in figures {
            let mut cases = figure.cases().map_err(Failure::usage)?;
            if engine == Engine::Lab {
                leave_out_what_the_kernel_lacks(&mut cases);
            }
            eprintln!("{}: {} ({} runs)", figure.id, figure.title, cases.len());
            let runs = run(&cases, engine)?;
            let outcome = figure.judge(&Runs { engine, runs: cases.into_iter().zip(runs).collect() });
            self.write(&format!("{}.svg", figure.id), outcome.picture.svg().as_bytes())?;
            let png = outcome.picture.png().map_err(|e| Failure::usage(format!("{}: {e}", figure.id)))?;
            self.write(&format!("{}.png", figure.id), &png)?;
            results.push((figure, outcome));
        }
        let command = format!("fullpipe figure {} --engine {}", self.ids.join(" "), engine.name());
        let html = page(&results, engine, &command, "../docs/");
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

    fn chosen(&self) -> Result<Vec<&'static Figure>, Failure> {
        if self.ids.iter().any(|id| id == "all") {
            return Ok(FIGURES.iter().filter(|f| self.engine == Choice::Sim || f.in_lab).collect());
        }
        self.ids.iter().map(|id| find(id).ok_or_else(|| Failure::usage(nearest(id)))).collect()
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.out.join(name);
        std::fs::write(&path, bytes)
            .map_err(|e| Failure::usage(format!("{}: cannot write: {e}", path.display())))
    }
}

/// A figure without one of its controllers still says something of the others.
fn leave_out_what_the_kernel_lacks(cases: &mut Vec<Case>) {
    let mut missing: Vec<String> = Vec::new();
    cases.retain(|case| {
        let lacking = case.scenario.flows.iter().find(|f| !crate::runs::kernel_offers(&f.cc));
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

/// Runs all cases, or says why not.
fn run(cases: &[Case], engine: Engine) -> Result<Vec<fullpipe_experiment::Recording>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = cases.iter().map(|case| Job { engine, case: case.clone() }).collect();
    let outcome = Batch { jobs, threads, series: true }.run();
    if outcome.interrupted {
        return Err(Failure::Passed(130));
    }
    match outcome.failures.into_iter().next() {
        Some(failure) => Err(failure),
        None => Ok(outcome.results.runs),
    }
}

fn print(results: &[(&Figure, Outcome)]) {
    for (figure, outcome) in results {
        println!("\n{} — {}", figure.id, figure.title);
        for Finding { claim, published, measured, bound, passed } in &outcome.findings {
            let mark = if *passed { "✓" } else { "✗" };
            println!(
                "  {mark} {claim}\n      published: {published}\n      measured:  {measured}\n      bound:     {bound}"
            );
        }
        for note in &outcome.notes {
            println!("  note: {note}");
        }
    }
    let passed = results.iter().filter(|(_, o)| o.passed()).count();
    println!("\n{passed} of {} as published", results.len());
}

fn json(results: &[(&Figure, Outcome)]) -> serde_json::Value {
    let figures: Vec<serde_json::Value> = results
        .iter()
        .map(|(figure, outcome)| {
            let findings: Vec<serde_json::Value> = outcome
                .findings
                .iter()
                .map(|f| {
                    serde_json::json!({
                        "claim": f.claim, "published": f.published, "measured": f.measured,
                        "bound": f.bound, "passed": f.passed,
                    })
                })
                .collect();
            serde_json::json!({
                "id": figure.id, "title": figure.title, "source": figure.source, "scenario": figure.file,
                "passed": outcome.passed(), "findings": findings, "notes": outcome.notes,
            })
        })
        .collect();
    serde_json::json!({ "schema": "fullpipe/figures/1", "figures": figures })
}

fn verdict(results: &[(&Figure, Outcome)], page: &Path) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for (figure, outcome) in results {
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
