//! Makes a plan from a request and a host, or an error with advice.

use super::boot_files::{BootFiles, BootSysctl};
use super::change::Change;
use super::tree::Tree;
use super::{Plan, QdiscChoice, Request, Step};
use crate::boot::{self, Program};
use crate::controllers::{ebpf_twin, is_ebpf};
use crate::ecn;
use crate::error::{Error, Result};
use crate::facts::{Facts, Presence, Snippet, Version};
use crate::host::Host;
use crate::names::{ALLOWED, CONTROLLER};
use fullpipe_kernel::tcp_info::{EBPF_CONTROLLERS, LINUX_CONTROLLERS};
use fullpipe_units::{Bytes, Rate, Span};

const DEFAULT_QDISC: &str = "net.core.default_qdisc";

/// Whether the controller paces, so that fq is recommended.
fn paces(controller: &str) -> bool {
    controller.contains("bbr")
}

/// A plan under construction.
struct Draft<'a> {
    facts: &'a Facts,
    controller: String,
    steps: Vec<Step>,
    notes: Vec<String>,
    /// Modules that are to be loaded at boot.
    modules: Vec<String>,
}

/// Plans `request` on this host. Reads only.
///
/// # Errors
/// [`Error::Usage`] for an unknown controller or discipline, [`Error::Impossible`] if this kernel
/// or namespace
/// does not support it, [`Error::Check`] for an overriding setting that fullpipe does not change.
pub fn make(host: &dyn Host, request: &Request, program: &str) -> Result<Plan> {
    make_with(host, &Facts::gather(host), request, program)
}

/// As [`make`], with the facts about this host.
pub(crate) fn make_with(host: &dyn Host, facts: &Facts, request: &Request, program: &str) -> Result<Plan> {
    let plan = draft_plan(host, facts, request, program);
    match host.unread().first() {
        Some(text) => Err(Error::check(format_args!("{text}, so that not all files were read"))),
        None => plan,
    }
}

fn draft_plan(host: &dyn Host, facts: &Facts, request: &Request, program: &str) -> Result<Plan> {
    let mut notes = Vec::new();
    let (controller, module) = find_controller(host, facts, request, &mut notes)?;
    refuse_restricted(facts, &controller)?;
    let mut draft =
        Draft { facts, controller: controller.clone(), steps: Vec::new(), notes, modules: Vec::new() };
    let is_unknown = facts.controller(&controller) == Presence::Unknown;
    draft.module(&controller, format!("tcp_{controller}"), module.is_some(), is_unknown);
    draft.notes.extend(version_note(host, facts, &controller));
    if let Some(prefix) = &request.canary {
        draft.steps.push(canary(host, facts, &controller, prefix)?);
        draft.notes.push(format!(
            "only connections to {prefix} use {controller}; {} removes the canary",
            facts.identity.command("revert")
        ));
        draft.notes.extend(ecn::destination_warnings(host, facts, &controller, std::slice::from_ref(prefix)));
        return Ok(draft.into_plan(Some(prefix.clone())));
    }
    draft.notes.extend(ecn::warnings(host, facts, &controller));
    let kind = choose_qdisc(host, facts, request, &controller, &mut draft.notes)?;
    if let Some(kind) = &kind {
        let is_loadable = matches!(facts.qdisc(kind), Presence::Loadable(_));
        draft.module(kind, format!("sch_{kind}"), is_loadable, false);
        if facts.identity.running {
            qdisc_steps(facts, request, kind, &mut draft.steps, &mut draft.notes)?;
        }
    }
    let buffers = buffer_sysctls(host, request, &mut draft.notes);
    if facts.identity.running {
        for (name, before, after, why) in &buffers {
            let (name, before, after) = ((*name).to_owned(), before.clone(), after.clone());
            draft.steps.push(Step::new(Change::Sysctl { name, before, after }, why.clone()));
        }
        controller_steps(facts, &controller, &mut draft.steps, &mut draft.notes);
    }
    if request.live_only {
        draft.notes.push("no boot files are written (--live-only)".into());
    } else if !facts.scope.boots {
        draft.notes.push(format!(
            "no boot files are written: no program reads them here ({}), so the change lasts until the next \
             restart",
            facts.scope.describe()
        ));
        let snippet = facts.system.and_then(|system| system.snippet(&controller, kind.as_deref()));
        draft.notes.extend(snippet.map(|snippet| format!("to keep it, {}", snippet.describe())));
    } else {
        if let Some(obstacle) = facts.obstacle_at_boot(&controller) {
            return Err(Error::check(format_args!(
                "{obstacle}, so the change would not survive a restart: make a kernel with {controller} the \
                 default \
                 first ({} lists the kernels), or use --live-only",
                facts.identity.command("kernel status")
            )));
        }
        if let Some(system) = facts.system.filter(|system| system.is_declared()) {
            let snippet = system.snippet(&controller, kind.as_deref());
            let text = |snippet: Snippet| {
                format!("a new deployment of this system may drop these files: {}", snippet.describe())
            };
            draft.notes.extend(snippet.map(text));
        }
        draft.boot(host, kind, buffers, program)?;
    }
    Ok(draft.into_plan(None))
}

