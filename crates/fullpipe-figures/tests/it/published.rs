//! The published results come out in the simulator. `FIGURE=fig8` runs one of them alone, in its long
//! form if it has one.

use fullpipe_experiment::Case;
use fullpipe_experiment::recording::Source;
use fullpipe_figures::{FIGURES, Figure, Finding, Outcome, Runs};
use fullpipe_report::picture::{Curve, Picture};
use fullpipe_run::{Batch, Engine, Job};
use std::path::Path;

/// Figures that together take as long as all others.
const SLOW: [&str; 4] = ["core-scale", "cubic-window", "tcp-bbr", "two-rtt"];

/// The column of a chapter's table in which the runs' own figures stand, and the one of the short
/// form of a long figure.
const HERE: usize = 0;
const SHORT: usize = 1;

/// The chapter with what was measured now in this column of its table.
fn with_measured(chapter: &str, outcome: &Outcome, column: usize) -> String {
    let row = |line: &str| {
        let of = |f: &Finding| format!("| {} | {} | ", f.claim, f.published);
        let Some(f) = outcome.findings.iter().find(|f| line.starts_with(&of(f))) else {
            return line.to_owned();
        };
        let mut cells: Vec<&str> = line[of(f).len()..].trim_end_matches(" |").split(" | ").collect();
        assert!(column < cells.len(), "no such column: {line}");
        cells[column] = &f.measured;
        format!("{}{} |", of(f), cells.join(" | "))
    };
    for f in &outcome.findings {
        assert!(chapter.contains(&format!("| {} | {} | ", f.claim, f.published)), "no row for: {}", f.claim);
    }
    chapter.lines().map(|line| row(line) + "\n").collect()
}

/// What the simulator makes of these runs of a figure.
fn made(figure: &Figure, cases: Vec<Case>) -> Outcome {
    let jobs = cases.iter().map(|case| Job { engine: Engine::Sim, case: case.clone() }).collect();
    let recordings = Batch::new(jobs).run(&()).into_runs().unwrap_or_else(|e| panic!("{}: {e}", figure.id));
    let outcome =
        figure.judge(&Runs { source: Source::Sim, runs: cases.into_iter().zip(recordings).collect() });
    for f in &outcome.findings {
        let mark = if f.passed { "ok  " } else { "FAIL" };
        println!(
            "{mark} {}: {}: {} (published: {}; bound: {})",
            figure.id, f.claim, f.measured, f.published, f.bound
        );
    }
    for note in &outcome.notes {
        println!("     {note}");
    }
    shows_what_was_published(figure, &outcome.picture);
    outcome
}

/// What is written in a picture: titles, ticks, legend.
fn texts(svg: &str) -> Vec<&str> {
    svg.split("aria-label=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Published numbers are in the picture, with an entry in the legend and within the axes; or it
/// says that there were none.
fn shows_what_was_published(figure: &Figure, picture: &Picture) {
    let svg = picture.svg();
    assert!(svg.contains("aria-label=\"Published: "), "{}: not stated below the picture", figure.id);
    let published: Vec<&Curve> =
        picture.panels.iter().flat_map(|p| &p.curves).filter(|c| c.label == "published").collect();
    if figure.published.starts_with("no number") {
        assert!(published.is_empty() && !svg.contains("aria-label=\"published\""), "{}", figure.id);
        return;
    }
    assert!(!published.is_empty() && svg.contains("aria-label=\"published\""), "{}: not drawn", figure.id);
    for panel in &picture.panels {
        let within = |range: Option<(f64, f64)>, v: f64| range.is_none_or(|(a, b)| (a..=b).contains(&v));
        for (x, y) in panel.curves.iter().filter(|c| c.label == "published").flat_map(|c| &c.points) {
            let inside = within(panel.x.range, *x) && within(panel.y.range, *y);
            assert!(inside, "{}: {}: {x} {y} is cut off", figure.id, panel.title);
        }
    }
}

#[test]
fn figures_reproduce_the_published_results() {
    match std::env::var("FIGURE") {
        Ok(named) => reproduce(|id| id == named),
        Err(_) => reproduce(|id| !SLOW.contains(&id)),
    }
}

#[test]
#[ignore = "takes long: ./x test nightly"]
fn slow_figures_reproduce_the_published_results() {
    reproduce(|id| SLOW.contains(&id));
}

fn reproduce(is_chosen: impl Fn(&str) -> bool) {
    let is_named = std::env::var_os("FIGURE").is_some();
    let pictures = std::env::var_os("FULLPIPE_PICTURES");
    let mut failed = Vec::new();
    let mut stale: Vec<String> = Vec::new();
    let figures: Vec<&Figure> = FIGURES.iter().filter(|figure| is_chosen(figure.id)).collect();
    assert!(!figures.is_empty(), "no figure has the name that FIGURE gives");
    for figure in figures {
        let mut forms = Vec::new();
        if figure.is_long() {
            forms.push((SHORT, made(figure, figure.brief_cases().unwrap_or_else(|e| panic!("{e}")))));
        }
        if !figure.is_long() || is_named || pictures.is_some() {
            forms.push((HERE, made(figure, figure.cases().unwrap_or_else(|e| panic!("{e}")))));
        }
        let mut chapter = figure.chapter.to_owned();
        for (column, outcome) in &forms {
            let not_seen = outcome.findings.iter().filter(|f| !f.passed);
            failed.extend(
                not_seen.map(|f| format!("{}: {}: {} (bound: {})", figure.id, f.claim, f.measured, f.bound)),
            );
            chapter = with_measured(&chapter, outcome, *column);
        }
        let svg = forms.iter().find(|(column, _)| *column == HERE).map(|(_, outcome)| outcome.picture.svg());
        if let Some(dir) = &pictures {
            // `scripts/pictures` keeps them.
            for (end, text) in [("svg", svg), ("md", Some(chapter))] {
                let Some(text) = text else { continue };
                std::fs::write(Path::new(dir).join(format!("{}.{end}", figure.id)), text).unwrap();
            }
            continue;
        }
        let rows = chapter.lines().zip(figure.chapter.lines()).filter(|(now, published)| now != published);
        stale.extend(rows.map(|(now, _)| format!("{}.md: {now}", figure.id)));
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("chapters/{}.svg", figure.id));
        if svg.is_some_and(|svg| texts(&std::fs::read_to_string(kept).unwrap()) != texts(&svg)) {
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
