//! `fullpipe cc` on the running kernel, in its own network and mount namespaces, with names that
//! nothing else uses.

use crate::loading::can_load;
use crate::program;
use crate::steps;
use fullpipe_ebpf::oracle::{Reader, Record};
use fullpipe_host::plan::{ControllerUnit, unit_name};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const FULLPIPE: &str = env!("CARGO_BIN_EXE_fullpipe");

/// A shell in its own network, mount and process namespaces, with a BPF file system. It ends with
/// the test.
struct Space {
    shell: Child,
}

impl Space {
    fn new() -> Self {
        Space::new_until("echo ready && read end")
    }

    /// The same with systemd's units and its own init, as in a system container, and without write
    /// access to the machine.
    fn that_boots() -> Self {
        Space::new_until(
            "mkdir -p /run/systemd/system && echo test >/run/systemd/container && \
             mount -t tmpfs tmpfs /etc/systemd/system && mount -t tmpfs tmpfs /var/lib && \
             cp $(readlink -f /bin/sh) /run/init && exec /run/init -c 'echo ready && read end'",
        )
    }

    fn new_until(end: &str) -> Self {
        let mut shell = Command::new("unshare")
            .args(["-n", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c"])
            .arg(format!(
                "mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs tmpfs /run && ip link set lo up && {end}"
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Space { shell }
    }

    /// Process 1 of the namespaces: unshare's child.
    fn first(&self) -> String {
        let children = format!("/proc/{0}/task/{0}/children", self.shell.id());
        std::fs::read_to_string(children).unwrap().trim().to_owned()
    }

    /// A command inside the namespaces.
    fn command(&self, line: &str) -> Command {
        let first = self.first();
        let mut command = Command::new("nsenter");
        command.args(["-t", &first, "-n", "-m", "-p", "sh", "-c", line]).env("FULLPIPE", program::path());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command that must succeed, and returns its output.
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a command.
    fn start(&self, line: &str) -> Child {
        self.command(line).stdout(Stdio::null()).spawn().unwrap()
    }

    fn status(&self) -> Vec<Value> {
        controllers(&self.ok("$FULLPIPE cc status --json"))
    }

    /// Whether the controller is loaded, on which the kernel and `cc status` must agree.
    fn is_loaded(&self, name: &str) -> bool {
        let available = self.ok("head -n 1 /proc/sys/net/ipv4/tcp_available_congestion_control");
        let registered = available.split_whitespace().any(|there| there == name);
        let status = self.status();
        let reported = status.iter().any(|one| one["name"] == name && one["registered"] == true);
        assert_eq!(registered, reported, "the kernel has {name}: {registered}, status: {status:?}");
        registered
    }

    /// A listening iperf3 server.
    fn server(&self) -> Child {
        let server = self.start("exec iperf3 -s -1");
        let started = Instant::now();
        while !self.ok("ss -tln").contains(":5201") {
            assert!(started.elapsed() < Duration::from_secs(20), "iperf3 does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn pins(&self) -> String {
        self.ok("! test -d /sys/fs/bpf/fullpipe || find /sys/fs/bpf/fullpipe -type f")
    }
}

/// The controllers in the output of `cc status --json`.
fn controllers(status: &str) -> Vec<Value> {
    let document: Value = serde_json::from_str(status).unwrap();
    assert_eq!(document["schema"], "fullpipe/cc-status/1");
    document["controllers"].as_array().unwrap().clone()
}

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.shell.stdin.take().map(|mut stdin| stdin.write_all(b"end\n"));
        let _ = self.shell.wait();
    }
}

#[test]
fn cc_status_json_names_its_schema() {
    let output = Command::new(FULLPIPE).args(["cc", "status", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Any controllers that are loaded on this machine, or none.
    controllers(&String::from_utf8(output.stdout).unwrap());
}

#[test]
fn cc_list_json_names_what_the_kernel_accepts() {
    if !can_load() {
        return;
    }
    for (switch, links) in [("", true), (WITHOUT_LINKS, false)] {
        let space = Space::new();
        let list: Value =
            serde_json::from_str(&space.ok(&format!("{switch}$FULLPIPE cc list --json"))).unwrap();
        assert_eq!(
            (list["schema"].as_str(), list["links"].as_bool()),
            (Some("fullpipe/cc-list/1"), Some(links))
        );
        let features = list["features"].as_array().unwrap();
        assert!(features.len() == 6 && features.iter().all(|one| one["available"] == true), "{list:#}");
        for name in ["fp_bbr3", "fp_bbr1", "fp_hybla"] {
            let one = list["controllers"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap();
            assert!(one["loadable"] == true && one["missing"].is_null(), "{one}");
        }
        assert_eq!(space.pins(), "", "looking leaves nothing");
    }
}

#[test]
fn each_controller_loads_carries_data_and_unloads() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    for controller in ["bbr3", "bbr1", "hybla"] {
        let name = format!("fpa_{controller}");
        let printed = space.ok(&format!("$FULLPIPE cc load {controller} --name {name} --verify"));
        assert!(printed.contains("is loaded") && printed.contains("test transfer succeeded"), "{printed}");
        assert!(space.is_loaded(&name));
        let again = space.ok(&format!("$FULLPIPE cc load {controller} --name {name}"));
        assert!(again.contains("was already loaded"), "{again}");
        let list = space.ok("$FULLPIPE cc list");
        let line = |name: &str| list.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        let about = |name: &str| line(name).split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
        assert!(line(&name).contains(" loaded "), "{list}");
        assert_eq!(about(&name), about(&format!("fp_{controller}")), "{list}");
        if let Some(version) = fullpipe_kernel::tcp_info::bbr_version("bbr") {
            assert_eq!(about("bbr"), format!("part of the kernel: BBR v{version}"), "{list}");
        }
        space.ok(&format!("$FULLPIPE cc unload {controller} --name {name}"));
        assert!(!space.is_loaded(&name));
    }
}

#[test]
fn unloading_ends_every_use_and_moves_open_sockets() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let before = space.ok("cat /proc/sys/net/ipv4/tcp_congestion_control");
    space.ok("$FULLPIPE cc load bbr3 --name fpb_bbr3 --default");
    space.ok("ip route add 192.0.2.0/24 dev lo");
    space.ok("$FULLPIPE cc load bbr3 --name fpb_bbr3 --route 192.0.2.0/24");
    assert!(space.ok("ip route").contains("congctl fpb_bbr3"));
    // A listener and connections that inherit the default.
    let mut server = space.server();
    let mut client = space.start("exec iperf3 -c 127.0.0.1 -t 4 -b 20M");
    std::thread::sleep(Duration::from_secs(1));
    let status = space.status();
    let one = &status[0];
    assert_eq!(one["uses"]["default_of"].as_array().unwrap().len(), 1, "{one}");
    assert!(one["uses"]["routes"][0].as_str().unwrap().contains("192.0.2.0/24"), "{one}");
    let sockets = one["sockets"].as_array().unwrap();
    assert!(sockets.iter().any(|socket| socket["listens"] == true), "{one}");
    let believes = |socket: &Value| {
        socket["bw"].as_u64().unwrap_or(0) > 0 && socket["min_rtt_us"].is_u64() && socket["state"].is_string()
    };
    assert!(sockets.iter().any(believes), "{one}");

    space.ok("$FULLPIPE cc unload bbr3 --name fpb_bbr3");
    assert!(!space.is_loaded("fpb_bbr3"));
    assert_eq!(space.ok("cat /proc/sys/net/ipv4/tcp_congestion_control"), before);
    assert!(!space.ok("ip route").contains("congctl"));
    assert!(!space.ok("ss -tnai").contains("fpb_bbr3"));
    assert!(client.wait().unwrap().success(), "the transfer went on to its end");
    assert!(server.wait().unwrap().success());
}

#[test]
fn half_closed_sockets_are_moved_and_those_without_a_connection_named() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let sockets = |name: &str, half_closed: bool| {
        let connect =
            if half_closed { "s.connect(l.getsockname()); s.shutdown(socket.SHUT_WR); " } else { "" };
        space.start(&format!(
            "exec python3 -c \"import socket, time; l = socket.create_server(('127.0.0.1', 0)); s = \
             socket.socket(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'{name}'); {connect}\
             open('/run/{name}', 'w').close(); time.sleep(600)\""
        ))
    };
    let unload = |name: &str, half_closed: bool| {
        space.ok(&format!("$FULLPIPE cc load bbr1 --name {name}"));
        let mut process = sockets(name, half_closed);
        space.ok(&format!("timeout 20 sh -c 'until test -e /run/{name}; do sleep 0.02; done'"));
        let output = space.run(&format!("$FULLPIPE cc unload bbr1 --name {name} --wait 2"));
        assert!(process.try_wait().unwrap().is_none(), "the sockets are still open");
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!space.is_loaded(name));
        output
    };
    let moved = unload("fpu_half", true);
    assert!(moved.status.success(), "{moved:?}");
    let kept = unload("fpu_none", false);
    let error = String::from_utf8_lossy(&kept.stderr);
    assert_eq!(kept.status.code(), Some(3), "{error}");
    assert!(error.contains("fpu_none is unregistered, but still in use after 2 s"), "{error}");
    assert!(error.contains("those without a connection"), "{error}");
}

/// Starts processes of another user, each in its own user and network namespace, and returns their
/// process IDs in the space. They end with it.
fn namespaces_of_another_user(space: &Space, count: usize) -> Vec<String> {
    let ids = space.ok(&format!(
        "for n in $(seq {count}); do {STRANGER} unshare -Urn sleep 600 >/dev/null 2>&1 & echo $!; done"
    ));
    let ids: Vec<String> = ids.lines().map(str::to_owned).collect();
    assert_eq!(ids.len(), count);
    let started = Instant::now();
    while space.ok("cd /proc; stat -Lc %i [0-9]*/ns/net 2>/dev/null | sort -u | wc -l").trim()
        != (count + 1).to_string()
    {
        assert!(started.elapsed() < Duration::from_secs(60), "the namespaces are not created");
        std::thread::sleep(Duration::from_millis(50));
    }
    ids
}

#[test]
fn namespaces_of_a_user_do_not_exhaust_descriptors() {
    if !can_load() {
        return;
    }
    // More namespaces than a command may open files, all of which use the controller.
    const COUNT: usize = 100;
    let space = Space::new();
    let ids = namespaces_of_another_user(&space, COUNT);
    let limited = |line: &str| space.ok(&format!("ulimit -n 64 && $FULLPIPE cc {line}"));
    limited("load bbr1 --name fpz_bbr");
    let in_each = |line: &str| {
        space.ok(&format!("for id in {}; do nsenter -t $id -n {line} || exit; done", ids.join(" ")))
    };
    in_each("sysctl -qw net.ipv4.tcp_congestion_control=fpz_bbr");
    let default_of =
        |status: &Value| status["uses"]["default_of"].as_array().map_or(0, |inodes| inodes.len());
    assert_eq!(controllers(&limited("status --json")).iter().map(default_of).collect::<Vec<_>>(), [COUNT]);
    let printed = limited("update bbr3 --name fpz_bbr");
    assert!(printed.contains("replaced"), "{printed}");
    limited("unload bbr3 --name fpz_bbr");
    assert!(!space.is_loaded("fpz_bbr"));
    let defaults = in_each("sysctl -n net.ipv4.tcp_congestion_control");
    assert!(defaults.lines().count() == COUNT && !defaults.contains("fpz_bbr"), "{defaults}");
}

#[test]
fn routes_of_a_user_do_not_delay_an_unload() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    space.ok("$FULLPIPE cc load bbr1 --name fpy_bbr1");
    // More than are cleared.
    let id = namespaces_of_another_user(&space, 1).remove(0);
    let routes: String = (0..20_000)
        .map(|n| format!("route add 10.{}.{}.0/28 dev lo congctl fpy_bbr1\n", n / 250, n % 250))
        .collect();
    std::fs::write(format!("/proc/{}/root/run/routes", space.first()), routes).unwrap();
    space.ok(&format!("nsenter -t {id} -n sh -c 'ip link set lo up && ip -batch /run/routes'"));
    let started = Instant::now();
    let output = space.run("$FULLPIPE cc unload bbr1 --name fpy_bbr1");
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && notes.contains("may still name fpy_bbr1"), "{output:?}");
    // 5 s for the routes, and 10 s for the sockets (--wait).
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(!space.is_loaded("fpy_bbr1"));
}

#[test]
fn routes_left_to_their_owners_are_reported_by_an_unload_and_a_rolled_back_load() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let load = "$FULLPIPE cc load bbr1 --name fpw_bbr1";
    space.ok(load);
    let id = namespaces_of_another_user(&space, 1).remove(0);
    // Two routes with one key: netlink cannot change one of them.
    let route =
        |device: &str| format!("ip route append 2001:db8::/32 dev {device} metric 7 congctl fpw_bbr1");
    let devices = "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up";
    space.ok(&format!("nsenter -t {id} -n sh -c '{devices} && {} && {}'", route("v0"), route("v1")));
    let unloaded = space.run("$FULLPIPE cc unload bbr1 --name fpw_bbr1");
    let rolled_back = space.run(&format!("{load} --route 203.0.113.0/24"));
    for output in [&unloaded, &rolled_back] {
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(notes.contains("may still name fpw_bbr1 (2 found, 0 namespaces not searched)"), "{output:?}");
    }
    assert!(unloaded.status.success() && !rolled_back.status.success(), "{rolled_back:?}");
    assert!(!space.is_loaded("fpw_bbr1"));
}

#[test]
fn very_many_changing_routes_of_a_user_take_bounded_time_and_memory() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    space.ok("$FULLPIPE cc load bbr1 --name fpr_bbr1");
    let id = namespaces_of_another_user(&space, 1).remove(0);
    let routes: String = (0..400_000)
        .map(|n| format!("route add 10.{}.{}.{}/32 dev lo\n", n >> 16, n >> 8 & 255, n & 255))
        .collect();
    std::fs::write(format!("/proc/{}/root/run/routes", space.first()), routes).unwrap();
    space.ok(&format!("nsenter -t {id} -n sh -c 'ip link set lo up && ip -batch /run/routes'"));
    // Each change makes the kernel mark a dump as inconsistent.
    let change = "while :; do ip route add 192.0.2.0/24 dev lo; ip route del 192.0.2.0/24 dev lo; done";
    let mut changing = space.start(&format!("exec nsenter -t {id} -n sh -c '{change}'"));
    let measured = |command: &str| {
        let started = Instant::now();
        // The greatest resident set of a child, in KiB.
        let printed = space.ok(&format!(
            "python3 -c \"import resource as r, subprocess as s; s.run('$FULLPIPE cc {command}', shell=True, \
             check=True); print(r.getrusage(r.RUSAGE_CHILDREN).ru_maxrss)\""
        ));
        let memory: u64 = printed.lines().last().unwrap().trim().parse().unwrap();
        println!("{command}: {:?}, {} MiB", started.elapsed(), memory >> 10);
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        assert!(memory < 64 << 10, "{memory} KiB");
        printed
    };
    measured("status");
    measured("unload bbr1 --name fpr_bbr1");
    changing.kill().unwrap();
    changing.wait().unwrap();
    assert!(!space.is_loaded("fpr_bbr1"));
}

