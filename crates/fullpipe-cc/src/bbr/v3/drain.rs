//! Drain: empties the queue that Startup built (draft § Drain).

use super::volume::{Bytes, delivered_in};
use super::{Bbr3, Now, State};
use crate::Gain;

impl Bbr3 {
    /// `EnterDrain()`.
    pub(super) fn enter_drain(&mut self) {
        self.transition(State::Drain);
        if self.is_linux() {
            self.congestion.reset_signals();
        }
        self.drain_start_round = self.model.round_count;
    }

    /// `CheckDrainDone()`.
    pub(super) fn check_drain_done(&mut self, now: &Now) {
        // Linux uses inflight at the next departure and has no limit on the rounds.
        let inflight = if self.is_linux() { self.inflight_at_departure(now) } else { now.inflight };
        if self.state == State::Drain
            && (inflight <= self.inflight(self.model.bw, Gain::UNIT)
                || !self.is_linux()
                    && self.model.round_count > self.drain_start_round + u64::from(self.params.drain_rounds))
        {
            self.enter_probe_bw(now.time, now.delivered);
        }
    }

    /// Data in the network at the next departure (`bbr_packets_in_net_at_edt`), while draining.
    fn inflight_at_departure(&self, now: &Now) -> Bytes {
        now.inflight - delivered_in(self.model.bw, now.next_departure.since(now.time))
    }
}
