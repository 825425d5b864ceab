//! The result of a run: time series, summary, path and provenance. Every engine writes this
//! format and every report reads it.

mod bbr_choice;
mod check;
mod comparison;
mod fairness;
mod histogram;
mod recommendation;
mod row;
mod series;
mod source;
mod summary;

pub use bbr_choice::{BbrChoice, BbrReason, bbr_version};
pub use check::{CheckResult, Edge, Interval, Quantity, Unit};
pub use comparison::{Comparison, ControllerRounds, Estimate, Finding, TimeBreakdown, Verdict};
pub use fairness::jain;
pub use histogram::Histogram;
pub use recommendation::{Gain, Recommendation};
pub use row::{FlowRow, LinkRow};
pub use series::{Column, Series, column};
pub use source::Source;
pub use summary::{Quantiles, QueueQuantiles, Summary, per_second};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Schema of [`Results`] and [`Recording`]; changes when the format becomes incompatible.
pub const SCHEMA: &str = "fullpipe/recording/1";

/// One run of one scenario with one seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Recording {
    /// A label that distinguishes the run from the others (`bbr`, `cubic, 40 ms`).
    pub label: String,
    /// What the run compares, where `cc` alone does not identify it (`cubic:hystart=off`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contender: Option<String>,
    /// Values that vary between the runs: the swept keys of the scenario, and `seed` for repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub varied: Vec<Variation>,
    /// The engine.
    #[serde(rename = "engine")]
    pub source: Source,
    /// The controller, or the distinct controllers of the flows joined by `+`.
    pub cc: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Whether the run is valid: always in the simulator, in the lab if it kept its schedule.
    pub valid: bool,
    /// The reasons, if it is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid_because: Vec<String>,
    /// Figures of the run, all flows together.
    pub summary: Summary,
    /// Jain's fairness index over the flows' goodputs, from 1/n (one flow has everything) to 1
    /// (equal shares); `None` for a single flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// The flows.
    pub flows: Vec<FlowRecording>,
    /// The links, forward ones first, as counted by the emulator.
    #[serde(default)]
    pub links: Vec<LinkRecording>,
    /// Reference values of the path.
    pub path: PathFacts,
    /// Results of the scenario's checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckResult>,
    /// How well a real-time engine kept its schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// How to reproduce the run.
    pub provenance: Provenance,
}

/// A key of the scenario whose values differ between runs, and its value in this one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Variation {
    /// The dotted key (`path.loss`).
    pub key: String,
    /// As written in the scenario (`1%`).
    pub value: String,
}

impl Variation {
    /// The key `seed`, which repeats vary.
    pub const SEED: &'static str = "seed";
    /// The key `round`, which interleaved comparisons vary: it identifies when a run was made and
    /// does not affect it.
    pub const ROUND: &'static str = "round";

    /// The value of a key.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Variation { key: key.into(), value: value.into() }
    }

    /// Whether the key only distinguishes repeats of a run: its seed or its round.
    pub fn is_repeat(&self) -> bool {
        self.key == Variation::SEED || self.key == Variation::ROUND
    }

    /// Whether the key selects a controller.
    pub fn is_cc(&self) -> bool {
        self.key == "cc" || self.key.ends_with(".cc")
    }

    /// The last part of the key and the value, as in labels: `loss 1%`.
    pub fn label(&self) -> String {
        format!("{} {}", self.short_key(), self.value)
    }

    /// The last part of the key.
    pub fn short_key(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or(&self.key)
    }
}

/// The distributions behind a flow's figures, which can be merged over flows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Distributions {
    /// Round-trip times.
    pub rtt: Histogram,
    /// Times in queues.
    pub queue: Histogram,
}

/// One flow of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FlowRecording {
    /// A label that distinguishes it from the other flows (`bbr 1`).
    pub label: String,
    /// Its controller.
    pub cc: String,
    /// When it started, in seconds of the run.
    pub start_s: f64,
    /// Figures of the flow.
    pub summary: Summary,
    /// Sampled every sampling interval; columns named in [`mod@column`].
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub series: Series,
    /// The controller's states; each lasts until the next.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StateChange>,
    /// Events: recovery, timeouts, undo.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// The distributions behind its figures: kept until the checks are evaluated, not published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub distributions: Option<Box<Distributions>>,
}

/// The controller entered a state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StateChange {
    /// Seconds of the run.
    pub at_s: f64,
    /// The state in the field's term (`Startup`, `ProbeBW_UP`, `SlowStart`).
    pub state: String,
}

