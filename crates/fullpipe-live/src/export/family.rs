//! Metrics, and how they are written as text: OpenMetrics 1.0 and Prometheus' older format 0.0.4.

use super::histogram::Histogram;
use super::protobuf;
use std::fmt::Write as _;

/// What kind of metric it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Goes up only.
    Counter,
    /// A distribution.
    Histogram,
}

/// What is counted or measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metric {
    /// Its name, without the endings that its kind gives it (`_total`).
    pub name: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// The unit, which is the end of the name; empty if it has none.
    pub unit: &'static str,
    /// Of metric.
    pub kind: Kind,
}

/// A metric with all its samples.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// What they are of.
    pub metric: Metric,
    /// One for each set of labels.
    pub samples: Vec<Sample>,
}

/// A value with its labels.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// What was counted or measured.
    pub value: Value,
    /// When counting began, in seconds since 1970; for counters and histograms.
    pub created: Option<f64>,
}

/// A number or a distribution.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Of a gauge or counter.
    Number(f64),
    /// Of a histogram.
    Distribution(Histogram),
}

/// What a scrape gets, in each form.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// Delimited protocol buffers, in which histograms are native ones, too.
    pub protobuf: Vec<u8>,
    /// `application/openmetrics-text; version=1.0.0`.
    pub openmetrics: String,
    /// `text/plain; version=0.0.4`.
    pub text: String,
}

impl Metric {
    /// What goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str, unit: &'static str) -> Metric {
        Metric { name, help, unit, kind: Kind::Gauge }
    }

    /// What goes up only.
    pub const fn counter(name: &'static str, help: &'static str, unit: &'static str) -> Metric {
        Metric { name, help, unit, kind: Kind::Counter }
    }

    /// A distribution.
    pub const fn histogram(name: &'static str, help: &'static str, unit: &'static str) -> Metric {
        Metric { name, help, unit, kind: Kind::Histogram }
    }

    /// The family of these samples.
    pub fn of(self, samples: impl IntoIterator<Item = Sample>) -> Family {
        Family { metric: self, samples: samples.into_iter().collect() }
    }
}

impl Sample {
    /// A number.
    pub fn number(labels: Vec<(&'static str, String)>, value: f64) -> Sample {
        Sample { labels, value: Value::Number(value), created: None }
    }

    /// The same, counted since `created`.
    pub fn since(self, created: f64) -> Sample {
        Sample { created: Some(created), ..self }
    }
}

impl Page {
    /// Writes the families; those without samples are left out.
    pub fn of(families: &[Family]) -> Page {
        let (mut openmetrics, mut text) = (String::new(), String::new());
        for family in families.iter().filter(|f| !f.samples.is_empty()) {
            write(&mut openmetrics, family, true);
            write(&mut text, family, false);
        }
        openmetrics.push_str("# EOF\n");
        Page { protobuf: protobuf::write(families), openmetrics, text }
    }

    /// How many series there are: lines that are no comments.
    pub fn series(&self) -> usize {
        self.openmetrics.lines().filter(|l| !l.starts_with('#')).count()
    }
}

fn write(out: &mut String, family: &Family, openmetrics: bool) {
    let Family { metric: Metric { name, help, unit, kind }, samples } = family;
    // The older format calls the family of a counter by the name of its samples.
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
    let ending = if *kind == Kind::Counter { "_total" } else { "" };
    for sample in samples {
        let labels = |more: Option<(&str, String)>| {
            let all = sample.labels.iter().map(|(n, v)| (*n, v.clone())).chain(more);
            let all: Vec<String> = all.map(|(n, v)| format!("{n}=\"{}\"", escaped(&v))).collect();
            if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
        };
        match &sample.value {
            Value::Number(value) => {
                let _ = writeln!(out, "{name}{ending}{} {}", labels(None), number(*value));
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

/// OpenMetrics asks for the point: `1.0`, and writes infinity with a sign.
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
    fn both_forms_are_written_as_their_readers_expect() {
        let labels = vec![("class", "a\"b\\c\nd".to_owned())];
        let mut histogram = Histogram::new(&[0.5, 1.0]);
        histogram.observe(0.7);
        let distribution =
            Sample { labels: Vec::new(), value: Value::Distribution(histogram), created: Some(17.5) };
        let families = [
            Metric::counter("x_bytes", "Bytes.", "bytes").of([Sample::number(labels, 3.0).since(17.5)]),
            Metric::histogram("y_seconds", "Time.", "seconds").of([distribution]),
            Metric::gauge("nothing", "Has no samples.", "").of([]),
        ];
        let page = Page::of(&families);
        assert_eq!(
            page.openmetrics,
            "# HELP x_bytes Bytes.\n# TYPE x_bytes counter\n# UNIT x_bytes bytes\n\
             x_bytes_total{class=\"a\\\"b\\\\c\\nd\"} 3.0\nx_bytes_created{class=\"a\\\"b\\\\c\\nd\"} 17.5\n\
             # HELP y_seconds Time.\n# TYPE y_seconds histogram\n# UNIT y_seconds seconds\n\
             y_seconds_bucket{le=\"0.5\"} 0\ny_seconds_bucket{le=\"1.0\"} 1\ny_seconds_bucket{le=\"+Inf\"} 1\n\
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
