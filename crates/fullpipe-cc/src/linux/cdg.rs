//! CDG, CAIA Delay-Gradient (Hayes & Armitage, "Revisiting TCP Congestion Control Using Delay
//! Gradients", 2011), as in Linux `net/ipv4/tcp_cdg.c`: backs off with a probability that rises with
//! the growth of the delay from round to round, and tells losses without a queue apart.
//!
//! The kernel draws from its generator, this module from the controller's seeded one
//! ([`Config::seed`](crate::Config::seed)).

mod gradient;

use super::{AckSample, CaEvent, Modular, Module, Tcp, before};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use fullpipe_units::Span;
use gradient::{Gradient, Rtts, negative_exponential};

/// The largest window of gradients; the kernel's may have 256.
pub const MAX_WINDOW: u32 = 16;

/// Parameters, named as in the kernel module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Rounds over which gradients are averaged: a power of two, at most [`MAX_WINDOW`].
    pub window: u32,
    /// Factor applied to the window when it backs off, in 1/1024.
    pub backoff_beta: u32,
    /// Scale of the probability of backing off.
    pub backoff_factor: u32,
    /// Signals that end slow start: 1 ACK trains, 2 delay, 3 both, 0 none.
    pub hystart_detect: u32,
    /// Backing off in vain this many times stops it; 0: never.
    pub use_ineff: u32,
    /// Whether a loss after backing off reduces the window less.
    pub use_shadow: bool,
    /// Whether losses without a queue leave the window as it is.
    pub use_tolerance: bool,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            window: 8,
            backoff_beta: 724,
            backoff_factor: 42,
            hystart_detect: 3,
            use_ineff: 5,
            use_shadow: true,
            use_tolerance: false,
        }
    }
}

/// What the gradients say about the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Queue {
    Unknown,
    NotFull,
    Full,
    BackedOff,
}

/// CDG's window.
#[derive(Clone, Copy, Debug)]
pub struct CdgModule {
    params: Params,
    /// Round-trip times of this round and the one before.
    rtt: Rtts,
    prior_rtt: Rtts,
    gradient: Gradient,
    queue: Queue,
    /// ACKs of one packet that are presumed delayed.
    delayed_acks: u8,
    /// The end of the round, as a sequence number.
    end: u32,
    /// The window as if it had never backed off.
    shadow_window: u32,
    /// Times that it backed off in vain.
    backoffs: u16,
    samples: u16,
    min_delay: i32,
    /// The ACK train: its last ACK and its start in µs.
    last_ack: u32,
    train_start: u32,
    enters_cwr: bool,
}

impl CdgModule {
    /// The module of a new connection.
    pub fn new(params: Params) -> Self {
        CdgModule {
            params,
            rtt: Rtts::default(),
            prior_rtt: Rtts::default(),
            gradient: Gradient::new(params.window),
            queue: Queue::Unknown,
            delayed_acks: 0,
            end: 0,
            shadow_window: 0,
            backoffs: 0,
            samples: 0,
            min_delay: 0,
            last_ack: 0,
            train_start: 0,
            enters_cwr: false,
        }
    }

    /// `tcp_cdg_hystart_update`: slow start ends on a long ACK train or a longer delay.
    fn end_slow_start(&mut self, window: &mut Window, tcp: &Tcp) {
        self.min_delay = match (self.min_delay, self.rtt.min) {
            (0, rtt) => rtt,
            (min, 0) => min,
            (min, rtt) => min.min(rtt),
        };
        if self.min_delay == 0 {
            return;
        }
        let min_delay = self.min_delay as u32;
        if self.params.hystart_detect & 1 != 0 {
            let now = tcp.mstamp_us as u32;
            if self.last_ack == 0 || !tcp.is_limiting(window) {
                self.last_ack = now;
                self.train_start = now;
            } else if before(now, self.last_ack.wrapping_add(3000)) {
                self.last_ack = now;
                let half_rtt = (min_delay / 2).max(125);
                if before(self.train_start.wrapping_add(half_rtt), now) {
                    window.ssthresh = window.cwnd;
                    return;
                }
            }
        }
        if self.params.hystart_detect & 2 != 0 {
            if self.samples < 8 {
                self.samples += 1;
            } else if self.rtt.min > min_delay.wrapping_add(min_delay / 8).max(125) as i32 {
                window.ssthresh = window.cwnd;
            }
        }
    }