/// An event at one point in time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Seconds of the run.
    pub at_s: f64,
    /// The kind of event.
    pub kind: EventKind,
    /// A value that belongs to it (bytes lost, timeout in seconds), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// The events that engines record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Fast recovery began; the value is the bytes in flight.
    RecoveryEntered,
    /// Recovery ended.
    RecoveryExited,
    /// The retransmission timer fired; the value is its length in seconds.
    RetransmissionTimeout,
    /// A tail loss probe was sent.
    TailLossProbe,
    /// Losses turned out spurious and were undone.
    SpuriousLoss,
    /// The connection restarted after being idle.
    IdleRestart,
    /// A burst or a response was delivered in full; the value is the seconds since it started or
    /// was requested.
    TransferDelivered,
    /// The flow's last byte was delivered.
    Completed,
}

/// One link of the path, as counted by the emulator.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LinkRecording {
    /// `forward 1`, `reverse 1`, …
    pub label: String,
    /// Its name in the scenario, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Packets that arrived.
    pub packets_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Packets dropped, by cause (`queue full`, `loss`, `policer`, …).
    pub drops: BTreeMap<String, u64>,
    /// Packets marked Congestion Experienced.
    pub ce_marked: u64,
    /// Sampled every sampling interval: queue in bytes, rate.
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub series: Series,
}

/// Constants of the path at its start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PathFacts {
    /// Rate of the forward bottleneck in bits per second of L3 packets; none if unlimited or
    /// unknown.
    pub rate_bps: Option<f64>,
    /// The highest goodput at that rate, in bits per second.
    pub goodput_limit_bps: Option<f64>,
    /// Two-way propagation delay in milliseconds.
    pub base_rtt_ms: Option<f64>,
    /// Bandwidth-delay product in bytes.
    pub bdp_bytes: Option<u64>,
    /// Limit of the bottleneck's queue in bytes.
    pub buffer_bytes: Option<u64>,
    /// A one-line description (`100 Mbit/s, 100 ms, 1 BDP drop-tail, 1 % loss`).
    pub description: String,
}

/// Time that the parts of a run waited for a CPU, in seconds per second of the run, and the load of
/// the machine's CPUs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// The client.
    pub client: f64,
    /// The server.
    pub server: f64,
    /// The emulator's threads together.
    pub emulator: f64,
    /// Wait of an endpoint per 10 ms interval: 99th percentile, in milliseconds. A longer wait
    /// counts in the interval in which it ends.
    pub end_p99_ms: f64,
    /// Maximum.
    pub end_max_ms: f64,
    /// Share of the run in which any thread of the machine waited for a CPU (PSI), if the kernel
    /// reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<f64>,
    /// Share of all CPUs' time spent in software interrupts: packets and timers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softirq: Option<f64>,
    /// Share of all CPUs' time stolen by the hypervisor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
}

/// How well a real-time engine kept its schedule.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// How late deliveries left the emulator: median, in microseconds.
    pub lateness_p50_us: f64,
    /// 99th percentile.
    pub lateness_p99_us: f64,
    /// Maximum.
    pub lateness_max_us: f64,
    /// How late arrivals were read: 99th percentile, in microseconds.
    pub read_latency_p99_us: f64,
    /// Packets the machine dropped outside the emulated path.
    pub stray_drops: u64,
    /// CPU seconds of the emulator per second of the run.
    pub emulator_cpu: f64,
    /// CPU wait of the endpoints; `None` where the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Other remarks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Where a run came from, sufficient to reproduce it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// Version of fullpipe.
    pub version: String,
    /// The resolved scenario in TOML: `fullpipe run` reproduces the run from it.
    pub scenario: String,
    /// Kernel release of the machine, for engines that depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Clock ticks per second of that kernel (`CONFIG_HZ`); CUBIC's growth depends on it at short
    /// round-trip times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticks: Option<u32>,
    /// Versions of that kernel's own BBRs, by name, as far as it reported them: `bbr` is v1 in
    /// Linux, and v3 in kernels built from Google's branch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bbr_versions: BTreeMap<String, u8>,
    /// Start time (RFC 3339) for real-time engines; the simulator has none, so that equal seeds
    /// give equal bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// What BBR v3 follows, if one of fullpipe's own is on a flow (`bbr3` in the simulator, `fp_bbr3`
    /// in the kernel): the draft's revision, and the commit of its repository whose pseudocode was
    /// reviewed last. How closely is the setting `variant` in `scenario`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draft: Option<String>,
    /// Transports other than the simulated TCP, one entry for each controller that ran over one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transports: Vec<TransportFacts>,
    /// How the simulator ordered its work. With fewer than 100 flows there is no choice and no
    /// entry. The recording does not depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processing: Option<Processing>,
}

