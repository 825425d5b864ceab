//! Controllers in other programs (`exec:PROGRAM`): the examples in C, Go and Python, errors, and
//! what is left of a program when fullpipe is stopped or killed.

use crate::command::{fullpipe, json, refusal, run, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("examples/controllers")
}

/// Runs a compiler; false if it is not installed.
fn compiled(compiler: &str, args: &[&str]) -> bool {
    let mut command = Command::new(compiler);
    // Nothing is fetched: neither modules nor another version of Go.
    command.args(args).env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
    match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{compiler}: {}", text(&output.stderr));
            true
        }
        Err(_) => {
            println!("SKIPPED: {compiler} is missing: install the packages of ci/packages.txt");
            false
        }
    }
}

/// The names of the examples as controllers; those whose language is not installed are left out.
fn examples_as_controllers(folder: &Path) -> Vec<String> {
    let source = |name: &str| examples().join(name).display().to_string();
    let target = |name: &str| folder.join(name).display().to_string();
    let mut names = Vec::new();
    if compiled("gcc", &["-O2", "-Wall", "-Wextra", "-Werror", "-o", &target("c"), &source("reno.c")]) {
        names.push(format!("exec:{}", target("c")));
    }
    if compiled("go", &["build", "-o", &target("go"), &source("reno.go")]) {
        names.push(format!("exec:{}", target("go")));
    }
    if compiled("python3", &["-c", ""]) {
        names.push(format!("exec:python3 '{}'", source("reno.py")));
    }
    names
}

#[test]
fn examples_are_short_and_carry_what_reno_carries() {
    for name in ["reno.c", "reno.go", "reno.py"] {
        let lines = fs::read_to_string(examples().join(name)).unwrap().lines().count();
        assert!(lines < 100, "{name}: {lines} lines");
    }
    let folder = tempfile::tempdir().unwrap();
    let names = examples_as_controllers(folder.path());
    let path = ["--rate", "50mbit", "--rtt", "40ms", "--duration", "20s", "--json"];
    for loss in ["0", "1%"] {
        let mut args = vec!["race", "--loss", loss, "--repeats", "3"];
        args.extend(path);
        args.extend(names.iter().map(String::as_str));
        args.push("reno");
        let results = json(&args);
        let runs = results["runs"].as_array().unwrap();
        let mean = |cc: &str| {
            let own = runs.iter().filter(|run| run["cc"] == cc);
            let rates: Vec<f64> = own.map(|run| run["summary"]["goodput_bps"].as_f64().unwrap()).collect();
            assert_eq!(rates.len(), 3, "{cc}");
            rates.iter().sum::<f64>() / 3.0
        };
        let reno = mean("reno");
        for name in &names {
            let share = mean(name) / reno;
            println!("{name}, loss {loss}: {:.1} % of reno's goodput", share * 100.0);
            assert!((0.95..=1.05).contains(&share), "{name}, loss {loss}: {share}");
            assert_eq!(
                mean(name).to_bits(),
                mean(&names[0]).to_bits(),
                "the examples are the same algorithm"
            );
        }
    }
}

/// Runs cases with each example; all must pass.
fn examples_pass(cases: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for name in examples_as_controllers(folder.path()) {
        let logs = folder.path().join("logs").display().to_string();
        let output = run(&[&["conformance", "--cc", &name, "--logs", &logs], cases].concat());
        let (printed, errors) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{name}:\n{printed}{errors}");
        println!(
            "{name}: {}",
            printed.lines().find(|line| line.contains("cases passed")).unwrap_or_default()
        );
    }
}

#[test]
fn examples_pass_outcome_cases() {
    examples_pass(&["is-fair-with-itself", "returns-after-a-blackout"]);
}

#[test]
#[ignore = "takes minutes: ./x test nightly"]
fn examples_pass_all_outcome_cases() {
    examples_pass(&["outcomes"]);
}

