//! The C core of BBR v3 as a controller like any other, so that it can be compared with the Rust
//! one and raced in the simulator.

use crate::settings;
use bytemuck::{Pod, Zeroable};
use fullpipe_cc::bbr::v3::{Params, Variant};
use fullpipe_cc::{
    Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, RecoveryState, Sent, Snapshot,
};
use fullpipe_units::{Gain, Rate, Span, Time};

/// `struct bbr3` of bpf/bbr3.h, its inputs included.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[allow(missing_docs)] // The names are the draft's; bpf/bbr3.h comments them.
pub struct Bbr3State {
    pub now: u64,
    pub smss: u64,
    pub initial_cwnd: u64,
    pub inflight: u64,
    pub delivered: u64,
    pub lost: u64,
    pub srtt: u64,
    pub next_departure: u64,
    pub is_cwnd_limited: u8,
    pub recovery: u8,
    pub has_selective_acks: u8,
    spare_conn: [u8; 5],
    pub cwnd: u64,
    pub pacing_rate: u64,
    pub send_quantum: u64,

    pub rs_delivery_rate: u64,
    pub rs_delivered: u64,
    pub rs_prior_delivered: u64,
    pub rs_tx_in_flight: u64,
    pub rs_lost: u64,
    pub rs_newly_acked: u64,
    pub rs_newly_lost: u64,
    pub rs_rtt: u64,
    pub rs_lost_ranges: u32,
    pub rs_ce_count: u32,
    pub rs_is_app_limited: u8,
    pub rs_has_data: u8,
    pub rs_is_ack_delayed: u8,
    spare_sample: [u8; 5],

    pub extra_acked_filter: [[u64; 2]; 3],
    pub extra_acked_slots: [u64; 2],
    pub random: u64,
    pub max_bw_last: u64,
    pub max_bw_cycle: u64,
    pub bw: u64,
    pub bw_shortterm: u64,
    pub bw_latest: u64,
    pub min_rtt: u64,
    pub min_rtt_stamp: u64,
    pub probe_rtt_min_delay: u64,
    pub probe_rtt_min_stamp: u64,
    pub probe_rtt_done_stamp: u64,
    pub inflight_longterm: u64,
    pub inflight_shortterm: u64,
    pub inflight_latest: u64,
    pub extra_acked_interval_start: u64,
    pub extra_acked_delivered: u64,
    pub extra_acked: u64,
    pub next_round_delivered: u64,
    pub loss_round_delivered: u64,
    pub full_bw: u64,
    pub prior_cwnd: u64,
    pub cycle_stamp: u64,
    pub bw_probe_wait: u64,
    pub probe_up_acked_per_inc: u64,
    pub bw_probe_up_acked: u64,
    pub undo_bw_shortterm: u64,
    pub undo_inflight_shortterm: u64,
    pub undo_inflight_longterm: u64,
    pub ce_in_round: u64,
    pub round_count: u32,
    pub drain_start_round: u32,
    pub rounds_since_probe_up: u32,
    pub bw_probe_up_rounds: u32,
    pub lost_ranges_in_round: u32,
    pub full_bw_count: u32,
    pub extra_acked_slot_rounds: u32,
    pub pacing_gain: u16,
    pub cwnd_gain: u16,
    pub mode: u8,
    pub undo_mode: u8,
    pub ack_phase: u8,
    pub round_start: u8,
    pub loss_round_start: u8,
    pub is_loss_in_round: u8,
    pub full_bw_now: u8,
    pub full_bw_reached: u8,
    pub idle_restart: u8,
    pub probe_rtt_expired: u8,
    pub probe_rtt_round_done: u8,
    pub is_bw_probe_sample: u8,
    pub prev_probe_too_high: u8,
    pub prev_probe_precautionary: u8,
    pub has_rtt: u8,
    pub undo_saved: u8,
    pub marks_app_limited: u8,
    pub filter_advanced: u8,
    spare: [u8; 6],
    pub variant: u32,
    pub params: [u32; Params::COUNT],
}

/// `struct bbr3_lost`.
#[repr(C)]
pub(super) struct LostPacket {
    bytes: u64,
    tx_in_flight: u64,
    lost: u64,
    app_limited: u64,
}

/// `enum fp_bbr3_call`.
#[repr(u32)]
#[derive(Clone, Copy)]
enum Call {
    Init = 0,
    Restart = 1,
    Lost = 2,
    Ack = 3,
    EnterRecovery = 4,
    ExitRecovery = 5,
    Spurious = 6,
    EnterRto = 8,
}

