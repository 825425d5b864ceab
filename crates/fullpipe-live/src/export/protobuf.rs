//! The protobuf exposition format, which carries native histograms: delimited messages of
//! `io.prometheus.client` (client_model, `metrics.proto`).
//!
//! Only the fields written here are defined; all others are optional.

use super::family::{Family, Kind, Sample, Value};
use super::histogram::{Histogram, SCHEMA, ZERO_THRESHOLD};
use prost::Message;

/// Media type of this format.
pub const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// A gauge or a counter.
#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, tag = "1")]
    value: f64,
    /// Counters only.
    #[prost(message, tag = "3")]
    created: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative: u64,
    #[prost(double, tag = "2")]
    bound: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    /// From bucket 0 for the first span, from the end of the previous span for others.
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Distribution {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    buckets: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero: u64,
    #[prost(message, repeated, tag = "12")]
    spans: Vec<Span>,
    /// Delta-encoded counts of the buckets in the spans.
    #[prost(sint64, repeated, tag = "13")]
    deltas: Vec<i64>,
    #[prost(message, tag = "15")]
    created: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, tag = "3")]
    counter: Option<Number>,
    #[prost(message, tag = "7")]
    histogram: Option<Distribution>,
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    /// 0 counter, 1 gauge, 4 histogram.
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metrics: Vec<Metric>,
    #[prost(string, tag = "5")]
    unit: String,
}

/// Encodes the families; families without samples are omitted.
pub fn write(families: &[Family]) -> Vec<u8> {
    let nonempty = families.iter().filter(|family| !family.samples.is_empty());
    nonempty.flat_map(|family| message(family).encode_length_delimited_to_vec()).collect()
}

fn message(family: &Family) -> MetricFamily {
    let (kind, suffix) = match family.metric.kind {
        Kind::Counter => (0, "_total"),
        Kind::Gauge => (1, ""),
        Kind::Histogram => (4, ""),
    };
    MetricFamily {
        name: format!("{}{suffix}", family.metric.name),
        help: family.metric.help.to_owned(),
        kind,
        metrics: family.samples.iter().map(|sample| metric(family.metric.kind, sample)).collect(),
        unit: family.metric.unit.to_owned(),
    }
}

fn metric(kind: Kind, sample: &Sample) -> Metric {
    let label = |(name, value): &(&str, String)| LabelPair { name: (*name).to_owned(), value: value.clone() };
    let created = sample.created.map(|s| Timestamp { seconds: s as i64, nanos: (s.fract() * 1e9) as i32 });
    let mut metric = Metric { labels: sample.labels.iter().map(label).collect(), ..Metric::default() };
    match (&sample.value, kind) {
        (Value::Number(value), Kind::Counter) => metric.counter = Some(Number { value: *value, created }),
        (Value::Number(value), _) => metric.gauge = Some(Number { value: *value, created: None }),
        (Value::Distribution(histogram), _) => metric.histogram = Some(distribution(histogram, created)),
    }
    metric
}

fn distribution(histogram: &Histogram, created: Option<Timestamp>) -> Distribution {
    let (mut spans, mut deltas): (Vec<Span>, Vec<i64>) = (Vec::new(), Vec::new());
    // The next bucket index, and the count of the previous bucket.
    let (mut next, mut last) = (0, 0);
    for (number, count) in histogram.native() {
        match spans.last_mut() {
            Some(span) if number == next => span.length += 1,
            _ => spans.push(Span { offset: number - next, length: 1 }),
        }
        deltas.push(count as i64 - last);
        (next, last) = (number + 1, count as i64);
    }
    // A histogram without spans would be read as a classic one (metrics.proto).
    if spans.is_empty() {
        spans.push(Span { offset: 0, length: 0 });
    }
    Distribution {
        count: histogram.count(),
        sum: histogram.sum(),
        buckets: histogram.cumulative().map(|(bound, cumulative)| Bucket { cumulative, bound }).collect(),
        schema: SCHEMA,
        zero_threshold: ZERO_THRESHOLD,
        zero: histogram.zero(),
        spans,
        deltas,
        created,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Metric as MetricDefinition;

    fn read(mut bytes: &[u8]) -> Vec<MetricFamily> {
        let mut families = Vec::new();
        while !bytes.is_empty() {
            families.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
        }
        families
    }

    #[test]
    fn encoded_families_decode_to_the_same_values() {
        let mut histogram = Histogram::new(&[1.0]);
        [0.0, 0.5, 0.5, 0.55, 8.0].into_iter().for_each(|v| histogram.observe(v));
        let sample =
            |value| Sample { labels: vec![("class", "a\"b".to_owned())], value, created: Some(17.5) };
        let families = [
            MetricDefinition::counter("x_bytes", "Bytes.", "bytes").family([sample(Value::Number(3.0))]),
            MetricDefinition::gauge("g", "A gauge.", "").family([Sample::number(Vec::new(), -1.0)]),
            MetricDefinition::gauge("nothing", "Has no samples.", "").family([]),
            MetricDefinition::histogram("y_seconds", "Time.", "seconds")
                .family([sample(Value::Distribution(histogram))]),
        ];
        let families = read(&write(&families));
        let names: Vec<_> = families.iter().map(|f| (f.name.as_str(), f.kind)).collect();
        assert_eq!(names, [("x_bytes_total", 0), ("g", 1), ("y_seconds", 4)]);
        let counter = families[0].metrics[0].counter.as_ref().unwrap();
        let created = counter.created.as_ref().unwrap();
        assert_eq!((counter.value, created.seconds, created.nanos), (3.0, 17, 500_000_000));
        assert_eq!(families[0].metrics[0].labels[0].value, "a\"b");
        assert_eq!(families[1].metrics[0].gauge.as_ref().unwrap().value, -1.0);
        let y = families[2].metrics[0].histogram.as_ref().unwrap();
        assert_eq!((y.count, y.zero, y.schema), (5, 1, 3));
        // 0.5 is the bound of bucket -8; 0.55 is in (2^(-7/8), 2^(-6/8)] = (0.545, 0.595]; 8 is that of
        // bucket 24.
        let spans: Vec<_> = y.spans.iter().map(|s| (s.offset, s.length)).collect();
        assert_eq!((spans, &*y.deltas), (vec![(-8, 1), (1, 1), (29, 1)], &[2, -1, 0][..]));
        assert_eq!(y.buckets.iter().map(|b| b.cumulative).collect::<Vec<_>>(), [4, 5]);
    }

    #[test]
    fn an_empty_histogram_is_still_native() {
        let sample =
            Sample { labels: Vec::new(), value: Value::Distribution(Histogram::new(&[1.0])), created: None };
        let families = read(&write(&[MetricDefinition::histogram("y", "Time.", "").family([sample])]));
        let y = families[0].metrics[0].histogram.as_ref().unwrap();
        assert_eq!((y.spans.len(), y.spans[0].length, y.deltas.len()), (1, 0, 0));
    }
}
