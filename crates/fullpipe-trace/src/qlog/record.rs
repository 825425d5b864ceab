//! A connection of a log as a record and as a recording.

use super::checks;
use super::connection::Recorder;
use super::header::Header;
use super::limits::{Path, limits};
use super::metrics::{INITIAL_RTT_SECONDS, index};
use super::streams::Streams;
use crate::connection::sustained_rate;
use crate::histogram::Histogram;
use crate::quantity;
use fullpipe_experiment::connection::{
    Closing, Connection, Direction, Heading, Judged, Limits, Log, Place, Point, RoundTrips, Sender, Spread,
    StateTime, Vantage,
};
use fullpipe_experiment::recording::{
    FlowRecording, PathFacts, Provenance, Quantiles, Recording, Source, Summary, column,
};
use fullpipe_units::{Rate, Span, Time};
use std::net::{Ipv6Addr, SocketAddr};

/// A log does not have addresses as a rule.
const NO_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
/// Reported and measured round-trip times differ by the delay of acknowledgments, not tenfold.
const UNIT_FACTOR: f64 = 30.0;
/// No sender exceeds its pacing rate twofold for long.
const PACING_FACTOR: f64 = 2.0;
/// Different states that are listed.
const MAX_STATES: usize = 64;

/// A connection of a log.
#[derive(Clone, Debug)]
pub struct LoggedConnection {
    /// The record of the connection; `log` has what only a log shows.
    pub record: Connection,
    flow: FlowRecording,
    controller: String,
}

impl LoggedConnection {
    /// The connection as a recording: the flow that the endpoint sent, with the controller's states.
    pub fn recording(&self) -> Recording {
        let log = self.record.log.as_deref();
        let direction = self.sent();
        let path = PathFacts {
            rate_bps: None,
            goodput_limit_bps: direction.btlbw.map(Rate::as_bits_per_sec_f64),
            base_rtt_ms: direction.rtprop.map(Span::as_millis_f64),
            bdp_bytes: direction.bdp_bytes,
            buffer_bytes: None,
            description: format!(
                "{}, {}",
                direction.rtprop.map_or_else(
                    || "unknown path".to_owned(),
                    |rtt| format!("RTprop {}", quantity::span(rtt))
                ),
                quantity::logged_at(self.record.vantage.point)
            ),
        };
        Recording {
            label: log.map(|l| l.title.clone()).unwrap_or_default(),
            contender: None,
            varied: Vec::new(),
            source: Source::Log,
            cc: self.controller.clone(),
            seed: 0,
            valid: true,
            invalid_because: Vec::new(),
            summary: self.flow.summary.clone(),
            fairness: None,
            flows: vec![self.flow.clone()],
            links: Vec::new(),
            path,
            checks: Vec::new(),
            health: None,
            provenance: Provenance { version: env!("CARGO_PKG_VERSION").to_owned(), ..Provenance::default() },
        }
    }

    /// The data that the endpoint sent.
    pub fn sent(&self) -> &Direction {
        self.record.direction(heading(self.record.vantage.point))
    }
}

/// The direction of the data that the endpoint at `point` sent.
pub(crate) fn heading(point: Point) -> Heading {
    if point == Point::Server { Heading::ToClient } else { Heading::ToServer }
}

