//! The published results come out in the simulator. `FIGURE=fig8` runs one of them alone.

use fullpipe_experiment::recording::Source;
use fullpipe_figures::{FIGURES, Runs};
use fullpipe_run::{Batch, Engine, Job};

#[test]
fn every_figure_comes_out_as_published() {
    let only = std::env::var("FIGURE").ok();
    let mut failed = Vec::new();
    for figure in FIGURES.iter().filter(|f| only.as_ref().is_none_or(|id| id == f.id)) {
        let cases = figure.cases().unwrap_or_else(|e| panic!("{e}"));
        let jobs = cases.iter().map(|case| Job { engine: Engine::Sim, case: case.clone() }).collect();
        let recordings = Batch::new(jobs).run(&()).all().unwrap_or_else(|e| panic!("{}: {e}", figure.id));
        let runs = cases.into_iter().zip(recordings).collect();
        let outcome = figure.judge(&Runs { source: Source::Sim, runs });
        for f in &outcome.findings {
            let mark = if f.passed { "ok  " } else { "FAIL" };
            println!(
                "{mark} {}: {}: {} (published: {}; bound: {})",
                figure.id, f.claim, f.measured, f.published, f.bound
            );
            if !f.passed {
                failed.push(format!("{}: {}: {} (bound: {})", figure.id, f.claim, f.measured, f.bound));
            }
        }
        for note in &outcome.notes {
            println!("     {note}");
        }
        assert!(outcome.picture.svg().len() > 1000, "{}: an empty picture", figure.id);
    }
    assert!(failed.is_empty(), "not as published:\n{}", failed.join("\n"));
}
