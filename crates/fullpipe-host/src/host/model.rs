//! A modelled host: its files are real, its kernel is a model over them. `/proc/sys` and `/sys` are
//! plain files,
//! and `/kernel.json` holds the rest (queueing disciplines, offloads, sockets, loadable modules); a
//! loaded module has a directory under `/sys/module`. Writing a sysctl has the effects it has in
//! Linux: a default controller is loaded, checked and added to the allowed list.
//!
//! A directory without `/kernel.json` is an image: only its boot files can change.

use super::{
    BootClock, Clock, DelegateFiles, Files, Host, Identity, Network, Process, Program, ProgramOutput, parent,
    sysctl_path,
};
use crate::names::normalise;
use crate::net::{
    CongestionRoute, DeviceFeatures, KeyedRoute, QdiscNode, QdiscOperation, ROOT, RouteController, RouteKey,
    RoutesLeft, TcpSocket,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Kernel state without a file of its own.
const KERNEL: &str = "/kernel.json";

/// Controllers that every process may choose once loaded (`TCP_CONG_NON_RESTRICTED`).
const FREE: [&str; 2] = ["bbr", "bbr3"];

/// The part of a kernel's state that has no file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelKernel {
    /// `uname -r`.
    pub release: String,
    /// Whether the caller is not root.
    pub unprivileged: bool,
    /// Modules that can be loaded.
    pub loadable: Vec<String>,
    /// Modules that fail to load (a wrong signature).
    pub refusing: Vec<String>,
    /// Queueing disciplines that are built in; those loaded or loadable come from the modules.
    pub qdisc_kinds: Vec<String>,
    /// Devices and how many transmit queues each has; 0 for one without a queue (`noqueue`).
    pub devices: BTreeMap<String, u32>,
    /// The trees.
    pub qdiscs: Vec<QdiscNode>,
    /// Offloads, of the devices that report them.
    pub features: Vec<DeviceFeatures>,
    /// Routes; those without a controller have an empty one.
    pub routes: Vec<CongestionRoute>,
    /// Destinations of routes that were learned from router advertisements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advertised: Vec<String>,
    /// Established sockets.
    pub sockets: Vec<TcpSocket>,
    /// The versions of its BBRs, where registered and reported.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub bbr_versions: BTreeMap<String, u8>,
    /// Default controllers of other network namespaces.
    pub namespaces: Vec<(String, String)>,
    /// The cookie of the network namespace, if the kernel has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_cookie: Option<u64>,
    /// Programs of the host; the first match of a command line is used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ModelProgram>,
    /// Bytes that are free, by directory.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub free: BTreeMap<String, u64>,
    /// How it is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
}

/// A program of a modelled host: its output, and the files it writes.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelProgram {
    /// The command line; a trailing `*` matches any suffix.
    pub line: String,
    /// Exit code.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub error: String,
    /// Files it writes, in the order of their paths; null removes a file, and its directory if that
    /// is empty then.
    pub files: BTreeMap<String, Option<String>>,
    /// Files that must exist, each with this text in it, for this entry to match.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given: BTreeMap<String, String>,
}

/// Files of `F` with a modelled kernel over them.
#[derive(Debug)]
pub struct Model<F> {
    files: F,
    clock: Box<dyn Clock>,
    options: String,
}

impl<F: Files> Model<F> {
    /// A model whose kernel is described in `files`.
    pub fn new(files: F) -> Self {
        Model::with_clock(files, BootClock)
    }

    /// The same with another clock than this machine's.
    pub fn with_clock(files: F, clock: impl Clock + 'static) -> Self {
        Model { files, clock: Box::new(clock), options: String::new() }
    }

    /// Sets the options that printed commands get ([`Identity::options`]).
    #[must_use]
    pub fn with_options(self, options: String) -> Self {
        Model { options, ..self }
    }

    /// Checks that the description of the kernel parses; an image has none.
    ///
    /// # Errors
    /// The parse error with its line.
    pub fn check(&self) -> io::Result<()> {
        match self.kernel() {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn kernel(&self) -> io::Result<ModelKernel> {
        let bytes = self.files.read(KERNEL)?;
        serde_json::from_slice(&bytes)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("{KERNEL}: {e}")))
    }

    /// Replaces a file atomically.
    fn put(&self, path: &str, content: &str) -> io::Result<()> {
        let stat = self.files.stat(path)?;
        let new = format!("{path}.fullpipe-new");
        if self.files.stat(&new).is_ok() {
            self.files.remove(&new)?;
        }
        self.files.create(&new, content.as_bytes(), stat.mode, stat.uid, stat.gid)?;
        self.files.rename(&new, path)
    }

