//! Access to a recorded flow for the judges.

use crate::{Judgement, TestPath};
use fullpipe_experiment::Recording;
use fullpipe_experiment::recording::{EventKind, FlowRecording, column};
use fullpipe_experiment::scenario::{DATAGRAM_HEADER_BYTES, Scenario};
use std::cell::RefCell;

/// The flow of a run and what its path allows.
pub(crate) struct Observed<'a> {
    /// The whole run, with its other flows and its links.
    pub run: &'a Recording,
    pub flow: &'a FlowRecording,
    /// Initial link rate in bit/s, counting what the window counts (TCP: payload; QUIC: UDP
    /// payload).
    pub limit: f64,
    /// Two-way propagation delay in seconds.
    pub rtt: f64,
    /// BDP in the same bytes.
    pub bdp: f64,
    /// A full packet in the same bytes.
    pub smss: f64,
    /// End of the run.
    pub end: f64,
    /// Whether the flow ran over QUIC.
    pub is_quic: bool,
    /// Values that a judge asked for and the flow never reports.
    unreported: RefCell<Vec<&'static str>>,
}

/// The draft's 2.77 is 709/256 = 2.7695 in Linux and 4·ln 2 = 2.7726 elsewhere: implementations round.
const GAIN_TOLERANCE: f64 = 0.005;

/// Model values of a controller. Bounds are excluded: an infinite bound is not recorded either.
const MODEL: [&str; 8] = [
    column::BW_BPS,
    column::MIN_RTT_MS,
    column::PACING_GAIN,
    column::CWND_GAIN,
    column::PACING_BPS,
    column::DELIVERY_RATE_BPS,
    column::ROUNDS,
    column::INFLIGHT_BYTES,
];

/// Why the draft's cases do not apply to the first flow of `run`; `None` if its states are those of
/// BBR v3.
pub fn why_not_the_draft(run: &Recording) -> Option<String> {
    let flow = run.flows.first()?;
    let mut states = flow.states.iter().map(|s| s.state.as_str());
    if states.clone().any(|state| state == "ProbeBW") {
        return Some("the controller reports states of BBR v1: its ProbeBW has no phases".into());
    }
    let is_bbr = states
        .any(|state| ["Startup", "Drain", "ProbeRTT"].contains(&state) || state.starts_with("ProbeBW_"));
    (!is_bbr).then(|| "the controller reports no states of BBR v3".into())
}

impl<'a> Observed<'a> {
    pub fn new(run: &'a Recording, path: &TestPath, scenario: &Scenario) -> Self {
        let is_quic = !run.provenance.transports.is_empty();
        let smss = match is_quic {
            // QUIC's window counts UDP payload.
            true => scenario.mtu.saturating_sub(DATAGRAM_HEADER_BYTES),
            false => scenario.smss(),
        };
        // `goodput_limit_bps` assumes TCP's payload per packet.
        let of_a_packet = f64::from(smss) / f64::from(scenario.smss());
        let limit = run.path.goodput_limit_bps.unwrap_or(f64::NAN) * of_a_packet;
        let rtt = path.rtt.as_secs_f64();
        Observed {
            run,
            flow: &run.flows[0],
            limit,
            rtt,
            bdp: limit / 8.0 * rtt,
            smss: f64::from(smss),
            end: scenario.duration.as_secs_f64(),
            is_quic,
            unreported: RefCell::default(),
        }
    }

    /// Runs `judge`. If it reads a value that the flow never reports, its findings are discarded, and
    /// the value is noted as not judged.
    pub fn judge(&self, judge: fn(&Self, &mut Judgement), found: &mut Judgement) {
        let mut own = Judgement::default();
        judge(self, &mut own);
        for name in self.unreported.take() {
            own.not_judged(format!("the flow does not report `{name}`"));
        }
        if own.not_judged.is_empty() {
            found.failures.append(&mut own.failures);
            found.measured.append(&mut own.measured);
        }
        for reason in own.not_judged {
            found.not_judged(reason);
        }
    }

    /// Notes `name` if it is a value of the model that the flow never reports.
    fn asked_for(&self, name: &str) {
        let Some(known) = MODEL.into_iter().find(|model| *model == name) else { return };
        let mut unreported = self.unreported.borrow_mut();
        let is_reported =
            || self.flow.series.get(name).is_some_and(|values| values.iter().any(|v| v.is_finite()));
        if !unreported.contains(&known) && !is_reported() {
            unreported.push(known);
        }
    }

    /// The intervals the flow spent in `state`.
    pub fn visits(&self, state: &str) -> Vec<(f64, f64)> {
        self.flow.state_intervals(self.end, |s| s == state)
    }

