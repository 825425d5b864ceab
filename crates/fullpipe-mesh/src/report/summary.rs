//! What a report and its page need of the records: figures of each direction, made from its samples
//! while one direction at a time is in memory.

use super::bins::{PairBins, Scratch, Steps};
use crate::analysis::Ratio;
use crate::chunk::Samples;
use crate::record::{ControllerId, History, Pair, TransferError};
use crate::store::{CompactHistory, StoreError};
use fullpipe_net::compare::{Estimate, median, median_interval};

/// The newest transfers that count for medians.
const RECENT_TRANSFERS: usize = 240;

/// The figures of all directions.
#[derive(Debug)]
pub struct Summary {
    /// Names, the period, and the routes; no transfers and minutes.
    pub head: History,
    /// Time of the first record, milliseconds since 1970 (UTC).
    pub from_ms: i64,
    /// Time of the last record.
    pub to_ms: i64,
    /// Directions with more records than fit into memory: the older ones are left out.
    pub shortened_paths: usize,
    pub(super) steps: Steps,
    pub(super) paths: Vec<PathSummary>,
}

/// The figures of a direction.
#[derive(Debug)]
pub(super) struct PathSummary {
    pub pair: Pair,
    /// Each controller's goodput relative to the first.
    pub ratios: Vec<Option<Ratio>>,
    /// Each controller's median goodput of its newest transfers, bit/s.
    pub goodput_bps: Vec<Option<f64>>,
    /// Median RTT of the newest probes, milliseconds.
    pub rtt_ms: Option<f64>,
    /// Loss share of the newest probes.
    pub loss: Option<f64>,
    pub transfers: u64,
    pub failed: u64,
    pub newest: Option<Newest>,
    pub bins: PairBins,
}

/// The result of the newest period of a direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub period: i64,
    pub error: Option<TransferError>,
    pub has_completed: bool,
}

impl Summary {
    /// Summarises records.
    ///
    /// # Errors
    /// If the store fails, or is damaged.
    pub fn new(records: CompactHistory<'_>) -> Result<Summary, StoreError> {
        let controllers = records.head.controllers.len();
        let steps = Steps::new(&records);
        let mut scratch = (Scratch::default(), Vec::new());
        let (mut from_ms, mut to_ms) = (i64::MAX, i64::MIN);
        let mut paths = Vec::with_capacity(records.pairs());
        let shortened_paths = records.visit(&mut |pair, samples| {
            let first =
                [samples.transfers.first().map(|s| s.at_ms), samples.minutes.first().map(|s| s.at_ms)];
            let last = [samples.transfers.last().map(|s| s.at_ms), samples.minutes.last().map(|s| s.at_ms)];
            from_ms = first.into_iter().flatten().fold(from_ms, i64::min);
            to_ms = last.into_iter().flatten().fold(to_ms, i64::max);
            if records.head.has_pair(pair) && (!samples.transfers.is_empty() || !samples.minutes.is_empty()) {
                let bins = steps.bins(samples, controllers, &mut scratch.0);
                paths.push(summarise(pair, samples, controllers, bins, &mut scratch.1));
            }
        })?;
        let (from_ms, to_ms) = if from_ms > to_ms { (0, 0) } else { (from_ms, to_ms) };
        Ok(Summary { head: records.head, from_ms, to_ms, shortened_paths, steps, paths })
    }

    /// The number of values in the plots.
    pub(super) fn values(&self) -> usize {
        self.paths.len() * self.steps.steps * (5 + 4 * self.head.controllers.len())
    }
}

impl From<&History> for Summary {
    fn from(history: &History) -> Summary {
        // Only a store can fail.
        Summary::new(CompactHistory::from(history)).unwrap_or_else(|_| unreachable!("records in memory"))
    }
}

fn summarise(
    pair: Pair,
    samples: &Samples,
    controllers: usize,
    bins: PairBins,
    goodputs: &mut Vec<(i64, f32)>,
) -> PathSummary {
    let failed = samples.transfers.iter().filter(|sample| sample.result.is_err()).count();
    let recent = |cc: usize| {
        let own = samples.transfers.iter().rev().filter(|sample| sample.controller as usize == cc);
        let done = own.filter_map(|sample| sample.result.ok()).map(|done| f64::from(done.goodput_bps));
        let newest: Vec<f64> = done.take(RECENT_TRANSFERS).collect();
        (!newest.is_empty()).then(|| median(&newest))
    };
    let (mut rtts, mut sent, mut arrived) = (Vec::new(), 0u64, 0u64);
    for minute in samples.minutes.iter().rev() {
        if rtts.len() >= RECENT_TRANSFERS {
            break;
        }
        rtts.extend(minute.rtt_ms.map(|[_, p50, _]| f64::from(p50)));
        sent += u64::from(minute.sent);
        arrived += u64::from(minute.arrived);
    }
    PathSummary {
        pair,
        ratios: ratios(pair, samples, controllers, goodputs),
        goodput_bps: (0..controllers).map(recent).collect(),
        rtt_ms: (!rtts.is_empty()).then(|| median(&rtts)),
        loss: (sent > 0).then(|| sent.saturating_sub(arrived) as f64 / sent as f64),
        transfers: samples.transfers.len() as u64,
        failed: failed as u64,
        newest: newest(samples),
        bins,
    }
}

