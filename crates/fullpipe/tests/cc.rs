//! `fullpipe cc` as a user sees it: on the running kernel, in network and mount namespaces of its own, under
//! names that nothing else uses.
#![cfg(feature = "ebpf")]

use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const FULLPIPE: &str = env!("CARGO_BIN_EXE_fullpipe");

/// Whether controllers can be loaded here; in CI they must.
fn can_load() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let btf = std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    let namespaces = Command::new("unshare").args(["-n", "-m", "true"]).status().is_ok_and(|s| s.success());
    let can = root && btf && namespaces;
    assert!(can || std::env::var_os("CI").is_none(), "CI must be able to load controllers");
    if !can {
        println!("SKIPPED: needs root, BTF and namespaces");
    }
    can
}

/// A shell in network, mount and process namespaces of its own, with a BPF file system. It ends with the test.
struct Space {
    shell: Child,
}

impl Space {
    fn new() -> Self {
        let mut shell = Command::new("unshare")
            .args(["-n", "-m", "-p", "-f", "--mount-proc", "--kill-child", "sh", "-c"])
            .arg(
                "mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs tmpfs /run && ip link set lo up && \
                 echo ready && read end",
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
        Space { shell }
    }

    /// A command inside: unshare's child is process 1 there.
    fn command(&self, line: &str) -> Command {
        let children = format!("/proc/{0}/task/{0}/children", self.shell.id());
        let first = std::fs::read_to_string(children).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["-t", first.trim(), "-n", "-m", "-p", "sh", "-c", line]).env("FULLPIPE", FULLPIPE);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command that must succeed; gives what it printed.
    fn ok(&self, line: &str) -> String {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a command.
    fn start(&self, line: &str) -> Child {
        self.command(line).stdout(Stdio::null()).spawn().unwrap()
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.ok("$FULLPIPE cc status --json")).unwrap()
    }

    /// Whether the controller is there, on which the kernel and `cc status` must agree.
    fn is_loaded(&self, name: &str) -> bool {
        let available = self.ok("cat /proc/sys/net/ipv4/tcp_available_congestion_control");
        let registered = available.split_whitespace().any(|there| there == name);
        let status = self.status();
        let told =
            status.as_array().unwrap().iter().any(|one| one["name"] == name && one["registered"] == true);
        assert_eq!(registered, told, "the kernel has {name}: {registered}, status: {status}");
        registered
    }

    /// An iperf3 server that listens.
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

impl Drop for Space {
    fn drop(&mut self) {
        let _ = self.shell.stdin.take().map(|mut stdin| stdin.write_all(b"end\n"));
        let _ = self.shell.wait();
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
        let said = space.ok(&format!("$FULLPIPE cc load {controller} --name {name} --verify"));
        assert!(said.contains("is loaded") && said.contains("test transfer went through"), "{said}");
        assert!(space.is_loaded(&name));
        let again = space.ok(&format!("$FULLPIPE cc load {controller} --name {name}"));
        assert!(again.contains("was loaded already"), "{again}");
        let list = space.ok("$FULLPIPE cc list");
        let line = |name: &str| list.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        let about = |name: &str| line(name).split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
        assert!(line(&name).contains(" loaded "), "{list}");
        assert_eq!(about(&name), about(&format!("fp_{controller}")), "{list}");
        space.ok(&format!("$FULLPIPE cc unload {controller} --name {name}"));
        assert!(!space.is_loaded(&name));
    }
}

#[test]
fn unloading_ends_every_use_and_moves_live_sockets() {
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
    let believes = |socket: &serde_json::Value| {
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
fn another_build_takes_the_place_of_a_loaded_one_under_live_sockets() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    // The same name with other programs: what an older build looks like.
    space.ok("$FULLPIPE cc load bbr1 --name fpc_bbr --default");
    let mut server = space.server();
    let mut client = space.start("exec iperf3 -c 127.0.0.1 -t 3 -b 20M");
    std::thread::sleep(Duration::from_millis(700));
    let refused = space.run("$FULLPIPE cc update hybla --name fpc_other");
    assert_eq!(refused.status.code(), Some(3), "there is nothing of that name to update");
    let said = space.ok("$FULLPIPE cc update bbr3 --name fpc_bbr");
    assert!(said.contains("replaced"), "{said}");
    assert!(client.wait().unwrap().success() && server.wait().unwrap().success());
    space.ok("$FULLPIPE cc unload bbr3 --name fpc_bbr");
    assert!(!space.is_loaded("fpc_bbr"));
}

#[test]
fn a_loader_killed_at_any_moment_leaves_a_usable_host_and_a_true_status() {
    if !can_load() {
        return;
    }
    let space = Space::new();
    let started = Instant::now();
    space.ok("$FULLPIPE cc load bbr1 --name fpd_bbr1");
    let whole = started.elapsed();
    space.ok("$FULLPIPE cc unload bbr1 --name fpd_bbr1");

    let (mut there, mut gone) = (0, 0);
    let steps = 20;
    for step in 0..steps {
        // From before it does anything to after it has ended.
        let limit = (whole * step * 3 / steps).as_secs_f64() + 0.001;
        for what in ["load", "unload"] {
            let line = format!("timeout -s KILL {limit:.4} $FULLPIPE cc {what} bbr1 --name fpd_bbr1");
            let _ = space.run(&line);
            if space.is_loaded("fpd_bbr1") {
                there += 1;
            } else {
                gone += 1;
            }
        }
    }
    println!("loaded after {there} kills, not loaded after {gone}, over {whole:?}");
    // How many of each depends on how busy the machine is; the earliest kills come before anything is loaded.
    assert!(gone > 0, "no kill came early enough: {there}, {gone}");
    // And everything still works.
    space.ok("$FULLPIPE cc load bbr1 --name fpd_bbr1 --verify");
    space.ok("$FULLPIPE cc unload bbr1 --name fpd_bbr1");
    assert!(!space.is_loaded("fpd_bbr1"));
    assert_eq!(space.pins(), "");
}

#[test]
fn loaders_at_the_same_time_do_not_fight() {
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
        let said: Vec<Output> = loaders.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let count = |text: &str| {
            said.iter().filter(|output| String::from_utf8_lossy(&output.stdout).contains(text)).count()
        };
        assert_eq!((count("is loaded"), count("was loaded already")), (1, 3), "{said:?}");
        space.ok("$FULLPIPE cc unload bbr1 --name fpe_bbr1");
    }
}

/// The kernel's programs and maps of Hybla, which no other test here loads.
fn hyblas(space: &Space) -> usize {
    let listing = space.ok("bpftool prog show; bpftool map show");
    listing.lines().filter(|line| line.contains("name fp_hybla")).count()
}

#[test]
fn a_hundred_times_load_use_and_unload_leave_nothing_behind() {
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
    for _ in 0..100 {
        space.ok("$FULLPIPE cc load hybla --name fpf_hybla --verify && \
                  $FULLPIPE cc unload hybla --name fpf_hybla");
    }
    assert!(!space.is_loaded("fpf_hybla"));
    // The first test loads Hybla too, once; what we leaked would stay.
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
fn what_is_impossible_is_told_with_the_missing_thing_and_exit_code_3() {
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
    fails("$FULLPIPE cc load bbr1 --name a_name_that_is_too_long", 2, &["15 characters"]);
    fails("$FULLPIPE cc unload bbr1 --name fpg_bbr1", 3, &["not loaded"]);
    let dropped = "setpriv --bounding-set -all --inh-caps -all $FULLPIPE cc load bbr1 --name fpg_bbr1";
    fails(dropped, 3, &["not permitted", "CAP_BPF", "help:"]);
    let blind =
        "unshare -m sh -c 'mount -t tmpfs tmpfs /sys/kernel && $FULLPIPE cc load bbr1 --name fpg_bbr1'";
    fails(blind, 3, &["no type information", "CONFIG_DEBUG_INFO_BTF"]);
    assert!(!space.is_loaded("fpg_bbr1"));
    assert_eq!(space.pins(), "");
}