impl Draft<'_> {
    /// Plans to load the module of `what` now and at boot, where needed.
    fn module(&mut self, what: &str, module: String, is_loadable: bool, is_unknown: bool) {
        if is_loadable {
            if self.facts.identity.running {
                let why = match is_unknown {
                    true => format!("module of {what}, if the kernel has it"),
                    false => format!("{what} is a module that is not loaded"),
                };
                self.steps.push(Step::new(Change::Module { name: module.clone() }, why));
            }
        } else if !self.facts.modules.is_module(&module) {
            return;
        }
        self.modules.push(module);
    }

    /// Plans the boot files.
    fn boot(
        &mut self,
        host: &dyn Host,
        qdisc: Option<String>,
        buffers: Vec<SysctlChange>,
        program: &str,
    ) -> Result<()> {
        let Draft { facts, controller, steps, notes, modules } = self;
        let mut files = BootFiles::default();
        let mut wanted: Vec<BootSysctl> = Vec::new();
        if let Some(kind) = qdisc.filter(|_| facts.scope.initial_network || facts.scope.image) {
            let why = format!("{kind} for devices that come up at boot");
            wanted.push(BootSysctl { key: DEFAULT_QDISC, value: kind, why });
        }
        for (key, _, value, why) in buffers {
            wanted.push(BootSysctl { key, value, why });
        }
        if is_ebpf(controller) {
            files.ebpf_unit(host, controller, program)?;
        } else {
            let why = "controller of new connections".to_owned();
            let controller = BootSysctl { key: CONTROLLER, value: controller.clone(), why };
            // busybox stops at a refused line: then the controller is set at least.
            let last = if boot::programs(host).contains(&Program::PerFile) { 0 } else { wanted.len() };
            wanted.insert(last, controller);
        }
        let ours = files.sysctls(host, facts, controller, &wanted)?;
        // A file that already sets the value works without a modules-load.d entry.
        modules.retain(|m| ours.iter().any(|v| m.strip_prefix("tcp_").or(m.strip_prefix("sch_")) == Some(v)));
        files.modules(host, modules);
        notes.append(&mut files.notes);
        steps.extend(files.steps(host)?);
        Ok(())
    }

    fn into_plan(self, canary: Option<String>) -> Plan {
        Plan { controller: self.controller, steps: self.steps, notes: self.notes, canary }
    }
}

/// The version of the kernel's BBR of this name, where it is reported or presumed by more than the
/// name of mainline's.
pub(crate) fn version_note(host: &dyn Host, facts: &Facts, controller: &str) -> Option<String> {
    let version = facts.bbr_version(host, controller)?;
    let is_known = version.evidence.is_some() || controller != "bbr";
    is_known.then(|| format!("the kernel's {controller} is {}", version.describe()))
}

