//! Uses of loaded controllers are in the one journal: `status` reports them, `revert` rolls them
//! back, a step that fails rolls back those before it, and all of these can resume from the journal
//! that a crash leaves at any change.

use crate::support::clock::TestClock;
use crate::support::faulty::{Fault, Faulty};
use crate::support::manifest::Manifest;
use crate::support::memory::{Entry, Loss};
use crate::support::{Fake, assert_same, kernel, put, put_kernel, restart, snapshot};
use fullpipe_host::assign::{self, Cgroup, Part, RouteBudget};
use fullpipe_host::host::{DelegateFiles, Files, Host, Model, ModelKernel, Process, View};
use fullpipe_host::journal::{Phase, Store};
use fullpipe_host::net::CongestionRoute;
use fullpipe_host::plan::{ControllerUnit, Request, unit_name};
use fullpipe_host::revert::Outcome;
use fullpipe_host::status::status;
use fullpipe_host::{Error, apply, revert, split};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::time::Duration;

const DEFAULT: &str = "net.ipv4.tcp_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const ROUTE: &str = "192.0.2.0/24";
/// To which there is no route of its own.
const TOWARDS: &str = "198.51.100.0/24";
const GROUP: &str = "/sys/fs/cgroup/mine";

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

fn pin(controller: &str) -> String {
    format!("/sys/fs/bpf/fullpipe/cgroups/{controller}@1")
}

fn unit_of(controller: &str) -> String {
    format!("/etc/systemd/system/{}", unit_name(controller))
}

/// A running systemd host with two loaded controllers and a route that has a controller of its own,
/// locked.
fn start(clock: &TestClock) -> (Fake, BTreeMap<String, Entry>) {
    let (host, _) = Manifest::read("ebpf-hybla-loaded").host();
    let host = Model::with_clock(host.files().copy(), clock.clone());
    for directory in ["/run/systemd/system", "/sys/fs/bpf/fullpipe/cgroups", GROUP] {
        host.files().directories(directory);
    }
    let mut state = kernel(&host);
    let route = |prefix: &str, controller: &str| CongestionRoute {
        prefix: prefix.into(),
        device: "eth0".into(),
        table: 254,
        controller: controller.into(),
        locked: !controller.is_empty(),
        ..CongestionRoute::default()
    };
    state.routes = vec![route("default", ""), route(ROUTE, "reno")];
    put_kernel(&host, &state);
    // Loaded controllers are gone when the machine starts again.
    unregister(&host, "fp_hybla");
    let pristine = host.files().volatile_entries();
    load(&host);
    (host, pristine)
}

fn load(host: &Fake) {
    for controller in ["fp_hybla", "mine"] {
        register(host, controller);
    }
}

/// What the kernel does when a controller is loaded that all may choose, as all of ours are
/// (`TCP_CONG_NON_RESTRICTED`).
fn register(host: &Fake, controller: &str) {
    for list in [AVAILABLE, ALLOWED] {
        let text = host.text(list).unwrap();
        if !text.split_ascii_whitespace().any(|one| one == controller) {
            put(host, list, &format!("{text} {controller}\n"));
        }
    }
}

/// And when it is unloaded.
fn unregister(host: &Fake, controller: &str) {
    for list in [AVAILABLE, ALLOWED] {
        let text = host.text(list).unwrap();
        let left: Vec<&str> = text.split_ascii_whitespace().filter(|one| *one != controller).collect();
        put(host, list, &(left.join(" ") + "\n"));
    }
}

fn is_registered(host: &Fake, controller: &str) -> bool {
    host.text(AVAILABLE).unwrap().split_ascii_whitespace().any(|one| one == controller)
}

fn put_in_force(host: &Fake, controller: &str) {
    apply::apply(host, &store(), &Request::new(controller), &apply::Options::default()).unwrap();
}

fn allowed(host: &Fake) -> Vec<String> {
    let text = host.text(ALLOWED).unwrap();
    let mut words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    words.sort_unstable();
    words
}

fn copy(host: &Fake, clock: &TestClock) -> Fake {
    Model::with_clock(host.files().copy(), clock.clone())
}

fn unit(controller: &str, default: bool) -> ControllerUnit<'_> {
    let which = if controller == "mine" { "bbr3 --name mine" } else { "hybla" };
    ControllerUnit { name: controller, which, settings: &[], program: "/usr/bin/fullpipe", default }
}

/// The default, a control group, a route and the next boot at once.
fn use_for_all(host: &dyn Host, controller: &str) -> Result<(), Error> {
    let pin = pin(controller);
    let attach = || host.create(&pin, b"", 0o600, 0, 0);
    let request = assign::Request {
        controller: controller.into(),
        default: true,
        cgroup: Some(Cgroup { path: GROUP.into(), pin: pin.clone(), attach: &attach }),
        route: Some(ROUTE.into()),
        boot: Some(unit(controller, true)),
        to: vec![TOWARDS.into()],
        module: None,
    };
    assign::assign(host, &store(), &request)
}

fn use_as_default(host: &dyn Host, controller: &str) -> Result<(), Error> {
    let request =
        assign::Request { controller: controller.into(), default: true, ..assign::Request::default() };
    assign::assign(host, &store(), &request)
}

