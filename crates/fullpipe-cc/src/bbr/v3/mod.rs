//! BBR version 3, as in the IETF draft draft-ietf-ccwg-bbr. Bytes, rates and times as types of
//! their own.
//!
//! A file per state and concept, with the draft's function names in Rust spelling:
//! `state` is the machine and its edges, `startup`, `drain`, `probe_bw` and `probe_rtt` are its
//! states; `model` is the path model, `congestion` its response to loss, `full_pipe` the plateau
//! detector, `aggregation` the ACK-aggregation estimate, `undo` the response to spurious losses,
//! and `output` computes pacing rate, quantum and window.
//!
//! # Decisions where the draft is open
//! 1. ProbeBW gains are set at each change of state from the draft's summary table (§ Summary of
//!    Control Behavior in the State Machine); the pseudocode leaves them unset.
//! 2. Startup's high-loss exit counts contiguous lost ranges on each ACK and judges at the end of a
//!    loss round in fast recovery, as Google's v3 for Linux does.
//! 3. The bound of the Reno-coexistence probe is in packets: `TargetInflight()` is divided by SMSS
//!    before it is compared with rounds.
//! 4. `lost_prefix` is clamped at zero: losses before the packet may exceed the threshold already.
//! 5. The initial pacing rate is computed again at the first round-trip sample, so that a flow that
//!    is application-limited from the start is paced according to the path.
//! 6. A restart from idle also zeroes `extra_acked_delivered`, which belongs to the interval that
//!    the draft restarts there.
//! 7. The max-bandwidth filter advances only when its current slot has a sample: two cycles without
//!    one would otherwise forget the bandwidth.
//! 8. Every variable is initialised; `min_rtt`'s and ProbeRTT's clocks start with the connection.
//! 9. State for undo is saved once a recovery episode, at its first loss. The draft saves again at
//!    the first loss of each round and at `OnEnterFastRecovery()`, which would overwrite both the
//!    values from before the episode and `undo_state` with what the episode itself has changed.
//! 10. A packet marked Congestion Experienced counts as lost in the model's bounds (the draft:
//!     "MUST treat any CE marks as congestion", without details). A round with as many marked
//!     packets as ranges may be lost, and more than LossThresh, ends Startup. Marks save no undo
//!     state: they cannot be spurious.
//! 11. In `IsTimeToGoDown()`, inflight has reached `inflight_longterm` when another full packet
//!     would not have fit before this ACK. The draft compares what is in flight after the ACK, in
//!     bytes, with a bound that the window obeys: that is hardly ever equal, and precautionary
//!     probes would never end early.
//! 12. An ACK that acknowledges nothing new gives no sample and does not update model or states;
//!     pacing rate, quantum and window are still set, so that a restored window is bounded
//!     immediately.

mod aggregation;
mod congestion;
mod drain;
mod full_pipe;
mod idle;
mod model;
mod output;
mod params;
mod probe_bw;
mod probe_rtt;
mod startup;
mod state;
mod undo;
mod variant;
#[cfg(test)]
mod variant_tests;
mod volume;

pub use params::Params;
pub use state::State;
use variant::Departure;
pub use variant::Variant;

use crate::random::Random;
use crate::registry::{Build, BuildError, ControllerInfo, SettingValue, Settings};
use crate::{
    Ack, Config, CongestionControl, Lost, Rate, RateSample, Recovery, RecoveryContext, RecoveryState, Sent,
    Snapshot, Span, Time,
};
use aggregation::Aggregation;
use congestion::Congestion;
use full_pipe::FullPipe;
use model::Model;
use output::Output;
use probe_bw::Cycle;
use probe_rtt::ProbeRtt;
use undo::Undo;
use volume::Bytes;

/// The draft's `C` and `RS` for the current ACK.
#[derive(Clone, Copy)]
struct Now {
    time: Time,
    sample: RateSample,
    /// `RS.delivery_rate`; zero without a valid sample.
    delivery_rate: Rate,
    newly_acked: Bytes,
    inflight: Bytes,
    delivered: Bytes,
    cwnd_limited: bool,
    /// Whether the receiver may have delayed the ACK.
    delayed: bool,
    /// The earliest departure time of the next packet.
    next_departure: Time,
}

impl Now {
    /// `RS.prior_delivered`.
    fn prior_delivered(&self) -> Bytes {
        Bytes(self.sample.prior_delivered)
    }

    /// `RS.delivered`.
    fn sample_delivered(&self) -> Bytes {
        Bytes(self.sample.delivered)
    }

    /// `RS.tx_in_flight`.
    fn tx_in_flight(&self) -> Bytes {
        Bytes(self.sample.tx_in_flight)
    }
}

