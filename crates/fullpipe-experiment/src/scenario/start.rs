//! When a flow starts: at a given time, or after another flow's progress.

use super::{Fault, FlowSpec, Scenario};
use fullpipe_units::{Bytes, Span};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// When a flow's SYN leaves.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Start {
    /// At this time of the run.
    At(Span),
    /// Once another connection has ended or delivered a given amount.
    After(After),
}

/// A start that depends on another connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// The connection to wait for.
    pub after: FlowRef,
    /// Payload that must have been delivered in order. By default the connection must have ended:
    /// all of its `size` is delivered, or its `stop` is past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// Additional delay.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub delay: Span,
}

/// A reference to a connection of the scenario.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a connection's label, or its number counted from 0 over all flows")]
pub enum FlowRef {
    /// By number, counted from 0 over all flows.
    Number(u32),
    /// By its label, as in reports.
    Label(String),
}

impl fmt::Display for FlowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowRef::Number(number) => write!(f, "{number}"),
            FlowRef::Label(label) => write!(f, "`{label}`"),
        }
    }
}

impl Default for Start {
    fn default() -> Self {
        Start::At(Span::ZERO)
    }
}

impl From<Span> for Start {
    fn from(at: Span) -> Self {
        Start::At(at)
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct StartVisitor;
        impl<'de> Visitor<'de> for StartVisitor {
            type Value = Start;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as `2s`, or a table with `after`")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Start, E> {
                Span::deserialize(text.into_deserializer()).map(Start::At)
            }
            fn visit_i64<E: Error>(self, n: i64) -> Result<Start, E> {
                Span::deserialize(n.into_deserializer()).map(Start::At)
            }
            fn visit_u64<E: Error>(self, n: u64) -> Result<Start, E> {
                Span::deserialize(n.into_deserializer()).map(Start::At)
            }
            fn visit_f64<E: Error>(self, n: f64) -> Result<Start, E> {
                Span::deserialize(n.into_deserializer()).map(Start::At)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Start, A::Error> {
                After::deserialize(MapAccessDeserializer::new(map)).map(Start::After)
            }
        }
        d.deserialize_any(StartVisitor)
    }
}

impl Start {
    pub(super) fn is_first(&self) -> bool {
        *self == Start::default()
    }

    /// The time of the run, if it does not depend on another connection.
    pub fn at(&self) -> Option<Span> {
        match self {
            Start::At(at) => Some(*at),
            Start::After(_) => None,
        }
    }

    /// The earliest possible time.
    pub fn earliest(&self) -> Span {
        match self {
            Start::At(at) => *at,
            Start::After(after) => after.delay,
        }
    }

    /// The same start, delayed by `by`.
    pub(super) fn delayed_by(mut self, by: Span) -> Self {
        match &mut self {
            Start::At(at) => *at += by,
            Start::After(after) => after.delay += by,
        }
        self
    }
}

/// A connection waiting for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiting {
    flow: usize,
    bytes: Option<u64>,
    delay: Span,
}

/// A connection whose start time is now known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Follower {
    /// Its number, counted from 0 over all flows.
    pub flow: usize,
    /// Time from now until it starts.
    pub delay: Span,
}

/// The connections of a run that wait for others. The engine reports each connection's progress
/// and starts the connections returned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Followers {
    /// Keyed by the connection they wait for.
    waiting: BTreeMap<usize, Vec<Waiting>>,
}

impl Followers {
    /// The waiting connections among all `connections` of a run.
    ///
    /// # Errors
    /// A connection that does not exist, never gets that far, or waits for itself through a cycle.
    /// Returns the number of the waiting connection and a fault with a key below `start`.
    pub fn new(connections: &[FlowSpec]) -> Result<Self, (usize, Fault)> {
        let mut all = Followers::default();
        if connections.iter().all(|c| c.start.at().is_some()) {
            return Ok(all);
        }
        let labels: HashMap<&str, usize> =
            connections.iter().enumerate().filter_map(|(i, c)| Some((c.label.as_deref()?, i))).collect();
        let mut before: Vec<Option<usize>> = vec![None; connections.len()];
        for (flow, connection) in connections.iter().enumerate() {
            let Start::After(after) = &connection.start else { continue };
            let on = find(after, connections, &labels).map_err(|fault| (flow, fault))?;
            after.is_reached(&connections[on]).map_err(|fault| (flow, fault))?;
            before[flow] = Some(on);
            let waiting = Waiting { flow, bytes: after.bytes.map(|b| b.0), delay: after.delay };
            all.waiting.entry(on).or_default().push(waiting);
        }
        match find_cycle(&before) {
            None => Ok(all),
            Some(flow) => {
                let name = |i: usize| connections[i].label.as_deref().unwrap_or(&connections[i].cc);
                let mut chain = vec![format!("`{}`", name(flow))];
                let mut next = before[flow];
                while let Some(i) = next {
                    chain.push(format!("`{}`", name(i)));
                    next = before[i].filter(|_| i != flow && chain.len() < 8);
                }
                let fault =
                    Fault::new("after", format!("the flow waits for itself: {}", chain.join(" after ")));
                Err((flow, fault.help("give one of them a start time")))
            }
        }
    }