/// Goodput of each controller by period relative to the first; `None` for the first.
fn ratios(
    pair: Pair,
    samples: &Samples,
    controllers: usize,
    scratch: &mut Vec<(i64, f32)>,
) -> Vec<Option<Ratio>> {
    // Of several transfers of a period the last completed one counts.
    let by_period = |cc: usize, all: &mut Vec<(i64, f32)>| {
        all.clear();
        let own = samples.transfers.iter().filter(|sample| sample.controller as usize == cc);
        let done = own.filter_map(|sample| Some((sample.period, sample.result.ok()?.goodput_bps)));
        all.extend(done.filter(|(_, goodput)| *goodput > 0.0));
        all.sort_by_key(|(period, _)| *period);
    };
    let mut first = Vec::new();
    by_period(0, &mut first);
    let ratio = |cc: usize, other: &mut Vec<(i64, f32)>| {
        by_period(cc, other);
        let (mut logs, mut other) = (Vec::with_capacity(other.len()), last_of_each(other).peekable());
        for (period, base) in last_of_each(&first) {
            while other.next_if(|(at, _)| *at < period).is_some() {}
            if let Some((_, goodput)) = other.next_if(|(at, _)| *at == period) {
                logs.push((f64::from(goodput) / f64::from(base)).ln());
            }
        }
        if logs.is_empty() {
            return None;
        }
        let log = median_interval(&logs);
        let ratio = Estimate { median: log.median.exp(), low: log.low.exp(), high: log.high.exp() };
        Some(Ratio { pair, controller: cc as ControllerId, ratio, periods: logs.len() })
    };
    (0..controllers).map(|cc| if cc == 0 { None } else { ratio(cc, scratch) }).collect()
}

/// The last value of each period, of values sorted by period.
fn last_of_each(all: &[(i64, f32)]) -> impl Iterator<Item = (i64, f32)> {
    let is_last = |nth: usize| all.get(nth + 1).is_none_or(|next| next.0 != all[nth].0);
    (0..all.len()).filter(move |nth| is_last(*nth)).map(|nth| all[nth])
}

fn newest(samples: &Samples) -> Option<Newest> {
    let mut newest: Option<Newest> = None;
    for sample in &samples.transfers {
        let fresh = Newest { period: sample.period, error: None, has_completed: false };
        let at = newest.get_or_insert(fresh);
        if sample.period > at.period {
            *at = fresh;
        }
        if sample.period == at.period {
            match sample.result {
                Ok(_) => at.has_completed = true,
                Err(error) => at.error = Some(error),
            }
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Measurement, Outcome, Transfer};
    use fullpipe_units::Span;

    fn done(period: i64, controller: ControllerId, millis: u64) -> Transfer {
        let measured = Measurement {
            bytes: 8_000_000,
            duration: Span::from_millis(millis),
            delivery_rate: None,
            rtt: Span::ZERO,
            min_rtt: Span::ZERO,
            segments: 0,
            retransmitted: 0,
            receive_window_limited: 0.0,
            send_buffer_limited: 0.0,
            cpu: Span::ZERO,
        };
        let outcome = Outcome::Done(Box::new(measured));
        Transfer { at_ms: period * 60_000, period, pair: Pair { from: 0, to: 1 }, controller, outcome }
    }

    /// The ratio of the second controller.
    fn ratio(transfers: Vec<Transfer>) -> Option<Ratio> {
        let names = |all: [&str; 2]| all.map(str::to_owned).to_vec();
        let (sites, controllers) = (names(["lab", "sea"]), names(["cubic", "bbr"]));
        let history = History { sites, controllers, transfers, ..History::default() };
        let summary = Summary::from(&history);
        assert_eq!(summary.paths[0].ratios[0], None, "of the first");
        summary.paths[0].ratios[1]
    }

    #[test]
    fn only_transfers_of_the_same_period_are_compared() {
        let mut transfers = Vec::new();
        for period in 0..20 {
            // The path's speed varies; the ratio stays.
            let times = 1 + period as u64 % 5;
            transfers.push(done(period, 1, 100 * times));
            transfers.push(done(period, 0, 300 * times + period as u64));
        }
        transfers.push(done(50, 0, 1));
        let failed = Outcome::Failed(TransferError::Stalled);
        transfers.push(Transfer { outcome: failed, ..done(50, 1, 1) });
        let ratio = ratio(transfers).unwrap();
        assert_eq!(ratio.periods, 20);
        assert!(
            (2.99..3.1).contains(&ratio.ratio.median) && ratio.ratio.low >= 2.99 && ratio.ratio.high < 3.2
        );
    }

    #[test]
    fn a_transfer_of_zero_bytes_gives_no_ratio() {
        let mut transfers = vec![done(1, 0, 5), done(1, 1, 5)];
        assert!(ratio(transfers.clone()).is_some());
        let Outcome::Done(measured) = &mut transfers[0].outcome else { unreachable!() };
        measured.bytes = 0;
        assert_eq!(ratio(transfers), None);
    }
}