fn use_on_route(host: &dyn Host, controller: &str) -> Result<(), Error> {
    let route = Some(ROUTE.into());
    let request = assign::Request { controller: controller.into(), route, ..assign::Request::default() };
    assign::assign(host, &store(), &request)
}

fn use_at_boot(host: &dyn Host, controller: &str) -> Result<(), Error> {
    let boot = Some(unit(controller, false));
    let request = assign::Request { controller: controller.into(), boot, ..assign::Request::default() };
    assign::assign(host, &store(), &request)
}

fn unassign_controller(host: &dyn Host, controller: &str) -> Result<assign::Unassigned, Error> {
    assign::unassign(host, &store(), controller, Part::Whole, None)
}

fn revert_selection(host: &dyn Host) -> Result<Option<revert::Reverted>, Error> {
    revert::revert(host, &store(), &revert::Options::default())
}

/// What a controller is in use for, by the host itself.
fn used_for(host: &Fake, controller: &str) -> Vec<String> {
    let mut all = Vec::new();
    if host.sysctl(DEFAULT).as_deref() == Some(controller) {
        all.push(DEFAULT.to_owned());
    }
    if host.exists(&pin(controller)) {
        all.push(format!("control group {GROUP}"));
    }
    if kernel(host).routes.iter().any(|route| route.controller == controller) {
        all.push(format!("controller of the route to {ROUTE}"));
    }
    if host.exists(&unit_of(controller)) {
        all.push(unit_of(controller));
    }
    all
}

/// `status` reports every assignment, and reports as consistent only what is.
fn status_is_true(host: &Fake, context: &str) {
    let status = status(host, &store()).unwrap_or_else(|e| panic!("{context}: {e}"));
    for controller in ["fp_hybla", "mine"] {
        let told: Vec<&String> =
            status.uses.iter().filter(|u| u.controller == controller).flat_map(|u| &u.changes).collect();
        for use_ in used_for(host, controller) {
            assert!(
                told.contains(&&use_),
                "{context}: {controller} is in use for {use_}, but status is {status:?}"
            );
        }
    }
    match status.phase {
        Some(Phase::Applied) => {
            assert_eq!(status.consistent, status.drift.is_empty(), "{context}: {status:?}");
        }
        Some(Phase::Applying | Phase::Reverting) => {
            let interrupted = status.summary.contains("interrupted");
            assert!(!status.consistent && interrupted, "{context}: {}", status.summary);
        }
        None => assert!(status.summary.contains("no change by fullpipe"), "{context}: {}", status.summary),
    }
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

fn strike(host: &Fake, clock: &TestClock, pristine: &BTreeMap<String, Entry>, after: After) {
    match after {
        After::Killed => host.files().release(),
        After::Power(loss) => {
            host.files().lose(loss);
            clock.restart();
            restart(host, pristine);
        }
    }
}

/// How the work is gone on with.
#[derive(Clone, Copy, Debug)]
enum Then {
    Again,
    Revert,
    Unload,
}

fn finish(host: &Fake, then: Then, context: &str) {
    let failed = |e: Error| panic!("{context}: {e}");
    match then {
        Then::Again => {
            load(host);
            use_for_all(host, "fp_hybla").unwrap_or_else(failed);
            assert_eq!(used_for(host, "fp_hybla").len(), 4, "{context}");
            let status = status(host, &store()).unwrap();
            assert!(status.consistent, "{context}: {status:?}");
            revert_selection(host).unwrap_or_else(|e| panic!("{context}: {e}"));
        }
        Then::Revert => drop(revert_selection(host).unwrap_or_else(|e| panic!("{context}: {e}"))),
        Then::Unload => {
            drop(unassign_controller(host, "fp_hybla").unwrap_or_else(|e| panic!("{context}: {e}")))
        }
    }
    load(host);
}

#[test]
fn all_destinations_are_observed_and_restored_byte_for_byte() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    let original = snapshot(&host);
    use_for_all(&host, "fp_hybla").unwrap();
    assert_eq!(used_for(&host, "fp_hybla").len(), 4);
    status_is_true(&host, "in use");
    let seen = status(&host, &store()).unwrap();
    assert!(seen.consistent && seen.summary.contains("fp_hybla is assigned by fullpipe"), "{seen:?}");
    assert_eq!(seen.live.as_deref(), Some("fp_hybla"));
    assert!(
        seen.boot.starts_with("fp_hybla (/etc/systemd/system/fullpipe-cc-fp_hybla.service:"),
        "{}",
        seen.boot
    );
    let again = snapshot(&host);
    use_for_all(&host, "fp_hybla").unwrap();
    assert_same(&snapshot(&host), &again, "what is so already is not changed");

    let reverted = revert_selection(&host).unwrap().unwrap();
    let unit = unit_of("fp_hybla");
    let undone: Vec<&str> = reverted.undone().collect();
    for title in [
        DEFAULT,
        unit.as_str(),
        "control group /sys/fs/cgroup/mine",
        "controller of the route to 192.0.2.0/24",
    ] {
        assert!(undone.contains(&title), "{title}: {undone:?}");
    }
    assert_same(&snapshot(&host), &original, "reverted");

    use_for_all(&host, "fp_hybla").unwrap();
    let unassigned = unassign_controller(&host, "fp_hybla").unwrap();
    assert!(unassigned.was_loaded_at_boot && unassigned.default == "cubic", "{unassigned:?}");
    assert_same(&snapshot(&host), &original, "unloaded");
    assert!(unassign_controller(&host, "fp_hybla").unwrap().is_nothing());
}

