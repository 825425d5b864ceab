//! Distributions as a text table and as an HTML page.

use super::distributions::{Distributions, Group, GroupBy, Metric};
use crate::About;
use crate::picture::{Axis, Curve, Panel, Picture, escape_html};
use fullpipe_presentation::numbers::{percent_figure, rate_unit, significant, size_unit};
use fullpipe_presentation::page::write_page;
use fullpipe_presentation::palette::{Colour, controller_colour};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Groups of a kind that are shown; the others are only counted.
const MAX_ROWS: usize = 24;
/// Groups with a curve: more cannot be distinguished.
const MAX_CURVES: usize = 8;

/// Column headings, in two lines.
const HEADING: [(&str, &str); 9] = [
    ("", ""),
    ("connec-", "tions"),
    ("payload", ""),
    ("duration", "p50 / p90"),
    ("size", "p50 / p90"),
    ("goodput", "p10 / p50"),
    ("min RTT ms", "p50 / p90"),
    ("retr %", ""),
    ("retr %", "p90"),
];

/// One table for each of `kinds`.
pub fn text(all: &Distributions, kinds: &[GroupBy]) -> String {
    let mut out = summary(all) + "\n";
    for by in kinds {
        let groups = all.groups(*by);
        let rows: Vec<[String; 9]> = groups.iter().take(MAX_ROWS).map(|g| row(g)).collect();
        let mut lines: Vec<[String; 9]> =
            vec![HEADING.map(|(above, _)| above.to_owned()), HEADING.map(|(_, below)| below.to_owned())];
        lines[1][0] = format!("by {}", by.name());
        lines.extend(rows);
        let width = |at: usize| lines.iter().map(|l| l[at].chars().count()).max().unwrap_or(0);
        let widths: [usize; 9] = std::array::from_fn(width);
        out.push('\n');
        for line in &lines {
            let cells = line.iter().zip(widths).enumerate().map(|(at, (cell, width))| {
                if at == 0 { format!("{cell:width$}") } else { format!("{cell:>width$}") }
            });
            let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
        out += &rest(all, *by, groups.len());
    }
    out
}

/// Number of connections, period and volume, in one line.
fn summary(all: &Distributions) -> String {
    let mut line = format!("{} connections", all.all.connections);
    if let Some(period) = all.period() {
        let _ = write!(line, ", {period}, {}", size(Some(all.all.bytes as f64)));
    }
    if all.open_before > 0 {
        let _ = write!(line, "; {} have no duration: they opened before recording began", all.open_before);
    }
    line
}

/// What the table omits.
fn rest(all: &Distributions, by: GroupBy, groups: usize) -> String {
    let mut out = String::new();
    if groups > MAX_ROWS {
        let order = if by == GroupBy::Hour { "later" } else { "with fewer connections each" };
        let _ = writeln!(out, "and {} more, {order}", groups - MAX_ROWS);
    }
    if all.ungrouped(by) > 0 {
        let _ =
            writeln!(out, "{} connections are in further groups, which are not listed", all.ungrouped(by));
    }
    out
}

fn row(group: &Group) -> [String; 9] {
    let two = |metric: Metric, [a, b]: [f64; 2], format: fn(Option<f64>) -> String| {
        let distribution = group.distribution(metric);
        match distribution.count() {
            0 => "–".to_owned(),
            _ => format!("{} / {}", format(distribution.quantile(a)), format(distribution.quantile(b))),
        }
    };
    let share = |share: Option<f64>| share.map_or("–".to_owned(), percent_figure);
    [
        group.name.clone(),
        group.connections.to_string(),
        size(Some(group.bytes as f64)),
        two(Metric::Duration, [0.5, 0.9], duration),
        two(Metric::Bytes, [0.5, 0.9], size),
        two(Metric::Goodput, [0.1, 0.5], rate),
        two(Metric::MinRtt, [0.5, 0.9], |v| v.map_or("–".to_owned(), |v| significant(v, 3))),
        share(group.retransmitted_share()),
        share(group.distribution(Metric::Retransmitted).quantile(0.9)),
    ]
}

fn size(bytes: Option<f64>) -> String {
    bytes.map_or("–".to_owned(), |bytes| {
        let (unit, one) = size_unit(bytes);
        format!("{} {unit}", significant(bytes / one, 3))
    })
}

fn rate(bps: Option<f64>) -> String {
    bps.map_or("–".to_owned(), |bps| {
        let (unit, one) = rate_unit(bps);
        format!("{} {unit}", significant(bps / one, 3))
    })
}

fn duration(seconds: Option<f64>) -> String {
    seconds.map_or("–".to_owned(), |s| match s {
        s if s < 1.0 => format!("{} ms", significant(s * 1e3, 3)),
        s if s < 600.0 => format!("{} s", significant(s, 3)),
        s => format!("{} min", significant(s / 60.0, 3)),
    })
}

/// Writes a self-contained page with a table and the distributions for each of `kinds`.
///
/// # Errors
/// `out` cannot be written.
pub fn page(all: &Distributions, kinds: &[GroupBy], about: &About, out: &mut dyn Write) -> io::Result<()> {
    let mut body = String::new();
    for by in kinds {
        let groups = all.groups(*by);
        let _ = write!(
            body,
            "<h2>By {}</h2><div class=\"scroll\"><table class=\"summary\"><thead><tr>",
            by.name()
        );
        for (above, below) in HEADING {
            let _ = write!(body, "<th scope=\"col\">{above}<small>{below}</small></th>");
        }
        body += "</tr></thead><tbody>";
        for (i, group) in groups.iter().take(MAX_ROWS).enumerate() {
            let colour = colour(*by, i, &group.name);
            let drawn = i < MAX_CURVES;
            let swatch = if drawn { "<i class=\"swatch\"></i>" } else { "" };
            let _ = write!(
                body,
                "<tr style=\"--light:{};--dark:{}\"><th scope=\"row\">{swatch}{}</th>",
                colour.light_hex(),
                colour.dark_hex(),
                escape_html(&group.name)
            );
            for cell in &row(group)[1..] {
                let _ = write!(body, "<td>{}</td>", escape_html(cell));
            }
            body += "</tr>";
        }
        body += "</tbody></table></div>";
        let rest = rest(all, *by, groups.len());
        if !rest.is_empty() {
            let _ = write!(body, "<p class=\"hint\">{}</p>", escape_html(rest.trim_end()));
        }
        let _ = write!(body, "<figure>{}</figure>", picture(*by, &groups).svg());
    }
    write_page(about, &summary(all), &body, out)
}

/// Cumulative distribution of each metric, one curve per group.
fn picture(by: GroupBy, groups: &[&Group]) -> Picture {
    // On a logarithmic axis most values are read near the middle.
    let middle =
        |metric| groups.iter().filter_map(|g| g.distribution(metric).quantile(0.5)).fold(0.0, f64::max);
    let titles = [
        (Metric::Duration, "Duration", ("s", 1.0)),
        (Metric::Bytes, "Size", size_unit(middle(Metric::Bytes))),
        (Metric::Goodput, "Goodput while busy", rate_unit(middle(Metric::Goodput))),
        (Metric::MinRtt, "Minimum RTT", ("ms", 1.0)),
        (Metric::Retransmitted, "Retransmitted segments", ("%", 0.01)),
    ];
    let panels = titles.map(|(metric, title, unit)| Panel {
        title: title.to_owned(),
        x: Axis::log(unit.0),
        y: Axis::percent_of("connections"),
        curves: groups
            .iter()
            .take(MAX_CURVES)
            .enumerate()
            .map(|(i, group)| {
                let points =
                    group.distribution(metric).cumulative().map(|(v, share)| (v / unit.1, share * 100.0));
                let mut curve = Curve::line(group.name.clone(), colour(by, i, &group.name).light, points);
                curve.dash = if by == GroupBy::Controller { 0 } else { i / 4 };
                curve
            })
            .collect(),
        marks: Vec::new(),
    });
    Picture {
        title: format!("Distributions by {}", by.name()),
        panels: panels.to_vec(),
        columns: 3,
        ..Picture::default()
    }
}

/// Colour of a group: that of its controller, or the next of a fixed list.
fn colour(by: GroupBy, place: usize, name: &str) -> Colour {
    const CYCLE: [&str; 8] = ["bbr", "cubic", "reno", "hybla", "bbr3", "bbr2", "fp_bbr1", "fixed"];
    match by {
        GroupBy::Controller => controller_colour(name),
        _ => controller_colour(CYCLE[place % CYCLE.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::connection;

    fn some(count: u32) -> Distributions {
        let mut all = Distributions::default();
        (1..=count).for_each(|n| all.add(&connection(n)));
        all
    }

    #[test]
    fn table_has_one_row_per_group() {
        let text = text(&some(100), &[GroupBy::Controller, GroupBy::Port]);
        let bbr = text.lines().find(|l| l.starts_with("bbr")).unwrap();
        for part in ["50", "50.0 MB", "2.", "40", "1.43"] {
            assert!(bbr.contains(part), "{part}: {text}");
        }
        assert!(text.starts_with("100 connections, 2026-") && text.contains("by port"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 125), "{text}");
    }

    #[test]
    fn page_escapes_names_and_draws_each_grouping() {
        let mut record = connection(1);
        record.socket.as_mut().unwrap().controller = Some("<b>x".to_owned());
        let mut all = some(10);
        all.add(&record);
        let mut page_bytes = Vec::new();
        page(
            &all,
            &GroupBy::ALL,
            &About { title: "a <title>".into(), command: String::new() },
            &mut page_bytes,
        )
        .unwrap();
        let page = String::from_utf8(page_bytes).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.contains("a &lt;title&gt;"));
        assert!(!page.contains("<b>x") && page.contains("&lt;b&gt;x"));
        assert_eq!(page.matches("<figure>").count(), 4);
    }

    #[test]
    fn long_controller_names_are_clipped() {
        let mut record = connection(1);
        record.socket.as_mut().unwrap().controller = Some(format!("x\u{1b}[2J{}", "y".repeat(70_000)));
        let mut all = some(10);
        all.add(&record);
        let text = text(&all, &GroupBy::ALL);
        assert!(text.lines().all(|l| l.chars().count() <= 160), "{text}");
        assert!(
            text.contains("x\u{fffd}[2Jyyy") && text.contains("yy…") && !text.contains('\u{1b}'),
            "{text}"
        );
    }

    #[test]
    fn page_without_connections_is_valid() {
        let mut out = Vec::new();
        page(&Distributions::default(), &GroupBy::ALL, &About::default(), &mut out).unwrap();
        assert!(text(&Distributions::default(), &GroupBy::ALL).starts_with("0 connections"));
    }
}