/// The record of what `r` has read, as connection `number` of its file.
pub(super) fn connection(r: Recorder, header: &Header, number: u32) -> LoggedConnection {
    let mut notes = notes(&r, header);
    let units = units(&r, &mut notes);
    let sent = sent(&r, header, units);
    let received = received(&r);
    let title = match (&r.group, header.title.as_str()) {
        (Some(group), _) => group.clone(),
        (None, "") => format!("connection {number}"),
        (None, title) => title.to_owned(),
    };
    let controller = r.controller.clone().or_else(|| header.controller.clone()).unwrap_or_default();
    let end = r.last.as_secs_f64();
    let states = state_times(&r, r.states_end.map_or(end, Time::as_secs_f64));
    let flow = flow(&r, &sent, &title, &controller);
    let spread = |h: &Histogram| -> Option<Spread> {
        Some(Spread { min: h.least()?, p50: h.quantile(0.5)?, max: h.quantile(1.0)? })
    };
    let [cwnd, pacing, bandwidth] = &r.spreads;
    let facts = checks::Facts {
        controller: &controller,
        packet_bytes: Some(r.packets.largest).filter(|b| *b > 0),
        end_s: r.judged_until.map_or(end, |(until, _)| until.as_secs_f64()),
        is_cut: r.judged_until.is_some(),
        gaps: &r.gaps,
        interval_s: r.rows.interval().as_secs_f64(),
        units,
        has_every_rtt: r.acks > 0 && r.reported_rtt.count().saturating_mul(10) >= r.acks.saturating_mul(9),
    };
    let checks = if r.is_multipath && r.metrics.get(index::INFLIGHT).is_none() {
        // Bytes in flight that are tracked are those of all paths.
        let mut of_path = flow.clone();
        of_path.series.columns.retain(|c| c.name != column::INFLIGHT_BYTES);
        checks::judge(&of_path, &facts)
    } else {
        checks::judge(&flow, &facts)
    };
    if let Some((until, why)) =
        r.judged_until.filter(|_| checks.iter().any(|c| c.result != Judged::NotJudged))
    {
        notes
            .push(format!("the checks cover the time until {}: {why}", quantity::span(until.since(r.first))));
    }
    let log = Log {
        has_packets: r.packets.sent > 0 || r.received > 0,
        has_streams: r.sent_streams.frames > 0,
        cwnd_bytes: spread(cwnd),
        pacing_bps: spread(pacing),
        bandwidth_bps: spread(bandwidth),
        lost: lost(&r),
        spurious: r.packets.spurious,
        timeouts: r.timeouts,
        states,
        checks,
        title,
    };
    let heading = heading(header.point);
    let (to_server, to_client) = match heading {
        Heading::ToServer => (sent, received),
        Heading::ToClient => (received, sent),
    };
    let writer = if header.writer.is_empty() { String::new() } else { format!(" `{}`", header.writer) };
    let evidence = match header.point {
        Point::Unknown => Vec::new(),
        _ => vec![format!("the log{writer} says so")],
    };
    let record = Connection {
        number,
        client: NO_ADDRESS,
        server: NO_ADDRESS,
        start_s: r.date_s.unwrap_or(0.0),
        duration: r.last.since(r.first),
        opening: Default::default(),
        closing: if r.is_closed { Closing::Closed } else { Closing::Open },
        vantage: Vantage { point: header.point, is_guess: false, evidence },
        to_server,
        to_client,
        notes,
        socket: None,
        log: Some(Box::new(log)),
    };
    LoggedConnection { record, flow, controller }
}

/// What the log does not have, and what was left out.
fn notes(r: &Recorder, header: &Header) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |when: bool, words: String| {
        if when {
            notes.push(words);
        }
    };
    note(
        header.failure.is_some(),
        format!("the log was not converted completely: {}", header.failure.as_deref().unwrap_or_default()),
    );
    note(
        header.point == Point::Unknown,
        "the log does not say which end wrote it: what it sent is shown as client → server".to_owned(),
    );
    note(
        r.metric_events == 0,
        "the log has no `recovery:metrics_updated` events: windows and pacing rates are unknown".to_owned(),
    );
    note(
        r.packets.sent == 0,
        "the log has no `packet_sent` events: bytes, goodput and delivery rates are unknown".to_owned(),
    );
    note(
        r.packets.sent > 0 && !r.packets.has_acks,
        "the log has no ACK frames and no `packets_acked` events: goodput and BtlBw are unknown".to_owned(),
    );
    note(
        r.other_paths > 0,
        format!(
            "{} with metrics or states of further paths left out",
            quantity::count(r.other_paths, "event")
        ),
    );
    note(r.dropped > 0, format!("states and events beyond the limit are left out: {}", r.dropped));
    notes
}

