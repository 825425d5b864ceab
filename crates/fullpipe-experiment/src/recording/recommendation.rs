//! What a comparison recommends.

use super::{Finding, Verdict};

/// The benefit of a controller over the baseline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gain {
    /// Its goodput is higher.
    Goodput,
    /// Its goodput is the same, and its RTT under load is lower by enough to be worth a change.
    Latency,
}

/// What a comparison recommends to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recommendation {
    /// Switch to the controller.
    Switch(Gain),
    /// Keep the controller, which is the default already; with its gain over the baseline, if any.
    KeepDefault(Option<Gain>),
    /// Keep the baseline.
    KeepBaseline {
        /// Whether the baseline is faster, or there is no relevant difference.
        is_faster: bool,
    },
    /// Switch to the baseline, which is faster and not the default.
    SwitchToBaseline,
    /// Measure again.
    MeasureMore {
        /// Additional rounds that would probably decide it.
        more_rounds: usize,
    },
}

impl Verdict {
    /// The recommendation for a host with this default controller. `baseline_rtt_ms` is the median
    /// RTT under load with the baseline.
    pub fn recommend(&self, default: Option<&str>, baseline_rtt_ms: Option<f64>) -> Recommendation {
        let is_default = default == Some(self.controller.as_str());
        let gain = match self.finding {
            Finding::Faster => Some(Gain::Goodput),
            Finding::Same if self.lowers_rtt(baseline_rtt_ms) => Some(Gain::Latency),
            _ => None,
        };
        match self.finding {
            Finding::Inconclusive { more_rounds } => Recommendation::MeasureMore { more_rounds },
            Finding::Slower if default.is_some_and(|default| default != self.baseline) => {
                Recommendation::SwitchToBaseline
            }
            Finding::Slower => Recommendation::KeepBaseline { is_faster: true },
            Finding::Faster | Finding::Same if is_default => Recommendation::KeepDefault(gain),
            Finding::Faster | Finding::Same => {
                gain.map_or(Recommendation::KeepBaseline { is_faster: false }, Recommendation::Switch)
            }
        }
    }

    /// Whether the RTT under load is lower by at least a fifth of the baseline's and by 5 ms, with
    /// 95 % confidence.
    fn lowers_rtt(&self, baseline_rtt_ms: Option<f64>) -> bool {
        let (Some(added), Some(baseline)) = (self.rtt_added_ms, baseline_rtt_ms) else { return false };
        added.high < -relevant_rtt_ms(baseline)
    }
}

/// The difference in RTT under load that is worth a change: a fifth, and 5 ms.
pub(super) fn relevant_rtt_ms(rtt_ms: f64) -> f64 {
    (rtt_ms * 0.2).max(5.0)
}

#[cfg(test)]
mod tests {
    use super::super::Estimate;
    use super::*;

    fn recommended(finding: Finding, default: &str, rtt_added: f64) -> Recommendation {
        let exactly = |median| Estimate { median, low: median, high: median };
        let verdict = Verdict {
            controller: "bbr".into(),
            baseline: "cubic".into(),
            ratio: exactly(2.0),
            finding,
            retransmits_added: exactly(0.0),
            rtt_added_ms: Some(exactly(rtt_added)),
            words: String::new(),
        };
        verdict.recommend(Some(default), Some(100.0))
    }

    #[test]
    fn a_faster_controller_is_switched_to_unless_it_is_the_default() {
        assert_eq!(recommended(Finding::Faster, "cubic", 0.0), Recommendation::Switch(Gain::Goodput));
        assert_eq!(
            recommended(Finding::Faster, "bbr", 0.0),
            Recommendation::KeepDefault(Some(Gain::Goodput))
        );
    }

    #[test]
    fn equal_goodput_is_no_reason_unless_the_queue_is_much_shorter() {
        let keep = Recommendation::KeepBaseline { is_faster: false };
        assert_eq!(recommended(Finding::Same, "cubic", -3.0), keep);
        assert_eq!(recommended(Finding::Same, "cubic", -40.0), Recommendation::Switch(Gain::Latency));
        assert_eq!(recommended(Finding::Same, "bbr", 0.0), Recommendation::KeepDefault(None));
    }

    #[test]
    fn a_slower_controller_is_left() {
        let keep = Recommendation::KeepBaseline { is_faster: true };
        assert_eq!(recommended(Finding::Slower, "cubic", 0.0), keep);
        assert_eq!(recommended(Finding::Slower, "bbr", 0.0), Recommendation::SwitchToBaseline);
    }

    #[test]
    fn inconclusive_asks_for_more_rounds() {
        let more = Recommendation::MeasureMore { more_rounds: 7 };
        assert_eq!(recommended(Finding::Inconclusive { more_rounds: 7 }, "cubic", 0.0), more);
    }
}
