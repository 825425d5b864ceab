//! Distributions as text and as a page.

use super::distributions::{By, Distributions, Figure, Group};
use crate::figures::{percent_figure, rate_unit, significant, size_unit};
use crate::palette::{Colour, colour_of};
use crate::picture::{Axis, Curve, Panel, Picture, escaped};
use crate::{About, html};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Groups of a kind that are shown; the rest are counted.
const SHOWN: usize = 24;
/// Groups that have a curve: more cannot be told apart.
const DRAWN: usize = 8;

/// The heading of the columns: in two lines, as a table for a terminal has them.
const HEADING: [(&str, &str); 9] = [
    ("", ""),
    ("connec-", "tions"),
    ("payload", ""),
    ("duration", "p50 / p90"),
    ("size", "p50 / p90"),
    ("goodput", "p10 / p50"),
    ("min RTT ms", "p50 / p90"),
    ("resent", "%"),
    ("resent %", "p90"),
];

/// A table for each kind of group.
pub fn text(all: &Distributions, kinds: &[By]) -> String {
    let mut out = summary(all) + "\n";
    for by in kinds {
        let groups = all.groups(*by);
        let rows: Vec<[String; 9]> = groups.iter().take(SHOWN).map(|g| row(g)).collect();
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

/// How many of what, and when.
fn summary(all: &Distributions) -> String {
    let mut line = format!("{} connections", all.all.connections);
    if let Some(period) = all.period() {
        let _ = write!(line, ", {period}, {}", size(Some(all.all.bytes as f64)));
    }
    if all.open_before > 0 {
        let _ = write!(line, "; {} have no duration: their opening was not seen", all.open_before);
    }
    line
}

/// What a table has no room for.
fn rest(all: &Distributions, by: By, groups: usize) -> String {
    let mut out = String::new();
    if groups > SHOWN {
        let order = if by == By::Hour { "later ones" } else { "with fewer connections" };
        let _ = writeln!(out, "and {} more, {order}", groups - SHOWN);
    }
    if all.ungrouped(by) > 0 {
        let _ = writeln!(out, "{} connections of more than are told apart", all.ungrouped(by));
    }
    out
}

fn row(group: &Group) -> [String; 9] {
    let two = |of: Figure, [a, b]: [f64; 2], told: fn(Option<f64>) -> String| {
        let spread = group.spread(of);
        match spread.count() {
            0 => "–".to_owned(),
            _ => format!("{} / {}", told(spread.quantile(a)), told(spread.quantile(b))),
        }
    };
    let share = |share: Option<f64>| share.map_or("–".to_owned(), percent_figure);
    [
        group.name.clone(),
        group.connections.to_string(),
        size(Some(group.bytes as f64)),
        two(Figure::Duration, [0.5, 0.9], duration),
        two(Figure::Bytes, [0.5, 0.9], size),
        two(Figure::Goodput, [0.1, 0.5], rate),
        two(Figure::MinRtt, [0.5, 0.9], |v| v.map_or("–".to_owned(), |v| significant(v, 3))),
        share(group.retransmitted_share()),
        share(group.spread(Figure::Retransmitted).quantile(0.9)),
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

/// One page that needs nothing else: a table and the distributions for each kind of group.
///
/// # Errors
/// `out` cannot be written.
pub fn page(all: &Distributions, kinds: &[By], about: &About, out: &mut dyn Write) -> io::Result<()> {
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
        for (i, group) in groups.iter().take(SHOWN).enumerate() {
            let colour = colour(*by, i, &group.name);
            let drawn = i < DRAWN;
            let swatch = if drawn { "<i class=\"swatch\"></i>" } else { "" };
            let _ = write!(
                body,
                "<tr style=\"--light:{};--dark:{}\"><th scope=\"row\">{swatch}{}</th>",
                colour.light_hex(),
                colour.dark_hex(),
                escaped(&group.name)
            );
            for cell in &row(group)[1..] {
                let _ = write!(body, "<td>{}</td>", escaped(cell));
            }
            body += "</tr>";
        }
        body += "</tbody></table></div>";
        let rest = rest(all, *by, groups.len());
        if !rest.is_empty() {
            let _ = write!(body, "<p class=\"hint\">{}</p>", escaped(rest.trim_end()));
        }
        let _ = write!(body, "<figure>{}</figure>", picture(*by, &groups).svg());
    }
    html::write_page(about, &summary(all), &body, out)
}

/// Each figure's share of connections up to a value, a curve a group.
fn picture(by: By, groups: &[&Group]) -> Picture {
    // On a logarithmic axis most values are read near the middle.
    let middle = |figure| groups.iter().filter_map(|g| g.spread(figure).quantile(0.5)).fold(0.0, f64::max);
    let titles = [
        (Figure::Duration, "Duration", ("s", 1.0)),
        (Figure::Bytes, "Size", size_unit(middle(Figure::Bytes))),
        (Figure::Goodput, "Goodput while busy", rate_unit(middle(Figure::Goodput))),
        (Figure::MinRtt, "Least round trip", ("ms", 1.0)),
        (Figure::Retransmitted, "Segments sent again", ("%", 0.01)),
    ];
    let panels = titles.map(|(figure, title, unit)| Panel {
        title: title.to_owned(),
        x: Axis::log(unit.0),
        y: Axis::share("connections"),
        curves: groups
            .iter()
            .take(DRAWN)
            .enumerate()
            .map(|(i, group)| {
                let points = group.spread(figure).cumulative().map(|(v, share)| (v / unit.1, share * 100.0));
                let mut curve = Curve::line(group.name.clone(), colour(by, i, &group.name).light, points);
                curve.dash = if by == By::Controller { 0 } else { i / 4 };
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

/// Of a controller its own, of others one after the other.
fn colour(by: By, place: usize, name: &str) -> Colour {
    const TURNS: [&str; 8] = ["bbr", "cubic", "reno", "hybla", "bbr3", "bbr2", "fp_bbr1", "fixed"];
    match by {
        By::Controller => colour_of(name),
        _ => colour_of(TURNS[place % TURNS.len()]),
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
    fn a_table_has_a_line_a_group() {
        let text = text(&some(100), &[By::Controller, By::Port]);
        let bbr = text.lines().find(|l| l.starts_with("bbr")).unwrap();
        for part in ["50", "50.0 MB", "2.", "40", "1.43"] {
            assert!(bbr.contains(part), "{part}: {text}");
        }
        assert!(text.starts_with("100 connections, 2026-") && text.contains("by port"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 125), "{text}");
    }

    #[test]
    fn a_page_escapes_names_and_draws_each_kind() {
        let mut record = connection(1);
        record.socket.as_mut().unwrap().controller = Some("<b>x".to_owned());
        let mut all = some(10);
        all.add(&record);
        let mut page_bytes = Vec::new();
        page(&all, &By::ALL, &About { title: "a <title>".into(), command: String::new() }, &mut page_bytes)
            .unwrap();
        let page = String::from_utf8(page_bytes).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.contains("a &lt;title&gt;"));
        assert!(!page.contains("<b>x") && page.contains("&lt;b&gt;x"));
        assert_eq!(page.matches("<figure>").count(), 4);
    }

    #[test]
    fn of_nothing_there_is_a_page_too() {
        let mut out = Vec::new();
        page(&Distributions::default(), &By::ALL, &About::default(), &mut out).unwrap();
        assert!(text(&Distributions::default(), &By::ALL).starts_with("0 connections"));
    }
}
