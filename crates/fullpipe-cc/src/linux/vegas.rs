//! Vegas (Brakmo & Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet",
//! 1995), as in Linux `net/ipv4/tcp_vegas.c`: once per round trip, compares the window with what the
//! minimum round-trip time would allow, and keeps two to four packets queued.

use super::{AckSample, CaEvent, CaState, Modular, Module, Tcp, before, half, micros};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use fullpipe_units::Span;

/// No round-trip time.
const NO_RTT: u32 = 0x7fff_ffff;

/// Parameters, named as in the kernel module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Queued packets below which the window grows.
    pub alpha: u32,
    /// Queued packets above which it shrinks.
    pub beta: u32,
    /// Queued packets that end slow start.
    pub gamma: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params { alpha: 2, beta: 4, gamma: 1 }
    }
}

/// The round-trip times that Vegas and YeAH measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    /// Whether the algorithm is active: not during and right after loss recovery.
    pub active: bool,
    /// The end of the round, as a sequence number.
    pub end: u32,
    /// Samples in this round.
    pub samples: u32,
    /// Minimum in this round in µs, plus one.
    pub min_rtt: u32,
    /// Minimum of the connection in µs, plus one.
    pub base_rtt: u32,
}

impl Rounds {
    pub fn new() -> Self {
        Rounds { active: true, end: 0, samples: 0, min_rtt: NO_RTT, base_rtt: NO_RTT }
    }

    /// `tcp_vegas_init`.
    pub fn init(&mut self, tcp: &Tcp) {
        self.base_rtt = NO_RTT;
        self.enable(tcp);
    }

    /// `vegas_enable`.
    fn enable(&mut self, tcp: &Tcp) {
        self.active = true;
        self.restart(tcp);
    }

    /// A round begins.
    pub fn restart(&mut self, tcp: &Tcp) {
        self.end = tcp.snd_nxt;
        self.samples = 0;
        self.min_rtt = NO_RTT;
    }

    /// `tcp_vegas_pkts_acked`.
    pub fn pkts_acked(&mut self, sample: &AckSample) {
        let Ok(rtt) = u32::try_from(sample.rtt_us) else { return };
        // Never zero.
        let rtt = rtt + 1;
        self.base_rtt = self.base_rtt.min(rtt);
        self.min_rtt = self.min_rtt.min(rtt);
        self.samples = self.samples.wrapping_add(1);
    }

    /// `tcp_vegas_state`.
    pub fn set_state(&mut self, tcp: &Tcp, state: CaState) {
        if state == CaState::Open {
            self.enable(tcp);
        } else {
            self.active = false;
        }
    }

    /// Whether the ACK ends the round.
    pub fn ends(&self, tcp: &Tcp) -> bool {
        before(self.end, tcp.snd_una)
    }
}

/// Vegas' window.
#[derive(Clone, Copy, Debug)]
pub struct VegasModule {
    params: Params,
    rounds: Rounds,
}

impl VegasModule {
    /// The module of a new connection.
    pub fn new(params: Params) -> Self {
        VegasModule { params, rounds: Rounds::new() }
    }

    /// The adjustment at the end of a round.
    fn adjust(&self, window: &mut Window, tcp: &Tcp, acked: u32) {
        let (rtt, base) = (self.rounds.min_rtt, self.rounds.base_rtt);
        let cwnd = window.cwnd;
        // The product wraps as in the kernel.
        let queued = cwnd.wrapping_mul(rtt.wrapping_sub(base)) / base.max(1);
        if queued > self.params.gamma && window.in_slow_start() {
            let target = u64::from(cwnd) * u64::from(base) / u64::from(rtt.max(1));
            window.cwnd = cwnd.min((target as u32).wrapping_add(1));
            window.ssthresh = window.ssthresh.min(window.cwnd);
        } else if window.in_slow_start() {
            window.slow_start(acked);
        } else if queued > self.params.beta {
            window.cwnd = cwnd.wrapping_sub(1);
            window.ssthresh = window.ssthresh.min(window.cwnd);
        } else if queued < self.params.alpha {
            window.cwnd = cwnd.saturating_add(1);
        }
        window.cwnd = window.cwnd.min(window.clamp).max(2);
        window.ssthresh = tcp.current_ssthresh(window);
    }
}

impl Module for VegasModule {
    fn init(&mut self, _: &mut Window, tcp: &Tcp) {
        self.rounds.init(tcp);
    }

    fn pkts_acked(&mut self, _: &mut Window, _: &Tcp, sample: &AckSample) {
        self.rounds.pkts_acked(sample);
    }

    fn set_state(&mut self, _: &mut Window, tcp: &Tcp, state: CaState) {
        self.rounds.set_state(tcp, state);
    }

    fn cwnd_event(&mut self, _: &mut Window, tcp: &Tcp, event: CaEvent) {
        if matches!(event, CaEvent::CwndRestart | CaEvent::TxStart) {
            self.rounds.init(tcp);
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !self.rounds.active {
            tcp.reno(window, acked);
        } else if self.rounds.ends(tcp) {
            // With two samples, both may be of delayed ACKs.
            if self.rounds.samples <= 2 {
                tcp.reno(window, acked);
            } else {
                self.adjust(window, tcp, acked);
            }
            self.rounds.restart(tcp);
        } else if window.in_slow_start() {
            window.slow_start(acked);
        }
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        half(window)
    }

    fn min_rtt(&self) -> Option<Span> {
        micros(self.rounds.base_rtt, NO_RTT)
    }
}

/// The Vegas controller.
pub type Vegas = Modular<VegasModule>;

impl Build for Vegas {
    const INFO: ControllerInfo = ControllerInfo {
        name: "vegas",
        aliases: &[],
        kernel: Some("vegas"),
        about: "Vegas: keeps two to four packets queued, judged by delay",
        settings: &[
            Setting {
                key: "alpha",
                values: "0 to 1000 (packets)",
                default: "2",
                about: "queued packets below which the window grows",
            },
            Setting {
                key: "beta",
                values: "0 to 1000 (packets)",
                default: "4",
                about: "queued packets above which the window shrinks",
            },
            Setting {
                key: "gamma",
                values: "0 to 1000 (packets)",
                default: "1",
                about: "queued packets that end slow start",
            },
        ],
    };

    type Params = Params;

    fn parse<'a>(settings: Settings<'a>) -> Result<Params, BuildError<'a>> {
        let d = Params::default();
        Ok(Params {
            alpha: settings.number("alpha", d.alpha, 0, 1000)?,
            beta: settings.number("beta", d.beta, 0, 1000)?,
            gamma: settings.number("gamma", d.gamma, 0, 1000)?,
        })
    }

    fn build(config: &Config, params: &Params) -> Self {
        Modular::build(config, VegasModule::new(*params))
    }

    fn setting(params: &Params, key: &str) -> Option<SettingValue> {
        Some(SettingValue::number(match key {
            "alpha" => params.alpha,
            "beta" => params.beta,
            "gamma" => params.gamma,
            _ => return None,
        }))
    }
}
