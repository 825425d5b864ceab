//! Which version of BBR to use on a path where both were measured.

use super::recommendation::relevant_rtt_ms;
use super::{ControllerRounds, Finding, Verdict};
use crate::statistics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of BBR that a path calls for, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BbrChoice {
    /// The recommended controller.
    pub controller: String,
    /// The deciding property of the path or of the transfers.
    pub reason: BbrReason,
    /// The reason in words.
    pub words: String,
}

/// Why one version of BBR is recommended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BbrReason {
    /// v1 overflows a small buffer and v3 does not.
    ShallowBuffer,
    /// The path itself loses more than v3's threshold of 2 %.
    LossAboveThreshold,
    /// The path loses packets, and v3 limits its rate after each round with loss.
    Loss,
    /// The path has a short RTT and loses packets: Linux defers small bursts of v3.
    ShortRtt,
    /// The path marks packets (ECN), which only v3 responds to.
    Ecn,
    /// The RTT under load is lower.
    Latency,
    /// The share of the link beside a CUBIC flow is fairer.
    Fairness,
    /// It is faster, for none of these reasons.
    Goodput,
    /// No relevant difference; v1 is part of the kernel.
    NoDifference,
}

/// v3's `LossThresh` in percent (draft § Core Algorithm Design Parameters).
const LOSS_THRESHOLD: f64 = 2.0;
/// Retransmissions in percentage points that v1 causes itself if it has that many more than v3 on
/// the same path: losses of the path hit both.
const OWN_LOSS: f64 = 1.0;
/// With such losses, or if it ignores marks, v1 must be faster by more than this factor.
const WORTH_OWN_LOSS: f64 = 1.2;
/// Loss in percent from which the reaction to it explains a lower goodput: with less, v3 has few
/// rounds with loss.
const SOME_LOSS: f64 = 0.05;
/// The RTT in ms up to which Linux's deferral of small bursts matters (measured in
/// docs/evidence/bbr3-on-kernel-tcp.md).
const SHORT_RTT_MS: f64 = 10.0;
/// Share of packets marked, in percent, from which the path counts as marking.
const MARKS: f64 = 0.1;
/// How much nearer to half of the link a fairer share is.
const FAIRER: f64 = 0.15;

/// The version of BBR that a controller's name suggests; `None` for other controllers. A kernel may
/// call its v3 `bbr`: the version that a socket reports is better evidence.
pub fn bbr_version(controller: &str) -> Option<u8> {
    match controller {
        "bbr" | "bbr1" | "fp_bbr1" => Some(1),
        "bbr3" | "fp_bbr3" => Some(3),
        // Names of variants, as in `fullpipe cc load bbr3 --name bbr3_beta80`.
        name if name.starts_with("bbr3_") => Some(3),
        _ => None,
    }
}

impl BbrChoice {
    /// The version of BBR to use; `None` if the goodput is inconclusive. `verdict` is that of v1
    /// against v3 as the baseline.
    pub fn new(
        v1: &ControllerRounds,
        v3: &ControllerRounds,
        verdict: &Verdict,
        idle_rtt_ms: Option<f64>,
    ) -> Option<BbrChoice> {
        let path = Measured { v1, v3, verdict, v1_ratio: verdict.ratio.median, idle_rtt_ms };
        match verdict.finding {
            Finding::Inconclusive { .. } => None,
            Finding::Faster => Some(path.v1_faster()),
            Finding::Slower => Some(path.v3_faster()),
            Finding::Same => Some(path.equally_fast()),
        }
    }
}

/// Both versions on one path.
struct Measured<'a> {
    v1: &'a ControllerRounds,
    v3: &'a ControllerRounds,
    /// v1 against v3 as the baseline.
    verdict: &'a Verdict,
    /// v1's goodput relative to v3's.
    v1_ratio: f64,
    idle_rtt_ms: Option<f64>,
}

