//! Records reduced to as many steps as a screen can show.

use crate::chunk::Samples;
use crate::store::{CompactHistory, HalfHour};
use serde::Serialize;

/// Maximum steps of a page: one for each half hour of a week.
const MAX_STEPS: i64 = 360;
/// Maximum values of a page, which limits the steps of many directions: 13 MB of text. A day of 64
/// sites and two controllers has a step for each half hour.
const MAX_VALUES: i64 = 2_600_000;
/// Records farther from the median time come from a wrong clock and would compress the rest.
const MAX_DISTANCE_MS: i64 = 366 * 86_400_000;

/// Steps of equal length.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Steps {
    /// Start of the first step, seconds since 1970 (UTC).
    start_s: f64,
    /// Length of a step, seconds.
    step_s: f64,
    /// Number of steps.
    pub steps: usize,
    #[serde(skip)]
    start: i64,
    #[serde(skip)]
    step: i64,
    /// The median time.
    #[serde(skip)]
    middle: i64,
}

/// A direction with one value per step, NaN where there is none. Rounded to three digits, more than
/// can be seen.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PairBins {
    /// RTT in milliseconds: minimum, median of medians, maximum of the 95th percentiles.
    pub rtt: [Vec<f32>; 3],
    /// Each controller's goodput, Mbit/s: 10th percentile, median, 90th percentile.
    pub rate: Vec<[Vec<f32>; 3]>,
    /// Each controller's median retransmitted share, percent.
    pub retransmitted: Vec<Vec<f32>>,
    /// Lost probes, percent.
    pub lost: Vec<f32>,
    /// Failed transfers, percent.
    pub failed: Vec<f32>,
}

impl Steps {
    pub fn new(records: &CompactHistory<'_>) -> Steps {
        let half_hours = records.half_hours();
        let records_of = |one: &HalfHour| one.transfers.saturating_add(one.minutes);
        let all = half_hours.values().map(records_of).fold(0, u64::saturating_add);
        let mut before = 0u64;
        let middle = half_hours.values().find(|one| {
            before = before.saturating_add(records_of(one));
            before > all / 2
        });
        let middle = middle.map_or(0, |one| one.first_ms);
        let is_near = |at: i64| at.saturating_sub(middle).saturating_abs() <= MAX_DISTANCE_MS;
        let start = half_hours.values().map(|one| one.first_ms).find(|at| is_near(*at)).unwrap_or(0);
        let end = half_hours.values().rev().map(|one| one.last_ms).find(|at| is_near(*at)).unwrap_or(0);
        let end = end.max(start);
        let period = crate::analysis::period_ms(&records.head);
        let values = 5 + 4 * records.head.controllers.len() as i64;
        let most = (MAX_VALUES / values / (records.pairs() as i64).max(1)).clamp(1, MAX_STEPS);
        // Whole periods, so that each step has as many transfers as the next.
        let periods = (end - start) / period + 1;
        let step = period.saturating_mul((periods + most - 1) / most).max(1);
        let start = start.saturating_sub(start.rem_euclid(period));
        let steps = ((end - start) / step + 1).clamp(1, MAX_STEPS + 1) as usize;
        Steps { start_s: start as f64 / 1e3, step_s: step as f64 / 1e3, steps, start, step, middle }
    }

    /// The step of a time, if it is in one.
    fn place(&self, at: i64) -> Option<usize> {
        if at.saturating_sub(self.middle).saturating_abs() > MAX_DISTANCE_MS {
            return None;
        }
        usize::try_from((at - self.start).div_euclid(self.step)).ok().filter(|nth| *nth < self.steps)
    }

