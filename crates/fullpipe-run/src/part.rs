//! Splits a batch between machines, and merges the results.

use fullpipe_experiment::recording::{Part, Recording, Results};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

/// One of `of` equal parts of a batch: every `of`-th run, so that long runs, which are neighbours
/// in a sweep, are spread over all parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    nth: u32,
    of: u32,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(nth, of)| Some((nth.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((nth, of)) if (1..=of).contains(&nth) => Ok(Shard { nth, of }),
            _ => Err("write which part of how many, from 1/N to N/N (for example 3/16)".to_owned()),
        }
    }
}

impl Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.nth, self.of)
    }
}

impl Shard {
    /// The runs of `all` that belong to this shard.
    pub fn select<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.nth as usize - 1).step_by(self.of as usize).collect()
    }

    /// The part record to store with results: `numbers` are the indices of finished jobs within the
    /// shard, where each run has `at_once` consecutive jobs (one per engine).
    pub fn part(self, numbers: &[usize], at_once: usize) -> Part {
        let whole = |&n: &usize| {
            let (run, engine) = (n / at_once, n % at_once);
            (run * self.of as usize + self.nth as usize - 1) * at_once + engine
        };
        Part { nth: self.nth, of: self.of, numbers: numbers.iter().map(whole).collect() }
    }
}

/// The parts do not make up one batch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MergeError {
    /// Results that are not a part.
    #[error("file {nth} is not a part: write parts with `fullpipe run FILE --shard 1/N --out PART.json`")]
    NotAPart {
        /// Its position among the results, from 1.
        nth: usize,
    },
    /// Parts of different batches.
    #[error("the parts are of different batches: one of {0} parts, another of {1}")]
    Different(u32, u32),
    /// A part is given twice.
    #[error("part {0} of {1} is given twice")]
    Duplicate(u32, u32),
    /// Parts are missing.
    #[error("missing parts, of {of}: {}", .missing.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))]
    Missing {
        /// Their numbers, from 1.
        missing: Vec<u32>,
        /// How many there should be.
        of: u32,
    },
    /// A part contradicts its own header, or overlaps another.
    #[error("part {0} of {1} does not fit the others: {2}")]
    Damaged(u32, u32, &'static str),
}

/// Merges `parts` into the results of the whole batch, byte for byte the same as if it had been run
/// on one machine.
///
/// # Errors
/// `parts` is not every part of one batch exactly once.
pub fn merge(parts: Vec<Results>) -> Result<Results, MergeError> {
    let mut of = None;
    let mut seen: Vec<u32> = Vec::new();
    let mut runs: BTreeMap<usize, Recording> = BTreeMap::new();
    for (i, part) in parts.into_iter().enumerate() {
        let Some(Part { nth, of: all, numbers }) = part.part else {
            return Err(MergeError::NotAPart { nth: i + 1 });
        };
        if *of.get_or_insert(all) != all {
            return Err(MergeError::Different(of.unwrap_or(all), all));
        }
        if seen.contains(&nth) {
            return Err(MergeError::Duplicate(nth, all));
        }
        seen.push(nth);
        if numbers.len() != part.runs.len() || !(1..=all).contains(&nth) {
            return Err(MergeError::Damaged(nth, all, "its number of runs differs from its header"));
        }
        for (number, run) in numbers.into_iter().zip(part.runs) {
            if runs.insert(number, run).is_some() {
                return Err(MergeError::Damaged(nth, all, "one of its runs is also in another part"));
            }
        }
    }
    let of = of.unwrap_or_default();
    if seen.len() < of as usize {
        let missing = (1..=of).filter(|nth| !seen.contains(nth)).collect();
        return Err(MergeError::Missing { missing, of });
    }
    Ok(Results::new(runs.into_values().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Engine, Job, vocabulary};

    fn shard(text: &str) -> Shard {
        text.parse().unwrap()
    }

    #[test]
    fn parts_are_written_as_a_fraction() {
        assert_eq!(shard("3/16").to_string(), "3/16");
        for wrong in ["", "3", "0/4", "5/4", "1/0", "a/b", "1/2/3", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_run_is_in_one_shard_and_knows_its_number() {
        let mut seen = Vec::new();
        for nth in 1..=4 {
            let shard = Shard { nth, of: 4 };
            let own = shard.select((0..10).collect::<Vec<usize>>());
            let jobs: Vec<usize> = (0..own.len() * 2).collect();
            let numbers = shard.part(&jobs, 2).numbers;
            assert_eq!(numbers, own.iter().flat_map(|n| [n * 2, n * 2 + 1]).collect::<Vec<_>>());
            seen.extend(own);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }

    fn results(shard: Option<Shard>) -> Results {
        let file = "repeats = 3\nduration = '1s'\n[path]\nrtt = '40ms'\nloss = '1%'\n[[flow]]\n[sweep]\n\
                    'flow.cc' = ['reno', 'bbr']\n'path.rate' = ['1mbit', '5mbit']\n";
        let none = |_: &str| Err(String::new());
        let cases =
            fullpipe_experiment::scenario::parse("x", file, &vocabulary(&[Engine::Sim]), &none).unwrap();
        let cases = shard.map_or(cases.clone(), |shard| shard.select(cases));
        let jobs = cases.into_iter().map(|case| Job { engine: Engine::Sim, case }).collect();
        let outcome = Batch::new(jobs).keep_series(false).run(&());
        Results { part: shard.map(|shard| shard.part(&outcome.numbers, 1)), ..outcome.results }
    }

    #[test]
    fn merged_parts_are_the_whole_to_the_byte() {
        let json = |results: &Results| serde_json::to_string(results).unwrap();
        let whole = json(&results(None));
        let parts: Vec<Results> = ["3/5", "1/5", "5/5", "2/5", "4/5"]
            .iter()
            .map(|text| serde_json::from_str(&json(&results(Some(shard(text))))).unwrap())
            .collect();
        assert!(json(&merge(parts.clone()).unwrap()) == whole);

        let wrong = |parts: Vec<Results>| merge(parts).unwrap_err().to_string();
        assert_eq!(wrong(parts[..3].to_vec()), "missing parts, of 5: 2, 4");
        assert_eq!(wrong(vec![parts[0].clone(); 2]), "part 3 of 5 is given twice");
        assert_eq!(
            wrong(vec![parts[0].clone(), results(Some(shard("1/2")))]),
            "the parts are of different batches: one of 5 parts, another of 2"
        );
        assert!(wrong(vec![results(None)]).contains("file 1 is not a part"));
        let mut lost = parts;
        lost[0].runs.pop();
        assert!(wrong(lost).contains("part 3 of 5"));
    }
}
