//! A comparison of controllers that were measured in alternating rounds: table and text for the
//! terminal, and a picture with one dot per round.

use crate::picture::{Axis, Curve, Panel, Picture, Stroke, escape_html};
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{Comparison, Estimate, Finding, Recording, Variation, Verdict};
use fullpipe_experiment::statistics;
use fullpipe_presentation::numbers::{millis, percent_figure, rate_unit, seconds, significant, wrap_text};
use fullpipe_presentation::palette::controller_colour;
use std::fmt::Write;

/// With fewer rounds there is no 95 % interval, only the range of all rounds.
const MIN_ROUNDS_WITH_INTERVAL: usize = 6;

/// The conclusion: one sentence per candidate.
pub(crate) fn conclusion(found: &Comparison) -> String {
    let sentence = |verdict: &Verdict| {
        let mut text = verdict.words.clone();
        // The name of a controller is not capitalised.
        if text.starts_with(|c: char| c.is_ascii_lowercase()) && !text.starts_with(&verdict.controller) {
            text[..1].make_ascii_uppercase();
        }
        text + "."
    };
    let choice = found.bbr_choice.iter().map(|c| format!("Use {}: {}.", c.controller, c.words));
    found.verdicts.iter().map(sentence).chain(choice).collect::<Vec<_>>().join(" ")
}

/// The cost of a candidate in retransmissions and delay.
fn cost(found: &Comparison, verdict: &Verdict) -> String {
    let mut text =
        format!("cost: retransmissions {}", signed(&verdict.retransmits_added, " percentage points", 2));
    if let Some(rtt) = &verdict.rtt_added_ms {
        let _ = write!(text, "; RTT under load {}", signed(rtt, " ms", 1));
    }
    text + &latency_remark(found, verdict)
}

/// A remark for candidates with equal goodput but a much lower RTT under load.
fn latency_remark(found: &Comparison, verdict: &Verdict) -> String {
    let rtt = |name: &str| found.controllers.iter().find(|c| c.controller == name).and_then(|c| c.loaded_rtt);
    let (Some(with), Some(without)) = (rtt(&verdict.controller), rtt(&verdict.baseline)) else {
        return String::new();
    };
    let lower = verdict.rtt_added_ms.is_some_and(|rtt| rtt.high < -(without.median * 0.2).max(5.0));
    if verdict.finding != Finding::Same || !lower {
        return String::new();
    }
    format!(
        "; lower latency: the RTT under load is {} with {} instead of {}",
        millis(with.median),
        verdict.controller,
        millis(without.median)
    )
}

/// `+1.20 ms (95 % CI +0.90 to +1.40)`.
fn signed(e: &Estimate, unit: &str, digits: usize) -> String {
    // Adding zero turns −0.0 into 0.0.
    let number = |x: f64| format!("{:+.digits$}", x + 0.0);
    format!("{}{unit} ({} to {})", number(e.median), number(e.low), number(e.high))
}

/// Name of the intervals, for headings.
fn interval_name(found: &Comparison) -> &'static str {
    if found.rounds < MIN_ROUNDS_WITH_INTERVAL { "range" } else { "95 % CI" }
}

/// How the figures were computed, and how the measuring time was spent.
fn method_note(found: &Comparison) -> String {
    let time = &found.time;
    let tests = found.controllers.iter().map(|c| c.shares_beside_cubic.len()).max().unwrap_or(0);
    let shares = if has_shares(found) {
        format!(
            " {} rounds; beside cubic: share of the goodput in tests beside a CUBIC flow of this host, \
             median of {tests}.",
            found.rounds
        )
    } else if let Some(why) = &found.no_shares_because {
        format!(" The share beside a CUBIC flow was not measured: {why}.")
    } else {
        String::new()
    };
    format!(
        "{} (seed {}). {} in total: {} measured, {} of start-up left out, {} between tests \
         (connecting, probing the idle path, closing).{shares}",
        found.estimator,
        found.seed,
        seconds(time.measured_s + time.left_out_s + time.between_s),
        seconds(time.measured_s),
        seconds(time.left_out_s),
        seconds(time.between_s)
    )
}

fn median(values: &[f64]) -> f64 {
    statistics::median(&mut values.to_vec()).unwrap_or(f64::NAN)
}

