//! A self-contained HTML page: it needs no network and no server, and opens from a file.
//!
//! User text (labels, titles, scenario files) enters the markup through [`escape_html`] and the
//! script's data through [`data::json`]; the script sets text only, never markup.

mod data;
#[cfg(feature = "sequence")]
mod sequence;

use crate::About;
use crate::comparison;
use crate::notes::notes;
use crate::picture::{self, escape_html};
use crate::reduce::{INTERVALS, RunNames, condense, distinct, groups};
use crate::verdict::{problems, verdict};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{Recording, Source, Summary};
use fullpipe_presentation::numbers::{
    millis, percent, percent_figure, rate_unit, seconds, share, significant,
};
use fullpipe_presentation::page::{PRELUDE, STYLE, UPLOT, UPLOT_LICENCE, UPLOT_STYLE};
use fullpipe_presentation::palette::{Colour, controller_colour};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

const TEMPLATE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");

/// Runs with more flows list only the first ones in the table.
const MAX_FLOWS: usize = 32;
/// Scenario files shown in full.
const MAX_SCENARIOS: usize = 12;

/// Additional parts of a page, as markup.
#[derive(Default)]
struct Extra {
    /// Replaces the conclusion from the figures.
    verdict: Option<String>,
    section: String,
    script: String,
}

pub(crate) fn write(results: &Results, about: &About, out: &mut dyn Write) -> io::Result<()> {
    page(results, about, &Extra::default(), out)
}

/// Writes the page of a capture: `words` explain what limited the connection, `sender` is the
/// identified controller and `sequences` are the packets.
///
/// # Errors
/// `out` cannot be written.
#[cfg(feature = "sequence")]
pub fn write_capture(
    results: &Results,
    about: &About,
    words: &[String],
    sender: Option<&fullpipe_experiment::connection::Sender>,
    sequences: &[fullpipe_experiment::connection::Sequence],
    out: &mut dyn Write,
) -> io::Result<()> {
    let extra = Extra {
        verdict: (!words.is_empty()).then(|| sequence::conclusion_lines(words)),
        section: sequence::section(sequences) + &sender.map_or_else(String::new, sequence::sender),
        script: sequence::script(sequences)?,
    };
    page(results, about, &extra, out)
}

fn page(results: &Results, about: &About, extra: &Extra, out: &mut dyn Write) -> io::Result<()> {
    let path = described_path(results);
    let median_runs = results.comparison.as_ref().map(|found| comparison::median_runs(results, found));
    let over_time = median_runs.as_ref().unwrap_or(results);
    let title = if about.title.is_empty() { path.as_str() } else { &about.title };
    // A single pass over the template: user text is never taken for a placeholder.
    for (i, part) in TEMPLATE.split("{{").enumerate() {
        let (place, rest) = if i == 0 { ("", part) } else { part.split_once("}}").unwrap_or(("", part)) };
        match place {
            "title" => out.write_all(escape_html(title).as_bytes())?,
            "path" => out.write_all(escape_html(&subtitle(results, &path)).as_bytes())?,
            "verdict" => match &extra.verdict {
                Some(words) => out.write_all(words.as_bytes())?,
                None => out.write_all(escape_html(&verdict(results)).as_bytes())?,
            },
            "extra" => out.write_all(extra.section.as_bytes())?,
            "extra-script" => out.write_all(extra.script.as_bytes())?,
            "problems" => out.write_all(problem_list(results).as_bytes())?,
            "table" => match &results.comparison {
                Some(found) => out.write_all(comparison::html_table(found).as_bytes())?,
                None => out.write_all(table(results).as_bytes())?,
            },
            "sweep" => {
                if let Some(found) = &results.comparison {
                    write!(out, "<figure>{}</figure>", comparison::picture(found).svg())?;
                    write!(
                        out,
                        "<p class=\"hint\">{}</p>",
                        escape_html(&comparison::median_runs_caption(results, found))
                    )?;
                } else if let Some(sweep) = picture::sweep_picture(results) {
                    write!(out, "<figure>{}</figure>", sweep.svg())?;
                }
            }
            "details" => out.write_all(details(results, about).as_bytes())?,
            "uplot-licence" => out.write_all(UPLOT_LICENCE.as_bytes())?,
            "uplot-style" => out.write_all(UPLOT_STYLE.as_bytes())?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "uplot" => out.write_all(UPLOT.as_bytes())?,
            "prelude" => out.write_all(PRELUDE.as_bytes())?,
            "script" => out.write_all(SCRIPT.as_bytes())?,
            "data" => out.write_all(data::json(over_time).as_bytes())?,
            _ => {}
        }
        out.write_all(rest.as_bytes())?;
    }
    Ok(())
}

