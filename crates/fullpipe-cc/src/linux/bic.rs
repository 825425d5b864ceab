//! BIC (Xu, Harfoush & Rhee, "Binary Increase Congestion Control for Fast Long-Distance Networks",
//! 2004), as in Linux `net/ipv4/tcp_bic.c`: after a loss, a binary search for the window before it,
//! then additive probing beyond.

use super::{AckSample, CaState, HZ_SETTING, Modular, Module, Tcp, read_hz};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};

/// The unit of β.
const BETA_SCALE: u32 = 1024;
/// Each step of the search covers a quarter of the distance (B).
const STEPS: u32 = 4;
/// Packets per ACK count in 1/16.
const RATIO_SHIFT: u32 = 4;

/// Parameters, named as in the kernel module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Release more of the window if it shrinks from loss to loss.
    pub fast_convergence: bool,
    /// Largest growth per round trip in packets (S_max).
    pub max_increment: u32,
    /// Window up to which it is Reno.
    pub low_window: u32,
    /// Factor applied to the window on loss, in 1/1024.
    pub beta: u32,
    /// Initial threshold of slow start; 0 if not set.
    pub initial_ssthresh: u32,
    /// Round trips of growth near the window of the last loss.
    pub smooth_part: u32,
    /// Clock ticks per second (`CONFIG_HZ`).
    pub hz: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            fast_convergence: true,
            max_increment: 16,
            low_window: 14,
            beta: 819,
            initial_ssthresh: 0,
            smooth_part: 20,
            hz: crate::jiffies::HZ,
        }
    }
}

/// BIC's window.
#[derive(Clone, Copy, Debug)]
pub struct BicModule {
    params: Params,
    /// Acknowledged packets per packet of growth.
    per_increase: u32,
    /// The window at the last loss.
    last_max_cwnd: u32,
    /// The window and tick of the last evaluation.
    last_cwnd: u32,
    last_time: u32,
    /// Packets per ACK, in 1/16.
    ack_ratio: u32,
}

impl BicModule {
    /// The module of a new connection.
    pub fn new(params: Params) -> Self {
        BicModule {
            params,
            per_increase: 0,
            last_max_cwnd: 0,
            last_cwnd: 0,
            last_time: 0,
            ack_ratio: 2 << RATIO_SHIFT,
        }
    }

    /// `bictcp_update`.
    fn update(&mut self, now: u32, cwnd: u32) {
        let ticks = now.wrapping_sub(self.last_time) as i32;
        if self.last_cwnd == cwnd && ticks <= (self.params.hz / 32) as i32 {
            return;
        }
        self.last_cwnd = cwnd;
        self.last_time = now;
        if cwnd <= self.params.low_window {
            self.per_increase = cwnd;
            return;
        }
        let max = self.last_max_cwnd;
        let fastest = cwnd / self.params.max_increment.max(1);
        let slowest = cwnd.wrapping_mul(self.params.smooth_part) / STEPS;
        let additive_from = self.params.max_increment.wrapping_mul(STEPS - 1);
        let mut per_increase = if cwnd < max {
            match (max - cwnd) / STEPS {
                step if step > self.params.max_increment => fastest,
                0 | 1 => slowest,
                step => cwnd / step,
            }
        } else if cwnd < max.wrapping_add(STEPS) {
            slowest
        } else if cwnd < max.wrapping_add(additive_from) {
            cwnd.wrapping_mul(STEPS - 1) / (cwnd - max).max(1)
        } else {
            fastest
        };
        // Before the first loss grow by at least 5 % per round trip.
        if max == 0 {
            per_increase = per_increase.min(20);
        }
        self.per_increase = ((per_increase << RATIO_SHIFT) / self.ack_ratio.max(1)).max(1);
    }
}

impl Module for BicModule {
    fn init(&mut self, window: &mut Window, _: &Tcp) {
        *self = Self::new(self.params);
        if self.params.initial_ssthresh > 0 {
            window.ssthresh = self.params.initial_ssthresh;
        }
    }

