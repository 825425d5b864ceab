//! The kernel reuses the inode of /proc/self/ns/net after a network namespace is removed. The
//! journal of the removed
//! namespace must not be shown, resumed or reverted in the new one.

use crate::support::clock::TestClock;
use crate::support::manifest::Manifest;
use crate::support::{Fake, assert_same, kernel, put_kernel, snapshot};
use fullpipe_host::facts::Scope;
use fullpipe_host::host::{DelegateFiles, Host, Machine, Model, View};
use fullpipe_host::journal::{Phase, Store};
use fullpipe_host::plan::Request;
use fullpipe_host::status::status;
use fullpipe_host::{apply, revert};
use fullpipe_testing::own_test;
use std::collections::BTreeMap;
use std::process::Command;

fn store_of(host: &dyn Host) -> Store {
    let scope = Scope::detect(host, &host.identity());
    assert!(!scope.boots, "{scope:?}");
    Store::for_scope(&scope)
}

fn live(controller: &str) -> Request {
    Request { live_only: true, ..Request::new(controller) }
}

/// The host of that manifest as a namespace of this number and cookie sees it.
fn inside(host: &Fake, number: u64, cookie: Option<u64>, clock: &TestClock) -> Fake {
    let host = Model::with_clock(host.files().copy(), clock.clone());
    host.files().put_link("/proc/self/ns/net", &format!("net:[{number}]"));
    host.files().put_link("/proc/1/ns/net", "net:[4026531840]");
    let mut state = kernel(&host);
    state.namespace_cookie = cookie;
    put_kernel(&host, &state);
    host
}

#[test]
fn a_namespace_is_its_cookie_in_this_run_of_the_machine_and_not_its_number() {
    let clock = TestClock::default();
    clock.restart();
    let (start, _) = Manifest::read("lxc-restricted").host();
    let first = inside(&start, 4026532300, Some(7), &clock);
    let before = snapshot(&first);
    let its_own = store_of(&first);
    apply::apply(&first, &its_own, &live("reno"), &apply::Options::default()).unwrap();
    let in_force = |host: &Fake| status(host, &store_of(host)).unwrap().phase;
    assert_eq!(in_force(&first), Some(Phase::Applied));
    // By its cookie alone.
    assert_eq!(store_of(&inside(&first, 4026532301, Some(7), &clock)).path(), its_own.path());

    // The next one of the number finds the other's journal beside it, and has nothing in force.
    let next = inside(&first, 4026532300, Some(8), &clock);
    let untouched = snapshot(&next);
    assert_eq!(in_force(&next), None);
    assert_eq!(revert::revert(&next, &store_of(&next), &revert::Options::default()).unwrap(), None);
    assert_same(&snapshot(&next), &untouched, "nothing of the other's is undone");
    // So has the one of the same cookie in another run of the machine.
    clock.restart();
    assert_eq!(in_force(&inside(&first, 4026532300, Some(7), &clock)), None);
    // A kernel without cookies has but the number, and the run of the machine.
    let old = |number| store_of(&inside(&start, number, None, &clock)).path();
    assert_ne!(old(4026532300), old(4026532301));

    revert::revert(&first, &its_own, &revert::Options::default()).unwrap().unwrap();
    assert_same(&snapshot(&first), &before, "its own revert");
}

const STAGE: &str = "FULLPIPE_HOST_TEST_STAGE";

/// Runs `script` in user, mount, process and network namespaces of its own with a private /run, and
/// this test in it.
fn unshared(script: &str, stage: &str) -> std::io::Result<std::process::Output> {
    let program = std::env::current_exe()?;
    Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
        ])
        .arg(format!("mount -t proc proc /proc && mount -t tmpfs none /run && {script}"))
        .arg("sh")
        .arg(program)
        .args(["--exact", own_test!(the_kernels_next_namespace_of_a_number_has_no_journal), "--nocapture"])
        .env(STAGE, stage)
        .output()
}

/// In a namespace: checks that nothing is applied there, and then applies a controller.
fn inner() {
    let host = Machine::new();
    let store = store_of(&host);
    let number = std::fs::read_link("/proc/self/ns/net").unwrap();
    let found = status(&host, &store).unwrap().phase;
    let now = host.sysctl("net.ipv4.tcp_congestion_control").unwrap();
    let allowed = host.sysctl("net.ipv4.tcp_allowed_congestion_control").unwrap();
    let other = allowed.split_ascii_whitespace().find(|c| *c != now).expect("two allowed controllers");
    apply::apply(&host, &store, &live(other), &apply::Options::default()).unwrap();
    let left = status(&host, &store).unwrap().phase;
    println!("\nSEEN {} {} {found:?} {left:?}", number.display(), store.path());
}

#[test]
fn the_kernels_next_namespace_of_a_number_has_no_journal() {
    match std::env::var(STAGE).as_deref() {
        Ok("outer") => return reuse(),
        Ok(_) => return inner(),
        Err(_) => {}
    }
    if let Some(reason) = match unshared("true", "") {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(e) => Some(e.to_string()),
    } {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no private namespaces: {reason}");
        println!("SKIPPED: no private namespaces: {reason}");
        return;
    }
    let output = unshared("\"$@\"", "outer").unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("1 passed"), "the inner test did not run:\n{text}");
}

/// Makes one namespace after the other, with something in force in each, until the kernel gives the
/// number of any of
/// them again: that of one only would wait for ever if something else on this machine took it and
/// kept it.
fn reuse() {
    let visit = || {
        let program = std::env::current_exe().unwrap();
        let output = Command::new("unshare")
            .arg("--net")
            .arg(program)
            .args([
                "--exact",
                own_test!(the_kernels_next_namespace_of_a_number_has_no_journal),
                "--nocapture",
            ])
            .env(STAGE, "inner")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{error}");
        let seen = text.lines().find_map(|line| line.strip_prefix("SEEN ")).expect("what the namespace is");
        let fields: Vec<String> = seen.splitn(4, ' ').map(str::to_owned).collect();
        <[String; 4]>::try_from(fields).unwrap()
    };
    let mut left = BTreeMap::<String, (String, Vec<u8>)>::new();
    for attempt in 1..=300 {
        let [number, journal, found, phase] = visit();
        assert_eq!((found.as_str(), phase.as_str()), ("None", "Some(Applied)"), "{number}");
        assert!(left.values().all(|(others, _)| *others != journal), "{number} has another's journal");
        if let Some((first, bytes)) = left.get(&number) {
            println!("{number} was given again to namespace {attempt}");
            assert_eq!(&std::fs::read(first).unwrap(), bytes, "the journal of the removed namespace");
            return;
        }
        let bytes = std::fs::read(&journal).unwrap();
        left.insert(number, (journal, bytes));
    }
    println!("SKIPPED: this kernel gave none of the numbers of 300 namespaces again");
}
