//! Veno (Fu & Liew, "TCP Veno: TCP Enhancement for Transmission Over Wireless Access Networks",
//! 2003), as in Linux `net/ipv4/tcp_veno.c`: Vegas' estimate of the queue decides whether a loss is
//! random (a fifth less) or from congestion (a half), and slows growth on a full queue.

use super::{AckSample, CaEvent, CaState, Modular, Module, Tcp, half, micros};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Settings};
use fullpipe_units::Span;

/// Queues count in half packets.
const SHIFT: u32 = 1;
/// A queue of three packets is congestion (β).
const MAX_QUEUE: u32 = 3 << SHIFT;
/// No round-trip time.
const NO_RTT: u32 = 0x7fff_ffff;

/// Veno's window.
#[derive(Clone, Copy, Debug)]
pub struct VenoModule {
    active: bool,
    samples: u16,
    /// Minimum since the last growth in µs, plus one.
    min_rtt: u32,
    /// Minimum of the connection in µs, plus one.
    base_rtt: u32,
    /// Whether the next full window of ACKs grows the window: every second one, on a full queue.
    increases: bool,
    /// Queued half packets.
    queue: u32,
}

impl Default for VenoModule {
    fn default() -> Self {
        VenoModule { active: true, samples: 0, min_rtt: NO_RTT, base_rtt: NO_RTT, increases: true, queue: 0 }
    }
}

impl VenoModule {
    /// `tcp_veno_init`: keeps the number of samples and the queue.
    fn restart(&mut self) {
        *self = VenoModule { samples: self.samples, queue: self.queue, ..VenoModule::default() };
    }

    fn grow(&mut self, window: &mut Window, acked: u32) {
        let cwnd = window.cwnd;
        let target = (u64::from(cwnd).wrapping_mul(u64::from(self.base_rtt)) << SHIFT)
            / u64::from(self.min_rtt.max(1));
        self.queue = (cwnd << SHIFT).wrapping_sub(target as u32);
        let acked = window.rest_of_slow_start(acked);
        if acked > 0 {
            if self.queue < MAX_QUEUE {
                window.additive_increase(window.cwnd, acked);
            } else if window.cwnd_count >= window.cwnd {
                if self.increases && window.cwnd < window.clamp {
                    window.cwnd += 1;
                    self.increases = false;
                } else {
                    self.increases = true;
                }
                window.cwnd_count = 0;
            } else {
                window.cwnd_count = window.cwnd_count.saturating_add(acked);
            }
        }
        window.cwnd = window.cwnd.min(window.clamp).max(2);
    }
}

impl Module for VenoModule {
    fn init(&mut self, _: &mut Window, _: &Tcp) {
        self.restart();
    }

    fn pkts_acked(&mut self, _: &mut Window, _: &Tcp, sample: &AckSample) {
        let Ok(rtt) = u32::try_from(sample.rtt_us) else { return };
        let rtt = rtt + 1;
        self.base_rtt = self.base_rtt.min(rtt);
        self.min_rtt = self.min_rtt.min(rtt);
        self.samples = self.samples.wrapping_add(1);
    }

    fn set_state(&mut self, _: &mut Window, _: &Tcp, state: CaState) {
        self.active = state == CaState::Open;
        if self.active {
            self.min_rtt = NO_RTT;
        }
    }

    fn cwnd_event(&mut self, _: &mut Window, _: &Tcp, event: CaEvent) {
        if matches!(event, CaEvent::CwndRestart | CaEvent::TxStart) {
            self.restart();
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !self.active {
            tcp.reno(window, acked);
            return;
        }
        if !tcp.is_limiting(window) {
            return;
        }
        if self.samples <= 2 {
            tcp.reno(window, acked);
        } else {
            self.grow(window, acked);
        }
        self.min_rtt = NO_RTT;
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        if self.queue < MAX_QUEUE { (window.cwnd.wrapping_mul(4) / 5).max(2) } else { half(window) }
    }

    fn min_rtt(&self) -> Option<Span> {
        micros(self.base_rtt, NO_RTT)
    }
}

/// The Veno controller.
pub type Veno = Modular<VenoModule>;

impl Build for Veno {
    const INFO: ControllerInfo = ControllerInfo {
        name: "veno",
        aliases: &[],
        kernel: Some("veno"),
        about: "Veno: Reno that loses a fifth on loss while the queue is short; for wireless links",
        settings: &[],
    };

    type Params = ();

    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }

    fn build(config: &Config, (): &()) -> Self {
        Modular::build(config, VenoModule::default())
    }
}
