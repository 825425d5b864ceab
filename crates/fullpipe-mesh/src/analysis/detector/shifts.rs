//! Shifts: their begin, their change, and their end when the baseline returns.

use super::signals::Signal;
use super::track::SHARE_FLOOR;
use super::{Detector, Key, LOCATE_PERIODS, MAX_SHIFTS, MERGE_PERIODS, TrackedChange, touches};
use crate::analysis::change::{Change, Metric, Quantity, Shift};
use crate::analysis::counts::Counts;
use crate::analysis::series::Series;
use crate::location::Location;
use crate::record::Pair;
use fullpipe_net::compare::{Estimate, median, median_interval};
use std::collections::BTreeSet;

/// A shift that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub change: usize,
    pub shift: usize,
    up: bool,
    since: u64,
    former: Former,
}

/// The baseline before a shift.
#[derive(Clone, Debug, Default)]
struct Former {
    /// By quantity.
    series: Vec<(Quantity, Pair, Series)>,
    /// Counts of lost probes or failed transfers.
    counted: Option<Counts>,
    /// Counts of late transfers, by controller.
    late: Vec<Counts>,
}

impl Detector {
    /// Begins a shift.
    pub(super) fn begin(&mut self, key: Key, signal: &Signal) {
        let at = (key.pair, key.metric);
        let begin = signal.begin;
        if self.open.get(&at).is_some_and(|open| open.up != key.up && self.has_reverted(open, signal.length))
        {
            self.finish(at, begin);
            return;
        }
        // Shifts caused by the end of a change are not new changes.
        let aftermath = self.tracked.iter().any(|tracked| {
            tracked.end.is_some_and(|end| begin.abs_diff(end) <= MERGE_PERIODS)
                && tracked.change.location.contains(key.pair)
        });
        let former = self.restart(key, signal);
        if let Some(before) = self.open.remove(&at) {
            self.end(&at, before, begin);
        }
        if aftermath {
            return;
        }
        let change = self
            .explaining(key)
            .or_else(|| self.neighbouring(key.pair, begin))
            .unwrap_or_else(|| self.new_change(key.pair, begin));
        // The changes of a direction that varies all the time may have one that never ends.
        if self.tracked[change].change.shifts.len() >= MAX_SHIFTS {
            return;
        }
        let shift = Shift {
            pair: key.pair,
            metric: key.metric,
            up: key.up,
            begin: self.number(begin),
            end: None,
            evidence: signal.evidence,
            sizes: Vec::new(),
        };
        let tracked = &mut self.tracked[change].change;
        tracked.confidence = tracked.confidence.max(Change::confidence_of(signal.evidence));
        tracked.shifts.push(shift);
        let shift = tracked.shifts.len() - 1;
        self.open.insert(at, Open { change, shift, up: key.up, since: begin, former });
    }

    /// Restarts the baselines of all series that contributed to a shift.
    fn restart(&mut self, key: Key, signal: &Signal) -> Former {
        let members = self.members(key.pair, key.metric);
        let members: Vec<(Quantity, Pair)> =
            members.into_iter().map(|(quantity, pair, _)| (quantity, pair)).collect();
        let mut former = Former::default();
        for (quantity, pair) in members {
            if let Some(series) = self.series_mut(quantity, pair)
                && series.evidence(signal.length, key.up) > 1.0
            {
                former.series.push((quantity, pair, series.restart(signal.begin)));
            }
        }
        let Some(track) = self.tracks.get_mut(&key.pair) else { return former };
        match key.metric {
            Metric::Loss => {
                former.counted = Some(track.probes.restart(signal.begin));
                former.late = track.late.iter_mut().map(|late| late.restart(signal.begin)).collect();
            }
            Metric::Failures => former.counted = Some(track.failed.restart(signal.begin)),
            _ => {}
        }
        former
    }

    /// The ongoing change that explains the shift: rates, losses and asymmetry affect each other.
    fn explaining(&self, key: Key) -> Option<usize> {
        let goes_on = self.open.iter().find(|((pair, metric), _)| {
            (*pair == key.pair || key.metric == Metric::Asymmetry && pair.unordered() == key.pair)
                && matches!(key.metric, Metric::Rate | Metric::Loss | Metric::Asymmetry)
                && *metric != key.metric
        });
        goes_on.map(|(_, open)| open.change)
    }

