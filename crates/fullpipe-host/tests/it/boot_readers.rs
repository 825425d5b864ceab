//! Which program sets a sysctl at the next boot, on small models of hosts: `verify` confirms only
//! what is known.

use fullpipe_host::checks::{self, Question, Verdict};
use fullpipe_host::host::{Directory, Model};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::{self, Request};
use fullpipe_host::verify::{self, Outcome};
use fullpipe_host::{Error, apply, destinations, kernel, status};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

const RELEASE: &str = "6.1.0";
const CONTROLLER: &str = "net.ipv4.tcp_congestion_control";

struct Host {
    root: tempfile::TempDir,
}

impl Host {
    /// A host with systemd, cubic as the default and bbr as a module.
    fn new() -> Host {
        let host = Host { root: tempfile::tempdir().unwrap() };
        host.kernel(RELEASE, &["tcp_bbr", "sch_fq"], "");
        host.write(
            &format!("lib/modules/{RELEASE}/modules.dep"),
            "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n",
        );
        host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic");
        host.sysctl("net.ipv4.tcp_allowed_congestion_control", "reno cubic");
        host.sysctl(CONTROLLER, "cubic");
        host.sysctl("net.ipv4.tcp_mem", "188319\t251094\t376638");
        host.sysctl("net.core.default_qdisc", "fq_codel");
        host.write("proc/1/comm", "systemd\n");
        host.write("usr/lib/systemd/systemd-sysctl", "");
        for directory in ["etc/sysctl.d", "etc/modules-load.d", "etc/systemd/system", "run", "sys/module"] {
            fs::create_dir_all(host.root.path().join(directory)).unwrap();
        }
        fs::create_dir_all(host.root.path().join("var/lib")).unwrap();
        host
    }

    /// An image of a host without systemd.
    fn image() -> Host {
        let host = Host::new();
        for part in ["kernel.json", "proc", "sys", "usr/lib/systemd"] {
            let path = host.root.path().join(part);
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        host
    }

    /// Another running kernel.
    fn kernel(&self, release: &str, loadable: &[&str], refusing: &str) {
        let refusing: Vec<&str> = refusing.split_ascii_whitespace().collect();
        self.write(
            "kernel.json",
            &format!(
                r#"{{"release": "{release}", "loadable": {loadable:?}, "refusing": {refusing:?},
                "qdisc_kinds": ["fq_codel"], "devices": {{"eth0": 1}},
                "qdiscs": [{{"device": "eth0", "kind": "fq_codel", "handle": 0, "parent": 4294967295}}]}}"#
            ),
        );
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn sysctl(&self, name: &str, value: &str) {
        self.write(&format!("proc/sys/{}", name.replace('.', "/")), &format!("{value}\n"));
    }

    /// Enables a unit with these lines.
    fn unit(&self, name: &str, lines: &str) {
        self.write(&format!("etc/systemd/system/{name}"), &format!("[Service]\n{lines}\n"));
        self.enable(name);
    }

    fn enable(&self, name: &str) {
        let wants = self.root.path().join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        symlink(format!("/etc/systemd/system/{name}"), wants.join(name)).unwrap();
    }

    fn profile(&self, active: &str, profiles: &[(&str, &str)]) {
        self.write("etc/tuned/active_profile", &format!("{active}\n"));
        self.write("etc/tuned/tuned-main.conf", "reapply_sysctl = 0\n");
        for (name, text) in profiles {
            self.write(&format!("etc/tuned/{name}/tuned.conf"), text);
        }
        self.unit("tuned.service", "ExecStart=/usr/sbin/tuned");
    }

    fn model(&self) -> Model<Directory> {
        Model::new(Directory::new(self.root.path()))
    }

    fn store() -> Store {
        Store::at("/var/lib/fullpipe")
    }

    fn apply(&self) -> Result<(), Error> {
        let options = apply::Options::default();
        apply::apply(&self.model(), &Host::store(), &Request::new("bbr"), &options).map(drop)
    }

