//! The page of a mesh: one file that needs nothing else, or served live.

use super::bins::{Bins, PairBins};
use super::{PairSeen, Seen, State, clock, paths, times};
use crate::record::{History, Pair};
use crate::see::gains;
use fullpipe_report::{About, Plotted, colour_of, escaped, millis, percent, rate};
use serde::Serialize;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Changes that the list shows: the newest.
const CHANGES: usize = 60;

/// The script's data.
#[derive(Serialize)]
struct Data<'a> {
    bins: &'a Bins,
    controllers: Vec<ControllerData<'a>>,
    pairs: Vec<PairData<'a>>,
    changes: Vec<ChangeData<'a>>,
    cdf: Vec<Vec<f64>>,
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
    /// The place of the other way.
    back: Option<usize>,
    /// Which of the changes are its own.
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

/// The page of a history, with what was seen of it.
pub fn page(history: &History, seen: &Seen, about: &About) -> String {
    let bins = Bins::of(history);
    let none = PairBins::default();
    let pairs: Vec<PairData<'_>> = seen
        .pairs
        .iter()
        .map(|pair| PairData {
            name: history.name(pair.pair),
            bins: bins.pairs.get(&pair.pair).unwrap_or(&none),
            story: story(seen, pair),
            back: seen.pairs.iter().position(|other| other.pair == pair.pair.turned()),
            changes: changes_of(seen, pair.pair),
        })
        .collect();
    let data = Data {
        controllers: seen
            .controllers
            .iter()
            .map(|name| {
                let colour = colour_of(name);
                ControllerData { name, light: colour.light_hex(), dark: colour.dark_hex() }
            })
            .collect(),
        pairs,
        changes: seen.changes.iter().map(change_data).collect(),
        cdf: (1..seen.controllers.len()).map(|cc| gains(history, cc as u16)).collect(),
        bins: &bins,
    };
    let data = serde_json::to_string(&data).unwrap_or_else(|e| format!("{{\"error\":\"{e}\"}}"));
    let plotted = Plotted { body: &body(history, seen), style: STYLE, data: &data, script: SCRIPT };
    let mut out = Vec::new();
    // Memory takes all that is written.
    let _ = fullpipe_report::write_plotted(about, &subtitle(seen), &plotted, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn subtitle(seen: &Seen) -> String {
    if seen.pairs.is_empty() {
        return String::new();
    }
    let transfers: u64 = seen.pairs.iter().map(|pair| pair.transfers).sum();
    format!(
        "{} sites · {} · {transfers} transfers · {} to {} UTC",
        seen.sites.len(),
        paths(seen.pairs.len()),
        clock(seen.from_ms),
        clock(seen.to_ms)
    )
}

fn change_data(told: &super::Told) -> ChangeData<'_> {
    ChangeData {
        at_s: told.begin_ms as f64 / 1e3,
        end_s: told.end_ms.map(|end| end as f64 / 1e3),
        title: format!("{}: {}", told.place, told.kind),
        lines: told.said.iter().map(String::as_str).collect(),
        when: when(told),
    }
}

fn when(told: &super::Told) -> String {
    let until = told.end_ms.map_or("now".to_owned(), clock);
    format!("{} to {until}", clock(told.begin_ms))
}

fn changes_of(seen: &Seen, pair: Pair) -> Vec<usize> {
    let own = |told: &super::Told| told.change.place.holds(pair);
    seen.changes.iter().enumerate().filter(|(_, told)| own(told)).map(|(nth, _)| nth).collect()
}

/// What is told of a pair beside its plots: names and texts.
fn story(seen: &Seen, pair: &PairSeen) -> Vec<[String; 2]> {
    let mut all =
        vec![["now".to_owned(), format!("{} {}", pair.state.sign(), pair.state.name()).trim().to_owned()]];
    let mut fact = |name: String, text: String| all.push([name, text]);
    for (cc, name) in seen.controllers.iter().enumerate() {
        let goodput = pair.goodput_bps.get(cc).copied().flatten();
        let mut text = goodput.map_or("no transfer arrived".to_owned(), rate);
        if let Some(ratio) = pair.ratios.get(cc).copied().flatten() {
            let first = seen.controllers.first().map_or("", String::as_str);
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
            let _ =
                write!(text, "; such a path should give {} to {}", times(expected.low), times(expected.high));
        }
        fact(name.clone(), text);
    }
    if let Some(rtt) = pair.rtt_ms {
        fact("round trip".to_owned(), millis(rtt));
    }
    if let Some(loss) = pair.loss {
        fact("probes lost".to_owned(), if loss == 0.0 { "none".to_owned() } else { percent(loss) });
    }
    if pair.failed > 0 {
        fact("failed".to_owned(), format!("{} of {} transfers", pair.failed, pair.transfers));
    }
    if let Some(diagnosis) = &pair.diagnosis {
        fact(
            "why".to_owned(),
            format!("it looks like {}: {}", diagnosis.cause.said(), diagnosis.evidence.join("; ")),
        );
    }
    if !pair.route.is_empty() {
        fact("routers".to_owned(), pair.route.join(" → "));
    }
    all
}

fn body(history: &History, seen: &Seen) -> String {
    let mut out = format!("<p class=\"verdict\">{}.</p>", escaped(&seen.verdict()));
    if seen.pairs.is_empty() {
        return out;
    }
    for (cc, name) in seen.controllers.iter().enumerate().skip(1) {
        matrix(&mut out, seen, cc, name);
    }
    changes(&mut out, seen);
    out += "<section id=\"story\"><div class=\"pick\"><h2>One path over time</h2><label>path <select id=\"pair\">";
    for (nth, pair) in seen.pairs.iter().enumerate() {
        let _ = write!(
            out,
            "<option value=\"{nth}\">{} {}</option>",
            escaped(&history.name(pair.pair)),
            escaped(pair.state.sign())
        );
    }
    out += "</select></label><button id=\"turn\" type=\"button\">the other way</button></div>\
            <dl id=\"facts\"></dl><div id=\"plots-of-pair\"></div>\
            <p class=\"hint\">Lines are medians; bands go from the 10th to the 90th percentile of a step's transfers, for round trips from \
            the least to the greatest 95th percentile. Dashed lines are changes. Drag to zoom, double-click for all.</p>\
            <ul id=\"changes-of-pair\" class=\"told\"></ul></section>\
            <noscript><p class=\"hint\">The plots need JavaScript; the tables do not.</p></noscript>";
    if seen.controllers.len() > 1 {
        let first = seen.controllers.first().map_or("", String::as_str);
        let _ = write!(
            out,
            "<section><h2>All paths: how many gain how much over {}</h2><div id=\"cdf\"></div>\
             <p class=\"hint\">Each step is a path's median ratio: figure 7 of the paper, of this mesh. Right of 1 is gain.</p></section>",
            escaped(first)
        );
    }
    sites(&mut out, seen);
    out
}

/// Where a ratio stands between blue (less) and orange (more), −1 to 1: sixteenfold is as strong as it gets.
fn shade(ratio: f64) -> f64 {
    (ratio.max(1e-6).ln() / 16f64.ln()).clamp(-1.0, 1.0)
}

fn matrix(out: &mut String, seen: &Seen, cc: usize, name: &str) {
    let first = seen.controllers.first().map_or("", String::as_str);
    let _ = write!(
        out,
        "<section><h2>{0} against {1}</h2><p class=\"hint\">Rows send, columns receive. Large: {0}’s goodput over {1}’s, median; below: {0}’s \
         goodput. <span class=\"key less\"></span> {1} carries more <span class=\"key same\"></span> the same <span class=\"key more\"></span> \
         {0} carries more. Click a cell for its story.</p><div class=\"scroll\"><table class=\"matrix\"><thead><tr><th></th>",
        escaped(name),
        escaped(first)
    );
    for site in &seen.sites {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escaped(site));
    }
    *out += "</tr></thead><tbody>";
    for (from, site) in seen.sites.iter().enumerate() {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escaped(site));
        for to in 0..seen.sites.len() {
            let of = |pair: &PairSeen| usize::from(pair.pair.from) == from && usize::from(pair.pair.to) == to;
            match seen.pairs.iter().position(of) {
                Some(nth) => cell(out, nth, &seen.pairs[nth], cc),
                None => *out += "<td class=\"none\">–</td>",
            }
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div></section>";
}

fn cell(out: &mut String, nth: usize, pair: &PairSeen, cc: usize) {
    let ratio = pair.ratios.get(cc).copied().flatten();
    let shade = ratio.map_or(0.0, |ratio| shade(ratio.ratio.median));
    let class = match shade {
        s if s > 0.05 => "more",
        s if s < -0.05 => "less",
        _ => "same",
    };
    let goodput = pair.goodput_bps.get(cc).copied().flatten().map_or("–".to_owned(), rate);
    let state = match pair.state {
        State::Fine => String::new(),
        state => format!(
            "<em class=\"{}\">{} {}</em>",
            if state.is_bad() { "bad" } else { "different" },
            state.sign(),
            escaped(state.name())
        ),
    };
    let _ = write!(
        out,
        "<td class=\"{class}\" style=\"--much:{:.0}%\"><button type=\"button\" data-pair=\"{nth}\"><b>{}</b><small>{goodput}</small>{state}</button></td>",
        shade.abs() * 70.0,
        ratio.map_or("–".to_owned(), |ratio| format!("×{}", times(ratio.ratio.median))),
    );
}

fn changes(out: &mut String, seen: &Seen) {
    *out += "<section><h2>What changed</h2>";
    if seen.changes.is_empty() {
        *out += "<p>Nothing: all paths were as they usually are.</p></section>";
        return;
    }
    let _ = write!(out, "<ol class=\"told\">");
    for told in seen.changes.iter().rev().take(CHANGES) {
        let open = if told.end_ms.is_none() { " class=\"open\"" } else { "" };
        let _ = write!(
            out,
            "<li{open}><time>{}</time> <b>{}</b> <span class=\"kind\">{}</span><small>{}</small>",
            escaped(&when(told)),
            escaped(&told.place),
            escaped(told.kind),
            escaped(&told.said.join(" · ")),
        );
        for (pair, before, after) in &told.routes {
            let _ = write!(
                out,
                "<small>routers of {}: {} before, {} since</small>",
                escaped(pair),
                escaped(&before.join(" → ")),
                escaped(&after.join(" → "))
            );
        }
        *out += "</li>";
    }
    *out += "</ol>";
    if let Some(more) = seen.changes.len().checked_sub(CHANGES + 1) {
        let _ = write!(out, "<p class=\"hint\">… and {} before.</p>", more + 1);
    }
    *out += "</section>";
}

fn sites(out: &mut String, seen: &Seen) {
    *out += "<section><h2>Sites</h2><div class=\"scroll\"><table><thead><tr><th scope=\"col\">site</th><th scope=\"col\">now</th>\
             <th scope=\"col\">sends (median path)</th><th scope=\"col\">receives</th><th scope=\"col\">transfers</th>\
             <th scope=\"col\">failed</th></tr></thead><tbody>";
    for (name, site) in seen.sites.iter().zip(&seen.site_states) {
        let of = |bps: Option<f64>| bps.map_or("–".to_owned(), rate);
        let share = if site.transfers == 0 { 0.0 } else { site.failed as f64 / site.transfers as f64 };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td class=\"{}\">{} {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escaped(name),
            if site.state.is_bad() { "bad" } else { "" },
            site.state.sign(),
            escaped(site.state.name()),
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
    use crate::record::{Outcome, Transfer, Trouble};

    #[test]
    fn nothing_that_a_site_is_called_becomes_markup() {
        let evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{data}}\u{2028}";
        let pair = Pair { from: 0, to: 1 };
        let failed = |period: i64| Transfer {
            at_ms: period * 60_000,
            period,
            pair,
            controller: 0,
            outcome: Outcome::Failed(Trouble::Refused),
        };
        let history = History {
            sites: vec![evil.to_owned(), "b".to_owned()],
            controllers: vec![evil.to_owned(), evil.to_owned()],
            period: fullpipe_units::Span::from_secs(60),
            transfers: (0..30).map(failed).collect(),
            ..History::default()
        };
        let seen = Seen::of(&history, false);
        assert_eq!(seen.pairs[0].state, State::Trouble(Trouble::Refused));
        let page = page(&history, &seen, &About { title: evil.into(), command: evil.into() });
        assert!(!page.contains("<script>alert") && !page.contains("<img"), "markup from a name");
        // uPlot, the data, the prelude, and the page's own.
        assert_eq!(page.matches("</script").count(), 4);
        assert!(page.contains("refused"));
    }

    #[test]
    fn of_nothing_there_is_a_page_that_says_so() {
        let history = History::default();
        let page = page(&history, &Seen::of(&history, true), &About::default());
        assert!(page.contains("Nothing was recorded yet"));
    }
}
