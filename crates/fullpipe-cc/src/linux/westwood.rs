//! Westwood+ (Grieco & Mascolo, "Performance evaluation and comparison of Westwood+, New Reno, and
//! Vegas TCP congestion control", 2004), as in Linux `net/ipv4/tcp_westwood.c`: Reno whose window
//! after a reduction is the estimated bandwidth times the minimum round-trip time.

use super::{AckSample, CaEvent, HZ_SETTING, Modular, Module, Tcp, half, read_hz};
use crate::control::Config;
use crate::jiffies::Ticks;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, SettingValue, Settings};
use fullpipe_units::Span;

/// Westwood's estimates.
#[derive(Clone, Copy, Debug)]
pub struct WestwoodModule {
    ticks: Ticks,
    /// Bandwidth in bytes per tick: filtered once, and twice.
    once: u32,
    twice: u32,
    /// The tick at which the current bandwidth sample began, and its bytes.
    began: u32,
    bytes: u32,
    snd_una: u32,
    /// Bytes counted for duplicate ACKs before they were acknowledged.
    accounted: u32,
    /// The last and the minimum round-trip time in ticks.
    rtt: u32,
    rtt_min: u32,
    first_ack: bool,
    reset_rtt_min: bool,
}

impl WestwoodModule {
    /// The module of a new connection, with a clock of `hz` ticks per second.
    pub fn new(hz: u32) -> Self {
        let ticks = Ticks::new(hz);
        let rtt = 20 * ticks.per_second();
        WestwoodModule {
            ticks,
            once: 0,
            twice: 0,
            began: 0,
            bytes: 0,
            snd_una: 0,
            accounted: 0,
            rtt,
            rtt_min: rtt,
            first_ack: true,
            reset_rtt_min: true,
        }
    }

    /// Ends a bandwidth sample that is longer than a round trip and 50 ms
    /// (`westwood_update_window`).
    fn sample_bandwidth(&mut self, tcp: &Tcp) {
        if self.first_ack {
            self.snd_una = tcp.snd_una;
            self.first_ack = false;
        }
        let ticks = tcp.jiffies.wrapping_sub(self.began);
        if self.rtt == 0 || ticks <= self.rtt.max(self.ticks.per_second() / 20) {
            return;
        }
        // The kernel divides by a signed number, which counts as unsigned.
        let sample = self.bytes / ticks.max(1);
        if self.once == 0 && self.twice == 0 {
            self.once = sample;
            self.twice = sample;
        } else {
            let filter = |old: u32, new: u32| old.wrapping_mul(7).wrapping_add(new) >> 3;
            self.once = filter(self.once, sample);
            self.twice = filter(self.twice, self.once);
        }
        self.bytes = 0;
        self.began = tcp.jiffies;
    }

    /// Bytes that the ACK stands for (`westwood_acked_count`): a duplicate ACK counts as a packet,
    /// which is not counted again when it is acknowledged.
    fn acknowledged(&mut self, tcp: &Tcp) -> u32 {
        let mut bytes = tcp.snd_una.wrapping_sub(self.snd_una);
        if bytes == 0 {
            self.accounted = self.accounted.wrapping_add(tcp.mss);
            bytes = tcp.mss;
        }
        if bytes > tcp.mss {
            if self.accounted >= bytes {
                self.accounted -= bytes;
                bytes = tcp.mss;
            } else {
                bytes -= self.accounted;
                self.accounted = 0;
            }
        }
        self.snd_una = tcp.snd_una;
        bytes
    }

    /// The estimated bandwidth-delay product in packets (`tcp_westwood_bw_rttmin`).
    fn bdp(&self, tcp: &Tcp) -> u32 {
        (self.twice.wrapping_mul(self.rtt_min) / tcp.mss.max(1)).max(2)
    }
}

impl Module for WestwoodModule {
    fn init(&mut self, _: &mut Window, tcp: &Tcp) {
        let hz = self.ticks.per_second();
        *self = WestwoodModule { began: tcp.jiffies, snd_una: tcp.snd_una, ..WestwoodModule::new(hz) };
    }

    fn pkts_acked(&mut self, _: &mut Window, _: &Tcp, sample: &AckSample) {
        if sample.rtt_us > 0 {
            self.rtt = self.ticks.in_micros(sample.rtt_us as u32);
        }
    }

    fn in_ack_event(&mut self, tcp: &Tcp, slow_path: bool) {
        self.sample_bandwidth(tcp);
        let bytes = if slow_path {
            self.acknowledged(tcp)
        } else {
            let bytes = tcp.snd_una.wrapping_sub(self.snd_una);
            self.snd_una = tcp.snd_una;
            bytes
        };
        self.bytes = self.bytes.wrapping_add(bytes);
        self.rtt_min = if self.reset_rtt_min { self.rtt } else { self.rtt.min(self.rtt_min) };
        self.reset_rtt_min = false;
    }

    fn cwnd_event(&mut self, window: &mut Window, tcp: &Tcp, event: CaEvent) {
        match event {
            CaEvent::CompleteCwr => {
                window.ssthresh = self.bdp(tcp);
                window.cwnd = window.ssthresh;
            }
            CaEvent::Loss => {
                window.ssthresh = self.bdp(tcp);
                self.reset_rtt_min = true;
            }
            CaEvent::TxStart | CaEvent::CwndRestart => {}
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        tcp.reno(window, acked);
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        half(window)
    }

    fn min_rtt(&self) -> Option<Span> {
        let ticks = u64::from(self.rtt_min);
        (!self.reset_rtt_min)
            .then(|| Span::from_micros(ticks * 1_000_000 / u64::from(self.ticks.per_second())))
    }
}

/// The Westwood+ controller.
pub type Westwood = Modular<WestwoodModule>;

impl Build for Westwood {
    const INFO: ControllerInfo = ControllerInfo {
        name: "westwood",
        aliases: &[],
        kernel: Some("westwood"),
        about: "Westwood+: Reno whose window after a loss is the estimated bandwidth-delay product",
        settings: &[HZ_SETTING],
    };

    /// Clock ticks per second.
    type Params = u32;

    fn parse<'a>(settings: Settings<'a>) -> Result<u32, BuildError<'a>> {
        read_hz(&settings)
    }

    fn build(config: &Config, hz: &u32) -> Self {
        Modular::build_at(config, WestwoodModule::new(*hz), *hz)
    }

    fn setting(hz: &u32, _: &str) -> Option<SettingValue> {
        Some(SettingValue::number(*hz))
    }
}
