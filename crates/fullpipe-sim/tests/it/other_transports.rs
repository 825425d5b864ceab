//! Connections of another transport beside the simulated TCP: a toy that sends a fixed window of
//! numbered datagrams, acknowledges each, and repeats all unanswered ones on a timer.

use crate::common::losing;
use fullpipe_cc::{Snapshot, Span, Time};
use fullpipe_experiment::recording::{EventKind, Recording, TransportFacts};
use fullpipe_experiment::scenario::{App, Fault, FlowSpec, PathSpec, Scenario, Setting};
use fullpipe_path::Ecn;
use fullpipe_sim::{
    Datagram, Opening, SimError, Simulation, Telemetry, Transport, TransportEnd, TransportEvent, Transports,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const PAYLOAD: u64 = 1000;
const TIMEOUT: Span = Span::from_millis(300);
const RETRIES: u32 = 8;

/// Datagram: kind, number.
const HELLO: u8 = 0;
const DATA: u8 = 1;
const ACK: u8 = 2;
const REQUEST: u8 = 3;

#[derive(Debug, Default)]
struct Toy {
    window: u64,
    ecn: bool,
    hello_at: Option<Time>,
    established: bool,
    written: u64,
    next: u64,
    flight: BTreeMap<u64, Time>,
    retransmit: BTreeSet<u64>,
    timeouts: u32,
    counters: Telemetry,
    received: BTreeSet<u64>,
    delivered: u64,
    to_receiver: VecDeque<Vec<u8>>,
    to_sender: VecDeque<Vec<u8>>,
    events: VecDeque<TransportEvent>,
}

impl Toy {
    fn deadline(&self) -> Time {
        let oldest = self.flight.values().min().copied().or(self.hello_at.filter(|_| !self.established));
        oldest.map_or(Time::NEVER, |at| at + TIMEOUT)
    }

    fn message(kind: u8, number: u64, length: u64) -> Vec<u8> {
        let mut payload = vec![kind];
        payload.extend(number.to_be_bytes());
        payload.resize(length.max(9) as usize, 0);
        payload
    }
}

impl Transport for Toy {
    fn open(&mut self, now: Time) {
        self.hello_at = Some(now);
        self.to_receiver.push_back(Toy::message(HELLO, 0, 100));
    }

    fn on_datagram(&mut self, now: Time, end: TransportEnd, datagram: Datagram) {
        let number = u64::from_be_bytes(datagram.payload[1..9].try_into().unwrap());
        match (end, datagram.payload[0]) {
            (TransportEnd::Receiver, HELLO) => {
                self.to_sender.push_back(Toy::message(HELLO, 0, 100));
                self.events.push_back(TransportEvent::Accepted);
            }
            (TransportEnd::Receiver, _) => {
                if datagram.ecn == Ecn::Ce {
                    self.events.push_back(TransportEvent::Recorded(EventKind::TailLossProbe, None));
                }
                self.received.insert(number);
                while self.received.contains(&(self.delivered / PAYLOAD)) {
                    self.delivered += PAYLOAD;
                }
                self.to_sender.push_back(Toy::message(ACK, number, 40));
            }
            (TransportEnd::Sender, HELLO) => {
                if !std::mem::replace(&mut self.established, true) {
                    self.events.push_back(TransportEvent::Established);
                }
            }
            (TransportEnd::Sender, REQUEST) => self.events.push_back(TransportEvent::Requested),
            (TransportEnd::Sender, _) => {
                if let Some(sent) = self.flight.remove(&number) {
                    self.timeouts = 0;
                    self.counters.delivered += PAYLOAD;
                    self.counters.rtt = Some(now.since(sent));
                    self.events.push_back(TransportEvent::Rtt(now.since(sent)));
                }
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, end: TransportEnd) -> Option<Datagram> {
        let payload = match end {
            TransportEnd::Receiver => self.to_sender.pop_front()?,
            TransportEnd::Sender => match self.to_receiver.pop_front() {
                Some(payload) => payload,
                None if !self.established => return None,
                None => {
                    let again = self.retransmit.pop_first();
                    let fresh = (self.next * PAYLOAD < self.written
                        && (self.flight.len() as u64) < self.window)
                        .then_some(self.next);
                    let number = again.or(fresh)?;
                    self.next = self.next.max(number + 1);
                    self.flight.insert(number, now);
                    self.counters.sent += 1;
                    self.counters.retransmitted += u64::from(again.is_some());
                    Toy::message(DATA, number, PAYLOAD)
                }
            },
        };
        let ecn = if self.ecn && end == TransportEnd::Sender { Ecn::Ect0 } else { Ecn::NotEct };
        Some(Datagram { payload, ecn })
    }

    fn next_timer(&self, end: TransportEnd) -> Time {
        if end == TransportEnd::Sender { self.deadline() } else { Time::NEVER }
    }

    fn on_timer(&mut self, now: Time, _: TransportEnd) {
        if self.deadline() > now {
            return;
        }
        self.timeouts += 1;
        if self.timeouts > RETRIES {
            self.events.push_back(TransportEvent::Failed("the peer does not answer".to_owned()));
        }
        if !self.established {
            return self.open(now);
        }
        self.events.push_back(TransportEvent::Recorded(EventKind::RetransmissionTimeout, None));
        self.counters.lost += self.flight.len() as u64;
        self.retransmit.extend(self.flight.keys());
        self.flight.clear();
    }

    fn poll_event(&mut self) -> Option<TransportEvent> {
        self.events.pop_front()
    }

    fn write(&mut self, _: Time, bytes: u64) {
        self.written = self.written.saturating_add(bytes);
    }

    fn finish(&mut self, _: Time, truncate: bool) {
        if truncate {
            self.discard_unsent();
        }
    }

    fn discard_unsent(&mut self) -> u64 {
        self.written = self.written.min(self.next * PAYLOAD);
        self.written
    }

    fn request(&mut self, _: Time, bytes: u64) {
        self.to_sender.push_back(Toy::message(REQUEST, 0, bytes));
    }

    fn delivered(&self) -> u64 {
        self.delivered
    }

    fn is_idle(&self) -> bool {
        self.flight.is_empty() && self.retransmit.is_empty() && self.next * PAYLOAD >= self.written
    }

    fn state(&self) -> &'static str {
        if self.delivered > 100 * PAYLOAD { "Cruising" } else { "Beginning" }
    }

    fn telemetry(&self) -> Telemetry {
        Telemetry {
            snapshot: Snapshot { state: self.state(), cwnd: self.window * PAYLOAD, ..Snapshot::default() },
            inflight: self.flight.len() as u64 * PAYLOAD,
            window: self.window * PAYLOAD,
            ..self.counters
        }
    }
}

struct Toys;

impl Transports for Toys {
    fn names(&self) -> Vec<String> {
        vec!["toy".to_owned()]
    }

    fn facts(&self, flow: &FlowSpec) -> TransportFacts {
        TransportFacts { cc: flow.cc.clone(), name: "toy".to_owned(), ..TransportFacts::default() }
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Transport>, Fault> {
        if !opening.flow.settings.is_empty() {
            return Err(Fault::new("settings", "a toy has no settings"));
        }
        let window = u64::from(opening.flow.initial_window);
        Ok(Box::new(Toy { window, ecn: opening.flow.ecn, ..Toy::default() }))
    }
}

fn path() -> PathSpec {
    PathSpec::bottleneck("10mbit".parse().unwrap(), "40ms".parse().unwrap(), "1bdp".parse().unwrap())
}

fn toy() -> FlowSpec {
    FlowSpec { initial_window: 40, ..FlowSpec::bulk("toy") }
}

fn scenario(flows: Vec<FlowSpec>) -> Scenario {
    Scenario { duration: Span::from_secs(5), ..Scenario::new(path(), flows) }
}

fn recording_of(scenario: &Scenario) -> Result<Recording, SimError> {
    Simulation::new(scenario, 1).transports(&Toys).run()
}

#[test]
fn its_window_bounds_its_goodput_and_the_recording_is_complete() {
    let recording = recording_of(&scenario(vec![toy()])).unwrap();
    let flow = &recording.flows[0];
    // 40 datagrams of 1000 bytes in 40 ms and the time on the link.
    let goodput = flow.summary.goodput_bps;
    assert!((7.5e6..8.1e6).contains(&goodput), "{goodput}");
    assert_eq!(flow.cc, "toy");
    let states: Vec<&str> = flow.states.iter().map(|change| change.state.as_str()).collect();
    assert_eq!(states, ["Beginning", "Cruising"]);
    assert!((40.0..43.0).contains(&flow.summary.rtt_ms.p50.unwrap()), "{:?}", flow.summary);
    assert!(flow.summary.packets_sent > 4000 && flow.summary.packets_lost == 0);
    let cwnd = flow.series.get("cwnd_bytes").unwrap();
    assert!(cwnd.iter().all(|&bytes| bytes == 40_000.0));
}

#[test]
fn it_shares_the_path_with_tcp() {
    let both = recording_of(&scenario(vec![toy(), FlowSpec::bulk("cubic")])).unwrap();
    let [toy, cubic] = [0, 1].map(|i| both.flows[i].summary.goodput_bps);
    assert_eq!(both.provenance.transports.iter().map(|facts| &facts.cc).collect::<Vec<_>>(), ["toy"]);
    assert!(toy > 2e6 && cubic > 2e6 && toy + cubic > 8.5e6, "{toy} {cubic}");
}

#[test]
fn lost_datagrams_are_counted_and_repeated() {
    let sized = FlowSpec { size: Some("1m".parse().unwrap()), ..toy() };
    let mut scenario = scenario(vec![sized]);
    scenario.duration = Span::from_secs(30);
    scenario.path = losing(path(), "1%");
    let recording = recording_of(&scenario).unwrap();
    let flow = &recording.flows[0];
    assert!(flow.summary.completion_s.is_some_and(|s| s > 1.0 && s < 10.0), "{:?}", flow.summary);
    assert!(flow.summary.packets_lost > 3 && flow.summary.packets_retransmitted >= flow.summary.packets_lost);
    assert!(flow.events.iter().any(|event| event.kind == EventKind::RetransmissionTimeout));
    assert_eq!(flow.summary.bytes_delivered, 1_049_000, "1 MiB in datagrams of 1000 bytes");
}

#[test]
fn a_failure_is_the_runs_error_in_the_transports_words() {
    let mut scenario = scenario(vec![toy()]);
    scenario.path = losing(path(), "100%");
    let error = recording_of(&scenario).unwrap_err().to_string();
    assert_eq!(error, "flow.0: toy closed the connection at 2.700 s: the peer does not answer");
}

#[test]
fn its_settings_are_checked_by_the_transport() {
    let mut flow = toy();
    flow.settings.insert("x".to_owned(), Setting::Integer(1));
    let error = recording_of(&scenario(vec![flow])).unwrap_err().to_string();
    assert!(error.contains("flow.0.settings") && error.contains("a toy has no settings"), "{error}");
}

#[test]
fn applications_delays_stops_and_starts_apply_to_it() {
    let every = Span::from_millis(500);
    let bursts = FlowSpec { app: App::Bursts { size: "20k".parse().unwrap(), every }, ..toy() };
    let request = App::RequestResponse {
        request: "300".parse().unwrap(),
        response: "20k".parse().unwrap(),
        think: Span::from_millis(200),
    };
    let requests = FlowSpec { app: request, extra_rtt: Span::from_millis(60), ..toy() };
    let stops = FlowSpec { stop: Some(Span::from_secs(2)), ..toy() };
    let late = FlowSpec { start: "4s".parse::<Span>().unwrap().into(), ..toy() };
    let transfers = |recording: &Recording| {
        let events = recording.flows[0].events.iter();
        events
            .filter_map(|e| (e.kind == EventKind::TransferDelivered).then_some(e.value?))
            .collect::<Vec<_>>()
    };
    let durations = transfers(&recording_of(&scenario(vec![bursts])).unwrap());
    assert_eq!(durations.len(), 10, "{durations:?}");
    assert!(durations.iter().all(|&s| (0.02..0.06).contains(&s)), "{durations:?}");
    let durations = transfers(&recording_of(&scenario(vec![requests])).unwrap());
    assert!(durations.len() >= 14, "{durations:?}");
    // The request and the response: 40 ms of the path and 60 ms of extra delay.
    assert!(durations.iter().all(|&s| (0.1..0.13).contains(&s)), "{durations:?}");
    let delivered = |flow| recording_of(&scenario(vec![flow])).unwrap().flows[0].summary.bytes_delivered;
    assert!((1_500_000..2_050_000).contains(&delivered(stops)));
    assert!((700_000..1_050_000).contains(&delivered(late)));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_tcp_is_not_disturbed() {
    let mut scenario = scenario(vec![toy(), FlowSpec::bulk("bbr")]);
    scenario.path = losing(path(), "0.1%");
    let text = || serde_json::to_string(&recording_of(&scenario).unwrap()).unwrap();
    assert!(text() == text());
    let alone = Scenario { flows: vec![FlowSpec::bulk("bbr")], ..scenario.clone() };
    let with = serde_json::to_string(&recording_of(&alone).unwrap()).unwrap();
    let without = serde_json::to_string(&Simulation::new(&alone, 1).run().unwrap()).unwrap();
    assert!(with == without);
}

#[test]
fn marks_of_the_path_reach_the_receiving_end() {
    let marked = |ecn: bool| {
        let flow = FlowSpec { ecn, initial_window: 200, ..toy() };
        let mut scenario = scenario(vec![flow]);
        scenario.path.forward[0].queue = toml::from_str("kind = \"codel\"\necn = true").unwrap();
        let recording = recording_of(&scenario).unwrap();
        let reported =
            recording.flows[0].events.iter().filter(|e| e.kind == EventKind::TailLossProbe).count();
        (recording.links[0].ce_marked, reported as u64)
    };
    let (on_path, reported) = marked(true);
    assert!(on_path > 10 && reported.abs_diff(on_path) <= 20, "{on_path} {reported}");
    assert_eq!(marked(false), (0, 0));
}
