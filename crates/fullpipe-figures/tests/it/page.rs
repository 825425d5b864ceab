//! The page of the figures in a browser, alone in a folder: on a screen and on a phone, light and
//! dark.

use fullpipe_experiment::recording::Source;
use fullpipe_figures::{FIGURES, Figure, Outcome, Runs, page};
use fullpipe_run::{Batch, Engine, Job};
use fullpipe_testing::{View, visit};
use std::path::PathBuf;

/// Opens all that can be opened, and writes down what is wider than the window and where links
/// lead.
const READER: &str = r##"(async () => {
    for (const e of document.querySelectorAll("details")) e.open = true;
    await new Promise((r) => requestAnimationFrame(r));
    const links = [...document.querySelectorAll("a[href]")].map((a) => a.getAttribute("href"));
    const channels = (e) => getComputedStyle(e).backgroundColor.match(/\d+/g).slice(0, 3);
    const light = (e) => channels(e).reduce((a, b) => a + +b, 0) / 3;
    const seen = {
        wider: document.documentElement.scrollWidth - innerWidth,
        links: links.length,
        nowhere: links.filter((l) => !l.startsWith("https://")
            && !(l.startsWith("#") && document.getElementById(l.slice(1)))),
        foreign: performance.getEntriesByType("resource").length,
        tables: [...document.querySelectorAll(".scroll")].map((e) => e.scrollWidth - e.clientWidth),
        pictures: [...document.querySelectorAll("figure")].map((e) => e.scrollWidth - e.clientWidth),
        ground: light(document.body),
        inverted: getComputedStyle(document.querySelector("figure svg")).filter !== "none",
    };
    for (const e of document.querySelectorAll("details")) e.open = false;
    return seen;
})()"##;

fn made(figure: &'static Figure) -> (&'static Figure, Outcome) {
    let cases = figure.brief_cases().unwrap();
    let jobs = cases.iter().map(|case| Job { engine: Engine::Sim, case: case.clone() }).collect();
    let recordings = Batch::new(jobs).run(&()).into_runs().unwrap();
    let runs = Runs { source: Source::Sim, runs: cases.into_iter().zip(recordings).collect() };
    (figure, figure.judge(&runs))
}

#[test]
fn page_is_self_contained_and_fits_any_screen() {
    let pictures = std::env::var_os("FULLPIPE_PICTURES").map(PathBuf::from);
    // A few that take little time, unless all are wanted to look at.
    let some = ["fig2", "fig4", "aggregation", "policer"];
    let figures = FIGURES.iter().filter(|f| pictures.is_some() || some.contains(&f.id));
    let made: Vec<(&Figure, Outcome)> = figures.map(made).collect();
    let results: Vec<(&Figure, &Outcome)> = made.iter().map(|(figure, outcome)| (*figure, outcome)).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("figures.html");
    std::fs::write(&file, page(&results, Source::Sim, "fullpipe figure some --engine sim")).unwrap();
    for (name, width, dark) in [
        ("figures.png", 1100, false),
        ("figures-dark.png", 1100, true),
        ("figures-phone.png", 390, false),
        ("figures-phone-dark.png", 390, true),
    ] {
        let picture = pictures.as_ref().map(|dir| dir.join(name));
        let view = View { width, height: 900, dark, picture: picture.as_deref() };
        let Some(visited) = visit(&format!("file://{}", file.display()), READER, view) else { return };
        assert!(visited.errors.is_empty(), "{:?}", visited.errors);
        let seen = &visited.value;
        assert!(seen["wider"].as_i64().unwrap() <= 0, "{width}: the page is wider than the window: {seen:#}");
        // Each figure has a link to it, at least.
        assert!(seen["links"].as_u64().unwrap() >= made.len() as u64, "{seen:#}");
        assert_eq!(seen["nowhere"], serde_json::json!([]), "links that lead nowhere");
        assert_eq!(seen["foreign"], 0, "the page asked for something");
        let scrolls = |what: &str| {
            seen[what].as_array().unwrap().iter().filter(|wider| wider.as_i64().unwrap() > 0).count()
        };
        let all = if width == 390 { made.len() } else { 0 };
        assert_eq!((scrolls("tables"), scrolls("pictures")), (all, all), "{width}: {seen:#}");
        assert_eq!((seen["ground"].as_f64().unwrap() < 60.0, &seen["inverted"]), (dark, &dark.into()));
    }
}
