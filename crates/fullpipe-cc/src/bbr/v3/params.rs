//! Constants of the draft (§ Core Algorithm Design Parameters and the sections that use them) as
//! parameters; the defaults are the draft's.

use super::INFO;
use super::variant::{AS_DRAFTED, VARIANT, Variant};
use super::volume::Bytes;
use crate::registry::{BuildError, ControllerInfo, Setting, SettingValue, Settings};
use crate::{Gain, Rate, Span};

/// Limit on the doublings of the slope at which `inflight_longterm` grows
/// (`RaiseInflightLongtermSlope()`).
pub(super) const PROBE_UP_MAX_DOUBLINGS: u32 = 30;

macro_rules! params {
    ($(
        $name:ident: $default:literal = $text:literal of 1/$unit:literal, $least:literal..=$most:literal,
            $about:literal;
    )+) => {
        /// Parameters of BBR v3. Each value is in the given unit: gains in 1/256, shares in percent or per
        /// mille, times in milliseconds.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Params {
            /// Whether to use ECN: Congestion Experienced marks then count as losses in the model's bounds
            /// (draft § ECN). Otherwise the transport must not negotiate ECN.
            pub ecn: bool,
            /// Whether the filter of `max_bw` advances when DOWN is left without having advanced; the draft
            /// waits for a round that was not application-limited, which on slow paths does not come
            /// (`docs/explanation/draft-notes.md`).
            pub advance_on_leaving_down: bool,
            $(
                #[doc = concat!($about, "; in 1/", stringify!($unit), ".")]
                pub $name: u32,
            )+
        }

        impl Params {
            /// The draft's values.
            pub const DRAFT: Params =
                Params { ecn: true, advance_on_leaving_down: false, $($name: $default,)+ };

            /// The settings of the parameters, in the order of the fields.
            pub const SETTINGS: &[Setting] = &[
                Setting {
                    key: "ecn",
                    values: "on or off",
                    default: "on",
                    about: "use ECN: treat Congestion Experienced marks as losses in the model's bounds",
                },
                Setting {
                    key: "advance_on_leaving_down",
                    values: "on or off",
                    default: "off",
                    about: "discard the previous cycle's bandwidth on leaving DOWN, without the draft's \
                            conditions",
                },
                $(Setting {
                    key: stringify!($name),
                    values: concat!("a number from ", $least, " to ", $most, " in steps of 1/", $unit),
                    default: $text,
                    about: $about,
                },)+
            ];

            /// Number of parameters.
            pub const COUNT: usize = Self::SETTINGS.len();

            /// These parameters with `settings` applied.
            fn read<'a>(&self, settings: &Settings<'a>) -> Result<Self, BuildError<'a>> {
                Ok(Params {
                    ecn: settings.switch("ecn", self.ecn)?,
                    advance_on_leaving_down: settings
                        .switch("advance_on_leaving_down", self.advance_on_leaving_down)?,
                    $($name: settings
                        .decimal(stringify!($name), self.$name, $unit, $least * $unit, $most * $unit)?,)+
                })
            }

            /// Encodes the parameters as numbers, in the order of [`SETTINGS`](Self::SETTINGS); switches
            /// are 0 or 1.
            pub fn to_words(&self) -> [u32; Self::COUNT] {
                [u32::from(self.ecn), u32::from(self.advance_on_leaving_down), $(self.$name,)+]
            }

            /// Decodes the result of [`to_words`](Self::to_words).
            pub fn from_words(words: &[u32; Self::COUNT]) -> Self {
                let [ecn, advance_on_leaving_down, $($name,)+] = *words;
                Params { ecn: ecn != 0, advance_on_leaving_down: advance_on_leaving_down != 0, $($name,)+ }
            }

            /// Each setting's key and value, in the same order.
            pub fn setting_values(&self) -> [(&'static str, SettingValue); Self::COUNT] {
                [
                    ("ecn", SettingValue::Switch(self.ecn)),
                    ("advance_on_leaving_down", SettingValue::Switch(self.advance_on_leaving_down)),
                    $((stringify!($name), SettingValue::Parts { count: self.$name, of: $unit }),)+
                ]
            }
        }
    };
}

