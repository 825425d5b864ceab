//! The outcome of checking one part, and its text.

use fullpipe_host::screen::Style;
use fullpipe_kernel::printable::wrap;
use serde::Serialize;

/// The verdict on a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was used and worked.
    Works,
    /// It was used, but the machine was too busy to judge it.
    Inconclusive,
    /// This machine, this user or this build lacks something.
    Impossible,
    /// It should work and did not.
    Failed,
}

/// A verdict and its reasons.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Outcome {
    pub verdict: Verdict,
    /// What was observed.
    pub found: String,
    /// What to do to make it work, or work better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

/// An outcome with the part's name.
#[derive(Debug, Serialize)]
pub struct Checked {
    pub part: &'static str,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Duration of the check.
    pub seconds: f64,
}

impl Outcome {
    pub fn works(found: impl Into<String>) -> Outcome {
        Outcome { verdict: Verdict::Works, found: found.into(), help: None }
    }

    pub fn inconclusive(found: impl Into<String>) -> Outcome {
        let help = Some("try again on a quieter machine".to_owned());
        Outcome { verdict: Verdict::Inconclusive, found: found.into(), help }
    }

    pub fn impossible(found: impl Into<String>, help: impl Into<String>) -> Outcome {
        Outcome { verdict: Verdict::Impossible, found: found.into(), help: Some(help.into()) }
    }

    /// Impossible, with a reason that includes what to do.
    pub fn impossible_because(reason: impl Into<String>) -> Outcome {
        Outcome { verdict: Verdict::Impossible, found: reason.into(), help: None }
    }

    /// Impossible because the feature is not built in.
    #[cfg(not(all(feature = "ebpf", feature = "live", feature = "net")))]
    pub fn not_built_in(feature: &str) -> Outcome {
        Outcome::impossible(
            format!("this fullpipe was built without the feature `{feature}`"),
            "build it with `cargo build --features full`",
        )
    }

    pub fn failed(found: impl Into<String>) -> Outcome {
        let help =
            Some("this should work: please report it with the output of `fullpipe self-test --json`".into());
        Outcome { verdict: Verdict::Failed, found: found.into(), help }
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Works => "works",
            Verdict::Inconclusive => "unclear",
            Verdict::Impossible => "not here",
            Verdict::Failed => "FAILED",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Verdict::Works => "32",
            Verdict::Inconclusive => "35",
            Verdict::Impossible => "33",
            Verdict::Failed => "1;31",
        }
    }
}

impl Checked {
    /// The result as lines of text.
    pub fn text(&self, style: Style) -> String {
        let Outcome { verdict, found, help } = &self.outcome;
        let word = format!("{:<10}", verdict.word());
        let word = if style.colour { format!("\x1b[{}m{word}\x1b[0m", verdict.colour()) } else { word };
        let head = format!("{word} {:<11}", self.part);
        let indent = " ".repeat(22);
        let mut text = String::new();
        for (i, line) in wrap(found, style.width.saturating_sub(22).max(20), 0).iter().enumerate() {
            text += &format!("{}{line}\n", if i == 0 { &head } else { &indent });
        }
        for line in
            help.iter().flat_map(|help| wrap(help, style.width.saturating_sub(25).max(20), 0)).enumerate()
        {
            text += &format!("{indent}{} {}\n", if line.0 == 0 { "→" } else { " " }, line.1);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_reasons_are_wrapped_beside_the_verdict() {
        let outcome = Outcome::impossible("may not load BPF programs", "run it as root");
        let checked = Checked { part: "ebpf", outcome, seconds: 0.1 };
        let text = checked.text(Style { colour: false, width: 42 });
        assert_eq!(
            text,
            "not here   ebpf       may not load BPF\n                      programs\n\
             \x20                     → run it as root\n"
        );
    }

    #[test]
    fn json_names_the_verdict() {
        let checked = Checked { part: "lab", outcome: Outcome::inconclusive("late"), seconds: 0.5 };
        let json = serde_json::to_value(&checked).unwrap();
        assert_eq!(json["part"], "lab");
        assert_eq!(json["verdict"], "inconclusive");
        assert_eq!(json["found"], "late");
    }
}
