//! The HTML page of a mesh: self-contained, saved or served.

use super::bins::{PairBins, Steps};
use super::{PathReport, Report, State, Summary, clock, paths, times};
use crate::record::{History, Pair};
use fullpipe_presentation::numbers::{millis, percent, rate};
use fullpipe_presentation::page::{About, PlottedPage, write_plotted_page};
use fullpipe_presentation::palette::controller_colour;
use fullpipe_presentation::picture::escape_html;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Maximum changes listed, the newest first.
const CHANGES: usize = 60;

/// Data for the script.
#[derive(Serialize)]
struct Data<'a> {
    bins: &'a Steps,
    controllers: Vec<ControllerData<'a>>,
    pairs: Pairs<'a>,
    changes: Vec<ChangeData<'a>>,
    cdf: Vec<Vec<f64>>,
}

/// The data of the pairs, one in memory at a time.
struct Pairs<'a> {
    summary: &'a Summary,
    report: &'a Report,
}

impl Serialize for Pairs<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Pairs { summary, report } = self;
        let (none, index) = (PairBins::default(), index(report));
        serializer.collect_seq(report.pairs.iter().map(|pair| {
            let path = summary.paths.binary_search_by_key(&pair.pair, |path| path.pair);
            PairData {
                name: summary.head.name(pair.pair),
                bins: path.map_or(&none, |nth| &summary.paths[nth].bins),
                story: story(report, pair),
                back: index.get(&pair.pair.reversed()).copied(),
                changes: changes_of(report, pair.pair),
            }
        }))
    }
}

#[derive(Serialize)]
struct ControllerData<'a> {
    name: &'a str,
    light: String,
    dark: String,
}

#[derive(Serialize)]
struct PairData<'a> {
    name: String,
    #[serde(flatten)]
    bins: &'a PairBins,
    story: Vec<[String; 2]>,
    /// Index of the reverse direction.
    back: Option<usize>,
    /// Indices of the changes that include this pair.
    changes: Vec<usize>,
}

#[derive(Serialize)]
struct ChangeData<'a> {
    at_s: f64,
    end_s: Option<f64>,
    title: String,
    lines: Vec<&'a str>,
    when: String,
}

/// Renders the page of a summary and its report.
pub fn page(summary: &Summary, report: &Report, about: &About) -> String {
    let data = Data {
        controllers: report
            .controllers
            .iter()
            .map(|name| {
                let colour = controller_colour(name);
                ControllerData { name, light: colour.light_hex(), dark: colour.dark_hex() }
            })
            .collect(),
        pairs: Pairs { summary, report },
        changes: report.changes.iter().map(change_data).collect(),
        cdf: (1..report.controllers.len()).map(|cc| report.gains(cc)).collect(),
        bins: &summary.steps,
    };
    let body = body(&summary.head, report);
    let plotted = PlottedPage { body: &body, style: STYLE, data: &data, script: SCRIPT };
    let mut out = Vec::with_capacity(body.len() + (64 << 10) + 5 * summary.values());
    // Writing to memory cannot fail.
    let _ = write_plotted_page(about, &subtitle(report), &plotted, &mut out);
    String::from_utf8(out).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// The indices of the pairs.
fn index(report: &Report) -> HashMap<Pair, usize> {
    report.pairs.iter().enumerate().map(|(nth, pair)| (pair.pair, nth)).collect()
}

fn subtitle(report: &Report) -> String {
    if report.pairs.is_empty() {
        return String::new();
    }
    let transfers: u64 = report.pairs.iter().map(|pair| pair.transfers).sum();
    format!(
        "{} sites · {} · {transfers} transfers · {} to {} UTC",
        report.sites.len(),
        paths(report.pairs.len()),
        clock(report.from_ms),
        clock(report.to_ms)
    )
}

fn change_data(change: &super::ChangeReport) -> ChangeData<'_> {
    ChangeData {
        at_s: change.begin_ms as f64 / 1e3,
        end_s: change.end_ms.map(|end| end as f64 / 1e3),
        title: format!("{}: {}", change.location, change.kind),
        lines: change.details.iter().map(String::as_str).collect(),
        when: when(change),
    }
}

fn when(change: &super::ChangeReport) -> String {
    let until = change.end_ms.map_or("now".to_owned(), clock);
    format!("{} to {until}", clock(change.begin_ms))
}

fn changes_of(report: &Report, pair: Pair) -> Vec<usize> {
    let own = |change: &super::ChangeReport| change.cause.location.contains(pair);
    report.changes.iter().enumerate().filter(|(_, change)| own(change)).map(|(nth, _)| nth).collect()
}

