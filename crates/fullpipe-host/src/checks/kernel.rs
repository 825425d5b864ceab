//! The kernel, its controllers, and the scope of changes.

use super::{Context, Finding, Group, Verdict};
use crate::controllers::{ebpf_twin, is_ebpf};
use crate::facts::{Presence, Version};

pub(super) fn check(context: &Context, findings: &mut Vec<Finding>) {
    findings.push(kernel(context));
    findings.push(controller(context));
    findings.extend(bbr_version(context));
    findings.push(scope(context));
    // An image has no running kernel.
    findings.extend((!context.facts.scope.image).then(|| ebpf(context)));
}

fn kernel(context: &Context) -> Finding {
    let finding = |verdict, state: String| {
        Finding::new("kernel", Group::Kernel, verdict, state)
            .read("uname -r", &context.facts.identity.release)
            .why(
                "BBR is in Linux since 4.9; only fq paced it until TCP paced by itself in 4.13, by departure \
                 time since 4.20",
                "Linux 4.9 tcp_bbr.c, 4.13 sk_pacing_status, 4.20 earliest departure time in tcp_output.c \
                 and sch_fq.c",
            )
    };
    let Some(version) = context.facts.version else {
        return finding(Verdict::Unknown, "the kernel version is unknown".into());
    };
    if !context.paced() {
        return finding(Verdict::Ok, format!("Linux {version}"));
    }
    let fq = !matches!(context.facts.qdisc("fq"), Presence::Missing(_));
    let new =
        "boot Linux 4.20 or later (in every distribution since 2019): `fullpipe kernel status` shows how";
    match version {
        v if v >= Version(4, 20) => {
            finding(Verdict::Ok, format!("Linux {v}: TCP paces by itself, with or without fq"))
        }
        v if v >= Version(4, 13) => finding(
            Verdict::Warn,
            format!("Linux {v}: without fq, TCP paces with a timer per connection, which costs CPU"),
        )
        .advice("use fq on the sending device, or Linux 4.20 or later"),
        v if v >= Version(4, 9) && fq => finding(Verdict::Warn, format!("Linux {v}: only fq paces bbr"))
            .advice("keep fq on every sending device"),
        v if v >= Version(4, 9) => {
            finding(Verdict::Fail, format!("Linux {v}: only fq paces bbr, and this kernel has no fq"))
                .advice(new)
        }
        v if !matches!(context.facts.controller(&context.question.controller), Presence::Missing(_)) => {
            finding(
                Verdict::Warn,
                format!("Linux {v} is older than BBR, which was added to it; only fq paces bbr"),
            )
            .advice("keep fq on every sending device")
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
                "only a registered controller can be set; the list omits modules that are not loaded yet",
                "Linux tcp_cong.c, tcp_get_available_congestion_control",
            )
    };
    let ebpf = if is_ebpf(wanted) { wanted.as_str() } else { ebpf_twin(wanted).unwrap_or_default() };
    match context.facts.controller(wanted) {
        Presence::Ready(_) => finding(Verdict::Ok, format!("{wanted} is registered")),
        Presence::Loadable(from) => {
            finding(Verdict::Ok, format!("{wanted} is available as a module")).read(from, "present")
        }
        Presence::Unknown if context.facts.scope.image => finding(
            Verdict::Unknown,
            format!("the image has no kernel modules, so it is unknown whether it has {wanted}"),
        )
        .read("/lib/modules", "no modules.dep")
        .advice("install the image's kernel, then run the doctor again"),
        Presence::Unknown => finding(
            Verdict::Unknown,
            format!("{wanted} is not registered, and it is unknown whether its module exists"),
        )
        .advice(match &context.plan {
            Err(error) => error.text().to_owned(),
            Ok(_) => format!(
                "{} tries to load it, and rolls everything back if that fails",
                context.command(format_args!("apply {wanted}"))
            ),
        }),
        Presence::Missing(from) if ebpf.is_empty() => {
            finding(Verdict::Fail, format!("this kernel has no {wanted}"))
                .read(from, "absent")
                .advice(format!("use one of: {}", context.facts.available.join(" ")))
        }
        Presence::Missing(from) => finding(Verdict::Fail, format!("this kernel has no {wanted}"))
            .read(from, "absent")
            .advice(format!(
                "load it as eBPF, without a new kernel or a restart: `fullpipe cc load {ebpf}`, then {}; or \
                 boot a kernel that has it, as {} shows",
                context.command(format_args!("plan {ebpf}")),
                context.command("kernel status")
            )),
    }
}

/// The version of each of the kernel's BBRs: from a new socket with it, from an established one, or
/// from its module.
fn bbr_version(context: &Context) -> Option<Finding> {
    if !context.paced() {
        return None;
    }
    let available = &context.facts.available;
    let mut states = Vec::new();
    let mut read = Vec::new();
    for name in available {
        let Some(version) = context.facts.bbr_version(context.host, name) else { continue };
        let unreported = match &version.evidence {
            Some(_) => "",
            None => ": no socket or module reports a version",
        };
        states.push(format!("the kernel's {name} is {}{unreported}", version.describe()));
        read.push(version.evidence.unwrap_or((format!("/sys/module/tcp_{name}/version"), "absent".into())));
    }
    // Kernels with both have v3 as a module of its own.
    let is_offered = !available.iter().any(|name| name == "bbr3")
        && matches!(context.facts.controller("bbr3"), Presence::Loadable(_));
    if is_offered {
        states.push(format!("bbr3 is available as a module: {}", context.command("plan bbr3")));
    }
    if states.is_empty() {
        return None;
    }
    let finding = Finding::new("bbr-version", Group::Kernel, Verdict::Ok, states.join("; ")).why(
        "the same name is used for v1 in Linux and for v3 in kernels built from Google's branch; some have \
         v3 as bbr3 beside it",
        "struct tcp_bbr_info; google/bbr v3 branch",
    );
    let finding = if is_offered { finding.read("modules.dep", "tcp_bbr3") } else { finding };
    Some(read.into_iter().fold(finding, |finding, (from, value)| finding.read(from, value)))
}

