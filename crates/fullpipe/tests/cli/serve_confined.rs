//! `fullpipe serve` drops privileges, cannot use them afterwards, and still serves.

use crate::program;
use crate::program::{Serving, fullpipe, output_within};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

struct Server {
    serving: Serving,
    port: String,
    listening: Value,
}

impl Server {
    fn start(options: &[&str]) -> Server {
        let (serving, mut log) = Serving::start(&[&["--json"], options].concat());
        let line = &serving.first;
        let listening: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(listening["event"], "listening");
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        let port = listening["address"].as_str().unwrap().rsplit(':').next().unwrap().to_owned();
        Server { serving, port, listening }
    }

    fn status(&self, field: &str) -> String {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.serving.child.id())).unwrap();
        let line = text.lines().find_map(|l| l.strip_prefix(field)).unwrap_or_default();
        line.split_whitespace().next().unwrap_or_default().to_owned()
    }

    /// The response to an HTTP request.
    fn ask(&self, request: &str) -> String {
        let mut socket = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_confined_server_offers_all_services() {
    let server = Server::start(&[]);
    let mut served = 0;
    for options in [
        &["-n", "1m"][..],
        &["-n", "1m", "-R", "-C", "reno"],
        &["-t", "1", "--bidir", "-P", "3", "-C", "bbr"],
        &["-n", "100k", "-u", "-b", "8mbit"],
        &["-n", "100k", "-u", "-b", "8mbit", "-R", "--get-server-output"],
        &["-n", "1m", "-M", "1000", "-w", "128k", "-N", "-b", "80mbit"],
    ] {
        let mut test = fullpipe();
        test.args(["test", "127.0.0.1", "-p", &server.port, "-J"]).args(options);
        let output = output_within(&mut test, Duration::from_secs(60)).expect("it did not end in time");
        assert!(output.status.success(), "{options:?}: {output:?}");
        served += 1;
    }
    let url = format!("http://127.0.0.1:{}/download?size=300000&cc=reno", server.port);
    let mut get = fullpipe();
    get.args(["get", &url, "--output", "-"]);
    let output = output_within(&mut get, Duration::from_secs(60)).unwrap();
    assert!(output.status.success() && output.stdout.len() == 300_000, "{:?}", output.stderr);
    let put =
        "PUT /upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    assert!(server.ask(put).starts_with("HTTP/1.1 200"), "{}", server.ask(put));
    assert!(server.ask("GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
    // The available controllers are read from a file, the only kind that it may read.
    let answer = server.ask("GET /download?cc=nosuch HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 4") && answer.contains("reno"), "{answer}");
    println!("a confined server served {served} tests, a download, an upload and two pages");
}

#[test]
fn a_server_drops_unneeded_privileges() {
    let server = Server::start(&[]);
    println!("{}", server.listening);
    assert_eq!(server.status("NoNewPrivs:"), "1");
    let unchecked = |layer: &str| server.listening[layer].as_str().unwrap().starts_with("no:");
    if unchecked("files_closed") || unchecked("system_calls_filtered") {
        assert!(std::env::var_os("CI").is_none(), "CI has Landlock and seccomp");
        println!("SKIPPED: this kernel does not confine all: {}", server.listening);
    }
    if !unchecked("system_calls_filtered") {
        assert_eq!(server.status("Seccomp:"), "2", "SECCOMP_MODE_FILTER");
    }
    if nix::unistd::Uid::effective().is_root() {
        assert_eq!(server.listening["user"], "nobody");
        assert_ne!(server.status("Uid:"), "0");
        assert_eq!(server.status("Groups:"), "");
        // Only CAP_NET_ADMIN, for controllers reserved for root.
        let effective = u64::from_str_radix(&server.status("CapEff:"), 16).unwrap();
        assert_eq!(effective & !(1 << 12), 0, "{effective:x}");
        let daemon = Server::start(&["--user", "daemon"]);
        assert_eq!(daemon.listening["user"], "daemon");
    }
    let mut wrong = fullpipe();
    wrong.args(["serve", "--port", "0", "--user", "no such user"]);
    let output = output_within(&mut wrong, Duration::from_secs(20)).expect("it did not end");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("cannot switch to user no such user: no such user"),
        "{output:?}"
    );
}

#[test]
fn a_confined_server_shuts_down_cleanly() {
    let mut server = Server::start(&[]);
    let pid = nix::unistd::Pid::from_raw(server.serving.child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(server.serving.child.wait().unwrap().success());
}

const UNITS: [&str; 3] = ["fullpipe-serve.service", "fullpipe-export.service", "fullpipe-probe.service"];

/// The arguments of a unit's command, whose files are in this directory.
fn arguments(unit: &str, files: &Path) -> Vec<String> {
    let path = |file: &str| files.join(file).display().to_string();
    let line = match unit {
        "fullpipe-serve.service" => "serve --json --port 0".to_owned(),
        "fullpipe-export.service" => "export --listen 127.0.0.1:0".to_owned(),
        "fullpipe-probe.service" => format!(
            "probe run {} --key-file {} --store {} --site here --listen 127.0.0.1:0 -B 127.0.0.1",
            path("mesh.toml"),
            path("mesh.key"),
            path("store")
        ),
        _ => panic!("the command of {unit} is unknown"),
    };
    line.split(' ').map(str::to_owned).collect()
}

/// Creates a mesh file, a key and a store, which belong to the user of [`as_another_user`].
fn create_mesh(files: &Path) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mesh = format!(
        "[mesh]\nname = 'm'\nkey_file = 'mesh.key'\nport = {port}\n\
         [[site]]\nname = 'here'\naddress = '127.0.0.1'\n[[site]]\nname = 'there'\naddress = '127.0.0.2'\n"
    );
    std::fs::write(files.join("mesh.toml"), mesh).unwrap();
    std::fs::create_dir(files.join("store")).unwrap();
    let made = fullpipe().args(["probe", "key", "--out"]).arg(files.join("mesh.key")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    if nix::unistd::Uid::effective().is_root() {
        for file in ["mesh.toml", "mesh.key", "store"] {
            std::os::unix::fs::chown(files.join(file), Some(65534), Some(65534)).unwrap();
        }
    }
}

fn packaging() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

fn is_installed(program: &str) -> bool {
    let is_there = std::process::Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        assert!(std::env::var_os("CI").is_none(), "CI must have {program}");
        println!("SKIPPED: {program} is not installed");
    }
    is_there
}

/// The system calls of systemd's groups, each a line of a group's block.
fn groups() -> HashMap<String, Vec<String>> {
    let output = std::process::Command::new("systemd-analyze").arg("syscall-filter").output().unwrap();
    let mut groups: HashMap<String, Vec<String>> = HashMap::new();
    let mut group = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.strip_prefix("    ") {
            Some(entry) if !entry.trim_start().starts_with('#') => {
                groups.entry(group.clone()).or_default().push(entry.trim().to_owned());
            }
            Some(_) => {}
            None => group = line.trim().to_owned(),
        }
    }
    groups
}