/// Header and rows: controller, rounds, goodput with its interval, retransmissions, RTT under load.
/// Where the share beside a CUBIC flow was measured, it takes the place of the rounds, so that a line
/// keeps within 80 columns.
fn cells(found: &Comparison) -> (Vec<String>, Vec<Vec<String>>) {
    let top = found.controllers.iter().map(|c| c.goodput.high).fold(0.0, f64::max);
    let (unit, size) = rate_unit(top);
    let has_shares = has_shares(found);
    let mut head = vec!["controller".to_owned()];
    head.extend((!has_shares).then(|| "rounds".to_owned()));
    head.extend([
        format!("goodput {unit}"),
        interval_name(found).to_owned(),
        "retr %".to_owned(),
        "loaded RTT ms".to_owned(),
    ]);
    head.extend(has_shares.then(|| "beside cubic".to_owned()));
    let number = |bps: f64| significant(bps / size, 3);
    let rows = found.controllers.iter().map(|c| {
        let mut row = vec![c.controller.clone()];
        row.extend((!has_shares).then(|| c.goodput_bps.len().to_string()));
        row.extend([
            number(c.goodput.median),
            format!("{} to {}", number(c.goodput.low), number(c.goodput.high)),
            percent_figure(median(&c.retransmits_percent) / 100.0),
            c.loaded_rtt.map_or("–".to_owned(), |rtt| significant(rtt.median, 3)),
        ]);
        if has_shares {
            let share = c.share_beside_cubic().map(|share| format!("{:.0} %", share * 100.0));
            row.push(share.unwrap_or("–".to_owned()));
        }
        row
    });
    (head, rows.collect())
}

fn has_shares(found: &Comparison) -> bool {
    found.controllers.iter().any(|c| !c.shares_beside_cubic.is_empty())
}

/// Table, verdicts and costs for a terminal of `width` columns.
pub fn comparison_text(found: &Comparison, width: usize) -> String {
    let (head, rows) = cells(found);
    let all = || std::iter::once(&head).chain(&rows);
    let widths: Vec<usize> =
        (0..head.len()).map(|i| all().map(|row| row[i].chars().count()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in all() {
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            text += &if i == 0 { format!("{cell}{pad}") } else { format!("  {pad}{cell}") };
        }
        text.push('\n');
    }
    text.push('\n');
    let mut paragraph = |words: &str, indent: &str| {
        for line in wrap_text(words, width.saturating_sub(indent.len())) {
            let _ = writeln!(text, "{indent}{line}");
        }
    };
    for verdict in &found.verdicts {
        paragraph(&format!("{}.", verdict.words), "");
        paragraph(&cost(found, verdict), "  ");
    }
    if let Some(choice) = &found.bbr_choice {
        paragraph(&format!("Use {}: {}.", choice.controller, choice.words), "");
    }
    paragraph(&method_note(found), "");
    text
}

/// One dot per round, and each controller's median with its interval.
pub(crate) fn picture(found: &Comparison) -> Picture {
    let names: Vec<String> = found.controllers.iter().map(|c| c.controller.clone()).collect();
    let top = found.controllers.iter().flat_map(|c| &c.goodput_bps).copied().fold(0.0, f64::max);
    let (unit, size) = rate_unit(top);
    let panel = |title: String, label: &str, of: &dyn Fn(usize) -> (Vec<f64>, Option<Estimate>)| {
        let curves = found.controllers.iter().enumerate().flat_map(|(i, compared)| {
            let colour = controller_colour(&compared.controller).light;
            let (values, estimate) = of(i);
            // In the order of the rounds, so that a change of the path shows.
            let at = |round: usize| i as f64 - 0.3 + 0.4 * (round as f64 + 0.5) / values.len().max(1) as f64;
            let points = values.iter().enumerate().map(|(round, v)| (at(round), *v));
            let mut curves =
                vec![Curve { stroke: Stroke::Dots, ..Curve::line(&compared.controller, colour, points) }];
            if let Some(e) = estimate {
                let x = i as f64 + 0.25;
                let line = |points: Vec<(f64, f64)>| Curve::line("", colour, points);
                let cap = |y: f64| line(vec![(x - 0.04, y), (x + 0.04, y)]);
                curves.extend([line(vec![(x, e.low), (x, e.high)]), cap(e.low), cap(e.high)]);
                curves.push(Curve { stroke: Stroke::DottedLine, ..line(vec![(x, e.median)]) });
            }
            curves
        });
        let (x, y) = (Axis::named("", names.clone()), Axis::linear(label));
        Panel { title, x, y, curves: curves.collect(), marks: Vec::new() }
    };
    let scaled = |e: Estimate| Estimate { median: e.median / size, low: e.low / size, high: e.high / size };
    let kind = interval_name(found);
    let mut panels = vec![panel(format!("Goodput: each round, median and {kind}"), unit, &|i| {
        let c = &found.controllers[i];
        (c.goodput_bps.iter().map(|bps| bps / size).collect(), Some(scaled(c.goodput)))
    })];
    if found.controllers.iter().any(|c| c.loaded_rtt.is_some()) {
        panels.push(panel("RTT under load".to_owned(), "ms", &|i| {
            let c = &found.controllers[i];
            (c.loaded_rtt_ms.iter().map(|rtt| rtt.unwrap_or(f64::NAN)).collect(), c.loaded_rtt)
        }));
    }
    Picture { panels, columns: 2, footer: method_note(found), ..Picture::default() }
}

/// HTML table and costs, in place of the table of runs.
pub(crate) fn html_table(found: &Comparison) -> String {
    let (head, rows) = cells(found);
    let mut out = String::from("<table class=\"compared\"><thead><tr>");
    for name in &head {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape_html(name));
    }
    out += "</tr></thead><tbody>";
    for row in &rows {
        let colour = controller_colour(&row[0]);
        let _ = write!(
            out,
            "<tr style=\"--light:{};--dark:{}\"><th scope=\"row\"><i class=\"swatch\"></i>{}</th>",
            colour.light_hex(),
            colour.dark_hex(),
            escape_html(&row[0])
        );
        for cell in &row[1..] {
            let _ = write!(out, "<td>{}</td>", escape_html(cell));
        }
        out += "</tr>";
    }
    out += "</tbody></table>";
    for verdict in &found.verdicts {
        let _ = write!(
            out,
            "<p>{} compared with {}: {}.</p>",
            escape_html(&verdict.controller),
            escape_html(&verdict.baseline),
            escape_html(&cost(found, verdict))
        );
    }
    out
}

