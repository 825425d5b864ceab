//! All figures on one page: what was published, what was measured, whether it agrees, and the plot.

use crate::{Figure, Outcome};
use fullpipe_experiment::recording::Source;
use fullpipe_report::escaped;
use std::fmt::Write;

/// One self-contained HTML page. `command` says how to make it again; `chapters` is where the
/// explanations are, as a prefix of their links.
pub fn page(results: &[(&Figure, &Outcome)], source: Source, command: &str, chapters: &str) -> String {
    let passed = results.iter().filter(|(_, o)| o.passed()).count();
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>The published results on BBR, measured again</title>\n<style>{STYLE}</style></head><body>\n\
         <header><h1>The published results on BBR, measured again</h1>\
         <p class=\"lead\">{passed} of {} figures and tables come out as published, in {}.</p>\
         <p class=\"how\">Made by <code>{}</code></p></header>\n<nav>",
        results.len(),
        match source {
            Source::Sim => "the simulator",
            Source::Lab => "the lab: kernel TCP over an emulated path",
            Source::Net | Source::Trace | Source::Live => "a real network",
        },
        escaped(command)
    );
    for (figure, outcome) in results {
        let _ = write!(
            out,
            "<a href=\"#{id}\" class=\"{class}\">{mark} {id}</a> ",
            id = figure.id,
            class = class(outcome),
            mark = mark(outcome.passed())
        );
    }
    out.push_str("</nav>\n");
    for (figure, outcome) in results {
        section(&mut out, figure, outcome, chapters);
    }
    out.push_str("</body></html>\n");
    out
}

fn section(out: &mut String, figure: &Figure, outcome: &Outcome, chapters: &str) {
    let verdict = if outcome.passed() { "as published" } else { "differs from what was published" };
    let _ = write!(
        out,
        "<section id=\"{id}\"><h2>{title} <span class=\"verdict {class}\">{mark} {verdict}</span></h2>\
         <p class=\"source\">{source} · scenario <code>{file}</code> · <a href=\"{chapters}{chapter}\">what to look at, and why</a></p>\
         <p>{about}</p>\n<figure>{svg}</figure>\n\
         <table><thead><tr><th></th><th>claim</th><th>published</th><th>measured here</th><th>counts as seen</th></tr></thead><tbody>\n",
        id = figure.id,
        title = escaped(figure.title),
        class = class(outcome),
        mark = mark(outcome.passed()),
        source = escaped(figure.source),
        file = escaped(figure.file),
        chapter = figure.chapter(),
        about = escaped(figure.about),
        svg = with_own_ids(&outcome.picture.svg(), figure.id),
    );
    for f in &outcome.findings {
        let _ = writeln!(
            out,
            "<tr class=\"{}\"><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            if f.passed { "pass" } else { "fail" },
            mark(f.passed),
            escaped(&f.claim),
            escaped(&f.published),
            escaped(&f.measured),
            escaped(&f.bound)
        );
    }
    out.push_str("</tbody></table>\n");
    for note in &outcome.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escaped(note));
    }
    out.push_str("</section>\n");
}

/// Several pictures share the page, and with it one space of ids: each picture's get its figure's name.
fn with_own_ids(svg: &str, figure: &str) -> String {
    svg.replace("id=\"", &format!("id=\"{figure}-"))
        .replace("url(#", &format!("url(#{figure}-"))
        .replace("href=\"#", &format!("href=\"#{figure}-"))
}

fn class(outcome: &Outcome) -> &'static str {
    if outcome.passed() { "pass" } else { "fail" }
}

fn mark(passed: bool) -> &'static str {
    if passed { "✓" } else { "✗" }
}

const STYLE: &str = "
:root { color-scheme: light; --ink: #1c2430; --soft: #5b6672; --line: #dde2e8; --good: #00734f; --bad: #b3400a; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff; margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 1120px; }
h1 { font-size: 2rem; margin: 0; } h2 { font-size: 1.3rem; margin: 0 0 .2rem; }
.lead { font-size: 1.2rem; margin: .4rem 0; } .how, .source { color: var(--soft); font-size: .9rem; margin: 0 0 .6rem; }
nav { position: sticky; top: 0; background: #fff; padding: .6rem 0; border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .2rem .9rem; font-size: .9rem; }
nav a { text-decoration: none; } a.pass, .pass td:first-child, .verdict.pass { color: var(--good); } a.fail, .fail td:first-child, .verdict.fail { color: var(--bad); }
section { margin-top: 2.6rem; scroll-margin-top: 5rem; } .verdict { font-size: .95rem; font-weight: 600; white-space: nowrap; margin-left: .6rem; }
figure { margin: .8rem 0; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; } figure svg { width: 100%; height: auto; display: block; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; } th { text-align: left; color: var(--soft); font-weight: 600; }
td, th { padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; } .fail td { background: #fff6f1; }
.note { color: var(--soft); font-size: .92rem; } code { font-size: .9em; background: #f3f5f7; padding: .1em .3em; border-radius: 3px; }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FIGURES, Finding};
    use fullpipe_report::picture::{Curve, Panel, Picture};

    #[test]
    fn the_page_says_what_held_and_what_did_not_and_escapes_what_it_is_given() {
        let outcome = |passed| Outcome {
            findings: vec![Finding::new("a <claim>", "p", "m", "b", passed)],
            picture: Picture {
                panels: vec![Panel {
                    curves: vec![Curve::line("a", [0, 0, 0], [(0.0, 1.0), (1.0, 2.0)])],
                    ..Panel::default()
                }],
                ..Picture::default()
            },
            notes: vec![],
        };
        let (first, second) = (outcome(true), outcome(false));
        let results = [(&FIGURES[0], &first), (&FIGURES[1], &second)];
        let html = page(&results, Source::Sim, "fullpipe figure <all>", "docs/");
        assert!(html.contains("1 of 2 figures"));
        assert!(
            html.contains("a &lt;claim&gt;")
                && html.contains("figure &lt;all&gt;")
                && !html.contains("<claim>")
        );
        assert!(html.contains("docs/figures/fig1.md"));
        // No id twice, or a picture would be clipped like its neighbour.
        let mut ids: Vec<&str> =
            html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert!(ids.len() == count && count > 2, "{count} ids, {} of them distinct", ids.len());
        assert!(!html.contains("http://www.w3.org/1999/xlink") && !html.contains("src="));
    }
}