fn scope(context: &Context) -> Finding {
    let scope = &context.facts.scope;
    let finding = |verdict| {
        Finding::new("scope", Group::Kernel, verdict, scope.describe())
            .read(
                "network namespace",
                if scope.initial_network {
                    "initial"
                } else {
                    "not the initial one (net.ipv4.tcp_mem is absent)"
                },
            )
            .read("container", scope.container.as_deref().unwrap_or("none detected"))
            .why(
                "the default controller is per network namespace; the default queueing discipline and the \
                 allowed list are per host",
                "Linux sysctl_net_ipv4.c",
            )
    };
    if scope.read_only {
        return finding(Verdict::Fail).read("/proc/self/mounts", "/proc/sys is read-only").advice(
            "run fullpipe on the host: its settings apply to containers with host networking and to new \
             namespaces",
        );
    }
    if !scope.initial_network {
        return finding(Verdict::Advice).advice(
            "only the controller and buffers can be changed here; run fullpipe on the host for the rest",
        );
    }
    finding(Verdict::Ok)
}

/// The kernel's BTF, which includes type and function names, each terminated by a zero byte.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// The type that registers TCP controllers from BPF, and the function that creates links for them.
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
    // CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
    let may = |bit: u32| capabilities.is_none_or(|all| all & (1 << bit) != 0 || all & (1 << 21) != 0);
    let mut obstacles = Vec::new();
    if !btf {
        obstacles.push("no BTF (CONFIG_DEBUG_INFO_BTF)");
    }
    // By BTF, not by version: distributions backport BPF features.
    let named =
        |wanted: &[u8]| host.read(BTF).map(|names| names.split(|byte| *byte == 0).any(|name| name == wanted));
    if btf && named(STRUCT_OPS_TYPE).is_ok_and(|is_named| !is_named) {
        obstacles.push("no struct_ops for TCP (Linux 5.6)");
    }
    // Links came with Linux 6.4; before that only a trial load shows what works.
    let without_links = named(LINKS).is_ok_and(|is_named| !is_named);
    if jit.as_deref() == Some("0") && !always_on {
        obstacles.push("the BPF JIT is off (net.core.bpf_jit_enable)");
    }
    if locked {
        obstacles.push("kernel lockdown");
    }
    // Relevant only for a controller that the kernel lacks.
    let lacking = matches!(context.facts.controller(&context.question.controller), Presence::Missing(_));
    let permitted = may(39) && may(38);
    let needed =
        if lacking { String::new() } else { format!("not needed for {}; ", context.question.controller) };
    let state = if obstacles.is_empty() && !permitted {
        format!("{needed}checking eBPF controllers needs root (CAP_BPF and CAP_PERFMON)")
    } else if obstacles.is_empty() {
        let pin =
            if bpffs { "" } else { "; no bpffs is mounted, so a controller would not outlive its loader" };
        let which = if without_links {
            "; some may need Linux 6.4: run `fullpipe cc list` as root to see which load"
        } else {
            ""
        };
        format!("eBPF controllers can be loaded{which}{pin}")
    } else {
        format!("{needed}eBPF controllers cannot be loaded: {}", obstacles.join(", "))
    };
    let verdict = match (obstacles.is_empty(), permitted) {
        (true, true) => Verdict::Ok,
        (true, false) => Verdict::Unknown,
        (false, _) => Verdict::Advice,
    };
    let finding = Finding::new("ebpf", Group::Kernel, verdict, state)
        .read(BTF, if btf { "present" } else { "absent" })
        .read(
            "net.core.bpf_jit_enable",
            jit.unwrap_or_else(|| if always_on { "always on".into() } else { "not readable".into() }),
        )
        .read("bpffs", if bpffs { "mounted" } else { "not mounted" })
        .read("lockdown", if lockdown.is_empty() { "none" } else { &lockdown })
        .why(
            "eBPF provides controllers that this kernel lacks (BBR v3, Hybla) without a new kernel or a \
             restart",
            "Linux bpf_tcp_ca.c",
        );
    match (&obstacles[..], bpffs) {
        ([], _) if !permitted => finding.advice("run `fullpipe doctor` as root, or `fullpipe cc list`"),
        ([_, ..], _) if !lacking => finding.advice(
            "nothing, unless you need a controller that this kernel lacks: \
                            docs/reference/kernels.md lists the supported kernels",
        ),
        ([], false) => finding.advice("mount -t bpf -o mode=0700 bpf /sys/fs/bpf"),
        _ => finding,
    }
}

/// The effective capabilities as a bit set.
fn capabilities(status: &str) -> u64 {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|v| u64::from_str_radix(v.trim(), 16).ok()).unwrap_or(0)
}
