//! From an old kernel to a newer one: the old one is booted whatever happens on the way, and is
//! gone back to unless all is as before.

use crate::support::clock::TestClock;
use crate::support::faulty::{Fault, Faulty};
use crate::support::manifest::Manifest;
use crate::support::memory::Loss;
use crate::support::{Fake, assert_same, kernel, put, put_kernel, remove, snapshot};
use fullpipe_host::host::{
    DelegateFiles, Files, Host, Model, ModelKernel, Network, Program, ProgramOutput, View,
};
use fullpipe_host::journal::Store;
use fullpipe_host::kernel::install::{self, Request as Wanted};
use fullpipe_host::kernel::installed;
use fullpipe_host::kernel::status::{Status, status};
use fullpipe_host::kernel::trial_boot::{self, Request as Attempt, RollBack, TrialBoot};
use fullpipe_host::kernel::{MARK, Stage, grub, screen};
use fullpipe_host::screen::Style;
use fullpipe_host::{Error, revert};
use std::io;
use std::time::Duration;

const OLD: &str = "5.10.0-28-amd64";
const NEW: &str = "6.1.0-56-amd64";
const CONFIG: &str = "CONFIG_TCP_CONG_BBR=m\nCONFIG_NET_SCH_FQ=m\nCONFIG_DEBUG_INFO_BTF=y\n";

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

fn put_release(host: &Fake, release: &str, modules: &str) {
    put(host, &format!("/boot/vmlinuz-{release}"), "MZ");
    put(host, &format!("/boot/initrd.img-{release}"), "initial file system");
    put(host, &format!("/boot/config-{release}"), CONFIG);
    put(host, &format!("/lib/modules/{release}/modules.dep"), modules);
}

const MODULES: &str = "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n";

/// Debian 11 with GRUB, whose kernel has lost its BBR.
fn host(clock: &TestClock) -> Fake {
    let (started, _) = Manifest::read("debian-11").host();
    let host = Model::with_clock(started.files().copy(), clock.clone());
    put_release(&host, OLD, "kernel/net/sched/sch_fq.ko:\n");
    let os = "PRETTY_NAME=\"Debian GNU/Linux 11 (bullseye)\"\nID=debian\nVERSION_CODENAME=bullseye\n";
    put(&host, "/etc/os-release", os);
    put(&host, "/etc/default/grub", "GRUB_DEFAULT=0\nGRUB_TIMEOUT=5\n");
    for directory in ["/etc/default/grub.d", "/var/lib/dpkg"] {
        host.files().directories(directory);
    }
    put(&host, "/usr/sbin/grub-mkconfig", "for x in ${sysconfdir}/default/grub.d/*.cfg ; do");
    put(&host, "/usr/bin/apt-get", "");
    put(&host, "/etc/ssh/sshd_config", "");
    put(&host, "/proc/net/tcp", "  sl\n   0: 00000000:0016 00000000:0000 0A\n");
    put(&host, "/proc/cmdline", "root=UUID=77 ro");
    let network = reached();
    let free = ["/", "/boot"].map(|place| (place.to_owned(), 4 << 30)).into();
    put_kernel(
        &host,
        &ModelKernel { loadable: vec!["sch_fq".into()], network: Some(network), free, ..kernel(&host) },
    );
    make_menu(&host);
    host.files().release();
    host
}

fn reached() -> Network {
    serde_json::from_str(
        r#"{"addresses": ["192.0.2.7"], "default_routes": [4],
            "gateways": [{"address": "192.0.2.1", "answers": true}]}"#,
    )
    .unwrap()
}

/// What grub-mkconfig would write.
fn make_menu(host: &Fake) {
    let default = ["/etc/default/grub.d/zz-fullpipe.cfg", "/etc/default/grub"].iter().find_map(|path| {
        let text = host.content(path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("GRUB_DEFAULT="))?;
        Some(line.trim_matches('"').to_owned())
    });
    let mut releases: Vec<String> = host
        .list("/boot")
        .unwrap()
        .iter()
        .filter_map(|name| Some(name.strip_prefix("vmlinuz-")?.to_owned()))
        .collect();
    releases.sort_by(|one, other| installed::compare(other, one));
    let body = |release: &str| {
        format!("\tlinux /boot/vmlinuz-{release} root=UUID=77 ro\n\tinitrd /boot/initrd.img-{release}\n}}\n")
    };
    let mut menu = format!(
        "if [ \"${{next_entry}}\" ] ; then\n   set default=\"${{next_entry}}\"\nelse\n   set \
         default=\"{}\"\nfi\n",
        default.unwrap_or_else(|| "0".into())
    );
    menu +=
        &format!("menuentry 'Debian' $menuentry_id_option 'gnulinux-simple-77' {{\n{}", body(&releases[0]));
    menu += "submenu 'Advanced' $menuentry_id_option 'gnulinux-advanced-77' {\n";
    for release in &releases {
        menu += &format!(
            "menuentry 'Linux {release}' $menuentry_id_option 'gnulinux-{release}-advanced-77' {{\n{}",
            body(release)
        );
    }
    menu +=
        "}\nif [ -f ${config_directory}/custom.cfg ]; then\n  source ${config_directory}/custom.cfg\nfi\n";
    put(host, "/boot/grub/grub.cfg", &menu);
}

