//! Random hosts: doctor, plan, apply, verify and status never contradict each other, nor the start
//! of the host from its boot files.
//!
//! `RANDOM_HOSTS=20000` sets their number, `SEED` the first seed.

use crate::support;
use crate::support::manifest::{FileSpec, Kernel, Manifest};
use crate::support::memory::Entry;
use crate::support::{Fake, differences, restart_with_units, snapshot};
use fullpipe_host::apply;
use fullpipe_host::checks::{self, Finding, Question, Report, Verdict};
use fullpipe_host::host::{DelegateFiles, Model, View};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::{self, Change, Request};
use fullpipe_host::revert;
use fullpipe_host::status::{self, Status};
use fullpipe_host::verify::{self, Outcome, Verified};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

const CONTROLLER: &str = "net.ipv4.tcp_congestion_control";
const QDISC: &str = "net.core.default_qdisc";
const PROGRAM: &str = "/usr/bin/fullpipe";

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

struct Dice(Pcg64);

impl Dice {
    fn one_in(&mut self, n: u32) -> bool {
        self.0.next_u32().is_multiple_of(n)
    }

    fn pick(&mut self, from: &[&str]) -> String {
        from[self.0.next_u32() as usize % from.len()].to_owned()
    }

    /// A line of a sysctl file.
    fn line(&mut self) -> String {
        let controllers =
            ["bbr", "bbr", "cubic", "reno", "nosuch", "bbr # fast", "hybla", "$CC", "bbr3", "", "\u{a0}bbr"];
        let disciplines = ["fq", "fq_codel", "cake", "pfifo_fast", "fq # paced", "nosuch", "fq_pie"];
        let (key, value) = match self.0.next_u32() % 8 {
            0..=4 => (CONTROLLER, self.pick(&controllers)),
            5..=6 => (QDISC, self.pick(&disciplines)),
            _ => ("net.ipv4.tcp_ecn", self.pick(&["1", "2", "x", "0 # off"])),
        };
        let key = match self.0.next_u32() % 10 {
            0 => key.replace('.', "/"),
            1 => key.replace("tcp_congestion_control", "tcp_cong*"),
            2 => format!("{key}\u{a0}"),
            3 => format!("-{key}"),
            _ => key.to_owned(),
        };
        match self.0.next_u32() % 12 {
            0 => format!("# {key} = {value}"),
            1 => format!("-{CONTROLLER}"),
            2 => format!("{key} {value}"),
            _ => format!("{key}{}{value}", self.pick(&["=", " = "])),
        }
    }

    fn lines(&mut self) -> String {
        (0..self.0.next_u32() % 4).map(|_| self.line() + "\n").collect()
    }

    fn command(&mut self) -> String {
        let value = self.pick(&["bbr", "cubic", "$CC", "reno"]);
        match self.0.next_u32() % 4 {
            0 => format!("/sbin/sysctl -w {CONTROLLER}={value}"),
            1 => format!("echo {value} > /proc/sys/net/ipv4/tcp_congestion_control"),
            2 => format!("/bin/sh -c 'sleep 1; sysctl -q {CONTROLLER}={value}'"),
            _ => "/sbin/sysctl -p /etc/site.conf".into(),
        }
    }

