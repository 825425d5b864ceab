//! Settings after a restart.

use super::{Context, Finding, Group, Verdict};
use crate::boot::{self, Assignment};
use crate::facts::{Presence, System};
use crate::plan::{Change, boot_files::MODULES_FILE};

pub(super) fn check(context: &Context, findings: &mut Vec<Finding>) {
    if context.facts.scope.wsl {
        findings.push(
            Finding::new("boot-value", Group::Boot, Verdict::Warn, "no program reads boot files here")
                .read("/proc/1/comm", context.host.text("/proc/1/comm").unwrap_or_default())
                .why("WSL's own init reads no sysctl files", "wsl.conf(5), WSL documentation")
                .advice(wsl_advice(&context.question.controller)),
        );
    }
    if !context.facts.scope.boots {
        return;
    }
    findings.push(controller(context));
    findings.extend(qdisc(context));
    findings.extend(module(context));
}

/// The ways to a default at the start of WSL.
fn wsl_advice(controller: &str) -> String {
    let snippet = System::Wsl.snippet(controller, None);
    format!(
        "{}\n  or set `systemd=true` under `[boot]` there; or add `kernelCommandLine = \
         sysctl.net.ipv4.tcp_congestion_control={controller}` under `[wsl2]` in .wslconfig",
        snippet.map(|snippet| snippet.describe()).unwrap_or_default()
    )
}

/// The last line, and the last one whose value the kernel accepts.
fn deciding(context: &Context, key: &str) -> (Option<Assignment>, Option<Assignment>) {
    let accepts = |key: &str, value: &str| context.facts.accepts_at_boot(context.host, key, value);
    let last = boot::winner(context.host, &context.programs, key, &|_, _| true);
    (last, boot::winner(context.host, &context.programs, key, &accepts))
}

const WHY: &str = "the last file name wins across the sysctl directories, and UFW and tuned run later: \
                   99-sysctl.conf overrides 99-bbr.conf";
const SOURCE: &str = "sysctl.d(5), systemd-sysctl(8), sysctl(8)";

fn controller(context: &Context) -> Finding {
    const KEY: &str = "net.ipv4.tcp_congestion_control";
    let wanted = &context.question.controller;
    let takes = |value: &str| !matches!(context.facts.controller_at_boot(value), Presence::Missing(_));
    let (last, decides) = deciding(context, KEY);
    let writes = |change: &Change| matches!(change, Change::File { .. });
    let disable = context.planned("disable the line", writes);
    let permanent = context.planned("make it permanent", writes).or_else(|| {
        let plan = context.command(format_args!("plan {wanted}"));
        Some(format!("no change of {plan} makes it permanent here"))
    });
    let finding = |verdict, state: String| {
        let finding = Finding::new("boot-value", Group::Boot, verdict, state).why(WHY, SOURCE);
        match (&last, &decides) {
            (Some(l), _) => finding.read(l.place(), format!("{KEY} = {} (by {})", l.value, l.program.name())),
            _ => finding.read("sysctl files", "none sets the controller"),
        }
    };
    if let Some(text) = context.host.unread().first() {
        return finding(Verdict::Unknown, format!("{text}, so that not all boot files were read"));
    }
    let obstacle = context.facts.obstacle_at_boot(wanted);
    let is_available = matches!(context.facts.controller(wanted), Presence::Ready(_) | Presence::Loadable(_));
    if let Some(obstacle) = obstacle.filter(|_| is_available) {
        return finding(Verdict::Fail, obstacle).advice(format!(
            "{} lists the kernels: make one with {wanted} the boot loader's default",
            context.command("kernel status")
        ));
    }
    let odd = boot::odd_blanks(context.host, KEY);
    if !odd.is_empty() && decides.as_ref().is_none_or(|line| line.value != *wanted) {
        let state = format!("{} sets nothing: non-ASCII blanks around the key", odd.join(", "));
        return finding(Verdict::Warn, state).advice("replace these blanks by ordinary ones");
    }
    if let Some(line) = last.as_ref().filter(|l| l.is_unresolved()) {
        let state = format!("{} sets `{}`, which is computed at boot", line.place(), line.value);
        return finding(Verdict::Unknown, state).advice(format!("check {}", line.place()));
    }
    if let Some(line) = last.as_ref().filter(|l| !takes(&l.value)) {
        let state =
            format!("{} sets `{}` at boot, which the kernel rejects silently", line.place(), line.value);
        if let Some(decides) = decides.as_ref().filter(|decides| decides.value == *wanted) {
            let state = format!(
                "after a restart the default is {wanted} ({}), since the kernel rejects `{}` of {}",
                decides.place(),
                line.value,
                line.place()
            );
            return finding(Verdict::Advice, state).advising(disable);
        }
        let comment = line.value.contains(['#', ';']);
        let advice = disable.unwrap_or_else(|| format!("correct or remove {}", line.place()));
        return finding(Verdict::Warn, state).advice(if comment {
            format!("a comment cannot follow a value: {advice}")
        } else {
            advice
        });
    }
    let accepts = |key: &str, value: &str| context.facts.accepts_at_boot(context.host, key, value);
    let stops = || boot::stops(context.host, &accepts).into_iter();
    let is_wanted = decides.as_ref().is_some_and(|line| line.value == *wanted);
    if let Some(line) = last.as_ref().filter(|line| !is_wanted && decides.as_ref() != Some(line))
        && let Some(stop) = stops().find(|stop| stop.file == line.file && stop.line < line.line)
    {
        let state = format!(
            "{} is not read: busybox' sysctl stops at {}, whose value `{}` the kernel rejects; the default \
             after a restart is {}",
            line.place(),
            stop.place(),
            stop.value,
            decides.as_ref().map_or("the kernel's own", |line| &line.value)
        );
        return finding(Verdict::Warn, state).advice(format!("correct or remove {}", stop.place()));
    }
    let live = context.facts.default.as_deref();
    let own = built_in(context);
    let by = decides
        .as_ref()
        .map_or_else(|| "the kernel's built-in default, as no file sets one".to_owned(), Assignment::place);
    let after = decides.as_ref().map_or(own, |d| d.value.clone());
    if decides.is_some() && context.facts.controller_at_boot(&after) == Presence::Unknown {
        let state =
            format!("after a restart the default is {after} ({by}), if the kernel has it, which is unknown");
        return finding(Verdict::Unknown, state);
    }
    match live {
        _ if after == *wanted => {
            finding(Verdict::Ok, format!("after a restart the default is {after} ({by})"))
        }
        Some(live) if live == wanted => {
            finding(Verdict::Warn, format!("now {live}, but after a restart {after} ({by})"))
                .advising(permanent)
        }
        Some(live) if live == after => {
            finding(Verdict::Advice, format!("after a restart the default is {after} ({by}), as it is now"))
                .advising(permanent)
        }
        _ => finding(Verdict::Warn, format!("after a restart the default is {after} ({by})"))
            .advising(permanent),
    }
}

