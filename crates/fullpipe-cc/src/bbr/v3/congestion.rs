//! What losses say about the path: the long-term bound while probing, the short-term bounds
//! otherwise (draft § Updating the Model Upon Packet Loss).

use super::params::{BETA, LOSS_THRESH_INVERSE};
use super::undo::UndoState;
use super::{Bbr3, INFINITY, Now, State};
use crate::{Ack, Lost, RateSample};

#[derive(Clone, Debug, Default)]
pub(super) struct Congestion {
    /// `loss_round_start`.
    pub(super) loss_round_start: bool,
    loss_round_delivered: u64,
    /// `is_loss_in_round`.
    pub(super) is_loss_in_round: bool,
    /// Contiguous ranges lost in this loss round, while in Startup.
    pub(super) lost_ranges_in_round: u32,
    /// `bw_latest` in bytes/s.
    bw_latest: u64,
    /// `inflight_latest` in bytes.
    pub(super) inflight_latest: u64,
    /// Packets marked Congestion Experienced in this loss round, as bytes.
    ce_in_round: u64,
}

impl Congestion {
    /// `ResetCongestionSignals()`.
    pub(super) fn reset_signals(&mut self) {
        self.is_loss_in_round = false;
        self.bw_latest = 0;
        self.inflight_latest = 0;
        self.ce_in_round = 0;
    }
}

/// `IsInflightTooHigh()`: lost more than 2 % of what was in flight? (Selective ACKs are presumed.)
pub(super) fn is_inflight_too_high(sample: &RateSample) -> bool {
    exceeds_loss_thresh(sample.lost, sample.tx_in_flight)
}

fn exceeds_loss_thresh(lost: u64, inflight: u64) -> bool {
    lost.saturating_mul(LOSS_THRESH_INVERSE) > inflight
}

/// `value`·`Beta`.
fn beta(value: u64) -> u64 {
    (value / BETA.1).saturating_mul(BETA.0).saturating_add(value % BETA.1 * BETA.0 / BETA.1)
}

impl Bbr3 {
    /// `UpdateLatestDeliverySignals()`.
    pub(super) fn update_latest_delivery_signals(&mut self, now: &Now) {
        let c = &mut self.congestion;
        c.bw_latest = c.bw_latest.max(now.delivery_rate);
        c.inflight_latest = c.inflight_latest.max(now.sample.delivered);
        c.loss_round_start = now.sample.prior_delivered >= c.loss_round_delivered;
        if c.loss_round_start {
            c.loss_round_delivered = now.delivered;
        }
    }

    /// `AdvanceLatestDeliverySignals()`.
    pub(super) fn advance_latest_delivery_signals(&mut self, now: &Now) {
        if self.congestion.loss_round_start {
            self.congestion.bw_latest = now.delivery_rate;
            self.congestion.inflight_latest = now.sample.delivered;
        }
    }

    /// `UpdateCongestionSignals()`.
    pub(super) fn update_congestion_signals(&mut self, now: &Now) {
        self.update_max_bw(now);
        if self.congestion.loss_round_start {
            self.adapt_lower_bounds_from_congestion();
            self.congestion.is_loss_in_round = false;
            self.congestion.ce_in_round = 0;
        }
    }

    /// `AdaptLowerBoundsFromCongestion()`, with `InitLowerBounds()` and `LossLowerBounds()`.
    fn adapt_lower_bounds_from_congestion(&mut self) {
        if self.state.is_probing_bw() || !self.congestion.is_loss_in_round {
            return;
        }
        let model = &mut self.model;
        if model.bw_shortterm == INFINITY {
            model.bw_shortterm = model.max_bw();
        }
        if model.inflight_shortterm == INFINITY {
            model.inflight_shortterm = self.out.cwnd;
        }
        model.bw_shortterm = self.congestion.bw_latest.max(beta(model.bw_shortterm));
        model.inflight_shortterm = self.congestion.inflight_latest.max(beta(model.inflight_shortterm));
    }

