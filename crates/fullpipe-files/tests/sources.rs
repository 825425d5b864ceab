//! No command resolves, creates or changes files by path in ways that another user's link could
//! redirect, except in the places listed here with the reason.

use fullpipe_testing::files_below;
use std::fs;
use std::path::Path;

/// Calls that act on a path, or on a path that was resolved before.
const CALLS: [&str; 10] = [
    ".canonicalize()",
    ".create(true)",
    "fs::canonicalize(",
    "File::create(",
    "fs::copy(",
    "fs::hard_link(",
    "fs::rename(",
    "fs::set_permissions(",
    "fs::write(",
    "unix::fs::chown(",
];

/// Sources that may use some of them. A reason that no longer applies is an error as well.
const ALLOWED: [(&str, &str); 12] = [
    ("fullpipe/src/commands/cc/uses.rs", "names a control group; nothing is opened by the result"),
    ("fullpipe/src/commands/host.rs", "the root of an image, which fullpipe-host opens once"),
    ("fullpipe/src/commands/kernel.rs", "a package for apt or dnf, which need an absolute path"),
    ("fullpipe/src/commands/playground.rs", "the program's own path"),
    ("fullpipe/src/commands/probe/collect.rs", "compares two paths"),
    ("fullpipe-ebpf/src/pinned.rs", "a directory of pins, which only root may write or rename (pins.rs)"),
    ("fullpipe-ebpf/src/usage.rs", "an example in the documentation"),
    ("fullpipe-host/src/lib.rs", "an example in the documentation"),
    ("fullpipe-lab/src/space/identity.rs", "files of the process in /proc"),
    ("fullpipe-lab/src/space/sysctl.rs", "files of the namespace in /proc"),
    ("fullpipe-mesh/src/budget.rs", "a file in the node's own directory"),
    ("fullpipe-net/src/get/sink.rs", "created exclusively, and never through a link"),
];

#[test]
fn files_are_opened_once_where_links_of_others_could_redirect_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        if !path.ends_with("fullpipe-testing") && !path.ends_with("fullpipe-files") {
            all.extend(files_below(&path.join("src"), "rs"));
        }
    }
    let (mut found, mut used) = (Vec::new(), Vec::new());
    for path in &all {
        let text = fs::read_to_string(path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let name = path.strip_prefix(crates).unwrap().display().to_string();
        for (number, line) in text.lines().enumerate() {
            let Some(call) = CALLS.iter().find(|call| line.contains(*call)) else { continue };
            match ALLOWED.iter().find(|(allowed, _)| *allowed == name) {
                Some((allowed, _)) => used.push(*allowed),
                None => found.push(format!("{name}:{}: {call}", number + 1)),
            }
        }
    }
    assert!(all.len() > 200, "only {} sources", all.len());
    assert!(found.is_empty(), "use fullpipe-files instead:\n{}", found.join("\n"));
    let unused: Vec<_> = ALLOWED.iter().filter(|(name, _)| !used.contains(name)).collect();
    assert!(unused.is_empty(), "no longer needed: {unused:?}");
}