/// The controller to use, and the module to load for it.
pub(crate) fn find_controller(
    host: &dyn Host,
    facts: &Facts,
    request: &Request,
    notes: &mut Vec<String>,
) -> Result<(String, Option<String>)> {
    let asked = request.controller.as_str();
    let well_formed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if asked.is_empty() || asked.len() > 15 || !asked.chars().all(well_formed) {
        return Err(Error::usage(format_args!(
            "invalid controller name `{asked}`: use 1 to 15 of a–z, 0–9, _ and -, for example bbr"
        )));
    }
    if facts.scope.read_only {
        return Err(Error::impossible(format_args!(
            "/proc/sys is read-only here ({}): run fullpipe on the host",
            facts.scope.describe()
        )));
    }
    let module = format!("tcp_{asked}");
    let chosen = match facts.controller(asked) {
        Presence::Ready(_) => (asked.to_owned(), None),
        Presence::Loadable(_) if facts.scope.initial_network || facts.scope.image => {
            modules_allowed(host, &module)?;
            (asked.to_owned(), Some(module))
        }
        Presence::Unknown if facts.scope.image && (asked == "cubic" || asked == "reno") => {
            (asked.to_owned(), None)
        }
        Presence::Unknown
            if LINUX_CONTROLLERS.contains(&asked)
                && facts.identity.running
                && facts.scope.initial_network =>
        {
            modules_allowed(host, &module)?;
            notes
                .push(format!("it is unknown whether this kernel has {asked}: apply tries to load it first"));
            (asked.to_owned(), Some(module))
        }
        found => match ebpf_twin(asked).filter(|twin| facts.available.iter().any(|c| c == twin)) {
            Some(twin) => {
                notes.push(format!(
                    "this kernel has no {asked}; the loaded eBPF controller {twin} is used instead"
                ));
                (twin.to_owned(), None)
            }
            None => return Err(refuse_missing(host, facts, asked, &found)),
        },
    };
    Ok(chosen)
}

/// tcp_set_default_congestion_control: only the initial namespace may choose a restricted
/// controller.
fn refuse_restricted(facts: &Facts, controller: &str) -> Result<()> {
    if !facts.scope.initial_network
        && !facts.allowed.is_empty()
        && !facts.allowed.iter().any(|allowed| allowed == controller)
    {
        return Err(Error::impossible(format_args!(
            "{controller} is restricted; this network namespace may only use: {}. On the host, add it to \
             {ALLOWED} \
             (making it the host's default does that), then run this again",
            facts.allowed.join(" ")
        )));
    }
    Ok(())
}

fn modules_allowed(host: &dyn Host, module: &str) -> Result<()> {
    if host.sysctl("kernel.modules_disabled").as_deref() == Some("1") {
        return Err(Error::impossible(format_args!(
            "{module} is not loaded, and kernel.modules_disabled = 1 prevents loading it until the next boot"
        )));
    }
    Ok(())
}

fn refuse_missing(host: &dyn Host, facts: &Facts, asked: &str, found: &Presence) -> Error {
    let evidence = match found {
        Presence::Missing(from) => format!(" ({from})"),
        _ => String::new(),
    };
    if facts.scope.image && *found == Presence::Unknown {
        return Error::impossible(format_args!(
            "cannot check for {asked}: no kernel modules in {}\n  help: install the image's kernel first, or \
             run `fullpipe apply {asked}` on the running host",
            host.real_path("/lib/modules")
        ));
    }
    if is_ebpf(asked) {
        return Error::impossible(format_args!(
            "{asked} is not loaded; load it first, then plan again:\n  fullpipe cc load {asked}\n  fullpipe \
             plan {asked}"
        ));
    }
    if *found == Presence::Unknown && LINUX_CONTROLLERS.contains(&asked) {
        let module = format!("tcp_{asked}");
        return Error::impossible(format_args!(
            "it is unknown whether this kernel has {asked}: it is not registered, and only the host can load \
             its module. On the host: `modprobe {module}`, then run this again"
        ));
    }
    if let Some(twin) = ebpf_twin(asked) {
        if host.exists("/sys/kernel/btf/vmlinux") || !facts.identity.running {
            return Error::impossible(format_args!(
                "this kernel has no {asked}{evidence}. It is available as an eBPF controller, without a new \
                 kernel or a reboot:\n  fullpipe cc load {twin}\n  fullpipe plan {twin}"
            ));
        }
        return Error::impossible(format_args!(
            "this kernel has no {asked}{evidence}, and without BTF (/sys/kernel/btf/vmlinux) it cannot load \
             it as eBPF either: \
             distribution kernels since 5.15 have both"
        ));
    }
    if LINUX_CONTROLLERS.contains(&asked) {
        return Error::impossible(format_args!(
            "this kernel has no {asked}{evidence}; it has: {}",
            facts.available.join(" ")
        ));
    }
    Error::usage(format_args!(
        "unknown controller `{asked}`; this kernel has: {}; fullpipe can load: {}",
        facts.available.join(" "),
        EBPF_CONTROLLERS.map(|(name, _)| name).join(", ")
    ))
}

