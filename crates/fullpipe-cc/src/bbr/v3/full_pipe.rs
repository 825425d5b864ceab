//! Detects whether sending faster still raises the delivery rate.
//! (draft § Exiting Acceleration Based on Bandwidth Plateau)

use super::{Bbr3, Now};
use crate::Rate;

#[derive(Clone, Debug, Default)]
pub(super) struct FullPipe {
    /// `full_bw_reached`: the pipe was full at least once.
    pub(super) reached: bool,
    /// `full_bw_now`: it is full since the detector was last reset.
    pub(super) now: bool,
    /// `full_bw`: the baseline that growth is measured from.
    bw: Rate,
    /// `full_bw_count`: rounds without growth.
    count: u8,
}

impl FullPipe {
    /// `ResetFullBW()`, then the baseline `bw`.
    pub(super) fn restart(&mut self, bw: Rate) {
        self.bw = bw;
        self.count = 0;
        self.now = false;
    }

    /// Marks the pipe full for a reason other than a plateau.
    pub(super) fn set_reached(&mut self) {
        self.now = true;
        self.reached = true;
    }
}

impl Bbr3 {
    /// `CheckFullBWReached()`.
    pub(super) fn check_full_bw_reached(&mut self, now: &Now) {
        // Linux looks for growth on every ACK and counts rounds without it.
        let every_ack = self.is_linux();
        let pipe = &mut self.full_pipe;
        if pipe.now || !(self.model.round_start || every_ack) || now.sample.app_limited {
            return;
        }
        if now.delivery_rate >= pipe.bw.scale(self.params.full_bw_growth()) {
            pipe.restart(now.delivery_rate);
            return;
        }
        if !self.model.round_start {
            return;
        }
        pipe.count += 1;
        if u32::from(pipe.count) >= self.params.full_bw_rounds {
            pipe.set_reached();
        }
    }
}
