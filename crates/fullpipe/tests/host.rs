//! The host's commands as a user meets them: exit codes, messages, JSON, on a host under a directory.

mod image;

use image::{content, fullpipe, host, write};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_host_is_examined_planned_changed_and_put_back() {
    let root = host();
    let r = root.path();
    let (code, out, _) = fullpipe(r, "doctor --rate 1gbit --rtt 200ms");
    assert_eq!(code, 1, "buffers are too small for that path: {out}");
    assert!(
        out.contains("FAIL    receive-limit") && out.lines().last().unwrap_or_default().len() > 10,
        "{out}"
    );
    let (code, out, _) = fullpipe(r, "doctor --json");
    assert_eq!(code, 0, "{out}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["schema"], "fullpipe/doctor/1");
    assert!(report["findings"].as_array().unwrap().len() > 15);

    for (command, field) in [("plan bbr", "steps"), ("status", "consistent")] {
        let (code, out, _) = fullpipe(r, &format!("{command} --json"));
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
        let name = command.split(' ').next().unwrap();
        assert_eq!((code, &document["schema"]), (0, &format!("fullpipe/{name}/1").into()), "{out}");
        assert!(!document[field].is_null(), "{out}");
    }

    let before = content(r, "etc/sysctl.conf");
    let (code, out, _) = fullpipe(r, "plan bbr --buffers auto --rate 1gbit --rtt 200ms");
    assert_eq!(code, 0, "{out}");
    for part in ["-# mine", "+# off while", "fq on each of 2 queues", "tcp_rmem", "Nothing was changed"] {
        assert!(out.contains(part) == (part != "-# mine"), "{part}: {out}");
    }
    let (code, out, err) = fullpipe(r, "apply bbr");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("seen to use bbr"), "{out}");
    assert_eq!(content(r, "proc/sys/net/ipv4/tcp_congestion_control").trim(), "bbr");
    assert_eq!(
        fullpipe(r, "apply bbr").1.lines().next().unwrap(),
        "bbr was in force already: nothing was changed."
    );
    let (code, _, err) = fullpipe(r, "apply cubic");
    assert!(code == 1 && err.contains("run `fullpipe revert` first"), "{code} {err}");
    assert_eq!(fullpipe(r, "status").0, 0);

    fs::write(r.join("etc/sysctl.d/99-zz-fullpipe.conf"), "net.ipv4.tcp_congestion_control = reno\n")
        .unwrap();
    let (code, out, _) = fullpipe(r, "status");
    assert!(code == 1 && out.contains("99-zz-fullpipe.conf"), "{out}");
    let (code, _, err) = fullpipe(r, "revert");
    assert_eq!(code, 1);
    assert!(
        err.contains("+net.ipv4.tcp_congestion_control = reno") && err.contains("--keep-changed"),
        "{err}"
    );
    let (code, out, _) = fullpipe(r, "revert --force");
    assert!(code == 0 && out.ends_with("The host is as it was before.\n"), "{out}");
    assert_eq!(content(r, "etc/sysctl.conf"), before);
    assert!(!r.join("etc/sysctl.d/99-zz-fullpipe.conf").exists() && !r.join("var/lib/fullpipe").exists());
    assert_eq!(fullpipe(r, "revert").1, "fullpipe has nothing in force on this host: nothing to revert.\n");

    for (command, field) in [("apply bbr", "made"), ("revert", "undone")] {
        let (code, out, _) = fullpipe(r, &format!("{command} --json"));
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
        let name = command.split(' ').next().unwrap();
        assert_eq!((code, &document["schema"]), (0, &format!("fullpipe/{name}/1").into()), "{out}");
        assert!(!document[field].is_null(), "{out}");
    }
}

