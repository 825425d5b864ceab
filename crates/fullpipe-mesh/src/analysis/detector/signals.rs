//! Signals for a change of a direction, and their thresholds.

use super::evidence::{Evidence, Scored};
use super::{Detector, Key};
use crate::analysis::change::Metric;
use crate::analysis::series::RECENT;
use crate::record::Pair;

/// Evidence in nats that triggers a change of a direction. Found with the simulated days of
/// `tests/it/detection.rs`: with three fewer, modes of a controller that appear for the first time are
/// reported as changes of the path.
const ALARM_THRESHOLD: f64 = 18.5;
/// The threshold where a single controller is affected: it has modes of its own, some of which last
/// several transfers on paths with bursty loss.
const ALARM_THRESHOLD_SINGLE: f64 = 24.0;
/// The threshold where neighbours changed at the same time.
const SUSPECT_THRESHOLD: f64 = 6.0;
/// Maximum evidence from the failures of one period.
const MAX_FAILURE_EVIDENCE: f64 = 12.0;

/// The evidence for a shift of one metric.
pub(super) struct Signal {
    pub evidence: f64,
    pub begin: u64,
    pub length: usize,
    /// Whether the shift is large enough to report.
    relevant: bool,
    /// Whether only one controller is affected.
    alone: bool,
}

impl Signal {
    pub fn is_significant(&self) -> bool {
        self.relevant && self.evidence >= if self.alone { ALARM_THRESHOLD_SINGLE } else { ALARM_THRESHOLD }
    }
}

impl Detector {
    /// All signals, including weak ones.
    pub(super) fn signals(&self) -> Vec<(Key, Signal)> {
        let mut all = Vec::new();
        for &pair in self.tracks.keys() {
            for metric in [Metric::Failures, Metric::Rate, Metric::Loss, Metric::Rtt, Metric::Asymmetry] {
                if matches!(metric, Metric::Rtt | Metric::Asymmetry) && pair != pair.unordered() {
                    continue;
                }
                for up in [true, false] {
                    let signal = match metric {
                        Metric::Failures => self.failing(pair).filter(|_| up),
                        _ => self.shifting(pair, metric, up),
                    };
                    if let Some(signal) = signal.filter(|signal| signal.evidence >= SUSPECT_THRESHOLD) {
                        all.push((Key { pair, metric, up }, signal));
                    }
                }
            }
        }
        all
    }

    fn failing(&self, pair: Pair) -> Option<Signal> {
        let failed = &self.tracks.get(&pair)?.failed;
        let weak = failed.last(1).all(|(hits, _)| hits == 0);
        if weak || failed.newest() != Some(self.tick) || self.open.contains_key(&(pair, Metric::Failures)) {
            return None;
        }
        let usual = failed.usual();
        let likely = 0.9_f64.max(usual);
        let scored = (1..=3).map(|k| (k, failed.evidence(k, likely, MAX_FAILURE_EVIDENCE)));
        let (length, evidence) = scored.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let begin = failed.tick_of(length).or_else(|| failed.tick_of(1))?;
        // A mesh may start with sites that are not up yet, which is to be reported as well.
        let few = failed.rests_on() < 4;
        let evidence = if few { evidence * 4.0 } else { evidence };
        Some(Signal {
            evidence,
            begin,
            length,
            relevant: failed.share(length) >= 0.5 && failed.share(1) > 0.0,
            alone: false,
        })
    }

    fn shifting(&self, pair: Pair, metric: Metric, up: bool) -> Option<Signal> {
        let metric_evidence = Evidence::new(self, pair, metric, up);
        if metric_evidence.max_evidence() < SUSPECT_THRESHOLD {
            return None;
        }
        let scored: Vec<Scored> = (1..=RECENT).filter_map(|k| metric_evidence.score(k)).collect();
        let Scored { k, evidence, begin, alone } =
            longest(&scored).filter(|scored| scored.evidence >= SUSPECT_THRESHOLD)?;
        Some(Signal { evidence, begin, length: k, relevant: metric_evidence.is_relevant(k), alone })
    }
}

/// Chooses how many recent periods a change has lasted: the fewest that reach the threshold,
/// extended while each earlier one adds evidence; or else the number with the most evidence.
fn longest(scored: &[Scored]) -> Option<Scored> {
    let Some(enough) = scored.iter().position(|scored| scored.evidence >= ALARM_THRESHOLD) else {
        return scored.iter().copied().max_by(|a, b| a.evidence.total_cmp(&b.evidence).then(b.k.cmp(&a.k)));
    };
    let rest = &scored[enough..];
    let falls = rest.windows(2).position(|two| two[1].evidence <= two[0].evidence);
    rest.get(falls.unwrap_or(rest.len() - 1)).copied()
}
