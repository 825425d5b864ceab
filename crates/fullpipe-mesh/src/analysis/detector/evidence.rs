//! The evidence for a shift, by source and number of recent periods.

use super::Detector;
use crate::analysis::change::{Metric, Quantity};
use crate::analysis::counts::Counts;
use crate::analysis::series::{RECENT, Series};
use crate::record::Pair;

/// Sources with less evidence are unaffected.
const MIN_NOTICED: f64 = 2.0;
/// Maximum evidence from the probes of one period: losses come in bursts.
const MAX_PROBE_EVIDENCE: f64 = 5.0;
/// Maximum evidence from one controller after one hour and after three hours. Both are below the
/// threshold, since a mode may not have been observed yet.
const CONTROLLER_EVIDENCE_LIMITS: [f64; 2] = [8.0, 14.0];
/// Minimum probes for a baseline: half an hour with bursty loss.
const MIN_PROBES: u64 = 3600;
/// The largest slowdown that an unobserved mode explains (log of 8).
const MAX_MODE_SLOWDOWN: f64 = 2.08;
/// Minimum transfers for a baseline of late transfers.
const MIN_LATE_SAMPLES: u64 = 180;
/// Maximum evidence from one late transfer.
const MAX_LATE_EVIDENCE: f64 = 8.0;

/// The sources of evidence for one metric and sign of a direction.
pub(super) struct Evidence<'a> {
    tick: u64,
    controllers: usize,
    metric: Metric,
    up: bool,
    /// The series of the metric, of this direction or both.
    members: Vec<(Quantity, Pair, &'a Series)>,
    /// Rates and late transfers of the controllers. Loss slows loss-based controllers more than it
    /// shows elsewhere, until their transfers time out and carry no other information.
    slowed: &'a [Series],
    late: &'a [Counts],
    /// Probe counts, if there are enough.
    probes: Option<&'a Counts>,
}

impl<'a> Evidence<'a> {
    pub fn new(detector: &'a Detector, pair: Pair, metric: Metric, up: bool) -> Self {
        let losing = metric == Metric::Loss && up;
        let track = detector.tracks.get(&pair).filter(|_| losing);
        let probes = track
            .map(|track| &track.probes)
            .filter(|probes| probes.newest() == Some(detector.tick) && probes.rests_on() > MIN_PROBES);
        Evidence {
            tick: detector.tick,
            controllers: detector.controllers,
            metric,
            up,
            members: detector.members(pair, metric),
            slowed: track.map_or(&[], |track| &track.rates),
            late: track.map_or(&[], |track| &track.late),
            probes,
        }
    }

    /// An upper bound for the evidence of any number of recent periods.
    pub fn max_evidence(&self) -> f64 {
        self.members.iter().map(|(.., series)| series.max_evidence(self.up)).sum::<f64>()
            + self.slowed.iter().map(|series| series.max_evidence(false)).sum::<f64>()
            + self.late.iter().filter(|late| late.share(1) > 0.0).count() as f64 * MAX_LATE_EVIDENCE
            + self.probes.map_or(0.0, |probes| {
                MAX_PROBE_EVIDENCE * probes.last(RECENT).filter(|(hits, _)| *hits > 0).count() as f64
            })
    }

    fn is_fresh(&self, series: &Series) -> bool {
        series.newest() == Some(self.tick) && series.level().is_some()
    }

    /// The evidence of the `k` newest periods.
    pub fn score(&self, k: usize) -> Option<Scored> {
        let mut votes = Votes { shared: 0.0, own: vec![Vote::default(); self.controllers], begin: None };
        self.count_members(k, &mut votes);
        self.count_slowed(k, &mut votes);
        let mut evidence = votes.shared + votes.own.iter().map(Vote::bounded).sum::<f64>();
        let mut noticed = votes.own.iter().filter(|vote| vote.score >= MIN_NOTICED).count();
        if let Some(probes) = self.probes {
            let likely = (3.0 * probes.usual()).max(probes.usual() + 0.005).min(0.9);
            let score = probes.evidence(k, likely, MAX_PROBE_EVIDENCE).max(-MAX_PROBE_EVIDENCE);
            noticed += usize::from(score >= MIN_NOTICED);
            evidence += score;
        }
        let begin = votes.begin.or_else(|| self.probes.and_then(|probes| probes.tick_of(k)))?;
        let alone = noticed < 2 && self.controllers > 1 && self.metric != Metric::Rtt;
        Some(Scored { k, evidence, begin, alone })
    }

