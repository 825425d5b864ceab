//! Records grouped by period.

use crate::record::{History, Minute, Transfer};
use std::collections::BTreeMap;

/// The records of all sites for one period. Each sender numbers periods on its own clock; clocks
/// may differ.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Period<'a> {
    /// Period number since 1970.
    pub number: i64,
    /// Transfers; of several by one pair and controller, the last that completed, or else the last.
    pub transfers: Vec<&'a Transfer>,
    /// Probe minutes.
    pub minutes: Vec<&'a Minute>,
}

/// The period in milliseconds, at least 1.
pub(crate) fn period_ms(history: &History) -> i64 {
    i64::try_from(history.period.as_nanos() / 1_000_000).unwrap_or(i64::MAX).max(1)
}

/// The periods that have records, by time.
pub fn periods(history: &History) -> Vec<Period<'_>> {
    let long = period_ms(history);
    let mut all: BTreeMap<i64, Period<'_>> = BTreeMap::new();
    for transfer in &history.transfers {
        // A member may number its transfers at will; each period takes time.
        let at = transfer.at_ms.div_euclid(long);
        let number = transfer.period.clamp(at.saturating_sub(1), at.saturating_add(1));
        all.entry(number).or_default().transfers.push(transfer);
    }
    for minute in &history.minutes {
        all.entry(minute.at_ms.div_euclid(long)).or_default().minutes.push(minute);
    }
    for (number, period) in &mut all {
        period.number = *number;
        period.count_once();
    }
    all.into_values().collect()
}

impl<'a> Period<'a> {
    /// All records of a history as one period with this number.
    pub fn whole(history: &'a History, number: i64) -> Period<'a> {
        let (transfers, minutes) = (history.transfers.iter().collect(), history.minutes.iter().collect());
        let mut period = Period { number, transfers, minutes };
        period.count_once();
        period
    }

    /// A retried transfer or a duplicated record counts once.
    fn count_once(&mut self) {
        let arrived = |transfer: &Transfer| matches!(transfer.outcome, crate::record::Outcome::Done(_));
        self.transfers.sort_by_key(|t| (t.pair, t.controller, !arrived(t), std::cmp::Reverse(t.at_ms)));
        self.transfers.dedup_by_key(|t| (t.pair, t.controller));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Outcome, Pair, TransferError};
    use fullpipe_units::Span;

    #[test]
    fn duplicates_count_once_and_empty_periods_are_skipped() {
        let transfer = |at_ms, period| Transfer {
            at_ms,
            period,
            pair: Pair { from: 0, to: 1 },
            controller: 0,
            outcome: Outcome::Failed(TransferError::Broken),
        };
        let history = History {
            period: Span::from_secs(60),
            transfers: vec![transfer(0, 0), transfer(420_001, 7), transfer(480_002, 7)],
            ..History::default()
        };
        let periods = periods(&history);
        assert_eq!(
            periods.iter().map(|p| (p.number, p.transfers.len())).collect::<Vec<_>>(),
            [(0, 1), (7, 1)]
        );
        assert_eq!(periods[1].transfers[0].at_ms, 480_002);
    }

    #[test]
    fn a_transfer_is_in_the_period_of_its_time_or_the_next() {
        let transfer = |nth: i64| Transfer {
            at_ms: 600_000 + nth % 60_000,
            period: nth.wrapping_mul(i64::MAX / 50_000),
            pair: Pair { from: 0, to: 1 },
            controller: (nth % 7) as u16,
            outcome: Outcome::Failed(TransferError::Broken),
        };
        let history = History {
            period: Span::from_secs(60),
            transfers: (0..100_000).map(transfer).collect(),
            ..History::default()
        };
        let numbers: Vec<i64> = periods(&history).iter().map(|period| period.number).collect();
        assert_eq!(numbers, [9, 11]);
    }
}
