//! Hostile images: endless files and patterns, profiles that include each other, and journals of
//! other users.

use fullpipe_files::attributes;
use fullpipe_host::checks::{self, Question};
use fullpipe_host::host::{DelegateFiles, Directory, Model, View};
use fullpipe_host::journal::Store;
use fullpipe_host::plan::{self, Request};
use fullpipe_host::{apply, boot, revert, status, trial};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
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
    let systemd = [boot::Program::Systemd];
    let last = boot::winner(&host(r), &systemd, "net.ipv4.conf.eth199999.rp_filter", &|_, _| true);
    assert_eq!(last.unwrap().line, 200_000);

    let again = "net.ipv4.tcp_congestion_control = cubic\n".repeat(20_000);
    write(r, "etc/sysctl.d/zzz-again.conf", again);
    let error = plan::make(&host(r), &Request::new("bbr"), "/usr/bin/fullpipe").unwrap_err();
    assert!(error.text().contains("lines set net.ipv4.tcp_congestion_control"), "{error}");
}

#[test]
fn irregular_files_count_as_unreadable_and_oversized_ones_are_an_error() {
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
    read_all(r).unwrap();
    fs::File::create(r.join("etc/sysctl.d/30-large.conf")).unwrap().set_len(1 << 40).unwrap();
    let error = read_all(r).unwrap_err();
    assert!(error.text().contains("/etc/sysctl.d/30-large.conf is larger than 16 MiB"), "{error}");
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

/// Files of an image whose owner replaces the journal's directory at one moment, and puts the genuine
/// one back at another.
struct Swapping {
    files: Directory,
    root: PathBuf,
    at: usize,
    back: usize,
    calls: Cell<usize>,
}

impl Swapping {
    fn call(&self) -> &Directory {
        let path = |name: &str| self.root.join("var/lib").join(name);
        let call = self.calls.replace(self.calls.get() + 1);
        if call == self.at {
            // A revert may have removed it already.
            let _ = fs::rename(path("fullpipe"), path("own"));
            fs::rename(path("forged"), path("fullpipe")).unwrap();
        }
        if call == self.back {
            fs::rename(path("fullpipe"), path("forged")).unwrap();
            let _ = fs::rename(path("own"), path("fullpipe"));
        }
        &self.files
    }
}

/// Every call that looks up a path counts; what is read of an open directory does not.
impl DelegateFiles for Swapping {
    type Files = Directory;

    fn files(&self) -> &Directory {
        self.call()
    }
}

/// A line of a journal with its checksum.
fn line(record: &serde_json::Value) -> String {
    let json = record.to_string();
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x} {json}\n", json.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The journal of an overdue trial whose rollback writes a program.
fn forged(genuine: &str, path: &str, mode: u32) -> String {
    let first = genuine.lines().next().unwrap().split_once(' ').unwrap().1;
    let mut begin: serde_json::Value = serde_json::from_str(first).unwrap();
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let content = serde_json::json!({"text": "#!/bin/sh\n"});
    let before = serde_json::json!({"file": {"content": content, "mode": mode, "uid": uid, "gid": gid}});
    let step = serde_json::json!({
        "change": {"file": {"path": path, "before": before, "after": "absent"}},
        "why": "",
    });
    begin["begin"]["plan"]["steps"] = serde_json::json!([step]);
    let trial = serde_json::json!({"trial": {"boot": "another", "until": 1}});
    [begin, serde_json::json!("applied"), trial].iter().map(line).collect()
}

const PROGRAM: &str = "/var/lib/program";

/// An image with an apply and, beside its journal, a forged one in a world-writable directory.
fn image_with_forgery() -> tempfile::TempDir {
    let root = image();
    let r = root.path();
    let request = Request::new("bbr");
    apply::apply(&host(r), &store(), &request, &apply::Options::default()).unwrap();
    let genuine = fs::read_to_string(r.join("var/lib/fullpipe/host.journal")).unwrap();
    write(r, "var/lib/forged/host.journal", forged(&genuine, PROGRAM, 0o755));
    // Its file is as trusted as one that its owner has moved there.
    for (path, mode) in [("var/lib/forged", 0o777), ("var/lib/forged/host.journal", 0o600)] {
        fs::set_permissions(r.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    let _ = chown(r.join("var/lib/forged"), Some(65534), Some(65534));
    root
}

#[test]
fn a_journal_swapped_at_any_moment_is_not_used() {
    type Command = fn(&Model<Swapping>);
    let commands: [(&str, Command); 3] = [
        ("revert --force", |host| {
            let options = revert::Options { force: true, ..Default::default() };
            let _ = revert::revert(host, &store(), &options);
        }),
        ("settle", |host| drop(trial::revert_expired(host, &store()))),
        ("apply", |host| {
            let options = apply::Options { force: true, ..Default::default() };
            let _ = apply::apply(host, &store(), &Request::new("cubic"), &options);
        }),
    ];
    for (name, command) in commands {
        // Where its owner has put it in place, the forged journal is used: the test can fail.
        let root = image_with_forgery();
        let r = root.path();
        fs::rename(r.join("var/lib/forged/host.journal"), r.join("var/lib/fullpipe/host.journal")).unwrap();
        let files = Directory::new(r);
        let (at, back) = (usize::MAX, usize::MAX);
        command(&Model::new(Swapping { files, root: r.into(), at, back, calls: Cell::new(0) }));
        assert!(r.join(&PROGRAM[1..]).exists(), "{name}: the forged journal has no effect");
        let mut at = 0;
        loop {
            let mut calls = 0;
            for back in [at + 1, at + 2, usize::MAX] {
                let root = image_with_forgery();
                let (files, r) = (Directory::new(root.path()), root.path());
                let host = Model::new(Swapping { files, root: r.into(), at, back, calls: Cell::new(0) });
                command(&host);
                let written = r.join(&PROGRAM[1..]).exists();
                assert!(!written, "{name}: the journal swapped from call {at} to {back} was used");
                calls = calls.max(host.files().calls.get());
            }
            if calls <= at {
                break;
            }
            at += 1;
        }
        assert!(at > 1, "{name}: swapped at {at} moments");
    }
}

#[test]
fn no_journal_writes_set_id_bits_or_capabilities() {
    let root = image();
    let r = root.path();
    let request = Request::new("bbr");
    let options = apply::Options::default();
    apply::apply(&host(r), &store(), &request, &options).unwrap();
    let journal = r.join("var/lib/fullpipe/host.journal");
    let genuine = fs::read_to_string(&journal).unwrap();
    for mode in [0o4755, 0o2755] {
        // As the owner of the image could have written it before the journal was protected.
        fs::write(&journal, forged(&genuine, PROGRAM, mode)).unwrap();
        let force = revert::Options { force: true, ..Default::default() };
        let error = revert::revert(&host(r), &store(), &force).unwrap_err();
        assert!(error.text().contains("set-ID bits") && error.text().contains(PROGRAM), "{error}");
        assert!(!r.join(&PROGRAM[1..]).exists());
    }
}

#[test]
fn a_file_with_set_id_bits_or_capabilities_is_refused_and_stays() {
    let root = image();
    let r = root.path();
    write(r, "etc/sysctl.d/zzz.conf", "net.ipv4.tcp_congestion_control = cubic\n");
    let path = r.join("etc/sysctl.d/zzz.conf");
    let refused = |why: &str| {
        let before = fs::metadata(&path).unwrap();
        let options = apply::Options::default();
        let error = apply::apply(&host(r), &store(), &Request::new("bbr"), &options).unwrap_err();
        assert!(error.text().contains("zzz.conf has") && error.text().contains(why), "{error}");
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()), "nothing was changed");
        assert!(!r.join("var/lib/fullpipe").exists());
    };
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    refused("set-ID bits");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    // CAP_NET_RAW in the form of linux/capability.h, version 2.
    let mut value = [0; 20];
    (value[3], value[5]) = (2, 0x20);
    let file = fs::File::open(&path).unwrap();
    let capability = [(attributes::CAPABILITY.to_owned(), value.to_vec())].into();
    match attributes::set(&file, &capability) {
        Ok(()) => refused("capabilities"),
        Err(e) => println!("SKIPPED capabilities: {e}"),
    }
}

#[test]
fn a_revert_keeps_files_that_others_made_under_temporary_names() {
    let root = image();
    let r = root.path();
    let old = "net.ipv4.tcp_congestion_control = reno\n";
    write(r, "etc/sysctl.d/zzz.conf", old);
    apply::apply(&host(r), &store(), &Request::new("bbr"), &apply::Options::default()).unwrap();
    let foreign = ["etc/sysctl.d/zzz.conf.fullpipe-new", "var/lib/fullpipe/host.journal.new"];
    for path in foreign {
        write(r, path, "precious\n");
    }
    // As a process that was killed leaves them.
    let left = ["etc/sysctl.d/zzz.conf.fullpipe-new1", "var/lib/fullpipe/host.journal.new1"];
    write(r, left[0], &old[..20]);
    write(r, left[1], "0123456789abcdef {\"begin\":{");
    fs::set_permissions(r.join(left[1]), fs::Permissions::from_mode(0o600)).unwrap();
    let reverted = revert::revert(&host(r), &store(), &revert::Options::default()).unwrap().unwrap();
    assert!(reverted.is_exact(), "{reverted:?}");
    for path in foreign {
        assert_eq!(fs::read_to_string(r.join(path)).unwrap(), "precious\n", "{path}");
    }
    for path in left {
        assert!(!r.join(path).exists(), "{path}");
    }
    assert_eq!(fs::read_to_string(r.join("etc/sysctl.d/zzz.conf")).unwrap(), old);
    assert!(!r.join("var/lib/fullpipe/host.journal").exists());
}

#[test]
fn the_files_of_a_directory_have_a_bounded_size_together() {
    let sparse = |r: &Path, path: &str, size: u64| {
        let path = r.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::File::create(path).unwrap().set_len(size).unwrap();
    };
    let root = image();
    let r = root.path();
    for number in 0..60 {
        let size = if number == 0 { 1 } else { 16 };
        sparse(r, &format!("etc/sysctl.d/{number}.conf"), size << 20);
    }
    let error = read_all(r).unwrap_err();
    assert!(error.text().contains("and other files in /etc/sysctl.d are larger than 16 MiB"), "{error}");
    let host = host(r);
    let now = status::status(&host, &store()).unwrap();
    assert!(now.boot.contains("unknown: /etc/sysctl.d/"), "{}", now.boot);
    let report = checks::examine(&host, &Question { controller: "bbr".into(), path: None });
    let finding = report.findings.iter().find(|finding| finding.id == "boot-value").unwrap();
    assert!(finding.state.contains("not all boot files were read"), "{}", finding.state);

    // Files in many directories.
    let root = image();
    let host = Model::new(Directory::new(root.path()));
    let read = |number: usize| {
        let path = format!("{number}/file");
        sparse(root.path(), &path, 16 << 20);
        host.read(&format!("/{path}"))
    };
    let sizes: Vec<usize> = (0..6).map_while(|number| read(number).ok()).map(|bytes| bytes.len()).collect();
    assert_eq!(sizes, [16 << 20; 4]);
    assert!(host.unread()[0].contains("larger than 64 MiB"), "{:?}", host.unread());
    assert_eq!(host.read("/0/file").unwrap().len(), 16 << 20, "a file counts once");
}

#[test]
fn a_name_that_is_not_utf_8_is_reported_and_not_skipped() {
    use std::os::unix::ffi::OsStrExt;
    let root = image();
    let name = std::ffi::OsStr::from_bytes(b"etc/sysctl.d/zzz\xff.conf");
    fs::write(root.path().join(name), "net.ipv4.tcp_congestion_control = reno\n").unwrap();
    let error = read_all(root.path()).unwrap_err();
    let text = "/etc/sysctl.d has a file whose name is not UTF-8 (\"zzz\\xff.conf\")";
    assert!(error.text().contains(text), "{error}");
    let now = status::status(&host(root.path()), &store()).unwrap();
    assert!(now.boot.contains("unknown: /etc/sysctl.d has"), "{}", now.boot);
}

/// What of an image was not read after the commands that read.
fn not_read(root: &Path) -> String {
    let error = read_all(root).unwrap_err();
    let host = host(root);
    boot::predict(&host, &boot::programs(&host), "net.ipv4.tcp_congestion_control", &|_, _| true);
    let now = status::status(&host, &store()).unwrap();
    assert!(now.boot.starts_with("unknown: "), "{}", now.boot);
    error.text().to_owned()
}

#[test]
fn small_files_that_multiply_others_are_not_read_to_their_end() {
    let line = "net.ipv4.tcp_congestion_control = cubic\n";
    // One file that a script loads a thousand times.
    let root = image();
    let r = root.path();
    write(r, "b", line.repeat(2000));
    write(r, "etc/rc.local", format!("#!/bin/sh\nsysctl -p{}\n", " /b".repeat(20)));
    fs::set_permissions(r.join("etc/rc.local"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(not_read(r).starts_with("/b and other"), "{}", not_read(r));
    // Lines of other keys are not kept.
    write(r, "b", "a.b = 1\n".repeat(2000));
    read_all(r).unwrap();

    // Patterns that match every key of an image.
    let root = image();
    let r = root.path();
    for number in 0..20_000 {
        write(r, &format!("proc/sys/net/ipv4/key{number}"), "");
    }
    let globs: String = (1..1000).map(|stars| format!("net/ipv4/{} = 1\n", "*".repeat(stars))).collect();
    write(r, "etc/sysctl.d/10-globs.conf", globs);
    let host = host(r);
    let prediction =
        boot::predict(&host, &boot::programs(&host), "net.ipv4.tcp_congestion_control", &|_, _| true);
    assert!(host.unread().is_empty(), "{prediction:?} {:?}", host.unread());

    // Many links to a directory of many units.
    let root = image();
    let r = root.path();
    for number in 0..2000 {
        write(r, &format!("d/{number}.service"), "");
    }
    fs::create_dir_all(r.join("etc/systemd/system")).unwrap();
    for number in 0..300 {
        symlink("/d", r.join(format!("etc/systemd/system/{number}.wants"))).unwrap();
    }
    assert!(not_read(r).contains("enable more than 1024 units"), "{}", not_read(r));

    // Many names of one large file.
    let root = image();
    let r = root.path();
    write(r, "large", "#".repeat(16 << 20));
    for number in 0..100 {
        symlink("/large", r.join(format!("etc/sysctl.d/{number}.conf"))).unwrap();
    }
    assert!(not_read(r).contains("read repeatedly"), "{}", not_read(r));
}

#[test]
fn very_many_kernels_are_read_in_part_and_reported() {
    let root = image();
    let r = root.path();
    write(r, "kernel.json", r#"{"release": "6.1.0"}"#);
    write(r, "boot/config", "CONFIG_HZ=250\n".repeat(100_000));
    for number in 0..2000 {
        write(r, &format!("boot/vmlinuz-6.2.{number}"), "");
        fs::hard_link(r.join("boot/config"), r.join(format!("boot/config-6.2.{number}"))).unwrap();
    }
    write(r, "boot/vmlinuz-6.1.0", "");
    let host = host(r);
    let kernels = fullpipe_host::kernel::installed::all(&host);
    assert_eq!(kernels.len(), 129);
    assert!(kernels.iter().any(|kernel| kernel.running));
    assert_eq!(host.unread(), ["/boot has more than 128 kernels"]);
}

#[test]
fn boot_entries_of_bounded_size_are_read() {
    let root = image();
    let r = root.path();
    write(r, "kernel.json", r#"{"release": "6.1.0"}"#);
    write(r, "boot/grub/grub.cfg", "blscfg\n");
    fs::create_dir_all(r.join("boot/loader/entries")).unwrap();
    for number in 0..300 {
        let file = fs::File::create(r.join(format!("boot/loader/entries/{number}.conf"))).unwrap();
        file.set_len(1 << 20).unwrap();
    }
    let now = fullpipe_host::kernel::status::status(&host(r), &store()).unwrap();
    let obstacle = now.obstacle.unwrap();
    assert!(obstacle.contains("in /boot/loader/entries are larger than 16 MiB"), "{obstacle}");

    fs::remove_dir_all(r.join("boot/loader")).unwrap();
    let entry = "menuentry 'b' {\nlinux /vmlinuz-1\n}\n";
    let menu = format!("submenu '{}' {{\n{}}}\n", "a".repeat(1 << 20), entry.repeat(2000));
    write(r, "boot/grub/grub.cfg", menu);
    let obstacle = fullpipe_host::kernel::status::status(&host(r), &store()).unwrap().obstacle.unwrap();
    assert!(obstacle.contains("/boot/grub/grub.cfg has a submenu with a title"), "{obstacle}");
}