/// A BBR v3 controller.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    params: Params,
    variant: Variant,
    as_drafted: Option<Departure>,
    smss: Bytes,
    initial_cwnd: Bytes,
    random: Random,
    started: bool,
    /// `C.has_selective_acks`.
    selective_acks: bool,
    state: State,
    recovery: RecoveryState,
    drain_start_round: u64,
    idle_restart: bool,
    srtt: Option<Span>,
    model: Model,
    full_pipe: FullPipe,
    congestion: Congestion,
    aggregation: Aggregation,
    cycle: Cycle,
    probe_rtt: ProbeRtt,
    undo: Undo,
    out: Output,
}

impl Bbr3 {
    /// `OnInit()`.
    pub fn new(config: &Config, params: Params) -> Self {
        Bbr3::with_variant(config, params, Variant::Draft)
    }

    /// `OnInit()` of a variant.
    pub fn with_variant(config: &Config, params: Params, variant: Variant) -> Self {
        let smss = Bytes(u64::from(config.smss.max(1)));
        let mut bbr = Bbr3 {
            params,
            variant,
            as_drafted: None,
            smss,
            initial_cwnd: Bytes(config.initial_cwnd).max(smss),
            random: Random::new(config.seed),
            started: false,
            selective_acks: config.selective_acks,
            state: State::Startup,
            recovery: RecoveryState::Open,
            drain_start_round: 0,
            idle_restart: false,
            srtt: None,
            model: Model::default(),
            full_pipe: FullPipe::default(),
            congestion: Congestion::default(),
            aggregation: Aggregation::default(),
            cycle: Cycle::default(),
            probe_rtt: ProbeRtt::default(),
            undo: Undo::default(),
            out: Output::default(),
        };
        bbr.out.cwnd = bbr.initial_cwnd;
        bbr.enter(State::Startup);
        bbr.init_pacing_rate();
        bbr
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Starts the clocks that `OnInit()` sets to `Now()`.
    fn start_clocks(&mut self, now: Time) {
        if !self.started {
            self.started = true;
            self.model.min_rtt_stamp = now;
            self.probe_rtt.min_stamp = now;
            self.aggregation.interval_start = now;
        }
    }

    /// `UpdateModelAndState()`.
    fn update_model_and_state(&mut self, now: &Now, ack: &Ack) {
        self.update_latest_delivery_signals(now);
        self.update_congestion_signals(now);
        self.update_ack_aggregation(now);
        self.check_full_bw_reached(now);
        self.check_startup_done(now, ack);
        self.check_drain_done(now);
        self.update_probe_bw_cycle_phase(now);
        self.update_min_rtt(now, ack.rtt);
        self.check_probe_rtt(now);
        self.advance_latest_delivery_signals(now);
        self.bound_bw_for_model();
    }

    /// `UpdateControlParameters()`.
    fn update_control_parameters(&mut self, now: &Now) {
        self.set_pacing_rate();
        self.set_send_quantum();
        self.set_cwnd(now);
    }
}

/// The draft revision that BBR v3 follows.
pub const DRAFT_REVISION: &str = "draft-ietf-ccwg-bbr-06";

/// The date of [`DRAFT_REVISION`].
pub const DRAFT_DATE: &str = "2026-07-06";

/// The last commit of the draft's repository whose pseudocode was compared with this module:
/// `ci/draft-pseudocode.sha256` lists it, and `scripts/draft-changes` compares a newer text.
pub const DRAFT_COMMIT: &str = "4ce5e87d5f58c34c8fae283367b41913d110b73a";

const INFO: ControllerInfo = ControllerInfo {
    name: "bbr3",
    aliases: &["bbrv3", "bbr-v3"],
    kernel: Some("fp_bbr3"),
    about: "BBR v3 (IETF draft): like v1, but backs off after loss; shares better with CUBIC",
    settings: &params::ALL_SETTINGS,
};

impl Build for Bbr3 {
    const INFO: ControllerInfo = INFO;

    type Params = Spec;

    fn parse<'a>(settings: Settings<'a>) -> Result<Spec, BuildError<'a>> {
        let variant = settings.choice("variant", Variant::Draft, Variant::CHOICES)?;
        Ok(Spec {
            variant,
            as_drafted: settings.choice("as_drafted", None, Departure::CHOICES)?,
            params: Params::build(variant, &settings)?,
        })
    }

    fn build(config: &Config, spec: &Spec) -> Self {
        Bbr3 { as_drafted: spec.as_drafted, ..Bbr3::with_variant(config, spec.params, spec.variant) }
    }

    fn setting(spec: &Spec, key: &str) -> Option<SettingValue> {
        fn word<T: PartialEq>(choices: &[(&'static str, T)], choice: &T) -> Option<SettingValue> {
            let found = choices.iter().find(|(_, one)| one == choice);
            found.map(|&(word, _)| SettingValue::Word(word))
        }
        match key {
            "variant" => word(Variant::CHOICES, &spec.variant),
            "as_drafted" => word(Departure::CHOICES, &spec.as_drafted),
            _ if !spec.variant.uses(key) => None,
            // A variant brings its own defaults.
            _ => {
                let values = spec.params.setting_values();
                let defaults = spec.variant.defaults().setting_values();
                let changed = values.into_iter().zip(defaults).find(|((one, _), _)| *one == key);
                changed.filter(|((_, value), (_, default))| value != default).map(|((_, value), _)| value)
            }
        }
    }
}

/// What a BBR v3 controller is built from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spec {
    /// The variant.
    pub variant: Variant,
    /// Its parameters.
    pub params: Params,
    as_drafted: Option<Departure>,
}