/// The default that the kernel chooses itself. Linux and all distributions build cubic in, unless the
/// configuration says otherwise; what is not registered is not the default, and reno always is
/// registered.
fn built_in(context: &Context) -> String {
    let facts = context.facts;
    let registered = |name: &str| facts.available.is_empty() || facts.available.iter().any(|c| c == name);
    let is_possible =
        |name: &str| registered(name) || matches!(facts.controller(name), Presence::Loadable(_));
    let configured =
        facts.config.as_ref().map(|c| c.get("CONFIG_DEFAULT_TCP_CONG").trim_matches('"').to_owned());
    configured
        .filter(|name| !name.is_empty() && name != "n" && is_possible(name))
        .unwrap_or_else(|| if registered("cubic") { "cubic" } else { "reno" }.to_owned())
}

fn qdisc(context: &Context) -> Option<Finding> {
    const KEY: &str = "net.core.default_qdisc";
    let takes = |value: &str| !matches!(context.facts.qdisc(value), Presence::Missing(_));
    let (last, decides) = deciding(context, KEY);
    let live = context.facts.default_qdisc.clone();
    if last.is_none() && live.is_none() {
        return None;
    }
    let finding = |verdict, state: String| {
        let finding = Finding::new("boot-qdisc", Group::Boot, verdict, state).why(
            "net.core.default_qdisc applies to devices that come up later, which at boot is all of them",
            "Documentation/admin-guide/sysctl/net.rst",
        );
        match &last {
            Some(l) => finding.read(l.place(), format!("{KEY} = {}", l.value)),
            None => finding.read("sysctl files", "none sets it"),
        }
    };
    if let Some(line) = last.as_ref().filter(|l| !takes(&l.value)) {
        return Some(
            finding(
                Verdict::Warn,
                format!("{} sets `{}` at boot, which this kernel does not have", line.place(), line.value),
            )
            .advice(if line.value.contains(['#', ';']) {
                format!("a comment cannot follow a value: correct {}", line.place())
            } else {
                format!("correct or remove {}", line.place())
            }),
        );
    }
    Some(match (decides, live) {
        (Some(d), Some(live)) if d.value != live => {
            finding(Verdict::Warn, format!("{live} now, {} after a restart ({})", d.value, d.place()))
        }
        (Some(d), _) => {
            finding(Verdict::Ok, format!("devices that come up at boot get {} ({})", d.value, d.place()))
        }
        (None, Some(live)) => finding(Verdict::Ok, format!("no file sets it; it is {live} now")),
        (None, None) => finding(Verdict::Ok, "no file sets it".into()),
    })
}

fn module(context: &Context) -> Option<Finding> {
    let wanted = &context.question.controller;
    let name = format!("tcp_{wanted}");
    if !context.facts.modules.is_module(&name) {
        return None;
    }
    let disabled = context.host.sysctl("kernel.modules_disabled").as_deref() == Some("1");
    let listed = boot::modules_at_boot(context.host).into_iter().find(|m| m.module == name);
    let skipped = context.facts.modprobe.skipped_at_boot(&name);
    let named = listed.as_ref().filter(|_| skipped.is_none());
    let finding = |verdict, state: String| {
        Finding::new("module-at-boot", Group::Boot, verdict, state)
            .read(
                "modules-load.d",
                match (&listed, skipped) {
                    (None, _) => "not listed".to_owned(),
                    (Some(m), None) => format!("{}:{}", m.file, m.line),
                    (Some(m), Some(place)) => format!("{}:{}, skipped ({place})", m.file, m.line),
                },
            )
            .why(
                "setting the sysctl loads the module, unless module loading is disabled by then",
                "modules-load.d(5); Linux tcp_cong.c, request_module",
            )
    };
    Some(match (named, disabled) {
        (Some(m), _) => finding(Verdict::Ok, format!("{name} is loaded at boot ({})", m.file)),
        (None, true) => finding(
            Verdict::Warn,
            format!(
                "{name} is a module that is not loaded early, and loading is \
                disabled later (kernel.modules_disabled)"
            ),
        )
        .advice(
            context
                .planned(
                    "list it in modules-load.d",
                    |change| matches!(change, Change::File { path, .. } if path == MODULES_FILE),
                )
                .filter(|_| skipped.is_none())
                .unwrap_or_else(|| match skipped {
                    Some(place) => format!("remove {place}"),
                    None => format!("list {name} in {MODULES_FILE}"),
                }),
        ),
        (None, false) => finding(Verdict::Ok, format!("{name} is loaded when the sysctl is set")),
    })
}