#[test]
fn crash_at_any_change_of_a_destination_is_completed_or_rolled_back() {
    let clock = TestClock::default();
    let (start, pristine) = start(&clock);
    let original = snapshot(&start);
    let host = copy(&start, &clock);
    let counter = Faulty::counting(&host);
    use_for_all(&counter, "fp_hybla").unwrap();
    let changes = counter.changes();
    assert!(changes > 30, "only {changes} changes");
    let mut cases = 0;
    for at in 0..changes {
        for crash in CRASHES {
            for after in AFTER {
                for then in [Then::Again, Then::Revert, Then::Unload] {
                    let context = format!("change {at} of {changes}, {crash:?}, {after:?}, then {then:?}");
                    let clock = TestClock::default();
                    let host = copy(&start, &clock);
                    let faulty = Faulty::new(&host, at, crash);
                    let outcome = use_for_all(&faulty, "fp_hybla");
                    assert!(faulty.dead(), "{context}: it ended with {outcome:?}");
                    strike(&host, &clock, &pristine, after);
                    status_is_true(&host, &context);
                    finish(&host, then, &context);
                    assert_same(&snapshot(&host), &original, &context);
                    cases += 1;
                }
            }
        }
    }
    println!("{cases} crashes of a use");
}

#[test]
fn a_crash_at_any_change_that_ends_uses_is_finished_by_another_attempt() {
    let clock = TestClock::default();
    let (host, pristine) = start(&clock);
    let original = snapshot(&host);
    use_for_all(&host, "fp_hybla").unwrap();
    let in_use = host;
    let mut cases = 0;
    for by_revert in [true, false] {
        let end = |host: &dyn Host| match by_revert {
            true => revert_selection(host).map(drop),
            false => unassign_controller(host, "fp_hybla").map(drop),
        };
        let host = copy(&in_use, &clock);
        let counter = Faulty::counting(&host);
        end(&counter).unwrap();
        for at in 0..counter.changes() {
            for crash in CRASHES {
                for after in AFTER {
                    for then in [Then::Revert, Then::Unload] {
                        let context = format!(
                            "by revert: {by_revert}, change {at}, {crash:?}, {after:?}, then {then:?}"
                        );
                        let clock = TestClock::default();
                        let host = copy(&in_use, &clock);
                        let faulty = Faulty::new(&host, at, crash);
                        let outcome = end(&faulty);
                        assert!(faulty.dead(), "{context}: it ended with {outcome:?}");
                        strike(&host, &clock, &pristine, after);
                        status_is_true(&host, &context);
                        finish(&host, then, &context);
                        // What was unloaded while a revert was under way leaves that its journal, of nothing.
                        revert_selection(&host).unwrap_or_else(|e| panic!("{context}: {e}"));
                        assert_same(&snapshot(&host), &original, &context);
                        cases += 1;
                    }
                }
            }
        }
    }
    println!("{cases} crashes of an end");
}

#[test]
fn failed_step_rolls_back_those_before_it() {
    let clock = TestClock::default();
    let (start, _) = start(&clock);
    let original = snapshot(&start);
    let host = copy(&start, &clock);
    let counter = Faulty::counting(&host);
    use_for_all(&counter, "fp_hybla").unwrap();
    let faults = [
        Fault::Once(ErrorKind::PermissionDenied),
        Fault::Once(ErrorKind::ReadOnlyFilesystem),
        Fault::Always(ErrorKind::StorageFull),
    ];
    for at in 0..counter.changes() {
        for fault in faults {
            let context = format!("change {at}, {fault:?}");
            let host = copy(&start, &clock);
            let faulty = Faulty::new(&host, at, fault);
            use_for_all(&faulty, "fp_hybla").expect_err(&context);
            let left = snapshot(&host).contains_key("/var/lib/fullpipe/host.journal");
            status_is_true(&host, &context);
            assert!(left || used_for(&host, "fp_hybla").is_empty(), "{context}: no journal and not undone");
            revert_selection(&host).unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_same(&snapshot(&host), &original, &context);
        }
    }
    // The last step alone fails, beside a use that was there before.
    use_on_route(&start, "mine").unwrap();
    let before = snapshot(&start);
    let attach = || Err(io::Error::other("the kernel refuses the program"));
    let request = assign::Request {
        controller: "fp_hybla".into(),
        default: true,
        cgroup: Some(Cgroup { path: GROUP.into(), pin: pin("fp_hybla"), attach: &attach }),
        ..assign::Request::default()
    };
    let error = assign::assign(&start, &store(), &request).unwrap_err();
    assert!(error.text().contains("the kernel refuses the program"), "{error}");
    let relevant = |mut all: BTreeMap<String, String>| {
        all.remove("/var/lib/fullpipe/host.journal");
        all
    };
    assert_same(&relevant(snapshot(&start)), &relevant(before), "the use that was there before stays");
    assert_eq!(used_for(&start, "mine").len(), 1);
    status_is_true(&start, "");
    assert!(status(&start, &store()).unwrap().consistent);
    revert_selection(&start).unwrap();
    assert_same(&snapshot(&start), &original, "");
}

