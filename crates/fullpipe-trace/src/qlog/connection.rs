//! One connection of a log: its events, folded as they come.

use super::event::Event;
use super::frames::{Frame, frames, packet, space};
use super::metrics::{COUNT, Metrics, index, initial_rtt};
use super::packets::{Number, Packets};
use super::rows::{self, Rows, WIDTH};
use super::streams::Streams;
use super::value::{self, Object, first, number, text, truth, whole};
use super::windows::{Block, Windows};
use crate::histogram::Histogram;
use fullpipe_experiment::connection::LogFile;
use fullpipe_experiment::recording::{self, EventKind, StateChange};
use fullpipe_units::{Span, Time};
use serde_json::Value;
use std::collections::HashSet;

/// Connections of a file that are kept in detail: their limits are the larger ones.
const DETAILED: usize = 32;
/// Rows of a series, states, events: of a detailed connection, and of others.
const MAX_ROWS: [usize; 2] = [16_384, 256];
const MAX_CHANGES: [usize; 2] = [65_536, 512];
/// Packets in flight that are tracked.
const MAX_INFLIGHT: [usize; 2] = [32_768, 512];
/// Intervals of evidence for limits.
const MAX_WINDOWS: [usize; 2] = [2048, 128];
/// Bins of a histogram; a bin is 0.5 % wide, or more if the values need more.
const MAX_BINS: [usize; 2] = [4096, 512];
/// Streams whose offsets are tracked.
const MAX_STREAMS: [usize; 2] = [16_384, 128];
/// Reports of bytes in flight, and packets, that give a mean.
const MIN_REPORTS: u64 = 8;

/// A connection while its events are read.
pub(super) struct Recorder {
    pub(super) trace: usize,
    pub(super) group: Option<String>,
    pub(super) controller: Option<String>,
    /// First event, in seconds since 1970, if the log has the date.
    pub(super) date_s: Option<f64>,
    pub(super) first: Time,
    pub(super) last: Time,
    pub(super) started: Option<Time>,
    size: usize,
    pub(super) metrics: Metrics,
    /// Events with metrics, and of paths other than the first.
    pub(super) metric_events: u64,
    /// The round-trip time of the first event with metrics, if it is the assumed one.
    pub(super) initial_rtt: Option<f64>,
    path: Option<u64>,
    pub(super) other_paths: u64,
    tuple: Option<String>,
    /// Whether packets of several paths were sent, whose bytes in flight are tracked together.
    pub(super) is_multipath: bool,
    packet_path: Option<u64>,
    pub(super) rows: Rows,
    pub(super) packets: Packets,
    pub(super) sent_streams: Streams,
    pub(super) received_streams: Streams,
    pub(super) received: u64,
    pub(super) received_bytes: u64,
    /// Times of the first and the last packet with data, sent and received.
    pub(super) sent_span: Option<(Time, Time)>,
    pub(super) received_span: Option<(Time, Time)>,
    pub(super) last_ack: Option<Time>,
    /// Acknowledgments of new data.
    pub(super) acks: u64,
    pub(super) states: Vec<StateChange>,
    /// Indices of states whose beginning is not in the log: what `old` names was never the new one.
    pub(super) gaps: Vec<usize>,
    /// The first state that was left out.
    pub(super) states_end: Option<Time>,
    /// Time up to which states and events are those of one controller and complete, and what ended it.
    pub(super) judged_until: Option<(Time, &'static str)>,
    pub(super) events: Vec<recording::Event>,
    /// States and events beyond the bound.
    pub(super) dropped: u64,
    pub(super) timeouts: u64,
    pub(super) is_closed: bool,
    /// RTT in nanoseconds: as reported, and as measured from acknowledgments.
    pub(super) reported_rtt: Histogram,
    pub(super) measured_rtt: Histogram,
    pub(super) rtt_max_ms: f64,
    /// Delivery rates in bytes per second that the application did not limit.
    pub(super) rates: Histogram,
    pub(super) spreads: [Histogram; 3],
    pub(super) inflight_max: u64,
    /// Reported bytes in flight times seconds, and the reports.
    inflight_time: f64,
    inflight_reports: u64,
    pub(super) windows: Windows,
    app_limited: bool,
    /// Reason of a block that the log names.
    named_block: Option<Block>,
    connection_blocked: bool,
    blocked_streams: HashSet<u64>,
    total_lost: u64,
}

impl Recorder {
    /// The `nth` connection of a file, whose first event is at `first`.
    pub(super) fn new(
        nth: usize,
        trace: usize,
        group: Option<String>,
        date_s: Option<f64>,
        first: Time,
    ) -> Self {
        let size = usize::from(nth >= DETAILED);
        let histogram = || Histogram::bounded(MAX_BINS[size]);
        Recorder {
            trace,
            group,
            controller: None,
            date_s,
            first,
            last: first,
            started: None,
            size,
            metrics: Metrics::new(),
            metric_events: 0,
            initial_rtt: None,
            path: None,
            other_paths: 0,
            tuple: None,
            is_multipath: false,
            packet_path: None,
            rows: Rows::new(MAX_ROWS[size]),
            packets: Packets::new(MAX_INFLIGHT[size]),
            sent_streams: Streams::default(),
            received_streams: Streams::default(),
            received: 0,
            received_bytes: 0,
            sent_span: None,
            received_span: None,
            last_ack: None,
            acks: 0,
            states: Vec::new(),
            gaps: Vec::new(),
            states_end: None,
            judged_until: None,
            events: Vec::new(),
            dropped: 0,
            timeouts: 0,
            is_closed: false,
            reported_rtt: histogram(),
            measured_rtt: histogram(),
            rtt_max_ms: 0.0,
            rates: histogram(),
            spreads: std::array::from_fn(|_| histogram()),
            inflight_max: 0,
            inflight_time: 0.0,
            inflight_reports: 0,
            windows: Windows::new(first, MAX_WINDOWS[size]),
            app_limited: false,
            named_block: None,
            connection_blocked: false,
            blocked_streams: HashSet::new(),
            total_lost: 0,
        }
    }

