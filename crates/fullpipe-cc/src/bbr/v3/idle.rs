//! Restarting from idle (draft § Restarting From Idle).

use super::variant::Departure;
use super::volume::Bytes;
use super::{Bbr3, State};
use crate::{Gain, Time};

impl Bbr3 {
    /// `HandleRestartFromIdle()`, when nothing is in flight and the application was the limit.
    pub(super) fn handle_restart_from_idle(&mut self, now: Time, delivered: Bytes) {
        self.idle_restart = true;
        self.aggregation.interval_start = now;
        if !self.is_as_drafted(Departure::IdleRestart) {
            self.aggregation.delivered = Bytes::ZERO;
        }
        if self.state.is_probe_bw() {
            self.set_pacing_rate_with_gain(Gain::UNIT);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now, delivered);
        }
    }
}
