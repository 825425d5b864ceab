//! NV ("New Vegas", Brakmo, "TCP-NV: An Update to TCP-Vegas", 2015), as in Linux
//! `net/ipv4/tcp_nv.c`: once per round trip, compares the window with the largest measured rate
//! times the minimum round-trip time, and keeps at most ten packets queued; for data centres.
//!
//! The minimum round-trip time is renewed at random intervals; the random numbers are the
//! controller's seeded ones ([`Config::seed`](crate::Config::seed)).

use super::{AckSample, CaState, HZ_SETTING, Modular, Module, Tcp, before, micros, read_hz};
use crate::control::Config;
use crate::loss_based::{NO_SSTHRESH, Window};
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use fullpipe_units::Span;

/// No round-trip time.
const NO_RTT: u32 = u32::MAX;
/// The unit of rates: 10 bytes per ms, with times in µs.
const RATE_UNIT: u64 = 80_000;
/// A window below the allowed one by less than this is right.
const PAD_BUFFER: u32 = 2;
/// Bounds and step of the window that one ACK may cover.
const MIN_ACK_WINDOW: u8 = 4;
const MAX_ACK_WINDOW: u8 = 81;
const ACK_WINDOW_STEP: u8 = 2;
/// The share of the excess that a decision removes, in 1/128.
const DECREASE: u32 = 30 * 128 / 100;
/// The weight of a new round-trip time, in 1/256.
const RTT_WEIGHT: u64 = 128;
/// The factor on loss, in 1/1024.
const LOSS_FACTOR: u32 = 819;
/// Decisions without congestion after which slowed growth speeds up.
const SPEED_UP: u32 = 8;
/// Samples that a decision needs: to shrink, to grow, and to end slow start.
const SAMPLES_TO_SHRINK: u8 = 60;
const SAMPLES_TO_GROW: u8 = 20;
const SAMPLES_TO_EXIT: u8 = 30;
/// Rounds with congestion and without enough samples after which growth stops.
const ROUNDS_TO_STOP: u8 = 10;
/// Rounds that a decision to shrink needs.
const ROUNDS_TO_SHRINK: u8 = 2;

/// Parameters, named as in the kernel module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Packets that may be queued.
    pub nv_pad: u32,
    /// Seconds after which the minimum round-trip time is measured anew.
    pub nv_reset_period: u32,
    /// Smallest window without loss.
    pub nv_min_cwnd: u32,
    /// Clock ticks per second (`CONFIG_HZ`).
    pub hz: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params { nv_pad: 10, nv_reset_period: 5, nv_min_cwnd: 2, hz: crate::jiffies::HZ }
    }
}

/// NV's window.
#[derive(Clone, Copy, Debug)]
pub struct NvModule {
    params: Params,
    /// The tick at which the minimum round-trip time is renewed.
    renew_at: u32,
    /// Growth is slowed by two to the power of this.
    slowed: u8,
    may_grow: bool,
    /// A loss happened: measure anew once it is repaired.
    resets: bool,
    /// Samples and rounds since the last decision.
    samples: u8,
    rounds: u8,
    /// Window that one ACK may cover, which makes rates unreliable.
    ack_window: u8,
    last_rtt: u32,
    min_rtt: u32,
    next_min_rtt: u32,
    max_rate: u32,
    /// The end of the round, as a sequence number.
    end: u32,
    last_una: u32,
    /// Decisions without congestion.
    uncongested: u32,
}

impl NvModule {
    /// The module of a new connection.
    pub fn new(params: Params) -> Self {
        NvModule {
            params,
            renew_at: 0,
            slowed: 0,
            may_grow: true,
            resets: false,
            samples: 0,
            rounds: 0,
            ack_window: MIN_ACK_WINDOW,
            last_rtt: 0,
            min_rtt: NO_RTT,
            next_min_rtt: NO_RTT,
            max_rate: 0,
            end: 0,
            last_una: 0,
            uncongested: 0,
        }
    }

