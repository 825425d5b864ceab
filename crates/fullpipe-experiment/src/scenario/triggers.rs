//! Tracks a run's pending triggers and the changes that are due.

use super::{App, Direction, Trigger};
use fullpipe_path::Change;
use fullpipe_units::Time;

#[derive(Debug)]
struct Pending {
    trigger: Trigger,
    entries: u32,
    /// When the change is due, once known.
    at: Option<Time>,
}

/// A change that is due.
#[derive(Debug)]
pub struct Due {
    /// Direction of the path.
    pub direction: Direction,
    /// The link and its new parameters.
    pub change: Change,
    /// The flow whose state triggered it.
    pub flow: usize,
    /// The flow's new application, if it changes.
    pub app: Option<App>,
}

/// The pending triggers. The engine reports state changes and applies the changes that are due.
#[derive(Debug)]
pub struct Triggers {
    pending: Vec<Pending>,
    next: Time,
}

impl Triggers {
    /// All triggers pending.
    pub fn new(triggers: &[Trigger]) -> Self {
        let pending = triggers.iter().map(|t| Pending { trigger: t.clone(), entries: 0, at: None }).collect();
        Triggers { pending, next: Time::NEVER }
    }

    /// Whether no trigger is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// When the next change is due; [`Time::NEVER`] while all wait for a state.
    #[inline]
    pub fn next(&self) -> Time {
        self.next
    }

    /// The controller of `flow` enters `state`.
    pub fn on_state(&mut self, now: Time, flow: u32, state: &str) {
        for p in &mut self.pending {
            let when = &p.trigger.when;
            if p.at.is_some()
                || when.flow != flow
                || when.state != state
                || now < Time::ZERO + when.not_before
            {
                continue;
            }
            p.entries += 1;
            if p.entries == when.entry {
                p.at = Some(now + when.delay);
            }
        }
        self.find_next();
    }

    fn find_next(&mut self) {
        self.next = self.pending.iter().filter_map(|p| p.at).min().unwrap_or(Time::NEVER);
    }

    /// Removes and returns the changes due at `now`.
    pub fn due(&mut self, now: Time) -> Vec<Due> {
        let due: Vec<Pending> = self.pending.extract_if(.., |p| p.at.is_some_and(|at| at <= now)).collect();
        self.find_next();
        let change = |p: Pending| {
            let then = p.trigger.then;
            let change =
                Change { link: then.link as usize, rate: then.rate, delay: then.delay, loss: then.loss };
            Due { direction: then.direction, change, flow: p.trigger.when.flow as usize, app: then.app }
        };
        due.into_iter().map(change).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;

    #[test]
    fn change_is_due_once_after_the_chosen_entry() {
        let trigger: Trigger = toml::from_str(
            "when = { state = 'Drain', not_before = '1s', entry = 2, delay = '5ms' }\n\
             then = { rate = '1mbit' }",
        )
        .unwrap();
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let mut t = Triggers::new(&[trigger]);
        t.on_state(at(500), 0, "Drain");
        t.on_state(at(1000), 0, "Drain");
        t.on_state(at(1100), 0, "Startup");
        t.on_state(at(1200), 1, "Drain");
        assert_eq!(t.next(), Time::NEVER);
        t.on_state(at(1300), 0, "Drain");
        assert_eq!(t.next(), at(1305));
        let due = t.due(at(1305));
        assert_eq!(due.len(), 1);
        assert!(due[0].change.rate.is_some());
        assert!(t.is_empty() && t.next() == Time::NEVER);
    }
}