#[test]
fn a_route_has_its_own_controller_again_locked_as_it_was() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    let route = |host: &Fake| {
        let found = kernel(host).routes.into_iter().find(|r| r.prefix == ROUTE).unwrap();
        (found.controller, found.locked)
    };
    use_on_route(&host, "fp_hybla").unwrap();
    use_on_route(&host, "mine").unwrap();
    assert_eq!(route(&host), ("mine".into(), false));
    unassign_controller(&host, "fp_hybla").unwrap();
    assert_eq!(route(&host), ("mine".into(), false), "the other goes on");
    unassign_controller(&host, "mine").unwrap();
    assert_eq!(route(&host), ("reno".into(), true));
    // Not what the journal says when someone chose another since.
    use_on_route(&host, "mine").unwrap();
    let mut state = kernel(&host);
    state.routes[1].controller = "cubic".into();
    put_kernel(&host, &state);
    let error = revert_selection(&host).unwrap_err();
    assert!(error.text().contains("congctl cubic"), "{error}");
    let unassigned = unassign_controller(&host, "mine").unwrap();
    let kept = Outcome::Kept("congctl cubic".into());
    assert_eq!(unassigned.reverted.steps[0].outcome, kept);
    assert_eq!(route(&host).0, "cubic");
}

/// Unassigns a controller in a network namespace of others.
fn unassign_elsewhere(host: &dyn Host, budget: &mut RouteBudget) {
    assign::unassign(host, &store(), "mine", Part::Whole, Some(budget)).unwrap();
}

#[test]
fn routes_of_other_namespaces_are_counted_if_their_time_is_over_or_they_are_refused() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    let mut state = kernel(&host);
    state.routes.iter_mut().for_each(|route| route.controller = "mine".into());
    put_kernel(&host, &state);
    let within = |host: &dyn Host, time: Duration| {
        let mut budget = RouteBudget::new(time);
        unassign_elsewhere(host, &mut budget);
        budget
    };
    let none = within(&host, Duration::ZERO);
    assert!(none.unread() == 1 && none.routes_left() == 0 && kernel(&host) == state, "{none:?}");
    let refusing = Faulty::refusing_routes(&host);
    let refused = within(&refusing, Duration::from_secs(1));
    assert_eq!((refused.unread(), refused.routes_left()), (0, state.routes.len()), "{refused:?}");
    let all = within(&host, Duration::from_secs(1));
    assert_eq!((all.unread(), all.routes_left(), all.note("mine")), (0, 0, None), "{all:?}");
    assert!(kernel(&host).routes.iter().all(|route| route.controller.is_empty()));
}

#[test]
fn routes_left_when_the_time_for_other_namespaces_expires_midway_are_counted() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    let mut state = kernel(&host);
    let other = CongestionRoute { prefix: TOWARDS.into(), ..state.routes[1].clone() };
    state.routes.push(other);
    state.routes.iter_mut().for_each(|route| route.controller = "mine".into());
    put_kernel(&host, &state);
    let controllers =
        |host: &Fake| kernel(host).routes.into_iter().map(|route| route.controller).collect::<Vec<_>>();
    // The second of three routes takes what is left of the time, which all namespaces share.
    let mut budget = RouteBudget::new(Duration::from_millis(1500));
    let slow = Faulty::slow_routes(&host, &clock, Duration::from_secs(1));
    unassign_elsewhere(&slow, &mut budget);
    assert_eq!(controllers(&host), ["", "", "mine"]);
    assert_eq!((budget.unread(), budget.routes_left()), (0, 1), "{budget:?}");
    unassign_elsewhere(&slow, &mut budget);
    assert_eq!(controllers(&host), ["", "", "mine"]);
    assert_eq!((budget.unread(), budget.routes_left()), (1, 1), "{budget:?}");
    let note = budget.note("mine").unwrap();
    assert!(note.contains("may still name mine (1 found, 1 namespaces not searched)"), "{note}");
    // A budget of its own clears the rest.
    let mut budget = RouteBudget::default();
    unassign_elsewhere(&slow, &mut budget);
    assert_eq!((controllers(&host), budget.note("mine")), (vec![String::new(); 3], None));
}

