//! How far a change made here reaches: the whole host, or one namespace of it.

use crate::host::{Host, Identity, Node};

/// Where the program finds itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope {
    /// Whether this is the host's first network namespace. Only that one has `tcp_mem`, `default_qdisc` and a
    /// writable list of allowed controllers.
    pub initial_network: bool,
    /// Whether root here is the host's root.
    pub initial_user: bool,
    /// The container manager, if there are signs of one.
    pub container: Option<String>,
    /// Whether this file system has an init of its own, so that its boot files are ever read.
    pub boots: bool,
    /// Whether /proc/sys cannot be written.
    pub read_only: bool,
    /// An image of a host that does not run.
    pub image: bool,
    /// The network namespace: the run of the machine, and the kernel's number for it. The inode of /proc/self/ns/net is
    /// given again to the next namespace when one is gone, and stands in only before Linux 5.14, which has no cookies.
    pub namespace: String,
}

impl Scope {
    /// Finds out.
    pub fn detect(host: &dyn Host, identity: &Identity) -> Scope {
        let sysctl = |name: &str| host.sysctl(name);
        let initial_network =
            sysctl("net.ipv4.tcp_mem").is_some() || sysctl("net.ipv4.tcp_congestion_control").is_none();
        let uid_map = host.text("/proc/self/uid_map").unwrap_or_default();
        let initial_user =
            uid_map.is_empty() || uid_map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
        let container = container(host);
        let init = host.text("/proc/1/comm").unwrap_or_default();
        let inits = ["systemd", "init", "openrc-init", "runit", "s6-svscan", "busybox"];
        let known_init = inits.contains(&init.as_str());
        let link = |path: &str| match host.stat(path).ok()?.node {
            Node::Link(target) => Some(target),
            _ => None,
        };
        // The thread's, which may have entered another than the process.
        let own = link("/proc/thread-self/ns/net").or_else(|| link("/proc/self/ns/net"));
        // A network namespace that shares the files of whoever started it must not write their boot files.
        let borrowed = matches!((link("/proc/1/ns/net"), &own), (Some(init), Some(own)) if init != *own);
        let boots = !identity.running
            || (!borrowed && initial_network && (container.is_none() || known_init))
            || (!borrowed && container.is_some() && known_init);
        let mounts = host.text("/proc/self/mounts").unwrap_or_default();
        let read_only = mounts.lines().any(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            matches!(fields[..], [_, "/proc/sys" | "/proc", _, options, ..] if options.split(',').any(|o| o == "ro"))
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
            image: !identity.running,
            namespace,
        }
    }

    /// In a few words.
    pub fn describe(&self) -> String {
        if self.image {
            return "an image that does not run: only its boot files can change".into();
        }
        let network =
            if self.initial_network { "the host's network" } else { "a network namespace of its own" };
        match &self.container {
            Some(kind) => format!("inside {kind}, {network}"),
            None => network.to_owned(),
        }
    }
}

/// The marks that container managers leave.
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
