//! A policy as a congestion controller: it decides once per round trip, on the first ACK after it.

use crate::agent::Agent;
use crate::network::Network;
use crate::totals::StepTotals;
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot, Span, Time,
};

/// A congestion controller whose window, and optionally pacing rate, are set by a [`Network`]. It
/// ignores loss recovery: losses are part of the observation.
#[derive(Clone, Debug)]
pub struct PolicyController {
    agent: Agent,
    totals: StepTotals,
    step_start: Time,
    srtt: Option<Span>,
    min_rtt: Option<Span>,
}

impl PolicyController {
    /// The controller of a new connection.
    pub fn new(network: Network, config: &Config) -> Self {
        PolicyController {
            agent: Agent::new(network, config.initial_cwnd, config.smss),
            totals: StepTotals::default(),
            step_start: Time::ZERO,
            srtt: None,
            min_rtt: None,
        }
    }

    /// The name of its only state.
    pub const STATE: &'static str = "Policy";
}

impl CongestionControl for PolicyController {
    fn on_handshake(&mut self, now: Time, rtt: Span) {
        self.step_start = now;
        self.srtt = Some(rtt);
        self.min_rtt = Some(rtt);
    }

    fn on_send(&mut self, sent: &Sent) {
        self.totals.on_send(sent);
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.totals.on_lost(lost);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.totals.on_ack(ack);
        self.srtt = ack.srtt.or(self.srtt);
        if let Some(rtt) = ack.rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        let Some(srtt) = self.srtt else { return };
        let duration = ack.now.since(self.step_start);
        if duration >= srtt {
            let step = self.totals.step(duration, self.min_rtt, ack.inflight, self.agent.window());
            self.agent.decide(&step);
            self.totals = StepTotals::default();
            self.step_start = ack.now;
        }
    }

    fn on_recovery(&mut self, _: Recovery, _: &RecoveryContext) {}

    fn on_mtu(&mut self, smss: u32) {
        self.agent.on_mtu(smss);
    }

    fn cwnd(&self) -> u64 {
        self.agent.window()
    }

    fn ssthresh(&self) -> u64 {
        u64::MAX
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.agent.pacing()
    }

    /// Marks are part of the observation.
    fn claims_ecn(&self) -> bool {
        true
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: Self::STATE,
            cwnd: self.cwnd(),
            pacing_rate: self.agent.pacing(),
            min_rtt: self.min_rtt,
            ..Snapshot::default()
        }
    }

    fn state(&self) -> &'static str {
        Self::STATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Action, Activation, Layer};

    #[test]
    fn policy_decides_once_per_round_trip() {
        let doubling = Layer { weights: vec![vec![0.0; 8]], bias: vec![1.0] };
        let network = Network::new("", Action::Multiplier, Activation::Tanh, vec![doubling]).unwrap();
        let config = Config { smss: 1000, initial_cwnd: 10_000, ..Config::default() };
        let mut cc = PolicyController::new(network, &config);
        cc.on_handshake(Time::ZERO, Span::from_millis(40));
        let mut windows = Vec::new();
        for ms in [10, 39, 40, 41, 79, 85, 120, 125] {
            let ack = Ack { srtt: Some(Span::from_millis(40)), ..Ack::at(Time::from_nanos(ms * 1_000_000)) };
            cc.on_ack(&ack);
            windows.push(cc.cwnd() / 1000);
        }
        assert_eq!(windows, [10, 10, 20, 20, 20, 40, 40, 80]);
    }
}
