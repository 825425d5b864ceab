//! The kernel, the controller in it, and how far it can be reached from here.

use super::{Context, Finding, Group, Verdict};
use crate::controllers::{ebpf_twin, is_ebpf};
use crate::facts::{Presence, Version};

pub(super) fn check(context: &Context, findings: &mut Vec<Finding>) {
    findings.push(kernel(context));
    findings.push(controller(context));
    findings.extend(bbr_version(context));
    findings.push(scope(context));
    // An image runs no kernel that could load anything.
    findings.extend((!context.facts.scope.image).then(|| ebpf(context)));
}

fn kernel(context: &Context) -> Finding {
    let finding = |verdict, state: String| {
        Finding::new("kernel", Group::Kernel, verdict, state)
            .read("uname -r", &context.facts.identity.release)
            .why(
                "BBR came with Linux 4.9 and was paced by fq alone until TCP learnt to pace by itself in 4.13; since 4.20 it does so by departure time",
                "Linux 4.9 tcp_bbr.c, 4.13 sk_pacing_status, 4.20 earliest departure time in tcp_output.c and sch_fq.c",
            )
    };
    let Some(version) = context.facts.version else {
        return finding(Verdict::Unknown, "which kernel this host runs is not known".into());
    };
    if !context.paced() {
        return finding(Verdict::Ok, format!("Linux {version}"));
    }
    let fq = !matches!(context.facts.qdisc("fq"), Presence::Missing(_));
    let new = "boot a kernel of 4.20 or later (every distribution since 2019 has one): `fullpipe kernel status` says what can be done here";
    match version {
        v if v >= Version(4, 20) => {
            finding(Verdict::Ok, format!("Linux {v}: paces by itself, with or without fq"))
        }
        v if v >= Version(4, 13) => finding(
            Verdict::Warn,
            format!("Linux {v}: paces by a timer for each connection, which costs CPU without fq"),
        )
        .advice("use fq on the device that sends, or a kernel of 4.20 or later"),
        v if v >= Version(4, 9) && fq => finding(Verdict::Warn, format!("Linux {v}: only fq paces bbr here"))
            .advice("keep fq on every device that sends"),
        v if v >= Version(4, 9) => {
            finding(Verdict::Fail, format!("Linux {v}: only fq paces bbr here, and there is no fq"))
                .advice(new)
        }
        v => finding(Verdict::Fail, format!("Linux {v} is older than BBR")).advice(new),
    }
}

fn controller(context: &Context) -> Finding {
    let wanted = &context.question.controller;
    let finding = |verdict, state: String| {
        Finding::new("controller", Group::Kernel, verdict, state)
            .read("net.ipv4.tcp_available_congestion_control", context.facts.available.join(" "))
            .why(
                "only a registered controller can be chosen; the list leaves out modules that would still load",
                "Linux tcp_cong.c, tcp_get_available_congestion_control",
            )
    };
    let ebpf = if is_ebpf(wanted) { wanted.as_str() } else { ebpf_twin(wanted).unwrap_or_default() };
    match context.facts.controller(wanted) {
        Presence::Ready(_) => finding(Verdict::Ok, format!("{wanted} is registered")),
        Presence::Loadable(from) => {
            finding(Verdict::Ok, format!("{wanted} is a module that will load")).read(from, "present")
        }
        Presence::Unknown if context.facts.scope.image => finding(
            Verdict::Unknown,
            format!("no kernel's modules are in this image: whether it will have {wanted} is not known"),
        )
        .read("/lib/modules", "no modules.dep")
        .advice("install the kernel that it will boot into the image, then ask again"),
        Presence::Unknown => finding(
            Verdict::Unknown,
            format!("{wanted} is not registered; whether a module exists is not readable"),
        )
        .advice(format!(
            "{} tries to load it, and puts everything back if that fails",
            context.command(format_args!("apply {wanted}"))
        )),
        Presence::Missing(from) if ebpf.is_empty() => {
            finding(Verdict::Fail, format!("{wanted} is not in this kernel"))
                .read(from, "absent")
                .advice(format!("choose one of: {}", context.facts.available.join(" ")))
        }
        Presence::Missing(from) => finding(Verdict::Fail, format!("{wanted} is not in this kernel"))
            .read(from, "absent")
            .advice(format!(
                "load it as eBPF, without a new kernel or a restart: `fullpipe cc load {ebpf}`, then {}; or have a kernel that has it, as {} says",
                context.command(format_args!("plan {ebpf}")),
                context.command("kernel status")
            )),
    }
}

/// BBR tells its version through its sockets; a module of a patched kernel tells it by itself.
fn bbr_version(context: &Context) -> Option<Finding> {
    let registered = context.facts.available.iter().any(|c| c == "bbr");
    if !registered || !context.paced() {
        return None;
    }
    let module = context.host.text("/sys/module/tcp_bbr/version");
    let seen = context.sockets().iter().find_map(|s| s.bbr).map(|b| b.version);
    let finding = |state: String| {
        Finding::new("bbr-version", Group::Kernel, Verdict::Ok, state).why(
            "the same name stands for different algorithms: v1 in Linux, v3 in kernels built from Google's branch",
            "struct tcp_bbr_info; google/bbr v3 branch",
        )
    };
    Some(match (seen, module) {
        (Some(version), _) => {
            finding(format!("the kernel's bbr is v{version}")).read("sock_diag BBRINFO", version.to_string())
        }
        (None, Some(version)) => {
            finding(format!("the kernel's bbr is v{version}")).read("/sys/module/tcp_bbr/version", version)
        }
        (None, None) => finding("the kernel's bbr is v1, as nothing says otherwise".into())
            .read("/sys/module/tcp_bbr/version", "not there"),
    })
}