    /// Whether no connection is waiting.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The connections to start now that connection `flow` has delivered `delivered` bytes and has
    /// `ended` or not. Each is returned once.
    pub fn started_by(&mut self, flow: usize, delivered: u64, ended: bool) -> Vec<Follower> {
        let Some(waiting) = self.waiting.get_mut(&flow) else { return Vec::new() };
        let reached = |w: &mut Waiting| w.bytes.map_or(ended, |bytes| delivered >= bytes);
        let now =
            waiting.extract_if(.., reached).map(|w| Follower { flow: w.flow, delay: w.delay }).collect();
        if waiting.is_empty() {
            self.waiting.remove(&flow);
        }
        now
    }

    /// Whether any connection waits for `flow`.
    pub fn has_waiting_flows(&self, flow: usize) -> bool {
        self.waiting.contains_key(&flow)
    }
}

fn find(after: &After, connections: &[FlowSpec], labels: &HashMap<&str, usize>) -> Result<usize, Fault> {
    let named =
        || connections.iter().filter_map(|c| c.label.as_deref()).take(20).collect::<Vec<_>>().join(", ");
    let found = match &after.after {
        FlowRef::Number(number) => Some(*number as usize).filter(|n| *n < connections.len()),
        FlowRef::Label(label) => labels.get(label.as_str()).copied(),
    };
    found.ok_or_else(|| {
        Fault::new("after", format!("there is no connection {}", after.after)).help(format!(
            "there are {}; or by number, 0 to {}",
            named(),
            connections.len() - 1
        ))
    })
}

impl After {
    /// Whether `awaited` ever reaches the condition.
    fn is_reached(&self, awaited: &FlowSpec) -> Result<(), Fault> {
        let never = |key: &str, why: &str| Err(Fault::new(key, format!("{} {why}", self.after)));
        match (self.bytes, awaited.size) {
            (None, None) if awaited.stop.is_none() => {
                never("after", "has neither `size` nor `stop`, so it never ends")
                    .map_err(|fault| fault.help("give it one of them, or wait for `bytes` of it"))
            }
            (Some(Bytes(0)), _) => {
                Err(Fault::new("bytes", "must be above zero; omit it to wait for the end of the flow"))
            }
            (Some(bytes), Some(size)) if bytes > size => never(
                "bytes",
                &format!("sends at most its size of {size}, less than the {bytes} to wait for"),
            ),
            _ => Ok(()),
        }
    }
}

/// A connection that waits for itself, directly or through others.
fn find_cycle(before: &[Option<usize>]) -> Option<usize> {
    // The chain in which each connection was first visited.
    let mut seen: Vec<Option<usize>> = vec![None; before.len()];
    for start in 0..before.len() {
        let mut next = Some(start);
        while let Some(i) = next {
            match seen[i] {
                Some(chain) if chain == start => return Some(i),
                Some(_) => break,
                None => seen[i] = Some(start),
            }
            next = before[i];
        }
    }
    None
}

