//! The description of a link in a scenario file.

use std::fmt;

use fullpipe_units::{Fraction, Rate, Span};
use serde::{Deserialize, Deserializer, Serialize};

use crate::blackout::BlackoutSpec;
use crate::limit::Limit;
use crate::line::{AggregateSpec, JitterSpec, ReorderSpec};
use crate::loss::LossSpec;
use crate::policer::PolicerSpec;
use crate::queue::QueueSpec;
use crate::rate::{CellularSpec, Trace, TraceError, TraceSpec};

/// One link of a path, in one direction. All parts are optional; an empty link passes packets at
/// once.
///
/// A packet passes the parts in this order: loss at the ingress, policer, queue and rate,
/// blackouts, loss on the wire, delay with jitter and reordering, aggregation.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkSpec {
    /// A name for plots and messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Constant rate of L3 bytes (`"100mbit"`). Without a rate nothing queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// A recorded link in mahimahi's format, instead of `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSpec>,
    /// A link whose rate follows the demand, instead of `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cellular: Option<CellularSpec>,
    /// Changes of rate, delay or loss during the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<ScheduledChange>,
    /// One-way propagation delay.
    pub delay: Span,
    /// Random deviation of the delay.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "shorthand::jitter")]
    #[schemars(schema_with = "shorthand::jitter_schema")]
    pub jitter: Option<JitterSpec>,
    /// Packets that are delayed and overtaken by later ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<ReorderSpec>,
    /// Delivery in bursts, and thinning of acknowledgements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<AggregateSpec>,
    /// The queue in front of the rate (default: drop-tail of one BDP).
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "shorthand::queue")]
    #[schemars(schema_with = "shorthand::queue_schema")]
    pub queue: Option<QueueSpec>,
    /// Loss on the wire, behind the queue: lost packets have used capacity.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "shorthand::loss")]
    #[schemars(schema_with = "shorthand::loss_schema")]
    pub loss: Option<LossSpec>,
    /// Loss before the queue.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "shorthand::loss")]
    #[schemars(schema_with = "shorthand::loss_schema")]
    pub ingress_loss: Option<LossSpec>,
    /// A token-bucket policer before the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policer: Option<PolicerSpec>,
    /// Times during which the link is down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blackouts: Vec<BlackoutSpec>,
}

/// A change at a given time of the run. Values that are not written stay as they are. A schedule
/// may be in any order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduledChange {
    /// When, counted from the start of the run.
    pub at: Span,
    /// Duration of a linear ramp of rate and delay, in at most 100 steps. Without it they jump.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Span>,
    /// The rate from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The one-way delay from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// The share of packets lost on the wire from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Fraction>,
}

/// A change that the engine applies during the run. `None` leaves a value as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Index of the link in its chain, from 0.
    pub link: usize,
    /// The rate from then on.
    pub rate: Option<Rate>,
    /// The one-way delay from then on.
    pub delay: Option<Span>,
    /// The share of packets lost on the wire from then on.
    pub loss: Option<Fraction>,
}

impl LinkSpec {
    /// The rate that sizes buffers: the rate at the start, the mean of a trace, or the maximum of a
    /// cellular link. `None` for a link without a rate.
    pub fn nominal_rate(&self) -> Option<Rate> {
        match (&self.trace, &self.cellular) {
            (Some(TraceSpec::Inline(trace)), _) => Some(trace.mean_rate()),
            (_, Some(cellular)) => Some(cellular.max),
            _ => self.rate,
        }
    }

    /// The highest rate that it ever has: [`nominal_rate`](Self::nominal_rate) or a scheduled one.
    pub fn highest_rate(&self) -> Option<Rate> {
        let scheduled = self.schedule.iter().filter_map(|change| change.rate);
        self.nominal_rate().map(|rate| scheduled.fold(rate, Rate::max))
    }

