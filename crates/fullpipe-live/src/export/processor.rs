//! Processor time of units and containers, to be held against the bytes that their connections moved.

use crate::owner::hierarchy;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;

/// Control groups that are looked at; connections of more are in few classes all the same.
const MOST: usize = 256;

/// What control groups have used since they were first seen, by class.
#[derive(Debug)]
pub(super) struct Processor {
    /// Where control groups are; none on hosts without their second version.
    root: Option<PathBuf>,
    /// What each had used at the last look, µs.
    last: HashMap<String, u64>,
    used_us: BTreeMap<String, u64>,
}

impl Default for Processor {
    fn default() -> Processor {
        Processor { root: hierarchy(), last: HashMap::new(), used_us: BTreeMap::new() }
    }
}

impl Processor {
    /// Looks at these classes and control groups of theirs. One that is gone and comes back begins anew.
    pub fn look(&mut self, groups: &BTreeSet<(&str, &str)>) {
        let Some(root) = &self.root else { return };
        let mut seen = HashMap::with_capacity(groups.len());
        for (class, path) in groups.iter().take(MOST) {
            let Some(now) =
                fs::read_to_string(root.join(path.trim_start_matches('/')).join("cpu.stat")).ok().and_then(
                    |text| text.lines().find_map(|l| l.strip_prefix("usage_usec ")?.parse::<u64>().ok()),
                )
            else {
                continue;
            };
            let before = self.last.get(*path).copied().unwrap_or(now);
            *self.used_us.entry((*class).to_owned()).or_default() += now.saturating_sub(before);
            seen.insert((*path).to_owned(), now);
        }
        self.last = seen;
    }

    /// Seconds of a class; none of one that was never seen to have a control group.
    pub fn seconds(&self, class: &str) -> Option<f64> {
        Some(*self.used_us.get(class)? as f64 / 1e6)
    }

    /// Forgets classes that are not wanted any more.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.used_us.retain(|class, _| wanted(class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_after_the_first_look_is_counted_whatever_goes_and_comes() {
        let root = tempfile::tempdir().unwrap();
        let groups = [("a.service", "/s.slice/a.service"), ("a.service", "/t.slice/a.service")];
        let set = |at: usize, us: u64| {
            let directory = root.path().join(groups[at].1.trim_start_matches('/'));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cpu.stat"), format!("usage_usec {us}\nuser_usec 1\n")).unwrap();
        };
        let mut processor =
            Processor { root: Some(root.path().to_owned()), last: HashMap::new(), used_us: BTreeMap::new() };
        let all: BTreeSet<_> = groups.into_iter().collect();
        assert_eq!(processor.seconds("a.service"), None);
        set(0, 5_000_000);
        set(1, 0);
        processor.look(&all);
        assert_eq!(processor.seconds("a.service"), Some(0.0));
        set(0, 7_000_000);
        set(1, 500_000);
        processor.look(&all);
        assert_eq!(processor.seconds("a.service"), Some(2.5));
        fs::remove_dir_all(root.path().join("s.slice")).unwrap();
        processor.look(&all);
        // Started again it counts from nothing.
        set(0, 100);
        processor.look(&all);
        assert_eq!(processor.seconds("a.service"), Some(2.5));
        processor.retain(|_| false);
        assert_eq!(processor.seconds("a.service"), None);
    }
}