    /// The recent change of neighbouring directions that began at the same time.
    fn neighbouring(&self, pair: Pair, begin: u64) -> Option<usize> {
        self.tracked.iter().position(|tracked| {
            tracked.begin.abs_diff(begin) <= MERGE_PERIODS
                && self.tick - tracked.reported <= LOCATE_PERIODS
                && tracked.change.end.is_none()
                && tracked.change.shifts.iter().any(|shift| touches(shift.pair, pair))
        })
    }

    /// A new change, located at the first direction.
    fn new_change(&mut self, pair: Pair, begin: u64) -> usize {
        let now = self.number(self.tick);
        self.tracked.push(TrackedChange {
            change: Change {
                location: Location::Direction(pair),
                begin: self.number(begin),
                reported: now,
                located: now,
                end: None,
                confidence: 0.0,
                shifts: Vec::new(),
            },
            begin,
            reported: self.tick,
            suspects: BTreeSet::new(),
            end: None,
        });
        self.tracked.len() - 1
    }

    /// The period number of a tick.
    fn number(&self, tick: u64) -> i64 {
        self.number_of(tick).unwrap_or_default()
    }

    /// Weak signals strengthen the changes of neighbours.
    pub(super) fn suspect(&mut self, weak: &[(Key, Signal)]) {
        for tracked in
            self.tracked.iter_mut().filter(|tracked| self.tick - tracked.reported <= LOCATE_PERIODS)
        {
            for (key, signal) in weak {
                let alike = |shift: &Shift| {
                    shift.metric == key.metric && shift.up == key.up && touches(shift.pair, key.pair)
                };
                if signal.begin.abs_diff(tracked.begin) <= MERGE_PERIODS
                    && tracked.change.shifts.iter().any(alike)
                {
                    tracked.suspects.insert(*key);
                }
            }
        }
    }

    /// Ends shifts whose baseline has returned.
    pub(super) fn close(&mut self) {
        let ended_at: Vec<((Pair, Metric), u64)> =
            self.open.iter().filter_map(|(at, open)| Some((*at, self.ended_at(*at, open)?))).collect();
        for (at, end) in ended_at {
            self.finish(at, end);
        }
    }

    /// Ends a shift and restores its baselines.
    fn finish(&mut self, at: (Pair, Metric), end: u64) {
        let Some(mut open) = self.open.remove(&at) else { return };
        let past = usize::try_from(self.tick - end + 1).unwrap_or(usize::MAX);
        let sizes = self.sizes(at.0, at.1, &open, past);
        if let Some(shift) = self.tracked[open.change].change.shifts.get_mut(open.shift) {
            shift.sizes = sizes;
        }
        let Former { series, counted, late } = std::mem::take(&mut open.former);
        for (quantity, pair, former) in series {
            if let Some(series) = self.series_mut(quantity, pair) {
                series.resume(former, end);
            }
        }
        if let Some((former, track)) = counted.zip(self.tracks.get_mut(&at.0)) {
            match at.1 {
                Metric::Loss => track.probes.resume(former, end),
                _ => track.failed.resume(former, end),
            }
        }
        if let Some(track) = self.tracks.get_mut(&at.0) {
            for (late, former) in track.late.iter_mut().zip(late) {
                late.resume(former, end);
            }
        }
        self.end(&at, open, end);
    }

    /// Whether the last `k` values are nearer to the baseline before a shift than to the one since.
    fn has_reverted(&self, open: &Open, k: usize) -> bool {
        let (mut near, mut far) = (0, 0);
        for (quantity, pair, former) in &open.former.series {
            let Some((before, series)) = former.level().zip(self.series(*quantity, *pair)) else { continue };
            let after = median(&series.kept(k));
            for value in series.last(k) {
                if (value - before.median).abs() < (value - after).abs() { near += 1 } else { far += 1 }
            }
        }
        near > 2 * far
    }

