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

use super::change::{Change, Metric, Quantity, Shift};
use super::counts::Counts;
use super::periods::{Period, periods};
use super::series::{RECENT, Series};
use crate::place::Place;
use crate::record::{History, Outcome, Pair, Trouble};
use fullpipe_net::compare::{Estimate, median, median_interval};
use fullpipe_units::Span;
use std::collections::{BTreeMap, BTreeSet};

/// So much must speak for a change of a direction, in nats. Found by the simulated days of `tests/seen.rs`: with three fewer, modes of a
/// controller that show for the first time are told as changes of the path.
const ALARM: f64 = 18.5;
/// So much, where one controller says it all: it has modes of its own, and on paths with bursts of loss some that last several transfers.
const ALARM_ALONE: f64 = 24.0;
/// A controller or probes that say less have not noticed.
const NOTICED: f64 = 2.0;
/// So much is enough where neighbours changed at the same time.
const SUSPECT: f64 = 6.0;
/// Shifts that begin within so many periods of each other are of one change.
const TOGETHER: u64 = 3;
/// For so long after its first shift others join a change and its place is corrected.
const YOUNG: u64 = 6;
/// Most of a site's directions.
const MOST: f64 = 0.6;
/// A share of retransmissions below which it matters little: the logarithm is taken of what is above.
const SHARE_FLOOR: f64 = 1e-3;
/// The most that the probes of one period may say: losses come in bursts.
const PROBES_SAY: f64 = 5.0;
/// The most that goodputs or retransmissions of one controller may say, when it has been followed for an hour and for three: less than
/// enough, for it may have a mode that was not seen yet.
const CONTROLLER_SAYS: [f64; 2] = [8.0, 14.0];
/// Fewer probes do not tell which share is usual: with bursts of loss that takes half an hour.
const PROBES_FEWEST: u64 = 3600;
/// A mode that was not seen yet does not slow a controller this much (the logarithm of eight times).
const NO_MODE: f64 = 2.08;
/// How many transfers tell how often a controller takes too long: what is rare takes a day to be known.
const LATE_WINDOW: usize = 1440;
/// Fewer do not.
const LATE_FEWEST: u64 = 180;
/// The most that one transfer which took too long may say.
const LATE_SAYS: f64 = 8.0;
/// The most that the failures of one period may say.
const FAILURES_SAY: f64 = 12.0;

/// Which way of which metric shifted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    pair: Pair,
    metric: Metric,
    up: bool,
}

/// What is followed of a direction.
#[derive(Clone, Debug)]
struct Track {
    best: Series,
    rates: Vec<Series>,
    again: Vec<Series>,
    /// Transfers of each controller that took longer than allowed.
    late: Vec<Counts>,
    probes: Counts,
    failed: Counts,
    rtt: Series,
    /// Of the lower direction only.
    asymmetry: Series,
}

impl Track {
    fn new(controllers: usize) -> Self {
        Track {
            best: Series::new(0.05),
            rates: vec![Series::new(0.05); controllers],
            again: vec![Series::new(0.25); controllers],
            late: vec![Counts::over(LATE_WINDOW); controllers],
            probes: Counts::default(),
            failed: Counts::default(),
            rtt: Series::new(0.02),
            asymmetry: Series::new(0.1),
        }
    }
}

/// Something that shifted and is not over.
#[derive(Clone, Debug)]
struct Open {
    change: usize,
    shift: usize,
    up: bool,
    since: u64,
    /// What was usual before: by quantity.
    former: Vec<(Quantity, Pair, Series)>,
    /// The same of what is counted: lost probes, failed transfers.
    counted: Option<Counts>,
    /// The same of transfers that took too long, by controller.
    late: Vec<Counts>,
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

/// What speaks for a shift of one metric.
struct Sign {
    evidence: f64,
    begin: u64,
    length: usize,
    /// Large enough to matter.
    matters: bool,
    /// Whether only one controller noticed.
    alone: bool,
}

impl Sign {
    fn is_loud(&self) -> bool {
        self.matters && self.evidence >= if self.alone { ALARM_ALONE } else { ALARM }
    }
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

