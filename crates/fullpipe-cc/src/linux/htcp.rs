//! H-TCP (Leith & Shorten, "H-TCP: TCP Congestion Control for High Bandwidth-Delay Product Paths",
//! draft-leith-tcp-htcp-06), as in Linux `net/ipv4/tcp_htcp.c`: growth (α) rises with the time since
//! the last loss, and the decrease (β) is the ratio of the smallest to the largest round-trip time.

use super::{AckSample, CaState, HZ_SETTING, Modular, Module, Tcp, read_hz};
use crate::control::Config;
use crate::jiffies::Ticks;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use fullpipe_units::Span;

/// α and β count in 1/128.
const SHIFT: u32 = 7;
const ONE: u32 = 1 << SHIFT;
const BETA_MIN: u8 = (ONE / 2) as u8;
/// 0.8.
const BETA_MAX: u8 = 102;

/// Parameters, named as in the kernel module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Whether growth per round trip scales with the round-trip time.
    pub use_rtt_scaling: bool,
    /// Whether a change of throughput resets the decrease to a half.
    pub use_bandwidth_switch: bool,
    /// Clock ticks per second (`CONFIG_HZ`).
    pub hz: u32,
}

impl Default for Params {
    fn default() -> Self {
        Params { use_rtt_scaling: true, use_bandwidth_switch: true, hz: crate::jiffies::HZ }
    }
}

/// H-TCP's window.
#[derive(Clone, Copy, Debug)]
pub struct HtcpModule {
    params: Params,
    ticks: Ticks,
    alpha: u32,
    beta: u8,
    /// Whether the decrease adapts: from the second loss on.
    adapts: bool,
    /// Packets that the last ACK acknowledged.
    pkts_acked: u16,
    /// Packets acknowledged in the current throughput sample, and the tick it began.
    packets: u32,
    began: u32,
    /// Extremes of the round-trip time in ticks; 0 if not measured.
    min_rtt: u32,
    max_rtt: u32,
    /// The tick of the last loss.
    last_loss: u32,
    /// Throughput in packets per second: its filtered value, the largest since the last loss and
    /// the largest before.
    throughput: u32,
    max_throughput: u32,
    old_max_throughput: u32,
    /// What a spurious loss restores; not set if the first is 0.
    undo_last_loss: u32,
    undo_max_rtt: u32,
    undo_old_max_throughput: u32,
}

impl HtcpModule {
    /// The module of a new connection.
    pub fn new(params: Params) -> Self {
        HtcpModule {
            params,
            ticks: Ticks::new(params.hz),
            alpha: ONE,
            beta: BETA_MIN,
            adapts: false,
            pkts_acked: 1,
            packets: 0,
            began: 0,
            min_rtt: 0,
            max_rtt: 0,
            last_loss: 0,
            throughput: 0,
            max_throughput: 0,
            old_max_throughput: 0,
            undo_last_loss: 0,
            undo_max_rtt: 0,
            undo_old_max_throughput: 0,
        }
    }

    /// Milliseconds in ticks, rounded up (`msecs_to_jiffies`).
    fn millis(&self, ms: u32) -> u32 {
        (ms * self.ticks.per_second()).div_ceil(1000)
    }

    /// `measure_rtt`.
    fn measure_rtt(&mut self, tcp: &Tcp, rtt: u32) {
        if self.min_rtt > rtt || self.min_rtt == 0 {
            self.min_rtt = rtt;
        }
        if tcp.state == CaState::Open {
            self.max_rtt = self.max_rtt.max(self.min_rtt);
            // Larger steps are not queueing.
            if self.max_rtt < rtt && rtt <= self.max_rtt.wrapping_add(self.millis(20)) {
                self.max_rtt = rtt;
            }
        }
    }

