//! The C core of Hybla as the growth of a loss-based controller, so that it can be compared with
//! the Rust one and raced in the simulator.

use bytemuck::{Pod, Zeroable};
use fullpipe_cc::loss_based::{Growth, Window};
use fullpipe_cc::{Ack, RecoveryContext, RecoveryState};
use fullpipe_units::Span;

/// `struct hybla` of bpf/hybla.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[allow(missing_docs)] // bpf/hybla.h comments them.
pub struct HyblaState {
    pub snd_cwnd: u32,
    pub snd_cwnd_cnt: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd_clamp: u32,
    pub srtt_us: u32,
    pub is_limiting: u32,
    pub enabled: u32,
    pub cents: u32,
    pub rho_8: u32,
    pub rho2_128: u32,
    pub min_srtt: u32,
    pub rtt0_ms: u32,
}

/// The C core of Hybla: [`LossBased`](fullpipe_cc::loss_based::LossBased) makes a controller of it.
#[derive(Clone, Copy, Debug)]
pub struct HyblaGrowth {
    state: HyblaState,
}

const INIT: u32 = 0;
const CONG_AVOID: u32 = 1;

fn srtt_8us(srtt: Span) -> u32 {
    u32::try_from(srtt.as_nanos() / 125).unwrap_or(u32::MAX)
}

impl HyblaGrowth {
    /// With the kernel's reference round-trip time of 25 ms.
    pub fn new() -> Self {
        HyblaGrowth { state: HyblaState { enabled: 1, rtt0_ms: 25, ..HyblaState::default() } }
    }

    /// Everything the core knows.
    pub fn state(&self) -> &HyblaState {
        &self.state
    }

    fn call(&mut self, window: &mut Window, call: u32, acked: u32) {
        let s = &mut self.state;
        s.snd_cwnd = window.cwnd;
        s.snd_cwnd_cnt = window.cwnd_count;
        s.snd_ssthresh = window.ssthresh;
        s.snd_cwnd_clamp = window.clamp;
        // SAFETY: the state is exclusively borrowed and of the size that the C side expects (a test
        // compares them).
        unsafe { super::fp_native_hybla(&raw mut *s, call, acked) }
        window.cwnd = s.snd_cwnd;
        window.cwnd_count = s.snd_cwnd_cnt;
    }
}

impl Default for HyblaGrowth {
    fn default() -> Self {
        Self::new()
    }
}

impl Growth for HyblaGrowth {
    fn start(&mut self, window: &mut Window, srtt: Span) {
        self.state.srtt_us = srtt_8us(srtt);
        self.call(window, INIT, 0);
    }

    fn grow(&mut self, window: &mut Window, ack: &Ack, acked: u32) {
        self.state.srtt_us = window.srtt.map_or(0, srtt_8us);
        self.state.is_limiting = u32::from(window.is_limiting(ack));
        self.call(window, CONG_AVOID, acked);
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        // SAFETY: takes and gives a number.
        unsafe { super::fp_native_hybla_ssthresh(window.cwnd) }
    }

    fn set_state(&mut self, state: RecoveryState, _context: &RecoveryContext) {
        self.state.enabled = u32::from(state == RecoveryState::Open);
    }

    fn min_rtt(&self) -> Option<Span> {
        (self.state.min_srtt > 0).then(|| Span::from_nanos(u64::from(self.state.min_srtt) * 125))
    }
}
