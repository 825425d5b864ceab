//! The running kernel: controllers, routes and queueing disciplines in a private network namespace,
//! where nothing
//! outside can be changed.

use fullpipe_host::checks::{self, Question, Verdict};
use fullpipe_host::destinations::{self};
use fullpipe_host::host::{Host, Machine, View};
use fullpipe_host::journal::{Phase, Store};
use fullpipe_host::net::{self, QdiscNode, QdiscOperation, ROOT};
use fullpipe_host::plan::{self, QdiscChoice, Request, Tree};
use fullpipe_host::trial::{self, Cause, Decision, TrialOutcome};
use fullpipe_host::{Error, apply, assign, revert, status};
use fullpipe_testing::own_test;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

const INSIDE: &str = "FULLPIPE_HOST_TEST_INSIDE";

/// Runs the named test once more in namespaces of its own, with a private /run. Gives whether this
/// is the inner run.
fn enter_namespace(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let devices = "mount -t tmpfs none /run && ip link set lo up \
        && ip link add v0 numtxqueues 4 type veth peer name v1 && ip link set v0 up && ip link set v1 up \
        && ip address add 192.0.2.1/24 dev v0 \
        && ip tuntap add dev t0 mode tap && ip link set t0 up \
        && ip tuntap add dev t4 mode tap multi_queue && ip link set t4 up";
    let unshared = |script: &str, program: &str| {
        Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "--mount",
                "--net",
                "sh",
                "-c",
                script,
                "sh",
                program,
                "--exact",
                name,
                "--nocapture",
            ])
            .env(INSIDE, "1")
            .output()
    };
    let reason = match unshared(devices, "") {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(e) => Some(format!("unshare: {e}")),
    };
    if let Some(reason) = reason {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "no private namespace: {reason}");
        println!("SKIPPED: no private namespace: {reason}");
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let output = unshared(&format!("{devices} && \"$@\""), program.to_str().unwrap()).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    assert!(
        output.status.success(),
        "inside the namespace:\n{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("1 passed"), "the inner test did not run:\n{text}");
    false
}

fn store() -> Store {
    Store::at("/run/state")
}

fn live(controller: &str) -> Request {
    Request { live_only: true, ..Request::new(controller) }
}

fn put_in_force(request: &Request) -> Result<apply::Applied, Error> {
    apply::apply(&Machine::new(), &store(), request, &apply::Options::default())
}

fn revert_selection() -> revert::Reverted {
    revert::revert(&Machine::new(), &store(), &revert::Options::default()).unwrap().unwrap()
}

/// Every sysctl of the namespace, every queueing discipline, every route with a controller.
struct Everything {
    sysctls: BTreeMap<String, String>,
    qdiscs: Vec<QdiscNode>,
    routes: Vec<net::CongestionRoute>,
}

#[track_caller]
fn assert_same(now: &Everything, before: &Everything, context: &str) {
    for (name, value) in &now.sysctls {
        assert_eq!(Some(value), before.sysctls.get(name), "{context}: {name}");
    }
    for (a, b) in now.qdiscs.iter().zip(&before.qdiscs) {
        assert_eq!(a, b, "{context}");
    }
    assert_eq!(now.qdiscs.len(), before.qdiscs.len(), "{context}");
    assert_eq!(now.routes, before.routes, "{context}");
}

fn everything() -> Everything {
    let host = Machine::new();
    let mut sysctls = BTreeMap::new();
    for directory in ["/proc/sys/net/ipv4", "/proc/sys/net/core"] {
        for name in host.list(directory).unwrap() {
            // What is registered belongs to the whole machine, and others may load an eBPF controller
            // meanwhile.
            let own = name != "tcp_available_congestion_control" && name != "tcp_allowed_congestion_control";
            if let Some(value) = host.text(&format!("{directory}/{name}")).filter(|_| own) {
                sysctls.insert(name, value);
            }
        }
    }
    let mut qdiscs = host.qdiscs().unwrap();
    for node in &mut qdiscs {
        (node.drops, node.flows_plimit) = (0, None);
        // Of `struct tc_htb_glob`, in an attribute of its own, the fifth number counts the packets that
        // went by no
        // class: the router solicitations that the kernel sends now and then.
        if node.kind == "htb" && node.options.starts_with("18000200") {
            node.options.replace_range(40..48, "00000000");
        }
    }
    qdiscs.sort_by_key(|n| (n.device.clone(), n.parent));
    Everything { sysctls, qdiscs, routes: host.congestion_routes().unwrap() }
}

