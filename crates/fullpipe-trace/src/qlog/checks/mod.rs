//! Judges a recorded connection by the BBR draft (draft-ietf-ccwg-bbr): as far as its log shows, on
//! whatever path it ran.
//!
//! What the log does not show is not judged, and the reason is given. Tolerances are those of
//! `fullpipe conformance`, plus the time between two samples.

mod cycle;
mod gains;
mod loss;
mod probe_rtt;

use super::record::Units;
use crate::quantity::{self, count, digits};
use fullpipe_experiment::connection::{Judged, Judgement};
use fullpipe_experiment::recording::{EventKind, FlowRecording, Series, column};
use fullpipe_units::Span;

/// Samples of a round without which its beginning and end cannot be seen.
const MIN_SAMPLES_OF_A_ROUND: f64 = 3.0;

/// What the checks need besides the flow.
pub(super) struct Facts<'a> {
    /// The controller's name, empty if the log does not have it.
    pub(super) controller: &'a str,
    /// Bytes of a full packet.
    pub(super) packet_bytes: Option<u64>,
    /// Until when the states are known.
    pub(super) end_s: f64,
    /// Whether that is before the log ends.
    pub(super) is_cut: bool,
    /// Indices of the states whose beginning is not in the log.
    pub(super) gaps: &'a [usize],
    /// Time between two rows of the series; zero if every change is there.
    pub(super) interval_s: f64,
    pub(super) units: Units,
    /// Whether the log has the round-trip time of each ACK, as far as its packets show it.
    pub(super) has_every_rtt: bool,
}

/// The states of BBR v3.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl State {
    const ALL: [State; 7] =
        [State::Startup, State::Drain, State::Down, State::Cruise, State::Refill, State::Up, State::ProbeRtt];

    /// The state that stacks write in several ways: `ProbeBW_DOWN`, `probe_bw_down`, `ProbeDown`.
    fn parse(name: &str) -> Option<State> {
        let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let letters = letters.to_ascii_lowercase();
        let letters = letters.strip_prefix("bbr").unwrap_or(&letters);
        let state = match letters.strip_prefix("probebw").or(letters.strip_prefix("probe")).unwrap_or(letters)
        {
            "startup" => State::Startup,
            "drain" => State::Drain,
            "down" => State::Down,
            "cruise" => State::Cruise,
            "refill" => State::Refill,
            "up" => State::Up,
            "rtt" => State::ProbeRtt,
            _ => return None,
        };
        Some(state)
    }

    /// Its name in the draft.
    fn name(self) -> &'static str {
        match self {
            State::Startup => "Startup",
            State::Drain => "Drain",
            State::Down => "ProbeBW_DOWN",
            State::Cruise => "ProbeBW_CRUISE",
            State::Refill => "ProbeBW_REFILL",
            State::Up => "ProbeBW_UP",
            State::ProbeRtt => "ProbeRTT",
        }
    }
}

/// A visit of a state, until the next state or the end of the log.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Visit {
    state: State,
    from: f64,
    to: f64,
    /// Whether the log has the change to it, and the change from it to the next visit.
    is_begun: bool,
    is_complete: bool,
    /// Whether the controller has filled the pipe before or in it. In a ProbeRTT from Startup it has not:
    /// the pacing rate does not fall then.
    is_pipe_full: bool,
}

/// The flow as the checks see it.
pub(super) struct View<'a> {
    flow: &'a FlowRecording,
    facts: &'a Facts<'a>,
    visits: Vec<Visit>,
    lost: &'a [f64],
}

