//! Hybla (Caini & Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks", 2004):
//! makes the rate grow as for a Reno flow with a round-trip time of 25 ms, on paths of any length.
//! In the fixed-point arithmetic of Linux `net/ipv4/tcp_hybla.c`.
//!
//! With ρ = RTT / 25 ms, at least 1: slow start adds 2^ρ − 1 packets per ACK, congestion avoidance
//! ρ²/cwnd. RTT is the minimum smoothed round-trip time.
//! Each ACK counts once, however many packets it acknowledges; Linux's Reno counts packets. With
//! receive offload, where ACKs cover many packets, Hybla with ρ near 1 recovers more slowly than
//! Reno.

use crate::control::{Ack, Config, RecoveryContext, RecoveryState};
use crate::loss_based::{Growth, LossBased, Window};
use crate::registry::{Build, BuildError, ControllerInfo, Setting, SettingValue, Settings};
use fullpipe_units::Span;

/// One packet in the fixed-point unit of increments.
const ONE: u32 = 128;

/// 2^(n/8) in units of 1/128.
const EIGHTH_POWERS: [u32; 8] = [128, 139, 152, 165, 181, 197, 215, 234];

/// The module's limit on the window.
const CLAMP: u32 = 65_535;

/// Growth by ρ.
#[derive(Clone, Copy, Debug)]
pub struct HyblaGrowth {
    /// Reference round-trip time in milliseconds.
    rtt0_ms: u32,
    /// Whether in the open state; otherwise Reno's growth applies.
    enabled: bool,
    /// Fractions of a packet not yet added to the window, in 1/128.
    cents: u32,
    /// ρ in units of 1/8; 0 before the first round-trip time.
    rho_8: u32,
    /// ρ² in units of 1/128.
    rho2_128: u32,
    /// The minimum smoothed round-trip time in 1/8 µs, the kernel's unit.
    min_srtt: u32,
}

/// Smoothed round-trip time in 1/8 µs.
fn srtt_8us(srtt: Span) -> u32 {
    u32::try_from(srtt.as_nanos() / 125).unwrap_or(u32::MAX)
}

impl HyblaGrowth {
    /// With reference round-trip time `rtt0_ms` ≥ 1 in milliseconds; the kernel's is 25.
    pub fn new(rtt0_ms: u32) -> Self {
        HyblaGrowth { rtt0_ms: rtt0_ms.max(1), enabled: true, cents: 0, rho_8: 0, rho2_128: 0, min_srtt: 0 }
    }

    /// ρ in units of 1/8.
    pub fn rho_8(&self) -> u32 {
        self.rho_8
    }

    /// `hybla_recalc_param`.
    fn recalculate(&mut self, srtt_8us: u32) {
        self.rho_8 = (srtt_8us / self.rtt0_ms.saturating_mul(1000)).max(8);
        self.rho2_128 = self.rho_8.saturating_mul(self.rho_8).saturating_mul(2);
    }

    /// Slow start's increment per ACK, 2^ρ − 1, in units of 1/128.
    fn slow_start_increment(&self) -> u32 {
        let (whole, eighths) = (self.rho_8 >> 3, self.rho_8 & 7);
        (1 << whole.min(16)) * EIGHTH_POWERS[eighths as usize] - ONE
    }
}

impl Growth for HyblaGrowth {
    fn start(&mut self, window: &mut Window, srtt: Span) {
        let srtt = srtt_8us(srtt);
        window.clamp = CLAMP;
        self.recalculate(srtt);
        self.min_srtt = srtt;
        window.cwnd = self.rho_8 >> 3;
    }

