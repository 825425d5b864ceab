//! Result of a revert, step by step.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// Result of rolling back one step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Restored to its original state.
    Restored,
    /// The object no longer exists.
    Gone,
    /// Kept as it was changed since; its current value.
    Kept(String),
    /// The module is in use and stays loaded until the next boot; the reason.
    StillLoaded(String),
    /// The directory holds other files and stays.
    NotEmpty,
    /// The original value is unavailable (for example, an unregistered controller); it has another
    /// value now.
    Replaced {
        /// The current value.
        now: String,
        /// The reason.
        why: String,
    },
    /// It could not be changed; the reason.
    Refused(String),
}

/// A step that was not already in its original state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Undone {
    /// What the step changed.
    pub title: String,
    /// The result.
    pub outcome: Outcome,
}

/// Established connections that keep a controller which is no longer the default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Left {
    /// The controller.
    pub controller: String,
    /// Number of connections, without loopback.
    pub connections: usize,
    /// Whether the queueing discipline that paced them was removed.
    pub unpaced: bool,
}

/// Result of a revert.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reverted {
    /// The steps, in the order in which they were rolled back.
    pub steps: Vec<Undone>,
    /// Connections that keep the old controller.
    pub left: Option<Left>,
}

/// What to know about a step that was not restored.
fn note(step: &Undone) -> Option<String> {
    let title = &step.title;
    Some(match &step.outcome {
        Outcome::Restored => return None,
        Outcome::Gone => format!("{title} no longer exists: nothing to restore"),
        Outcome::Kept(now) => format!("{title} keeps the value it was changed to since: {now}"),
        Outcome::StillLoaded(why) => format!("{title} stays loaded until the next boot ({why})"),
        Outcome::NotEmpty => format!("{title} stays: it holds other files now"),
        Outcome::Replaced { now, why } => {
            format!("{title} is now {now}: its original value is unavailable ({why})")
        }
        Outcome::Refused(why) => format!("{title} is unchanged ({why})"),
    })
}

impl Reverted {
    pub(super) fn add(&mut self, title: String, outcome: Outcome) {
        self.steps.push(Undone { title, outcome });
    }

    /// Titles of the restored objects.
    pub fn undone(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter(|s| s.outcome == Outcome::Restored).map(|s| s.title.as_str())
    }

    /// What is not as before, one note each. A module that is still in use is not among it.
    pub fn exceptions(&self) -> Vec<String> {
        let is_exception = |step: &&Undone| {
            !matches!(step.outcome, Outcome::Restored | Outcome::Gone | Outcome::StillLoaded(_))
        };
        self.steps.iter().filter(is_exception).filter_map(note).collect()
    }

    /// One sentence on the whole.
    pub fn summary(&self) -> String {
        match &self.exceptions()[..] {
            [] => "everything was rolled back".to_owned(),
            exceptions => format!("everything else was rolled back: {}", exceptions.join("; ")),
        }
    }

    /// Whether everything is as before.
    pub fn is_exact(&self) -> bool {
        self.steps.iter().all(|step| matches!(step.outcome, Outcome::Restored | Outcome::Gone))
    }

    /// What was not restored, and what to expect.
    pub fn notes(&self) -> Vec<String> {
        let of_connections = |left: &Left| {
            let Left { controller, connections, .. } = left;
            if left.unpaced {
                format!(
                    "{connections} established connection(s) still use {controller}: the queueing discipline \
                     that paced them is removed, \
                     so they may send unpaced until they close; restart their services if that matters"
                )
            } else {
                format!("{connections} established connection(s) keep {controller} until they close")
            }
        };
        self.steps.iter().filter_map(note).chain(self.left.iter().map(of_connections)).collect()
    }
}

/// `undone` and `notes` are texts; `steps` and `left` are structured.
impl Serialize for Reverted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Reverted", 4)?;
        fields.serialize_field("undone", &self.undone().collect::<Vec<_>>())?;
        fields.serialize_field("notes", &self.notes())?;
        fields.serialize_field("steps", &self.steps)?;
        fields.serialize_field("left", &self.left)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_read_the_steps_and_the_words() {
        let mut report = Reverted::default();
        report.add("net.ipv4.tcp_congestion_control".into(), Outcome::Restored);
        report.add("module tcp_bbr".into(), Outcome::StillLoaded("in use".into()));
        report.left = Some(Left { controller: "bbr".into(), connections: 2, unpaced: true });
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["undone"], serde_json::json!(["net.ipv4.tcp_congestion_control"]));
        assert_eq!(json["notes"][0], "module tcp_bbr stays loaded until the next boot (in use)");
        assert!(json["notes"][1].as_str().unwrap().contains("unpaced"), "{json}");
        assert_eq!(json["steps"][1]["outcome"]["still-loaded"], "in use");
        assert_eq!(json["left"]["connections"], 2);
    }
}
