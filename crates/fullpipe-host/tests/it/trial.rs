//! A change on trial is rolled back unless it is confirmed: after a kill, at any time of day, and
//! by a restart.

use crate::support::clock::TestClock;
use crate::support::faulty::{Fault, Faulty};
use crate::support::manifest::Manifest;
use crate::support::memory::{Entry, Loss};
use crate::support::{Fake, assert_same, restart, snapshot};
use fullpipe_host::host::{Clock, DelegateFiles, Host, Model, View};
use fullpipe_host::journal::{Phase, Store};
use fullpipe_host::plan::{QdiscChoice, Request};
use fullpipe_host::status::status;
use fullpipe_host::trial::{self, Cause, Decision};
use fullpipe_host::{Error, apply, revert};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

const WITHIN: Duration = Duration::from_secs(60);
/// A host whose plan has modules, queueing disciplines, sysctls, files and a line to disable; and one
/// with a unit.
const HOSTS: [(&str, &str); 2] = [("hand-edited-sysctl-conf", "bbr"), ("ebpf-hybla-loaded", "fp_hybla")];

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

fn start(name: &str, clock: &TestClock) -> (Fake, BTreeMap<String, Entry>) {
    let (host, pristine) = Manifest::read(name).host();
    clock.advance(Duration::from_secs(1000));
    (Model::with_clock(host.files().copy(), clock.clone()), pristine)
}

fn copy(host: &Fake, clock: &TestClock) -> Fake {
    Model::with_clock(host.files().copy(), clock.clone())
}

fn try_out(host: &dyn Host, controller: &str) -> Result<apply::Applied, Error> {
    let options = apply::Options {
        trial: Some(apply::OnTrial { within: WITHIN, guard: &|| Ok(()) }),
        ..Default::default()
    };
    apply::apply(host, &store(), &Request::new(controller), &options)
}

fn revert_selection(host: &dyn Host) {
    revert::revert(host, &store(), &revert::Options::default()).unwrap();
}

#[test]
fn unconfirmed_change_is_rolled_back_at_its_deadline_and_not_before() {
    let clock = TestClock::default();
    for (name, controller) in HOSTS {
        let (host, _) = start(name, &clock);
        let original = snapshot(&host);
        let began = clock.since_boot();
        assert!(try_out(&host, controller).unwrap().on_trial);
        assert_eq!(host.sysctl("net.ipv4.tcp_congestion_control").unwrap(), controller);
        let now = status(&host, &store()).unwrap();
        assert!(now.consistent && now.summary.contains("60 s left"), "{now:?}");
        assert_eq!(trial::revert_expired(&host, &store()).unwrap(), None);
        let mut asked = 0;
        let ended = trial::watch(&host, &store(), &mut |time| {
            assert!(clock.since_boot() < began + WITHIN && time <= WITHIN);
            asked += 1;
            clock.advance(time);
            Decision::Pending
        });
        assert_eq!(ended.unwrap(), Cause::Deadline.into());
        assert_eq!(clock.since_boot(), began + WITHIN, "{asked} times asked");
        assert_same(&snapshot(&host), &original, name);
    }
}