/// The facts about a pair that are listed beside its plots: labels and texts.
fn story(report: &Report, pair: &PathReport) -> Vec<[String; 2]> {
    let mut all = vec![[
        "state".to_owned(),
        format!("{} {}", pair.state.symbol(), pair.state.name()).trim().to_owned(),
    ]];
    let mut fact = |name: String, text: String| all.push([name, text]);
    for (cc, name) in report.controllers.iter().enumerate() {
        let goodput = pair.goodput_bps.get(cc).copied().flatten();
        let mut text = goodput.map_or("no completed transfer".to_owned(), rate);
        if let Some(ratio) = pair.ratios.get(cc).copied().flatten() {
            let first = report.controllers.first().map_or("", String::as_str);
            let _ = write!(
                text,
                ", {} times {first} (95 %: {} to {}; {} periods)",
                times(ratio.ratio.median),
                times(ratio.ratio.low),
                times(ratio.ratio.high),
                ratio.periods
            );
        }
        if let Some(expected) =
            pair.expected.as_ref().and_then(|e| e.ratio.get(cc).copied().flatten()).filter(|_| cc > 0)
        {
            let _ = write!(text, "; simulated: {} to {}", times(expected.low), times(expected.high));
        }
        fact(name.clone(), text);
    }
    if let Some(rtt) = pair.rtt_ms {
        fact("RTT p50".to_owned(), millis(rtt));
    }
    if let Some(loss) = pair.loss {
        fact("probe loss".to_owned(), if loss == 0.0 { "none".to_owned() } else { percent(loss) });
    }
    if pair.failed > 0 {
        fact("failures".to_owned(), format!("{} of {} transfers", pair.failed, pair.transfers));
    }
    if let Some(diagnosis) = &pair.diagnosis {
        fact(
            "likely cause".to_owned(),
            format!("{}: {}", diagnosis.cause.description(), diagnosis.evidence.join("; ")),
        );
    }
    if !pair.route.is_empty() {
        fact("route".to_owned(), pair.route.join(" → "));
    }
    all
}

fn body(history: &History, report: &Report) -> String {
    let mut out = format!("<p class=\"verdict\">{}.</p>", escape_html(&report.verdict()));
    if report.pairs.is_empty() {
        return out;
    }
    for (cc, name) in report.controllers.iter().enumerate().skip(1) {
        matrix(&mut out, report, cc, name);
    }
    changes(&mut out, report);
    out +=
        "<section id=\"story\"><div class=\"pick\"><h2>Path over time</h2><label>path <select id=\"pair\">";
    for (nth, pair) in report.pairs.iter().enumerate() {
        let _ = write!(
            out,
            "<option value=\"{nth}\">{} {}</option>",
            escape_html(&history.name(pair.pair)),
            escape_html(pair.state.symbol())
        );
    }
    out += "</select></label><button id=\"turn\" type=\"button\">Reverse direction</button></div>\
            <dl id=\"facts\"></dl><div id=\"plots-of-pair\"></div>\
            <p class=\"hint\">Lines are medians. Goodput bands span the 10th to the 90th percentile of a \
            step's transfers, \
            RTT bands the minimum to the highest 95th percentile. Dashed lines mark changes. Drag to zoom, \
            double-click to reset.</p>\
            <ul id=\"changes-of-pair\" class=\"changes\"></ul></section>\
            <noscript><p class=\"hint\">The plots need JavaScript; the tables work without \
            it.</p></noscript>";
    if report.controllers.len() > 1 {
        let first = report.controllers.first().map_or("", String::as_str);
        let _ = write!(
            out,
            "<section><h2>Distribution of gains over {}</h2><div id=\"cdf\"></div>\
             <p class=\"hint\">Each step is the median ratio of one path, as in figure 7 of the paper. \
             Values right of 1 are gains.</p></section>",
            escape_html(first)
        );
    }
    sites(&mut out, report);
    out
}

/// The colour position of a ratio between blue (less) and orange (more), −1 to 1; saturates at a
/// factor of 16.
fn shade(ratio: f64) -> f64 {
    (ratio.max(1e-6).ln() / 16f64.ln()).clamp(-1.0, 1.0)
}

fn matrix(out: &mut String, report: &Report, cc: usize, name: &str) {
    let first = report.controllers.first().map_or("", String::as_str);
    let _ = write!(
        out,
        "<section><h2>{0} vs {1}</h2><p class=\"hint\">Rows send, columns receive. Large figure: median \
            goodput ratio {0}/{1}; \
         below it: {0}’s goodput. <span class=\"key less\"></span> {1} faster <span class=\"key \
         same\"></span> equal <span class=\"key more\"></span> \
         {0} faster. Click a cell for details.</p><div class=\"scroll\"><table \
         class=\"matrix\"><thead><tr><th></th>",
        escape_html(name),
        escape_html(first)
    );
    for site in &report.sites {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape_html(site));
    }
    *out += "</tr></thead><tbody>";
    let index = index(report);
    for (from, site) in (0..).zip(&report.sites) {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape_html(site));
        for (to, _) in (0..).zip(&report.sites) {
            match index.get(&Pair { from, to }).copied() {
                Some(nth) => cell(out, nth, &report.pairs[nth], cc),
                None => *out += "<td class=\"none\">–</td>",
            }
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div></section>";
}