/// GRUB's variables are written in place, and are there at once.
fn set_variable(host: &Fake, name: &str, value: Option<&str>) {
    let path = if host.exists("/boot/grub2/grub.cfg") { "/boot/grub2/grubenv" } else { "/boot/grub/grubenv" };
    let mut variables = host.read(path).ok().and_then(|block| grub::variables(&block)).unwrap_or_default();
    variables.remove(name);
    variables.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    let lines: String = variables.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    put(host, path, &format!("{:#<1024}", format!("# GRUB Environment Block\n{lines}")));
}

/// Rolls back where nothing was changed meanwhile.
fn roll_back(host: &dyn Host) -> Result<RollBack, Error> {
    let (how, exceptions) = trial_boot::roll_back(host, &store(), &revert::Options::default())?;
    assert!(exceptions.is_empty(), "{exceptions:?}");
    Ok(how)
}

const PACKAGE: &str = "/var/lib/dpkg/linux-image";

fn programs(host: &Fake, program: &Program) -> io::Result<ProgramOutput> {
    let words: Vec<&str> = program.words.iter().map(String::as_str).collect();
    let said = |out: String| Ok(ProgramOutput { out, ..ProgramOutput::default() });
    let image = format!("linux-image-{NEW}");
    match words[..] {
        ["apt-cache", "pkgnames", "linux-image-"] => {
            said(format!("{image}\n{image}-unsigned\nlinux-image-{OLD}\nlinux-image-6.1.0-56-cloud-amd64\n"))
        }
        ["apt-cache", "madison", ..] => {
            let line = |name: &str, version: &str| {
                format!(
                    " {name} | {version} | http://mirror.example/debian bullseye-backports/main amd64 \
                     Packages\n"
                )
            };
            said(line(&image, "6.1.192-2") + &line(&format!("linux-image-{OLD}"), "5.10.209-2"))
        }
        ["apt-cache", "pkgnames", _] => said(String::new()),
        ["apt-cache", "show", ..] => said(format!("Package: {image}\nInstalled-Size: 100000\n")),
        ["apt-get", "-s", ..] => said(format!("Inst {image} (6.1.192-2 Debian:11/x [amd64])\n")),
        ["apt-get", "-q", "update"] | ["systemctl", "reboot"] | ["dpkg", ..] => said(String::new()),
        ["apt-get", "-y", .., "install", name] => {
            assert_eq!(name, image);
            put_release(host, NEW, MODULES);
            put(host, PACKAGE, "install ok installed");
            make_menu(host);
            said(String::new())
        }
        ["apt-get", "-y", "-q", "purge", name] => {
            assert_eq!(name, image);
            for path in ["/boot/vmlinuz-", "/boot/initrd.img-", "/boot/config-"] {
                remove(host, &format!("{path}{NEW}"));
            }
            remove(host, &format!("/lib/modules/{NEW}/modules.dep"));
            host.remove_directory(&format!("/lib/modules/{NEW}"))?;
            remove(host, PACKAGE);
            make_menu(host);
            said(String::new())
        }
        ["dpkg-query", ..] => match host.text(PACKAGE) {
            Some(state) => said(state),
            None => Ok(ProgramOutput { status: 1, ..ProgramOutput::default() }),
        },
        ["/usr/sbin/grub-mkconfig", ..] => {
            make_menu(host);
            said(String::new())
        }
        ["grub-editenv", _, verb, what] => {
            match (verb, what.split_once('=')) {
                ("set", Some((name, value))) => set_variable(host, name, Some(value)),
                _ => set_variable(host, what, None),
            }
            said(String::new())
        }
        ["grub-probe", "--target=fs", _] => said("ext2\n".into()),
        ["grub-probe", ..] => said("\n".into()),
        _ => panic!("{words:?}"),
    }
}

fn with(host: &Fake) -> Faulty<'_> {
    Faulty::counting(host).with(programs)
}

/// What GRUB does at a start; gives the kernel that runs then.
fn boot(host: &Fake, clock: &TestClock) -> String {
    let text = host.content("/boot/grub/grub.cfg").unwrap()
        + &host.content("/boot/grub/custom.cfg").unwrap_or_default();
    let menu = grub::Menu::parse(&text);
    let variables =
        host.read("/boot/grub/grubenv").ok().and_then(|block| grub::variables(&block)).unwrap_or_default();
    let name = match variables.get("next_entry").filter(|entry| !entry.is_empty()) {
        Some(next) => {
            set_variable(host, "next_entry", Some(""));
            next.clone()
        }
        None => menu.default.clone(),
    };
    let entry = menu.named(&name).unwrap();
    assert!(host.exists(&entry.image), "{} is booted, and is not there", entry.image);
    let release = entry.image.trim_start_matches("/boot/vmlinuz-").to_owned();
    put(host, "/proc/cmdline", &entry.arguments);
    let loadable =
        if release == NEW { vec!["tcp_bbr".into(), "sch_fq".into()] } else { vec!["sch_fq".into()] };
    put_kernel(host, &ModelKernel { release: release.clone(), loadable, ..kernel(host) });
    clock.restart();
    host.files().release();
    release
}

fn attempt(version: &str) -> Attempt {
    Attempt {
        version: version.into(),
        controller: "bbr".into(),
        within: Duration::from_secs(100),
        asks: false,
        program: "/usr/bin/fullpipe".into(),
    }
}

fn install_newest(host: &dyn Host) -> Result<install::Installed, Error> {
    let plan = install::plan(host, &Wanted::default())?;
    install::install(host, &store(), &plan)
}

fn kernel_status(host: &Fake) -> Status {
    status(&with(host), &store()).unwrap()
}

