//! `fullpipe kernel`: exit codes, messages, JSON, screens of 80 columns, on a host in a directory.

mod image;

use image::{content, fullpipe, host, run, write};
use serde_json::{Value, json};
use std::path::Path;

const OLD: &str = "6.1.0-18-amd64";
const NEW: &str = "6.12.9-amd64";

/// Boot entries for these kernels, newest first, and GRUB's environment.
fn menu(root: &Path, releases: &[&str]) {
    let entry = |release: &&str| {
        format!(
            "menuentry 'Linux {release}' $menuentry_id_option 'linux-{release}' {{\n\tlinux \
             /boot/vmlinuz-{release} root=UUID=77 ro\n}}\n"
        )
    };
    let entries: String = releases.iter().map(entry).collect();
    let text = format!(
        "if [ \"${{next_entry}}\" ] ; then\n   set default=\"${{next_entry}}\"\nelse\n   set \
         default=\"0\"\nfi\n{entries}\
         if [ -f ${{config_directory}}/custom.cfg ]; then\n  source ${{config_directory}}/custom.cfg\nfi\n"
    );
    write(root, "boot/grub/grub.cfg", &text);
}

fn release(root: &Path, release: &str, config: &str) {
    write(root, &format!("boot/vmlinuz-{release}"), "MZ");
    write(root, &format!("boot/config-{release}"), config);
    let modules = "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n";
    write(root, &format!("lib/modules/{release}/modules.dep"), modules);
}

/// A Debian host whose kernel was built without BBR, and whose apt knows one that has it.
fn old_host() -> tempfile::TempDir {
    let root = host();
    let r = root.path();
    release(r, OLD, "# CONFIG_TCP_CONG_BBR is not set\nCONFIG_NET_SCH_FQ=m\nCONFIG_DEBUG_INFO_BTF=y\n");
    menu(r, &[OLD]);
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
            )
        ),
        program("apt-cache pkgnames linux-modules-extra-", String::new()),
        program("apt-get -s *", format!("Inst {image} (6.12.9-1 Debian:12/x [amd64])\n")),
        program("apt-cache show *", format!("Package: {image}\nInstalled-Size: 100000\n")),
        program("dpkg-deb -f *", format!("Package: {image}\nVersion: 1\nInstalled-Size: 100000\n")),
    ]);
    write(r, "kernel.json", &kernel.to_string());
    root
}

fn document(root: &Path, arguments: &str) -> Value {
    let (code, out, err) = fullpipe(root, arguments);
    assert_eq!((code, err.as_str()), (0, ""), "{arguments}: {out}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{arguments}: {e}: {out}"))
}

#[test]
fn kernel_status_and_plan_json_name_their_schema() {
    let root = old_host();
    let r = root.path();
    let status = document(r, "kernel status --json");
    assert_eq!(status["schema"], "fullpipe/kernel-status/1");
    assert_eq!((&status["running"], &status["boots"]["default"]), (&OLD.into(), &OLD.into()));
    assert_eq!(status["kernels"][0]["options"]["CONFIG_TCP_CONG_BBR"], "n");
    assert_eq!((&status["manager"], &status["boot_free"]), (&"apt-get".into(), &(4_u64 << 30).into()));
    assert_eq!((&status["secure_boot"], &status["interrupted"]), (&false.into(), &false.into()));
    assert!(status["summary"].as_str().unwrap().contains("lacks CONFIG_TCP_CONG_BBR"), "{status}");
    for absent in ["obstacle", "trial", "installed"] {
        assert!(status.get(absent).is_none(), "{absent}: {status}");
    }

    let plan = document(r, "kernel plan --json");
    assert_eq!(
        (&plan["schema"], &plan["kernel"]["release"]),
        (&"fullpipe/kernel-plan/1".into(), &NEW.into())
    );
    let kind = |step: &Value| step["change"].as_object().unwrap().keys().next().unwrap().clone();
    let changes: Vec<String> = plan["steps"].as_array().unwrap().iter().map(kind).collect();
    assert_eq!(changes, ["bootsettings", "packages"]);
    assert_eq!(plan["packages"]["installed"][0]["name"], format!("linux-image-{NEW}"));
    assert_eq!(plan["others"], json!([OLD]));

    let file = format!("{}/linux-image-{NEW}_1_amd64.deb", r.display());
    write(r, &format!("linux-image-{NEW}_1_amd64.deb"), "");
    let plan = document(r, &format!("kernel plan {file} --json"));
    assert_eq!((&plan["kernel"]["release"], &plan["kernel"]["packages"]), (&NEW.into(), &json!([file])));
}

#[test]
fn kernel_screens_fit_80_columns() {
    let root = old_host();
    let r = root.path();
    for (arguments, parts) in [
        ("kernel status", &["Linux 6.1.0-18-amd64 (running, default)", "bbr ✗  fq ✓  BTF ✓", "GRUB"][..]),
        (
            "kernel plan",
            &["Steps to install Linux 6.12.9-amd64", "bookworm-backports", "Nothing was changed"],
        ),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        command.args(arguments.split(' ')).arg("--root").arg(r).env("COLUMNS", "80").env("NO_COLOR", "1");
        let out = String::from_utf8(command.output().unwrap().stdout).unwrap();
        for line in out.lines() {
            // A plan shows file contents unwrapped, and the path of the test's directory may be
            // long.
            let is_ours = !line.starts_with("       +") && !line.contains(r.to_str().unwrap());
            assert!(!is_ours || line.chars().count() <= 80, "{arguments}: {line}\nof\n{out}");
        }
        assert!(!out.contains("\n\n\n"), "{out}");
        for part in parts {
            assert!(out.contains(part), "{part}: {out}");
        }
    }
}

#[test]
fn kernel_exit_codes_distinguish_bad_input_from_impossible() {
    let root = old_host();
    let r = root.path();
    for (arguments, code, part) in [
        ("kernel plan 9.9", 2, "has no Linux 9.9; available: 6.12.9-amd64"),
        ("kernel plan 6.1", 1, "is already installed"),
        ("kernel plan --from hwe", 2, "on Ubuntu only"),
        ("kernel plan ./nosuch.deb", 2, "./nosuch.deb: No such file"),
        ("kernel plan --from nosuch", 2, "possible values"),
        ("kernel plan 6.12 --newest", 2, "unexpected argument"),
        ("kernel try 6.12 --yes", 2, "Linux 6.12 is not installed"),
        ("kernel try 6.1 --yes", 2, "is already running"),
        ("kernel try 6.1 --within 1s --yes", 2, "at least 30s"),
        ("kernel keep", 2, "nothing to keep"),
        ("kernel back --yes", 2, "no kernel installed or tried"),
        ("kernel install", 2, "--yes installs it without asking"),
    ] {
        let (got, out, err) = fullpipe(r, arguments);
        assert_eq!(got, code, "{arguments}: {out}{err}");
        assert!(err.contains(part), "{arguments}: {err}");
    }
    // An image that is not running has no kernel to change.
    std::fs::remove_file(r.join("kernel.json")).unwrap();
    let (code, out, _) = fullpipe(r, "kernel status");
    assert!(code == 0 && out.contains("an image, not a running host"), "{out}");
    let (code, _, err) = fullpipe(r, "kernel plan");
    assert!(code == 3 && err.contains("with its own package manager"), "{err}");
    let (code, _, err) = run(&["kernel", "status", "--root", "/nonexistent"]);
    assert!(code == 2 && err.contains("--root /nonexistent"), "{err}");
}
