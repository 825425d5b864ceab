//! The metrics that a sender reports.

use super::value::{Object, first, number};
use fullpipe_experiment::recording::column;

/// Number of metrics.
pub(super) const COUNT: usize = 15;

/// Index of a metric in [`METRICS`].
pub(super) mod index {
    pub(in super::super) const RTT: usize = 0;
    pub(in super::super) const MIN_RTT: usize = 2;
    pub(in super::super) const CWND: usize = 3;
    pub(in super::super) const INFLIGHT: usize = 4;
    pub(in super::super) const PACING: usize = 6;
    pub(in super::super) const BW: usize = 7;
    pub(in super::super) const MAX_BW: usize = 8;
    pub(in super::super) const BW_SHORTTERM: usize = 9;
}

/// What the numbers of a metric are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Milliseconds, or the unit of the log's times.
    Time,
    /// Bytes or bits per second, from 0 on.
    Amount,
}

/// A metric: its column, its names in qlog and in extensions, and its kind.
struct Metric {
    column: &'static str,
    names: &'static [&'static str],
    kind: Kind,
}

const fn metric(column: &'static str, names: &'static [&'static str], kind: Kind) -> Metric {
    Metric { column, names, kind }
}

const METRICS: [Metric; COUNT] = [
    metric(column::RTT_MS, &["latest_rtt"], Kind::Time),
    metric(column::SRTT_MS, &["smoothed_rtt"], Kind::Time),
    metric(column::MIN_RTT_MS, &["min_rtt"], Kind::Time),
    metric(column::CWND_BYTES, &["congestion_window", "cwnd", "current_cwnd"], Kind::Amount),
    metric(column::INFLIGHT_BYTES, &["bytes_in_flight"], Kind::Amount),
    metric(column::SSTHRESH_BYTES, &["ssthresh"], Kind::Amount),
    metric(column::PACING_BPS, &["pacing_rate"], Kind::Amount),
    metric(column::BW_BPS, &["bandwidth_estimate"], Kind::Amount),
    metric(column::MAX_BW_BPS, &["max_bw", "max_bw_bps"], Kind::Amount),
    metric(column::BW_SHORTTERM_BPS, &["bw_shortterm", "bw_shortterm_bps"], Kind::Amount),
    metric(
        column::INFLIGHT_LONGTERM_BYTES,
        &["inflight_longterm", "inflight_longterm_bytes", "inflight_hi"],
        Kind::Amount,
    ),
    metric(
        column::INFLIGHT_SHORTTERM_BYTES,
        &["inflight_shortterm", "inflight_shortterm_bytes", "inflight_lo"],
        Kind::Amount,
    ),
    metric(column::PACING_GAIN, &["pacing_gain"], Kind::Amount),
    metric(column::CWND_GAIN, &["cwnd_gain"], Kind::Amount),
    metric(column::ROUNDS, &["rounds", "round_count"], Kind::Amount),
];

/// The columns, in order.
pub(super) fn columns() -> impl Iterator<Item = &'static str> {
    METRICS.iter().map(|m| m.column)
}

/// The longest round-trip time that can be right: ten minutes.
const MAX_RTT_MS: f64 = 600_000.0;
/// The largest window and rate that can be right; stacks write the largest integer for "none".
const MAX_AMOUNT: f64 = 1e15;

/// 333 ms in milliseconds, microseconds and seconds.
const INITIAL_RTTS: [f64; 3] = [333.0, 333_000.0, INITIAL_RTT_SECONDS];
pub(super) const INITIAL_RTT_SECONDS: f64 = 0.333;

/// The latest value of each metric; NaN before the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metrics(pub(super) [f64; COUNT]);

impl Metrics {
    pub(super) fn new() -> Self {
        Metrics([f64::NAN; COUNT])
    }

    pub(super) fn get(&self, index: usize) -> Option<f64> {
        self.0.get(index).copied().filter(|v| v.is_finite())
    }

