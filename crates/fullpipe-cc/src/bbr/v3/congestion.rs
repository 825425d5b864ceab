//! The model's response to loss: the long-term bound while probing, the short-term bounds otherwise
//! (draft § Updating the Model Upon Packet Loss).

use super::undo::UndoState;
use super::variant::Departure;
use super::volume::Bytes;
use super::{Bbr3, Now, State};
use crate::{Ack, Lost, Rate, RateSample, Time};

#[derive(Clone, Debug, Default)]
pub(super) struct Congestion {
    /// `loss_round_start`.
    pub(super) loss_round_start: bool,
    loss_round_delivered: Bytes,
    /// `is_loss_in_round`.
    pub(super) is_loss_in_round: bool,
    /// Contiguous ranges lost in this loss round, while in Startup.
    pub(super) lost_ranges_in_round: u32,
    /// `bw_latest`.
    bw_latest: Rate,
    /// `inflight_latest`.
    pub(super) inflight_latest: Bytes,
    /// Packets marked Congestion Experienced in this loss round, as bytes.
    pub(super) ce_in_round: Bytes,
}

impl Congestion {
    /// `ResetCongestionSignals()`.
    pub(super) fn reset_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = Rate::ZERO;
        self.inflight_latest = Bytes::ZERO;
        self.ce_in_round = Bytes::ZERO;
    }
}

impl Bbr3 {
    /// `IsInflightTooHigh()`.
    pub(super) fn is_inflight_too_high(&self, sample: &RateSample) -> bool {
        self.is_loss_too_high(Bytes(sample.lost), Bytes(sample.tx_in_flight))
    }

    /// The same for given amounts. Without selective ACKs any loss counts: it may represent
    /// several.
    fn is_loss_too_high(&self, lost: Bytes, tx_in_flight: Bytes) -> bool {
        let too_lossy = if self.is_linux() {
            // 5/256 of the packets in flight, rounded down.
            lost.packets(self.smss) > tx_in_flight.packets(self.smss).saturating_mul(5) / 256
        } else {
            self.params.is_too_lossy(lost, tx_in_flight)
        };
        too_lossy || (lost > Bytes::ZERO && !self.selective_acks)
    }

    /// `UpdateLatestDeliverySignals()`.
    pub(super) fn update_latest_delivery_signals(&mut self, now: &Now) {
        let c = &mut self.congestion;
        c.bw_latest = c.bw_latest.max(now.delivery_rate);
        c.inflight_latest = c.inflight_latest.max(now.sample_delivered());
        c.loss_round_start = now.prior_delivered() >= c.loss_round_delivered;
        if c.loss_round_start {
            c.loss_round_delivered = now.delivered;
        }
    }

    /// `AdvanceLatestDeliverySignals()`.
    pub(super) fn advance_latest_delivery_signals(&mut self, now: &Now) {
        if self.congestion.loss_round_start {
            self.congestion.bw_latest = now.delivery_rate;
            self.congestion.inflight_latest = now.sample_delivered();
            self.congestion.ce_in_round = Bytes::ZERO;
        }
    }

    /// `UpdateCongestionSignals()`.
    pub(super) fn update_congestion_signals(&mut self, now: &Now) {
        self.update_max_bw(now);
        if self.congestion.loss_round_start {
            self.adapt_lower_bounds_from_congestion();
            self.congestion.is_loss_in_round = false;
        }
    }

    /// `AdaptLowerBoundsFromCongestion()`, with `InitLowerBounds()` and `LossLowerBounds()`.
    fn adapt_lower_bounds_from_congestion(&mut self) {
        if self.state.is_probing_bw() || !self.congestion.is_loss_in_round {
            return;
        }
        let model = &mut self.model;
        if model.bw_shortterm == Rate::MAX {
            model.bw_shortterm = model.max_bw();
        }
        if model.inflight_shortterm == Bytes::INFINITE {
            model.inflight_shortterm = self.out.cwnd;
        }
        model.bw_shortterm = self.congestion.bw_latest.max(self.params.beta_rate(model.bw_shortterm));
        model.inflight_shortterm =
            self.congestion.inflight_latest.max(self.params.beta(model.inflight_shortterm));
    }

    /// `NoteLoss()` for congestion that cannot be spurious: saves no undo state, which a later
    /// episode would otherwise restore.
    fn note_congestion(&mut self, delivered: Bytes) {
        if !self.congestion.is_loss_in_round {
            self.congestion.loss_round_delivered = delivered;
        }
        self.congestion.is_loss_in_round = true;
    }

    /// `NoteLoss()`.
    fn note_loss(&mut self, delivered: Bytes) {
        let is_first = !self.congestion.is_loss_in_round;
        self.note_congestion(delivered);
        // The draft saves at the first loss of each round (decision 9).
        if is_first || !self.is_as_drafted(Departure::UndoState) {
            self.save_state_upon_loss();
        }
    }

    /// `HandleLostPacket()`.
    pub(super) fn handle_lost_packet(&mut self, lost: &Lost) {
        self.note_loss(Bytes(lost.delivered));
        if !self.cycle.is_bw_probe_sample {
            return;
        }
        let (tx_in_flight, lost_since_send) =
            (Bytes(lost.tx_in_flight), Bytes(lost.lost) - Bytes(lost.lost_at_send));
        if self.is_loss_too_high(lost_since_send, tx_in_flight) {
            let inflight = self.params.inflight_at_loss(tx_in_flight, lost_since_send, Bytes(lost.bytes));
            self.handle_inflight_too_high(inflight, lost.app_limited, lost.now, Bytes(lost.delivered));
        }
    }

    /// `HandleInflightTooHigh()`.
    pub(super) fn handle_inflight_too_high(
        &mut self,
        tx_in_flight: Bytes,
        app_limited: bool,
        now: Time,
        delivered: Bytes,
    ) {
        self.cycle.prev_probe_too_high = true;
        self.cycle.is_bw_probe_sample = false;
        if !app_limited {
            self.model.inflight_longterm = tx_in_flight.max(self.params.beta(self.target_inflight()));
        }
        if self.state == State::ProbeBwUp {
            self.undo.state = UndoState::ProbeBwUp;
            self.start_probe_bw_down(now, delivered);
        }
    }

    /// Decision 10: a marked packet counts as lost, but is not retransmitted.
    pub(super) fn handle_ce_marks(&mut self, ack: &Ack, now: &Now) {
        self.note_congestion(now.delivered);
        let c = &mut self.congestion;
        c.ce_in_round += self.smss * u64::from(ack.ce_count);
        let marked = c.ce_in_round;
        let tx_in_flight = now.tx_in_flight();
        if self.cycle.is_bw_probe_sample && self.params.is_too_lossy(marked, tx_in_flight) {
            self.handle_inflight_too_high(tx_in_flight, now.sample.app_limited, now.time, now.delivered);
        }
    }
}
