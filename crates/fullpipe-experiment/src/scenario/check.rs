//! Bounds that make a run pass or fail.

use super::{Fault, Scenario};
use crate::recording::{CheckResult, FlowRecording, Recording, Series, column, jain};
use fullpipe_units::{Fraction, ParseError, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

/// One `[[check]]`: bounds on a run, or on some of its flows, or on a part of its time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Only these flows: a label or a controller. By default all of them together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// Only from this time of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Span>,
    /// Only to this time of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Span>,
    /// Only in the runs of a sweep with these values (`{ "flow.cc" = "bbr" }`).
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub case: BTreeMap<String, String>,
    /// Payload delivered per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput: Option<Bound<Rate>>,
    /// Goodput as a share of what the bottleneck can carry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<Bound<Fraction>>,
    /// Data packets lost on the path, as a share of those sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Bound<Fraction>>,
    /// Retransmissions as a share of the data packets sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<Bound<Fraction>>,
    /// Least round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_min: Option<Bound<Span>>,
    /// Median round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p50: Option<Bound<Span>>,
    /// 95th percentile of the round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p95: Option<Bound<Span>>,
    /// 99th percentile of the round-trip time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_p99: Option<Bound<Span>>,
    /// Median queueing delay at the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_p50: Option<Bound<Span>>,
    /// 95th percentile of the queueing delay at the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_p95: Option<Bound<Span>>,
    /// Longest queueing delay at the bottleneck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_max: Option<Bound<Span>>,
    /// Jain's index over the flows' goodputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<Bound<Fraction>>,
    /// Time until the last byte is delivered, for flows of a given size: of the slowest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<Bound<Span>>,
    /// These controller states are entered in this order; others may come between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<String>>,
    /// These controller states are never entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<Vec<String>>,
}

/// An interval that a quantity must lie in: `>= 85mbit`, `< 2%`, `35mbit .. 40mbit`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bound<Q> {
    low: Option<(Q, bool)>,
    high: Option<(Q, bool)>,
}

impl<Q: FromStr<Err = ParseError>> FromStr for Bound<Q> {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let t = text.trim();
        if let Some((low, high)) = t.split_once("..") {
            return Ok(Bound { low: Some((low.parse()?, true)), high: Some((high.parse()?, true)) });
        }
        for (operator, inclusive) in [(">=", true), (">", false)] {
            if let Some(rest) = t.strip_prefix(operator) {
                return Ok(Bound { low: Some((rest.parse()?, inclusive)), high: None });
            }
        }
        for (operator, inclusive) in [("<=", true), ("<", false)] {
            if let Some(rest) = t.strip_prefix(operator) {
                return Ok(Bound { low: None, high: Some((rest.parse()?, inclusive)) });
            }
        }
        Err(ParseError::new(text, "a bound begins with >=, >, <= or <, or is a range `low .. high`"))
    }
}

impl<Q: Display> Display for Bound<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.low, &self.high) {
            (Some((low, _)), Some((high, _))) => write!(f, "{low} .. {high}"),
            (Some((low, inclusive)), None) => write!(f, "{} {low}", if *inclusive { ">=" } else { ">" }),
            (None, Some((high, inclusive))) => write!(f, "{} {high}", if *inclusive { "<=" } else { "<" }),
            (None, None) => f.write_str("any"),
        }
    }
}

impl<Q: Display> Serialize for Bound<Q> {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de, Q: FromStr<Err = ParseError>> Deserialize<'de> for Bound<Q> {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<Q> JsonSchema for Bound<Q> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bound".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "examples": [">= 85mbit", "< 2%", "35ms .. 60ms"] })
    }
}

/// A quantity that can be held against a bound: as a plain number in the unit of the recording.
trait Measured: Display + Copy {
    fn number(self) -> f64;
    fn show(number: f64) -> String;
}

impl Measured for Rate {
    fn number(self) -> f64 {
        self.as_bits_per_sec_f64()
    }
    fn show(bps: f64) -> String {
        match bps {
            b if b >= 1e9 => format!("{:.3} Gbit/s", b / 1e9),
            b if b >= 1e6 => format!("{:.2} Mbit/s", b / 1e6),
            b => format!("{:.1} kbit/s", b / 1e3),
        }
    }
}

impl Measured for Fraction {
    fn number(self) -> f64 {
        self.as_f64()
    }
    fn show(share: f64) -> String {
        format!("{:.3}%", share * 100.0)
    }
}

impl Measured for Span {
    fn number(self) -> f64 {
        self.as_millis_f64()
    }
    fn show(ms: f64) -> String {
        if ms >= 10_000.0 { format!("{:.3} s", ms / 1e3) } else { format!("{ms:.2} ms") }
    }
}

