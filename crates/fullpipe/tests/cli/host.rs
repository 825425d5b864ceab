//! The host commands: exit codes, messages, JSON, on a host in a directory.

use crate::image;
use crate::image::{content, fullpipe, host, write};
use fullpipe_testing::write_script;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn a_host_is_checked_planned_changed_and_restored() {
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
    let (code, out, _) = fullpipe(r, "plan --rate 1gbit --rtt 200ms");
    assert_eq!(code, 0, "{out}");
    for part in
        ["-# mine", "+# disabled by fullpipe: ", "fq on each of 2 queues", "tcp_rmem", "Nothing was changed"]
    {
        assert!(out.contains(part) == (part != "-# mine"), "{part}: {out}");
    }
    let (code, out, err) = fullpipe(r, "apply bbr");
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("A new test connection uses bbr"), "{out}");
    assert_eq!(content(r, "proc/sys/net/ipv4/tcp_congestion_control").trim(), "bbr");
    assert_eq!(
        fullpipe(r, "apply bbr").1.lines().next().unwrap(),
        "bbr was already applied: nothing changed."
    );
    let (code, _, err) = fullpipe(r, "apply cubic");
    assert!(
        code == 1 && err.contains(&format!("run `fullpipe revert --root {}` first", r.display())),
        "{code} {err}"
    );
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
    assert!(code == 0 && out.ends_with("The host is in its original state.\n"), "{out}");
    assert_eq!(content(r, "etc/sysctl.conf"), before);
    assert!(!r.join("etc/sysctl.d/99-zz-fullpipe.conf").exists() && !r.join("var/lib/fullpipe").exists());
    assert_eq!(fullpipe(r, "revert").1, "Nothing is applied on this host: nothing to revert.\n");

    for (command, field) in [("apply bbr", "made"), ("revert", "undone")] {
        let (code, out, _) = fullpipe(r, &format!("{command} --json"));
        let document: serde_json::Value = serde_json::from_str(&out).unwrap();
        let name = command.split(' ').next().unwrap();
        assert_eq!((code, &document["schema"]), (0, &format!("fullpipe/{name}/1").into()), "{out}");
        assert!(!document[field].is_null(), "{out}");
    }
}

