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

/// Maximum changes, and shifts of all of them, that are kept. A site that goes down has 500 shifts.
const MAX_CHANGES: usize = 1000;
const MAX_SHIFTS: usize = 100_000;

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
            numbers: VecDeque::new(),
            tracks: BTreeMap::new(),
            open: BTreeMap::new(),
            tracked: Vec::new(),
        }
    }

    /// Processes the next period.
    pub fn observe(&mut self, period: &Period<'_>) {
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
        self.limit_changes();
        self.tick += 1;
    }

    /// The number of a tick; of one long past, the oldest number.
    fn number_of(&self, tick: u64) -> Option<i64> {
        let newer = usize::try_from(self.tick.checked_sub(tick)?).unwrap_or(usize::MAX);
        self.numbers.iter().rev().nth(newer).or(self.numbers.front()).copied()
    }

    /// Forgets changes that ended before the period with this number.
    pub fn forget(&mut self, before: i64) {
        self.retain_changes(|change| change.change.end.is_none_or(|end| end >= before));
    }

    /// Forgets the older half of the changes that have ended, if there are too many: a member may
    /// send records that change all the time.
    fn limit_changes(&mut self) {
        let shifts: usize = self.tracked.iter().map(|change| change.change.shifts.len()).sum();
        if self.tracked.len() <= MAX_CHANGES && shifts <= MAX_SHIFTS {
            return;
        }
        let mut older = self.tracked.len() / 2;
        self.retain_changes(|_| {
            older = older.saturating_sub(1);
            older == 0
        });
    }

    /// Keeps the changes with ongoing shifts, and others for which `is_kept`.
    fn retain_changes(&mut self, mut is_kept: impl FnMut(&TrackedChange) -> bool) {
        let open: BTreeSet<usize> = self.open.values().map(|open| open.change).collect();
        let (mut places, mut next) = (Vec::with_capacity(self.tracked.len()), 0);
        let mut nth = 0;
        self.tracked.retain(|change| {
            let is_kept = is_kept(change) || open.contains(&nth);
            places.push(next);
            next += usize::from(is_kept);
            nth += 1;
            is_kept
        });
        self.open.values_mut().for_each(|open| open.change = places[open.change]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Measurement, Outcome, Transfer, TransferError};

    /// Transfers of 32 pairs that fail for four of sixteen periods, one pair after the other.
    fn period(number: i64) -> History {
        let transfer = |site: u16, controller: u16| {
            let measured = Measurement {
                bytes: 8_000_000,
                duration: Span::from_secs(1),
                delivery_rate: None,
                rtt: Span::from_millis(40),
                min_rtt: Span::from_millis(40),
                segments: 5600,
                retransmitted: 0,
                receive_window_limited: 0.0,
                send_buffer_limited: 0.0,
                cpu: Span::ZERO,
            };
            let outcome = match (number + i64::from(site)) % 16 {
                12.. if number >= 60 => Outcome::Failed(TransferError::Unreachable),
                _ => Outcome::Done(Box::new(measured)),
            };
            let (at_ms, pair) = (number * 60_000, Pair { from: 2 * site, to: 2 * site + 1 });
            Transfer { at_ms, period: number, pair, controller, outcome }
        };
        let transfers = (0..32).flat_map(|site| [transfer(site, 0), transfer(site, 1)]).collect();
        History { transfers, ..History::default() }
    }

    #[test]
    fn a_detector_keeps_the_newest_of_very_many_changes() {
        let mut detector = Detector::new(2, Span::from_secs(60));
        let (mut most, mut all) = (0, BTreeSet::new());
        for number in 0..1000 {
            let history = period(number);
            detector.observe(&Period::whole(&history, number));
            let changes = detector.changes();
            most = most.max(changes.len());
            assert!(detector.open.values().all(|open| detector.tracked[open.change].change.end.is_none()));
            all.extend(changes.iter().map(|change| (change.begin, change.location)));
        }
        assert!(all.len() > MAX_CHANGES + 500, "{} changes", all.len());
        assert!((MAX_CHANGES / 2..=MAX_CHANGES).contains(&most), "{most}");
        let newest = detector.changes().last().map(|change| change.begin);
        assert!(newest > Some(980), "{newest:?}");
        detector.forget(990);
        assert!(detector.changes().iter().all(|change| change.end.is_none_or(|end| end >= 990)));
    }
}
