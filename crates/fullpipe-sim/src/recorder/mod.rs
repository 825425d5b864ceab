//! What a run leaves behind of each flow and each link.

mod histogram;

use crate::sender::{Counts, Sender};
use fullpipe_cc::{CongestionControl, Span, Time};
use fullpipe_experiment::recording::{
    Column, Event, FlowRecording, LinkRecording, Quantiles, QueueQuantiles, Series, StateChange, Summary,
    column,
};
use fullpipe_path::{DropCause, LinkStats};
use fullpipe_units::Rate;
pub(crate) use histogram::Histogram;

/// Quantities in a row.
const WIDTH: usize = 19;

/// Most state changes kept of a flow: a state machine on a path of nanoseconds would fill all memory.
const MOST_STATES: usize = 1 << 20;

const COLUMNS: [&str; WIDTH] = [
    column::GOODPUT_BPS,
    column::RTT_MS,
    column::SRTT_MS,
    column::MIN_RTT_MS,
    column::INFLIGHT_BYTES,
    column::CWND_BYTES,
    column::SSTHRESH_BYTES,
    column::PACING_BPS,
    column::BW_BPS,
    column::DELIVERY_RATE_BPS,
    column::PACING_GAIN,
    column::CWND_GAIN,
    column::INFLIGHT_LONGTERM_BYTES,
    column::INFLIGHT_SHORTTERM_BYTES,
    column::DELIVERED_BYTES,
    column::SENT_PACKETS,
    column::RETRANSMITTED_PACKETS,
    column::LOST_PACKETS,
    column::ROUNDS,
];

/// Running totals of a flow: the summary is the difference of two.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    delivered: u64,
    counts: Counts,
    dropped: u64,
}