#[test]
fn a_trial_writes_nothing_for_the_next_boot_and_a_confirmation_does() {
    let clock = TestClock::default();
    for (name, controller) in HOSTS {
        let (host, pristine) = start(name, &clock);
        let original = snapshot(&host);
        let boot_files = |host: &Fake| {
            let mut files = snapshot(host);
            files.retain(|path, _| path.starts_with("/etc"));
            files
        };
        let before = boot_files(&host);
        try_out(&host, controller).unwrap();
        assert_same(&boot_files(&host), &before, name);
        let again = try_out(&host, controller).unwrap_err();
        assert!(again.text().contains("fullpipe confirm"), "{again}");

        let unconfirmed = copy(&host, &clock);
        trial::confirm(&host, &store()).unwrap();
        assert_ne!(boot_files(&host), before);
        let now = status(&host, &store()).unwrap();
        assert!(now.consistent && now.phase == Some(Phase::Applied) && now.confirm_within.is_none());
        clock.advance(WITHIN * 2);
        assert_eq!(trial::revert_expired(&host, &store()).unwrap(), None);
        assert!(trial::confirm(&host, &store()).unwrap_err().text().contains("waiting for confirmation"));
        revert_selection(&host);
        assert_same(&snapshot(&host), &original, name);

        // The machine restarts before the confirmation: the rollback does not depend on fullpipe.
        restart(&unconfirmed, &pristine);
        clock.restart();
        assert_same(&boot_files(&unconfirmed), &before, name);
        assert_ne!(unconfirmed.sysctl("net.ipv4.tcp_congestion_control").unwrap(), controller);
        let now = status(&unconfirmed, &store()).unwrap();
        assert!(!now.consistent && now.summary.contains("restart"), "{now:?}");
        assert!(trial::revert_expired(&unconfirmed, &store()).unwrap().is_some());
        assert_same(&snapshot(&unconfirmed), &original, name);
        clock.advance(Duration::from_secs(1));
    }
}

#[test]
fn late_confirmation_rolls_back() {
    let clock = TestClock::default();
    let (host, _) = start("hand-edited-sysctl-conf", &clock);
    let original = snapshot(&host);
    try_out(&host, "bbr").unwrap();
    clock.advance(WITHIN);
    assert!(trial::confirm(&host, &store()).unwrap_err().text().contains("timed out"));
    assert_same(&snapshot(&host), &original, "");
}

#[test]
fn nothing_is_changed_if_the_guard_does_not_start() {
    let clock = TestClock::default();
    let (host, _) = start("hand-edited-sysctl-conf", &clock);
    let original = snapshot(&host);
    let guard = || {
        assert!(host.exists("/var/lib/fullpipe/host.journal"), "the guard finds what to undo");
        assert_eq!(host.sysctl("net.ipv4.tcp_congestion_control").unwrap(), "cubic");
        Err(io::Error::other("no processes left"))
    };
    let options = apply::Options {
        trial: Some(apply::OnTrial { within: WITHIN, guard: &guard }),
        ..Default::default()
    };
    let error = apply::apply(&host, &store(), &Request::new("bbr"), &options).unwrap_err();
    assert!(error.text().contains("no processes left"), "{error}");
    assert_same(&snapshot(&host), &original, "");
}

#[test]
fn a_failed_rollback_is_tried_again() {
    let mut retries = 0;
    for at in 0.. {
        let clock = TestClock::default();
        let (host, _) = start("hand-edited-sysctl-conf", &clock);
        let original = snapshot(&host);
        try_out(&host, "bbr").unwrap();
        let faulty = Faulty::new(&host, at, Fault::Once(io::ErrorKind::StorageFull));
        let mut asked = Vec::new();
        let ended = trial::watch(&faulty, &store(), &mut |time| {
            asked.push(time);
            clock.advance(WITHIN);
            Decision::Pending
        });
        assert_eq!(ended.unwrap(), Cause::Deadline.into(), "{at}");
        // A module that cannot be unloaded stays, without another attempt.
        if asked.len() > 1 {
            assert_eq!(asked[1..], [Duration::from_secs(1)], "{at}");
            let mut now = snapshot(&host);
            // Nothing removes the empty directory if the last change of all failed.
            now.retain(|path, _| path != "/var/lib/fullpipe" || at + 1 < faulty.changes());
            assert_same(&now, &original, &format!("fault at change {at} of {}", faulty.changes()));
            retries += 1;
        }
        if faulty.changes() <= at {
            break;
        }
    }
    assert!(retries > 3, "{retries} rollbacks failed");
}