    /// Whether it has anything to analyse.
    pub(super) fn has_anything(&self) -> bool {
        self.metric_events > 0
            || self.packets.sent > 0
            || self.received > 0
            || self.packets.lost_count > 0
            || !self.states.is_empty()
    }

    /// Adds an event. `scale`: milliseconds of a unit of time.
    pub(super) fn add(&mut self, event: &Event, at: Time, scale: f64, file: &mut LogFile) {
        if at < self.last {
            file.out_of_order += 1;
        }
        let at = at.max(self.last);
        let inflight = self.metrics.get(index::INFLIGHT).unwrap_or(0.0);
        self.inflight_time += inflight * at.since(self.last).as_secs_f64();
        self.last = at;
        self.windows.pass(at, self.block(), self.metrics.get(index::PACING));
        let data = &event.data;
        match event.short_name() {
            "packet_sent" => self.packet_sent(event, at),
            "packet_received" => self.packet_received(event, at),
            "packets_acked" | "packet_ack" | "packet_acked" => self.packets_acked(event, at),
            "packet_lost" => self.packet_lost(event, at),
            "packets_lost" => {
                let lost = data.get("lost_packets").and_then(whole).unwrap_or(1);
                self.packets.lost_count = self.packets.lost_count.saturating_add(lost);
                self.push_row(at);
            }
            "spurious_loss" | "spurious_loss_detected" => {
                self.packets.on_spurious(numbered(data, event.path));
                self.push_event(at, EventKind::SpuriousLoss, None);
            }
            "congestion_state_updated" | "congestion_metric_update" => {
                if self.path.is_none_or(|path| path == event.path) {
                    self.state(event, at);
                }
                self.metrics_updated(event, at, scale, file);
            }
            "metrics_updated"
            | "recovery_metrics_updated"
            | "metric_update"
            | "metrics_update"
            | "pacing_metric_update"
            | "bandwidth_est_update"
            | "network_path_model_update" => self.metrics_updated(event, at, scale, file),
            "app_limited_update" => self.app_limited_update(data),
            "connection_data_blocked_updated" | "stream_data_blocked_updated" => self.block_updated(data),
            "loss_timer_updated" | "timer_updated" => self.timer_updated(data, at),
            "connection_closed" | "connection_close" => self.is_closed = true,
            "event" if event.name.starts_with("fullpipe:") => self.own_event(data, at),
            "flow_started" => self.started = Some(at),
            _ => {}
        }
    }

    /// The mean time in flight by Little's law, in nanoseconds: reported bytes in flight per byte sent.
    pub(super) fn mean_flight_ns(&self) -> Option<f64> {
        let sent = self.packets.sent_bytes as f64;
        let is_enough = self.inflight_reports >= MIN_REPORTS && self.packets.sent >= MIN_REPORTS;
        (is_enough && sent > 0.0 && self.inflight_time > 0.0).then(|| self.inflight_time / sent * 1e9)
    }