/// As another user.
const STRANGER: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

#[test]
fn pins_that_another_user_may_replace_are_refused() {
    if !can_load() {
        return;
    }
    // Mounted without options, everyone may write it.
    let space = Space::new();
    let load = "$FULLPIPE cc load bbr1 --name fpj_bbr1";
    let refused = |prepare: &str, says: &str| {
        space.ok(&format!("mkdir /sys/fs/bpf/other && cd /sys/fs/bpf && {prepare}"));
        for command in [load, "$FULLPIPE cc status"] {
            let output = space.run(command);
            let error = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{prepare}: {error}");
            assert!(error.contains(says) && error.contains("as root: "), "{prepare}: {error}");
        }
        assert_eq!(space.ok("cd /sys/fs/bpf; find fullpipe/ other -mindepth 1"), "", "{prepare}");
        space.ok("cd /sys/fs/bpf && rm -r fullpipe other && chown 0 . && chmod 1777 .");
    };
    refused(&format!("{STRANGER} mkdir fullpipe"), "is not private to root: owned by user 65534");
    refused(&format!("{STRANGER} ln -s other fullpipe"), "fullpipe cannot be opened as a directory: ");
    refused("mkdir -m 777 fullpipe", "is not private to root: writable by other users (mode 0777)");
    refused("mkdir -m 700 fullpipe && chmod 0777 .", "other users can replace files");
    refused("mkdir -m 700 fullpipe && chown 65534 .", "other users can replace files");
    assert!(!space.is_loaded("fpj_bbr1"));
    // The sticky bit protects root's directory.
    space.ok(&format!("{load} && $FULLPIPE cc unload bbr1 --name fpj_bbr1"));
}

