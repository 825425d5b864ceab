//! Plan of an experiment.

use crate::{AssignBy, Guard, SplitError};
use fullpipe_units::{Bytes, Fraction};
use serde::{Deserialize, Serialize};

/// Maximum number of arms, a limit of the eBPF program.
pub const MAX_ARMS: usize = 8;
/// Maximum length of a controller's name (`TCP_CA_NAME_MAX` without the NUL) and of a label.
const MAX_CONTROLLER_LEN: usize = 15;
const MAX_LABEL_LEN: usize = 31;
/// Name that means no change of controller.
const HOLDOUT: &str = "default";

/// An arm of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Label; the controller's name by default.
    pub label: String,
    /// Controller of its connections; `None` for a holdout that keeps the default (`default`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Initial share.
    pub share: Fraction,
}

/// The arms of an experiment: two to [`MAX_ARMS`], with different labels and shares of at most 100
/// % together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Arm>", into = "Vec<Arm>")]
pub struct Arms(Vec<Arm>);

impl From<Arms> for Vec<Arm> {
    fn from(arms: Arms) -> Vec<Arm> {
        arms.0
    }
}

impl TryFrom<Vec<Arm>> for Arms {
    type Error = SplitError;

    fn try_from(arms: Vec<Arm>) -> Result<Arms, SplitError> {
        let all = || arms.iter().map(|arm| arm.label.clone()).collect::<Vec<_>>().join(" ");
        if !(2..=MAX_ARMS).contains(&arms.len()) {
            return Err(SplitError::invalid(
                all(),
                format!("expected two to {MAX_ARMS} arms, such as bbr=50% cubic=50%"),
            ));
        }
        for (i, arm) in arms.iter().enumerate() {
            let is_word = |text: &str, max_len: usize| {
                (1..=max_len).contains(&text.len())
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
            };
            if !is_word(&arm.label, MAX_LABEL_LEN) {
                return Err(SplitError::invalid(
                    &arm.label,
                    "a label consists of letters, digits, `_`, `-` and `.`",
                ));
            }
            if arm.controller.as_ref().is_some_and(|name| !is_word(name, MAX_CONTROLLER_LEN)) {
                return Err(SplitError::invalid(&arm.label, "a controller's name has 1 to 15 characters"));
            }
            if arms[..i].iter().any(|other| other.label == arm.label) {
                return Err(SplitError::invalid(
                    &arm.label,
                    "duplicate label; set labels as in a:cubic=50% b:cubic=50%",
                ));
            }
        }
        let sum: u64 = arms.iter().map(|arm| u64::from(arm.share.as_billionths())).sum();
        // A third is not a whole number of billionths.
        if sum > 1_000_000_000 + arms.len() as u64 {
            let percent = format!("{:.6}", sum as f64 / 1e7);
            let percent = percent.trim_end_matches('0').trim_end_matches('.');
            return Err(SplitError::invalid(
                all(),
                format!("shares must add up to at most 100%, got {percent}%"),
            ));
        }
        Ok(Arms(arms))
    }
}

impl Arms {
    /// Parses `bbr=50%`, `control:cubic=45%`, `default=5%`.
    ///
    /// # Errors
    /// For an invalid arm, or an invalid combination of arms.
    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Arms, SplitError> {
        let arm = |text: &str| {
            let wrong = |reason: String| SplitError::invalid(text, reason);
            let (name, share) = text
                .split_once('=')
                .ok_or_else(|| wrong("expected a controller and its share, such as bbr=50%".to_owned()))?;
            let (label, controller) = name.split_once(':').unwrap_or((name, name));
            let share: Fraction =
                share.parse().map_err(|e: fullpipe_units::ParseError| wrong(e.to_string()))?;
            if share == Fraction::ZERO {
                return Err(wrong("the share of an arm must not be zero".to_owned()));
            }
            let controller = (controller != HOLDOUT).then(|| controller.to_owned());
            Ok(Arm { label: label.to_owned(), controller, share })
        };
        let arms = texts.into_iter().map(|text| arm(text.as_ref())).collect::<Result<Vec<_>, _>>()?;
        Arms::try_from(arms)
    }

    /// The arms.
    pub fn all(&self) -> &[Arm] {
        &self.0
    }

    /// The shares, in order.
    pub fn shares(&self) -> Vec<Fraction> {
        self.0.iter().map(|arm| arm.share).collect()
    }