    /// `tcpnv_reset`.
    fn reset(&mut self, tcp: &Tcp) {
        self.resets = false;
        self.uncongested = 0;
        self.rounds = 0;
        self.last_rtt = 0;
        self.max_rate = 0;
        self.end = tcp.snd_una;
        self.samples = 0;
        self.last_una = tcp.snd_una;
    }

    fn measure(&mut self, tcp: &Tcp, rtt: u32, in_flight: u32) {
        let average = if self.last_rtt > 0 {
            let sum = u64::from(rtt) * RTT_WEIGHT + u64::from(self.last_rtt) * (256 - RTT_WEIGHT);
            (sum >> 8) as u32
        } else {
            self.min_rtt = rtt << 1;
            rtt
        };
        self.last_rtt = average;
        let rate = (u64::from(in_flight) * RATE_UNIT / u64::from(average.max(1))) as u32;
        self.max_rate = self.max_rate.max(rate);
        self.samples = self.samples.saturating_add(1);
        self.min_rtt = self.min_rtt.min(average);
        self.next_min_rtt = self.next_min_rtt.min(average);
        if !before(tcp.jiffies, self.renew_at) {
            self.min_rtt = self.next_min_rtt;
            self.next_min_rtt = NO_RTT;
            // Between 3/4 and 5/4 of the period.
            let share = 384 + (tcp.random & 0xff);
            let ticks = self.params.nv_reset_period.wrapping_mul(share).wrapping_mul(self.params.hz) >> 9;
            self.renew_at = tcp.jiffies.wrapping_add(ticks);
            self.ack_window = (self.ack_window / 2).max(MIN_ACK_WINDOW);
        }
    }

    /// Whether the round's rates are of ACKs that cover most of a window; then the next round is
    /// longer.
    fn extend_round(&mut self, tcp: &Tcp, bytes: u32) -> bool {
        let covered = u32::from(self.ack_window - 1).wrapping_mul(tcp.mss);
        if self.samples != 1 || bytes < covered || self.ack_window >= MAX_ACK_WINDOW {
            return false;
        }
        self.ack_window = (self.ack_window + ACK_WINDOW_STEP).min(MAX_ACK_WINDOW);
        let window = u32::from(self.ack_window).wrapping_mul(tcp.mss);
        self.end = tcp.snd_nxt.wrapping_add(window);
        self.samples = 0;
        self.may_grow = true;
        true
    }

    /// Whether the window was found too large, or right, or small: a decision was made.
    fn decide(&mut self, window: &mut Window, tcp: &Tcp) -> bool {
        let divisor = (RATE_UNIT * u64::from(tcp.mss)).max(1);
        let fits = (u64::from(self.max_rate).wrapping_mul(u64::from(self.min_rtt)) / divisor) as u32;
        let allowed = fits.wrapping_add(self.params.nv_pad);
        if window.cwnd > allowed {
            if self.rounds < ROUNDS_TO_SHRINK {
                return false;
            }
            if window.ssthresh == NO_SSTHRESH {
                if self.samples < SAMPLES_TO_EXIT {
                    return false;
                }
            } else if self.samples < SAMPLES_TO_SHRINK {
                self.may_grow &= self.rounds <= ROUNDS_TO_STOP;
                return false;
            }
            self.may_grow = false;
            window.ssthresh = allowed.wrapping_mul(8) >> 3;
            let excess = window.cwnd - allowed;
            window.cwnd = if excess > 2 {
                window.cwnd.wrapping_sub((excess.wrapping_mul(DECREASE) >> 7).max(2))
            } else {
                allowed
            };
            self.uncongested = 0;
        } else if window.cwnd <= allowed.wrapping_sub(PAD_BUFFER) {
            if self.samples < SAMPLES_TO_GROW {
                return false;
            }
            self.may_grow = true;
            self.uncongested = self.uncongested.wrapping_add(1);
            if self.slowed > 0 && self.uncongested > SPEED_UP {
                self.slowed -= 1;
                self.uncongested = 0;
            }
        } else {
            return false;
        }
        true
    }
}

impl Module for NvModule {
    const RANDOM: bool = true;

