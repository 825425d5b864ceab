//! Looks at a mesh period by period and tells what changed, and where.
//!
//! Each quantity of each direction has what is usual: the median of the last hours with a deviation for each side. The newest periods, up
//! to twelve, speak for or against a change by their log likelihood under Student's distribution, so that single outliers say little, and
//! no value says more than that none of those before was like it. Quantities of the same direction that one cause moves are added:
//! goodputs of all controllers, retransmissions with lost probes, round trips asked from both ends. A loss-based controller stays slow for
//! many transfers without any change of the path; what the best of the controllers carried is steadier. Where only one
//! controller notices, and neither the other nor probes, more must speak for a change; what it tells of itself, by all that it is seen by,
//! is bounded, unless it falls further than modes do, or its transfers do not arrive in time that always did. What changes at the same time in
//! neighbouring directions is one change, and a site's if most of its directions take part; of these, weaker evidence is enough.

mod locate;
mod shifts;
mod signs;
mod track;
mod witnesses;

use super::change::{Change, Metric};
use super::periods::{Period, periods};
use crate::record::{History, Pair};
use fullpipe_units::Span;
use shifts::Open;
use std::collections::{BTreeMap, BTreeSet};
use track::Track;

/// Shifts that begin within so many periods of each other are of one change.
const TOGETHER: u64 = 3;
/// For so long after its first shift others join a change and its place is corrected.
const YOUNG: u64 = 6;

/// Which way of which metric shifted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    pair: Pair,
    metric: Metric,
    up: bool,
}

/// A change under observation.
#[derive(Clone, Debug)]
struct Seen {
    change: Change,
    begin: u64,
    told: u64,
    suspects: BTreeSet<Key>,
    end: Option<u64>,
}

/// Follows a mesh.
#[derive(Clone, Debug)]
pub struct Watch {
    controllers: usize,
    /// The rate that a transfer which takes longer than allowed is below.
    slow_bps: f64,
    period: Span,
    tick: u64,
    numbers: Vec<i64>,
    tracks: BTreeMap<Pair, Track>,
    open: BTreeMap<(Pair, Metric), Open>,
    seen: Vec<Seen>,
}

impl Watch {
    /// Follows a mesh with so many controllers and periods of this length.
    pub fn new(controllers: usize, period: Span) -> Self {
        Watch {
            controllers,
            slow_bps: 0.0,
            period,
            tick: 0,
            numbers: Vec::new(),
            tracks: BTreeMap::new(),
            open: BTreeMap::new(),
            seen: Vec::new(),
        }
    }

    /// Looks at the next period.
    pub fn look(&mut self, period: &Period<'_>) {
        self.numbers.push(period.number);
        self.take(period);
        self.close();
        let signs = self.signs();
        let (loud, quiet): (Vec<_>, Vec<_>) = signs.into_iter().partition(|(_, sign)| sign.is_loud());
        for (key, sign) in loud {
            self.begin(key, &sign);
        }
        self.suspect(&quiet);
        for nth in 0..self.seen.len() {
            if self.tick.saturating_sub(self.seen[nth].told) <= YOUNG {
                self.locate(nth);
            }
        }
        self.tick += 1;
    }

    /// What has changed so far, by time; sizes are of what is known by now.
    pub fn changes(&self) -> Vec<Change> {
        let mut all: Vec<Change> = self.seen.iter().map(|seen| seen.change.clone()).collect();
        for (&(pair, metric), open) in &self.open {
            let sizes = self.sizes(pair, metric, open, 0);
            if let Some(shift) = all.get_mut(open.change).and_then(|change| change.shifts.get_mut(open.shift))
            {
                shift.sizes = sizes;
            }
        }
        all.sort_by_key(|change| change.begin);
        all
    }
}

/// Whether two directions have a site in common.
fn touches(a: Pair, b: Pair) -> bool {
    [b.from, b.to].iter().any(|site| [a.from, a.to].contains(site))
}

/// What changed over a whole history.
pub fn changes(history: &History) -> Vec<Change> {
    let mut watch = Watch::new(history.controllers.len(), history.period);
    periods(history).iter().for_each(|period| watch.look(period));
    watch.changes()
}