fn described_path(results: &Results) -> String {
    match results.runs.first() {
        Some(first) if results.runs.iter().all(|r| r.path == first.path) => first.path.description.clone(),
        Some(_) => "Different paths".to_owned(),
        None => "No runs".to_owned(),
    }
}

fn subtitle(results: &Results, path: &str) -> String {
    let length = results.runs.iter().map(|r| r.summary.duration_s).fold(0.0, f64::max);
    let mut sources = distinct(results.runs.iter().map(|r| r.source));
    sources.sort_unstable_by_key(|s| s.name());
    let over_quic = results.runs.iter().any(|run| !run.provenance.transports.is_empty());
    let sources: Vec<&str> = sources
        .into_iter()
        .map(|source| match source {
            Source::Sim if over_quic => "simulated TCP and QUIC",
            Source::Sim => "simulated TCP",
            Source::Lab => "kernel TCP over an emulated path",
            Source::Net => "real network",
            Source::Trace => "capture",
            Source::Live => "live host",
            Source::Log => "log of an endpoint (qlog)",
        })
        .collect();
    let facts = [path, &seconds(length), &sources.join(" and "), &seeds(results)].map(str::to_owned);
    facts.into_iter().filter(|f| !f.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn seeds(results: &Results) -> String {
    let drawn = results.runs.iter().filter(|r| r.source.has_seed());
    let mut seeds: Vec<u64> = drawn.map(|r| r.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    match seeds.as_slice() {
        [] => String::new(),
        [one] => format!("seed {one}"),
        [first, .., last] => format!("{} seeds, {first} to {last}", seeds.len()),
    }
}

fn problem_list(results: &Results) -> String {
    let problems = problems(results);
    if problems.is_empty() {
        return String::new();
    }
    let items: String = problems.iter().map(|t| format!("<li>{}</li>", escape_html(t))).collect();
    format!("<ul class=\"problems\" role=\"alert\">{items}</ul>")
}

fn table(results: &Results) -> String {
    let condensed = condense(results);
    let results = &*condensed.results;
    let top = results.runs.iter().map(|r| r.summary.goodput_bps).fold(0.0, f64::max);
    let (unit, size) = rate_unit(top);
    let jain = results.runs.iter().any(|r| r.flows.len() > 1);
    let completion = results.runs.iter().any(|r| {
        r.summary.completion_s.is_some() || r.flows.iter().any(|f| f.summary.completion_s.is_some())
    });
    let mut out = format!(
        "<table class=\"summary\"><thead><tr><th scope=\"col\">run</th>\
         <th scope=\"col\">goodput<small>{unit}</small></th>\
         <th scope=\"col\">link<small>%</small></th><th scope=\"col\">retr<small>%</small></th>\
         <th scope=\"col\">RTT min<small>ms</small></th><th scope=\"col\">p50<small>ms</small></th>\
         <th scope=\"col\">p95<small>ms</small></th><th scope=\"col\">p99<small>ms</small></th>\
         <th scope=\"col\">queue p50<small>ms</small></th><th scope=\"col\">p95<small>ms</small></th>"
    );
    if completion {
        out += "<th scope=\"col\">completion<small>s</small></th>";
    }
    if jain {
        out += "<th scope=\"col\">Jain<small>index</small></th>";
    }
    out += "</tr></thead><tbody>";
    let scale = Scale { top, size, completion, jain };
    let groups = groups(results);
    let names = RunNames::new(results);
    for (run, half) in results.runs.iter().zip(&condensed.half) {
        let label = names.with_seed(run);
        let class = if run.valid { "" } else { "invalid" };
        row(
            &mut out,
            &scale,
            class,
            &label,
            controller_colour(&run.cc),
            &run.summary,
            (*half, run.fairness()),
        );
        if run.flows.len() > 1 {
            for flow in run.flows.iter().take(MAX_FLOWS) {
                // The colour of its line over time, if it has one.
                let own = groups.iter().find(|group| group.flow().is_some_and(|own| std::ptr::eq(own, flow)));
                let colour = own.map_or(controller_colour(&flow.cc), |group| group.look.0);
                row(&mut out, &scale, "flow", &flow.label, colour, &flow.summary, (None, None));
            }
            if let Some(more) = run.flows.len().checked_sub(MAX_FLOWS + 1) {
                let _ = write!(out, "<tr class=\"flow\"><th scope=\"row\">… {} more</th></tr>", more + 1);
            }
        }
    }
    out += "</tbody></table>";
    if condensed.has_intervals() {
        let _ = write!(out, "<p class=\"hint\">{INTERVALS}</p>");
    }
    for note in notes(results) {
        let _ = write!(out, "<p class=\"hint\">{}</p>", escape_html(&note));
    }
    out
}

struct Scale {
    top: f64,
    size: f64,
    completion: bool,
    jain: bool,
}

fn row(
    out: &mut String,
    scale: &Scale,
    class: &str,
    label: &str,
    colour: Colour,
    s: &Summary,
    (half, jain): (Option<f64>, Option<f64>),
) {
    let half =
        half.map_or(String::new(), |half| format!(" <small>± {}</small>", significant(half / scale.size, 2)));
    let ms = |v: Option<f64>| v.map_or("–".to_owned(), |v| significant(v, 3));
    let bar = if scale.top > 0.0 { (s.goodput_bps / scale.top).clamp(0.0, 1.0) } else { 0.0 };
    let mark = if class == "invalid" { " <b class=\"bad\">not valid</b>" } else { "" };
    let _ = write!(
        out,
        "<tr class=\"{class}\" style=\"--light:{};--dark:{}\"><th scope=\"row\"><i class=\"swatch\">\
         </i>{}{mark}</th>\
         <td class=\"goodput\"><span>{}</span>{half}<i style=\"--share:{bar:.4}\"></i></td><td>{}</td>\
         <td>{}</td>",
        colour.light_hex(),
        colour.dark_hex(),
        escape_html(label),
        significant(s.goodput_bps / scale.size, 3),
        s.utilization.map_or("–".to_owned(), percent_figure),
        percent_figure(share(s.packets_retransmitted, s.packets_sent)),
    );
    for v in [s.rtt_ms.min, s.rtt_ms.p50, s.rtt_ms.p95, s.rtt_ms.p99, s.queue_ms.p50, s.queue_ms.p95] {
        let _ = write!(out, "<td>{}</td>", ms(v));
    }
    if scale.completion {
        let _ = write!(out, "<td>{}</td>", s.completion_s.map_or("–".to_owned(), |v| significant(v, 3)));
    }
    if scale.jain {
        let _ = write!(out, "<td>{}</td>", jain.map_or(String::new(), |j| format!("{j:.3}")));
    }
    out.push_str("</tr>");
}

/// Checks, links, health, and how to reproduce the results.
fn details(results: &Results, about: &About) -> String {
    let mut out = String::new();
    checks(&mut out, results);
    links(&mut out, results);
    health(&mut out, results);
    out += "<section><h2>Reproduce</h2>";
    if !about.command.is_empty() {
        let _ = write!(out, "<pre class=\"command\">{}</pre>", escape_html(&about.command));
    }
    out += "<dl>";
    let fact = |out: &mut String, name: &str, value: &str| {
        if !value.is_empty() {
            let _ = write!(out, "<dt>{name}</dt><dd>{}</dd>", escape_html(value));
        }
    };
    let distinct = |f: fn(&Recording) -> &str| {
        let mut values: Vec<&str> = results.runs.iter().map(f).filter(|v| !v.is_empty()).collect();
        values.sort_unstable();
        values.dedup();
        values.join(", ")
    };
    fact(&mut out, "fullpipe", &distinct(|r| &r.provenance.version));
    fact(&mut out, "engine", &distinct(|r| r.source.name()));
    fact(&mut out, "seed", &seeds(results));
    fact(&mut out, "kernel", &distinct(|r| r.provenance.kernel.as_deref().unwrap_or("")));
    fact(&mut out, "started", &distinct(|r| r.provenance.started.as_deref().unwrap_or("")));
    fact(&mut out, "draft", &distinct(|r| r.provenance.draft.as_deref().unwrap_or("")));
    fact(&mut out, "recording", &results.schema);
    out += "</dl>";
    let mut scenarios: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    for run in results.runs.iter().filter(|r| !r.provenance.scenario.is_empty()) {
        let text = run.provenance.scenario.as_str();
        let index = *known.entry(text).or_insert_with(|| {
            scenarios.push((text, Vec::new()));
            scenarios.len() - 1
        });
        scenarios[index].1.push(&run.label);
    }
    if !scenarios.is_empty() {
        out += "<p>Save a scenario below to a file and run it with <code>fullpipe run FILE</code>. \
                “Open in the playground” needs <code>playground.html</code> (made by \
                <code>./x playground</code>) in this page's folder; without it, copy the link from \
                <code>#</code> to its end and append it to the address that <code>fullpipe \
                playground</code> prints.</p>";
    }
    for (text, labels) in scenarios.iter().take(MAX_SCENARIOS) {
        let mut names: Vec<&str> = labels.clone();
        names.dedup();
        let _ = write!(
            out,
            "<details class=\"scenario\"><summary>scenario: {}</summary><pre>{}</pre></details>",
            escape_html(&names.join(", ")),
            escaped_lines(text)
        );
    }
    if let Some(more) = scenarios.len().checked_sub(MAX_SCENARIOS + 1) {
        let _ = write!(out, "<p>… and {} more; the JSON report has all.</p>", more + 1);
    }
    out + "</section>"
}

fn checks(out: &mut String, results: &Results) {
    if results.runs.iter().all(|r| r.checks.is_empty()) {
        return;
    }
    *out += "<section><h2>Checks</h2><div class=\"scroll\"><table><thead><tr><th>run</th><th>check</th>\
             <th>measured</th><th></th></tr></thead><tbody>";
    for run in &results.runs {
        for c in &run.checks {
            let outcome =
                if c.passed { "<b class=\"good\">passed</b>" } else { "<b class=\"bad\">failed</b>" };
            let [label, check, measured] = [&run.label, &c.check, &c.measured].map(|t| escape_html(t));
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{label}</th><td>{check}</td><td>{measured}</td><td>{outcome}</td></tr>"
            );
        }
    }
    *out += "</tbody></table></div></section>";
}

fn links(out: &mut String, results: &Results) {
    let rows: Vec<_> =
        results.runs.iter().flat_map(|r| r.links.iter().map(move |l| (r, l))).take(200).collect();
    if rows.is_empty() {
        return;
    }
    *out += "<section><h2>Links</h2><div class=\"scroll\"><table><thead><tr><th>run</th><th>link</th>\
             <th>packets in</th><th>packets out</th><th>dropped</th><th>CE-marked</th></tr></thead><tbody>";
    for (run, link) in rows {
        let dropped: u64 = link.drops.values().sum();
        let mut causes: Vec<String> =
            link.drops.iter().filter(|(_, n)| **n > 0).map(|(cause, n)| format!("{n} {cause}")).collect();
        if dropped > 0 {
            causes.push(percent(share(dropped, link.packets_in)));
        }
        let causes = if causes.is_empty() { "0".to_owned() } else { causes.join(", ") };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape_html(&run.label),
            escape_html(&link.label),
            link.packets_in,
            link.packets_out,
            escape_html(&causes),
            link.ce_marked
        );
    }
    *out += "</tbody></table></div></section>";
}

fn health(out: &mut String, results: &Results) {
    let rows: Vec<_> = results.runs.iter().filter_map(|r| Some((r, r.health.as_ref()?))).collect();
    if rows.is_empty() {
        return;
    }
    *out += "<section><h2>Emulator health</h2><div class=\"scroll\"><table><thead><tr><th>run</th>\
             <th>lateness p50</th><th>p99</th><th>max</th><th>read latency p99</th><th>stray drops</th>\
             <th>CPU</th><th></th></tr></thead><tbody>";
    for (run, h) in rows {
        let us = |v: f64| millis(v / 1e3);
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td></tr>",
            escape_html(&run.label),
            us(h.lateness_p50_us),
            us(h.lateness_p99_us),
            us(h.lateness_max_us),
            us(h.read_latency_p99_us),
            h.stray_drops,
            percent(h.emulator_cpu),
            escape_html(&h.notes.join("; "))
        );
    }
    *out += "</tbody></table></div></section>";
}