    #[inline]
    fn grow(&mut self, window: &mut Window, ack: &Ack, acked: u32) {
        let srtt = window.srtt.map_or(0, srtt_8us);
        if srtt < self.min_srtt || self.rho_8 == 0 && srtt > 0 {
            window.clamp = CLAMP;
            self.recalculate(srtt);
            self.min_srtt = srtt;
        }
        if !window.is_limiting(ack) {
            return;
        }
        if !self.enabled {
            window.reno(acked);
            return;
        }
        if self.rho_8 == 0 {
            self.recalculate(srtt);
        }
        let slow_start = window.in_slow_start();
        let increment = if slow_start {
            self.slow_start_increment()
        } else {
            let increment = self.rho2_128 / window.cwnd.max(1);
            if increment < ONE {
                window.cwnd_count += 1;
            }
            increment
        };
        let mut cwnd = window.cwnd.saturating_add(increment / ONE);
        self.cents += increment % ONE;
        if self.cents >= ONE {
            self.cents -= ONE;
            cwnd = cwnd.saturating_add(1);
            window.cwnd_count = 0;
        }
        // Above ρ²·128 packets the increment rounds to zero: grow one packet per window.
        if increment == 0 && window.cwnd_count >= cwnd {
            cwnd = cwnd.saturating_add(1);
            window.cwnd_count = 0;
        }
        if slow_start {
            cwnd = cwnd.min(window.ssthresh);
        }
        window.cwnd = cwnd.min(window.clamp);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        (window.cwnd >> 1).max(2)
    }

    fn set_state(&mut self, state: RecoveryState, _context: &RecoveryContext) {
        self.enabled = state == RecoveryState::Open;
    }

    fn min_rtt(&self) -> Option<Span> {
        (self.min_srtt > 0).then(|| Span::from_nanos(u64::from(self.min_srtt) * 125))
    }
}

/// The Hybla controller.
pub type Hybla = LossBased<HyblaGrowth>;

impl Build for Hybla {
    const INFO: ControllerInfo = ControllerInfo {
        name: "hybla",
        aliases: &[],
        kernel: Some("hybla"),
        about: "Hybla: grows on long paths as fast as Reno on short ones; for satellite links",
        settings: &[Setting {
            key: "rtt0",
            values: "1 to 10000 (ms)",
            default: "25",
            about: "reference round-trip time: longer paths grow faster than Reno",
        }],
    };

    /// The reference round-trip time in milliseconds.
    type Params = u32;

    fn parse<'a>(settings: Settings<'a>) -> Result<u32, BuildError<'a>> {
        read_rtt0(&settings, 25)
    }

    fn build(config: &Config, rtt0_ms: &u32) -> Self {
        LossBased::new(config, HyblaGrowth::new(*rtt0_ms))
    }

    fn setting(rtt0_ms: &u32, _: &str) -> Option<SettingValue> {
        Some(SettingValue::number(*rtt0_ms))
    }
}

fn read_rtt0<'a>(settings: &Settings<'a>, default: u32) -> Result<u32, BuildError<'a>> {
    settings.number("rtt0", default, 1, 10_000)
}