    /// Applies, and expects that a file with this text then overrides the next boot at `place`.
    fn overridden(&self, path: &str, text: &str, place: &str) {
        self.apply().unwrap();
        assert_eq!(self.next_boot().0, Outcome::Passed);
        self.write(path, text);
        fs::set_permissions(self.root.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
        let (outcome, seen) = self.next_boot();
        assert!(outcome == Outcome::Failed && seen.contains(place), "{text}: {seen}");
    }

    /// Outcome and text of verify's check of the next boot.
    fn next_boot(&self) -> (Outcome, String) {
        let verified = verify::verify(&self.model(), &Host::store(), verify::Question::default()).unwrap();
        let check = verified.checks.into_iter().find(|check| check.id == "boot").unwrap();
        (check.outcome, check.observed)
    }

    fn finding(&self, id: &str) -> Option<checks::Finding> {
        let question = Question { controller: "bbr".into(), path: None };
        checks::examine(&self.model(), &question).findings.into_iter().find(|finding| finding.id == id)
    }

    fn plan(&self) -> plan::Plan {
        plan::make(&self.model(), &Request::new("bbr"), "/usr/bin/fullpipe").unwrap()
    }

    /// Without systemd, with the process that runs as the first one.
    fn with_init(self, init: &str) -> Host {
        fs::remove_file(self.root.path().join("usr/lib/systemd/systemd-sysctl")).unwrap();
        self.write("proc/1/comm", &format!("{init}\n"));
        self
    }

    /// Without lists of modules: what the kernel has besides registered controllers is unknown.
    fn without_modules(self) -> Host {
        fs::remove_dir_all(self.root.path().join("lib/modules")).unwrap();
        self
    }

    fn refused(&self) -> String {
        plan::make(&self.model(), &Request::new("bbr"), "/usr/bin/fullpipe").unwrap_err().to_string()
    }
}

#[test]
fn a_line_with_non_ascii_blanks_sets_nothing() {
    let host = Host::new();
    host.write("etc/sysctl.d/50-pasted.conf", &format!("{CONTROLLER}\u{a0}=\u{a0}bbr\n"));
    let finding = host.finding("boot-value").unwrap();
    assert!(finding.verdict == Verdict::Warn && finding.state.contains("50-pasted.conf:1"), "{finding:?}");
    host.apply().unwrap();
    assert!(host.root.path().join("etc/sysctl.d/99-zz-fullpipe.conf").exists(), "its own line is written");
    assert_eq!(host.next_boot().0, Outcome::Passed);
}

#[test]
fn every_active_profile_of_tuned_counts() {
    let quiet = ("quiet", "[main]\nsummary=q\n");
    let net = ("net", "[sysctl]\nnet.ipv4.tcp_congestion_control=cubic\n");
    let host = Host::new();
    host.profile("net quiet", &[quiet, net]);
    assert!(host.refused().contains("/etc/tuned/net/tuned.conf"), "{}", host.refused());
    let later = Host::new();
    later.apply().unwrap();
    later.profile("net quiet", &[quiet, net]);
    let (outcome, text) = later.next_boot();
    assert!(outcome == Outcome::Failed && text.contains("cubic"), "{text}");
    assert!(!status::status(&later.model(), &Host::store()).unwrap().consistent);
}

#[test]
fn variables_of_tuned_are_resolved_and_functions_are_not() {
    let host = Host::new();
    let text = "[variables]\ncc=cubic\n[sysctl]\nnet.ipv4.tcp_congestion_control=\"${cc}\"\n";
    host.profile("site", &[("site", text)]);
    let finding = host.finding("boot-value").unwrap();
    assert!(finding.state.contains("cubic (/etc/tuned/site/tuned.conf:4)"), "{finding:?}");
    let other = Host::new();
    other.apply().unwrap();
    other.profile("site", &[("site", "[sysctl]\nnet.ipv4.tcp_congestion_control=${f:exec:cc}\n")]);
    let (outcome, text) = other.next_boot();
    assert!(outcome == Outcome::Unknown && text.contains("may override"), "{text}");
    assert!(!status::status(&other.model(), &Host::store()).unwrap().consistent);
}

#[test]
fn an_enabled_unit_that_sets_the_controller_is_found() {
    for line in [
        "ExecStart=/sbin/sysctl -w net.core.default_qdisc=fq net.ipv4.tcp_congestion_control=cubic",
        "ExecStartPost=-/bin/sh -c 'sleep 1; sysctl -q net.ipv4.tcp_congestion_control=cubic'",
        "ExecStart=/usr/sbin/sysctl -p /etc/site.conf",
    ] {
        let host = Host::new();
        host.write("etc/site.conf", "net.ipv4.tcp_congestion_control = cubic\n");
        host.enable("force-cc.service");
        let unit = format!("[Service]\n{line}\n");
        host.overridden("etc/systemd/system/force-cc.service", &unit, "force-cc.service:2");
    }
    let host = Host::new();
    host.unit("cc.service", "ExecStart=/bin/sh -c 'sysctl -w net.ipv4.tcp_congestion_control=$CC'");
    assert!(host.refused().contains("cc.service:2"), "{}", host.refused());
}

/// Settings after the readers: each is found with its file and line.
#[test]
fn commands_at_boot_are_found() {
    const SET: &str = "sysctl -w net.ipv4.tcp_congestion_control=cubic";
    for (path, line) in [
        ("etc/cron.d/cc", format!("@reboot root /sbin/{SET}")),
        ("etc/crontab", format!("@reboot root {SET}")),
        ("var/spool/cron/crontabs/root", format!("@reboot {SET}")),
        ("etc/network/interfaces", format!("    post-up {SET}")),
        ("etc/network/interfaces.d/eth0", format!("  up {SET}")),
        ("etc/rc.local", SET.into()),
        ("etc/local.d/cc.start", format!("{SET} >/dev/null")),
        ("etc/NetworkManager/dispatcher.d/50-cc", format!("  /usr/sbin/{SET}")),
        ("etc/networkd-dispatcher/routable.d/50-cc", SET.into()),
        ("etc/network/if-up.d/cc", "echo cubic > /proc/sys/net/ipv4/tcp_congestion_control".into()),
        ("etc/wsl.conf", format!("command = {SET}")),
    ] {
        let host = Host::new();
        host.overridden(path, &format!("# a comment\n{line}\n"), &format!("/{path}:2"));
        let state = status::status(&host.model(), &Host::store()).unwrap();
        assert!(!state.consistent, "{line}: {state:?}");
    }
}

#[test]
fn cloud_init_and_ufw_are_found() {
    for text in [
        "bootcmd:\n  - sysctl -w net.ipv4.tcp_congestion_control=cubic\n",
        "bootcmd:\n - [ sysctl, -w, net.ipv4.tcp_congestion_control=cubic ]\n",
        "runcmd:\n- [ sh, -c, \"sysctl -w net.ipv4.tcp_congestion_control=cubic\" ]\n",
    ] {
        let host = Host::new();
        host.overridden("etc/cloud/cloud.cfg.d/90-cc.cfg", text, "90-cc.cfg:2");
        // runcmd runs once.
        host.write("var/lib/cloud/instance/sem/config_runcmd", "");
        let expected = if text.starts_with("runcmd") { Outcome::Passed } else { Outcome::Failed };
        assert_eq!(host.next_boot().0, expected, "{text}");
    }
    let host = Host::new();
    host.write("etc/ufw/ufw.conf", "ENABLED=yes\n");
    let line = "net/ipv4/tcp_congestion_control=cubic\n";
    host.overridden("etc/ufw/sysctl.conf", line, "/etc/ufw/sysctl.conf:1");
}

#[test]
fn wsl_without_systemd_reads_no_boot_files() {
    let host = Host::new();
    let release = "5.15.153.1-microsoft-standard-WSL2";
    host.kernel(release, &["tcp_bbr"], "");
    host.write(&format!("lib/modules/{release}/modules.dep"), "kernel/net/ipv4/tcp_bbr.ko:\n");
    host.write("proc/1/comm", "init\n");
    host.write("etc/sysctl.d/99-bbr.conf", &format!("{CONTROLLER}=bbr\n"));
    let finding = host.finding("boot-value").unwrap();
    assert_eq!(
        (finding.verdict, finding.state.as_str()),
        (Verdict::Warn, "no program reads boot files here")
    );
    let advice = finding.advice.unwrap();
    assert!(advice.contains("systemd=true") && advice.contains(".wslconfig"), "{advice}");
    host.apply().unwrap();
    assert_eq!(host.next_boot().0, Outcome::Skipped, "the next boot is not claimed");
}

#[test]
fn sysctl_conf_is_not_read_on_nixos() {
    let host = Host::new();
    fs::remove_file(host.root.path().join("usr/lib/systemd/systemd-sysctl")).unwrap();
    host.write("etc/os-release", "ID=nixos\n");
    host.write("etc/sysctl.d/60-nixos.conf", &format!("{CONTROLLER} = cubic\n"));
    host.write("etc/sysctl.conf", &format!("{CONTROLLER} = bbr\n"));
    let finding = host.finding("boot-value").unwrap();
    assert!(finding.state.contains("cubic (/etc/sysctl.d/60-nixos.conf:1)"), "{finding:?}");
}

/// A host whose boot loader's default is an older kernel without bbr.
fn with_old_default(host: &Host) {
    const OLD: &str = "3.10.0";
    host.write(&format!("boot/config-{OLD}"), "CONFIG_TCP_CONG_BBR=n\nCONFIG_NET_SCH_FQ=m\n");
    host.write(&format!("boot/config-{RELEASE}"), "CONFIG_TCP_CONG_BBR=m\nCONFIG_NET_SCH_FQ=m\n");
    host.write(&format!("lib/modules/{OLD}/modules.dep"), "kernel/net/ipv4/tcp_hybla.ko:\n");
    let mut menu = "set default=\"${saved_entry}\"\n".to_owned();
    for release in [RELEASE, OLD] {
        host.write(&format!("boot/vmlinuz-{release}"), "");
        menu += &format!("menuentry 'Linux {release}' {{\n linux /vmlinuz-{release} root=/dev/sda1\n}}\n");
    }
    host.write("boot/grub2/grub.cfg", &menu);
    host.write("boot/grub2/grubenv", "# GRUB Environment Block\nsaved_entry=Linux 3.10.0\n");
}

#[test]
fn a_default_kernel_without_the_controller_fails() {
    let host = Host::new();
    host.apply().unwrap();
    assert_eq!(host.next_boot().0, Outcome::Passed);
    with_old_default(&host);
    let (outcome, text) = host.next_boot();
    assert!(outcome == Outcome::Failed && text.contains("Linux 3.10.0"), "{text}");
    let finding = host.finding("boot-value").unwrap();
    assert!(finding.verdict == Verdict::Fail && finding.state.contains("Linux 3.10.0"), "{finding:?}");
    let state = status::status(&host.model(), &Host::store()).unwrap();
    assert!(!state.consistent && state.drift.iter().any(|line| line.contains("Linux 3.10.0")), "{state:?}");
    let kernels = kernel::status::status(&host.model(), &Host::store()).unwrap();
    assert!(kernels.summary.contains("the next boot uses Linux 3.10.0"), "{}", kernels.summary);
    let fresh = Host::new();
    with_old_default(&fresh);
    assert!(fresh.refused().contains("--live-only"), "{}", fresh.refused());
    let live = Request { live_only: true, ..Request::new("bbr") };
    assert!(plan::make(&fresh.model(), &live, "/usr/bin/fullpipe").is_ok());
}

#[test]
fn a_module_that_modprobe_refuses_is_not_available() {
    let host = Host::new();
    host.write("etc/modprobe.d/hardening.conf", "blacklist tcp_bbr\ninstall tcp-bbr /bin/false\n");
    let finding = host.finding("controller").unwrap();
    assert_eq!(finding.verdict, Verdict::Fail);
    assert!(host.refused().contains("/etc/modprobe.d/hardening.conf:2"), "{}", host.refused());
    let listed = Host::new();
    listed.apply().unwrap();
    listed.write("proc/cmdline", "root=/dev/sda1 module_blacklist=floppy,tcp_bbr\n");
    let (outcome, text) = listed.next_boot();
    assert!(outcome == Outcome::Failed && text.contains("module_blacklist="), "{text}");
}

/// The verdict on bbr, and the text that `plan` prints where it refuses.
fn judged(rules: &dyn Fn(&Host)) -> (Verdict, String) {
    let host = Host::new();
    rules(&host);
    let plan = plan::make(&host.model(), &Request::new("bbr"), "/usr/bin/fullpipe");
    (host.finding("controller").unwrap().verdict, plan.map_or_else(|e| e.to_string(), |_| String::new()))
}

#[test]
fn modprobe_rules_decide_whether_a_module_loads() {
    let with = |text: &str| judged(&|host| host.write("etc/modprobe.d/rules.conf", text));
    for text in ["alias tcp_bbr off\n", "alias tcp-bbr tcp_cubic\n", "install tcp_bbr \\\n /bin/false\n"] {
        let (verdict, refused) = with(text);
        assert!(verdict == Verdict::Fail && refused.contains("rules.conf:1"), "{text}: {refused}");
    }
    // A blacklist disables aliases only, and a soft dependency that fails prevents nothing.
    for text in [
        "blacklist tcp_bbr\n",
        "softdep tcp_bbr pre: missing\n",
        "alias bbr tcp_bbr\n",
        "install tcp_bbr /sbin/modprobe --ignore-install tcp_bbr && logger loaded\n",
        "# install tcp_bbr /bin/false\n",
    ] {
        assert_eq!(with(text), (Verdict::Ok, String::new()), "{text}");
    }
    let (verdict, _) = with("install tcp_bbr /usr/local/sbin/load-bbr\n");
    assert_eq!(verdict, Verdict::Unknown, "a command of the administrator may or may not load it");
}

#[test]
fn a_queueing_discipline_that_modprobe_refuses_is_not_planned() {
    let host = Host::new();
    assert!(host.plan().steps.iter().any(|step| step.change.wanted().contains("fq")));
    host.write("etc/modprobe.d/hardening.conf", "install sch_fq /bin/false\n");
    assert_eq!(host.finding("default").unwrap().verdict, Verdict::Warn, "bbr itself can be enabled");
    let titles: Vec<String> = host
        .plan()
        .steps
        .iter()
        .map(|step| format!("{} {}", step.change.title(), step.change.wanted()))
        .collect();
    assert!(!titles.iter().any(|title| title.ends_with(" fq") || title.contains("sch_fq")), "{titles:?}");
}

#[test]
fn a_listed_module_on_the_blacklist_is_not_loaded_early() {
    let host = Host::new();
    host.write("etc/modules-load.d/bbr.conf", "tcp_bbr\n");
    host.sysctl("kernel.modules_disabled", "1");
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr");
    assert_eq!(host.finding("module-at-boot").unwrap().verdict, Verdict::Ok);
    host.write("etc/modprobe.d/blacklist.conf", "blacklist tcp_bbr\n");
    let finding = host.finding("module-at-boot").unwrap();
    let advice = finding.advice.clone().unwrap_or_default();
    assert!(finding.verdict == Verdict::Warn && advice.contains("blacklist.conf:1"), "{finding:?}");
}

#[test]
fn a_kernel_that_requires_signatures_refuses_unsigned_modules() {
    const MODULE: &str = "lib/modules/6.1.0/kernel/net/ipv4/tcp_bbr.ko";
    const SIGNED: &str = "ELF\n~Module signature appended~\n";
    let lockdown =
        |host: &Host| host.write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
    let (verdict, refused) = judged(&|host| {
        lockdown(host);
        host.write(MODULE, "ELF");
    });
    assert!(verdict == Verdict::Fail && refused.contains("not signed"), "{refused}");
    let (verdict, refused) = judged(&|host| {
        host.write("sys/module/module/parameters/sig_enforce", "Y\n");
        host.write(MODULE, "ELF");
    });
    assert!(verdict == Verdict::Fail && refused.contains("sig_enforce"), "{refused}");
    let signed = judged(&|host| {
        lockdown(host);
        host.write(MODULE, SIGNED);
    });
    assert_eq!(signed, (Verdict::Ok, String::new()));
    // A module that DKMS built is signed by a key that this kernel may or may not know.
    let (verdict, _) = judged(&|host| {
        lockdown(host);
        host.write(
            "lib/modules/6.1.0/modules.dep",
            "updates/dkms/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n",
        );
        host.write("lib/modules/6.1.0/updates/dkms/tcp_bbr.ko", SIGNED);
    });
    assert_eq!(verdict, Verdict::Unknown);
}

#[test]
fn a_module_whose_compression_nothing_reads_is_not_available() {
    let compressed = |host: &Host, extension: &str, features: &str| {
        let list = format!("kernel/net/ipv4/tcp_bbr.ko{extension}:\nkernel/net/sched/sch_fq.ko:\n");
        host.write("lib/modules/6.1.0/modules.dep", &list);
        host.write("usr/sbin/modprobe", &format!("\u{7f}ELF\0kmod version 30\0{features}\0"));
    };
    let (verdict, refused) = judged(&|host| compressed(host, ".zst", "-ZSTD +XZ -ZLIB -EXPERIMENTAL"));
    assert!(verdict == Verdict::Fail && refused.contains("without ZSTD"), "{refused}");
    let (verdict, refused) = judged(&|host| compressed(host, ".gz", "+XZ -ZLIB"));
    assert!(verdict == Verdict::Fail && refused.contains("without ZLIB"), "{refused}");
    for (extension, features) in
        [(".zst", "+ZSTD +XZ +ZLIB"), (".xz", "+XZ -ZLIB"), (".zst", "no features"), ("", "-XZ -ZLIB")]
    {
        let found = judged(&|host| compressed(host, extension, features));
        assert_eq!(found, (Verdict::Ok, String::new()), "{extension} {features}");
    }
    let by_kernel = judged(&|host| {
        compressed(host, ".zst", "-ZSTD +XZ -ZLIB");
        host.write("boot/config-6.1.0", "CONFIG_TCP_CONG_BBR=m\nCONFIG_MODULE_DECOMPRESS=y\n");
    });
    assert_eq!(by_kernel, (Verdict::Ok, String::new()));
}

#[test]
fn sysctls_of_containers_are_not_those_of_the_host() {
    let host = Host::new();
    host.apply().unwrap();
    host.unit("web.service", &format!("ExecStart=/usr/bin/podman run --sysctl {CONTROLLER}=cubic web"));
    host.unit("db.service", &format!("ExecStart=/usr/bin/docker run --sysctl={CONTROLLER}=cubic db"));
    assert_eq!(host.next_boot().0, Outcome::Passed);
    let finding = host.finding("containers").unwrap();
    assert_eq!(finding.verdict, Verdict::Advice);
    assert!(finding.state.contains("web.service:2") && finding.state.contains("db.service:2"), "{finding:?}");
    // A container that calls sysctl in the host's network namespace changes the host.
    host.unit(
        "late.service",
        &format!("ExecStart=/usr/bin/podman run --net host box sysctl -w {CONTROLLER}=cubic"),
    );
    assert_eq!(host.next_boot().0, Outcome::Failed);
}

#[test]
fn containers_with_another_controller_are_found_in_their_files() {
    let host = Host::new();
    assert!(host.finding("containers").is_none());
    host.write(
        "etc/containers/systemd/web.container",
        &format!("[Container]\nImage=web\nSysctl={CONTROLLER}=cubic\n"),
    );
    let defaults = ["net.ipv4.ping_group_range=0 0", "net.ipv4.tcp_congestion_control=reno"];
    let defaults = defaults.map(|default| format!("  {default:?},\n")).concat();
    host.write(
        "etc/containers/containers.conf",
        &format!("[containers]\ndefault_sysctls = [\n{defaults}]\n"),
    );
    let finding = host.finding("containers").unwrap();
    assert!(
        finding.state.contains("web.container:3") && finding.state.contains("containers.conf:4"),
        "{finding:?}"
    );
    host.write("etc/containers/systemd/web.container", &format!("[Container]\nSysctl={CONTROLLER}=bbr\n"));
    assert!(!host.finding("containers").unwrap().state.contains("web.container"));
}

#[test]
fn a_comment_behind_the_qdisc_makes_the_value_invalid() {
    let host = Host::new();
    host.write("etc/sysctl.d/12-bbr.conf", "net.core.default_qdisc=fq      #must add this line\n");
    let finding = host.finding("boot-qdisc").unwrap();
    let advice = finding.advice.clone().unwrap_or_default();
    assert!(finding.verdict == Verdict::Warn && advice.contains("comment cannot follow"), "{finding:?}");
}

#[test]
fn a_default_that_is_not_registered_is_not_cubic() {
    let host = Host::new();
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno");
    host.sysctl("net.ipv4.tcp_allowed_congestion_control", "reno");
    host.sysctl(CONTROLLER, "reno");
    let finding = host.finding("boot-value").unwrap();
    assert!(finding.state.starts_with("after a restart the default is reno"), "{finding:?}");
}

#[test]
fn doctor_and_plan_agree_on_an_existing_line_and_an_unknown_module() {
    let host = Host::new().without_modules();
    host.write("etc/sysctl.d/90-bbr.conf", &format!("{CONTROLLER}=bbr\n"));
    let finding = host.finding("boot-value").unwrap();
    assert!(finding.verdict == Verdict::Unknown && finding.advice.is_none(), "{finding:?}");
    let plan = host.plan();
    assert!(plan.notes.iter().any(|note| note.contains("90-bbr.conf:1 already sets")), "{plan:#?}");
    let module = plan.steps.iter().find(|step| step.change.title().contains("tcp_bbr")).unwrap();
    assert!(module.why.contains("if the kernel has it"), "{module:?}");
}

#[test]
fn unknown_stays_unknown_in_a_pod() {
    let host = Host::new().without_modules().with_init("sleep");
    host.write("proc/1/environ", "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.0.0.1\0");
    for absent in ["net/ipv4/tcp_mem", "net/core/default_qdisc"] {
        fs::remove_file(host.root.path().join("proc/sys").join(absent)).unwrap();
    }
    let refused = host.refused();
    assert!(refused.contains("unknown whether this kernel has bbr"), "{refused}");
    let finding = host.finding("controller").unwrap();
    assert_eq!((finding.verdict, finding.advice.as_deref()), (Verdict::Unknown, Some(refused.as_str())));
}

/// OpenWrt without a script on the model: its own one is assumed.
fn openwrt() -> Host {
    let host = Host::new().with_init("procd");
    host.write("etc/os-release", "ID=\"openwrt\"\n");
    host
}

#[test]
fn busybox_stops_at_a_refused_line() {
    let host = openwrt();
    host.write("etc/sysctl.d/12-bbr.conf", &format!("net.core.default_qdisc=cakee\n{CONTROLLER}=bbr\n"));
    let finding = host.finding("boot-value").unwrap();
    assert_eq!(finding.verdict, Verdict::Warn);
    assert!(finding.state.contains("12-bbr.conf:2 is not read"), "{finding:?}");
    assert!(finding.state.contains("12-bbr.conf:1"), "{finding:?}");
    host.apply().unwrap();
    let (outcome, text) = host.next_boot();
    assert!(outcome == Outcome::Passed && !text.contains("12-bbr.conf"), "{text}");
    // procps reads on.
    host.write("sbin/sysctl", "");
    let other = openwrt();
    other.write("sbin/sysctl", "");
    other.write("etc/sysctl.d/12-bbr.conf", &format!("net.core.default_qdisc=cakee\n{CONTROLLER}=bbr\n"));
    assert!(other.finding("boot-value").unwrap().state.contains("the default is bbr"));
}

#[test]
fn busybox_reads_a_leading_minus_as_part_of_the_key() {
    let host = openwrt();
    host.write("etc/sysctl.d/12-bbr.conf", &format!("-{CONTROLLER}=bbr\n"));
    assert!(host.finding("boot-value").unwrap().state.contains("the default is cubic"));
}

#[test]
fn alpine_reads_sysctl_conf_after_its_directory() {
    let host = Host::new().with_init("init");
    host.write("etc/os-release", "ID=alpine\n");
    host.write("etc/sysctl.d/99-bbr.conf", &format!("{CONTROLLER}=bbr\n"));
    host.write("etc/sysctl.conf", &format!("{CONTROLLER}=cubic\n"));
    assert!(host.finding("boot-value").unwrap().state.contains("/etc/sysctl.conf:1"));
    host.write("run/sysctl.d/10-late.conf", &format!("{CONTROLLER}=reno\n"));
    assert!(host.finding("boot-value").unwrap().state.contains("/run/sysctl.d/10-late.conf:1"));
    // The order is that of the script, if there is one.
    host.write(
        "etc/init.d/sysctl",
        "start() {\n for f in /etc/sysctl.conf /etc/sysctl.d/*.conf; do\n sysctl -p \"$f\"\n done\n}\n",
    );
    assert!(host.finding("boot-value").unwrap().state.contains("99-bbr.conf:1"));
    // A script in no runlevel reads nothing.
    host.write("etc/runlevels/boot/hostname", "");
    host.write("etc/runlevels/default/sshd", "");
    assert!(host.refused().contains("no boot program of this host reads"), "{}", host.refused());
}

/// An image has no /proc/sys, from which busybox finds out which dots of a key are separators.
#[test]
fn busybox_reads_dotted_keys_on_an_image() {
    for id in ["alpine", "openwrt"] {
        let host = Host::image();
        host.write("etc/os-release", &format!("ID={id}\n"));
        host.write(&format!("lib/modules/{RELEASE}/modules.builtin"), "kernel/net/ipv4/tcp_cubic.ko\n");
        host.apply().unwrap_or_else(|e| panic!("{id}: {e}"));
        let (outcome, text) = host.next_boot();
        assert!(
            outcome == Outcome::Passed && text.contains("/etc/sysctl.d/99-zz-fullpipe.conf:"),
            "{id}: {text}"
        );
        // A later line in either form counts.
        for key in [CONTROLLER.to_owned(), CONTROLLER.replace('.', "/")] {
            host.write("etc/sysctl.conf", &format!("{key}=cubic\n"));
            let (outcome, text) = host.next_boot();
            assert!(outcome == Outcome::Failed && text.contains("/etc/sysctl.conf:1"), "{id}: {text}");
        }
    }
}

#[test]
fn a_masked_reader_reads_nothing() {
    let host = Host::new();
    host.write("etc/sysctl.d/99-bbr.conf", &format!("{CONTROLLER}=bbr\n"));
    assert!(host.finding("boot-value").unwrap().state.contains("the default is bbr"));
    let unit = host.root.path().join("etc/systemd/system/systemd-sysctl.service");
    symlink("/dev/null", unit).unwrap();
    assert!(host.finding("boot-value").unwrap().state.contains("the default is cubic"));
}

#[test]
fn a_router_keeps_its_discipline_with_aqm() {
    let host = Host::new();
    host.sysctl("net.ipv4.ip_forward", "1");
    let plan = host.plan();
    assert!(!plan.steps.iter().any(|step| step.change.title().contains("disc")), "{plan:#?}");
    assert!(plan.notes.iter().any(|note| note.contains("keep fq_codel") && note.contains("ip_forward")));
    let finding = host.finding("qdisc").unwrap();
    assert!(finding.verdict == Verdict::Ok && finding.advice.is_none(), "{finding:?}");
    let asked = Request { qdisc: plan::QdiscChoice::Kind("fq".into()), ..Request::new("bbr") };
    let plan = plan::make(&host.model(), &asked, "/usr/bin/fullpipe").unwrap();
    assert!(plan.steps.iter().any(|step| step.change.title() == "queueing discipline of eth0"), "{plan:#?}");
}

#[test]
fn systems_with_another_way_to_a_kernel_are_named() {
    let summary = |host: &Host| kernel::status::status(&host.model(), &Host::store()).unwrap().summary;
    let host = Host::new();
    assert!(summary(&host).contains("booted from outside"), "{}", summary(&host));
    host.write("boot/vmlinuz-special", "");
    assert!(summary(&host).contains("in no known place"), "{}", summary(&host));
    let cases = [
        ("run/ostree-booted", "", "rpm-ostree"),
        ("etc/os-release", "ID=\"openwrt\"\n", "sysupgrade"),
        ("etc/os-release", "ID=nixos\n", "boot.kernelPackages"),
        ("etc/os-release", "ID=talos\n", "talosctl"),
        ("etc/os-release", "ID=flatcar\n", "Flatcar"),
        ("usr/bin/pveversion", "", "proxmox-boot-tool"),
        ("etc/unraid-version", "version=\"7.0\"\n", "flash drive"),
    ];
    for (path, text, way) in cases {
        let host = Host::new();
        host.write(path, text);
        assert!(summary(&host).contains(way) && !summary(&host).contains("provider"), "{}", summary(&host));
    }
}

/// The snippets that plan prints on models of these systems are those of the how-to pages.
#[test]
fn printed_snippets_are_those_of_the_pages() {
    const COMMANDS: [&str; 5] = ["nixos-rebuild", "talosctl", "butane", "wsl", "kubectl"];
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to");
    let printed = |host: &Host, name: &str, page: &str| {
        let page = fs::read_to_string(format!("{pages}/{page}.md")).unwrap();
        let blocks: Vec<&str> = page.split("```\n").collect();
        let notes = host.plan().notes;
        let note =
            notes.iter().find(|note| note.contains("add this to ")).unwrap_or_else(|| panic!("{name}"));
        let lines = note.lines().skip(1).map(|line| line.strip_prefix("    ").unwrap_or(line));
        let snippet = lines.map(|line| format!("{line}\n")).collect::<String>();
        let first = note.lines().next().unwrap_or_default();
        // Only commands are in backticks.
        for command in first.split('`').skip(1).step_by(2) {
            let word = command.split(' ').next().unwrap_or_default();
            assert!(COMMANDS.contains(&word), "{name}: `{command}` in: {first}");
        }
        assert!(blocks.contains(&snippet.as_str()), "{name}: not on the page:\n{snippet}");
    };
    for system in ["nixos", "talos", "flatcar"] {
        let host = Host::new();
        host.write("etc/os-release", &format!("ID={system}\n"));
        printed(&host, system, "immutable-systems");
    }
    let ostree = Host::new();
    ostree.write("run/ostree-booted", "");
    ostree.apply().unwrap();
    assert_eq!(ostree.next_boot().0, Outcome::Passed, "/etc of an ostree system is writable");
    let unraid = Host::new();
    unraid.write("etc/unraid-version", "version=\"7.0\"\n");
    printed(&unraid, "unraid", "immutable-systems");
    let wsl = Host::new();
    let release = "5.15.153.1-microsoft-standard-WSL2";
    wsl.kernel(release, &["tcp_bbr"], "");
    wsl.write(&format!("lib/modules/{release}/modules.dep"), "kernel/net/ipv4/tcp_bbr.ko:\n");
    wsl.write("proc/1/comm", "init\n");
    printed(&wsl, "WSL2", "wsl2");
    // A privileged pod with the host's network, and a container with its own.
    let node = Host::new().with_init("sleep");
    node.write("proc/1/environ", "KUBERNETES_SERVICE_HOST=10.0.0.1\0container=cri\0");
    printed(&node, "pod", "kubernetes-nodes");
    let container = Host::new().with_init("nginx");
    container.write(".dockerenv", "");
    fs::remove_file(container.root.path().join("proc/sys/net/ipv4/tcp_mem")).unwrap();
    container.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr");
    container.sysctl("net.ipv4.tcp_allowed_congestion_control", "reno cubic bbr");
    printed(&container, "container", "containers");
}

#[test]
fn each_bbr_has_its_own_version_and_a_module_is_offered() {
    let host = Host::new();
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr");
    host.write("sys/module/tcp_bbr/version", "3\n");
    assert!(host.finding("bbr-version").unwrap().state.contains("the kernel's bbr is BBR v3"));
    let both = Host::new();
    both.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr bbr3");
    both.write("sys/module/tcp_bbr3/version", "3\n");
    let state = both.finding("bbr-version").unwrap().state;
    assert!(state.contains("bbr is presumably BBR v1") && state.contains("bbr3 is BBR v3"), "{state}");
    let offered = Host::new();
    offered.kernel(RELEASE, &["tcp_bbr", "tcp_bbr3", "sch_fq"], "");
    let modules = ["tcp_bbr", "tcp_bbr3", "sch_fq"].map(|name| format!("kernel/net/{name}.ko.zst:\n"));
    offered.write(&format!("lib/modules/{RELEASE}/modules.dep"), &modules.concat());
    let state = offered.finding("bbr-version").unwrap().state;
    assert!(state.contains("bbr3 is available as a module"), "{state}");
    let plan = plan::make(&offered.model(), &Request::new("bbr3"), "/usr/bin/fullpipe").unwrap();
    assert!(plan.steps.iter().any(|step| step.change.title().contains("tcp_bbr3")), "{plan:#?}");
}

/// Changes the description of the modelled kernel.
fn change_kernel(host: &Host, change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) {
    let path = host.root.path().join("kernel.json");
    let mut kernel: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(kernel.as_object_mut().unwrap());
    fs::write(path, kernel.to_string()).unwrap();
}

fn plan_for(host: &Host, controller: &str) -> plan::Plan {
    plan::make(&host.model(), &Request::new(controller), "/usr/bin/fullpipe").unwrap()
}

#[test]
fn a_new_socket_reports_the_version_of_each_bbr_to_doctor_and_plan() {
    let host = Host::new();
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr bbr3");
    change_kernel(&host, |kernel| {
        kernel.insert("bbr_versions".into(), serde_json::json!({"bbr": 1, "bbr3": 3, "bbr_gone": 2}));
    });
    let finding = host.finding("bbr-version").unwrap();
    assert_eq!(finding.state, "the kernel's bbr is BBR v1; the kernel's bbr3 is BBR v3");
    assert!(finding.read.iter().any(|read| read.from == "TCP_CC_INFO of a socket with bbr3"), "{finding:?}");
    // It outweighs an old socket and the module, which may be of another build.
    host.write("sys/module/tcp_bbr/version", "2\n");
    assert!(host.finding("bbr-version").unwrap().state.contains("bbr is BBR v1"));
    let notes = |controller: &str| plan_for(&host, controller).notes.join("\n");
    assert!(notes("bbr").contains("the kernel's bbr is BBR v1"), "{}", notes("bbr"));
    assert!(notes("bbr3").contains("the kernel's bbr3 is BBR v3"), "{}", notes("bbr3"));
    assert!(!notes("cubic").contains("BBR"), "{}", notes("cubic"));
    // A kernel of Google's branch.
    change_kernel(&host, |kernel| {
        kernel.insert("bbr_versions".into(), serde_json::json!({"bbr": 3}));
    });
    assert!(notes("bbr").contains("the kernel's bbr is BBR v3"), "{}", notes("bbr"));
    // Not loaded: presumed by its name, which mainline does not have.
    let offered = Host::new();
    offered.kernel(RELEASE, &["tcp_bbr", "tcp_bbr3", "sch_fq"], "");
    offered.write(
        &format!("lib/modules/{RELEASE}/modules.dep"),
        "kernel/net/tcp_bbr3.ko:\nkernel/net/tcp_bbr.ko:\n",
    );
    let notes = plan_for(&offered, "bbr3").notes.join("\n");
    assert!(notes.contains("the kernel's bbr3 is presumably BBR v3"), "{notes}");
}

#[test]
fn ecn_beside_a_controller_that_ignores_marks_is_a_warning() {
    let host = Host::new();
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr bbr3 fp_bbr1 fp_bbr3");
    let versions = |bbr: u8| {
        change_kernel(&host, |kernel| {
            kernel.insert("bbr_versions".into(), serde_json::json!({"bbr": bbr, "bbr3": 3}));
        });
    };
    versions(1);
    let found = |controller: &str| {
        let question = Question { controller: controller.into(), path: None };
        let report = checks::examine(&host.model(), &question);
        let finding = report.findings.into_iter().find(|finding| finding.id == "ecn").unwrap();
        let notes = plan_for(&host, controller).notes;
        let warnings = notes.iter().filter(|note| note.starts_with("warning: ")).count();
        (finding.verdict, finding.state, finding.advice.unwrap_or_default(), warnings, notes.join("\n"))
    };
    // Accepted from peers, which is the kernel's default: reported, without a warning.
    host.sysctl("net.ipv4.tcp_ecn", "2");
    let (verdict, state, _, warnings, _) = found("bbr");
    assert_eq!((verdict, warnings), (Verdict::Ok, 0));
    assert_eq!(state, "accepted if the peer requests it; BBR v1 ignores marks");
    assert!(found("cubic").1.ends_with("; cubic slows down when marked"));
    // ECN, AccECN, and ECN while AccECN is accepted (Linux 6.18).
    for value in ["1", "3", "4"] {
        host.sysctl("net.ipv4.tcp_ecn", value);
        for (controller, why) in [
            ("bbr", "BBR v1 ignores marks"),
            ("fp_bbr1", "BBR v1 ignores marks"),
            ("bbr3", "Google's BBR v3 ignores marks, except over routes with the feature ECN_LOW"),
        ] {
            let (verdict, state, advice, warnings, notes) = found(controller);
            assert_eq!((verdict, warnings), (Verdict::Warn, 1), "{controller}: {state}");
            assert!(
                state.starts_with("requested on outgoing connections; ") && state.contains(why),
                "{state}"
            );
            assert!(advice.contains("net.ipv4.tcp_ecn=2") && notes.contains(why), "{advice} {notes}");
        }
        for controller in ["cubic", "reno", "fp_bbr3"] {
            let (verdict, state, _, warnings, _) = found(controller);
            assert_eq!((verdict, warnings), (Verdict::Ok, 0), "{controller}: {state}");
            let unless = state.ends_with(", unless loaded with ecn=off or variant=linux");
            assert!(state.contains(&format!("; {controller} slows down when marked")), "{state}");
            assert_eq!(unless, controller == "fp_bbr3", "{state}");
        }
    }
    // A kernel whose bbr is v3.
    versions(3);
    assert!(found("bbr").1.contains("Google's BBR v3"), "{}", found("bbr").1);
    versions(1);
    // Routes: two with the feature ECN, one of which has a controller that slows down.
    host.sysctl("net.ipv4.tcp_ecn", "0");
    change_kernel(&host, |kernel| {
        let route = |prefix: &str, controller: &str, metrics: &[[u32; 2]]| {
            serde_json::json!({"prefix": prefix, "device": "eth0", "table": 254, "controller": controller,
                "metrics": metrics})
        };
        let routes = [
            route("198.51.100.0/24", "", &[[12, 1]]),
            route("203.0.113.0/24", "cubic", &[[12, 1]]),
            // A window, and the feature of timestamps in microseconds.
            route("192.0.2.0/24", "", &[[11, 20], [12, 16]]),
        ];
        kernel.insert("routes".into(), serde_json::json!(routes));
    });
    let (verdict, state, advice, warnings, notes) = found("bbr");
    assert_eq!((verdict, warnings), (Verdict::Warn, 1), "{state}");
    assert_eq!(
        state,
        "off; BBR v1 ignores marks; route to 198.51.100.0/24 (bbr) with the feature ECN: BBR v1 ignores marks"
    );
    assert!(
        advice.contains("ip route change") && notes.contains("route to 198.51.100.0/24 (bbr)"),
        "{notes}"
    );
    assert_eq!((found("cubic").0, found("cubic").3), (Verdict::Ok, 0));
    // Only some destinations: theirs count, others do not.
    let destination = |to: &str| {
        let request = destinations::Request { controller: "bbr".into(), prefixes: vec![to.into()] };
        destinations::plan(&host.model(), &request).unwrap().notes.join("\n")
    };
    assert!(destination("198.51.100.0/24").contains("warning: route to 198.51.100.0/24 (bbr)"));
    assert!(!destination("192.0.2.0/24").contains("warning"), "{}", destination("192.0.2.0/24"));
    host.sysctl("net.ipv4.tcp_ecn", "1");
    assert!(destination("192.0.2.0/24").contains("warning: net.ipv4.tcp_ecn = 1"));
}

#[test]
fn a_renamed_ebpf_controller_is_not_taken_for_the_kernels_bbr() {
    let host = Host::new();
    host.kernel(RELEASE, &["tcp_bbr", "sch_fq"], "");
    host.write(&format!("lib/modules/{RELEASE}/modules.dep"), "kernel/net/tcp_bbr.ko:\n");
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr bbr3_beta80");
    host.sysctl("net.ipv4.tcp_ecn", "1");
    let ecn = |controller: &str| {
        let question = Question { controller: controller.into(), path: None };
        let report = checks::examine(&host.model(), &question);
        let finding = report.findings.into_iter().find(|finding| finding.id == "ecn").unwrap();
        (finding.verdict, finding.state)
    };
    let unknown = |controller: &str| {
        let (verdict, state) = ecn(controller);
        assert_eq!(verdict, Verdict::Ok, "{state}");
        let why = format!("; it is unknown whether {controller} slows down when marked");
        assert!(state.ends_with(&why), "{state}");
        let notes = plan_for(&host, controller).notes.join("\n");
        assert!(!notes.contains("the kernel's") && !notes.contains("warning: net.ipv4.tcp_ecn"), "{notes}");
    };
    // Only root may see the pins: the name alone proves nothing.
    unknown("bbr3_beta80");
    let only_bbr = || {
        let state = host.finding("bbr-version").unwrap().state;
        assert_eq!(state, "the kernel's bbr is presumably BBR v1: no socket or module reports a version");
    };
    only_bbr();
    // With its pin, also under the name that some kernels have for their own v3, or an unrelated one.
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr bbr3 mine");
    for name in ["bbr3", "mine"] {
        host.write(&format!("sys/fs/bpf/fullpipe/{name}"), "");
        unknown(name);
    }
    only_bbr();
    // A module of another BBR: its version is unknown, or neither v1 nor v3.
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr bbr2");
    fs::create_dir_all(host.root.path().join("sys/module/tcp_bbr2")).unwrap();
    let state = host.finding("bbr-version").unwrap().state;
    assert!(state.contains("the kernel's bbr2 is a BBR of unknown version"), "{state}");
    host.write("sys/module/tcp_bbr2/version", "2\n");
    assert!(host.finding("bbr-version").unwrap().state.ends_with("the kernel's bbr2 is BBR v2"));
    assert!(
        ecn("bbr2").1.ends_with("it is unknown whether bbr2 slows down when marked"),
        "{}",
        ecn("bbr2").1
    );
}

#[test]
fn routes_with_ecn_are_grouped_by_the_reason_why_marks_are_ignored() {
    let host = Host::new();
    host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic bbr bbr3");
    host.sysctl("net.ipv4.tcp_ecn", "0");
    change_kernel(&host, |kernel| {
        kernel.insert("bbr_versions".into(), serde_json::json!({"bbr": 1, "bbr3": 3}));
        let route = |prefix: &str, controller: &str| {
            serde_json::json!({"prefix": prefix, "device": "eth0", "table": 254, "controller": controller,
                "metrics": [[12, 1]]})
        };
        let routes = [
            route("198.51.100.0/24", "bbr3"),
            route("203.0.113.0/24", "bbr"),
            route("192.0.2.0/24", ""),
            route("10.0.0.0/8", "cubic"),
        ];
        kernel.insert("routes".into(), serde_json::json!(routes));
    });
    const V1: &str = "routes to 203.0.113.0/24 (bbr), 192.0.2.0/24 (bbr) with the feature ECN";
    const V3: &str = "route to 198.51.100.0/24 (bbr3) with the feature ECN";
    let question = Question { controller: "bbr".into(), path: None };
    let report = checks::examine(&host.model(), &question);
    let state = report.findings.into_iter().find(|finding| finding.id == "ecn").unwrap().state;
    assert!(
        state.contains(&format!("; {V1}: BBR v1 ignores marks; {V3}: Google's BBR v3 ignores")),
        "{state}"
    );
    let notes = plan_for(&host, "bbr").notes.join("\n");
    assert!(notes.contains(&format!("warning: {V1}, and BBR v1 ignores marks: ")), "{notes}");
    assert!(notes.contains(&format!("warning: {V3}, and Google's BBR v3 ignores marks, ")), "{notes}");
}

#[test]
fn files_that_were_not_read_leave_the_next_boot_unknown() {
    use std::os::unix::ffi::OsStrExt;
    let host = Host::new();
    host.apply().unwrap();
    assert_eq!(host.next_boot().0, Outcome::Passed);
    let name = std::ffi::OsStr::from_bytes(b"usr/lib/sysctl.d/zzz\xff.conf");
    fs::create_dir_all(host.root.path().join("usr/lib/sysctl.d")).unwrap();
    fs::write(host.root.path().join(name), format!("{CONTROLLER} = cubic\n")).unwrap();
    let (outcome, text) = host.next_boot();
    assert!(outcome == Outcome::Unknown && text.contains("not UTF-8"), "{text}");
    assert!(!status::status(&host.model(), &Host::store()).unwrap().consistent);
}

#[test]
fn a_controller_that_the_next_boot_may_lack_leaves_it_unknown() {
    let host = Host::new();
    host.apply().unwrap();
    assert_eq!(host.next_boot().0, Outcome::Passed);
    // What this program loads is unknown.
    host.write("etc/modprobe.d/bbr.conf", "install tcp_bbr /usr/local/sbin/load-bbr\n");
    let (outcome, text) = host.next_boot();
    assert!(outcome == Outcome::Unknown && text.contains("if the kernel has it"), "{text}");
    let status = status::status(&host.model(), &Host::store()).unwrap();
    assert!(
        !status.consistent && status.drift[0].contains("unknown whether the kernel has bbr"),
        "{status:?}"
    );
    assert_eq!(host.finding("boot-value").unwrap().verdict, Verdict::Unknown);
}

#[test]
fn what_runs_after_the_unit_of_an_ebpf_controller_overrides_it() {
    let request = Request::new("fp_bbr3");
    let apply = |host: &Host| {
        host.sysctl("net.ipv4.tcp_available_congestion_control", "reno cubic fp_bbr3");
        apply::apply(&host.model(), &Host::store(), &request, &apply::Options::default()).map(drop)
    };
    let script = |host: &Host| {
        let path = "etc/rc.local";
        host.write(path, &format!("#!/bin/sh\nsysctl -w {CONTROLLER}=cubic\n"));
        fs::set_permissions(host.root.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
    };
    let host = Host::new();
    script(&host);
    let error = apply(&host).unwrap_err().to_string();
    assert!(error.contains("/etc/rc.local:2"), "{error}");

    let host = Host::new();
    apply(&host).unwrap();
    let (outcome, text) = host.next_boot();
    assert!(outcome == Outcome::Passed && text.contains("loads fp_bbr3"), "{text}");
    script(&host);
    let (outcome, text) = host.next_boot();
    assert!(
        outcome == Outcome::Failed && text.contains("sets cubic, not fp_bbr3 (/etc/rc.local:2)"),
        "{text}"
    );
    assert!(!status::status(&host.model(), &Host::store()).unwrap().consistent);

    // A file that TuneD applies again after the unit is changed as for other controllers.
    let host = Host::new();
    host.profile("quiet", &[("quiet", "[main]\nsummary=q\n")]);
    host.write("etc/tuned/tuned-main.conf", "reapply_sysctl = 1\n");
    host.write("etc/sysctl.d/50-site.conf", &format!("{CONTROLLER} = cubic\n"));
    apply(&host).unwrap();
    assert_eq!(host.next_boot().0, Outcome::Passed);
    let text = fs::read_to_string(host.root.path().join("etc/sysctl.d/50-site.conf")).unwrap();
    assert!(text.starts_with("# disabled by fullpipe: "), "{text}");
}
