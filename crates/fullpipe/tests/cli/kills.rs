//! `apply`, `confirm`, `revert`, `kernel install` and `kernel back`, killed before each of their
//! system calls that may change a file: `status` is truthful, the same command or another completes
//! the work, and a revert restores bytes, modes, owners, access lists, attributes and links. `cc
//! load`, `cc unload` and `split` have the same tests in cc.rs and split.rs; crashes.rs of
//! fullpipe-host adds losses of power.
//!
//! By default every third system call is tried, from another one for each command;
//! `FULLPIPE_EVERY_KILL=1` tries all.

use crate::image::kernels::{NEW, OLD, host_with_package_manager};
use crate::image::{fullpipe, host};
use crate::steps;
use fullpipe_files::attributes;
use fullpipe_testing::access_list;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_fullpipe");

/// Every path of a host with all that a revert restores. The model's own description of its kernel,
/// and lists of words, are compared without their order.
fn snapshot(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        let kind = about.file_type();
        let mut text = format!("{:o} {}:{} ", about.permissions().mode(), about.uid(), about.gid());
        if kind.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if kind.is_symlink() {
            text += &format!("to {:?}", fs::read_link(&path).unwrap());
        } else {
            let attributes = attributes::read(File::open(&path).unwrap()).unwrap();
            text += &format!("{} {attributes:?} ", about.nlink());
            text += &content(&path);
        }
        all.insert(path.strip_prefix(root).unwrap().to_owned(), text);
    }
    all
}

fn content(path: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    if path.ends_with("kernel.json") {
        let mut kernel: Value = serde_json::from_str(&text).unwrap();
        if let Some(nodes) = kernel["qdiscs"].as_array_mut() {
            nodes.sort_by_key(Value::to_string);
        }
        return kernel.to_string();
    }
    if path.ends_with("tcp_allowed_congestion_control") || path.ends_with("tcp_available_congestion_control")
    {
        return text
            .split_ascii_whitespace()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(" ");
    }
    text
}

/// Gives a file every kind of metadata that this machine and user can set.
fn set_metadata(root: &Path, file: &str) {
    let file = root.join(file);
    let _ = chown(&file, Some(4711), Some(4712));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o660)).unwrap();
    let opened = File::open(&file).unwrap();
    for (name, value) in [
        (attributes::ACCESS_LIST, access_list()),
        ("user.ticket", b"2019-114".to_vec()),
        ("security.selinux", b"system_conf_t\0".to_vec()),
    ] {
        let mut all = attributes::read(&opened).unwrap();
        all.insert(name.to_owned(), value);
        if let Err(e) = attributes::set(&opened, &all) {
            println!("SKIPPED {name}: {e}");
        }
    }
}

/// A host with such a sysctl.conf, which an apply changes.
fn start() -> tempfile::TempDir {
    let root = host();
    set_metadata(root.path(), "etc/sysctl.conf");
    // The model writes its own files in its own form.
    done(root.path(), "apply bbr", "at first");
    done(root.path(), "revert", "at first");
    root
}

fn copy(root: &Path) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let copied = Command::new("cp").arg("-a").arg(root.join(".")).arg(directory.path()).status().unwrap();
    assert!(copied.success());
    directory
}

fn done(root: &Path, words: &str, at: &str) {
    let (code, out, err) = fullpipe(root, words);
    assert_eq!(code, 0, "{at}, then {words}: {out}{err}");
}

/// What `status` says must be what the files and the kernel say.
fn check_status(root: &Path, at: &str) {
    let (code, out, err) = fullpipe(root, "status --json");
    let status: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{at}: {code} {e}: {out}{err}"));
    let has_journal = root.join("var/lib/fullpipe/host.journal").exists();
    assert_eq!(status["phase"].is_null(), !has_journal, "{at}: {status}");
    if matches!(status["phase"].as_str(), Some("applying" | "reverting")) {
        assert_eq!(status["consistent"], false, "{at}: {status}");
    }
}

/// Whether a step changes the host's files. Those of the model's kernel stand for operations that a
/// kernel performs as a whole.
fn is_of_the_host(step: &str) -> bool {
    const MODEL: [&str; 6] = ["proc/sys", "sys/module", "kernel.json", "tcp_", "sch_", "default_qdisc"];
    !MODEL.iter().any(|name| step.contains(name))
}

/// Kills `words` before its system calls on copies of `prepared`. Afterwards `end` completes or
/// undoes it, and a revert restores `original`.
fn kill_at_each_call(
    prepared: &Path,
    original: &BTreeMap<PathBuf, String>,
    words: &str,
    end: impl Fn(&Path, usize, &str),
) {
    let every = std::env::var_os("FULLPIPE_EVERY_KILL").is_some();
    let stride = if every { 1 } else { 3 };
    let first = if every { 0 } else { words.len() % stride };
    for (kills, n) in (first..).step_by(stride).enumerate() {
        let root = copy(prepared);
        // Started by a shell that executes it, which `steps` looks for.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$@\"", "sh", PROGRAM])
            .args(words.split(' '))
            .arg("--root")
            .arg(root.path());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let at = match steps::kill_before_some(command, Path::new(PROGRAM), n, &is_of_the_host) {
            steps::End::Killed(step) => format!("{words}, killed before call {n}: {step}"),
            steps::End::Itself(status) => {
                assert!(status.success(), "{words}: {status}");
                println!("{words}: {kills} kills at {n} system calls");
                assert!(n > 10, "{words} has {n} steps only");
                return;
            }
        };
        check_status(root.path(), &at);
        end(root.path(), n, &at);
        done(root.path(), "revert", &at);
        let after = snapshot(root.path());
        let differing: Vec<_> = original
            .keys()
            .chain(after.keys())
            .filter(|path| original.get(*path) != after.get(*path))
            .map(|path| format!("{}: {:?} → {:?}", path.display(), original.get(path), after.get(path)))
            .collect();
        assert!(differing.is_empty(), "{at}: not restored:\n{}", differing.join("\n"));
    }
}