fn sysctl_words(name: &str) -> Vec<String> {
    let text = Machine::new().sysctl(name).unwrap();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The controller of a new connection, as sock_diag tells it, on both ends.
fn controllers_of_a_new_connection() -> Vec<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    let port = client.local_addr().unwrap().port();
    let ends =
        net::sockets().unwrap().into_iter().filter(|s| s.local.port() == port || s.peer.port() == port);
    ends.map(|s| s.controller).collect()
}

#[test]
fn each_controller_is_enabled_observed_in_use_and_rolled_back() {
    if !enter_namespace(own_test!(each_controller_is_enabled_observed_in_use_and_rolled_back)) {
        return;
    }
    let (available, allowed) = (
        sysctl_words("net.ipv4.tcp_available_congestion_control"),
        sysctl_words("net.ipv4.tcp_allowed_congestion_control"),
    );
    let mut used = 0;
    let host = Machine::new();
    for controller in ["bbr", "reno", "cubic", "hybla", "fp_hybla", "fp_bbr1", "fp_bbr3"] {
        // From another default, so that there is something to change.
        let start = allowed.iter().find(|c| *c != controller).expect("two allowed controllers");
        host.set_sysctl("net.ipv4.tcp_congestion_control", start).unwrap();
        let before = everything();
        match put_in_force(&live(controller)) {
            Ok(applied) => {
                let used_one = applied.plan.controller.as_str();
                assert!(used_one == controller || used_one == format!("fp_{controller}"), "{used_one}");
                used += 1;
                assert_eq!(applied.observed.as_deref(), Some(used_one));
                assert_eq!(controllers_of_a_new_connection(), [used_one, used_one]);
                let now = status::status(&Machine::new(), &store()).unwrap();
                assert_eq!((now.phase, now.consistent), (Some(Phase::Applied), true), "{now:?}");
                println!("{controller}: in force, a connection uses {used_one}");
                revert_selection();
                assert_same(&everything(), &before, controller);
                let back = before.sysctls["tcp_congestion_control"].as_str();
                assert_eq!(controllers_of_a_new_connection(), [back, back]);
            }
            Err(error) => {
                let text = error.text();
                let registered = available.iter().any(|c| c == controller);
                if registered {
                    assert!(
                        !allowed.iter().any(|c| c == controller) && text.contains("is restricted"),
                        "{text}"
                    );
                } else {
                    let twin = if controller == "hybla" { "fp_hybla" } else { controller };
                    assert!(text.contains(&format!("fullpipe cc load {twin}")), "{text}");
                }
                assert!(matches!(error, Error::Impossible(_)));
                println!("{controller}: refused, {}", text.lines().next().unwrap());
                assert_same(&everything(), &before, controller);
            }
        }
    }
    assert!(used >= 2, "too little could be tried: available {available:?}, allowed {allowed:?}");
}

#[test]
fn default_trees_get_the_discipline_on_every_queue_and_are_restored_as_defaults() {
    if !enter_namespace(own_test!(
        default_trees_get_the_discipline_on_every_queue_and_are_restored_as_defaults
    )) {
        return;
    }
    let host = Machine::new();
    let before = everything();
    let tree = |device: &str| Tree::of_device(&host.qdiscs().unwrap(), device);
    let (single, multi) = (tree("t0"), tree("t4"));
    assert!(single.is_default() && multi.is_default(), "{single:?} {multi:?}");
    // Every kernel has bfifo; fq would need a module.
    let request = Request { qdisc: QdiscChoice::Kind("bfifo".into()), ..live("reno") };
    let applied = put_in_force(&request).unwrap();
    assert!(applied.made >= 2, "{applied:?}");
    assert_eq!(tree("t0").plain_kind(), Some("bfifo"));
    let now = tree("t4");
    assert_eq!(now.plain_kind(), Some("bfifo"));
    assert_eq!(now.root().unwrap().kind, multi.root().unwrap().kind, "a device with queues keeps them");
    assert_eq!(now.leaves().len(), multi.leaves().len());
    assert_eq!(tree("v0").plain_kind(), Some("noqueue"), "a device without a queue is left alone");
    println!("t0: {}; t4: {}", tree("t0").describe(), now.describe());
    revert_selection();
    assert_same(&everything(), &before, "");
}