/// The system calls that a unit allows (systemd.exec(5): the first line is a list of what is
/// allowed, later ones add to it or, after `~`, remove from it).
fn allowed(unit: &str, groups: &HashMap<String, Vec<String>>) -> BTreeSet<String> {
    fn expand(word: &str, groups: &HashMap<String, Vec<String>>, into: &mut BTreeSet<String>) {
        match groups.get(word) {
            Some(entries) => entries.iter().for_each(|entry| expand(entry, groups, into)),
            None => drop(into.insert(word.to_owned())),
        }
    }
    let text = std::fs::read_to_string(packaging().join(unit)).unwrap();
    let mut all = BTreeSet::new();
    expand("@default", groups, &mut all);
    for line in text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let mut words = BTreeSet::new();
        line.trim_start_matches('~').split(' ').for_each(|word| expand(word, groups, &mut words));
        match line.starts_with('~') {
            true => all.retain(|call| !words.contains(call)),
            false => all.append(&mut words),
        }
    }
    all
}

#[test]
fn units_allow_the_system_calls_of_the_programs_own_sandbox() {
    if !is_installed("systemd-analyze") {
        return;
    }
    let groups = groups();
    for unit in UNITS {
        let allowed = allowed(unit, &groups);
        for call in
            ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp", "prctl"]
        {
            assert!(allowed.contains(call), "{unit} denies {call}");
        }
        for call in ["mount", "bpf", "init_module", "kexec_load", "setuid"] {
            assert!(!allowed.contains(call), "{unit} allows {call}");
        }
    }
}

/// The lines that a command prints before and when it is ready, without what differs by run.
fn first_lines(command: &mut std::process::Command) -> Vec<String> {
    let mut child = program::tied(command).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (mut lines, mut is_ready) = (Vec::new(), false);
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        is_ready = line.contains("metrics at") || line.contains("\"listening\"");
        match serde_json::from_str::<Value>(&line) {
            Ok(event) => {
                lines.extend(["files_closed", "system_calls_filtered"].map(|k| event[k].to_string()))
            }
            Err(_) => lines.push(line.split("127.0.0.1:").next().unwrap_or_default().to_owned()),
        }
        if is_ready {
            break;
        }
    }
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    child.wait().unwrap();
    assert!(is_ready, "it did not start: {lines:?}");
    lines
}

