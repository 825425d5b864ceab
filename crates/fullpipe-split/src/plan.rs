//! What is asked of a split.

use crate::{By, Guard, SplitError};
use fullpipe_units::{Bytes, Fraction};
use serde::{Deserialize, Serialize};

/// As many as the program in the kernel has room for.
pub const MOST_ARMS: usize = 8;
/// The kernel's `TCP_CA_NAME_MAX` without the NUL, and what a label may have.
const LONGEST_CONTROLLER: usize = 15;
const LONGEST_LABEL: usize = 31;
/// The controller's name that stands for none.
const LEFT: &str = "default";

/// One of the things that are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// What it is called; the controller's name unless it was given another.
    pub label: String,
    /// What its connections get; none: what they would have got (`default`, a holdout).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Its share of what is assigned, at the beginning.
    pub share: Fraction,
}

/// The arms of a split: two to [`MOST_ARMS`], with different labels and shares of at most 100 % together.
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
        if !(2..=MOST_ARMS).contains(&arms.len()) {
            return Err(SplitError::asked(
                all(),
                format!("two to {MOST_ARMS} arms, such as bbr=50% cubic=50%"),
            ));
        }
        for (i, arm) in arms.iter().enumerate() {
            let is_word = |text: &str, longest: usize| {
                (1..=longest).contains(&text.len())
                    && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
            };
            if !is_word(&arm.label, LONGEST_LABEL) {
                return Err(SplitError::asked(&arm.label, "a label is letters, digits, `_`, `-` and `.`"));
            }
            if arm.controller.as_ref().is_some_and(|name| !is_word(name, LONGEST_CONTROLLER)) {
                return Err(SplitError::asked(&arm.label, "a controller's name has 1 to 15 characters"));
            }
            if arms[..i].iter().any(|other| other.label == arm.label) {
                return Err(SplitError::asked(
                    &arm.label,
                    "two arms of that name; a:cubic=50% b:cubic=50% gives them others",
                ));
            }
        }
        let sum: u64 = arms.iter().map(|arm| u64::from(arm.share.as_billionths())).sum();
        // A third is not a whole number of billionths.
        if sum > 1_000_000_000 + arms.len() as u64 {
            return Err(SplitError::asked(all(), "shares of more than 100 % together"));
        }
        Ok(Arms(arms))
    }
}

impl Arms {
    /// Reads `bbr=50%`, `control:cubic=45%`, `default=5%`.
    ///
    /// # Errors
    /// With what is wrong with the arm, or with all of them.
    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Arms, SplitError> {
        let arm = |text: &str| {
            let wrong = |reason: String| SplitError::asked(text, reason);
            let (name, share) = text
                .split_once('=')
                .ok_or_else(|| wrong("a controller and its share, such as bbr=50%".to_owned()))?;
            let (label, controller) = name.split_once(':').unwrap_or((name, name));
            let share: Fraction =
                share.parse().map_err(|e: fullpipe_units::ParseError| wrong(e.to_string()))?;
            if share == Fraction::ZERO {
                return Err(wrong("a share of nothing is no arm".to_owned()));
            }
            let controller = (controller != LEFT).then(|| controller.to_owned());
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

    /// Other shares for the same arms, written as at the beginning; an arm that is left out keeps its share.
    ///
    /// # Errors
    /// For an arm that is not there, or shares of more than 100 %.
    pub fn changed<T: AsRef<str>>(&self, texts: impl IntoIterator<Item = T>) -> Result<Arms, SplitError> {
        let mut arms = self.0.clone();
        for text in texts {
            let text = text.as_ref();
            let wrong = |reason: String| SplitError::asked(text, reason);
            let (label, share) = text
                .split_once('=')
                .ok_or_else(|| wrong("an arm and its share, such as bbr=10%".to_owned()))?;
            let known = || self.0.iter().map(|arm| arm.label.as_str()).collect::<Vec<_>>().join(", ");
            let arm = arms
                .iter_mut()
                .find(|arm| arm.label == label)
                .ok_or_else(|| wrong(format!("no such arm; there are {}", known())))?;
            arm.share = share.parse().map_err(|e: fullpipe_units::ParseError| wrong(e.to_string()))?;
        }
        Arms::try_from(arms)
    }
}

/// Everything that a split was asked to be: the first line of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What is compared.
    pub arms: Arms,
    /// The label of the arm that the others are held against, and to which the guard goes back.
    pub control: String,
    /// What is assigned.
    pub by: By,
    /// Of the assignment.
    pub seed: u64,
    /// A connection that delivered less is no transfer: its goodput and retransmissions say nothing of a controller.
    pub least: Bytes,
    /// Local ports that take part; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Which of them take part, as a condition on their ends; empty: all.
    #[serde(default, rename = "where", skip_serializing_if = "String::is_empty")]
    pub only: String,
    /// Whose connections take part.
    pub cgroup: String,
    /// Bounds on harm.
    pub guard: Guard,
    /// When it began, seconds since 1970.
    pub began_unix_s: f64,
}

impl Plan {
    /// The place of the control arm.
    pub fn control_place(&self) -> usize {
        self.arms.all().iter().position(|arm| arm.label == self.control).unwrap_or(0)
    }