    /// Intervals in `state` that ended before the run, with the next state.
    pub fn exits(&self, state: &str) -> Vec<(f64, f64, &'a str)> {
        self.flow
            .states
            .windows(2)
            .filter(|w| w[0].state == state)
            .map(|w| (w[0].at_s, w[1].at_s, w[1].state.as_str()))
            .collect()
    }

    /// When `state` was first entered.
    pub fn first(&self, state: &str) -> Option<f64> {
        self.flow.states.iter().find(|s| s.state == state).map(|s| s.at_s)
    }

    /// When `state` was first entered; fails if it never was.
    pub fn must_enter(&self, c: &mut Judgement, state: &str) -> Option<f64> {
        let entered = self.first(state);
        c.expect(entered.is_some(), || format!("never in {state}: {}", self.sequence()));
        entered
    }

    /// The first interval in `state` that ended, with the next state; fails if there is none.
    pub fn must_leave(&self, c: &mut Judgement, state: &str) -> Option<(f64, f64, &'a str)> {
        let exit = self.exits(state).first().copied();
        c.expect(exit.is_some(), || format!("never left {state}: {}", self.sequence()));
        exit
    }

    /// The first states of the sequence, for messages.
    pub fn sequence(&self) -> String {
        let names: Vec<&str> = self.flow.states.iter().take(14).map(|s| s.state.as_str()).collect();
        names.join(" → ")
    }

    /// Values of a column with from < t ≤ to.
    pub fn within(&self, name: &str, from: f64, to: f64) -> Vec<f64> {
        self.asked_for(name);
        self.flow.series.values(name, from, to)
    }

    /// Points of a column with from < t ≤ to.
    pub fn points(&self, name: &str, from: f64, to: f64) -> Vec<(f64, f64)> {
        self.asked_for(name);
        self.flow.series.points(name, from, to)
    }

    /// The largest value of a column with from < t ≤ to, 0 without any.
    pub fn max(&self, name: &str, from: f64, to: f64) -> f64 {
        self.within(name, from, to).into_iter().fold(0.0, f64::max)
    }

    /// The least value of a column with from < t ≤ to, infinite without any.
    pub fn min(&self, name: &str, from: f64, to: f64) -> f64 {
        self.within(name, from, to).into_iter().fold(f64::INFINITY, f64::min)
    }

    /// When a column first matches a condition after `from`.
    pub fn when(&self, name: &str, from: f64, such: impl Fn(f64) -> bool) -> Option<f64> {
        self.points(name, from, self.end).into_iter().find(|(_, v)| such(*v)).map(|p| p.0)
    }

    /// The latest value at or before `t`.
    pub fn at(&self, name: &str, t: f64) -> f64 {
        self.asked_for(name);
        let series = &self.flow.series;
        let i = series.t_s.partition_point(|x| *x <= t + 1e-12);
        series.get(name).and_then(|v| v.get(i.checked_sub(1)?)).copied().unwrap_or(f64::NAN)
    }

    /// The first value after `t`.
    pub fn after(&self, name: &str, t: f64) -> f64 {
        self.points(name, t, f64::INFINITY).first().map_or(f64::NAN, |p| p.1)
    }

    /// The value in the first row after `t`; NaN if missing.
    pub fn after_row(&self, name: &str, t: f64) -> f64 {
        self.asked_for(name);
        let series = &self.flow.series;
        let i = series.t_s.partition_point(|x| *x <= t);
        series.get(name).and_then(|v| v.get(i)).copied().unwrap_or(f64::NAN)
    }

    /// Times of events of a kind.
    pub fn events(&self, kind: EventKind) -> Vec<f64> {
        self.flow.events.iter().filter(|e| e.kind == kind).map(|e| e.at_s).collect()
    }

    /// Payload delivered between two times, bit/s.
    pub fn goodput(&self, from: f64, to: f64) -> f64 {
        (self.at(column::DELIVERED_BYTES, to) - self.at(column::DELIVERED_BYTES, from)) * 8.0 / (to - from)
    }

    /// The controller's BDP estimate at `t`, in bytes.
    pub fn estimated_bdp(&self, t: f64) -> f64 {
        self.at(column::BW_BPS, t) / 8.0 * self.at(column::MIN_RTT_MS, t) / 1e3
    }

    /// Time between two rows.
    pub fn step(&self) -> f64 {
        let t = &self.flow.series.t_s;
        if t.len() < 2 { f64::NAN } else { t[1] - t[0] }
    }