#[test]
fn each_name_has_its_own_unit_and_no_other_is_touched() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    let original = snapshot(&host);
    use_at_boot(&host, "fp_hybla").unwrap();
    let first = host.text(&unit_of("fp_hybla")).unwrap();
    assert!(first.contains("cc load hybla --verify"), "{first}");
    use_at_boot(&host, "mine").unwrap();
    let second = host.text(&unit_of("mine")).unwrap();
    assert!(second.contains("cc load bbr3 --name mine --verify"), "{second}");
    assert_eq!(host.text(&unit_of("fp_hybla")).unwrap(), first);
    assert!(unassign_controller(&host, "mine").unwrap().was_loaded_at_boot);
    assert!(!host.exists(&unit_of("mine")));
    assert_eq!(host.text(&unit_of("fp_hybla")).unwrap(), first);
    assert!(status(&host, &store()).unwrap().consistent);
    // Only until the next boot: the unit stays.
    use_as_default(&host, "fp_hybla").unwrap();
    let unassigned = assign::unassign(&host, &store(), "fp_hybla", Part::Live, None).unwrap();
    assert!(!unassigned.was_loaded_at_boot && !unassigned.is_nothing(), "{unassigned:?}");
    assert_eq!((host.text(&unit_of("fp_hybla")), host.sysctl(DEFAULT)), (Some(first), Some("cubic".into())));
    status_is_true(&host, "until the next boot");
    revert_selection(&host).unwrap();
    assert_same(&snapshot(&host), &original, "");
    // A masked unit is replaced, and masked again afterwards; what the link leads to is not touched.
    host.files().put_link(&unit_of("mine"), "/dev/null");
    put(&host, "/dev/null", "");
    let masked = snapshot(&host);
    use_at_boot(&host, "mine").unwrap();
    use_at_boot(&host, "mine").unwrap();
    assert_eq!(host.text(&unit_of("mine")).unwrap(), second);
    assert_eq!(host.text("/dev/null").unwrap(), "");
    revert_selection(&host).unwrap();
    assert_same(&snapshot(&host), &masked, "masked again");
    host.files().remove(&unit_of("mine")).unwrap();
    let original = snapshot(&host);
    // What another build wrote without a journal is ended with the controller.
    put(
        &host,
        &unit_of("mine"),
        "[Service]\nExecStart=/usr/bin/fullpipe cc load bbr3 --name mine --default\n",
    );
    assert!(unassign_controller(&host, "mine").unwrap().was_loaded_at_boot);
    assert_same(&snapshot(&host), &original, "");
}

#[test]
fn destination_and_apply_are_rolled_back_in_any_order() {
    let clock = TestClock::default();
    let (start, _) = start(&clock);
    let original = snapshot(&start);
    // One that is the default at every boot would win over the apply's files.
    let host = copy(&start, &clock);
    use_for_all(&host, "fp_hybla").unwrap();
    let error = apply::apply(&host, &store(), &Request::new("reno"), &apply::Options::default()).unwrap_err();
    assert!(error.text().contains("fullpipe cc unload"), "{error}");
    revert_selection(&host).unwrap();
    assert_same(&snapshot(&host), &original, "refused");
    // In use, then another in force over it.
    let use_now = |host: &Fake| {
        use_as_default(host, "fp_hybla").unwrap();
        use_on_route(host, "fp_hybla").unwrap();
        use_at_boot(host, "fp_hybla").unwrap();
    };
    for unload_first in [true, false] {
        let host = copy(&start, &clock);
        use_now(&host);
        put_in_force(&host, "reno");
        assert_eq!(host.sysctl(DEFAULT).as_deref(), Some("reno"));
        status_is_true(&host, "both");
        assert!(status(&host, &store()).unwrap().consistent);
        if unload_first {
            assert_eq!(unassign_controller(&host, "fp_hybla").unwrap().default, "reno");
            assert_eq!(status(&host, &store()).unwrap().controller.as_deref(), Some("reno"));
        }
        revert_selection(&host).unwrap();
        assert_same(&snapshot(&host), &original, &format!("unloaded first: {unload_first}"));
    }
    // In force, then another in use over it.
    let host = copy(&start, &clock);
    put_in_force(&host, "reno");
    let in_force = snapshot(&host);
    use_now(&host);
    assert!(status(&host, &store()).unwrap().consistent);
    unassign_controller(&host, "fp_hybla").unwrap();
    assert_eq!(host.sysctl(DEFAULT).as_deref(), Some("reno"));
    let journal = "/var/lib/fullpipe/host.journal".to_owned();
    let without = |mut all: BTreeMap<String, String>| {
        all.remove(&journal);
        all
    };
    assert_same(&without(snapshot(&host)), &without(in_force), "the apply is as before");
    assert!(status(&host, &store()).unwrap().consistent);
    revert_selection(&host).unwrap();
    assert_same(&snapshot(&host), &original, "");
    // What an apply has in force is not unloaded beneath it.
    put_in_force(&host, "fp_hybla");
    let error = unassign_controller(&host, "fp_hybla").unwrap_err();
    assert!(matches!(&error, Error::Check(text) if text.contains("fullpipe revert")), "{error}");
    revert_selection(&host).unwrap();
    assert_same(&snapshot(&host), &original, "");
}

#[test]
fn defaults_go_back_one_after_the_other_in_any_order() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    let original = snapshot(&host);
    for last in ["fp_hybla", "mine"] {
        use_as_default(&host, "fp_hybla").unwrap();
        use_as_default(&host, "mine").unwrap();
        for controller in if last == "mine" { ["fp_hybla", "mine"] } else { ["mine", "fp_hybla"] } {
            unassign_controller(&host, controller).unwrap();
            assert_ne!(host.sysctl(DEFAULT).as_deref(), Some(controller));
            status_is_true(&host, last);
        }
        assert_same(&snapshot(&host), &original, last);
    }
}

