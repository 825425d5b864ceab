//! A crash at every change that an apply or a revert makes, a fault at every one, and the loss of
//! unsynced writes: the
//! host stays whole, `status` tells the truth, `apply` or `revert` finishes the work.

use crate::support::faulty::{Fault, Faulty};
use crate::support::manifest::Manifest;
use crate::support::memory::{Entry, Loss};
use crate::support::{Fake, Sample, assert_same, differences, restart, snapshot};
use fullpipe_host::host::{DelegateFiles, Files, Host, Model, ModelKernel, Node, View};
use fullpipe_host::journal::{Phase, Store};
use fullpipe_host::net::ROOT;
use fullpipe_host::plan::Request;
use fullpipe_host::status::status;
use fullpipe_host::{Error, apply, revert};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::ErrorKind;

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

fn request(controller: &str) -> Request {
    let mut request = Request::new(controller);
    request.buffers = Some(("1gbit".parse().unwrap(), "100ms".parse().unwrap()));
    request
}

fn put_in_force(host: &dyn Host, controller: &str) -> Result<apply::Applied, Error> {
    apply::apply(host, &store(), &request(controller), &apply::Options::default())
}

fn revert_selection(host: &dyn Host) -> Result<Option<revert::Reverted>, Error> {
    revert::revert(host, &store(), &revert::Options::default())
}

/// What happens to the machine when the process dies.
#[derive(Clone, Copy, Debug)]
enum After {
    Killed,
    Power(Loss),
}

const AFTER: [After; 4] =
    [After::Killed, After::Power(Loss::Everything), After::Power(Loss::Bytes), After::Power(Loss::Nothing)];

const CRASHES: [Fault; 3] = [Fault::CrashBefore, Fault::CrashWithin, Fault::CrashAfter];

fn strike(host: &Fake, pristine: &BTreeMap<String, Entry>, after: After) {
    match after {
        After::Killed => host.files().release(),
        After::Power(loss) => {
            host.files().lose(loss);
            restart(host, pristine);
        }
    }
}

/// Nothing is lost on a host that lies about it: what `status` says agrees with the files and the
/// kernel.
fn status_is_true(host: &Fake, context: &str) {
    let status = status(host, &store()).unwrap_or_else(|e| panic!("{context}: {e}"));
    match status.phase {
        Some(Phase::Applied) => {
            assert_eq!(status.consistent, status.drift.is_empty(), "{context}: {}", status.summary)
        }
        Some(Phase::Applying | Phase::Reverting) => {
            assert!(
                !status.consistent && status.summary.contains("interrupted"),
                "{context}: {}",
                status.summary
            );
        }
        None => assert!(status.summary.contains("no change by fullpipe"), "{context}: {}", status.summary),
    }
}

/// Hosts that need every kind of step: modules, queues, buffers, a losing and a winning older file.
const HOSTS: [(&str, &str); 3] =
    [("debian-12-multiqueue", "bbr"), ("hand-edited-sysctl-conf", "bbr"), ("ebpf-hybla-loaded", "fp_hybla")];

fn copy(host: &Fake) -> Fake {
    Model::new(host.files().copy())
}

fn fresh(name: &str) -> (Fake, BTreeMap<String, Entry>) {
    Manifest::read(name).host()
}

/// Interruption an apply is interrupted, and whether it is completed before it is reverted.
#[derive(Clone, Copy)]
struct Interruption {
    at: usize,
    crash: Fault,
    after: After,
    finish_by_apply: bool,
}

/// Interrupts an apply to a copy of `start`: status must be true, then the apply is completed as
/// `in_force` if
/// requested, and reverted to `original`.
fn struck_apply(
    start: &Fake,
    pristine: &BTreeMap<String, Entry>,
    original: &BTreeMap<String, String>,
    in_force: &BTreeMap<String, String>,
    controller: &str,
    how: Interruption,
    context: &str,
) {
    let host = copy(start);
    let faulty = Faulty::new(&host, how.at, how.crash);
    // A crash after the last change may come after all is done.
    let outcome = put_in_force(&faulty, controller);
    assert!(faulty.dead(), "{context}: it ended with {outcome:?}");
    strike(&host, pristine, how.after);
    status_is_true(&host, context);
    if how.finish_by_apply {
        put_in_force(&host, controller).unwrap_or_else(|e| panic!("{context}: {e}"));
        same_in_force(&snapshot(&host), in_force, context);
    }
    revert_selection(&host).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_same(&snapshot(&host), original, context);
}

