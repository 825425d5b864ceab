//! Samples every connection at every interval, as `ss -i` would.

use super::connection::Connection;
use super::registry::Registry;
use crate::emulator::{Clock, Views};
use crate::inspect::ControllerState;
use fullpipe_experiment::recording::{
    Distributions, Event, EventKind, FlowRecording, FlowRow, Series, StateChange, Summary, per_second,
};
use fullpipe_experiment::scenario::App;
use fullpipe_kernel::tcp_info::{CaState, CcInfo, TcpInfo};
use fullpipe_units::{Rate, Span, Time};

/// The kernel's time statistics of a connection (Linux `tcp_chrono`), in seconds since its start:
/// busy sending; limited by the receive window; limited by the send buffer. Columns that other
/// engines do not have.
const COUNTED: [&str; 3] = ["busy_s", "receive_window_limited_s", "send_buffer_limited_s"];

/// `TCP_INFINITE_SSTHRESH`: no slow-start threshold yet.
const NO_SSTHRESH: u32 = 0x7fff_ffff;

/// Running totals of a connection; a summary is the difference between two of them.
#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    delivered: u64,
    sent: u64,
    retransmitted: u64,
    dropped: u64,
}

/// One connection while it runs.
pub(crate) struct Sampler {
    connection: Connection,
    series: Series,
    states: Vec<(Time, String)>,
    events: Vec<Event>,
    totals: Totals,
    at_warmup: Totals,
    row: (Time, u64),
    ca_state: CaState,
    time_outs: u16,
    over_at: Option<Time>,
    /// Samples of an application that always has data to send, and those at which TCP had no data.
    bulk_samples: u64,
    bulk_starved: u64,
}

/// The report of a connection.
pub(crate) struct FlowReport {
    pub(crate) recording: FlowRecording,
    /// When it ended.
    pub(crate) end: Time,
    pub(crate) problem: Option<String>,
    /// How late its application started.
    pub(crate) late: Span,
    /// Share of samples at which an application that always has data to send had left TCP without
    /// data.
    pub(crate) starved: f64,
}

impl Sampler {
    pub(crate) fn new(connection: Connection) -> Self {
        let start = connection.start().unwrap_or(Time::NEVER);
        Sampler {
            connection,
            series: Series::with_columns(FlowRow::COLUMNS.into_iter().chain(COUNTED)),
            states: Vec::new(),
            events: Vec::new(),
            totals: Totals::default(),
            at_warmup: Totals::default(),
            row: (start, 0),
            ca_state: CaState::Open,
            time_outs: 0,
            over_at: None,
            bulk_samples: 0,
            bulk_starved: 0,
        }
    }

    /// Samples the connection; returns the controller's state if it has changed, and whether the
    /// connection is over. `inspected` is the controller's state, if
    /// [`Inspect`](crate::Inspect) read it.
    pub(crate) fn sample(
        &mut self,
        clock: &Clock,
        registry: &Registry,
        views: &Views,
        inspected: Option<ControllerState>,
    ) -> (Option<String>, bool) {
        if self.over_at.is_some() {
            return (None, true);
        }
        let (sender, over, completed, start) = {
            let entry = registry.entry(self.connection.number);
            (entry.sender.clone(), entry.over, entry.completed, entry.start)
        };
        let Some(sender) = sender else { return (None, over) };
        if self.row.0 == Time::NEVER {
            self.row.0 = start.unwrap_or_default();
        }
        let now = clock.now();
        let Ok(info) = TcpInfo::query(&*sender) else { return (None, over) };
        let controller_state = inspected
            .or_else(|| CcInfo::query(&*sender).ok().flatten().and_then(|cc| controller_state(&info, &cc)));
        let (rtt, delivered, dropped) = {
            let view = views.flow(self.connection.number);
            (view.last, view.arrived(), view.dropped)
        };
        self.totals = Totals {
            delivered,
            sent: info.data_segs_out.unwrap_or_default().into(),
            retransmitted: info.total_retrans.into(),
            dropped,
        };
        if self.connection.spec.app == App::Bulk && !over && info.bytes_acked.is_some_and(|b| b > 1) {
            self.bulk_samples += 1;
            self.bulk_starved += u64::from(info.notsent_bytes == Some(0));
        }
        self.push_row(now, &info, controller_state.as_ref(), rtt);
        self.note_events(now, &info);
        // All data has arrived; a FIN in flight does not matter.
        if over && (info.unacked == 0 || completed.is_some()) {
            self.over_at = Some(now);
        }
        let state = state_of(&info, controller_state.as_ref());
        let changed =
            state.filter(|s| self.states.last().is_none_or(|(_, last)| last != s)).map(str::to_owned);
        if let Some(state) = &changed {
            self.states.push((now, state.clone()));
        }
        (changed, self.over_at.is_some())
    }