#[test]
fn crash_at_any_change_of_a_trial_is_rolled_back_by_the_next_command() {
    let mut cases = 0;
    for (name, controller) in HOSTS {
        let clock = TestClock::default();
        let (fresh, pristine) = start(name, &clock);
        let original = snapshot(&fresh);
        let tried = copy(&fresh, &clock);
        let counter = Faulty::counting(&tried);
        try_out(&counter, controller).unwrap();
        let of_a_trial = counter.changes();
        let confirmed = copy(&tried, &clock);
        let counter = Faulty::counting(&confirmed);
        trial::confirm(&counter, &store()).unwrap();
        let of_a_confirmation = counter.changes();
        assert!(of_a_trial > 15 && of_a_confirmation > 5, "{of_a_trial}, {of_a_confirmation}");

        for at in 0..of_a_trial + of_a_confirmation {
            for crash in [Fault::CrashBefore, Fault::CrashWithin, Fault::CrashAfter] {
                for power in [None, Some(Loss::Everything), Some(Loss::Bytes), Some(Loss::Nothing)] {
                    let context = format!("{name}, change {at}, {crash:?}, {power:?}");
                    let (host, dead) = if at < of_a_trial {
                        let host = copy(&fresh, &clock);
                        let faulty = Faulty::new(&host, at, crash);
                        let _ = try_out(&faulty, controller);
                        let dead = faulty.dead();
                        (host, dead)
                    } else {
                        let host = copy(&tried, &clock);
                        let faulty = Faulty::new(&host, at - of_a_trial, crash);
                        let _ = trial::confirm(&faulty, &store());
                        let dead = faulty.dead();
                        (host, dead)
                    };
                    assert!(dead, "{context}");
                    let elsewhen = TestClock::default();
                    let host: Fake = match power {
                        None => {
                            host.files().release();
                            elsewhen.advance(clock.since_boot() + WITHIN);
                            Model::with_clock(host.files().copy(), elsewhen)
                        }
                        Some(loss) => {
                            host.files().lose(loss);
                            restart(&host, &pristine);
                            elsewhen.restart();
                            Model::with_clock(host.files().copy(), elsewhen)
                        }
                    };
                    let settled =
                        trial::revert_expired(&host, &store()).unwrap_or_else(|e| panic!("{context}: {e}"));
                    let now = status(&host, &store()).unwrap_or_else(|e| panic!("{context}: {e}"));
                    match now.phase {
                        None => {
                            assert!(
                                now.summary.contains("no change by fullpipe"),
                                "{context}: {}",
                                now.summary
                            )
                        }
                        // Before the deadline was written, or after the confirmation.
                        Some(_) => assert!(
                            settled.is_none() && !now.summary.contains("on trial"),
                            "{context}: {}",
                            now.summary
                        ),
                    }
                    revert_selection(&host);
                    assert_same(&snapshot(&host), &original, &context);
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} crashes of a trial");
}

const EDITED: &str = "/etc/sysctl.conf";

/// An administrator adds a line.
fn edit(host: &Fake) {
    let text = host.content(EDITED).unwrap();
    host.files().put(EDITED, (text + "kernel.panic = 7\n").as_bytes(), 0o644);
}

fn is_edited(host: &Fake) -> bool {
    host.content(EDITED).unwrap().contains("kernel.panic = 7")
}

/// Everything except that file.
fn without_edited(host: &Fake) -> BTreeMap<String, String> {
    let mut all = snapshot(host);
    all.remove(EDITED);
    all
}

/// The original host with the edit.
fn with_edit(original: &Fake, clock: &TestClock) -> BTreeMap<String, String> {
    let host = copy(original, clock);
    edit(&host);
    snapshot(&host)
}

#[test]
fn a_confirmation_does_not_overwrite_a_file_edited_during_the_trial() {
    let clock = TestClock::default();
    let (host, _) = start("hand-edited-sysctl-conf", &clock);
    let edited = with_edit(&host, &clock);
    try_out(&host, "bbr").unwrap();
    edit(&host);
    let before = snapshot(&host);
    let error = trial::confirm(&host, &store()).unwrap_err();
    let text = error.text();
    assert!(text.contains(EDITED) && text.contains("nothing was written"), "{text}");
    assert_same(&snapshot(&host), &before, "a refused confirmation");
    assert!(status(&host, &store()).unwrap().confirm_within.is_some(), "the trial goes on");
    let reverted = revert::revert(&host, &store(), &revert::Options::default()).unwrap().unwrap();
    assert!(reverted.is_exact(), "{reverted:?}");
    assert_same(&snapshot(&host), &edited, "reverted");
}

#[test]
fn an_edit_at_any_moment_of_a_confirmation_is_kept() {
    let clock = TestClock::default();
    let (original, _) = start("hand-edited-sysctl-conf", &clock);
    let rest = without_edited(&original);
    let tried = copy(&original, &clock);
    try_out(&tried, "bbr").unwrap();
    let counter = copy(&tried, &clock);
    let counter = Faulty::counting(&counter);
    trial::confirm(&counter, &store()).unwrap();
    let mut refused = 0;
    for at in 0..counter.changes() {
        let host = copy(&tried, &clock);
        let edits = Cell::new(0);
        let meanwhile = || {
            edits.set(edits.get() + 1);
            edit(&host);
        };
        let outcome = trial::confirm(&Faulty::meanwhile(&host, at, &meanwhile), &store());
        assert_eq!(is_edited(&host), edits.get() == 1, "change {at}: the edit is lost: {outcome:?}");
        if let Err(error) = outcome {
            refused += 1;
            assert!(error.text().contains(EDITED) && error.text().contains("rolled back"), "{at}: {error}");
            assert_same(&without_edited(&host), &rest, &format!("change {at}: {error}"));
        }
    }
    assert!(refused > 4, "{refused} of {} are refused", counter.changes());
}

#[test]
fn the_deadline_leaves_a_file_alone_that_the_trial_did_not_write() {
    let clock = TestClock::default();
    for command in ["watch", "settle", "confirm", "apply"] {
        let (host, _) = start("hand-edited-sysctl-conf", &clock);
        let edited = with_edit(&host, &clock);
        try_out(&host, "bbr").unwrap();
        edit(&host);
        clock.advance(WITHIN);
        match command {
            "watch" => {
                let ended = trial::watch(&host, &store(), &mut |_| Decision::Pending).unwrap();
                assert_eq!(ended, Cause::Deadline.into(), "nothing was left unchanged");
            }
            "settle" => {
                let reverted = trial::revert_expired(&host, &store()).unwrap().unwrap();
                assert_eq!(reverted.summary(), "everything was rolled back");
            }
            "confirm" => assert!(trial::confirm(&host, &store()).is_err()),
            _ => {
                // A new apply plans from the edited file, and its revert restores that.
                apply::apply(&host, &store(), &Request::new("bbr"), &apply::Options::default()).unwrap();
                assert!(is_edited(&host));
                revert_selection(&host);
            }
        }
        assert_same(&snapshot(&host), &edited, command);
    }
}

#[test]
fn an_edit_at_any_moment_of_an_apply_is_kept() {
    let clock = TestClock::default();
    let (original, _) = start("hand-edited-sysctl-conf", &clock);
    let rest = without_edited(&original);
    let apply =
        |host: &dyn Host| apply::apply(host, &store(), &Request::new("bbr"), &apply::Options::default());
    let counter = copy(&original, &clock);
    let counter = Faulty::counting(&counter);
    apply(&counter).unwrap();
    let (mut kept, mut refused) = (0, 0);
    for at in 0..counter.changes() {
        let host = copy(&original, &clock);
        let edits = Cell::new(0);
        let meanwhile = || {
            edits.set(edits.get() + 1);
            edit(&host);
        };
        match apply(&Faulty::meanwhile(&host, at, &meanwhile)) {
            Ok(_) => kept += usize::from(is_edited(&host)),
            Err(error) => {
                refused += 1;
                assert!(error.text().contains(EDITED), "{at}: {error}");
                assert!(error.text().contains("rolled back"), "{at}: {error}");
                assert_same(&without_edited(&host), &rest, &format!("change {at}: {error}"));
            }
        }
        assert_eq!(is_edited(&host), edits.get() == 1, "change {at}: the edit is lost");
    }
    assert!(refused > 10, "{refused} refused, {kept} kept of {}", counter.changes());
}

/// On an image the trial writes the files at once.
#[test]
fn an_automatic_rollback_keeps_edited_files_and_names_them() {
    let clock = TestClock::default();
    let (host, _) = start("hand-edited-sysctl-conf", &clock);
    let original = without_edited(&host);
    try_out(&host, "bbr").unwrap();
    trial::confirm(&host, &store()).unwrap();
    edit(&host);
    // A failed change of the plan rolls everything back.
    host.set_sysctl("net.ipv4.tcp_congestion_control", "cubic").unwrap();
    let reverted = {
        let options = revert::Options::automatic();
        revert::revert(&host, &store(), &options).unwrap().unwrap()
    };
    assert!(is_edited(&host));
    assert!(reverted.summary().contains(EDITED), "{}", reverted.summary());
    assert!(!reverted.is_exact());
    assert_same(&without_edited(&host), &original, "everything else");
}

#[test]
fn a_full_disk_does_not_stop_the_rollback_of_a_trial() {
    let clock = TestClock::default();
    for (name, controller) in HOSTS {
        for ends_by in ["deadline", "revert", "settle"] {
            let (host, _) = start(name, &clock);
            let original = snapshot(&host);
            try_out(&host, controller).unwrap();
            let full = Faulty::full(&host);
            clock.advance(WITHIN);
            match ends_by {
                "deadline" => {
                    let ended = trial::watch(&full, &store(), &mut |_| Decision::Pending).unwrap();
                    assert_eq!(ended, Cause::Deadline.into());
                }
                "settle" => assert!(trial::revert_expired(&full, &store()).unwrap().is_some()),
                _ => revert_selection(&full),
            }
            assert_same(&snapshot(&host), &original, &format!("{name}: {ends_by}"));
        }
    }
}

#[test]
fn an_interrupted_apply_whose_remaining_files_were_edited_is_only_rolled_back() {
    let clock = TestClock::default();
    let (original, _) = start("hand-edited-sysctl-conf", &clock);
    let apply = |host: &dyn Host, force: bool| {
        let options = apply::Options { force, ..Default::default() };
        apply::apply(host, &store(), &Request::new("bbr"), &options)
    };
    let counter = copy(&original, &clock);
    let counter = Faulty::counting(&counter);
    apply(&counter, false).unwrap();
    let mut refused = 0;
    for at in 0..counter.changes() {
        let host = copy(&original, &clock);
        let _ = apply(&Faulty::new(&host, at, Fault::CrashBefore), false);
        host.files().release();
        edit(&host);
        let before = snapshot(&host);
        let Err(error) = apply(&host, false) else { continue };
        if error.text().contains("--force") {
            continue;
        }
        refused += 1;
        assert!(error.text().contains(EDITED) && error.text().contains("fullpipe revert"), "{at}: {error}");
        assert!(apply(&host, true).is_err(), "{at}");
        assert_same(&snapshot(&host), &before, "a refusal");
        revert_selection(&host);
        apply(&host, false).unwrap();
        assert!(is_edited(&host));
    }
    assert!(refused > 5, "{refused} of {} are refused", counter.changes());
}

#[test]
fn an_apply_reports_what_the_rollback_of_an_expired_trial_left_although_nothing_is_to_do() {
    const DEFAULT: &str = "net.ipv4.tcp_congestion_control";
    let clock = TestClock::default();
    let (host, _) = start("ebpf-hybla-loaded", &clock);
    host.set_sysctl(DEFAULT, "fp_hybla").unwrap();
    try_out(&host, "reno").unwrap();
    clock.advance(WITHIN);
    // The previous default is unloaded during the trial.
    for list in ["tcp_available_congestion_control", "tcp_allowed_congestion_control"] {
        host.files().put(&format!("/proc/sys/net/ipv4/{list}"), b"reno cubic\n", 0o644);
    }
    let request = Request { qdisc: QdiscChoice::Keep, live_only: true, ..Request::new("cubic") };
    let applied = apply::apply(&host, &store(), &request, &apply::Options::default()).unwrap();
    assert!(applied.plan.is_empty(), "{applied:?}");
    assert!(applied.warnings.iter().any(|text| text.contains(DEFAULT)), "{:?}", applied.warnings);
}
