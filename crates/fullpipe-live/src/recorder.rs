//! Records samples as a recording for reports, one flow per connection.

use crate::connection::Connection;
use crate::reader::Snapshot;
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{
    FlowRecording, FlowRow, PathFacts, Provenance, Quantiles, Recording, Series, Source, StateChange, Summary,
};
use fullpipe_units::{Rate, Span};
use std::collections::{BTreeMap, HashMap};

/// Maximum connections recorded; further ones are only counted.
const MAX_FLOWS: usize = 500;
/// Maximum rows of all series, about 80 MB. Beyond, every second row is removed.
const MAX_ROWS: usize = 500_000;

/// Maximum state changes kept per connection.
const MAX_STATES: usize = 2000;

/// Accumulates samples in bounded memory.
#[derive(Debug, Default)]
pub struct Recorder {
    flows: Vec<Flow>,
    by_cookie: HashMap<u64, usize>,
    /// The version of each BBR that a connection reported.
    bbr_versions: BTreeMap<String, u8>,
    omitted: u64,
    rows: usize,
    /// One row is kept per so many samples.
    stride: u64,
    samples: u64,
    end_s: f64,
}

#[derive(Debug)]
struct Flow {
    recording: FlowRecording,
    /// Counters in the first sample: earlier activity is not part of the recording.
    first: Counters,
    last: Counters,
    last_s: f64,
    round_trips: Vec<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    acked: u64,
    sent: u32,
    retransmitted: u32,
}

impl Recorder {
    /// An empty recorder.
    pub fn new() -> Recorder {
        Recorder { stride: 1, ..Recorder::default() }
    }

    /// Adds a sample.
    pub fn add(&mut self, snapshot: &Snapshot) {
        let keep = self.samples.is_multiple_of(self.stride);
        self.samples += 1;
        self.end_s = snapshot.t_s;
        for connection in &snapshot.connections {
            self.add_connection(snapshot.t_s, connection, keep);
        }
        if self.rows > MAX_ROWS {
            self.thin();
        }
    }

    fn add_connection(&mut self, t_s: f64, connection: &Connection, keep: bool) {
        let version = connection.model.as_ref().and_then(|model| model.version);
        if let (Some(name), Some(version)) = (&connection.controller, version)
            && !self.bbr_versions.contains_key(&**name)
        {
            self.bbr_versions.insert((**name).to_owned(), version);
        }
        let Some(figures) = &connection.figures else { return };
        let now = Counters {
            acked: figures.acked_bytes.unwrap_or(0),
            sent: figures.sent_segments.unwrap_or(0),
            retransmitted: figures.retransmitted_segments,
        };
        let at = match self.by_cookie.get(&connection.cookie) {
            Some(&at) => at,
            None if self.flows.len() == MAX_FLOWS => {
                self.omitted += u64::from(connection.watched.is_zero());
                return;
            }
            None => {
                self.by_cookie.insert(connection.cookie, self.flows.len());
                self.flows.push(Flow {
                    recording: FlowRecording {
                        label: format!("{} → {}", connection.local, connection.remote),
                        cc: connection.controller.as_deref().unwrap_or_default().to_owned(),
                        start_s: t_s,
                        summary: Summary::default(),
                        series: Series::with_columns(FlowRow::COLUMNS),
                        states: Vec::new(),
                        events: Vec::new(),
                        distributions: None,
                    },
                    first: now,
                    last: now,
                    last_s: t_s,
                    round_trips: Vec::new(),
                });
                self.flows.len() - 1
            }
        };
        let flow = &mut self.flows[at];
        flow.last = now;
        flow.last_s = t_s;
        if flow.recording.states.len() < MAX_STATES
            && let Some(state) = connection.model.as_ref().and_then(|b| b.state.as_ref())
            && flow.recording.states.last().is_none_or(|last| last.state != *state)
        {
            flow.recording.states.push(StateChange { at_s: t_s, state: state.clone() });
        }
        if keep {
            flow.recording.series.push(t_s, &row(connection, flow.first).values());
            flow.round_trips.push(figures.srtt.as_millis_f64());
            self.rows += 1;
        }
    }

    /// Removes every second row and doubles the stride.
    fn thin(&mut self) {
        self.stride *= 2;
        self.rows = 0;
        for flow in &mut self.flows {
            fn halve(values: &mut Vec<f64>) {
                let mut odd = true;
                values.retain(|_| {
                    odd = !odd;
                    !odd
                });
            }
            halve(&mut flow.recording.series.t_s);
            flow.recording.series.columns.iter_mut().for_each(|c| halve(&mut c.values));
            halve(&mut flow.round_trips);
            self.rows += flow.recording.series.t_s.len();
        }
    }

    /// Number of connections that were not recorded.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// The recording, flows with most data first.
    pub fn results(self) -> Results {
        let end_s = self.end_s;
        let mut flows: Vec<FlowRecording> = self.flows.into_iter().map(|flow| flow.finish()).collect();
        flows.sort_by_key(|f| std::cmp::Reverse(f.summary.bytes_delivered));
        let mut controllers: Vec<&str> = flows.iter().map(|f| f.cc.as_str()).collect();
        controllers.sort_unstable();
        controllers.dedup();
        let cc = controllers.join("+");
        let mut summary = Summary::total(flows.iter().map(|f| &f.summary), end_s);
        summary.duration_s = end_s;
        let others = match self.omitted {
            0 => String::new(),
            n => format!(" ({n} more not recorded)"),
        };
        Results::new(vec![Recording {
            label: "this host".to_owned(),
            contender: None,
            varied: Vec::new(),
            source: Source::Live,
            cc,
            seed: 0,
            valid: true,
            invalid_because: Vec::new(),
            path: PathFacts {
                description: format!("{} live connections{others}", flows.len()),
                ..PathFacts::default()
            },
            summary,
            fairness: None,
            flows,
            links: Vec::new(),
            checks: Vec::new(),
            health: None,
            provenance: Provenance {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                bbr_versions: self.bbr_versions,
                ..Provenance::default()
            },
        }])
    }
}

