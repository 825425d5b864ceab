//! The published results come out in the simulator. `FIGURE=fig8` runs one of them alone.

use fullpipe_experiment::recording::Source;
use fullpipe_figures::{FIGURES, Figure, Finding, Outcome, Runs};
use fullpipe_report::picture::{Curve, Picture};
use fullpipe_run::{Batch, Engine, Job};
use std::path::Path;

/// The chapter with what was measured now in the rows of its table.
fn with_measured(chapter: &str, outcome: &Outcome) -> String {
    let row = |line: &str| {
        let of = |f: &Finding| format!("| {} | {} | ", f.claim, f.published);
        let found = outcome.findings.iter().find(|f| line.starts_with(&of(f)));
        found.map_or(line.to_owned(), |f| format!("{}{} |", of(f), f.measured))
    };
    for f in &outcome.findings {
        assert!(chapter.contains(&format!("| {} | {} | ", f.claim, f.published)), "no row for: {}", f.claim);
    }
    chapter.lines().map(|line| row(line) + "\n").collect()
}

/// What is written in a picture: titles, ticks, legend.
fn texts(svg: &str) -> Vec<&str> {
    svg.split("aria-label=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

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
    let mut stale: Vec<String> = Vec::new();
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
        let (svg, chapter) = (outcome.picture.svg(), with_measured(figure.chapter, &outcome));
        if let Some(dir) = std::env::var_os("FULLPIPE_PICTURES") {
            // `scripts/pictures` keeps them.
            for (end, text) in [("svg", svg), ("md", chapter)] {
                std::fs::write(Path::new(&dir).join(format!("{}.{end}", figure.id)), text).unwrap();
            }
            continue;
        }
        let rows = chapter.lines().zip(figure.chapter.lines()).filter(|(now, told)| now != told);
        stale.extend(rows.map(|(now, _)| format!("{}.md: {now}", figure.id)));
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("chapters/{}.svg", figure.id));
        if texts(&std::fs::read_to_string(kept).unwrap()) != texts(&svg) {
            stale.push(format!("{}.svg: other words or ticks", figure.id));
        }
    }
    assert!(
        stale.is_empty(),
        "docs/figures is behind; `scripts/pictures figures` renews it:\n{}",
        stale.join("\n")
    );
    assert!(failed.is_empty(), "not as published:\n{}", failed.join("\n"));
}
