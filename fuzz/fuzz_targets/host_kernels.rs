//! What is read about a host's kernels: boot loaders' menus and variables, configurations, a trial
//! that was written down, and what package managers say. Whatever they say, looking ends, and plans
//! are made or refused with a reason.
#![no_main]

mod image;

use fullpipe_host::host::{Model, ModelKernel, ModelProgram, Network};
use fullpipe_host::journal::Store;
use fullpipe_host::kernel::packages::Source as PackageSource;
use fullpipe_host::kernel::{extlinux, grub, install, screen, status, trial_boot};
use fullpipe_host::screen::Style;
use image::{Image, parts};
use libfuzzer_sys::fuzz_target;
use std::collections::HashMap;
use std::time::Duration;

const RUNS: &str = "6.1.0-1-amd64";

/// The files that are read, by the number that a part of the input has; then the programs.
const NAMES: [&str; 24] = [
    "/boot/grub/grub.cfg",
    "/boot/grub/grubenv",
    "/boot/grub/custom.cfg",
    "/boot/extlinux/extlinux.conf",
    "/boot/extlinux/ldlinux.sys",
    "/boot/loader/entries/a.conf",
    "/boot/loader/entries/b.conf",
    "/sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f",
    "/sys/firmware/efi/efivars/LoaderEntryDefault-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f",
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
    "/boot/config-6.1.0-1-amd64",
    "/boot/config-6.12.0-1-amd64",
    "/boot/vmlinuz-6.12.0-1-amd64",
    "/lib/modules/6.1.0-1-amd64/modules.dep",
    "/lib/modules/6.12.0-1-amd64/modules.dep",
    "/etc/default/grub",
    "/etc/os-release",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/x.sources",
    "/etc/sysconfig/kernel",
    "/proc/self/mounts",
    "/proc/cmdline",
    "/proc/net/tcp",
    "/var/lib/fullpipe/kernel.json",
];
const PROGRAMS: [&str; 15] = [
    "apt-cache pkgnames linux-image-",
    "apt-cache madison *",
    "apt-cache pkgnames linux-modules-extra-",
    "apt-get -s *",
    "apt-cache show *",
    "apt-cache depends *",
    "dpkg-deb -f *",
    "dnf -q *",
    "dnf -y *",
    "rpm *",
    "zypper *",
    "pacman *",
    "apk *",
    "grub-probe --target=fs *",
    "grub-probe --target=abstraction *",
];
const MANAGERS: [&str; 5] =
    ["/usr/bin/apt-get", "/usr/bin/dnf", "/usr/bin/zypper", "/usr/bin/pacman", "/sbin/apk"];

fuzz_target!(|bytes: &[u8]| {
    let Some((&manager, bytes)) = bytes.split_first() else { return };
    let mut files = HashMap::from([
        ("/boot/vmlinuz-6.1.0-1-amd64", Vec::new()),
        ("/lib/modules/6.1.0-1-amd64/modules.dep", Vec::new()),
        ("/proc/1/comm", b"systemd".to_vec()),
        (MANAGERS[usize::from(manager) % MANAGERS.len()], Vec::new()),
    ]);
    let mut programs = Vec::new();
    for (number, content) in parts(bytes) {
        match number % (NAMES.len() + PROGRAMS.len()) {
            file if file < NAMES.len() => {
                files.insert(NAMES[file], content.to_vec());
            }
            program => programs.push(ModelProgram {
                line: PROGRAMS[program - NAMES.len()].to_owned(),
                out: String::from_utf8_lossy(content).into_owned(),
                ..ModelProgram::default()
            }),
        }
    }
    let kernel = ModelKernel {
        release: RUNS.to_owned(),
        programs,
        free: ["/", "/boot"].map(|place| (place.to_owned(), 4 << 30)).into(),
        network: Some(Network::default()),
        ..ModelKernel::default()
    };
    files.insert("/kernel.json", serde_json::to_vec(&kernel).unwrap());
    if let Some(menu) = files.get("/boot/grub/grub.cfg") {
        let menu = grub::Menu::parse(&String::from_utf8_lossy(menu));
        for entry in &menu.entries {
            let Some(text) = entry.once("t", "panic=1") else { continue };
            let again = grub::Menu::parse(&text);
            assert!(again.entries.iter().all(|one| one.image == entry.image), "{entry:?}: {again:?}");
        }
        let _ = menu.named(&menu.default);
    }
    if let Some(loader) = files.get("/boot/extlinux/ldlinux.sys") {
        let _ = extlinux::boot_once_label(loader);
    }

    let host = Model::new(Image::from_files(files));
    let style = Style { colour: false, width: 80 };
    if let Ok(status) = status::status(&host, &Store::at("/var/lib/fullpipe")) {
        let _ = (screen::status(style, &status), serde_json::to_vec(&status).unwrap());
    }
    let froms = [None, Some(PackageSource::Backports), Some(PackageSource::Elrepo), Some(PackageSource::Hwe)];
    let wanted = froms.map(|from| install::Request { from, ..install::Request::default() });
    let file = install::Request { file: Some("/x.deb".to_owned()), ..install::Request::default() };
    for request in wanted.into_iter().chain([file]) {
        let _ = install::source(&host, &request);
        if let Ok(plan) = install::plan(&host, &request) {
            let _ = (screen::plan(style, &plan), serde_json::to_vec(&plan).unwrap());
        }
    }
    let request = trial_boot::Request {
        version: "6.12".to_owned(),
        controller: "bbr".to_owned(),
        within: Duration::from_secs(100),
        asks: false,
        program: "/usr/bin/fullpipe".to_owned(),
    };
    if let Ok(plan) = trial_boot::plan(&host, &request) {
        let _ = screen::trial_boot(style, &plan);
    }
});
