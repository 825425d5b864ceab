//! What to run: a path, its flows, and checks on the result.
//! A scenario file is TOML (see [`parse`]); engines receive a [`Scenario`] with every quantity
//! resolved. A file may expand to several runs: its `[sweep]` times its repeats.

mod access;
mod ack_frequency;
mod app;
mod check;
mod cpu;
mod file;
mod flow;
mod names;
mod path;
mod range;
mod start;
mod sweep;
mod trigger;
mod triggers;

pub use crate::document::{Fault, FileError as ScenarioError};
pub use access::AccessSpec;
pub use ack_frequency::AckFrequency;
pub use app::{App, AppWrite};
pub use check::{Bound, Check};
pub use cpu::CpuSpec;
pub use file::{Case, UnavailableController, Vocabulary, parse, schema};
pub use flow::{FlowSpec, Setting, policy_file};
pub use names::{PROGRAM_PREFIX, is_program, is_quic};
pub use path::{Direction, PathSpec};
pub use range::range;
pub use start::{After, FlowRef, Follower, Followers, Start};
pub use trigger::{LinkChange, Trigger, When};
pub use triggers::{Due, Triggers};

use crate::recording::{CheckResult, Recording};
use fullpipe_path::LinkSpec;
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Headers of a data packet: IPv4, TCP and its timestamp option, in bytes.
pub const HEADER_BYTES: u32 = 52;

/// Headers of a datagram: IPv4 and UDP, in bytes.
pub const DATAGRAM_HEADER_BYTES: u32 = 28;

/// Limit on the rows recorded per flow: duration divided by sampling interval.
const MAX_SAMPLES: u64 = 10_000_000;

/// One run, fully described.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// A one-line title.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Longer description: what to look for, and where the numbers come from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Length of the run.
    #[serde(default = "default_duration")]
    pub duration: Span,
    /// Time at the start excluded from the summary, to measure the steady state.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub warmup: Span,
    /// Interval between the rows of the time series.
    #[serde(default = "default_sample")]
    pub sample: Span,
    /// Seed of everything random.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Number of runs, with ascending seeds from `seed`.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub repeats: u32,
    /// Largest packet in bytes, IP header included (68 to 65535).
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// The network path between the endpoints.
    pub path: PathSpec,
    /// The flows. In the file: `[[flow]]`.
    #[serde(rename = "flow")]
    pub flows: Vec<FlowSpec>,
    /// Path changes triggered by a flow's state. In the file: `[[trigger]]`.
    #[serde(default, rename = "trigger", skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<Trigger>,
    /// Pass criteria. In the file: `[[check]]`.
    #[serde(default, rename = "check", skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

fn default_duration() -> Span {
    Span::from_secs(30)
}

fn default_sample() -> Span {
    Span::from_millis(10)
}

fn default_seed() -> u64 {
    1
}

fn default_mtu() -> u32 {
    1500
}

fn one() -> u32 {
    1
}

fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Scenario {
    /// A scenario with the defaults of a file that gives only a path and flows.
    pub fn new(path: PathSpec, flows: Vec<FlowSpec>) -> Self {
        Scenario {
            title: String::new(),
            about: String::new(),
            duration: default_duration(),
            warmup: Span::ZERO,
            sample: default_sample(),
            seed: default_seed(),
            repeats: 1,
            mtu: default_mtu(),
            path,
            flows,
            triggers: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// Payload bytes of a full data packet (sender maximum segment size).
    pub fn smss(&self) -> u32 {
        self.mtu.saturating_sub(HEADER_BYTES).max(1)
    }

    /// The highest rate at which the flows' data can cross the path; `None` if unlimited.
    pub fn highest_rate(&self) -> Option<Rate> {
        let mut ways = self.flows.iter().map(|flow| flow.direction);
        ways.try_fold(Rate::ZERO, |highest, way| self.highest_rate_in(way).map(|rate| highest.max(rate)))
    }

    /// Data packets of a run at the highest rate, each as large as the MTU; `None` if unlimited.
    pub fn max_packets(&self) -> Option<f64> {
        let rate = self.highest_rate()?.as_bits_per_sec_f64();
        Some(rate * self.duration.as_secs_f64() / (8.0 * f64::from(self.mtu)))
    }

    /// The highest rate of one direction of the path; `None` if unlimited.
    pub fn highest_rate_in(&self, way: Direction) -> Option<Rate> {
        let changed = self.triggers.iter().filter_map(|trigger| trigger.then.rate);
        let most = |link: &LinkSpec| link.highest_rate().map(|rate| changed.clone().fold(rate, Rate::max));
        self.path.links(way).iter().filter_map(most).min()
    }

    /// The connections: flows with `count` expanded, each with its own start and label.
    pub fn connections(&self) -> Vec<FlowSpec> {
        let total: usize = self.flows.iter().map(|f| f.count as usize).sum();
        let mut all: Vec<FlowSpec> = Vec::with_capacity(total);
        for flow in &self.flows {
            for i in 0..flow.count {
                let mut one = flow.clone();
                one.count = 1;
                one.start = flow.start.clone().delayed_by(flow.stagger * u64::from(i));
                one.stagger = Span::ZERO;
                let name = flow.label.clone().unwrap_or_else(|| flow.cc.clone());
                let alone = flow.count == 1;
                one.label = Some(if alone { name } else { format!("{name} {}", i + 1) });
                all.push(one);
            }
        }
        // Number entries that end up with the same name.
        let mut together: HashMap<String, (u32, u32)> = HashMap::with_capacity(total);
        for name in all.iter().filter_map(|f| f.label.as_ref()) {
            together.entry(name.clone()).or_default().0 += 1;
        }
        for label in all.iter_mut().filter_map(|f| f.label.as_mut()) {
            if let Some((_, nth)) = together.get_mut(label).filter(|(all, _)| *all > 1) {
                *nth += 1;
                *label = format!("{label} {nth}");
            }
        }
        all
    }

    /// The distinct controllers in the order of the flows, joined by `+`.
    pub fn cc(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for flow in &self.flows {
            if !names.contains(&flow.cc.as_str()) {
                names.push(&flow.cc);
            }
        }
        names.join("+")
    }

    /// Evaluates all checks on a run: one result per bound.
    pub fn judge(&self, run: &Recording) -> Vec<CheckResult> {
        self.checks.iter().flat_map(|check| check.evaluate(run)).collect()
    }

    /// The scenario as a TOML file that reproduces it.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|e| format!("# not expressible in TOML: {e}\n"))
    }

    /// Checks everything the types do not enforce; the error names the key.
    pub fn validate(&self, vocabulary: &Vocabulary) -> Result<(), Fault> {
        let fault = |key: &str, reason: String| Err(Fault { key: key.to_owned(), reason, help: None });
        if self.duration.is_zero() || self.duration > Span::from_secs(30 * 86_400) {
            let reason = format!("must be greater than 0 and at most 30 days, got {}", self.duration);
            return fault("duration", reason);
        }
        if self.sample.is_zero() {
            return fault("sample", "the sampling interval must be above zero".into());
        }
        if self.duration.as_nanos() / self.sample.as_nanos() > MAX_SAMPLES {
            return fault(
                "sample",
                format!(
                    "{} over {} makes more than {MAX_SAMPLES} rows; sample less often",
                    self.sample, self.duration
                ),
            );
        }
        if self.warmup >= self.duration {
            return fault(
                "warmup",
                format!("{} leaves no time of the run of {}", self.warmup, self.duration),
            );
        }
        if !(68..=65_535).contains(&self.mtu) {
            return fault("mtu", format!("{} is not between 68 and 65535 bytes", self.mtu));
        }
        if !(1..=1_000_000).contains(&self.repeats) {
            return fault("repeats", format!("{} is not between 1 and 1000000", self.repeats));
        }
        if self.flows.is_empty() {
            return fault("flow", "at least one flow is needed: add a [[flow]] with `cc`".into());
        }
        if self.flows.iter().map(|f| u64::from(f.count)).sum::<u64>() > 100_000 {
            return fault("flow", "more than 100000 flows".into());
        }
        for (i, flow) in self.flows.iter().enumerate() {
            flow.validate(self, vocabulary).map_err(|f| f.under(&format!("flow.{i}")))?;
        }
        self.path.validate(self.mtu).map_err(|f| f.under("path"))?;
        for (i, trigger) in self.triggers.iter().enumerate() {
            trigger.validate(self).map_err(|f| f.under(&format!("trigger.{i}")))?;
        }
        let waits = self.flows.iter().any(|flow| flow.start.at().is_none());
        let connections = if self.checks.is_empty() && !waits { Vec::new() } else { self.connections() };
        self.validate_starts(&connections)?;
        for (i, check) in self.checks.iter().enumerate() {
            check.validate(self, &connections, vocabulary).map_err(|f| f.under(&format!("check.{i}")))?;
        }
        Ok(())
    }
}
