//! BBR v1 as Linux ships it.
//!
//! [`Bbr`] is the inner model: `tcp_bbr.c`'s arithmetic bit by bit, in packets and microseconds,
//! one method for each of the kernel's callbacks, every field of `struct bbr` public. It can be
//! replayed against recordings of the kernel. [`BbrV1`] joins it to this crate's interface of bytes
//! and nanoseconds.
//!
//! ```text
//!          ┌──────────► Startup ────┐
//!          │                │       │
//!          │                ▼       │
//!          │              Drain ────┤
//!          │                │       │
//!          │                ▼       │
//!          │             ProbeBW ───┤ no new min_rtt
//!          │                ▲       │ for 10 s
//!          └────────────────┴── ProbeRTT
//! ```

mod aggregation;
mod bandwidth;
#[cfg(test)]
mod fixture;
mod full_pipe;
mod long_term;
mod model;
mod pacing;
mod params;
mod probe_bw;
mod probe_rtt;
mod socket;
mod state;
mod window;

use crate::control::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
use crate::jiffies::{HZ_RANGE, Ticks};
use crate::loss_based::{NO_SSTHRESH, rescaled};
use crate::minmax::MinMax;
use crate::pacer::autosize;
use crate::packets::{PacketScale, saturate};
use crate::random::Random;
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use fullpipe_units::{Gain, Rate, Span, Time};
pub use model::Info;
pub use params::{BW_SCALE, BW_UNIT, CYCLE_RAND, GAIN_SCALE, GAIN_UNIT, Params};
pub use socket::{CA_CWR, CA_DISORDER, CA_LOSS, CA_OPEN, CA_RECOVERY, RateSample, Socket};
pub use state::{Bbr, KERNEL_SIZE, Mode};

/// BBR v1 for any transport.
#[derive(Clone, Copy, Debug)]
pub struct BbrV1 {
    model: Bbr,
    sk: Socket,
    scale: PacketScale,
    random: Random,
    ticks: Ticks,
    started: bool,
    /// Data was delivered since the last timeout.
    progress: bool,
    delivered_bytes: u64,
    lost_bytes: u64,
    quantum: u64,
}

fn srtt_8us(srtt: Span) -> u32 {
    saturate(srtt.as_nanos() / 125).max(1)
}

impl BbrV1 {
    /// A controller for a new connection.
    pub fn new(config: &Config, params: Params) -> Self {
        let scale = PacketScale::new(config.smss);
        let sk = Socket {
            snd_cwnd: saturate(scale.count(config.initial_cwnd)).clamp(1, NO_SSTHRESH),
            snd_cwnd_clamp: u32::MAX,
            snd_ssthresh: NO_SSTHRESH,
            mss_cache: scale.smss(),
            srtt_us: 0,
            min_rtt_us: u32::MAX,
            delivered: 0,
            lost: 0,
            delivered_mstamp: 0,
            tcp_mstamp: 0,
            tcp_clock_cache: 0,
            tcp_wstamp_ns: 0,
            packets_in_flight: 0,
            app_limited: 0,
            ca_state: CA_OPEN,
            jiffies: Ticks::new(params.hz).at(Time::ZERO),
            pacing_rate: 0,
            max_pacing_rate: u64::MAX,
        };
        let params = Params { hz: Ticks::new(params.hz).per_second(), ..params };
        let mut bbr = BbrV1 {
            ticks: Ticks::new(params.hz),
            model: Bbr::zeroed(params),
            sk,
            scale,
            random: Random::new(config.seed),
            started: false,
            progress: true,
            delivered_bytes: 0,
            lost_bytes: 0,
            quantum: 0,
        };
        bbr.model.init(&mut bbr.sk);
        bbr.update_quantum();
        bbr
    }

    /// The inner model.
    pub fn model(&self) -> &Bbr {
        &self.model
    }

    fn clock(&mut self, now: Time) {
        self.sk.tcp_clock_cache = now.as_nanos();
        self.sk.tcp_mstamp = now.as_micros();
        self.sk.jiffies = self.ticks.at(now);
    }

    /// The kernel's `init` runs when the connection is established.
    fn start(&mut self, now: Time) {
        self.started = true;
        self.clock(now);
        self.sk.delivered_mstamp = now.as_micros();
        self.model.init(&mut self.sk);
        self.update_quantum();
    }

    fn update_quantum(&mut self) {
        let rate = Rate::from_bytes_per_sec(self.sk.pacing_rate);
        self.quantum = autosize(rate, self.min_rtt(), self.sk.mss_cache, Bbr::min_tso_segs(&self.sk));
    }