/// How the simulator ordered its work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Processing {
    /// `windows` (a flow's events of a window of time together, flow by flow) or `events` (one event
    /// after another).
    pub order: ProcessingOrder,
    /// The reason for this order.
    pub because: String,
}

/// Orders of the simulator's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProcessingOrder {
    /// One event after another.
    Events,
    /// A flow's events of a window of time together, flow by flow.
    Windows,
}

/// A transport other than the simulated TCP.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TransportFacts {
    /// The controller as flows name it (`bbr3@noq`, `quinn/cubic`).
    pub cc: String,
    /// The program or library.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Whether the same seed gives the same bytes. A transport that draws from the system's entropy
    /// gives other results each time.
    pub repeatable: bool,
    /// Receive window in bytes; the sender counts as limited by the application while the window
    /// is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_window: Option<u64>,
    /// How packets are paced, and what else differs from what its users get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Several runs, as printed by `--json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// The runs.
    pub runs: Vec<Recording>,
    /// Jain's index over the goodputs of flows that share a path, averaged over runs with several
    /// flows; `None` if there are none.
    pub fairness: Option<f64>,
    /// The shard these runs belong to, if the experiment is split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// The evaluation of an interleaved comparison of controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// One shard of an experiment split over several machines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Its number, from 1.
    pub nth: u32,
    /// Total number of shards.
    pub of: u32,
    /// The number of each run in the whole experiment, from 0.
    pub numbers: Vec<usize>,
}

impl Results {
    /// Combines runs and computes their fairness.
    pub fn new(mut runs: Vec<Recording>) -> Self {
        for run in &mut runs {
            run.fairness = run.fairness();
        }
        let shared: Vec<f64> = runs.iter().filter_map(|run| run.fairness).collect();
        let fairness = (!shared.is_empty()).then(|| shared.iter().sum::<f64>() / shared.len() as f64);
        Results { schema: SCHEMA.to_owned(), runs, fairness, part: None, comparison: None }
    }

    /// Removes the time series, leaving figures only.
    pub fn without_series(mut self) -> Self {
        for run in &mut self.runs {
            for flow in &mut run.flows {
                flow.series = Series::default();
                flow.states.clear();
                flow.events.clear();
            }
            for link in &mut run.links {
                link.series = Series::default();
            }
        }
        self
    }
}

impl FlowRecording {
    /// The intervals the flow spent in states selected by `is`, in seconds of the run; an open
    /// interval ends at `end`.
    pub fn state_intervals(&self, end: f64, is: impl Fn(&str) -> bool) -> Vec<(f64, f64)> {
        let until = |i: usize| self.states.get(i + 1).map_or(end, |next| next.at_s);
        let named = self.states.iter().enumerate().filter(|(_, s)| is(&s.state));
        named.map(|(i, s)| (s.at_s, until(i))).collect()
    }
}

impl Recording {
    /// What the run compares: its contender, or its controllers.
    pub fn contender(&self) -> &str {
        self.contender.as_deref().unwrap_or(&self.cc)
    }

    /// The value of the swept `key` in this run; `None` if it was not swept.
    pub fn varied(&self, key: &str) -> Option<&str> {
        self.varied.iter().find(|v| v.key == key).map(|v| v.value.as_str())
    }

    /// Jain's fairness index over the flows' goodputs; `None` for a single flow.
    pub fn fairness(&self) -> Option<f64> {
        (self.flows.len() > 1).then(|| {
            let goodputs: Vec<f64> = self.flows.iter().map(|f| f.summary.goodput_bps).collect();
            jain(&goodputs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_intervals_end_where_the_next_state_begins() {
        let flow = FlowRecording {
            label: String::new(),
            cc: String::new(),
            start_s: 0.0,
            summary: Summary::default(),
            series: Series::default(),
            states: [(0.0, "A"), (1.0, "B"), (2.0, "A")]
                .map(|(at_s, s)| StateChange { at_s, state: s.into() })
                .into(),
            events: Vec::new(),
            distributions: None,
        };
        assert_eq!(flow.state_intervals(5.0, |s| s == "A"), [(0.0, 1.0), (2.0, 5.0)]);
    }
}
