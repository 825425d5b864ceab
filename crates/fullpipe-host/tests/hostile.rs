//! Hostile images: endless files and patterns, profiles that include each other, and journals of
//! other users.

use fullpipe_host::checks::{self, Question};
use fullpipe_host::host::{Directory, Model, View};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::{self, Request};
use fullpipe_host::{apply, boot, revert, status};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

fn write(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// An image of a Debian host that does not run.
fn image() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let r = root.path();
    write(r, "lib/modules/6.1.0/modules.dep", "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n");
    write(r, "usr/lib/systemd/systemd-sysctl", "");
    for directory in ["etc/sysctl.d", "run", "var/lib"] {
        fs::create_dir_all(r.join(directory)).unwrap();
    }
    root
}

fn host(root: &Path) -> Model<Directory> {
    Model::new(Directory::new(root))
}

fn store() -> Store {
    Store::at("/var/lib/fullpipe")
}

/// Every command that reads.
fn read_all(root: &Path) -> Result<plan::Plan, fullpipe_host::Error> {
    let host = host(root);
    checks::examine(&host, &Question { controller: "bbr".into(), path: None });
    let _ = status::status(&host, &store());
    plan::make(&host, &Request::new("bbr"), "/usr/bin/fullpipe")
}

#[test]
fn endless_patterns_and_hundreds_of_thousands_of_lines_are_read_to_their_end() {
    let root = image();
    let r = root.path();
    write(r, "etc/sysctl.d/10-stars.conf", "*".repeat(1_000_000) + " = 1\n");
    write(
        r,
        "etc/sysctl.d/11-backtracking.conf",
        "*a".repeat(40) + "*b = 1\nnet/ipv4/" + &"*t".repeat(40) + "*b = 1\n",
    );
    let keys: String = (0..200_000).map(|i| format!("net.ipv4.conf.eth{i}.rp_filter = {i}\n")).collect();
    write(r, "etc/sysctl.d/20-keys.conf", &keys);
    let globs: String = (0..2_000).map(|i| format!("net/*/x{i}* = 1\n-net/*/y{i}*\n")).collect();
    write(r, "etc/sysctl.d/21-globs.conf", globs);
    write(r, "etc/modules", (0..200_000).map(|i| format!("module{i}\n")).collect::<String>());
    read_all(r).unwrap();
    let lines = boot::simulate(&host(r), boot::Program::Systemd);
    assert_eq!(lines.iter().filter(|a| a.key.ends_with("rp_filter")).count(), 200_000);

    let again = "net.ipv4.tcp_congestion_control = cubic\n".repeat(20_000);
    write(r, "etc/sysctl.d/zzz-again.conf", again);
    let error = plan::make(&host(r), &Request::new("bbr"), "/usr/bin/fullpipe").unwrap_err();
    assert!(error.text().contains("lines set net.ipv4.tcp_congestion_control"), "{error}");
}

