//! Checks that an apply is effective: in the running kernel, for the next boot and for a new
//! connection. Changes nothing.
//!
//! [`crate::status`] describes any state of a host; this answers yes or no after an apply or a
//! restart.

use crate::apply::load_when_idle;
use crate::boot::{self, Program};
use crate::controllers::is_ebpf;
use crate::error::Result;
use crate::facts::{Facts, Presence};
use crate::host::{Host, Identity};
use crate::journal::{Journal, Phase, Store};
use crate::plan::{Change, StepState};
use serde::Serialize;

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is not as applied.
    Failed,
    /// It could not be determined.
    Unknown,
    /// It is not part of the apply, or was not requested.
    Skipped,
    /// It is as applied.
    Passed,
}

/// One check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Check {
    /// A stable name: `applied`, `live`, `boot`, `connection`, `connection-to`.
    pub id: &'static str,
    /// Its result.
    pub outcome: Outcome,
    /// What was observed, in one line.
    pub observed: String,
    /// Settings that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrong: Vec<String>,
}

impl Check {
    /// A check without details.
    pub fn new(id: &'static str, outcome: Outcome, observed: impl Into<String>) -> Check {
        Check { id, outcome, observed: observed.into(), wrong: Vec::new() }
    }
}

/// Scope of a verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Question {
    /// Check only the running kernel, as after `apply --live-only`.
    pub live_only: bool,
}

/// Result of a verification.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verified {
    /// The controller that was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Start of the apply, seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<u64>,
    /// The checks.
    pub checks: Vec<Check>,
    /// The host, so that printed commands act on it.
    #[serde(skip)]
    pub identity: Identity,
}

impl Verified {
    /// The worst result.
    pub fn worst(&self) -> Outcome {
        self.checks.iter().map(|check| check.outcome).min().unwrap_or(Outcome::Unknown)
    }
}

/// Verifies an apply.
///
/// # Errors
/// The journal is damaged or not readable.
pub fn verify(host: &dyn Host, store: &Store, question: Question) -> Result<Verified> {
    let journal = load_when_idle(host, store)?.filter(|journal| journal.plan.has_apply());
    let Some(journal) = journal else {
        let nothing = Check::new("applied", Outcome::Failed, "nothing is applied on this host");
        let identity = host.identity();
        return Ok(Verified { controller: None, applied_at: None, checks: vec![nothing], identity });
    };
    let mut checks = vec![applied(host, &journal)];
    if host.identity().running {
        checks.push(plan_state(host, &journal, "live", Change::is_live));
        checks.push(connection(host, &journal));
    } else {
        let image = "a directory, not a running kernel";
        checks.extend(["live", "connection"].map(|id| Check::new(id, Outcome::Skipped, image)));
    }
    checks.push(next_boot(host, &journal, question));
    let (controller, applied_at) = (Some(journal.plan.controller), Some(journal.time));
    Ok(Verified { controller, applied_at, checks, identity: host.identity() })
}

/// Whether the apply completed and is not on trial.
fn applied(host: &dyn Host, journal: &Journal) -> Check {
    let name = &journal.plan.controller;
    let check = |outcome, seen: String| Check::new("applied", outcome, seen);
    match (journal.phase, &journal.trial) {
        (Phase::Applying, _) => check(Outcome::Failed, format!("the apply of {name} was interrupted")),
        (Phase::Reverting, _) => check(Outcome::Failed, format!("the revert of {name} was interrupted")),
        (Phase::Applied, Some(trial)) => match trial.remaining(host.clock()) {
            Some(left) => check(
                Outcome::Passed,
                format!(
                    "{name}, on trial: {} s left for {}",
                    left.as_secs().max(1),
                    host.identity().command("confirm")
                ),
            ),
            None => check(Outcome::Failed, format!("{name} was not confirmed in time")),
        },
        (Phase::Applied, None) => match &journal.plan.canary {
            Some(prefix) => check(Outcome::Passed, format!("{name}, for {prefix} only")),
            None => check(Outcome::Passed, name.clone()),
        },
    }
}