    /// Ends a shift, and its change with the last shift.
    fn end(&mut self, at: &(Pair, Metric), open: Open, end: u64) {
        let number = self.number_of(end);
        let still = self.open.values().any(|other| other.change == open.change);
        let tracked = &mut self.tracked[open.change];
        if let Some(shift) =
            tracked.change.shifts.get_mut(open.shift).filter(|shift| (shift.pair, shift.metric) == *at)
        {
            shift.end = number;
        }
        tracked.end = Some(tracked.end.map_or(end, |former| former.max(end)));
        if !still {
            tracked.change.end = tracked.change.shifts.iter().filter_map(|shift| shift.end).max();
        }
    }

    /// The tick at which a shift ended, if it has.
    fn ended_at(&self, (pair, metric): (Pair, Metric), open: &Open) -> Option<u64> {
        if metric == Metric::Failures {
            let failed = &self.tracks.get(&pair)?.failed;
            let well = failed.last(2).all(|(hits, all)| all > 0 && hits == 0);
            return (well && failed.newest() == Some(self.tick)).then(|| failed.tick_of(2)).flatten();
        }
        let (mut near, mut far, mut end) = (0, 0, None);
        for (quantity, pair, former) in &open.former.series {
            let Some(before) = former.level().map(|level| level.median) else { continue };
            let Some(series) = self.series(*quantity, *pair) else { continue };
            let since = series.kept(3);
            if since.is_empty() || series.newest() != Some(self.tick) {
                continue;
            }
            let after = median(&since);
            for value in series.last(3) {
                if (value - before).abs() < (value - after).abs() { near += 1 } else { far += 1 }
            }
            end = end.max(series.tick_of(3));
        }
        if let Some((former, track)) = open.former.counted.as_ref().zip(self.tracks.get(&pair)) {
            // Losses are rare: this needs twice as many periods.
            let (before, since) = (former.usual(), track.probes.whole_share());
            if since - before >= 0.003 {
                let middle = f64::midpoint(before, since);
                if track.probes.share(6) < middle {
                    near += 3
                } else {
                    far += 3
                }
                end = end.max(track.probes.tick_of(6));
            }
        }
        let late = self.tracks.get(&pair).map_or(&[][..], |track| &track.late);
        for (former, late) in open.former.late.iter().zip(late) {
            if late.whole_share() - former.usual() >= 0.5 {
                if late.share(3) < 0.5 {
                    near += 3
                } else {
                    far += 3
                }
                end = end.max(late.tick_of(3));
            }
        }
        // Four of five values, of at least three.
        end.filter(|end| near >= 3 && near >= 4 * far && *end > open.since)
    }

    /// The quantities of a shift before and since, without the last `but` periods.
    pub(super) fn sizes(
        &self,
        pair: Pair,
        metric: Metric,
        open: &Open,
        but: usize,
    ) -> Vec<(Quantity, Estimate, Option<Estimate>)> {
        let plain = |quantity: Quantity, values: Vec<f64>| -> Option<Estimate> {
            if values.is_empty() {
                return None;
            }
            let log = median_interval(&values);
            let of = |x: f64| match quantity {
                Quantity::Retransmitted(_) => (x.exp() - SHARE_FLOOR).max(0.0),
                _ => x.exp(),
            };
            Some(Estimate { median: of(log.median), low: of(log.low), high: of(log.high) })
        };
        let mut all: Vec<(Quantity, Estimate, Option<Estimate>)> = Vec::new();
        for (quantity, pair, former) in &open.former.series {
            if all.iter().any(|(known, ..)| known == quantity) {
                continue;
            }
            let now = self.series(*quantity, *pair).map(|series| series.kept(but)).unwrap_or_default();
            if let Some(before) = plain(*quantity, former.kept(0)) {
                all.push((*quantity, before, plain(*quantity, now)));
            }
        }
        let Some(track) = self.tracks.get(&pair) else { return all };
        all.retain(|(quantity, ..)| *quantity != Quantity::Best);
        let counted = match metric {
            Metric::Failures => Some((Quantity::Failed, &track.failed)),
            Metric::Loss => Some((Quantity::ProbesLost, &track.probes)),
            _ => None,
        };
        if let Some(((quantity, counts), former)) = counted.zip(open.former.counted.as_ref()) {
            let exactly = |x: f64| Estimate { median: x, low: x, high: x };
            all.push((quantity, exactly(former.whole_share()), Some(exactly(counts.whole_share()))));
        }
        all
    }
}
