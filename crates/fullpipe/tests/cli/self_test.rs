//! `fullpipe self-test`: a verdict for each part, for every user and in every environment.

use crate::program;
use crate::program::{fullpipe, tied};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

const PARTS: [&str; 9] =
    ["simulator", "reports", "lab", "serve", "watch", "ebpf", "records", "host", "apply"];
/// A user without processes.
const UNUSED_USER: u32 = 54_321;
const NOBODY: u32 = 65534;

/// The verdict and the text of each checked part.
fn verdicts(output: &Output) -> BTreeMap<String, (String, String)> {
    let reported = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {reported}"));
    assert_eq!(report["schema"], "fullpipe/self-test/1");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = report["checks"].as_array().unwrap();
    checks
        .iter()
        .map(|check| {
            let words = format!("{}\n{}", text(&check["found"]), text(&check["help"]));
            (text(&check["part"]), (text(&check["verdict"]), words))
        })
        .collect()
}

/// The documented exit code of these verdicts.
fn code_of(verdicts: &BTreeMap<String, (String, String)>) -> i32 {
    let any = |wanted: &str| verdicts.values().any(|(verdict, _)| verdict == wanted);
    match (any("failed"), any("impossible")) {
        (true, _) => 1,
        (false, true) => 3,
        (false, false) => 0,
    }
}

#[test]
fn every_part_has_a_verdict_and_the_exit_code_is_the_worst() {
    let output = fullpipe().args(["self-test", "--json"]).output().unwrap();
    let verdicts = verdicts(&output);
    assert_eq!(verdicts.len(), PARTS.len());
    for part in PARTS {
        let (verdict, words) = &verdicts[part];
        assert_ne!(verdict, "failed", "{part}: {words}");
        assert!(!words.trim().is_empty(), "{part}: {verdict}, and no reason");
    }
    for part in ["simulator", "reports"] {
        assert_eq!(verdicts[part].0, "works", "{}", verdicts[part].1);
    }
    assert_eq!(output.status.code(), Some(code_of(&verdicts)));
}

#[test]
fn text_output_lists_the_selected_parts() {
    let output = fullpipe().args(["self-test", "reports", "simulator"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("works      simulator  bbr "), "{text}");
    assert!(lines[1].starts_with("works      reports    html, json, csv"), "{text}");
    assert_eq!(lines[2..], ["2 work"]);
    let output = fullpipe().args(["self-test", "everything"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn parts_that_need_root_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("fullpipe");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    fullpipe_testing::copy_program(&program::path(), &program);
    let mut command = Command::new(&program);
    command.args(["self-test", "--json", "simulator", "watch", "ebpf", "records", "apply"]).current_dir("/");
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = tied(&mut command).stdin(Stdio::null()).output().unwrap();
    let verdicts = verdicts(&output);
    assert_eq!(output.status.code(), Some(3), "{verdicts:?}");
    assert_eq!(verdicts["simulator"].0, "works");
    for part in ["ebpf", "records", "apply"] {
        let (verdict, words) = &verdicts[part];
        assert_eq!(verdict, "impossible", "{part}: {words}");
        assert!(words.contains("root") || words.contains("CONFIG_"), "{part}: {words}");
    }
}

#[test]
fn where_no_thread_may_start_races_run_and_servers_say_so() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: root is needed to become a user without processes");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("fullpipe");
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    fullpipe_testing::copy_program(&program::path(), &program);
    let limited = |args: &[&str]| {
        let mut command = Command::new("prlimit");
        command.arg("--nproc=1").arg(&program).args(args).current_dir("/").uid(UNUSED_USER).gid(UNUSED_USER);
        let output = tied(&mut command).stdin(Stdio::null()).output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(!err.contains("panicked"), "{args:?}: {err}");
        (output.status.code(), out + &err)
    };
    let races: [&[&str]; 2] = [
        &["race", "bbr", "--flows", "200", "--duration", "1s", "--threads", "4", "--json"],
        &["race", "bbr", "cubic", "--repeats", "2", "--duration", "1s", "--json"],
    ];
    for race in races {
        let (code, text) = limited(race);
        assert_eq!(code, Some(0), "{race:?}: {text}");
    }
    let servers: [&[&str]; 3] = [&["self-test", "serve"], &["serve", "--port", "0"], &["export"]];
    for server in servers {
        let (code, text) = limited(server);
        assert_eq!(code, Some(3), "{server:?}: {text}");
        assert!(text.contains("cannot start a thread"), "{server:?}: {text}");
    }
}

#[test]
fn the_simulator_works_in_an_empty_root() {
    let directory = tempfile::tempdir().unwrap();
    // Only the libraries that the program is linked to.
    let script = format!(
        "cd {}; for d in lib lib64 usr; do [ -e /$d ] || continue; mkdir $d; mount --rbind /$d $d; done; \
         touch fullpipe; mount --bind \"$FULLPIPE\" fullpipe; \
         exec chroot . /fullpipe self-test --json simulator reports lab host apply",
        directory.path().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", &script]).stdin(Stdio::null());
    let output = tied(&mut command).env("FULLPIPE", program::path()).output().unwrap();
    if output.stdout.is_empty() && String::from_utf8_lossy(&output.stderr).contains("unshare") {
        assert!(std::env::var_os("CI").is_none(), "no user namespaces");
        println!("SKIPPED: this machine lets no one make user namespaces (unshare -Um)");
        return;
    }
    let verdicts = verdicts(&output);
    assert_eq!(output.status.code(), Some(3), "{verdicts:?}");
    assert_eq!((verdicts["simulator"].0.as_str(), verdicts["reports"].0.as_str()), ("works", "works"));
    let (verdict, words) = &verdicts["lab"];
    assert!(verdict == "impossible" && words.contains("/proc is not mounted"), "{words}");
    for part in ["host", "apply"] {
        let (verdict, words) = &verdicts[part];
        assert!(verdict == "impossible" && words.contains("mount -t proc"), "{part}: {words}");
    }
}
