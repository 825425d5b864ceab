//! The simulated boot programs against the real ones: systemd-sysctl, procps' and busybox' sysctl,
//! and the boot scripts that call these, are run on the same trees, in user, mount and network
//! namespaces of their own, and the kernel's values are compared.
//!
//! `BOOT_FILES=20000` sets the number of files, `SEED` the first seed. `READER_SCRIPTS` names a
//! directory with other scripts than those in `tests/readers`, such as the published ones.

use crate::support::manifest::Manifest;
use fullpipe_host::boot::{self, Program};
use fullpipe_host::facts::{Facts, Presence};
use fullpipe_host::host::{Directory, Model};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

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

/// A reader of the boot files.
struct Reader {
    name: &'static str,
    program: Program,
    /// The command, or a script of `tests/readers` and its place on the host.
    command: Result<&'static str, (&'static str, &'static str)>,
    busybox: bool,
}

const INIT: &str = "etc/init.d/sysctl";

const READERS: [Reader; 10] = [
    Reader {
        name: "systemd-sysctl",
        program: Program::Systemd,
        command: Ok("/usr/lib/systemd/systemd-sysctl"),
        busybox: false,
    },
    Reader {
        name: "procps, sysctl --system",
        program: Program::Procps,
        command: Ok("/usr/sbin/sysctl --system"),
        busybox: false,
    },
    script("procps, OpenRC", Program::Procps, ("openrc.sh", INIT), false),
    script("busybox, OpenRC", Program::PerFile, ("openrc.sh", INIT), true),
    script("busybox, OpenWrt", Program::PerFile, ("openwrt.sh", INIT), true),
    script("procps, OpenWrt", Program::PerFile, ("openwrt.sh", INIT), false),
    script("busybox, Alpine", Program::PerFile, ("alpine.sh", INIT), true),
    script("procps, Alpine", Program::PerFile, ("alpine.sh", INIT), false),
    script("busybox, Void", Program::PerFile, ("void.sh", "etc/runit/core-services/08-sysctl.sh"), true),
    script("procps, sysctl -p", Program::PerFile, ("one-file.sh", "etc/init.d/procps"), false),
];

const fn script(
    name: &'static str,
    program: Program,
    script: (&'static str, &'static str),
    busybox: bool,
) -> Reader {
    Reader { name, program, command: Err(script), busybox }
}

impl Reader {
    /// The text of its script.
    fn script(&self) -> Option<(String, &'static str)> {
        let (name, place) = self.command.err()?;
        let directory = std::env::var("READER_SCRIPTS")
            .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/readers").into());
        Some((fs::read_to_string(format!("{directory}/{name}")).unwrap(), place))
    }
}

fn pick<'a, T: ?Sized>(random: &mut Pcg64, from: &[&'a T]) -> &'a T {
    from[random.next_u32() as usize % from.len()]
}

fn one_in(random: &mut Pcg64, n: u32) -> bool {
    random.next_u32().is_multiple_of(n)
}

/// A key in one of the spellings that some reader understands.
fn key(random: &mut Pcg64) -> (&'static str, String) {
    let key = KEYS[random.next_u32() as usize % KEYS.len()].0;
    let spelled = match random.next_u32() % 24 {
        0..=1 => format!("net/ipv4/{key}"),
        2 => format!("net/ipv4.{key}"),
        3 => format!("net.ipv4/{key}"),
        4 => format!("/net/ipv4/{key}"),
        5 => format!("net..ipv4.{key}"),
        6 => format!("net/./ipv4/{key}"),
        7 => format!("net/core/../ipv4/{key}"),
        8 => format!("net.ipv4.{key}."),
        9 => format!("net/ipv4/{key}/"),
        10 => format!(".net.ipv4.{key}"),
        _ => format!("net.ipv4.{key}"),
    };
    (key, spelled)
}