#[test]
fn another_user_cannot_hold_the_lock_of_pins() {
    if !can_load() {
        return;
    }
    // A directory as an earlier version created it.
    let space = Space::new();
    space.ok("mkdir -m 755 /sys/fs/bpf/fullpipe");
    let mut holder =
        space.start(&format!("exec {STRANGER} flock /sys/fs/bpf/fullpipe sh -c 'exec sleep 600'"));
    let started = Instant::now();
    while space.run("flock -n /sys/fs/bpf/fullpipe true").status.success() {
        assert!(started.elapsed() < Duration::from_secs(20), "the lock is not taken");
        std::thread::sleep(Duration::from_millis(20));
    }
    space.ok("$FULLPIPE cc load bbr1 --name fpa_bbr1");
    assert!(holder.try_wait().unwrap().is_none(), "the lock is still held");
    assert_eq!(space.ok("cd /sys/fs/bpf; stat -c %a fullpipe fullpipe/@lock"), "700\n700\n");
    for path in ["fullpipe", "fullpipe/@lock"] {
        let denied = space.run(&format!("LC_ALL=C {STRANGER} flock -n /sys/fs/bpf/{path} true"));
        assert!(String::from_utf8_lossy(&denied.stderr).contains("Permission denied"), "{denied:?}");
    }
    space.ok("$FULLPIPE cc unload bbr1 --name fpa_bbr1");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn unloading_restores_the_previous_controller_of_a_route() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    space.ok(
        "ip route add 192.0.2.0/25 dev lo congctl reno && ip route add 192.0.2.128/25 dev lo initcwnd 20",
    );
    space.ok("ip nexthop add id 7 dev lo && ip route add 203.0.113.0/25 nhid 7 initcwnd 30");
    let before = (space.ok("ip route"), space.ok(DEFAULT));
    for route in ["192.0.2.0/25", "192.0.2.128/25", "203.0.113.0/25"] {
        space.ok(&format!("$FULLPIPE cc load bbr1 --name fpk_bbr1 --route {route}"));
    }
    assert_eq!(space.ok("ip route").matches("congctl fpk_bbr1").count(), 3);
    space.ok("$FULLPIPE cc unload bbr1 --name fpk_bbr1");
    assert_eq!((space.ok("ip route"), space.ok(DEFAULT)), before);
}