#[test]
fn irregular_and_oversized_files_count_as_unreadable() {
    let root = image();
    let r = root.path();
    let fifo = |path: &str| {
        let path = r.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    for path in [
        "etc/sysctl.d/10-pipe.conf",
        "etc/sysctl.conf",
        "etc/modules",
        "etc/modules-load.d/x.conf",
        "etc/ufw/ufw.conf",
        "etc/default/ufw",
        "etc/tuned/active_profile",
        "etc/os-release",
        "proc/cmdline",
        "proc/config.gz",
        "proc/self/mounts",
        "boot/config-6.1.0",
        "kernel.json",
    ] {
        fifo(path);
    }
    let zero = Command::new("mknod").arg(r.join("zero")).args(["c", "1", "5"]).status();
    if zero.is_ok_and(|status| status.success()) {
        symlink("/zero", r.join("etc/sysctl.d/20-zero.conf")).unwrap();
        assert!(host(r).read("/zero").unwrap_err().to_string().contains("not a regular file"));
    } else {
        println!("no device could be made: not tried");
    }
    fs::File::create(r.join("etc/sysctl.d/30-large.conf")).unwrap().set_len(1 << 40).unwrap();
    read_all(r).unwrap();
    fs::create_dir_all(r.join("var/lib/fullpipe")).unwrap();
    fifo("var/lib/fullpipe/host.journal");
    assert!(status::status(&host(r), &store()).is_err());
}

#[test]
fn profiles_that_include_each_other_are_each_read_once() {
    let root = image();
    let r = root.path();
    write(r, "etc/tuned/active_profile", "p0\n");
    let all: Vec<String> = (0..20).map(|i| format!("p{i}")).collect();
    for name in &all {
        write(
            r,
            &format!("etc/tuned/{name}/tuned.conf"),
            format!("[main]\ninclude={}\n[sysctl]\nnet.ipv4.tcp_sack=1\n", all.join(",")),
        );
    }
    fs::create_dir_all(r.join("etc/systemd/system/multi-user.target.wants")).unwrap();
    symlink("/x", r.join("etc/systemd/system/multi-user.target.wants/tuned.service")).unwrap();
    assert_eq!(boot::simulate(&host(r), boot::Program::Tuned).len(), 20);
    read_all(r).unwrap();
}

#[test]
fn no_path_of_an_image_leads_out_of_it() {
    let outside = tempfile::tempdir().unwrap();
    let root = image();
    let r = root.path();
    let o = outside.path();
    write(o, "sysctl.conf", "net.ipv4.tcp_congestion_control = outside\n");
    write(o, "victim", "precious\n");
    fs::remove_dir(r.join("etc/sysctl.d")).unwrap();
    symlink(o, r.join("etc/sysctl.d")).unwrap();
    symlink(o.join("sysctl.conf"), r.join("etc/sysctl.conf")).unwrap();
    symlink(o.join("victim"), r.join("run/fullpipe.lock")).unwrap();
    fs::remove_dir(r.join("var/lib")).unwrap();
    symlink(o, r.join("var/lib")).unwrap();
    let before: Vec<_> = fs::read_dir(o).unwrap().map(|e| e.unwrap().file_name()).collect();
    let error =
        apply::apply(&host(r), &store(), &Request::new("bbr"), &apply::Options::default()).unwrap_err();
    assert!(error.text().contains("lock"), "{error}");
    fs::remove_file(r.join("run/fullpipe.lock")).unwrap();
    let _ = apply::apply(&host(r), &store(), &Request::new("bbr"), &apply::Options::default());
    let after: Vec<_> = fs::read_dir(o).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(after, before);
    assert_eq!(fs::read_to_string(o.join("victim")).unwrap(), "precious\n");
    assert!(fs::read_to_string(o.join("sysctl.conf")).unwrap().ends_with("= outside\n"));
    let mentions = boot::mentions(&host(r), "net.ipv4.tcp_congestion_control");
    assert!(mentions.iter().all(|a| a.value != "outside"), "{mentions:?}");
}

#[test]
fn a_file_with_the_temporary_name_is_neither_replaced_nor_removed() {
    let root = image();
    let r = root.path();
    write(r, "etc/sysctl.conf", "net.ipv4.tcp_congestion_control = reno\n");
    write(r, "etc/sysctl.conf.fullpipe-new", "precious\n");
    let apply = || apply::apply(&host(r), &store(), &Request::new("bbr"), &apply::Options::default());
    let error = apply().unwrap_err();
    assert!(error.text().contains("/etc/sysctl.conf.fullpipe-new exists"), "{error}");
    assert_eq!(fs::read_to_string(r.join("etc/sysctl.conf.fullpipe-new")).unwrap(), "precious\n");
    assert!(!r.join("var/lib/fullpipe").exists(), "nothing was begun");
    fs::remove_file(r.join("etc/sysctl.conf.fullpipe-new")).unwrap();
    apply().unwrap();
}

#[test]
fn a_journal_that_would_be_too_large_to_read_is_not_written() {
    let root = image();
    let r = root.path();
    let text = "#".repeat(9 << 20) + "\nnet.ipv4.tcp_congestion_control = reno\n";
    write(r, "etc/sysctl.conf", &text);
    let options = apply::Options::default();
    let error = apply::apply(&host(r), &store(), &Request::new("bbr"), &options).unwrap_err();
    assert!(error.text().contains("would be larger than 15 MiB"), "{error}");
    assert!(status::status(&host(r), &store()).unwrap().phase.is_none(), "nothing was begun");
    assert_eq!(fs::read(r.join("etc/sysctl.conf")).unwrap(), text.as_bytes());
    assert!(revert::revert(&host(r), &store(), &revert::Options::default()).unwrap().is_none());
    assert!(!r.join("var/lib/fullpipe").exists());
}

#[test]
fn a_journal_that_someone_else_may_write_is_refused_and_one_that_is_cut_off_kept() {
    let root = image();
    let r = root.path();
    let journal = r.join("var/lib/fullpipe/host.journal");
    let in_force = || apply::apply(&host(r), &store(), &Request::new("bbr"), &apply::Options::default());
    in_force().unwrap();
    let whole = fs::read(&journal).unwrap();
    let first = whole.iter().position(|&b| b == b'\n').unwrap();
    for cut in [0, 1, 20, first / 2, first - 1] {
        fs::write(&journal, &whole[..cut]).unwrap();
        let errors = [
            status::status(&host(r), &store()).unwrap_err(),
            revert::revert(&host(r), &store(), &revert::Options { force: true, ..Default::default() })
                .unwrap_err(),
            in_force().unwrap_err(),
        ];
        assert!(errors.iter().all(|e| e.text().contains("cut off")), "{errors:?}");
        assert_eq!(fs::read(&journal).unwrap(), &whole[..cut], "the only copy is kept");
    }
    fs::write(&journal, &whole).unwrap();

    let refused = |what: &str| {
        let error = revert::revert(&host(r), &store(), &revert::Options::default()).expect_err(what);
        assert!(error.text().contains("is not trusted"), "{what}: {error}");
        assert!(status::status(&host(r), &store()).is_err(), "{what}");
        assert!(journal.exists());
    };
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(&journal, 0o620);
    refused("written by its group");
    mode(&journal, 0o600);
    mode(journal.parent().unwrap(), 0o777);
    refused("in a directory of everybody's");
    mode(journal.parent().unwrap(), 0o755);
    let elsewhere = journal.with_file_name("elsewhere");
    fs::rename(&journal, &elsewhere).unwrap();
    symlink("elsewhere", &journal).unwrap();
    refused("a link");
    fs::rename(&elsewhere, &journal).unwrap();
    if chown(&journal, Some(65534), Some(65534)).is_ok() {
        refused("of another user");
        chown(&journal, Some(0), Some(0)).unwrap();
    } else {
        println!("not root: no other owner was tried");
    }
    revert::revert(&host(r), &store(), &revert::Options::default()).unwrap().unwrap();
    assert!(!journal.exists());
}