#[test]
fn exit_codes_distinguish_bad_input_from_impossible() {
    let root = host();
    let r = root.path();
    for (arguments, code, part) in [
        ("plan nosuch", 2, "unknown controller `nosuch`"),
        ("plan BBR!", 2, "invalid controller name"),
        ("plan hybla", 3, "fullpipe cc load fp_hybla"),
        ("plan fp_bbr3", 3, "fullpipe cc load fp_bbr3"),
        ("plan bbr --qdisc fq_pie", 3, "no fq_pie"),
        ("plan bbr --replace eth7", 2, "no device `eth7`; devices: eth0"),
        ("plan bbr --qdisc nosuch", 2, "possible values"),
        ("doctor --rate 1gbit", 2, "--rtt"),
        ("apply bbr --confirm 1ms", 2, "at least 1s"),
        ("confirm", 2, "waiting for confirmation"),
        ("plan bbr --rate 1gbit", 2, "--rtt"),
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
fn advised_commands_name_the_same_host() {
    let root = host();
    let r = root.path();
    let option = format!(" --root {}`", r.display());
    let unwrapped = |text: String| text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    for (arguments, commands) in [
        ("doctor", &["plan bbr", "apply bbr", "revert"][..]),
        ("doctor hybla --verbose", &["plan fp_hybla"]),
        ("plan", &["apply bbr", "revert"]),
    ] {
        let text = unwrapped(fullpipe(r, arguments).1);
        for command in commands {
            assert!(text.contains(&format!("`fullpipe {command}{option}")), "{arguments}, {command}: {text}");
        }
        // The content of files on that host (in a plan) is for its own users.
        let reported = if arguments == "plan" { "" } else { &text };
        for given in reported.split("`fullpipe ").skip(1).filter(|given| !given.starts_with("cc ")) {
            let command = given.split('`').next().unwrap();
            assert!(command.ends_with(option.trim_end_matches('`')), "{arguments}: {command}");
        }
    }
    // A directory whose name a shell would split.
    let odd = r.join("odd one's");
    fs::create_dir(&odd).unwrap();
    write(&odd, "lib/modules/6.1.0/modules.dep", "kernel/net/ipv4/tcp_bbr.ko:\n");
    let (code, out, err) = image::run(&["plan", "bbr", "--root", odd.to_str().unwrap()]);
    let quoted = format!("--root '{}'`", odd.display().to_string().replace('\'', r"'\''"));
    assert!(code == 0 && unwrapped(out.clone()).contains(&quoted), "{out}{err}");
}

#[test]
fn live_only_changes_are_not_reported_as_persistent() {
    let root = host();
    let r = root.path();
    let unwrapped = |text: String| text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(fullpipe(r, "apply --live-only").0, 0);
    let out = unwrapped(fullpipe(r, "doctor").1);
    let next = out.split("Next:").nth(1).unwrap();
    assert!(
        out.contains("now bbr, but after a restart cubic") && next.contains("fullpipe apply bbr"),
        "{out}"
    );
    assert_eq!(fullpipe(r, "apply").0, 0);
    let out = unwrapped(fullpipe(r, "doctor").1);
    assert!(out.contains("after a restart the default is bbr"), "{out}");
    // Buffers are added in the same way, and everything is reverted at once.
    let (code, out, _) = fullpipe(r, "apply --rate 1gbit --rtt 200ms");
    assert!(code == 0 && out.contains("tcp_rmem"), "{code} {out}");
    assert_eq!(fullpipe(r, "revert").0, 0);
    assert_eq!(content(r, "proc/sys/net/ipv4/tcp_rmem"), "4096\t131072\t6291456\n");
    assert!(!r.join("etc/sysctl.d/99-zz-fullpipe.conf").exists());
    // Also if no file names a controller.
    fs::write(r.join("etc/sysctl.conf"), "").unwrap();
    assert_eq!(fullpipe(r, "apply --live-only").0, 0);
    let out = unwrapped(fullpipe(r, "doctor").1);
    assert!(
        out.contains("after a restart cubic (the kernel's built-in default") && !out.contains("nothing: bbr"),
        "{out}"
    );
}

#[test]
fn an_image_without_modules_is_not_judged_by_the_running_kernel() {
    let root = host();
    let r = root.path();
    fs::remove_file(r.join("kernel.json")).unwrap();
    for gone in ["lib/modules", "proc", "sys"] {
        fs::remove_dir_all(r.join(gone)).unwrap();
    }
    for arguments in ["plan bbr", "apply bbr"] {
        let (code, _, err) = fullpipe(r, arguments);
        assert!(
            code == 3
                && err.contains("cannot check for bbr: no kernel modules in")
                && !err.contains("cc load"),
            "{code} {err}"
        );
        assert!(!err.contains("this kernel has no"), "{err}");
    }
    let (_, out, _) = fullpipe(r, "doctor");
    let unwrapped = out.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unwrapped.contains("the image has no kernel modules") && !out.contains("eBPF"), "{out}");
}

#[test]
fn an_invalid_model_is_reported_and_not_treated_as_an_image() {
    let root = host();
    let r = root.path();
    for (text, part) in
        [("{\n\"release\": 3}", "line 2"), ("{\"releese\": \"6.1\"}", "unknown field `releese`"), ("", "EOF")]
    {
        write(r, "kernel.json", text);
        for command in ["doctor", "plan", "apply", "status", "revert", "confirm"] {
            let (code, out, err) = fullpipe(r, command);
            assert!(
                code == 2 && err.contains("kernel.json") && err.contains(part),
                "{command}: {code} {out}{err}"
            );
        }
    }
    assert!(!r.join("etc/sysctl.d/99-zz-fullpipe.conf").exists());
}

#[test]
fn doctor_never_passes_an_impossible_check() {
    let root = host();
    let r = root.path();
    let verdict = |what: &str| {
        let (_, out, _) = fullpipe(r, &format!("doctor {what} --json"));
        let report: serde_json::Value = serde_json::from_str(&out).unwrap();
        let all = report["findings"].as_array().unwrap();
        let ebpf = all.iter().find(|finding| finding["id"] == "ebpf").unwrap();
        (ebpf["verdict"].as_str().unwrap().to_owned(), ebpf["state"].as_str().unwrap().to_owned())
    };
    // It reports a kernel without the types, whether or not eBPF is needed.
    for what in ["bbr", "hybla"] {
        let (verdict, state) = verdict(what);
        assert!(verdict == "advice" && state.contains("cannot be loaded"), "{what}: {verdict}: {state}");
    }
    write(r, "sys/kernel/btf/vmlinux", "\0bpf_struct_ops_tcp_congestion_ops\0bpf_struct_ops_link_create\0");
    let (fine, state) = verdict("bbr");
    assert!(fine == "ok" && state.contains("can be loaded"), "{fine}: {state}");
    // Without permission to load, the result is unknown.
    write(r, "proc/self/status", "CapEff:\t0000000000000000\n");
    let (unknown, state) = verdict("bbr");
    assert!(unknown == "unknown" && state.contains("needs root"), "{unknown}: {state}");
}

#[test]
fn an_ebpf_substitute_is_found_by_either_name() {
    let root = host();
    let r = root.path();
    for list in ["available", "allowed"] {
        write(r, &format!("proc/sys/net/ipv4/tcp_{list}_congestion_control"), "reno cubic fp_bbr3\n");
    }
    for asked in ["bbr3", "fp_bbr3"] {
        let (code, out, _) = fullpipe(r, &format!("doctor {asked}"));
        assert!(
            code == 0 && out.contains("ok      controller             fp_bbr3 is registered"),
            "{code} {out}"
        );
        assert!(!out.contains("cc load"), "{out}");
    }
}

#[test]
fn status_writes_the_prometheus_file() {
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
fn planted_links_are_not_followed() {
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

/// A controller that the kernel lacks is loaded as eBPF, enabled in a private namespace, and
/// reverted.
#[cfg(feature = "ebpf")]
#[test]
fn apply_hybla_loads_its_ebpf_form() {
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
        text.contains("test connection uses fp_hybla") && text.contains("The host is in its original state."),
        "{text}"
    );
    assert!(unloaded.status.success(), "{}", String::from_utf8_lossy(&unloaded.stderr));
}

#[test]
fn verify_exit_code_reports_whether_changes_are_in_effect() {
    let root = host();
    let r = root.path();
    let (code, out, _) = fullpipe(r, "verify");
    assert!(code == 1 && out.contains("nothing is applied"), "{code} {out}");
    assert_eq!(fullpipe(r, "apply bbr").0, 0);
    let (code, out, _) = fullpipe(r, "verify");
    assert_eq!(code, 0, "{out}");
    for part in [
        "✓ running kernel",
        "✓ next boot",
        "99-zz-fullpipe.conf",
        "a new connection uses bbr",
        "→ bbr is applied and verified",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (code, out, _) = fullpipe(r, "verify --json");
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &document["schema"], &document["passed"]),
        (0, &"fullpipe/verify/1".into(), &true.into())
    );
    let outcome = |document: &serde_json::Value, id: &str| {
        let checks = document["checks"].as_array().unwrap();
        checks.iter().find(|check| check["id"] == id).unwrap()["outcome"].clone()
    };
    assert!(["applied", "live", "connection", "boot"].iter().all(|id| outcome(&document, id) == "passed"));

    // A later file takes precedence at the next boot; the running kernel is correct.
    write(r, "etc/sysctl.d/99-zzz.conf", "net.ipv4.tcp_congestion_control = reno\n");
    let (code, out, _) = fullpipe(r, "verify --json");
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, outcome(&document, "boot"), outcome(&document, "live")),
        (1, "failed".into(), "passed".into())
    );
    assert!(out.contains("99-zzz.conf"), "{out}");
    assert_eq!(fullpipe(r, "verify --live-only").0, 0);
    fs::remove_file(r.join("etc/sysctl.d/99-zzz.conf")).unwrap();

    // The state after a restart without the files: the kernel's own default.
    write(r, "proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
    let (code, out, _) = fullpipe(r, "verify");
    assert!(
        code == 1 && out.contains("✗ running kernel") && out.contains("a new connection uses cubic, not bbr"),
        "{out}"
    );
    let again = format!("`fullpipe apply bbr --root {}` sets it again", r.display());
    assert!(out.split_whitespace().collect::<Vec<_>>().join(" ").contains(&again), "{out}");
    assert_eq!(fullpipe(r, "apply bbr --force").0, 0);
    assert_eq!(fullpipe(r, "verify").0, 0);
    assert_eq!(fullpipe(r, "revert").0, 0);
    assert_eq!(fullpipe(r, "verify").0, 1);
    let (code, _, err) = fullpipe(r, "verify --to localhost:1");
    assert!(code == 2 && err.contains("--root"), "{code} {err}");
}