#[test]
fn a_restart_ends_the_uses_in_the_running_kernel_and_the_unit_begins_them_again() {
    let clock = TestClock::default();
    let (host, pristine) = start(&clock);
    let original = snapshot(&host);
    use_for_all(&host, "fp_hybla").unwrap();
    clock.restart();
    restart(&host, &pristine);
    assert_eq!(used_for(&host, "fp_hybla"), [unit_of("fp_hybla")]);
    status_is_true(&host, "restarted");
    // What the unit runs.
    load(&host);
    use_as_default(&host, "fp_hybla").unwrap();
    let seen = status(&host, &store()).unwrap();
    assert!(seen.consistent && seen.boot.starts_with("fp_hybla "), "{seen:?}");
    revert_selection(&host).unwrap();
    assert_same(&snapshot(&host), &original, "");
    // One that is for nothing at boot leaves nothing to say, and goes with the next that looks.
    for unload in [true, false] {
        use_as_default(&host, "mine").unwrap();
        clock.restart();
        restart(&host, &pristine);
        load(&host);
        match unload {
            true => assert!(unassign_controller(&host, "mine").unwrap().is_nothing()),
            false => assign::assign(&host, &store(), &assign::Request::default()).unwrap(),
        }
        assert_same(&snapshot(&host), &original, &format!("unloaded: {unload}"));
    }
    use_as_default(&host, "mine").unwrap();
    clock.restart();
    restart(&host, &pristine);
    let seen = status(&host, &store()).unwrap();
    assert!(seen.consistent && seen.phase.is_none(), "{seen:?}");
    load(&host);
    revert_selection(&host).unwrap();
    assert_same(&snapshot(&host), &original, "");
}

#[test]
fn unloaded_default_is_replaced_by_a_usual_one() {
    let clock = TestClock::default();
    let (start, _) = start(&clock);
    let original = snapshot(&start);
    use_as_default(&start, "mine").unwrap();
    use_on_route(&start, "mine").unwrap();
    use_as_default(&start, "fp_hybla").unwrap();
    use_on_route(&start, "fp_hybla").unwrap();
    // Someone unregistered the one before by other means.
    unregister(&start, "mine");
    let instead = |all: &revert::Reverted| {
        let found = all.steps.iter().filter(|step| matches!(step.outcome, Outcome::Replaced { .. }));
        found.map(|step| step.title.clone()).collect::<Vec<_>>()
    };
    let route = format!("controller of the route to {ROUTE}");

    let host = copy(&start, &clock);
    let unassigned = unassign_controller(&host, "fp_hybla").unwrap();
    assert!(["reno", "cubic"].contains(&unassigned.default.as_str()), "{unassigned:?}");
    assert_eq!(instead(&unassigned.reverted), [route.as_str(), DEFAULT]);
    assert!(
        unassigned.notes()[1].starts_with("net.ipv4.tcp_congestion_control is now cubic"),
        "{unassigned:?}"
    );

    let reverted = revert_selection(&start).unwrap().unwrap();
    assert_eq!(instead(&reverted), [route.as_str(), DEFAULT]);
    register(&start, "mine");
    assert_same(&snapshot(&start), &original, "reverted");
}

/// Everything that can be done next with three controllers, until six things are done; then all is
/// reverted.
fn resume_and_revert(
    host: &Fake,
    clock: &TestClock,
    original: &BTreeMap<String, String>,
    done: &[String],
) -> usize {
    let context = done.join(", ");
    let default = host.sysctl(DEFAULT).unwrap();
    assert!(is_registered(host, &default), "{context}: {default} is the default");
    if done.len() == 6 {
        let status = status(host, &store()).unwrap();
        assert!(status.consistent, "{context}: {status:?}");
        let reverted = revert_selection(host).unwrap_or_else(|e| panic!("{context}: {e}"));
        let notes = reverted.map(|all| all.notes()).unwrap_or_default();
        assert!(notes.is_empty(), "{context}: each leads back to one that is there: {notes:?}");
        ["fp_hybla", "mine", "other"].iter().for_each(|one| unregister(host, one));
        assert_same(&snapshot(host), original, &context);
        return 1;
    }
    let mut ways = 0;
    for controller in ["fp_hybla", "mine", "other"] {
        // The names differ in nothing: one is the first.
        if default != controller && (!done.is_empty() || controller == "fp_hybla") {
            let host = copy(host, clock);
            register(&host, controller);
            use_as_default(&host, controller).unwrap_or_else(|e| panic!("{context}, load {controller}: {e}"));
            ways += resume_and_revert(
                &host,
                clock,
                original,
                &[
                    done,
                    &[format!(
                        "load \
                {controller}"
                    )],
                ]
                .concat(),
            );
        }
        if is_registered(host, controller) {
            let host = copy(host, clock);
            unassign_controller(&host, controller)
                .unwrap_or_else(|e| panic!("{context}, unload {controller}: {e}"));
            assert_ne!(host.sysctl(DEFAULT).as_deref(), Some(controller), "{context}");
            unregister(&host, controller);
            ways += resume_and_revert(
                &host,
                clock,
                original,
                &[
                    done,
                    &[format!(
                        "unload \
                {controller}"
                    )],
                ]
                .concat(),
            );
        }
    }
    ways
}

