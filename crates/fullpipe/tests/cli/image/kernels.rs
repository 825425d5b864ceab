//! A host with an old kernel, and its model of a boot loader and a package manager.

use super::{content, host, write};
use serde_json::{Value, json};
use std::path::Path;

pub const OLD: &str = "6.1.0-18-amd64";
pub const NEW: &str = "6.12.9-amd64";

/// GRUB's menu with entries for these kernels, newest first.
fn menu(releases: &[&str], default: &str) -> String {
    let entry = |release: &&str| {
        format!(
            "menuentry 'Linux {release}' $menuentry_id_option 'linux-{release}' {{\n\tlinux \
             /boot/vmlinuz-{release} root=UUID=77 ro\n}}\n"
        )
    };
    let entries: String = releases.iter().map(entry).collect();
    format!(
        "if [ \"${{next_entry}}\" ] ; then\n   set default=\"${{next_entry}}\"\nelse\n   set \
         default=\"{default}\"\nfi\n{entries}\
         if [ -f ${{config_directory}}/custom.cfg ]; then\n  source ${{config_directory}}/custom.cfg\nfi\n"
    )
}

const MODULES: &str = "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n";

fn release(root: &Path, release: &str, config: &str) {
    write(root, &format!("boot/vmlinuz-{release}"), "MZ");
    write(root, &format!("boot/config-{release}"), config);
    write(root, &format!("lib/modules/{release}/modules.dep"), MODULES);
}

/// A Debian host whose kernel was built without BBR, and whose apt knows one that has it.
pub fn old_host() -> tempfile::TempDir {
    let root = host();
    let r = root.path();
    release(r, OLD, "# CONFIG_TCP_CONG_BBR is not set\nCONFIG_NET_SCH_FQ=m\nCONFIG_DEBUG_INFO_BTF=y\n");
    write(r, "boot/grub/grub.cfg", &menu(&[OLD], "0"));
    write(r, "etc/os-release", "ID=debian\nVERSION_CODENAME=bookworm\n");
    write(r, "etc/default/grub", "GRUB_DEFAULT=0\n");
    write(r, "usr/sbin/grub-mkconfig", "");
    write(r, "usr/bin/apt-get", "");
    write(r, "proc/1/comm", "systemd\n");
    let image = format!("linux-image-{NEW}");
    let program = |line: &str, out: String| json!({ "line": line, "out": out });
    let mut kernel: Value = serde_json::from_str(&content(r, "kernel.json")).unwrap();
    kernel["free"] = json!({ "/": 4_u64 << 30, "/boot": 4_u64 << 30 });
    kernel["programs"] = json!([
        program("apt-cache pkgnames linux-image-", format!("{image}\nlinux-image-{OLD}\n")),
        program(
            "apt-cache madison *",
            format!(
                " {image} | 6.12.9-1 | http://mirror.example/debian bookworm-backports/main amd64 Packages\n \
                 linux-image-{OLD} | 6.1.76-1 | http://mirror.example/debian bookworm/main amd64 Packages\n"
            ),
        ),
        program("apt-cache pkgnames linux-modules-extra-", String::new()),
        program("apt-get -s *", format!("Inst {image} (6.12.9-1 Debian:12/x [amd64])\n")),
        program("apt-cache show *", format!("Package: {image}\nInstalled-Size: 100000\n")),
        program("dpkg-deb -f *", format!("Package: {image}\nVersion: 1\nInstalled-Size: 100000\n")),
    ]);
    write(r, "kernel.json", &kernel.to_string());
    root
}

/// The same with the programs that install and remove the new kernel.
pub fn host_with_package_manager() -> tempfile::TempDir {
    let root = old_host();
    let r = root.path();
    write(r, "var/lib/dpkg/lock", "");
    let mut kernel: Value = serde_json::from_str(&content(r, "kernel.json")).unwrap();
    let mut programs = installer(&format!("linux-image-{NEW}"));
    programs.extend(kernel["programs"].as_array().unwrap().iter().cloned());
    kernel["programs"] = programs.into();
    write(r, "kernel.json", &kernel.to_string());
    root
}

/// The programs that install and remove the new kernel, with the files that they write. As dpkg
/// does, they leave a package that is neither installed nor absent if they are killed.
fn installer(image: &str) -> Vec<Value> {
    const MENU: &str = "/boot/grub/grub.cfg";
    let pinned = format!("linux-{OLD}");
    let (config, kernel) = (format!("/boot/config-{NEW}"), format!("/boot/vmlinuz-{NEW}"));
    let modules = format!("/lib/modules/{NEW}/modules.dep");
    // Written last, and removed last.
    let state = "/var/lib/dpkg/linux-image".to_owned();
    let settings = ("/etc/default/grub".to_owned(), json!(pinned));
    let found = |paths: &[&String], is_pinned: bool| -> Value {
        let files = paths.iter().map(|path| (path.to_string(), json!("")));
        files.chain(is_pinned.then(|| settings.clone())).collect::<serde_json::Map<_, _>>().into()
    };
    let mut all: Vec<Value> = ["apt-get -q update", "dpkg --force-confold --configure -a"]
        .map(|line| json!({ "line": line }))
        .into();
    for (status, given) in [
        ("install ok installed", &[&config, &state][..]),
        ("install ok unpacked", &[&config]),
        ("deinstall ok half-installed", &[&state]),
    ] {
        all.push(json!({ "line": "dpkg-query *", "out": status, "given": found(given, false) }));
    }
    all.push(json!({ "line": "dpkg-query *", "status": 1 }));
    for (is_pinned, default) in [(true, pinned.as_str()), (false, "0")] {
        let (old, both) = (menu(&[OLD], default), menu(&[NEW, OLD], default));
        let mut files = json!({ &config: "CONFIG_TCP_CONG_BBR=m\nCONFIG_NET_SCH_FQ=m\n", &kernel: "MZ" });
        (files[MENU], files[&modules], files[&state]) = (json!(both), json!(MODULES), json!("installed"));
        let given = found(&[], is_pinned);
        all.push(json!({ "line": INSTALL.to_owned() + image, "given": given, "files": files }));
        let files = json!({ &config: null, &kernel: null, &modules: null, &state: null, MENU: old });
        all.push(json!({ "line": format!("apt-get -y -q purge {image}"), "given": given, "files": files }));
        let line = format!("/usr/sbin/grub-mkconfig -o {MENU}");
        all.push(json!({ "line": line, "given": found(&[&kernel], is_pinned), "files": { MENU: both } }));
        all.push(json!({ "line": line, "given": found(&[], is_pinned), "files": { MENU: old } }));
    }
    all
}

const INSTALL: &str =
    "apt-get -y -q --no-remove --no-install-recommends -o Dpkg::Options::=--force-confold install ";