#[test]
fn a_failed_step_rolls_back_the_earlier_ones() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let group = Group::new(&space, "fpl");
    let before = space.ok(DEFAULT);
    let line = format!(
        "$FULLPIPE cc load bbr1 --name fpl_bbr1 --default --cgroup {} --route 203.0.113.0/24",
        group.path
    );
    let refused = space.run(&line);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no route to"), "{refused:?}");
    assert!(!space.is_loaded("fpl_bbr1"));
    assert_eq!((space.ok(DEFAULT), space.pins().as_str()), (before.clone(), ""));

    space.ok("$FULLPIPE cc load bbr1 --name fpl_bbr1");
    let pins = space.pins();
    assert!(!space.run(&line).status.success());
    assert!(space.is_loaded("fpl_bbr1"), "it was there before");
    assert_eq!((space.ok(DEFAULT), space.pins()), (before, pins));
    space.ok("$FULLPIPE cc unload bbr1 --name fpl_bbr1");
}

#[test]
fn defaults_are_restored_in_any_order() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let before = space.ok(DEFAULT);
    for last in ["fpi_a", "fpi_b"] {
        space.ok(
            "$FULLPIPE cc load bbr1 --name fpi_a --default && $FULLPIPE cc load bbr3 --name fpi_b --default",
        );
        for name in if last == "fpi_b" { ["fpi_a", "fpi_b"] } else { ["fpi_b", "fpi_a"] } {
            space.ok(&format!("$FULLPIPE cc unload bbr1 --name {name}"));
            assert!(!space.is_loaded(name));
        }
        assert_eq!(space.ok(DEFAULT), before, "{last} was unloaded last");
    }
}

#[test]
fn update_replaces_a_build_under_open_sockets() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    // The same name with other programs simulates an older build.
    space.ok("$FULLPIPE cc load bbr1 --name fpc_bbr --default");
    let mut server = space.server();
    let mut client = space.start("exec iperf3 -c 127.0.0.1 -t 3 -b 20M");
    std::thread::sleep(Duration::from_millis(700));
    let refused = space.run("$FULLPIPE cc update hybla --name fpc_other");
    assert_eq!(refused.status.code(), Some(3), "there is nothing of that name to update");
    let printed = space.ok("$FULLPIPE cc update bbr3 --name fpc_bbr");
    assert!(printed.contains("replaced"), "{printed}");
    assert!(client.wait().unwrap().success() && server.wait().unwrap().success());
    space.ok("$FULLPIPE cc unload bbr3 --name fpc_bbr");
    assert!(!space.is_loaded("fpc_bbr"));
}

/// The default controller, and whether changes by fullpipe are applied.
const DEFAULT: &str =
    "cat /proc/sys/net/ipv4/tcp_congestion_control; find /run -name 'fullpipe-net-*' -o -name '*.journal*'";

/// A control group in the namespaces, removed when dropped.
struct Group<'a> {
    space: &'a Space,
    path: String,
}

impl<'a> Group<'a> {
    fn new(space: &'a Space, name: &str) -> Self {
        let path = format!("/run/cgroup/{name}-{}", std::process::id());
        space.ok(&format!("mkdir /run/cgroup && mount -t cgroup2 cgroup2 /run/cgroup && mkdir {path}"));
        Group { space, path }
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        self.space.run(&format!("rmdir {}", self.path));
    }
}

/// The uses of a controller according to kernel and file systems, which `cc status` must report:
/// registered, default, on a route, in a control group. `status` reports its uses, too.
fn found(space: &Space, name: &str, at: &str) -> [bool; 4] {
    // Each in one read: `cat` reads again at the end of the file, where it finds more if another
    // test loads a controller meanwhile.
    let text = space.ok(
        "cd /proc/sys/net/ipv4; head -qn 1 tcp_available_congestion_control tcp_congestion_control; \
         echo $(ip route show 192.0.2.0/24); echo $(ls /sys/fs/bpf/fullpipe/cgroups); \
         $FULLPIPE cc status --json",
    );
    let mut lines = text.splitn(5, '\n');
    let mut line = || lines.next().unwrap();
    let registered = line().split(' ').any(|one| one == name);
    let default = line() == name;
    let route = line().contains(&format!("congctl {name}"));
    let group = line().starts_with(&format!("{name}@"));
    let status = controllers(line());
    let one = status.iter().find(|one| one["name"] == name);
    let uses = |what: &str| one.is_some_and(|one| !one["uses"][what].as_array().unwrap().is_empty());
    let reported = [
        one.is_some_and(|one| one["registered"] == true),
        uses("default_of"),
        uses("routes"),
        uses("cgroups"),
    ];
    let there = [registered, default, route, group];
    assert_eq!(there, reported, "{at}: {text}");
    let of_the_host = reported_uses(space, name);
    let tells = |what: &str| of_the_host.iter().any(|change| change.starts_with(what));
    for (is, what) in [
        (default, "net.ipv4.tcp_congestion_control"),
        (route, "controller of the route to "),
        (group, "control group "),
    ] {
        assert!(!is || tells(what), "{at}: `status` does not tell {what}: {of_the_host:?}");
    }
    there
}

