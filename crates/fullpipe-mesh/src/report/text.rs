//! What a mesh saw, for a terminal of 80 columns.

use super::{Seen, State, clock, paths, times};
use crate::record::Pair;
use fullpipe_kernel::printable::wrap;
use std::fmt::Write as _;

/// Changes that are listed: the newest.
const CHANGES: usize = 12;
/// Columns.
const WIDTH: usize = 80;

/// The summary as text.
pub fn terminal(seen: &Seen) -> String {
    let mut out = String::new();
    let cut = |text: &str, most: usize| -> String {
        let long = text.chars().count() > most;
        if long {
            text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
        } else {
            text.to_owned()
        }
    };
    for line in wrap(&format!("{}.", seen.verdict()), WIDTH, 0) {
        let _ = writeln!(out, "{line}");
    }
    if seen.pairs.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "{} to {} UTC, {} sites, {}",
        clock(seen.from_ms),
        clock(seen.to_ms),
        seen.sites.len(),
        paths(seen.pairs.len())
    );
    for (cc, name) in seen.controllers.iter().enumerate().skip(1) {
        let first = seen.controllers.first().map_or("", String::as_str);
        let _ = writeln!(out, "\n{name} over {first}: who sends down, who receives across");
        matrix(&mut out, seen, cc, &cut);
    }
    if seen.changes.is_empty() {
        let _ = writeln!(out, "\nnothing changed");
    } else {
        let _ = writeln!(out, "\nwhat changed, newest first");
    }
    for told in seen.changes.iter().rev().take(CHANGES) {
        let until = told.end_ms.map_or("now".to_owned(), |end| clock(end).get(11..).unwrap_or("").to_owned());
        let head = format!("{} to {until}  {}: {}", clock(told.begin_ms), told.place, told.kind);
        let _ = writeln!(out, "{}", cut(&head, WIDTH));
        for line in wrap(&told.said.join("; "), WIDTH - 4, 0) {
            let _ = writeln!(out, "    {line}");
        }
    }
    if let Some(more) = seen.changes.len().checked_sub(CHANGES + 1) {
        let _ = writeln!(out, "… and {} before", more + 1);
    }
    for pair in seen.pairs.iter().filter(|pair| pair.diagnosis.is_some()) {
        if let Some(diagnosis) = &pair.diagnosis {
            let text = format!(
                "{}: not what such a path should give; {}",
                name(seen, pair.pair),
                diagnosis.cause.said()
            );
            for line in wrap(&text, WIDTH, 0) {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out
}

fn name(seen: &Seen, pair: Pair) -> String {
    let of = |id: u16| seen.sites.get(usize::from(id)).map_or("?", String::as_str);
    format!("{} → {}", of(pair.from), of(pair.to))
}

/// A matrix of ratios with signs of the states; in parts, where the sites are too many for the width.
fn matrix(out: &mut String, seen: &Seen, cc: usize, cut: &dyn Fn(&str, usize) -> String) {
    const HEAD: usize = 10;
    const CELL: usize = 8;
    let columns: Vec<usize> = (0..seen.sites.len()).collect();
    for some in columns.chunks((WIDTH - HEAD) / CELL) {
        let _ = write!(out, "{:HEAD$}", "");
        for to in some {
            let _ = write!(out, "{:>CELL$}", cut(&seen.sites[*to], CELL - 1));
        }
        out.push('\n');
        for (from, site) in seen.sites.iter().enumerate() {
            let mut line = format!("{:<HEAD$}", cut(site, HEAD - 1));
            for to in some {
                let of = |pair: &&super::PairSeen| {
                    usize::from(pair.pair.from) == from && usize::from(pair.pair.to) == *to
                };
                let cell = match seen.pairs.iter().find(of) {
                    None if from == *to => "·".to_owned(),
                    None => "-".to_owned(),
                    Some(pair) => {
                        let ratio = pair.ratios.get(cc).copied().flatten();
                        let ratio = ratio.map_or("-".to_owned(), |ratio| times(ratio.ratio.median));
                        format!("{}{ratio}", pair.state.sign())
                    }
                };
                let _ = write!(line, "{cell:>CELL$}");
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    let mut states: Vec<State> = Vec::new();
    for state in seen.pairs.iter().map(|pair| pair.state).filter(|state| *state != State::Fine) {
        if !states.contains(&state) {
            states.push(state);
        }
    }
    let words: Vec<String> =
        states.iter().map(|state| format!("{} {}", state.sign(), state.name())).collect();
    if !words.is_empty() {
        for line in wrap(&words.join(", "), WIDTH, 0) {
            let _ = writeln!(out, "{line}");
        }
    }
}
