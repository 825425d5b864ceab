//! Whether the engine can measure what a check bounds.

use super::Check;
use crate::recording::Quantity;
use crate::scenario::{Fault, FlowSpec, Scenario, Vocabulary};

impl Check {
    /// Checks that its bounds can be measured; `connections` are those of `scenario`.
    pub(in crate::scenario) fn validate(
        &self,
        scenario: &Scenario,
        connections: &[FlowSpec],
        vocabulary: &Vocabulary,
    ) -> Result<(), Fault> {
        let bounds = self.bounds();
        if bounds.is_empty() && self.states.is_none() && self.never.is_none() {
            return Err(Fault::new("", "a check needs at least one bound")
                .help("add one, such as goodput = \">= 85mbit\""));
        }
        let selected: Vec<&FlowSpec> = connections.iter().filter(|f| self.selects(f)).collect();
        if let Some(name) = self.flow.as_ref().filter(|_| selected.is_empty()) {
            let labels: Vec<&str> = connections.iter().filter_map(|f| f.label.as_deref()).take(20).collect();
            let reason = format!("no flow is called `{name}`; the flows are: {}", labels.join(", "));
            return Err(Fault::new("flow", reason));
        }
        let from = self.from.unwrap_or_default();
        let end = self.to.unwrap_or(scenario.duration);
        if from >= end || end > scenario.duration {
            let reason =
                format!("the window {from} to {end} is empty or exceeds the run of {}", scenario.duration);
            return Err(Fault::new("from", reason));
        }
        bounds.iter().try_for_each(|(quantity, ..)| {
            self.can_measure(*quantity, scenario, &selected, vocabulary)
                .map_err(|(reason, help)| Fault::new(quantity.name(), reason).help(help))
        })
    }

    fn selects(&self, flow: &FlowSpec) -> bool {
        self.flow.as_ref().is_none_or(|name| flow.cc == *name || flow.label.as_ref() == Some(name))
    }

    /// Whether `quantity` can be measured; if not, the reason and a remedy.
    fn can_measure(
        &self,
        quantity: Quantity,
        scenario: &Scenario,
        selected: &[&FlowSpec],
        vocabulary: &Vocabulary,
    ) -> Result<(), (String, &'static str)> {
        const WHOLE: &str = "remove `from` and `to`";
        let no = |reason: &str, help| Err((reason.to_owned(), help));
        match quantity {
            Quantity::QueueP50 | Quantity::QueueP95 | Quantity::QueueMax | Quantity::Completion
                if self.is_windowed() =>
            {
                no("is measured for the whole run only", WHOLE)
            }
            Quantity::Completion => match selected.iter().find(|f| f.size.is_none()) {
                Some(endless) => {
                    let name = endless.label.as_deref().unwrap_or(&endless.cc);
                    Err((format!("`{name}` has no `size`, so it never completes"), "give the flow a `size`"))
                }
                None => Ok(()),
            },
            Quantity::Fairness => match (selected, &self.flow) {
                ([_, _, ..], _) => Ok(()),
                (_, Some(name)) => Err((
                    format!("needs at least two flows, and `{name}` is one"),
                    "remove `flow`, or name a controller used by several flows",
                )),
                (_, None) => no("needs at least two flows", "add a [[flow]], or set `count`"),
            },
            Quantity::Loss if self.is_windowed() && vocabulary.whole_run_loss_only => {
                no("the lab counts lost packets per run, not over time", WHOLE)
            }
            Quantity::Utilization
                if scenario.path.facts(scenario.mtu, scenario.smss()).rate_bps.is_none() =>
            {
                no("the path has no rate to compare with", "bound `goodput`, or give the path a rate")
            }
            _ => Ok(()),
        }
    }
}