/// The parts of a host that its kernels have nothing to do with are left out.
fn same(host: &Fake, before: &std::collections::BTreeMap<String, String>, context: &str) {
    let mut now = snapshot(host);
    let mut before = before.clone();
    for all in [&mut now, &mut before] {
        for path in ["/boot/grub/grubenv", "/kernel.json", "/proc/cmdline"] {
            all.remove(path);
        }
    }
    assert_same(&now, &before, context);
}

#[test]
fn a_newer_kernel_is_installed_tried_and_kept() {
    let clock = TestClock::default();
    let fake = host(&clock);
    let host = with(&fake);
    let first = kernel_status(&fake);
    assert_eq!(
        (first.running.as_str(), first.kernels[0].missing.as_slice()),
        (OLD, &["tcp_bbr".to_owned()][..])
    );
    assert!(
        first.summary.contains("lacks CONFIG_TCP_CONG_BBR") && first.summary.contains("kernel plan"),
        "{}",
        first.summary
    );
    assert_eq!(first.boots.as_ref().unwrap().default.as_deref(), Some(OLD));

    let plan = install::plan(&host, &Wanted::default()).unwrap();
    assert_eq!(plan.kernel.release, NEW);
    let titles: Vec<String> = plan.steps.iter().map(|step| step.change.title()).collect();
    assert_eq!(
        titles,
        ["default of the boot menu (/etc/default/grub.d/zz-fullpipe.cfg)".to_owned(), format!("Linux {NEW}")]
    );
    install::install(&host, &store(), &plan).unwrap();
    let now = kernel_status(&fake);
    assert_eq!(
        (now.boots.as_ref().unwrap().default.as_deref(), now.installed.as_deref()),
        (Some(OLD), Some(NEW))
    );
    assert!(now.summary.contains(&format!("kernel try {NEW}")), "{}", now.summary);
    assert!(install::install(&host, &store(), &plan).unwrap_err().text().contains("not kept yet"));
    assert_eq!(boot(&fake, &clock), OLD, "an ordinary restart");

    trial_boot::arm(&host, &store(), &attempt("6.1")).unwrap();
    assert_eq!(kernel_status(&fake).trial.unwrap().stage, Stage::Armed);
    assert!(
        trial_boot::arm(&host, &store(), &attempt("6.1")).unwrap_err().text().contains("already on trial")
    );
    assert_eq!(boot(&fake, &clock), NEW);
    assert!(
        fake.text("/proc/cmdline").unwrap().contains(MARK)
            && fake.text("/proc/cmdline").unwrap().contains("panic=10")
    );
    assert_eq!(kernel_status(&fake).trial.unwrap().stage, Stage::Running);
    let TrialBoot::Kept(kept) = trial_boot::poll(&host, &store()).unwrap() else { panic!() };
    assert_eq!((kept.release.as_str(), kept.named), (NEW, false));
    assert_eq!(boot(&fake, &clock), NEW, "it is booted every day");
    for path in [
        "/var/lib/fullpipe",
        "/boot/grub/custom.cfg",
        "/etc/default/grub.d/zz-fullpipe.cfg",
        "/etc/systemd/system/fullpipe-kernel.service",
    ] {
        assert!(!fake.exists(path), "{path}");
    }
    assert!(kernel_status(&fake).summary.contains("another is not needed"));
}

#[test]
fn panicking_trial_kernel_is_rolled_back_and_removed_without_a_trace() {
    let clock = TestClock::default();
    let fake = host(&clock);
    let before = snapshot(&fake);
    let host = with(&fake);
    install_newest(&host).unwrap();
    trial_boot::arm(&host, &store(), &attempt(NEW)).unwrap();
    assert_eq!(boot(&fake, &clock), NEW);
    // It panics before anything is done.
    assert_eq!(boot(&fake, &clock), OLD);
    trial_boot::clean_up(&host, &store()).unwrap();
    let trial = kernel_status(&fake).trial.unwrap();
    assert_eq!((trial.stage, trial.failed[0].what.as_str()), (Stage::Over, "start"));
    assert!(
        !fake.exists("/boot/grub/custom.cfg") && !fake.exists("/etc/systemd/system/fullpipe-kernel.service")
    );
    assert_eq!(boot(&fake, &clock), OLD);
    let RollBack::Removed(titles) = roll_back(&host).unwrap() else { panic!() };
    assert_eq!(titles.len(), 2, "{titles:?}");
    same(&fake, &before, "back");
    assert!(roll_back(&host).unwrap_err().text().contains("no kernel"));
}

#[test]
fn unreached_trial_kernel_is_rolled_back_at_its_deadline() {
    let unreached = |change: fn(&mut Network)| {
        let mut network = reached();
        change(&mut network);
        network
    };
    for (what, network) in [
        ("address", unreached(|network| network.addresses.clear())),
        ("route", unreached(|network| network.default_routes.clear())),
        ("gateway", unreached(|network| network.gateways[0].answers = false)),
    ] {
        let clock = TestClock::default();
        let fake = host(&clock);
        let host = with(&fake);
        install_newest(&host).unwrap();
        trial_boot::arm(&host, &store(), &attempt(NEW)).unwrap();
        assert_eq!(boot(&fake, &clock), NEW);
        put_kernel(&fake, &ModelKernel { network: Some(network), ..kernel(&fake) });
        clock.advance(Duration::from_secs(99));
        let TrialBoot::Pending(reasons) = trial_boot::poll(&host, &store()).unwrap() else {
            panic!("{what}")
        };
        assert_eq!(reasons[0].what, what);
        clock.advance(Duration::from_secs(1));
        assert!(matches!(trial_boot::poll(&host, &store()).unwrap(), TrialBoot::Failed(_)));
        assert_eq!(trial_boot::poll(&host, &store()).unwrap(), TrialBoot::NotRunning);
        assert_eq!(boot(&fake, &clock), OLD);
        assert_eq!(kernel_status(&fake).trial.unwrap().failed[0].what, what);
    }
}