    fn min_rtt(&self) -> Option<Span> {
        Some(self.model.min_rtt_us).filter(|&us| us != u32::MAX).map(|us| Span::from_micros(u64::from(us)))
    }

    fn set_ca_state(&mut self, state: u8) {
        let BbrV1 { model, sk, random, .. } = self;
        model.set_state(sk, state, || random.below(CYCLE_RAND));
        sk.ca_state = state;
    }
}

impl CongestionControl for BbrV1 {
    fn on_handshake(&mut self, now: Time, rtt: Span) {
        self.sk.srtt_us = srtt_8us(rtt);
        self.sk.min_rtt_us = saturate(rtt.as_micros());
        self.start(now);
    }

    #[inline]
    fn on_send(&mut self, sent: &Sent) {
        if !self.started {
            self.start(sent.now);
        }
        if sent.inflight == 0 {
            self.clock(sent.now);
            let BbrV1 { model, sk, random, .. } = self;
            sk.app_limited = u32::from(sent.app_limited);
            model.transmit_start(sk, || random.below(CYCLE_RAND));
            sk.delivered_mstamp = sk.tcp_mstamp;
            self.update_quantum();
        }
    }

    #[inline]
    fn on_lost(&mut self, _lost: &Lost) {}

    #[inline]
    fn on_ack(&mut self, ack: &Ack) {
        if !self.started {
            self.start(ack.now);
        }
        self.clock(ack.now);
        let BbrV1 { model, sk, scale, random, .. } = self;
        let count = |bytes: u64| saturate(scale.count(bytes));
        let position = |bytes: u64| scale.position(bytes) as u32;
        let delivered = position(ack.delivered);
        // A decreasing count acknowledges nothing.
        let acked_sacked = (delivered.wrapping_sub(sk.delivered) as i32).max(0) as u32;
        sk.delivered = delivered;
        self.delivered_bytes = ack.delivered;
        if ack.lost != self.lost_bytes {
            self.lost_bytes = ack.lost;
            sk.lost = position(ack.lost);
        }
        if ack.newly_acked > 0 {
            sk.delivered_mstamp = sk.tcp_mstamp;
            self.progress = true;
        }
        sk.tcp_wstamp_ns = ack.next_departure.as_nanos();
        sk.packets_in_flight = count(ack.inflight);
        // Only whether there is one matters once the first was seen.
        if let (false, Some(srtt)) = (model.has_seen_rtt, ack.srtt) {
            sk.srtt_us = srtt_8us(srtt);
        }
        if sk.ca_state < CA_CWR {
            sk.ca_state = if ack.recovery == RecoveryState::Disorder { CA_DISORDER } else { CA_OPEN };
        }
        sk.app_limited = 0;
        let prior_delivered = position(ack.sample.prior_delivered);
        let rs = RateSample {
            prior_delivered,
            delivered: if ack.sample.has_packet {
                delivered.wrapping_sub(prior_delivered) as i32
            } else {
                -1
            },
            interval_us: if ack.sample.rate.is_some() {
                ack.sample.interval.as_micros().clamp(1, i64::MAX as u64) as i64
            } else {
                -1
            },
            rtt_us: ack.rtt.map_or(-1, |rtt| rtt.as_micros() as i64),
            losses: count(ack.newly_lost).min(i32::MAX as u32) as i32,
            acked_sacked,
            prior_in_flight: count(ack.inflight_before),
            is_app_limited: ack.sample.app_limited,
            is_ack_delayed: ack.delayed,
        };
        let before = sk.pacing_rate;
        model.main(sk, &rs, || random.below(CYCLE_RAND));
        sk.snd_cwnd = sk.snd_cwnd.max(1);
        if self.sk.pacing_rate != before {
            self.update_quantum();
        }
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        self.clock(context.now);
        self.sk.packets_in_flight = saturate(self.scale.count(context.inflight));
        match event {
            Recovery::EnterFast => {
                if self.sk.ca_state != CA_RECOVERY {
                    self.sk.snd_ssthresh = self.model.ssthresh(&self.sk);
                    self.set_ca_state(CA_RECOVERY);
                }
            }
            Recovery::EnterRto => {
                // As `tcp_enter_loss`: the window is saved once per recovery.
                let saves = match self.sk.ca_state {
                    CA_RECOVERY => false,
                    CA_LOSS => self.progress,
                    _ => true,
                };
                if saves {
                    self.sk.snd_ssthresh = self.model.ssthresh(&self.sk);
                }
                self.sk.snd_cwnd = self.sk.packets_in_flight.saturating_add(1);
                self.lost_bytes = context.lost;
                self.sk.lost = self.scale.position(context.lost) as u32;
                self.set_ca_state(CA_LOSS);
                self.progress = false;
            }
            Recovery::Exit => self.set_ca_state(CA_OPEN),
            Recovery::Spurious => {
                self.sk.snd_cwnd = self.model.undo_cwnd(&self.sk);
                self.set_ca_state(CA_OPEN);
            }
        }
    }