    /// Something that sets sysctls at boot.
    fn boot_setting(&mut self, manifest: &mut Manifest) {
        let sysctl_files = [
            "/etc/sysctl.conf",
            "/etc/sysctl.d/10-site.conf",
            "/etc/sysctl.d/99-bbr.conf",
            "/etc/sysctl.d/99-zzz-late.conf",
            "/usr/lib/sysctl.d/50-default.conf",
            "/usr/lib/sysctl.d/zz-vendor.conf",
            "/run/sysctl.d/60-run.conf",
        ];
        let scripts = ["/etc/rc.local", "/etc/local.d/cc.start", "/etc/NetworkManager/dispatcher.d/50-cc"];
        let mut put = |path: &str, text: String, mode| {
            manifest.files.insert(
                path.to_owned(),
                FileSpec::Full { text, mode, uid: 0, gid: 0, attributes: Default::default() },
            );
        };
        match self.0.next_u32() % 14 {
            0..=5 => put(&self.pick(&sysctl_files), self.lines(), 0o644),
            6 => put(&self.pick(&scripts), format!("#!/bin/sh\n{}\n", self.command()), 0o755),
            7 => put("/etc/cron.d/cc", format!("@reboot root {}\n", self.command()), 0o644),
            8 => put("/etc/network/interfaces", format!("iface eth0\n post-up {}\n", self.command()), 0o644),
            9 => {
                put(
                    "/etc/systemd/system/cc.service",
                    format!("[Service]\nExecStart={}\n", self.command()),
                    0o644,
                );
                manifest.links.insert(
                    "/etc/systemd/system/multi-user.target.wants/cc.service".into(),
                    "/etc/systemd/system/cc.service".into(),
                );
            }
            10 => {
                put("/etc/tuned/active_profile", "site\n".into(), 0o644);
                let value = self.pick(&["bbr", "cubic", "${cc}", "${f:exec:cc}"]);
                put(
                    "/etc/tuned/site/tuned.conf",
                    format!("[variables]\ncc=cubic\n[sysctl]\n{CONTROLLER}={value}\n"),
                    0o644,
                );
                let again = self.pick(&["0", "1"]);
                put("/etc/tuned/tuned-main.conf", format!("reapply_sysctl = {again}\n"), 0o644);
                manifest.links.insert(
                    "/etc/systemd/system/multi-user.target.wants/tuned.service".into(),
                    "/usr/lib/systemd/system/tuned.service".into(),
                );
            }
            11 => {
                put("/etc/ufw/ufw.conf", "ENABLED=yes\n".into(), 0o644);
                put("/etc/ufw/sysctl.conf", self.lines(), 0o644);
            }
            12 => put(
                "/proc/cmdline",
                format!("ro sysctl.{CONTROLLER}={}\n", self.pick(&["bbr", "reno"])),
                0o444,
            ),
            _ => put("/etc/site.conf", self.lines(), 0o644),
        }
    }

    fn manifest(&mut self) -> Manifest {
        let mut kernel = Kernel::default();
        let releases =
            ["2.6.32", "3.10.0", "4.4.0", "4.9.0", "4.12.0", "4.15.0", "5.10.0", "6.1.0", "6.18.0"];
        if self.one_in(2) {
            kernel.release = self.pick(&releases);
        }
        let available = ["reno", "reno cubic", "reno cubic", "reno cubic bbr", "cubic reno bbr fp_bbr3"];
        kernel.available = self.pick(&available);
        if kernel.available == "reno" {
            for name in [CONTROLLER, "net.ipv4.tcp_allowed_congestion_control"] {
                kernel.sysctls.insert(name.into(), "reno".into());
            }
        }
        kernel.default_qdisc = self.pick(&["pfifo_fast", "fq_codel", "fq"]);
        let modules: [&[&str]; 6] = [
            &["tcp_bbr", "sch_fq"],
            &["tcp_bbr", "sch_fq"],
            &["tcp_bbr", "sch_fq", "tcp_hybla", "sch_cake", "sch_fq_pie"],
            &["sch_fq"],
            &["tcp_bbr"],
            &[],
        ];
        let modules = modules[self.0.next_u32() as usize % modules.len()];
        kernel.modules = modules.iter().map(|name| (*name).to_owned()).collect();
        if self.one_in(10) {
            kernel.refusing = kernel.modules.clone();
            kernel.modules.clear();
        }
        kernel.btf = self.one_in(2);
        kernel.initial_network = !self.one_in(6);
        kernel.devices = [("lo".to_owned(), 0), ("eth0".to_owned(), 1 + self.0.next_u32() % 3)].into();
        if self.one_in(4) {
            kernel.sysctls.insert("net.ipv4.ip_forward".into(), "1".into());
        }
        if self.one_in(12) {
            kernel.sysctls.insert("kernel.modules_disabled".into(), "1".into());
        }
        if self.one_in(3) {
            let option = self.pick(&["y", "m", "n"]);
            kernel.config = format!("CONFIG_TCP_CONG_BBR={option}\nCONFIG_NET_SCH_FQ=m\n");
            if self.one_in(2) {
                kernel.config += "CONFIG_DEFAULT_TCP_CONG=\"cubic\"\n";
            }
        }
        let mut manifest = Manifest {
            about: String::new(),
            init: self.pick(&["systemd", "systemd", "systemd", "openrc", "none"]),
            kernel,
            files: BTreeMap::new(),
            links: BTreeMap::new(),
            live: BTreeMap::new(),
            sockets: Vec::new(),
            expect: Vec::new(),
        };
        let mut put = |path: &str, text: &str| {
            manifest.files.insert(path.to_owned(), FileSpec::Text(text.to_owned()));
        };
        let id = self.pick(&["debian", "alpine", "openwrt", "nixos", "void", "fedora", "flatcar"]);
        if self.one_in(2) {
            put("/etc/os-release", &format!("ID={id}\n"));
        }
        if manifest.init == "openrc" && self.one_in(3) {
            put("/proc/1/comm", &(self.pick(&["procd", "runit", "busybox", "dinit"]) + "\n"));
        }
        if self.one_in(16) {
            put("/proc/1/environ", "KUBERNETES_SERVICE_HOST=10.0.0.1\0");
        }
        if self.one_in(24) {
            put("/proc/self/mounts", "proc /proc/sys proc ro,nosuid 0 0\n");
        }
        if self.one_in(12) {
            put(
                "/etc/modprobe.d/hard.conf",
                &self.pick(&["install tcp_bbr /bin/false\n", "blacklist tcp_bbr\n"]),
            );
        }
        if self.one_in(16) {
            put("/proc/cmdline", "ro module_blacklist=tcp_bbr\n");
        }
        if self.one_in(8) {
            old_default(&mut manifest);
        }
        for _ in 0..self.0.next_u32() % 4 {
            self.boot_setting(&mut manifest);
        }
        manifest
    }
}