    fn take(&mut self, period: &Period<'_>) {
        let (tick, controllers) = (self.tick, self.controllers);
        let mut best: BTreeMap<Pair, f64> = BTreeMap::new();
        for transfer in &period.transfers {
            let cc = usize::from(transfer.controller);
            if cc >= controllers || transfer.pair.from == transfer.pair.to {
                continue;
            }
            let track = self.tracks.entry(transfer.pair).or_insert_with(|| Track::new(controllers));
            match &transfer.outcome {
                Outcome::Done(done) => {
                    track.failed.push(tick, 0, 1);
                    let bits = done.bytes as f64 * 8.0;
                    self.slow_bps = self.slow_bps.max(bits / self.period.as_secs_f64().max(1e-3));
                    let log = done.goodput().as_bits_per_sec_f64().max(1.0).ln();
                    track.rates[cc].push(tick, log);
                    track.late[cc].push(tick, 0, 1);
                    best.entry(transfer.pair).and_modify(|most| *most = most.max(log)).or_insert(log);
                    if done.segments > 0 {
                        track.again[cc].push(tick, (done.retransmitted_share() + SHARE_FLOOR).ln());
                    }
                }
                // It moves, slower than this.
                Outcome::Failed(Trouble::TooSlow) if self.slow_bps > 0.0 => {
                    track.failed.push(tick, 0, 1);
                    track.late[cc].push(tick, 1, 1);
                    let log = self.slow_bps.ln();
                    track.rates[cc].push(tick, log);
                    best.entry(transfer.pair).and_modify(|most| *most = most.max(log)).or_insert(log);
                }
                // Not for the path to answer.
                Outcome::Failed(
                    Trouble::SenderBudget
                    | Trouble::ReceiverBudget
                    | Trouble::NoTurn
                    | Trouble::NoSuchController,
                ) => {}
                Outcome::Failed(_) => track.failed.push(tick, 1, 1),
            }
        }
        for (&pair, &there) in &best {
            let back = (pair.from < pair.to).then(|| best.get(&pair.turned())).flatten();
            let Some(track) = self.tracks.get_mut(&pair) else { continue };
            track.best.push(tick, there);
            if let Some(back) = back {
                track.asymmetry.push(tick, there - back);
            }
        }
        for minute in &period.minutes {
            if minute.pair.from == minute.pair.to {
                continue;
            }
            for pair in [minute.pair, minute.pair.turned()] {
                self.tracks.entry(pair).or_insert_with(|| Track::new(controllers));
            }
            let [sent, arrived, answered] = [minute.sent, minute.arrived, minute.answered].map(u32::from);
            // Nothing at all is a failure, not a loss: transfers tell it.
            if arrived > 0 {
                let lost = [(minute.pair, sent, arrived), (minute.pair.turned(), arrived, answered)];
                for (pair, sent, arrived) in lost {
                    if let Some(track) = self.tracks.get_mut(&pair) {
                        track.probes.push(tick, sent.saturating_sub(arrived), sent);
                    }
                }
            }
            if let Some(rtt) = minute.rtt
                && let Some(track) = self.tracks.get_mut(&minute.pair)
            {
                track.rtt.push(tick, rtt.p50.as_millis_f64().max(1e-3).ln());
            }
        }
    }

    /// The series that speak for a metric, with what they are of.
    fn members(&self, pair: Pair, metric: Metric) -> Vec<(Quantity, Pair, &Series)> {
        let track = |pair| self.tracks.get(&pair);
        let of = |series: &'_ [Series], name: fn(u16) -> Quantity| -> Vec<(Quantity, Pair)> {
            (0..series.len()).map(|cc| (name(cc as u16), pair)).collect()
        };
        let names = match (metric, track(pair)) {
            (Metric::Rate, Some(track)) => {
                [vec![(Quantity::Best, pair)], of(&track.rates, Quantity::Goodput)].concat()
            }
            (Metric::Loss, Some(track)) => of(&track.again, Quantity::Retransmitted),
            (Metric::Rtt, _) => vec![(Quantity::Rtt, pair), (Quantity::Rtt, pair.turned())],
            (Metric::Asymmetry, _) => vec![(Quantity::Asymmetry, pair)],
            _ => Vec::new(),
        };
        names.into_iter().filter_map(|(name, at)| Some((name, at, self.series(name, at)?))).collect()
    }

    fn series(&self, quantity: Quantity, pair: Pair) -> Option<&Series> {
        let track = self.tracks.get(&pair)?;
        match quantity {
            Quantity::Best => Some(&track.best),
            Quantity::Goodput(cc) => track.rates.get(usize::from(cc)),
            Quantity::Retransmitted(cc) => track.again.get(usize::from(cc)),
            Quantity::Rtt => Some(&track.rtt),
            Quantity::Asymmetry => Some(&track.asymmetry),
            Quantity::ProbesLost | Quantity::Failed => None,
        }
    }

