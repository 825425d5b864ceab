//! Facts about a host without judgement: kernel, modules, scope, controllers.

pub(crate) mod kernel;
mod modprobe;
mod scope;
mod system;

pub use fullpipe_kernel::facts::{Config, Version};
pub use kernel::{ModuleIndex, NextKernel, Presence};
pub use modprobe::Modprobe;
pub use scope::Scope;
pub use system::{Snippet, System};

use crate::controllers::{is_ebpf, is_loaded_program};
use crate::host::{Host, Identity, View};
use crate::kernel::{installed, loader::Loader};
use crate::net::{CongestionRoute, QdiscNode, TcpSocket};
use std::collections::BTreeMap;

/// Facts shared by checks, planner and status, read once.
pub struct Facts {
    /// Caller's privileges and kind of host.
    pub identity: Identity,
    /// The kernel's version, if its release could be read.
    pub version: Option<Version>,
    /// Scope of a change made here.
    pub scope: Scope,
    /// The kind of system, if its settings are not kept in /etc/sysctl.d, or its kernel is not a
    /// package.
    pub system: Option<System>,
    /// Registered controllers.
    pub available: Vec<String>,
    /// Those that unprivileged applications may choose.
    pub allowed: Vec<String>,
    /// The default controller.
    pub default: Option<String>,
    /// Default queueing discipline of new devices, in the initial network namespace.
    pub default_qdisc: Option<String>,
    /// Kernel configuration, if readable.
    pub config: Option<Config>,
    /// Which modules are on disk or built in.
    pub modules: ModuleIndex,
    /// The kernel of the next boot, if it is not the running one.
    pub next_kernel: Option<NextKernel>,
    /// Rules for loading modules.
    pub modprobe: Modprobe,
    /// Modules on disk that cannot be loaded, or of which that is unknown.
    exceptions: BTreeMap<String, Presence>,
    /// Queueing disciplines, or why they could not be read.
    pub qdiscs: Result<Vec<QdiscNode>, String>,
    /// Routes with a controller, or why they could not be read.
    pub routes: Result<Vec<CongestionRoute>, String>,
    /// Established sockets, or why they could not be read.
    pub sockets: Result<Vec<TcpSocket>, String>,
    /// The versions of the kernel's BBRs that it reports for a new socket.
    bbr_versions: BTreeMap<String, u8>,
}

/// The version of a BBR of the kernel, and what reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BbrVersion {
    /// `v1`, `v3`; if nothing reports it, presumed from the names `bbr` and `bbr3`, and unknown for
    /// others.
    pub version: Option<String>,
    /// The place that reports it, and its value there.
    pub evidence: Option<(String, String)>,
}

impl BbrVersion {
    /// The version in a sentence: `BBR v3`, or `presumably BBR v1`.
    pub fn describe(&self) -> String {
        let presumed = if self.evidence.is_some() { "" } else { "presumably " };
        match &self.version {
            Some(version) => format!("{presumed}BBR {version}"),
            None => "a BBR of unknown version".to_owned(),
        }
    }
}

/// Whether the running kernel is that of WSL.
fn is_wsl(identity: &Identity) -> bool {
    identity.running && identity.release.to_lowercase().contains("microsoft")
}

/// Whether the kernel reads a number at the beginning of this value (`proc_get_long`).
fn is_number(value: &str) -> bool {
    // The no-break space of ISO 8859-1 is a blank for the kernel, and not UTF-8.
    let value = value.trim_start_matches([' ', '\t', '\n', '\u{fffd}']);
    let digits = value.strip_prefix('-').unwrap_or(value);
    // The prefix decides the base (_parse_integer_fixup_radix).
    let radix = match digits.as_bytes() {
        [b'0', b'x' | b'X', digit, ..] if digit.is_ascii_hexdigit() => 16,
        [b'0', ..] => 8,
        _ => 10,
    };
    let digits = if radix == 16 { &digits[2..] } else { digits };
    let rest = digits.trim_start_matches(|c: char| c.is_digit(radix));
    rest.len() < digits.len() && (rest.is_empty() || rest.starts_with([' ', '\t', '\n']))
}

/// Queueing disciplines of Linux (net/sched).
const DISCIPLINES: [&str; 35] = [
    "bfifo",
    "bpf",
    "cake",
    "cake_mq",
    "cbq",
    "cbs",
    "choke",
    "codel",
    "drr",
    "dsmark",
    "dualpi2",
    "ets",
    "etf",
    "fq",
    "fq_codel",
    "fq_pie",
    "gred",
    "hfsc",
    "hhf",
    "htb",
    "mq",
    "mqprio",
    "multiq",
    "netem",
    "noqueue",
    "pfifo",
    "pfifo_fast",
    "pie",
    "plug",
    "prio",
    "qfq",
    "red",
    "sfb",
    "sfq",
    "tbf",
];

