//! Claims about timing, checked by repeated attempts.

use crate::machine::Machine;
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One attempt to check a claim.
pub struct Attempt {
    /// Why the attempt's own audit does not vouch for it; empty if it does.
    pub disturbances: Vec<String>,
    /// Failed assertions; empty if the claim holds.
    pub failures: Vec<String>,
}

impl Attempt {
    /// Runs the assertions of `claim`; a panic is a failure.
    pub fn run(disturbances: Vec<String>, claim: impl FnOnce()) -> Attempt {
        let failure = catch_unwind(AssertUnwindSafe(claim)).err().map(|panic| panic_message(&*panic));
        Attempt { disturbances, failures: failure.into_iter().collect() }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("see above").to_owned()
}

/// An attempt and what the machine did meanwhile.
pub struct Tried {
    attempt: Attempt,
    /// CPU stalls. They may cause a failure; whether they spoil a success, the attempt's audit knows.
    stalls: Vec<String>,
}

/// Makes an attempt and monitors the machine meanwhile.
pub fn try_claim(attempt: impl FnOnce() -> Option<Attempt>) -> Option<Tried> {
    let machine = Machine::start();
    let attempt = attempt()?;
    Some(Tried { attempt, stalls: machine.disturbances() })
}

/// Number of attempts that decide.
struct Rule {
    /// Failed undisturbed attempts that refute the claim.
    failed: usize,
    /// Disturbed attempts, whatever their result, after which the claim is not shown.
    disturbed: usize,
}

/// Result of checking a claim.
#[derive(Debug, PartialEq)]
enum Verdict {
    Shown,
    /// The attempt was not possible.
    Skipped,
    Refuted(Vec<Vec<String>>),
    NotShown(Vec<String>),
}

fn judge(claim: &str, rule: &Rule, mut attempt: impl FnMut() -> Option<Tried>) -> Verdict {
    let (mut refutations, mut disturbed) = (Vec::new(), 0);
    loop {
        let Some(Tried { attempt: Attempt { disturbances, failures }, stalls }) = attempt() else {
            return Verdict::Skipped;
        };
        if disturbances.is_empty() && failures.is_empty() {
            return Verdict::Shown;
        }
        let reasons = [disturbances, stalls].concat();
        println!("{claim}: {failures:#?}, {reasons:?}");
        if reasons.is_empty() {
            refutations.push(failures);
            if refutations.len() == rule.failed {
                return Verdict::Refuted(refutations);
            }
        } else {
            disturbed += 1;
            if disturbed == rule.disturbed {
                return Verdict::NotShown(reasons);
            }
        }
    }
}

fn report(claim: &str, verdict: Verdict) {
    match verdict {
        Verdict::Shown | Verdict::Skipped => {}
        Verdict::Refuted(failures) => {
            panic!("{claim}: failed in {} undisturbed attempts: {failures:#?}", failures.len())
        }
        Verdict::NotShown(disturbances) => println!("NOT SHOWN: {claim}: {}", disturbances.join("; ")),
    }
}

/// Repeats `attempt` until the claim holds in one that its own audit vouches for. Two failed
/// attempts refute it, unless that audit or a CPU stall excuses them: a single one may be the error
/// inherent in a 95 % confidence interval, or an undetected disturbance. After two attempts with
/// doubts or excuses the claim is not shown, which is printed on a line that `./x test` counts, and
/// neither passes nor fails. `None` skips it.
pub fn check_claim(claim: &str, mut attempt: impl FnMut() -> Option<Attempt>) {
    report(claim, judge(claim, &Rule { failed: 2, disturbed: 2 }, || try_claim(&mut attempt)));
}

/// As [`check_claim`] for what one moment of a run decides, such as a single timer: load that no
/// audit detects disturbs it more, so five failed attempts refute it.
pub fn check_brief_claim(claim: &str, mut attempt: impl FnMut() -> Option<Attempt>) {
    report(claim, judge(claim, &Rule { failed: 5, disturbed: 5 }, || try_claim(&mut attempt)));
}

/// As [`check_claim`], where `first` was the first attempt: those of several claims can be made side
/// by side, and what they leave open is decided alone.
pub fn check_claim_after(first: Tried, claim: &str, mut attempt: impl FnMut() -> Option<Attempt>) {
    let mut first = Some(first);
    let next = || first.take().or_else(|| try_claim(&mut attempt));
    // What was side by side may have been disturbed by the others: it leaves two attempts alone.
    report(claim, judge(claim, &Rule { failed: 2, disturbed: 3 }, next));
}

/// Checks a short timing that other load disturbs more than an audit can detect: one of several
/// attempts without CPU stalls must succeed. Five failed ones refute it.
pub fn check_repeatedly(claim: &str, mut measure: impl FnMut() -> Result<(), String>) {
    let monitored = || {
        let machine = Machine::start();
        let failures = measure().err().into_iter().collect();
        let attempt = Attempt { disturbances: machine.disturbances(), failures };
        Some(Tried { attempt, stalls: Vec::new() })
    };
    report(claim, judge(claim, &Rule { failed: 5, disturbed: 5 }, monitored));
}

/// Why a run is invalid, from its JSON recording.
pub fn invalid_reasons(run: &Value) -> Vec<String> {
    let because = run["invalid_because"].as_array().into_iter().flatten();
    because.map(|why| format!("{}: {}", run["label"], why)).collect()
}

/// Descriptions of the failed checks.
pub fn failed_checks<const N: usize>(checks: [(bool, String); N]) -> Vec<String> {
    checks.into_iter().filter_map(|(holds, text)| (!holds).then_some(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { failed: 2, disturbed: 3 };

    /// An attempt in order, with a doubt of its own, or with a stall of the machine.
    #[derive(Clone, Copy, PartialEq)]
    enum Kind {
        Quiet,
        Doubtful,
        Stalled,
    }
    use Kind::{Doubtful, Quiet, Stalled};

    fn tried(kind: Kind, failed: bool) -> Tried {
        let reasons = |is: bool| is.then(|| "so".to_owned()).into_iter().collect();
        let attempt = Attempt { disturbances: reasons(kind == Doubtful), failures: reasons(failed) };
        Tried { attempt, stalls: reasons(kind == Stalled) }
    }

    /// The verdict on attempts given as (kind, failed), and their number.
    fn verdict_on(attempts: &[(Kind, bool)]) -> (Verdict, usize) {
        let mut rest = attempts.iter();
        let verdict = judge("a claim", &RULE, || rest.next().map(|&(kind, failed)| tried(kind, failed)));
        (verdict, attempts.len() - rest.len())
    }

    #[test]
    fn one_successful_attempt_is_enough_also_beside_a_stall() {
        for kind in [Quiet, Stalled] {
            let attempts = [(Quiet, true), (Doubtful, true), (Stalled, true), (kind, false)];
            assert_eq!(verdict_on(&attempts), (Verdict::Shown, 4));
        }
    }

    #[test]
    fn a_doubtful_attempt_never_shows_a_claim() {
        let (verdict, made) =
            verdict_on(&[(Doubtful, false), (Doubtful, false), (Doubtful, false), (Quiet, false)]);
        assert_eq!((verdict, made), (Verdict::NotShown(vec!["so".to_owned()]), 3));
        assert_eq!(verdict_on(&[(Doubtful, false), (Quiet, false)]), (Verdict::Shown, 2));
    }

    #[test]
    fn two_undisturbed_failures_refute_a_claim() {
        let (verdict, made) =
            verdict_on(&[(Quiet, true), (Doubtful, true), (Stalled, true), (Quiet, true), (Quiet, false)]);
        assert!(matches!(verdict, Verdict::Refuted(failures) if failures.len() == 2));
        assert_eq!(made, 4);
        let refuted = Verdict::Refuted(vec![Vec::new()]);
        assert!(catch_unwind(|| report("a claim", refuted)).is_err());
    }

    #[test]
    fn disturbed_attempts_do_not_fail() {
        let (verdict, made) =
            verdict_on(&[(Doubtful, true), (Quiet, true), (Stalled, true), (Doubtful, true), (Quiet, true)]);
        assert_eq!((verdict, made), (Verdict::NotShown(vec!["so".to_owned()]), 4));
        assert_eq!(verdict_on(&[]), (Verdict::Skipped, 0));
    }

    #[test]
    fn an_attempt_that_was_made_before_counts() {
        let failing = || Some(tried(Quiet, true).attempt);
        assert!(catch_unwind(|| check_claim_after(tried(Quiet, true), "a claim", failing)).is_err());
        check_claim_after(tried(Quiet, false), "a claim", || panic!("decided"));
    }

    #[test]
    fn panics_are_failures() {
        let number = 7;
        assert_eq!(
            Attempt::run(Vec::new(), || assert!(number < 7, "{number} is not less")).failures,
            ["7 is not less"]
        );
        assert!(Attempt::run(Vec::new(), || ()).failures.is_empty());
    }
}
