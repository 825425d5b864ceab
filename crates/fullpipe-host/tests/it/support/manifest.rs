//! Manifests of fake hosts: what differs from an ordinary machine, and what is expected of the
//! doctor and the planner.

use super::memory::{Entry, Memory};
use super::{Fake, boot};
use fullpipe_host::host::{DelegateFiles, Host, Model, ModelKernel};
use fullpipe_host::net::{DeviceFeatures, QdiscNode, TcpSocket};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// What this host is, in a sentence.
    pub about: String,
    /// `systemd`, `openrc`, `sysv`, or `none` (an application container).
    pub init: String,
    #[serde(default)]
    pub kernel: Kernel,
    /// Files by path; text, or text and mode and owner.
    #[serde(default)]
    pub files: BTreeMap<String, FileSpec>,
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Sysctls set by hand after the start.
    #[serde(default)]
    pub live: BTreeMap<String, String>,
    #[serde(default)]
    pub sockets: Vec<TcpSocket>,
    pub expect: Vec<Expect>,
}

#[derive(Deserialize, Debug)]
#[serde(untagged)]
pub enum FileSpec {
    Text(String),
    Full {
        text: String,
        mode: u32,
        #[serde(default)]
        uid: u32,
        #[serde(default)]
        gid: u32,
        #[serde(default)]
        attributes: BTreeMap<String, String>,
    },
}

