//! CUBIC (RFC 9438) in the integer arithmetic of Linux `net/ipv4/tcp_cubic.c`: the window is a cubic
//! function of the time since the last loss, W(t) = C·(t − K)³ + W_max, with C = 0.4 and β = 0.7.
//!
//! Time counts in 1/1024 s, C in 1/1024 over a nominal round trip of 100 ms, β in 1/1024.

mod hystart;
mod hystart_plus;
mod root;

use crate::control::{Ack, Config, RecoveryContext, RecoveryState};
use crate::jiffies::{self, HZ, jiffies};
use crate::loss_based::{Growth, LossBased, Window, rescaled};
use crate::packets::saturate;
use crate::registry::{About, Build, BuildError, Setting, Settings};
use fullpipe_units::{Span, Time};
pub use hystart::{HyStart, HyStartConfig};
pub use hystart_plus::HyStartPlus;
use root::cube_root;

/// The unit of β.
const BETA_SCALE: u32 = 1024;
/// The unit of time is 2⁻¹⁰ s (`BICTCP_HZ`).
const TIME_SHIFT: u32 = 10;
/// C in 1/1024 (`bic_scale`): 0.04 per nominal round trip of 100 ms.
const C: u64 = 41;
/// C per second.
const C_PER_SECOND: u64 = C * 10;
/// 2⁴⁰ / C: turns a distance in packets into the cube of a time.
const CUBE_FACTOR: u64 = (1 << (10 + 3 * TIME_SHIFT)) / C_PER_SECOND;

/// How slow start ends before loss.
#[derive(Clone, Copy, Debug)]
enum SlowStart {
    /// At the first loss.
    Classic,
    /// By HyStart, as Linux.
    HyStart(HyStart),
    /// By HyStart++ (RFC 9406).
    HyStartPlus(HyStartPlus),
}

/// The settings of CUBIC: what the kernel module's parameters of the same names mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CubicConfig {
    /// Give up more of the window when it shrinks from one loss to the next (RFC 9438 §4.7).
    fast_convergence: bool,
    /// Never grow slower than Reno would (RFC 9438 §4.3).
    tcp_friendliness: bool,
    /// What a loss leaves of the window, in 1/1024.
    beta: u32,
    /// Acknowledged packets per packet of Reno's growth and packet of the window, in 1/8:
    /// (1 + β) / 3(1 − β), RFC 9438 §4.3.
    reno_scale: u32,
}

impl CubicConfig {
    fn new(fast_convergence: bool, tcp_friendliness: bool, beta: u32) -> Self {
        let reno_scale = 8 * (BETA_SCALE + beta) / 3 / (BETA_SCALE - beta);
        CubicConfig { fast_convergence, tcp_friendliness, beta, reno_scale }
    }
}

/// Growth along a cubic of time.
#[derive(Clone, Copy, Debug)]
pub struct CubicGrowth {
    config: CubicConfig,
    slow_start: SlowStart,
    /// Acknowledged packets per packet of growth.
    per_increase: u32,
    /// W_max: the window at the last loss.
    last_max_cwnd: u32,
    /// The window and tick of the last evaluation of the cubic.
    last_cwnd: u32,
    last_time: u32,
    /// The window at the inflection point.
    origin_point: u32,
    /// K: time from the start of the epoch to the inflection point, in 1/1024 s.
    k: u32,
    /// Least round-trip time in µs; 0 before the first.
    delay_min: u32,
    /// The tick the epoch started at; 0 between epochs.
    epoch_start: u32,
    /// Packets acknowledged in the epoch and not yet counted for Reno.
    ack_count: u32,
    /// Reno's window in the same epoch.
    reno_cwnd: u32,
}

impl CubicGrowth {
    fn new(config: CubicConfig, slow_start: SlowStart) -> Self {
        CubicGrowth {
            config,
            slow_start,
            per_increase: 0,
            last_max_cwnd: 0,
            last_cwnd: 0,
            last_time: 0,
            origin_point: 0,
            k: 0,
            delay_min: 0,
            epoch_start: 0,
            ack_count: 0,
            reno_cwnd: 0,
        }
    }

    /// Time K from the start of the present epoch to its inflection point.
    pub fn k(&self) -> Span {
        Span::from_nanos((u64::from(self.k) * 1_000_000_000) >> TIME_SHIFT)
    }

    /// The window at the last loss, in packets; 0 before the first.
    pub fn last_max_cwnd(&self) -> u32 {
        self.last_max_cwnd
    }

