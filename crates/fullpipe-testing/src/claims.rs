//! Claims about timing, checked by repeated attempts.

use crate::machine::Machine;
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One attempt to check a claim.
pub struct Attempt {
    /// Reasons why the machine may have disturbed the attempt; empty if undisturbed.
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

fn judge(claim: &str, rule: &Rule, mut attempt: impl FnMut() -> Option<Attempt>) -> Verdict {
    let (mut refutations, mut disturbed) = (Vec::new(), 0);
    loop {
        let Some(Attempt { disturbances, failures }) = attempt() else { return Verdict::Skipped };
        if disturbances.is_empty() && failures.is_empty() {
            return Verdict::Shown;
        }
        println!("{claim}: {failures:#?}, {disturbances:?}");
        // A disturbed attempt says nothing: load can hide a fault as well as cause a failure.
        if !disturbances.is_empty() {
            disturbed += 1;
            if disturbed == rule.disturbed {
                return Verdict::NotShown(disturbances);
            }
            continue;
        }
        refutations.push(failures);
        if refutations.len() == rule.failed {
            return Verdict::Refuted(refutations);
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

/// Repeats `attempt` until the claim holds in an undisturbed one. Two failed undisturbed attempts
/// refute it: a single one may be the error inherent in a 95 % confidence interval, or an undetected
/// disturbance. After two disturbed attempts the claim is not shown, which is printed on a line that
/// `./x test` counts, and neither passes nor fails. `None` skips it.
pub fn check_claim(claim: &str, mut attempt: impl FnMut() -> Option<Attempt>) {
    let monitored = || {
        let machine = Machine::start();
        let mut outcome = attempt()?;
        outcome.disturbances.extend(machine.disturbances());
        Some(outcome)
    };
    report(claim, judge(claim, &Rule { failed: 2, disturbed: 2 }, monitored));
}

/// Checks a short timing that other load disturbs more than an audit can detect: one of several
/// undisturbed attempts must succeed. Five failed ones refute it.
pub fn check_repeatedly(claim: &str, mut measure: impl FnMut() -> Result<(), String>) {
    let monitored = || {
        let machine = Machine::start();
        let failures = measure().err().into_iter().collect();
        Some(Attempt { disturbances: machine.disturbances(), failures })
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

    /// The verdict on attempts given as (disturbed, failed), and their number.
    fn verdict_on(attempts: &[(bool, bool)]) -> (Verdict, usize) {
        let reasons = |is: bool| is.then(|| "so".to_owned()).into_iter().collect();
        let mut rest = attempts.iter();
        let verdict = judge("a claim", &RULE, || {
            let (disturbed, failed) = *rest.next()?;
            Some(Attempt { disturbances: reasons(disturbed), failures: reasons(failed) })
        });
        (verdict, attempts.len() - rest.len())
    }

    #[test]
    fn one_successful_undisturbed_attempt_is_enough() {
        assert_eq!(verdict_on(&[(false, true), (true, true), (false, false)]), (Verdict::Shown, 3));
    }

    #[test]
    fn a_disturbed_attempt_never_shows_a_claim() {
        let (verdict, made) = verdict_on(&[(true, false), (true, false), (true, false), (false, false)]);
        assert_eq!((verdict, made), (Verdict::NotShown(vec!["so".to_owned()]), 3));
        assert_eq!(verdict_on(&[(true, false), (false, false)]), (Verdict::Shown, 2));
    }

    #[test]
    fn two_undisturbed_failures_refute_a_claim() {
        let (verdict, made) =
            verdict_on(&[(false, true), (true, true), (true, true), (false, true), (false, false)]);
        assert!(matches!(verdict, Verdict::Refuted(failures) if failures.len() == 2));
        assert_eq!(made, 4);
        let refuted = Verdict::Refuted(vec![Vec::new()]);
        assert!(catch_unwind(|| report("a claim", refuted)).is_err());
    }

    #[test]
    fn disturbed_attempts_do_not_fail() {
        let (verdict, made) =
            verdict_on(&[(true, true), (false, true), (true, true), (true, true), (false, true)]);
        assert_eq!((verdict, made), (Verdict::NotShown(vec!["so".to_owned()]), 4));
        assert_eq!(verdict_on(&[]), (Verdict::Skipped, 0));
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