    fn push_row(
        &mut self,
        now: Time,
        info: &TcpInfo,
        controller_state: Option<&ControllerState>,
        rtt: Option<Span>,
    ) {
        let span = now.since(self.row.0).as_secs_f64();
        if span <= 0.0 {
            return;
        }
        let goodput = self.totals.delivered.saturating_sub(self.row.1) as f64 * 8.0 / span;
        self.row = (now, self.totals.delivered);
        let ms = |s: Option<Span>| s.map_or(f64::NAN, Span::as_millis_f64);
        let bps = |r: Option<Rate>| r.map_or(f64::NAN, Rate::as_bits_per_sec_f64);
        let mss = f64::from(info.snd_mss);
        let or_nan = |v: Option<f64>| v.unwrap_or(f64::NAN);
        let none = ControllerState::default();
        let controller_state = controller_state.unwrap_or(&none);
        let min_rtt = controller_state.min_rtt.or(info.min_rtt);
        let ssthresh =
            if info.snd_ssthresh >= NO_SSTHRESH { f64::NAN } else { f64::from(info.snd_ssthresh) * mss };
        let srtt = (!info.rtt.is_zero()).then_some(info.rtt);
        let row = FlowRow {
            goodput_bps: goodput,
            rtt_ms: ms(rtt.or(srtt)),
            srtt_ms: ms(srtt),
            min_rtt_ms: ms(min_rtt),
            inflight_bytes: f64::from(info.inflight()) * mss,
            cwnd_bytes: info.cwnd_bytes() as f64,
            ssthresh_bytes: ssthresh,
            pacing_bps: bps(info.pacing_rate),
            bw_bps: bps(controller_state.bw),
            max_bw_bps: bps(controller_state.max_bw),
            bw_shortterm_bps: bps(controller_state.bw_shortterm),
            delivery_rate_bps: bps(info.delivery_rate),
            pacing_gain: or_nan(controller_state.pacing_gain),
            cwnd_gain: or_nan(controller_state.cwnd_gain),
            inflight_longterm_bytes: or_nan(controller_state.inflight_longterm.map(|n| n as f64)),
            inflight_shortterm_bytes: or_nan(controller_state.inflight_shortterm.map(|n| n as f64)),
            delivered_bytes: self.totals.delivered as f64,
            sent_packets: self.totals.sent as f64,
            retransmitted_packets: self.totals.retransmitted as f64,
            // Only the emulator sees losses, and counts them for the whole run.
            lost_packets: f64::NAN,
            rounds: or_nan(controller_state.rounds.map(|n| n as f64)),
        };
        let counted = [info.busy_time, info.rwnd_limited, info.sndbuf_limited]
            .map(|t| t.map_or(f64::NAN, Span::as_secs_f64));
        let values: Vec<f64> = row.values().into_iter().chain(counted).collect();
        self.series.push(now.as_secs_f64(), &values);
    }