    /// The same arms with other shares, in the same syntax; omitted arms keep their share.
    ///
    /// # Errors
    /// For an unknown arm, or a sum of shares above 100 %.
    pub fn with_shares<T: AsRef<str>>(&self, texts: impl IntoIterator<Item = T>) -> Result<Arms, SplitError> {
        let mut arms = self.0.clone();
        for text in texts {
            let text = text.as_ref();
            let wrong = |reason: String| SplitError::invalid(text, reason);
            let (label, share) = text
                .split_once('=')
                .ok_or_else(|| wrong("expected an arm and its share, such as bbr=10%".to_owned()))?;
            let known = || self.0.iter().map(|arm| arm.label.as_str()).collect::<Vec<_>>().join(", ");
            let arm = arms
                .iter_mut()
                .find(|arm| arm.label == label)
                .ok_or_else(|| wrong(format!("unknown arm; arms are {}", known())))?;
            arm.share = share.parse().map_err(|e: fullpipe_units::ParseError| wrong(e.to_string()))?;
        }
        Arms::try_from(arms)
    }
}

/// Plan of an experiment: the first line of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The arms.
    pub arms: Arms,
    /// Label of the control arm, with which others are compared and to which the guard reverts.
    pub control: String,
    /// Unit of assignment.
    pub by: AssignBy,
    /// Seed of the assignment.
    pub seed: u64,
    /// Minimum delivered bytes of a transfer: goodput and retransmissions of smaller connections
    /// are not meaningful.
    pub min_transfer: Bytes,
    /// Participating local ports; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Filter on addresses and ports; empty for all.
    #[serde(default, rename = "where", skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// Control group of participating connections.
    pub cgroup: String,
    /// Bounds on harm.
    pub guard: Guard,
    /// Start time, Unix seconds.
    pub began_unix_s: f64,
}

impl Plan {
    /// Index of the control arm.
    pub fn control_index(&self) -> usize {
        self.arms.all().iter().position(|arm| arm.label == self.control).unwrap_or(0)
    }

    /// Number of the period at a time, and whether it is in the wash-out; `None` unless assignment
    /// is by time.
    pub fn period(&self, unix_s: f64) -> Option<(u64, bool)> {
        let AssignBy::Time { period, wash_out } = self.by else { return None };
        let elapsed = (unix_s - self.began_unix_s).max(0.0);
        let length = period.as_nanos() as f64 * 1e-9;
        let number = (elapsed / length).floor();
        Some((number as u64, elapsed - number * length < wash_out.as_nanos() as f64 * 1e-9))
    }

    /// Validates the plan as a whole.
    ///
    /// # Errors
    /// When the control is not an arm, or the start time is invalid.
    pub fn check(&self) -> Result<(), SplitError> {
        if !self.arms.all().iter().any(|arm| arm.label == self.control) {
            return Err(SplitError::invalid(&self.control, "the control must be one of the arms"));
        }
        if !(self.began_unix_s.is_finite() && self.began_unix_s >= 0.0) {
            return Err(SplitError::invalid(self.began_unix_s.to_string(), "invalid start time"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_with_labels_and_holdouts_are_parsed() {
        let arms = Arms::parse(["bbr=45%", "control:cubic=0.45", "default=10%"]).unwrap();
        let parsed: Vec<_> = arms
            .all()
            .iter()
            .map(|a| (a.label.as_str(), a.controller.as_deref(), a.share.to_string()))
            .collect();
        assert_eq!(
            parsed,
            [
                ("bbr", Some("bbr"), "45%".to_owned()),
                ("control", Some("cubic"), "45%".to_owned()),
                ("default", None, "10%".to_owned())
            ]
        );
        let json = serde_json::to_string(&arms).unwrap();
        assert_eq!(serde_json::from_str::<Arms>(&json).unwrap(), arms);
    }

    #[test]
    fn invalid_arms_are_refused_with_a_correction() {
        for (arms, expected) in [
            (&["bbr=50%"][..], "two to 8"),
            (&["bbr=60%", "cubic=50%"], "at most 100%"),
            (&["bbr=50%", "bbr=50%"], "a:cubic"),
            (&["bbr", "cubic=50%"], "bbr=50%"),
            (&["bbr=0", "cubic=50%"], "zero"),
            (&["bbr=50", "cubic=50%"], "50%"),
            (&["b/r=50%", "cubic=50%"], "label"),
            (&["a:sixteen_letters_=50%", "cubic=50%"], "15 characters"),
        ] {
            let error = Arms::parse(arms).unwrap_err().to_string();
            assert!(error.contains(expected), "{arms:?}: {error}");
        }
        let thirds = Arms::parse(["a:reno=33.333333333%", "b:reno=33.333333333%", "c:reno=33.333333334%"]);
        assert!(thirds.is_ok());
    }

    #[test]
    fn shares_can_become_zero_but_not_exceed_100_percent() {
        let arms = Arms::parse(["bbr=10%", "cubic=50%"]).unwrap();
        let changed = arms.with_shares(["bbr=0"]).unwrap();
        assert_eq!(changed.shares(), [Fraction::ZERO, "50%".parse().unwrap()]);
        assert!(arms.with_shares(["bbr=60%"]).unwrap_err().to_string().contains("at most 100%, got 110%"));
        assert!(arms.with_shares(["reno=1%"]).unwrap_err().to_string().contains("bbr, cubic"));
    }
}
