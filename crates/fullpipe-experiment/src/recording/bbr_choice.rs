//! Which version of BBR to use on a path where both were measured.

use super::{Comparison, ControllerRounds, Finding};
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
    /// The path is short and loses packets: Linux defers small bursts of v3.
    ShortRtt,
    /// The path marks packets (ECN), which only v3 responds to.
    Ecn,
    /// The RTT under load is lower.
    Latency,
    /// The share of the link beside a CUBIC flow is fairer.
    Fairness,
    /// It is faster, for none of these reasons.
    Goodput,
    /// No relevant difference; v1 needs nothing but the kernel.
    NoDifference,
}

/// v3's `LossThresh` in percent (draft § Core Algorithm Design Parameters).
const LOSS_THRESHOLD: f64 = 2.0;
/// Retransmissions in percentage points that v1 causes itself if it has that many more than v3 on
/// the same path: losses of the path hit both.
const OWN_LOSS: f64 = 1.0;
/// With such losses v1 must be faster by more than this factor.
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

/// The version of BBR that a controller is, by its name: `None` for other controllers. A kernel may
/// call its v3 `bbr`; whoever knows the version from a socket must say so.
pub fn bbr_version(controller: &str) -> Option<u8> {
    match controller {
        "bbr" | "bbr1" | "fp_bbr1" => Some(1),
        "bbr3" | "fp_bbr3" => Some(3),
        _ => None,
    }
}

