//! A controller whose window and rate somebody else sets, between two steps of an episode.

use fullpipe_cc::registry::{Build, BuildError, ControllerInfo, Settings};
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot, Span, Time,
};
use fullpipe_policy::{MAX_WINDOW, MIN_WINDOW, StepTotals};
use std::any::Any;

/// What it is told to do, and what it has seen since it was last asked. The run owns it: between two steps its episode
/// reaches in, while packets move nothing is shared.
#[derive(Debug)]
pub struct Agent {
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// None for as fast as the window allows.
    pub pacing: Option<Rate>,
    pub smss: u32,
    /// Since the last step.
    pub seen: StepTotals,
    pub srtt: Option<Span>,
    /// Of the whole episode.
    pub min_rtt: Option<Span>,
    pub inflight: u64,
}

impl Agent {
    /// The next window is `cwnd` bytes, but of 2 packets to `most` (or what any policy may have), and the pacing rate `pacing`.
    pub fn order(&mut self, cwnd: f64, most: f64, pacing: Option<Rate>) {
        let smss = f64::from(self.smss.max(1));
        let most = most.clamp(MIN_WINDOW, MAX_WINDOW);
        self.cwnd = cwnd.clamp(MIN_WINDOW * smss, most * smss) as u64;
        self.pacing = pacing;
    }
}

impl Build for Agent {
    const INFO: ControllerInfo = ControllerInfo {
        name: "agent",
        aliases: &[],
        kernel: None,
        about: "a window and a rate that a policy sets",
        settings: &[],
    };

    fn build<'a>(config: &Config, _: Settings<'a>) -> Result<Self, BuildError<'a>> {
        Ok(Agent {
            cwnd: config.initial_cwnd,
            pacing: None,
            smss: config.smss,
            seen: StepTotals::default(),
            srtt: None,
            min_rtt: None,
            inflight: 0,
        })
    }
}

impl CongestionControl for Agent {
    fn on_handshake(&mut self, _now: Time, rtt: Span) {
        self.srtt = Some(rtt);
        self.min_rtt = Some(rtt);
    }

    fn on_send(&mut self, sent: &Sent) {
        self.seen.on_send(sent);
        self.inflight = sent.inflight + sent.bytes;
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.seen.on_lost(lost);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.seen.on_ack(ack);
        self.inflight = ack.inflight;
        self.srtt = ack.srtt.or(self.srtt);
        if let Some(rtt) = ack.rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
    }

    fn on_recovery(&mut self, event: Recovery, _context: &RecoveryContext) {
        if event == Recovery::EnterRto {
            self.seen.timeouts += 1;
        }
    }

    fn on_mtu(&mut self, smss: u32) {
        self.smss = smss;
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        u64::MAX
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: "Agent",
            cwnd: self.cwnd,
            pacing_rate: self.pacing,
            min_rtt: self.min_rtt,
            ..Snapshot::default()
        }
    }

    fn state(&self) -> &'static str {
        "Agent"
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}