    /// `NoteLoss()`.
    fn note_loss(&mut self, delivered: u64) {
        if !self.congestion.is_loss_in_round {
            self.congestion.loss_round_delivered = delivered;
            self.save_state_upon_loss();
        }
        self.congestion.is_loss_in_round = true;
    }

    /// `HandleLostPacket()`.
    pub(super) fn handle_lost_packet(&mut self, lost: &Lost) {
        self.note_loss(lost.delivered);
        if !self.cycle.is_bw_probe_sample {
            return;
        }
        let lost_since_send = lost.lost.saturating_sub(lost.lost_at_send);
        if exceeds_loss_thresh(lost_since_send, lost.tx_in_flight) {
            let inflight = inflight_at_loss(lost.tx_in_flight, lost_since_send, lost.bytes);
            self.handle_inflight_too_high(inflight, lost.app_limited, lost);
        }
    }

    /// `HandleInflightTooHigh()`.
    fn handle_inflight_too_high(&mut self, tx_in_flight: u64, app_limited: bool, at: &Lost) {
        self.cycle.prev_probe_too_high = true;
        self.cycle.is_bw_probe_sample = false;
        if !app_limited {
            self.model.inflight_longterm = tx_in_flight.max(beta(self.target_inflight()));
        }
        if self.state == State::ProbeBwUp {
            self.undo.state = UndoState::ProbeBwUp;
            self.start_probe_bw_down(at.now, at.delivered);
        }
    }

    /// Decision 10: a marked packet is a lost one, except that it need not be sent again.
    pub(super) fn handle_ce_marks(&mut self, ack: &Ack, now: &Now) {
        self.note_loss(now.delivered);
        let c = &mut self.congestion;
        c.ce_in_round = c.ce_in_round.saturating_add(u64::from(ack.ce_count) * self.smss);
        let marked = c.ce_in_round;
        if self.cycle.is_bw_probe_sample && exceeds_loss_thresh(marked, now.sample.tx_in_flight) {
            let at = Lost {
                now: now.time,
                bytes: 0,
                tx_in_flight: now.sample.tx_in_flight,
                delivered_at_send: now.sample.prior_delivered,
                lost_at_send: 0,
                lost: marked,
                delivered: now.delivered,
                app_limited: now.sample.app_limited,
            };
            self.handle_inflight_too_high(now.sample.tx_in_flight, now.sample.app_limited, &at);
        }
    }
}

/// `InflightAtLoss()`: how much was in flight when losses crossed the threshold, somewhere within
/// the lost packet of `size` bytes.
fn inflight_at_loss(tx_in_flight: u64, lost: u64, size: u64) -> u64 {
    let inflight_prev = tx_in_flight.saturating_sub(size);
    let lost_prev = lost.saturating_sub(size);
    // (LossThresh·inflight_prev − lost_prev) / (1 − LossThresh), both multiplied by 1/LossThresh.
    let lost_prefix = inflight_prev.saturating_sub(lost_prev.saturating_mul(LOSS_THRESH_INVERSE))
        / (LOSS_THRESH_INVERSE - 1);
    inflight_prev.saturating_add(lost_prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_percent_is_tolerated_and_more_is_not() {
        assert!(!exceeds_loss_thresh(2_000, 100_000));
        assert!(exceeds_loss_thresh(2_001, 100_000));
        assert!(!exceeds_loss_thresh(0, 0));
    }

    #[test]
    fn the_threshold_is_crossed_within_the_packet() {
        // 98 000 bytes before, none lost: 2 % of 100 000 is lost once 2 000 of this packet are.
        assert_eq!(inflight_at_loss(98_000 + 64_000, 64_000, 64_000), 100_000);
        // Losses before it exceed the threshold already: nothing of the packet was safe.
        assert_eq!(inflight_at_loss(100_000, 50_000, 10_000), 90_000);
    }

    #[test]
    fn beta_takes_three_tenths_off() {
        assert_eq!(beta(1000), 700);
        assert_eq!(beta(0), 0);
        assert!(beta(u64::MAX) > u64::MAX / 2);
    }
}