/// A copy of the program that every user can execute, and its directory.
fn public_program() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("fullpipe");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    fullpipe_testing::copy_program(&program::path(), &path);
    (directory, path)
}

/// As a unit with `DynamicUser=yes`, if this is root.
fn as_another_user(program: impl AsRef<std::ffi::OsStr>) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    if nix::unistd::Uid::effective().is_root() {
        command.uid(65534).gid(65534);
    }
    command.stdin(Stdio::null());
    command
}

/// The filter is imitated by strace, which makes each system call fail that the unit denies. Each
/// command must be confined as much as without the filter.
#[test]
fn units_confine_themselves_under_their_own_filter() {
    if !is_installed("systemd-analyze") || !is_installed("strace") {
        return;
    }
    let groups = groups();
    let (directory, fullpipe) = public_program();
    create_mesh(directory.path());
    for unit in UNITS {
        let arguments = arguments(unit, directory.path());
        let expected = first_lines(as_another_user(&fullpipe).args(&arguments));
        // A question mark: strace may not know every name.
        let names: Vec<String> = allowed(unit, &groups).iter().map(|call| format!("?{call}")).collect();
        let rule = format!("inject=!{}:error=EPERM", names.join(","));
        let mut traced = as_another_user("strace");
        // With -D the child is the program, which the signal must end, and not strace.
        traced.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &rule]);
        let printed = first_lines(traced.arg(&fullpipe).args(&arguments));
        assert_eq!(printed, expected, "{unit}");
        println!("{unit}: {expected:?}");
    }
}

/// systemd's exposure level of the units (0 to 10, in tenths).
#[test]
fn units_have_a_low_systemd_exposure() {
    if !is_installed("systemd-analyze") {
        return;
    }
    for unit in UNITS {
        let mut analyze = std::process::Command::new("systemd-analyze");
        analyze
            .args(["security", "--offline=true", "--no-pager", "--threshold=20"])
            .arg(packaging().join(unit));
        let output = output_within(&mut analyze, Duration::from_secs(60)).expect("it did not end in time");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{unit}: {printed}");
        println!("{unit}: {}", printed.lines().last().unwrap_or_default());
    }
}

/// Each address that a paragraph gives to `--listen`, and whether it also has `--token-file`.
fn listeners(paragraph: &str) -> Vec<(&str, bool)> {
    // Without quotes and the punctuation of YAML.
    let is_between = |c: char| c.is_whitespace() || "\"',=".contains(c);
    let words: Vec<&str> = paragraph.split(is_between).filter(|word| !word.is_empty()).collect();
    let has_token = words.contains(&"--token-file");
    words.windows(2).filter(|pair| pair[0] == "--listen").map(|pair| (pair[1], has_token)).collect()
}

/// Text files below a directory.
fn files_below(directory: &Path) -> Vec<(std::path::PathBuf, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files_below(&path)),
            false => all.extend(std::fs::read_to_string(&path).map(|text| (path, text))),
        }
    }
    all
}

/// Units, manifests, settings, and commands in documents. `serve` is public by design, within its
/// limits.
#[test]
fn packaged_listeners_beyond_loopback_require_a_token() {
    let open = "args: [export, --listen, \"[::]:9411\"]";
    assert_eq!(listeners(open), [("[::]:9411", false)]);
    let mut found = Vec::new();
    for directory in [packaging(), packaging().join("../docs")] {
        for (path, text) in files_below(&directory) {
            for (address, has_token) in text.split("\n\n").flat_map(listeners) {
                let is_loopback = ["127.", "[::1]", "localhost", "IP:PORT", "<IP:PORT>"]
                    .iter()
                    .any(|begin| address.trim_matches('`').starts_with(begin));
                assert!(is_loopback || has_token, "{}: --listen {address} without a token", path.display());
                found.push((path.file_name().unwrap().to_owned(), is_loopback));
            }
        }
    }
    for file in ["export.yaml", "fullpipe-export.service"] {
        assert!(found.iter().any(|(name, is_loopback)| name == file && !is_loopback), "{file}: {found:?}");
    }
    println!(
        "{} addresses to listen at, {} not loopback",
        found.len(),
        found.iter().filter(|f| !f.1).count()
    );
}