    /// What holds the sender back now.
    fn block(&self) -> Block {
        if let Some(named) = self.named_block {
            return named;
        }
        let inflight = self.inflight();
        let waits_for_credit = self.connection_blocked || !self.blocked_streams.is_empty();
        let packet = self.packets.packet_bytes();
        match (inflight, self.metrics.get(index::CWND)) {
            (Some(inflight), Some(cwnd)) if inflight + packet as f64 > cwnd => Block::Window,
            _ if waits_for_credit => Block::FlowControl,
            _ if self.app_limited => Block::Application,
            (Some(0.0), _) => Block::Application,
            _ => Block::None,
        }
    }

    /// Bytes in flight: reported, or tracked from packets and their acknowledgments.
    fn inflight(&self) -> Option<f64> {
        let tracked = self.packets.has_acks.then_some(self.packets.inflight as f64);
        self.metrics.get(index::INFLIGHT).or(tracked)
    }

    fn packet_sent(&mut self, event: &Event, at: Time) {
        let frames = frames(&event.data);
        let sent = packet(&event.data);
        let counts = frames.as_ref().is_none_or(|frames| {
            frames.is_empty() || frames.iter().any(|f| !matches!(f, Frame::Ack(..) | Frame::Silent))
        });
        let number = sent.number.map(|n| (key(sent.space, event.path), n));
        self.is_multipath |= *self.packet_path.get_or_insert(event.path) != event.path;
        self.packets.on_sent(at, number, sent.bytes, counts);
        self.windows.add_sent(if counts { sent.bytes } else { 0 });
        if counts {
            extend(&mut self.sent_span, at);
        }
        if self.metrics.get(index::INFLIGHT).is_none() && self.packets.has_acks {
            self.inflight_max = self.inflight_max.max(self.packets.inflight);
        }
        for frame in frames.into_iter().flatten() {
            match frame {
                Frame::Stream { id, offset, length } => {
                    self.sent_streams.add(id, offset, length, MAX_STREAMS[self.size]);
                }
                Frame::Blocked(stream) => self.credit(stream, true),
                _ => {}
            }
        }
    }

    fn packet_received(&mut self, event: &Event, at: Time) {
        let frames = frames(&event.data);
        let received = packet(&event.data);
        self.received += 1;
        self.received_bytes = self.received_bytes.saturating_add(received.bytes);
        for frame in frames.into_iter().flatten() {
            match frame {
                Frame::Ack(ranges, path) => {
                    self.acked(at, key(received.space, path.unwrap_or(event.path)), ranges);
                }
                Frame::Stream { id, offset, length } => {
                    extend(&mut self.received_span, at);
                    self.received_streams.add(id, offset, length, MAX_STREAMS[self.size]);
                }
                Frame::Credit(stream) => self.credit(stream, false),
                _ => {}
            }
        }
    }

    fn credit(&mut self, stream: Option<u64>, is_blocked: bool) {
        match (stream, is_blocked) {
            (None, _) => self.connection_blocked = is_blocked,
            (Some(id), true) if self.blocked_streams.len() < MAX_STREAMS[self.size] => {
                self.blocked_streams.insert(id);
            }
            (Some(_), true) => {}
            (Some(id), false) => {
                self.blocked_streams.remove(&id);
            }
        }
    }

    fn packets_acked(&mut self, event: &Event, at: Time) {
        let data = &event.data;
        let named = first(data, &["packet_number_space", "packet_num_space", "packet_type"]);
        let space = space(named.and_then(Value::as_str).unwrap_or_default());
        let numbers = match first(data, &["packet_numbers", "packet_num", "packet_number"]) {
            Some(Value::Array(numbers)) => numbers.iter().filter_map(whole).map(|n| (n, n)).collect(),
            Some(one) => whole(one).map(|n| (n, n)).into_iter().collect(),
            None => Vec::new(),
        };
        self.acked(at, key(space, event.path), numbers);
    }

