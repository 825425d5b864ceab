//! Changes of the path or of an application triggered by a flow's state, to test state machines
//! ("the rate doubles in ProbeBW_CRUISE").

use super::{App, Direction, Fault, Scenario};
use fullpipe_units::{Fraction, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Applies `then` once, when `when` is met.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// The condition.
    pub when: When,
    /// The change.
    pub then: LinkChange,
}

/// A flow's controller enters a state.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// The connection, counted from 0 over all flows.
    #[serde(default)]
    pub flow: u32,
    /// The state, by its name in recordings.
    pub state: String,
    /// Ignores entries before this time of the run.
    #[serde(default)]
    pub not_before: Span,
    /// The entry into the state since `not_before` that triggers the change, counted from 1.
    #[serde(default = "one")]
    pub entry: u32,
    /// Delay after that entry.
    #[serde(default)]
    pub delay: Span,
}

fn one() -> u32 {
    1
}

/// New parameters of a link, or a new application of the flow; anything omitted stays the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The direction of the link.
    #[serde(default)]
    pub direction: Direction,
    /// The link, counted from 0.
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
    /// New application of the flow; unsent data is discarded. (Simulator only.)
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
                    "there is no flow {}: flows are numbered 0 to {}",
                    self.when.flow,
                    flows.saturating_sub(1)
                ),
            ));
        }
        if self.when.entry == 0 {
            return Err(Fault::new("when.entry", "must be at least 1"));
        }
        let links = match self.then.direction {
            Direction::Forward => scenario.path.forward.len(),
            Direction::Reverse => scenario.path.reverse.len(),
        };
        if self.then.link as usize >= links {
            return Err(Fault::new(
                "then.link",
                format!(
                    "there is no link {}: links are numbered 0 to {}",
                    self.then.link,
                    links.saturating_sub(1)
                ),
            ));
        }
        let then = &self.then;
        if then.rate.is_none() && then.delay.is_none() && then.loss.is_none() && then.app.is_none() {
            return Err(Fault::new("then", "must set `rate`, `delay`, `loss` or `app`"));
        }
        if let Some(app) = &then.app {
            app.validate(1, scenario.duration).map_err(|f| f.under("then.app"))?;
        }
        Ok(())
    }
}
