//! CPU time of units and containers, to compare with the bytes that their connections moved.

use crate::owner::cgroup_root;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;

/// Maximum control groups read per sample.
const MAX_GROUPS: usize = 256;

/// CPU time that control groups have used since first observed, by class.
#[derive(Debug)]
pub(super) struct Processor {
    /// Mount point of cgroup v2; `None` on hosts without it.
    root: Option<PathBuf>,
    /// CPU time of each group at the last sample, µs.
    last: HashMap<String, u64>,
    used_us: BTreeMap<String, u64>,
}

impl Default for Processor {
    fn default() -> Processor {
        Processor { root: cgroup_root(), last: HashMap::new(), used_us: BTreeMap::new() }
    }
}

impl Processor {
    /// Reads the CPU time of these (class, control group) pairs. A group that is removed and
    /// recreated starts at zero.
    pub fn sample(&mut self, groups: &BTreeSet<(&str, &str)>) {
        let Some(root) = &self.root else { return };
        let mut current = HashMap::with_capacity(groups.len());
        for (class, path) in groups.iter().take(MAX_GROUPS) {
            let Some(now) =
                fs::read_to_string(root.join(path.trim_start_matches('/')).join("cpu.stat")).ok().and_then(
                    |text| text.lines().find_map(|l| l.strip_prefix("usage_usec ")?.parse::<u64>().ok()),
                )
            else {
                continue;
            };
            let before = self.last.get(*path).copied().unwrap_or(now);
            *self.used_us.entry((*class).to_owned()).or_default() += now.saturating_sub(before);
            current.insert((*path).to_owned(), now);
        }
        self.last = current;
    }

    /// CPU seconds of a class; `None` if no control group of it has been read.
    pub fn seconds(&self, class: &str) -> Option<f64> {
        Some(*self.used_us.get(class)? as f64 / 1e6)
    }

    /// Removes classes that are no longer exported.
    pub fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.used_us.retain(|class, _| is_wanted(class));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_since_the_first_sample_is_counted_across_restarts() {
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
        processor.sample(&all);
        assert_eq!(processor.seconds("a.service"), Some(0.0));
        set(0, 7_000_000);
        set(1, 500_000);
        processor.sample(&all);
        assert_eq!(processor.seconds("a.service"), Some(2.5));
        fs::remove_dir_all(root.path().join("s.slice")).unwrap();
        processor.sample(&all);
        // After a restart, the counter starts at zero.
        set(0, 100);
        processor.sample(&all);
        assert_eq!(processor.seconds("a.service"), Some(2.5));
        processor.retain(|_| false);
        assert_eq!(processor.seconds("a.service"), None);
    }
}