/// The record of one flow.
#[derive(Debug)]
pub(crate) struct FlowRecorder {
    /// The series by rows, as they come: one piece of memory a row, not one a quantity.
    rows: Vec<(Time, [f64; WIDTH])>,
    states: Vec<(Time, &'static str)>,
    events: Vec<Event>,
    rtt: Histogram,
    queue: Histogram,
    /// Data packets that the path dropped.
    pub dropped: u64,
    at_warmup: Totals,
    row_delivered: u64,
    row_at: Time,
    /// When the last byte was delivered, for flows of a given size.
    pub completed: Option<Time>,
}

fn or_nan(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

impl FlowRecorder {
    pub fn new(rows: usize, start: Time) -> Self {
        FlowRecorder {
            rows: Vec::with_capacity(rows),
            states: Vec::new(),
            events: Vec::new(),
            rtt: Histogram::default(),
            queue: Histogram::default(),
            dropped: 0,
            at_warmup: Totals::default(),
            row_delivered: 0,
            row_at: start,
            completed: None,
        }
    }

    /// A round trip took `rtt`.
    #[inline]
    pub fn on_rtt(&mut self, rtt: Span) {
        self.rtt.add(rtt.as_nanos());
    }

    /// A data packet waited `queued` in queues.
    #[inline]
    pub fn on_queued(&mut self, queued: Span) {
        self.queue.add(queued.as_nanos());
    }

    /// The controller is in `state`; whether that is new.
    #[inline]
    pub fn on_state(&mut self, now: Time, state: &'static str) -> bool {
        // The same state is mostly the same text in memory.
        if let Some(&(_, last)) = self.states.last()
            && (std::ptr::eq(last, state) || last == state)
        {
            return false;
        }
        if self.states.len() < MOST_STATES {
            self.states.push((now, state));
        }
        true
    }

    pub fn on_event(&mut self, event: Event) {
        if self.events.len() < MOST_STATES {
            self.events.push(event);
        }
    }

    /// Data packets that arrived at the receiver since the warm-up.
    #[cfg(test)]
    pub fn arrived(&self) -> u64 {
        self.queue.len()
    }

    /// The run is over: all that was measured is counted from here on.
    pub fn settle(&mut self) {
        self.rtt.settle();
        self.queue.settle();
    }

    /// When the last row was added to the series.
    pub fn last_row(&self) -> Time {
        self.row_at
    }

    fn totals<C: CongestionControl>(&self, sender: &Sender<C>, delivered: u64) -> Totals {
        Totals { delivered, counts: sender.counts, dropped: self.dropped }
    }

    /// The warm-up is over: figures count from here.
    pub fn warmed_up<C: CongestionControl>(&mut self, sender: &Sender<C>, delivered: u64) {
        self.at_warmup = self.totals(sender, delivered);
        self.rtt = Histogram::default();
        self.queue = Histogram::default();
    }

    /// Adds a row to the series.
    pub fn sample<C: CongestionControl>(&mut self, now: Time, sender: &Sender<C>, delivered: u64) {
        let snapshot = sender.controller().snapshot();
        let (rtt, srtt, _) = sender.rtts();
        let interval = now.since(self.row_at).as_secs_f64();
        let goodput = (delivered - self.row_delivered) as f64 * 8.0 / interval;
        self.row_delivered = delivered;
        self.row_at = now;
        let ms = |span: Option<Span>| or_nan(span.map(Span::as_millis_f64));
        let bps = |rate: Option<Rate>| or_nan(rate.map(Rate::as_bits_per_sec_f64));
        let bytes = |n: Option<u64>| or_nan(n.map(|n| n as f64));
        self.rows.push((
            now,
            [
                goodput,
                ms(rtt),
                ms(srtt),
                ms(snapshot.min_rtt),
                sender.inflight() as f64,
                sender.window() as f64,
                bytes(snapshot.ssthresh),
                bps(snapshot.pacing_rate),
                bps(snapshot.bw),
                bps(Some(sender.delivery_rate())),
                or_nan(snapshot.pacing_gain.map(|g| g.as_f64())),
                or_nan(snapshot.cwnd_gain.map(|g| g.as_f64())),
                bytes(snapshot.inflight_longterm),
                bytes(snapshot.inflight_shortterm),
                sender.delivered() as f64,
                sender.counts.sent as f64,
                sender.counts.retransmitted as f64,
                sender.counts.marked_lost as f64,
                or_nan(snapshot.rounds.map(|n| n as f64)),
            ],
        ));
    }

    /// The flow in figures, over `duration`.
    pub fn summary<C: CongestionControl>(
        &self,
        sender: &Sender<C>,
        delivered: u64,
        duration: Span,
        start: Time,
    ) -> Summary {
        let (all, before) = (self.totals(sender, delivered), &self.at_warmup);
        let bytes = all.delivered - before.delivered;
        Summary {
            duration_s: duration.as_secs_f64(),
            goodput_bps: per_second(bytes, duration),
            utilization: None,
            bytes_delivered: bytes,
            packets_sent: all.counts.sent - before.counts.sent,
            packets_retransmitted: all.counts.retransmitted - before.counts.retransmitted,
            packets_lost: all.dropped - before.dropped,
            rtt_ms: quantiles(&self.rtt),
            queue_ms: queue_quantiles(&self.queue),
            completion_s: self.completed.map(|at| at.since(start).as_secs_f64()),
        }
    }

    /// The recording of the flow with its `summary`. Columns without any value are left out.
    pub fn finish<C: CongestionControl>(
        self,
        sender: &Sender<C>,
        label: String,
        cc: String,
        start: Time,
        summary: Summary,
    ) -> FlowRecording {
        let mut series = by_columns(&self.rows);
        series.columns.retain(|c| c.values.iter().any(|v| v.is_finite()));
        let states = self.states.iter();
        let happened = sender.events.iter();
        let mut events = self.events;
        events.extend(happened.map(|&(at, kind, value)| Event { at_s: at.as_secs_f64(), kind, value }));
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
        }
    }
}

/// Rows turned into columns, a block at a time: so that neither rows nor columns leave the cache.
fn by_columns(rows: &[(Time, [f64; WIDTH])]) -> Series {
    const BLOCK: usize = 128;
    let column = |name: &&str| Column { name: (*name).to_owned(), values: Vec::with_capacity(rows.len()) };
    let mut series = Series {
        t_s: rows.iter().map(|(at, _)| at.as_secs_f64()).collect(),
        columns: COLUMNS.iter().map(column).collect(),
    };
    for block in rows.chunks(BLOCK) {
        for (i, column) in series.columns.iter_mut().enumerate() {
            column.values.extend(block.iter().map(|(_, row)| row[i]));
        }
    }
    series
}

/// `bytes` in `duration` as bits per second.
fn per_second(bytes: u64, duration: Span) -> f64 {
    if duration.is_zero() { 0.0 } else { bytes as f64 * 8.0 / duration.as_secs_f64() }
}

fn in_ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn quantiles(h: &Histogram) -> Quantiles {
    let q = |q| h.quantile(q).map(in_ms);
    Quantiles { min: h.min().map(in_ms), p50: q(0.50), p95: q(0.95), p99: q(0.99) }
}

fn queue_quantiles(h: &Histogram) -> QueueQuantiles {
    let q = |q| h.quantile(q).map(in_ms);
    QueueQuantiles { p50: q(0.50), p95: q(0.95), max: h.max().map(in_ms) }
}

/// All flows together, over `duration`.
pub(crate) fn total(flows: &[Summary], recorders: &[&FlowRecorder], duration: Span) -> Summary {
    let (mut rtt, mut queue) = (Histogram::default(), Histogram::default());
    for r in recorders {
        rtt.merge(&r.rtt);
        queue.merge(&r.queue);
    }
    let sum = |of: fn(&Summary) -> u64| flows.iter().map(of).sum::<u64>();
    let bytes = sum(|f| f.bytes_delivered);
    let completions: Option<Vec<f64>> = flows.iter().map(|f| f.completion_s).collect();
    Summary {
        duration_s: duration.as_secs_f64(),
        goodput_bps: per_second(bytes, duration),
        utilization: None,
        bytes_delivered: bytes,
        packets_sent: sum(|f| f.packets_sent),
        packets_retransmitted: sum(|f| f.packets_retransmitted),
        packets_lost: sum(|f| f.packets_lost),
        rtt_ms: quantiles(&rtt),
        queue_ms: queue_quantiles(&queue),
        completion_s: completions.map(|all| all.into_iter().fold(0.0, f64::max)),
    }
}

/// The series of one link.
#[derive(Debug)]
pub(crate) struct LinkRecorder {
    series: Series,
}

impl LinkRecorder {
    pub fn new() -> Self {
        let columns = [column::QUEUE_BYTES, column::RATE_BPS, column::DROPPED_PACKETS];
        LinkRecorder { series: Series::with_columns(columns) }
    }

    /// Adds a row to the series.
    pub fn sample(&mut self, now: Time, stats: &LinkStats) {
        let rate = if stats.rate == Rate::MAX { f64::NAN } else { stats.rate.as_bits_per_sec_f64() };
        let row = [stats.queue_bytes as f64, rate, stats.dropped_packets() as f64];
        self.series.push(now.as_secs_f64(), &row);
    }

    /// The recording of the link.
    pub fn finish(self, label: String, stats: &LinkStats) -> LinkRecording {
        let drops = DropCause::ALL.iter().map(|&cause| (cause.name().to_owned(), stats.dropped_by(cause)));
        let mut series = self.series;
        series.columns.retain(|c| c.values.iter().any(|v| v.is_finite()));
        LinkRecording {
            label,
            packets_in: stats.arrived_packets,
            packets_out: stats.delivered_packets,
            drops: drops.filter(|&(_, n)| n > 0).collect(),
            ce_marked: stats.marked_packets,
            series,
        }
    }
}
