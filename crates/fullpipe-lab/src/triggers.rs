//! Changes of the path that wait for a flow's controller to enter a state.
//!
//! The kernel does not announce states: they are seen when the sampler looks, so a change comes up to one
//! sampling interval after the state, and a state shorter than the interval may be missed.

use fullpipe_experiment::scenario::{Direction, Trigger};
use fullpipe_path::Change;
use fullpipe_units::Time;

struct Pending {
    trigger: Trigger,
    entries: u32,
    at: Option<Time>,
}

/// The triggers that have not happened yet.
pub(crate) struct Triggers(Vec<Pending>);

impl Triggers {
    pub(crate) fn new(triggers: &[Trigger]) -> Self {
        Triggers(triggers.iter().map(|t| Pending { trigger: t.clone(), entries: 0, at: None }).collect())
    }

    /// When the next change happens.
    pub(crate) fn next(&self) -> Time {
        self.0.iter().filter_map(|p| p.at).min().unwrap_or(Time::NEVER)
    }

    /// Flow `flow` was seen to enter `state`.
    pub(crate) fn on_state(&mut self, now: Time, flow: u32, state: &str) {
        for p in self.0.iter_mut().filter(|p| p.at.is_none()) {
            let when = &p.trigger.when;
            if when.flow == flow && when.state == state && now >= Time::ZERO + when.not_before {
                p.entries += 1;
                if p.entries == when.entry {
                    p.at = Some(now + when.delay);
                }
            }
        }
    }

    /// The changes due at `now`, each once.
    pub(crate) fn due(&mut self, now: Time) -> Vec<(Direction, Change)> {
        let due: Vec<Pending> = self.0.extract_if(.., |p| p.at.is_some_and(|at| at <= now)).collect();
        due.into_iter()
            .map(|p| {
                let then = p.trigger.then;
                let change =
                    Change { link: then.link as usize, rate: then.rate, delay: then.delay, loss: then.loss };
                (then.direction, change)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    #[test]
    fn a_change_waits_for_its_entry_and_happens_once() {
        let text = r#"{"when": {"state": "Drain", "entry": 2, "delay": "5ms"}, "then": {"rate": "1mbit"}}"#;
        let trigger: Trigger = serde_json::from_str(text).unwrap();
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut triggers = Triggers::new(&[trigger]);
        triggers.on_state(at(10), 0, "Drain");
        triggers.on_state(at(20), 1, "Drain");
        assert_eq!(triggers.next(), Time::NEVER);
        triggers.on_state(at(30), 0, "Drain");
        assert_eq!(triggers.next(), at(35));
        assert!(triggers.due(at(34)).is_empty());
        assert_eq!(triggers.due(at(35)).len(), 1);
        assert!(triggers.due(at(100)).is_empty());
    }
}