    fn save(&self, kernel: &ModelKernel) -> io::Result<()> {
        self.put(KERNEL, &(serde_json::to_string_pretty(kernel)? + "\n"))
    }

    /// Writes the file of a sysctl without the kernel's side effects.
    fn set_sysctl_file(&self, name: &str, value: &str) -> io::Result<()> {
        self.put(&sysctl_path(name), &format!("{value}\n"))
    }

    fn sysctl_words(&self, name: &str) -> Vec<String> {
        let text = self.files.sysctl(name).unwrap_or_default();
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// Makes a controller available, loading its module if needed.
    fn find_controller(&self, name: &str) -> io::Result<()> {
        if !self.sysctl_words("net.ipv4.tcp_available_congestion_control").iter().any(|c| c == name) {
            self.load_module(&format!("tcp_{name}"))?;
        }
        Ok(())
    }

    fn find_qdisc(&self, kind: &str) -> io::Result<()> {
        const ALWAYS: [&str; 5] = ["pfifo_fast", "mq", "noqueue", "pfifo", "bfifo"];
        if ALWAYS.contains(&kind) || self.kernel()?.qdisc_kinds.iter().any(|k| k == kind) {
            return Ok(());
        }
        self.load_module(&format!("sch_{kind}"))
    }

    /// The default queueing disciplines of a device.
    fn default_tree(&self, kernel: &ModelKernel, device: &str) -> Vec<QdiscNode> {
        let kind = self.files.sysctl("net.core.default_qdisc").unwrap_or_else(|| "pfifo_fast".into());
        let node = |kind: &str, parent: u32| QdiscNode {
            device: device.into(),
            kind: kind.into(),
            parent,
            ..QdiscNode::default()
        };
        match kernel.devices.get(device) {
            None | Some(0) => vec![node("noqueue", ROOT)],
            Some(1) => vec![node(&kind, ROOT)],
            Some(&queues) => {
                std::iter::once(node("mq", ROOT)).chain((1..=queues).map(|q| node(&kind, q))).collect()
            }
        }
    }
}

impl<F: Files> DelegateFiles for Model<F> {
    type Files = F;

    fn files(&self) -> &F {
        &self.files
    }
}

impl<F: Files> Host for Model<F> {
    fn identity(&self) -> Identity {
        let options = self.options.clone();
        match self.kernel() {
            Ok(kernel) => Identity {
                release: kernel.release,
                privileged: !kernel.unprivileged,
                running: true,
                this_machine: false,
                options,
            },
            Err(_) => Identity { privileged: true, options, ..Identity::default() },
        }
    }

    fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";
        let path = sysctl_path(name);
        if self.files.stat(&path)?.mode & 0o222 == 0 {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let words: Vec<&str> = value.split_ascii_whitespace().collect();
        match normalise(name).as_str() {
            "net/ipv4/tcp_congestion_control" => {
                self.find_controller(value)?;
                let mut allowed = self.sysctl_words(ALLOWED);
                if !allowed.iter().any(|c| c == value) {
                    allowed.push(value.to_owned());
                    self.set_sysctl_file(ALLOWED, &allowed.join(" "))?;
                }
            }
            "net/ipv4/tcp_allowed_congestion_control" => {
                for controller in &words {
                    self.find_controller(controller)?;
                }
            }
            "net/core/default_qdisc" => self.find_qdisc(value)?,
            _ if words.iter().any(|w| w.parse::<i64>().is_err()) || words.is_empty() => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            _ => {}
        }
        self.set_sysctl_file(name, &words.join(if words.len() == 3 { "\t" } else { " " }))
    }