    /// Checks for every state: the gains of the draft's summary table and the minimum window.
    pub fn always(&self, c: &mut Judgement) {
        let table = [
            ("Startup", 709.0 / 256.0, 2.0),
            ("Drain", 0.5, 2.0),
            ("ProbeBW_DOWN", 230.0 / 256.0, 2.0),
            ("ProbeBW_CRUISE", 1.0, 2.0),
            ("ProbeBW_REFILL", 1.0, 2.0),
            ("ProbeBW_UP", 1.25, 2.25),
            ("ProbeRTT", 1.0, 0.5),
        ];
        for (state, pacing_gain, cwnd_gain) in table {
            for (from, to) in self.visits(state) {
                // A row at the moment of a change may show either state.
                let (from, to) = (from + 1e-9, to - 1e-9);
                let pacing = self.within(column::PACING_GAIN, from, to);
                let cwnd = self.within(column::CWND_GAIN, from, to);
                let is = |gain: f64, wanted: f64| (gain / wanted - 1.0).abs() <= GAIN_TOLERANCE;
                c.expect(pacing.iter().all(|g| is(*g, pacing_gain)), || {
                    format!("{state}: pacing gain {:?} instead of {pacing_gain:.3}", pacing.first())
                });
                c.expect(cwnd.iter().all(|g| is(*g, cwnd_gain)), || {
                    format!("{state}: cwnd gain {:?} instead of {cwnd_gain:.3}", cwnd.first())
                });
            }
        }
        let least = self.min(column::CWND_BYTES, 0.0, f64::INFINITY);
        let after_rto = !self.events(EventKind::RetransmissionTimeout).is_empty();
        c.expect(after_rto || least >= 4.0 * self.smss, || {
            format!("cwnd fell to {least} bytes, below four packets of {}", self.smss)
        });
    }

    /// Checks that pacing is 99 % of gain·bw once the pipe is full.
    pub fn pacing_is_below_bw(&self, c: &mut Judgement, from: f64, to: f64) {
        let gains = self.points(column::PACING_GAIN, from, to);
        let worst = gains
            .iter()
            .map(|(t, gain)| {
                let expected = 0.99 * gain * self.at(column::BW_BPS, *t);
                (self.at(column::PACING_BPS, *t) / expected - 1.0).abs()
            })
            .fold(0.0, f64::max);
        // Rates are whole bytes a second.
        let rounding = 64.0 / self.limit;
        c.expect(worst <= 0.001 + rounding, || {
            format!("pacing is {:.2} % off 99 % of gain · bw", worst * 100.0)
        });
    }

    /// Checks that `state` ends at `t`, as soon as the queue is drained.
    pub fn ends_when_drained(&self, c: &mut Judgement, state: &str, t: f64) {
        // Inflight(1.0): the estimated BDP, at least three quanta; an ACK covers two packets or a quantum.
        let target = self.estimated_bdp(t).max(4.0 * self.smss);
        let slack = (0.03 * target).max(8.0 * self.smss);
        let before = self.at(column::INFLIGHT_BYTES, t - 2.0 * self.step());
        let after = self.after(column::INFLIGHT_BYTES, t);
        c.expect(after <= target + slack, || {
            format!("left {state} with {after:.0} bytes in flight, above {target:.0}")
        });
        c.expect(before >= target - slack, || {
            format!("stayed in {state} with {before:.0} bytes in flight, below {target:.0}")
        });
    }

    /// Checks that the bandwidth estimate at `t` is within `tolerance` of the link's rate.
    pub fn bw_matches_the_rate(&self, c: &mut Judgement, t: f64, tolerance: f64) {
        let found = self.at(column::BW_BPS, t) / self.limit;
        c.expect((found - 1.0).abs() <= tolerance, || {
            format!("bandwidth estimate {found:.3} of the link's rate at {t:.1} s")
        });
    }

    /// Checks that goodput is at least `share` of the link's limit.
    pub fn link_is_filled(&self, c: &mut Judgement, share: f64, from: f64, to: f64) {
        let goodput = self.goodput(from, to);
        c.expect(goodput >= share * self.limit, || {
            format!("{:.0} % of the link from {from:.1} to {to:.1} s", 100.0 * goodput / self.limit)
        });
    }

    /// Checks that at most `share` of the packets sent after `from` is lost.
    pub fn loss_is_at_most(&self, c: &mut Judgement, share: f64, from: f64) {
        let since = |name| self.at(name, self.end) - self.at(name, from);
        let (sent, lost) = (since(column::SENT_PACKETS), since(column::LOST_PACKETS));
        c.expect(lost <= share * sent, || format!("{:.1} % lost from {from:.0} s on", 100.0 * lost / sent));
    }
}