impl FileSpec {
    pub fn text(&self) -> &str {
        match self {
            FileSpec::Text(text) | FileSpec::Full { text, .. } => text,
        }
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Kernel {
    pub release: String,
    pub available: String,
    pub default_qdisc: String,
    /// Modules on disk: these load.
    pub modules: Vec<String>,
    /// Modules on disk that refuse to load.
    pub refusing: Vec<String>,
    pub devices: BTreeMap<String, u32>,
    pub qdiscs: Vec<QdiscNode>,
    /// Offloads, of the devices that report them.
    pub features: Vec<DeviceFeatures>,
    pub btf: bool,
    /// Whether controllers from BPF can be held by links.
    pub struct_ops_links: bool,
    /// Not in a network namespace of its own.
    pub initial_network: bool,
    pub unprivileged: bool,
    /// Sysctls that this kernel has besides the usual ones (or with other defaults).
    pub sysctls: BTreeMap<String, String>,
    /// Lines for the kernel's configuration file.
    pub config: String,
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel {
            release: "6.1.0-18-amd64".into(),
            available: "reno cubic".into(),
            default_qdisc: "pfifo_fast".into(),
            modules: ["tcp_bbr", "sch_fq", "sch_fq_pie", "sch_cake"].map(String::from).to_vec(),
            refusing: Vec::new(),
            devices: [("lo".into(), 0), ("eth0".into(), 1)].into(),
            qdiscs: Vec::new(),
            features: Vec::new(),
            btf: true,
            struct_ops_links: true,
            initial_network: true,
            unprivileged: false,
            sysctls: BTreeMap::new(),
            config: String::new(),
        }
    }
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Expect {
    pub controller: String,
    /// The path, `1gbit 200ms`.
    pub path: Option<String>,
    pub qdisc: Option<String>,
    /// Verdicts by check.
    #[serde(default)]
    pub doctor: BTreeMap<String, String>,
    /// What the last line says.
    pub next: Option<String>,
    /// The titles of the plan's steps, in order.
    pub plan: Option<Vec<String>>,
    /// What the plan's notes say.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The plan is sound, the host refuses it, and this is said about it.
    pub apply_fails: Option<String>,
    /// Instead of a plan: what the refusal mentions.
    pub refused: Option<Vec<String>>,
}

const SYSCTLS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_allowed_congestion_control", "reno cubic"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.ipv4.tcp_rmem", "4096\t131072\t6291456"),
    ("net.ipv4.tcp_wmem", "4096\t16384\t4194304"),
    ("net.ipv4.tcp_moderate_rcvbuf", "1"),
    ("net.ipv4.tcp_window_scaling", "1"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ("net.ipv4.tcp_no_metrics_save", "0"),
    ("net.ipv4.tcp_notsent_lowat", "4294967295"),
    ("net.ipv4.tcp_mtu_probing", "0"),
    ("net.ipv4.tcp_ecn", "2"),
    ("net.ipv4.tcp_limit_output_bytes", "1048576"),
    ("net.ipv4.tcp_syncookies", "1"),
    ("net.ipv4.ip_forward", "0"),
    ("kernel.modules_disabled", "0"),
];

impl Manifest {
    pub fn read(name: &str) -> Manifest {
        let path = format!("{}/tests/hosts/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        toml::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    /// The names of all manifests.
    pub fn all() -> Vec<String> {
        let directory = format!("{}/tests/hosts", env!("CARGO_MANIFEST_DIR"));
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .filter_map(|e| Some(e.unwrap().file_name().to_str()?.strip_suffix(".toml")?.to_owned()))
            .collect();
        names.sort();
        names
    }

    /// The host, started; and what its kernel was before its boot files were read.
    #[expect(clippy::too_many_lines, reason = "one kind of entry after the other")]
    pub fn host(&self) -> (Fake, BTreeMap<String, Entry>) {
        let memory = Memory::default();
        let kernel = &self.kernel;
        for directory in ["/etc", "/run", "/var/lib", "/sys/module", "/sys/class/net"] {
            memory.directories(directory);
        }
        match self.init.as_str() {
            "systemd" => {
                memory.put("/usr/lib/systemd/systemd-sysctl", b"", 0o755);
                memory.put("/proc/1/comm", b"systemd\n", 0o444);
                memory.directories("/etc/sysctl.d");
                memory.directories("/etc/modules-load.d");
                memory.directories("/etc/systemd/system");
            }
            "openrc" | "sysv" => memory.put("/proc/1/comm", b"init\n", 0o444),
            "none" => memory.put("/proc/1/comm", b"nginx\n", 0o444),
            other => panic!("init = {other:?}"),
        }
        let sysctl = |name: &str, value: &str, mode| {
            memory.put(
                &format!("/proc/sys/{}", name.replace('.', "/")),
                format!("{value}\n").as_bytes(),
                mode,
            );
        };
        for (name, value) in SYSCTLS {
            sysctl(name, value, 0o644);
        }
        if kernel.initial_network {
            sysctl("net.ipv4.tcp_mem", "188319\t251094\t376638", 0o644);
            sysctl("net.core.default_qdisc", &kernel.default_qdisc, 0o644);
        } else {
            sysctl("net.ipv4.tcp_allowed_congestion_control", "reno cubic", 0o444);
        }
        sysctl("net.ipv4.tcp_available_congestion_control", &kernel.available, 0o444);
        for (name, value) in &kernel.sysctls {
            sysctl(name, value, 0o644);
        }
        if kernel.btf {
            let names: &[u8] = if kernel.struct_ops_links {
                b"\0tcp_slow_start\0bpf_struct_ops_tcp_congestion_ops\0bpf_struct_ops_link_create\0"
            } else {
                b"\0tcp_slow_start\0bpf_struct_ops_tcp_congestion_ops\0"
            };
            memory.put("/sys/kernel/btf/vmlinux", names, 0o444);
        }
        memory.put(
            "/proc/net/sockstat",
            b"sockets: used 200\nTCP: inuse 9 orphan 0 tw 0 alloc 9 mem 120\n",
            0o444,
        );
        memory.put("/proc/self/uid_map", b"         0          0 4294967295\n", 0o444);
        memory.put("/proc/self/status", b"CapEff:\t000001ffffffffff\n", 0o444);
        let modules = format!("/lib/modules/{}", kernel.release);
        if !kernel.modules.is_empty() {
            let on_disk = kernel.modules.iter().chain(&kernel.refusing);
            let lines: String = on_disk.map(|m| format!("kernel/net/{m}.ko.xz:\n")).collect();
            memory.put(&format!("{modules}/modules.dep"), lines.as_bytes(), 0o644);
            memory.put(
                &format!("{modules}/modules.builtin"),
                b"kernel/net/ipv4/tcp_cubic.ko\nkernel/net/sched/sch_fq_codel.ko\n",
                0o644,
            );
        }
        for (device, queues) in &kernel.devices {
            for queue in 0..(*queues).max(1) {
                memory.directories(&format!("/sys/class/net/{device}/queues/tx-{queue}"));
            }
            memory.put(&format!("/sys/class/net/{device}/tx_queue_len"), b"1000\n", 0o644);
        }
        if !kernel.config.is_empty() {
            memory.put(&format!("/boot/config-{}", kernel.release), kernel.config.as_bytes(), 0o644);
        }
        for (path, spec) in &self.files {
            match spec {
                FileSpec::Text(text) => memory.put(path, text.as_bytes(), 0o644),
                FileSpec::Full { text, mode, uid, gid, attributes } => {
                    memory.put(path, text.as_bytes(), *mode);
                    memory.set_mode(path, *mode, (*uid, *gid));
                    for (name, value) in attributes {
                        memory.put_attribute(path, name, value.as_bytes());
                    }
                }
            }
        }
        for (path, target) in &self.links {
            memory.put_link(path, target);
        }
        let host = Model::new(memory);
        super::put_kernel(
            &host,
            &ModelKernel {
                release: kernel.release.clone(),
                unprivileged: kernel.unprivileged,
                loadable: kernel.modules.clone(),
                refusing: kernel.refusing.clone(),
                qdisc_kinds: vec!["fq_codel".into()],
                devices: kernel.devices.clone(),
                qdiscs: kernel.qdiscs.clone(),
                features: kernel.features.clone(),
                sockets: self.sockets.clone(),
                ..ModelKernel::default()
            },
        );
        let pristine = host.files().volatile_entries();
        boot(&host);
        for (name, value) in &self.live {
            host.set_sysctl(name, value).unwrap();
        }
        (host, pristine)
    }
}
