//! Illinois (Liu, Başar & Srikant, "TCP-Illinois: A Loss and Delay-Based Congestion Control
//! Algorithm for High-Speed Networks", 2006), as in Linux `net/ipv4/tcp_illinois.c`: the queueing
//! delay sets by how much Reno's window grows (α, 0.3 to 10 packets) and shrinks (β, 1/8 to 1/2).

use super::{AckSample, CaState, Modular, Module, Tcp, before, micros};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use fullpipe_units::Span;

/// α counts in 1/128 packet.
const ALPHA_SHIFT: u32 = 7;
const ALPHA_ONE: u32 = 1 << ALPHA_SHIFT;
const ALPHA_MIN: u32 = 3 * ALPHA_ONE / 10;
const ALPHA_MAX: u32 = 10 * ALPHA_ONE;
/// Longer round-trip times would overflow α.
const RTT_MAX: i32 = (u32::MAX / ALPHA_MAX) as i32;
/// β counts in 1/64.
const BETA_SHIFT: u32 = 6;
const BETA_MIN: u32 = (1 << BETA_SHIFT) / 8;
const BETA_MAX: u32 = (1 << BETA_SHIFT) / 2;
/// No round-trip time.
const NO_RTT: u32 = 0x7fff_ffff;

/// Parameters, named as in the kernel module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Window below which α and β are Reno's.
    pub win_thresh: u32,
    /// Rounds with a short queue before α is largest again.
    pub theta: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params { win_thresh: 15, theta: 5 }
    }
}

/// Illinois' window.
#[derive(Clone, Copy, Debug)]
pub struct IllinoisModule {
    params: Params,
    /// Round-trip times of this round in µs: their sum and number.
    sum_rtt: u64,
    samples: u16,
    /// The extremes of the connection.
    base_rtt: u32,
    max_rtt: u32,
    /// The end of the round, as a sequence number.
    end: u32,
    alpha: u32,
    beta: u32,
    /// Packets that the last ACK acknowledged.
    acked: u16,
    /// Whether the queue was long since α was largest.
    rtt_above: bool,
    /// Rounds with a short queue since.
    rtt_low: u8,
}

impl IllinoisModule {
    /// The module of a new connection.
    pub fn new(params: Params) -> Self {
        IllinoisModule {
            params,
            sum_rtt: 0,
            samples: 0,
            base_rtt: NO_RTT,
            max_rtt: 0,
            end: 0,
            alpha: ALPHA_MAX,
            beta: BETA_MAX,
            acked: 0,
            rtt_above: false,
            rtt_low: 0,
        }
    }

    fn restart_round(&mut self, tcp: &Tcp) {
        self.end = tcp.snd_nxt;
        self.samples = 0;
        self.sum_rtt = 0;
    }

    /// α by the average and the largest queueing delay: falls as 1/delay above 1 % of the largest.
    fn alpha(&mut self, average: u32, largest: u32) -> u32 {
        let low = largest / 100;
        if average <= low {
            if !self.rtt_above {
                return ALPHA_MAX;
            }
            self.rtt_low = self.rtt_low.wrapping_add(1);
            if u32::from(self.rtt_low) < self.params.theta {
                return self.alpha;
            }
            self.rtt_low = 0;
            self.rtt_above = false;
            return ALPHA_MAX;
        }
        self.rtt_above = true;
        let (largest, average) = (largest - low, average - low);
        let share = average.wrapping_mul(ALPHA_MAX - ALPHA_MIN) / ALPHA_MIN;
        largest.wrapping_mul(ALPHA_MAX) / largest.wrapping_add(share).max(1)
    }

    /// Once per round trip (`update_params`).
    fn update(&mut self, window: &Window, tcp: &Tcp) {
        if window.cwnd < self.params.win_thresh {
            self.alpha = ALPHA_ONE;
            self.beta = BETA_MAX;
        } else if self.samples > 0 {
            let largest = self.max_rtt.wrapping_sub(self.base_rtt);
            let average = (self.sum_rtt / u64::from(self.samples)) as u32;
            let average = average.wrapping_sub(self.base_rtt);
            self.alpha = self.alpha(average, largest);
            self.beta = beta(average, largest);
        }
        self.restart_round(tcp);
    }
}

