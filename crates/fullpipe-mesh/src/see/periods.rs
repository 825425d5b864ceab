//! Records set side by side, a period after the other.

use crate::record::{History, Minute, Transfer};
use std::collections::BTreeMap;

/// What the sites say of one period. Their clocks may differ: the same period is the same number by each sender's own clock.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Period<'a> {
    /// Its number: periods since 1970.
    pub number: i64,
    /// Its transfers; of several of one pair and controller the last that arrived, else the last.
    pub transfers: Vec<&'a Transfer>,
    /// Its probes.
    pub minutes: Vec<&'a Minute>,
}

/// The length of a period in milliseconds, at least one.
pub(crate) fn period_ms(history: &History) -> i64 {
    i64::try_from(history.period.as_nanos() / 1_000_000).unwrap_or(i64::MAX).max(1)
}

/// The periods of which there are records, by time.
pub fn periods(history: &History) -> Vec<Period<'_>> {
    let long = period_ms(history);
    let mut all: BTreeMap<i64, Period<'_>> = BTreeMap::new();
    for transfer in &history.transfers {
        all.entry(transfer.period).or_default().transfers.push(transfer);
    }
    for minute in &history.minutes {
        all.entry(minute.at_ms.div_euclid(long)).or_default().minutes.push(minute);
    }
    for (number, period) in &mut all {
        period.number = *number;
        // A transfer that was tried again, or a record that came twice, counts once.
        let arrived = |transfer: &Transfer| matches!(transfer.outcome, crate::record::Outcome::Done(_));
        period.transfers.sort_by_key(|t| (t.pair, t.controller, !arrived(t), std::cmp::Reverse(t.at_ms)));
        period.transfers.dedup_by_key(|t| (t.pair, t.controller));
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Outcome, Pair, Trouble};
    use fullpipe_units::Span;

    #[test]
    fn what_came_twice_counts_once_and_what_is_missing_is_no_period() {
        let transfer = |at_ms, period| Transfer {
            at_ms,
            period,
            pair: Pair { from: 0, to: 1 },
            controller: 0,
            outcome: Outcome::Failed(Trouble::Broken),
        };
        let history = History {
            period: Span::from_secs(60),
            transfers: vec![transfer(0, i64::MIN), transfer(1, 7), transfer(2, 7), transfer(3, i64::MAX)],
            ..History::default()
        };
        let periods = periods(&history);
        assert_eq!(
            periods.iter().map(|p| (p.number, p.transfers.len())).collect::<Vec<_>>(),
            [(i64::MIN, 1), (7, 1), (i64::MAX, 1)]
        );
        assert_eq!(periods[1].transfers[0].at_ms, 2);
    }
}