    fn count_members(&self, k: usize, votes: &mut Votes) {
        for (quantity, _, series) in self.members.iter().filter(|(.., series)| self.is_fresh(series)) {
            // A series with gaps does not count for periods long past.
            let Some(tick) = series.tick_of(k).filter(|tick| self.tick - tick <= 2 * k as u64) else {
                continue;
            };
            let score = series.evidence(k, self.up);
            match quantity {
                Quantity::Goodput(cc) | Quantity::Retransmitted(cc) => {
                    votes.own[usize::from(*cc)].add(score, vote_limit(series));
                }
                _ => votes.shared += score,
            }
            votes.begin = votes.begin.max(Some(tick));
        }
    }

    fn count_slowed(&self, k: usize, votes: &mut Votes) {
        for (cc, series) in self.slowed.iter().enumerate().filter(|(_, series)| self.is_fresh(series)) {
            votes.own[cc].add(series.evidence(k, false).max(0.0), vote_limit(series));
        }
        for (cc, late) in self.late.iter().enumerate() {
            if late.newest() != Some(self.tick) || !is_late(late, k) {
                continue;
            }
            votes.begin = votes.begin.max(late.tick_of(k));
            let score = votes.own[cc].score.max(late.evidence(k, 0.9, MAX_LATE_EVIDENCE));
            votes.own[cc] = Vote { score, most: f64::INFINITY };
        }
    }

    /// Whether the shift over the `k` newest periods is large enough to report.
    pub fn is_relevant(&self, k: usize) -> bool {
        let speaks = |series: &Series| self.is_fresh(series) && series.evidence(k, self.up) > 0.0;
        self.probes.is_some_and(|probes| probes.share(k) - probes.usual() >= 0.003)
            || self.late.iter().any(|late| is_late(late, k) && late.usual() < 0.5)
            || self.members.iter().any(|(quantity, _, series)| {
                speaks(series) && is_relevant_shift(*quantity, series, k, self.up)
            })
    }
}

/// The evidence of the `k` newest periods.
#[derive(Clone, Copy)]
pub(super) struct Scored {
    pub k: usize,
    pub evidence: f64,
    pub begin: u64,
    pub alone: bool,
}

/// Evidence being summed up.
struct Votes {
    /// Evidence that belongs to no controller.
    shared: f64,
    /// Evidence by controller.
    own: Vec<Vote>,
    /// The tick of the first of these periods.
    begin: Option<u64>,
}

/// The evidence from one controller.
#[derive(Clone, Copy, Default)]
struct Vote {
    score: f64,
    /// Limit of its absolute value.
    most: f64,
}

impl Vote {
    fn add(&mut self, score: f64, most: f64) {
        *self = Vote { score: self.score + score, most: self.most.max(most) };
    }

    fn bounded(&self) -> f64 {
        self.score.clamp(-self.most, self.most)
    }
}

/// Whether nearly all transfers of the `k` newest periods timed out, for a controller with enough
/// of a baseline.
fn is_late(late: &Counts, k: usize) -> bool {
    late.rests_on() >= MIN_LATE_SAMPLES && late.share(k) >= 0.9
}

/// Whether a shift is large enough to report.
fn is_relevant_shift(quantity: Quantity, series: &Series, k: usize, up: bool) -> bool {
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
        // A tenth and at least two milliseconds.
        Quantity::Rtt => effect.abs() >= 0.1 && (after.exp() - level.median.exp()).abs() >= 2.0,
        Quantity::Asymmetry => effect.abs() >= 0.4,
        Quantity::ProbesLost | Quantity::Failed => true,
    }
}

/// The limit for a controller's evidence.
fn vote_limit(series: &Series) -> f64 {
    let [least, most] = CONTROLLER_EVIDENCE_LIMITS;
    if series.effect(2).is_some_and(|effect| effect < -MAX_MODE_SLOWDOWN) {
        return f64::INFINITY;
    }
    least + (most - least) * ((series.rests_on() as f64 - 60.0) / 120.0).clamp(0.0, 1.0)
}
