//! A history reduced to as many steps as a screen can show.

use crate::record::{History, Outcome, Pair};
use fullpipe_experiment::statistics;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum steps of a page: one for each half hour of a week.
const MAX_STEPS: i64 = 360;

/// All pairs over time, in steps of equal length.
#[derive(Debug, Serialize)]
pub(super) struct Bins {
    /// Start of the first step, seconds since 1970 (UTC).
    pub start_s: f64,
    /// Length of a step, seconds.
    pub step_s: f64,
    /// Number of steps.
    pub steps: usize,
    #[serde(skip)]
    pub pairs: BTreeMap<Pair, PairBins>,
}

/// A pair with one value per step; `None` where there is none. Rounded to three digits, more than
/// can be seen.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PairBins {
    /// RTT in milliseconds: minimum, median of medians, maximum of the 95th percentiles.
    pub rtt: [Vec<Option<f32>>; 3],
    /// Each controller's goodput, Mbit/s: 10th percentile, median, 90th percentile.
    pub rate: Vec<[Vec<Option<f32>>; 3]>,
    /// Each controller's median retransmitted share, percent.
    pub retransmitted: Vec<Vec<Option<f32>>>,
    /// Lost probes, percent.
    pub lost: Vec<Option<f32>>,
    /// Failed transfers, percent.
    pub failed: Vec<Option<f32>>,
}

#[derive(Default)]
struct Step {
    rtt: [Vec<f64>; 3],
    rate: Vec<Vec<f64>>,
    retransmitted: Vec<Vec<f64>>,
    probes: [u64; 2],
    transfers: [u64; 2],
}

impl Bins {
    pub fn new(history: &History) -> Bins {
        let times =
            || history.transfers.iter().map(|t| t.at_ms).chain(history.minutes.iter().map(|m| m.at_ms));
        // Records more than a year from the median come from a wrong clock and would compress the
        // rest.
        let mut sorted: Vec<i64> = times().collect();
        sorted.sort_unstable();
        let middle = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
        let year = 366 * 86_400_000_i64;
        let near = |at: i64| at.saturating_sub(middle).saturating_abs() <= year;
        let start = sorted.iter().copied().find(|at| near(*at)).unwrap_or(0);
        let end = sorted.iter().rev().copied().find(|at| near(*at)).unwrap_or(0);
        let period = crate::analysis::period_ms(history);
        // Whole periods, so that each step has as many transfers as the next.
        let periods = (end - start) / period + 1;
        let step = period.saturating_mul((periods + MAX_STEPS - 1) / MAX_STEPS).max(1);
        let start = start.saturating_sub(start.rem_euclid(period));
        let steps = ((end - start) / step + 1).clamp(1, MAX_STEPS + 1) as usize;
        let place = |at: i64| near(at).then(|| ((at - start) / step) as usize).filter(|nth| *nth < steps);
        let controllers = history.controllers.len();
        let mut all: BTreeMap<Pair, BTreeMap<usize, Step>> = BTreeMap::new();
        for transfer in &history.transfers {
            let Some(nth) = place(transfer.at_ms) else { continue };
            let step = all.entry(transfer.pair).or_default().entry(nth).or_default();
            step.transfers[1] += 1;
            let cc = usize::from(transfer.controller);
            match &transfer.outcome {
                Outcome::Done(done) if cc < controllers => {
                    step.rate.resize(controllers, Vec::new());
                    step.retransmitted.resize(controllers, Vec::new());
                    step.rate[cc].push(done.goodput().as_bits_per_sec_f64() / 1e6);
                    step.retransmitted[cc].push(done.retransmitted_share() * 100.0);
                }
                Outcome::Done(_) => {}
                Outcome::Failed(_) => step.transfers[0] += 1,
            }
        }
        for minute in &history.minutes {
            let Some(nth) = place(minute.at_ms) else { continue };
            let step = all.entry(minute.pair).or_default().entry(nth).or_default();
            step.probes[0] += u64::from(minute.sent.saturating_sub(minute.arrived));
            step.probes[1] += u64::from(minute.sent);
            if let Some(rtt) = minute.rtt {
                for (of, span) in step.rtt.iter_mut().zip([rtt.min, rtt.p50, rtt.p95]) {
                    of.push(span.as_millis_f64());
                }
            }
        }
        let pairs = all
            .into_iter()
            .map(|(pair, steps_of)| (pair, pair_bins(&steps_of, steps, controllers)))
            .collect();
        Bins { start_s: start as f64 / 1e3, step_s: step as f64 / 1e3, steps, pairs }
    }
}

fn pair_bins(all: &BTreeMap<usize, Step>, steps: usize, controllers: usize) -> PairBins {
    let column = |of: &dyn Fn(&Step) -> Option<f64>| -> Vec<Option<f32>> {
        (0..steps).map(|nth| all.get(&nth).and_then(of).map(round_to_3_digits)).collect()
    };
    let share = |[of, all]: [u64; 2]| (all > 0).then(|| of as f64 / all as f64 * 100.0);
    PairBins {
        rtt: [
            column(&|step| quantile(&step.rtt[0], 0.0)),
            column(&|step| quantile(&step.rtt[1], 0.5)),
            column(&|step| quantile(&step.rtt[2], 1.0)),
        ],
        rate: (0..controllers)
            .map(|cc| [0.1, 0.5, 0.9].map(|q| column(&|step| quantile(step.rate.get(cc)?, q))))
            .collect(),
        retransmitted: (0..controllers)
            .map(|cc| column(&|step| quantile(step.retransmitted.get(cc)?, 0.5)))
            .collect(),
        lost: column(&|step| share(step.probes)),
        failed: column(&|step| share(step.transfers)),
    }
}

fn quantile(all: &[f64], q: f64) -> Option<f64> {
    statistics::quantile(&mut all.to_vec(), q)
}

/// Rounds to three significant digits.
fn round_to_3_digits(x: f64) -> f32 {
    if x == 0.0 || !x.is_finite() {
        return 0.0;
    }
    let digits = 10f64.powi(2 - x.abs().log10().floor() as i32);
    ((x * digits).round() / digits) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_keeps_three_digits() {
        assert_eq!([123.456, 0.012_345, 9.999, 0.0].map(round_to_3_digits), [123.0, 0.0123, 10.0, 0.0]);
    }

    #[test]
    fn an_empty_history_is_one_empty_step() {
        let bins = Bins::new(&History::default());
        assert_eq!((bins.steps, bins.pairs.len()), (1, 0));
    }
}