fn line(random: &mut Pcg64) -> String {
    let (name, key) = key(random);
    let value = if name == "tcp_congestion_control" {
        pick(random, &["reno", "bbr", "bbr", "nosuch", "bbr # paced", "BBR", "\"bbr\""]).to_owned()
    } else {
        let number = 2 + random.next_u32() % 90;
        let behind =
            pick(random, &["", "", "", "", " # why", "  ", "\t1", "#", ";", ".5", "x", "\u{b}", "\\"]);
        format!("{number}{behind}")
    };
    let value = if one_in(random, 24) { String::new() } else { value };
    let sign = pick(
        random,
        &["=", "=", " = ", " = ", "= ", " =", "\t=\t", "==", "\u{a0}=\u{a0}", " =\u{3000}", "\u{c}="],
    );
    match random.next_u32() % 24 {
        0 => format!("# {key}{sign}{value}"),
        1 => format!("; {key}{sign}{value}"),
        2 => format!(" \t# {key}{sign}{value}"),
        3 => format!("-{key}{sign}{value}"),
        4 => format!("- {key}{sign}{value}"),
        5 => format!("--{key}{sign}{value}"),
        6 => format!("  \t{key}{sign}{value}\t"),
        7 => format!("{key} {value}"),
        8 => "net.ipv4.no_such_key = 1".into(),
        9 => "net.no_such.key = x".into(),
        10 => String::new(),
        11 => "net.ipv4.tcp_keepalive_* = 31".into(),
        12 => "net/ipv4/tcp_keepalive_[ip]* = 17".into(),
        13 => "net.*.tcp_retries? = 12".into(),
        14 => "net.ipv4.tcp_keepalive_[!p]* = 19".into(),
        15 => format!("-{key}"),
        16 => "-net.ipv4.tcp_keepalive_*".into(),
        17 => format!("{key}{sign}\\\n{value}"),
        18 => format!("{key}\0{sign}{value}"),
        _ => format!("{key}{sign}{value}"),
    }
}

/// A file, in some encoding.
fn file(random: &mut Pcg64) -> Vec<u8> {
    let mut text: String = (0..random.next_u32() % 6).map(|_| line(random) + "\n").collect();
    if one_in(random, 4) {
        text.pop();
    }
    match random.next_u32() % 32 {
        0 => format!("\u{feff}{text}").into_bytes(),
        1..=2 => text.replace('\n', "\r\n").into_bytes(),
        3 => text.replace('\n', "\r").into_bytes(),
        4 => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        5 => text.replace(' ', "\u{a0}").chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect(),
        6 => text.replacen('\n', "\u{b}\n", 1).into_bytes(),
        7 => text.replace('\n', "\n\0").into_bytes(),
        8 => [b"\xff\xfe\n", text.as_bytes()].concat(),
        _ => text.into_bytes(),
    }
}

const NAMES: [&str; 16] = [
    "10-network.conf",
    "50-default.conf",
    "99-bbr.conf",
    "99-sysctl.conf",
    "99-zz-fullpipe.conf",
    ".hidden.conf",
    ".conf",
    "notes.txt",
    "zz-last.conf",
    "Z.conf",
    "50 default.conf",
    "50-ä.conf",
    "50-[ad]efault.conf",
    "9?-bbr.conf",
    "zz*.conf",
    "99-bbr.conf~",
];

/// A random tree of sysctl files under `root`. Returns the number of files.
fn plant(root: &Path, random: &mut Pcg64) -> usize {
    use std::os::unix::fs::symlink;
    let mut files = 0;
    for directory in ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d"] {
        for name in NAMES {
            let path = root.join(directory).join(name);
            files += 1;
            match random.next_u32() % 40 {
                0..=7 => fs::write(path, file(random)).unwrap(),
                8 => fs::write(path, "").unwrap(),
                9 if directory.starts_with("etc") => symlink("/dev/null", path).unwrap(),
                10 if name == "99-sysctl.conf" => symlink("/etc/sysctl.conf", path).unwrap(),
                11 => symlink("10-network.conf", path).unwrap(),
                12 => symlink("nowhere", path).unwrap(),
                13 => fs::create_dir(path).unwrap(),
                _ => files -= 1,
            }
        }
    }
    if !one_in(random, 3) {
        fs::write(root.join("etc/sysctl.conf"), file(random)).unwrap();
        files += 1;
    }
    files
}

fn lay_out(root: &Path) {
    for directory in [
        "bin",
        "sbin",
        "etc/sysctl.d",
        "etc/init.d",
        "etc/runit/core-services",
        "run/sysctl.d",
        "usr/local/lib/sysctl.d",
        "usr/lib/sysctl.d",
        "proc/sys/net/ipv4",
        "proc/sys/net/core",
    ] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::write(root.join("bin/busybox"), "").unwrap();
    for (key, value) in KEYS {
        fs::write(root.join("proc/sys/net/ipv4").join(key), value).unwrap();
    }
}

/// What the kernel makes of writing `value`: a blank ends a number, a controller must be known.
fn takes(key: &str, value: &str) -> Option<String> {
    if key == "tcp_congestion_control" {
        return ["reno", "bbr"].contains(&value).then(|| value.to_owned());
    }
    // A no-break space of ISO 8859-1 is a blank for the kernel (lib/ctype.c), and not UTF-8.
    let value = value.trim_start_matches(['\u{fffd}', ' ', '\t']);
    let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
    let rest = &value[digits.len()..];
    (!digits.is_empty() && (rest.is_empty() || rest.starts_with([' ', '\t', '\n']))).then_some(digits)
}