    /// Replaces the name of a trace file by its contents, which `read` returns. Does nothing for a
    /// link without one. The crate itself opens no files.
    ///
    /// # Errors
    /// The error of `read`, or an invalid trace.
    pub fn load_trace<E: From<TraceError>>(
        &mut self,
        read: impl FnOnce(&str) -> Result<String, E>,
    ) -> Result<(), E> {
        if let Some(TraceSpec::File(name)) = &self.trace {
            self.trace = Some(TraceSpec::Inline(Trace::parse(&read(name)?)?));
        }
        Ok(())
    }
}

/// Deserializes a table with a `kind`, or text or a number by `short`.
struct Shorthand<V> {
    expecting: &'static str,
    short: fn(&str) -> Result<V, String>,
}

impl<'de, V: Deserialize<'de>> serde::de::Visitor<'de> for Shorthand<V> {
    type Value = V;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<V, E> {
        (self.short)(text).map_err(E::custom)
    }
    fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<V, E> {
        self.visit_str(&n.to_string())
    }
    fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<V, E> {
        self.visit_str(&n.to_string())
    }
    fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<V, E> {
        self.visit_str(&n.to_string())
    }
    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<V, A::Error> {
        V::deserialize(serde::de::value::MapAccessDeserializer::new(map))
    }
}

/// Queues, losses and jitter that may be written as text instead of a table: functions for serde's
/// `deserialize_with` and schemars' `schema_with`.
pub mod shorthand {
    use super::*;

    /// Deserializes a queue: a table with a `kind`, a kind alone, or the limit of a drop-tail
    /// queue.
    ///
    /// # Errors
    /// Invalid input; the error names the valid forms.
    pub fn queue<'de, D: Deserializer<'de>>(d: D) -> Result<Option<QueueSpec>, D::Error> {
        let short = |text: &str| {
            if let Some(spec) = QueueSpec::from_kind(text) {
                return Ok(spec);
            }
            text.parse::<Limit>().map(QueueSpec::from).map_err(|_| {
                let kinds: Vec<String> = QueueSpec::kinds().map(|(name, _)| format!("`{name}`")).collect();
                format!(
                    "`{text}` is neither a kind of queue ({}) nor the limit of a drop-tail queue \
                     (`1bdp`, `64k`, `100p`, `20ms`)",
                    kinds.join(", ")
                )
            })
        };
        d.deserialize_any(Shorthand { expecting: "a kind of queue, a limit or a table with a `kind`", short })
            .map(Some)
    }

    /// Deserializes a loss model: a table with a `kind`, or the share of packets lost at random.
    ///
    /// # Errors
    /// Invalid input; the error names the valid forms.
    pub fn loss<'de, D: Deserializer<'de>>(d: D) -> Result<Option<LossSpec>, D::Error> {
        let short = |text: &str| text.parse::<Fraction>().map(LossSpec::from).map_err(|e| e.to_string());
        d.deserialize_any(Shorthand { expecting: "a share such as `1%` or a table with a `kind`", short })
            .map(Some)
    }