fn holds<Q: Measured>(bound: &Bound<Q>, value: f64) -> bool {
    let low = bound.low.is_none_or(|(q, inclusive)| value > q.number() || (inclusive && value == q.number()));
    let high =
        bound.high.is_none_or(|(q, inclusive)| value < q.number() || (inclusive && value == q.number()));
    low && high && !value.is_nan()
}

impl Check {
    /// Whether this check is about the run of a sweep in which `varied` keys have these values.
    pub(super) fn applies_to(&self, varied: &[(String, String)]) -> bool {
        self.case.iter().all(|(key, value)| varied.iter().any(|(k, v)| k == key && v == value))
    }

    fn is_windowed(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    pub(super) fn validate(&self, scenario: &Scenario) -> Result<(), Fault> {
        let bounds = self.count();
        if bounds == 0 {
            return Err(Fault::new("", "a check without a bound checks nothing")
                .help("add one, such as goodput = \">= 85mbit\""));
        }
        if let Some(name) = &self.flow {
            let connections = scenario.connections();
            let known = |f: &super::FlowSpec| f.cc == *name || f.label.as_deref() == Some(name);
            if !connections.iter().any(known) {
                let labels: Vec<String> =
                    connections.iter().filter_map(|f| f.label.clone()).take(20).collect();
                return Err(Fault::new(
                    "flow",
                    format!("no flow is called `{name}`; there are: {}", labels.join(", ")),
                ));
            }
        }
        let end = self.to.unwrap_or(scenario.duration);
        if self.from.unwrap_or_default() >= end || end > scenario.duration {
            return Err(Fault::new(
                "from",
                format!(
                    "the window {} to {end} is empty or leaves the run of {}",
                    self.from.unwrap_or_default(),
                    scenario.duration
                ),
            ));
        }
        if self.is_windowed() {
            let whole = [
                ("queue_p50", self.queue_p50.is_some()),
                ("queue_p95", self.queue_p95.is_some()),
                ("queue_max", self.queue_max.is_some()),
                ("completion", self.completion.is_some()),
            ];
            if let Some((key, _)) = whole.iter().find(|(_, used)| *used) {
                return Err(Fault::new(key, "is known for the whole run only: drop `from` and `to`"));
            }
        }
        if self.fairness.is_some() && scenario.flows.iter().map(|f| f.count).sum::<u32>() < 2 {
            return Err(Fault::new("fairness", "needs at least two flows"));
        }
        Ok(())
    }

    fn count(&self) -> usize {
        [
            self.goodput.is_some(),
            self.utilization.is_some(),
            self.loss.is_some(),
            self.retransmitted.is_some(),
            self.rtt_min.is_some(),
            self.rtt_p50.is_some(),
            self.rtt_p95.is_some(),
            self.rtt_p99.is_some(),
            self.queue_p50.is_some(),
            self.queue_p95.is_some(),
            self.queue_max.is_some(),
            self.fairness.is_some(),
            self.completion.is_some(),
            self.states.is_some(),
            self.never.is_some(),
        ]
        .iter()
        .filter(|used| **used)
        .count()
    }

    /// Holds the check against a run: one result a bound.
    pub fn evaluate(&self, run: &Recording) -> Vec<CheckResult> {
        let flows: Vec<&FlowRecording> = run
            .flows
            .iter()
            .filter(|f| self.flow.as_ref().is_none_or(|name| f.cc == *name || f.label == *name))
            .collect();
        let mut judge = Judge { check: self, results: Vec::new() };
        let window = Window { from: self.from, to: self.to };
        let whole = !self.is_windowed();
        let sum = |value: &dyn Fn(&FlowRecording) -> f64| flows.iter().map(|f| value(f)).sum::<f64>();

        let goodputs: Vec<f64> = flows
            .iter()
            .map(|f| if whole { f.summary.goodput_bps } else { window.mean(&f.series, column::GOODPUT_BPS) })
            .collect();
        // All flows of the run together are the run: its own summary knows their common duration.
        let goodput =
            if whole && self.flow.is_none() { run.summary.goodput_bps } else { goodputs.iter().sum() };
        judge.bound("goodput", &self.goodput, Some(goodput));
        judge.bound(
            "utilization",
            &self.utilization,
            run.path.goodput_limit_bps.map(|limit| goodput / limit),
        );

        let (sent, lost, retransmitted) = if whole {
            (
                sum(&|f| f.summary.packets_sent as f64),
                sum(&|f| f.summary.packets_lost as f64),
                sum(&|f| f.summary.packets_retransmitted as f64),
            )
        } else {
            let rise = |name: &str| sum(&|f| window.rise(&f.series, name));
            (rise(column::SENT_PACKETS), rise(column::LOST_PACKETS), rise(column::RETRANSMITTED_PACKETS))
        };
        let of_sent = |n: f64| (sent > 0.0).then_some(n / sent);
        judge.bound("loss", &self.loss, of_sent(lost));
        judge.bound("retransmitted", &self.retransmitted, of_sent(retransmitted));

        let quantile = |q: f64, known: fn(&crate::recording::Quantiles) -> Option<f64>| {
            if whole && self.flow.is_none() {
                known(&run.summary.rtt_ms)
            } else if whole && flows.len() == 1 {
                known(&flows[0].summary.rtt_ms)
            } else {
                let mut values: Vec<f64> =
                    flows.iter().flat_map(|f| window.values(&f.series, column::RTT_MS)).collect();
                quantile_of(&mut values, q)
            }
        };
        judge.bound("rtt_min", &self.rtt_min, quantile(0.0, |r| r.min));
        judge.bound("rtt_p50", &self.rtt_p50, quantile(0.50, |r| r.p50));
        judge.bound("rtt_p95", &self.rtt_p95, quantile(0.95, |r| r.p95));
        judge.bound("rtt_p99", &self.rtt_p99, quantile(0.99, |r| r.p99));

        let queue = if flows.len() == 1 { flows[0].summary.queue_ms } else { run.summary.queue_ms };
        judge.bound("queue_p50", &self.queue_p50, queue.p50);
        judge.bound("queue_p95", &self.queue_p95, queue.p95);
        judge.bound("queue_max", &self.queue_max, queue.max);

        judge.bound("fairness", &self.fairness, Some(jain(&goodputs)));
        let sized: Option<f64> = flows
            .iter()
            .map(|f| f.summary.completion_s)
            .try_fold(0.0f64, |most, completion| completion.map(|c| most.max(c)));
        judge.bound("completion", &self.completion, sized.map(|s| s * 1e3));

        if let Some(wanted) = &self.states {
            for flow in &flows {
                let seen = window.states(flow);
                let mut rest = seen.iter();
                let passed = wanted.iter().all(|state| rest.any(|s| s == state));
                judge.say(format!("{}: states {}", flow.label, wanted.join(" → ")), shorten(&seen), passed);
            }
        }
        if let Some(forbidden) = &self.never {
            for flow in &flows {
                let seen = window.states(flow);
                let passed = !seen.iter().any(|s| forbidden.contains(s));
                judge.say(format!("{}: never {}", flow.label, forbidden.join(", ")), shorten(&seen), passed);
            }
        }
        judge.results
    }
}

/// A state sequence in words, without its tail if it is long.
fn shorten(states: &[String]) -> String {
    const SHOWN: usize = 12;
    let text = states.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" → ");
    if states.len() > SHOWN { format!("{text} → … ({} in all)", states.len()) } else { text }
}

