//! The time series of a connection in bounded memory.

use super::metrics::{self, COUNT};
use fullpipe_experiment::recording::{Series, column};
use fullpipe_units::{Span, Time};

/// Columns after the metrics.
pub(super) mod index {
    use super::COUNT;

    pub(in super::super) const DELIVERY_RATE: usize = COUNT;
    pub(in super::super) const DELIVERED: usize = COUNT + 1;
    pub(in super::super) const SENT: usize = COUNT + 2;
    pub(in super::super) const LOST: usize = COUNT + 3;
}
pub(super) const WIDTH: usize = COUNT + 4;
/// Goodput is averaged over at least this time.
const MIN_GOODPUT_SPAN: f64 = 0.01;

/// Values at the times at which one of them changed, the latest of each interval once there are too
/// many.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    times: Vec<Time>,
    values: Vec<[f64; WIDTH]>,
    /// Length of an interval; zero while every change is kept.
    interval: Span,
    most: usize,
}

impl Rows {
    pub(super) fn new(most: usize) -> Self {
        Rows { times: Vec::new(), values: Vec::new(), interval: Span::ZERO, most }
    }

    /// The time between two rows; zero if every change is kept.
    pub(super) fn interval(&self) -> Span {
        self.interval
    }

    fn cell(&self, at: Time) -> u64 {
        at.as_nanos() / self.interval.as_nanos().max(1)
    }

    /// Adds the row of `at`, which is not before the previous.
    pub(super) fn push(&mut self, at: Time, row: [f64; WIDTH]) {
        if let (Some(last), Some(values)) = (self.times.last_mut(), self.values.last_mut()) {
            let width = self.interval.as_nanos().max(1);
            if last.as_nanos() / width == at.as_nanos() / width {
                (*last, *values) = (at, with_rate(row, values));
                return;
            }
        }
        if self.times.len() >= self.most {
            self.coarsen(at);
        }
        self.times.push(at);
        self.values.push(row);
    }

    /// Keeps the last row of each interval of at least twice the length.
    fn coarsen(&mut self, now: Time) {
        let first = self.times.first().copied().unwrap_or(now);
        let even = now.since(first).as_nanos() / self.most.max(1) as u64;
        self.interval = Span::from_nanos(self.interval.as_nanos().max(even).saturating_mul(2).max(2));
        let mut kept = 0;
        for i in 0..self.times.len() {
            if i > 0 && self.cell(self.times[i]) == self.cell(self.times[i - 1]) {
                self.values[i] = with_rate(self.values[i], &self.values[i - 1]);
            }
            let is_last =
                i + 1 == self.times.len() || self.cell(self.times[i]) != self.cell(self.times[i + 1]);
            if is_last {
                (self.times[kept], self.values[kept]) = (self.times[i], self.values[i]);
                kept += 1;
            }
        }
        self.times.truncate(kept);
        self.values.truncate(kept);
    }

    /// The series, with the goodput over about `rtt_ms`.
    pub(super) fn series(&self, rtt_ms: Option<f64>) -> Series {
        let totals = [
            column::DELIVERY_RATE_BPS,
            column::DELIVERED_BYTES,
            column::SENT_PACKETS,
            column::LOST_PACKETS,
            column::GOODPUT_BPS,
        ];
        let mut series = Series::with_columns(metrics::columns().chain(totals));
        let span = (rtt_ms.unwrap_or(0.0) / 1e3).max(MIN_GOODPUT_SPAN);
        let mut from = 0;
        for (i, (at, values)) in self.times.iter().zip(&self.values).enumerate() {
            let t = at.as_secs_f64();
            while from < i && self.times[from + 1].as_secs_f64() <= t - span {
                from += 1;
            }
            let passed = t - self.times[from].as_secs_f64();
            let delivered = values[index::DELIVERED] - self.values[from][index::DELIVERED];
            let goodput = if passed > 0.0 { delivered * 8.0 / passed.max(span) } else { f64::NAN };
            let mut row = values.to_vec();
            row.push(goodput);
            series.push(t, &row);
        }
        series.without_empty_columns()
    }
}

/// `later` with the delivery rate of `earlier` if it has none: only rows of ACKs have one.
fn with_rate(mut later: [f64; WIDTH], earlier: &[f64; WIDTH]) -> [f64; WIDTH] {
    if later[index::DELIVERY_RATE].is_nan() {
        later[index::DELIVERY_RATE] = earlier[index::DELIVERY_RATE];
    }
    later
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(value: f64) -> [f64; WIDTH] {
        [value; WIDTH]
    }

    #[test]
    fn changes_are_kept_exactly_until_there_are_too_many() {
        let mut rows = Rows::new(64);
        (0..64).for_each(|i| rows.push(Time::from_nanos(i * 1000 + 1), row(i as f64)));
        assert_eq!((rows.times.len(), rows.interval()), (64, Span::ZERO));
        let series = rows.series(None);
        assert_eq!(series.get(column::CWND_BYTES).unwrap()[63], 63.0);
        assert_eq!(series.t_s[1], 1.001e-6);
        (64..100_000).for_each(|i| rows.push(Time::from_nanos(i * 1000 + 1), row(i as f64)));
        assert!((16..=64).contains(&rows.times.len()), "{}", rows.times.len());
        assert_eq!(rows.values.last().unwrap()[0], 99_999.0);
        assert!(rows.times.is_sorted());
    }

    #[test]
    fn rows_of_one_time_are_one() {
        let mut rows = Rows::new(8);
        rows.push(Time::from_nanos(5), row(1.0));
        rows.push(Time::from_nanos(5), row(2.0));
        assert_eq!((rows.times.len(), rows.values[0][0]), (1, 2.0));
        // The row of the metrics that follow an ACK does not have its delivery rate.
        let mut metrics = row(3.0);
        metrics[index::DELIVERY_RATE] = f64::NAN;
        rows.push(Time::from_nanos(5), metrics);
        assert_eq!((rows.values[0][0], rows.values[0][index::DELIVERY_RATE]), (3.0, 2.0));
        (6..1000)
            .for_each(|ns| rows.push(Time::from_nanos(ns), if ns % 2 == 0 { row(4.0) } else { metrics }));
        assert!(rows.values.iter().all(|row| row[index::DELIVERY_RATE].is_finite()));
    }
}