/// Which values are in the units that qlog defines, as far as the log's own packets show it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    pub(super) pacing_is_sound: bool,
    pub(super) rtt_is_sound: bool,
}

/// Compares the units of the log with its own packets.
fn units(r: &Recorder, notes: &mut Vec<String>) -> Units {
    // Without ACKs, what is in flight shows how long it stays there.
    let measured = r.measured_rtt.quantile(0.5).or_else(|| r.mean_flight_ns());
    let factor = r.reported_rtt.quantile(0.5).zip(measured).map(|(reported, measured)| reported / measured);
    let differs = factor.filter(|factor| !(1.0 / UNIT_FACTOR..=UNIT_FACTOR).contains(factor));
    let is_initial = r.initial_rtt.is_some_and(|rtt| (rtt / INITIAL_RTT_SECONDS - 1.0).abs() < 1e-6);
    // A path may have this very round-trip time in milliseconds.
    let is_initial = is_initial && (factor.is_none() || differs.is_some());
    if is_initial {
        notes.push(
            "the log begins with a round-trip time of 0.333, the initial one of RFC 9002 in seconds: all of \
             them may be in seconds, qlog has milliseconds"
                .to_owned(),
        );
    }
    if let (Some(factor), Some(measured)) = (differs, measured) {
        notes.push(format!(
            "the round-trip times of the log are {factor:.3} times those of its packets ({}): they may be in \
             another unit than milliseconds",
            quantity::span(Span::from_nanos(measured as u64))
        ));
    }
    let (_, windows) = r.windows.all();
    let windows = windows.iter().filter(|w| w.paced_time == w.observed && w.blocked[0] == 0);
    let (sent, paced) = windows.fold((0.0, 0.0), |(s, p), w| (s + w.sent as f64, p + w.paced));
    let pacing_is_sound = paced <= 0.0 || sent <= PACING_FACTOR * paced;
    if !pacing_is_sound {
        notes.push(format!(
            "the log has packets at {:.1} times its pacing rate: `pacing_rate` may be in bytes per second, \
             qlog has bits per second",
            sent / paced
        ));
    }
    Units { pacing_is_sound, rtt_is_sound: !is_initial && differs.is_none() }
}

fn round_trips(r: &Recorder) -> RoundTrips {
    let rtt = if r.reported_rtt.count() > 0 { &r.reported_rtt } else { &r.measured_rtt };
    let span = |ns: Option<f64>| ns.map(|ns| Span::from_nanos(ns as u64));
    // The bins of a histogram are rounded; a minimum that the log has is exact.
    let reported = r.metrics.get(index::MIN_RTT).map(|ms| Span::from_secs_f64(ms / 1e3));
    let least = span(rtt.least());
    RoundTrips {
        samples: rtt.count(),
        min: match (least, reported) {
            (Some(a), Some(b)) if a.as_nanos().abs_diff(b.as_nanos()) > b.as_nanos() / 100 => Some(a.min(b)),
            (a, b) => b.or(a),
        },
        p50: span(rtt.quantile(0.5)),
        p95: span(rtt.quantile(0.95)),
        max: (rtt.count() > 0).then(|| Span::from_secs_f64(r.rtt_max_ms / 1e3)),
    }
}