#[test]
fn verify_accepts_live_only_changes() {
    let root = host();
    let r = root.path();
    assert_eq!(fullpipe(r, "apply bbr --live-only").0, 0);
    let (code, out, _) = fullpipe(r, "verify");
    assert!(code == 1 && out.contains("✗ next boot") && out.contains("✓ running kernel"), "{out}");
    assert_eq!(fullpipe(r, "verify --live-only").0, 0);
    assert_eq!(fullpipe(r, "revert").0, 0);
}

#[test]
fn buffers_added_later_persist_and_are_reverted_with_the_rest() {
    let root = host();
    let r = root.path();
    let kept = "etc/sysctl.d/99-zz-fullpipe.conf";
    let rmem = || content(r, "proc/sys/net/ipv4/tcp_rmem");
    let mut last = (String::new(), rmem());
    for asked in ["apply bbr", "apply bbr --rate 1gbit --rtt 100ms", "apply bbr --rate 10gbit --rtt 100ms"] {
        let (code, out, err) = fullpipe(r, asked);
        let now = (content(r, kept), rmem());
        assert!(code == 0 && now != last, "{asked}: {code} {out} {err}");
        // The running kernel has what the next boot sets.
        let value = now.1.trim().split('\t').next_back().unwrap();
        assert_eq!(now.0.contains("tcp_rmem"), asked.contains("--rate"), "{}", now.0);
        assert!(!asked.contains("--rate") || now.0.contains(value), "{value}: {}", now.0);
        last = now;
        assert_eq!(fullpipe(r, "verify").0, 0);
        // Smaller or equal values are already satisfied.
        for again in [asked, "apply bbr", "apply bbr --rate 10mbit --rtt 10ms"] {
            let (code, out, err) = fullpipe(r, again);
            assert!(
                code == 0 && out.contains("already applied: nothing changed"),
                "{again}: {code} {out} {err}"
            );
        }
    }
    assert_eq!(fullpipe(r, "revert").0, 0);
    assert_eq!(rmem(), "4096\t131072\t6291456\n");
    assert!(!r.join(kept).exists());

    assert_eq!(fullpipe(r, "apply bbr --live-only").0, 0);
    assert_eq!(fullpipe(r, "apply bbr --rate 1gbit --rtt 100ms").0, 0);
    assert!(content(r, kept).contains("tcp_rmem") && content(r, kept).contains("= bbr"));
    assert_eq!((fullpipe(r, "verify").0, fullpipe(r, "revert").0), (0, 0));
    assert!(!r.join(kept).exists());
}

