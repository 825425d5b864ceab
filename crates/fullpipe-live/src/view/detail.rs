//! Details of one connection: endpoints, limits, history.

use super::App;
use super::history::Point;
use super::list::{bold, dim};
use crate::connection::Connection;
use crate::table::{ms, percent, rate};
use crate::text::{INDENT, spaced};
use fullpipe_experiment::format_number::significant;
use fullpipe_kernel::printable::wrap;
use fullpipe_units::Rate;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Borders, Chart, Dataset, GraphType, Paragraph};

/// Emphasised lines of [`about`]: endpoints and limits.
const EMPHASISED: [usize; 2] = [0, 2];
/// Minimum legible height of a chart.
const MIN_CHART_HEIGHT: u16 = 6;

pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let Some(cookie) = app.selected else { return };
    let lines = match app.selected_connection() {
        Some(connection) => about(connection),
        None => vec!["this connection has closed; its history:".to_owned()],
    };
    let width = usize::from(frame.area().width);
    let lines: Vec<Line<'_>> = lines
        .iter()
        .enumerate()
        .flat_map(|(at, line)| wrap(line, width, INDENT).into_iter().map(move |piece| (at, piece)))
        .map(
            |(at, piece)| {
                if EMPHASISED.contains(&at) { Line::from(piece).style(bold()) } else { Line::from(piece) }
            },
        )
        .collect();
    // A minimum height, so that the charts do not move.
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).max(6) + 1;
    let [facts, body, keys] =
        Layout::vertical([Constraint::Length(height), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(
        Paragraph::new("Esc list · ↑↓ other connection · p pause · q quit").style(dim()),
        keys,
    );
    frame.render_widget(Paragraph::new(lines), facts);

    let points: Vec<&Point> = app.histories.points(cookie).collect();
    let charts = [
        (
            "rate, Mbit/s",
            [("sending", get(&points, |p| p.sending_mbps)), ("estimate", get(&points, |p| p.bw_mbps))],
        ),
        ("RTT, ms", [("smoothed", get(&points, |p| p.srtt_ms)), ("minimum", get(&points, |p| p.min_rtt_ms))]),
        (
            "segments",
            [
                ("cwnd", get(&points, |p| p.cwnd_segments)),
                ("in flight", get(&points, |p| p.inflight_segments)),
            ],
        ),
    ];
    let fit = usize::from(body.height / MIN_CHART_HEIGHT).min(charts.len());
    let areas = Layout::vertical(vec![Constraint::Fill(1); fit]).split(body);
    for ((title, lines), area) in charts.iter().zip(areas.iter()) {
        chart(title, lines, *area, app.colour, frame);
    }
}

type Values = Vec<(f64, f64)>;

fn get(points: &[&Point], value: fn(&Point) -> f64) -> Values {
    points.iter().map(|p| (p.t_s, value(p))).filter(|(_, v)| v.is_finite()).collect()
}

fn chart(title: &str, lines: &[(&str, Values); 2], area: Rect, colour: bool, frame: &mut Frame<'_>) {
    let all = || lines.iter().flat_map(|(_, values)| values.iter());
    let from = all().map(|v| v.0).fold(f64::INFINITY, f64::min);
    let to = all().map(|v| v.0).fold(f64::NEG_INFINITY, f64::max);
    let max = all().map(|v| v.1).fold(0.0, f64::max);
    let max = if max > 0.0 { max * 1.1 } else { 1.0 };
    // Distinguished by shape too: dots for estimates and minima.
    let forms =
        [(Marker::Braille, GraphType::Line, Color::Cyan), (Marker::Dot, GraphType::Scatter, Color::Yellow)];
    let sets = lines.iter().zip(forms).filter(|((_, values), _)| !values.is_empty());
    let sets = sets.map(|((name, values), (marker, form, hue))| {
        let style = if colour { Style::new().fg(hue) } else { Style::new() };
        Dataset::default().name(*name).data(values).marker(marker).graph_type(form).style(style)
    });
    let (from, to) = if from < to { (from, to) } else { (0.0, 1.0) };
    let number = |v: f64| significant(v, 3);
    // The legend is in the title, where it covers no data.
    let names: Vec<String> = lines
        .iter()
        .zip(["─", "•"])
        .filter(|((_, values), _)| !values.is_empty())
        .map(|((name, _), mark)| format!("{mark} {name}"))
        .collect();
    let chart = Chart::new(sets.collect())
        .block(Block::new().borders(Borders::TOP).title(format!("{title}: {} ", names.join("  "))))
        .legend_position(None)
        .x_axis(
            Axis::default().bounds([from, to]).labels([format!("{:.0} s ago", to - from), "now".to_owned()]),
        )
        .y_axis(Axis::default().bounds([0.0, max]).labels(["0".to_owned(), number(max / 2.0), number(max)]));
    frame.render_widget(chart, area);
}

/// Properties of a connection, one line per kind; [`EMPHASISED`] refers to their positions.
fn about(c: &Connection) -> Vec<String> {
    let mut lines = vec![format!("{} → {}   {:?}", c.local, c.remote, c.state)];
    let mut owners = Vec::new();
    owners.extend(c.owner.process.as_ref().map(|p| format!("process {} ({})", p.name, p.pid)));
    owners.extend(c.owner.container().map(|id| format!("container {id}")));
    owners.extend(c.owner.unit().map(|unit| format!("unit {unit}")));
    if owners.is_empty() {
        owners.extend(c.owner.cgroup.as_ref().map(|path| format!("control group {path}")));
    }
    lines.push(if owners.is_empty() { "owner unknown".to_owned() } else { owners.join(", ") });
    // Early, because a small screen cuts the last lines.
    let limits: Vec<String> =
        c.limits.iter().map(|l| format!("{} {:.0} %", l.by.name(), l.share * 100.0)).collect();
    lines.push(format!(
        "limited by {}",
        if limits.is_empty() { "(unknown yet)".to_owned() } else { limits.join(", ") }
    ));
    let bits = |r: Option<Rate>| r.map_or_else(|| "–".to_owned(), |r| spaced(&rate(r)) + "bit/s");
    let mut controller = format!("{}: ", c.controller.as_deref().unwrap_or("no controller"));
    match &c.model {
        Some(b) => {
            controller += &b.version.map_or_else(String::new, |version| format!("BBR v{version}, "));
            controller += b.state.as_deref().unwrap_or("state unknown");
            controller += &format!(", bandwidth {}", bits(b.bw));
            controller += &b.min_rtt.map(|r| format!(", min RTT {} ms", ms(r))).unwrap_or_default();
            if let (Some(pacing), Some(cwnd)) = (b.pacing_gain, b.cwnd_gain) {
                controller += &format!(", pacing gain {pacing:.2}, cwnd gain {cwnd:.2}");
            }
            for (name, bound) in [
                ("bw_hi", b.bw_hi.map(|bw| bits(Some(bw)))),
                ("bw_lo", b.bw_lo.map(|bw| bits(Some(bw)))),
                ("inflight_hi", b.inflight_hi_segments.map(|bound| bound.to_string())),
                ("inflight_lo", b.inflight_lo_segments.map(|bound| bound.to_string())),
                ("extra_acked", b.extra_acked_segments.map(|extra| extra.to_string())),
            ] {
                controller += &bound.map_or_else(String::new, |bound| format!(", {name} {bound}"));
            }
        }
        None => controller += "exposes no model",
    }
    lines.push(controller);
    let retransmitted = c.retransmitted.map_or_else(|| "–".to_owned(), percent);
    lines.push(format!("sending {}, receiving {}, retr {retransmitted}", bits(c.sending), bits(c.receiving)));
    if let Some(f) = &c.figures {
        let min = f.min_rtt.map_or_else(|| "–".to_owned(), ms);
        lines.push(format!(
            "RTT {} ms, min {min}; cwnd {} segments of {} B, {} in flight; pacing {}, delivery {}{}; {}",
            ms(f.srtt),
            f.cwnd_segments,
            f.mss_bytes,
            f.inflight_segments,
            bits(f.pacing),
            bits(f.delivery),
            if f.delivery_app_limited { " (application-limited)" } else { "" },
            f.recovery,
        ));
    }
    lines
}