/// [`escape_html`] that keeps line breaks.
fn escaped_lines(text: &str) -> String {
    text.lines().map(escape_html).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use fullpipe_experiment::recording::CheckResult;

    fn page(results: &Results, about: &About) -> String {
        let mut out = Vec::new();
        write(results, about, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn flows_of_one_controller_have_the_shades_of_their_lines() {
        let mut results = support::together(1.0);
        let flow = results.runs[0].flows[0].clone();
        results.runs[0].flows = vec![flow; 6];
        let page = page(&results, &About::default());
        let mut shades: Vec<&str> = page
            .split("<tr class=\"flow\" style=\"--light:")
            .skip(1)
            .filter_map(|rest| rest.split(';').next())
            .collect();
        assert_eq!(shades.len(), 6);
        shades.sort_unstable();
        shades.dedup();
        assert_eq!(shades.len(), 6, "{shades:?}");
    }

    #[test]
    fn conclusion_and_figures_need_no_script() {
        let about = About { title: "Random loss".into(), command: "fullpipe race --seed 1".into() };
        let page = page(&support::race(30.0), &about);
        let markup = &page[..page.find("<script").unwrap()];
        for text in
            ["<h1>Random loss</h1>", "bbr carried 9", "fullpipe race --seed 1", "seed 1", "hybla", "[[flow]]"]
        {
            assert!(markup.contains(text), "{text}");
        }
        assert!(page.len() < 3_000_000, "{} bytes", page.len());
        assert!(!page.contains("{{"), "a placeholder of the template was left empty");
    }

    #[test]
    fn user_text_never_becomes_markup() {
        let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}\u{2028}";
        let mut race = support::together(1.0);
        let run = &mut race.runs[0];
        run.label = evil.to_owned();
        run.cc = evil.to_owned();
        run.path.description = evil.to_owned();
        run.provenance.scenario = evil.to_owned();
        run.invalid_because = vec![evil.to_owned()];
        run.valid = false;
        run.checks = vec![CheckResult::for_states(evil.into(), &[evil], false)];
        run.links[0].label = evil.to_owned();
        run.links[0].drops.insert(evil.to_owned(), 3);
        for flow in &mut run.flows {
            flow.label = evil.to_owned();
            flow.states[0].state = evil.to_owned();
        }
        let page = page(&race, &About { title: evil.into(), command: evil.into() });
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "markup from a label");
        // uPlot, the data, the prelude, and the page's own.
        assert_eq!(page.matches("</script").count(), 4);
    }
}