#[test]
fn trial_requires_ssh_the_controller_and_a_login_if_requested() {
    let clock = TestClock::default();
    let fake = host(&clock);
    let host = with(&fake);
    install_newest(&host).unwrap();
    trial_boot::arm(&host, &store(), &Attempt { asks: true, ..attempt(NEW) }).unwrap();
    assert_eq!(boot(&fake, &clock), NEW);
    put(&fake, "/proc/net/tcp", "  sl\n");
    put_kernel(&fake, &ModelKernel { loadable: vec![], ..kernel(&fake) });
    let TrialBoot::Pending(reasons) = trial_boot::poll(&host, &store()).unwrap() else { panic!() };
    assert_eq!(reasons.iter().map(|reason| reason.what.as_str()).collect::<Vec<_>>(), ["ssh", "controller"]);
    put(&fake, "/proc/net/tcp", "  sl\n   0: 00000000:0016 00000000:0000 0A\n");
    put_kernel(&fake, &ModelKernel { loadable: vec!["tcp_bbr".into()], ..kernel(&fake) });
    assert_eq!(trial_boot::poll(&host, &store()).unwrap(), TrialBoot::Pending(vec![]));
    assert!(!fake.exists("/sys/module/tcp_bbr"), "what was loaded to look is unloaded");
    let refused = revert::revert(&host, &store(), &revert::Options::default()).unwrap_err();
    assert!(refused.text().contains("kernel keep"), "{refused}");
    assert_eq!(roll_back(&host).unwrap(), RollBack::Restarts(OLD.into()));
    assert_eq!(boot(&fake, &clock), OLD);
    assert_eq!(kernel_status(&fake).trial.unwrap().failed[0].what, "asked");
    // Once more, and someone says so.
    trial_boot::arm(&host, &store(), &Attempt { asks: true, ..attempt(NEW) }).unwrap();
    assert_eq!(boot(&fake, &clock), NEW);
    assert_eq!(trial_boot::keep(&host, &store(), &revert::Options::default()).unwrap().release, NEW);
    assert_eq!(boot(&fake, &clock), NEW);
    assert!(!fake.exists("/var/lib/fullpipe"));
}

#[test]
fn armed_trial_can_be_disarmed_and_revert_restores_everything() {
    let clock = TestClock::default();
    let fake = host(&clock);
    let before = snapshot(&fake);
    let host = with(&fake);
    install_newest(&host).unwrap();
    trial_boot::arm(&host, &store(), &attempt(NEW)).unwrap();
    assert_eq!(roll_back(&host).unwrap(), RollBack::Disarmed(NEW.into()));
    assert_eq!(boot(&fake, &clock), OLD);
    trial_boot::arm(&host, &store(), &attempt(NEW)).unwrap();
    revert::revert(&host, &store(), &revert::Options::default()).unwrap();
    assert_eq!(boot(&fake, &clock), OLD);
    same(&fake, &before, "revert");
}

#[test]
fn packages_that_need_the_kernel_are_not_removed_with_it() {
    fn needed(host: &Fake, program: &Program) -> io::Result<ProgramOutput> {
        match program.words.iter().any(|word| word == "purge") {
            true if program.words[1] == "-s" => Ok(ProgramOutput {
                out: format!("Purg linux-image-amd64 [6.1.192-2]\nPurg linux-image-{NEW} [6.1.192-2]\n"),
                ..ProgramOutput::default()
            }),
            true => panic!("{:?}", program.words),
            false => programs(host, program),
        }
    }
    let clock = TestClock::default();
    let fake = host(&clock);
    let before = snapshot(&fake);
    install_newest(&with(&fake)).unwrap();
    let error = roll_back(&Faulty::counting(&fake).with(needed)).unwrap_err();
    assert!(
        error.text().contains("linux-image-amd64 depend on it") && error.text().contains("remove them first"),
        "{error}"
    );
    assert_eq!((boot(&fake, &clock).as_str(), kernel_status(&fake).installed.as_deref()), (OLD, Some(NEW)));
    // The operator removes it, and goes back.
    assert!(matches!(roll_back(&with(&fake)).unwrap(), RollBack::Removed(_)));
    same(&fake, &before, "back");
}