#[test]
fn chosen_discipline_is_kept_unless_requested_and_is_restored_with_its_options() {
    if !enter_namespace(own_test!(
        chosen_discipline_is_kept_unless_requested_and_is_restored_with_its_options
    )) {
        return;
    }
    let tc = |arguments: &str| {
        let output = Command::new("tc").args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    };
    tc("qdisc replace dev t0 root handle 77: pfifo limit 123");
    tc("qdisc replace dev v0 root handle 5: htb default 1");
    tc("qdisc add dev v1 clsact");
    let before = everything();
    let request = Request { qdisc: QdiscChoice::Kind("bfifo".into()), ..live("reno") };
    put_in_force(&request).unwrap();
    let kept = |device: &str| Tree::of_device(&everything().qdiscs, device);
    assert_eq!(kept("t0"), Tree::of_device(&before.qdiscs, "t0"), "chosen by hand");
    assert_eq!(kept("v0"), Tree::of_device(&before.qdiscs, "v0"), "a shaper");
    revert_selection();
    assert_same(&everything(), &before, "");

    let insist = Request { replace_on: vec!["t0".into()], ..request.clone() };
    put_in_force(&insist).unwrap();
    assert_eq!(kept("t0").plain_kind(), Some("bfifo"));
    revert_selection();
    assert_same(&everything(), &before, "handle, kind and `limit 123` are back");

    // A tree of four queues, put there by hand over the kernel's default leaves.
    tc("qdisc del dev v0 root");
    tc("qdisc replace dev v0 root handle 1: mq");
    tc("qdisc replace dev v0 parent 1:2 handle 12: pfifo limit 55");
    tc("qdisc replace dev v0 parent 1:1 handle 11: pfifo limit 44");
    tc("qdisc replace dev v0 parent 1:3 handle 13: pfifo limit 44");
    tc("qdisc replace dev v0 parent 1:4 handle 14: pfifo limit 44");
    let queues = everything();
    put_in_force(&Request { replace_on: vec!["v0".into()], ..request.clone() }).unwrap();
    assert_eq!((kept("v0").plain_kind(), kept("v0").leaves().len()), (Some("bfifo"), 4));
    revert_selection();
    assert_same(&everything(), &queues, "each queue has its own options back");
    tc("qdisc replace dev v0 root handle 2: mq");
    let fresh = everything();
    put_in_force(&Request { replace_on: vec!["v0".into()], ..request.clone() }).unwrap();
    revert_selection();
    assert_same(&everything(), &fresh, "default leaves under an mq of someone's are default leaves again");

    tc("qdisc del dev v0 root");
    tc("qdisc replace dev v0 root handle 5: htb default 1");
    let before = everything();
    let shaper = Request { replace_on: vec!["v0".into()], ..request };
    let error = put_in_force(&shaper).unwrap_err();
    assert!(error.text().contains("htb") && error.text().contains("manually"), "{error}");
    assert_same(&everything(), &before, "");
}

#[test]
fn a_canary_chooses_the_controller_for_one_destination_and_gives_way_to_the_whole() {
    if !enter_namespace(own_test!(
        a_canary_chooses_the_controller_for_one_destination_and_gives_way_to_the_whole
    )) {
        return;
    }
    let before = everything();
    let other = if before.sysctls["tcp_congestion_control"] == "reno" { "bbr" } else { "reno" };
    let canary = Request { canary: Some("192.0.2.128/25".into()), ..live(other) };
    put_in_force(&canary).unwrap();
    let routes = net::Rtnetlink::open().unwrap().congestion_routes().unwrap();
    assert_eq!(routes.len(), 1);
    assert_eq!((routes[0].prefix.as_str(), routes[0].controller.as_str()), ("192.0.2.128/25", other));
    assert_eq!(everything().sysctls, before.sysctls, "no other connection is affected");
    put_in_force(&live(other)).unwrap();
    assert!(net::Rtnetlink::open().unwrap().congestion_routes().unwrap().is_empty(), "the trial is over");
    assert_eq!(controllers_of_a_new_connection(), [other, other]);
    revert_selection();
    assert_same(&everything(), &before, "");
    let error = put_in_force(&Request { canary: Some("192.0.2/24".into()), ..live(other) }).unwrap_err();
    assert!(matches!(&error, Error::Usage(t) if t.contains("192.0.2.0/24")), "{error}");
}

