//! The simulated boot programs against the real ones: systemd-sysctl and procps' `sysctl --system`
//! are run on the same
//! trees, in user, mount and network namespaces of their own, and the kernel's values are compared.

mod support;

use fullpipe_host::boot::{self, Program};
use fullpipe_host::host::Directory;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use support::manifest::Manifest;

/// Keys that a network namespace has of its own, and what they are set to before each program runs.
const KEYS: [(&str, &str); 7] = [
    ("tcp_congestion_control", "reno"),
    ("tcp_keepalive_time", "7200"),
    ("tcp_keepalive_probes", "9"),
    ("tcp_keepalive_intvl", "75"),
    ("tcp_retries2", "15"),
    ("tcp_fin_timeout", "60"),
    ("tcp_notsent_lowat", "1000000"),
];

const PROGRAMS: [(Program, &str); 2] =
    [(Program::Systemd, "/usr/lib/systemd/systemd-sysctl"), (Program::Procps, "/usr/sbin/sysctl --system")];

fn pick<'a, T: ?Sized>(random: &mut Pcg64, from: &[&'a T]) -> &'a T {
    from[random.next_u32() as usize % from.len()]
}

fn line(random: &mut Pcg64) -> String {
    let key = KEYS[random.next_u32() as usize % KEYS.len()].0;
    let value = if key == "tcp_congestion_control" {
        pick(random, &["reno", "bbr", "nosuch", "bbr # paced", "bbr"]).to_owned()
    } else {
        let number = 2 + random.next_u32() % 90;
        format!("{number}{}", pick(random, &["", "", "", " # why", "  "]))
    };
    let spaced = pick(random, &["=", " = ", "= ", " ="]);
    match random.next_u32() % 16 {
        0 => format!("# net.ipv4.{key}{spaced}{value}"),
        1 => format!("; net.ipv4.{key}{spaced}{value}"),
        2 => format!("net/ipv4/{key}{spaced}{value}"),
        3 => format!("-net.ipv4.{key}{spaced}{value}"),
        4 => format!("  \tnet.ipv4.{key}{spaced}{value}\t"),
        5 => format!("net.ipv4.{key} {value}"),
        6 => "net.ipv4.no_such_key = 1".into(),
        7 => String::new(),
        8 => "net.ipv4.tcp_keepalive_* = 31".into(),
        9 => "net/ipv4/tcp_keepalive_[ip]* = 17".into(),
        10 => "-net.ipv4.tcp_keepalive_probes".into(),
        _ => format!("net.ipv4.{key}{spaced}{value}"),
    }
}

fn file(random: &mut Pcg64) -> String {
    let mut text: String = (0..random.next_u32() % 6).map(|_| line(random) + "\n").collect();
    if random.next_u32().is_multiple_of(4) {
        text.pop();
    }
    text
}

/// A random tree of sysctl files under `root`.
fn plant(root: &Path, random: &mut Pcg64) {
    const NAMES: [&str; 8] = [
        "10-network.conf",
        "50-default.conf",
        "99-bbr.conf",
        "99-sysctl.conf",
        "99-zz-fullpipe.conf",
        ".hidden.conf",
        "notes.txt",
        "zz-last.conf",
    ];
    for directory in ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d"] {
        for name in NAMES {
            let path = root.join(directory).join(name);
            match random.next_u32() % 10 {
                0..=2 => fs::write(path, file(random)).unwrap(),
                3 if directory.starts_with("etc") => std::os::unix::fs::symlink("/dev/null", path).unwrap(),
                4 if name == "99-sysctl.conf" => {
                    std::os::unix::fs::symlink("/etc/sysctl.conf", path).unwrap()
                }
                _ => {}
            }
        }
    }
    if !random.next_u32().is_multiple_of(3) {
        fs::write(root.join("etc/sysctl.conf"), file(random)).unwrap();
    }
}

fn lay_out(root: &Path) {
    for directory in [
        "etc/sysctl.d",
        "run/sysctl.d",
        "usr/local/lib/sysctl.d",
        "usr/lib/sysctl.d",
        "proc/sys/net/ipv4",
        "proc/sys/net/core",
    ] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (key, value) in KEYS {
        fs::write(root.join("proc/sys/net/ipv4").join(key), value).unwrap();
    }
}