    /// The second half of `measure_achieved_throughput`.
    fn measure_throughput(&mut self, window: &Window, tcp: &Tcp, acked: u32) {
        if tcp.state > CaState::Disorder {
            self.packets = 0;
            self.began = tcp.jiffies;
            return;
        }
        self.packets = self.packets.wrapping_add(acked);
        let growth = (self.alpha >> SHIFT).max(1);
        let ticks = tcp.jiffies.wrapping_sub(self.began);
        if self.packets < window.cwnd.wrapping_sub(growth) || ticks < self.min_rtt || self.min_rtt == 0 {
            return;
        }
        let sample = self.packets.wrapping_mul(self.ticks.per_second()) / ticks.max(1);
        if tcp.jiffies.wrapping_sub(self.last_loss) / self.min_rtt <= 3 {
            // Right after a loss.
            self.throughput = sample;
            self.max_throughput = sample;
        } else {
            self.throughput = self.throughput.wrapping_mul(3).wrapping_add(sample) / 4;
            self.max_throughput = self.max_throughput.max(self.throughput);
        }
        self.packets = 0;
        self.began = tcp.jiffies;
    }

    /// `htcp_beta_update`.
    fn update_beta(&mut self) {
        if self.params.use_bandwidth_switch {
            let (new, old) = (self.max_throughput, self.old_max_throughput);
            self.old_max_throughput = new;
            // Within a fifth of the old one.
            let (low, high) = (old.wrapping_mul(4), old.wrapping_mul(6));
            if high.wrapping_sub(low) < new.wrapping_mul(5).wrapping_sub(low) {
                self.beta = BETA_MIN;
                self.adapts = false;
                return;
            }
        }
        if self.adapts && self.min_rtt > self.millis(10) && self.max_rtt > 0 {
            // The kernel stores eight bits before it limits them.
            let ratio = ((self.min_rtt << SHIFT) / self.max_rtt) as u8;
            self.beta = ratio.clamp(BETA_MIN, BETA_MAX);
        } else {
            self.beta = BETA_MIN;
            self.adapts = true;
        }
    }

    /// `htcp_alpha_update`: 1 + 10Δ + (Δ/2)² packets per round trip, Δ seconds after the first
    /// second since the last loss.
    fn update_alpha(&mut self, tcp: &Tcp) {
        let hz = self.ticks.per_second();
        let mut factor = 1u32;
        let since = tcp.jiffies.wrapping_sub(self.last_loss);
        if since > hz {
            let since = since - hz;
            let squared = (since / 2).wrapping_mul(since / 2) / hz;
            factor = (since.wrapping_mul(10).wrapping_add(squared) / hz).wrapping_add(1);
        }
        if self.params.use_rtt_scaling && self.min_rtt > 0 {
            // 100 ms over the round-trip time, between a half and ten, in 1/8.
            let scale = (hz << 3) / self.min_rtt.wrapping_mul(10).max(1);
            factor = ((factor << 3) / scale.clamp(1 << 2, 10 << 3)).max(1);
        }
        self.alpha = factor.wrapping_mul(2).wrapping_mul(ONE.wrapping_sub(u32::from(self.beta)));
        if self.alpha == 0 {
            self.alpha = ONE;
        }
    }
}

impl Module for HtcpModule {
    fn init(&mut self, _: &mut Window, tcp: &Tcp) {
        *self = HtcpModule { last_loss: tcp.jiffies, ..Self::new(self.params) };
    }

    fn pkts_acked(&mut self, window: &mut Window, tcp: &Tcp, sample: &AckSample) {
        if tcp.state == CaState::Open {
            self.pkts_acked = sample.pkts_acked as u16;
        }
        if sample.rtt_us > 0 {
            self.measure_rtt(tcp, self.ticks.in_micros(sample.rtt_us as u32));
        }
        if self.params.use_bandwidth_switch {
            self.measure_throughput(window, tcp, sample.pkts_acked);
        }
    }

