//! Guard: bounds on harm that stop an experiment.

use crate::{Comparison, Contrast, Ledger, Metric, SplitError, Statistic};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// A limit on how much worse than the control an arm may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound {
    /// The metric.
    pub metric: Metric,
    /// Its mean, or a quantile.
    pub statistic: Statistic,
    /// Limit of the difference on the metric's scale: positive, or negative if more is better.
    pub limit: f64,
}

/// The bounds of an experiment.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Guard(Vec<Bound>);

/// A bound that an arm exceeds with statistical significance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Violation {
    /// Index of the arm.
    pub arm: usize,
    /// The bound.
    pub bound: Bound,
    /// Difference from the control.
    pub contrast: Contrast,
}

/// Total probability of stopping an arm that exceeds no bound.
const ALPHA: f64 = 0.05;

impl Guard {
    /// No bounds.
    pub fn off() -> Self {
        Guard(Vec::new())
    }

    /// The bounds.
    pub fn bounds(&self) -> &[Bound] {
        &self.0
    }

    /// The first bound exceeded by an arm, if any: the whole interval lies beyond it. The error
    /// probability is divided among bounds and arms (Bonferroni).
    pub fn check(&self, ledger: &Ledger) -> Option<Violation> {
        let control = ledger.plan().control_index();
        let arms = ledger.plan().arms.all().len();
        let alpha = ALPHA / (self.0.len().max(1) * (arms - 1).max(1)) as f64;
        (0..arms).filter(|arm| *arm != control).find_map(|arm| {
            self.0.iter().find_map(|bound| {
                let contrast = ledger.contrast(arm, bound.metric, bound.statistic, alpha)?;
                let beyond = if bound.metric.more_is_better() {
                    contrast.high < bound.limit
                } else {
                    contrast.low > bound.limit
                };
                beyond.then_some(Violation { arm, bound: *bound, contrast })
            })
        })
    }
}

impl Default for Guard {
    /// 95th percentile of the RTT +20 %, retransmissions +1 point, goodput −10 %.
    fn default() -> Self {
        Guard(vec![
            Bound { metric: Metric::Rtt, statistic: Statistic::P95, limit: 1.2_f64.ln() },
            Bound { metric: Metric::Retransmitted, statistic: Statistic::Mean, limit: 0.01 },
            Bound { metric: Metric::Goodput, statistic: Statistic::Mean, limit: 0.9_f64.ln() },
        ])
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.statistic != Statistic::Mean {
            write!(f, "{}-", self.statistic.name())?;
        }
        let (number, unit) = match self.metric.comparison() {
            Comparison::Ratio => ((self.limit.exp() - 1.0) * 100.0, "%"),
            Comparison::Difference => (self.limit * 100.0, "pt"),
        };
        let text = format!("{number:+.4}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{}={text}{unit}", self.metric)
    }
}

impl FromStr for Bound {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Bound, SplitError> {
        let wrong = |reason: String| SplitError::invalid(text, reason);
        let (name, limit) =
            text.split_once('=').ok_or_else(|| wrong("expected a bound such as p95-rtt=+20%".to_owned()))?;
        let (statistic, name) = match name.split_once('-') {
            Some(("p5", rest)) => (Statistic::P5, rest),
            Some(("p50", rest)) => (Statistic::P50, rest),
            Some(("p95", rest)) => (Statistic::P95, rest),
            _ => (Statistic::Mean, name),
        };
        let metric = Metric::ALL.into_iter().find(|metric| metric.name() == name).ok_or_else(|| {
            wrong(format!("unknown metric; expected one of {}", Metric::ALL.map(Metric::name).join(", ")))
        })?;
        let (number, is_percent) = match (limit.strip_suffix('%'), limit.strip_suffix("pt")) {
            (Some(number), _) => (number, true),
            (_, Some(number)) => (number, false),
            _ => {
                return Err(wrong(
                    "expected a limit in percent (+20%) or, for retransmitted, in points (+1pt)".to_owned(),
                ));
            }
        };
        let number: f64 = number.trim().parse().map_err(|_| wrong("invalid number".to_owned()))?;
        let is_ratio = metric.comparison() == Comparison::Ratio;
        if is_percent != is_ratio {
            let unit = if is_ratio { "percent, such as +20%" } else { "points, such as +1pt" };
            return Err(wrong(format!("the limit of {} must be in {unit}", metric.name())));
        }
        let harm = if metric.more_is_better() { number < 0.0 } else { number > 0.0 };
        if !harm || !(-99.0..=10_000.0).contains(&number) {
            let sign =
                if metric.more_is_better() { "less, such as -10%" } else { "more, such as a positive limit" };
            return Err(wrong(format!("harm for this metric means {sign}")));
        }
        let limit = if is_percent { (1.0 + number / 100.0).ln() } else { number / 100.0 };
        Ok(Bound { metric, statistic, limit })
    }
}