    fn pkts_acked(&mut self, _: &mut Window, tcp: &Tcp, sample: &AckSample) {
        if tcp.state == CaState::Open {
            let change = sample.pkts_acked.wrapping_sub(self.ack_ratio >> RATIO_SHIFT);
            self.ack_ratio = self.ack_ratio.wrapping_add(change);
        }
    }

    fn set_state(&mut self, _: &mut Window, _: &Tcp, state: CaState) {
        if state == CaState::Loss {
            *self = Self::new(self.params);
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !tcp.is_limiting(window) {
            return;
        }
        let acked = window.rest_of_slow_start(acked);
        if acked == 0 {
            return;
        }
        self.update(tcp.jiffies, window.cwnd);
        window.additive_increase(self.per_increase, acked);
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        let (cwnd, beta) = (window.cwnd, self.params.beta);
        self.last_max_cwnd = if cwnd < self.last_max_cwnd && self.params.fast_convergence {
            cwnd.wrapping_mul(BETA_SCALE.wrapping_add(beta)) / (2 * BETA_SCALE)
        } else {
            cwnd
        };
        if cwnd <= self.params.low_window {
            (cwnd >> 1).max(2)
        } else {
            (cwnd.wrapping_mul(beta) / BETA_SCALE).max(2)
        }
    }
}

/// The BIC controller.
pub type Bic = Modular<BicModule>;

impl Build for Bic {
    const INFO: ControllerInfo = ControllerInfo {
        name: "bic",
        aliases: &[],
        kernel: Some("bic"),
        about: "BIC: binary search for the window of the last loss; CUBIC's predecessor",
        settings: &[
            Setting {
                key: "fast_convergence",
                values: "on or off",
                default: "on",
                about: "release more of the window if it shrinks from loss to loss",
            },
            Setting {
                key: "max_increment",
                values: "1 to 1000000 (packets)",
                default: "16",
                about: "largest growth per round trip",
            },
            Setting {
                key: "low_window",
                values: "0 to 1000000 (packets)",
                default: "14",
                about: "window up to which it grows and shrinks as Reno",
            },
            Setting {
                key: "beta",
                values: "1 to 1023 (1/1024)",
                default: "819",
                about: "factor applied to the window on loss",
            },
            Setting {
                key: "initial_ssthresh",
                values: "0 to 1000000 (packets)",
                default: "0",
                about: "initial slow-start threshold; 0: none",
            },
            Setting {
                key: "smooth_part",
                values: "1 to 1000 (round trips)",
                default: "20",
                about: "duration of the slow growth at the window of the last loss",
            },
            HZ_SETTING,
        ],
    };

    type Params = Params;

    fn parse<'a>(settings: Settings<'a>) -> Result<Params, BuildError<'a>> {
        let d = Params::default();
        Ok(Params {
            fast_convergence: settings.switch("fast_convergence", d.fast_convergence)?,
            max_increment: settings.number("max_increment", d.max_increment, 1, 1_000_000)?,
            low_window: settings.number("low_window", d.low_window, 0, 1_000_000)?,
            beta: settings.number("beta", d.beta, 1, BETA_SCALE - 1)?,
            initial_ssthresh: settings.number("initial_ssthresh", d.initial_ssthresh, 0, 1_000_000)?,
            smooth_part: settings.number("smooth_part", d.smooth_part, 1, 1000)?,
            hz: read_hz(&settings)?,
        })
    }

    fn build(config: &Config, params: &Params) -> Self {
        Modular::build_at(config, BicModule::new(*params), params.hz)
    }

    fn setting(params: &Params, key: &str) -> Option<SettingValue> {
        Some(match key {
            "fast_convergence" => SettingValue::Switch(params.fast_convergence),
            "max_increment" => SettingValue::number(params.max_increment),
            "low_window" => SettingValue::number(params.low_window),
            "beta" => SettingValue::number(params.beta),
            "initial_ssthresh" => SettingValue::number(params.initial_ssthresh),
            "smooth_part" => SettingValue::number(params.smooth_part),
            "hz" => SettingValue::number(params.hz),
            _ => return None,
        })
    }
}