/// The values that a reader would leave, by the simulation.
fn simulated(root: &Path, reader: &Reader) -> BTreeMap<String, String> {
    let mut values: BTreeMap<String, String> =
        KEYS.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let sysctl = root.join("sbin/sysctl");
    let _ = fs::remove_file(&sysctl);
    match reader.busybox {
        true => std::os::unix::fs::symlink("/bin/busybox", &sysctl).unwrap(),
        false => fs::write(&sysctl, "").unwrap(),
    }
    let script = reader.script();
    if let Some((text, place)) = &script {
        fs::write(root.join(place), text).unwrap();
    }
    let view = Directory::new(root);
    let ipv4 = |key: &str| key.strip_prefix("net/ipv4/").map(str::to_owned);
    let accepts = |key: &str, value: &str| ipv4(key).is_none_or(|key| takes(&key, value).is_some());
    // A reader that is found by its script, or none.
    let found = boot::programs(&view).contains(&reader.program);
    if reader.command.is_ok() || found {
        for assignment in boot::simulate_with(&view, reader.program, &accepts) {
            if let Some(key) = ipv4(&assignment.key)
                && values.contains_key(&key)
                && let Some(value) = takes(&key, &assignment.value)
            {
                values.insert(key, value);
            }
        }
    }
    if let Some((_, place)) = script {
        fs::remove_file(root.join(place)).unwrap();
    }
    values
}