fn scope(context: &Context) -> Finding {
    let scope = &context.facts.scope;
    let finding = |verdict| {
        Finding::new("scope", Group::Kernel, verdict, scope.describe())
            .read(
                "network namespace",
                if scope.initial_network { "the first" } else { "not the first (net.ipv4.tcp_mem is absent)" },
            )
            .read("container", scope.container.as_deref().unwrap_or("no sign of one"))
            .why(
                "the default controller belongs to a network namespace; queueing disciplines' default and the allowed list to the host",
                "Linux sysctl_net_ipv4.c",
            )
    };
    if scope.read_only {
        return finding(Verdict::Fail).read("/proc/self/mounts", "/proc/sys is read-only").advice(
            "run fullpipe on the host: what it sets there holds for containers with host networking, and for new namespaces",
        );
    }
    if !scope.initial_network {
        return finding(Verdict::Advice).advice(
            "only the controller and buffers can be changed from here; act on the host for the rest",
        );
    }
    finding(Verdict::Ok)
}

/// What the kernel tells of its types and functions: among other things their names, each ended by a zero.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The type of what registers TCP's controllers from BPF, and the function that makes links of them.
const STRUCT_OPS_TYPE: &[u8] = b"bpf_struct_ops_tcp_congestion_ops";
const LINKS: &[u8] = b"bpf_struct_ops_link_create";

fn ebpf(context: &Context) -> Finding {
    let host = context.host;
    let btf = host.exists(BTF);
    let jit = host.sysctl("net.core.bpf_jit_enable");
    let always_on = context.facts.config.as_ref().is_some_and(|c| c.get("CONFIG_BPF_JIT_ALWAYS_ON") == "y");
    let mounts = host.text("/proc/self/mounts").unwrap_or_default();
    let bpffs = mounts.lines().any(|l| l.split_ascii_whitespace().nth(2) == Some("bpf"));
    let lockdown = host.text("/sys/kernel/security/lockdown").unwrap_or_default();
    let locked = lockdown.contains("[confidentiality]");
    let capabilities = host.text("/proc/self/status").map(|status| capabilities(&status));
    // CAP_SYS_ADMIN stands for CAP_BPF and CAP_PERFMON.
    let may = |bit: u32| capabilities.is_none_or(|all| all & (1 << bit) != 0 || all & (1 << 21) != 0);
    let mut obstacles = Vec::new();
    if !btf {
        obstacles.push("no BTF (CONFIG_DEBUG_INFO_BTF)");
    }
    // By what the kernel says of itself: distributions carry newer BPF to older versions.
    let named =
        |wanted: &[u8]| host.read(BTF).map(|names| names.split(|byte| *byte == 0).any(|name| name == wanted));
    if btf && named(STRUCT_OPS_TYPE).is_ok_and(|is_named| !is_named) {
        obstacles.push("no controllers from BPF (struct_ops), as Linux has from 5.6 on");
    }
    // What came with links, too, is what BBR needs at its best; what came before them only trying tells.
    let without_links = named(LINKS).is_ok_and(|is_named| !is_named);
    if jit.as_deref() == Some("0") && !always_on {
        obstacles.push("the BPF JIT is off (net.core.bpf_jit_enable)");
    }
    if locked {
        obstacles.push("the kernel is locked down");
    }
    // It only matters for a controller that the kernel lacks.
    let lacking = matches!(context.facts.controller(&context.question.controller), Presence::Missing(_));
    let permitted = may(39) && may(38);
    let needed =
        if lacking { String::new() } else { format!("not needed for {}; ", context.question.controller) };
    let state = if obstacles.is_empty() && !permitted {
        format!(
            "{needed}whether controllers can be loaded as eBPF only root can tell (CAP_BPF and CAP_PERFMON)"
        )
    } else if obstacles.is_empty() {
        let pin = if bpffs { "" } else { "; no bpffs is mounted yet, so it could not outlive its loader" };
        let which = if without_links {
            "; Linux has all that they need since 6.4, and which of them this kernel takes `fullpipe cc list` says, as root"
        } else {
            ""
        };
        format!("controllers can be loaded as eBPF{which}{pin}")
    } else {
        format!("{needed}controllers cannot be loaded as eBPF from here: {}", obstacles.join(", "))
    };
    let verdict = match (obstacles.is_empty(), permitted) {
        (true, true) => Verdict::Ok,
        (true, false) => Verdict::Unknown,
        (false, _) => Verdict::Advice,
    };
    let finding = Finding::new("ebpf", Group::Kernel, verdict, state)
        .read(BTF, if btf { "there" } else { "not there" })
        .read("net.core.bpf_jit_enable", jit.unwrap_or_else(|| if always_on { "always on".into() } else { "not readable".into() }))
        .read("bpffs", if bpffs { "mounted" } else { "not mounted" })
        .read("lockdown", if lockdown.is_empty() { "none" } else { &lockdown })
        .why(
            "with it, controllers that this kernel lacks (BBR v3, Hybla) need neither a new kernel nor a restart",
            "Linux bpf_tcp_ca.c",
        );
    match (&obstacles[..], bpffs) {
        ([], _) if !permitted => finding.advice("run `fullpipe doctor` as root, or `fullpipe cc list`"),
        ([_, ..], _) if !lacking => {
            finding.advice("nothing, unless you want one that this kernel lacks: docs/reference/kernels.md says which kernels take them")
        }
        ([], false) => finding.advice("mount -t bpf bpf /sys/fs/bpf"),
        _ => finding,
    }
}

/// The effective capabilities, a bit each.
fn capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|v| u64::from_str_radix(v.trim(), 16).ok()).unwrap_or(0)
}
