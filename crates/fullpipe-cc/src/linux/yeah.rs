//! YeAH (Baiocchi, Castellani & Vacirca, "YeAH-TCP: Yet Another Highspeed TCP", 2007), as in Linux
//! `net/ipv4/tcp_yeah.c`: grows as Scalable TCP while the queue is short and as Reno otherwise, and
//! drains a queue of more than eighty packets before it overflows.

use super::scalable::ACKS_PER_INCREASE;
use super::vegas::Rounds;
use super::{AckSample, CaEvent, CaState, Modular, Module, Tcp, micros};
use crate::control::Config;
use crate::loss_based::Window;
use crate::registry::{Build, BuildError, ControllerInfo, Settings};
use fullpipe_units::Span;

/// Queued packets above which the window is reduced (α).
const MAX_QUEUE: u32 = 80;
/// The window halves at most, per reduction (ε).
const MAX_REDUCTION_SHIFT: u32 = 1;
/// A loss takes at least an eighth (δ).
const MIN_REDUCTION_SHIFT: u32 = 3;
/// Queueing delay of 1/8 of the minimum round-trip time makes a path congested (φ).
const MAX_DELAY_SHARE: u32 = 8;
/// Congested rounds after which a loss halves the window (ρ).
const SLOW_ROUNDS: u32 = 16;
/// Uncongested rounds after which competing Reno flows are presumed gone (ζ).
const FAST_ROUNDS: u32 = 50;
/// `0xffff_ffff / 128`: products with the window must fit.
pub(super) const CLAMP: u32 = u32::MAX / 128;

/// YeAH's window.
#[derive(Clone, Copy, Debug)]
pub struct YeahModule {
    rounds: Rounds,
    /// Packets queued in the last round.
    queue: u32,
    /// Consecutive congested rounds; 0 in the fast mode.
    slow_rounds: u32,
    /// Estimate of a competing Reno flow's window.
    reno_count: u32,
    fast_rounds: u32,
}

impl Default for YeahModule {
    fn default() -> Self {
        YeahModule { rounds: Rounds::new(), queue: 0, slow_rounds: 0, reno_count: 2, fast_rounds: 0 }
    }
}

impl YeahModule {
    /// The end of a round.
    fn adjust(&mut self, window: &mut Window) {
        let (rtt, base) = (self.rounds.min_rtt, self.rounds.base_rtt);
        let delay = rtt.wrapping_sub(base);
        let queue = (u64::from(window.cwnd).wrapping_mul(u64::from(delay)) / u64::from(rtt.max(1))) as u32;
        if queue > MAX_QUEUE || delay > base / MAX_DELAY_SHARE {
            if queue > MAX_QUEUE && window.cwnd > self.reno_count {
                let reduction = queue.min(window.cwnd >> MAX_REDUCTION_SHIFT);
                window.cwnd = (window.cwnd - reduction).max(self.reno_count);
                window.ssthresh = window.cwnd;
            }
            if self.reno_count <= 2 {
                self.reno_count = (window.cwnd >> 1).max(2);
            } else {
                self.reno_count = self.reno_count.wrapping_add(1);
            }
            self.slow_rounds = (self.slow_rounds + 1).min(0xff_ffff);
        } else {
            self.fast_rounds = self.fast_rounds.wrapping_add(1);
            if self.fast_rounds > FAST_ROUNDS {
                self.reno_count = 2;
                self.fast_rounds = 0;
            }
            self.slow_rounds = 0;
        }
        self.queue = queue;
    }
}

impl Module for YeahModule {
    fn init(&mut self, window: &mut Window, tcp: &Tcp) {
        // `init` leaves the count of fast rounds alone.
        *self = YeahModule { fast_rounds: self.fast_rounds, ..YeahModule::default() };
        self.rounds.init(tcp);
        window.clamp = window.clamp.min(CLAMP);
    }

    fn pkts_acked(&mut self, _: &mut Window, _: &Tcp, sample: &AckSample) {
        self.rounds.pkts_acked(sample);
    }

    fn set_state(&mut self, _: &mut Window, tcp: &Tcp, state: CaState) {
        self.rounds.set_state(tcp, state);
    }

    fn cwnd_event(&mut self, _: &mut Window, tcp: &Tcp, event: CaEvent) {
        if matches!(event, CaEvent::CwndRestart | CaEvent::TxStart) {
            self.rounds.init(tcp);
        }
    }

    fn cong_avoid(&mut self, window: &mut Window, tcp: &Tcp, acked: u32) {
        if !tcp.is_limiting(window) {
            return;
        }
        let acked = window.rest_of_slow_start(acked);
        if acked > 0 {
            let fast = self.slow_rounds == 0;
            let limit = if fast { ACKS_PER_INCREASE } else { u32::MAX };
            window.additive_increase(window.cwnd.min(limit), acked);
        }
        if self.rounds.ends(tcp) {
            if self.rounds.samples > 2 {
                self.adjust(window);
            }
            self.rounds.restart(tcp);
        }
    }

    fn ssthresh(&mut self, window: &Window, _: &Tcp) -> u32 {
        let half = (window.cwnd >> 1).max(2);
        let reduction = if self.slow_rounds < SLOW_ROUNDS {
            self.queue.min(half).max(window.cwnd >> MIN_REDUCTION_SHIFT)
        } else {
            half
        };
        self.fast_rounds = 0;
        self.reno_count = (self.reno_count >> 1).max(2);
        (window.cwnd.wrapping_sub(reduction) as i32).max(2) as u32
    }

    fn min_rtt(&self) -> Option<Span> {
        micros(self.rounds.base_rtt, Rounds::new().base_rtt)
    }
}

/// The YeAH controller.
pub type Yeah = Modular<YeahModule>;

impl Build for Yeah {
    const INFO: ControllerInfo = ControllerInfo {
        name: "yeah",
        aliases: &[],
        kernel: Some("yeah"),
        about: "YeAH: grows as Scalable TCP while the queue is short, as Reno otherwise",
        settings: &[],
    };

    type Params = ();

    fn parse<'a>(_: Settings<'a>) -> Result<(), BuildError<'a>> {
        Ok(())
    }

    fn build(config: &Config, (): &()) -> Self {
        Modular::build(config, YeahModule::default())
    }
}
