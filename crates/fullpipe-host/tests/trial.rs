//! A change on trial is rolled back unless it is confirmed: after a kill, at any time of day, and
//! by a restart.

mod support;

use fullpipe_host::host::{Clock, DelegateFiles, Host, Model, View};
use fullpipe_host::journal::{Phase, Store};
use fullpipe_host::plan::Request;
use fullpipe_host::status::status;
use fullpipe_host::trial::{self, Decision, TrialEnd};
use fullpipe_host::{Error, apply, revert};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;
use support::clock::TestClock;
use support::faulty::{Fault, Faulty};
use support::manifest::Manifest;
use support::memory::{Entry, Loss};
use support::{Fake, assert_same, restart, snapshot};

const WITHIN: Duration = Duration::from_secs(60);
/// A host whose plan has modules, queues, sysctls, files and a line to put out of force; and one
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
        assert_eq!(ended.unwrap(), TrialEnd::Expired);
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

        // The machine restarts before anyone confirmed: everything is as it was, whether or not fullpipe is
        // started.
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
fn nothing_is_changed_without_what_would_undo_it() {
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
fn an_undoing_that_fails_is_tried_again() {
    let clock = TestClock::default();
    let (host, _) = start("hand-edited-sysctl-conf", &clock);
    let original = snapshot(&host);
    try_out(&host, "bbr").unwrap();
    let faulty = Faulty::new(&host, 3, Fault::Once(io::ErrorKind::StorageFull));
    let ended = trial::watch(&faulty, &store(), &mut |_| {
        clock.advance(WITHIN);
        Decision::Pending
    });
    assert_eq!(ended.unwrap(), TrialEnd::Expired);
    assert_same(&snapshot(&host), &original, "");
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
                        // Before the trial's time was written, or after someone had said yes.
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