struct Judge<'a> {
    check: &'a Check,
    results: Vec<CheckResult>,
}

impl Judge<'_> {
    fn bound<Q: Measured>(&mut self, name: &str, bound: &Option<Bound<Q>>, value: Option<f64>) {
        if let Some(bound) = bound {
            let measured = value.map_or_else(|| "nothing measured".to_owned(), Q::show);
            let passed = value.is_some_and(|v| holds(bound, v));
            self.say(format!("{name} {bound}"), measured, passed);
        }
    }

    fn say(&mut self, what: String, measured: String, passed: bool) {
        let flow = self.check.flow.as_ref().map(|f| format!("{f}: ")).unwrap_or_default();
        let window = match (self.check.from, self.check.to) {
            (None, None) => String::new(),
            (from, None) => format!(" from {}", from.unwrap_or_default()),
            (from, Some(to)) => format!(" from {} to {to}", from.unwrap_or_default()),
        };
        self.results.push(CheckResult { check: format!("{flow}{what}{window}"), measured, passed });
    }
}

/// A part of a run's time.
struct Window {
    from: Option<Span>,
    to: Option<Span>,
}

impl Window {
    fn contains(&self, t_s: f64) -> bool {
        self.from.is_none_or(|from| t_s > from.as_secs_f64())
            && self.to.is_none_or(|to| t_s <= to.as_secs_f64())
    }

    fn values<'a>(&'a self, series: &'a Series, name: &str) -> impl Iterator<Item = f64> + 'a {
        let values = series.get(name).unwrap_or(&[]);
        series.t_s.iter().zip(values).filter(|(t, v)| self.contains(**t) && v.is_finite()).map(|(_, v)| *v)
    }

