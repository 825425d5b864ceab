//! Scope of a change made here: the whole host, or one namespace.

use super::is_wsl;
use crate::host::{Host, Identity, Node};

/// Where this program runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Whether this is the initial network namespace. Only that one has `tcp_mem`, `default_qdisc`
    /// and a writable list of allowed controllers.
    pub initial_network: bool,
    /// Whether root in this user namespace is the host's root.
    pub initial_user: bool,
    /// The container manager, if there are signs of one.
    pub container: Option<String>,
    /// Whether an init process reads the boot files of this file system.
    pub boots: bool,
    /// Whether /proc/sys cannot be written.
    pub read_only: bool,
    /// WSL whose process 1 is not systemd: its init reads no boot files.
    pub wsl: bool,
    /// An image without a running kernel.
    pub image: bool,
    /// The network namespace: boot ID and cookie. Before Linux 5.14 the inode of /proc/self/ns/net,
    /// which the kernel reuses, replaces the cookie.
    pub namespace: String,
}

impl Scope {
    /// Detects the scope.
    pub fn detect(host: &dyn Host, identity: &Identity) -> Scope {
        let sysctl = |name: &str| host.sysctl(name);
        let initial_network =
            sysctl("net.ipv4.tcp_mem").is_some() || sysctl("net.ipv4.tcp_congestion_control").is_none();
        let uid_map = host.text("/proc/self/uid_map").unwrap_or_default();
        let initial_user =
            uid_map.is_empty() || uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        let container = container(host);
        let init = host.text("/proc/1/comm").unwrap_or_default();
        let wsl = is_wsl(identity) && init != "systemd";
        let inits = ["systemd", "init", "openrc-init", "runit", "s6-svscan", "busybox"];
        let known_init = inits.contains(&init.as_str());
        let link = |path: &str| match host.stat(path).ok()?.node {
            Node::Link(target) => Some(target),
            _ => None,
        };
        // A thread may be in another namespace than its process.
        let own = link("/proc/thread-self/ns/net").or_else(|| link("/proc/self/ns/net"));
        // A namespace that shares the host's files must not write the host's boot files.
        let borrowed = matches!((link("/proc/1/ns/net"), &own), (Some(init), Some(own)) if init != *own);
        let boots = !identity.running
            || !wsl
                && ((!borrowed && initial_network && (container.is_none() || known_init))
                    || (!borrowed && container.is_some() && known_init));
        let mounts = host.text("/proc/self/mounts").unwrap_or_default();
        let read_only = mounts.lines().any(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let [_, "/proc/sys" | "/proc", _, options, ..] = fields[..] else { return false };
            options.split(',').any(|option| option == "ro")
        });
        let number = host.namespace_cookie().map_or_else(
            || own.unwrap_or_default().chars().filter(char::is_ascii_digit).collect(),
            |cookie| format!("c{cookie}"),
        );
        let namespace = format!("{}-{number}", host.clock().boot());
        Scope {
            initial_network,
            initial_user,
            container,
            boots,
            read_only,
            wsl,
            image: !identity.running,
            namespace,
        }
    }

    /// Short description.
    pub fn describe(&self) -> String {
        if self.image {
            return "an image, not a running host: only its boot files can change".into();
        }
        if self.wsl {
            return "WSL without systemd, whose init reads no boot files".into();
        }
        let network = if self.initial_network {
            "the host's network namespace"
        } else {
            "a separate network namespace"
        };
        match &self.container {
            Some(kind) => format!("in a container ({kind}), {network}"),
            None => network.to_owned(),
        }
    }
}

/// The container manager, by its marker files.
fn container(host: &dyn Host) -> Option<String> {
    if let Some(name) = host.text("/run/systemd/container").filter(|n| !n.is_empty()) {
        return Some(name);
    }
    let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    if let Some((_, name)) = marks.iter().find(|(path, _)| host.exists(path)) {
        return Some((*name).to_owned());
    }
    if host.exists("/proc/vz") && !host.exists("/proc/bc") {
        return Some("openvz".into());
    }
    let environ = host.text("/proc/1/environ").unwrap_or_default();
    environ.split('\0').find_map(|v| v.strip_prefix("container=")).map(str::to_owned)
}