impl Display for Guard {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("off");
        }
        for (i, bound) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{bound}")?;
        }
        Ok(())
    }
}

impl FromStr for Guard {
    type Err = SplitError;

    fn from_str(text: &str) -> Result<Guard, SplitError> {
        if text == "off" {
            return Ok(Guard::off());
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Guard)
    }
}

impl From<Guard> for String {
    fn from(guard: Guard) -> String {
        guard.to_string()
    }
}

impl TryFrom<String> for Guard {
    type Error = SplitError;
    fn try_from(text: String) -> Result<Guard, SplitError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::{plan, simulate};
    use crate::stats::Design;

    #[test]
    fn bounds_round_trip() {
        assert_eq!(Guard::default().to_string(), "p95-rtt=+20%,retransmitted=+1pt,goodput=-10%");
        for text in
            ["off", "p95-rtt=+20%,retransmitted=+1pt,goodput=-10%", "p5-goodput=-50%", "deliver-1MB=+5.5%"]
        {
            assert_eq!(text.parse::<Guard>().unwrap().to_string(), text);
        }
        for (bad, expected) in [
            ("rtt", "p95-rtt=+20%"),
            ("speed=-1%", "goodput"),
            ("goodput=+10%", "less"),
            ("rtt=-10%", "more"),
            ("rtt=10", "percent"),
            ("retransmitted=+1%", "points"),
            ("rtt=x%", "number"),
        ] {
            let error = bad.parse::<Guard>().unwrap_err().to_string();
            assert!(error.contains(expected), "{bad}: {error}");
        }
    }

    #[test]
    fn a_harmful_arm_is_stopped_in_time_and_an_equal_one_never() {
        let plan = plan("connection", &["bad:bbr=50%", "cubic=50%"]);
        // Half of the goodput, where 10 % less is allowed.
        let beyond = (0.9_f64 / 0.5).ln();
        let deviation = (0.3_f64.powi(2) + 0.5_f64.powi(2)).sqrt();
        let design = Design { deviation, inflation: 1.0, shares: [0.5, 0.5], alpha: ALPHA / 3.0, scale: 0.1 };
        let max = design.needed(beyond, 0.99, 200).unwrap();
        for seed in 0..20 {
            let mut stopped = None;
            simulate(&plan, seed, max + 400, 3000, 0.5, |ledger, n| {
                stopped = plan.guard.check(ledger).map(|violation| (n, violation));
                stopped.is_some()
            });
            let (_, violation) = stopped.unwrap_or_else(|| panic!("seed {seed}: not stopped in {max}"));
            assert_eq!((violation.arm, violation.bound.metric), (0, Metric::Goodput));
        }
        let stopped = (0..100)
            .filter(|seed| simulate(&plan, *seed, 5000, 3000, 1.0, |l, _| plan.guard.check(l).is_some()))
            .count();
        assert_eq!(stopped, 0);
    }
}