/// The draft's cases do not judge a controller that reports no states of BBR v3. It gets its settings.
#[test]
fn program_without_states_is_not_judged_by_the_draft() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("my cc.py");
    fs::copy(examples().join("reno.py"), &script).unwrap();
    let copy = folder.path().join("first");
    let program = format!("exec:sh -c 'tee -a \"{}\" | python3 \"{}\"'", copy.display(), script.display());
    let mut command = fullpipe(&[
        "conformance",
        "exiting-drain-based-on-inflight",
        "--cc",
        &program,
        "--set",
        "beta=7",
        "--json",
    ]);
    let output = command.args(["--logs".as_ref(), folder.path().join("logs").as_os_str()]).output().unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
    assert_eq!(output.status.code(), Some(0), "{report}");
    let verdicts = report["runs"].as_array().unwrap().iter().map(|run| &run["verdict"]);
    assert!(verdicts.clone().count() > 1 && verdicts.into_iter().all(|v| v == "not judged"), "{report}");
    let first = fs::read_to_string(copy).unwrap();
    assert!(first.lines().next().unwrap().contains("\"settings\":{\"beta\":\"7\"}"), "{first}");
}

#[test]
fn files_must_not_start_programs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    let flag = folder.path().join("started");
    let cc = format!("exec:touch {}", flag.display());
    for (flow, sweep) in [(cc.as_str(), ""), ("reno", &format!("[sweep]\n'flow.cc' = ['{cc}']\n"))] {
        fs::write(&file, format!("[path]\nrate = '1mbit'\nrtt = '9ms'\n[[flow]]\ncc = '{flow}'\n{sweep}"))
            .unwrap();
        let error = refusal(&["run", file.to_str().unwrap()]);
        assert!(error.contains("would start a program, which a file must not"), "{error}");
        assert!(error.contains("help: name it on the command line"), "{error}");
    }
    assert!(!flag.exists());
}

#[test]
fn faulty_names_and_programs_are_errors_with_a_remedy() {
    for (args, parts) in [
        (&["race", "exec:"][..], &["`exec:`: no program after the colon", "help: write `exec:PROGRAM`"][..]),
        (&["race", "exec:./a 'b"], &["no second '"]),
        (&["race", "exec:./a", "--engine", "lab"], &["the lab measures the kernel's TCP", "omit `--engine`"]),
        (&["race", "exec:./no-such"], &["flow.0.cc: cannot start `./no-such`: no such file"]),
        (&["race", "exec:/etc/passwd"], &["cannot start `/etc/passwd`: not an executable file"]),
        (
            &["race", "exec:echo hello", "--duration", "1s"],
            &["invalid answer: expected value", "line: hello", "help: standard output carries answers only"],
        ),
    ] {
        let error = refusal(args);
        assert!(parts.iter().all(|part| error.contains(part)), "{args:?}: {error}");
    }
    // The other runs of a sweep are reported.
    let swept = run(&["race", "reno", "--sweep", "flow.cc=reno,exec:false", "--duration", "1s"]);
    let error = text(&swept.stderr);
    assert_eq!(swept.status.code(), Some(2), "{error}");
    assert!(text(&swept.stdout).contains("reno carried"), "{}", text(&swept.stdout));
    assert!(error.contains("exited before the run was over") && error.contains("exit status: 1"), "{error}");
}

/// A race with a program that writes its process ID into `pid`, and then never answers.
fn hanging_race(pid: &Path) -> Child {
    let script = format!("echo $$ >{}; exec cat >/dev/null", pid.display());
    fullpipe(&["race", &format!("exec:sh -c '{script}'")])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn started(pid: &Path) -> String {
    wait_for("the program starts", || fs::read_to_string(pid).ok()?.strip_suffix('\n').map(str::to_owned))
}

fn is_running(pid: &str) -> bool {
    // A zombie has no command line.
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| !words.is_empty())
}

#[test]
fn interrupted_race_ends_its_programs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut race = hanging_race(&file);
    let pid = started(&file);
    let own = nix::unistd::Pid::from_raw(race.id() as i32);
    nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGINT).unwrap();
    let status = race.wait().unwrap();
    assert!(!status.success());
    wait_for("the program ends", || (!is_running(&pid)).then_some(()));
}

#[test]
fn program_sees_the_end_of_its_input_when_fullpipe_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let mut race = hanging_race(&file);
    let pid = started(&file);
    race.kill().unwrap();
    race.wait().unwrap();
    // `cat` ends with its input.
    wait_for("the program ends", || (!is_running(&pid)).then_some(()));
}

#[test]
fn protocol_has_a_schema() {
    let schema = json(&["schema", "controller"]);
    assert!(schema["description"].as_str().unwrap().contains("fullpipe/controller/1"));
    assert!(schema["$defs"]["Answer"]["properties"]["window"].is_object());
    assert_eq!(schema["$defs"]["Message"]["oneOf"].as_array().unwrap().len(), 8);
}
