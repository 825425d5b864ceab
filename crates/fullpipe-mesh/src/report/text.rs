//! The report as text for a terminal of 80 columns.

use super::{Report, State, clock, paths, times};
use crate::record::Pair;
use fullpipe_kernel::printable::wrap;
use std::collections::HashMap;
use std::fmt::Write as _;

/// Maximum changes listed, the newest first.
const CHANGES: usize = 12;
/// Columns of the terminal.
const WIDTH: usize = 80;

/// The report as text.
pub fn terminal(report: &Report) -> String {
    let mut out = String::new();
    let cut = |text: &str, most: usize| -> String {
        let long = text.chars().count() > most;
        if long {
            text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
        } else {
            text.to_owned()
        }
    };
    for line in wrap(&format!("{}.", report.verdict()), WIDTH, 0) {
        let _ = writeln!(out, "{line}");
    }
    if report.pairs.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "{} to {} UTC, {} sites, {}",
        clock(report.from_ms),
        clock(report.to_ms),
        report.sites.len(),
        paths(report.pairs.len())
    );
    for (cc, name) in report.controllers.iter().enumerate().skip(1) {
        let first = report.controllers.first().map_or("", String::as_str);
        let _ = writeln!(out, "\n{name} over {first}: rows send, columns receive");
        matrix(&mut out, report, cc, &cut);
    }
    let since = match report.changes_are_partial() {
        true => format!(" since {} UTC", clock(report.changes_from_ms)),
        false => String::new(),
    };
    if report.changes.is_empty() {
        let _ = writeln!(out, "\nno changes{since}");
    } else {
        let _ = writeln!(out, "\nchanges{since}, newest first");
    }
    for change in report.changes.iter().rev().take(CHANGES) {
        let until =
            change.end_ms.map_or("now".to_owned(), |end| clock(end).get(11..).unwrap_or("").to_owned());
        let head = format!("{} to {until}  {}: {}", clock(change.begin_ms), change.location, change.kind);
        let _ = writeln!(out, "{}", cut(&head, WIDTH));
        for line in wrap(&change.details.join("; "), WIDTH - 4, 0) {
            let _ = writeln!(out, "    {line}");
        }
    }
    if let Some(more) = report.changes.len().checked_sub(CHANGES + 1) {
        let _ = writeln!(out, "… and {} older", more + 1);
    }
    for pair in report.pairs.iter().filter(|pair| pair.diagnosis.is_some()) {
        if let Some(diagnosis) = &pair.diagnosis {
            let text = format!(
                "{}: differs from the simulated path; likely cause: {}",
                name(report, pair.pair),
                diagnosis.cause.description()
            );
            for line in wrap(&text, WIDTH, 0) {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

fn name(report: &Report, pair: Pair) -> String {
    let of = |id: u16| report.sites.get(usize::from(id)).map_or("?", String::as_str);
    format!("{} → {}", of(pair.from), of(pair.to))
}

/// A matrix of ratios with state symbols, split where the sites do not fit the width.
fn matrix(out: &mut String, report: &Report, cc: usize, cut: &dyn Fn(&str, usize) -> String) {
    const HEAD: usize = 10;
    const CELL: usize = 8;
    let pairs: HashMap<Pair, &super::PathReport> =
        report.pairs.iter().map(|pair| (pair.pair, pair)).collect();
    let columns: Vec<u16> = (0..).zip(&report.sites).map(|(id, _)| id).collect();
    for some in columns.chunks((WIDTH - HEAD) / CELL) {
        let _ = write!(out, "{:HEAD$}", "");
        for to in some {
            let _ = write!(out, "{:>CELL$}", cut(&report.sites[usize::from(*to)], CELL - 1));
        }
        out.push('\n');
        for (from, site) in (0..).zip(&report.sites) {
            let mut line = format!("{:<HEAD$}", cut(site, HEAD - 1));
            for to in some {
                let cell = match pairs.get(&Pair { from, to: *to }) {
                    None if from == *to => "·".to_owned(),
                    None => "-".to_owned(),
                    Some(pair) => {
                        let ratio = pair.ratios.get(cc).copied().flatten();
                        let ratio = ratio.map_or("-".to_owned(), |ratio| times(ratio.ratio.median));
                        format!("{}{ratio}", pair.state.symbol())
                    }
                };
                let _ = write!(line, "{cell:>CELL$}");
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    let mut states: Vec<State> = Vec::new();
    for state in report.pairs.iter().map(|pair| pair.state).filter(|state| *state != State::Normal) {
        if !states.contains(&state) {
            states.push(state);
        }
    }
    let words: Vec<String> =
        states.iter().map(|state| format!("{} {}", state.symbol(), state.name())).collect();
    if !words.is_empty() {
        for line in wrap(&words.join(", "), WIDTH, 0) {
            let _ = writeln!(out, "{line}");
        }
    }
}
