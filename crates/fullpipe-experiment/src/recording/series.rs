//! Values over time, a column a quantity.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Names of the columns that engines write and reports know, with the unit at the end of each name.
pub mod column {
    /// Payload that reached the receiving end since the last row, in bits per second: in the simulator as it arrived,
    /// from an application as it was delivered in order.
    pub const GOODPUT_BPS: &str = "goodput_bps";
    /// Latest round-trip time in milliseconds.
    pub const RTT_MS: &str = "rtt_ms";
    /// Smoothed round-trip time in milliseconds.
    pub const SRTT_MS: &str = "srtt_ms";
    /// The controller's round-trip propagation estimate in milliseconds.
    pub const MIN_RTT_MS: &str = "min_rtt_ms";
    /// Payload bytes in flight.
    pub const INFLIGHT_BYTES: &str = "inflight_bytes";
    /// Congestion window in bytes.
    pub const CWND_BYTES: &str = "cwnd_bytes";
    /// Slow-start threshold in bytes.
    pub const SSTHRESH_BYTES: &str = "ssthresh_bytes";
    /// Pacing rate in bits per second.
    pub const PACING_BPS: &str = "pacing_bps";
    /// The controller's bandwidth estimate in bits per second: of payload, as it counts what is delivered, where a link's
    /// [`RATE_BPS`] is of whole packets (1448 bytes of 1500 at most).
    pub const BW_BPS: &str = "bw_bps";
    /// BBR v3's `max_bw` in bits per second of payload: the best delivery rate of the last two cycles, which `bw_bps` is at most.
    pub const MAX_BW_BPS: &str = "max_bw_bps";
    /// BBR v3's `bw_shortterm` in bits per second of payload: what losses of this cycle bound the estimate to.
    pub const BW_SHORTTERM_BPS: &str = "bw_shortterm_bps";
    /// Delivery-rate sample of the latest ACK in bits per second.
    pub const DELIVERY_RATE_BPS: &str = "delivery_rate_bps";
    /// Pacing gain.
    pub const PACING_GAIN: &str = "pacing_gain";
    /// Window gain.
    pub const CWND_GAIN: &str = "cwnd_gain";
    /// BBR v3's long-term bound on inflight in bytes.
    pub const INFLIGHT_LONGTERM_BYTES: &str = "inflight_longterm_bytes";
    /// BBR v3's short-term bound on inflight in bytes.
    pub const INFLIGHT_SHORTTERM_BYTES: &str = "inflight_shortterm_bytes";
    /// Packet-timed round trips the controller has counted.
    pub const ROUNDS: &str = "rounds";
    /// Payload bytes delivered so far.
    pub const DELIVERED_BYTES: &str = "delivered_bytes";
    /// Data packets sent so far.
    pub const SENT_PACKETS: &str = "sent_packets";
    /// Retransmissions so far.
    pub const RETRANSMITTED_PACKETS: &str = "retransmitted_packets";
    /// Packets marked lost by the sender so far, some of them wrongly. A summary's `packets_lost` are those that the path
    /// lost or dropped.
    pub const LOST_PACKETS: &str = "lost_packets";
    /// Bytes in a link's queue.
    pub const QUEUE_BYTES: &str = "queue_bytes";
    /// A link's rate in bits per second.
    pub const RATE_BPS: &str = "rate_bps";
    /// Packets a link dropped so far.
    pub const DROPPED_PACKETS: &str = "dropped_packets";
}

/// Values sampled at common times.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Series {
    /// Times in seconds of the run, rising.
    pub t_s: Vec<f64>,
    /// The quantities, each with one value a time.
    pub columns: Vec<Column>,
}

/// One quantity over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// Its name, one of [`mod@column`] where the quantity is known there; the unit is its last part.
    pub name: String,
    /// One value a time; NaN (in JSON: null) where there is none.
    #[serde(with = "nullable")]
    #[schemars(with = "Vec<Option<f64>>")]
    pub values: Vec<f64>,
}

