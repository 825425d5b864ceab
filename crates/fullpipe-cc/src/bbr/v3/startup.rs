//! Startup: double the rate each round (draft § Startup).

use super::undo::UndoState;
use super::{Bbr3, Now, State};
use crate::{Ack, RecoveryState};

impl Bbr3 {
    /// `EnterStartup()`.
    pub(super) fn enter_startup(&mut self) {
        self.transition(State::Startup);
    }

    /// `CheckStartupDone()`.
    pub(super) fn check_startup_done(&mut self, now: &Now, ack: &Ack) {
        self.check_startup_high_loss(now, ack);
        if self.state == State::Startup && self.full_pipe.reached {
            self.enter_drain();
        }
    }

    /// `CheckStartupHighLoss()`: a round in fast recovery with loss above the threshold, spread over
    /// several ranges, shows a full buffer even if the rate still seems to grow.
    fn check_startup_high_loss(&mut self, now: &Now, ack: &Ack) {
        if self.full_pipe.reached {
            return;
        }
        let ranges = &mut self.congestion.lost_ranges_in_round;
        *ranges = ranges.saturating_add(ack.lost_ranges);
        if !self.congestion.loss_round_start {
            return;
        }
        let many = *ranges >= self.params.startup_full_loss_count;
        *ranges = 0;
        if many && self.recovery == RecoveryState::Recovery && self.is_inflight_too_high(&now.sample) {
            self.undo.state = UndoState::Startup;
            self.full_pipe.set_reached();
            let bdp = self.bdp_multiple(self.model.max_bw(), crate::Gain::UNIT);
            self.model.inflight_longterm = bdp.max(self.congestion.inflight_latest);
        }
    }
}
