//! Fake hosts: manifests under `tests/hosts`, a memory that can lose what was not synced, and
//! faults on demand.

pub mod clock;
pub mod faulty;
pub mod manifest;
pub mod memory;

use fullpipe_host::boot;
use fullpipe_host::host::{DelegateFiles, Files, Host, Model, ModelKernel, View};
use fullpipe_host::net::{QdiscNode, ROOT};
use memory::Memory;
use std::collections::BTreeMap;

pub type Fake = Model<Memory>;

/// Starts a fake host's kernel: modules, sysctls in the order of its boot programs, then devices
/// with their default disciplines. Units load no eBPF controllers.
pub fn boot(host: &Fake) {
    start_kernel(host, false);
}

fn start_kernel(host: &Fake, loads: bool) {
    for entry in boot::modules_at_boot(host) {
        let _ = host.load_module(&entry.module);
    }
    for program in boot::programs(host) {
        // busybox stops at a refused write, so that its lines are written as they are read.
        let writes = |key: &str, value: &str| host.set_sysctl(key, value).is_ok();
        let accepts: &dyn Fn(&str, &str) -> bool =
            if program == boot::Program::PerFile { &writes } else { &|_, _| true };
        for assignment in boot::simulate_with(host, program, accepts) {
            if loads && program == boot::Program::Unit {
                register(host, &assignment.value);
            }
            let _ = host.set_sysctl(&assignment.key, &assignment.value);
        }
    }
    for node in kernel(host).qdiscs {
        let _ = host.load_module(&format!("sch_{}", node.kind));
    }
    let mut kernel = kernel(host);
    let kind = host.sysctl("net.core.default_qdisc").unwrap_or_else(|| "pfifo_fast".into());
    let shaped: Vec<String> = kernel.qdiscs.iter().map(|q| q.device.clone()).collect();
    for (device, queues) in kernel.devices.clone() {
        if shaped.contains(&device) {
            continue;
        }
        let node = |kind: &str, parent| QdiscNode {
            device: device.clone(),
            kind: kind.into(),
            parent,
            ..QdiscNode::default()
        };
        match queues {
            0 => kernel.qdiscs.push(node("noqueue", ROOT)),
            1 => kernel.qdiscs.push(node(&kind, ROOT)),
            n => {
                kernel.qdiscs.push(node("mq", ROOT));
                kernel.qdiscs.extend((1..=n).map(|q| node(&kind, q)));
            }
        }
    }
    put_kernel(host, &kernel);
}

/// Registers a controller, as loading it from a program does.
fn register(host: &Fake, controller: &str) {
    let list = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let known = host.text(list).unwrap_or_default();
    if !known.split(' ').any(|name| name == controller) {
        host.files().put(list, format!("{known} {controller}\n").as_bytes(), 0o444);
    }
}

pub fn kernel(host: &Fake) -> ModelKernel {
    serde_json::from_slice(&host.read("/kernel.json").unwrap()).unwrap()
}

pub fn put_kernel(host: &Fake, kernel: &ModelKernel) {
    host.files().put(
        "/kernel.json",
        (serde_json::to_string_pretty(kernel).unwrap() + "\n").as_bytes(),
        0o644,
    );
}

/// Everything about a fake host that a revert must restore: each path with its kind, mode, owner
/// and bytes, the
/// kernel's state in a fixed order.
pub fn snapshot(host: &Fake) -> BTreeMap<String, String> {
    let mut all = host.files().dump();
    all.remove("/run/fullpipe.lock");
    let mut kernel = kernel(host);
    kernel.qdiscs.sort_by(|a, b| {
        (&a.device, a.parent != ROOT, a.parent).cmp(&(&b.device, b.parent != ROOT, b.parent))
    });
    all.insert("/kernel.json".into(), serde_json::to_string_pretty(&kernel).unwrap());
    for list in ["tcp_allowed_congestion_control", "tcp_available_congestion_control"] {
        let path = format!("/proc/sys/net/ipv4/{list}");
        let text = host.text(&path).unwrap_or_default();
        let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
        words.sort_unstable();
        all.insert(path, words.join(" "));
    }
    all
}

/// Which cases of a long enumeration are tried: one of `stride`, or all with `FULLPIPE_EVERY_KILL=1`.
/// Where the stride has no factor in common with the cases of a change, every change is struck, and
/// each in other ways than its neighbours.
pub struct Sample {
    stride: usize,
    number: usize,
}

impl Sample {
    pub fn one_of(stride: usize) -> Sample {
        let every = std::env::var_os("FULLPIPE_EVERY_KILL").is_some();
        Sample { stride: if every { 1 } else { stride }, number: 0 }
    }

    /// Whether the next case is tried.
    pub fn next(&mut self) -> bool {
        self.number += 1;
        self.number.is_multiple_of(self.stride)
    }
}

/// The differences of two snapshots, for a message.
pub fn differences(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    for path in a.keys().chain(b.keys()).collect::<std::collections::BTreeSet<_>>() {
        if a.get(path) != b.get(path) {
            out += &format!("{path}:\n  {:?}\n  {:?}\n", a.get(path), b.get(path));
        }
    }
    out
}

pub fn assert_same(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>, context: &str) {
    assert!(a == b, "{context}: the host is not as it was:\n{}", differences(a, b));
}

/// Removes what only a running kernel has, and starts it again from its files.
pub fn restart(host: &Fake, pristine: &BTreeMap<String, memory::Entry>) {
    host.files().replace_volatile(pristine);
    boot(host);
}

/// As [`restart`], and units load their eBPF controllers.
pub fn restart_with_units(host: &Fake, pristine: &BTreeMap<String, memory::Entry>) {
    host.files().replace_volatile(pristine);
    start_kernel(host, true);
}

pub fn put(host: &Fake, path: &str, text: &str) {
    host.files().put(path, text.as_bytes(), 0o644);
}

pub fn remove(host: &Fake, path: &str) {
    host.files().remove(path).unwrap();
}