/// A boot loader whose default is an older kernel without bbr.
fn old_default(manifest: &mut Manifest) {
    let running = manifest.kernel.release.clone();
    let mut menu = "set default=\"${saved_entry}\"\n".to_owned();
    let mut put = |path: String, text: &str| {
        manifest.files.insert(path, FileSpec::Text(text.to_owned()));
    };
    put("/lib/modules/3.10.0-1/modules.dep".into(), "kernel/net/ipv4/tcp_hybla.ko:\n");
    for release in [running.as_str(), "3.10.0-1"] {
        put(format!("/boot/vmlinuz-{release}"), "x");
        menu += &format!("menuentry 'Linux {release}' {{\n linux /vmlinuz-{release} root=/dev/sda1\n}}\n");
    }
    put("/boot/grub2/grub.cfg".into(), &menu);
    put("/boot/grub2/grubenv".into(), "# GRUB Environment Block\nsaved_entry=Linux 3.10.0-1\n");
}

/// The default controller after the host is started from its files.
fn after_a_start(host: &Fake, pristine: &BTreeMap<String, Entry>) -> Option<String> {
    let twin = Model::new(host.files().copy());
    restart_with_units(&twin, pristine);
    twin.sysctl(CONTROLLER)
}

struct Case<'a> {
    host: &'a Fake,
    pristine: &'a BTreeMap<String, Entry>,
    request: &'a Request,
    wrong: Vec<String>,
    stage: &'static str,
}

