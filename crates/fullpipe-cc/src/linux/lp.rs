//! TCP-LP (Kuzmanovic & Knightly, "TCP-LP: A Distributed Algorithm for Low Priority Data Transfer",
//! 2003), as in Linux `net/ipv4/tcp_lp.c`: Reno that yields as soon as the one-way delay exceeds 15 %
//! of its range, halving the window once and then keeping it at one packet.
//!
//! The kernel computes one-way delays from TCP timestamps. A transport of this crate does not report
//! the peer's: the round-trip time takes their place, so a queue of the reverse path counts, too.

use super::{AckSample, Modular, Module, Tcp, half};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Settings};

/// Ticks per second of timestamps, and of delays.
const TS_HZ: u32 = 1000;
/// Share of the range of delays that a queue may have, in percent.
const MAX_DELAY_PERCENT: u32 = 15;

/// TCP-LP's window.
#[derive(Clone, Copy, Debug)]
pub struct LpModule {
    /// The estimate of the peer's clock is valid (`LP_VALID_RHZ`).
    valid_hz: bool,
    /// The last one-way delay is valid (`LP_VALID_OWD`).
    valid_delay: bool,
    /// The window was reduced less than an inference time ago (`LP_WITHIN_INF`).
    inferring: bool,
    /// Smoothed one-way delay in 1/8 ms, and its extremes in ms.
    delay_8: u32,
    min_delay: u32,
    max_delay: u32,
    /// The second largest delay becomes the largest.
    max_delay_reserve: u32,
    /// Ticks per second of the peer's timestamps, and the last pair of timestamps.
    remote_hz: u32,
    remote_ref: u32,
    local_ref: u32,
    /// When the window was reduced, in ms.
    last_drop: u32,
    /// How long a second signal reduces it to one packet, in ms.
    inference: u32,
}

impl Default for LpModule {
    fn default() -> Self {
        LpModule {
            valid_hz: false,
            valid_delay: false,
            inferring: false,
            delay_8: 0,
            min_delay: u32::MAX,
            max_delay: 0,
            max_delay_reserve: 0,
            remote_hz: 0,
            remote_ref: 0,
            local_ref: 0,
            last_drop: 0,
            inference: 0,
        }
    }
}

impl LpModule {
    /// `tcp_lp_remote_hz_estimator`.
    fn estimate_remote_hz(&mut self, tcp: &Tcp) {
        // In 1/64; the shift drops the kernel's upper bits.
        let mut hz_64 = i64::from(self.remote_hz << 6);
        let known = self.remote_ref != 0 && self.local_ref != 0;
        if known && tcp.rcv_tsval != self.remote_ref && tcp.rcv_tsecr != self.local_ref {
            let remote = tcp.rcv_tsval.wrapping_sub(self.remote_ref);
            let local = tcp.rcv_tsecr.wrapping_sub(self.local_ref);
            let hz = i64::from(TS_HZ.wrapping_mul(remote) / local.max(1));
            hz_64 = if hz_64 > 0 { hz_64 + hz - (hz_64 >> 6) } else { hz << 6 };
        }
        self.remote_hz = (hz_64 >> 6) as u32;
        self.valid_hz = hz_64 >> 6 > 0;
        self.remote_ref = tcp.rcv_tsval;
        self.local_ref = tcp.rcv_tsecr;
    }

    /// `tcp_lp_rtt_sample`.
    fn sample_delay(&mut self, tcp: &Tcp) {
        self.estimate_remote_hz(tcp);
        let delay = if self.valid_hz {
            let resolution = TS_HZ / self.remote_hz.max(1);
            tcp.rcv_tsval.wrapping_mul(resolution).wrapping_sub(tcp.rcv_tsecr)
        } else {
            0
        };
        self.valid_delay = delay > 0;
        if !self.valid_hz || !self.valid_delay {
            return;
        }
        self.min_delay = self.min_delay.min(delay);
        if delay > self.max_delay {
            if delay > self.max_delay_reserve {
                self.max_delay = if self.max_delay_reserve == 0 { delay } else { self.max_delay_reserve };
                self.max_delay_reserve = delay;
            } else {
                self.max_delay = delay;
            }
        }
        self.delay_8 = if self.delay_8 == 0 {
            delay << 3
        } else {
            self.delay_8.wrapping_add(delay.wrapping_sub(self.delay_8 >> 3))
        };
    }
}

impl Module for LpModule {
    fn init(&mut self, _: &mut Window, _: &Tcp) {
        *self = LpModule::default();
    }

    fn pkts_acked(&mut self, window: &mut Window, tcp: &Tcp, sample: &AckSample) {
        let now = (tcp.mstamp_us / 1000) as u32;
        if sample.rtt_us > 0 {
            self.sample_delay(tcp);
        }
        let rtt = now.wrapping_sub(tcp.rcv_tsecr);
        if rtt as i32 > 0 {
            self.inference = rtt.wrapping_mul(3);
        }
        self.inferring = self.last_drop != 0 && now.wrapping_sub(self.last_drop) < self.inference;
        let range = self.max_delay.wrapping_sub(self.min_delay);
        let limit = self.min_delay.wrapping_add(MAX_DELAY_PERCENT.wrapping_mul(range) / 100);
        if self.delay_8 >> 3 < limit {
            return;
        }
        // A queue: the range begins anew.
        self.min_delay = self.delay_8 >> 3;
        self.max_delay = self.delay_8 >> 2;
        self.max_delay_reserve = self.delay_8 >> 2;
        window.cwnd = if self.inferring { 1 } else { (window.cwnd >> 1).max(1) };
        self.last_drop = now;
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !self.inferring {
            tcp.reno(window, acked);
        }
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        half(window)
    }
}

/// The TCP-LP controller.
pub type Lp = Modular<LpModule>;

impl Build for Lp {
    const INFO: ControllerInfo = ControllerInfo {
        name: "lp",
        aliases: &["tcp-lp"],
        kernel: Some("lp"),
        about: "TCP-LP: background transfers that yield to others when the delay grows",
        settings: &[],
    };

    type Params = ();

    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }

    fn build(config: &Config, (): &()) -> Self {
        Modular::build(config, LpModule::default())
    }
}