    /// Evaluates the cubic at `now` for a window of `cwnd` (`bictcp_update`).
    #[inline]
    fn update(&mut self, now: u32, cwnd: u32, acked: u32) {
        self.ack_count = self.ack_count.saturating_add(acked);
        let unchanged = self.last_cwnd == cwnd;
        if unchanged && now.wrapping_sub(self.last_time) as i32 <= (HZ / 32) as i32 {
            return;
        }
        // The cubic moves at most once a tick; Reno's window with every ACK.
        if self.epoch_start == 0 || now != self.last_time {
            self.last_cwnd = cwnd;
            self.last_time = now;
            if self.epoch_start == 0 {
                self.start_epoch(now, cwnd, acked);
            }
            self.per_increase = self.acks_per_increase(now, cwnd);
        }
        if self.config.tcp_friendliness {
            self.keep_up_with_reno(cwnd);
        }
        // At most half a packet per acknowledged one: 1.5 times the window a round trip.
        self.per_increase = self.per_increase.max(2);
    }

    fn start_epoch(&mut self, now: u32, cwnd: u32, acked: u32) {
        self.epoch_start = now;
        self.ack_count = acked;
        self.reno_cwnd = cwnd;
        if self.last_max_cwnd <= cwnd {
            self.k = 0;
            self.origin_point = cwnd;
        } else {
            self.k = cube_root(CUBE_FACTOR.saturating_mul(u64::from(self.last_max_cwnd - cwnd)));
            self.origin_point = self.last_max_cwnd;
        }
    }

    /// Where the cubic will be a round trip from now, as acknowledged packets per packet of growth.
    fn acks_per_increase(&self, now: u32, cwnd: u32) -> u32 {
        let elapsed = i64::from(now.wrapping_sub(self.epoch_start) as i32);
        let ticks = (elapsed + i64::from(jiffies::from_micros(self.delay_min))).max(0) as u64;
        let t = (ticks << TIME_SHIFT) / u64::from(HZ);
        let k = u64::from(self.k);
        let distance = t.abs_diff(k);
        let cube = u128::from(distance) * u128::from(distance) * u128::from(distance);
        let delta = saturate(
            u64::try_from((cube * u128::from(C_PER_SECOND)) >> (10 + 3 * TIME_SHIFT)).unwrap_or(u64::MAX),
        );
        let target = if t < k {
            self.origin_point.saturating_sub(delta)
        } else {
            self.origin_point.saturating_add(delta)
        };
        let per_increase = if target > cwnd { cwnd / (target - cwnd) } else { cwnd.saturating_mul(100) };
        // Before the first loss nothing is known of the path: at least 5 % a round trip.
        if self.last_max_cwnd == 0 { per_increase.min(20) } else { per_increase }
    }

    /// RFC 9438 §4.3: with 3·(1 − β)/(1 + β) packets a round trip Reno would be as aggressive.
    #[inline]
    fn keep_up_with_reno(&mut self, cwnd: u32) {
        let per_packet = saturate((u64::from(cwnd) * u64::from(self.config.reno_scale)) >> 3).max(1);
        if self.ack_count > per_packet {
            // As often as it fits while more than one share is left.
            let packets = (self.ack_count - 1) / per_packet;
            self.ack_count -= packets * per_packet;
            self.reno_cwnd = self.reno_cwnd.saturating_add(packets);
        }
        if self.reno_cwnd > cwnd {
            self.per_increase = self.per_increase.min(cwnd / (self.reno_cwnd - cwnd));
        }
    }
}

impl Growth for CubicGrowth {
    fn transmit_start(&mut self, now: Time, last: Time) {
        // Idle time is no time: the epoch moves along (RFC 9438 §4.2 at its end).
        let (now, last) = (jiffies(now), jiffies(last));
        let idle = now.wrapping_sub(last) as i32;
        if self.epoch_start != 0 && idle > 0 {
            self.epoch_start = self.epoch_start.wrapping_add(idle as u32);
            if (self.epoch_start.wrapping_sub(now) as i32) > 0 {
                self.epoch_start = now;
            }
        }
    }

    #[inline]
    fn on_acked(&mut self, window: &mut Window, ack: &Ack) {
        if let SlowStart::HyStartPlus(h) = &mut self.slow_start
            && window.in_slow_start()
        {
            h.on_ack(window, ack);
        }
        let Some(rtt) = ack.rtt else { return };
        // The queue of the last epoch may still stand in its first second.
        if self.epoch_start != 0 && (jiffies(ack.now).wrapping_sub(self.epoch_start) as i32) < HZ as i32 {
            return;
        }
        let rtt = saturate(rtt.as_micros()).max(1);
        if self.delay_min == 0 || rtt < self.delay_min {
            self.delay_min = rtt;
        }
        if let SlowStart::HyStart(h) = &mut self.slow_start
            && window.in_slow_start()
        {
            h.on_rtt(window, ack, rtt, self.delay_min);
        }
    }