    fn note_events(&mut self, now: Time, info: &TcpInfo) {
        let mut note = |kind, value| self.events.push(Event { at_s: now.as_secs_f64(), kind, value });
        let in_recovery = |s| matches!(s, CaState::Recovery | CaState::Loss);
        match (in_recovery(self.ca_state), in_recovery(info.ca_state)) {
            (false, true) => {
                note(EventKind::RecoveryEntered, Some(f64::from(info.inflight()) * f64::from(info.snd_mss)));
            }
            (true, false) => note(EventKind::RecoveryExited, None),
            _ => {}
        }
        self.ca_state = info.ca_state;
        let time_outs = info.total_rto.unwrap_or_default();
        for _ in self.time_outs..time_outs {
            note(EventKind::RetransmissionTimeout, Some(info.rto.as_secs_f64()));
        }
        self.time_outs = time_outs;
    }

    /// The warm-up is over: resets the figures.
    pub(crate) fn warmed_up(&mut self) {
        self.at_warmup = self.totals;
    }

    /// The report of the connection; `end` is that of the run.
    pub(crate) fn finish(self, registry: &Registry, views: &Views, warmup: Time, end: Time) -> FlowReport {
        let mut entry = registry.entry(self.connection.number);
        let mut view = views.flow(self.connection.number);
        // A flow whose start condition never came true starts at the end.
        let start = entry.start.unwrap_or(end);
        let own_end = entry.completed.unwrap_or(end).min(self.connection.stop()).min(end).max(start);
        let duration = own_end.since(start.max(warmup));
        let (all, before) = (self.totals, self.at_warmup);
        let bytes = all.delivered.saturating_sub(before.delivered);
        let mut events = self.events;
        events.extend(entry.completed.map(|at| Event {
            at_s: at.as_secs_f64(),
            kind: EventKind::Completed,
            value: None,
        }));
        events.extend(std::mem::take(&mut entry.transfers).into_iter().map(|(at, took)| Event {
            at_s: at.as_secs_f64(),
            kind: EventKind::TransferDelivered,
            value: Some(took),
        }));
        events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        let mut distributions =
            Distributions { rtt: std::mem::take(&mut view.rtt), queue: std::mem::take(&mut view.queue) };
        distributions.rtt.flush();
        distributions.queue.flush();
        let spec = self.connection.spec;
        // A send buffer that the scenario limits may starve TCP.
        let starved = match spec.send_buffer {
            Some(_) => 0.0,
            None => self.bulk_starved as f64 / self.bulk_samples.max(1) as f64,
        };
        let summary = Summary {
            duration_s: duration.as_secs_f64(),
            goodput_bps: per_second(bytes, duration.as_secs_f64()),
            utilization: None,
            bytes_delivered: bytes,
            packets_sent: all.sent - before.sent,
            packets_retransmitted: all.retransmitted - before.retransmitted,
            packets_lost: all.dropped - before.dropped,
            rtt_ms: distributions.rtt.rtt_ms(),
            queue_ms: distributions.queue.queue_ms(),
            completion_s: entry.completed.map(|at| at.since(start).as_secs_f64()),
        };
        FlowReport {
            recording: FlowRecording {
                label: spec.label.unwrap_or_else(|| spec.cc.clone()),
                cc: spec.cc,
                start_s: start.as_secs_f64(),
                summary,
                series: self.series.without_empty_columns(),
                states: self
                    .states
                    .into_iter()
                    .map(|(at, state)| StateChange { at_s: at.as_secs_f64(), state })
                    .collect(),
                events,
                distributions: Some(Box::new(distributions)),
            },
            end: own_end,
            problem: entry.problem.take(),
            late: entry.began.map_or(Span::ZERO, |began| began.since(start)),
            starved,
        }
    }
}