impl Measured<'_> {
    fn retransmits(rounds: &ControllerRounds) -> f64 {
        statistics::median(&mut rounds.retransmits_percent.clone()).unwrap_or(0.0)
    }

    /// Loss that v1 causes itself, in percentage points.
    fn own_loss(&self) -> f64 {
        Self::retransmits(self.v1) - Self::retransmits(self.v3)
    }

    fn choose(chosen: &ControllerRounds, reason: BbrReason, words: String) -> BbrChoice {
        BbrChoice { controller: chosen.controller.clone(), reason, words }
    }

    fn shallow_buffer(&self) -> BbrChoice {
        let (v1, v3) = (&self.v1.controller, &self.v3.controller);
        let (of_v1, of_v3) = (Self::retransmits(self.v1), Self::retransmits(self.v3));
        let words = format!(
            "the buffer is shallow: {v1} overflows it and retransmits {of_v1:.1} % of its packets, {v3} \
             {of_v3:.1} %{}",
            self.cost_of_v3()
        );
        Self::choose(self.v3, BbrReason::ShallowBuffer, words)
    }

    /// What v3 costs where it is chosen although v1 is faster.
    fn cost_of_v3(&self) -> String {
        if self.verdict.finding != Finding::Faster {
            return String::new();
        }
        format!("; {} is {:.0} % slower", self.v3.controller, (1.0 - 1.0 / self.v1_ratio) * 100.0)
    }

    /// v3, if the path marks packets and v3 responds to that.
    fn ecn(&self) -> Option<BbrChoice> {
        let (v1, v3) = (&self.v1.controller, &self.v3.controller);
        let marks = |rounds: &ControllerRounds| rounds.marked_percent.unwrap_or(0.0);
        let marked = marks(self.v1).max(marks(self.v3));
        if marked < MARKS || !self.v3.responds_to_marks() {
            return None;
        }
        let words = format!(
            "the path marks packets (ECN, {marked:.1} %): {v3} responds to the marks unless it is loaded \
             with `ecn=off` or `variant=linux`, and {v1} ignores them{}",
            self.cost_of_v3()
        );
        Some(Self::choose(self.v3, BbrReason::Ecn, words))
    }

    fn v1_faster(&self) -> BbrChoice {
        if self.v1_ratio < WORTH_OWN_LOSS {
            if self.own_loss() >= OWN_LOSS {
                return self.shallow_buffer();
            }
            if let Some(choice) = self.ecn() {
                return choice;
            }
        }
        let loss = Self::retransmits(self.v3);
        let (v1, v3) = (&self.v1.controller, &self.v3.controller);
        let faster = format!("{v1} is {:.0} % faster", (self.v1_ratio - 1.0) * 100.0);
        let (reason, words) = if loss > LOSS_THRESHOLD {
            let why = "BBR v3 ends its probes and limits inflight";
            (
                BbrReason::LossAboveThreshold,
                format!("{faster}: {loss:.1} % of {v3}'s packets are lost, and {why} above 2 % loss"),
            )
        } else if loss >= SOME_LOSS && self.idle_rtt_ms.is_some_and(|ms| ms <= SHORT_RTT_MS) {
            (
                BbrReason::ShortRtt,
                format!(
                    "{faster}: the path has a short RTT and loses {loss:.2} % of packets, and Linux defers \
                     small bursts of {v3}, whose window is close to one BDP"
                ),
            )
        } else if loss >= SOME_LOSS {
            (
                BbrReason::Loss,
                format!(
                    "{faster}: {loss:.2} % of packets are lost, and after a round with loss BBR v3 limits \
                     its rate until the next probe"
                ),
            )
        } else {
            (BbrReason::Goodput, faster)
        };
        Self::choose(self.v1, reason, words)
    }

    fn v3_faster(&self) -> BbrChoice {
        if self.own_loss() >= OWN_LOSS {
            return self.shallow_buffer();
        }
        let words = format!("{} is {:.0} % faster", self.v3.controller, (1.0 / self.v1_ratio - 1.0) * 100.0);
        Self::choose(self.v3, BbrReason::Goodput, words)
    }

    fn equally_fast(&self) -> BbrChoice {
        let (v1, v3) = (&self.v1.controller, &self.v3.controller);
        if self.own_loss() >= OWN_LOSS {
            return self.shallow_buffer();
        }
        if let Some(choice) = self.ecn() {
            return choice;
        }
        let rtt = |rounds: &ControllerRounds| rounds.loaded_rtt.map(|rtt| rtt.median);
        if let (Some(rtt_v1), Some(rtt_v3), Some(added)) =
            (rtt(self.v1), rtt(self.v3), self.verdict.rtt_added_ms)
        {
            let (v1, v3) = ((self.v1, rtt_v1), (self.v3, rtt_v3));
            let lower = if added.low > relevant_rtt_ms(rtt_v1) {
                Some((v3, v1))
            } else if added.high < -relevant_rtt_ms(rtt_v3) {
                Some((v1, v3))
            } else {
                None
            };
            if let Some(((chosen, rtt), (_, other))) = lower {
                let words = format!(
                    "both are equally fast, and the RTT under load is {rtt:.0} ms with {} instead of \
                     {other:.0} ms",
                    chosen.controller
                );
                return Self::choose(chosen, BbrReason::Latency, words);
            }
        }
        if let (Some(of_v1), Some(of_v3)) = (self.v1.share_beside_cubic(), self.v3.share_beside_cubic()) {
            let from_half = |share: f64| (share - 0.5).abs();
            let chosen = if from_half(of_v1) - from_half(of_v3) >= FAIRER {
                Some((self.v3, of_v3, self.v1, of_v1))
            } else if from_half(of_v3) - from_half(of_v1) >= FAIRER {
                Some((self.v1, of_v1, self.v3, of_v3))
            } else {
                None
            };
            if let Some((chosen, share, other, others)) = chosen {
                let words = format!(
                    "both are equally fast alone; beside a CUBIC flow {} gets {:.0} % of the goodput and {} \
                     {:.0} %",
                    chosen.controller,
                    share * 100.0,
                    other.controller,
                    others * 100.0
                );
                return Self::choose(chosen, BbrReason::Fairness, words);
            }
        }
        let mut words = "no relevant difference on this path".to_owned();
        if v1 == "bbr" && v3.starts_with("fp_") {
            words += &format!(", and {v1} is part of the kernel");
        }
        Self::choose(self.v1, BbrReason::NoDifference, words)
    }
}