/// The queueing discipline for devices, or `None` to keep theirs.
fn choose_qdisc(
    host: &dyn Host,
    facts: &Facts,
    request: &Request,
    controller: &str,
    notes: &mut Vec<String>,
) -> Result<Option<String>> {
    // TCP paces by itself since 4.13 (sk_pacing_status).
    let needs_fq = paces(controller) && facts.version.is_some_and(|v| v < Version(4, 13));
    let kind = match &request.qdisc {
        QdiscChoice::Keep if needs_fq => {
            return Err(Error::impossible(
                "before Linux 4.13 only fq paces bbr, which sends in bursts without it: omit --qdisc keep",
            ));
        }
        QdiscChoice::Keep => return Ok(None),
        QdiscChoice::Recommended if !paces(controller) => return Ok(None),
        QdiscChoice::Recommended if !facts.scope.initial_network && !facts.scope.image => {
            if let (true, Presence::Missing(from)) = (needs_fq, facts.qdisc("fq")) {
                return Err(Error::impossible(format_args!(
                    "this kernel has no fq ({from}), and before Linux 4.13 only fq paces {controller}"
                )));
            }
            notes.push(
                "queueing disciplines are not changed in a network namespace; TCP paces by itself".into(),
            );
            return Ok(None);
        }
        QdiscChoice::Recommended if !needs_fq && let Some((why, kind)) = facts.shares_queues(host) => {
            notes.push(format!(
                "devices keep {kind}: this host forwards packets ({why}), which fq would queue without AQM; \
                 TCP paces {controller} by itself (--qdisc fq replaces it)"
            ));
            return Ok(None);
        }
        QdiscChoice::Recommended => "fq",
        QdiscChoice::Kind(kind) => kind,
    };
    match facts.qdisc(kind) {
        Presence::Missing(from) if request.qdisc == QdiscChoice::Recommended && !needs_fq => {
            notes.push(format!(
                "this kernel has no fq ({from}): TCP paces {controller} by itself, which is sufficient; fq \
                 would share a busy uplink more fairly"
            ));
            Ok(None)
        }
        Presence::Missing(from) => Err(Error::impossible(format_args!(
            "this kernel has no {kind} ({from}){}",
            if needs_fq { ", and before Linux 4.13 only fq paces bbr" } else { "; use --qdisc keep" }
        ))),
        _ => Ok(Some(kind.to_owned())),
    }
}