    fn on_mtu(&mut self, smss: u32) {
        let (old, new) = (self.scale.smss(), smss.max(1));
        self.scale.change(new, self.delivered_bytes);
        self.sk.mss_cache = new;
        self.sk.snd_cwnd = rescaled(self.sk.snd_cwnd, old, new).max(1);
        let m = &mut self.model;
        m.prior_cwnd = rescaled(m.prior_cwnd, old, new);
        m.bw = MinMax::from_samples(m.bw.samples().map(|mut s| {
            s.v = rescaled(s.v, old, new);
            s
        }));
        m.full_bw = rescaled(m.full_bw, old, new);
        m.lt_bw = rescaled(m.lt_bw, old, new);
        self.update_quantum();
    }

    #[inline]
    fn cwnd(&self) -> u64 {
        self.scale.bytes(self.sk.snd_cwnd)
    }

    #[inline]
    fn ssthresh(&self) -> u64 {
        match self.sk.snd_ssthresh {
            NO_SSTHRESH.. => u64::MAX,
            packets => self.scale.bytes(packets),
        }
    }

    #[inline]
    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate::from_bytes_per_sec(self.sk.pacing_rate))
    }

    #[inline]
    fn send_quantum(&self) -> u64 {
        self.quantum
    }

    #[inline]
    fn uses_prr(&self) -> bool {
        false
    }

    /// Negotiates ECN and ignores marks, as Linux's BBR v1 does.
    fn claims_ecn(&self) -> bool {
        true
    }

    #[inline]
    fn marks_app_limited(&self) -> bool {
        self.sk.app_limited != 0
    }

    fn state(&self) -> &'static str {
        match self.model.mode {
            Mode::Startup => "Startup",
            Mode::Drain => "Drain",
            Mode::ProbeBw => "ProbeBW",
            Mode::ProbeRtt => "ProbeRTT",
        }
    }

    fn snapshot(&self) -> Snapshot {
        let info = self.model.info(&self.sk);
        Snapshot {
            state: self.state(),
            cwnd: self.cwnd(),
            ssthresh: Some(self.ssthresh()).filter(|&s| s != u64::MAX),
            pacing_rate: self.pacing_rate(),
            bw: (info.bw > 0).then(|| Rate::from_bytes_per_sec(info.bw)),
            min_rtt: self.min_rtt(),
            pacing_gain: Some(Gain::from_256ths(info.pacing_gain)),
            cwnd_gain: Some(Gain::from_256ths(info.cwnd_gain)),
            rounds: Some(u64::from(self.model.rtt_cnt)),
            ..Snapshot::default()
        }
    }
}

/// Ten bits hold a gain in `struct bbr`.
const MAX_GAIN: u32 = 1023;