params! {
    startup_pacing_gain: 709 = "2.77" of 1/256, 1..=16, "pacing gain of Startup: just above 4·ln 2";
    startup_cwnd_gain: 512 = "2" of 1/256, 1..=16, "window gain of Startup";
    drain_pacing_gain: 128 = "0.5" of 1/256, 0..=1, "pacing gain of Drain";
    default_cwnd_gain: 512 = "2" of 1/256, 1..=16, "window gain of Drain, DOWN, CRUISE and REFILL";
    probe_down_pacing_gain: 230 = "0.9" of 1/256, 0..=1, "pacing gain of ProbeBW_DOWN";
    probe_cruise_pacing_gain: 256 = "1" of 1/256, 0..=2, "pacing gain of ProbeBW_CRUISE";
    probe_refill_pacing_gain: 256 = "1" of 1/256, 0..=2, "pacing gain of ProbeBW_REFILL";
    probe_up_pacing_gain: 320 = "1.25" of 1/256, 1..=16, "pacing gain of ProbeBW_UP";
    probe_up_cwnd_gain: 576 = "2.25" of 1/256, 1..=16, "window gain of ProbeBW_UP";
    probe_rtt_pacing_gain: 256 = "1" of 1/256, 0..=2, "pacing gain of ProbeRTT";
    probe_rtt_cwnd_gain: 128 = "0.5" of 1/256, 0..=1, "window gain of ProbeRTT";
    pacing_margin_percent: 1 = "1" of 1/1, 0..=50,
        "how far below the estimated bandwidth to pace, in percent";
    loss_thresh_permille: 20 = "20" of 1/1, 1..=999, "tolerated loss as a share of inflight, in per mille";
    beta_percent: 70 = "70" of 1/1, 1..=100,
        "factor applied to short-term bounds after a lossy round, in percent";
    headroom_percent: 15 = "15" of 1/1, 0..=99,
        "share of inflight_longterm left to others in CRUISE, in percent";
    min_pipe_cwnd_packets: 4 = "4" of 1/1, 1..=1000, "minimum window in packets";
    full_bw_growth: 320 = "1.25" of 1/256, 1..=16,
        "growth of the delivery rate below which the pipe may be full";
    full_bw_rounds: 3 = "3" of 1/1, 1..=100, "rounds without that growth until the pipe counts as full";
    startup_full_loss_count: 6 = "6" of 1/1, 1..=1000, "lost ranges in a round that may end Startup";
    drain_rounds: 3 = "3" of 1/1, 1..=100, "rounds after which Drain ends in any case";
    extra_acked_rounds: 10 = "10" of 1/1, 1..=1000,
        "length of the ACK-aggregation filter in rounds, once the pipe is full";
    min_rtt_filter_ms: 10_000 = "10000" of 1/1, 1..=3_600_000, "length of the min_rtt filter, in ms";
    probe_rtt_interval_ms: 5_000 = "5000" of 1/1, 1..=3_600_000, "interval of ProbeRTT, in ms";
    probe_rtt_duration_ms: 200 = "200" of 1/1, 0..=10_000, "minimum time in ProbeRTT, in ms";
    probe_wait_base_ms: 2_000 = "2000" of 1/1, 0..=3_600_000, "minimum wait between bandwidth probes, in ms";
    probe_wait_random_ms: 1_000 = "1000" of 1/1, 0..=3_600_000, "maximum random addition to that wait, in ms";
    probe_max_rounds: 63 = "63" of 1/1, 1..=100_000,
        "maximum rounds between bandwidth probes (Reno coexistence)";
}

/// All settings of `bbr3`: the variant, the deviation to undo, then the parameters.
pub(super) const ALL_SETTINGS: [Setting; Params::COUNT + 2] = {
    let mut all = [VARIANT; Params::COUNT + 2];
    all[1] = AS_DRAFTED;
    let mut i = 0;
    while i < Params::COUNT {
        all[i + 2] = Params::SETTINGS[i];
        i += 1;
    }
    all
};

impl Default for Params {
    fn default() -> Self {
        Params::DRAFT
    }
}