    fn mean(&self, series: &Series, name: &str) -> f64 {
        let (sum, n) = self.values(series, name).fold((0.0, 0u32), |(s, n), v| (s + v, n + 1));
        if n == 0 { f64::NAN } else { sum / f64::from(n) }
    }

    /// How much a running count rose.
    fn rise(&self, series: &Series, name: &str) -> f64 {
        let last = self.values(series, name).last().unwrap_or(f64::NAN);
        let values = series.get(name).unwrap_or(&[]);
        let before = series
            .t_s
            .iter()
            .zip(values)
            .take_while(|(t, _)| self.from.is_some_and(|from| **t <= from.as_secs_f64()))
            .last()
            .map_or(0.0, |(_, v)| *v);
        last - before
    }

    /// The states a flow was in, the one at the window's start included.
    fn states(&self, flow: &FlowRecording) -> Vec<String> {
        let mut seen: Vec<String> = Vec::new();
        for (i, change) in flow.states.iter().enumerate() {
            let until = flow.states.get(i + 1).map_or(f64::INFINITY, |next| next.at_s);
            let begins_before_the_end = self.to.is_none_or(|to| change.at_s <= to.as_secs_f64());
            let ends_after_the_start = self.from.is_none_or(|from| until > from.as_secs_f64());
            if begins_before_the_end && ends_after_the_start {
                seen.push(change.state.clone());
            }
        }
        seen
    }
}

/// The `q`-quantile (nearest rank) of `values`.
fn quantile_of(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some(values[(last as f64 * q).round() as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Engine, PathFacts, Provenance, StateChange, Summary};

    fn run() -> Recording {
        let mut series = Series::with_columns([column::GOODPUT_BPS, column::RTT_MS]);
        for i in 1..=10 {
            series.push(f64::from(i), &[if i <= 5 { 10e6 } else { 20e6 }, 40.0 + f64::from(i)]);
        }
        let states = ["Startup", "Drain", "ProbeBW", "ProbeRTT"];
        let flow = FlowRecording {
            label: "bbr".into(),
            cc: "bbr".into(),
            start_s: 0.0,
            summary: Summary {
                goodput_bps: 15e6,
                packets_sent: 100,
                packets_retransmitted: 2,
                ..Summary::default()
            },
            series,
            states: states
                .iter()
                .zip(0..)
                .map(|(s, i)| StateChange { at_s: f64::from(i) * 3.0, state: (*s).into() })
                .collect(),
            events: Vec::new(),
        };
        Recording {
            label: "bbr".into(),
            engine: Engine::Sim,
            cc: "bbr".into(),
            seed: 1,
            valid: true,
            invalid_because: Vec::new(),
            summary: flow.summary.clone(),
            flows: vec![flow],
            links: Vec::new(),
            path: PathFacts { goodput_limit_bps: Some(20e6), ..PathFacts::default() },
            checks: Vec::new(),
            health: None,
            provenance: Provenance::default(),
        }
    }

    fn check(toml: &str) -> Vec<CheckResult> {
        toml::from_str::<Check>(toml).unwrap().evaluate(&run())
    }

    #[test]
    fn a_bound_holds_or_says_what_was_measured() {
        let results = check("goodput = '>= 15mbit'\nutilization = '< 70%'\nretransmitted='1% .. 2%'");
        let passed: Vec<bool> = results.iter().map(|r| r.passed).collect();
        assert_eq!(passed, [true, false, true]);
        assert_eq!(results[1].check, "utilization < 70%");
        assert_eq!(results[1].measured, "75.000%");
    }

    #[test]
    fn a_window_looks_only_at_its_part_of_the_series() {
        let results = check("goodput = '19mbit .. 21mbit'\nrtt_p50 = '47ms .. 49ms'\nfrom='5s'");
        assert!(results.iter().all(|r| r.passed), "{results:?}");
        assert!(!check("goodput = '> 10mbit'\nto='5s'")[0].passed);
    }

    #[test]
    fn states_must_come_in_order_with_others_between() {
        assert!(check("states = ['Startup', 'ProbeRTT']")[0].passed);
        assert!(!check("states = ['ProbeRTT', 'Startup']")[0].passed);
        assert!(check("never = ['ProbeRTT']\nto = '8s'")[0].passed);
        assert!(!check("never = ['Drain']")[0].passed);
    }

    #[test]
    fn what_was_not_measured_does_not_pass() {
        assert!(!check("completion = '< 1h'")[0].passed);
        assert!(!check("queue_p95 = '< 1h'")[0].passed);
    }

    #[test]
    fn a_bound_needs_a_comparison() {
        let e = "85mbit".parse::<Bound<Rate>>().unwrap_err().to_string();
        assert!(e.contains(">="), "{e}");
    }
}