    /// `tcp_cdg_grad`: the growth of the delay, not divided by the number of rounds.
    fn gradient(&mut self) -> i32 {
        let (sums, gradient) = self.gradient.add(self.rtt.since(self.prior_rtt));
        if sums.min <= -32 || sums.max <= -32 {
            // Backing off had an effect.
            self.backoffs = 0;
        }
        if self.params.use_tolerance {
            let (min, max) = (sums.rounded_64(sums.min), sums.rounded_64(sums.max));
            if min > 0 && max <= 0 {
                self.queue = Queue::Full;
            } else if min > 0 && max > 0 || max < 0 {
                self.queue = Queue::NotFull;
            }
        }
        gradient
    }

    /// `tcp_cdg_backoff`: with probability 1 − e^(−gradient).
    fn back_off(&mut self, window: &Window, tcp: &Tcp, gradient: u32) -> bool {
        let exponent = gradient.wrapping_mul(self.params.backoff_factor);
        if tcp.random <= negative_exponential(exponent) {
            return false;
        }
        if self.params.use_ineff > 0 {
            self.backoffs = self.backoffs.wrapping_add(1);
            if u32::from(self.backoffs) > self.params.use_ineff {
                return false;
            }
        }
        self.shadow_window = self.shadow_window.max(window.cwnd);
        self.queue = Queue::BackedOff;
        true
    }
}

impl Module for CdgModule {
    const RANDOM: bool = true;

    fn init(&mut self, window: &mut Window, tcp: &Tcp) {
        self.end = tcp.snd_nxt;
        self.shadow_window = window.cwnd;
    }

    fn pkts_acked(&mut self, _: &mut Window, tcp: &Tcp, sample: &AckSample) {
        if sample.rtt_us <= 0 {
            return;
        }
        if tcp.sacked_out == 0 {
            if sample.pkts_acked == 1 && self.delayed_acks > 0 {
                // Counts for the minimum only.
                self.rtt.min = self.rtt.min.min(sample.rtt_us);
                self.delayed_acks -= 1;
                return;
            } else if sample.pkts_acked > 1 && self.delayed_acks < 5 {
                self.delayed_acks += 1;
            }
        }
        self.rtt.add(sample.rtt_us);
    }

