//! Compared metrics.

use crate::{Comparison, Outcome};
use serde::{Deserialize, Serialize};

/// A metric of a connection. All except [`Metric::Retransmitted`] are compared on a logarithmic
/// scale: they span decades, and differences become ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Payload delivered per busy time, of transfers.
    Goodput,
    /// Time until 100 kB were delivered.
    #[serde(rename = "deliver-100kB")]
    Deliver100kB,
    /// Time until 1 MB was delivered.
    #[serde(rename = "deliver-1MB")]
    Deliver1MB,
    /// Time until 10 MB were delivered.
    #[serde(rename = "deliver-10MB")]
    Deliver10MB,
    /// Mean smoothed RTT, of connections with samples.
    Rtt,
    /// Mean RTT relative to the minimum RTT, of transfers: queueing.
    Queueing,
    /// Retransmitted share of the bytes sent, of transfers.
    Retransmitted,
    /// CPU time of the host per gigabyte delivered, of periods (`--by time`); not per connection.
    Processor,
}

impl Metric {
    /// All metrics, in report order.
    pub const ALL: [Metric; 8] = [
        Metric::Goodput,
        Metric::Deliver100kB,
        Metric::Deliver1MB,
        Metric::Deliver10MB,
        Metric::Rtt,
        Metric::Queueing,
        Metric::Retransmitted,
        Metric::Processor,
    ];

    /// Name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Goodput => "goodput",
            Metric::Deliver100kB => "deliver-100kB",
            Metric::Deliver1MB => "deliver-1MB",
            Metric::Deliver10MB => "deliver-10MB",
            Metric::Rtt => "rtt",
            Metric::Queueing => "queueing",
            Metric::Retransmitted => "retransmitted",
            Metric::Processor => "processor",
        }
    }

    /// Whether larger is better.
    pub fn more_is_better(self) -> bool {
        self == Metric::Goodput
    }

    /// How it is compared: [`Metric::value`] returns natural logarithms, or shares.
    pub fn comparison(self) -> Comparison {
        if self == Metric::Retransmitted { Comparison::Difference } else { Comparison::Ratio }
    }

    /// The value of a connection on the scale of comparison, if any; connections that delivered at
    /// least `min_transfer` bytes count as transfers.
    pub fn value(self, o: &Outcome, min_transfer: u64) -> Option<f64> {
        let is_transfer = o.delivered_bytes >= min_transfer.max(1);
        let log = |x: f64| (x > 0.0 && x.is_finite()).then(|| x.ln());
        match self {
            Metric::Goodput if is_transfer => log(8.0 * o.delivered_bytes as f64 / o.busy_s),
            Metric::Deliver100kB => log(o.deliver_100kb_s?),
            Metric::Deliver1MB => log(o.deliver_1mb_s?),
            Metric::Deliver10MB => log(o.deliver_10mb_s?),
            Metric::Rtt => log(o.rtt_ms?),
            Metric::Queueing if is_transfer => log((o.rtt_ms? / o.min_rtt_ms?).max(1.0)),
            Metric::Retransmitted if is_transfer && o.sent_bytes > 0 => {
                Some((o.resent_bytes as f64 / o.sent_bytes as f64).min(1.0))
            }
            Metric::Goodput | Metric::Queueing | Metric::Retransmitted | Metric::Processor => None,
        }
    }

    /// Formats a level on its scale.
    pub fn level(self, value: f64) -> String {
        let three_digits = |x: f64| {
            let digits = if x >= 99.95 {
                0
            } else if x >= 9.995 {
                1
            } else {
                2
            };
            format!("{x:.digits$}")
        };
        match self {
            Metric::Goodput => {
                let bits = value.exp();
                let (unit, size) = match bits {
                    b if b >= 1e9 => ("Gbit/s", 1e9),
                    b if b >= 1e6 => ("Mbit/s", 1e6),
                    _ => ("kbit/s", 1e3),
                };
                format!("{} {unit}", three_digits(bits / size))
            }
            Metric::Deliver100kB | Metric::Deliver1MB | Metric::Deliver10MB => {
                let s = value.exp();
                if s < 1.0 {
                    format!("{} ms", three_digits(s * 1e3))
                } else {
                    format!("{} s", three_digits(s))
                }
            }
            Metric::Rtt => format!("{} ms", three_digits(value.exp())),
            Metric::Queueing => format!("×{:.2}", value.exp()),
            Metric::Retransmitted => format!("{:.2} %", value * 100.0),
            Metric::Processor => format!("{} s/GB", three_digits(value.exp())),
        }
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::example;

    #[test]
    fn metrics_have_their_defined_values() {
        let o = example(0, "198.51.100.1:5000");
        let value = |metric: Metric| metric.value(&o, 100_000).unwrap();
        assert_eq!(Metric::Goodput.level(value(Metric::Goodput)), "8.00 Mbit/s");
        assert_eq!(Metric::Rtt.level(value(Metric::Rtt)), "50.0 ms");
        assert_eq!(Metric::Queueing.level(value(Metric::Queueing)), "×1.25");
        assert_eq!(Metric::Retransmitted.level(value(Metric::Retransmitted)), "0.99 %");
        assert_eq!(Metric::Deliver100kB.level(value(Metric::Deliver100kB)), "200 ms");
        assert_eq!(Metric::Deliver10MB.value(&o, 0), None);
        for metric in [Metric::Goodput, Metric::Queueing, Metric::Retransmitted, Metric::Processor] {
            assert_eq!(metric.value(&o, 2_000_000), None, "{metric}: not a transfer");
        }
    }

    #[test]
    fn names_match_serialised_names() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
        }
    }
}
