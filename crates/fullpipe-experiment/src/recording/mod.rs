//! What a run produced: time series, summary, the path it ran on, and where it came from.
//! Every engine writes one; every report reads one, and does not ask who made it.

mod check;
mod comparison;
mod fairness;
mod histogram;
mod row;
mod series;
mod source;
mod summary;

pub use check::{CheckResult, Edge, Interval, Quantity, Unit};
pub use comparison::{Comparison, ControllerRounds, Estimate, Finding, TimeBreakdown, Verdict};
pub use fairness::jain;
pub use histogram::Histogram;
pub use row::{FlowRow, LinkRow};
pub use series::{Column, Series, column};
pub use source::Source;
pub use summary::{Quantiles, QueueQuantiles, Summary, per_second};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names the form of [`Results`] and [`Recording`]; changes when a reader would have to.
pub const SCHEMA: &str = "fullpipe/recording/1";

/// One run of one scenario with one seed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Recording {
    /// What tells this run from the others beside it (`bbr`, `cubic, 40 ms`).
    pub label: String,
    /// What the run is of, where `cc` alone does not tell it from the others (`cubic:hystart=off`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contender: Option<String>,
    /// What was varied between the runs beside it, as this run had it: the swept keys of the scenario, and `seed`
    /// for repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub varied: Vec<Variation>,
    /// Where it came from.
    #[serde(rename = "engine")]
    pub source: Source,
    /// The controller, or the distinct controllers of the flows joined by `+`.
    pub cc: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// Whether the run may be believed. The simulator's always; the lab's if it kept up.
    pub valid: bool,
    /// Why not, if not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid_because: Vec<String>,
    /// The whole run in figures, all flows together.
    pub summary: Summary,
    /// Jain's fairness index over the goodputs of the flows, from one over their number (one has all) to 1 (equal shares); none
    /// of a single flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// Each flow.
    pub flows: Vec<FlowRecording>,
    /// Each link, forward ones first: the emulator's own account, not the endpoints' guess.
    #[serde(default)]
    pub links: Vec<LinkRecording>,
    /// The path's constants that figures are held against.
    pub path: PathFacts,
    /// The scenario's checks and how they came out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckResult>,
    /// How well the engine kept up, where it runs in real time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Where the run came from.
    pub provenance: Provenance,
}

/// A key of the scenario whose values differ between runs, and its value in this one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Variation {
    /// The dotted key (`path.loss`).
    pub key: String,
    /// As the scenario wrote it (`1%`).
    pub value: String,
}

impl Variation {
    /// The key `seed`, which repeats vary.
    pub const SEED: &'static str = "seed";
    /// The key `round`, which comparisons in turns vary: it is when a run was made, and changes nothing of it.
    pub const ROUND: &'static str = "round";

    /// This value of this key.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Variation { key: key.into(), value: value.into() }
    }

    /// Whether the key only tells repeats of a run from each other: its seed, or its round.
    pub fn is_repeat(&self) -> bool {
        self.key == Variation::SEED || self.key == Variation::ROUND
    }

    /// Whether the key is that of a controller.
    pub fn is_cc(&self) -> bool {
        self.key == "cc" || self.key.ends_with(".cc")
    }

    /// The last part of the key and the value, as labels have them: `loss 1%`.
    pub fn label(&self) -> String {
        format!("{} {}", self.short_key(), self.value)
    }

    /// The last part of the key.
    pub fn short_key(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or(&self.key)
    }
}

/// The distributions behind the figures of a flow, of which those of several flows together are made.
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
    /// What tells it from the other flows (`bbr 1`).
    pub label: String,
    /// Its controller.
    pub cc: String,
    /// When it started, in seconds of the run.
    pub start_s: f64,
    /// The flow in figures.
    pub summary: Summary,
    /// Sampled every sampling interval; columns named in [`mod@column`].
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub series: Series,
    /// The controller's states, each from its time to the next one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StateChange>,
    /// Single happenings: recovery, time-outs, undo.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// What its figures were taken from: kept until the run's checks are judged, and no part of what is published.
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

/// Something that happened at one time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Seconds of the run.
    pub at_s: f64,
    /// What happened.
    pub kind: EventKind,
    /// A figure that belongs to it (bytes lost, time-out in seconds), if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// The happenings that engines record.
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
    /// A burst or an answer was delivered in full; the value is the seconds since it was begun or asked for.
    TransferDelivered,
    /// The flow's last byte was delivered.
    Completed,
}

/// One link of the path, as the emulator saw it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LinkRecording {
    /// `forward 1`, `reverse 1`, …
    pub label: String,
    /// What the scenario calls it, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Packets that arrived.
    pub packets_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Packets dropped, by cause (`queue full`, `loss`, `policer`, …).
    pub drops: std::collections::BTreeMap<String, u64>,
    /// Packets marked Congestion Experienced.
    pub ce_marked: u64,
    /// Sampled every sampling interval: queue in bytes, rate.
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub series: Series,
}