/// The changes that `fullpipe status` reports for the uses of a controller.
fn reported_uses(space: &Space, name: &str) -> Vec<String> {
    // An interrupted change is a finding: the exit code is not 0.
    let output = space.run("$FULLPIPE status --json");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let all = status["uses"].as_array().cloned().unwrap_or_default();
    let uses = all.iter().find(|used| used["controller"] == name).map(|used| used["changes"].clone());
    uses.map(|changes| serde_json::from_value(changes).unwrap()).unwrap_or_default()
}

/// The states found after a command was killed before each of its steps in turn.
struct Kills {
    /// After any kill, or without one.
    seen: BTreeSet<[bool; 4]>,
    /// After the last run, which completed.
    last: [bool; 4],
    runs: usize,
}

/// Runs `line` once per step, killing it before that step, until it completes. `prepare` runs
/// before each run. `end` must remove all of the controller `name`; it gets the state and the
/// outcome.
fn kill_before_each_step(
    space: &Space,
    name: &str,
    line: &str,
    prepare: impl Fn(),
    end: impl Fn([bool; 4], &str),
) -> Kills {
    let before = space.ok(DEFAULT);
    let (mut seen, mut n) = (BTreeSet::new(), 0);
    loop {
        prepare();
        let (killed, at) = match steps::kill_before(space.command(line), Path::new(FULLPIPE), n) {
            steps::End::Killed(step) => (true, format!("{line}, killed before step {n}: {step}")),
            steps::End::Itself(status) => {
                assert!(status.success(), "{status}");
                (false, format!("{line}, not killed"))
            }
        };
        let there = found(space, name, &at);
        println!("{there:?} after {at}");
        seen.insert(there);
        end(there, &at);
        assert_eq!(found(space, name, &at), [false; 4]);
        assert_eq!(space.pins(), "", "{at}");
        assert_eq!(space.ok(DEFAULT), before, "{at}");
        n += 1;
        if !killed {
            return Kills { seen, last: there, runs: n };
        }
    }
}

#[test]
fn a_load_killed_before_any_step_leaves_a_usable_host_and_a_correct_status() {
    kill_a_loader("fpd_bbr1", "");
}

#[test]
fn a_load_killed_on_a_kernel_without_links_leaves_a_correct_status() {
    kill_a_loader("fpo_bbr1", WITHOUT_LINKS);
}

/// Environment in which controllers are registered as on a kernel without BPF links.
const WITHOUT_LINKS: &str = "env FULLPIPE_TEST_WITHOUT_LINKS=1 ";

fn kill_a_loader(name: &str, switch: &str) {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let group = Group::new(&space, &name[..3]);
    space.ok("ip route add 192.0.2.0/24 dev lo");
    let load = &format!("exec {switch}$FULLPIPE cc load bbr1 --name {name}");
    let whole = format!("{load} --default --route 192.0.2.0/24 --cgroup {}", group.path);
    // Mounting the BPF file system counts as a step.
    let unmount = || drop(space.ok("umount /sys/fs/bpf"));
    let started = Instant::now();
    let kills = kill_before_each_step(&space, name, &whole, unmount, |_, _| {
        // In any state: a new load works, so does unloading, and then nothing is left.
        space.ok(load);
        space.ok(&format!("exec $FULLPIPE cc unload bbr1 --name {name}"));
    });
    println!("{} loads in {:?}", kills.runs, started.elapsed());
    assert_eq!(kills.last, [true; 4]);
    // The order of the steps: registered, default, control group, route.
    let stages = [
        [false; 4],
        [true, false, false, false],
        [true, true, false, false],
        [true, true, false, true],
        [true; 4],
    ];
    assert_eq!(kills.seen, stages.into_iter().collect());
    assert!(kills.runs > 40, "a load is more than {} steps", kills.runs);
}

#[test]
fn an_unload_killed_before_any_step_leaves_a_usable_host_and_a_correct_status() {
    kill_an_unloader("fph_bbr1", "");
}

#[test]
fn an_unload_killed_on_a_kernel_without_links_leaves_a_correct_status() {
    kill_an_unloader("fpq_bbr1", WITHOUT_LINKS);
}

fn kill_an_unloader(name: &str, switch: &str) {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let group = Group::new(&space, &name[..3]);
    space.ok("ip route add 192.0.2.0/24 dev lo");
    let whole = format!(
        "exec {switch}$FULLPIPE cc load bbr1 --name {name} --default --route 192.0.2.0/24 --cgroup {}",
        group.path
    );
    let unload = &format!("exec $FULLPIPE cc unload bbr1 --name {name}");
    let load = || {
        space.ok(&whole);
        assert_eq!(found(&space, name, "loaded"), [true; 4]);
    };
    let kills = kill_before_each_step(&space, name, unload, load, |there, at| {
        // If it is still loaded it can be unloaded, otherwise the command reports that it is not.
        let is_there = there[0] || space.pins().contains(name);
        let again = space.run(unload);
        assert_eq!(again.status.code(), Some(if is_there { 0 } else { 3 }), "{at}: {again:?}");
    });
    let seen = kills.seen;
    assert!(seen.contains(&[true; 4]) && seen.contains(&[true, false, false, false]), "{seen:?}");
    assert!(kills.runs > 5, "unloading is more than {} steps", kills.runs);
}

/// The parts of the host that a use may change, byte by byte, with the default and the routes.
const HOST: &str = "cat /proc/sys/net/ipv4/tcp_congestion_control; ip route; \
     find /etc/systemd/system /var/lib | sort | xargs ls -ld --time-style=+; \
     find /etc/systemd/system /var/lib -type f | sort | xargs -r cat; find /sys/fs/bpf/fullpipe/cgroups";

