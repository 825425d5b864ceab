//! Shifts: they begin, belong to a change, and end when what was usual is so again.

use super::signs::Sign;
use super::track::SHARE_FLOOR;
use super::{Key, Seen, TOGETHER, Watch, YOUNG, touches};
use crate::place::Place;
use crate::record::Pair;
use crate::see::change::{Change, Metric, Quantity, Shift};
use crate::see::counts::Counts;
use crate::see::series::Series;
use fullpipe_net::compare::{Estimate, median, median_interval};
use std::collections::BTreeSet;

/// Something that shifted and is not over.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub change: usize,
    pub shift: usize,
    up: bool,
    since: u64,
    former: Former,
}

/// What was usual before a shift.
#[derive(Clone, Debug, Default)]
struct Former {
    /// By quantity.
    series: Vec<(Quantity, Pair, Series)>,
    /// The same of what is counted: lost probes, failed transfers.
    counted: Option<Counts>,
    /// The same of transfers that took too long, by controller.
    late: Vec<Counts>,
}

impl Watch {
    /// A shift is told.
    pub(super) fn begin(&mut self, key: Key, sign: &Sign) {
        let at = (key.pair, key.metric);
        let begin = sign.begin;
        if self.open.get(&at).is_some_and(|open| open.up != key.up && self.is_back(open, sign.length)) {
            self.finish(at, begin);
            return;
        }
        // What swings back as a change ends is no other change.
        let aftermath = self.seen.iter().any(|seen| {
            seen.end.is_some_and(|end| begin.abs_diff(end) <= TOGETHER) && seen.change.place.holds(key.pair)
        });
        let former = self.restart(key, sign);
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
        let shift = Shift {
            pair: key.pair,
            metric: key.metric,
            up: key.up,
            begin: self.number(begin),
            end: None,
            evidence: sign.evidence,
            sizes: Vec::new(),
        };
        let seen = &mut self.seen[change].change;
        seen.confidence = seen.confidence.max(Change::confidence_of(sign.evidence));
        seen.shifts.push(shift);
        let shift = seen.shifts.len() - 1;
        self.open.insert(at, Open { change, shift, up: key.up, since: begin, former });
    }

    /// What is usual of all that speaks for a shift begins anew with it.
    fn restart(&mut self, key: Key, sign: &Sign) -> Former {
        let members = self.members(key.pair, key.metric);
        let members: Vec<(Quantity, Pair)> =
            members.into_iter().map(|(quantity, pair, _)| (quantity, pair)).collect();
        let mut former = Former::default();
        for (quantity, pair) in members {
            if let Some(series) = self.series_mut(quantity, pair)
                && series.evidence(sign.length, key.up) > 1.0
            {
                former.series.push((quantity, pair, series.restart(sign.begin)));
            }
        }
        let Some(track) = self.tracks.get_mut(&key.pair) else { return former };
        match key.metric {
            Metric::Loss => {
                former.counted = Some(track.probes.restart(sign.begin));
                former.late = track.late.iter_mut().map(|late| late.restart(sign.begin)).collect();
            }
            Metric::Failures => former.counted = Some(track.failed.restart(sign.begin)),
            _ => {}
        }
        former
    }

    /// The change that goes on there and already explains what is seen there later: rates, losses and asymmetry are seen by each other.
    fn explaining(&self, key: Key) -> Option<usize> {
        let goes_on = self.open.iter().find(|((pair, metric), _)| {
            (*pair == key.pair || key.metric == Metric::Asymmetry && pair.both() == key.pair)
                && matches!(key.metric, Metric::Rate | Metric::Loss | Metric::Asymmetry)
                && *metric != key.metric
        });
        goes_on.map(|(_, open)| open.change)
    }

    /// The young change of neighbouring directions that began at the same time.
    fn neighbouring(&self, pair: Pair, begin: u64) -> Option<usize> {
        self.seen.iter().position(|seen| {
            seen.begin.abs_diff(begin) <= TOGETHER
                && self.tick - seen.told <= YOUNG
                && seen.change.end.is_none()
                && seen.change.shifts.iter().any(|shift| touches(shift.pair, pair))
        })
    }

    /// A change of which nothing is known but where it was seen first.
    fn new_change(&mut self, pair: Pair, begin: u64) -> usize {
        let now = self.number(self.tick);
        self.seen.push(Seen {
            change: Change {
                place: Place::Direction(pair),
                begin: self.number(begin),
                told: now,
                located: now,
                end: None,
                confidence: 0.0,
                shifts: Vec::new(),
            },
            begin,
            told: self.tick,
            suspects: BTreeSet::new(),
            end: None,
        });
        self.seen.len() - 1
    }

    /// The number of the period of a tick.
    fn number(&self, tick: u64) -> i64 {
        self.numbers.get(tick as usize).copied().unwrap_or_default()
    }

    /// Directions that would not be told of themselves strengthen what neighbours tell.
    pub(super) fn suspect(&mut self, quiet: &[(Key, Sign)]) {
        for seen in self.seen.iter_mut().filter(|seen| self.tick - seen.told <= YOUNG) {
            for (key, sign) in quiet {
                let alike = |shift: &Shift| {
                    shift.metric == key.metric && shift.up == key.up && touches(shift.pair, key.pair)
                };
                if sign.begin.abs_diff(seen.begin) <= TOGETHER && seen.change.shifts.iter().any(alike) {
                    seen.suspects.insert(*key);
                }
            }
        }
    }

    /// Sees what has come back to what it was.
    pub(super) fn close(&mut self) {
        let over: Vec<((Pair, Metric), u64)> =
            self.open.iter().filter_map(|(at, open)| Some((*at, self.over(*at, open)?))).collect();
        for (at, end) in over {
            self.finish(at, end);
        }
    }

    /// A shift is over: what was usual is so again.
    fn finish(&mut self, at: (Pair, Metric), end: u64) {
        let Some(mut open) = self.open.remove(&at) else { return };
        let past = usize::try_from(self.tick - end + 1).unwrap_or(usize::MAX);
        let sizes = self.sizes(at.0, at.1, &open, past);
        if let Some(shift) = self.seen[open.change].change.shifts.get_mut(open.shift) {
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

    /// Whether the last `k` values are nearer to what was usual before a shift than to what is since.
    fn is_back(&self, open: &Open, k: usize) -> bool {
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

    /// Ends a shift, and its change with the last of them.
    fn end(&mut self, at: &(Pair, Metric), open: Open, end: u64) {
        let number = self.numbers.get(end as usize).copied();
        let still = self.open.values().any(|other| other.change == open.change);
        let seen = &mut self.seen[open.change];
        if let Some(shift) =
            seen.change.shifts.get_mut(open.shift).filter(|shift| (shift.pair, shift.metric) == *at)
        {
            shift.end = number;
        }
        seen.end = Some(seen.end.map_or(end, |former| former.max(end)));
        if !still {
            seen.change.end = seen.change.shifts.iter().filter_map(|shift| shift.end).max();
        }
    }

    /// Whether a shift is over, and since when.
    fn over(&self, (pair, metric): (Pair, Metric), open: &Open) -> Option<u64> {
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
            // Losses are few: twice as many periods say it.
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
        // Four of five, of at least three.
        end.filter(|end| near >= 3 && near >= 4 * far && *end > open.since)
    }

    /// The figures of a shift before and since, the last `but` periods left out.
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