const OPEN: u8 = 0;
const FAST_RECOVERY: u8 = 1;
const LOSS_RECOVERY: u8 = 2;
const INFINITE: u64 = u64::MAX;

/// The C core of BBR v3.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    state: Bbr3State,
    started: bool,
}

impl Bbr3 {
    /// A controller for a new connection.
    pub fn new(config: &Config, params: &Params) -> Self {
        Bbr3::with_word(config, params, 0)
    }

    /// The same for a variant; `None` for [`Variant::Letter`], which the C core does not have.
    pub fn with_variant(config: &Config, params: &Params, variant: Variant) -> Option<Self> {
        settings::variant_word(variant).map(|word| Bbr3::with_word(config, params, word))
    }

    fn with_word(config: &Config, params: &Params, variant: u32) -> Self {
        let mut state = Bbr3State::zeroed();
        state.smss = u64::from(config.smss.max(1));
        state.initial_cwnd = config.initial_cwnd.max(state.smss);
        state.cwnd = state.initial_cwnd;
        state.random = config.seed;
        state.variant = variant;
        state.params = params.to_words();
        state.has_selective_acks = u8::from(config.selective_acks);
        let mut bbr = Bbr3 { state, started: false };
        bbr.call(Call::Init);
        bbr
    }

    /// Everything the core knows.
    pub fn state(&self) -> &Bbr3State {
        &self.state
    }

    fn call(&mut self, call: Call) {
        // SAFETY: the state is exclusively borrowed and of the size that the C side expects (a test
        // compares them); only the call for a lost packet reads the third argument.
        unsafe { super::fp_native_bbr3(&raw mut self.state, call as u32, std::ptr::null()) }
    }

    /// The clocks of `OnInit()` start with the first event.
    fn start_clocks(&mut self, now: Time) {
        if !self.started {
            self.started = true;
            let now = now.as_nanos();
            self.state.min_rtt_stamp = now;
            self.state.probe_rtt_min_stamp = now;
            self.state.extra_acked_interval_start = now;
        }
    }
}

impl CongestionControl for Bbr3 {
    fn on_handshake(&mut self, now: Time, rtt: Span) {
        self.started = true;
        self.state.now = now.as_nanos();
        self.state.srtt = rtt.as_nanos();
        self.call(Call::Init);
    }