fn sent(r: &Recorder, header: &Header, units: Units) -> Direction {
    let rtt = round_trips(r);
    let rtprop = rtt.min;
    // What is derived from them needs their unit.
    let sound_rtprop = rtprop.filter(|_| units.rtt_is_sound);
    let btlbw = sustained_rate(&r.rates);
    let active = r.sent_span.map_or(Span::ZERO, |(from, to)| r.last_ack.unwrap_or(to).max(to).since(from));
    let delivered = r.packets.delivered();
    let limits = if r.metric_events > 0 || r.packets.has_acks {
        let path = Path {
            rtprop_ms: sound_rtprop.map(Span::as_millis_f64),
            btlbw,
            estimate_bps: r.spreads[2].quantile(0.5),
            packet_bytes: r.packets.packet_bytes(),
            pacing_is_sound: units.pacing_is_sound,
        };
        limits(&r.windows, &path)
    } else {
        Limits::default()
    };
    let name = r.controller.clone().or_else(|| header.controller.clone());
    Direction {
        place: if header.point == Point::Between { Place::Between } else { Place::Sender },
        bytes: if r.sent_streams.frames > 0 { r.sent_streams.bytes } else { delivered },
        bytes_sent: r.packets.sent_bytes,
        packets: r.packets.sent,
        data_packets: r.packets.counted,
        segments: r.packets.counted,
        segment_bytes: u32::try_from(r.packets.largest).ok().filter(|b| *b > 0),
        active,
        goodput: goodput(delivered, active),
        rtprop,
        btlbw,
        bdp_bytes: btlbw.zip(sound_rtprop).map(|(rate, rtt)| rate.bytes_in(rtt)),
        rtt,
        inflight_max_bytes: Some(r.inflight_max).filter(|b| *b > 0),
        cwnd_at_least_bytes: r.spreads[0].quantile(1.0).map(|b| b as u64),
        // No `retransmissions`: QUIC retransmits data and not packets.
        lost_segments: lost(r).saturating_sub(r.packets.spurious),
        limits,
        sender: name.map(|name| Sender {
            words: format!("{name} (named by the log)"),
            name: Some(name),
            ..Sender::default()
        }),
        ..Direction::default()
    }
}

/// Packets declared lost, at least those whose loss was spurious.
fn lost(r: &Recorder) -> u64 {
    r.packets.lost_count.max(r.packets.spurious)
}

fn received(r: &Recorder) -> Direction {
    let Streams { bytes, .. } = r.received_streams;
    let active = r.received_span.map_or(Span::ZERO, |(from, to)| to.since(from));
    Direction {
        place: Place::Receiver,
        bytes,
        bytes_sent: r.received_bytes,
        packets: r.received,
        active,
        goodput: goodput(bytes, active),
        ..Direction::default()
    }
}

fn goodput(bytes: u64, active: Span) -> Option<Rate> {
    (bytes > 0 && !active.is_zero()).then(|| Rate::from_bytes_in(bytes, active))
}

fn state_times(r: &Recorder, end: f64) -> Vec<StateTime> {
    let mut times: Vec<StateTime> = Vec::new();
    for (i, change) in r.states.iter().enumerate() {
        let until = r.states.get(i + 1).map_or(end, |next| next.at_s);
        let total = Span::from_secs_f64((until - change.at_s).max(0.0));
        if let Some(time) = times.iter_mut().find(|t| t.state == change.state) {
            (time.visits, time.total) = (time.visits + 1, time.total + total);
        } else if times.len() < MAX_STATES {
            times.push(StateTime { state: change.state.clone(), visits: 1, total });
        }
    }
    times
}

fn flow(r: &Recorder, sent: &Direction, title: &str, controller: &str) -> FlowRecording {
    let ms = |s: Option<Span>| s.map(Span::as_millis_f64);
    let start = r.started.unwrap_or(r.first);
    let summary = Summary {
        duration_s: r.last.since(start).as_secs_f64(),
        goodput_bps: sent.goodput.map_or(0.0, Rate::as_bits_per_sec_f64),
        utilization: sent
            .btlbw
            .zip(sent.goodput)
            .map(|(b, g)| (g.as_bits_per_sec_f64() / b.as_bits_per_sec_f64().max(1.0)).min(1.0)),
        bytes_delivered: r.packets.delivered(),
        packets_sent: sent.packets,
        packets_retransmitted: 0,
        packets_lost: sent.lost_segments,
        rtt_ms: Quantiles { min: ms(sent.rtt.min), p50: ms(sent.rtt.p50), p95: ms(sent.rtt.p95), p99: None },
        ..Summary::default()
    };
    FlowRecording {
        label: title.to_owned(),
        cc: controller.to_owned(),
        start_s: start.max(Time::ZERO).as_secs_f64(),
        summary,
        series: r.rows.series(ms(sent.rtt.min)),
        states: r.states.clone(),
        events: r.events.clone(),
        distributions: None,
    }
}
