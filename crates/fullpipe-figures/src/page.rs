//! All figures on one page: published and measured values, agreement, and plots.

use crate::{Agreement, Figure, Finding, Outcome, chapter};
use fullpipe_experiment::recording::Source;
use fullpipe_report::escape_html;
use std::fmt::Write;

/// Counts the results by agreement: `16 of 18 as published; 2 differ (explained)`.
pub fn tally<'a>(results: impl IntoIterator<Item = &'a Outcome>) -> String {
    let all: Vec<Agreement> = results.into_iter().map(Outcome::agreement).collect();
    let count = |agreement: Agreement| all.iter().filter(|a| **a == agreement).count();
    let mut text = format!("{} of {} as published", count(Agreement::AsPublished), all.len());
    match count(Agreement::Differs) {
        0 => {}
        1 => text += "; 1 differs (explained)",
        n => text += &format!("; {n} differ (explained)"),
    }
    match count(Agreement::NotSeen) {
        0 => text,
        n => text + &format!("; {n} not reproduced"),
    }
}

/// A self-contained HTML page with the chapter and the scenario of each figure. `command`
/// reproduces it.
pub fn page(results: &[(&Figure, &Outcome)], source: Source, command: &str) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Published BBR results, reproduced</title>\n<style>{STYLE}</style></head><body>\n\
         <header><h1>Published BBR results, reproduced</h1>\
         <p class=\"lead\">{}, in {}.</p>\
         <p class=\"how\">Reproduce with <code>{}</code></p></header>\n<nav>",
        tally(results.iter().map(|(_, outcome)| *outcome)),
        match source {
            Source::Sim => "the simulator",
            Source::Lab => "the lab: kernel TCP over an emulated path",
            Source::Net | Source::Trace | Source::Live | Source::Log => "a real network",
        },
        escape_html(command)
    );
    for (figure, outcome) in results {
        let _ = write!(
            out,
            "<a href=\"#{id}\" class=\"{class}\">{mark} {id}</a> ",
            id = figure.id,
            class = class(outcome),
            mark = outcome.agreement().symbol()
        );
    }
    out.push_str("</nav>\n");
    for (figure, outcome) in results {
        section(&mut out, figure, outcome, &|id| results.iter().any(|(other, _)| other.id == id));
    }
    out.push_str("</body></html>\n");
    out
}

fn section(out: &mut String, figure: &Figure, outcome: &Outcome, on_page: &dyn Fn(&str) -> bool) {
    let agreement = outcome.agreement();
    let _ = write!(
        out,
        "<section id=\"{id}\"><h2>{title} <span class=\"verdict {class}\">{mark} {verdict}</span></h2>\
         <p class=\"source\">{source}</p>\
         <p>{about}</p>\n<figure tabindex=\"0\">{svg}</figure>\n\
         <div class=\"scroll\"><table><thead><tr><th></th><th>claim</th><th>published</th>\
         <th>measured here</th><th>accepted</th></tr></thead><tbody>\n",
        id = figure.id,
        title = escape_html(figure.title),
        class = class(outcome),
        mark = agreement.symbol(),
        verdict = agreement.description(),
        source = escape_html(figure.source),
        about = escape_html(figure.about),
        svg = prefix_ids(&outcome.picture.svg(), figure.id),
    );
    for f in &outcome.findings {
        let Finding { claim, published, measured, bound, differs, .. } = f;
        let differs =
            differs.as_ref().map_or(String::new(), |why| format!("<small>{}</small>", escape_html(why)));
        let _ = writeln!(
            out,
            "<tr class=\"{}\"><td title=\"{}\">{}</td><td>{}</td><td>{}</td><td>{}{differs}</td>\
             <td>{}</td></tr>",
            f.agreement().name(),
            f.agreement().description(),
            f.agreement().symbol(),
            escape_html(claim),
            escape_html(published),
            escape_html(measured),
            escape_html(bound)
        );
    }
    out.push_str("</tbody></table></div>\n");
    for note in &outcome.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape_html(note));
    }
    let _ = write!(
        out,
        "<details><summary>What to look at, and why</summary>{}</details>\n\
         <details><summary>Scenario: <code>{}</code></summary><pre>{}</pre></details>\n</section>\n",
        chapter::html(figure.chapter, on_page),
        escape_html(figure.file),
        escape_lines(figure.text)
    );
}

/// Escapes text and keeps its line breaks.
fn escape_lines(text: &str) -> String {
    text.lines().map(escape_html).collect::<Vec<_>>().join("\n")
}

/// Prefixes the ids of a picture with the figure, as all pictures of a page share one namespace.
fn prefix_ids(svg: &str, figure: &str) -> String {
    svg.replace("id=\"", &format!("id=\"{figure}-"))
        .replace("url(#", &format!("url(#{figure}-"))
        .replace("href=\"#", &format!("href=\"#{figure}-"))
}

fn class(outcome: &Outcome) -> &'static str {
    outcome.agreement().name()
}

