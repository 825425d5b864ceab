//! One connection: what it is, what holds it back, and what it did.

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

/// Lines of [`about`] that are looked for first: the ends, and what limits.
const WEIGHTY: [usize; 2] = [0, 2];
/// Least height of a chart that can be read.
const CHART: u16 = 6;

pub(super) fn draw(app: &App, frame: &mut Frame<'_>) {
    let Some(cookie) = app.selected else { return };
    let lines = match app.chosen() {
        Some(connection) => about(connection),
        None => vec!["this connection has closed; what it did while it was watched:".to_owned()],
    };
    let width = usize::from(frame.area().width);
    let lines: Vec<Line<'_>> = lines
        .iter()
        .enumerate()
        .flat_map(|(at, line)| wrap(line, width, INDENT).into_iter().map(move |piece| (at, piece)))
        .map(
            |(at, piece)| {
                if WEIGHTY.contains(&at) { Line::from(piece).style(bold()) } else { Line::from(piece) }
            },
        )
        .collect();
    // As many as a connection of which little is known has, so that the charts do not jump.
    let told = u16::try_from(lines.len()).unwrap_or(u16::MAX).max(6) + 1;
    let [facts, body, keys] =
        Layout::vertical([Constraint::Length(told), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(
        Paragraph::new("Esc all connections · ↑↓ another · p pause · q quit").style(dim()),
        keys,
    );
    frame.render_widget(Paragraph::new(lines), facts);

    let points: Vec<&Point> = app.histories.of(cookie).collect();
    let charts = [
        (
            "rate, Mbit/s",
            [("sent", get(&points, |p| p.sending_mbps)), ("believed", get(&points, |p| p.bw_mbps))],
        ),
        (
            "round trip, ms",
            [("smoothed", get(&points, |p| p.srtt_ms)), ("least", get(&points, |p| p.min_rtt_ms))],
        ),
        (
            "segments",
            [
                ("window", get(&points, |p| p.cwnd_segments)),
                ("in flight", get(&points, |p| p.inflight_segments)),
            ],
        ),
    ];
    let fit = usize::from(body.height / CHART).min(charts.len());
    let areas = Layout::vertical(vec![Constraint::Fill(1); fit]).split(body);
    for ((title, lines), area) in charts.iter().zip(areas.iter()) {
        chart(title, lines, *area, app.colour, frame);
    }
}

type Values = Vec<(f64, f64)>;

fn get(points: &[&Point], of: fn(&Point) -> f64) -> Values {
    points.iter().map(|p| (p.t_s, of(p))).filter(|(_, v)| v.is_finite()).collect()
}

fn chart(title: &str, lines: &[(&str, Values); 2], area: Rect, colour: bool, frame: &mut Frame<'_>) {
    let all = || lines.iter().flat_map(|(_, values)| values.iter());
    let from = all().map(|v| v.0).fold(f64::INFINITY, f64::min);
    let to = all().map(|v| v.0).fold(f64::NEG_INFINITY, f64::max);
    let most = all().map(|v| v.1).fold(0.0, f64::max);
    let most = if most > 0.0 { most * 1.1 } else { 1.0 };
    // Told apart by their form too: dots for what is believed or least.
    let forms =
        [(Marker::Braille, GraphType::Line, Color::Cyan), (Marker::Dot, GraphType::Scatter, Color::Yellow)];
    let sets = lines.iter().zip(forms).filter(|((_, values), _)| !values.is_empty());
    let sets = sets.map(|((name, values), (marker, form, hue))| {
        let style = if colour { Style::new().fg(hue) } else { Style::new() };
        Dataset::default().name(*name).data(values).marker(marker).graph_type(form).style(style)
    });
    let (from, to) = if from < to { (from, to) } else { (0.0, 1.0) };
    let told = |v: f64| significant(v, 3);
    // In the title, where it covers nothing.
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
        .y_axis(Axis::default().bounds([0.0, most]).labels(["0".to_owned(), told(most / 2.0), told(most)]));
    frame.render_widget(chart, area);
}

/// What is known of a connection, a line for each kind; which of them are [`WEIGHTY`].
fn about(c: &Connection) -> Vec<String> {
    let mut lines = vec![format!("{} → {}   {:?}", c.local, c.remote, c.state)];
    let mut held = Vec::new();
    held.extend(c.owner.process.as_ref().map(|p| format!("process {} ({})", p.name, p.pid)));
    held.extend(c.owner.container().map(|id| format!("container {id}")));
    held.extend(c.owner.unit().map(|unit| format!("unit {unit}")));
    if held.is_empty() {
        held.extend(c.owner.cgroup.as_ref().map(|path| format!("control group {path}")));
    }
    lines.push(if held.is_empty() { "held by nobody who may be seen".to_owned() } else { held.join(", ") });
    // Early: on a small screen what comes last is cut.
    let limits: Vec<String> =
        c.limits.iter().map(|l| format!("{} {:.0} %", l.by.name(), l.share * 100.0)).collect();
    lines.push(format!(
        "limited by {}",
        if limits.is_empty() { "(not known yet)".to_owned() } else { limits.join(", ") }
    ));
    let bits = |r: Option<Rate>| r.map_or_else(|| "–".to_owned(), |r| spaced(&rate(r)) + "bit/s");
    let mut of = format!("{}: ", c.controller.as_deref().unwrap_or("no controller"));
    match &c.beliefs {
        Some(b) => {
            of += b.state.as_deref().unwrap_or("state unknown");
            of += &format!(", bandwidth {}", bits(b.bw));
            of += &b.min_rtt.map(|r| format!(", propagation {} ms", ms(r))).unwrap_or_default();
            if let (Some(pacing), Some(cwnd)) = (b.pacing_gain, b.cwnd_gain) {
                of += &format!(", gains {pacing:.2} pacing, {cwnd:.2} window");
            }
        }
        None => of += "tells no beliefs",
    }
    lines.push(of);
    let again = c.retransmitted.map_or_else(|| "–".to_owned(), percent);
    lines.push(format!("sending {}, receiving {}, resent {again}", bits(c.sending), bits(c.receiving)));
    if let Some(f) = &c.figures {
        let least = f.min_rtt.map_or_else(|| "–".to_owned(), ms);
        lines.push(format!(
            "RTT {} ms, least {least}; window {} segments of {} B, {} in flight; pacing {}, delivery {}{}; {}",
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