#[test]
fn revert_rolls_back_what_a_killed_load_left_behind() {
    if !can_load() {
        return;
    }
    let space = Space::that_boots();
    let group = Group::new(&space, "fpm");
    space.ok("ip route add 192.0.2.0/24 dev lo congctl lock reno initcwnd 20");
    // An existing unit is restored byte for byte.
    let unit = format!("/etc/systemd/system/{}", unit_name("fpm_bbr1"));
    space.ok(&format!(
        "echo '# earlier' >{unit} && chmod 640 {unit} && mkdir -p /sys/fs/bpf/fullpipe/cgroups"
    ));
    let before = space.ok(HOST);
    let load = format!(
        "exec $FULLPIPE cc load bbr1 --name fpm_bbr1 --default --route 192.0.2.0/24 --persist --cgroup {}",
        group.path
    );
    let (mut n, mut stages) = (0, BTreeSet::new());
    loop {
        let (killed, at) = match steps::kill_before(space.command(&load), Path::new(FULLPIPE), n) {
            steps::End::Killed(step) => (true, format!("killed before step {n}: {step}")),
            steps::End::Itself(status) => {
                assert!(status.success(), "{status}");
                (false, "not killed".to_owned())
            }
        };
        let there = found(&space, "fpm_bbr1", &at);
        let for_boot = space.ok(&format!("cat {unit}")).contains("cc load bbr1 --name fpm_bbr1 --default");
        let reported = reported_uses(&space, "fpm_bbr1");
        assert!(!for_boot || reported.contains(&unit), "{at}: {reported:?}");
        stages.insert((there, for_boot));
        space.ok("exec $FULLPIPE revert");
        assert_eq!(space.ok(HOST), before, "{at}");
        assert_eq!(found(&space, "fpm_bbr1", &at), [there[0], false, false, false], "{at}");
        assert_eq!(reported_uses(&space, "fpm_bbr1"), Vec::<String>::new(), "{at}");
        if there[0] {
            space.ok("exec $FULLPIPE cc unload bbr1 --name fpm_bbr1");
        }
        assert_eq!(space.ok(HOST), before, "{at}");
        n += 1;
        if !killed {
            assert_eq!((there, for_boot), ([true; 4], true));
            break;
        }
    }
    println!("{n} loads, {} stages: {stages:?}", stages.len());
    assert!(stages.len() >= 6, "{stages:?}");
}

#[test]
fn a_name_belongs_to_one_controller() {
    if !can_load() {
        return;
    }
    let space = Space::that_boots();
    let refused = space.run("$FULLPIPE cc load bbr3 --name fp_hybla --persist");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let units = "find /etc/systemd/system -mindepth 1 | sort";
    assert_eq!(space.ok(units), "");
    space
        .ok("$FULLPIPE cc load bbr1 --name fpn_a --persist && $FULLPIPE cc load bbr3 --name fpn_b --persist");
    let text = |name: &str| space.ok(&format!("cat /etc/systemd/system/{}", unit_name(name)));
    assert!(text("fpn_a").contains(" cc load bbr1 --name fpn_a --verify\n"), "{}", text("fpn_a"));
    assert!(text("fpn_b").contains(" cc load bbr3 --name fpn_b --verify\n"), "{}", text("fpn_b"));
    let printed = space.ok("$FULLPIPE cc unload bbr1 --name fpn_a");
    assert_eq!(printed, "fpn_a is unloaded, and no longer loaded at boot\n");
    assert!(text("fpn_b").contains("fpn_b"));
    space.ok("$FULLPIPE cc unload bbr3 --name fpn_b --until-boot");
    assert!(text("fpn_b").contains("fpn_b"));
    assert!(reported_uses(&space, "fpn_b").iter().any(|change| change.ends_with("fpn_b.service")));
    // A controller that is not loaded may still be loaded at the next boot, which `cc unload`
    // prevents.
    let printed = space.ok("$FULLPIPE cc unload bbr3 --name fpn_b");
    assert_eq!(printed, "fpn_b was not loaded, and no longer loaded at boot\n");
    assert_eq!(space.ok(units), "");
}

#[test]
fn settings_persist_across_boots() {
    if !can_load() {
        return;
    }
    let space = Space::that_boots();
    let load = "$FULLPIPE cc load bbr3 --name fpn_set";
    space.ok(&format!("{load} --set beta_percent=80 --persist"));
    let unit = || space.ok(&format!("cat /etc/systemd/system/{}", unit_name("fpn_set")));
    let starts = |set: &str| unit().contains(&format!(" cc load bbr3 --name fpn_set {set}--verify\n"));
    assert!(starts("--set beta_percent=80 "), "{}", unit());
    // A later change of settings that a boot would lose is reported.
    let printed = space.ok("$FULLPIPE cc tune fpn_set beta_percent=90");
    assert!(printed.contains("loads it at boot with other settings"), "{printed}");
    assert!(starts("--set beta_percent=80 "), "{}", unit());
    space.ok(&format!("{load} --persist"));
    assert!(starts("--set beta_percent=90 "), "{}", unit());
    let printed = space.ok("$FULLPIPE cc tune fpn_set beta_percent=90");
    assert!(!printed.contains("at boot"), "{printed}");
    // As at boot: runs the unit's command on a kernel without the controller.
    space.ok("$FULLPIPE cc unload bbr3 --name fpn_set --until-boot");
    let line = unit().lines().find_map(|l| l.strip_prefix("ExecStart=").map(str::to_owned)).unwrap();
    space.ok(&line);
    let tuned = space.ok("$FULLPIPE cc tune fpn_set");
    assert!(tuned.lines().any(|l| l.starts_with("beta_percent") && l.contains(" 90 ")), "{tuned}");
    space.ok("$FULLPIPE cc unload bbr3 --name fpn_set");
    assert!(!space.ok("ls /etc/systemd/system").contains("fpn_set"));
}

#[test]
fn concurrent_loads_do_not_conflict() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    for _ in 0..3 {
        let loaders: Vec<Child> = (0..4)
            .map(|_| {
                let mut command = space.command("exec $FULLPIPE cc load bbr1 --name fpe_bbr1");
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        let printed: Vec<Output> =
            loaders.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let count = |text: &str| {
            printed.iter().filter(|output| String::from_utf8_lossy(&output.stdout).contains(text)).count()
        };
        assert_eq!((count("is loaded"), count("was already loaded")), (1, 3), "{printed:?}");
        space.ok("$FULLPIPE cc unload bbr1 --name fpe_bbr1");
    }
}

/// Programs and maps of Hybla in the kernel, which no other test loads.
fn hyblas(space: &Space) -> usize {
    let listing = space.ok("bpftool prog show; bpftool map show");
    listing.lines().filter(|line| line.contains("name fp_hybla")).count()
}

#[test]
fn a_hundred_loads_and_unloads_leak_nothing() {
    if !can_load() {
        return;
    }
    let bpftool = Command::new("bpftool").arg("version").output().is_ok_and(|output| output.status.success());
    assert!(bpftool || std::env::var_os("CI").is_none(), "CI must have bpftool");
    if !bpftool {
        println!("SKIPPED: bpftool is not installed");
        return;
    }
    let space = Space::new();
    let before = hyblas(&space);
    for n in 0..100 {
        // Transferring data and counting calls takes two seconds: done in every tenth iteration.
        let verify = if n % 10 == 0 { "--verify" } else { "" };
        space.ok(&format!(
            "$FULLPIPE cc load hybla --name fpf_hybla {verify} && $FULLPIPE cc unload hybla --name fpf_hybla"
        ));
    }
    assert!(!space.is_loaded("fpf_hybla"));
    // The first test loads Hybla once, too; leaked objects would stay.
    let started = Instant::now();
    let mut after = hyblas(&space);
    while after > before && started.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(200));
        after = hyblas(&space);
    }
    println!("{before} programs and maps before, {after} after");
    assert!(after <= before, "{before} programs and maps before, {after} after");
    assert_eq!(space.pins(), "");
}