impl ControllerRounds {
    /// Median share of the goodput beside a CUBIC flow, if it was measured.
    pub fn share_beside_cubic(&self) -> Option<f64> {
        statistics::median(&mut self.shares_beside_cubic.clone())
    }

    /// Whether it responds to ECN marks. Google's v3, which kernels call `bbr` or `bbr3`, does so only
    /// on routes with ECN_LOW.
    fn responds_to_marks(&self) -> bool {
        self.controller == "fp_bbr3"
    }
}

#[cfg(test)]
mod tests {
    use super::super::Estimate;
    use super::*;

    fn exactly(median: f64) -> Estimate {
        Estimate { median, low: median, high: median }
    }

    /// Goodput, retransmissions in percent, RTT under load, share beside CUBIC.
    fn rounds(controller: &str, goodput: f64, retransmits: f64, rtt: f64, share: f64) -> ControllerRounds {
        ControllerRounds {
            controller: controller.into(),
            bbr_version: bbr_version(controller),
            goodput_bps: vec![goodput; 6],
            retransmits_percent: vec![retransmits; 6],
            marked_percent: None,
            loaded_rtt_ms: vec![Some(rtt); 6],
            goodput: exactly(goodput),
            loaded_rtt: Some(exactly(rtt)),
            shares_beside_cubic: vec![share; 3],
        }
    }

    fn verdict(v1: &ControllerRounds, v3: &ControllerRounds) -> Verdict {
        let ratio = v1.goodput.median / v3.goodput.median;
        let finding = match ratio {
            r if r >= 1.05 => Finding::Faster,
            r if r <= 1.0 / 1.05 => Finding::Slower,
            _ => Finding::Same,
        };
        Verdict {
            controller: v1.controller.clone(),
            baseline: v3.controller.clone(),
            ratio: exactly(ratio),
            finding,
            retransmits_added: exactly(0.0),
            rtt_added_ms: Some(exactly(v1.loaded_rtt.unwrap().median - v3.loaded_rtt.unwrap().median)),
            words: String::new(),
        }
    }

    fn choose(v1: &ControllerRounds, v3: &ControllerRounds) -> BbrChoice {
        BbrChoice::new(v1, v3, &verdict(v1, v3), Some(40.0)).unwrap()
    }

    /// The choice for v1 and v3 given as (goodput, retransmissions, RTT under load, share).
    fn choice(v1: (f64, f64, f64, f64), v3: (f64, f64, f64, f64), idle: f64) -> (String, BbrReason) {
        let of =
            |name: &str, (goodput, retransmits, rtt, share)| rounds(name, goodput, retransmits, rtt, share);
        let (v1, v3) = (of("bbr", v1), of("fp_bbr3", v3));
        let choice = BbrChoice::new(&v1, &v3, &verdict(&v1, &v3), Some(idle)).unwrap();
        (choice.controller, choice.reason)
    }

