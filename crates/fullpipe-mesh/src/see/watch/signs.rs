//! What speaks for a change of a direction, and how much must.

use super::witnesses::{Scored, Witnesses};
use super::{Key, Watch};
use crate::record::Pair;
use crate::see::change::Metric;
use crate::see::series::RECENT;

/// So much must speak for a change of a direction, in nats. Found by the simulated days of `tests/seen.rs`: with three fewer, modes of a
/// controller that show for the first time are told as changes of the path.
const ALARM: f64 = 18.5;
/// So much, where one controller says it all: it has modes of its own, and on paths with bursts of loss some that last several transfers.
const ALARM_ALONE: f64 = 24.0;
/// So much is enough where neighbours changed at the same time.
const SUSPECT: f64 = 6.0;
/// The most that the failures of one period may say.
const FAILURES_SAY: f64 = 12.0;

/// What speaks for a shift of one metric.
pub(super) struct Sign {
    pub evidence: f64,
    pub begin: u64,
    pub length: usize,
    /// Large enough to matter.
    matters: bool,
    /// Whether only one controller noticed.
    alone: bool,
}

impl Sign {
    pub fn is_loud(&self) -> bool {
        self.matters && self.evidence >= if self.alone { ALARM_ALONE } else { ALARM }
    }
}

impl Watch {
    /// All that speaks for something, however weakly.
    pub(super) fn signs(&self) -> Vec<(Key, Sign)> {
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
        let witnesses = Witnesses::of(self, pair, metric, up);
        if witnesses.loudest() < SUSPECT {
            return None;
        }
        let scored: Vec<Scored> = (1..=RECENT).filter_map(|k| witnesses.say(k)).collect();
        let Scored { k, evidence, begin, alone } =
            longest(&scored).filter(|scored| scored.evidence >= SUSPECT)?;
        Some(Sign { evidence, begin, length: k, matters: witnesses.saw_what_matters(k), alone })
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
