//! Attempts to show a claim, and what they decide.

use crate::machine::Machine;
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One attempt to show a claim.
pub struct Attempt {
    /// Why what was seen may be the machine's doing; empty if nothing speaks for that.
    pub doubts: Vec<String>,
    /// What is not as claimed; empty if all is.
    pub wrong: Vec<String>,
}

impl Attempt {
    /// What `claim` asserts; what it panics with is what is wrong.
    pub fn of(doubts: Vec<String>, claim: impl FnOnce()) -> Attempt {
        let wrong = catch_unwind(AssertUnwindSafe(claim)).err().map(|panic| said(&*panic));
        Attempt { doubts, wrong: wrong.into_iter().collect() }
    }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("see above").to_owned()
}

/// What decides.
struct Rule {
    /// So many attempts without doubts that were wrong: it is not so.
    wrong: usize,
    /// So many with doubts: it cannot be shown.
    doubted: usize,
}

impl Rule {
    /// Where the processors are known to be taken, another doubted attempt would be like the first.
    fn here(wrong: usize, doubted: usize) -> Rule {
        Rule { wrong, doubted: if crate::processors_are_taken() { 1 } else { doubted } }
    }
}

/// What came out.
#[derive(Debug, PartialEq)]
enum Verdict {
    Shown,
    /// There is nothing to try it on.
    Untried,
    NotSo(Vec<Vec<String>>),
    NotShown(Vec<String>),
}

fn judge(claim: &str, rule: &Rule, mut attempt: impl FnMut() -> Option<Attempt>) -> Verdict {
    let (mut failures, mut doubted) = (Vec::new(), 0);
    loop {
        let Some(Attempt { doubts, wrong }) = attempt() else { return Verdict::Untried };
        if wrong.is_empty() {
            return Verdict::Shown;
        }
        println!("{claim}: {wrong:#?}, {doubts:?}");
        if doubts.is_empty() {
            failures.push(wrong);
            if failures.len() == rule.wrong {
                return Verdict::NotSo(failures);
            }
        } else {
            doubted += 1;
            if doubted == rule.doubted {
                return Verdict::NotShown(doubts);
            }
        }
    }
}

fn tell(claim: &str, verdict: Verdict) {
    match verdict {
        Verdict::Shown | Verdict::Untried => {}
        Verdict::NotSo(failures) => {
            panic!("{claim}: not so in {} attempts without doubts: {failures:#?}", failures.len())
        }
        Verdict::NotShown(doubts) => println!("NOT SHOWN: {claim}: {}", doubts.join("; ")),
    }
}

/// Tries until all is as claimed. What two attempts without doubts do not show is not so: one may be the error that a 95 % confidence
/// interval has by definition, or a moment that no audit sees. What a busy machine cannot show is said on a line that `./x test` counts,
/// and neither passes nor fails. `None` ends it: there is nothing to try it on.
pub fn shows(claim: &str, mut attempt: impl FnMut() -> Option<Attempt>) {
    let watched = || {
        let machine = Machine::watch();
        let mut made = attempt()?;
        made.doubts.extend(machine.doubts());
        Some(made)
    };
    tell(claim, judge(claim, &Rule::here(2, 2), watched));
}

/// Something short against the clock, which the processors' other work disturbs more than an audit can tell: one of several attempts
/// has to come out right. What five without doubts do not show is not so.
pub fn comes_right(claim: &str, mut measure: impl FnMut() -> Result<(), String>) {
    let watched = || {
        let machine = Machine::watch();
        let wrong = measure().err().into_iter().collect();
        Some(Attempt { doubts: machine.doubts(), wrong })
    };
    tell(claim, judge(claim, &Rule::here(5, 5), watched));
}

/// Why a run, as its recording in JSON has it, is not valid.
pub fn doubts(run: &Value) -> Vec<String> {
    let because = run["invalid_because"].as_array().into_iter().flatten();
    because.map(|why| format!("{}: {}", run["label"], why)).collect()
}

/// Those of `checks` that do not hold, in words.
pub fn failed<const N: usize>(checks: [(bool, String); N]) -> Vec<String> {
    checks.into_iter().filter_map(|(holds, said)| (!holds).then_some(said)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { wrong: 2, doubted: 3 };

    /// What comes of attempts given as (doubted, wrong), and how many were made.
    fn of(attempts: &[(bool, bool)]) -> (Verdict, usize) {
        let words = |is: bool| is.then(|| "so".to_owned()).into_iter().collect();
        let mut rest = attempts.iter();
        let verdict = judge("a claim", &RULE, || {
            let (doubted, wrong) = *rest.next()?;
            Some(Attempt { doubts: words(doubted), wrong: words(wrong) })
        });
        (verdict, attempts.len() - rest.len())
    }

    #[test]
    fn one_attempt_that_comes_right_is_enough_even_a_doubted_one() {
        assert_eq!(of(&[(false, true), (true, true), (true, false), (false, true)]), (Verdict::Shown, 3));
    }

    #[test]
    fn what_is_wrong_twice_without_doubts_is_not_so() {
        let (verdict, made) = of(&[(false, true), (true, true), (true, true), (false, true), (false, false)]);
        assert!(matches!(verdict, Verdict::NotSo(failures) if failures.len() == 2));
        assert_eq!(made, 4);
        let not_so = Verdict::NotSo(vec![Vec::new()]);
        assert!(catch_unwind(|| tell("a claim", not_so)).is_err());
    }

    #[test]
    fn doubted_attempts_fail_nothing() {
        let (verdict, made) = of(&[(true, true), (false, true), (true, true), (true, true), (false, true)]);
        assert_eq!((verdict, made), (Verdict::NotShown(vec!["so".to_owned()]), 4));
        assert_eq!(of(&[]), (Verdict::Untried, 0));
    }

    #[test]
    fn what_a_claim_panics_with_is_what_is_wrong() {
        let number = 7;
        assert_eq!(
            Attempt::of(Vec::new(), || assert!(number < 7, "{number} is not less")).wrong,
            ["7 is not less"]
        );
        assert!(Attempt::of(Vec::new(), || ()).wrong.is_empty());
    }
}
