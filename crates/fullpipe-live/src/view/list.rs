//! The list of connections: totals, table, key help.

use super::App;
use crate::table::layout;
use crate::text::{INDENT, has_values, notes, totals};
use fullpipe_kernel::printable::wrap;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// Maximum controllers with totals.
const MAX_TOTALS: usize = 4;

pub(super) fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let mut notes = notes(&app.snapshot);
    if let Some((text, error)) = &app.typing {
        notes = vec![format!("filter: {text}▏")];
        notes.extend(error.clone());
    }
    let width = usize::from(frame.area().width);
    let sums = totals(&app.snapshot);
    let sums: Vec<String> = sums.iter().take(MAX_TOTALS).flat_map(|line| wrap(line, width, INDENT)).collect();
    let rows = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let [title, above, body, below, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows(sums.len())),
        Constraint::Min(0),
        Constraint::Length(rows(notes.len())),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(app)).style(bold()), title);
    frame.render_widget(Paragraph::new(sums.into_iter().map(Line::from).collect::<Vec<_>>()), above);
    frame.render_widget(Paragraph::new(notes.into_iter().map(Line::from).collect::<Vec<_>>()), below);
    let help = if app.typing.is_some() {
        "Enter apply · Esc cancel"
    } else {
        "q quit · ↑↓ Enter details · s sort · r reverse · / filter · p pause"
    };
    frame.render_widget(Paragraph::new(help).style(dim()), keys);

    let columns = layout(body.width, |c| has_values(&app.snapshot, c));
    let aligned = |text: String, numeric: bool| {
        Cell::from(Line::from(text).alignment(if numeric { Alignment::Right } else { Alignment::Left }))
    };
    let head =
        Row::new(columns.iter().map(|(c, _)| aligned(c.heading().to_owned(), c.is_numeric()))).style(bold());
    // Render visible rows only: ten thousand rows would take longer than the sampling interval.
    let height = usize::from(body.height.saturating_sub(1));
    let selected = app.table.selected().unwrap_or(0);
    let first = app.table.offset().min(selected).max((selected + 1).saturating_sub(height));
    let first = first.min(app.snapshot.connections.len().saturating_sub(height));
    let shown = app.snapshot.connections.iter().skip(first).take(height);
    let colour = app.colour;
    let lines = shown.map(|connection| {
        let cells = columns.iter().map(|&(c, w)| aligned(c.cell(connection, w), c.is_numeric()));
        let is_lossy = connection.retransmitted.is_some_and(|r| r > 0.02);
        Row::new(cells).style(if is_lossy && colour { Style::new().fg(Color::Yellow) } else { Style::new() })
    });
    let widths = columns.iter().map(|(_, w)| Constraint::Length(*w));
    let table = Table::new(lines, widths).header(head).column_spacing(1);
    let table = table.row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut window = ratatui::widgets::TableState::default();
    window.select(app.table.selected().map(|at| at.saturating_sub(first)));
    frame.render_stateful_widget(table, body, &mut window);
    *app.table.offset_mut() = first;
}

fn heading(app: &App) -> String {
    let n = app.snapshot.connections.len();
    let filter = if app.filter.is_empty() { String::new() } else { format!(" · {}", app.filter) };
    let order = format!("by {}{}", app.order.name(), if app.reversed { ", ascending" } else { "" });
    let paused = if app.paused { " · paused" } else { "" };
    format!("fullpipe watch · {n} connections {order}{filter}{paused}")
}

pub(super) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub(super) fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}