    fn acked(&mut self, at: Time, key: u64, ranges: Vec<(u64, u64)>) {
        let least = self.metrics.get(index::MIN_RTT).or_else(|| self.measured_rtt.least().map(|ns| ns / 1e6));
        let min_rtt = least.map(|ms| Span::from_secs_f64(ms / 1e3));
        let spurious = self.packets.spurious;
        let acked = self.packets.on_acked(at, key, ranges, min_rtt);
        if self.packets.spurious > spurious {
            self.push_event(at, EventKind::SpuriousLoss, None);
        }
        if acked.bytes == 0 {
            return;
        }
        self.last_ack = Some(at);
        self.acks += 1;
        self.windows.add_delivered(acked.bytes);
        if let Some(rtt) = acked.rtt {
            self.measured_rtt.add(rtt.as_nanos() as f64, 1.0);
            if self.reported_rtt.count() == 0 {
                self.windows.add_rtt(rtt.as_millis_f64());
                self.rtt_max_ms = self.rtt_max_ms.max(rtt.as_millis_f64());
            }
        }
        if self.app_limited {
            self.packets.mark_app_limited();
        }
        let mut row = self.row();
        if let Some((rate, app_limited)) = acked.rate {
            row[rows::index::DELIVERY_RATE] = rate.as_bits_per_sec_f64();
            if !app_limited {
                self.rates.add(rate.as_bytes_per_sec() as f64, acked.bytes as f64);
            }
        }
        self.rows.push(at, row);
    }

    fn packet_lost(&mut self, event: &Event, at: Time) {
        let number = numbered(&event.data, event.path);
        match event.data.get("lost_packets").and_then(whole) {
            // A count of all lost packets so far.
            Some(total) if number.is_none() => {
                self.packets.lost_count = self.packets.lost_count.max(total);
            }
            _ => self.packets.on_lost(number),
        }
        self.push_row(at);
    }

    fn metrics_updated(&mut self, event: &Event, at: Time, scale: f64, file: &mut LogFile) {
        if *self.path.get_or_insert(event.path) != event.path {
            self.other_paths += 1;
            return;
        }
        if self.metric_events == 0 {
            self.initial_rtt = initial_rtt(&event.data);
        }
        let update = self.metrics.update(&event.data, scale);
        file.implausible += update.implausible;
        // quiche counts losses here.
        if let Some(total) = event.data.get("cf_lost_packets").and_then(|o| o.get("total")).and_then(whole) {
            self.total_lost = self.total_lost.max(total);
            self.packets.lost_count = self.packets.lost_count.max(self.total_lost);
        }
        if let Some(limited) = event.data.get("app_limited").and_then(truth) {
            self.app_limited = limited;
        }
        if update.known == 0 {
            return;
        }
        self.metric_events += 1;
        if let Some(ms) = update.get(index::RTT) {
            self.reported_rtt.add(ms * 1e6, 1.0);
            self.rtt_max_ms = self.rtt_max_ms.max(ms);
            self.windows.add_rtt(ms);
        }
        for (spread, metric) in self.spreads.iter_mut().zip([index::CWND, index::PACING, index::BW]) {
            if let Some(value) = update.get(metric) {
                spread.add(value, 1.0);
            }
        }
        if let Some(inflight) = update.get(index::INFLIGHT) {
            self.inflight_reports += 1;
            self.inflight_max = self.inflight_max.max(inflight as u64);
        }
        self.push_row(at);
    }

    fn state(&mut self, event: &Event, at: Time) {
        let name = |field: &Value| match field {
            Value::String(s) => value::name(s),
            other => number(other).map(|n| n.to_string()).unwrap_or_default(),
        };
        let Some(state) = first(&event.data, &["new", "state"]).map(name).filter(|s| !s.is_empty()) else {
            return;
        };
        // Another tuple is another path after a migration, which begins with a new controller.
        if event.tuple.is_some() {
            let tuple = self.tuple.get_or_insert_with(|| event.tuple.clone().unwrap_or_default());
            if event.tuple.as_ref() != Some(tuple) {
                self.tuple.clone_from(&event.tuple);
                self.stop_judging(at, "the connection migrated to another path then");
            }
        }
        let old = event.data.get("old").map(name).filter(|s| !s.is_empty());
        let is_known = |old: &String| self.states.last().is_some_and(|s| is_same(&s.state, old));
        let missed = old.filter(|old| !is_known(old));
        if missed.is_none() && self.states.last().is_some_and(|s| s.state == state) {
            return;
        }
        // The log began in a state, or has no event for it.
        if let Some(old) = missed {
            let from = if self.states.is_empty() { self.started.unwrap_or(self.first) } else { at };
            if self.states.len() < MAX_CHANGES[self.size] {
                self.gaps.push(self.states.len());
            }
            if is_same(&old, &state) {
                self.push_state(from, state);
                return;
            }
            self.push_state(from, old);
        }
        self.push_state(at, state);
    }