/// The run with the median goodput of each controller; these are plotted over time.
pub(crate) fn median_runs(results: &Results, found: &Comparison) -> Results {
    let run = |name: &str| -> Option<Recording> {
        let mut own: Vec<&Recording> = results.runs.iter().filter(|r| r.contender() == name).collect();
        own.sort_by(|a, b| a.summary.goodput_bps.total_cmp(&b.summary.goodput_bps));
        own.get(own.len().saturating_sub(1) / 2).copied().cloned()
    };
    let runs = found.controllers.iter().filter_map(|c| run(&c.controller));
    Results { comparison: results.comparison.clone(), ..Results::new(runs.collect()) }
}

/// Caption that names the runs plotted over time.
pub(crate) fn median_runs_caption(results: &Results, found: &Comparison) -> String {
    let shown = median_runs(results, found);
    let names: Vec<&str> = shown.runs.iter().map(|r| r.label.as_str()).collect();
    let rounds = results.runs.iter().filter_map(|r| r.varied(Variation::ROUND)).count();
    format!("Plotted over time: of {rounds} tests, those with the median goodput ({}).", names.join("; "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::picture::race_picture;
    use crate::{About, Format, support, verdict};
    use fullpipe_experiment::recording::{BbrChoice, BbrReason, ControllerRounds, TimeBreakdown};

    /// Six rounds of two controllers, sampled at slightly different times.
    pub(crate) fn results() -> Results {
        let one = support::race(2.0);
        let (goodputs, e) = ([44.9, 45.0, 44.0, 45.2, 44.7, 46.0], |m: f64, l: f64, h: f64| Estimate {
            median: m,
            low: l,
            high: h,
        });
        let mut runs = Vec::new();
        for (round, &goodput) in goodputs.iter().enumerate() {
            for (i, cc) in ["bbr", "cubic"].into_iter().enumerate() {
                let mut run = one.runs.iter().find(|r| r.cc == cc).unwrap().clone();
                run.label = format!("{cc}, round {}", round + 1);
                run.contender = Some(cc.to_owned());
                run.varied = vec![
                    Variation::new("flow.cc", cc),
                    Variation::new(Variation::ROUND, (round + 1).to_string()),
                ];
                run.summary.goodput_bps = goodput * 1e6 / (1.0 + 9.0 * i as f64);
                // Each run has its own sampling times.
                for flow in &mut run.flows {
                    flow.series.t_s.iter_mut().for_each(|t| *t += 80e-6 * (round + i) as f64);
                }
                runs.push(run);
            }
        }
        let compared = |cc: &str, divisor: f64| ControllerRounds {
            controller: cc.to_owned(),
            bbr_version: None,
            marked_percent: None,
            shares_beside_cubic: Vec::new(),
            goodput_bps: goodputs.iter().map(|g| g * 1e6 / divisor).collect(),
            retransmits_percent: vec![1.0; 6],
            loaded_rtt_ms: vec![Some(60.0); 6],
            goodput: e(44.95e6 / divisor, 44.0e6 / divisor, 46.0e6 / divisor),
            loaded_rtt: Some(e(60.0, 59.0, 61.0)),
        };
        let verdict = Verdict {
            controller: "bbr".into(),
            baseline: "cubic".into(),
            ratio: e(10.0, 9.5, 10.5),
            finding: Finding::Faster,
            retransmits_added: e(0.1, 0.0, 0.2),
            rtt_added_ms: Some(e(1.0, 0.5, 1.5)),
            words: "bbr is 10× faster than cubic (95 % CI 9.50 to 10.50 times)".into(),
        };
        let comparison = Comparison {
            baseline: "cubic".into(),
            rounds: 6,
            seed: 1,
            estimator: "medians over rounds".into(),
            time: TimeBreakdown { measured_s: 24.0, left_out_s: 12.0, between_s: 6.0 },
            idle_rtt_ms: Some(40.0),
            no_shares_because: None,
            bbr_choice: None,
            controllers: vec![compared("bbr", 1.0), compared("cubic", 10.0)],
            verdicts: vec![verdict],
        };
        Results { comparison: Some(comparison), ..Results::new(runs) }
    }

    fn page(results: &Results) -> String {
        let mut out = Vec::new();
        Format::Html
            .write(results, &About { title: "Compared".into(), command: String::new() }, &mut out)
            .unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn page_starts_with_the_verdict_and_has_one_dot_per_round() {
        let results = results();
        let html = page(&results);
        let lead = html.find("<p class=\"verdict\">bbr is 10× faster than cubic").expect("the verdict leads");
        assert!(lead < html.find("class=\"compared\"").unwrap());
        assert!(!html.contains("Different paths"));
        assert!(
            html.contains("bbr, round 1") || html.contains("bbr, round 6"),
            "a round with the median goodput is plotted over time"
        );
        let panel = &picture(results.comparison.as_ref().unwrap()).panels[0];
        let dots =
            |cc: &str| panel.curves.iter().filter(|c| c.label == cc).map(|c| c.points.len()).sum::<usize>();
        assert_eq!((dots("bbr"), dots("cubic")), (6, 6));
        assert!(race_picture(&results, &About::default()).png().is_ok());
    }

    #[test]
    fn shares_beside_cubic_are_a_column_and_the_choice_a_sentence_only_where_they_exist() {
        let mut found = results().comparison.unwrap();
        let text = comparison_text(&found, 100);
        assert!(!text.contains("beside") && !text.contains("Use "), "{text}");
        found.no_shares_because = Some("the server is busy".into());
        let text = comparison_text(&found, 100).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("beside a CUBIC flow was not measured: the server is busy."), "{text}");
        found.controllers[0].shares_beside_cubic = vec![0.9, 0.5, 0.62];
        let (controller, reason) = ("fp_bbr3".to_owned(), BbrReason::ShallowBuffer);
        found.bbr_choice = Some(BbrChoice { controller, reason, words: "the buffer is shallow".into() });
        let text = comparison_text(&found, 100);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("beside cubic") && lines[1].ends_with("62 %") && lines[2].ends_with('–'));
        assert!(!lines[0].contains("rounds") && lines.iter().all(|line| line.chars().count() <= 100));
        assert!(text.contains("Use fp_bbr3: the buffer is shallow."), "{text}");
        assert!(conclusion(&found).ends_with("Use fp_bbr3: the buffer is shallow."));
    }

    #[test]
    fn page_contains_the_series_of_one_run_per_controller() {
        let results = results();
        let shown = median_runs(&results, results.comparison.as_ref().unwrap());
        assert_eq!(shown.runs.len(), 2);
        // The plotting code is 52 kB; a line of 200 samples has about 1.3 kB per panel.
        let size = page(&results).len();
        assert!(size < 400_000, "{size}");
    }

    #[test]
    fn text_fits_every_width_and_contains_the_verdict() {
        let results = results();
        let found = results.comparison.as_ref().unwrap();
        for width in [80, 100, 140] {
            let text = comparison_text(found, width);
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{widest} columns of {width}: {text}");
            assert!(
                text.contains("bbr is 10× faster than cubic") && text.contains("24 s measured"),
                "{text}"
            );
        }
        assert!(verdict(&results).starts_with("bbr is 10× faster than cubic"));
    }

    #[test]
    fn comparison_reads_back_from_its_recording() {
        let results = results();
        let mut out = Vec::new();
        Format::Json.write(&results, &About::default(), &mut out).unwrap();
        let back: Results = serde_json::from_slice(&out).unwrap();
        assert_eq!(back.comparison, results.comparison);
        assert_eq!(back.runs.len(), 12);
    }
}