/// The default kernel of the boot loader, if it is not the running one. A container or a namespace
/// boots none.
fn next_kernel(host: &dyn Host, identity: &Identity, modprobe: &Modprobe) -> Option<NextKernel> {
    let scope = Scope::detect(host, identity);
    if !identity.running || scope.container.is_some() || !scope.initial_network || !scope.boots {
        return None;
    }
    let loader = Loader::find(host)?;
    let kernels = installed::all(host);
    let default = loader.default_of(host, &kernels)?;
    let is_known = kernels.iter().any(|kernel| kernel.running && kernel.image.is_some());
    (is_known && !default.running).then(|| NextKernel::read(host, &default.release, modprobe))
}

impl Facts {
    /// Reads the facts. Needs no privileges; what cannot be read stays unknown.
    pub fn gather(host: &dyn Host) -> Facts {
        let identity = host.identity();
        let mut release = identity.release.clone();
        if release.is_empty() {
            // An image: the kernel it would boot, if it has only one.
            let installed = host.list("/lib/modules").unwrap_or_default();
            if let [only] = &installed[..] {
                release.clone_from(only);
            }
        }
        let words = |name: &str| {
            let text = host.sysctl(name).unwrap_or_default();
            text.split_ascii_whitespace().map(str::to_owned).collect()
        };
        let scope = Scope::detect(host, &identity);
        let config = kernel::config(host, &release);
        let modules = ModuleIndex::read(host, &release);
        let modprobe = Modprobe::read(host, config.as_ref());
        Facts {
            version: Version::parse(&release),
            system: System::detect(host, &identity, &scope),
            scope,
            available: words("net.ipv4.tcp_available_congestion_control"),
            allowed: words("net.ipv4.tcp_allowed_congestion_control"),
            default: host.sysctl("net.ipv4.tcp_congestion_control"),
            default_qdisc: host.sysctl("net.core.default_qdisc"),
            exceptions: modprobe.exceptions(host, &modules, config.as_ref()),
            config,
            modules,
            next_kernel: next_kernel(host, &identity, &modprobe),
            modprobe,
            qdiscs: host.qdiscs().map_err(|e| e.to_string()),
            routes: host.congestion_routes().map_err(|e| e.to_string()),
            sockets: host.sockets().map_err(|e| e.to_string()),
            bbr_versions: host.bbr_versions(),
            identity,
        }
    }

    /// Whether the kernel has this controller.
    pub fn controller(&self, name: &str) -> Presence {
        match (self.found(name), self.version) {
            (Presence::Unknown, Some(version)) if name == "bbr" && version < Version(4, 9) => {
                Presence::Missing(format!("Linux {version} is older than BBR"))
            }
            (found, _) => found,
        }
    }

    fn found(&self, name: &str) -> Presence {
        if self.available.iter().any(|c| c == name) {
            return Presence::Ready("net.ipv4.tcp_available_congestion_control".into());
        }
        let module = format!("tcp_{name}");
        // A built-in controller of a running kernel is registered.
        let found = match self.modules.find(&module) {
            Presence::Ready(from) if self.identity.running => Presence::Missing(from),
            Presence::Unknown => self.configured(name, self.identity.running),
            found => found,
        };
        found.unless_loading(&self.exceptions, &module)
    }

    fn configured(&self, name: &str, listed: bool) -> Presence {
        let option = format!("CONFIG_TCP_CONG_{}", name.to_uppercase());
        self.config.as_ref().map_or(Presence::Unknown, |config| kernel::configured(config, &option, listed))
    }

    /// Whether the kernel of the next boot has this controller.
    pub fn controller_at_boot(&self, name: &str) -> Presence {
        let module = format!("tcp_{name}");
        let is_module = || {
            self.modules.is_module(&module) || matches!(self.configured(name, false), Presence::Loadable(_))
        };
        match (&self.next_kernel, self.exceptions.get(&module)) {
            (Some(kernel), _) => kernel.controller(name),
            (None, Some(exception)) if is_module() => exception.clone(),
            (None, _) => self.controller(name),
        }
    }

    /// Why the next boot cannot use this controller, if that is known.
    pub fn obstacle_at_boot(&self, name: &str) -> Option<String> {
        // A program loads it, as no module does.
        if is_ebpf(name) {
            return None;
        }
        let Presence::Missing(from) = self.controller_at_boot(name) else { return None };
        Some(match &self.next_kernel {
            Some(kernel) => {
                format!("the boot loader's default is Linux {}, which has no {name} ({from})", kernel.release)
            }
            None => format!("the next boot has no {name} ({from})"),
        })
    }