    fn cwnd_event(&mut self, window: &mut Window, tcp: &Tcp, event: CaEvent) {
        match event {
            CaEvent::CwndRestart => {
                *self = Self::new(self.params);
                self.init(window, tcp);
            }
            CaEvent::CompleteCwr => {
                self.queue = Queue::Unknown;
                self.end = tcp.snd_nxt;
                self.prior_rtt = self.rtt;
                self.rtt = Rtts::default();
            }
            CaEvent::TxStart | CaEvent::Loss => {}
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if window.in_slow_start() && self.params.hystart_detect != 0 {
            self.end_slow_start(window, tcp);
        }
        if before(self.end, tcp.snd_una) && self.rtt.is_known() {
            let gradient = if self.prior_rtt.is_known() { self.gradient() } else { 0 };
            self.end = tcp.snd_nxt;
            self.prior_rtt = self.rtt;
            self.rtt = Rtts::default();
            self.last_ack = 0;
            self.samples = 0;
            if gradient > 0 && self.back_off(window, tcp, gradient as u32) {
                self.enters_cwr = true;
                return;
            }
        }
        if !tcp.is_limiting(window) {
            self.shadow_window = self.shadow_window.min(window.cwnd);
            return;
        }
        let before = window.cwnd;
        window.reno(acked);
        let grown = self.shadow_window.wrapping_add(window.cwnd.wrapping_sub(before));
        self.shadow_window = self.shadow_window.max(grown);
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        let cwnd = window.cwnd;
        if self.queue == Queue::BackedOff {
            return (cwnd.wrapping_mul(self.params.backoff_beta.min(1024)) >> 10).max(2);
        }
        if self.queue == Queue::NotFull && self.params.use_tolerance {
            return cwnd;
        }
        self.shadow_window = (self.shadow_window >> 1).min(cwnd);
        let half = (cwnd >> 1).max(2);
        if self.params.use_shadow { half.max(self.shadow_window) } else { half }
    }

    fn enters_cwr(&mut self) -> bool {
        core::mem::take(&mut self.enters_cwr)
    }

    fn min_rtt(&self) -> Option<Span> {
        (self.min_delay > 0).then(|| Span::from_micros(self.min_delay as u64))
    }
}

/// The CDG controller.
pub type Cdg = Modular<CdgModule>;

impl Build for Cdg {
    const INFO: ControllerInfo = ControllerInfo {
        name: "cdg",
        aliases: &[],
        kernel: Some("cdg"),
        about: "CDG: backs off at random when the delay grows from round to round",
        settings: &[
            Setting {
                key: "window",
                values: "1, 2, 4, 8 or 16 (rounds)",
                default: "8",
                about: "rounds over which the growth of the delay is averaged",
            },
            Setting {
                key: "backoff_beta",
                values: "1 to 1024 (1/1024)",
                default: "724",
                about: "factor applied to the window when it backs off",
            },
            Setting {
                key: "backoff_factor",
                values: "0 to 1000000",
                default: "42",
                about: "scale of the probability of backing off",
            },
            Setting {
                key: "hystart_detect",
                values: "0 (none), 1 (ACK train), 2 (delay) or 3 (both)",
                default: "3",
                about: "signals that end slow start",
            },
            Setting {
                key: "use_ineff",
                values: "0 to 65535",
                default: "5",
                about: "number of times that it backs off in vain; 0: no limit",
            },
            Setting {
                key: "use_shadow",
                values: "on or off",
                default: "on",
                about: "after backing off, a loss reduces the window less",
            },
            Setting {
                key: "use_tolerance",
                values: "on or off",
                default: "off",
                about: "losses while the queue is not full leave the window as it is",
            },
        ],
    };

    type Params = Params;

    fn parse<'a>(settings: Settings<'a>) -> Result<Params, BuildError<'a>> {
        let d = Params::default();
        let windows = [("1", 1), ("2", 2), ("4", 4), ("8", 8), ("16", 16)];
        Ok(Params {
            window: settings.choice("window", d.window, &windows)?,
            backoff_beta: settings.number("backoff_beta", d.backoff_beta, 1, 1024)?,
            backoff_factor: settings.number("backoff_factor", d.backoff_factor, 0, 1_000_000)?,
            hystart_detect: settings.number("hystart_detect", d.hystart_detect, 0, 3)?,
            use_ineff: settings.number("use_ineff", d.use_ineff, 0, 65_535)?,
            use_shadow: settings.switch("use_shadow", d.use_shadow)?,
            use_tolerance: settings.switch("use_tolerance", d.use_tolerance)?,
        })
    }

    fn build(config: &Config, params: &Params) -> Self {
        Modular::build(config, CdgModule::new(*params))
    }

    fn setting(params: &Params, key: &str) -> Option<SettingValue> {
        Some(match key {
            "window" => SettingValue::number(params.window),
            "backoff_beta" => SettingValue::number(params.backoff_beta),
            "backoff_factor" => SettingValue::number(params.backoff_factor),
            "hystart_detect" => SettingValue::number(params.hystart_detect),
            "use_ineff" => SettingValue::number(params.use_ineff),
            "use_shadow" => SettingValue::Switch(params.use_shadow),
            "use_tolerance" => SettingValue::Switch(params.use_tolerance),
            _ => return None,
        })
    }
}