impl Case<'_> {
    fn check(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(format!("{}: {}", self.stage, text()));
        }
    }

    fn report(&self) -> Report {
        checks::examine(self.host, &Question { controller: self.request.controller.clone(), path: None })
    }

    fn verified(&self) -> Verified {
        verify::verify(self.host, &store(), verify::Question::default()).unwrap()
    }

    fn status(&self) -> Status {
        status::status(self.host, &store()).unwrap()
    }

    /// Doctor against plan, and both against a start of the host.
    fn compare_doctor(&mut self) -> Report {
        let report = self.report();
        let made = plan::make(self.host, self.request, PROGRAM);
        let offers = |text: &str| text.contains("makes them") || text.contains("shows how to");
        match &made {
            Err(error) => {
                self.check(!offers(&report.next), || format!("plan: {error}; doctor: {}", report.next));
                for finding in &report.findings {
                    let advice = finding.advice.as_deref().unwrap_or_default();
                    let is_kernel = finding.id == "kernel";
                    self.check(is_kernel || !offers(advice), || {
                        format!("plan: {error}; {}: {advice}", finding.id)
                    });
                }
                self.check(!report.next.contains("nothing to do"), || {
                    format!("plan: {error}; {}", report.next)
                });
            }
            Ok(plan) => {
                let obstacle = report.obstacle().map(|finding| finding.state.clone());
                self.check(obstacle.is_none(), || format!("plan is possible; doctor: {obstacle:?}"));
                self.check(!(plan.is_empty() && offers(&report.next)), || {
                    format!("plan has no steps; doctor: {}", report.next)
                });
                let is_done = report.next.contains("nothing to do");
                let steps: Vec<String> = plan.steps.iter().map(|step| step.change.title()).collect();
                let sets = plan.steps.iter().any(|step| match &step.change {
                    Change::Sysctl { name, .. } => name == CONTROLLER,
                    Change::File { path, .. } => path.contains("sysctl"),
                    _ => false,
                });
                self.check(!(is_done && sets), || format!("doctor: {}; plan: {steps:?}", report.next));
            }
        }
        for finding in &report.findings {
            let is_helped = finding.advice.is_some() || finding.id == "boot-qdisc";
            self.check(is_helped || finding.verdict > Verdict::Warn, || format!("no advice: {finding:?}"));
        }
        self.compare_boot(&report);
        report
    }

    /// Whether the model starts as the host's files promise: with the same kernel, and with modules
    /// that load unless they are absent.
    fn starts_as_known(&self) -> bool {
        let kernel = support::kernel(self.host);
        let blocks = |path: &str, word: &str| self.host.text(path).is_some_and(|text| text.contains(word));
        !self.host.exists("/boot/grub2/grubenv")
            && kernel.refusing.is_empty()
            && !kernel.loadable.is_empty()
            && !blocks("/etc/modprobe.d/hard.conf", "install")
            && !blocks("/proc/cmdline", "module_blacklist")
    }

    /// The default after a start, as the doctor reports it.
    fn compare_boot(&mut self, report: &Report) {
        if !self.starts_as_known() {
            return;
        }
        let Some(finding) = report.findings.iter().find(|finding| finding.id == "boot-value") else { return };
        let Some(after) = stated(finding) else { return };
        let real = after_a_start(self.host, self.pristine);
        self.check(real.as_deref() == Some(after.as_str()), || format!("{}; really {real:?}", finding.state));
    }

    /// Verify against status, doctor and a start of the host.
    /// An apply that had nothing to write for the next boot is consistent also where that brings
    /// another default.
    fn compare_verify(&mut self, report: &Report, lasting: bool) -> Outcome {
        let (verified, status) = (self.verified(), self.status());
        let worst = verified.worst();
        let holds = worst >= Outcome::Skipped;
        let is_now =
            verified.checks.iter().all(|check| check.id == "boot" || check.outcome >= Outcome::Skipped);
        self.check(holds == status.consistent || !lasting && is_now, || {
            format!("verify: {:?}; status: {} {:?}", verified.checks, status.summary, status.drift)
        });
        let boot = verified.checks.iter().find(|check| check.id == "boot").unwrap();
        let finding = report.findings.iter().find(|finding| finding.id == "boot-value");
        let wanted = verified.controller.clone().unwrap_or_default();
        let is_own = wanted == self.request.controller;
        if boot.outcome == Outcome::Passed && is_own && self.starts_as_known() {
            let real = after_a_start(self.host, self.pristine);
            self.check(real.as_deref() == Some(wanted.as_str()), || {
                format!("{}; really {real:?}", boot.observed)
            });
            let says = finding.map(|finding| (finding.verdict, finding.state.clone()));
            let agrees = |says: &(Verdict, String)| {
                says.0 == Verdict::Ok
                    || says.0 != Verdict::Unknown
                        && says.1.starts_with(&format!("after a restart the default is {wanted} "))
            };
            self.check(says.as_ref().is_none_or(agrees), || {
                format!("verify: {}; doctor: {says:?}", boot.observed)
            });
        }
        if let Some(finding) = finding.filter(|finding| finding.verdict == Verdict::Ok && is_own) {
            let is_builtin = finding.state.contains("built-in default");
            self.check(boot.outcome == Outcome::Passed || !boot.wrong.is_empty() || is_builtin, || {
                format!("doctor: {}; verify: {boot:?}", finding.state)
            });
        }
        boot.outcome
    }
}

/// The controller in "after a restart the default is …".
fn stated(finding: &Finding) -> Option<String> {
    if [Verdict::Unknown, Verdict::Fail].contains(&finding.verdict) {
        return None;
    }
    let (_, rest) = finding.state.split_once("after a restart the default is ")?;
    Some(rest.split([' ', ',']).next()?.to_owned())
}

