//! Time series, with one column per quantity.

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Names of the columns that engines write and reports read; each name ends with its unit.
pub mod column {
    /// Payload received since the last row, in bits per second: in the simulator on arrival, for an
    /// application when delivered in order.
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
    /// The controller's bandwidth estimate in bits per second of payload. A link's [`RATE_BPS`]
    /// counts whole packets, of which at most 1448 of 1500 bytes are payload.
    pub const BW_BPS: &str = "bw_bps";
    /// BBR v3's `max_bw` in bits per second of payload: the highest delivery rate of the last two
    /// cycles, an upper bound of `bw_bps`.
    pub const MAX_BW_BPS: &str = "max_bw_bps";
    /// BBR v3's `bw_shortterm` in bits per second of payload: the bound set by losses of this
    /// cycle.
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
    /// Packets marked lost by the sender so far, including spurious losses. A summary's
    /// `packets_lost` counts those that the path lost or dropped.
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
    /// Times in seconds of the run, ascending.
    pub t_s: Vec<f64>,
    /// The quantities, with one value per time.
    pub columns: Vec<Column>,
}

/// One quantity over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Column {
    /// Its name, from [`mod@column`] if listed there; the last part is the unit.
    pub name: String,
    /// One value per time; NaN (in JSON: null) where there is none.
    #[serde(with = "nullable")]
    #[schemars(with = "Vec<Option<f64>>")]
    pub values: Vec<f64>,
}

impl Series {
    /// An empty series with these columns.
    pub fn with_columns<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let columns = names.into_iter().map(|n| Column { name: n.to_owned(), values: Vec::new() }).collect();
        Series { t_s: Vec::new(), columns }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.t_s.is_empty()
    }

    /// Removes columns without any value.
    pub fn without_empty_columns(mut self) -> Self {
        self.columns.retain(|c| c.values.iter().any(|v| v.is_finite()));
        self
    }

    /// Appends the row at `t_s`, with one value per column; missing values become NaN.
    pub fn push(&mut self, t_s: f64, row: &[f64]) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.t_s.push(t_s);
        for (i, column) in self.columns.iter_mut().enumerate() {
            column.values.push(row.get(i).copied().unwrap_or(f64::NAN));
        }
    }

    /// The values of the column `name`, if it exists.
    pub fn get(&self, name: &str) -> Option<&[f64]> {
        self.columns.iter().find(|c| c.name == name).map(|c| c.values.as_slice())
    }

    /// The finite values of the column `name` with their times, where from < t ≤ to.
    pub fn points(&self, name: &str, from: f64, to: f64) -> Vec<(f64, f64)> {
        let first = self.t_s.partition_point(|t| *t <= from);
        let values = self.get(name).and_then(|v| v.get(first..)).unwrap_or(&[]);
        let later = self.t_s[first..].iter().copied().zip(values.iter().copied());
        later.take_while(|(t, _)| *t <= to).filter(|(_, v)| v.is_finite()).collect()
    }

    /// The values of [`points`](Self::points) alone.
    pub fn values(&self, name: &str, from: f64, to: f64) -> Vec<f64> {
        self.points(name, from, to).into_iter().map(|(_, v)| v).collect()
    }
}

/// Recordings may come from untrusted files: readers rely on one value per time and ascending
/// times.
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
            return Err(D::Error::custom("the times of a series are not ascending"));
        }
        Ok(Series { t_s, columns })
    }
}

/// JSON has no NaN: write and read null instead.
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
    fn points_are_finite_and_after_from() {
        let mut s = Series::with_columns([column::RTT_MS]);
        for (t, rtt) in [(0.0, 40.0), (1.0, 41.0), (2.0, f64::NAN), (3.0, 43.0), (4.0, 44.0)] {
            s.push(t, &[rtt]);
        }
        assert_eq!(s.points(column::RTT_MS, 0.0, 3.0), [(1.0, 41.0), (3.0, 43.0)]);
        assert_eq!(s.values(column::RTT_MS, 3.0, f64::INFINITY), [44.0]);
        assert!(s.points(column::BW_BPS, 0.0, 3.0).is_empty());
    }

    #[test]
    fn missing_value_survives_json() {
        let mut s = Series::with_columns([column::RTT_MS, column::BW_BPS]);
        s.push(0.0, &[40.0, f64::NAN]);
        let text = serde_json::to_string(&s).unwrap();
        assert!(text.contains("null"), "{text}");
        let back: Series = serde_json::from_str(&text).unwrap();
        assert_eq!(back.get(column::RTT_MS), Some(&[40.0][..]));
        assert!(back.get(column::BW_BPS).unwrap()[0].is_nan());
    }

    #[test]
    fn malformed_series_is_rejected() {
        let read = |text: &str| serde_json::from_str::<Series>(text).map_err(|e| e.to_string());
        let short = read(r#"{"t_s": [0, 1], "columns": [{"name": "rtt_ms", "values": [40]}]}"#);
        assert!(short.unwrap_err().contains("column `rtt_ms` has 1 values for 2 times"));
        let back = read(r#"{"t_s": [1, 0.5], "columns": []}"#);
        assert!(back.unwrap_err().contains("not ascending"));
        assert!(
            read(r#"{"t_s": [0, 1, 1], "columns": [{"name": "rtt_ms", "values": [40, null, 41]}]}"#).is_ok()
        );
    }
}
