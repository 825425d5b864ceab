//! Figures of a run or a flow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Figures of a run or a flow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Measured time in seconds; for a flow, from its start to its end.
    pub duration_s: f64,
    /// Payload received, each byte counted once, in bits per second of `duration_s`. Simulator and
    /// lab count it on arrival; tests of applications count it when delivered in order.
    pub goodput_bps: f64,
    /// Goodput relative to the bottleneck's goodput limit, 0 to 1; `None` if the path has no known
    /// rate.
    pub utilization: Option<f64>,
    /// Payload bytes received, counted as in `goodput_bps`.
    pub bytes_delivered: u64,
    /// Data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Retransmissions.
    pub packets_retransmitted: u64,
    /// Data packets that the path lost or dropped (ground truth where the engine has it). Losses as
    /// seen by the sender are in the series, as `lost_packets`.
    pub packets_lost: u64,
    /// Round-trip times measured by the senders, in milliseconds.
    pub rtt_ms: Quantiles,
    /// Queueing delay of data packets at the bottleneck, in milliseconds.
    pub queue_ms: QueueQuantiles,
    /// For flows with a `size`: time from the start until the last byte is delivered, in seconds.
    pub completion_s: Option<f64>,
}

/// A distribution of round-trip times in milliseconds. `None` without a sample.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Minimum.
    pub min: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
}

/// A distribution of queueing delays in milliseconds. `None` where the engine cannot see the queue.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct QueueQuantiles {
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// Maximum.
    pub max: Option<f64>,
}

impl Summary {
    /// Sums several flows over `duration_s`. Utilization and distributions cannot be derived from
    /// the flows' figures and stay empty.
    pub fn total<'a>(flows: impl Iterator<Item = &'a Summary> + Clone, duration_s: f64) -> Summary {
        let sum = |of: fn(&Summary) -> u64| flows.clone().map(of).sum::<u64>();
        let bytes_delivered = sum(|f| f.bytes_delivered);
        let slowest = |most: f64, flow: &Summary| flow.completion_s.map(|s| most.max(s));
        Summary {
            duration_s,
            goodput_bps: per_second(bytes_delivered, duration_s),
            utilization: None,
            bytes_delivered,
            packets_sent: sum(|f| f.packets_sent),
            packets_retransmitted: sum(|f| f.packets_retransmitted),
            packets_lost: sum(|f| f.packets_lost),
            rtt_ms: Quantiles::default(),
            queue_ms: QueueQuantiles::default(),
            completion_s: flows.clone().try_fold(0.0, slowest),
        }
    }
}

/// `bytes` in `seconds` as bits per second.
pub fn per_second(bytes: u64, seconds: f64) -> f64 {
    if seconds == 0.0 { 0.0 } else { bytes as f64 * 8.0 / seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_completes_with_its_slowest_flow() {
        let flow =
            |bytes_delivered, completion_s| Summary { bytes_delivered, completion_s, ..Summary::default() };
        let total = |flows: &[Summary]| Summary::total(flows.iter(), 2.0);
        let both = total(&[flow(1000, Some(1.5)), flow(500, Some(1.0))]);
        assert_eq!((both.bytes_delivered, both.goodput_bps, both.completion_s), (1500, 6000.0, Some(1.5)));
        assert_eq!(total(&[flow(1, Some(1.0)), flow(1, None)]).completion_s, None);
    }
}