impl Build for BbrV1 {
    const INFO: ControllerInfo = ControllerInfo {
        name: "bbr",
        aliases: &["bbr1", "bbrv1"],
        kernel: Some("bbr"),
        about: "BBR v1 (2016), as in Linux: paces at the measured bandwidth, ignores isolated losses",
        settings: &[
            Setting {
                key: "high_gain",
                values: "1 to 3.99",
                default: "2.887",
                about: "pacing and window gain of Startup",
            },
            Setting {
                key: "startup_pacing_gain",
                values: "1 to 3.99",
                default: "2.887",
                about: "pacing gain of Startup [default: high_gain]",
            },
            Setting {
                key: "startup_cwnd_gain",
                values: "1 to 3.99",
                default: "2.887",
                about: "window gain of Startup and Drain [default: high_gain]",
            },
            Setting {
                key: "drain_gain",
                values: "0.1 to 1",
                default: "0.344",
                about: "pacing gain of Drain",
            },
            Setting {
                key: "cwnd_gain",
                values: "1 to 3.99",
                default: "2",
                about: "window gain of ProbeBW: how many bandwidth-delay products may be in flight",
            },
            Setting {
                key: "probe_gain",
                values: "1 to 2",
                default: "1.25",
                about: "pacing gain of the probing phase; the draining phase mirrors it below 1",
            },
            Setting {
                key: "pacing_margin_percent",
                values: "0 to 50 (%)",
                default: "1",
                about: "share of the bandwidth left unused",
            },
            Setting {
                key: "bw_rounds",
                values: "1 to 1000",
                default: "10",
                about: "length of the bandwidth filter in round trips",
            },
            Setting {
                key: "min_rtt_window_s",
                values: "1 to 3600 (s)",
                default: "10",
                about: "lifetime of min_rtt, which sets the interval of ProbeRTT",
            },
            Setting {
                key: "probe_rtt_ms",
                values: "0 to 10000 (ms)",
                default: "200",
                about: "minimum time in ProbeRTT; 0 disables ProbeRTT",
            },
            Setting {
                key: "extra_acked_gain",
                values: "0 to 3.99",
                default: "1",
                about: "share of the measured ACK aggregation added to the window",
            },
            Setting {
                key: "long_term",
                values: "on or off",
                default: "on",
                about: "detect policers and send at their rate",
            },
            Setting {
                key: "hz",
                values: "24 to 1200",
                default: "250",
                about: "ticks per second of the kernel's coarse clock, used by ProbeRTT and its interval",
            },
        ],
    };

    type Params = Params;

    fn parse<'a>(settings: Settings<'a>) -> Result<Params, BuildError<'a>> {
        let d = Params::LINUX;
        let gain = |key, default, least| settings.decimal(key, default, GAIN_UNIT, least, MAX_GAIN);
        let high_gain = gain("high_gain", d.startup_pacing_gain, GAIN_UNIT)?;
        let probe = settings.decimal("probe_gain", d.probe_gains[0], GAIN_UNIT, GAIN_UNIT, 2 * GAIN_UNIT)?;
        Ok(Params {
            startup_pacing_gain: gain("startup_pacing_gain", high_gain, GAIN_UNIT)?,
            startup_cwnd_gain: gain("startup_cwnd_gain", high_gain, GAIN_UNIT)?,
            drain_gain: settings.decimal("drain_gain", d.drain_gain, GAIN_UNIT, GAIN_UNIT / 10, GAIN_UNIT)?,
            cwnd_gain: gain("cwnd_gain", d.cwnd_gain, GAIN_UNIT)?,
            probe_gains: [probe, (2 * GAIN_UNIT - probe).max(1)],
            pacing_margin_percent: settings.number(
                "pacing_margin_percent",
                d.pacing_margin_percent,
                0,
                50,
            )?,
            bw_rounds: settings.number("bw_rounds", d.bw_rounds, 1, 1000)?,
            min_rtt_window_s: settings.number("min_rtt_window_s", d.min_rtt_window_s, 1, 3600)?,
            probe_rtt_ms: settings.number("probe_rtt_ms", d.probe_rtt_ms, 0, 10_000)?,
            extra_acked_gain: gain("extra_acked_gain", d.extra_acked_gain, 0)?,
            long_term: settings.switch("long_term", d.long_term)?,
            hz: settings.number("hz", d.hz, *HZ_RANGE.start(), *HZ_RANGE.end())?,
            ..d
        })
    }

    fn build(config: &Config, params: &Params) -> Self {
        BbrV1::new(config, *params)
    }

    fn setting(p: &Params, key: &str) -> Option<SettingValue> {
        let gain = |count| SettingValue::Parts { count, of: GAIN_UNIT };
        Some(match key {
            "startup_pacing_gain" => gain(p.startup_pacing_gain),
            "startup_cwnd_gain" => gain(p.startup_cwnd_gain),
            "drain_gain" => gain(p.drain_gain),
            "cwnd_gain" => gain(p.cwnd_gain),
            "probe_gain" => gain(p.probe_gains[0]),
            "pacing_margin_percent" => SettingValue::number(p.pacing_margin_percent),
            "bw_rounds" => SettingValue::number(p.bw_rounds),
            "min_rtt_window_s" => SettingValue::number(p.min_rtt_window_s),
            "probe_rtt_ms" => SettingValue::number(p.probe_rtt_ms),
            "extra_acked_gain" => gain(p.extra_acked_gain),
            "long_term" => SettingValue::Switch(p.long_term),
            "hz" => SettingValue::number(p.hz),
            // `high_gain` is the default of two others.
            _ => return None,
        })
    }
}
