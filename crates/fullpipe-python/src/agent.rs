//! A controller whose window and pacing rate are set from outside between two steps of an episode.

use fullpipe_cc::registry::{Build, BuildError, ControllerInfo, Settings};
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Rate, Recovery, RecoveryContext, Sent, Snapshot, Span, Time,
};
use fullpipe_policy::{MAX_WINDOW, MIN_WINDOW, StepTotals};
use std::any::Any;

/// The window and pacing rate of a flow, and its measurements since the last step. The run owns it;
/// the episode accesses it between steps only.
#[derive(Debug)]
pub struct Agent {
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Pacing rate in bit/s; `None` sends as fast as the window allows.
    pub pacing: Option<Rate>,
    pub smss: u32,
    /// Measurements since the last step.
    pub totals: StepTotals,
    pub srtt: Option<Span>,
    /// Minimum over the whole episode.
    pub min_rtt: Option<Span>,
    pub inflight: u64,
}

impl Agent {
    /// Sets the window to `cwnd` bytes, limited to 2 to `max_window` packets, and the pacing rate.
    pub fn set(&mut self, cwnd: f64, max_window: f64, pacing: Option<Rate>) {
        let smss = f64::from(self.smss.max(1));
        let max_window = max_window.clamp(MIN_WINDOW, MAX_WINDOW);
        self.cwnd = cwnd.clamp(MIN_WINDOW * smss, max_window * smss) as u64;
        self.pacing = pacing;
    }
}

impl Build for Agent {
    const INFO: ControllerInfo = ControllerInfo {
        name: "agent",
        aliases: &[],
        kernel: None,
        about: "window and pacing rate set by a policy",
        settings: &[],
    };

    type Params = ();

    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }

    fn build(config: &Config, (): &()) -> Self {
        Agent {
            cwnd: config.initial_cwnd,
            pacing: None,
            smss: config.smss,
            totals: StepTotals::default(),
            srtt: None,
            min_rtt: None,
            inflight: 0,
        }
    }
}

impl CongestionControl for Agent {
    fn on_handshake(&mut self, _now: Time, rtt: Span) {
        self.srtt = Some(rtt);
        self.min_rtt = Some(rtt);
    }

    fn on_send(&mut self, sent: &Sent) {
        self.totals.on_send(sent);
        self.inflight = sent.inflight + sent.bytes;
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.totals.on_lost(lost);
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.totals.on_ack(ack);
        self.inflight = ack.inflight;
        self.srtt = ack.srtt.or(self.srtt);
        if let Some(rtt) = ack.rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |min| min.min(rtt)));
        }
    }

    fn on_recovery(&mut self, event: Recovery, _context: &RecoveryContext) {
        if event == Recovery::EnterRto {
            self.totals.timeouts += 1;
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

    /// Marks are reported to it.
    fn claims_ecn(&self) -> bool {
        true
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