/// The finding `ecn` for `bbr`, and the warnings of its plan.
fn ecn_of_bbr() -> (Verdict, String, Vec<String>) {
    let host = Machine::new();
    let report = checks::examine(&host, &Question { controller: "bbr".into(), path: None });
    let finding = report.findings.into_iter().find(|finding| finding.id == "ecn").unwrap();
    let mut notes = plan::make(&host, &live("bbr"), "/usr/bin/fullpipe").unwrap().notes;
    notes.retain(|note| note.starts_with("warning: "));
    (finding.verdict, finding.state, notes)
}

#[test]
fn the_kernel_reports_versions_of_bbr_and_ecn_of_sysctl_and_routes() {
    if !enter_namespace(own_test!(the_kernel_reports_versions_of_bbr_and_ecn_of_sysctl_and_routes)) {
        return;
    }
    let host = Machine::new();
    if !sysctl_words("net.ipv4.tcp_allowed_congestion_control").iter().any(|name| name == "bbr") {
        println!("SKIPPED: this kernel offers no bbr");
        return;
    }
    let version = host.bbr_versions()["bbr"];
    let report = checks::examine(&host, &Question { controller: "bbr".into(), path: None });
    let finding = report.findings.into_iter().find(|finding| finding.id == "bbr-version").unwrap();
    assert!(finding.state.contains(&format!("the kernel's bbr is BBR v{version}")), "{finding:?}");
    host.set_sysctl("net.ipv4.tcp_ecn", "2").unwrap();
    let (verdict, state, warnings) = ecn_of_bbr();
    assert_eq!((verdict, warnings.len()), (Verdict::Ok, 0), "{state}");
    host.set_sysctl("net.ipv4.tcp_ecn", "1").unwrap();
    let (verdict, state, warnings) = ecn_of_bbr();
    assert_eq!((verdict, warnings.len()), (Verdict::Warn, 1), "{state} {warnings:?}");
    host.set_sysctl("net.ipv4.tcp_ecn", "0").unwrap();
    ip("route add 203.0.113.0/24 via 192.0.2.2 dev v0 features ecn");
    ip("route add 198.51.100.0/24 via 192.0.2.2 dev v0 congctl reno features ecn");
    ip("-6 route add 2001:db8:1::/48 dev v0 features ecn");
    ip("route add 10.0.0.0/8 via 192.0.2.2 dev v0 initcwnd 20");
    let (verdict, state, warnings) = ecn_of_bbr();
    assert_eq!((verdict, warnings.len()), (Verdict::Warn, 1), "{state} {warnings:?}");
    assert!(state.contains("routes to 203.0.113.0/24 (bbr), 2001:db8:1::/48 (bbr) with"), "{state}");
}