/// The scripts that packages run before the program is removed, with other paths.
#[test]
fn a_package_waits_a_bounded_time_and_stays_while_a_journal_may_be_needed() {
    let root = tempfile::tempdir().unwrap();
    let r = root.path();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    // A fullpipe that hangs.
    write_script(&r.join("fullpipe"), "#!/bin/sh\nexec sleep 60\n");
    for (script, argument) in [("debian/prerm", "remove"), ("rpm/preun", "0")] {
        let text = fs::read_to_string(packaging.join(script)).unwrap();
        let at = |path: &str| r.join(path).display().to_string();
        let text = text
            .replace("/usr/bin/fullpipe", &at("fullpipe"))
            .replace("/var/lib/fullpipe", &at("var"))
            .replace("/run/fullpipe-net-", &at("net-"))
            .replace("timeout -k 5 60 ", "timeout -k 1 1 ")
            .replace("systemctl ", "true ");
        let may_go = || {
            let began = Instant::now();
            let status = Command::new("sh")
                .args(["-c", &text, "sh", argument])
                .stderr(Stdio::null())
                .status()
                .unwrap();
            assert!(began.elapsed() < Duration::from_secs(20), "{script}");
            status.success()
        };
        assert!(may_go(), "{script}: nothing is applied");
        for journal in ["var/host.journal", "net-4026531840/host.journal"] {
            write(r, journal, "unreadable");
            assert!(!may_go(), "{script}: {journal} may be needed");
            fs::remove_file(r.join(journal)).unwrap();
        }
        assert!(may_go(), "{script}: empty directories");
    }
}

/// rpm 6 runs the scripts of packages without a network, where nothing is applied.
#[test]
fn a_package_asks_about_the_host_and_not_about_a_namespace_of_its_own() {
    // A host of its own, as process 1 sees it.
    let on_a_host = |script: &str| {
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
            "--net",
            "--kill-child",
        ]);
        command.args(["sh", "-c", script]).stderr(Stdio::null());
        command
    };
    if !on_a_host("true").status().is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("CI").is_none(), "no user namespaces");
        println!("SKIPPED: this machine lets no one make user namespaces (unshare -Urmnpf)");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let r = root.path();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    // A fullpipe whose changes are those of the host.
    let stub = r#"#!/bin/sh
echo '{'
[ "$(readlink /proc/self/ns/net)" != "$HOST" ] || echo '  "phase": "applied",'
echo '}'
"#;
    write_script(&r.join("fullpipe"), stub);
    for (script, argument) in [("debian/prerm", "remove"), ("rpm/preun", "0")] {
        let text = fs::read_to_string(packaging.join(script)).unwrap();
        let text = text
            .replace("/usr/bin/fullpipe", &r.join("fullpipe").display().to_string())
            .replace("systemctl ", "true ");
        for separate in ["", "unshare --net "] {
            let run = format!(
                "HOST=$(readlink /proc/1/ns/net) && export HOST
                 ! {separate}sh -c \"$SCRIPT\" sh {argument} && echo kept"
            );
            let output = on_a_host(&run).env("SCRIPT", &text).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "kept\n", "{script}: {separate}");
        }
    }
}