#[test]
fn three_defaults_are_set_and_unset_in_any_order_and_all_are_rolled_back() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    ["fp_hybla", "mine"].iter().for_each(|one| unregister(&host, one));
    let ways = resume_and_revert(&host, &clock, &snapshot(&host), &[]);
    println!("{ways} ways");
    assert!(ways > 300, "only {ways} ways");
}

#[test]
fn loading_and_unloading_do_not_count_as_changes_of_an_apply() {
    let clock = TestClock::default();
    let (start, _) = start(&clock);
    ["fp_hybla", "mine"].iter().for_each(|one| unregister(&start, one));
    // One that is there but not for all: an apply allows it.
    put(&start, AVAILABLE, "reno cubic vegas\n");
    let original = snapshot(&start);
    for loaded_first in [true, false] {
        for unloaded in [true, false] {
            let context = format!("loaded first: {loaded_first}, unloaded: {unloaded}");
            let whole = |host: &Fake| {
                let status = status(host, &store()).unwrap();
                assert!(status.consistent, "{context}: {status:?}");
            };
            let host = copy(&start, &clock);
            if loaded_first {
                register(&host, "mine");
            }
            put_in_force(&host, "vegas");
            register(&host, "mine");
            whole(&host);
            if unloaded {
                unregister(&host, "mine");
                whole(&host);
            }
            revert_selection(&host).unwrap_or_else(|e| panic!("{context}: {e}"));
            let mine = if unloaded { None } else { Some("mine") };
            assert_eq!(allowed(&host), ["cubic"].into_iter().chain(mine).chain(["reno"]).collect::<Vec<_>>());
            unregister(&host, "mine");
            assert_same(&snapshot(&host), &original, &context);
        }
    }
    // A name removed from the list is reported, and restored with force; an added one stays.
    put_in_force(&start, "vegas");
    register(&start, "mine");
    put(&start, ALLOWED, "cubic vegas mine\n");
    let error = revert_selection(&start).unwrap_err();
    assert!(error.text().contains("now:          cubic vegas mine"), "{error}");
    let force = revert::Options { force: true, ..Default::default() };
    revert::revert(&start, &store(), &force).unwrap();
    assert_eq!(allowed(&start), ["cubic", "mine", "reno"]);
}

#[test]
fn edited_unit_reported_as_kept_is_kept() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    use_at_boot(&host, "mine").unwrap();
    let unit = unit_of("mine");
    let edited = host.content(&unit).unwrap() + "# mine\n";
    put(&host, &unit, &edited);
    let unassigned = unassign_controller(&host, "mine").unwrap();
    assert_eq!(host.content(&unit), Some(edited));
    let said = format!("{unit} was edited since: remove it manually");
    assert!(unassigned.notes().contains(&said) && !unassigned.was_loaded_at_boot, "{unassigned:?}");
}

#[test]
fn a_route_that_refuses_does_not_keep_a_controller_loaded() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    // Once where the journal knows of it, once where someone chose it.
    for journaled in [true, false] {
        let mut state = kernel(&host);
        state.routes[1].controller = if journaled { "reno" } else { "mine" }.into();
        put_kernel(&host, &state);
        if journaled {
            use_on_route(&host, "mine").unwrap();
        }
        let refusing = Faulty::refusing_routes(&host);
        let unassigned = unassign_controller(&refusing, "mine").unwrap();
        let said = unassigned.notes().join("\n");
        assert!(said.contains(ROUTE) && said.contains("unsupported"), "{said}");
        assert!(revert_selection(&host).unwrap().is_none(), "nothing is left to be done");
    }
}

#[test]
fn impossible_requests_are_refused_before_anything_changes() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    let original = snapshot(&host);
    let refused = |request: assign::Request<'_>, says: &str| {
        let error = assign::assign(&host, &store(), &request).unwrap_err();
        assert!(error.text().contains(says), "{error}");
        assert_same(&snapshot(&host), &original, says);
    };
    let route = |to: &str| assign::Request {
        controller: "mine".into(),
        default: true,
        route: Some(to.into()),
        ..assign::Request::default()
    };
    refused(route("203.0.113.0/24"), "no route to");
    refused(route("nonsense"), "--route");
    let without = kernel(&host);
    put_kernel(&host, &ModelKernel { advertised: vec![ROUTE.into()], ..without.clone() });
    let error = use_on_route(&host, "mine").unwrap_err();
    assert!(matches!(&error, Error::Usage(says) if says.contains("use --default")), "{error}");
    put_kernel(&host, &without);
    refused(
        assign::Request { controller: "absent".into(), default: true, ..assign::Request::default() },
        "absent",
    );
    let odd = ControllerUnit { program: "/opt/a\"b/fullpipe", ..unit("mine", true) };
    let at_boot = |boot| assign::Request {
        controller: "mine".into(),
        default: true,
        boot: Some(boot),
        ..assign::Request::default()
    };
    refused(at_boot(odd), "quotes");
    // Someone's change on trial is not built upon.
    let options = apply::Options {
        trial: Some(apply::OnTrial { within: std::time::Duration::from_secs(60), guard: &|| Ok(()) }),
        ..Default::default()
    };
    apply::apply(&host, &store(), &Request::new("reno"), &options).unwrap();
    let error = use_as_default(&host, "mine").unwrap_err();
    assert!(error.text().contains("on trial"), "{error}");
    revert_selection(&host).unwrap();
    assert_same(&snapshot(&host), &original, "");
    remove_directory(&host, "/run/systemd/system");
    let original = snapshot(&host);
    let error = assign::assign(&host, &store(), &at_boot(unit("mine", true))).unwrap_err();
    assert!(error.text().contains("does not run systemd") && error.text().contains("--name mine"), "{error}");
    assert_same(&snapshot(&host), &original, "");
}

