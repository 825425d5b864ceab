//! Loss recovery, and undo of spurious losses
//! (draft § Modulating cwnd in Loss Recovery, § Updating the Model Upon Detecting a Spurious Loss
//! Recovery).

use super::variant::Departure;
use super::volume::Bytes;
use super::{Bbr3, State, Variant};
use crate::{Rate, RecoveryContext, RecoveryState};

/// The state that was left because of loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum UndoState {
    #[default]
    None,
    Startup,
    ProbeBwUp,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Undo {
    /// `undo_state`.
    pub(super) state: UndoState,
    bw_shortterm: Rate,
    inflight_shortterm: Bytes,
    inflight_longterm: Bytes,
    /// `prior_cwnd`.
    prior_cwnd: Bytes,
    /// Whether the fields above are from before the current recovery episode.
    saved: bool,
}

impl Bbr3 {
    /// `SaveCwnd()`: saves the last window not reduced by recovery or ProbeRTT.
    pub(super) fn save_cwnd(&mut self) {
        let in_recovery = matches!(self.recovery, RecoveryState::Recovery | RecoveryState::Loss);
        self.undo.prior_cwnd = if in_recovery || self.state == State::ProbeRtt {
            self.undo.prior_cwnd.max(self.out.cwnd)
        } else {
            self.out.cwnd
        };
    }

    /// `RestoreCwnd()`.
    pub(super) fn restore_cwnd(&mut self) {
        self.out.cwnd = self.out.cwnd.max(self.undo.prior_cwnd);
    }

    /// `SaveStateUponLoss()`, once per episode (decision 9).
    pub(super) fn save_state_upon_loss(&mut self) {
        if self.undo.saved && !self.is_as_drafted(Departure::UndoState) {
            return;
        }
        self.save_cwnd();
        self.undo.saved = true;
        self.undo.state = UndoState::None;
        self.undo.bw_shortterm = self.model.bw_shortterm;
        self.undo.inflight_shortterm = self.model.inflight_shortterm;
        self.undo.inflight_longterm = self.model.inflight_longterm;
    }

    /// `OnEnterFastRecovery()`.
    pub(super) fn on_enter_fast_recovery(&mut self) {
        self.save_cwnd();
        self.save_state_upon_loss();
        self.recovery = RecoveryState::Recovery;
    }

    /// `OnEnterRTO()`: the window allows one packet.
    pub(super) fn on_enter_rto(&mut self, context: &RecoveryContext) {
        self.save_cwnd();
        self.save_state_upon_loss();
        // In Linux the window before the timeout bounds inflight unless probing for bandwidth.
        if self.is_linux() && !self.state.is_probing_bw() && self.model.inflight_shortterm == Bytes::INFINITE
        {
            self.model.inflight_shortterm = self.out.cwnd.max(self.undo.prior_cwnd);
        }
        self.recovery = RecoveryState::Loss;
        self.out.cwnd = Bytes(context.inflight) + self.smss;
    }

    /// All losses are repaired.
    pub(super) fn on_exit_recovery(&mut self) {
        // Linux restores the window only after a timeout.
        if !self.is_linux() || self.recovery == RecoveryState::Loss {
            self.restore_cwnd();
        }
        self.undo.saved = false;
        self.recovery = RecoveryState::Open;
    }

    /// `HandleSpuriousLossDetection()`.
    pub(super) fn handle_spurious_loss_detection(&mut self, context: &RecoveryContext) {
        self.restore_cwnd();
        self.congestion.is_loss_in_round = false;
        self.full_pipe.restart(Rate::ZERO);
        let (model, undo) = (&mut self.model, &mut self.undo);
        if undo.saved {
            model.bw_shortterm = model.bw_shortterm.max(undo.bw_shortterm);
            model.inflight_shortterm = model.inflight_shortterm.max(undo.inflight_shortterm);
            model.inflight_longterm = model.inflight_longterm.max(undo.inflight_longterm);
        }
        undo.saved = false;
        match core::mem::take(&mut undo.state) {
            // Linux restores the bounds and the plateau detector only.
            _ if self.variant == Variant::Linux => {}
            UndoState::Startup if self.state != State::Startup => {
                self.full_pipe.reached = false;
                if self.state != State::ProbeRtt {
                    self.enter_startup();
                }
            }
            UndoState::ProbeBwUp if self.state != State::ProbeBwUp && self.state != State::ProbeRtt => {
                self.start_probe_bw_refill(Bytes(context.delivered));
            }
            _ => {}
        }
        self.recovery = RecoveryState::Open;
    }
}