/// What contradicts on the host of a seed.
fn contradictions(seed: u64) -> (Vec<String>, [usize; 3]) {
    let mut dice = Dice(Pcg64::seed_from_u64(seed));
    let manifest = dice.manifest();
    let (host, pristine) = manifest.host();
    let controller = dice.pick(&["bbr", "bbr", "bbr", "bbr", "cubic", "reno", "hybla", "fp_bbr3"]);
    let request = Request::new(&controller);
    let original = snapshot(&host);
    let mut case =
        Case { host: &host, pristine: &pristine, request: &request, wrong: Vec::new(), stage: "before" };
    let mut counts = [0; 3];
    case.compare_doctor();
    case.check(case.verified().worst() == Outcome::Failed, || "verify passes without an apply".into());
    let made = plan::make(&host, &request, PROGRAM);
    let planned_lasting = made.as_ref().is_ok_and(|plan| {
        // Without systemd nothing loads an eBPF controller, and the plan notes it.
        let sets = |path: &str| !controller.starts_with("fp_") || path.ends_with(".service");
        plan.steps.iter().any(|step| matches!(&step.change, Change::File { path, .. } if sets(path)))
    });
    case.stage = "apply";
    match apply::apply(&host, &store(), &request, &apply::Options::default()) {
        Err(error) => {
            // The model refuses what a list of modules promised: then nothing may be left.
            let is_refused = !manifest.kernel.refusing.is_empty() || manifest.kernel.modules.is_empty();
            let is_missing = error.text().contains("not found");
            case.check(made.is_err() || is_refused || is_missing, || format!("plan was possible: {error}"));
            let after = snapshot(&host);
            case.check(after == original, || format!("not as it was: {}", differences(&original, &after)));
        }
        Ok(_) => {
            counts[0] += 1;
            case.check(made.is_ok(), || format!("plan refused: {made:?}"));
            case.stage = "applied";
            let report = case.compare_doctor();
            if store().load(&host).unwrap().is_some() {
                counts[1] += 1;
                let boot = case.compare_verify(&report, planned_lasting);
                let checks = case.verified().checks;
                case.check(boot != Outcome::Failed || !planned_lasting, || {
                    format!("planned for the next boot, then {checks:?}")
                });
                // Another change by a stranger, after which all must still agree.
                case.stage = "changed";
                let mut stranger = Manifest { files: BTreeMap::new(), links: BTreeMap::new(), ..manifest };
                dice.boot_setting(&mut stranger);
                if dice.one_in(6) {
                    old_default(&mut stranger);
                }
                let before = host.files().copy();
                for (path, spec) in &stranger.files {
                    let mode = if let FileSpec::Full { mode, .. } = spec { *mode } else { 0o644 };
                    before.put(path, spec.text().as_bytes(), mode);
                }
                for (path, target) in &stranger.links {
                    before.put_link(path, target);
                }
                let other = Model::new(before);
                let mut pristine = pristine.clone();
                pristine.retain(|path, _| path != "/proc/cmdline");
                if let Ok(text) = other.read("/proc/cmdline") {
                    let fresh = other.files().volatile_entries();
                    assert!(!text.is_empty());
                    pristine.extend(fresh.into_iter().filter(|(path, _)| path == "/proc/cmdline"));
                }
                let mut changed = Case {
                    host: &other,
                    pristine: &pristine,
                    request: &request,
                    wrong: Vec::new(),
                    stage: "changed",
                };
                let report = changed.compare_doctor();
                counts[2] += usize::from(changed.compare_verify(&report, planned_lasting) == Outcome::Passed);
                case.wrong.append(&mut changed.wrong);
                case.stage = "reverted";
                let reverted = revert::revert(&host, &store(), &revert::Options::default());
                case.check(reverted.is_ok(), || format!("{reverted:?}"));
            }
            let after = snapshot(&host);
            case.check(after == original, || format!("not as it was: {}", differences(&original, &after)));
        }
    }
    (case.wrong, counts)
}

#[test]
fn commands_do_not_contradict_each_other_on_random_hosts() {
    let number =
        |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse::<u64>().unwrap());
    let (hosts, first) = (number("RANDOM_HOSTS", 300), number("SEED", 1));
    let mut found = Vec::new();
    let mut counts = [0; 3];
    for seed in first..first + hosts {
        let (wrong, new) = contradictions(seed);
        if hosts == 1 {
            println!("{:#?}", Dice(Pcg64::seed_from_u64(seed)).manifest());
        }
        found.extend(wrong.into_iter().map(|text| format!("SEED={seed} {text}")));
        for (all, new) in counts.iter_mut().zip(new) {
            *all += new;
        }
    }
    let shown: Vec<&String> = found.iter().take(number("SHOWN", 8) as usize).collect();
    assert!(found.is_empty(), "{} contradictions, of which the first:\n{shown:#?}", found.len());
    println!(
        "{hosts} random hosts: no contradiction; {} applies succeeded, {} with changes; of those {} kept the \
         next boot after another change",
        counts[0], counts[1], counts[2]
    );
}
