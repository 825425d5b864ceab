//! When a flow starts: at a time, or once another has come far enough.

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
    /// Once another connection has ended, or has delivered so much.
    After(After),
}

/// A start that waits for another connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct After {
    /// Which connection is waited for.
    pub after: FlowRef,
    /// How much of its payload must have been delivered in order; without it, it must have ended: all of its `size` is delivered, or its
    /// `stop` has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// How long after that.
    #[serde(default, skip_serializing_if = "Span::is_zero")]
    pub delay: Span,
}

/// A connection of the scenario.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a connection's label, or its number counted from 0 over all flows")]
pub enum FlowRef {
    /// Counted from 0 over all flows.
    Number(u32),
    /// Its label, as reports have it.
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
        struct Written;
        impl<'de> Visitor<'de> for Written {
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
        d.deserialize_any(Written)
    }
}

impl Start {
    pub(super) fn is_first(&self) -> bool {
        *self == Start::default()
    }

    /// The time of the run at which it is, if it waits for nobody.
    pub fn at(&self) -> Option<Span> {
        match self {
            Start::At(at) => Some(*at),
            Start::After(_) => None,
        }
    }

    /// The earliest time at which it can be.
    pub fn earliest(&self) -> Span {
        match self {
            Start::At(at) => *at,
            Start::After(after) => after.delay,
        }
    }

    /// So much later.
    pub(super) fn later(mut self, by: Span) -> Self {
        match &mut self {
            Start::At(at) => *at += by,
            Start::After(after) => after.delay += by,
        }
        self
    }
}

/// A connection that waits for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Waiting {
    flow: usize,
    bytes: Option<u64>,
    delay: Span,
}

/// A connection whose start is now known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Follower {
    /// Which, counted from 0 over all flows.
    pub flow: usize,
    /// How long after the present it starts.
    pub delay: Span,
}

/// The connections of a run that wait for others. An engine tells of each how far it has come, and starts those that are named.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Followers {
    /// By the connection that they wait for.
    of: BTreeMap<usize, Vec<Waiting>>,
}

impl Followers {
    /// Those among `connections`, which are all of a run's.
    ///
    /// # Errors
    /// A connection that is not there, that never comes so far, or that waits for itself in the end; the key is below `start`, and
    /// with it comes the number of the connection that waits.
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
            all.of.entry(on).or_default().push(waiting);
        }
        match in_a_circle(&before) {
            None => Ok(all),
            Some(flow) => {
                let name = |i: usize| connections[i].label.as_deref().unwrap_or(&connections[i].cc);
                let mut way = vec![format!("`{}`", name(flow))];
                let mut next = before[flow];
                while let Some(i) = next {
                    way.push(format!("`{}`", name(i)));
                    next = before[i].filter(|_| i != flow && way.len() < 8);
                }
                let fault = Fault::new("after", format!("it waits for itself: {}", way.join(" after ")));
                Err((flow, fault.help("let one of them start at a time of the run")))
            }
        }
    }

    /// Whether nobody waits any more.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Who starts now that `delivered` bytes of the connection `flow` are, and it has ended or not; each is named once.
    pub fn started_by(&mut self, flow: usize, delivered: u64, ended: bool) -> Vec<Follower> {
        let Some(waiting) = self.of.get_mut(&flow) else { return Vec::new() };
        let reached = |w: &mut Waiting| w.bytes.map_or(ended, |bytes| delivered >= bytes);
        let now =
            waiting.extract_if(.., reached).map(|w| Follower { flow: w.flow, delay: w.delay }).collect();
        if waiting.is_empty() {
            self.of.remove(&flow);
        }
        now
    }

    /// Whether anybody waits for the connection `flow`.
    pub fn has_waiting_flows(&self, flow: usize) -> bool {
        self.of.contains_key(&flow)
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
    /// Whether `awaited` ever comes so far.
    fn is_reached(&self, awaited: &FlowSpec) -> Result<(), Fault> {
        let never = |key: &str, why: &str| Err(Fault::new(key, format!("{} {why}", self.after)));
        match (self.bytes, awaited.size) {
            (None, None) if awaited.stop.is_none() => {
                never("after", "has neither `size` nor `stop`, so it never ends")
                    .map_err(|fault| fault.help("give it one of them, or wait for `bytes` of it"))
            }
            (Some(Bytes(0)), _) => Err(Fault::new(
                "bytes",
                "of no bytes nobody knows when they are there; drop it to wait for the end",
            )),
            (Some(bytes), Some(size)) if bytes > size => {
                never("bytes", &format!("sends no more than its size of {size}, and {bytes} are waited for"))
            }
            _ => Ok(()),
        }
    }
}

/// A connection that waits for itself, by way of those that it waits for.
fn in_a_circle(before: &[Option<usize>]) -> Option<usize> {
    // On whose way each has been seen.
    let mut seen: Vec<Option<usize>> = vec![None; before.len()];
    for start in 0..before.len() {
        let mut next = Some(start);
        while let Some(i) = next {
            match seen[i] {
                Some(way) if way == start => return Some(i),
                Some(_) => break,
                None => seen[i] = Some(start),
            }
            next = before[i];
        }
    }
    None
}

impl Scenario {
    /// What is wrong with the starts of its `connections` that wait for others.
    pub(super) fn validate_starts(&self, connections: &[FlowSpec]) -> Result<(), Fault> {
        Followers::new(connections).map(drop).map_err(|(number, fault)| {
            // Which [[flow]] the connection is of.
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
    fn who_waits_is_named_once_and_when_the_time_has_come() {
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
    fn a_wait_that_never_ends_is_refused() {
        let refused = |flows: &[FlowSpec]| Followers::new(flows).unwrap_err().1.to_string();
        let told = refused(&[flow("a", after("b", Some(9))), flow("b", after("a", Some(9)))]);
        assert!(told.contains("waits for itself: `a` after `b` after `a`"), "{told}");
        let told = refused(&[flow("x", after("x", Some(9)))]);
        assert!(told.contains("`x` after `x`"), "{told}");
        let told = refused(&[flow("a", Start::default()), flow("b", after("a", None))]);
        assert!(told.contains("neither `size` nor `stop`"), "{told}");
        let told = refused(&[sized(flow("a", Start::default())), flow("b", after("a", Some(1001)))]);
        assert!(told.contains("no more than its size"), "{told}");
        let told = refused(&[flow("a", Start::default()), flow("b", after("z", Some(1)))]);
        assert!(told.contains("no connection `z`"), "{told}");
        let stops = FlowSpec { stop: Some(Span::from_secs(1)), ..flow("a", Start::default()) };
        assert!(Followers::new(&[stops, flow("b", after("a", None))]).is_ok());
    }

    #[test]
    fn a_long_chain_is_no_circle() {
        let chain = |i: usize| match i {
            0 => Start::default(),
            _ => Start::After(After { after: FlowRef::Number(i as u32 - 1), bytes: None, delay: Span::ZERO }),
        };
        let flows: Vec<FlowSpec> =
            (0..5000).rev().map(|i| sized(flow(&i.to_string(), chain(4999 - i)))).collect();
        assert!(Followers::new(&flows).is_ok());
    }

    #[test]
    fn a_start_is_written_as_a_time_or_as_a_table() {
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
