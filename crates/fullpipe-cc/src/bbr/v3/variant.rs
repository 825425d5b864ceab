//! Variants of BBR v3: this crate's reading of the draft, the draft to the letter, and Google's
//! implementation for Linux.

use super::{Bbr3, Params};
use crate::registry::{BuildError, Setting, Settings};

/// A variant of BBR v3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Variant {
    /// The draft with the documented decisions where it is open or impractical.
    #[default]
    Draft,
    /// The draft's pseudocode to the letter.
    Letter,
    /// Google's implementation for Linux, as far as a transport outside the kernel can reproduce
    /// it.
    Linux,
}

pub(super) const VARIANT: Setting = Setting {
    key: "variant",
    values: "draft, letter or linux",
    default: "draft",
    about: "the draft with documented decisions, the draft to the letter, or Google's v3 for Linux",
};

/// A deliberate deviation from the draft's letter (`docs/evidence/bbr3-departures.md` gives the
/// reasons). [`Variant::Letter`] has none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Departure {
    /// `AdvanceMaxBwFilter()` only if the cycle has a sample.
    MaxBwFilter,
    /// `HandleRestartFromIdle()` zeroes `extra_acked_delivered`, too.
    IdleRestart,
    /// `SaveStateUponLoss()` once per recovery episode.
    UndoState,
    /// `IsTimeToGoDown()` compares what was in flight before the ACK.
    ProbeUpEnd,
    /// `IsRenoCoexistenceProbeTime()` compares rounds with packets.
    RenoRounds,
    /// `InitPacingRate()` again at the first RTT sample.
    PacingRate,
    /// A round of many ECN marks ends Startup.
    StartupMarks,
    /// An ACK that acknowledges nothing new does not run the model.
    EmptyAcks,
}

pub(super) const AS_DRAFTED: Setting = Setting {
    key: "as_drafted",
    values: "none, max_bw_filter, idle_restart, undo_state, probe_up_end, reno_rounds, pacing_rate, \
             startup_marks or empty_acks",
    default: "none",
    about: "follow the draft's letter in this one deviation; variant=letter follows it in all",
};

impl Departure {
    pub(super) const CHOICES: &[(&'static str, Option<Departure>)] = &[
        ("none", None),
        ("max_bw_filter", Some(Departure::MaxBwFilter)),
        ("idle_restart", Some(Departure::IdleRestart)),
        ("undo_state", Some(Departure::UndoState)),
        ("probe_up_end", Some(Departure::ProbeUpEnd)),
        ("reno_rounds", Some(Departure::RenoRounds)),
        ("pacing_rate", Some(Departure::PacingRate)),
        ("startup_marks", Some(Departure::StartupMarks)),
        ("empty_acks", Some(Departure::EmptyAcks)),
    ];
}

impl Variant {
    pub(super) const CHOICES: &[(&'static str, Variant)] =
        &[("draft", Variant::Draft), ("letter", Variant::Letter), ("linux", Variant::Linux)];

    /// Largest `startup_full_loss_count` of [`Variant::Linux`], which counts in four bits.
    pub const LINUX_MAX_FULL_LOSS_COUNT: u32 = 15;

    /// The parameters it has by default.
    pub fn defaults(self) -> Params {
        match self {
            Variant::Draft | Variant::Letter => Params::DRAFT,
            Variant::Linux => Params::LINUX,
        }
    }

    /// Whether the parameter `key` has an effect: [`Variant::Linux`] ignores marks, has a fixed loss
    /// threshold, ends Drain by inflight alone, and keeps `extra_acked` for five to ten rounds.
    pub fn uses(self, key: &str) -> bool {
        let ignored = ["ecn", "loss_thresh_permille", "drain_rounds", "extra_acked_rounds"];
        self != Variant::Linux || !ignored.contains(&key)
    }

    /// Checks that each of `settings` has an effect in this variant.
    ///
    /// # Errors
    /// [`BuildError::NoEffect`], or [`BuildError::InvalidValue`] for a count that is never reached.
    pub fn check<'a>(self, settings: &Settings<'a>) -> Result<(), BuildError<'a>> {
        const COUNT: &str = "startup_full_loss_count";
        let controller = settings.controller();
        for one in Params::SETTINGS {
            if !self.uses(one.key) && settings.get(one.key).is_some() {
                return Err(BuildError::NoEffect { controller, key: one.key, with: "variant=linux" });
            }
        }
        match settings.get(COUNT) {
            Some(value)
                if self == Variant::Linux
                    && value.parse().is_ok_and(|count: u32| count > Self::LINUX_MAX_FULL_LOSS_COUNT) =>
            {
                let values = "a number from 1 to 15 with variant=linux";
                Err(BuildError::InvalidValue { controller, key: COUNT, value, values })
            }
            _ => Ok(()),
        }
    }
}

impl Bbr3 {
    /// Whether to follow the draft's letter where this crate deviates from it.
    pub(super) fn is_as_drafted(&self, departure: Departure) -> bool {
        self.variant == Variant::Letter || self.as_drafted == Some(departure)
    }

    /// Whether this is Google's implementation for Linux.
    pub(super) fn is_linux(&self) -> bool {
        self.variant == Variant::Linux
    }
}
