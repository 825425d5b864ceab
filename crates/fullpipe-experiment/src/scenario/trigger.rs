//! Changes of the path or of an application that wait for a flow to reach a state: what a test of a
//! state machine needs ("the rate doubles while in ProbeBW_CRUISE").

use super::{App, Direction, Fault, Scenario};
use fullpipe_units::{Fraction, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When `when` has come, `then` happens, once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// What to wait for.
    pub when: When,
    /// What to change.
    pub then: LinkChange,
}

/// A flow's controller enters a state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// Which connection, counted from 0 over all flows.
    #[serde(default)]
    pub flow: u32,
    /// The state, as the recording names it.
    pub state: String,
    /// Not before this time of the run.
    #[serde(default)]
    pub not_before: Span,
    /// At which entry into the state since `not_before`, counted from 1.
    #[serde(default = "one")]
    pub entry: u32,
    /// How long after that entry.
    #[serde(default)]
    pub delay: Span,
}

fn one() -> u32 {
    1
}

/// New constants of a link, a new application of the flow waited for; what is not given stays.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// Whose links.
    #[serde(default)]
    pub direction: Direction,
    /// Which of them, counted from 0.
    #[serde(default)]
    pub link: u32,
    /// New rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// New one-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// New random loss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Fraction>,
    /// What the flow's application does from then on; what it had not sent is forgotten. (The simulator only.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<App>,
}

impl Trigger {
    pub(super) fn validate(&self, scenario: &Scenario) -> Result<(), Fault> {
        let flows: u32 = scenario.flows.iter().map(|f| f.count).sum();
        if self.when.flow >= flows {
            return Err(Fault::new(
                "when.flow",
                format!(
                    "there is no flow {}: they count from 0 to {}",
                    self.when.flow,
                    flows.saturating_sub(1)
                ),
            ));
        }
        if self.when.entry == 0 {
            return Err(Fault::new("when.entry", "entries count from 1"));
        }
        let links = match self.then.direction {
            Direction::Forward => scenario.path.forward.len(),
            Direction::Reverse => scenario.path.reverse.len(),
        };
        if self.then.link as usize >= links {
            return Err(Fault::new(
                "then.link",
                format!(
                    "there is no link {}: they count from 0 to {}",
                    self.then.link,
                    links.saturating_sub(1)
                ),
            ));
        }
        let then = &self.then;
        if then.rate.is_none() && then.delay.is_none() && then.loss.is_none() && then.app.is_none() {
            return Err(Fault::new("then", "changes nothing: give `rate`, `delay`, `loss` or `app`"));
        }
        if let Some(app) = &then.app {
            app.validate(1, scenario.duration).map_err(|f| f.under("then.app"))?;
        }
        Ok(())
    }
}