#[test]
fn crash_at_any_change_of_an_apply_is_completed_or_rolled_back() {
    let (mut cases, mut sample) = (0, Sample::one_of(7));
    for (name, controller) in HOSTS {
        let (start, pristine) = fresh(name);
        let host = copy(&start);
        let original = snapshot(&host);
        let counter = Faulty::counting(&host);
        put_in_force(&counter, controller).unwrap();
        let changes = counter.changes();
        let in_force = snapshot(&host);
        assert!(changes > 30, "{name}: only {changes} changes");
        for at in 0..changes {
            for crash in CRASHES {
                for after in AFTER {
                    for finish_by_apply in [true, false] {
                        if !sample.next() {
                            continue;
                        }
                        let context = format!("{name}, change {at} of {changes}, {crash:?}, {after:?}");
                        let how = Interruption { at, crash, after, finish_by_apply };
                        struck_apply(&start, &pristine, &original, &in_force, controller, how, &context);
                        cases += 1;
                    }
                }
            }
        }
    }
    println!("{cases} crashes of an apply");
}

/// What an apply until a restart lacks, or one without buffers, is added by the same apply without
/// that or with them, and a crash while
/// it is leaves nothing that cannot be finished or undone.
#[test]
fn crash_at_any_change_of_a_second_apply_is_completed_or_rolled_back() {
    let (mut cases, mut sample) = (0, Sample::one_of(5));
    let for_now = |controller: &str| Request { live_only: true, ..request(controller) };
    let begun = |(name, controller)| {
        [(name, controller, for_now(controller)), (name, controller, Request::new(controller))]
    };
    for (name, controller, before) in HOSTS.into_iter().flat_map(begun) {
        let (start, pristine) = fresh(name);
        let original = snapshot(&start);
        apply::apply(&start, &store(), &before, &apply::Options::default()).unwrap();
        let host = copy(&start);
        let counter = Faulty::counting(&host);
        put_in_force(&counter, controller).unwrap();
        let changes = counter.changes();
        let in_force = snapshot(&host);
        assert!(changes > 5, "{name}: only {changes} changes");
        revert_selection(&host).unwrap();
        assert_same(&snapshot(&host), &original, name);
        for at in 0..changes {
            for crash in CRASHES {
                for finish_by_apply in [true, false] {
                    if !sample.next() {
                        continue;
                    }
                    let context = format!("{name}, change {at} of {changes}, {crash:?}");
                    let how = Interruption { at, crash, after: After::Killed, finish_by_apply };
                    struck_apply(&start, &pristine, &original, &in_force, controller, how, &context);
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} crashes of an addition");
}

/// The state in force is the same however it was reachability, but for the journal's wording and
/// for handles: the kernel's
/// own tree of fq (after a restart, or under a new mq) has none.
fn same_in_force(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>, context: &str) {
    let relevant = |all: &BTreeMap<String, String>| {
        let mut all = all.clone();
        all.retain(|p, _| !p.starts_with("/var/lib/fullpipe"));
        let mut kernel: ModelKernel = serde_json::from_str(&all["/kernel.json"]).unwrap();
        for node in &mut kernel.qdiscs {
            node.handle = 0;
            node.parent = if node.parent == ROOT { ROOT } else { node.parent & 0xffff };
        }
        all.insert("/kernel.json".into(), serde_json::to_string(&kernel).unwrap());
        all
    };
    let (a, b) = (relevant(a), relevant(b));
    assert!(a == b, "{context}: another state was reached:\n{}", differences(&a, &b));
}

#[test]
fn a_crash_at_any_change_of_a_revert_is_finished_by_another_revert() {
    let (mut cases, mut sample) = (0, Sample::one_of(7));
    for (name, controller) in HOSTS {
        let (host, pristine) = fresh(name);
        let original = snapshot(&host);
        put_in_force(&host, controller).unwrap();
        let in_force = copy(&host);
        let counter = Faulty::counting(&host);
        revert_selection(&counter).unwrap();
        let changes = counter.changes();
        for at in 0..changes {
            for crash in CRASHES {
                for after in AFTER {
                    for restarted_between in [false, true] {
                        if !sample.next() {
                            continue;
                        }
                        let context = format!(
                            "{name}, change {at} of {changes}, {crash:?}, {after:?}, restarted between: \
                             {restarted_between}"
                        );
                        let host = copy(&in_force);
                        if restarted_between {
                            restart(&host, &pristine);
                        }
                        let faulty = Faulty::new(&host, at, crash);
                        let ended = revert_selection(&faulty);
                        // After a restart there may be fewer changes to make.
                        assert!(
                            faulty.dead() || (restarted_between && ended.is_ok()),
                            "{context}: {ended:?}"
                        );
                        strike(&host, &pristine, after);
                        status_is_true(&host, &context);
                        revert_selection(&host).unwrap_or_else(|e| panic!("{context}: {e}"));
                        assert_same(&snapshot(&host), &original, &context);
                        cases += 1;
                    }
                }
            }
        }
    }
    println!("{cases} crashes of a revert");
}

#[test]
fn failed_change_is_rolled_back_at_once() {
    const KINDS: [ErrorKind; 3] =
        [ErrorKind::StorageFull, ErrorKind::ReadOnlyFilesystem, ErrorKind::PermissionDenied];
    let mut sample = Sample::one_of(2);
    for (name, controller) in HOSTS {
        let (start, _) = fresh(name);
        let original = snapshot(&start);
        let host = copy(&start);
        let counter = Faulty::counting(&host);
        put_in_force(&counter, controller).unwrap();
        for at in 0..counter.changes() {
            for kind in KINDS {
                if !sample.next() {
                    continue;
                }
                let context = format!("{name}, change {at} fails once: {kind}");
                let host = copy(&start);
                let faulty = Faulty::new(&host, at, Fault::Once(kind));
                let error = put_in_force(&faulty, controller).expect_err(&context);
                assert!(!error.text().is_empty());
                if !snapshot(&host).contains_key("/var/lib/fullpipe/host.journal") {
                    revert_selection(&host).unwrap();
                    assert_same(&snapshot(&host), &original, &context);
                } else {
                    // The journal itself could not be kept or removed: then status says so and revert goes
                    // on.
                    status_is_true(&host, &context);
                    revert_selection(&host).unwrap_or_else(|e| panic!("{context}: {e}"));
                    assert_same(&snapshot(&host), &original, &context);
                }
            }
        }
    }
}

#[test]
fn a_disk_that_stays_full_leaves_a_journal_that_revert_finishes_by() {
    for (name, controller) in HOSTS {
        let (start, _) = fresh(name);
        let original = snapshot(&start);
        let host = copy(&start);
        let counter = Faulty::counting(&host);
        put_in_force(&counter, controller).unwrap();
        for at in 0..counter.changes() {
            let context = format!("{name}, every change from {at} on fails");
            let host = copy(&start);
            let faulty = Faulty::new(&host, at, Fault::Always(ErrorKind::StorageFull));
            let error = put_in_force(&faulty, controller).expect_err(&context);
            assert!(
                error.text().contains("the disk is full") || error.text().contains("no storage"),
                "{context}: {error}"
            );
            status_is_true(&host, &context);
            revert_selection(&host).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_same(&snapshot(&host), &original, &context);
        }
    }
}

#[test]
fn a_second_apply_at_the_same_time_is_refused() {
    let (host, _) = fresh("debian-12-multiqueue");
    let held = fullpipe_host::host::Files::lock(&host, "/run/fullpipe.lock").unwrap();
    let error = put_in_force(&host, "bbr").unwrap_err();
    assert!(matches!(&error, Error::Check(text) if text.contains("another fullpipe")), "{error}");
    drop(held);
    put_in_force(&host, "bbr").unwrap();
}

/// A host whose lock is released after some pauses.
fn with_busy_lock(host: &Fake, act: impl FnOnce(&Faulty<'_>)) {
    let held = RefCell::new(Some(fullpipe_host::host::Files::lock(host, "/run/fullpipe.lock").unwrap()));
    let pauses = Cell::new(0);
    let release = || {
        pauses.set(pauses.get() + 1);
        if pauses.get() == 5 {
            held.borrow_mut().take();
        }
    };
    act(&Faulty::waiting(host, &release));
    assert_eq!(pauses.get(), 5, "it waited for the lock");
}

#[test]
fn revert_and_status_wait_for_the_process_that_holds_the_lock() {
    let (host, _) = fresh("debian-12-multiqueue");
    let original = snapshot(&host);
    put_in_force(&host, "bbr").unwrap();
    with_busy_lock(&host, |host| drop(revert_selection(host).unwrap()));
    assert_same(&snapshot(&host), &original, "reverted after the wait");

    let killed = Faulty::new(&host, 20, Fault::CrashBefore);
    put_in_force(&killed, "bbr").unwrap_err();
    host.files().release();
    with_busy_lock(&host, |host| {
        let status = status(host, &store()).unwrap();
        assert!(status.summary.contains("interrupted"), "{status:?}");
    });

    let held = fullpipe_host::host::Files::lock(&host, "/run/fullpipe.lock").unwrap();
    let error = revert_selection(&host).unwrap_err();
    assert!(error.text().contains("did not finish within 20 s"), "the wait is bounded: {error}");
    drop(held);
}

#[test]
fn a_directory_that_was_made_without_its_mode_is_completed_or_removed() {
    for completes in [true, false] {
        let (host, _) = fresh("debian-12-multiqueue");
        for name in host.list("/etc/modules-load.d").unwrap() {
            host.remove(&format!("/etc/modules-load.d/{name}")).unwrap();
        }
        host.remove_directory("/etc/modules-load.d").unwrap();
        let original = snapshot(&host);
        put_in_force(&host, "bbr").unwrap();
        let is_directory = |path: &str| host.stat(path).is_ok_and(|stat| stat.node == Node::Directory);
        let is_new =
            |path: &String| path.starts_with("/etc") && !original.contains_key(path) && is_directory(path);
        let made: Vec<String> = snapshot(&host).into_keys().filter(is_new).collect();
        assert!(!made.is_empty(), "an apply makes a directory");
        // As a kill between mkdir and chmod leaves it under a umask of 077: nothing in it yet.
        revert_selection(&host).unwrap();
        let counting = Faulty::counting(&host);
        put_in_force(&counting, "bbr").unwrap();
        revert_selection(&host).unwrap();
        let at = (0..counting.changes()).find(|&at| {
            let killed = Faulty::new(&host, at, Fault::CrashAfter);
            let _ = put_in_force(&killed, "bbr");
            host.files().release();
            let is_there = host.exists(&made[0]);
            if !is_there {
                revert_selection(&host).unwrap();
            }
            is_there
        });
        assert!(at.is_some(), "killed right after {} was made", made[0]);
        host.remove_directory(&made[0]).unwrap();
        host.make_directory(&made[0], 0o700).unwrap();
        if completes {
            put_in_force(&host, "bbr").unwrap();
            assert_eq!(host.stat(&made[0]).unwrap().mode, 0o755);
        }
        revert_selection(&host).unwrap();
        assert_same(&snapshot(&host), &original, &made[0]);
    }
}

#[test]
fn restart_keeps_everything_enabled() {
    for (name, controller) in [("debian-12-multiqueue", "bbr"), ("hand-edited-sysctl-conf", "bbr")] {
        let (host, pristine) = fresh(name);
        let original = snapshot(&host);
        put_in_force(&host, controller).unwrap();
        restart(&host, &pristine);
        let status = status(&host, &store()).unwrap();
        assert!(status.consistent, "{name}: {status:?}");
        assert_eq!(status.live.as_deref(), Some(controller));
        assert_eq!(put_in_force(&host, controller).unwrap().made, 0, "{name}");
        revert_selection(&host).unwrap();
        assert_same(&snapshot(&host), &original, name);
    }
}
