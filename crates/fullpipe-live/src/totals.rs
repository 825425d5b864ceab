//! Connections together, by controller.

use crate::connection::{Connection, optional_bps};
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The connections that one controller drives.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Total {
    /// Its name; empty of sockets that have none yet.
    pub controller: String,
    /// How many connections there are.
    pub connections: usize,
    /// Payload acknowledged since the look before, per second.
    #[serde(rename = "sending_bps", serialize_with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub sending: Option<Rate>,
    /// Payload received since then, per second.
    #[serde(rename = "receiving_bps", serialize_with = "optional_bps")]
    #[schemars(with = "Option<f64>")]
    pub receiving: Option<Rate>,
    /// Segments sent again since then as a share of the data segments sent; none if none was sent.
    #[serde(rename = "retransmitted_ratio")]
    pub retransmitted: Option<f64>,
    /// Median of the smoothed round-trip times, in milliseconds.
    pub srtt_p50_ms: Option<f64>,
    /// Median of what these are above the least ones: the time in queues.
    pub queueing_p50_ms: Option<f64>,
}

/// Segments of a connection since the look before: sent, and of these sent again.
pub(crate) type Sent = (u64, u64);

/// Adds up by controller, those with most connections first.
pub(crate) fn totals<'a>(connections: impl Iterator<Item = (&'a Connection, Option<Sent>)>) -> Vec<Total> {
    #[derive(Default)]
    struct Sum {
        connections: usize,
        rates: [Option<u64>; 2],
        sent: Sent,
        srtt: Vec<Span>,
        queueing: Vec<Span>,
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
        let (segments, again) = sent.unwrap_or((0, 0));
        sum.sent = (sum.sent.0 + segments, sum.sent.1 + again);
        sum.srtt.extend(connection.figures.as_ref().map(|f| f.srtt).filter(|s| !s.is_zero()));
        sum.queueing.extend(connection.queueing());
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
        })
        .collect();
    totals.sort_by_key(|t| std::cmp::Reverse(t.connections));
    totals
}

/// The share that was sent again; none of nothing.
pub(crate) fn ratio((sent, again): Sent) -> Option<f64> {
    (sent > 0).then(|| again as f64 / sent as f64)
}

fn median(spans: &mut [Span]) -> Option<f64> {
    let middle = spans.len() / 2;
    (!spans.is_empty()).then(|| spans.select_nth_unstable(middle).1.as_millis_f64())
}
