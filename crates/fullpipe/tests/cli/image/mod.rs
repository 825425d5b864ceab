//! A host in a directory, and `fullpipe` on it.

pub mod kernels;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

pub fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A Debian host with an older setting that would take precedence at boot.
pub fn host() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let r = root.path();
    write(
        r,
        "kernel.json",
        r#"{"release": "6.1.0-18-amd64", "loadable": ["tcp_bbr", "sch_fq"], "qdisc_kinds": ["fq_codel"],
            "devices": {"eth0": 2}, "qdiscs": [
              {"device": "eth0", "kind": "mq", "handle": 0, "parent": 4294967295},
              {"device": "eth0", "kind": "fq_codel", "handle": 0, "parent": 1},
              {"device": "eth0", "kind": "fq_codel", "handle": 0, "parent": 2}]}"#,
    );
    write(
        r,
        "lib/modules/6.1.0-18-amd64/modules.dep",
        "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n",
    );
    for (name, value) in [
        ("ipv4/tcp_available_congestion_control", "reno cubic"),
        ("ipv4/tcp_allowed_congestion_control", "reno cubic"),
        ("ipv4/tcp_congestion_control", "cubic"),
        ("ipv4/tcp_mem", "188319 251094 376638"),
        ("ipv4/tcp_rmem", "4096\t131072\t6291456"),
        ("ipv4/tcp_wmem", "4096\t16384\t4194304"),
        ("core/default_qdisc", "fq_codel"),
    ] {
        write(r, &format!("proc/sys/net/{name}"), &format!("{value}\n"));
    }
    write(r, "usr/lib/systemd/systemd-sysctl", "");
    write(r, "sys/kernel/btf/vmlinux", "");
    write(r, "etc/sysctl.conf", "# mine\nnet.ipv4.tcp_congestion_control = cubic\n");
    write(r, "etc/sysctl.d/README", "");
    std::os::unix::fs::symlink("../sysctl.conf", r.join("etc/sysctl.d/99-sysctl.conf")).unwrap();
    for directory in ["sys/module", "run", "var/lib"] {
        fs::create_dir_all(r.join(directory)).unwrap();
    }
    root
}

pub fn fullpipe(root: &Path, arguments: &str) -> (i32, String, String) {
    let words = arguments.split_ascii_whitespace().chain(["--root", root.to_str().unwrap()]);
    run(&words.collect::<Vec<_>>())
}

pub fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_fullpipe")).args(arguments).env("NO_COLOR", "1").output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

pub fn content(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap()
}