    /// Which period a moment is in, counted from the beginning, and whether it is washed out; none where time is not what
    /// is assigned.
    pub fn period(&self, unix_s: f64) -> Option<(u64, bool)> {
        let By::Time { period, wash_out } = self.by else { return None };
        let passed = (unix_s - self.began_unix_s).max(0.0);
        let length = period.as_nanos() as f64 * 1e-9;
        let number = (passed / length).floor();
        Some((number as u64, passed - number * length < wash_out.as_nanos() as f64 * 1e-9))
    }

    /// What a plan must be beyond the form of its parts.
    ///
    /// # Errors
    /// When the control is no arm, or the beginning no time.
    pub fn check(&self) -> Result<(), SplitError> {
        if !self.arms.all().iter().any(|arm| arm.label == self.control) {
            return Err(SplitError::asked(&self.control, "the control must be one of the arms"));
        }
        if !(self.began_unix_s.is_finite() && self.began_unix_s >= 0.0) {
            return Err(SplitError::asked(
                self.began_unix_s.to_string(),
                "no time at which a split can begin",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_are_read_with_labels_and_holdouts() {
        let arms = Arms::parse(["bbr=45%", "control:cubic=0.45", "default=10%"]).unwrap();
        let told: Vec<_> = arms
            .all()
            .iter()
            .map(|a| (a.label.as_str(), a.controller.as_deref(), a.share.to_string()))
            .collect();
        assert_eq!(
            told,
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
    fn what_makes_no_sense_is_refused_with_a_way_out() {
        for (arms, said) in [
            (&["bbr=50%"][..], "two to 8"),
            (&["bbr=60%", "cubic=50%"], "100 %"),
            (&["bbr=50%", "bbr=50%"], "a:cubic"),
            (&["bbr", "cubic=50%"], "bbr=50%"),
            (&["bbr=0", "cubic=50%"], "nothing"),
            (&["bbr=50", "cubic=50%"], "50%"),
            (&["b/r=50%", "cubic=50%"], "label"),
            (&["a:sixteen_letters_=50%", "cubic=50%"], "15 characters"),
        ] {
            let error = Arms::parse(arms).unwrap_err().to_string();
            assert!(error.contains(said), "{arms:?}: {error}");
        }
        let thirds = Arms::parse(["a:reno=33.333333333%", "b:reno=33.333333333%", "c:reno=33.333333334%"]);
        assert!(thirds.is_ok());
    }

    #[test]
    fn shares_can_be_changed_to_nothing_but_not_above_all() {
        let arms = Arms::parse(["bbr=10%", "cubic=50%"]).unwrap();
        let changed = arms.changed(["bbr=0"]).unwrap();
        assert_eq!(changed.shares(), [Fraction::ZERO, "50%".parse().unwrap()]);
        assert!(arms.changed(["bbr=60%"]).unwrap_err().to_string().contains("100 %"));
        assert!(arms.changed(["reno=1%"]).unwrap_err().to_string().contains("bbr, cubic"));
    }
}
