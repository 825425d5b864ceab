//! The current state of a direction, with a symbol.

use super::ChangeReport;
use super::summary::{Newest, PathSummary};
use crate::analysis::Metric;
use crate::record::{Pair, TransferError};
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of a direction or a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Normal.
    Normal,
    /// Slower than usual.
    Slower,
    /// Unusual packet loss.
    Loss,
    /// Higher RTT than usual.
    HigherRtt,
    /// Better than usual, or otherwise different.
    Different,
    /// No records for ten periods.
    Silent,
    /// Transfers fail with this error.
    Failing(TransferError),
}

/// A direction without records for this many periods is silent.
const SILENT_PERIODS: i64 = 10;

impl State {
    /// A description.
    pub fn name(self) -> &'static str {
        match self {
            State::Normal => "normal",
            State::Slower => "slower",
            State::Loss => "loss",
            State::HigherRtt => "higher RTT",
            State::Different => "different",
            State::Silent => "silent",
            State::Failing(error) => match error {
                TransferError::Unreachable => "unreachable",
                TransferError::Refused => "refused",
                TransferError::NotAMember => "not a member",
                TransferError::Version => "other version",
                TransferError::MtuBlackHole => "MTU black hole",
                TransferError::Stalled => "stalled",
                TransferError::TooSlow => "too slow",
                TransferError::Broken => "connection fails",
                TransferError::SenderBudget => "sender over budget",
                TransferError::ReceiverBudget => "receiver over budget",
                TransferError::Busy => "busy",
                TransferError::NoSuchController => "no such controller",
            },
        }
    }

    /// A symbol that does not depend on colour.
    pub fn symbol(self) -> &'static str {
        match self {
            State::Normal => "",
            State::Slower => "▼",
            State::Loss => "◆",
            State::HigherRtt => "▶",
            State::Different => "●",
            State::Silent => "…",
            State::Failing(TransferError::TooSlow) => "▼",
            State::Failing(_) => "✕",
        }
    }

    /// Whether the state needs attention.
    pub fn is_bad(self) -> bool {
        !matches!(self, State::Normal | State::Different)
    }

    /// The state caused by a change.
    pub(super) fn from_change(change: &ChangeReport) -> State {
        let metrics = change.cause.metrics();
        match change.kind {
            "higher RTT" => State::HigherRtt,
            "slower" => State::Slower,
            "loss" | "policed" => State::Loss,
            _ if metrics.contains(&Metric::Failures) => State::Failing(TransferError::Unreachable),
            _ => State::Different,
        }
    }
}

/// The state of each direction: by its newest transfers if they failed, else by ongoing changes.
pub(super) fn states(paths: &[PathSummary], changes: &[ChangeReport]) -> BTreeMap<Pair, State> {
    // A clock that jumped ahead does not define the time of all sites.
    let mut all: Vec<i64> = paths.iter().filter_map(|path| path.newest).map(|newest| newest.period).collect();
    all.sort_unstable();
    let now = all.get(all.len() / 2).copied().unwrap_or(0);
    let one = |path: &PathSummary| {
        let Newest { period, error, has_completed } = path.newest?;
        let open = changes
            .iter()
            .filter(|change| change.end_ms.is_none())
            .find(|change| change.cause.location.contains(path.pair));
        let state = match (error, open) {
            _ if now.saturating_sub(period) > SILENT_PERIODS => State::Silent,
            (Some(error), _) if !has_completed => State::Failing(error),
            (_, Some(change)) => State::from_change(change),
            _ => State::Normal,
        };
        Some((path.pair, state))
    };
    paths.iter().filter_map(one).collect()
}
