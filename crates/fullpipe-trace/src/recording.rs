//! Converts an analysed connection to a [`Recording`] for reports.

use crate::analysis::TracedConnection;
use crate::connection::Bins;
use fullpipe_experiment::connection::{Connection, Direction, Heading, Place};
use fullpipe_experiment::recording::{
    FlowRecording, PathFacts, Provenance, Quantiles, Recording, Series, Source, StateChange, Summary, column,
};
use fullpipe_units::{Rate, Span};

/// Directions with less than one part in this of the data have no flow.
const MIN_FLOW_PART: u64 = 20;

impl TracedConnection {
    /// Converts the connection to a recording with one flow for each direction with a relevant
    /// amount of data. The states are what limited the flow.
    pub fn recording(&self) -> Recording {
        let c = &self.record;
        let total = c.to_server.bytes + c.to_client.bytes;
        let mut flows: Vec<FlowRecording> = [Heading::ToServer, Heading::ToClient]
            .into_iter()
            .filter(|h| c.direction(*h).bytes > 0 && c.direction(*h).bytes * MIN_FLOW_PART >= total)
            .map(|heading| self.flow(heading))
            .collect();
        let (bulk, heading) = c.bulk();
        flows.sort_by_key(|f| f.label != label(c, heading));
        Recording {
            label: label(c, heading),
            contender: None,
            varied: Vec::new(),
            source: Source::Trace,
            cc: controller(bulk),
            seed: 0,
            valid: true,
            invalid_because: Vec::new(),
            summary: summary(bulk),
            fairness: None,
            flows,
            links: Vec::new(),
            path: path(bulk),
            checks: Vec::new(),
            health: None,
            provenance: Provenance { version: env!("CARGO_PKG_VERSION").to_owned(), ..Provenance::default() },
        }
    }

    fn flow(&self, heading: Heading) -> FlowRecording {
        let d = self.record.direction(heading);
        let bins = &self.bins[usize::from(heading == Heading::ToClient)];
        FlowRecording {
            label: label(&self.record, heading),
            cc: controller(d),
            start_s: 0.0,
            summary: summary(d),
            series: series(bins, d),
            states: states(d),
            events: Vec::new(),
            distributions: None,
        }
    }
}

/// The limits of a direction as states. Where the limit is unknown, and after the last data, the state
/// is empty.
fn states(d: &Direction) -> Vec<StateChange> {
    let mut states: Vec<StateChange> = Vec::new();
    let change = |at: Span, state: &str| StateChange { at_s: at.as_secs_f64(), state: state.to_owned() };
    let intervals = &d.limits.intervals;
    for (i, interval) in intervals.iter().enumerate() {
        states.push(change(interval.from, interval.by.name()));
        if intervals.get(i + 1).is_none_or(|next| interval.to < next.from) {
            states.push(change(interval.to, ""));
        }
    }
    states
}

/// The controller, if identified.
fn controller(d: &Direction) -> String {
    d.sender.as_ref().and_then(|s| s.name.clone()).unwrap_or_default()
}

fn label(c: &Connection, heading: Heading) -> String {
    match heading {
        Heading::ToServer => format!("{} → {}", c.client, c.server),
        Heading::ToClient => format!("{} → {}", c.server, c.client),
    }
}

fn summary(d: &Direction) -> Summary {
    let ms = |s: Option<Span>| s.map(Span::as_millis_f64);
    // A burst within an RTT took that RTT.
    let of_burst = || d.rtprop.filter(|rtt| !rtt.is_zero()).map(|rtt| Rate::from_bytes_in(d.bytes, rtt));
    Summary {
        duration_s: d.active.as_secs_f64(),
        goodput_bps: d.goodput.or_else(of_burst).map_or(0.0, |g| g.as_bits_per_sec_f64()),
        utilization: d
            .btlbw
            .zip(d.goodput)
            .map(|(b, g)| (g.as_bits_per_sec_f64() / b.as_bits_per_sec_f64().max(1.0)).min(1.0)),
        bytes_delivered: d.bytes,
        packets_sent: d.segments,
        packets_retransmitted: d.retransmissions.segments,
        packets_lost: d.lost_segments,
        rtt_ms: Quantiles { min: ms(d.rtt.min), p50: ms(d.rtt.p50), p95: ms(d.rtt.p95), p99: None },
        ..Summary::default()
    }
}

fn path(d: &Direction) -> PathFacts {
    let found = match (d.btlbw_on_the_wire, d.rtprop) {
        (Some(rate), Some(rtt)) => format!("{}, {}", crate::quantity::rate(rate), crate::quantity::span(rtt)),
        (None, Some(rtt)) => format!("unknown rate, {}", crate::quantity::span(rtt)),
        _ => "unknown path".to_owned(),
    };
    let place = match d.place {
        Place::Sender => "captured at the sender",
        Place::Receiver => "captured at the receiver",
        Place::Between => "captured between the ends",
        Place::Unknown => "captured at an unknown point",
    };
    PathFacts {
        rate_bps: d.btlbw_on_the_wire.map(|r| r.as_bits_per_sec_f64()),
        goodput_limit_bps: d.btlbw.map(|r| r.as_bits_per_sec_f64()),
        base_rtt_ms: d.rtprop.map(Span::as_millis_f64),
        bdp_bytes: d.bdp_bytes,
        buffer_bytes: None,
        description: format!("{found}, {place}"),
    }
}

/// Column with the receive window, which engines do not have.
pub const WINDOW_BYTES: &str = "receive_window_bytes";

fn series(bins: &Bins, d: &Direction) -> Series {
    let mut series = Series::with_columns([
        column::GOODPUT_BPS,
        column::RTT_MS,
        column::INFLIGHT_BYTES,
        WINDOW_BYTES,
        column::DELIVERED_BYTES,
        column::SENT_PACKETS,
        column::RETRANSMITTED_PACKETS,
    ]);
    let width = bins.width();
    // Shorter rows would show single packets as spikes: use at least the time of ten segments at BtlBw.
    let mss = u64::from(d.segment_bytes.unwrap_or(1460)).max(1);
    let ten = d.btlbw.map_or(Span::from_millis(10), |b| b.time_to_send(10 * mss));
    let each = (ten.as_nanos().div_ceil(width.as_nanos()).max(1) as usize).min(bins.count().max(1));
    let (mut delivered, mut sent, mut again, mut inflight) = (0, 0, 0, 0);
    for (i, (count, bin)) in bins.grouped(each).into_iter().enumerate() {
        let length = (width * count as u64).as_secs_f64();
        let arrived = if bin.acked > 0 || d.place != Place::Receiver { bin.acked } else { bin.new_bytes };
        delivered += arrived;
        sent += bin.sent.div_ceil(mss);
        again += bin.retransmitted;
        // Without new packets, the previous data is still in flight, unless the flow was idle.
        if bin.inflight > 0 || bin.idle * 2 > width * count as u64 {
            inflight = bin.inflight;
        }
        series.push(
            (width * ((i * each + count) as u64)).as_secs_f64(),
            &[
                arrived as f64 * 8.0 / length,
                bin.rtt_mean().map_or(f64::NAN, Span::as_millis_f64),
                inflight as f64,
                if bin.window > 0 { bin.window as f64 } else { f64::NAN },
                delivered as f64,
                sent as f64,
                again as f64,
            ],
        );
    }
    series
}