    /// Sets what `data` has. `scale`: milliseconds of a unit of time.
    pub(super) fn update(&mut self, data: &Object, scale: f64) -> Update {
        let mut update = Update::default();
        let is_initial = self.get(index::RTT).is_none() && initial_rtt(data).is_some();
        for (i, (metric, latest)) in METRICS.iter().zip(&mut self.0).enumerate() {
            let Some(written) = first(data, metric.names) else { continue };
            update.known += 1;
            if is_initial && metric.kind == Kind::Time {
                continue;
            }
            let value = number(written).map(|v| if metric.kind == Kind::Time { v * scale } else { v });
            let value = match value {
                // Before the first sample, stacks write 0.
                Some(0.0) if metric.kind == Kind::Time => continue,
                Some(v) if metric.kind == Kind::Time && v > 0.0 && v <= MAX_RTT_MS => v,
                // No bound.
                Some(v) if metric.kind == Kind::Amount && v > MAX_AMOUNT => f64::NAN,
                Some(v) if metric.kind == Kind::Amount && v >= 0.0 => v,
                _ => {
                    update.implausible += 1;
                    continue;
                }
            };
            (*latest, update.values[i]) = (value, Some(value).filter(|v| v.is_finite()));
        }
        let interval = |bytes: &[&str], interval: &[&str]| {
            let bytes = first(data, bytes).and_then(number)?;
            let ms = first(data, interval).and_then(number)? * scale;
            let rate = bytes * 8e3 / ms;
            (ms > 0.0 && (0.0..=MAX_AMOUNT).contains(&rate)).then_some(rate)
        };
        // mvfst writes rates as bytes in an interval.
        for (index, rate) in [
            (index::PACING, interval(&["pacing_burst_size"], &["pacing_interval"])),
            (index::BW, interval(&["bandwidth_bytes", "bytes"], &["bandwidth_interval", "interval"])),
            (index::MAX_BW, interval(&["bandwidth_hi_bytes"], &["bandwidth_hi_interval"])),
            (index::BW_SHORTTERM, interval(&["bandwidth_lo_bytes"], &["bandwidth_lo_interval"])),
        ] {
            if let Some(rate) = rate {
                update.known += 1;
                (self.0[index], update.values[index]) = (rate, Some(rate));
            }
        }
        update
    }
}

/// What an event has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Update {
    /// Its metrics, used or not.
    pub(super) known: usize,
    /// Values that cannot be right.
    pub(super) implausible: u64,
    /// The values that are used.
    values: [Option<f64>; COUNT],
}

impl Update {
    pub(super) fn get(&self, index: usize) -> Option<f64> {
        self.values.get(index).copied().flatten()
    }
}

/// The round-trip time that a sender assumes before the first sample (RFC 9002 §6.2.2), if `data` has
/// it as the latest and as the smoothed one.
pub(super) fn initial_rtt(data: &Object) -> Option<f64> {
    let [latest, smoothed] = ["latest_rtt", "smoothed_rtt"].map(|name| data.get(name).and_then(number));
    latest.filter(|rtt| latest == smoothed && INITIAL_RTTS.iter().any(|i| (rtt / i - 1.0).abs() < 1e-6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn updated(data: Value, scale: f64) -> (Metrics, (usize, u64)) {
        let mut metrics = Metrics::new();
        let update = metrics.update(data.as_object().unwrap(), scale);
        (metrics, (update.known, update.implausible))
    }

    #[test]
    fn names_of_all_stacks_give_one_metric() {
        for name in ["congestion_window", "cwnd", "current_cwnd"] {
            let (metrics, counts) = updated(json!({ name: "12000" }), 1.0);
            assert_eq!((metrics.get(index::CWND), counts), (Some(12_000.0), (1, 0)), "{name}");
        }
        let (metrics, _) = updated(json!({"latest_rtt": 40_250, "pacing_rate": 8000}), 1e-3);
        assert_eq!((metrics.get(index::RTT), metrics.get(index::PACING)), (Some(40.25), Some(8000.0)));
        let (metrics, _) = updated(json!({"bandwidth_bytes": 12_500, "bandwidth_interval": 1.0}), 1.0);
        assert_eq!(metrics.get(index::BW), Some(100e6));
    }

    #[test]
    fn impossible_values_are_counted_and_not_used() {
        let (metrics, counts) =
            updated(json!({"latest_rtt": -1, "cwnd": -5, "pacing_rate": [], "min_rtt": 0}), 1.0);
        assert_eq!(counts, (4, 3));
        assert!(metrics.0.iter().all(|v| v.is_nan()));
        let (metrics, counts) = updated(json!({"ssthresh": u64::MAX, "latest_rtt": 1e9}), 1.0);
        assert_eq!((counts, metrics.0.iter().all(|v| v.is_nan())), ((2, 1), true));
    }
}