#[test]
fn missing_requirements_are_named_with_exit_code_3() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let fails = |line: &str, code: i32, says: &[&str]| {
        let output = space.run(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        for part in says {
            assert!(text.contains(part), "{line}: {text}");
        }
    };
    fails("$FULLPIPE cc load bbr1 --name reno", 3, &["already registered", "help:"]);
    fails("$FULLPIPE cc load vegas", 2, &["vegas"]);
    for name in ["a_name_that_is_too_long", "../bbr1", "'two words'", "cgroups"] {
        fails(&format!("$FULLPIPE cc load bbr1 --name {name}"), 2, &["15 letters"]);
        fails(&format!("$FULLPIPE cc unload bbr1 --name {name}"), 2, &["15 letters"]);
    }
    fails("$FULLPIPE cc unload bbr1 --name fpg_bbr1", 3, &["not loaded"]);
    let dropped = "setpriv --bounding-set -all --inh-caps -all $FULLPIPE cc load bbr1 --name fpg_bbr1";
    fails(dropped, 3, &["root is required", "CAP_BPF", "help: sudo fullpipe cc load bbr1 --name fpg_bbr1"]);
    // Without permission to read the loaded controllers, `cc status` must not report that none are
    // loaded.
    for what in ["status", "status --json", "unload bbr1", "update bbr1", "record f -- true"] {
        let line = format!("setpriv --bounding-set -all --inh-caps -all $FULLPIPE cc {what}");
        fails(
            &line,
            3,
            &["root is required", "available in this kernel: ", &format!("help: sudo fullpipe cc {what}")],
        );
    }
    let blind =
        "unshare -m sh -c 'mount -t tmpfs tmpfs /sys/kernel && $FULLPIPE cc load bbr1 --name fpg_bbr1'";
    fails(blind, 3, &["no type information", "CONFIG_DEBUG_INFO_BTF"]);
    assert!(!space.is_loaded("fpg_bbr1"));
    assert_eq!(space.pins(), "");
}

/// The unit that makes BBR v1 the default at boot.
fn unit_of(program: &str) -> String {
    ControllerUnit { name: "fp_bbr1", which: "bbr1", settings: &[], program, default: true }
        .text("cc load", true)
        .unwrap()
}

/// The commands of a unit's lines of this kind, in systemd's order.
fn commands(unit: &str, kind: &str) -> String {
    let lines = unit.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix('='));
    lines.collect::<Vec<_>>().join(" && ").replace(" bbr1", " bbr1 --name fpj_bbr1")
}

#[test]
fn the_boot_unit_sets_the_default_only_if_requested() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let unit = unit_of(FULLPIPE);
    let (start, stop) = (commands(&unit, "ExecStart"), commands(&unit, "ExecStop"));
    let before = space.ok(DEFAULT);
    space.ok(&start);
    assert_eq!(space.ok("cat /proc/sys/net/ipv4/tcp_congestion_control"), "fpj_bbr1\n");
    space.ok(&stop);
    assert_eq!(space.ok(DEFAULT), before);
    assert!(!space.is_loaded("fpj_bbr1"));

    // Reasons why the unit fails, with the exit code. Nothing is left afterwards.
    let elsewhere = start.replace(FULLPIPE, "/usr/lib/fullpipe-that-was-removed");
    let refusals = [
        (elsewhere, 127),
        (format!("unshare -m sh -c 'mount -t tmpfs tmpfs /sys/kernel && {start}'"), 3),
        (format!("setpriv --bounding-set -all --inh-caps -all {start}"), 3),
        (format!("ip link set lo down; {start}; code=$?; ip link set lo up; exit $code"), 3),
        (format!("unshare -m sh -c 'mount -o bind,ro /proc/sys/net /proc/sys/net && {start}'"), 3),
    ];
    for (line, code) in refusals {
        let output = space.run(&line);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        assert_eq!(space.ok(DEFAULT), before, "{line}");
        assert!(!space.is_loaded("fpj_bbr1"), "{line}");
    }
    assert_eq!(space.pins(), "");
}

