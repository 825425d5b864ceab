//! Comparison of a controller with the baseline on the same path.

use crate::record::{ControllerId, History, Outcome, Pair};
use fullpipe_net::compare::{Estimate, median_interval};
use serde::Serialize;
use std::collections::BTreeMap;

/// A controller's goodput relative to the baseline's on one direction.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Ratio {
    /// The direction.
    pub pair: Pair,
    /// The controller compared with the first.
    pub controller: ControllerId,
    /// Median over periods of the goodput ratio, with its 95 % interval by order statistics.
    pub ratio: Estimate,
    /// Number of periods in which both completed.
    pub periods: usize,
}

/// Log goodput ratios of `controller` to the first, for each period in which both completed.
fn of_periods(history: &History, controller: ControllerId) -> BTreeMap<Pair, Vec<f64>> {
    let mut seen: BTreeMap<(Pair, i64), [Option<f64>; 2]> = BTreeMap::new();
    for transfer in &history.transfers {
        let Outcome::Done(done) = &transfer.outcome else { continue };
        let goodput = done.goodput().as_bits_per_sec_f64();
        let side = match transfer.controller {
            0 => 0,
            id if id == controller => 1,
            _ => continue,
        };
        if goodput > 0.0 {
            seen.entry((transfer.pair, transfer.period)).or_default()[side] = Some(goodput);
        }
    }
    let mut all: BTreeMap<Pair, Vec<f64>> = BTreeMap::new();
    for ((pair, _), sides) in seen {
        if let [Some(first), Some(other)] = sides {
            all.entry(pair).or_default().push((other / first).ln());
        }
    }
    all
}

/// The ratios of all directions for a controller other than the first. The interval assumes
/// independent periods; where they are not, it is too narrow.
pub fn ratios(history: &History, controller: ControllerId) -> Vec<Ratio> {
    let one = |(pair, logs): (Pair, Vec<f64>)| {
        let log = median_interval(&logs);
        let ratio = Estimate { median: log.median.exp(), low: log.low.exp(), high: log.high.exp() };
        Ratio { pair, controller, ratio, periods: logs.len() }
    };
    of_periods(history, controller).into_iter().map(one).collect()
}

/// The ratio of one direction; `None` without a period in which both completed.
pub fn ratio(history: &History, pair: Pair, controller: ControllerId) -> Option<Ratio> {
    ratios(history, controller).into_iter().find(|ratio| ratio.pair == pair)
}

/// The sorted median ratios of all directions: figure 7 of the paper.
pub fn gains(history: &History, controller: ControllerId) -> Vec<f64> {
    let mut all: Vec<f64> = ratios(history, controller).iter().map(|ratio| ratio.ratio.median).collect();
    all.sort_by(f64::total_cmp);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Measurement, Transfer, TransferError};
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

    #[test]
    fn only_transfers_of_the_same_period_are_compared() {
        let mut history = History::default();
        for period in 0..20 {
            // The path's speed varies; the ratio stays.
            let times = 1 + period as u64 % 5;
            history.transfers.push(done(period, 1, 100 * times));
            history.transfers.push(done(period, 0, 300 * times + period as u64));
        }
        history.transfers.push(done(50, 0, 1));
        let failed = Outcome::Failed(TransferError::Stalled);
        history.transfers.push(Transfer { outcome: failed, ..done(50, 1, 1) });
        let ratio = ratio(&history, Pair { from: 0, to: 1 }, 1).unwrap();
        assert_eq!(ratio.periods, 20);
        assert!(
            (2.99..3.1).contains(&ratio.ratio.median) && ratio.ratio.low >= 2.99 && ratio.ratio.high < 3.2
        );
        assert_eq!(ratios(&History::default(), 1), []);
    }

    #[test]
    fn a_transfer_of_zero_bytes_gives_no_ratio() {
        let mut history = History { transfers: vec![done(1, 0, 5), done(1, 1, 5)], ..History::default() };
        let Outcome::Done(measured) = &mut history.transfers[0].outcome else { unreachable!() };
        measured.bytes = 0;
        assert!(gains(&history, 1).is_empty());
    }
}