/// The reference round-trip time in milliseconds from `pairs` of key and value, or `default`.
///
/// # Errors
/// An unknown key or an invalid value; the error says what is accepted.
pub fn rtt0<'a>(pairs: &'a [(&'a str, &'a str)], default: u32) -> Result<u32, BuildError<'a>> {
    read_rtt0(&Settings::new(&Hybla::INFO, pairs)?, default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::CongestionControl;
    use fullpipe_units::Time;

    fn hybla(rtt_ms: u64) -> Hybla {
        let mut c = LossBased::new(&Config { smss: 1000, ..Config::default() }, HyblaGrowth::new(25));
        c.on_handshake(Time::ZERO, Span::from_millis(rtt_ms));
        c
    }

    /// ACKs of a packet each, `n` of them, with the window limiting.
    fn acks(c: &mut Hybla, n: u64, delivered: &mut u64) {
        for _ in 0..n {
            *delivered += 1000;
            c.on_ack(&Ack {
                newly_acked: 1000,
                delivered: *delivered,
                cwnd_limited: true,
                ..Ack::at(Time::ZERO)
            });
        }
    }

    #[test]
    fn rho_is_the_round_trip_time_over_25_ms_and_at_least_one() {
        for (rtt_ms, rho_8) in [(1, 8), (25, 8), (50, 16), (100, 32), (110, 35), (600, 192)] {
            assert_eq!(hybla(rtt_ms).growth().rho_8(), rho_8, "{rtt_ms} ms");
        }
    }

    #[test]
    fn the_first_window_is_rho() {
        assert_eq!(hybla(100).cwnd(), 4000);
        assert_eq!(hybla(5).cwnd(), 1000);
    }

    #[test]
    fn slow_start_adds_two_to_the_rho_less_one_per_ack() {
        // ρ = 2: three packets an ACK.
        let mut c = hybla(50);
        let before = c.cwnd();
        acks(&mut c, 10, &mut 0);
        assert_eq!(c.cwnd() - before, 30_000);
        // ρ = 1 1/8: 2^1.125 − 1 = 1.18 packets.
        let mut c = hybla(29);
        let before = c.cwnd();
        acks(&mut c, 100, &mut 0);
        let per_ack = (c.cwnd() - before) as f64 / 100_000.0;
        assert!((per_ack - (2f64.powf(9.0 / 8.0) - 1.0)).abs() < 0.02, "{per_ack}");
    }

    #[test]
    fn congestion_avoidance_adds_rho_squared_packets_a_round_trip() {
        for (rtt_ms, rho) in [(25, 1.0f64), (50, 2.0), (100, 4.0), (200, 8.0)] {
            let mut c = hybla(rtt_ms);
            let mut delivered = 0;
            while c.cwnd() < 1_000_000 {
                acks(&mut c, 1, &mut delivered);
            }
            let context =
                crate::control::RecoveryContext { now: Time::ZERO, inflight: 0, delivered, lost: 0 };
            c.on_recovery(crate::Recovery::EnterFast, &context);
            c.on_recovery(crate::Recovery::Exit, &context);
            let window = c.cwnd() / 1000;
            let before = c.cwnd();
            acks(&mut c, window, &mut delivered);
            let grown = (c.cwnd() - before) as f64 / 1000.0;
            assert!((grown - rho * rho).abs() <= 0.1 * rho * rho + 1.0, "ρ {rho}: {grown} packets");
        }
    }

    #[test]
    fn the_window_stops_at_the_modules_clamp() {
        let mut c = hybla(500);
        acks(&mut c, 10, &mut 0);
        assert_eq!(c.cwnd(), 65_535_000);
    }

    /// `hybla_state`: only `TCP_CA_Open` lets it grow by ρ, on a path that reorders, too.
    #[test]
    fn in_disorder_it_grows_as_reno() {
        let mut c = hybla(100);
        let mut delivered = 0;
        let mut ack = |c: &mut Hybla, recovery| {
            delivered += 1000;
            let before = c.cwnd();
            c.on_ack(&Ack {
                newly_acked: 1000,
                delivered,
                cwnd_limited: true,
                recovery,
                ..Ack::at(Time::ZERO)
            });
            (c.cwnd() - before) / 1000
        };
        // Disorder that resolves teaches it that the path reorders.
        ack(&mut c, RecoveryState::Disorder);
        assert_eq!(ack(&mut c, RecoveryState::Open), 15);
        assert_eq!(ack(&mut c, RecoveryState::Disorder), 1, "a packet an ACK, not fifteen");
        assert_eq!(ack(&mut c, RecoveryState::Open), 15);
    }

    #[test]
    fn outside_the_open_state_it_grows_as_reno() {
        let mut c = hybla(100);
        let mut delivered = 0;
        acks(&mut c, 4, &mut delivered);
        let context = RecoveryContext { now: Time::ZERO, inflight: 0, delivered, lost: 0 };
        c.on_recovery(crate::Recovery::EnterRto, &context);
        assert_eq!(c.cwnd(), 1000);
        acks(&mut c, 3, &mut delivered);
        assert_eq!(c.cwnd(), 4000, "a packet an ACK, not fifteen");
    }
}
