//! The published results come out in the simulator. `FIGURE=fig8` runs one of them alone.

use fullpipe_experiment::recording::Source;
use fullpipe_figures::{FIGURES, Figure, Runs};
use fullpipe_report::picture::{Curve, Picture};
use fullpipe_run::{Batch, Engine, Job};
use std::path::Path;

/// Published numbers are in the picture, with an entry in the legend and within the axes; or it says that there were none.
fn shows_what_was_published(figure: &Figure, picture: &Picture) {
    let svg = picture.svg();
    assert!(svg.contains("aria-label=\"Published: "), "{}: not told beneath", figure.id);
    let told: Vec<&Curve> =
        picture.panels.iter().flat_map(|p| &p.curves).filter(|c| c.label == "published").collect();
    if figure.published.starts_with("no number") {
        assert!(told.is_empty() && !svg.contains("aria-label=\"published\""), "{}", figure.id);
        return;
    }
    assert!(!told.is_empty() && svg.contains("aria-label=\"published\""), "{}: not drawn", figure.id);
    for panel in &picture.panels {
        let within = |range: Option<(f64, f64)>, v: f64| range.is_none_or(|(a, b)| (a..=b).contains(&v));
        for (x, y) in panel.curves.iter().filter(|c| c.label == "published").flat_map(|c| &c.points) {
            let inside = within(panel.x.range, *x) && within(panel.y.range, *y);
            assert!(inside, "{}: {}: {x} {y} is cut off", figure.id, panel.title);
        }
    }
}

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
        shows_what_was_published(figure, &outcome.picture);
        // `scripts/pictures` keeps them.
        if let Some(dir) = std::env::var_os("FULLPIPE_PICTURES") {
            std::fs::write(Path::new(&dir).join(format!("{}.svg", figure.id)), outcome.picture.svg())
                .unwrap();
        }
    }
    assert!(failed.is_empty(), "not as published:\n{}", failed.join("\n"));
}