    fn series_mut(&mut self, quantity: Quantity, pair: Pair) -> Option<&mut Series> {
        let track = self.tracks.get_mut(&pair)?;
        match quantity {
            Quantity::Best => Some(&mut track.best),
            Quantity::Goodput(cc) => track.rates.get_mut(usize::from(cc)),
            Quantity::Retransmitted(cc) => track.again.get_mut(usize::from(cc)),
            Quantity::Rtt => Some(&mut track.rtt),
            Quantity::Asymmetry => Some(&mut track.asymmetry),
            Quantity::ProbesLost | Quantity::Failed => None,
        }
    }

    /// All that speaks for something, however weakly.
    fn signs(&self) -> Vec<(Key, Sign)> {
        let mut all = Vec::new();
        for &pair in self.tracks.keys() {
            for metric in [Metric::Failures, Metric::Rate, Metric::Loss, Metric::Rtt, Metric::Asymmetry] {
                if matches!(metric, Metric::Rtt | Metric::Asymmetry) && pair != pair.both() {
                    continue;
                }
                for up in [true, false] {
                    let sign = match metric {
                        Metric::Failures => self.failing(pair).filter(|_| up),
                        _ => self.shifting(pair, metric, up),
                    };
                    if let Some(sign) = sign.filter(|sign| sign.evidence >= SUSPECT) {
                        all.push((Key { pair, metric, up }, sign));
                    }
                }
            }
        }
        all
    }

    fn failing(&self, pair: Pair) -> Option<Sign> {
        let failed = &self.tracks.get(&pair)?.failed;
        let quiet = failed.last(1).all(|(hits, _)| hits == 0);
        if quiet || failed.newest() != Some(self.tick) || self.open.contains_key(&(pair, Metric::Failures)) {
            return None;
        }
        let usual = failed.usual();
        let likely = 0.9_f64.max(usual);
        let scored = (1..=3).map(|k| (k, failed.evidence(k, likely, FAILURES_SAY)));
        let (length, evidence) = scored.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let begin = failed.tick_of(length).or_else(|| failed.tick_of(1))?;
        // A mesh that has just begun may find sites that are not there yet: that, too, is to be told.
        let few = failed.rests_on() < 4;
        let evidence = if few { evidence * 4.0 } else { evidence };
        Some(Sign {
            evidence,
            begin,
            length,
            matters: failed.share(length) >= 0.5 && failed.share(1) > 0.0,
            alone: false,
        })
    }