#[test]
fn bad_input_and_what_cannot_be_are_told_apart_by_their_exit_codes() {
    let root = host();
    let r = root.path();
    for (arguments, code, part) in [
        ("plan nosuch", 2, "unknown controller `nosuch`"),
        ("plan BBR!", 2, "cannot be a controller's name"),
        ("plan hybla", 3, "fullpipe cc load fp_hybla"),
        ("plan fp_bbr3", 3, "fullpipe cc load fp_bbr3"),
        ("plan bbr --qdisc fq_pie", 3, "no fq_pie"),
        ("plan bbr --replace eth7", 2, "no device `eth7`; there are: eth0"),
        ("plan bbr --qdisc nosuch", 2, "possible values"),
        ("plan bbr --buffers auto", 2, "--rate"),
        ("doctor --rate 1gbit", 2, "--rtt"),
        ("apply bbr --confirm 1ms", 2, "at least 1s"),
        ("confirm", 2, "nothing waits"),
        ("apply", 2, "required"),
    ] {
        let (got, out, err) = fullpipe(r, arguments);
        assert_eq!(got, code, "{arguments}: {out}{err}");
        assert!(err.contains(part), "{arguments}: {err}");
    }
    let (code, _, err) = fullpipe(Path::new("/nonexistent"), "doctor");
    assert!(code == 2 && err.contains("--root /nonexistent"), "{err}");
    write(
        r,
        "kernel.json",
        r#"{"release": "6.1.0-18-amd64", "unprivileged": true, "loadable": ["tcp_bbr"]}"#,
    );
    let (code, _, err) = fullpipe(r, "apply bbr --qdisc keep");
    assert!(code == 3 && err.contains("sudo fullpipe apply bbr"), "{err}");
}

#[test]
fn the_status_is_written_for_prometheus() {
    let root = host();
    let file = root.path().join("textfile.prom");
    let (code, _, err) = fullpipe(root.path(), &format!("status --prometheus {}", file.display()));
    assert_eq!(code, 0, "{err}");
    assert!(
        fs::read_to_string(&file)
            .unwrap()
            .contains("fullpipe_host_default_controller{controller=\"cubic\"} 1")
    );
}

#[test]
fn nothing_planted_beside_the_file_for_prometheus_is_written_through() {
    let root = host();
    let directory = root.path().join("textfile");
    fs::create_dir(&directory).unwrap();
    let (file, victim) = (directory.join("fullpipe.prom"), root.path().join("victim"));
    fs::write(&victim, "precious").unwrap();
    for planted in ["fullpipe.new", "fullpipe.prom.new", "fullpipe.prom"] {
        std::os::unix::fs::symlink(&victim, directory.join(planted)).unwrap();
    }
    let (code, _, err) = fullpipe(root.path(), &format!("status --prometheus {}", file.display()));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    assert!(fs::symlink_metadata(&file).unwrap().is_file());
    assert!(fs::read_to_string(&file).unwrap().contains("fullpipe_host_consistent"));
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "nothing else is left");
}

/// A controller that the kernel lacks is loaded as eBPF, put in force in a private namespace, and taken back.
#[cfg(feature = "ebpf")]
#[test]
fn hybla_is_put_in_force_through_its_ebpf_form() {
    let program = env!("CARGO_BIN_EXE_fullpipe");
    let loaded = Command::new(program).args(["cc", "load", "fp_hybla"]).output().unwrap();
    let script = format!(
        "mount -t tmpfs none /run && ip link set lo up && {program} apply hybla --live-only --state /run/s \
         && {program} status --state /run/s && {program} revert --state /run/s"
    );
    let inside = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--net", "sh", "-c", &script])
        .output();
    let unloaded = Command::new(program).args(["cc", "unload", "fp_hybla"]).output().unwrap();
    let reason = match (&loaded.status.success(), &inside) {
        (false, _) => Some(String::from_utf8_lossy(&loaded.stderr).into_owned()),
        (_, Err(e)) => Some(format!("unshare: {e}")),
        (true, Ok(_)) => None,
    };
    if let Some(reason) = reason {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
        println!("SKIPPED: {reason}");
        return;
    }
    let inside = inside.unwrap();
    let text = String::from_utf8_lossy(&inside.stdout);
    assert!(inside.status.success(), "{text}{}", String::from_utf8_lossy(&inside.stderr));
    assert!(
        text.contains("seen to use fp_hybla") && text.contains("The host is as it was before."),
        "{text}"
    );
    assert!(unloaded.status.success(), "{}", String::from_utf8_lossy(&unloaded.stderr));
}