/// Output of `ip`.
fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_route_in_use_keeps_all_else_and_has_its_own_controller_again() {
    if !enter_namespace(own_test!(a_route_in_use_keeps_all_else_and_has_its_own_controller_again)) {
        return;
    }
    let host = Machine::new();
    let now = host.sysctl("net.ipv4.tcp_congestion_control").unwrap();
    let allowed = sysctl_words("net.ipv4.tcp_allowed_congestion_control");
    let other = allowed.iter().find(|c| **c != now).expect("two allowed controllers");
    ip(&format!(
        "route add 203.0.113.0/24 via 192.0.2.2 dev v0 src 192.0.2.1 metric 7 initcwnd 20 mtu lock 1400 \
         congctl lock {now}"
    ));
    ip("route add default via 192.0.2.2 dev v0");
    ip("-6 address add 2001:db8::1/64 dev v0 nodad");
    ip("-6 route add 2001:db8:1::/48 via 2001:db8::2 dev v0 metric 9 initrwnd 30");
    ip("-6 route add 2001:db8:2::/48 dev v0 expires 4000");
    // The time that a route has left runs on; what devices get by themselves may come late.
    let routes = || {
        let text = ip("route show table all");
        let given = |line: &&str| ["fe80", "multicast", "table local"].iter().all(|own| !line.contains(own));
        let text = text.lines().filter(given).collect::<Vec<_>>().join("\n");
        let parts = text.split(" expires ").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
        parts.collect::<String>()
    };
    let before = routes();
    for prefix in ["203.0.113.0/24", "default", "2001:db8:1::/48", "2001:db8:2::/48"] {
        let request = assign::Request {
            controller: other.clone(),
            route: Some(prefix.into()),
            ..assign::Request::default()
        };
        assign::assign(&host, &store(), &request).unwrap();
        let during = routes();
        assert_eq!(during.matches(&format!("congctl {other}")).count(), 1, "{prefix}: {during}");
        let without = |text: &str| {
            let text =
                text.replace(&format!("congctl {other} "), "").replace(&format!("congctl lock {now} "), "");
            text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(without(&during), without(&before), "{prefix} keeps all else");
        let seen = status::status(&host, &store()).unwrap();
        assert_eq!(seen.uses[0].changes, [format!("controller of the route to {prefix}")]);
        revert_selection();
        assert_eq!(routes(), before, "{prefix}");
    }
    let nowhere = assign::Request {
        controller: other.clone(),
        route: Some("198.51.100.0/24".into()),
        ..assign::Request::default()
    };
    let error = assign::assign(&host, &store(), &nowhere).unwrap_err();
    assert!(error.text().contains("no route to"), "{error}");
    ip("route add 198.51.100.0/24 nexthop via 192.0.2.2 dev v0 nexthop via 192.0.2.3 dev v0");
    let error = assign::assign(&host, &store(), &nowhere).unwrap_err();
    assert!(error.text().contains("several routes or next hops"), "{error}");
}

#[test]
fn routes_of_others_lose_a_controller_within_a_time_and_nothing_else() {
    if !enter_namespace(own_test!(routes_of_others_lose_a_controller_within_a_time_and_nothing_else)) {
        return;
    }
    let host = Machine::new();
    let now = host.sysctl("net.ipv4.tcp_congestion_control").unwrap();
    ip(&format!("route add 203.0.113.0/24 via 192.0.2.2 dev v0 metric 7 initcwnd 20 congctl {now}"));
    // Two routes of IPv6 with the same key: a change could hit the other one.
    ip("-6 address add 2001:db8::1/64 dev v0 nodad");
    ip("-6 address add 2001:db8:5::1/64 dev v1 nodad");
    ip(&format!("-6 route add 2001:db8:1::/48 dev v0 metric 9 congctl {now}"));
    ip("-6 route append 2001:db8:1::/48 dev v1 metric 9");
    let found = |found, may_be_more| net::RoutesLeft { found, may_be_more };
    let left = host.clear_routes_within(&now, Duration::ZERO);
    assert!(left.may_be_more && ip("route").contains("congctl"), "{left:?}");
    assert_eq!(host.clear_routes_within("other", Duration::from_secs(60)), found(0, false));
    assert_eq!(host.clear_routes_within(&now, Duration::from_secs(60)), found(1, false));
    assert!(
        ip("route").contains("203.0.113.0/24 via 192.0.2.2 dev v0 metric 7 initcwnd 20"),
        "{}",
        ip("route")
    );
    assert!(!ip("route").contains("congctl") && ip("-6 route").contains("congctl"), "{}", ip("-6 route"));
}

#[test]
fn a_destination_has_its_own_controller_by_a_route_and_only_that() {
    if !enter_namespace(own_test!(a_destination_has_its_own_controller_by_a_route_and_only_that)) {
        return;
    }
    let host = Machine::new();
    let now = host.sysctl("net.ipv4.tcp_congestion_control").unwrap();
    let other = if now == "reno" { "cubic" } else { "reno" };
    ip("-6 address add 2001:db8::1/64 dev v0 nodad");
    ip("route add 203.0.113.0/24 via 192.0.2.2 dev v0 metric 7 initcwnd 20 mtu lock 1400");
    ip("route add 198.51.100.0/25 via 192.0.2.3 dev v0");
    ip("route add default via 192.0.2.2 dev v0 initcwnd 30");
    ip("-6 route add 2001:db8:1::/48 via 2001:db8::2 dev v0 initrwnd 40");
    let routes = || {
        let text = ip("route show table main") + &ip("-6 route show table main");
        text.lines().map(str::trim_end).filter(|line| !line.contains("fe80")).collect::<Vec<_>>().join("\n")
    };
    let before = (routes(), everything());
    let towards = |prefixes: &[&str]| destinations::Request {
        controller: other.to_owned(),
        prefixes: prefixes.iter().map(|prefix| (*prefix).to_owned()).collect(),
    };
    let wanted = towards(&[
        "203.0.113.0/24",
        "203.0.113.0/24",
        "203.0.113.128/26",
        "198.51.100.0/24",
        "2001:db8:1:7::/64",
        "2001:db8:1::/48",
    ]);
    let plan = destinations::plan(&host, &wanted).unwrap();
    assert_eq!(plan.steps.len(), 5, "{plan:?}");
    assert!(plan.notes.iter().any(|note| note.contains("198.51.100.0/25")), "{:?}", plan.notes);
    assert_eq!(routes(), before.0, "a plan changes nothing");

    let applied = destinations::apply(&host, &store(), &wanted).unwrap();
    assert_eq!(
        (applied.made, &applied.warnings[..]),
        (
            5,
            &["the first address of 198.51.100.0/24 is reached over another route than the one with reno: \
              check `ip route get` and `ip rule`"
                .replace("reno", other)][..]
        )
    );
    let during = routes();
    let line = |start: &str| {
        during.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {during}"))
    };
    for (start, parts) in [
        ("203.0.113.0/24 ", &["via 192.0.2.2", "metric 7", "initcwnd 20", "mtu lock 1400"][..]),
        ("203.0.113.128/26 ", &["via 192.0.2.2", "initcwnd 20", "mtu lock 1400"]),
        ("198.51.100.0/24 ", &["via 192.0.2.2", "initcwnd 30"]),
        ("2001:db8:1:7::/64 ", &["via 2001:db8::2", "initrwnd 40"]),
        ("2001:db8:1::/48 ", &["via 2001:db8::2", "initrwnd 40"]),
    ] {
        let line = line(start);
        let parts =
            parts.iter().copied().chain([&*format!("congctl {other}")]).all(|part| line.contains(part));
        assert!(parts, "{line}");
    }
    assert!(!line("198.51.100.0/25 ").contains("congctl"), "{during}");
    assert_eq!(everything().sysctls, before.1.sysctls, "no other connection is affected");
    let seen = status::status(&host, &store()).unwrap();
    assert!(seen.consistent && seen.uses[0].changes.len() == 5, "{seen:?}");
    // Again, and one more.
    assert_eq!(destinations::apply(&host, &store(), &wanted).unwrap().made, 0);
    assert_eq!(destinations::apply(&host, &store(), &towards(&["192.0.2.64/26"])).unwrap().made, 1);
    // A removed route is reported as drift, and added again.
    ip("route del 203.0.113.128/26");
    let seen = status::status(&host, &store()).unwrap();
    assert!(!seen.consistent && seen.drift[0].contains("203.0.113.128/26"), "{seen:?}");
    assert_eq!(destinations::apply(&host, &store(), &wanted).unwrap().made, 1);
    // Beside an apply, which is undone with it.
    put_in_force(&live(other)).unwrap();
    revert_selection();
    assert_eq!(routes(), before.0);
    assert_same(&everything(), &before.1, "");

    for (prefix, said) in [
        ("192.0.2.1/32", "local address of this host"),
        ("192.0.2.7/24", "the network is 192.0.2.0/24"),
        ("2001:db8:9::/48", "no route"),
        ("example.org", "invalid prefix"),
    ] {
        let error = destinations::apply(&host, &store(), &towards(&["198.51.100.0/24", prefix])).unwrap_err();
        assert!(error.text().contains(said), "{prefix}: {error}");
        assert_eq!(routes(), before.0, "{prefix}: all of it or nothing");
    }
    let error = destinations::apply(
        &host,
        &store(),
        &destinations::Request { controller: "newton".into(), ..towards(&["192.0.2.64/26"]) },
    );
    assert!(matches!(&error, Err(Error::Usage(text)) if text.contains("newton")), "{error:?}");
    ip("route add 100.64.0.0/10 nexthop via 192.0.2.2 dev v0 nexthop via 192.0.2.3 dev v0");
    let error = destinations::apply(&host, &store(), &towards(&["100.64.1.0/24"])).unwrap_err();
    assert!(error.text().contains("multipath"), "{error}");
}

#[test]
fn unconfirmed_change_is_rolled_back_and_confirmed_change_stays() {
    if !enter_namespace(own_test!(unconfirmed_change_is_rolled_back_and_confirmed_change_stays)) {
        return;
    }
    let host = Machine::new();
    let before = everything();
    let other = if before.sysctls["tcp_congestion_control"] == "reno" { "bbr" } else { "reno" };
    let within = std::time::Duration::from_secs(2);
    let trial =
        || apply::Options { trial: Some(apply::OnTrial { within, guard: &|| Ok(()) }), ..Default::default() };
    let sleep = |time| {
        std::thread::sleep(time);
        Decision::Pending
    };
    // On a machine that stands still, two seconds can be over before the next line: not ten times.
    let put_on_trial = || {
        trial::revert_expired(&host, &store()).unwrap();
        apply::apply(&host, &store(), &live(other), &trial()).unwrap();
    };
    assert!((0..10).any(|_| {
        put_on_trial();
        status::status(&host, &store()).unwrap().summary.contains("on trial")
    }));
    assert_eq!(trial::watch(&host, &store(), &mut |time| sleep(time)).unwrap(), Cause::Deadline.into());
    assert_same(&everything(), &before, "");

    assert!((0..10).any(|_| {
        put_on_trial();
        trial::watch(&host, &store(), &mut |_| Decision::Keep).unwrap() == TrialOutcome::Kept
    }));
    std::thread::sleep(within);
    assert_eq!(trial::revert_expired(&host, &store()).unwrap(), None);
    assert_eq!(sysctl_words("net.ipv4.tcp_congestion_control"), [other]);
    revert_selection();
    assert_same(&everything(), &before, "");
}

#[test]
fn an_unknown_discipline_is_refused_by_the_kernel_and_everything_is_put_back() {
    if !enter_namespace(own_test!(an_unknown_discipline_is_refused_by_the_kernel_and_everything_is_put_back))
    {
        return;
    }
    let before = everything();
    let refused = net::Rtnetlink::open().unwrap().change_qdisc(&QdiscOperation::Replace {
        device: "t0".into(),
        parent: ROOT,
        handle: 0,
        kind: "nosuch".into(),
        options: String::new(),
    });
    assert!(refused.is_err());
    let request = Request { qdisc: QdiscChoice::Kind("nosuch".into()), ..live("reno") };
    let error = put_in_force(&request).unwrap_err();
    println!("{error}");
    assert!(error.text().contains("nosuch") && error.text().contains("--qdisc keep"), "{error}");
    assert_same(&everything(), &before, "");
    assert!(!Machine::new().exists("/run/state/host.journal"));
}

#[test]
fn the_kernel_reports_a_devices_offloads_as_they_are_set() {
    if !enter_namespace(own_test!(the_kernel_reports_a_devices_offloads_as_they_are_set)) {
        return;
    }
    let of = |device: &str| {
        let all = Machine::new().features().unwrap();
        all.into_iter().find(|f| f.device == device).unwrap_or_else(|| panic!("nothing about {device}"))
    };
    let before = of("v0");
    assert!(before.on("tx-tcp-segmentation") && before.on("tx-generic-segmentation"), "{before:?}");
    let switch = |value| Command::new("ethtool").args(["-K", "v0", "tso", value]).status();
    match switch("off") {
        Ok(status) => assert!(status.success()),
        Err(e) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "ethtool: {e}");
            println!("SKIPPED: ethtool: {e}");
            return;
        }
    }
    assert!(of("v0").can_enable("tx-tcp-segmentation") && of("v1").on("tx-tcp-segmentation"));
    assert!(switch("on").unwrap().success());
    assert_eq!(of("v0"), before);
    // None of these devices is a card.
    let question = fullpipe_host::checks::Question { controller: "bbr".into(), path: None };
    let report = fullpipe_host::checks::examine(&Machine::new(), &question);
    assert!(report.findings.iter().all(|f| f.id != "offloads"), "{report:?}");
}