/// Every place where the process may die, with and without what the kernel had not written: the
/// host boots the old kernel, or the new
/// one once and then the old one, and goes back to what it was.
#[test]
fn killed_at_any_moment_the_old_kernel_boots_and_everything_is_restored() {
    let clock = TestClock::default();
    let untouched = host(&clock);
    let original = snapshot(&untouched);
    let ready = host(&clock);
    install_newest(&with(&ready)).unwrap();
    for (name, fake) in [("install", &untouched), ("try", &ready)] {
        let act = |host: &dyn Host| match name {
            "install" => install_newest(host).map(drop),
            _ => trial_boot::arm(host, &store(), &attempt(NEW)).map(drop),
        };
        let copy = || Model::with_clock(fake.files().copy(), clock.clone());
        let counted = copy();
        let counting = with(&counted);
        act(&counting).unwrap();
        let changes = counting.changes();
        assert!(changes > 10, "{name}: {changes}");
        for at in 0..changes {
            for fault in [Fault::CrashBefore, Fault::CrashWithin, Fault::CrashAfter] {
                let context = format!("{name}, {fault:?} of change {at}");
                let fake = copy();
                let faulty = Faulty::new(&fake, at, fault).with(programs);
                assert!(act(&faulty).is_err(), "{context}");
                assert!(faulty.dead(), "{context}");
                fake.files().lose(Loss::Nothing);
                let mut booted = boot(&fake, &clock);
                if booted == NEW {
                    assert!(fake.text("/proc/cmdline").unwrap().contains(MARK), "{context}");
                    booted = boot(&fake, &clock);
                }
                assert_eq!(booted, OLD, "{context}");
                let host = with(&fake);
                trial_boot::clean_up(&host, &store()).unwrap_or_else(|e| panic!("{context}: {e}"));
                match roll_back(&host) {
                    Ok(_) | Err(Error::Usage(_)) => {}
                    Err(e) => panic!("{context}: {e}"),
                }
                store_tidied(&host, &context);
                same(&fake, &original, &context);
            }
        }
    }
}

/// What a kill left before the journal was whole is removed by a revert.
fn store_tidied(host: &dyn Host, context: &str) {
    revert::revert(host, &store(), &revert::Options::default()).unwrap_or_else(|e| panic!("{context}: {e}"));
}

#[test]
fn killed_installation_is_resumed() {
    let clock = TestClock::default();
    let fake = host(&clock);
    let counted = Model::with_clock(fake.files().copy(), clock.clone());
    let counting = with(&counted);
    install_newest(&counting).unwrap();
    let mut resumed = 0;
    for at in 0..counting.changes() {
        let fake = Model::with_clock(fake.files().copy(), clock.clone());
        let faulty = Faulty::new(&fake, at, Fault::CrashAfter).with(programs);
        let _ = install_newest(&faulty);
        let host = with(&fake);
        if !install::is_interrupted(&host, &store()).unwrap() {
            continue;
        }
        assert!(kernel_status(&fake).summary.contains("was interrupted"));
        let done = install::resume(&host, &store()).unwrap();
        assert_eq!((done.release.as_str(), done.default.as_str()), (NEW, OLD));
        assert!(!install::is_interrupted(&host, &store()).unwrap());
        resumed += 1;
    }
    assert!(resumed > 5, "{resumed}");
}

#[test]
fn an_installation_that_fails_leaves_all_as_it_was() {
    fn failing(host: &Fake, program: &Program) -> io::Result<ProgramOutput> {
        let is_it = program.words.first().is_some_and(|word| word == "apt-get")
            && program.words.iter().any(|word| word == "install");
        match is_it && program.words[1] == "-y" {
            true => Ok(ProgramOutput {
                status: 100,
                error: "E: no space left on device".into(),
                ..ProgramOutput::default()
            }),
            false => programs(host, program),
        }
    }
    let clock = TestClock::default();
    let fake = host(&clock);
    let before = snapshot(&fake);
    let error = install_newest(&Faulty::counting(&fake).with(failing)).unwrap_err();
    assert!(
        error.text().contains("no space left") && error.text().contains("everything was rolled back"),
        "{error}"
    );
    same(&fake, &before, "failed");
}

#[test]
fn impossible_requests_are_refused_with_the_reason() {
    let clock = TestClock::default();
    let refused = |change: &dyn Fn(&Fake), act: &dyn Fn(&dyn Host) -> Option<Error>, words: &[&str]| {
        let fake = host(&clock);
        change(&fake);
        let before = snapshot(&fake);
        let error = act(&with(&fake)).unwrap_or_else(|| panic!("{words:?}: it was not refused"));
        for word in words {
            assert!(error.text().contains(word), "{word}: {error}");
        }
        assert_same(&snapshot(&fake), &before, &error.to_string());
    };
    let installs = |host: &dyn Host| install_newest(host).err();
    let of_version = |host: &dyn Host| {
        install::plan(host, &Wanted { version: Some("9.9".into()), ..Wanted::default() }).err()
    };
    let tries = |host: &dyn Host| trial_boot::arm(host, &store(), &attempt(NEW)).err();
    let with_new = |fake: &Fake| {
        put_release(fake, NEW, MODULES);
        make_menu(fake);
    };
    let room = |fake: &Fake| {
        put_kernel(fake, &ModelKernel { free: [("/".to_owned(), 50 << 20)].into(), ..kernel(fake) })
    };
    refused(&room, &installs, &["50 MB free", "free some space", "nothing was changed"]);
    refused(&|_| {}, &of_version, &["has no Linux 9.9", NEW, OLD]);
    refused(&with_new, &installs, &["already installed", "kernel try"]);
    refused(&|fake| put(fake, "/.dockerenv", ""), &installs, &["docker", "run fullpipe on the host"]);
    refused(
        &|fake| put_kernel(fake, &ModelKernel { unprivileged: true, ..kernel(fake) }),
        &installs,
        &["root"],
    );
    refused(&|fake| remove(fake, &format!("/boot/vmlinuz-{OLD}")), &installs, &["booted from outside"]);
    refused(&|fake| remove(fake, "/boot/grub/grub.cfg"), &installs, &["no supported boot loader"]);
    refused(&|_| {}, &tries, &["Linux 6.1", "is not installed; installed:", OLD]);
    refused(&|fake| put(fake, "/proc/1/comm", "init"), &tries, &["Linux 6.1", "is not installed"]);
    let without_systemd = |fake: &Fake| {
        with_new(fake);
        put(fake, "/proc/1/comm", "init");
    };
    refused(&without_systemd, &tries, &["needs systemd"]);
    let without_bbr = |fake: &Fake| {
        with_new(fake);
        put(fake, &format!("/lib/modules/{NEW}/modules.dep"), "kernel/net/sched/sch_fq.ko:\n");
    };
    refused(&without_bbr, &tries, &["has no bbr either"]);
    let secure = |fake: &Fake| {
        with_new(fake);
        put(
            fake,
            "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
            "\u{6}\0\0\0\u{1}",
        );
    };
    refused(&secure, &tries, &["Secure Boot", "mokutil"]);
    fn on_lvm(host: &Fake, program: &Program) -> io::Result<ProgramOutput> {
        match program.words[..] {
            [ref probe, ref what, _] if probe == "grub-probe" && what == "--target=abstraction" => {
                Ok(ProgramOutput { out: "lvm\n".into(), ..ProgramOutput::default() })
            }
            _ => programs(host, program),
        }
    }
    let fake = host(&clock);
    with_new(&fake);
    let before = snapshot(&fake);
    let error = trial_boot::arm(&Faulty::counting(&fake).with(on_lvm), &store(), &attempt(NEW)).unwrap_err();
    assert!(
        error.text().contains("cannot write /boot/grub/grubenv") && error.text().contains("on lvm"),
        "{error}"
    );
    assert_same(&snapshot(&fake), &before, "lvm");
}