    fn init(&mut self, _: &mut Window, tcp: &Tcp) {
        *self = Self::new(self.params);
        self.reset(tcp);
        self.renew_at = tcp.jiffies.wrapping_add(2 * self.params.hz);
    }

    fn pkts_acked(&mut self, window: &mut Window, tcp: &Tcp, sample: &AckSample) {
        let Ok(rtt) = u32::try_from(sample.rtt_us) else { return };
        if tcp.state > CaState::Disorder {
            return;
        }
        let bytes = tcp.snd_una.wrapping_sub(self.last_una);
        self.last_una = tcp.snd_una;
        if sample.in_flight == 0 {
            return;
        }
        self.measure(tcp, rtt, sample.in_flight);
        if !before(self.end, tcp.snd_una) {
            return;
        }
        self.end = tcp.snd_nxt;
        self.rounds = self.rounds.saturating_add(1);
        if self.extend_round(tcp, bytes) || !self.decide(window, tcp) {
            return;
        }
        self.samples = 0;
        self.rounds = 0;
        self.max_rate = 0;
        window.cwnd = window.cwnd.max(self.params.nv_min_cwnd);
    }

    fn set_state(&mut self, _: &mut Window, tcp: &Tcp, state: CaState) {
        match state {
            CaState::Open if self.resets => self.reset(tcp),
            CaState::Open | CaState::Disorder => {}
            CaState::Cwr | CaState::Recovery | CaState::Loss => {
                self.resets = true;
                self.may_grow = false;
                if state == CaState::Loss {
                    self.slowed = (self.slowed + 1).min(8);
                }
            }
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !tcp.is_limiting(window) || !self.may_grow {
            return;
        }
        let acked = window.rest_of_slow_start(acked);
        if acked == 0 {
            return;
        }
        let per_increase = if self.slowed > 0 { window.cwnd << self.slowed } else { window.cwnd.max(4) };
        window.additive_increase(per_increase, acked);
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        (window.cwnd.wrapping_mul(LOSS_FACTOR) >> 10).max(2)
    }

    fn min_rtt(&self) -> Option<Span> {
        micros(self.min_rtt, NO_RTT)
    }
}

/// The NV controller.
pub type Nv = Modular<NvModule>;

impl Build for Nv {
    const INFO: ControllerInfo = ControllerInfo {
        name: "nv",
        aliases: &[],
        kernel: Some("nv"),
        about: "NV: keeps at most ten packets queued, judged by measured rates; for data centres",
        settings: &[
            Setting {
                key: "nv_pad",
                values: "0 to 100000 (packets)",
                default: "10",
                about: "packets that may be queued",
            },
            Setting {
                key: "nv_reset_period",
                values: "0 to 1000 (s)",
                default: "5",
                about: "time after which the minimum round-trip time is measured anew",
            },
            Setting {
                key: "nv_min_cwnd",
                values: "1 to 100000 (packets)",
                default: "2",
                about: "smallest window without loss",
            },
            HZ_SETTING,
        ],
    };

    type Params = Params;

    fn parse<'a>(settings: Settings<'a>) -> Result<Params, BuildError<'a>> {
        let d = Params::default();
        Ok(Params {
            nv_pad: settings.number("nv_pad", d.nv_pad, 0, 100_000)?,
            nv_reset_period: settings.number("nv_reset_period", d.nv_reset_period, 0, 1000)?,
            nv_min_cwnd: settings.number("nv_min_cwnd", d.nv_min_cwnd, 1, 100_000)?,
            hz: read_hz(&settings)?,
        })
    }

    fn build(config: &Config, params: &Params) -> Self {
        Modular::build_at(config, NvModule::new(*params), params.hz)
    }

    fn setting(params: &Params, key: &str) -> Option<SettingValue> {
        Some(SettingValue::number(match key {
            "nv_pad" => params.nv_pad,
            "nv_reset_period" => params.nv_reset_period,
            "nv_min_cwnd" => params.nv_min_cwnd,
            "hz" => params.hz,
            _ => return None,
        }))
    }
}