const STYLE: &str = "
:root { color-scheme: light dark; --ground: #fff; --ink: #1c2430; --soft: #5b6672; --line: #dde2e8; \
--good: #00734f; --other: #8a5a00; --bad: #b3400a; --tint: #fff6f1; --code: #f3f5f7; --link: #0b5cad; }
@media (prefers-color-scheme: dark) { :root { --ground: #12171d; --ink: #e6ebf0; --soft: #9aa6b2; \
--line: #2d3742; --good: #6fd3a0; --other: #f0b429; --bad: #ff9d80; --tint: #2a1d18; --code: #1f2831; \
--link: #7ab8f5; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); \
margin: 0 auto; padding: 2rem 1.5rem 4rem; max-width: 1120px; overflow-wrap: anywhere; }
a { color: var(--link); } h1 { font-size: 2rem; margin: 0; } h2 { font-size: 1.3rem; margin: 0 0 .2rem; }
.lead { font-size: 1.2rem; margin: .4rem 0; } .how, .source { color: var(--soft); font-size: .9rem; \
margin: 0 0 .6rem; }
nav { position: sticky; top: 0; z-index: 1; background: var(--ground); padding: .6rem 0; \
border-bottom: 1px solid var(--line); display: flex; flex-wrap: wrap; gap: .2rem .9rem; font-size: .9rem; }
nav a { text-decoration: none; } a.as_published, .as_published td:first-child, .verdict.as_published \
{ color: var(--good); }
a.differs, .differs td:first-child, .verdict.differs { color: var(--other); } \
a.not_seen, .not_seen td:first-child, .verdict.not_seen { color: var(--bad); }
section { margin-top: 2.6rem; scroll-margin-top: 5rem; } .verdict { font-size: .95rem; \
font-weight: 600; white-space: nowrap; margin-left: .6rem; }
figure { margin: .8rem 0; border: 1px solid var(--line); border-radius: 6px; padding: .5rem; \
background: #fff; } figure svg { width: 100%; height: auto; display: block; }
@media (prefers-color-scheme: dark) { figure { background: #121212; } \
figure svg { filter: invert(.93) hue-rotate(180deg); } }
@media (max-width: 700px) { figure { overflow-x: auto; } figure svg { width: 840px; } }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; min-width: 40rem; \
font-size: .92rem; overflow-wrap: normal; } th { text-align: left; color: var(--soft); font-weight: 600; }
td, th { padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; } \
.not_seen td { background: var(--tint); } td small { display: block; color: var(--other); font-size: .9em; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--link); } \
details h3 { font-size: 1rem; margin: 1rem 0 .2rem; } details p, details li { max-width: 46rem; \
margin: .3rem 0; }
pre { overflow-x: auto; background: var(--code); padding: .8rem; border-radius: 6px; font-size: .85rem; \
overflow-wrap: normal; }
.note { color: var(--soft); font-size: .92rem; } code { font-size: .9em; background: var(--code); \
padding: .1em .3em; border-radius: 3px; }
@media (max-width: 600px) { body { padding: 1rem .8rem 3rem; } nav { position: static; } \
h1 { font-size: 1.5rem; } }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FIGURES, Finding};
    use fullpipe_report::picture::{Curve, Panel, Picture};

    #[test]
    fn page_shows_agreement_and_escapes_text() {
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
        let html = page(&results, Source::Sim, "fullpipe figure <all>");
        assert!(html.contains("1 of 2 as published; 1 not reproduced"));
        assert!(
            html.contains("a &lt;claim&gt;")
                && html.contains("figure &lt;all&gt;")
                && !html.contains("<claim>")
        );
        // Links within the page have a target.
        for link in html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let is_on_page = link.strip_prefix('#').is_some_and(|id| html.contains(&format!(" id=\"{id}\"")));
            assert!(is_on_page || link.starts_with("https://"), "{link}");
        }
        assert!(html.contains("<h3>Why</h3>") && html.contains("[[flow]]\ncc = "), "chapter and scenario");
        // Ids are unique, or a picture would use the clip path of another.
        let mut ids: Vec<&str> =
            html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert!(ids.len() == count && count > 2, "{count} ids, {} of them distinct", ids.len());
        assert!(!html.contains("http://www.w3.org/1999/xlink") && !html.contains("src="));
    }

    #[test]
    fn difference_is_shown_with_its_reason() {
        let finding = Finding::new("c", "30×", "274×", "≥ 5×", true).differing(true, "the path is <unknown>");
        let outcome = Outcome { findings: vec![finding], picture: Picture::default(), notes: Vec::new() };
        assert_eq!(outcome.agreement(), Agreement::Differs);
        let html = page(&[(&FIGURES[0], &outcome)], Source::Sim, "fullpipe figure x");
        assert!(html.contains("0 of 1 as published; 1 differs (explained)"), "{html}");
        assert!(html.contains("≠ differs (explained)") && html.contains("the path is &lt;unknown&gt;"));
    }

    #[test]
    fn standalone_chapters_have_no_dead_links() {
        for figure in FIGURES {
            let text = figure.standalone_chapter();
            assert!(text.starts_with(&format!("# {}", figure.id)), "{text}");
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let own = [".svg", ".toml"].map(|end| format!("{}{end}", figure.id));
                let other = FIGURES.iter().any(|f| link == format!("{}.md", f.id));
                let outside = link.starts_with("https://") || link.starts_with('#');
                assert!(own.iter().any(|own| own == link) || other || outside, "{}: {link}", figure.id);
            }
        }
    }
}