impl Comparison {
    /// The version of BBR to use, if the comparison has exactly one v1 and one v3 and its goodput is
    /// conclusive.
    pub fn bbr_choice(&self) -> Option<BbrChoice> {
        let only = |version| {
            let mut found = self.controllers.iter().filter(|c| c.bbr_version == Some(version));
            found.next().filter(|_| found.next().is_none())
        };
        let (v1, v3) = (only(1)?, only(3)?);
        // The verdict may be of either against the other.
        let verdict = |a: &ControllerRounds, b: &ControllerRounds| {
            self.verdicts.iter().find(|v| v.controller == a.controller && v.baseline == b.controller)
        };
        let (finding, v1_ratio, rtt_added) = match (verdict(v1, v3), verdict(v3, v1)) {
            (Some(of_v1), _) => {
                (of_v1.finding, of_v1.ratio.median, of_v1.rtt_added_ms.map(|e| (e.low, e.high)))
            }
            (None, Some(of_v3)) => {
                let reversed = match of_v3.finding {
                    Finding::Faster => Finding::Slower,
                    Finding::Slower => Finding::Faster,
                    other => other,
                };
                (reversed, 1.0 / of_v3.ratio.median, of_v3.rtt_added_ms.map(|e| (-e.high, -e.low)))
            }
            (None, None) => return None,
        };
        let path = Measured { v1, v3, v1_ratio, rtt_added, idle_rtt_ms: self.idle_rtt_ms };
        match finding {
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
    /// v1's goodput relative to v3's.
    v1_ratio: f64,
    /// v1's RTT under load minus v3's in ms: bounds of the interval.
    rtt_added: Option<(f64, f64)>,
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
        let cost = if self.v1_ratio > 1.0 {
            format!(", which costs {:.0} % of the goodput", (1.0 - 1.0 / self.v1_ratio) * 100.0)
        } else {
            String::new()
        };
        let words = format!(
            "the buffer is shallow: {v1} overflows it and retransmits {of_v1:.1} % of its packets; {v3} \
             retransmits {of_v3:.1} %{cost}"
        );
        Self::choose(self.v3, BbrReason::ShallowBuffer, words)
    }

    fn v1_faster(&self) -> BbrChoice {
        if self.own_loss() >= OWN_LOSS && self.v1_ratio < WORTH_OWN_LOSS {
            return self.shallow_buffer();
        }
        let loss = Self::retransmits(self.v3);
        let (v1, v3) = (&self.v1.controller, &self.v3.controller);
        let faster = format!("{v1} is {:.0} % faster", (self.v1_ratio - 1.0) * 100.0);
        let (reason, words) = if loss > LOSS_THRESHOLD {
            let why = "BBR v3 ends its probes and limits inflight";
            (
                BbrReason::LossAboveThreshold,
                format!("{faster}: {loss:.1} % of {v3}'s packets are lost, and above 2 % {why}"),
            )
        } else if loss >= SOME_LOSS && self.idle_rtt_ms.is_some_and(|ms| ms <= SHORT_RTT_MS) {
            (
                BbrReason::ShortRtt,
                format!(
                    "{faster}: the path is short and loses {loss:.2} % of packets, and Linux defers small \
                     bursts of {v3}, whose window is close to one BDP"
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
        let marks = |rounds: &ControllerRounds| rounds.marked_percent.unwrap_or(0.0);
        let marked = marks(self.v1).max(marks(self.v3));
        if marked >= MARKS && self.v3.answers_marks() {
            let words = format!(
                "both are equally fast, and the path marks packets (ECN: {marked:.1} %): {v3} responds to \
                 the marks, {v1} ignores them"
            );
            return Self::choose(self.v3, BbrReason::Ecn, words);
        }
        if let Some((low, high)) = self.rtt_added {
            let rtt = |rounds: &ControllerRounds| rounds.loaded_rtt.map_or(f64::INFINITY, |rtt| rtt.median);
            let of = |other: f64| (other * 0.2).max(5.0);
            let chosen = if low > of(rtt(self.v1)) {
                Some((self.v3, self.v1))
            } else if high < -of(rtt(self.v3)) {
                Some((self.v1, self.v3))
            } else {
                None
            };
            if let Some((chosen, other)) = chosen {
                let words = format!(
                    "both are equally fast, and the RTT under load is {:.0} ms with {} instead of {:.0} ms",
                    rtt(chosen),
                    chosen.controller,
                    rtt(other)
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
        let words = format!("no relevant difference on this path, and {v1} needs nothing but the kernel");
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
    fn answers_marks(&self) -> bool {
        self.controller == "fp_bbr3"
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Estimate, Verdict};
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

    fn comparison(v1: ControllerRounds, v3: ControllerRounds, idle: f64, baseline_is_v3: bool) -> Comparison {
        let (candidate, baseline) = if baseline_is_v3 { (&v1, &v3) } else { (&v3, &v1) };
        let ratio = candidate.goodput.median / baseline.goodput.median;
        let finding = match ratio {
            r if r >= 1.05 => Finding::Faster,
            r if r <= 1.0 / 1.05 => Finding::Slower,
            _ => Finding::Same,
        };
        let added = candidate.loaded_rtt.unwrap().median - baseline.loaded_rtt.unwrap().median;
        let verdict = Verdict {
            controller: candidate.controller.clone(),
            baseline: baseline.controller.clone(),
            ratio: exactly(ratio),
            finding,
            retransmits_added: exactly(0.0),
            rtt_added_ms: Some(exactly(added)),
            words: String::new(),
        };
        Comparison {
            baseline: baseline.controller.clone(),
            rounds: 6,
            seed: 1,
            estimator: String::new(),
            time: super::super::TimeBreakdown::default(),
            idle_rtt_ms: Some(idle),
            controllers: vec![v1, v3],
            verdicts: vec![verdict],
            bbr_choice: None,
        }
    }

    /// The choice for v1 and v3 given as (goodput, retransmissions, RTT under load, share); the same
    /// whichever is the baseline.
    fn choice(v1: (f64, f64, f64, f64), v3: (f64, f64, f64, f64), idle: f64) -> (String, BbrReason) {
        let of =
            |name: &str, (goodput, retransmits, rtt, share)| rounds(name, goodput, retransmits, rtt, share);
        let both = [true, false].map(|baseline_is_v3| {
            let c = comparison(of("bbr", v1), of("fp_bbr3", v3), idle, baseline_is_v3);
            let choice = c.bbr_choice().unwrap();
            (choice.controller, choice.reason)
        });
        assert_eq!(both[0], both[1]);
        both[0].clone()
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
    fn marks_decide_only_for_a_v3_that_answers_them() {
        let decided = |name: &str, marked| {
            let mut v3 = rounds(name, 48.0, 0.0, 60.0, 0.5);
            v3.marked_percent = marked;
            comparison(rounds("bbr", 48.0, 0.0, 60.0, 0.5), v3, 40.0, true).bbr_choice().unwrap().reason
        };
        assert_eq!(decided("fp_bbr3", Some(2.0)), BbrReason::Ecn);
        assert_eq!(decided("bbr3", Some(2.0)), BbrReason::NoDifference);
        assert_eq!(decided("fp_bbr3", None), BbrReason::NoDifference);
    }

    #[test]
    fn no_choice_without_one_of_each_version_or_a_conclusive_goodput() {
        let both = || (rounds("bbr", 48.0, 0.0, 60.0, 0.5), rounds("fp_bbr3", 40.0, 1.0, 60.0, 0.5));
        let (v1, v3) = both();
        let mut c = comparison(v1, v3, 40.0, true);
        assert!(c.bbr_choice().is_some());
        c.verdicts[0].finding = Finding::Inconclusive { more_rounds: 4 };
        assert_eq!(c.bbr_choice(), None);
        // A kernel whose `bbr` is v3 has no v1.
        let (mut v1, v3) = both();
        v1.bbr_version = Some(3);
        assert_eq!(comparison(v1, v3, 40.0, true).bbr_choice(), None);
    }

    #[test]
    fn words_name_the_cost_of_a_shallow_buffer() {
        let v1 = rounds("bbr", 48.0, 8.0, 44.0, 0.9);
        let c = comparison(v1, rounds("fp_bbr3", 43.2, 0.1, 42.0, 0.5), 40.0, true);
        assert_eq!(
            c.bbr_choice().unwrap().words,
            "the buffer is shallow: bbr overflows it and retransmits 8.0 % of its packets; fp_bbr3 \
             retransmits 0.1 %, which costs 10 % of the goodput"
        );
    }
}