    fn shifting(&self, pair: Pair, metric: Metric, up: bool) -> Option<Sign> {
        let members = self.members(pair, metric);
        let fresh = |series: &Series| series.newest() == Some(self.tick) && series.level().is_some();
        let probes = self.tracks.get(&pair).map(|track| &track.probes).filter(|probes| {
            metric == Metric::Loss
                && up
                && probes.newest() == Some(self.tick)
                && probes.rests_on() > PROBES_FEWEST
        });
        // Losses slow who takes them for congestion, and more than they are seen by: until its transfers no longer arrive in time, and
        // tell nothing else.
        let losing = metric == Metric::Loss && up;
        let track = self.tracks.get(&pair).filter(|_| losing);
        let slowed: Vec<&Series> = track.map_or(&[][..], |track| &track.rates).iter().collect();
        let late: Vec<&Counts> = track.map_or(&[][..], |track| &track.late).iter().collect();
        let loudest = members.iter().map(|(.., series)| series.loudest(up)).sum::<f64>()
            + slowed.iter().map(|series| series.loudest(false)).sum::<f64>()
            + late.iter().filter(|late| late.share(1) > 0.0).count() as f64 * LATE_SAYS
            + probes.map_or(0.0, |probes| {
                PROBES_SAY * probes.last(RECENT).filter(|(hits, _)| *hits > 0).count() as f64
            });
        if loudest < SUSPECT {
            return None;
        }
        let other = |probes: &Counts| (3.0 * probes.usual()).max(probes.usual() + 0.005).min(0.9);
        let mut scored: Vec<Scored> = Vec::with_capacity(RECENT);
        for k in 1..=RECENT {
            let mut evidence = 0.0;
            let mut begin = None;
            // What each controller says of itself, by all that it is seen by.
            let mut own = vec![(0.0_f64, 0.0_f64); self.controllers];
            for (quantity, _, series) in members.iter().filter(|(.., series)| fresh(series)) {
                // A series that misses periods does not speak of what was long ago.
                let Some(tick) = series.tick_of(k).filter(|tick| self.tick - tick <= 2 * k as u64) else {
                    continue;
                };
                let says = series.evidence(k, up);
                match quantity {
                    Quantity::Goodput(cc) | Quantity::Retransmitted(cc) => {
                        let own = &mut own[usize::from(*cc)];
                        *own = (own.0 + says, own.1.max(own_word(series)));
                    }
                    _ => evidence += says,
                }
                begin = begin.max(Some(tick));
            }
            for (cc, series) in slowed.iter().enumerate().filter(|(_, series)| fresh(series)) {
                let own = &mut own[cc];
                *own = (own.0 + series.evidence(k, false).max(0.0), own.1.max(own_word(series)));
            }
            for (cc, late) in late.iter().enumerate() {
                if late.newest() != Some(self.tick) || late.rests_on() < LATE_FEWEST || late.share(k) < 0.9 {
                    continue;
                }
                begin = begin.max(late.tick_of(k));
                own[cc] = (own[cc].0.max(late.evidence(k, 0.9, LATE_SAYS)), f64::INFINITY);
            }
            evidence += own.iter().map(|(says, most)| says.clamp(-most, *most)).sum::<f64>();
            let mut noticed = own.iter().filter(|(says, _)| *says >= NOTICED).count();
            if let Some(probes) = probes {
                let says = probes.evidence(k, other(probes), PROBES_SAY).max(-PROBES_SAY);
                noticed += usize::from(says >= NOTICED);
                evidence += says;
            }
            let begin = begin.or_else(|| probes.and_then(|probes| probes.tick_of(k)));
            let alone = noticed < 2 && self.controllers > 1 && metric != Metric::Rtt;
            scored.extend(begin.map(|begin| Scored { k, evidence, begin, alone }));
        }
        let Scored { k, evidence, begin, alone } =
            longest(&scored).filter(|scored| scored.evidence >= SUSPECT)?;
        let mut best = Sign { evidence, begin, length: k, matters: false, alone };
        let speaks = |series: &Series| fresh(series) && series.evidence(k, up) > 0.0;
        best.matters = probes.is_some_and(|probes| probes.share(k) - probes.usual() >= 0.003)
            || late
                .iter()
                .any(|late| late.rests_on() >= LATE_FEWEST && late.share(k) >= 0.9 && late.usual() < 0.5)
            || members
                .iter()
                .any(|(quantity, _, series)| speaks(series) && self.matters(*quantity, series, k, up));
        Some(best)
    }

    /// Whether a shift is one that anybody wants to hear of.
    fn matters(&self, quantity: Quantity, series: &Series, k: usize, up: bool) -> bool {
        let (Some(effect), Some(level)) = (series.effect(k), series.level()) else { return false };
        if (effect > 0.0) != up {
            return false;
        }
        let after = level.median + effect;
        match quantity {
            // A fifth.
            Quantity::Best | Quantity::Goodput(_) => effect.abs() >= 0.22,
            Quantity::Retransmitted(_) => {
                effect.abs() >= 0.4 && (after.exp() - level.median.exp()).abs() >= 0.003
            }
            // A tenth, and two milliseconds.
            Quantity::Rtt => effect.abs() >= 0.1 && (after.exp() - level.median.exp()).abs() >= 2.0,
            Quantity::Asymmetry => effect.abs() >= 0.4,
            Quantity::ProbesLost | Quantity::Failed => true,
        }
    }