#[test]
fn an_apply_killed_at_any_call_is_completed_or_undone() {
    let root = start();
    let original = snapshot(root.path());
    let applied = copy(root.path());
    done(applied.path(), "apply bbr", "at first");
    let read = |path: &Path| attributes::read(File::open(path).unwrap()).unwrap();
    let wanted = read(&applied.path().join("etc/sysctl.conf"));
    kill_at_each_call(root.path(), &original, "apply bbr", |root, n, at| {
        if n % 2 == 0 {
            done(root, "apply bbr", at);
            assert_eq!(read(&root.join("etc/sysctl.conf")), wanted, "{at}");
            assert_eq!(fullpipe(root, "verify").0, 0, "{at}");
        }
    });
}

#[test]
fn a_revert_killed_at_any_call_is_completed_by_another() {
    let root = start();
    let original = snapshot(root.path());
    done(root.path(), "apply bbr", "at first");
    kill_at_each_call(root.path(), &original, "revert", |_, _, _| {});
}

#[test]
fn a_confirmation_killed_at_any_call_is_completed_or_undone() {
    let root = start();
    let original = snapshot(root.path());
    let mut trial = Command::new(PROGRAM);
    trial.args(["apply", "bbr", "--confirm", "1000s", "--root"]).arg(root.path());
    let mut trial = trial.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while !fullpipe(root.path(), "status").1.contains("on trial") {
        assert!(began.elapsed() < Duration::from_secs(60), "the trial did not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Copies are on trial as well, without a process that rolls them back.
    let prepared = copy(root.path());
    trial.kill().unwrap();
    trial.wait().unwrap();
    kill_at_each_call(prepared.path(), &original, "confirm", |root, n, at| {
        let status = fullpipe(root, "status").1;
        if n % 2 == 0 && status.contains("on trial") {
            done(root, "confirm", at);
            assert_eq!(fullpipe(root, "verify").0, 0, "{at}");
        }
    });
    // Ends the process that would roll it back.
    done(root.path(), "revert", "at last");
}

/// A host whose package manager knows a newer kernel, and whose GRUB settings, which an
/// installation changes, have such metadata.
fn start_with_kernels() -> tempfile::TempDir {
    let root = host_with_package_manager();
    set_metadata(root.path(), "etc/default/grub");
    root
}

/// After any kill the host boots the old kernel by default, and the state of the installation is
/// reported. Returns whether it was interrupted.
fn check_kernels(root: &Path, at: &str) -> bool {
    let (code, out, err) = fullpipe(root, "kernel status --json");
    assert_eq!(code, 0, "{at}: {out}{err}");
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&status["running"], &status["boots"]["default"]), (&OLD.into(), &OLD.into()), "{at}");
    let host: Value = serde_json::from_str(&fullpipe(root, "status --json").1).unwrap();
    let is_busy = matches!(host["phase"].as_str(), Some("applying" | "reverting"));
    assert_eq!(status["interrupted"], is_busy, "{at}: {status} {host}");
    let is_there = root.join(format!("boot/vmlinuz-{NEW}")).exists();
    assert!(!is_there || status["installed"] == NEW, "{at}: {status}");
    is_busy
}

#[test]
fn a_kernel_installation_killed_at_any_call_is_resumed_or_undone() {
    let root = start_with_kernels();
    let original = snapshot(root.path());
    kill_at_each_call(root.path(), &original, "kernel install --yes", |root, n, at| {
        let is_interrupted = check_kernels(root, at);
        if n % 2 == 0 {
            let is_complete = !is_interrupted && root.join(format!("boot/vmlinuz-{NEW}")).exists();
            let (code, out, err) = fullpipe(root, "kernel install --yes");
            assert_eq!(code, i32::from(is_complete), "{at}: {out}{err}");
            assert!(!check_kernels(root, at), "{at}");
        }
        if n % 4 < 2 && root.join("var/lib/fullpipe/host.journal").exists() {
            done(root, "kernel back --yes", at);
            assert!(!root.join(format!("boot/vmlinuz-{NEW}")).exists(), "{at}");
        }
    });
}

#[test]
fn a_kernel_removal_killed_at_any_call_is_completed_by_another_command() {
    let root = start_with_kernels();
    let original = snapshot(root.path());
    done(root.path(), "kernel install --yes", "at first");
    kill_at_each_call(root.path(), &original, "kernel back --yes", |root, n, at| {
        check_kernels(root, at);
        if n % 2 == 0 && root.join("var/lib/fullpipe/host.journal").exists() {
            done(root, "kernel back --yes", at);
        }
    });
}
