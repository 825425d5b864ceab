//! Startup: doubles the rate each round (draft § Startup).

use super::undo::UndoState;
use super::variant::Departure;
use super::{Bbr3, Now, State, Variant};
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

    /// `CheckStartupHighLoss()`: a round in fast recovery with loss above the threshold, spread
    /// over several ranges, shows a full buffer even if the rate still seems to grow. Without
    /// selective ACKs, which reveal at most one loss per round, any loss ends Startup; so does
    /// a round with as many marks (decision 10).
    fn check_startup_high_loss(&mut self, now: &Now, ack: &Ack) {
        if self.full_pipe.reached {
            return;
        }
        let full_loss_count = self.params.startup_full_loss_count;
        let round_ends = self.congestion.loss_round_start;
        let ranges = &mut self.congestion.lost_ranges_in_round;
        *ranges = if self.variant == Variant::Linux {
            // Linux counts ACKs that marked packets lost, in four bits.
            (*ranges + u32::from(ack.newly_lost > 0)).min(Variant::LINUX_MAX_FULL_LOSS_COUNT)
        } else {
            ranges.saturating_add(ack.lost_ranges)
        };
        let many = round_ends && *ranges >= full_loss_count;
        if round_ends {
            *ranges = 0;
        }
        let too_lossy =
            (many && self.is_inflight_too_high(&now.sample)) || (!self.selective_acks && ack.newly_lost > 0);
        let lossy = too_lossy && self.recovery == RecoveryState::Recovery;
        let marks = self.congestion.ce_in_round;
        let marked = !self.is_as_drafted(Departure::StartupMarks)
            && round_ends
            && marks >= self.smss * u64::from(full_loss_count)
            && self.params.is_too_lossy(marks, now.tx_in_flight());
        if lossy || marked {
            if lossy {
                self.undo.state = UndoState::Startup;
            }
            self.full_pipe.set_reached();
            let bdp = self.bdp_multiple(self.model.max_bw(), crate::Gain::UNIT);
            self.model.inflight_longterm = bdp.max(self.congestion.inflight_latest);
        }
    }
}