    fn set_state(&mut self, _: &mut Window, tcp: &Tcp, state: CaState) {
        match state {
            CaState::Open => {
                if self.undo_last_loss != 0 {
                    self.last_loss = tcp.jiffies;
                    self.undo_last_loss = 0;
                }
            }
            CaState::Cwr | CaState::Recovery | CaState::Loss => {
                self.undo_last_loss = self.last_loss;
                self.undo_max_rtt = self.max_rtt;
                self.undo_old_max_throughput = self.old_max_throughput;
                self.last_loss = tcp.jiffies;
            }
            CaState::Disorder => {}
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !tcp.is_limiting(window) {
            return;
        }
        if window.in_slow_start() {
            window.slow_start(acked);
            return;
        }
        if window.cwnd_count.wrapping_mul(self.alpha) >> SHIFT >= window.cwnd {
            if window.cwnd < window.clamp {
                window.cwnd += 1;
            }
            window.cwnd_count = 0;
            self.update_alpha(tcp);
        } else {
            window.cwnd_count = window.cwnd_count.wrapping_add(u32::from(self.pkts_acked));
        }
        self.pkts_acked = 1;
    }

    fn ssthresh(&mut self, window: &Window, tcp: &Tcp) -> u32 {
        let (min_rtt, max_rtt) = (self.min_rtt, self.max_rtt);
        self.update_beta();
        self.update_alpha(tcp);
        // The maximum decays by a twentieth of the queueing delay.
        if min_rtt > 0 && max_rtt > min_rtt {
            self.max_rtt = min_rtt.wrapping_add((max_rtt - min_rtt).wrapping_mul(95) / 100);
        }
        (window.cwnd.wrapping_mul(u32::from(self.beta)) >> SHIFT).max(2)
    }

    fn undo_cwnd(&mut self, window: &Window, prior: u32) -> u32 {
        if self.undo_last_loss != 0 {
            self.last_loss = self.undo_last_loss;
            self.max_rtt = self.undo_max_rtt;
            self.old_max_throughput = self.undo_old_max_throughput;
            self.undo_last_loss = 0;
        }
        window.cwnd.max(prior)
    }

    fn min_rtt(&self) -> Option<Span> {
        let ticks = u64::from(self.min_rtt);
        (ticks > 0).then(|| Span::from_micros(ticks * 1_000_000 / u64::from(self.ticks.per_second())))
    }
}

/// The H-TCP controller.
pub type Htcp = Modular<HtcpModule>;

impl Build for Htcp {
    const INFO: ControllerInfo = ControllerInfo {
        name: "htcp",
        aliases: &["h-tcp"],
        kernel: Some("htcp"),
        about: "H-TCP: growth rises with the time since the last loss; for long paths of high rate",
        settings: &[
            Setting {
                key: "use_rtt_scaling",
                values: "on or off",
                default: "on",
                about: "growth per round trip is proportional to the round-trip time",
            },
            Setting {
                key: "use_bandwidth_switch",
                values: "on or off",
                default: "on",
                about: "a change of throughput by a fifth makes the next loss halve the window",
            },
            HZ_SETTING,
        ],
    };

    type Params = Params;

    fn parse<'a>(settings: Settings<'a>) -> Result<Params, BuildError<'a>> {
        Ok(Params {
            use_rtt_scaling: settings.switch("use_rtt_scaling", true)?,
            use_bandwidth_switch: settings.switch("use_bandwidth_switch", true)?,
            hz: read_hz(&settings)?,
        })
    }

    fn build(config: &Config, params: &Params) -> Self {
        Modular::build_at(config, HtcpModule::new(*params), params.hz)
    }

    fn setting(params: &Params, key: &str) -> Option<SettingValue> {
        Some(match key {
            "use_rtt_scaling" => SettingValue::Switch(params.use_rtt_scaling),
            "use_bandwidth_switch" => SettingValue::Switch(params.use_bandwidth_switch),
            "hz" => SettingValue::number(params.hz),
            _ => return None,
        })
    }
}
