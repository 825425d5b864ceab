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

/// A metric with all its samples.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// Its name, without the endings that its kind gives it (`_total`).
    pub name: String,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// The unit, which is the end of the name; empty if it has none.
    pub unit: &'static str,
    /// Of metric.
    pub kind: Kind,
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

impl Family {
    /// A gauge with a single value.
    pub fn gauge(name: &str, help: &'static str, unit: &'static str, value: f64) -> Family {
        let sample = Sample { labels: Vec::new(), value: Value::Number(value), created: None };
        Family { name: name.to_owned(), help, unit, kind: Kind::Gauge, samples: vec![sample] }
    }

    /// Adds a sample to a gauge.
    pub fn and(mut self, labels: Vec<(&'static str, String)>, value: f64) -> Family {
        self.samples.push(Sample { labels, value: Value::Number(value), created: None });
        self
    }

    /// A family without samples.
    pub fn empty(name: &str, help: &'static str, unit: &'static str, kind: Kind) -> Family {
        Family { name: name.to_owned(), help, unit, kind, samples: Vec::new() }
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
    let Family { name, help, unit, kind, samples } = family;
    // The older format calls the family of a counter by the name of its samples.
    let heading = if *kind == Kind::Counter && !openmetrics { format!("{name}_total") } else { name.clone() };
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
        let families = [
            Family {
                samples: vec![Sample {
                    labels: labels.clone(),
                    value: Value::Number(3.0),
                    created: Some(17.5),
                }],
                ..Family::empty("x_bytes", "Bytes.", "bytes", Kind::Counter)
            },
            Family {
                samples: vec![Sample {
                    labels: Vec::new(),
                    value: Value::Distribution(histogram),
                    created: Some(17.5),
                }],
                ..Family::empty("y_seconds", "Time.", "seconds", Kind::Histogram)
            },
            Family::empty("nothing", "Has no samples.", "", Kind::Gauge),
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