impl Spec {
    /// The draft with `params`.
    pub fn new(params: Params) -> Self {
        Spec { params, ..Spec::default() }
    }
}

impl From<Params> for Spec {
    fn from(params: Params) -> Self {
        Spec::new(params)
    }
}

impl CongestionControl for Bbr3 {
    fn on_handshake(&mut self, now: Time, rtt: Span) {
        self.start_clocks(now);
        self.model.min_rtt = Some(rtt);
        self.probe_rtt.min_delay = Some(rtt);
        self.srtt = Some(rtt);
        self.init_pacing_rate();
    }

    /// `OnTransmit()`.
    fn on_send(&mut self, sent: &Sent) {
        self.start_clocks(sent.now);
        if sent.inflight == 0 && sent.app_limited {
            self.handle_restart_from_idle(sent.now, Bytes(sent.delivered));
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.handle_lost_packet(lost);
    }

    /// `UpdateOnACK()`.
    fn on_ack(&mut self, ack: &Ack) {
        self.start_clocks(ack.now);
        self.recovery = ack.recovery;
        if self.srtt.is_none() && ack.rtt.is_some() {
            self.srtt = ack.srtt.or(ack.rtt);
            if !self.is_as_drafted(Departure::PacingRate) {
                self.init_pacing_rate();
            }
        }
        self.srtt = ack.srtt.or(self.srtt);
        let now = Now {
            time: ack.now,
            sample: ack.sample,
            delivery_rate: ack.sample.rate.unwrap_or(Rate::ZERO),
            newly_acked: Bytes(ack.newly_acked),
            inflight: Bytes(ack.inflight),
            delivered: Bytes(ack.delivered),
            cwnd_limited: ack.cwnd_limited,
            delayed: ack.delayed,
            next_departure: ack.next_departure,
        };
        // Google's v3 negotiates ECN but ignores marks, except on routes with ECN_LOW.
        if self.params.ecn && ack.ce_count > 0 && !self.is_linux() {
            self.handle_ce_marks(ack, &now);
        }
        self.probe_rtt.handled_ack = self.state == State::ProbeRtt;
        if now.sample.has_packet || self.is_as_drafted(Departure::EmptyAcks) {
            self.update_model_and_state(&now, ack);
        }
        self.update_control_parameters(&now);
    }

    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
        match event {
            Recovery::EnterFast => self.on_enter_fast_recovery(),
            Recovery::EnterRto => self.on_enter_rto(context),
            Recovery::Exit => self.on_exit_recovery(),
            Recovery::Spurious => self.handle_spurious_loss_detection(context),
        }
    }

    fn on_mtu(&mut self, smss: u32) {
        self.smss = Bytes(u64::from(smss.max(1)));
        self.out.cwnd = self.out.cwnd.max(self.smss);
    }

    fn cwnd(&self) -> u64 {
        self.out.cwnd.0
    }

    fn ssthresh(&self) -> u64 {
        u64::MAX
    }

    fn pacing_rate(&self) -> Option<Rate> {
        Some(self.out.pacing_rate)
    }

    fn send_quantum(&self) -> u64 {
        self.out.send_quantum.0
    }

    fn uses_prr(&self) -> bool {
        false
    }

    fn claims_ecn(&self) -> bool {
        self.params.ecn
    }

    fn marks_app_limited(&self) -> bool {
        self.probe_rtt.handled_ack
    }

    fn state(&self) -> &'static str {
        self.state.name()
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: self.state.name(),
            cwnd: self.out.cwnd.0,
            ssthresh: None,
            pacing_rate: self.pacing_rate(),
            bw: (self.model.max_bw() > Rate::ZERO).then_some(self.model.bw),
            max_bw: Some(self.model.max_bw()).filter(|&bw| bw > Rate::ZERO),
            bw_shortterm: Some(self.model.bw_shortterm).filter(|&bw| bw != Rate::MAX),
            min_rtt: self.model.min_rtt,
            pacing_gain: Some(self.out.pacing_gain),
            cwnd_gain: Some(self.out.cwnd_gain),
            inflight_longterm: self.model.inflight_longterm.finite(),
            inflight_shortterm: self.model.inflight_shortterm.finite(),
            rounds: Some(self.model.round_count),
        }
    }
}