/// β by the average and the largest queueing delay: linear between 10 % and 80 % of the largest.
fn beta(average: u32, largest: u32) -> u32 {
    let low = largest / 10;
    if average <= low {
        return BETA_MIN;
    }
    let high = largest.wrapping_mul(8) / 10;
    if average >= high || high <= low {
        return BETA_MAX;
    }
    let rise = (BETA_MAX - BETA_MIN).wrapping_mul(average);
    let offset = BETA_MIN.wrapping_mul(high).wrapping_sub(BETA_MAX.wrapping_mul(low));
    offset.wrapping_add(rise) / (high - low)
}

impl Module for IllinoisModule {
    fn init(&mut self, _: &mut Window, tcp: &Tcp) {
        *self = Self::new(self.params);
        self.restart_round(tcp);
    }

    fn pkts_acked(&mut self, _: &mut Window, _: &Tcp, sample: &AckSample) {
        self.acked = sample.pkts_acked as u16;
        if sample.rtt_us < 0 {
            return;
        }
        let rtt = sample.rtt_us.min(RTT_MAX) as u32;
        self.base_rtt = self.base_rtt.min(rtt);
        self.max_rtt = self.max_rtt.max(rtt);
        self.samples = self.samples.wrapping_add(1);
        self.sum_rtt = self.sum_rtt.wrapping_add(u64::from(rtt));
    }

    fn set_state(&mut self, _: &mut Window, tcp: &Tcp, state: CaState) {
        if state == CaState::Loss {
            self.alpha = ALPHA_ONE;
            self.beta = BETA_MAX;
            self.rtt_low = 0;
            self.rtt_above = false;
            self.restart_round(tcp);
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if before(self.end, tcp.snd_una) {
            self.update(window, tcp);
        }
        if !tcp.is_limiting(window) {
            return;
        }
        if window.in_slow_start() {
            window.slow_start(acked);
            return;
        }
        window.cwnd_count = window.cwnd_count.wrapping_add(u32::from(self.acked));
        self.acked = 1;
        let grown = window.cwnd_count.wrapping_mul(self.alpha) >> ALPHA_SHIFT;
        if grown >= window.cwnd {
            let cwnd = window.cwnd.wrapping_add(grown / window.cwnd.max(1));
            window.cwnd = cwnd.min(window.clamp);
            window.cwnd_count = 0;
        }
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        let less = window.cwnd.wrapping_mul(self.beta) >> BETA_SHIFT;
        window.cwnd.wrapping_sub(less).max(2)
    }

    fn min_rtt(&self) -> Option<Span> {
        micros(self.base_rtt, NO_RTT)
    }
}

/// The Illinois controller.
pub type Illinois = Modular<IllinoisModule>;

impl Build for Illinois {
    const INFO: ControllerInfo = ControllerInfo {
        name: "illinois",
        aliases: &[],
        kernel: Some("illinois"),
        about: "Illinois: Reno with growth and decrease set by the queueing delay",
        settings: &[
            Setting {
                key: "win_thresh",
                values: "0 to 1000000 (packets)",
                default: "15",
                about: "window below which it grows and shrinks as Reno",
            },
            Setting {
                key: "theta",
                values: "0 to 255 (rounds)",
                default: "5",
                about: "rounds with a short queue before growth is fastest again",
            },
        ],
    };

    type Params = Params;

    fn parse<'a>(settings: Settings<'a>) -> Result<Params, BuildError<'a>> {
        let d = Params::default();
        Ok(Params {
            win_thresh: settings.number("win_thresh", d.win_thresh, 0, 1_000_000)?,
            theta: settings.number("theta", d.theta, 0, 255)?,
        })
    }

    fn build(config: &Config, params: &Params) -> Self {
        Modular::build(config, IllinoisModule::new(*params))
    }

    fn setting(params: &Params, key: &str) -> Option<SettingValue> {
        Some(SettingValue::number(match key {
            "win_thresh" => params.win_thresh,
            "theta" => params.theta,
            _ => return None,
        }))
    }
}
