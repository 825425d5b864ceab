//! `fullpipe kernel`: exit codes, messages, JSON, screens of 80 columns, on a host in a directory.

use crate::image::kernels::{NEW, OLD, old_host};
use crate::image::{fullpipe, run, write};
use serde_json::{Value, json};
use std::path::Path;

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