    /// The schema of [`queue`].
    pub fn queue_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let kinds: Vec<String> = QueueSpec::kinds().map(|(name, _)| name).collect();
        schemars::json_schema!({
            "anyOf": [
                generator.subschema_for::<QueueSpec>(),
                { "type": "string", "enum": kinds, "description": "A kind of queue with its defaults" },
                generator.subschema_for::<Limit>(),
            ],
        })
    }

    /// Deserializes jitter: a table with a `spread`, or the largest deviation of a uniform
    /// distribution.
    ///
    /// # Errors
    /// Invalid input; the error names the valid forms.
    pub fn jitter<'de, D: Deserializer<'de>>(d: D) -> Result<Option<JitterSpec>, D::Error> {
        let short = |text: &str| text.parse::<Span>().map(JitterSpec::from).map_err(|e| e.to_string());
        d.deserialize_any(Shorthand { expecting: "a time such as `5ms` or a table with `spread`", short })
            .map(Some)
    }

    /// The schema of [`loss`].
    pub fn loss_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [generator.subschema_for::<LossSpec>(), generator.subschema_for::<Fraction>()],
        })
    }

    /// The schema of [`jitter`].
    pub fn jitter_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "anyOf": [generator.subschema_for::<JitterSpec>(), generator.subschema_for::<Span>()],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> LinkSpec {
        toml::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn a_link_is_read_in_all_shorthands() {
        let link = read("rate = '100mbit'\ndelay = '50ms'\nqueue = '1bdp'\nloss = '1%'");
        assert_eq!(link.rate, Some(Rate::from_bits_per_sec(100_000_000)));
        assert_eq!(link.queue, Some(QueueSpec::default()));
        assert_eq!(link.loss.unwrap().mean(), Some(0.01));
        let link = read("queue = { kind = 'drop-tail', limit = '100p' }\nloss = 0.02");
        assert_eq!(link.queue, Some(QueueSpec::from(Limit::Packets(100))));
        assert_eq!(link.loss.unwrap().mean(), Some(0.02));
        let link =
            read("schedule = [{ at = '20s', rate = '20mbit' }, { at = '40s', delay = '5ms', loss = '2%' }]");
        assert_eq!(link.schedule[1].delay, Some(Span::from_millis(5)));
        assert_eq!(read(""), LinkSpec::default());
    }

    #[test]
    fn a_link_survives_a_round_trip() {
        let link = read(
            "name = 'wifi'\nrate = '20mbit'\nqueue = '64k'\n\
             loss = { kind = 'gilbert-elliott', share = '1%', burst = 4.0 }\ntrace = { ms = [1, 2] }",
        );
        let json = serde_json::to_string(&link).unwrap();
        assert_eq!(serde_json::from_str::<LinkSpec>(&json).unwrap(), link);
        assert_eq!(toml::from_str::<LinkSpec>(&toml::to_string(&link).unwrap()).unwrap(), link);
    }

    #[test]
    fn invalid_values_are_named_with_the_valid_ones() {
        let error = |text: &str| toml::from_str::<LinkSpec>(text).unwrap_err().to_string();
        let e = error("queue = 'red'");
        assert!(e.contains("`red`") && e.contains("`drop-tail`") && e.contains("1bdp"), "{e}");
        let e = error("queue = { kind = 'red' }");
        assert!(e.contains("`red`") && e.contains("`drop-tail`"), "{e}");
        let e = error("queue = { kind = 'drop-tail', limt = '1bdp' }");
        assert!(e.contains("`limt`") && e.contains("`limit`"), "{e}");
        let e = error("loss = '101%'");
        assert!(e.contains("`101%`") && e.contains("between 0% and 100%"), "{e}");
        let e = error("dely = '1ms'");
        assert!(e.contains("`dely`") && e.contains("`delay`"), "{e}");
        assert!(error("rate = -5").contains("negative"));
    }

    #[test]
    fn a_trace_file_is_read_by_the_caller() {
        #[derive(Debug, PartialEq)]
        struct Failed(String);
        impl From<TraceError> for Failed {
            fn from(e: TraceError) -> Self {
                Failed(e.to_string())
            }
        }
        let mut link = read("trace = 'cell.trace'");
        assert_eq!(link.nominal_rate(), None);
        let e = link.clone().load_trace(|name| Err(Failed(name.into()))).unwrap_err();
        assert_eq!(e, Failed("cell.trace".into()));
        link.load_trace::<Failed>(|_| Ok("1\n2\n3\n".into())).unwrap();
        assert_eq!(link.nominal_rate(), Some(Rate::from_bits_per_sec(12_000_000)));
    }

    #[test]
    fn the_schema_allows_both_ways_of_writing() {
        let schema = serde_json::to_string(&schemars::schema_for!(LinkSpec)).unwrap();
        for needed in ["drop-tail", "gilbert-elliott", "Fraction", "Limit", "ingress_loss"] {
            assert!(schema.contains(needed), "{needed}");
        }
    }
}
