//! Help, completions, manual pages and schemas.

use serde_json::Value;
use std::process::{Command, Stdio};

fn stdout(args: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_fullpipe")).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_of_every_shell_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&["completions", shell]);
        assert!(script.contains("race") && script.contains("repeats"), "{shell}");
    }
}

#[test]
fn a_closed_output_does_not_panic() {
    for args in
        [&["figure"][..], &["conformance", "--list"], &["figure", "nothing"], &["completions", "bash"]]
    {
        let closed = || std::io::pipe().unwrap().1;
        let mut command = Command::new(env!("CARGO_BIN_EXE_fullpipe"));
        let status =
            command.args(args).stdin(Stdio::null()).stdout(closed()).stderr(closed()).status().unwrap();
        assert_eq!(status.code(), Some(if args == ["figure", "nothing"] { 2 } else { 0 }), "{args:?}");
    }
    // Any other write error is reported.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fullpipe")).arg("figure").stdout(full).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && reported.contains("cannot print"), "{reported}");
}

#[test]
fn bash_accepts_its_completions() {
    let script = stdout(&["completions", "bash"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fullpipe.bash");
    std::fs::write(&path, script).unwrap();
    let status = Command::new("bash").arg("-n").arg(&path).status().unwrap();
    assert!(status.success());
}

#[test]
fn bash_completes_controllers_figures_and_cases() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fullpipe.bash");
    std::fs::write(&path, stdout(&["completions", "bash"])).unwrap();
    let offered = |typed: &str| {
        let words: Vec<&str> = typed.split(' ').collect();
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let script = format!(
            "source {}; COMP_WORDS=({typed}); COMP_CWORD={}; _fullpipe fullpipe '{last}' '{before}'; echo \
             \"${{COMPREPLY[@]}}\"",
            path.display(),
            words.len() - 1
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for (typed, wanted) in [
        ("fullpipe figure fig", "fig8"),
        ("fullpipe race bbr", "bbr3"),
        ("fullpipe conformance exiting-d", "exiting-drain-based-on-time"),
        ("fullpipe conformance --cc cu", "cubic"),
        ("fullpipe plan fp", "fp_bbr3"),
        #[cfg(feature = "net")]
        ("fullpipe test host --compare c", "cubic"),
        #[cfg(feature = "ebpf")]
        ("fullpipe cc load b", "bbr3"),
    ] {
        let words = offered(typed);
        assert!(words.split_ascii_whitespace().any(|word| word == wanted), "{typed}: {words}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    stdout(&["man", &pages.display().to_string()]);
    for name in ["fullpipe", "fullpipe-race", "fullpipe-run", "fullpipe-schema"] {
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".TH") && page.contains(".SH NAME"), "{name}");
    }
    let race = std::fs::read_to_string(pages.join("fullpipe-race.1")).unwrap();
    assert!(race.contains("together") && race.contains("1bdp"));
}

#[test]
fn schemas_describe_the_printed_documents() {
    let scenario: Value = serde_json::from_str(&stdout(&["schema", "scenario"])).unwrap();
    for key in ["duration", "path", "flow", "check", "sweep", "trigger"] {
        assert!(scenario["properties"].get(key).is_some(), "{key}");
    }
    let recording: Value = serde_json::from_str(&stdout(&["schema", "recording"])).unwrap();
    let described = &recording["properties"];
    let printed: Value =
        serde_json::from_str(&stdout(&["race", "reno", "--duration", "1s", "--json"])).unwrap();
    for key in printed.as_object().unwrap().keys() {
        assert!(described.get(key).is_some(), "{key} is printed but not described");
    }
    let run = &recording["$defs"]["Recording"]["properties"];
    for key in printed["runs"][0].as_object().unwrap().keys() {
        assert!(run.get(key).is_some(), "{key} of a run is printed but not described");
    }
}

#[test]
fn race_help_names_every_controller() {
    let help = stdout(&["race", "--help"]);
    for cc in ["bbr", "bbr3", "cubic", "reno", "hybla"] {
        assert!(help.contains(cc), "{cc}");
    }
    assert!(help.contains("fullpipe race --out report.html"), "{help}");
}
