//! How a direction is now, in a word and a sign.

use super::Told;
use crate::record::{History, Outcome, Pair, Trouble};
use crate::see::Metric;
use serde::Serialize;
use std::collections::BTreeMap;

/// Of a direction or a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As usual.
    Fine,
    /// Slower than usual.
    Slower,
    /// Packets are lost that are not usually.
    Loss,
    /// The round trip is longer than usual.
    Longer,
    /// Better than usual, or otherwise different.
    Different,
    /// Nothing was heard for ten periods.
    Silent,
    /// Transfers do not come about, and why.
    Trouble(Trouble),
}

/// A direction that was not heard of for so many periods is silent.
const SILENT: i64 = 10;

impl State {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            State::Fine => "as usual",
            State::Slower => "slower",
            State::Loss => "loss",
            State::Longer => "longer way",
            State::Different => "different",
            State::Silent => "silent",
            State::Trouble(trouble) => match trouble {
                Trouble::Unreachable => "unreachable",
                Trouble::Refused => "refused",
                Trouble::NotAMember => "not a member",
                Trouble::Version => "other version",
                Trouble::LargePacketsVanish => "large packets vanish",
                Trouble::Stalled => "stalled",
                Trouble::TooSlow => "too slow",
                Trouble::Broken => "breaks",
                Trouble::SenderBudget => "sender’s budget spent",
                Trouble::ReceiverBudget => "receiver’s budget spent",
                Trouble::NoTurn => "no turn",
                Trouble::NoSuchController => "no such controller",
            },
        }
    }

    /// A sign that tells it without colour.
    pub fn sign(self) -> &'static str {
        match self {
            State::Fine => "",
            State::Slower => "▼",
            State::Loss => "◆",
            State::Longer => "▶",
            State::Different => "●",
            State::Silent => "…",
            State::Trouble(Trouble::TooSlow) => "▼",
            State::Trouble(_) => "✕",
        }
    }

    /// Whether it is something to look after.
    pub fn is_bad(self) -> bool {
        !matches!(self, State::Fine | State::Different)
    }

    /// That a change brings about.
    pub(super) fn of_change(told: &Told) -> State {
        let metrics = told.change.metrics();
        match told.kind {
            "longer round trip" => State::Longer,
            "slower" => State::Slower,
            "loss" | "drops what is above a rate" => State::Loss,
            _ if metrics.contains(&Metric::Failures) => State::Trouble(Trouble::Unreachable),
            _ => State::Different,
        }
    }
}

/// How each direction is: by its newest transfers if they fail, else by the changes that are not over.
pub(super) fn states(history: &History, changes: &[Told]) -> BTreeMap<Pair, State> {
    let mut newest: BTreeMap<Pair, i64> = BTreeMap::new();
    for transfer in &history.transfers {
        let period = newest.entry(transfer.pair).or_insert(transfer.period);
        *period = (*period).max(transfer.period);
    }
    // What a clock that jumped ahead says is not the time of all others.
    let mut all: Vec<i64> = newest.values().copied().collect();
    all.sort_unstable();
    let now = all.get(all.len() / 2).copied().unwrap_or(0);
    let mut last: BTreeMap<Pair, (i64, Option<Trouble>, bool)> = BTreeMap::new();
    for transfer in &history.transfers {
        let at = last.entry(transfer.pair).or_insert((i64::MIN, None, false));
        if transfer.period > at.0 {
            *at = (transfer.period, None, false);
        }
        if transfer.period == at.0 {
            match &transfer.outcome {
                Outcome::Done(_) => at.2 = true,
                Outcome::Failed(trouble) => at.1 = Some(*trouble),
            }
        }
    }
    let one = |(pair, (period, trouble, arrived)): (Pair, (i64, Option<Trouble>, bool))| {
        let open =
            changes.iter().filter(|told| told.end_ms.is_none()).find(|told| told.change.place.holds(pair));
        let state = match (trouble, open) {
            _ if now.saturating_sub(period) > SILENT => State::Silent,
            (Some(trouble), _) if !arrived => State::Trouble(trouble),
            (_, Some(told)) => State::of_change(told),
            _ => State::Fine,
        };
        (pair, state)
    };
    last.into_iter().map(one).collect()
}
