//! Drain: empties the queue that Startup built (draft § Drain).

use super::{Bbr3, Now, State};
use crate::Gain;

impl Bbr3 {
    /// `EnterDrain()`.
    pub(super) fn enter_drain(&mut self) {
        self.transition(State::Drain);
        self.drain_start_round = self.model.round_count;
    }

    /// `CheckDrainDone()`.
    pub(super) fn check_drain_done(&mut self, now: &Now) {
        if self.state == State::Drain
            && (now.inflight <= self.inflight(self.model.bw, Gain::UNIT)
                || self.model.round_count > self.drain_start_round + u64::from(self.params.drain_rounds))
        {
            self.enter_probe_bw(now.time, now.delivered);
        }
    }
}
