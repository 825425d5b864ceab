//! A recorded flow, as the cases look at it.

use crate::Setting;
use fullpipe_experiment::Recording;
use fullpipe_experiment::recording::{EventKind, FlowRecording, column};

/// The single flow of a run and what its path allows.
pub(crate) struct Observed<'a> {
    pub flow: &'a FlowRecording,
    /// Payload rate of the link at the start, bit/s.
    pub limit: f64,
    /// Two-way propagation delay in seconds.
    pub rtt: f64,
    /// BDP in payload bytes.
    pub bdp: f64,
    pub smss: f64,
    /// End of the run.
    pub end: f64,
}

/// What did not hold.
#[derive(Default)]
pub(crate) struct Complaints(pub Vec<String>);

impl Complaints {
    pub fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.0.push(what());
        }
    }
}

impl<'a> Observed<'a> {
    pub fn new(run: &'a Recording, setting: &Setting, smss: u32, end: f64) -> Self {
        let limit = run.path.goodput_limit_bps.unwrap_or(f64::NAN);
        let rtt = setting.rtt.as_secs_f64();
        Observed { flow: &run.flows[0], limit, rtt, bdp: limit / 8.0 * rtt, smss: f64::from(smss), end }
    }

    /// When the flow was in `state`: from and to.
    pub fn stays(&self, state: &str) -> Vec<(f64, f64)> {
        let states = &self.flow.states;
        let until = |i: usize| states.get(i + 1).map_or(self.end, |next| next.at_s);
        states.iter().enumerate().filter(|(_, s)| s.state == state).map(|(i, s)| (s.at_s, until(i))).collect()
    }

    /// Stays that ended before the run did, with the state that followed.
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

    /// The sequence of states, as far as a message needs it.
    pub fn sequence(&self) -> String {
        let names: Vec<&str> = self.flow.states.iter().take(14).map(|s| s.state.as_str()).collect();
        names.join(" → ")
    }

    /// Values of a column with from < t ≤ to.
    pub fn within(&self, name: &str, from: f64, to: f64) -> Vec<f64> {
        self.points(name, from, to).into_iter().map(|(_, v)| v).collect()
    }

    /// Points of a column with from < t ≤ to.
    pub fn points(&self, name: &str, from: f64, to: f64) -> Vec<(f64, f64)> {
        let series = &self.flow.series;
        let values = series.get(name).unwrap_or(&[]);
        let all = series.t_s.iter().copied().zip(values.iter().copied());
        all.filter(|(t, v)| *t > from && *t <= to && v.is_finite()).collect()
    }

    /// The latest value at or before `t`.
    pub fn at(&self, name: &str, t: f64) -> f64 {
        let series = &self.flow.series;
        let i = series.t_s.partition_point(|x| *x <= t + 1e-12);
        series.get(name).and_then(|v| v.get(i.checked_sub(1)?)).copied().unwrap_or(f64::NAN)
    }

    /// The first value after `t`.
    pub fn after(&self, name: &str, t: f64) -> f64 {
        self.points(name, t, f64::INFINITY).first().map_or(f64::NAN, |p| p.1)
    }

    /// The value in the first row after `t`; NaN if it has none there.
    pub fn after_row(&self, name: &str, t: f64) -> f64 {
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

    /// Time between two rows.
    pub fn step(&self) -> f64 {
        let t = &self.flow.series.t_s;
        if t.len() < 2 { f64::NAN } else { t[1] - t[0] }
    }

    /// What holds in every state: the gains of the draft's summary table, the pacing rate that goes
    /// with them, the least window.
    pub fn always(&self, c: &mut Complaints) {
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
            for (from, to) in self.stays(state) {
                // A row taken at the very moment of a change may show either side.
                let (from, to) = (from + 1e-9, to - 1e-9);
                let pacing = self.within(column::PACING_GAIN, from, to);
                let cwnd = self.within(column::CWND_GAIN, from, to);
                c.expect(pacing.iter().all(|g| (g - pacing_gain).abs() < 1e-6), || {
                    format!("{state}: pacing gain {:?} instead of {pacing_gain:.3}", pacing.first())
                });
                c.expect(cwnd.iter().all(|g| (g - cwnd_gain).abs() < 1e-6), || {
                    format!("{state}: cwnd gain {:?} instead of {cwnd_gain:.3}", cwnd.first())
                });
            }
        }
        let least =
            self.within(column::CWND_BYTES, 0.0, f64::INFINITY).into_iter().fold(f64::INFINITY, f64::min);
        let after_rto = !self.events(EventKind::RetransmissionTimeout).is_empty();
        c.expect(after_rto || least >= 4.0 * self.smss, || {
            format!("cwnd fell to {least} bytes, below four packets of {}", self.smss)
        });
    }

    /// Pacing is 99 % of gain·bw once the pipe is full.
    pub fn paces_below_bw(&self, c: &mut Complaints, from: f64, to: f64) {
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
}
