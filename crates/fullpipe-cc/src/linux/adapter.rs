//! Calls a [`Module`] with what a transport of this crate reports.

use super::{AckSample, CaEvent, CaState, Module, Tcp};
use crate::control::{Ack, Config, RecoveryContext, RecoveryState};
use crate::forward_congestion_control;
use crate::jiffies::{HZ, Ticks};
use crate::loss_based::{Growth, LossBased, Window, WindowEvent};
use crate::packets::saturate;
use crate::random::Random;
use fullpipe_units::{Span, Time};

/// A controller by a [`Module`]. Its functions are not inlined: thirteen of them in the dispatch by
/// [`Controller`](crate::Controller) would slow the other controllers down.
#[derive(Clone, Copy, Debug)]
pub struct Modular<M>(LossBased<ModuleGrowth<M>>);

impl<M: Module> Modular<M> {
    /// A controller with Linux's default clock.
    pub(super) fn build(config: &Config, module: M) -> Self {
        Self::build_at(config, module, HZ)
    }

    /// A controller with a clock of `hz` ticks per second.
    pub(super) fn build_at(config: &Config, module: M, hz: u32) -> Self {
        Modular(LossBased::new(config, ModuleGrowth::new(module, hz, config.seed)))
    }
}

forward_congestion_control! {
    outlined impl[M: Module] for Modular<M> {
        Modular(controller) => *controller,
    }
}

/// Window growth by a [`Module`].
#[derive(Clone, Copy, Debug)]
struct ModuleGrowth<M> {
    module: M,
    ticks: Ticks,
    random: Random,
    /// The connection as of the last call.
    tcp: Tcp,
    /// Bytes delivered before the last ACK.
    delivered: u64,
    initialised: bool,
}

impl<M: Module> ModuleGrowth<M> {
    /// Growth of a new connection with a clock of `hz` ticks per second.
    fn new(module: M, hz: u32, seed: u64) -> Self {
        ModuleGrowth {
            module,
            ticks: Ticks::new(hz),
            random: Random::new(seed),
            tcp: Tcp::default(),
            delivered: 0,
            initialised: false,
        }
    }

    fn at(&mut self, now: Time) {
        self.tcp.mstamp_us = now.as_micros();
        self.tcp.jiffies = self.ticks.at(now);
        if M::RANDOM {
            self.tcp.random = self.random.below(u32::MAX);
        }
    }

    fn in_context(&mut self, context: &RecoveryContext) {
        self.at(context.now);
        self.sequence(context.delivered, context.inflight);
    }

    /// Sequence numbers in delivered bytes.
    fn sequence(&mut self, delivered: u64, inflight: u64) {
        self.tcp.snd_una = delivered as u32;
        self.tcp.snd_nxt = delivered.wrapping_add(inflight) as u32;
    }

    fn initialise(&mut self, window: &mut Window) {
        self.initialised = true;
        self.tcp.mss = window.smss();
        self.module.init(window, &self.tcp);
    }

    fn set_state(&mut self, window: &mut Window, state: CaState) {
        self.module.set_state(window, &self.tcp, state);
        self.tcp.state = state;
    }
}

impl<M: Module> Growth for ModuleGrowth<M> {
    fn start(&mut self, window: &mut Window, _srtt: Span) {
        self.initialise(window);
    }

    #[inline]
    fn on_acked(&mut self, window: &mut Window, ack: &Ack) {
        self.at(ack.now);
        if !self.initialised {
            // QUIC does not report the handshake.
            self.initialise(window);
        }
        self.sequence(ack.delivered, ack.inflight);
        let (before, now) = (window.packet_at(self.delivered), window.packet_at(ack.delivered));
        let packets = saturate(now.saturating_sub(before));
        self.delivered = ack.delivered;
        let tcp = &mut self.tcp;
        tcp.mss = window.smss();
        tcp.delivered = now as u32;
        tcp.delivered_ce = tcp.delivered_ce.wrapping_add(ack.ce_count);
        tcp.sacked_out = u32::from(matches!(ack.recovery, RecoveryState::Disorder | RecoveryState::Recovery));
        tcp.is_cwnd_limited = ack.cwnd_limited;
        tcp.max_packets_out = saturate(window.packets_in(ack.inflight_before));
        let rtt_us = ack.rtt.map_or(-1, |rtt| i32::try_from(rtt.as_micros()).unwrap_or(i32::MAX));
        // The peer's clock is not known: the round-trip time takes the place of the delay forward.
        tcp.rcv_tsval = (tcp.mstamp_us / 1000) as u32;
        if rtt_us >= 0 {
            tcp.rcv_tsecr = (tcp.mstamp_us.wrapping_sub(rtt_us as u64) / 1000) as u32;
        }
        let in_flight = if ack.sample.has_packet { saturate(ack.sample.delivered) } else { 0 };
        let sample = AckSample { pkts_acked: packets, rtt_us, in_flight };
        self.module.pkts_acked(window, &self.tcp, &sample);
        self.module.in_ack_event(&self.tcp, false);
    }

    #[inline]
    fn grow(&mut self, window: &mut Window, _ack: &Ack, acked: u32) {
        self.module.cong_avoid(window, &self.tcp, acked);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        self.module.ssthresh(window, &self.tcp)
    }

    fn ssthresh_at(&mut self, window: &Window, context: &RecoveryContext) -> u32 {
        self.in_context(context);
        self.ssthresh(window)
    }

    fn on_event(&mut self, window: &mut Window, event: WindowEvent, context: &RecoveryContext) {
        self.in_context(context);
        let event = match event {
            WindowEvent::TransmitStart => CaEvent::TxStart,
            WindowEvent::Restart => CaEvent::CwndRestart,
            WindowEvent::Timeout => CaEvent::Loss,
            WindowEvent::ReductionComplete => CaEvent::CompleteCwr,
            WindowEvent::StateCwr => return self.set_state(window, CaState::Cwr),
            WindowEvent::State(state) => {
                let state = match state {
                    RecoveryState::Open => CaState::Open,
                    RecoveryState::Disorder => CaState::Disorder,
                    RecoveryState::Recovery => CaState::Recovery,
                    RecoveryState::Loss => CaState::Loss,
                };
                return self.set_state(window, state);
            }
        };
        self.module.cwnd_event(window, &self.tcp, event);
    }

    fn backs_off(&mut self) -> bool {
        self.module.enters_cwr()
    }

    fn undo_cwnd(&mut self, window: &Window, prior: u32) -> u32 {
        self.module.undo_cwnd(window, prior)
    }

    fn min_rtt(&self) -> Option<Span> {
        self.module.min_rtt()
    }
}