/// Whether the apply's changes of one kind are in place.
fn plan_state(host: &dyn Host, journal: &Journal, id: &'static str, of: fn(&Change) -> bool) -> Check {
    let steps = journal.plan.steps.iter().enumerate();
    let steps: Vec<_> = steps.filter(|(_, step)| step.part_of.is_none() && of(&step.change)).collect();
    let (mut wrong, mut unread) = (Vec::new(), Vec::new());
    for (number, step) in &steps {
        let (title, wanted) = (step.change.title(), step.change.wanted());
        match journal.plan.state(host, *number) {
            Ok(StepState::After) => {}
            Ok(StepState::Before | StepState::Partial) => wrong.push(format!("{title}: not {wanted}")),
            Ok(StepState::Gone) => wrong.push(format!("{title}: gone")),
            Ok(StepState::Other(now)) => wrong.push(format!("{title}: set to {wanted}, now {now}")),
            Err(e) => unread.push(format!("{title}: cannot be read ({e})")),
        }
    }
    let outcome = match (wrong.is_empty(), unread.is_empty()) {
        (true, true) => Outcome::Passed,
        (true, false) => Outcome::Unknown,
        (false, _) => Outcome::Failed,
    };
    let held = steps.len() - wrong.len() - unread.len();
    wrong.append(&mut unread);
    let what = if steps.len() == 1 { "setting" } else { "settings" };
    let seen = match steps.len() {
        0 => "no change was needed".to_owned(),
        all => format!("{held} of {all} {what} as applied"),
    };
    Check { wrong, ..Check::new(id, outcome, seen) }
}

/// Which controller a new connection gets.
fn connection(host: &dyn Host, journal: &Journal) -> Check {
    let wanted = &journal.plan.controller;
    let check = |outcome, seen: String| Check::new("connection", outcome, seen);
    if journal.plan.canary.is_some() {
        return check(Outcome::Skipped, "the apply does not change the default".into());
    }
    match host.try_connection() {
        Ok(seen) if seen == *wanted => check(Outcome::Passed, format!("a new connection uses {seen}")),
        Ok(seen) if journal.plan.divides() => {
            check(Outcome::Unknown, format!("a new connection uses {seen}: a split is running"))
        }
        Ok(seen) => check(Outcome::Failed, format!("a new connection uses {seen}, not {wanted}")),
        Err(e) => check(Outcome::Unknown, format!("cannot open a loopback connection: {e}")),
    }
}

/// Whether the next boot would make the controller the default.
fn next_boot(host: &dyn Host, journal: &Journal, question: Question) -> Check {
    const KEY: &str = "net.ipv4.tcp_congestion_control";
    let facts = Facts::gather(host);
    let wanted = &journal.plan.controller;
    let skipped = |why: &str| Check::new("boot", Outcome::Skipped, why);
    if question.live_only {
        return skipped("skipped (--live-only)");
    }
    if journal.trial.is_some() {
        return skipped("on trial: boot files are written on confirmation");
    }
    if journal.plan.canary.is_some() {
        return skipped("a canary lasts until the restart");
    }
    if !facts.scope.boots {
        return skipped(&format!("no program reads boot files here ({})", facts.scope.describe()));
    }
    let files = plan_state(host, journal, "boot", |change| matches!(change, Change::File { .. }));
    if files.outcome != Outcome::Passed {
        return files;
    }
    if let Some(obstacle) = facts.obstacle_at_boot(wanted) {
        return Check::new("boot", Outcome::Failed, obstacle);
    }
    let takes = |key: &str, value: &str| facts.accepts_at_boot(host, key, value);
    let prediction = boot::predict(host, &boot::programs(host), KEY, &takes);
    // Not read is not absent.
    if let Some(text) = host.unread().first() {
        return Check::new("boot", Outcome::Unknown, format!("{text}, so that not all boot files were read"));
    }
    if let Some(line) = prediction.unresolved.last() {
        let text = format!(
            "{} ({}) may override the next boot: the value {} is computed at boot",
            line.place(),
            line.program.name(),
            line.value
        );
        return Check::new("boot", Outcome::Unknown, text);
    }
    match prediction.line {
        Some(line) if line.value == *wanted && line.program == Program::Unit => Check::new(
            "boot",
            Outcome::Passed,
            format!("a systemd unit loads {wanted} and makes it the default ({})", line.place()),
        ),
        // Registered now; only a unit loads it again.
        Some(line) if line.value == *wanted && is_ebpf(wanted) => {
            let text = format!("{} sets {wanted}, and nothing loads it at boot", line.place());
            Check::new("boot", Outcome::Failed, text)
        }
        Some(line) if line.value == *wanted && facts.controller_at_boot(wanted) == Presence::Unknown => {
            let text = format!(
                "the next boot sets {wanted} ({}), if the kernel has it, which is unknown",
                line.place()
            );
            Check::new("boot", Outcome::Unknown, text)
        }
        Some(line) if line.value == *wanted => {
            Check::new("boot", Outcome::Passed, format!("the next boot sets {wanted} ({})", line.place()))
        }
        Some(line) => Check::new(
            "boot",
            Outcome::Failed,
            format!("the next boot sets {}, not {wanted} ({})", line.value, line.place()),
        ),
        None => Check::new("boot", Outcome::Failed, format!("no file sets {wanted} at the next boot")),
    }
}
