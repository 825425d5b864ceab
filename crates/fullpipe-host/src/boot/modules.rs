//! Kernel modules loaded at boot: modules-load.d(5) and /etc/modules.

use crate::host::View;
use std::collections::{BTreeMap, HashSet};

/// A module named by a boot file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleEntry {
    /// The module, with underscores.
    pub module: String,
    /// The file that names it.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
}

/// The modules that boot files name, without options after the name (`/etc/modules`).
pub fn modules_at_boot(view: &dyn View) -> Vec<ModuleEntry> {
    let mut chosen: BTreeMap<String, String> = BTreeMap::new();
    for directory in ["/etc/modules-load.d", "/run/modules-load.d", "/usr/lib/modules-load.d"] {
        for name in view.list(directory).unwrap_or_default() {
            if name.ends_with(".conf") {
                let path = format!("{directory}/{name}");
                chosen.entry(name).or_insert(path);
            }
        }
    }
    let mut found: Vec<ModuleEntry> = Vec::new();
    // Several names may lead to one file.
    let mut known: HashSet<(String, usize)> = HashSet::new();
    for path in chosen.into_values().chain(["/etc/modules".to_owned()]) {
        let Ok(file) = view.resolve(&path) else { continue };
        let text = view.content(&file).unwrap_or_default();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(word) = line.split_ascii_whitespace().next().filter(|w| !w.starts_with(['#', ';'])) {
                let entry = ModuleEntry { module: word.replace('-', "_"), file: file.clone(), line: i + 1 };
                if known.insert((entry.file.clone(), entry.line)) {
                    found.push(entry);
                }
            }
        }
    }
    found
}