    fn push_state(&mut self, at: Time, state: String) {
        if self.states.len() < MAX_CHANGES[self.size] {
            self.states.push(StateChange { at_s: at.as_secs_f64(), state });
        } else {
            self.states_end.get_or_insert(at);
            self.drop_change(at);
        }
    }

    /// A state or an event is beyond the bound.
    fn drop_change(&mut self, at: Time) {
        self.dropped += 1;
        self.stop_judging(at, "later ones are left out");
    }

    fn stop_judging(&mut self, at: Time, why: &'static str) {
        self.judged_until.get_or_insert((at, why));
    }

    fn app_limited_update(&mut self, data: &Object) {
        let limited = data.get("app_limited").and_then(|v| match v.as_str() {
            Some("app limited") => Some(true),
            Some("app unlimited") => Some(false),
            _ => truth(v),
        });
        self.app_limited = limited.unwrap_or(self.app_limited);
        if self.app_limited {
            self.packets.mark_app_limited();
        }
    }

    fn block_updated(&mut self, data: &Object) {
        self.named_block = match (text(data, "new"), text(data, "reason")) {
            (Some("blocked"), Some("application")) => Some(Block::Application),
            (Some("blocked"), Some("congestion_control")) => Some(Block::Window),
            (Some("blocked"), Some("pacing")) => Some(Block::Pacer),
            (Some("blocked"), Some("connection_flow_control" | "stream_flow_control" | "stream_id")) => {
                Some(Block::FlowControl)
            }
            _ => None,
        };
    }

    fn timer_updated(&mut self, data: &Object, at: Time) {
        let is_probe = text(data, "timer_type").is_none_or(|t| t == "pto" || t == "loss_timeout");
        if text(data, "event_type") == Some("expired") && is_probe {
            self.timeouts += 1;
            let seconds = data.get("timeout_ms").and_then(number).map(|ms| ms / 1e3);
            self.push_event(at, EventKind::RetransmissionTimeout, seconds);
        }
    }

    /// An event that only fullpipe writes.
    fn own_event(&mut self, data: &Object, at: Time) {
        let kind = data.get("kind").and_then(|k| serde_json::from_value::<EventKind>(k.clone()).ok());
        if let Some(kind) = kind {
            self.push_event(at, kind, data.get("value").and_then(number));
        }
    }

    fn push_event(&mut self, at: Time, kind: EventKind, value: Option<f64>) {
        if self.events.len() < MAX_CHANGES[self.size] {
            self.events.push(recording::Event { at_s: at.as_secs_f64(), kind, value });
        } else {
            self.drop_change(at);
        }
    }

    fn row(&self) -> [f64; WIDTH] {
        let mut row = [f64::NAN; WIDTH];
        row[..COUNT].copy_from_slice(&self.metrics.0);
        if row[index::INFLIGHT].is_nan() && self.packets.has_acks {
            row[index::INFLIGHT] = self.packets.inflight as f64;
        }
        if self.packets.has_acks {
            row[rows::index::DELIVERED] = self.packets.delivered() as f64;
        }
        if self.packets.sent > 0 {
            row[rows::index::SENT] = self.packets.sent as f64;
        }
        row[rows::index::LOST] = self.packets.lost_count as f64;
        row
    }

    fn push_row(&mut self, at: Time) {
        let row = self.row();
        self.rows.push(at, row);
    }
}

/// Whether two names are one in the spellings of stacks: `ProbeBW_UP` and `probe_bw_up`.
fn is_same(a: &str, b: &str) -> bool {
    let letters = |name: &str| -> Vec<char> {
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    a == b || letters(a) == letters(b)
}

/// The packet-number space and the path as one number.
fn key(space: u64, path: u64) -> u64 {
    path.saturating_mul(4).saturating_add(space)
}

fn numbered(data: &Object, path: u64) -> Option<Number> {
    let lost = packet(data);
    let space = match first(data, &["packet_number_space"]).and_then(Value::as_str) {
        Some(name) => space(name),
        None => lost.space,
    };
    lost.number.map(|n| (key(space, path), n))
}

fn extend(span: &mut Option<(Time, Time)>, at: Time) {
    let from = span.map_or(at, |(from, _)| from);
    *span = Some((from, at));
}
