//! The state machine and its edges (draft § State Machine, § State Transition Diagram).

use super::{Bbr3, Params};
use crate::Gain;

/// The states of the machine (draft § State Machine).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Doubling the rate each round until the pipe is full.
    Startup,
    /// Draining the queue that Startup made.
    Drain,
    /// Sending below the estimated bandwidth, to drain and to leave headroom.
    ProbeBwDown,
    /// Sending at the estimated bandwidth.
    ProbeBwCruise,
    /// Filling the pipe for a round before probing.
    ProbeBwRefill,
    /// Sending above the estimated bandwidth to probe for more.
    ProbeBwUp,
    /// Keeping little in flight to measure the round-trip propagation time.
    ProbeRtt,
}

impl State {
    /// The state's name as recordings show it.
    pub fn name(self) -> &'static str {
        match self {
            State::Startup => "Startup",
            State::Drain => "Drain",
            State::ProbeBwDown => "ProbeBW_DOWN",
            State::ProbeBwCruise => "ProbeBW_CRUISE",
            State::ProbeBwRefill => "ProbeBW_REFILL",
            State::ProbeBwUp => "ProbeBW_UP",
            State::ProbeRtt => "ProbeRTT",
        }
    }

    /// `IsInAProbeBWState()`.
    pub(super) fn is_probe_bw(self) -> bool {
        matches!(self, State::ProbeBwDown | State::ProbeBwCruise | State::ProbeBwRefill | State::ProbeBwUp)
    }

    /// `IsProbingBW()`.
    pub(super) fn is_probing_bw(self) -> bool {
        matches!(self, State::Startup | State::ProbeBwRefill | State::ProbeBwUp)
    }

    /// Whether the machine has an edge from this state to `next`: those of the draft's diagram, and
    /// those of `HandleSpuriousLossDetection()` to Startup and REFILL.
    fn leads_to(self, next: State) -> bool {
        use State::{Drain, ProbeBwCruise, ProbeBwDown, ProbeBwRefill, ProbeBwUp, ProbeRtt, Startup};
        match (self, next) {
            (Startup, Drain)
            | (Drain, ProbeBwDown)
            | (ProbeBwDown, ProbeBwCruise | ProbeBwRefill)
            | (ProbeBwCruise, ProbeBwRefill)
            | (ProbeBwRefill, ProbeBwUp)
            | (ProbeBwUp, ProbeBwDown)
            | (ProbeRtt, Startup | ProbeBwDown) => true,
            (Startup | Drain, ProbeRtt) => true,
            (from, ProbeRtt) => from.is_probe_bw(),
            (ProbeBwRefill, ProbeBwRefill) => true,
            (Drain, Startup) => true,
            (from, Startup) => from.is_probe_bw(),
            _ => false,
        }
    }

    /// Pacing and window gain, from the draft's summary table (decision 1).
    fn gains(self, params: &Params) -> (Gain, Gain) {
        let (pacing, cwnd) = match self {
            State::Startup => (params.startup_pacing_gain, params.startup_cwnd_gain),
            State::Drain => (params.drain_pacing_gain, params.default_cwnd_gain),
            State::ProbeBwDown => (params.probe_down_pacing_gain, params.default_cwnd_gain),
            State::ProbeBwCruise => (params.probe_cruise_pacing_gain, params.default_cwnd_gain),
            State::ProbeBwRefill => (params.probe_refill_pacing_gain, params.default_cwnd_gain),
            State::ProbeBwUp => (params.probe_up_pacing_gain, params.probe_up_cwnd_gain),
            State::ProbeRtt => (params.probe_rtt_pacing_gain, params.probe_rtt_cwnd_gain),
        };
        (Gain::from_256ths(pacing), Gain::from_256ths(cwnd))
    }
}

impl Bbr3 {
    /// Changes to `next` and its gains: the only place where the state changes.
    pub(super) fn transition(&mut self, next: State) {
        debug_assert!(self.state.leads_to(next), "there is no edge from {:?} to {next:?}", self.state);
        self.enter(next);
    }

    /// Sets `state` without checking the edge.
    pub(super) fn enter(&mut self, state: State) {
        self.state = state;
        (self.out.pacing_gain, self.out.cwnd_gain) = state.gains(&self.params);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    const ALL: [State; 7] = [
        State::Startup,
        State::Drain,
        State::ProbeBwDown,
        State::ProbeBwCruise,
        State::ProbeBwRefill,
        State::ProbeBwUp,
        State::ProbeRtt,
    ];

    #[test]
    fn probing_follows_filling_and_never_cruising_or_draining() {
        let to_up: std::vec::Vec<State> = ALL.into_iter().filter(|s| s.leads_to(State::ProbeBwUp)).collect();
        assert_eq!(to_up, [State::ProbeBwRefill]);
        let to_cruise: std::vec::Vec<State> =
            ALL.into_iter().filter(|s| s.leads_to(State::ProbeBwCruise)).collect();
        assert_eq!(to_cruise, [State::ProbeBwDown]);
    }

    #[test]
    fn every_state_leads_to_probe_rtt_but_itself_and_each_can_be_left() {
        for state in ALL {
            assert_eq!(state.leads_to(State::ProbeRtt), state != State::ProbeRtt);
            assert!(ALL.into_iter().any(|next| next != state && state.leads_to(next)));
        }
    }

    #[test]
    fn a_transition_takes_the_gains_of_the_new_state() {
        let mut bbr = Bbr3::new(&Config::default(), Params::DRAFT);
        bbr.transition(State::Drain);
        assert_eq!((bbr.out.pacing_gain.as_256ths(), bbr.out.cwnd_gain.as_256ths()), (128, 512));
        bbr.transition(State::ProbeBwDown);
        assert_eq!(bbr.out.pacing_gain.as_256ths(), 230);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "no edge from Startup to ProbeBwUp")]
    fn transition_without_an_edge_is_caught() {
        Bbr3::new(&Config::default(), Params::DRAFT).transition(State::ProbeBwUp);
    }
}
