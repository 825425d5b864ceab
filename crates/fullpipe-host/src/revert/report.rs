//! What a revert did, step by step.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

/// How it went with one step of a plan that was to be undone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is as it was before.
    Restored,
    /// What was changed is not there any more.
    Gone,
    /// It is left as someone set it since, which is this.
    Kept(String),
    /// The module is in use and stays until the next boot; why.
    StillLoaded(String),
    /// The directory holds something else now, and stays.
    NotEmpty,
    /// What it was before cannot come back (a controller that is gone, for one): it is something else now.
    Replaced {
        /// What it is.
        now: String,
        /// Why.
        why: String,
    },
    /// It could not be changed, and nothing more is done about it; why.
    Refused(String),
}

/// A step that was looked at, and was not already as before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Undone {
    /// What the step had changed.
    pub title: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// Established connections that keep a controller which is the default no more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Left {
    /// The controller.
    pub controller: String,
    /// How many connections, loopback's left out.
    pub connections: usize,
    /// Whether they were paced by a queueing discipline that is gone.
    pub unpaced: bool,
}

/// What a revert did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reverted {
    /// The steps, in the order in which they were undone.
    pub steps: Vec<Undone>,
    /// Connections that it could not move back.
    pub left: Option<Left>,
}

impl Reverted {
    pub(super) fn add(&mut self, title: String, outcome: Outcome) {
        self.steps.push(Undone { title, outcome });
    }

    /// What was put back.
    pub fn undone(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter(|s| s.outcome == Outcome::Restored).map(|s| s.title.as_str())
    }

    /// What was left, and what to expect, in words.
    pub fn notes(&self) -> Vec<String> {
        let of_step = |step: &Undone| {
            let title = &step.title;
            Some(match &step.outcome {
                Outcome::Restored => return None,
                Outcome::Gone => format!("{title} is gone: nothing to put back"),
                Outcome::Kept(now) => format!("{title} stays as someone set it since: {now}"),
                Outcome::StillLoaded(why) => format!("{title} stays loaded until the next boot ({why})"),
                Outcome::NotEmpty => format!("{title} stays: something else is in it now"),
                Outcome::Replaced { now, why } => {
                    format!("{title} is {now} now: what it was before cannot come back ({why})")
                }
                Outcome::Refused(why) => format!("{title} stays as it is ({why})"),
            })
        };
        let of_connections = |left: &Left| {
            let Left { controller, connections, .. } = left;
            if left.unpaced {
                format!(
                    "{connections} established connection(s) still use {controller}: they were paced by the discipline that is gone \
                     and may send unpaced until they close; restart the services that hold them if that matters"
                )
            } else {
                format!("{connections} established connection(s) keep {controller} until they close")
            }
        };
        self.steps.iter().filter_map(of_step).chain(self.left.iter().map(of_connections)).collect()
    }
}

/// `undone` and `notes` in words, as ever; `steps` and `left` for who wants to know which.
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
