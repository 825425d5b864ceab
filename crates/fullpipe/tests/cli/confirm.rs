//! `fullpipe apply --confirm`: rolled back unless confirmed, even if the terminal or the process
//! dies.

use crate::image::{content, fullpipe, host};
use nix::pty::openpty;
use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Generous for a busy machine; nothing here is expected to take that long.
const TIMEOUT: Duration = Duration::from_secs(60);

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < TIMEOUT, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn default(root: &Path) -> String {
    fs::read_to_string(root.join("proc/sys/net/ipv4/tcp_congestion_control"))
        .unwrap_or_default()
        .trim()
        .into()
}

/// The files that a revert must restore.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let paths =
        ["etc/sysctl.conf", "proc/sys/net/ipv4/tcp_congestion_control", "proc/sys/net/core/default_qdisc"];
    let mut all: Vec<_> = paths.iter().map(|p| ((*p).to_owned(), fs::read(root.join(p)).unwrap())).collect();
    for directory in ["etc/sysctl.d", "etc/modules-load.d", "var/lib", "run"] {
        let names = fs::read_dir(root.join(directory)).into_iter().flatten();
        all.extend(names.map(|n| (format!("{directory}/{}", n.unwrap().file_name().display()), vec![])));
    }
    all.sort();
    all
}

/// Starts `apply bbr --confirm TIME` and waits until it is applied. As in an interactive shell, it
/// has its own process group.
fn try_out(root: &Path, time: &str, stdin: Stdio) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
    command.args(["apply", "bbr", "--confirm", time, "--root", root.to_str().unwrap()]);
    command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // The caller of the tests may ignore these signals (nohup, background jobs), which a program
    // inherits.
    let heed_signals = || {
        for heeded in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
            // SAFETY: no handler is set.
            unsafe { nix::sys::signal::signal(heeded, SigHandler::SigDfl) }?;
        }
        Ok(())
    };
    // SAFETY: signal is safe between fork and exec, and nothing is allocated.
    let child = unsafe { command.pre_exec(heed_signals) }.spawn().unwrap();
    until("the trial", || fullpipe(root, "status").1.contains("on trial"));
    assert_eq!(default(root), "bbr");
    child
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// The guard processes of this host.
fn guards(root: &Path) -> Vec<u32> {
    let mine = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|&b| b == 0).map(String::from_utf8_lossy).collect();
        words.iter().any(|w| w == "guard") && words.iter().any(|w| Path::new(w.as_ref()) == root)
    };
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|e| e.unwrap().file_name().to_str()?.parse().ok()).filter(mine).collect()
}

#[test]
fn a_change_is_rolled_back_when_its_process_dies() {
    for end in [Signal::SIGHUP, Signal::SIGKILL] {
        let root = host();
        let before = files(root.path());
        let mut child = try_out(root.path(), "3s", Stdio::piped());
        signal(&child, end);
        assert!(!child.wait().unwrap().success());
        assert_eq!(default(root.path()), "bbr", "{end}: there is time to confirm it elsewhere");
        until("undoing", || files(root.path()) == before);
        until("the guard's end", || guards(root.path()).is_empty());
    }
}

#[test]
fn a_change_is_rolled_back_at_once_when_interrupted_or_its_input_ends() {
    for end in [Some(Signal::SIGINT), Some(Signal::SIGTERM), None] {
        let root = host();
        let before = files(root.path());
        let mut child = try_out(root.path(), "1000s", Stdio::piped());
        match end {
            Some(end) => signal(&child, end),
            None => drop(child.stdin.take()),
        }
        assert_eq!(child.wait().unwrap().code(), Some(1), "{end:?}");
        assert_eq!(files(root.path()), before, "{end:?}");
        until("the guard's end", || guards(root.path()).is_empty());
    }
}

#[test]
fn the_guard_rolls_back_on_sigterm_and_the_next_command_after_sigkill() {
    let root = host();
    let before = files(root.path());
    let mut child = try_out(root.path(), "1000s", Stdio::null());
    let [guard] = guards(root.path())[..] else { panic!("one guard") };
    kill(Pid::from_raw(guard as i32), Signal::SIGTERM).unwrap();
    until("undoing", || files(root.path()) == before);
    assert!(child.wait().unwrap().success(), "someone reverted it meanwhile");

    let mut child = try_out(root.path(), "2s", Stdio::null());
    let [guard] = guards(root.path())[..] else { panic!("one guard") };
    kill(Pid::from_raw(guard as i32), Signal::SIGKILL).unwrap();
    signal(&child, Signal::SIGKILL);
    child.wait().unwrap();
    until("undoing", || {
        let (_, out, err) = fullpipe(root.path(), "status");
        assert!(out.contains("on trial") || err.contains("not confirmed in time"), "{out}{err}");
        out.contains("no change by fullpipe")
    });
    assert_eq!(files(root.path()), before);
}

#[test]
fn piped_input_does_not_confirm() {
    let root = host();
    let before = files(root.path());
    let mut child = try_out(root.path(), "3s", Stdio::piped());
    child.stdin.as_mut().unwrap().write_all(b"\nyes\nkeep\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(files(root.path()), before);
}

#[test]
fn yes_at_the_terminal_confirms_and_enter_does_not() {
    for (typed, kept) in [("\n", false), ("y\n", false), ("keep\n", false), ("Yes\n", true)] {
        let root = host();
        let before = files(root.path());
        let terminal = openpty(None, None).unwrap();
        let mut child = try_out(root.path(), if kept { "1000s" } else { "3s" }, terminal.slave.into());
        File::from(terminal.master.try_clone().unwrap()).write_all(typed.as_bytes()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(i32::from(!kept)), "{typed:?}");
        assert_eq!(files(root.path()) == before, !kept, "{typed:?}");
        until("the guard's end", || guards(root.path()).is_empty());
        if kept {
            assert!(
                content(root.path(), "etc/sysctl.conf").contains("# disabled by fullpipe"),
                "and for the next boot"
            );
            assert_eq!(fullpipe(root.path(), "revert").0, 0);
            assert_eq!(files(root.path()), before);
        }
    }
}

#[test]
fn another_shell_confirms_and_waiting_is_idle() {
    let root = host();
    let before = files(root.path());
    let mut child = try_out(root.path(), "1000s", Stdio::null());
    let (code, out, err) = fullpipe(root.path(), "confirm");
    assert_eq!(code, 0, "{out}{err}");
    assert!(child.wait().unwrap().success());
    until("the guard's end", || guards(root.path()).is_empty());
    let (code, out, _) = fullpipe(root.path(), "status");
    assert!(code == 0 && out.contains("applied by fullpipe"), "{out}");
    assert_eq!(fullpipe(root.path(), "revert").0, 0);
    assert_eq!(files(root.path()), before);

    let mut child = try_out(root.path(), "4s", Stdio::null());
    let seen_in_force = Instant::now();
    let [guard] = guards(root.path())[..] else { panic!("one guard") };
    // User and system time in hundredths of a second (proc_pid_stat(5)).
    let ticks = |pid: u32| -> u64 {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let begun = ticks(guard) + ticks(child.id());
    std::thread::sleep(Duration::from_secs(2));
    let used = ticks(guard) + ticks(child.id()) - begun;
    assert!(used < 100, "{used} hundredths of a second of processor time in two seconds of waiting");
    assert_eq!(child.wait().unwrap().code(), Some(1));
    // Some of the four seconds had passed when the change was noticed, and it is polled in steps.
    println!("in force {:?} after it was seen", seen_in_force.elapsed());
    assert_eq!(files(root.path()), before);
}