#[test]
fn screens_fit() {
    let clock = TestClock::default();
    let fake = host(&clock);
    let host = with(&fake);
    let plan = install::plan(&host, &Wanted::default()).unwrap();
    // What a plan shows of a file is the file's, line for line.
    let of_a_file = |line: &&str| !line.starts_with("       +") && !line.starts_with("       -");
    let fits = |text: &str, width: usize| {
        for line in text.lines().filter(of_a_file) {
            assert!(line.chars().count() <= width, "{width}: {line}\nof\n{text}");
        }
    };
    install_newest(&host).unwrap();
    let tries = trial_boot::plan(&host, &attempt(NEW)).unwrap();
    for width in [80, 100] {
        let style = Style { colour: false, width };
        fits(&screen::status(style, &kernel_status(&fake)), width);
        fits(&screen::plan(style, &plan), width);
        fits(&screen::trial_boot(style, &tries), width);
    }
    let text = screen::status(Style { colour: false, width: 80 }, &kernel_status(&fake));
    for part in [
        "Linux 6.1.0-56-amd64 (installed by fullpipe, not kept yet)",
        "bbr ✓  fq ✓  BTF ✓",
        "tcp_bbr as a module, which is missing",
        "GRUB (/boot/grub/grub.cfg)",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

const NEW_RPM: &str = "6.12.1-1.el9.x86_64";
const RPM: &str = "/var/lib/dpkg/kernel-rpm";
const SYSCONFIG: &str = "/etc/sysconfig/kernel";
const ENTRIES: &str = "/boot/loader/entries";

/// A host of Red Hat's family, whose new kernels become the default: with Boot Loader Specification
/// entries, or with a menu that grubby edits.
fn rpm_host(clock: &TestClock, bls: bool) -> Fake {
    let fake = host(clock);
    for path in ["/usr/bin/apt-get", "/boot/grub/grub.cfg", "/etc/default/grub"] {
        remove(&fake, path);
    }
    put(&fake, if bls { "/usr/bin/dnf" } else { "/usr/bin/yum" }, "");
    put(&fake, "/boot/vmlinuz-0-rescue-77", "MZ");
    put(&fake, SYSCONFIG, "UPDATEDEFAULT=yes\nDEFAULTKERNEL=kernel\n");
    let mut menu = "if [ \"${next_entry}\" ] ; then\n   set default=\"${next_entry}\"\nelse\n   set \
                    default=\"${saved_entry}\"\nfi\n"
        .to_owned();
    if bls {
        menu += "insmod blscfg\nblscfg\n";
        put(&fake, &format!("{ENTRIES}/id-{OLD}.conf"), &bls_entry(OLD));
        put(
            &fake,
            &format!("{ENTRIES}/id-0-rescue.conf"),
            "title Rescue\nversion 0-rescue\nlinux /vmlinuz-0-rescue\n",
        );
    } else {
        menu += &grubby_entry(OLD);
        menu += "source ${config_directory}/custom.cfg\n";
    }
    put(&fake, "/boot/grub2/grub.cfg", &menu);
    set_variable(&fake, "saved_entry", Some(&rpm_entry(&fake, OLD)));
    fake.files().release();
    fake
}

fn bls_entry(release: &str) -> String {
    format!("title Linux ({release})\nversion {release}\nlinux /vmlinuz-{release}\noptions root=UUID=77 ro\n")
}

/// Each copy has the identifier of the first.
fn grubby_entry(release: &str) -> String {
    format!(
        "menuentry 'Linux ({release})' $menuentry_id_option 'gnulinux-{OLD}-advanced-77' {{\n\tlinux16 \
         /vmlinuz-{release} root=UUID=77 ro\n}}\n"
    )
}

/// What a distribution's tools write to `saved_entry`.
fn rpm_entry(host: &Fake, release: &str) -> String {
    if host.exists(ENTRIES) { format!("id-{release}") } else { format!("Linux ({release})") }
}

fn rpm_programs(host: &Fake, program: &Program) -> io::Result<ProgramOutput> {
    let words: Vec<&str> = program.words.iter().map(String::as_str).collect();
    let said = |out: &str| Ok(ProgramOutput { out: out.into(), ..ProgramOutput::default() });
    let menu = "/boot/grub2/grub.cfg";
    let bls = host.exists(ENTRIES);
    let entry = format!("{ENTRIES}/id-{NEW_RPM}.conf");
    match words[..] {
        // dnf 5 would list all packages named `available`.
        ["dnf", "-q", "list", "--showduplicates", "--available", "kernel"]
        | ["yum", "-q", "list", "--showduplicates", "available", "kernel"] => {
            said("kernel.x86_64  6.12.1-1.el9  updates\n")
        }
        [_, .., "--assumeno", "install", _] => {
            said("Installing:\n kernel  x86_64  6.12.1-1.el9  updates  30 M\nTransaction Summary\n")
        }
        ["dnf" | "yum", .., "install", "kernel-6.12.1-1.el9"] => {
            put_release(host, NEW_RPM, MODULES);
            put(host, RPM, "");
            if bls {
                put(host, &entry, &bls_entry(NEW_RPM));
            } else {
                let text = host.content(menu).unwrap();
                put(
                    host,
                    menu,
                    &text.replacen("menuentry", &format!("{}menuentry", grubby_entry(NEW_RPM)), 1),
                );
            }
            if host.content(SYSCONFIG).unwrap().contains("UPDATEDEFAULT=yes") {
                set_variable(host, "saved_entry", Some(&rpm_entry(host, NEW_RPM)));
            }
            said("")
        }
        ["dnf" | "yum", .., "remove", "kernel-6.12.1-1.el9"] => {
            for path in ["/boot/vmlinuz-", "/boot/initrd.img-", "/boot/config-"] {
                remove(host, &format!("{path}{NEW_RPM}"));
            }
            remove(host, &format!("/lib/modules/{NEW_RPM}/modules.dep"));
            host.remove_directory(&format!("/lib/modules/{NEW_RPM}"))?;
            remove(host, RPM);
            if bls {
                remove(host, &entry);
            } else {
                let text = host.content(menu).unwrap();
                put(host, menu, &text.replace(&grubby_entry(NEW_RPM), ""));
            }
            said("")
        }
        ["rpm", "-q", _] => {
            Ok(ProgramOutput { status: i32::from(!host.exists(RPM)), ..ProgramOutput::default() })
        }
        ["rpm", "-e", "--test", ..] | ["systemctl", ..] => said(""),
        ["grub2-editenv", "/boot/grub2/grubenv", verb, what] => {
            match (verb, what.split_once('=')) {
                ("set", Some((name, value))) => set_variable(host, name, Some(value)),
                _ => set_variable(host, what, None),
            }
            said("")
        }
        ["grub2-probe", "--target=fs", _] => said("xfs\n"),
        ["grub2-probe", ..] => said("\n"),
        _ => panic!("{words:?}"),
    }
}

fn rpm_default(host: &dyn Host) -> Option<String> {
    status(host, &store()).unwrap().boots.unwrap().default
}

#[test]
fn rpm_host_keeps_its_default_though_new_kernels_take_it() {
    for bls in [true, false] {
        let clock = TestClock::default();
        let fake = rpm_host(&clock, bls);
        let before = snapshot(&fake);
        let host = Faulty::counting(&fake).with(rpm_programs);
        assert_eq!(rpm_default(&host).as_deref(), Some(OLD));
        let kernels = status(&host, &store()).unwrap().kernels;
        assert_eq!(kernels.len(), 1, "the rescue image is not listed: {kernels:?}");
        install_newest(&host).unwrap();
        assert_eq!(rpm_default(&host).as_deref(), Some(OLD), "bls {bls}");
        roll_back(&host).unwrap();
        assert_same(&snapshot(&fake), &before, "back");

        install_newest(&host).unwrap();
        trial_boot::arm(&host, &store(), &attempt(NEW_RPM)).unwrap();
        // GRUB has booted the trial's entry, and has emptied the variable.
        let path = if bls { "/boot/loader/entries/fullpipe-trial.conf" } else { "/boot/grub2/custom.cfg" };
        let entry = fake.content(path).unwrap();
        assert!(entry.contains(&format!("/vmlinuz-{NEW_RPM}")), "{entry}");
        set_variable(&fake, "next_entry", Some(""));
        put(&fake, "/proc/cmdline", &format!("root=UUID=77 ro panic=10 {MARK}"));
        let loadable = vec!["tcp_bbr".into(), "sch_fq".into()];
        put_kernel(&fake, &ModelKernel { release: NEW_RPM.into(), loadable, ..kernel(&fake) });
        clock.restart();
        fake.files().release();
        let kept = trial_boot::poll(&host, &store()).unwrap();
        assert!(matches!(kept, TrialBoot::Kept(_)), "{kept:?}");
        assert_eq!(rpm_default(&host).as_deref(), Some(NEW_RPM), "bls {bls}");
        assert!(fake.content(SYSCONFIG).unwrap().contains("UPDATEDEFAULT=yes"), "updates go on as before");
        assert!(!fake.exists("/var/lib/fullpipe"), "the kept kernel is the operator's");
    }
}

#[test]
fn saved_entry_of_a_specification_entry_may_be_its_title_or_number() {
    let fake = rpm_host(&TestClock::default(), true);
    let host = Faulty::counting(&fake).with(rpm_programs);
    put_release(&fake, NEW_RPM, MODULES);
    put(&fake, &format!("{ENTRIES}/id-{NEW_RPM}.conf"), &bls_entry(NEW_RPM));
    for (saved, release) in [
        (Some(format!("Linux ({OLD})")), OLD),
        (Some("1".into()), OLD),
        (Some("0".into()), NEW_RPM),
        (Some("gone".into()), NEW_RPM),
        (None, NEW_RPM),
    ] {
        set_variable(&fake, "saved_entry", saved.as_deref());
        assert_eq!(rpm_default(&host).as_deref(), Some(release), "{saved:?}");
    }
}

#[test]
fn kernel_back_and_keep_refuse_settings_changed_since_and_keep_them_on_request() {
    const SETTINGS: &str = "/etc/default/grub.d/zz-fullpipe.cfg";
    let clock = TestClock::default();
    let edit = |host: &Fake| {
        let text = host.content(SETTINGS).unwrap() + "GRUB_TIMEOUT=1\n";
        put(host, SETTINGS, &text);
        text
    };
    let keep = revert::Options { keep_changed: true, ..Default::default() };

    let fake = host(&clock);
    let host_with = with(&fake);
    install_newest(&host_with).unwrap();
    let edited = edit(&fake);
    let before = snapshot(&fake);
    let error = roll_back(&host_with).unwrap_err();
    let text = error.text();
    assert!(text.contains(SETTINGS) && text.contains("kernel back --keep-changed"), "{text}");
    assert_same(&snapshot(&fake), &before, "a refusal");
    let (how, exceptions) = trial_boot::roll_back(&host_with, &store(), &keep).unwrap();
    assert!(matches!(how, RollBack::Removed(titles) if titles == [format!("Linux {NEW}")]));
    assert!(exceptions.len() == 1 && exceptions[0].contains(SETTINGS), "{exceptions:?}");
    assert_eq!(fake.content(SETTINGS).unwrap(), edited);
    assert!(!fake.exists("/var/lib/fullpipe"));

    let fake = host(&clock);
    let host_with = with(&fake);
    install_newest(&host_with).unwrap();
    trial_boot::arm(&host_with, &store(), &Attempt { asks: true, ..attempt(NEW) }).unwrap();
    let edited = edit(&fake);
    let before = snapshot(&fake);
    let error = revert::revert(&host_with, &store(), &revert::Options::default()).unwrap_err();
    assert!(error.text().contains("nothing was reverted"), "{error}");
    assert_same(&snapshot(&fake), &before, "a refusal, with the record of the trial");
    assert_eq!(boot(&fake, &clock), NEW);
    let before = snapshot(&fake);
    let error = trial_boot::keep(&host_with, &store(), &revert::Options::default()).unwrap_err();
    assert!(error.text().contains("kernel keep --keep-changed"), "{error}");
    assert_same(&snapshot(&fake), &before, "a refusal");
    let kept = trial_boot::keep(&host_with, &store(), &keep).unwrap();
    assert!(kept.exceptions[0].contains(SETTINGS), "{kept:?}");
    assert!(fake.content(SETTINGS).unwrap().contains("GRUB_TIMEOUT=1"), "{edited}");
    assert_eq!(boot(&fake, &clock), NEW, "it is the default");
}

#[test]
fn the_end_of_a_trial_keeps_an_edited_entry_and_does_not_boot_it() {
    let clock = TestClock::default();
    let fake = host(&clock);
    let host = with(&fake);
    install_newest(&host).unwrap();
    trial_boot::arm(&host, &store(), &attempt(NEW)).unwrap();
    let custom = "/boot/grub/custom.cfg";
    let edited = fake.content(custom).unwrap() + "# of the administrator\n";
    put(&fake, custom, &edited);
    assert_eq!(boot(&fake, &clock), NEW);
    assert_eq!(boot(&fake, &clock), OLD, "it panicked");
    let exceptions = trial_boot::clean_up(&host, &store()).unwrap();
    assert!(exceptions.len() == 1 && exceptions[0].contains(custom), "{exceptions:?}");
    assert_eq!(fake.content(custom).unwrap(), edited);
    assert_eq!(boot(&fake, &clock), OLD);
    // A second entry of that name would not be booted.
    let before = snapshot(&fake);
    let error = trial_boot::arm(&host, &store(), &attempt(NEW)).unwrap_err();
    assert!(error.text().contains(custom) && error.text().contains("of an earlier trial"), "{error}");
    assert_same(&snapshot(&fake), &before, "a refusal");
    remove(&fake, custom);
    trial_boot::arm(&host, &store(), &attempt(NEW)).unwrap();
    assert_eq!(boot(&fake, &clock), NEW);
}

#[test]
fn an_installation_does_not_overwrite_settings_changed_since_its_plan() {
    let clock = TestClock::default();
    let fake = host(&clock);
    let host = with(&fake);
    let plan = install::plan(&host, &Wanted::default()).unwrap();
    put(&fake, "/etc/default/grub.d/zz-fullpipe.cfg", "GRUB_DEFAULT=2\n");
    let before = snapshot(&fake);
    let error = install::install(&host, &store(), &plan).unwrap_err();
    assert!(error.text().contains("zz-fullpipe.cfg") && error.text().contains("rolled back"), "{error}");
    assert_same(&snapshot(&fake), &before, "refused");
}