fn qdisc_steps(
    facts: &Facts,
    request: &Request,
    kind: &str,
    steps: &mut Vec<Step>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let all = facts.qdiscs.as_ref().map_err(|e| {
        Error::impossible(format_args!("cannot read the queueing disciplines: {e}; use --qdisc keep"))
    })?;
    let mut devices: Vec<&str> = all.iter().map(|n| n.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    if let Some(unknown) = request.replace_on.iter().find(|d| !devices.contains(&d.as_str())) {
        return Err(Error::usage(format_args!("no device `{unknown}`; devices: {}", devices.join(" "))));
    }
    let mut changes = Vec::new();
    for device in devices {
        let tree = Tree::of_device(all, device);
        let insisted = request.replace_on.iter().any(|d| d == device);
        match tree.plain_kind() {
            None if insisted => {
                return Err(Error::impossible(format_args!(
                    "{device} has classful queueing disciplines ({}), which fullpipe cannot restore exactly: \
                     change them manually",
                    tree.describe()
                )));
            }
            Some("noqueue") => {}
            Some(now) if now == kind => {}
            Some(_) if tree.is_default() || insisted => {
                let why = if tree.leaves().len() > 1 {
                    format!(
                        "{kind} on each of {} queues; a single root {kind} would serialise them",
                        tree.leaves().len()
                    )
                } else {
                    format!("was {}", tree.describe())
                };
                let change =
                    Change::Qdisc { device: device.to_owned(), before: tree, after: kind.to_owned() };
                changes.push(Step::new(change, why));
            }
            _ => notes.push(format!(
                "{device} keeps {}, which was configured manually{}",
                tree.describe(),
                if tree.plain_kind().is_some() {
                    format!(" (use --replace {device} to replace it)")
                } else {
                    String::new()
                }
            )),
        }
    }
    if let Some(before) = &facts.default_qdisc
        && (before != kind || !changes.is_empty())
    {
        // Even if unchanged: restoring a device's default tree changes it temporarily.
        let change =
            Change::Sysctl { name: DEFAULT_QDISC.into(), before: before.clone(), after: kind.to_owned() };
        steps.push(Step::new(change, "for devices that come up later"));
    }
    steps.extend(changes);
    Ok(())
}

type SysctlChange = (&'static str, String, String, String);

fn buffer_sysctls(host: &dyn Host, request: &Request, notes: &mut Vec<String>) -> Vec<SysctlChange> {
    let Some((rate, rtt)) = request.buffers else { return Vec::new() };
    let mut changes = Vec::new();
    for (name, multiple) in [("net.ipv4.tcp_wmem", 4), ("net.ipv4.tcp_rmem", 2)] {
        let Some(now) = host.sysctl(name) else {
            notes.push(format!("{name} is not readable here and is not changed"));
            continue;
        };
        let mut values: Vec<u64> = now.split_ascii_whitespace().filter_map(|v| v.parse().ok()).collect();
        let needed = buffer_needed(rate, rtt, multiple);
        if let [.., largest] = &mut values[..]
            && *largest < needed
        {
            let why = format!("{multiple} × BDP of {rate} × {rtt}; it was {}", Bytes(*largest));
            *largest = needed;
            let after = values.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
            changes.push((name, now, after, why));
        }
    }
    changes
}

/// `multiple` bandwidth-delay products, at most what the kernel accepts (a signed 32-bit number).
pub(crate) fn buffer_needed(rate: Rate, rtt: Span, multiple: u64) -> u64 {
    rate.bytes_in(rtt).saturating_mul(multiple).min(i32::MAX as u64)
}

fn controller_steps(facts: &Facts, controller: &str, steps: &mut Vec<Step>, notes: &mut Vec<String>) {
    let before = facts.default.clone().unwrap_or_default();
    if before != controller
        && let Ok(sockets) = &facts.sockets
    {
        let old = sockets.iter().filter(|s| s.controller != controller && !s.is_loopback()).count();
        if old > 0 {
            notes.push(format!(
                "{old} established connection{} the old controller until closed; new connections use \
                 {controller}",
                if old == 1 { " keeps" } else { "s keep" }
            ));
        }
    }
    let allowed = facts.scope.initial_network.then_some(&facts.allowed[..]);
    steps.extend(controller_changes(allowed, before, controller));
}

/// Steps that make `controller` the default. `allowed` is the current list, `None` where it cannot
/// be changed.
pub(crate) fn controller_changes(allowed: Option<&[String]>, before: String, controller: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(allowed) = allowed.filter(|allowed| !allowed.iter().any(|c| c == controller)) {
        let before = allowed.join(" ");
        let after = format!("{before} {controller}").trim().to_owned();
        let change = Change::Sysctl { name: ALLOWED.into(), before, after };
        steps.push(Step::new(
            change,
            "the kernel adds the default controller to this list; set first, so that it can be undone",
        ));
    }
    if before != controller {
        let change = Change::Sysctl { name: CONTROLLER.into(), before, after: controller.to_owned() };
        steps.push(Step::new(change, "controller of new connections"));
    }
    steps
}

fn canary(host: &dyn Host, facts: &Facts, controller: &str, prefix: &str) -> Result<Step> {
    if !facts.identity.running {
        return Err(Error::usage("--canary needs a running host"));
    }
    let route = host.route_to(prefix).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidInput => Error::usage(format_args!("--canary {e}")),
        _ => Error::io(format_args!("no route to {prefix}"), &e),
    })?;
    let route = crate::net::CongestionRoute { controller: controller.to_owned(), ..route };
    let why = format!("only connections to {prefix} use {controller}");
    Ok(Step::new(Change::Route { route }, why))
}