    fn on_send(&mut self, sent: &Sent) {
        self.start_clocks(sent.now);
        if sent.inflight == 0 && sent.app_limited {
            self.state.now = sent.now.as_nanos();
            self.state.delivered = sent.delivered;
            self.call(Call::Restart);
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.state.now = lost.now.as_nanos();
        self.state.delivered = lost.delivered;
        let packet = LostPacket {
            bytes: lost.bytes,
            tx_in_flight: lost.tx_in_flight,
            lost: lost.lost.saturating_sub(lost.lost_at_send),
            app_limited: u64::from(lost.app_limited),
        };
        // SAFETY: as in `call`; the packet lives through the call.
        unsafe { super::fp_native_bbr3(&raw mut self.state, Call::Lost as u32, &raw const packet) }
    }

    fn on_ack(&mut self, ack: &Ack) {
        self.start_clocks(ack.now);
        let s = &mut self.state;
        s.now = ack.now.as_nanos();
        s.inflight = ack.inflight;
        s.delivered = ack.delivered;
        s.lost = ack.lost;
        if s.srtt != 0 || ack.rtt.is_some() {
            s.srtt = ack.srtt.or(ack.rtt).map_or(s.srtt, Span::as_nanos);
        }
        s.next_departure = ack.next_departure.as_nanos();
        s.is_cwnd_limited = u8::from(ack.cwnd_limited);
        s.recovery = match ack.recovery {
            RecoveryState::Open | RecoveryState::Disorder => OPEN,
            RecoveryState::Recovery => FAST_RECOVERY,
            RecoveryState::Loss => LOSS_RECOVERY,
        };
        s.rs_delivery_rate = ack.sample.rate.map_or(0, Rate::as_bytes_per_sec);
        s.rs_delivered = ack.sample.delivered;
        s.rs_prior_delivered = ack.sample.prior_delivered;
        s.rs_tx_in_flight = ack.sample.tx_in_flight;
        s.rs_lost = ack.sample.lost;
        s.rs_newly_acked = ack.newly_acked;
        s.rs_newly_lost = ack.newly_lost;
        s.rs_rtt = ack.rtt.map_or(INFINITE, Span::as_nanos);
        s.rs_lost_ranges = ack.lost_ranges;
        s.rs_ce_count = ack.ce_count;
        s.rs_is_app_limited = u8::from(ack.sample.app_limited);
        s.rs_has_data = u8::from(ack.sample.has_packet);
        s.rs_is_ack_delayed = u8::from(ack.delayed);
        self.call(Call::Ack);
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        self.state.now = context.now.as_nanos();
        self.state.delivered = context.delivered;
        match event {
            Recovery::EnterFast => {
                self.call(Call::EnterRecovery);
                self.state.recovery = FAST_RECOVERY;
            }
            Recovery::EnterRto => {
                self.call(Call::EnterRto);
                self.state.recovery = LOSS_RECOVERY;
                self.state.cwnd = context.inflight + self.state.smss;
            }
            Recovery::Exit => {
                self.call(Call::ExitRecovery);
                self.state.recovery = OPEN;
            }
            Recovery::Spurious => {
                self.call(Call::Spurious);
                self.state.recovery = OPEN;
            }
            // The draft knows no other.
            _ => {}
        }
    }

    fn on_mtu(&mut self, smss: u32) {
        self.state.smss = u64::from(smss.max(1));
    }

    fn cwnd(&self) -> u64 {
        self.state.cwnd
    }

    fn ssthresh(&self) -> u64 {
        INFINITE
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(Rate::from_bytes_per_sec(self.state.pacing_rate))
    }

    fn send_quantum(&self) -> u64 {
        self.state.send_quantum
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn claims_ecn(&self) -> bool {
        Params::from_words(&self.state.params).ecn
    }

    fn marks_app_limited(&self) -> bool {
        self.state.marks_app_limited != 0
    }

    fn snapshot(&self) -> Snapshot {
        let s = &self.state;
        let bounded = |value: u64| (value != INFINITE).then_some(value);
        let max_bw = s.max_bw_last.max(s.max_bw_cycle);
        Snapshot {
            state: MODES.get(usize::from(s.mode)).copied().unwrap_or("?"),
            cwnd: s.cwnd,
            ssthresh: None,
            pacing_rate: self.pacing_rate(),
            bw: (max_bw > 0).then(|| Rate::from_bytes_per_sec(s.bw)),
            max_bw: Some(max_bw).filter(|&bw| bw > 0).map(Rate::from_bytes_per_sec),
            bw_shortterm: bounded(s.bw_shortterm).map(Rate::from_bytes_per_sec),
            min_rtt: bounded(s.min_rtt).map(Span::from_nanos),
            pacing_gain: Some(Gain::from_256ths(s.pacing_gain.into())),
            cwnd_gain: Some(Gain::from_256ths(s.cwnd_gain.into())),
            inflight_longterm: bounded(s.inflight_longterm),
            inflight_shortterm: bounded(s.inflight_shortterm),
            rounds: Some(s.round_count.into()),
        }
    }
}

/// `enum bbr3_mode`, by the names that recordings show.
pub(crate) const MODES: [&str; 7] =
    ["Startup", "Drain", "ProbeBW_DOWN", "ProbeBW_CRUISE", "ProbeBW_REFILL", "ProbeBW_UP", "ProbeRTT"];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    unsafe extern "C" {
        fn fp_native_bbr3_bytes_in(rate: u64, span: u64) -> u64;
        fn fp_native_bbr3_rate_of(bytes: u64, span: u64) -> u64;
    }

    const SECOND: u128 = 1_000_000_000;

    /// Numbers of every size up to `bits`.
    fn sized(bits: u32) -> impl Strategy<Value = u64> {
        (any::<u64>(), 64 - bits..64).prop_map(|(number, shift)| number >> shift)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8_000))]

        #[test]
        fn bytes_in_a_span_are_exact_whichever_way_they_are_divided(rate in sized(50), span in sized(45)) {
            let exact = u128::from(rate) * u128::from(span) / SECOND;
            prop_assume!(exact <= u128::from(u64::MAX));
            // SAFETY: takes and gives numbers.
            prop_assert_eq!(u128::from(unsafe { fp_native_bbr3_bytes_in(rate, span) }), exact);
        }

        #[test]
        fn a_rate_is_exact_whichever_way_it_is_divided(bytes in sized(50), span in sized(45)) {
            let span = span.max(1);
            let exact = u128::from(bytes) * SECOND / u128::from(span);
            prop_assume!(exact <= u128::from(u64::MAX));
            // SAFETY: takes and gives numbers.
            prop_assert_eq!(u128::from(unsafe { fp_native_bbr3_rate_of(bytes, span) }), exact);
        }
    }
}
