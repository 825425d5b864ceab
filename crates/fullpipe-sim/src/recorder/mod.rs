//! The recorders of flows and links. Goodput counts bytes when they arrive at the receiver, each
//! byte once, also beyond a hole. Completion counts bytes delivered to the application in order.

use crate::sender::SenderEvent;
use crate::transport::Telemetry;
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::recording::{
    Column, Distributions, Event, FlowRecording, FlowRow, Histogram, LinkRecording, LinkRow, Series,
    StateChange, Summary, per_second,
};
use fullpipe_path::{DropCause, LinkStats};
use fullpipe_units::Rate;

/// Columns of a row.
const WIDTH: usize = FlowRow::COLUMNS.len();

/// Most state changes and events kept per flow: a state machine on a path of nanoseconds would fill
/// the memory.
const MAX_STATES: usize = 1 << 20;

/// Running totals of a flow; a summary is the difference between two of them.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    arrived: u64,
    sent: u64,
    retransmitted: u64,
    dropped: u64,
}

/// The end of the warm-up, as one flow's figures need it.
#[derive(Debug)]
struct Warmup {
    ended_at: Time,
    totals: Totals,
    /// Packets sent before it ended and dropped after it.
    sent_before: u64,
}

/// The record of one flow.
#[derive(Debug)]
pub(crate) struct FlowRecorder {
    /// The series by rows: each row is contiguous in memory, unlike one vector per column.
    rows: Vec<(Time, [f64; WIDTH])>,
    states: Vec<(Time, &'static str)>,
    events: Vec<Event>,
    rtt: Histogram,
    queue: Histogram,
    /// Data packets that the path dropped.
    pub dropped: u64,
    warmup: Option<Box<Warmup>>,
    row_arrived: u64,
    row_at: Time,
    /// How many rows the series will have.
    expected_rows: usize,
}

fn or_nan(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

impl FlowRecorder {
    pub fn new(rows: usize, start: Time) -> Self {
        FlowRecorder {
            rows: Vec::new(),
            states: Vec::new(),
            events: Vec::new(),
            rtt: Histogram::default(),
            queue: Histogram::default(),
            dropped: 0,
            warmup: None,
            row_arrived: 0,
            row_at: start,
            expected_rows: rows,
        }
    }

    /// A flow that waited for another begins.
    pub fn begin(&mut self, at: Time) {
        self.row_at = at;
    }

    /// Adds an RTT sample.
    #[inline]
    pub fn on_rtt(&mut self, rtt: Span) {
        self.rtt.add(rtt.as_nanos());
    }

    /// Adds the queueing delay of a data packet.
    #[inline]
    pub fn on_queued(&mut self, queued: Span) {
        self.queue.add(queued.as_nanos());
    }

    /// The path dropped a data packet sent at `sent_at`. It counts as lost in the period in which
    /// it was sent.
    pub fn on_dropped(&mut self, sent_at: Time) {
        self.dropped += 1;
        if let Some(warmup) = &mut self.warmup {
            warmup.sent_before += u64::from(sent_at <= warmup.ended_at);
        }
    }

    /// The controller entered `state`.
    pub fn on_state(&mut self, now: Time, state: &'static str) {
        if self.states.len() < MAX_STATES {
            self.states.push((now, state));
        }
    }

    pub fn on_event(&mut self, event: Event) {
        if self.events.len() < MAX_STATES {
            self.events.push(event);
        }
    }

    /// Data packets that arrived at the receiver since the warm-up.
    #[cfg(test)]
    pub fn arrived(&self) -> u64 {
        self.queue.len()
    }

    /// The run is over: counts all pending samples.
    pub fn settle(&mut self) {
        self.rtt.flush();
        self.queue.flush();
    }

    /// When the last row was added to the series.
    pub fn last_row(&self) -> Time {
        self.row_at
    }

    fn totals(&self, sender: &Telemetry, arrived: u64) -> Totals {
        Totals { arrived, sent: sender.sent, retransmitted: sender.retransmitted, dropped: self.dropped }
    }

    /// The warm-up is over: resets the figures.
    pub fn warmed_up(&mut self, now: Time, sender: &Telemetry, arrived: u64) {
        let totals = self.totals(sender, arrived);
        self.warmup = Some(Box::new(Warmup { ended_at: now, totals, sent_before: 0 }));
        self.rtt = Histogram::default();
        self.queue = Histogram::default();
    }

    /// Adds a row to the series.
    pub fn sample(&mut self, now: Time, sender: &Telemetry, arrived: u64) {
        let snapshot = &sender.snapshot;
        let interval = now.since(self.row_at).as_secs_f64();
        let goodput = (arrived - self.row_arrived) as f64 * 8.0 / interval;
        self.row_arrived = arrived;
        self.row_at = now;
        let ms = |span: Option<Span>| or_nan(span.map(Span::as_millis_f64));
        let bps = |rate: Option<Rate>| or_nan(rate.map(Rate::as_bits_per_sec_f64));
        let bytes = |n: Option<u64>| or_nan(n.map(|n| n as f64));
        let row = FlowRow {
            goodput_bps: goodput,
            rtt_ms: ms(sender.rtt),
            srtt_ms: ms(sender.srtt),
            min_rtt_ms: ms(snapshot.min_rtt),
            inflight_bytes: sender.inflight as f64,
            cwnd_bytes: sender.window as f64,
            ssthresh_bytes: bytes(snapshot.ssthresh),
            pacing_bps: bps(snapshot.pacing_rate.or(sender.pacing_rate)),
            bw_bps: bps(snapshot.bw),
            max_bw_bps: bps(snapshot.max_bw),
            bw_shortterm_bps: bps(snapshot.bw_shortterm),
            delivery_rate_bps: bps(sender.delivery_rate),
            pacing_gain: or_nan(snapshot.pacing_gain.map(|g| g.as_f64())),
            cwnd_gain: or_nan(snapshot.cwnd_gain.map(|g| g.as_f64())),
            inflight_longterm_bytes: bytes(snapshot.inflight_longterm),
            inflight_shortterm_bytes: bytes(snapshot.inflight_shortterm),
            delivered_bytes: sender.delivered as f64,
            sent_packets: sender.sent as f64,
            retransmitted_packets: sender.retransmitted as f64,
            lost_packets: sender.lost as f64,
            rounds: or_nan(snapshot.rounds.map(|n| n as f64)),
        };
        if self.rows.is_empty() {
            // Not before, when thousands of flows start and need more memory than ever after.
            self.rows.reserve_exact(self.expected_rows);
        }
        self.rows.push((now, row.values()));
    }

    /// The summary of the flow over `duration`; `completion` is how long it took, if it is
    /// complete.
    pub fn summary(
        &self,
        sender: &Telemetry,
        arrived: u64,
        duration: Span,
        completion: Option<Span>,
    ) -> Summary {
        let all = self.totals(sender, arrived);
        let (before, sent_in_warmup) =
            self.warmup.as_ref().map_or_else(Default::default, |warmup| (warmup.totals, warmup.sent_before));
        let bytes = all.arrived - before.arrived;
        Summary {
            duration_s: duration.as_secs_f64(),
            goodput_bps: per_second(bytes, duration.as_secs_f64()),
            utilization: None,
            bytes_delivered: bytes,
            packets_sent: all.sent - before.sent,
            packets_retransmitted: all.retransmitted - before.retransmitted,
            packets_lost: all.dropped - before.dropped - sent_in_warmup,
            rtt_ms: self.rtt.rtt_ms(),
            queue_ms: self.queue.queue_ms(),
            completion_s: completion.map(Span::as_secs_f64),
        }
    }

    /// The recording of the flow with its `summary`. Empty columns are left out.
    pub fn finish(
        self,
        sender_events: &[SenderEvent],
        label: String,
        cc: String,
        start: Time,
        summary: Summary,
    ) -> FlowRecording {
        let series = by_columns(&self.rows).without_empty_columns();
        let states = self.states.iter();
        let mut events = self.events;
        events.extend(sender_events.iter().map(SenderEvent::recorded));
        events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        FlowRecording {
            label,
            cc,
            start_s: start.as_secs_f64(),
            summary,
            series,
            states: states
                .map(|&(at, state)| StateChange { at_s: at.as_secs_f64(), state: state.to_owned() })
                .collect(),
            events,
            distributions: Some(Box::new(Distributions { rtt: self.rtt, queue: self.queue })),
        }
    }
}

/// Transposes rows into columns, a block at a time, so that both stay in the cache.
fn by_columns(rows: &[(Time, [f64; WIDTH])]) -> Series {
    const BLOCK: usize = 128;
    let column = |name: &&str| Column { name: (*name).to_owned(), values: Vec::with_capacity(rows.len()) };
    let mut series = Series {
        t_s: rows.iter().map(|(at, _)| at.as_secs_f64()).collect(),
        columns: FlowRow::COLUMNS.iter().map(column).collect(),
    };
    for block in rows.chunks(BLOCK) {
        for (i, column) in series.columns.iter_mut().enumerate() {
            column.values.extend(block.iter().map(|(_, row)| row[i]));
        }
    }
    series
}

/// The summary of all flows together, over `duration`, from that of each and its recorder.
pub(crate) fn total<'a>(
    flows: impl Iterator<Item = (&'a Summary, &'a FlowRecorder)> + Clone,
    duration: Span,
) -> Summary {
    let (mut rtt, mut queue) = (Histogram::default(), Histogram::default());
    for (_, r) in flows.clone() {
        rtt.merge(&r.rtt);
        queue.merge(&r.queue);
    }
    let total = Summary::total(flows.map(|(summary, _)| summary), duration.as_secs_f64());
    Summary { rtt_ms: rtt.rtt_ms(), queue_ms: queue.queue_ms(), ..total }
}

/// The series of one link.
#[derive(Debug)]
pub(crate) struct LinkRecorder {
    series: Series,
}

impl LinkRecorder {
    pub fn new() -> Self {
        LinkRecorder { series: Series::with_columns(LinkRow::COLUMNS) }
    }

    /// Adds a row to the series.
    pub fn sample(&mut self, now: Time, stats: &LinkStats) {
        let rate = if stats.rate == Rate::MAX { f64::NAN } else { stats.rate.as_bits_per_sec_f64() };
        let row = LinkRow {
            queue_bytes: stats.queue_bytes as f64,
            rate_bps: rate,
            dropped_packets: stats.dropped_packets() as f64,
        };
        self.series.push(now.as_secs_f64(), &row.values());
    }

    /// The recording of the link.
    pub fn finish(self, label: String, stats: &LinkStats) -> LinkRecording {
        let drops = DropCause::ALL.iter().map(|&cause| (cause.name().to_owned(), stats.dropped_by(cause)));
        LinkRecording {
            label,
            name: None,
            packets_in: stats.arrived_packets,
            packets_out: stats.delivered_packets,
            drops: drops.filter(|&(_, n)| n > 0).collect(),
            ce_marked: stats.marked_packets,
            series: self.series.without_empty_columns(),
        }
    }
}
