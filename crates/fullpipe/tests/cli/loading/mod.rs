//! Helpers for tests that load controllers into the running kernel.

use std::path::Path;
use std::process::Command;

/// Whether controllers can be loaded here; in CI they must be.
pub fn can_load() -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    let namespaces = Command::new("unshare").args(["-n", "-m", "true"]).status().is_ok_and(|s| s.success());
    let can = root && btf && namespaces;
    assert!(can || std::env::var_os("CI").is_none(), "CI must be able to load controllers");
    if !can {
        println!("SKIPPED: needs root, BTF and namespaces");
    }
    can
}