    /// A shift is told.
    fn begin(&mut self, key: Key, sign: &Sign) {
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
        let former: Vec<(Quantity, Pair)> = self
            .members(key.pair, key.metric)
            .into_iter()
            .map(|(quantity, pair, _)| (quantity, pair))
            .collect();
        let mut kept = Vec::new();
        for (quantity, pair) in former {
            let up = key.up;
            if let Some(series) = self.series_mut(quantity, pair)
                && series.evidence(sign.length, up) > 1.0
            {
                kept.push((quantity, pair, series.restart(begin)));
            }
        }
        let counted = self.tracks.get_mut(&key.pair).and_then(|track| match key.metric {
            Metric::Loss => Some(track.probes.restart(begin)),
            Metric::Failures => Some(track.failed.restart(begin)),
            _ => None,
        });
        let late = self.tracks.get_mut(&key.pair).filter(|_| key.metric == Metric::Loss);
        let late =
            late.map_or(Vec::new(), |track| track.late.iter_mut().map(|late| late.restart(begin)).collect());
        if let Some(former) = self.open.remove(&at) {
            self.end(&at, former, begin);
        }
        if aftermath {
            return;
        }
        // What goes on there already explains what is seen there later: rates, losses and asymmetry are seen by each other.
        let goes_on = self.open.iter().find(|((pair, metric), _)| {
            (*pair == key.pair || key.metric == Metric::Asymmetry && pair.both() == key.pair)
                && matches!(key.metric, Metric::Rate | Metric::Loss | Metric::Asymmetry)
                && *metric != key.metric
        });
        let joins = goes_on.map(|(_, open)| open.change).or_else(|| {
            self.seen.iter().position(|seen| {
                seen.begin.abs_diff(begin) <= TOGETHER
                    && self.tick - seen.told <= YOUNG
                    && seen.change.end.is_none()
                    && seen.change.shifts.iter().any(|shift| touches(shift.pair, key.pair))
            })
        });
        let number = |tick: u64| self.numbers.get(tick as usize).copied().unwrap_or_default();
        let shift = Shift {
            pair: key.pair,
            metric: key.metric,
            up: key.up,
            begin: number(begin),
            end: None,
            evidence: sign.evidence,
            sizes: Vec::new(),
        };
        let change = joins.unwrap_or_else(|| {
            self.seen.push(Seen {
                change: Change {
                    place: Place::Direction(key.pair),
                    begin: shift.begin,
                    told: number(self.tick),
                    located: number(self.tick),
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
        });
        let seen = &mut self.seen[change].change;
        seen.confidence = seen.confidence.max(Change::confidence_of(sign.evidence));
        seen.shifts.push(shift);
        let open = Open {
            change,
            up: key.up,
            shift: self.seen[change].change.shifts.len() - 1,
            since: begin,
            former: kept,
            counted,
            late,
        };
        self.open.insert(at, open);
    }

    /// Directions that would not be told of themselves strengthen what neighbours tell.
    fn suspect(&mut self, quiet: &[(Key, Sign)]) {
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
    fn close(&mut self) {
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
        for (quantity, pair, former) in std::mem::take(&mut open.former) {
            if let Some(series) = self.series_mut(quantity, pair) {
                series.resume(former, end);
            }
        }
        if let Some((former, track)) = open.counted.take().zip(self.tracks.get_mut(&at.0)) {
            match at.1 {
                Metric::Loss => track.probes.resume(former, end),
                _ => track.failed.resume(former, end),
            }
        }
        if let Some(track) = self.tracks.get_mut(&at.0) {
            for (late, former) in track.late.iter_mut().zip(std::mem::take(&mut open.late)) {
                late.resume(former, end);
            }
        }
        self.end(&at, open, end);
    }

    /// Whether the last `k` values are nearer to what was usual before a shift than to what is since.
    fn is_back(&self, open: &Open, k: usize) -> bool {
        let (mut near, mut far) = (0, 0);
        for (quantity, pair, former) in &open.former {
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
        for (quantity, pair, former) in &open.former {
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
        if let Some((former, track)) = open.counted.as_ref().zip(self.tracks.get(&pair)) {
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
        for (former, late) in open.late.iter().zip(late) {
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
    fn sizes(
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
        for (quantity, pair, former) in &open.former {
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
        if let Some(((quantity, counts), former)) = counted.zip(open.counted.as_ref()) {
            let exactly = |x: f64| Estimate { median: x, low: x, high: x };
            all.push((quantity, exactly(former.whole_share()), Some(exactly(counts.whole_share()))));
        }
        all
    }

    /// Where a change is, by what has shifted so far.
    fn locate(&mut self, nth: usize) {
        let seen = &self.seen[nth];
        let shifts = &seen.change.shifts;
        let one_way = |metric| matches!(metric, Metric::Failures | Metric::Rate | Metric::Loss);
        let mut sure: BTreeSet<Pair> = BTreeSet::new();
        for shift in shifts {
            if shift.metric == Metric::Rtt {
                sure.extend([shift.pair, shift.pair.turned()]);
            } else if one_way(shift.metric) {
                sure.insert(shift.pair);
            }
        }
        if sure.is_empty() {
            sure.extend(shifts.iter().flat_map(|shift| [shift.pair, shift.pair.turned()]));
        }
        let mut likely = sure.clone();
        for key in &seen.suspects {
            likely.insert(key.pair);
            if !one_way(key.metric) {
                likely.insert(key.pair.turned());
            }
        }
        let place = self.place(&sure, &likely, seen);
        let now = self.numbers.last().copied().unwrap_or_default();
        let change = &mut self.seen[nth].change;
        if let Some(place) = place.filter(|place| *place != change.place) {
            change.place = place;
            change.located = now;
        }
    }

    fn place(&self, sure: &BTreeSet<Pair>, likely: &BTreeSet<Pair>, seen: &Seen) -> Option<Place> {
        let sites: BTreeSet<u16> = self.tracks.keys().flat_map(|pair| [pair.from, pair.to]).collect();
        let pairs: BTreeSet<Pair> = sure.iter().map(|pair| pair.both()).collect();
        if sites.len() > 2 && pairs.len() > 1 {
            // The site that most of it touches, of several the one that touches the most of its own.
            let touched = |site: u16| sure.iter().filter(|pair| pair.from == site || pair.to == site).count();
            let site = sites.iter().copied().max_by_key(|site| (touched(*site), u16::MAX - site))?;
            let share = |sends: bool| {
                let of = |pair: &&Pair| if sends { pair.from == site } else { pair.to == site };
                // Who has fallen silent since is not asked.
                let speaks = |pair: &&Pair| self.heard(**pair) >= seen.begin;
                let all = self.tracks.keys().filter(of).filter(speaks).count();
                (all > 0).then(|| likely.iter().filter(of).count() as f64 / all as f64)
            };
            let (sends, receives) = (share(true), share(false));
            let most = |share: Option<f64>| share.is_some_and(|share| share >= MOST);
            // Of a site that is gone nothing is heard.
            match (sends.is_none() || most(sends), receives.is_none() || most(receives)) {
                (true, true) if most(sends) || most(receives) => return Some(Place::Site(site)),
                (true, false) if most(sends) => return Some(Place::Sending(site)),
                (false, true) if most(receives) => return Some(Place::Receiving(site)),
                _ => {}
            }
        }
        let strongest = seen.change.shifts.iter().filter(|shift| sure.contains(&shift.pair));
        let pair = strongest.max_by(|a, b| a.evidence.total_cmp(&b.evidence))?.pair;
        let (there, back) = (sure.contains(&pair), sure.contains(&pair.turned()));
        // What is gone may be silent one way: of two sites, who can tell.
        Some(if there && back { Place::Both(pair.both()) } else { Place::Direction(pair) })
    }

    /// The last tick in which a direction's sender told anything.
    fn heard(&self, pair: Pair) -> u64 {
        let Some(track) = self.tracks.get(&pair) else { return 0 };
        let rates = track.rates.iter().filter_map(Series::newest).max();
        rates.max(track.failed.newest()).unwrap_or(0)
    }
}

/// Of numbers of newest periods, each with what they say together: the one that a change has lasted. The fewest that are enough, and
/// those before them as long as each adds to it, for an outlier some periods before is none of it; or those that say the most.
fn longest(scored: &[Scored]) -> Option<Scored> {
    let Some(enough) = scored.iter().position(|scored| scored.evidence >= ALARM) else {
        return scored.iter().copied().max_by(|a, b| a.evidence.total_cmp(&b.evidence).then(b.k.cmp(&a.k)));
    };
    let rest = &scored[enough..];
    let falls = rest.windows(2).position(|two| two[1].evidence <= two[0].evidence);
    rest.get(falls.unwrap_or(rest.len() - 1)).copied()
}

/// What so many newest periods say together.
#[derive(Clone, Copy)]
struct Scored {
    k: usize,
    evidence: f64,
    begin: u64,
    alone: bool,
}

/// The most that a controller may say of itself.
fn own_word(series: &Series) -> f64 {
    let [least, most] = CONTROLLER_SAYS;
    if series.effect(2).is_some_and(|effect| effect < -NO_MODE) {
        return f64::INFINITY;
    }
    least + (most - least) * ((series.rests_on() as f64 - 60.0) / 120.0).clamp(0.0, 1.0)
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
