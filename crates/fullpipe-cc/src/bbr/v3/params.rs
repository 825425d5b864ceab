//! Constants of the draft (§ Core Algorithm Design Parameters and the sections that use them), and
//! what may be set.

use crate::{Gain, Span};

/// What a user of the controller may choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Whether Congestion Experienced marks count as losses in the model's bounds (draft § ECN).
    pub ecn: bool,
}

/// `StartupPacingGain`: 2.77, just above 4·ln 2.
pub(super) const STARTUP_PACING_GAIN: Gain = Gain::from_256ths(709);
/// `DrainPacingGain`: 0.5.
pub(super) const DRAIN_PACING_GAIN: Gain = Gain::from_256ths(128);
/// `ProbeDownPacingGain`: 0.90, rounded to the nearest 1/256.
pub(super) const PROBE_DOWN_PACING_GAIN: Gain = Gain::from_256ths(230);
/// Pacing gain of ProbeBW_UP: 1.25.
pub(super) const PROBE_UP_PACING_GAIN: Gain = Gain::from_256ths(320);
/// `DefaultCwndGain`: 2.
pub(super) const DEFAULT_CWND_GAIN: Gain = Gain::from_256ths(512);
/// Window gain of ProbeBW_UP: 2.25.
pub(super) const PROBE_UP_CWND_GAIN: Gain = Gain::from_256ths(576);
/// `ProbeRTTCwndGain`: 0.5.
pub(super) const PROBE_RTT_CWND_GAIN: Gain = Gain::from_256ths(128);

/// `PacingMarginPercent`: pace this far below the estimated bandwidth, to keep queues from standing.
pub(super) const PACING_MARGIN_PERCENT: u64 = 1;
/// 1/`LossThresh`: 2 % of what was in flight.
pub(super) const LOSS_THRESH_INVERSE: u64 = 50;
/// `Beta` = 0.7, as a fraction.
pub(super) const BETA: (u64, u64) = (7, 10);
/// `Headroom` = 0.15, as a fraction.
pub(super) const HEADROOM: (u64, u64) = (15, 100);
/// `MinPipeCwnd` in packets.
pub(super) const MIN_PIPE_CWND_PACKETS: u64 = 4;

/// Growth of the delivery rate that shows the pipe is not full yet: 1.25.
pub(super) const FULL_BW_GROWTH: Gain = Gain::from_256ths(320);
/// Rounds without that growth after which it is.
pub(super) const FULL_BW_ROUNDS: u8 = 3;
/// `StartupFullLossCnt`: lost ranges in a round that may end Startup.
pub(super) const STARTUP_FULL_LOSS_COUNT: u32 = 6;
/// Rounds after which Drain ends whatever is in flight.
pub(super) const DRAIN_ROUNDS: u64 = 3;

/// `ExtraAckedFilterLen` in rounds, once the pipe is full.
pub(super) const EXTRA_ACKED_FILTER_LEN: u32 = 10;
/// The same before.
pub(super) const EXTRA_ACKED_FILTER_LEN_STARTUP: u32 = 1;
/// `MinRTTFilterLen`.
pub(super) const MIN_RTT_FILTER_LEN: Span = Span::from_secs(10);
/// `ProbeRTTInterval`.
pub(super) const PROBE_RTT_INTERVAL: Span = Span::from_secs(5);
/// `ProbeRTTDuration`.
pub(super) const PROBE_RTT_DURATION: Span = Span::from_millis(200);

/// The least time between bandwidth probes; up to [`PROBE_WAIT_RANDOM`] is added.
pub(super) const PROBE_WAIT_BASE: Span = Span::from_secs(2);
/// Upper end of the random part of the time between bandwidth probes.
pub(super) const PROBE_WAIT_RANDOM: Span = Span::from_secs(1);
/// Most rounds between bandwidth probes (Reno coexistence).
pub(super) const PROBE_MAX_ROUNDS: u64 = 63;
/// Most doublings of the slope at which `inflight_longterm` grows.
pub(super) const PROBE_UP_MOST_DOUBLINGS: u32 = 30;
