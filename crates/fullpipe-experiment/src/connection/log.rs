//! What an endpoint's own log (qlog) reports of a connection.

use super::is_zero;
use super::serde_units::s;
use fullpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What an endpoint's own log reports of a connection beyond what packets show. Values that the log
/// does not have are `None` or empty.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Log {
    /// Title of the trace, and the group of events that belongs to the connection.
    pub title: String,
    /// Whether the log has packets. Without them, bytes and goodput are unknown.
    pub has_packets: bool,
    /// Whether `bytes` are those of stream frames; otherwise those of whole packets.
    pub has_streams: bool,
    /// Congestion windows in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwnd_bytes: Option<Spread>,
    /// Pacing rates in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_bps: Option<Spread>,
    /// The controller's bandwidth estimates in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth_bps: Option<Spread>,
    /// Packets that were declared lost.
    pub lost: u64,
    /// Of these, packets that were acknowledged later, or that the log calls spurious losses.
    pub spurious: u64,
    /// Probe timeouts.
    pub timeouts: u64,
    /// The controller's states by their first visit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<StateTime>,
    /// Checks against the BBR draft.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Judgement>,
}

/// The smallest, the median and the largest of the values that a log reports.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The median of the reported values.
    pub p50: f64,
    /// The largest.
    pub max: f64,
}

/// How long a controller was in a state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StateTime {
    /// The state, as the log calls it.
    pub state: String,
    /// How many times it was entered.
    pub visits: u64,
    /// Total time.
    #[serde(rename = "total_s", with = "s")]
    #[schemars(with = "f64")]
    pub total: Span,
}

/// A check of a recorded connection against the BBR draft.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Judgement {
    /// What was checked.
    pub check: String,
    /// The draft's test cases that it is part of, as `fullpipe conformance` names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<String>,
    /// The result.
    pub result: Judged,
    /// The measured values, or why it was not judged.
    pub words: String,
}

/// The result of a check of a recorded connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Judged {
    /// The recorded values are as the draft has them.
    Passed,
    /// They are not.
    Failed,
    /// The log does not have what is needed.
    NotJudged,
}

impl Judged {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Judged::Passed => "passed",
            Judged::Failed => "failed",
            Judged::NotJudged => "not judged",
        }
    }
}

/// What was read of a qlog file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct LogFile {
    /// Version of qlog, as the file has it.
    pub version: String,
    /// `JSON`, `JSON-SEQ` or `NDJSON`.
    pub serialization: String,
    /// Events of all kinds.
    pub events: u64,
    /// Events by name, those of the most frequent names first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<EventCount>,
    /// Events and records that cannot be read as qlog events.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub malformed: u64,
    /// Events whose time is before that of an earlier event; they count at the time of that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub out_of_order: u64,
    /// Values that cannot be right and were not used, such as negative times.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub implausible: u64,
}

/// Number of events of one name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventCount {
    /// The name, with its namespace.
    pub name: String,
    /// Number of events.
    pub count: u64,
}
