//! Detects changes in a mesh period by period, and locates them.
//!
//! Each quantity of each direction has a baseline: the median of the last hours with a deviation
//! for each side. Up to twelve recent periods give evidence for a change by their log-likelihood
//! under Student's t distribution, so single outliers carry little weight, and no value counts for
//! more than that it was never observed before. Quantities of one direction that share a cause are
//! added: goodputs of all controllers, retransmissions and lost probes, RTTs from both ends. A
//! loss-based controller may stay slow for many transfers without any change of the path; the best
//! controller's goodput is steadier. Where only one controller is affected, and neither the others
//! nor the probes, the threshold is higher; its evidence is bounded unless it slows down more than
//! its modes can explain, or transfers that always completed time out. Simultaneous changes of
//! neighbouring directions are one change, which is located at a site if most of its directions
//! take part; these need less evidence.

mod evidence;
mod locate;
mod shifts;
mod signals;
mod track;

use super::change::{Change, Metric};
use super::periods::{Period, periods};
use crate::record::{History, Pair};
use fullpipe_units::Span;
use shifts::Open;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use track::Track;

/// Shifts that begin within this many periods of each other belong to one change.
const MERGE_PERIODS: u64 = 3;
/// For this many periods after its first shift, further shifts join a change and its location is
/// revised.
const LOCATE_PERIODS: u64 = 6;

/// Periods whose numbers are kept: a change begins and ends in one of the last few, unless a direction
/// was silent.
const MAX_NUMBERS: usize = 1440;

/// A metric of a direction and the sign of its shift.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    pair: Pair,
    metric: Metric,
    up: bool,
}

/// A change that is being tracked.
#[derive(Clone, Debug)]
struct TrackedChange {
    change: Change,
    begin: u64,
    reported: u64,
    suspects: BTreeSet<Key>,
    end: Option<u64>,
}

/// Detects changes in a mesh.
#[derive(Clone, Debug)]
pub struct Detector {
    controllers: usize,
    /// The rate that a timed-out transfer stayed below.
    slow_bps: f64,
    period: Span,
    tick: u64,
    /// Periods observed, with the present one.
    observed: u64,
    /// The numbers of the last periods.
    numbers: VecDeque<i64>,
    tracks: BTreeMap<Pair, Track>,
    open: BTreeMap<(Pair, Metric), Open>,
    tracked: Vec<TrackedChange>,
}

impl Detector {
    /// A detector for a mesh with this many controllers and this period.
    pub fn new(controllers: usize, period: Span) -> Self {
        Detector {
            controllers,
            slow_bps: 0.0,
            period,
            tick: 0,
            observed: 0,
            numbers: VecDeque::new(),
            tracks: BTreeMap::new(),
            open: BTreeMap::new(),
            tracked: Vec::new(),
        }
    }

    /// Processes the next period.
    pub fn observe(&mut self, period: &Period<'_>) {
        self.observed += 1;
        self.numbers.push_back(period.number);
        if self.numbers.len() > MAX_NUMBERS {
            self.numbers.pop_front();
        }
        self.record(period);
        self.close();
        let signals = self.signals();
        let (significant, weak): (Vec<_>, Vec<_>) =
            signals.into_iter().partition(|(_, signal)| signal.is_significant());
        for (key, signal) in significant {
            self.begin(key, &signal);
        }
        self.suspect(&weak);
        for nth in 0..self.tracked.len() {
            if self.tick.saturating_sub(self.tracked[nth].reported) <= LOCATE_PERIODS {
                self.locate(nth);
            }
        }
        self.tick += 1;
    }

    /// The number of a tick; of one long past, the oldest number.
    fn number_of(&self, tick: u64) -> Option<i64> {
        let newer = usize::try_from(self.observed.checked_sub(tick + 1)?).unwrap_or(usize::MAX);
        self.numbers.iter().rev().nth(newer).or(self.numbers.front()).copied()
    }

    /// Forgets changes that ended before the period with this number.
    pub fn forget(&mut self, before: i64) {
        let is_old = |change: &TrackedChange| change.change.end.is_some_and(|end| end < before);
        let open: BTreeSet<usize> = self.open.values().map(|open| open.change).collect();
        let mut places = Vec::with_capacity(self.tracked.len());
        let mut next = 0;
        for (nth, tracked) in self.tracked.iter().enumerate() {
            places.push((!is_old(tracked) || open.contains(&nth)).then(|| {
                next += 1;
                next - 1
            }));
        }
        let mut kept = places.iter();
        self.tracked.retain(|_| kept.next().is_some_and(Option::is_some));
        for open in self.open.values_mut() {
            open.change = places.get(open.change).copied().flatten().unwrap_or(usize::MAX);
        }
    }

    /// The changes so far, by time, with their latest sizes.
    pub fn changes(&self) -> Vec<Change> {
        let mut all: Vec<Change> = self.tracked.iter().map(|tracked| tracked.change.clone()).collect();
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

/// Whether two directions share a site.
fn touches(a: Pair, b: Pair) -> bool {
    [b.from, b.to].iter().any(|site| [a.from, a.to].contains(site))
}

/// The changes of a whole history.
pub fn changes(history: &History) -> Vec<Change> {
    let mut detector = Detector::new(history.controllers.len(), history.period);
    periods(history).iter().for_each(|period| detector.observe(period));
    detector.changes()
}
