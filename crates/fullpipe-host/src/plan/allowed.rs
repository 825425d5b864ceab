//! Changes of the allowed controllers (`net.ipv4.tcp_allowed_congestion_control`), as added names.
//!
//! An unrestricted controller (`TCP_CONG_NON_RESTRICTED`) enters the list when it is registered and
//! leaves it when it is unregistered. So a change is described by the names it adds, not by the
//! whole list.

use super::step_state::StepState;
use crate::host::Host;
use crate::names::ALLOWED;

const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";

/// A change of the list.
pub(super) struct Allowed<'a> {
    before: Vec<&'a str>,
    added: Vec<&'a str>,
}

impl<'a> Allowed<'a> {
    /// A change of this sysctl, if it is the allowed list.
    pub(super) fn new(name: &str, before: &'a str, after: &'a str) -> Option<Allowed<'a>> {
        if name != ALLOWED {
            return None;
        }
        let before: Vec<&str> = before.split_ascii_whitespace().collect();
        let mut added: Vec<&str> = after.split_ascii_whitespace().collect();
        added.retain(|one| !before.contains(one));
        Some(Allowed { before, added })
    }

    /// State of the change with the current list `now`.
    pub(super) fn state(&self, host: &dyn Host, now: &str) -> StepState {
        let registered = registered(host);
        let is_registered = |one: &str| registered.as_ref().is_none_or(|all| all.iter().any(|r| r == one));
        let listed: Vec<&str> = now.split_ascii_whitespace().collect();
        if self.before.iter().any(|one| is_registered(one) && !listed.contains(one)) {
            return StepState::Other(now.to_owned());
        }
        self.among(&listed, &is_registered)
    }

    /// State of the change when the list was `then`. Names missing from the original list were not
    /// registered.
    pub(super) fn state_then(&self, then: &str) -> StepState {
        let listed: Vec<&str> = then.split_ascii_whitespace().collect();
        self.among(&listed, &|_| true)
    }

    fn among(&self, listed: &[&str], is_registered: &dyn Fn(&str) -> bool) -> StepState {
        let there: Vec<bool> =
            self.added.iter().filter(|one| is_registered(one)).map(|one| listed.contains(one)).collect();
        match (there.contains(&true), there.contains(&false)) {
            (true, true) => StepState::Partial,
            (true, false) => StepState::After,
            (false, false) if self.added.is_empty() => StepState::After,
            (false, _) => StepState::Before,
        }
    }

    /// The list with the added names, and the names of the original list.
    pub(super) fn with(&self, host: &dyn Host) -> String {
        let mut words = self.now(host);
        let missing: Vec<String> = self
            .added
            .iter()
            .filter(|one| !words.iter().any(|w| w == *one))
            .map(|&one| one.to_owned())
            .collect();
        words.extend(missing);
        words.join(" ")
    }

    /// The list without the added names.
    pub(super) fn without(&self, host: &dyn Host) -> String {
        let mut words = self.now(host);
        words.retain(|one| !self.added.contains(&one.as_str()));
        words.join(" ")
    }

    /// Names of the current and the original list that are registered; the kernel rejects others
    /// (tcp_set_allowed_congestion_control).
    fn now(&self, host: &dyn Host) -> Vec<String> {
        let mut words = read_words(host, ALLOWED).unwrap_or_default();
        for one in &self.before {
            if !words.iter().any(|w| w == one) {
                words.push((*one).to_owned());
            }
        }
        if let Some(registered) = registered(host) {
            words.retain(|one| registered.contains(one));
        }
        words
    }
}

fn read_words(host: &dyn Host, name: &str) -> Option<Vec<String>> {
    Some(host.sysctl(name)?.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Registered controllers; `None` if unreadable.
fn registered(host: &dyn Host) -> Option<Vec<String>> {
    read_words(host, AVAILABLE)
}