/// Constants of the path at its start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PathFacts {
    /// Rate of the forward bottleneck in bits per second of L3 packets; none if unlimited or unknown.
    pub rate_bps: Option<f64>,
    /// The most payload that rate can carry, in bits per second.
    pub goodput_limit_bps: Option<f64>,
    /// Two-way propagation delay in milliseconds.
    pub base_rtt_ms: Option<f64>,
    /// Bandwidth-delay product in bytes.
    pub bdp_bytes: Option<u64>,
    /// Limit of the bottleneck's queue in bytes.
    pub buffer_bytes: Option<u64>,
    /// The path in words (`100 Mbit/s, 100 ms, 1 BDP drop-tail, 1 % loss`).
    pub description: String,
}

/// How long what takes part in a run was ready and had no processor, in seconds per second of the run, and what the
/// machine's processors were busy with.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// The client's end.
    pub client: f64,
    /// The server's end.
    pub server: f64,
    /// The emulator's threads together.
    pub emulator: f64,
    /// What an end waited within 10 ms: 99th percentile, in milliseconds. A longer wait is one of the interval in which it
    /// ended.
    pub end_p99_ms: f64,
    /// Most.
    pub end_max_ms: f64,
    /// Share of the run in which some thread of the machine waited for a processor, if the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<f64>,
    /// Share of all processors' time that went into software interrupts: packets and timers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub softirq: Option<f64>,
    /// Share of all processors' time that a hypervisor gave to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
}

/// How well a real-time engine kept up with its own schedule.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// How late deliveries left the emulator: median, in microseconds.
    pub lateness_p50_us: f64,
    /// 99th percentile.
    pub lateness_p99_us: f64,
    /// Most.
    pub lateness_max_us: f64,
    /// How late arrivals were read: 99th percentile, in microseconds.
    pub read_latency_p99_us: f64,
    /// Packets the machine dropped outside the emulated path.
    pub stray_drops: u64,
    /// CPU seconds of the emulator per second of the run.
    pub emulator_cpu: f64,
    /// How long the ends waited for a processor; none where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Anything else the reader should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Where a run came from: enough to make it again.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// Version of fullpipe.
    pub version: String,
    /// The scenario as resolved, in TOML: `fullpipe run` on it makes the run again.
    pub scenario: String,
    /// Kernel release of the machine, for engines that depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Clock ticks a second of that kernel (`CONFIG_HZ`): CUBIC's growth hangs on it where round trips are short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticks: Option<u32>,
    /// When it started, RFC 3339, for engines in real time; the simulator has none, so that equal seeds give equal bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
}

/// Several runs together: what `--json` prints.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: String,
    /// The runs.
    pub runs: Vec<Recording>,
    /// Jain's index over the goodputs of flows that shared a path: of the single run, or the mean
    /// over runs with several flows; none if no flows shared one.
    pub fairness: Option<f64>,
    /// Which runs of a whole these are, if others were made elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// What follows of runs that were made in turns to compare controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// One of the parts in which many runs are made, on as many machines.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Which one, from 1.
    pub nth: u32,
    /// How many parts there are.
    pub of: u32,
    /// The number of each run in the whole, from 0.
    pub numbers: Vec<usize>,
}

impl Results {
    /// The runs with their fairness.
    pub fn new(mut runs: Vec<Recording>) -> Self {
        for run in &mut runs {
            run.fairness = run.fairness();
        }
        let shared: Vec<f64> = runs.iter().filter_map(|run| run.fairness).collect();
        let fairness = (!shared.is_empty()).then(|| shared.iter().sum::<f64>() / shared.len() as f64);
        Results { schema: SCHEMA.to_owned(), runs, fairness, part: None, comparison: None }
    }

    /// The same without time series: figures only.
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
    /// When the flow was in states that `is` names: from and to in seconds of the run, the last open end at `end`.
    pub fn state_intervals(&self, end: f64, is: impl Fn(&str) -> bool) -> Vec<(f64, f64)> {
        let until = |i: usize| self.states.get(i + 1).map_or(end, |next| next.at_s);
        let named = self.states.iter().enumerate().filter(|(_, s)| is(&s.state));
        named.map(|(i, s)| (s.at_s, until(i))).collect()
    }
}

impl Recording {
    /// What the run is of: its contender, or its controllers.
    pub fn contender(&self) -> &str {
        self.contender.as_deref().unwrap_or(&self.cc)
    }

    /// What the swept `key` was in this run; none if it was not swept.
    pub fn varied(&self, key: &str) -> Option<&str> {
        self.varied.iter().find(|v| v.key == key).map(|v| v.value.as_str())
    }

    /// Jain's fairness index over the flows' goodputs; none for a single flow.
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
    fn stays_end_where_the_next_state_begins() {
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