impl Series {
    /// No rows yet, with these columns.
    pub fn with_columns<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let columns = names.into_iter().map(|n| Column { name: n.to_owned(), values: Vec::new() }).collect();
        Series { t_s: Vec::new(), columns }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.t_s.is_empty()
    }

    /// The same without columns that have no value at any time.
    pub fn without_empty_columns(mut self) -> Self {
        self.columns.retain(|c| c.values.iter().any(|v| v.is_finite()));
        self
    }

    /// Adds the row at `t_s`, one value a column in their order; missing values become NaN.
    pub fn push(&mut self, t_s: f64, row: &[f64]) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.t_s.push(t_s);
        for (i, column) in self.columns.iter_mut().enumerate() {
            column.values.push(row.get(i).copied().unwrap_or(f64::NAN));
        }
    }

    /// The values of the column `name`, if there is one.
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        self.columns.iter().find(|c| c.name == name).map(|c| c.values.as_slice())
    }

    /// The finite values of the column `name` with their times, where from < t ≤ to.
    pub fn points(&self, name: &str, from: f64, to: f64) -> Vec<(f64, f64)> {
        let values = self.get(name).unwrap_or(&[]);
        let all = self.t_s.iter().copied().zip(values.iter().copied());
        all.filter(|(t, v)| *t > from && *t <= to && v.is_finite()).collect()
    }

    /// The values of [`points`](Self::points) alone.
    pub fn values(&self, name: &str, from: f64, to: f64) -> Vec<f64> {
        self.points(name, from, to).into_iter().map(|(_, v)| v).collect()
    }
}

/// A recording comes from anybody: what reads a series counts on a value for each time, and on times that do not go back.
impl<'de> Deserialize<'de> for Series {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Unchecked {
            t_s: Vec<f64>,
            columns: Vec<Column>,
        }
        let Unchecked { t_s, columns } = Unchecked::deserialize(d)?;
        if let Some(Column { name, values }) = columns.iter().find(|c| c.values.len() != t_s.len()) {
            let (values, times) = (values.len(), t_s.len());
            return Err(D::Error::custom(format!("column `{name}` has {values} values for {times} times")));
        }
        if !t_s.is_sorted() {
            return Err(D::Error::custom("the times of a series go back"));
        }
        Ok(Series { t_s, columns })
    }
}

/// JSON has no NaN: write null, read null.
mod nullable {
    use serde::ser::SerializeSeq;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &[f64], s: S) -> Result<S::Ok, S::Error> {
        let mut seq = s.serialize_seq(Some(values.len()))?;
        for v in values {
            seq.serialize_element(&v.is_finite().then_some(*v))?;
        }
        seq.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<f64>, D::Error> {
        let values: Vec<Option<f64>> = Vec::deserialize(d)?;
        Ok(values.into_iter().map(|v| v.unwrap_or(f64::NAN)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_finite_and_later_than_from() {
        let mut s = Series::with_columns([column::RTT_MS]);
        for (t, rtt) in [(0.0, 40.0), (1.0, 41.0), (2.0, f64::NAN), (3.0, 43.0), (4.0, 44.0)] {
            s.push(t, &[rtt]);
        }
        assert_eq!(s.points(column::RTT_MS, 0.0, 3.0), [(1.0, 41.0), (3.0, 43.0)]);
        assert_eq!(s.values(column::RTT_MS, 3.0, f64::INFINITY), [44.0]);
        assert!(s.points(column::BW_BPS, 0.0, 3.0).is_empty());
    }

    #[test]
    fn a_missing_value_survives_json() {
        let mut s = Series::with_columns([column::RTT_MS, column::BW_BPS]);
        s.push(0.0, &[40.0, f64::NAN]);
        let text = serde_json::to_string(&s).unwrap();
        assert!(text.contains("null"), "{text}");
        let back: Series = serde_json::from_str(&text).unwrap();
        assert_eq!(back.get(column::RTT_MS), Some(&[40.0][..]));
        assert!(back.get(column::BW_BPS).unwrap()[0].is_nan());
    }

    #[test]
    fn a_series_without_a_value_for_each_time_is_refused() {
        let read = |text: &str| serde_json::from_str::<Series>(text).map_err(|e| e.to_string());
        let short = read(r#"{"t_s": [0, 1], "columns": [{"name": "rtt_ms", "values": [40]}]}"#);
        assert!(short.unwrap_err().contains("column `rtt_ms` has 1 values for 2 times"));
        let back = read(r#"{"t_s": [1, 0.5], "columns": []}"#);
        assert!(back.unwrap_err().contains("go back"));
        assert!(
            read(r#"{"t_s": [0, 1, 1], "columns": [{"name": "rtt_ms", "values": [40, null, 41]}]}"#).is_ok()
        );
    }
}