    #[inline]
    fn grow(&mut self, window: &mut Window, ack: &Ack, acked: u32) {
        if !window.is_limiting(ack) {
            return;
        }
        let mut acked = acked;
        if window.in_slow_start() {
            if let SlowStart::HyStartPlus(h) = &mut self.slow_start {
                acked = h.allowed(acked);
            }
            acked = window.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        self.update(jiffies(ack.now), window.cwnd, acked);
        window.additive_increase(self.per_increase, acked);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        self.epoch_start = 0;
        let (cwnd, beta) = (window.cwnd, self.config.beta);
        self.last_max_cwnd = if cwnd < self.last_max_cwnd && self.config.fast_convergence {
            saturate(u64::from(cwnd) * u64::from(BETA_SCALE + beta) / u64::from(2 * BETA_SCALE))
        } else {
            cwnd
        };
        if let SlowStart::HyStartPlus(h) = &mut self.slow_start {
            h.end();
        }
        saturate(u64::from(cwnd) * u64::from(beta) / u64::from(BETA_SCALE)).max(2)
    }

    fn set_state(&mut self, state: RecoveryState, context: &RecoveryContext) {
        if state == RecoveryState::Loss {
            // What was known of the path may be wrong: forget all of it (`bictcp_reset`).
            let (config, mut slow_start) = (self.config, self.slow_start);
            match &mut slow_start {
                SlowStart::Classic => {}
                SlowStart::HyStart(h) => {
                    h.restart(context.now, context.delivered.saturating_add(context.inflight));
                }
                SlowStart::HyStartPlus(h) => h.restart(context.now),
            }
            *self = Self::new(config, slow_start);
        }
    }

    fn rescale(&mut self, old: u32, new: u32) {
        for cwnd in
            [&mut self.last_max_cwnd, &mut self.last_cwnd, &mut self.origin_point, &mut self.reno_cwnd]
        {
            *cwnd = rescaled(*cwnd, old, new);
        }
    }

    fn phase(&self, window: &Window) -> &'static str {
        match &self.slow_start {
            _ if !window.in_slow_start() => "CongestionAvoidance",
            SlowStart::HyStartPlus(h) if h.is_conservative() => "ConservativeSlowStart",
            _ => "SlowStart",
        }
    }

    fn min_rtt(&self) -> Option<Span> {
        (self.delay_min > 0).then(|| Span::from_micros(u64::from(self.delay_min)))
    }
}

/// The CUBIC controller.
pub type Cubic = LossBased<CubicGrowth>;

impl Build for Cubic {
    const ABOUT: About = About {
        name: "cubic",
        aliases: &[],
        kernel: Some("cubic"),
        about: "CUBIC (RFC 9438): the window as a cubic of the time since the last loss; Linux's default",
        settings: &[
            Setting {
                key: "hystart",
                values: "linux, plus or off",
                default: "linux",
                about: "how slow start ends before a loss: HyStart as in Linux, HyStart++ (RFC 9406), not",
            },
            Setting {
                key: "hystart_detect",
                values: "1 (ACK train), 2 (delay) or 3 (both)",
                default: "3",
                about: "what Linux's HyStart looks at",
            },
            Setting {
                key: "hystart_low_window",
                values: "0 to 1000000 (packets)",
                default: "16",
                about: "window below which Linux's HyStart does not act",
            },
            Setting {
                key: "hystart_ack_delta_us",
                values: "0 to 1000000 (µs)",
                default: "2000",
                about: "largest gap between the ACKs of one train",
            },
            Setting {
                key: "paced",
                values: "on or off",
                default: "off",
                about: "the transport paces it: HyStart allows for the longer ACK trains",
            },
            Setting {
                key: "fast_convergence",
                values: "on or off",
                default: "on",
                about: "give up more of the window when it shrinks from loss to loss",
            },
            Setting {
                key: "tcp_friendliness",
                values: "on or off",
                default: "on",
                about: "never grow slower than Reno",
            },
            Setting {
                key: "beta",
                values: "1 to 1023 (1/1024)",
                default: "717",
                about: "what a loss leaves of the window",
            },
        ],
    };

    fn build<'a>(config: &Config, settings: Settings<'a>) -> Result<Self, BuildError<'a>> {
        let defaults = HyStartConfig::default();
        let detect = settings.number("hystart_detect", 3, 1, 3)?;
        let hystart = HyStartConfig {
            ack_train: detect & 1 != 0,
            delay: detect & 2 != 0,
            low_window: settings.number("hystart_low_window", defaults.low_window, 0, 1_000_000)?,
            ack_delta_us: settings.number("hystart_ack_delta_us", defaults.ack_delta_us, 0, 1_000_000)?,
            paced: settings.switch("paced", defaults.paced)?,
        };
        let slow_start = settings.choice(
            "hystart",
            SlowStart::HyStart(HyStart::new(hystart)),
            &[
                ("linux", SlowStart::HyStart(HyStart::new(hystart))),
                ("plus", SlowStart::HyStartPlus(HyStartPlus::new(hystart.paced))),
                ("off", SlowStart::Classic),
            ],
        )?;
        let cubic = CubicConfig::new(
            settings.switch("fast_convergence", true)?,
            settings.switch("tcp_friendliness", true)?,
            settings.number("beta", 717, 1, BETA_SCALE - 1)?,
        );
        Ok(LossBased::new(config, CubicGrowth::new(cubic, slow_start)))
    }
}