    fn load_module(&self, name: &str) -> io::Result<()> {
        let kernel = self.kernel()?;
        let mark = format!("/sys/module/{name}");
        if self.files.exists(&mark) {
            return Ok(());
        }
        if kernel.refusing.iter().any(|m| m == name) {
            return Err(io::Error::other(format!("module {name}: Key was rejected by service")));
        }
        if !kernel.loadable.iter().any(|m| m == name) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("module {name} not found")));
        }
        self.files.make_directory(&mark, 0o755)?;
        if let Some(controller) = name.strip_prefix("tcp_") {
            let mut available = self.sysctl_words("net.ipv4.tcp_available_congestion_control");
            available.push(controller.to_owned());
            let listed =
                self.set_sysctl_file("net.ipv4.tcp_available_congestion_control", &available.join(" "));
            let mut allowed = self.sysctl_words("net.ipv4.tcp_allowed_congestion_control");
            let listed = listed.and_then(|()| {
                if !FREE.contains(&controller) || allowed.iter().any(|one| one == controller) {
                    return Ok(());
                }
                allowed.push(controller.to_owned());
                self.set_sysctl_file("net.ipv4.tcp_allowed_congestion_control", &allowed.join(" "))
            });
            return listed.inspect_err(|_| {
                // The kernel removes a module whose initialisation fails (do_init_module).
                let _ = self.files.remove_directory(&mark);
            });
        }
        Ok(())
    }

    fn unload_module(&self, name: &str) -> io::Result<()> {
        let kernel = self.kernel()?;
        if let Some(controller) = name.strip_prefix("tcp_") {
            let used = kernel.sockets.iter().any(|s| s.controller == controller)
                || self.files.sysctl("net.ipv4.tcp_congestion_control").as_deref() == Some(controller);
            if used {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("module {name} is in use")));
            }
            for list in
                ["net.ipv4.tcp_available_congestion_control", "net.ipv4.tcp_allowed_congestion_control"]
            {
                let mut words = self.sysctl_words(list);
                words.retain(|w| w != controller);
                self.set_sysctl_file(list, &words.join(" "))?;
            }
        }
        if let Some(kind) = name.strip_prefix("sch_")
            && (kernel.qdiscs.iter().any(|q| q.kind == kind)
                || self.files.sysctl("net.core.default_qdisc").as_deref() == Some(kind))
        {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("module {name} is in use")));
        }
        self.files.remove_directory(&format!("/sys/module/{name}"))
    }

    fn qdiscs(&self) -> io::Result<Vec<QdiscNode>> {
        Ok(self.kernel()?.qdiscs)
    }

    fn change_qdisc(&self, operation: &QdiscOperation) -> io::Result<()> {
        let (QdiscOperation::Replace { device, .. } | QdiscOperation::DeleteRoot { device }) = operation;
        if let QdiscOperation::Replace { kind, .. } = operation {
            self.find_qdisc(kind)?;
        }
        let mut kernel = self.kernel()?;
        if !kernel.devices.contains_key(device) {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("no device {device}")));
        }
        match operation {
            QdiscOperation::DeleteRoot { .. } => {
                // sch_api.c, tc_get_qdisc: "Cannot delete qdisc with handle of zero".
                if kernel.qdiscs.iter().any(|q| q.device == *device && q.parent == ROOT && q.handle == 0) {
                    return Err(io::ErrorKind::NotFound.into());
                }
                let tree = self.default_tree(&kernel, device);
                kernel.qdiscs.retain(|q| q.device != *device);
                kernel.qdiscs.extend(tree);
            }
            QdiscOperation::Replace { parent, handle, kind, options, .. } => {
                let handle = if *handle != 0 { *handle } else { 0x8001_0000 };
                let node = QdiscNode {
                    device: device.clone(),
                    kind: kind.clone(),
                    handle,
                    parent: *parent,
                    options: options.clone(),
                    ..QdiscNode::default()
                };
                if *parent == ROOT {
                    let leaves = self.default_tree(&kernel, device);
                    kernel.qdiscs.retain(|q| q.device != *device);
                    kernel.qdiscs.push(node);
                    if kind == "mq" {
                        let own = |n: QdiscNode| QdiscNode { parent: handle | n.parent, ..n };
                        kernel.qdiscs.extend(leaves.into_iter().filter(|n| n.parent != ROOT).map(own));
                    }
                } else {
                    let place = kernel
                        .qdiscs
                        .iter_mut()
                        .find(|q| q.device == *device && q.parent == *parent)
                        .ok_or(io::ErrorKind::NotFound)?;
                    *place = node;
                }
            }
        }
        self.save(&kernel)
    }

    fn features(&self) -> io::Result<Vec<DeviceFeatures>> {
        Ok(self.kernel()?.features)
    }

    fn congestion_routes(&self) -> io::Result<Vec<CongestionRoute>> {
        let mut routes = self.kernel()?.routes;
        routes.retain(|r| !r.controller.is_empty());
        Ok(routes)
    }

    fn change_route(&self, route: &CongestionRoute, remove: bool) -> io::Result<()> {
        let mut kernel = self.kernel()?;
        let before = kernel.routes.len();
        kernel.routes.retain(|r| r.prefix != route.prefix);
        match (remove, before != kernel.routes.len()) {
            (true, false) => return Err(io::ErrorKind::NotFound.into()),
            (true, true) => {}
            (false, true) => return Err(io::ErrorKind::AlreadyExists.into()),
            (false, false) => kernel.routes.push(route.clone()),
        }
        self.save(&kernel)
    }

    fn route_to(&self, prefix: &str) -> io::Result<CongestionRoute> {
        let device = self.kernel()?.devices.keys().next().cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(CongestionRoute { prefix: prefix.into(), device, table: 254, ..CongestionRoute::default() })
    }

    fn routes(&self) -> io::Result<Vec<KeyedRoute>> {
        let kernel = self.kernel()?;
        let keyed = |route: CongestionRoute| KeyedRoute {
            advertised: kernel.advertised.contains(&route.prefix),
            has_ecn: route.has_ecn(),
            key: RouteKey { prefix: route.prefix, table: route.table, ..RouteKey::default() },
            choice: (!route.controller.is_empty())
                .then_some(RouteController { controller: route.controller, locked: route.locked }),
            multipath: false,
        };
        Ok(kernel.routes.iter().cloned().map(keyed).collect())
    }

    fn bbr_versions(&self) -> BTreeMap<String, u8> {
        let available = self.sysctl_words("net.ipv4.tcp_available_congestion_control");
        let mut versions = self.kernel().unwrap_or_default().bbr_versions;
        versions.retain(|name, _| available.contains(name));
        versions
    }

    fn set_route_controller(&self, route: &RouteKey, choice: Option<&RouteController>) -> io::Result<()> {
        let choice = choice.cloned().unwrap_or_default();
        if !choice.controller.is_empty() {
            // ip_metrics_convert.
            self.find_controller(&choice.controller).map_err(|_| io::ErrorKind::InvalidInput)?;
        }
        let mut kernel = self.kernel()?;
        let mut routes = kernel.routes.iter_mut();
        let there = routes.find(|r| r.prefix == route.prefix && r.table == route.table);
        let there = there.ok_or(io::ErrorKind::NotFound)?;
        (there.controller, there.locked) = (choice.controller, choice.locked);
        self.save(&kernel)
    }

    fn clear_routes_within(&self, controller: &str, time: Duration) -> RoutesLeft {
        let named = self.routes().map(|mut routes| {
            routes.retain(|route| route.choice.as_ref().is_some_and(|c| c.controller == controller));
            routes
        });
        match named {
            Ok(named) if !time.is_zero() => {
                let refused =
                    named.iter().filter(|route| self.set_route_controller(&route.key, None).is_err());
                RoutesLeft { found: refused.count(), may_be_more: false }
            }
            _ => RoutesLeft { found: 0, may_be_more: true },
        }
    }

    fn sockets(&self) -> io::Result<Vec<TcpSocket>> {
        Ok(self.kernel()?.sockets)
    }

    fn try_connection(&self) -> io::Result<String> {
        self.files.sysctl("net.ipv4.tcp_congestion_control").ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn other_namespaces(&self) -> io::Result<Vec<(String, String)>> {
        Ok(self.kernel()?.namespaces)
    }

    fn end_process(&self, process: Process) -> io::Result<()> {
        match process.runs(&self.files) {
            true => self.files.remove(&format!("/proc/{}/stat", process.id)),
            false => Ok(()),
        }
    }

    fn pause(&self, _time: std::time::Duration) {}

    fn namespace_cookie(&self) -> Option<u64> {
        self.kernel().ok()?.namespace_cookie
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn run(&self, program: &Program) -> io::Result<ProgramOutput> {
        let line = program.line();
        let is_it = |known: &&ModelProgram| {
            let has = |(path, part): (&String, &String)| {
                self.files.content(path).is_some_and(|text| text.contains(part))
            };
            known.given.iter().all(has)
                && match known.line.strip_suffix('*') {
                    Some(begin) => line.starts_with(begin),
                    None => known.line == line,
                }
        };
        let kernel = self.kernel()?;
        let Some(known) = kernel.programs.iter().find(is_it) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("program not found: `{line}`")));
        };
        for (path, content) in &known.files {
            let exists = self.files.stat(path).is_ok();
            let Some(content) = content else {
                if exists {
                    self.files.remove(path)?;
                }
                if self.files.list(parent(path)).is_ok_and(|names| names.is_empty()) {
                    self.files.remove_directory(parent(path))?;
                }
                continue;
            };
            if exists {
                self.put(path, content)?;
                continue;
            }
            let mut missing = Vec::new();
            let mut directory = parent(path);
            while self.files.stat(directory).is_err() {
                missing.push(directory);
                directory = parent(directory);
            }
            for directory in missing.into_iter().rev() {
                self.files.make_directory(directory, 0o755)?;
            }
            let (uid, gid) = self.files.stat(parent(path)).map(|about| (about.uid, about.gid))?;
            self.files.create(path, content.as_bytes(), 0o644, uid, gid)?;
        }
        Ok(ProgramOutput { status: known.status, out: known.out.clone(), error: known.error.clone() })
    }

    fn free(&self, directory: &str) -> io::Result<u64> {
        self.kernel()?.free.get(directory).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn network(&self) -> io::Result<Network> {
        self.kernel()?.network.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