    /// The version of a BBR of the kernel: as reported by a new or an established socket with it, or by
    /// its module; otherwise presumed from the name. `None` for any other controller, including an
    /// eBPF program with a BBR's name (`fullpipe cc load bbr3 --name bbr3_beta80`).
    pub fn bbr_version(&self, view: &dyn View, name: &str) -> Option<BbrVersion> {
        if !name.starts_with("bbr") || is_loaded_program(view, name) {
            return None;
        }
        let sockets = self.sockets.as_deref().unwrap_or_default();
        let established = || {
            let bbr = sockets.iter().filter(|socket| socket.controller == name).find_map(|s| s.bbr)?;
            Some((format!("sock_diag BBRINFO of {name}"), bbr.version.to_string()))
        };
        let module = || {
            let path = format!("/sys/module/tcp_{name}/version");
            view.text(&path).map(|version| (path, version))
        };
        let new = self.bbr_versions.get(name);
        let new = new.map(|version| (format!("TCP_CC_INFO of a socket with {name}"), version.to_string()));
        let evidence = new.or_else(established).or_else(module);
        let presumed = match name {
            "bbr" => Some("v1".to_owned()),
            "bbr3" => Some("v3".to_owned()),
            _ => None,
        };
        let is_module = || {
            matches!(self.modules.find(&format!("tcp_{name}")), Presence::Ready(_) | Presence::Loadable(_))
        };
        // An eBPF program reports no version, and has no module.
        if evidence.is_none() && presumed.is_none() && !is_module() {
            return None;
        }
        let version = evidence.as_ref().map(|(_, version)| format!("v{version}")).or(presumed);
        Some(BbrVersion { version, evidence })
    }

    /// Whether this host forwards packets of others: a router, a bridge or NAT.
    pub fn forwards(&self, view: &dyn View) -> Option<&'static str> {
        let on = |name: &str| view.sysctl(name).as_deref() == Some("1");
        if on("net.ipv4.ip_forward") {
            return Some("net.ipv4.ip_forward = 1");
        }
        on("net.ipv6.conf.all.forwarding").then_some("net.ipv6.conf.all.forwarding = 1")
    }

    /// If this host forwards packets and a queue has AQM: the reason, and the discipline.
    pub fn shares_queues(&self, view: &dyn View) -> Option<(&'static str, String)> {
        const WITH_AQM: [&str; 7] = ["fq_codel", "cake", "cake_mq", "fq_pie", "codel", "pie", "dualpi2"];
        let why = self.forwards(view)?;
        let used = self.qdiscs.iter().flatten().map(|node| &node.kind);
        let kind = used.chain(&self.default_qdisc).find(|kind| WITH_AQM.contains(&kind.as_str()))?;
        Some((why, kind.clone()))
    }

    /// Whether the kernel has this queueing discipline.
    pub fn qdisc(&self, kind: &str) -> Presence {
        if !kind.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
            return Presence::Missing("not a valid name".into());
        }
        let used = self.qdiscs.as_ref().is_ok_and(|all| all.iter().any(|q| q.kind == kind));
        if used || self.default_qdisc.as_deref() == Some(kind) {
            return Presence::Ready("in use".into());
        }
        if ["pfifo", "bfifo", "pfifo_fast", "mq"].contains(&kind) {
            return Presence::Ready("part of every kernel".into());
        }
        let module = format!("sch_{kind}");
        let found = match self.modules.find(&module) {
            Presence::Unknown if !DISCIPLINES.contains(&kind) => {
                Presence::Missing("in no release of Linux".into())
            }
            Presence::Unknown => self.config.as_ref().map_or(Presence::Unknown, |c| {
                kernel::configured(c, &format!("CONFIG_NET_SCH_{}", kind.to_uppercase()), false)
            }),
            found => found,
        };
        found.unless_loading(&self.exceptions, &module)
    }

    /// Whether the kernel of the next boot accepts a value for a key (with slashes). Unknown
    /// counts as accepted.
    pub fn accepts_at_boot(&self, view: &dyn View, key: &str, value: &str) -> bool {
        match key {
            _ if value.is_empty() => false,
            "net/ipv4/tcp_congestion_control" => {
                !matches!(self.controller_at_boot(value), Presence::Missing(_))
            }
            "net/core/default_qdisc" => !matches!(self.qdisc(value), Presence::Missing(_)),
            // proc_dointvec: a number, and a blank behind it.
            key => is_number(value) || !view.sysctl(key).is_some_and(|now| is_number(&now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_number;

    #[test]
    fn numbers_are_those_of_the_kernel() {
        for value in ["0", "10", "-1", " 7", "0x10", "0X1f\t2", "-0xa", "0755", "12 x"] {
            assert!(is_number(value), "{value:?}");
        }
        for value in ["", "-", "+1", "x", "0x", "0xg", "12k", "0x1k", "1.5", "08"] {
            assert!(!is_number(value), "{value:?}");
        }
    }
}
