//! Metric families and their text formats: OpenMetrics 1.0 and Prometheus text format 0.0.4.

use super::histogram::Histogram;
use super::protobuf;
use std::fmt::Write as _;

/// Metric type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A value that can go up and down.
    Gauge,
    /// A value that only increases.
    Counter,
    /// A distribution.
    Histogram,
}

/// Definition of a metric.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    /// Name without the suffix of its type (`_total`).
    pub name: &'static str,
    /// HELP text, one sentence.
    pub help: &'static str,
    /// Unit, which is the suffix of the name; empty if none.
    pub unit: &'static str,
    /// Type.
    pub kind: Kind,
}

/// A metric with all its samples.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// The definition.
    pub metric: Metric,
    /// One sample per label set.
    pub samples: Vec<Sample>,
}

/// A value with its labels.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Label names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: Value,
    /// Creation time, Unix seconds; for counters and histograms.
    pub created: Option<f64>,
}

/// A number or a distribution.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Value of a gauge or counter.
    Number(f64),
    /// Value of a histogram.
    Distribution(Histogram),
}

/// One exposition in all formats.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Delimited protocol buffers, with native histograms.
    pub protobuf: Vec<u8>,
    /// `application/openmetrics-text; version=1.0.0`.
    pub openmetrics: String,
    /// `text/plain; version=0.0.4`.
    pub text: String,
}

impl Metric {
    /// Defines a gauge.
    pub const fn gauge(name: &'static str, help: &'static str, unit: &'static str) -> Metric {
        Metric { name, help, unit, kind: Kind::Gauge }
    }

    /// Defines a counter.
    pub const fn counter(name: &'static str, help: &'static str, unit: &'static str) -> Metric {
        Metric { name, help, unit, kind: Kind::Counter }
    }

    /// Defines a histogram.
    pub const fn histogram(name: &'static str, help: &'static str, unit: &'static str) -> Metric {
        Metric { name, help, unit, kind: Kind::Histogram }
    }

    /// A family of this metric with `samples`.
    pub fn family(self, samples: impl IntoIterator<Item = Sample>) -> Family {
        Family { metric: self, samples: samples.into_iter().collect() }
    }
}

impl Sample {
    /// A sample with a number.
    pub fn number(labels: Vec<(&'static str, String)>, value: f64) -> Sample {
        Sample { labels, value: Value::Number(value), created: None }
    }

    /// Sets the creation time, Unix seconds.
    pub fn created_at(self, created: f64) -> Sample {
        Sample { created: Some(created), ..self }
    }
}

impl Page {
    /// Renders the families in all formats; families without samples are omitted.
    pub fn render(families: &[Family]) -> Page {
        let (mut openmetrics, mut text) = (String::new(), String::new());
        for family in families.iter().filter(|f| !f.samples.is_empty()) {
            write(&mut openmetrics, family, true);
            write(&mut text, family, false);
        }
        openmetrics.push_str("# EOF\n");
        Page { protobuf: protobuf::write(families), openmetrics, text }
    }

    /// Number of series: lines that are not comments.
    pub fn series(&self) -> usize {
        self.openmetrics.lines().filter(|l| !l.starts_with('#')).count()
    }
}

fn write(out: &mut String, family: &Family, openmetrics: bool) {
    let Family { metric: Metric { name, help, unit, kind }, samples } = family;
    // Text format 0.0.4 names a counter's family after its samples.
    let heading =
        if *kind == Kind::Counter && !openmetrics { format!("{name}_total") } else { (*name).to_owned() };
    let kind_name = match kind {
        Kind::Gauge => "gauge",
        Kind::Counter => "counter",
        Kind::Histogram => "histogram",
    };
    let _ = writeln!(out, "# HELP {heading} {}", escaped(help));
    let _ = writeln!(out, "# TYPE {heading} {kind_name}");
    if openmetrics && !unit.is_empty() {
        let _ = writeln!(out, "# UNIT {heading} {unit}");
    }
    let suffix = if *kind == Kind::Counter { "_total" } else { "" };
    for sample in samples {
        let labels = |more: Option<(&str, String)>| {
            let all = sample.labels.iter().map(|(n, v)| (*n, v.clone())).chain(more);
            let all: Vec<String> = all.map(|(n, v)| format!("{n}=\"{}\"", escaped(&v))).collect();
            if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
        };
        match &sample.value {
            Value::Number(value) => {
                let _ = writeln!(out, "{name}{suffix}{} {}", labels(None), number(*value));
            }
            Value::Distribution(histogram) => {
                for (bound, count) in histogram.cumulative() {
                    let _ = writeln!(out, "{name}_bucket{} {count}", labels(Some(("le", number(bound)))));
                }
                let _ = writeln!(out, "{name}_sum{} {}", labels(None), number(histogram.sum()));
                let _ = writeln!(out, "{name}_count{} {}", labels(None), histogram.count());
            }
        }
        if let Some(created) = sample.created.filter(|_| openmetrics && *kind != Kind::Gauge) {
            let _ = writeln!(out, "{name}_created{} {}", labels(None), number(created));
        }
    }
}

/// OpenMetrics requires a decimal point (`1.0`) and a sign for infinity.
fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { format!("{value:?}") }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_text_formats_are_rendered_to_their_specification() {
        let labels = vec![("class", "a\"b\\c\nd".to_owned())];
        let mut histogram = Histogram::new(&[0.5, 1.0]);
        histogram.observe(0.7);
        let distribution =
            Sample { labels: Vec::new(), value: Value::Distribution(histogram), created: Some(17.5) };
        let families = [
            Metric::counter("x_bytes", "Bytes.", "bytes")
                .family([Sample::number(labels, 3.0).created_at(17.5)]),
            Metric::histogram("y_seconds", "Time.", "seconds").family([distribution]),
            Metric::gauge("nothing", "Has no samples.", "").family([]),
        ];
        let page = Page::render(&families);
        assert_eq!(
            page.openmetrics,
            "# HELP x_bytes Bytes.\n# TYPE x_bytes counter\n# UNIT x_bytes bytes\n\
             x_bytes_total{class=\"a\\\"b\\\\c\\nd\"} 3.0\nx_bytes_created{class=\"a\\\"b\\\\c\\nd\"} 17.5\n\
             # HELP y_seconds Time.\n# TYPE y_seconds histogram\n# UNIT y_seconds seconds\n\
             y_seconds_bucket{le=\"0.5\"} 0\ny_seconds_bucket{le=\"1.0\"} 1\n\
             y_seconds_bucket{le=\"+Inf\"} 1\n\
             y_seconds_sum 0.7\ny_seconds_count 1\ny_seconds_created 17.5\n# EOF\n"
        );
        assert!(
            page.text
                .starts_with("# HELP x_bytes_total Bytes.\n# TYPE x_bytes_total counter\nx_bytes_total{")
        );
        assert!(!page.text.contains("_created") && !page.text.contains("EOF"), "{}", page.text);
        assert_eq!(page.series(), 8);
    }
}
