//! Goodput, loss and drops of a run.

use crate::observed::Observed;
use crate::{Judgement, TestPath};
use fullpipe_experiment::recording::{Series, column};

/// Time in seconds in which a window that grows by one packet per round trip (RFC 5681 §3.1, RFC
/// 9002 §7.3.3) reaches the BDP of the path.
pub(super) fn ramp(path: &TestPath) -> f64 {
    path.rate.bytes_in(path.rtt) as f64 / 1500.0 * path.rtt.as_secs_f64()
}

/// Measurements of a run of one or several flows; shares and rates count payload.
impl Observed<'_> {
    /// Payload rate of the link at the start, bit/s.
    pub(super) fn link_limit(&self) -> f64 {
        self.run.path.goodput_limit_bps.unwrap_or(f64::NAN)
    }

    /// Payload that the receiver of each flow got between two times, bit/s.
    pub(super) fn received_by_flow(&self, from: f64, to: f64) -> Vec<f64> {
        self.run.flows.iter().map(|flow| mean(&flow.series, column::GOODPUT_BPS, from, to)).collect()
    }

    /// Share of the packets sent between two times that the bottleneck dropped.
    pub(super) fn lost_share(&self, from: f64, to: f64) -> f64 {
        let sent: f64 =
            self.run.flows.iter().map(|flow| grown(&flow.series, column::SENT_PACKETS, from, to)).sum();
        self.dropped(from, to) / sent.max(1.0)
    }

    /// Packets that the bottleneck dropped between two times; NaN if that is not recorded.
    fn dropped(&self, from: f64, to: f64) -> f64 {
        let drops = |series: &Series| {
            series.get(column::DROPPED_PACKETS).map(|_| grown(series, column::DROPPED_PACKETS, from, to))
        };
        self.run.links.first().and_then(|link| drops(&link.series)).unwrap_or(f64::NAN)
    }

    /// Expects that the receivers got at least `share` of `limit`, which `of` names.
    pub(super) fn receives(&self, c: &mut Judgement, of: &str, limit: f64, share: f64, from: f64, to: f64) {
        let found = self.received_by_flow(from, to).iter().sum::<f64>() / limit;
        let (percent, bound) = (100.0 * found, 100.0 * share);
        c.bounded(
            found >= share,
            format!("goodput {percent:.1} % of {of} from {from:.1} to {to:.1} s (at least {bound:.0} %)"),
        );
    }

    /// Expects that the bottleneck dropped at most `share` of the packets.
    pub(super) fn loses_at_most(&self, c: &mut Judgement, share: f64, from: f64, to: f64) {
        let found = self.lost_share(from, to);
        if found.is_nan() {
            return c.not_judged("the recording has no drop count of the bottleneck");
        }
        let (percent, bound) = (100.0 * found, 100.0 * share);
        c.bounded(
            found <= share,
            format!("{percent:.2} % of the packets lost from {from:.1} to {to:.1} s (at most {bound:.0} %)"),
        );
    }
}

/// The last value of a counter at or before `t`, 0 before the first row.
fn count(series: &Series, name: &str, t: f64) -> f64 {
    let rows = series.t_s.partition_point(|at| *at <= t + 1e-9);
    let values = series.get(name).and_then(|values| values.get(..rows)).unwrap_or(&[]);
    values.iter().rev().copied().find(|value| value.is_finite()).unwrap_or(0.0)
}

/// By how much a counter grew.
fn grown(series: &Series, name: &str, from: f64, to: f64) -> f64 {
    count(series, name, to) - count(series, name, from)
}

/// The mean over time of a rate whose rows hold the mean since the previous row.
fn mean(series: &Series, name: &str, from: f64, to: f64) -> f64 {
    let values = series.get(name).unwrap_or(&[]);
    let mut before = 0.0;
    let mut sum = 0.0;
    for (at, value) in series.t_s.iter().zip(values) {
        if *at > from + 1e-9 && *at <= to + 1e-9 && value.is_finite() {
            sum += value * (at - before);
        }
        before = *at;
    }
    sum / (to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rows: &[(f64, f64)]) -> Series {
        let mut series = Series::with_columns([column::GOODPUT_BPS]);
        rows.iter().for_each(|(at, value)| series.push(*at, &[*value]));
        series
    }

    #[test]
    fn a_rate_is_weighted_by_the_length_of_its_rows() {
        let rates = series(&[(1.0, 8.0), (2.0, 4.0), (4.0, 1.0)]);
        assert_eq!(mean(&rates, column::GOODPUT_BPS, 1.0, 4.0), 2.0);
        assert_eq!(mean(&rates, column::GOODPUT_BPS, 0.0, 2.0), 6.0);
        assert_eq!(mean(&rates, column::RTT_MS, 0.0, 2.0), 0.0);
    }

    #[test]
    fn a_counter_grows_from_its_last_value_before_the_interval() {
        let counter = series(&[(1.0, 10.0), (2.0, f64::NAN), (3.0, 25.0)]);
        assert_eq!(grown(&counter, column::GOODPUT_BPS, 2.5, 9.0), 15.0);
        assert_eq!(grown(&counter, column::GOODPUT_BPS, 0.5, 1.0), 10.0);
    }

    #[test]
    fn a_window_of_333_packets_grows_for_333_round_trips() {
        let path = TestPath { rate: "100mbit".parse().unwrap(), rtt: "40ms".parse().unwrap() };
        assert!((ramp(&path) - 333.3 * 0.04).abs() < 0.01);
    }
}
