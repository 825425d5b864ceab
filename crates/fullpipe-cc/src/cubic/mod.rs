//! CUBIC (RFC 9438) in the integer arithmetic of Linux `net/ipv4/tcp_cubic.c`: the window is a
//! cubic function of the time since the last loss, W(t) = C·(t − K)³ + W_max, with C = 0.4 and β =
//! 0.7.
//!
//! # Differences between Linux (and this module) and RFC 9438
//! - § 4.3: the RFC's Reno-friendly estimate grows by α = 3(1 − β)/(1 + β) until it reaches the
//!   window before the loss and by 1 from there on; Linux keeps α.
//! - § 4.6: the RFC takes β of the bytes in flight (or of the window, if the application did not
//!   leave it unused) and lets an ECN mark reduce to one segment; Linux takes β of the window, at
//!   least two packets, in both cases.
//! - § 4.8: after a time-out the RFC's W_max is the window that congestion avoidance begins with;
//!   Linux forgets W_max, which is equivalent, and also the minimum round-trip time that it adds to
//!   the cubic's time.
//! - § 4.9: when a reduction was spurious the RFC restores W_max, K, the epoch and the
//!   Reno-friendly estimate with window and threshold; Linux restores these two, and the cubic
//!   begins anew below the W_max of the reduction.
//!
//! Time counts in 1/1024 s, C in 1/1024 over a nominal round trip of 100 ms, β in 1/1024.
//!
//! ```
//! use fullpipe_cc::cubic::{Cubic, CubicConfig, CubicGrowth, SlowStartExit};
//! use fullpipe_cc::{Config, CongestionControl, loss_based::LossBased};
//!
//! let slow_start = SlowStartExit::HyStartPlus { paced: true };
//! let settings = CubicConfig { slow_start, ..CubicConfig::default() };
//! let cubic: Cubic = LossBased::new(&Config::default(), CubicGrowth::new(settings));
//! assert_eq!(cubic.snapshot().state, "SlowStart");
//! ```

mod hystart;
mod hystart_plus;
mod root;

use crate::control::{Ack, Config, RecoveryContext, RecoveryState};
use crate::jiffies::{HZ, HZ_RANGE, Ticks};
use crate::loss_based::{Growth, LossBased, Window, rescaled};
use crate::packets::saturate;
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use fullpipe_units::{Span, Time};
use hystart::HyStart;
pub use hystart::HyStartConfig;
use hystart_plus::HyStartPlus;
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

/// How slow start ends before the first loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlowStartExit {
    /// Only by loss.
    Loss,
    /// By HyStart, as in Linux.
    HyStart(HyStartConfig),
    /// By HyStart++ (RFC 9406).
    HyStartPlus {
        /// The transport paces, so a single ACK may count for any number of packets.
        paced: bool,
    },
}

/// CUBIC's parameters, named as in the kernel module; the default is Linux's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CubicConfig {
    /// Release more of the window if it shrinks from loss to loss (RFC 9438 §4.7).
    pub fast_convergence: bool,
    /// Never grow slower than Reno would (RFC 9438 §4.3).
    pub tcp_friendliness: bool,
    /// Factor applied to the window on loss, in 1/1024, from 1 to 1023.
    pub beta: u32,
    /// Clock ticks per second (`CONFIG_HZ`), from 24 to 1200. Affects the rate under random loss
    /// below 30 ms RTT: the cubic is evaluated once per tick, and every 1/32 s while the window
    /// is constant.
    pub hz: u32,
    /// How slow start ends before the first loss.
    pub slow_start: SlowStartExit,
}

impl Default for CubicConfig {
    fn default() -> Self {
        CubicConfig {
            fast_convergence: true,
            tcp_friendliness: true,
            beta: 717,
            hz: HZ,
            slow_start: SlowStartExit::HyStart(HyStartConfig::default()),
        }
    }
}

/// State of the slow-start exit detector.
#[derive(Clone, Copy, Debug)]
enum SlowStart {
    NoDetector,
    HyStart(HyStart),
    HyStartPlus(HyStartPlus),
}