#[test]
fn systemd_accepts_the_unit_and_stopping_it_keeps_the_controller() {
    if !can_load() {
        return;
    }
    let analyze = Command::new("systemd-analyze").arg("--version").output();
    let there = analyze.is_ok_and(|output| output.status.success());
    assert!(there || std::env::var_os("CI").is_none(), "CI must have systemd-analyze");
    if !there {
        println!("SKIPPED: systemd-analyze is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let odd = directory.path().join("a 50% odd place");
    std::fs::create_dir(&odd).unwrap();
    std::fs::copy("/bin/true", odd.join("fullpipe")).unwrap();
    let unit = directory.path().join(unit_name("fp_bbr1"));
    for program in [FULLPIPE, odd.join("fullpipe").to_str().unwrap()] {
        std::fs::write(&unit, unit_of(program)).unwrap();
        let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{program:?}: {output:?}");
    }

    let space = Space::new();
    space.ok("mount -t tmpfs tmpfs /etc/systemd/system");
    let installed = format!("/etc/systemd/system/{}", unit_name("fp_bbr1"));
    space.ok(&format!("cp {} {installed} && $FULLPIPE cc load bbr1", unit.display()));
    let stopped = space.ok("$FULLPIPE cc unload bbr1 --until-boot");
    assert_eq!(stopped, "fp_bbr1 is unloaded\n");
    space.ok(&format!("test -e {installed}"));
}

/// Records the kernel's BBR over a lossy path in the lab. `None` if the kernel's BBR cannot be
/// called.
fn recorded(file: &Path, options: &str, seconds: u32) -> Option<Vec<Record>> {
    let line = format!(
        "exec timeout 60 {FULLPIPE} cc record{options} {} -- \
         {FULLPIPE} lab shell --rate 20mbit --rtt 20ms --loss 1% --server 'iperf3 -s -1' -- \
         iperf3 -c 198.18.0.2 -C fp_oracle -t {seconds}",
        file.display()
    );
    let output = Command::new("sh").args(["-c", &line]).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(3) {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to record the kernel's BBR: {printed}");
        println!("SKIPPED: {printed}");
        return None;
    }
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains(" callbacks recorded in ") && printed.contains(", 0 dropped"), "{printed}");
    Some(Reader::new(std::fs::File::open(file).unwrap()).unwrap().map(|record| record.unwrap()).collect())
}

/// Behaviour of BBR on a lossy path that a recording lacks. On a busy machine a recording covers
/// less of it.
fn not_covered(records: &[Record]) -> Vec<String> {
    let phases: BTreeSet<u32> =
        records.iter().filter(|record| record.mode_after() == 2).map(Record::cycle_after).collect();
    // TCP_CA_Recovery and cong_control, by their numbers.
    let recovering = records.iter().filter(|record| record.tcp.ca_state == 3 && record.op == 1).count();
    fullpipe_testing::failed_checks([
        (phases == (0..8).collect(), format!("phases of ProbeBW: {phases:?}")),
        (recovering >= 100, format!("{recovering} ACKs in recovery")),
        (records.len() >= 2_000, format!("{} callbacks", records.len())),
    ])
}

/// The same for a recording with random perturbations, which sometimes leave the connection with
/// hardly any rate for seconds.
fn not_covered_perturbed(records: &[Record]) -> Vec<String> {
    // Startup, and ProbeRTT long before its ten seconds. (Drain may begin and end within one callback.)
    let [startup, probe_rtt] =
        [0, 3].map(|mode| records.iter().filter(|record| record.mode_after() == mode).count());
    fullpipe_testing::failed_checks([
        (records.len() >= 1_000, format!("{} callbacks", records.len())),
        (startup >= 10, format!("{startup} callbacks left in Startup")),
        (probe_rtt >= 10, format!("{probe_rtt} callbacks left in ProbeRTT")),
    ])
}

/// Makes longer and longer recordings until nothing is missing. `None` if the kernel's BBR cannot
/// be called.
fn covering(file: &Path, options: &str, missing: fn(&[Record]) -> Vec<String>) -> Option<usize> {
    let mut recording = (0, Vec::new());
    for seconds in [6, 12, 24] {
        let records = recorded(file, options, seconds)?;
        recording = (records.len(), missing(&records));
        if recording.1.is_empty() {
            return Some(recording.0);
        }
    }
    println!("NOT SHOWN: what happens on a lossy path in 24 s{options}: {}", recording.1.join("; "));
    Some(recording.0)
}

#[test]
fn both_cores_reproduce_recorded_callbacks_of_the_kernels_bbr() {
    if !can_load() {
        return;
    }
    let _turn = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let (plain, disturbed) = (directory.path().join("plain.rec"), directory.path().join("disturbed.rec"));
    let Some(in_plain) = covering(&plain, "", not_covered) else { return };
    let in_disturbed = covering(&disturbed, " --perturb", not_covered_perturbed).unwrap();

    let output = Command::new(FULLPIPE).args(["cc", "replay", "--json"]).args([&plain, &disturbed]).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let reports: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reports.iter().filter(|report| report["core"] == "Rust").count(), 2, "{text}");
    assert_eq!(reports.iter().filter(|report| report["core"] == "C").count(), 2, "{text}");
    for report in reports {
        println!("{} core: {} callbacks", report["core"], report["records"]);
        assert_eq!(report["schema"], "fullpipe/cc-replay/1");
        assert_eq!(report["mismatches"], 0, "{report:#}");
        let records = report["records"].as_u64().unwrap();
        assert!([in_plain, in_disturbed].contains(&(records as usize)) && records > 0, "{report:#}");
    }
}

/// Serialises the use of the recorder, whose controller has one name per machine.
static RECORDER: Mutex<()> = Mutex::new(());

#[test]
fn leftovers_of_a_killed_process_without_links_are_removed_by_the_next() {
    if !can_load() {
        return;
    }
    let _turn = RECORDER.lock().unwrap_or_else(PoisonError::into_inner);
    let space = Space::new();
    let is_registered = || {
        let names = space.ok("head -n 1 /proc/sys/net/ipv4/tcp_available_congestion_control");
        names.split_whitespace().any(|name| name == "fp_oracle")
    };
    let record = format!("{WITHOUT_LINKS}$FULLPIPE cc record /run/file.rec -- sleep");
    space.ok(&format!("{record} 0.1"));
    assert!(!is_registered());
    assert_eq!(space.pins(), "");

    let mut recorder = space.start(&format!("exec {record} 600"));
    let started = Instant::now();
    while !is_registered() {
        assert!(started.elapsed() < Duration::from_secs(60), "it is not registered");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pins = space.pins();
    let number =
        pins.trim().rsplit_once("/held/fp_oracle@").and_then(|(_, pin)| pin.split_once('/')).unwrap().0;
    space.ok(&format!("kill -KILL {number}"));
    recorder.wait().unwrap();
    assert!(is_registered(), "without a link nothing takes it away");
    // The next change removes it, and nothing else.
    space.ok("$FULLPIPE cc load hybla --name fpt_hybla");
    assert!(!is_registered());
    assert!(
        space.pins().ends_with("/fullpipe/fpt_hybla\n") && space.pins().lines().count() == 1,
        "{}",
        space.pins()
    );
    space.ok("$FULLPIPE cc unload hybla --name fpt_hybla");
}