/// All checks that apply.
pub(super) fn judge(flow: &FlowRecording, facts: &Facts<'_>) -> Vec<Judgement> {
    match View::new(flow, facts) {
        Err(why) => vec![not_judged("BBR v3", why)],
        Ok(view) => {
            let mut all = vec![cycle::order(&view)];
            all.extend(gains::all(&view));
            let timed = [
                cycle::startup_end(&view),
                cycle::drain_end(&view),
                cycle::time_between_probes(&view),
                probe_rtt::interval(&view),
                probe_rtt::length(&view),
                probe_rtt::window(&view),
                loss::beta(&view),
            ];
            // Rounds and the BDP need the round-trip time.
            let is_sound = facts.units.rtt_is_sound;
            all.extend(timed.into_iter().map(|timed| if is_sound { timed } else { doubtful(&timed) }));
            all.push(loss::smallest_window(&view));
            all
        }
    }
}

fn doubtful(judgement: &Judgement) -> Judgement {
    not_judged(&judgement.check, "the unit of the round-trip times is doubtful, see the notes")
}

impl<'a> View<'a> {
    /// The view, or the reason why the flow cannot be judged.
    fn new(flow: &'a FlowRecording, facts: &'a Facts<'a>) -> Result<View<'a>, String> {
        if flow.states.is_empty() {
            return Err("the log has no `recovery:congestion_state_updated` events".to_owned());
        }
        let name: String =
            facts.controller.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
        let is_older = ["bbr2", "bbrv2", "bbr1", "bbrv1"].iter().any(|older| name.contains(older));
        if is_older {
            return Err(format!("the log names the controller `{}`, which is not BBR v3", facts.controller));
        }
        let is_known = |at_s: f64| !facts.is_cut || at_s < facts.end_s;
        let mut visits: Vec<Visit> = Vec::new();
        // The state before, apart from ProbeRTT.
        let mut before = None;
        for (i, change) in flow.states.iter().enumerate().take_while(|(_, change)| is_known(change.at_s)) {
            let next = flow.states.get(i + 1).filter(|next| is_known(next.at_s));
            let is_begun = facts.gaps.binary_search(&i).is_err();
            let Some(state) = State::parse(&change.state) else {
                // The first change of some controllers is from no state.
                if i == 0 && !is_begun {
                    continue;
                }
                return Err(format!("the state `{}` is not one of BBR v3", change.state));
            };
            visits.push(Visit {
                state,
                from: change.at_s,
                to: next.map_or(facts.end_s, |n| n.at_s),
                is_begun,
                is_complete: next.is_some() && facts.gaps.binary_search(&(i + 1)).is_err(),
                is_pipe_full: state != State::ProbeRtt || before.is_some_and(|s| s != State::Startup),
            });
            before = Some(state).filter(|s| *s != State::ProbeRtt).or(before);
        }
        let cycle = [State::Down, State::Cruise, State::Refill, State::Up];
        if !visits.iter().any(|v| cycle.contains(&v.state)) && !name.contains('3') {
            return Err("neither the states nor a name say that the controller is BBR v3".to_owned());
        }
        let lost = flow.series.get(column::LOST_PACKETS).unwrap_or(&[]);
        Ok(View { flow, facts, visits, lost })
    }

    fn series(&self) -> &Series {
        &self.flow.series
    }

    fn visits_to(&self, state: State) -> impl Iterator<Item = &Visit> {
        self.visits.iter().filter(move |v| v.state == state)
    }

    /// Consecutive visits with the change between them.
    fn changes(&self) -> impl Iterator<Item = (&Visit, &Visit)> {
        self.visits.iter().zip(self.visits.iter().skip(1)).filter(|(a, _)| a.is_complete)
    }

    /// Whether the series has a column.
    fn has(&self, name: &str) -> bool {
        self.series().get(name).is_some()
    }

    /// The latest value at or before `t`.
    fn at(&self, name: &str, t: f64) -> Option<f64> {
        let rows = self.series().t_s.partition_point(|x| *x <= t + 1e-9);
        let values = self.series().get(name)?.get(..rows)?;
        values.last().copied().filter(|v| v.is_finite())
    }

    /// The smallest round-trip time that the controller knows at `t`, in seconds.
    fn min_rtt(&self, t: f64) -> Option<f64> {
        let measured = self.flow.summary.rtt_ms.min;
        self.at(column::MIN_RTT_MS, t).or(measured).map(|ms| ms / 1e3)
    }

    /// The latest round-trip time at `t`, in seconds.
    fn rtt(&self, t: f64) -> Option<f64> {
        let latest = self.at(column::SRTT_MS, t).or_else(|| self.at(column::RTT_MS, t));
        latest.map(|ms| ms / 1e3).or_else(|| self.min_rtt(t))
    }

    /// The controller's estimate of the BDP, in bytes.
    fn bdp(&self, t: f64) -> Option<f64> {
        Some(self.at(column::BW_BPS, t)? / 8.0 * self.min_rtt(t)?)
    }

    /// Bytes of a full packet, or at most that.
    fn packet(&self) -> f64 {
        self.facts.packet_bytes.map_or(1500.0, |b| b as f64)
    }

    /// Packets lost after `from` and until `to`.
    fn losses(&self, from: f64, to: f64) -> f64 {
        let count = |t: f64| {
            let rows = self.series().t_s.partition_point(|x| *x <= t + 1e-9);
            rows.checked_sub(1).and_then(|i| self.lost.get(i)).copied().unwrap_or(0.0)
        };
        count(to) - count(from)
    }

    /// Whether nothing was in flight for a time within an interval.
    fn is_idle_within(&self, from: f64, to: f64) -> bool {
        self.series().points(column::INFLIGHT_BYTES, from, to).iter().any(|(_, bytes)| *bytes <= 0.0)
    }

    fn has_event(&self, kind: EventKind) -> bool {
        self.flow.events.iter().any(|e| e.kind == kind)
    }

    /// The mean time between two samples.
    fn step(&self) -> f64 {
        let t = &self.series().t_s;
        let typical = match (t.first(), t.last()) {
            (Some(first), Some(last)) if t.len() > 1 => (last - first) / (t.len() - 1) as f64,
            _ => 0.0,
        };
        typical.max(self.facts.interval_s)
    }

    /// A slack for times: two samples.
    fn slack(&self) -> f64 {
        2.0 * self.step()
    }

    /// Why rounds of length `rtt` cannot be seen, if the samples are too far apart for that.
    fn coarse(&self, rtt: f64) -> Option<String> {
        let step = self.step();
        let words = || format!("the samples are {} apart, a round takes {}", seconds(step), seconds(rtt));
        (step * MIN_SAMPLES_OF_A_ROUND > rtt).then(words)
    }

    /// The beginning of the round that ends at `t`: what is acknowledged then was sent a round-trip
    /// time before.
    fn round_before(&self, t: f64) -> Option<f64> {
        let latest = self.at(column::RTT_MS, t).map(|ms| ms / 1e3);
        Some(t - latest.or_else(|| self.rtt(t))?)
    }
}

fn judgement(check: &str, cases: &[&str], result: Judged, words: String) -> Judgement {
    Judgement {
        check: check.to_owned(),
        cases: cases.iter().map(|c| (*c).to_owned()).collect(),
        result,
        words,
    }
}

fn not_judged(check: &str, why: impl Into<String>) -> Judgement {
    judgement(check, &[], Judged::NotJudged, why.into())
}

/// The judgement of a check with these failures; `words` if there are none.
fn judged(check: &str, cases: &[&str], failures: Vec<String>, words: String) -> Judgement {
    match failures.split_first() {
        None => judgement(check, cases, Judged::Passed, words),
        Some((first, [])) => judgement(check, cases, Judged::Failed, first.clone()),
        Some((first, more)) => {
            judgement(check, cases, Judged::Failed, format!("{first} (and {} more)", more.len()))
        }
    }
}

fn seconds(value: f64) -> String {
    quantity::span(Span::from_secs_f64(value))
}