    /// The values of a direction.
    pub fn bins(&self, samples: &Samples, controllers: usize, scratch: &mut Scratch) -> PairBins {
        let empty = || vec![f32::NAN; self.steps];
        let mut bins = PairBins {
            rtt: [empty(), empty(), empty()],
            rate: (0..controllers).map(|_| [empty(), empty(), empty()]).collect(),
            retransmitted: (0..controllers).map(|_| empty()).collect(),
            lost: empty(),
            failed: empty(),
        };
        for (nth, transfers) in self.chunked(&samples.transfers, |sample| sample.at_ms) {
            scratch.rates.resize_with(controllers.max(scratch.rates.len()), Default::default);
            let mut failed = 0;
            for sample in transfers {
                match (&sample.result, scratch.rates.get_mut(sample.controller as usize)) {
                    (Ok(done), Some([rates, retransmitted])) => {
                        rates.push(done.goodput_bps);
                        retransmitted.push(done.retransmitted);
                    }
                    (Ok(_), None) => {}
                    (Err(_), _) => failed += 1,
                }
            }
            bins.failed[nth] = share(failed, transfers.len() as u64);
            for (cc, [rates, retransmitted]) in scratch.rates.iter_mut().enumerate() {
                if let (false, Some(rate), Some(lost)) =
                    (rates.is_empty(), bins.rate.get_mut(cc), bins.retransmitted.get_mut(cc))
                {
                    rates.sort_unstable_by(f32::total_cmp);
                    retransmitted.sort_unstable_by(f32::total_cmp);
                    for (values, q) in rate.iter_mut().zip([0.1, 0.5, 0.9]) {
                        values[nth] = round_to_3_digits(f64::from(at(rates, q)) / 1e6);
                    }
                    lost[nth] = round_to_3_digits(f64::from(at(retransmitted, 0.5)) * 100.0);
                }
                rates.clear();
                retransmitted.clear();
            }
        }
        for (nth, minutes) in self.chunked(&samples.minutes, |sample| sample.at_ms) {
            let (mut sent, mut lost) = (0, 0);
            let (mut least, mut most) = (f32::INFINITY, 0f32);
            scratch.rtts.clear();
            for minute in minutes {
                sent += u64::from(minute.sent);
                lost += u64::from(minute.sent.saturating_sub(minute.arrived));
                if let Some([min, p50, p95]) = minute.rtt_ms {
                    (least, most) = (least.min(min), most.max(p95));
                    scratch.rtts.push(p50);
                }
            }
            if sent > 0 {
                bins.lost[nth] = share(lost, sent);
            }
            if !scratch.rtts.is_empty() {
                scratch.rtts.sort_unstable_by(f32::total_cmp);
                let figures = [least, at(&scratch.rtts, 0.5), most];
                for (values, figure) in bins.rtt.iter_mut().zip(figures) {
                    values[nth] = round_to_3_digits(figure.into());
                }
            }
        }
        bins
    }

    /// Samples sorted by time, by step.
    fn chunked<'a, T>(
        &self,
        samples: &'a [T],
        at_ms: impl Fn(&T) -> i64 + 'a,
    ) -> impl Iterator<Item = (usize, &'a [T])> {
        let mut rest = samples;
        std::iter::from_fn(move || {
            while let Some(first) = rest.first() {
                let Some(nth) = self.place(at_ms(first)) else {
                    rest = &rest[1..];
                    continue;
                };
                let same = rest.iter().take_while(|sample| self.place(at_ms(sample)) == Some(nth)).count();
                let (step, later) = rest.split_at(same);
                rest = later;
                return Some((nth, step));
            }
            None
        })
    }
}

/// Buffers that are used again for each direction.
#[derive(Default)]
pub(super) struct Scratch {
    /// Goodputs and retransmitted shares of each controller.
    rates: Vec<[Vec<f32>; 2]>,
    rtts: Vec<f32>,
}

/// A quantile of sorted values, of which there is at least one.
fn at(sorted: &[f32], q: f64) -> f32 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

fn share(of: u64, all: u64) -> f32 {
    round_to_3_digits(of as f64 / all as f64 * 100.0)
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
    use crate::record::History;

    #[test]
    fn rounding_keeps_three_digits() {
        assert_eq!([123.456, 0.012_345, 9.999, 0.0].map(round_to_3_digits), [123.0, 0.0123, 10.0, 0.0]);
    }

    #[test]
    fn an_empty_history_is_one_empty_step() {
        assert_eq!(Steps::new(&CompactHistory::from(&History::default())).steps, 1);
    }
}
