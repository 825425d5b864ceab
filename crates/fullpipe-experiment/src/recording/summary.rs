//! A run or a flow in figures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A run or a flow in figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Length of the measured time in seconds: for a flow, from its start to its end.
    pub duration_s: f64,
    /// Payload that reached the receiving end, each byte once, in bits per second of `duration_s`. Simulator and lab
    /// count it as it arrives; who measures an application counts it as it is delivered in order.
    pub goodput_bps: f64,
    /// Goodput as a share of what the bottleneck's rate allows in payload, 0 to 1; none if the path has no known rate.
    pub utilization: Option<f64>,
    /// Payload bytes that reached the receiving end, counted as in `goodput_bps`.
    pub bytes_delivered: u64,
    /// Data packets sent, retransmissions included.
    pub packets_sent: u64,
    /// Retransmissions.
    pub packets_retransmitted: u64,
    /// Data packets that the path lost or dropped (ground truth where the engine has it). What the sender took for lost is
    /// in the series, as `lost_packets`.
    pub packets_lost: u64,
    /// Round-trip times seen by the senders, in milliseconds.
    pub rtt_ms: Quantiles,
    /// Time a data packet waited in the bottleneck's queue, in milliseconds.
    pub queue_ms: QueueQuantiles,
    /// For flows of a given size: from start to the last byte's delivery, in seconds.
    pub completion_s: Option<f64>,
}

/// A distribution of round-trip times in milliseconds. `None` without a sample.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Quantiles {
    /// Least.
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
    /// Most.
    pub max: Option<f64>,
}

impl Summary {
    /// Several flows together over `duration_s`. How much of the path that is, and the distributions, are not in the
    /// figures of the flows.
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
    fn a_total_is_done_when_its_slowest_flow_is() {
        let flow =
            |bytes_delivered, completion_s| Summary { bytes_delivered, completion_s, ..Summary::default() };
        let total = |flows: &[Summary]| Summary::total(flows.iter(), 2.0);
        let both = total(&[flow(1000, Some(1.5)), flow(500, Some(1.0))]);
        assert_eq!((both.bytes_delivered, both.goodput_bps, both.completion_s), (1500, 6000.0, Some(1.5)));
        assert_eq!(total(&[flow(1, Some(1.0)), flow(1, None)]).completion_s, None);
    }
}