/// Growth along a cubic of time.
#[derive(Clone, Copy, Debug)]
pub struct CubicGrowth {
    config: CubicConfig,
    ticks: Ticks,
    slow_start: SlowStart,
    /// Acknowledged packets per packet of Reno's growth and packet of the window, in 1/8:
    /// (1 + β) / 3(1 − β), RFC 9438 §4.3.
    reno_scale: u32,
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
    /// Minimum round-trip time in µs; 0 before the first.
    delay_min: u32,
    /// The tick the epoch started at; 0 between epochs.
    epoch_start: u32,
    /// Packets acknowledged in the epoch and not yet counted for Reno.
    ack_count: u32,
    /// Reno's window in the same epoch.
    reno_cwnd: u32,
}

impl CubicGrowth {
    /// Growth for a new connection.
    pub fn new(config: CubicConfig) -> Self {
        let beta = config.beta.clamp(1, BETA_SCALE - 1);
        CubicGrowth {
            config: CubicConfig { beta, ..config },
            ticks: Ticks::new(config.hz),
            slow_start: match config.slow_start {
                SlowStartExit::Loss => SlowStart::NoDetector,
                SlowStartExit::HyStart(config) => SlowStart::HyStart(HyStart::new(config)),
                SlowStartExit::HyStartPlus { paced } => SlowStart::HyStartPlus(HyStartPlus::new(paced)),
            },
            reno_scale: 8 * (BETA_SCALE + beta) / 3 / (BETA_SCALE - beta),
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

    /// Time K from the start of the current epoch to its inflection point.
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
        if unchanged && now.wrapping_sub(self.last_time) as i32 <= (self.ticks.per_second() / 32) as i32 {
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
        // At most half a packet per acknowledged packet: 1.5 times the window per round trip.
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
        let ticks = (elapsed + i64::from(self.ticks.in_micros(self.delay_min))).max(0) as u64;
        let t = (ticks << TIME_SHIFT) / u64::from(self.ticks.per_second());
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
        // Before the first loss grow by at least 5 % per round trip.
        if self.last_max_cwnd == 0 { per_increase.min(20) } else { per_increase }
    }

    /// RFC 9438 §4.3: with 3·(1 − β)/(1 + β) packets a round trip Reno would be as aggressive.
    #[inline]
    fn keep_up_with_reno(&mut self, cwnd: u32) {
        let per_packet = saturate((u64::from(cwnd) * u64::from(self.reno_scale)) >> 3).max(1);
        if self.ack_count > per_packet {
            // Repeat while more than one share is left.
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
        // Idle time does not count: shift the epoch (end of RFC 9438 §4.2).
        let (now, last) = (self.ticks.at(now), self.ticks.at(last));
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
        if let (SlowStart::HyStartPlus(h), true) = (&mut self.slow_start, window.in_slow_start()) {
            h.on_ack(window, ack);
        }
        let Some(rtt) = ack.rtt else { return };
        // In the first second the queue of the last epoch may persist.
        if self.epoch_start != 0 {
            let elapsed = self.ticks.at(ack.now).wrapping_sub(self.epoch_start) as i32;
            if elapsed < self.ticks.per_second() as i32 {
                return;
            }
        }
        let rtt = saturate(rtt.as_micros()).max(1);
        if self.delay_min == 0 || rtt < self.delay_min {
            self.delay_min = rtt;
        }
        if let (SlowStart::HyStart(h), true) = (&mut self.slow_start, window.in_slow_start()) {
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
        self.update(self.ticks.at(ack.now), window.cwnd, acked);
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
            // State about the path may be wrong: reset it (`bictcp_reset`).
            let mut slow_start = self.slow_start;
            match &mut slow_start {
                SlowStart::NoDetector => {}
                SlowStart::HyStart(h) => {
                    h.restart(context.now, context.delivered.saturating_add(context.inflight));
                }
                SlowStart::HyStartPlus(h) => h.end(),
            }
            *self = CubicGrowth { slow_start, ..Self::new(self.config) };
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
    const INFO: ControllerInfo = ControllerInfo {
        name: "cubic",
        aliases: &[],
        kernel: Some("cubic"),
        about: "CUBIC (RFC 9438): cubic window growth since the last loss; Linux's default",
        settings: &[
            Setting {
                key: "hystart",
                values: "linux, plus or off",
                default: "linux",
                about: "how slow start ends before a loss: HyStart as in Linux, HyStart++ (RFC 9406), \
                        or not at all",
            },
            Setting {
                key: "hystart_detect",
                values: "1 (ACK train), 2 (delay) or 3 (both)",
                default: "3",
                about: "signals used by Linux's HyStart",
            },
            Setting {
                key: "hystart_low_window",
                values: "0 to 1000000 (packets)",
                default: "16",
                about: "window below which Linux's HyStart is inactive",
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
                about: "the transport paces: HyStart allows longer ACK trains",
            },
            Setting {
                key: "fast_convergence",
                values: "on or off",
                default: "on",
                about: "release more of the window if it shrinks from loss to loss",
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
                about: "factor applied to the window on loss",
            },
            Setting {
                key: "hz",
                values: "24 to 1200 (1/s)",
                default: "1000",
                about: "ticks per second of the kernel's clock (CONFIG_HZ): matters below 30 ms RTT \
                        with random loss",
            },
        ],
    };

    type Params = Spec;

    fn parse<'a>(settings: Settings<'a>) -> Result<Spec, BuildError<'a>> {
        let d = Spec::default();
        let detect = settings.number("hystart_detect", 3, 1, 3)?;
        Ok(Spec {
            hystart: settings.choice("hystart", d.hystart, Detector::CHOICES)?,
            linux: HyStartConfig {
                ack_train: detect & 1 != 0,
                delay: detect & 2 != 0,
                low_window: settings.number("hystart_low_window", d.linux.low_window, 0, 1_000_000)?,
                ack_delta_us: settings.number("hystart_ack_delta_us", d.linux.ack_delta_us, 0, 1_000_000)?,
                ..d.linux
            },
            paced: match settings.get("paced") {
                Some(_) => Some(settings.switch("paced", false)?),
                None => None,
            },
            fast_convergence: settings.switch("fast_convergence", d.fast_convergence)?,
            tcp_friendliness: settings.switch("tcp_friendliness", d.tcp_friendliness)?,
            beta: settings.number("beta", d.beta, 1, BETA_SCALE - 1)?,
            hz: settings.number("hz", d.hz, *HZ_RANGE.start(), *HZ_RANGE.end())?,
        })
    }

    fn build(config: &Config, spec: &Spec) -> Self {
        let paced = spec.paced.unwrap_or(config.paced);
        let growth = CubicGrowth::new(CubicConfig {
            fast_convergence: spec.fast_convergence,
            tcp_friendliness: spec.tcp_friendliness,
            beta: spec.beta,
            hz: spec.hz,
            slow_start: match spec.hystart {
                Detector::Linux => SlowStartExit::HyStart(HyStartConfig { paced, ..spec.linux }),
                Detector::Plus => SlowStartExit::HyStartPlus { paced },
                Detector::Off => SlowStartExit::Loss,
            },
        });
        LossBased::new(config, growth)
    }

    fn setting(spec: &Spec, key: &str) -> Option<SettingValue> {
        Some(match key {
            "hystart" => {
                let found = Detector::CHOICES.iter().find(|(_, one)| *one == spec.hystart)?;
                SettingValue::Word(found.0)
            }
            "hystart_detect" => {
                SettingValue::number(u32::from(spec.linux.ack_train) | u32::from(spec.linux.delay) << 1)
            }
            "hystart_low_window" => SettingValue::number(spec.linux.low_window),
            "hystart_ack_delta_us" => SettingValue::number(spec.linux.ack_delta_us),
            "paced" => SettingValue::Switch(spec.paced?),
            "fast_convergence" => SettingValue::Switch(spec.fast_convergence),
            "tcp_friendliness" => SettingValue::Switch(spec.tcp_friendliness),
            "beta" => SettingValue::number(spec.beta),
            "hz" => SettingValue::number(spec.hz),
            _ => return None,
        })
    }
}

/// How slow start ends before the first loss, by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detector {
    /// HyStart, as in Linux.
    Linux,
    /// HyStart++ (RFC 9406).
    Plus,
    /// None: only a loss ends it.
    Off,
}

impl Detector {
    const CHOICES: &[(&'static str, Detector)] =
        &[("linux", Detector::Linux), ("plus", Detector::Plus), ("off", Detector::Off)];
}

/// The settings that a CUBIC controller is built from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spec {
    /// How slow start ends before the first loss.
    pub hystart: Detector,
    /// Parameters of [`Detector::Linux`]; its `paced` is ignored.
    pub linux: HyStartConfig,
    /// Whether the transport paces; `None`: as [`Config::paced`].
    pub paced: Option<bool>,
    /// [`CubicConfig::fast_convergence`].
    pub fast_convergence: bool,
    /// [`CubicConfig::tcp_friendliness`].
    pub tcp_friendliness: bool,
    /// [`CubicConfig::beta`].
    pub beta: u32,
    /// [`CubicConfig::hz`].
    pub hz: u32,
}

impl Default for Spec {
    fn default() -> Self {
        let CubicConfig { fast_convergence, tcp_friendliness, beta, hz, .. } = CubicConfig::default();
        Spec {
            hystart: Detector::Linux,
            linux: HyStartConfig::default(),
            paced: None,
            fast_convergence,
            tcp_friendliness,
            beta,
            hz,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{CongestionControl, Recovery};
    use crate::{Controller, ControllerSpec};

    const RTT: Span = Span::from_millis(100);

    struct Test {
        c: Cubic,
        now: Time,
        delivered: u64,
    }

    impl Test {
        fn new(settings: &[(&str, &str)]) -> Self {
            let config = Config { smss: 1000, initial_cwnd: 10_000, seed: 0, ..Config::default() };
            let Controller::Cubic(c) = ControllerSpec::new("cubic", settings).unwrap().build(&config) else {
                panic!()
            };
            Test { c, now: Time::ZERO + Span::from_secs(1), delivered: 0 }
        }

        fn cwnd(&self) -> u64 {
            self.c.cwnd() / 1000
        }

        /// An ACK of `packets`, `after` the last one, with a round trip of `rtt`.
        fn ack(&mut self, packets: u64, after: Span, rtt: Span) {
            self.now += after;
            self.delivered += packets * 1000;
            self.c.on_ack(&Ack {
                rtt: Some(rtt),
                srtt: Some(RTT),
                newly_acked: packets * 1000,
                delivered: self.delivered,
                inflight: self.c.cwnd(),
                cwnd_limited: true,
                ..Ack::at(self.now)
            });
        }

        /// A round trip: an ACK for each packet of the window, evenly spaced.
        fn round(&mut self) {
            let window = self.cwnd();
            for _ in 0..window {
                self.ack(1, RTT / window, RTT);
            }
        }

        fn recovery(&mut self, event: Recovery) {
            let context = RecoveryContext {
                now: self.now,
                inflight: if event == Recovery::EnterRto { 0 } else { self.c.cwnd() },
                delivered: self.delivered,
                lost: 0,
            };
            self.c.on_recovery(event, &context);
        }

        fn lose(&mut self) {
            self.recovery(Recovery::EnterFast);
            self.recovery(Recovery::Exit);
        }

        /// At a window of at least `packets`, with a known path.
        fn at(packets: u64, settings: &[(&str, &str)]) -> Self {
            let mut t = Test::new(settings);
            while t.cwnd() < packets {
                t.ack(1, Span::from_micros(10), RTT);
            }
            t
        }
    }

    const PURE: &[(&str, &str)] = &[("hystart", "off"), ("tcp_friendliness", "off")];

    /// RFC 9438 §4.2, figures 1 and 2: W(t) = C(t − K)³ + W_max, K = ∛(W_max(1 − β)/C).
    #[test]
    fn the_window_is_the_cubic_of_the_time_since_the_loss() {
        let mut t = Test::at(1000, PURE);
        t.lose();
        let w_max = 1000.0f64;
        assert_eq!(t.cwnd(), 700);
        let k = (w_max * 0.3 / 0.4).cbrt();
        t.round();
        assert!((t.c.growth().k().as_secs_f64() / k - 1.0).abs() < 0.005);
        let start = t.now;
        for _ in 0..180 {
            t.round();
            // The kernel aims at where the cubic will be a round trip ahead.
            let time = (t.now - start).as_secs_f64() + 0.1;
            let law = 0.4 * (time - k).powi(3) + w_max;
            let got = t.cwnd() as f64;
            assert!((got / law - 1.0).abs() < 0.03, "{time} s: {got} packets, the law says {law}");
        }
    }

    #[test]
    fn a_loss_leaves_seven_tenths() {
        let mut t = Test::at(100, PURE);
        t.lose();
        assert_eq!(t.cwnd(), 70);
        assert_eq!(t.c.growth().last_max_cwnd(), 100);
    }

    /// RFC 9438 §4.7: a second loss below W_max releases more.
    #[test]
    fn fast_convergence_gives_up_more_when_the_window_shrinks() {
        for (setting, w_max) in [("on", 59), ("off", 70)] {
            let mut t = Test::at(100, &[("hystart", "off"), ("fast_convergence", setting)]);
            t.lose();
            t.lose();
            assert_eq!(t.c.growth().last_max_cwnd(), w_max, "fast convergence {setting}");
        }
    }

    /// RFC 9438 §4.3: half a packet a round trip is 3(1 − β)/(1 + β).
    #[test]
    fn in_the_reno_friendly_region_it_grows_as_reno_does_with_its_decrease() {
        let rounds = 100;
        let grown = |settings| {
            let mut t = Test::at(100, settings);
            t.lose();
            let before = t.cwnd();
            // A path so short that the cubic hardly moves.
            for _ in 0..rounds {
                let window = t.cwnd();
                for _ in 0..window {
                    t.ack(1, Span::from_millis(1) / window, Span::from_millis(1));
                }
            }
            (t.cwnd() - before) as f64 / f64::from(rounds)
        };
        let friendly = grown(&[("hystart", "off")]);
        assert!((friendly - 0.529).abs() < 0.06, "{friendly} packets a round trip");
        assert!(grown(PURE) < 0.2);
    }

    #[test]
    fn growth_is_at_most_half_the_window_a_round_trip() {
        let mut t = Test::at(100, PURE);
        t.lose();
        t.round();
        // Two minutes later the cubic is far above.
        t.now += Span::from_secs(120);
        t.round();
        let before = t.cwnd();
        t.round();
        assert!(t.cwnd() <= before + before / 2 + 1);
    }

    #[test]
    fn idle_time_does_not_count() {
        let grown_after = |idle: Span| {
            let mut t = Test::at(1000, PURE);
            t.lose();
            for _ in 0..20 {
                t.round();
            }
            let sent = |now| crate::Sent {
                now,
                bytes: 1000,
                inflight: 0,
                app_limited: true,
                delivered: 0,
                retransmit: true,
            };
            t.c.on_send(&sent(t.now));
            t.now += idle;
            t.c.on_send(&sent(t.now));
            let before = t.cwnd();
            for _ in 0..10 {
                t.round();
            }
            t.cwnd() - before
        };
        let (none, long) = (grown_after(Span::ZERO), grown_after(Span::from_secs(20)));
        assert!(none.abs_diff(long) <= 3, "{none} packets without, {long} after idling");
    }

    #[test]
    fn spurious_loss_restores_the_window() {
        let mut t = Test::at(100, PURE);
        t.recovery(Recovery::EnterFast);
        t.recovery(Recovery::Spurious);
        assert_eq!((t.cwnd(), t.c.ssthresh()), (100, u64::MAX));
    }

    #[test]
    fn timeout_resets_the_curve() {
        let mut t = Test::at(100, PURE);
        t.recovery(Recovery::EnterRto);
        assert_eq!((t.cwnd(), t.c.ssthresh()), (1, 70_000));
        assert_eq!(t.c.growth().last_max_cwnd(), 0);
    }

    #[test]
    fn before_the_first_loss_congestion_avoidance_adds_at_least_a_twentieth() {
        // HyStart ends slow start; the cubic starts flat at the present window.
        let mut t = Test::at(100, &[("hystart_detect", "2"), ("tcp_friendliness", "off")]);
        while t.c.ssthresh() == u64::MAX {
            t.ack(1, Span::from_millis(1), RTT * 2);
        }
        let before = t.cwnd();
        t.round();
        let grown = (t.cwnd() - before) as f64 / before as f64;
        assert!((grown - 0.05).abs() < 0.01, "{grown}");
    }

    fn state(t: &Test) -> &'static str {
        t.c.snapshot().state
    }

    #[test]
    fn hystart_ends_slow_start_when_a_rounds_delay_grows_by_an_eighth() {
        let mut t = Test::at(40, &[("hystart_detect", "2")]);
        let queued = RTT + Span::from_millis(13);
        // A new round begins once what was in flight is delivered; its first eight samples decide.
        for _ in 0..200 {
            t.ack(1, Span::from_millis(3), queued);
            if state(&t) != "SlowStart" {
                break;
            }
        }
        assert_eq!(state(&t), "CongestionAvoidance");
        let mut t = Test::at(40, &[("hystart_detect", "2")]);
        for _ in 0..200 {
            t.ack(1, Span::from_millis(3), RTT + Span::from_millis(12));
        }
        assert_eq!(state(&t), "SlowStart", "an eighth of 100 ms is 12.5 ms");
    }

    #[test]
    fn hystart_ends_slow_start_when_a_train_of_acks_lasts_half_a_round_trip() {
        let mut t = Test::at(40, &[("hystart_detect", "1")]);
        let begin = t.now;
        while state(&t) == "SlowStart" && t.now - begin < RTT * 3 {
            t.ack(1, Span::from_millis(1), RTT);
        }
        assert_eq!(state(&t), "CongestionAvoidance");
        let mut sparse = Test::at(40, &[("hystart_detect", "1")]);
        for _ in 0..100 {
            sparse.ack(1, Span::from_millis(3), RTT);
        }
        assert_eq!(state(&sparse), "SlowStart", "ACKs 3 ms apart do not form a train");
    }

    #[test]
    fn hystart_leaves_windows_below_sixteen_packets_alone() {
        let mut t = Test::new(&[("hystart_detect", "2")]);
        t.ack(1, Span::from_millis(1), RTT);
        for _ in 0..4 {
            t.ack(1, Span::from_millis(3), RTT * 3);
        }
        assert_eq!(state(&t), "SlowStart");
        assert!(t.cwnd() < 16);
    }

    /// Grows to a window of at least `packets` and then sees a round trip longer by `extra`.
    fn with_hystart_plus(packets: u64, extra: Span) -> Test {
        let mut t = Test::new(&[("hystart", "plus")]);
        while t.cwnd() < packets {
            t.round();
        }
        for _ in 0..2 {
            let window = t.cwnd();
            for _ in 0..window {
                t.ack(1, RTT / window, RTT + extra);
            }
        }
        t
    }

    /// RFC 9406 §4.2.
    #[test]
    fn hystart_plus_slows_slow_start_to_a_quarter_when_the_delay_grows() {
        assert_eq!(state(&with_hystart_plus(40, Span::from_millis(12))), "SlowStart");
        let mut t = with_hystart_plus(40, Span::from_millis(13));
        assert_eq!(state(&t), "ConservativeSlowStart");
        let before = t.cwnd();
        for _ in 0..before {
            t.ack(1, RTT / before, RTT + Span::from_millis(13));
        }
        let grown = (t.cwnd() - before) as f64 / before as f64;
        assert!((grown - 0.25).abs() < 0.02, "{grown}");
    }

    #[test]
    fn hystart_plus_resumes_slow_start_when_the_delay_was_noise() {
        let mut t = with_hystart_plus(40, Span::from_millis(13));
        let window = t.cwnd();
        for _ in 0..2 * window {
            t.ack(1, RTT / window, RTT);
        }
        assert_eq!(state(&t), "SlowStart");
    }

    #[test]
    fn hystart_plus_ends_slow_start_after_five_conservative_rounds() {
        let mut t = with_hystart_plus(40, Span::from_millis(13));
        let mut rounds = 0;
        while state(&t) == "ConservativeSlowStart" {
            let window = t.cwnd();
            for _ in 0..window {
                t.ack(1, RTT / window, RTT + Span::from_millis(13));
            }
            rounds += 1;
        }
        assert_eq!(state(&t), "CongestionAvoidance");
        assert!((4..=6).contains(&rounds), "{rounds}");
    }

    #[test]
    fn settings_reach_the_algorithm() {
        let mut t = Test::at(1000, &[("hystart", "off"), ("beta", "512")]);
        t.lose();
        assert_eq!(t.cwnd(), 500);
    }
}