fn remove_directory(host: &Fake, path: &str) {
    host.files().remove_directory(path).unwrap();
}

#[test]
fn a_revert_after_an_interrupted_load_refuses_a_default_that_was_changed_since() {
    let clock = TestClock::default();
    let (original, _) = start(&clock);
    put_in_force(&original, "fp_hybla");
    let counter = copy(&original, &clock);
    let counter = Faulty::counting(&counter);
    use_as_default(&counter, "mine").unwrap();
    for at in 0..counter.changes() {
        let host = copy(&original, &clock);
        let _ = use_as_default(&Faulty::new(&host, at, Fault::CrashBefore), "mine");
        host.files().release();
        host.set_sysctl(DEFAULT, "reno").unwrap();
        let error = revert_selection(&host).expect_err(&format!("change {at}"));
        assert!(error.text().contains(DEFAULT), "change {at}: {error}");
        assert_eq!(host.sysctl(DEFAULT).unwrap(), "reno", "change {at}");
    }
}

#[test]
fn a_split_of_a_container_does_not_keep_older_changes_from_being_undone() {
    let clock = TestClock::default();
    let (host, _) = start(&clock);
    let before = host.sysctl(DEFAULT);
    put_in_force(&host, "fp_hybla");
    for directory in ["/proc/self", "/proc/self/ns"] {
        let _ = host.files().make_directory(directory, 0o755);
    }
    host.files().link("/proc/self/ns/pid", "pid:[1]", 0, 0).unwrap();
    let owner = Process { id: 77, started: 5, namespace: Some(2) };
    split::begin(&host, &store(), owner, "/sys/fs/cgroup", "bbr 50%, cubic 50%").unwrap();
    let error = revert_selection(&host).unwrap_err();
    assert!(error.text().contains("another PID namespace"), "{error}");
    assert_eq!(host.sysctl(DEFAULT), before);
    // Its entry stays until `split stop`.
    assert_eq!(status(&host, &store()).unwrap().uses[0].changes.len(), 1);
    split::forget_ended(&host, &store(), &|| Some(Vec::new())).unwrap();
    assert!(revert_selection(&host).is_ok());
}

/// The entry of a split is void once its process has exited, and the steps after it move up.
#[test]
fn a_failed_load_is_rolled_back_although_a_split_ends_meanwhile() {
    const SPLIT: &str = "/proc/77/stat";
    let clock = TestClock::default();
    let (original, _) = start(&clock);
    put(&original, SPLIT, &format!("77 (fullpipe) S {} 5 4 5\n", vec!["1"; 18].join(" ")));
    let owner = Process { id: 77, started: 5, namespace: None };
    split::begin(&original, &store(), owner, "/sys/fs/cgroup", "bbr 50%, cubic 50%").unwrap();
    let counter = copy(&original, &clock);
    let counter = Faulty::counting(&counter);
    use_as_default(&counter, "mine").unwrap();
    let mut failed = 0;
    for at in 0..counter.changes() {
        let host = copy(&original, &clock);
        let before = host.sysctl(DEFAULT);
        let meanwhile = || {
            host.files().remove(SPLIT).unwrap();
            unregister(&host, "mine");
        };
        if use_as_default(&Faulty::meanwhile(&host, at, &meanwhile), "mine").is_err() {
            failed += 1;
            assert_eq!(host.sysctl(DEFAULT), before, "change {at}");
            assert!(status(&host, &store()).unwrap().uses.is_empty(), "change {at}");
        }
    }
    assert!(failed > 1, "{failed} loads failed");
}

#[test]
fn a_plan_notes_routes_that_cannot_be_read() {
    let (host, _) = Manifest::read("cachyos-bbr3-module").host();
    let noted = |host: &dyn Host| {
        let plan = fullpipe_host::plan::make(host, &Request::new("bbr"), "/usr/bin/fullpipe").unwrap();
        plan.notes.into_iter().filter(|note| note.contains("the feature ECN")).collect::<Vec<_>>()
    };
    assert_eq!(noted(&host), [""; 0]);
    let why = "it is unknown whether routes have the feature ECN: they cannot be read: EBUSY";
    assert_eq!(noted(&Faulty::hiding_routes(&host)), [why]);
}