fn cell(out: &mut String, nth: usize, pair: &PathReport, cc: usize) {
    let ratio = pair.ratios.get(cc).copied().flatten();
    let shade = ratio.map_or(0.0, |ratio| shade(ratio.ratio.median));
    let class = match shade {
        s if s > 0.05 => "more",
        s if s < -0.05 => "less",
        _ => "same",
    };
    let goodput = pair.goodput_bps.get(cc).copied().flatten().map_or("–".to_owned(), rate);
    let state = match pair.state {
        State::Normal => String::new(),
        state => format!(
            "<em class=\"{}\">{} {}</em>",
            if state.is_bad() { "bad" } else { "changed" },
            state.symbol(),
            escape_html(state.name())
        ),
    };
    let _ = write!(
        out,
        "<td class=\"{class}\" style=\"--much:{:.0}%\"><button type=\"button\" \
            data-pair=\"{nth}\"><b>{}</b><small>{goodput}</small>{state}</button></td>",
        shade.abs() * 70.0,
        ratio.map_or("–".to_owned(), |ratio| format!("×{}", times(ratio.ratio.median))),
    );
}

fn changes(out: &mut String, report: &Report) {
    *out += "<section><h2>Changes</h2>";
    if report.changes_are_partial() {
        let _ = write!(out, "<p class=\"hint\">Since {} UTC.</p>", clock(report.changes_from_ms));
    }
    if report.changes.is_empty() {
        *out += "<p>No changes.</p></section>";
        return;
    }
    let _ = write!(out, "<ol class=\"changes\">");
    for change in report.changes.iter().rev().take(CHANGES) {
        let open = if change.end_ms.is_none() { " class=\"open\"" } else { "" };
        let _ = write!(
            out,
            "<li{open}><time>{}</time> <b>{}</b> <span class=\"kind\">{}</span><small>{}</small>",
            escape_html(&when(change)),
            escape_html(&change.location),
            escape_html(change.kind),
            escape_html(&change.details.join(" · ")),
        );
        for (pair, before, after) in &change.routes {
            let _ = write!(
                out,
                "<small>route of {}: {} before, {} after</small>",
                escape_html(pair),
                escape_html(&before.join(" → ")),
                escape_html(&after.join(" → "))
            );
        }
        *out += "</li>";
    }
    *out += "</ol>";
    if let Some(more) = report.changes.len().checked_sub(CHANGES + 1) {
        let _ = write!(out, "<p class=\"hint\">… and {} older.</p>", more + 1);
    }
    *out += "</section>";
}

fn sites(out: &mut String, report: &Report) {
    *out += "<section><h2>Sites</h2><div class=\"scroll\"><table><thead><tr><th \
        scope=\"col\">site</th><th scope=\"col\">state</th>\
             <th scope=\"col\">sends (median of paths)</th><th scope=\"col\">receives</th><th \
             scope=\"col\">transfers</th>\
             <th scope=\"col\">failed</th></tr></thead><tbody>";
    for (name, site) in report.sites.iter().zip(&report.site_states) {
        let of = |bps: Option<f64>| bps.map_or("–".to_owned(), rate);
        let share = if site.transfers == 0 { 0.0 } else { site.failed as f64 / site.transfers as f64 };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"{}\">{} \
                {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape_html(name),
            if site.state.is_bad() { "bad" } else { "" },
            site.state.symbol(),
            escape_html(site.state.name()),
            of(site.sends_bps),
            of(site.receives_bps),
            site.transfers,
            if site.failed == 0 { "0".to_owned() } else { percent(share) },
        );
    }
    *out += "</tbody></table></div></section>";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Outcome, Transfer, TransferError};

    #[test]
    fn names_are_never_interpreted_as_markup() {
        let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}\u{2028}";
        let pair = Pair { from: 0, to: 1 };
        let failed = |period: i64| Transfer {
            at_ms: period * 60_000,
            period,
            pair,
            controller: 0,
            outcome: Outcome::Failed(TransferError::Refused),
        };
        let history = History {
            sites: vec![evil.to_owned(), "b".to_owned()],
            controllers: vec![evil.to_owned(), evil.to_owned()],
            period: fullpipe_units::Span::from_secs(60),
            transfers: (0..30).map(failed).collect(),
            ..History::default()
        };
        let report = Report::new(&history, None);
        assert_eq!(report.pairs[0].state, State::Failing(TransferError::Refused));
        let page =
            page(&Summary::from(&history), &report, &About { title: evil.into(), command: evil.into() });
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "markup from a name");
        // uPlot, the data, the prelude and the page's own script.
        assert_eq!(page.matches("</script").count(), 4);
        assert!(page.contains("refused"));
    }

    #[test]
    fn an_empty_history_gives_a_page_without_records() {
        let history = History::default();
        let page = page(
            &Summary::from(&history),
            &Report::new(&history, Some(crate::simulate::tests::simulate)),
            &About::default(),
        );
        assert!(page.contains("No records yet"));
    }
}
