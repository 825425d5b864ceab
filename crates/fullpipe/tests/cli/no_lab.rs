//! The lab's errors where it is not possible name the actual cause.

use crate::program::tied;
use std::process::{Command, Stdio};

const FULLPIPE: &str = env!("CARGO_BIN_EXE_fullpipe");

/// Exit code and output of `fullpipe lab shell` in a new user and mount namespace after `script`;
/// `None` without namespaces.
fn shell_output(script: &str) -> Option<(Option<i32>, String)> {
    let make = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", script]).stdin(Stdio::null());
        tied(&mut command).env("FULLPIPE", FULLPIPE).output().unwrap()
    };
    if !make("true").status.success() {
        assert!(std::env::var_os("CI").is_none(), "no user namespaces");
        println!("SKIPPED: this machine lets no one make user namespaces (unshare -Um)");
        return None;
    }
    let output = make(script);
    Some((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[test]
fn a_namespace_limit_is_named_as_the_cause() {
    for (limit, kind) in [(0, "user"), (0, "net"), (1, "pid")] {
        // One process namespace is already in use by a process that stays.
        let script = format!(
            "echo {limit} > /proc/sys/user/max_{kind}_namespaces; \
             if [ {limit} = 1 ]; then unshare --pid --fork --kill-child sleep 60 & holder=$!; \
             own=$(readlink /proc/self/ns/pid); \
             until [ \"$(readlink /proc/$holder/ns/pid_for_children)\" != \"$own\" ]; do sleep 0.05; done; \
             fi; \
             code=0; \"$FULLPIPE\" lab shell -- true || code=$?; [ -z \"$holder\" ] || kill -9 $holder; \
             exit $code"
        );
        let Some((code, text)) = shell_output(&script) else { return };
        assert_eq!(code, Some(3), "{kind}: {text}");
        let name = format!("user.max_{kind}_namespaces");
        assert!(text.contains(&name), "{kind}: {text}");
        assert!(text.contains("switched off") || text.contains("not a missing permission"), "{kind}: {text}");
        for other in ["seccomp", "CONFIG_", "chroot"] {
            assert!(!text.contains(other), "{kind}: {text}");
        }
    }
}

#[test]
fn a_chroot_is_named_as_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    for proc in [true, false] {
        let script = format!(
            "cd {0}; for d in bin lib lib64 usr proc; do [ -e /$d ] || continue; mkdir -p $d; \
             if [ $d != proc ] || {proc}; then mount --rbind /$d $d; fi; done; \
             touch fullpipe; mount --bind \"$FULLPIPE\" fullpipe; exec chroot . /fullpipe lab shell -- true",
            directory.path().display()
        );
        let Some((code, text)) = shell_output(&script) else { return };
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("chroot"), "{text}");
        assert_eq!(text.contains("/proc is not mounted"), !proc, "{text}");
        assert!(!text.contains("CONFIG_") && !text.contains("seccomp"), "{text}");
    }
}