    #[test]
    fn each_property_of_a_path_decides() {
        let v1 = |reason| ("bbr".to_owned(), reason);
        let v3 = |reason| ("fp_bbr3".to_owned(), reason);
        for (of_v1, of_v3, idle, expected) in [
            // 5 % random loss hits both.
            ((83.0, 5.0, 45.0, 0.5), (7.0, 5.0, 42.0, 0.5), 40.0, v1(BbrReason::LossAboveThreshold)),
            ((89.0, 1.0, 45.0, 0.5), (82.0, 1.0, 42.0, 0.5), 40.0, v1(BbrReason::Loss)),
            ((95.0, 1.0, 8.0, 0.5), (73.0, 1.0, 6.0, 0.5), 4.0, v1(BbrReason::ShortRtt)),
            ((95.0, 0.0, 8.0, 0.5), (73.0, 0.0, 6.0, 0.5), 4.0, v1(BbrReason::Goodput)),
            // v1 retransmits because it overflows the buffer.
            ((48.0, 8.0, 44.0, 0.9), (43.0, 0.1, 42.0, 0.5), 40.0, v3(BbrReason::ShallowBuffer)),
            ((48.0, 8.0, 44.0, 0.9), (48.0, 0.1, 42.0, 0.5), 40.0, v3(BbrReason::ShallowBuffer)),
            ((40.0, 8.0, 44.0, 0.9), (48.0, 0.1, 42.0, 0.5), 40.0, v3(BbrReason::ShallowBuffer)),
            // More than a fifth of the goodput is worth the retransmissions.
            ((48.0, 8.0, 44.0, 0.9), (30.0, 0.1, 42.0, 0.5), 40.0, v1(BbrReason::Loss)),
            ((40.0, 0.0, 44.0, 0.5), (48.0, 0.0, 42.0, 0.5), 40.0, v3(BbrReason::Goodput)),
            ((48.0, 0.0, 90.0, 0.5), (48.0, 0.0, 60.0, 0.5), 40.0, v3(BbrReason::Latency)),
            ((48.0, 0.0, 60.0, 0.5), (48.0, 0.0, 90.0, 0.5), 40.0, v1(BbrReason::Latency)),
            ((48.0, 0.0, 60.0, 0.97), (48.0, 0.0, 60.0, 0.6), 40.0, v3(BbrReason::Fairness)),
            ((48.0, 0.0, 60.0, 0.45), (48.0, 0.0, 60.0, 0.8), 40.0, v1(BbrReason::Fairness)),
            ((48.0, 0.0, 60.0, 0.55), (48.0, 0.0, 60.0, 0.5), 40.0, v1(BbrReason::NoDifference)),
        ] {
            assert_eq!(choice(of_v1, of_v3, idle), expected, "{of_v1:?} {of_v3:?} {idle}");
        }
    }

    #[test]
    fn marks_decide_only_for_a_v3_that_responds_to_them() {
        let decided = |name: &str, marked, of_v1| {
            let mut v3 = rounds(name, 48.0, 0.0, 60.0, 0.5);
            v3.marked_percent = marked;
            choose(&rounds("bbr", of_v1, 0.0, 60.0, 0.5), &v3)
        };
        for of_v1 in [48.0, 51.0] {
            assert_eq!(decided("fp_bbr3", Some(2.0), of_v1).reason, BbrReason::Ecn, "{of_v1}");
        }
        assert!(decided("fp_bbr3", Some(2.0), 51.0).words.ends_with("; fp_bbr3 is 6 % slower"));
        assert_eq!(decided("fp_bbr3", Some(2.0), 70.0).reason, BbrReason::Goodput);
        assert_eq!(decided("bbr3", Some(2.0), 48.0).reason, BbrReason::NoDifference);
        assert_eq!(decided("fp_bbr3", None, 48.0).reason, BbrReason::NoDifference);
    }

    #[test]
    fn an_inconclusive_goodput_gives_no_choice() {
        let (v1, v3) = (rounds("bbr", 48.0, 0.0, 60.0, 0.5), rounds("fp_bbr3", 40.0, 1.0, 60.0, 0.5));
        let mut verdict = verdict(&v1, &v3);
        assert!(BbrChoice::new(&v1, &v3, &verdict, None).is_some());
        verdict.finding = Finding::Inconclusive { more_rounds: 4 };
        assert_eq!(BbrChoice::new(&v1, &v3, &verdict, None), None);
    }

    #[test]
    fn words_name_the_cost_of_a_shallow_buffer_only_where_it_was_found() {
        let of_v3 = |goodput| rounds("fp_bbr3", goodput, 0.1, 42.0, 0.5);
        let words = |goodput| choose(&rounds("bbr", 48.0, 8.0, 44.0, 0.9), &of_v3(goodput)).words;
        let text =
            "the buffer is shallow: bbr overflows it and retransmits 8.0 % of its packets, fp_bbr3 0.1 %";
        assert_eq!(words(43.2), format!("{text}; fp_bbr3 is 10 % slower"));
        assert_eq!(words(47.9), text);
    }

    #[test]
    fn the_kernel_is_named_only_where_v3_is_not_its_own() {
        let words =
            |v1, v3| choose(&rounds(v1, 48.0, 0.0, 60.0, 0.5), &rounds(v3, 48.0, 0.0, 60.0, 0.5)).words;
        assert!(words("bbr", "fp_bbr3").ends_with("and bbr is part of the kernel"));
        for (v1, v3) in [("bbr", "bbr3"), ("fp_bbr1", "fp_bbr3")] {
            assert_eq!(words(v1, v3), "no relevant difference on this path");
        }
    }
}
