//! Totals by controller.

use crate::connection::{Connection, optional_bps};
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// Totals of the connections of one controller.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Total {
    /// Controller; empty for sockets without one.
    pub controller: String,
    /// Number of connections.
    pub connections: usize,
    /// Payload acknowledged since the previous sample, bit/s.
    #[serde(rename = "sending_bps", serialize_with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub sending: Option<Rate>,
    /// Payload received since the previous sample, bit/s.
    #[serde(rename = "receiving_bps", serialize_with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub receiving: Option<Rate>,
    /// Retransmitted share of the data segments sent since then; none if none was sent.
    #[serde(rename = "retransmitted_ratio")]
    pub retransmitted: Option<f64>,
    /// Median of the smoothed round-trip times, in milliseconds.
    pub srtt_p50_ms: Option<f64>,
    /// Median queueing delay (smoothed minus minimum RTT), in milliseconds.
    pub queueing_p50_ms: Option<f64>,
    /// Version of BBR, as its connections report it; none for other controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bbr_version: Option<u8>,
    /// Connections by state of the controller, where known; most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StateCount>,
}

/// The connections in one state of their controller.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct StateCount {
    /// The state.
    pub state: String,
    /// Number of connections in it.
    pub connections: usize,
}

/// Data segments sent since the previous sample, and retransmissions among them.
pub(crate) type Sent = (u64, u64);

/// Totals by controller, most connections first.
pub(crate) fn totals<'a>(connections: impl Iterator<Item = (&'a Connection, Option<Sent>)>) -> Vec<Total> {
    #[derive(Default)]
    struct Sum {
        connections: usize,
        rates: [Option<u64>; 2],
        sent: Sent,
        srtt: Vec<Span>,
        queueing: Vec<Span>,
        bbr_version: Option<u8>,
        states: BTreeMap<String, usize>,
    }
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (connection, sent) in connections {
        let sum = sums.entry(connection.controller.as_deref().unwrap_or("")).or_default();
        sum.connections += 1;
        for (total, rate) in sum.rates.iter_mut().zip([connection.sending, connection.receiving]) {
            if let Some(rate) = rate {
                *total = Some(total.unwrap_or(0).saturating_add(rate.as_bytes_per_sec()));
            }
        }
        let (segments, retransmitted) = sent.unwrap_or((0, 0));
        sum.sent = (sum.sent.0 + segments, sum.sent.1 + retransmitted);
        sum.srtt.extend(connection.figures.as_ref().map(|f| f.srtt).filter(|s| !s.is_zero()));
        sum.queueing.extend(connection.queueing());
        if let Some(model) = &connection.model {
            sum.bbr_version = sum.bbr_version.or(model.version);
            if let Some(state) = &model.state {
                *sum.states.entry(state.clone()).or_default() += 1;
            }
        }
    }
    let mut totals: Vec<Total> = sums
        .into_iter()
        .map(|(controller, mut sum)| Total {
            controller: controller.to_owned(),
            connections: sum.connections,
            sending: sum.rates[0].map(Rate::from_bytes_per_sec),
            receiving: sum.rates[1].map(Rate::from_bytes_per_sec),
            retransmitted: ratio(sum.sent),
            srtt_p50_ms: median(&mut sum.srtt),
            queueing_p50_ms: median(&mut sum.queueing),
            bbr_version: sum.bbr_version,
            states: most_first(sum.states),
        })
        .collect();
    totals.sort_by_key(|t| std::cmp::Reverse(t.connections));
    totals
}

fn most_first(states: BTreeMap<String, usize>) -> Vec<StateCount> {
    let counts = states.into_iter().map(|(state, connections)| StateCount { state, connections });
    let mut counts: Vec<StateCount> = counts.collect();
    counts.sort_by_key(|count| std::cmp::Reverse(count.connections));
    counts
}

/// The retransmitted share; `None` if nothing was sent.
pub(crate) fn ratio((sent, retransmitted): Sent) -> Option<f64> {
    (sent > 0).then(|| retransmitted as f64 / sent as f64)
}

fn median(spans: &mut [Span]) -> Option<f64> {
    let middle = spans.len() / 2;
    (!spans.is_empty()).then(|| spans.select_nth_unstable(middle).1.as_millis_f64())
}