/// What the kernel makes of writing `value`: numbers end where digits do, a controller must be
/// known.
fn takes(key: &str, value: &str) -> Option<String> {
    if key == "tcp_congestion_control" {
        return ["reno", "bbr"].contains(&value).then(|| value.to_owned());
    }
    let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

/// The values that a program would leave, by the simulation.
fn simulated(root: &Path, program: Program) -> BTreeMap<String, String> {
    let mut values: BTreeMap<String, String> =
        KEYS.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    for assignment in boot::simulate(&Directory::new(root), program) {
        if let Some(key) = assignment.key.strip_prefix("net/ipv4/")
            && values.contains_key(key)
            && let Some(value) = takes(key, &assignment.value)
        {
            values.insert(key.to_owned(), value);
        }
    }
    values
}

/// Why the real programs cannot be run here, if they cannot. In CI that is a failure.
fn obstacle() -> Option<String> {
    let missing = PROGRAMS.iter().map(|(_, c)| c.split(' ').next().unwrap()).find(|p| !Path::new(p).exists());
    let reason = if let Some(program) = missing {
        format!("{program} is not installed")
    } else {
        let script = "echo reno >/proc/sys/net/ipv4/tcp_congestion_control && echo bbr \
                      >/proc/sys/net/ipv4/tcp_congestion_control";
        let works = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "--net", "sh", "-c", script])
            .output();
        match works {
            Ok(output) if output.status.success() => return None,
            Ok(output) => {
                format!("no namespace with bbr: {}", String::from_utf8_lossy(&output.stderr).trim())
            }
            Err(e) => format!("unshare: {e}"),
        }
    };
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}");
    println!("SKIPPED: {reason}");
    Some(reason)
}

/// Runs both programs on every tree `0…count` below `root` and reads the kernel's values after
/// each.
fn real(root: &Path, count: usize) -> Vec<BTreeMap<String, String>> {
    let mut script = String::from("set -e\ncd /proc/sys/net/ipv4\n");
    for tree in 0..count {
        let base = root.join(tree.to_string());
        let base = base.display();
        for (_, command) in PROGRAMS {
            for (key, value) in KEYS {
                let _ = writeln!(script, "echo {value} >{key}");
            }
            // A mount namespace of its own for each run, so that nothing has to be unmounted.
            let _ = writeln!(
                script,
                "unshare --mount sh -c 'for d in etc run usr/local/lib usr/lib/sysctl.d; do mount --bind \
                 {base}/$d /$d; done; {command}' >/dev/null 2>&1 || true"
            );
            let keys: Vec<&str> = KEYS.iter().map(|(k, _)| *k).collect();
            let _ = writeln!(script, "for k in {}; do echo $k=$(cat $k); done; echo --", keys.join(" "));
        }
    }
    fs::write(root.join("script"), script).unwrap();
    // The trees are on a path that stays visible when /run and /etc are covered.
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--net", "sh"])
        .arg(root.join("script"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text.split("--\n")
        .filter(|part| !part.is_empty())
        .map(|part| {
            part.lines()
                .map(|l| l.split_once('=').unwrap())
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect()
        })
        .collect()
}

fn compare(root: &Path, names: &[String]) {
    let real = real(root, names.len());
    assert_eq!(real.len(), names.len() * PROGRAMS.len());
    let mut apart = 0;
    for (tree, name) in names.iter().enumerate() {
        let base = root.join(tree.to_string());
        for (i, (program, _)) in PROGRAMS.iter().enumerate() {
            let (found, expected) = (&real[tree * PROGRAMS.len() + i], simulated(&base, *program));
            assert_eq!(
                found,
                &expected,
                "{name}, {program:?}; left: the real one, right: simulated\n{}",
                listing(&base)
            );
        }
        apart += usize::from(real[tree * 2] != real[tree * 2 + 1]);
    }
    println!("{} trees agree; the two programs differ from each other on {apart}", names.len());
}

/// The files of a tree, for a message.
fn listing(base: &Path) -> String {
    let output = Command::new("sh")
        .arg("-c")
        .arg(
            "find etc run usr \\( -type f -o -type l \\) | sort | while read f; do echo \"== $f $(readlink \
              $f)\"; [ -h $f ] || cat $f; echo; done",
        )
        .current_dir(base)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn random_trees_end_as_the_real_programs_leave_them() {
    if obstacle().is_some() {
        return;
    }
    const SEED: u64 = 20_260_401;
    const TREES: usize = 60;
    let mut random = Pcg64::seed_from_u64(SEED);
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let names: Vec<String> = (0..TREES).map(|i| format!("seed {SEED}, tree {i}")).collect();
    for tree in 0..TREES {
        let base = root.path().join(tree.to_string());
        lay_out(&base);
        plant(&base, &mut random);
    }
    compare(root.path(), &names);
}

#[test]
fn fake_hosts_end_as_the_real_programs_leave_them() {
    if obstacle().is_some() {
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let names = Manifest::all();
    for (tree, name) in names.iter().enumerate() {
        let base = root.path().join(tree.to_string());
        lay_out(&base);
        let manifest = Manifest::read(name);
        let place = |path: &str| {
            let concerned = path.starts_with("/etc/sysctl") || path.contains("/sysctl.d/");
            concerned.then(|| base.join(path.trim_start_matches('/')))
        };
        for (path, spec) in &manifest.files {
            if let Some(place) = place(path) {
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                fs::write(place, spec.text()).unwrap();
            }
        }
        for (path, target) in &manifest.links {
            if let Some(place) = place(path) {
                std::os::unix::fs::symlink(target, place).unwrap();
            }
        }
    }
    compare(root.path(), &names);
}