/// The state of the kernel's own controller, as far as it reports it.
fn controller_state(info: &TcpInfo, cc: &CcInfo) -> Option<ControllerState> {
    let CcInfo::Bbr(bbr) = cc else { return None };
    // Until the first acknowledgement of data (the SYN counts as one byte) the gains are meaningless.
    let is_new = info.bytes_acked.is_some_and(|bytes| bytes <= 1);
    let bytes = |segments: u32| u64::from(segments) * u64::from(info.snd_mss);
    Some(ControllerState {
        state: if is_new { Some("Startup") } else { bbr.state() },
        bw: Some(bbr.bw),
        max_bw: bbr.v3.map(|v3| v3.bw_hi),
        bw_shortterm: bbr.v3.and_then(|v3| v3.bw_lo),
        min_rtt: Some(bbr.min_rtt),
        pacing_gain: Some(bbr.pacing_gain.as_f64()),
        cwnd_gain: Some(bbr.cwnd_gain.as_f64()),
        inflight_longterm: bbr.v3.and_then(|v3| v3.inflight_hi).map(bytes),
        inflight_shortterm: bbr.v3.and_then(|v3| v3.inflight_lo).map(bytes),
        ..ControllerState::default()
    })
}

/// Name of the controller's state, as far as it can be determined.
fn state_of(info: &TcpInfo, controller_state: Option<&ControllerState>) -> Option<&'static str> {
    let slow_start = if info.in_slow_start() { "SlowStart" } else { "CongestionAvoidance" };
    controller_state.map_or(Some(slow_start), |controller_state| controller_state.state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_experiment::scenario::{Direction, LinkChange, Trigger, Triggers, When};

    /// `tcp_bbr_info` of Google's v3 in ProbeBW_CRUISE, with every bound.
    #[test]
    fn bounds_of_the_kernels_v3_are_recorded_as_those_of_fp_bbr3() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let mut bytes = words(&[1_250_000, 0, 40_000, 256, 576, 2_500_000, 0, 1_000_000, 0]);
        bytes.extend([2, 6, 0, 3]);
        bytes.extend(words(&[50, 90, 7]));
        let info = TcpInfo::decode(&[1; 280]).unwrap();
        let cc = CcInfo::decode("bbr", &bytes).unwrap();
        let found = controller_state(&info, &cc).unwrap();
        let mss = u64::from(info.snd_mss);
        assert_eq!(
            found,
            ControllerState {
                state: Some("ProbeBW_CRUISE"),
                bw: Some(Rate::from_bytes_per_sec(1_250_000)),
                max_bw: Some(Rate::from_bytes_per_sec(2_500_000)),
                bw_shortterm: Some(Rate::from_bytes_per_sec(1_000_000)),
                min_rtt: Some(Span::from_millis(40)),
                pacing_gain: Some(1.0),
                cwnd_gain: Some(2.25),
                inflight_longterm: Some(90 * mss),
                inflight_shortterm: Some(50 * mss),
                rounds: None,
            }
        );
        let v1 = controller_state(&info, &CcInfo::decode("bbr", &bytes[..20]).unwrap()).unwrap();
        assert_eq!((v1.max_bw, v1.inflight_longterm), (None, None));
    }

    /// A phase has the same number in every `tcp_bbr_info`; the gains of two are equal.
    #[test]
    fn each_phase_of_the_kernels_v3_is_a_state_that_fires_its_trigger() {
        let phases = fullpipe_testing::bbr_v3_of_each_phase();
        let info = TcpInfo::decode(&[1; 280]).unwrap();
        let trigger = |state: &str| Trigger {
            when: When {
                flow: 0,
                state: state.to_owned(),
                not_before: Span::ZERO,
                entry: 1,
                delay: Span::ZERO,
            },
            then: LinkChange {
                direction: Direction::default(),
                link: 0,
                rate: Some(Rate::from_bits_per_sec(1_000_000)),
                delay: None,
                loss: None,
                app: None,
            },
        };
        let all: Vec<Trigger> = phases.iter().map(|(_, state)| trigger(state)).collect();
        let mut triggers = Triggers::new(&all);
        for (second, (bytes, state)) in (1..).zip(phases) {
            let cc = CcInfo::decode("bbr", &bytes).unwrap();
            let found = state_of(&info, controller_state(&info, &cc).as_ref());
            assert_eq!(found, Some(state));
            let now = Time::ZERO + Span::from_secs(second);
            triggers.on_state(now, 0, found.unwrap());
            assert_eq!(triggers.due(now).len(), 1, "{state}");
        }
        assert!(triggers.is_empty());
    }
}