/// Why the real programs cannot be run here, if they cannot. In CI that is a failure.
fn obstacle() -> Option<String> {
    let programs = ["/usr/lib/systemd/systemd-sysctl", "/usr/sbin/sysctl", "/bin/busybox"];
    let missing = programs.iter().find(|p| !Path::new(p).exists());
    let reason = if let Some(program) = missing {
        format!("{program} is not installed")
    } else {
        let script = "for c in reno bbr; do echo $c >/proc/sys/net/ipv4/tcp_congestion_control || exit; done";
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

/// Runs every reader on every tree `0…count` below `root` and reads the kernel's values after
/// each.
fn real(root: &Path, count: usize) -> Vec<BTreeMap<String, String>> {
    for (directory, program) in [("with-busybox", "/bin/busybox"), ("with-procps", "/usr/sbin/sysctl")] {
        let directory = root.join(directory);
        fs::create_dir_all(&directory).unwrap();
        std::os::unix::fs::symlink(program, directory.join("sysctl")).unwrap();
    }
    let mut script = String::from("set -e\nexport LC_ALL=C\ncd /proc/sys/net/ipv4\n");
    for tree in 0..count {
        let top = root.display();
        for (number, reader) in READERS.iter().enumerate() {
            for (key, value) in KEYS {
                let _ = writeln!(script, "echo {value} >{key}");
            }
            let command = match reader.script() {
                Some((text, _)) => {
                    fs::write(root.join(format!("script-{number}")), text).unwrap();
                    let path = if reader.busybox { "with-busybox" } else { "with-procps" };
                    format!("PATH={top}/{path}:$PATH; . {top}/script-{number}")
                }
                None => reader.command.unwrap().to_owned(),
            };
            // A mount namespace of its own for each run, so that nothing has to be unmounted.
            let _ = writeln!(
                script,
                "unshare --mount sh -c 'for d in etc run usr/local/lib usr/lib/sysctl.d; do mount -n --bind \
                 {top}/{tree}/$d /$d; done; {command}' >/dev/null 2>&1 || true"
            );
            let keys: Vec<&str> = KEYS.iter().map(|(k, _)| *k).collect();
            let _ = writeln!(script, "grep -H . {}; echo --", keys.join(" "));
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
                .map(|l| l.split_once(':').unwrap())
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect()
        })
        .collect()
}

/// Compares all trees; returns on how many the first two readers differ from each other.
fn compare(root: &Path, names: &[String]) -> usize {
    let real = real(root, names.len());
    assert_eq!(real.len(), names.len() * READERS.len());
    let mut wrong = Vec::new();
    let mut apart = 0;
    for (tree, name) in names.iter().enumerate() {
        let base = root.join(tree.to_string());
        for (i, reader) in READERS.iter().enumerate() {
            let (found, expected) = (&real[tree * READERS.len() + i], simulated(&base, reader));
            let differ = |key: &&String| found[*key] != expected[*key];
            let keys: Vec<String> = found
                .keys()
                .filter(differ)
                .map(|key| format!("{key}: really {}, simulated {}", found[key], expected[key]))
                .collect();
            if !keys.is_empty() {
                wrong.push(format!("{name}, {}: {}\n{}", reader.name, keys.join("; "), listing(&base)));
            }
        }
        apart += usize::from(real[tree * READERS.len()] != real[tree * READERS.len() + 1]);
    }
    let shown: Vec<&String> = wrong.iter().take(4).collect();
    assert!(wrong.is_empty(), "{} differences, of which the first:\n{shown:#?}", wrong.len());
    apart
}

/// The files of a tree, for a message.
fn listing(base: &Path) -> String {
    let output = Command::new("sh")
        .arg("-c")
        .arg(
            "find etc run usr \\( -type f -o -type l \\) | sort | while read f; do echo \"== $f $(readlink \
              \"$f\")\"; [ -h \"$f\" ] || cat -A \"$f\"; echo; done",
        )
        .current_dir(base)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn random_trees_end_as_the_real_programs_leave_them() {
    if obstacle().is_some() {
        return;
    }
    const CHUNK: usize = 50;
    let (wanted, mut seed) = (number("BOOT_FILES", 500) as usize, number("SEED", 20_260_401));
    let (mut files, mut trees, mut apart) = (0, 0, 0);
    while files < wanted {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut names = Vec::new();
        while files < wanted && names.len() < CHUNK {
            let base = root.path().join(names.len().to_string());
            lay_out(&base);
            files += plant(&base, &mut Pcg64::seed_from_u64(seed));
            names.push(format!("SEED={seed}"));
            seed += 1;
        }
        trees += names.len();
        apart += compare(root.path(), &names);
    }
    println!(
        "{files} files in {trees} trees, read by {} readers: no difference; systemd-sysctl and `sysctl \
         --system` differ from each other on {apart} trees",
        READERS.len()
    );
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
            (concerned && !path.starts_with("/lib/")).then(|| base.join(path.trim_start_matches('/')))
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
    let apart = compare(root.path(), &names);
    println!("{} hosts agree; the first two readers differ from each other on {apart}", names.len());
}

/// Whether kmod's modprobe would load tcp_bbr under these rules.
fn modprobe_loads(root: &Path, rules: &str) -> bool {
    fs::write(root.join("etc/modprobe.d/rules.conf"), rules).unwrap();
    let output = Command::new("/usr/sbin/modprobe")
        .args(["--dry-run", "--verbose", "--set-version", "6.1.0", "--dirname"])
        .arg(root)
        .arg("--config")
        .arg(root.join("etc/modprobe.d"))
        .arg("tcp_bbr")
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .any(|line| line.starts_with("insmod ") && line.contains("tcp_bbr.ko"))
}

/// The rules for modules against kmod's modprobe, on a module that only it looks at.
#[test]
fn modprobe_rules_are_those_of_kmod() {
    let missing = ["/usr/sbin/modprobe", "/usr/sbin/depmod"].into_iter().find(|p| !Path::new(p).exists());
    if let Some(program) = missing {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{program} is not installed");
        println!("SKIPPED: {program} is not installed");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let modules = root.path().join("lib/modules/6.1.0/kernel/net/ipv4");
    fs::create_dir_all(&modules).unwrap();
    fs::create_dir_all(root.path().join("etc/modprobe.d")).unwrap();
    fs::create_dir_all(root.path().join("sys")).unwrap();
    for module in ["tcp_bbr", "tcp_other"] {
        let source = root.path().join("module.c");
        fs::write(
            &source,
            "__attribute__((section(\".modinfo\"))) const char licence[] = \"license=GPL\";\n",
        )
        .unwrap();
        let made = Command::new("cc")
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(modules.join(format!("{module}.ko")))
            .status();
        assert!(made.unwrap().success());
    }
    let made = Command::new("/usr/sbin/depmod").arg("--basedir").arg(root.path()).arg("6.1.0").status();
    assert!(made.unwrap().success());
    let rules = [
        "",
        "blacklist tcp_bbr",
        "softdep tcp_bbr pre: missing",
        "softdep tcp_bbr pre: tcp_other post: missing",
        "install tcp_bbr /bin/false",
        "install tcp-bbr /bin/true",
        "install tcp_bbr \\\n/bin/false",
        "#install tcp_bbr /bin/false",
        "install tcp_other /bin/false",
        "alias tcp_bbr off",
        "alias tcp-bbr tcp_other",
        "alias tcp_bbr tcp-bbr",
        "alias bbr tcp_bbr",
        "options tcp_bbr x=1",
        "remove tcp_bbr /bin/false",
        "  install   tcp_bbr\t/bin/false  ",
    ];
    for rule in rules {
        let loads = modprobe_loads(root.path(), &format!("{rule}\n"));
        let found = Facts::gather(&Model::new(Directory::new(root.path()))).controller("bbr");
        assert_eq!(matches!(found, Presence::Loadable(_)), loads, "{rule:?}: {found:?}");
    }
}