impl Scenario {
    /// Checks the starts of `connections` that depend on others.
    pub(super) fn validate_starts(&self, connections: &[FlowSpec]) -> Result<(), Fault> {
        Followers::new(connections).map(drop).map_err(|(number, fault)| {
            // The [[flow]] entry of the connection.
            let mut last = 0;
            let entry = self.flows.iter().position(|flow| {
                last += flow.count as usize;
                number < last
            });
            fault.under(&format!("flow.{}.start", entry.unwrap_or_default()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(label: &str, start: Start) -> FlowSpec {
        FlowSpec { label: Some(label.into()), start, ..FlowSpec::bulk("bbr") }
    }

    fn after(label: &str, bytes: Option<u64>) -> Start {
        let after = FlowRef::Label(label.into());
        Start::After(After { after, bytes: bytes.map(Bytes), delay: Span::from_millis(5) })
    }

    fn sized(mut flow: FlowSpec) -> FlowSpec {
        flow.size = Some(Bytes(1000));
        flow
    }

    #[test]
    fn waiting_flows_start_once_when_their_condition_is_met() {
        let all = [
            sized(flow("a", Start::default())),
            flow("b", after("a", None)),
            flow("c", after("a", Some(600))),
            flow(
                "d",
                Start::After(After { after: FlowRef::Number(2), bytes: Some(Bytes(1)), delay: Span::ZERO }),
            ),
        ];
        let mut followers = Followers::new(&all).unwrap();
        let due = |flow| Follower { flow, delay: Span::from_millis(5) };
        assert!(followers.has_waiting_flows(0) && !followers.has_waiting_flows(1));
        assert_eq!(followers.started_by(0, 599, false), []);
        assert_eq!(followers.started_by(0, 600, false), [due(2)]);
        assert_eq!(followers.started_by(1, 5000, true), []);
        assert_eq!(followers.started_by(0, 1000, true), [due(1)]);
        assert_eq!(followers.started_by(0, 1000, true), []);
        assert_eq!(followers.started_by(2, 1, false), [Follower { flow: 3, delay: Span::ZERO }]);
        assert!(followers.is_empty());
    }

    #[test]
    fn unreachable_start_is_rejected() {
        let error = |flows: &[FlowSpec]| Followers::new(flows).unwrap_err().1.to_string();
        let message = error(&[flow("a", after("b", Some(9))), flow("b", after("a", Some(9)))]);
        assert!(message.contains("waits for itself: `a` after `b` after `a`"), "{message}");
        let message = error(&[flow("x", after("x", Some(9)))]);
        assert!(message.contains("`x` after `x`"), "{message}");
        let message = error(&[flow("a", Start::default()), flow("b", after("a", None))]);
        assert!(message.contains("neither `size` nor `stop`"), "{message}");
        let message = error(&[sized(flow("a", Start::default())), flow("b", after("a", Some(1001)))]);
        assert!(message.contains("at most its size"), "{message}");
        let message = error(&[flow("a", Start::default()), flow("b", after("z", Some(1)))]);
        assert!(message.contains("no connection `z`"), "{message}");
        let stops = FlowSpec { stop: Some(Span::from_secs(1)), ..flow("a", Start::default()) };
        assert!(Followers::new(&[stops, flow("b", after("a", None))]).is_ok());
    }

    #[test]
    fn long_chain_is_not_a_cycle() {
        let chain = |i: usize| match i {
            0 => Start::default(),
            _ => Start::After(After { after: FlowRef::Number(i as u32 - 1), bytes: None, delay: Span::ZERO }),
        };
        let flows: Vec<FlowSpec> =
            (0..5000).rev().map(|i| sized(flow(&i.to_string(), chain(4999 - i)))).collect();
        assert!(Followers::new(&flows).is_ok());
    }

    #[test]
    fn start_parses_from_a_time_or_a_table() {
        #[derive(Debug, Deserialize)]
        struct File {
            start: Start,
        }
        let read =
            |text: &str| toml::from_str::<File>(text).map(|file| file.start).map_err(|e| e.to_string());
        assert_eq!(read("start = '2s'"), Ok(Start::At(Span::from_secs(2))));
        assert_eq!(read("start = 0"), Ok(Start::default()));
        let written = "start = { after = 'x', delay = '5ms', bytes = '10MB' }";
        assert_eq!(read(written), Ok(after("x", Some(10_000_000))));
        assert!(
            matches!(read("start = { after = 3 }"), Ok(Start::After(a)) if a.after == FlowRef::Number(3))
        );
        assert!(read("start = { afterwards = 'x' }").unwrap_err().contains("unknown field `afterwards`"));
        assert!(read("start = { after = 1.5 }").unwrap_err().contains("a connection's label"));
        assert!(read("start = true").unwrap_err().contains("a table with `after`"));
    }
}