impl Flow {
    fn finish(self) -> FlowRecording {
        let Flow { mut recording, first, last, last_s, mut round_trips } = self;
        recording.series = recording.series.without_empty_columns();
        let duration_s = last_s - recording.start_s;
        let bytes = last.acked.saturating_sub(first.acked);
        let retransmitted = u64::from(last.retransmitted.wrapping_sub(first.retransmitted));
        round_trips.sort_by(f64::total_cmp);
        let quantile = |q: f64| {
            let at = (round_trips.len() as f64 * q) as usize;
            round_trips.get(at.min(round_trips.len().saturating_sub(1))).copied()
        };
        recording.summary = Summary {
            duration_s,
            goodput_bps: if duration_s > 0.0 { bytes as f64 * 8.0 / duration_s } else { 0.0 },
            bytes_delivered: bytes,
            packets_sent: u64::from(last.sent.wrapping_sub(first.sent)),
            packets_retransmitted: retransmitted,
            packets_lost: retransmitted,
            rtt_ms: Quantiles {
                min: quantile(0.0),
                p50: quantile(0.5),
                p95: quantile(0.95),
                p99: quantile(0.99),
            },
            ..Summary::default()
        };
        recording
    }
}

fn row(connection: &Connection, first: Counters) -> FlowRow {
    let bps = |rate: Option<Rate>| rate.map_or(f64::NAN, Rate::as_bits_per_sec_f64);
    let ms = |span: Option<Span>| span.map_or(f64::NAN, Span::as_millis_f64);
    let mut row = FlowRow { goodput_bps: bps(connection.sending), ..FlowRow::default() };
    if let Some(f) = &connection.figures {
        let mss = f64::from(f.mss_bytes);
        row.srtt_ms = f.srtt.as_millis_f64();
        row.min_rtt_ms = ms(f.min_rtt);
        row.inflight_bytes = f64::from(f.inflight_segments) * mss;
        row.cwnd_bytes = f64::from(f.cwnd_segments) * mss;
        row.ssthresh_bytes = f.ssthresh_segments.map_or(f64::NAN, |s| f64::from(s) * mss);
        row.pacing_bps = bps(f.pacing);
        row.delivery_rate_bps = bps(f.delivery);
        row.delivered_bytes = f.acked_bytes.unwrap_or(0).saturating_sub(first.acked) as f64;
        row.sent_packets = f64::from(f.sent_segments.unwrap_or(0).wrapping_sub(first.sent));
        row.retransmitted_packets = f64::from(f.retransmitted_segments.wrapping_sub(first.retransmitted));
    }
    if let Some(b) = &connection.model {
        row.bw_bps = bps(b.bw);
        if b.min_rtt.is_some() {
            row.min_rtt_ms = ms(b.min_rtt);
        }
        row.pacing_gain = b.pacing_gain.unwrap_or(f64::NAN);
        row.cwnd_gain = b.cwnd_gain.unwrap_or(f64::NAN);
        row.max_bw_bps = bps(b.bw_hi);
        row.bw_shortterm_bps = bps(b.bw_lo);
        let mss = connection.figures.as_ref().map_or(f64::NAN, |f| f64::from(f.mss_bytes));
        let bytes = |segments: Option<u32>| segments.map_or(f64::NAN, |s| f64::from(s) * mss);
        row.inflight_longterm_bytes = bytes(b.inflight_hi_segments);
        row.inflight_shortterm_bytes = bytes(b.inflight_lo_segments);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::PathModel;
    use fullpipe_kernel::tcp_info::CcInfo;
    use fullpipe_testing::bbr_v3_of_each_phase;

    #[test]
    fn every_state_and_bound_of_bbr_v3_is_recorded_with_its_version() {
        let mut recorder = Recorder::new();
        for (second, (bytes, _)) in (0..).zip(bbr_v3_of_each_phase()) {
            let mut snapshot = crate::text::tests::example();
            snapshot.t_s = f64::from(second);
            let info = CcInfo::decode("bbr", &bytes).unwrap();
            snapshot.connections[1].model = PathModel::from_cc_info(&info).map(Box::new);
            recorder.add(&snapshot);
        }
        let run = recorder.results().runs.remove(0);
        assert_eq!(run.provenance.bbr_versions, BTreeMap::from([("bbr".to_owned(), 3)]));
        let flow = run.flows.iter().find(|flow| flow.cc == "bbr").unwrap();
        let states: Vec<&str> = flow.states.iter().map(|change| change.state.as_str()).collect();
        let expected: Vec<&str> = bbr_v3_of_each_phase().iter().map(|(_, state)| *state).collect();
        assert_eq!(states, expected);
        let column = |name| flow.series.get(name).unwrap_or_else(|| panic!("{name}"));
        assert!(column("max_bw_bps").iter().all(|bps| *bps == 20e6));
        assert!(column("inflight_longterm_bytes").iter().all(|bytes| *bytes == 90.0 * 1448.0));
        assert_eq!(column("pacing_gain")[3], 1.25);
        assert_eq!(flow.series.get("bw_shortterm_bps"), None, "v3 has no short-term bound here");
    }
}