impl Params {
    /// These parameters with `pairs` of key and value applied.
    ///
    /// # Errors
    /// An unknown key or an invalid value; the error says what is accepted.
    pub fn with<'a>(&self, pairs: &'a [(&'a str, &'a str)]) -> Result<Self, BuildError<'a>> {
        static PARAMETERS: ControllerInfo = ControllerInfo { settings: Params::SETTINGS, ..INFO };
        self.read(&Settings::new(&PARAMETERS, pairs)?)
    }

    /// The parameters of Google's v3 for Linux, where they differ from the draft's.
    pub const LINUX: Params = Params {
        startup_pacing_gain: 710,
        drain_pacing_gain: 88,
        probe_down_pacing_gain: 232,
        ..Params::DRAFT
    };

    /// The parameters of `variant` with `settings` applied.
    pub(super) fn build<'a>(variant: Variant, settings: &Settings<'a>) -> Result<Self, BuildError<'a>> {
        variant.check(settings)?;
        variant.defaults().read(settings)
    }

    pub(super) fn min_rtt_filter(&self) -> Span {
        Span::from_millis(u64::from(self.min_rtt_filter_ms))
    }

    pub(super) fn probe_rtt_interval(&self) -> Span {
        Span::from_millis(u64::from(self.probe_rtt_interval_ms))
    }

    pub(super) fn probe_rtt_duration(&self) -> Span {
        Span::from_millis(u64::from(self.probe_rtt_duration_ms))
    }

    pub(super) fn full_bw_growth(&self) -> Gain {
        Gain::from_256ths(self.full_bw_growth)
    }

    /// `IsInflightTooHigh()` for these setting_values: is more than `LossThresh` of `inflight`
    /// lost?
    pub(super) fn is_too_lossy(&self, lost: Bytes, inflight: Bytes) -> bool {
        u128::from(lost.0) * 1000 > u128::from(inflight.0) * u128::from(self.loss_thresh_permille)
    }

    /// `value`·`Beta`.
    pub(super) fn beta(&self, value: Bytes) -> Bytes {
        Bytes(percent(value.0, self.beta_percent))
    }

    /// `value`·`Beta` of a rate.
    pub(super) fn beta_rate(&self, value: Rate) -> Rate {
        Rate::from_bytes_per_sec(percent(value.as_bytes_per_sec(), self.beta_percent))
    }

    /// `value`·`Headroom`.
    pub(super) fn headroom(&self, value: Bytes) -> Bytes {
        Bytes(percent(value.0, self.headroom_percent))
    }

    /// `rate` less `PacingMarginPercent`.
    pub(super) fn less_margin(&self, rate: Rate) -> Rate {
        Rate::from_bytes_per_sec(percent(rate.as_bytes_per_sec(), 100 - self.pacing_margin_percent))
    }

    /// `InflightAtLoss()`: how much was in flight when losses crossed the threshold, somewhere
    /// within the lost packet of `size` bytes.
    pub(super) fn inflight_at_loss(&self, tx_in_flight: Bytes, lost: Bytes, size: Bytes) -> Bytes {
        let inflight_prev = tx_in_flight - size;
        let lost_prev = lost - size;
        // (LossThresh·inflight_prev − lost_prev) / (1 − LossThresh), both in per mille.
        let permille = u128::from(self.loss_thresh_permille);
        let excess = (u128::from(inflight_prev.0) * permille).saturating_sub(u128::from(lost_prev.0) * 1000);
        let lost_prefix = u64::try_from(excess / (1000 - permille)).unwrap_or(u64::MAX);
        inflight_prev + Bytes(lost_prefix)
    }
}

/// `value`·`percent`/100, rounded down. `percent` is at most 100.
fn percent(value: u64, percent: u32) -> u64 {
    let percent = u64::from(percent);
    value / 100 * percent + value % 100 * percent / 100
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    const P: Params = Params::DRAFT;

    #[test]
    fn params_survive_words_and_text() {
        let varied =
            P.with(&[("ecn", "off"), ("beta_percent", "80"), ("probe_up_pacing_gain", "1.4")]).unwrap();
        assert_eq!((varied.ecn, varied.beta_percent, varied.probe_up_pacing_gain), (false, 80, 358));
        assert_eq!(Params::from_words(&varied.to_words()), varied);
        // Only what is given changes.
        assert_eq!(varied.with(&[("ecn", "on")]).unwrap(), Params { ecn: true, ..varied });
        for params in [P, varied] {
            for (setting, (key, amount)) in Params::SETTINGS.iter().zip(params.setting_values()) {
                assert_eq!(setting.key, key);
                let text = format!("{amount}");
                assert_eq!(params.with(&[(key, &text)]), Ok(params), "{key}={text}");
            }
        }
        for ((_, amount), setting) in P.setting_values().iter().zip(Params::SETTINGS) {
            assert_eq!(format!("{amount}"), setting.default, "{}", setting.key);
        }
        assert!(P.with(&[("beta_percent", "101")]).is_err() && P.with(&[("beta", "80")]).is_err());
    }

    #[test]
    fn two_percent_is_tolerated_and_more_is_not() {
        assert!(!P.is_too_lossy(Bytes(2_000), Bytes(100_000)));
        assert!(P.is_too_lossy(Bytes(2_001), Bytes(100_000)));
        assert!(!P.is_too_lossy(Bytes::ZERO, Bytes::ZERO));
    }

    #[test]
    fn the_threshold_is_crossed_within_the_packet() {
        // 98 000 bytes before, none lost: 2 % of 100 000 is lost once 2 000 of this packet are.
        let at_loss = |inflight, lost, size| P.inflight_at_loss(Bytes(inflight), Bytes(lost), Bytes(size)).0;
        assert_eq!(at_loss(98_000 + 64_000, 64_000, 64_000), 100_000);
        // Losses before it exceed the threshold already: nothing of the packet was safe.
        assert_eq!(at_loss(100_000, 50_000, 10_000), 90_000);
        assert_eq!(at_loss(u64::MAX, 0, 0), u64::MAX);
    }

    #[test]
    fn shares_are_taken_without_overflow() {
        assert_eq!((P.beta(Bytes(1000)), P.beta(Bytes::ZERO)), (Bytes(700), Bytes::ZERO));
        assert!(P.beta(Bytes::INFINITE) > Bytes(u64::MAX / 2));
        assert_eq!(P.beta_rate(Rate::from_bytes_per_sec(1000)), Rate::from_bytes_per_sec(700));
        assert_eq!(P.less_margin(Rate::from_bytes_per_sec(10_000)), Rate::from_bytes_per_sec(9_900));
        assert_eq!(P.headroom(Bytes(1_000)), Bytes(150));
    }
}
