//! Malicious scenario files and recordings: rejected without revealing other files, or run in
//! bounded time.

use crate::program::{fullpipe, output_within};
use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

/// Far more than any of these takes on a busy machine, and far less than quadratic growth would
/// take.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs a scenario in a directory with a file `secret`: exit code, stdout, stderr.
fn run(scenario: &str) -> (i32, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.toml");
    fs::write(&file, scenario).unwrap();
    fs::write(directory.path().join("secret"), "root:topsecret:0:0\n").unwrap();
    let mut command = fullpipe();
    command.arg("run").arg(&file).env("NO_COLOR", "1");
    let output = output_within(&mut command, LIMIT).expect("it did not end in time");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_content_of_an_invalid_trace_is_not_printed() {
    let (code, out, err) =
        run("duration = \"1s\"\n[path]\nforward = [{ trace = \"secret\", delay = \"10ms\" }]\nreverse = [{ \
         delay = \"10ms\" }]\n[[flow]]\ncc = \"bbr\"\n");
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("secret") && !err.contains("topsecret") && out.is_empty(), "{out}{err}");
}

/// Each of these would hang the program or use all memory: the pipe has no writer.
#[test]
fn devices_and_pipes_named_in_a_scenario_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in [pipe.to_str().unwrap(), "/dev/zero", "/proc"] {
        let link = format!("[{{ trace = {name:?}, delay = \"10ms\" }}]");
        for (forward, cc) in
            [(&*link, "bbr".to_owned()), ("[{ delay = \"10ms\" }]", format!("policy:{name}"))]
        {
            let (code, out, err) = run(&format!(
                "duration = \"1s\"\n[path]\nforward = {forward}\nreverse = [{{ delay = \"10ms\" \
                 }}]\n[[flow]]\ncc = {cc:?}\n"
            ));
            assert_eq!(code, 2, "{err}");
            assert!(err.contains(name) && err.contains("not a regular file") && out.is_empty(), "{out}{err}");
        }
    }
}

#[test]
fn a_scenario_is_read_from_standard_input_up_to_a_limit() {
    let given = |input: &str| {
        let mut command = fullpipe();
        command.args(["run", "-"]).stdin(Stdio::from(File::open(input).unwrap()));
        let output = output_within(&mut command, LIMIT).expect("it did not end in time");
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.toml");
    let text = "duration = \"100ms\"\n[path]\nrate = \"1mbit\"\nrtt = \"20ms\"\n[[flow]]\ncc = \"bbr\"\n";
    fs::write(&file, text).unwrap();
    assert_eq!(given(file.to_str().unwrap()).0, 0);
    let (code, reported) = given("/dev/zero");
    assert!(code == 2 && reported.contains("cannot read standard input: larger than 64 MiB"), "{reported}");
}

#[test]
fn huge_scenarios_end_in_time() {
    let (code, out, err) = run(
        "duration = \"10ms\"\n[path]\nrate = \"10mbit\"\nrtt = \"20ms\"\n[[flow]]\ncc = \"bbr\"\ncount = \
         100000\n",
    );
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("100000 bbr flows together"), "{out}");
    let seeds: Vec<String> = (0..16_000).map(|seed| seed.to_string()).collect();
    let (code, out, err) = run(&format!(
        "duration = \"1ms\"\n[path]\nrate = \"1mbit\"\nrtt = \"20ms\"\n[[flow]]\ncc = \
         \"bbr\"\n[sweep]\nseed = [{}]\n",
        seeds.join(", ")
    ));
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("over 16000 runs"), "{out}");
}

#[test]
fn control_sequences_in_names_are_escaped() {
    let start = "duration = \"100ms\"\n[path]\nrate = \"1mbit\"\nrtt = \"20ms\"\n[[flow]]\ncc = ";
    let (code, out, refused) = run(&format!("{start}\"bbr\\u001b]0;x\\u0007\\u009b2J\"\n"));
    assert!(code == 2 && out.is_empty() && refused.contains("bbr\\u{1b}]0;x"), "{refused:?}");
    let (code, table, err) =
        run(&format!("{start}\"bbr\"\nlabel = \"\\u009b2J\\u001b]0;x\\u0007\"\n[[flow]]\ncc = \"cubic\"\n"));
    assert!(code == 0 && table.contains("\\u{1b}]0;x"), "{table:?} {err:?}");
    for text in [refused, table, err] {
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[test]
fn an_incomplete_recording_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let (scenario, recording) = (directory.path().join("s.toml"), directory.path().join("r.json"));
    let text = "duration = \"1s\"\n[path]\nrate = \"2mbit\"\nrtt = \"20ms\"\n[[flow]]\ncc = \"bbr\"\n";
    fs::write(&scenario, text).unwrap();
    let mut run = fullpipe();
    run.arg("run").arg(&scenario).args(["--shard", "1/1", "--out"]).arg(&recording);
    assert!(output_within(&mut run, LIMIT).unwrap().status.success());
    let merged = |recording: &serde_json::Value| {
        let part = directory.path().join("part.json");
        fs::write(&part, recording.to_string()).unwrap();
        let mut merge = fullpipe();
        merge.args(["run", "merge"]).arg(&part).arg("--out").arg(directory.path().join("all.html"));
        let output = output_within(&mut merge, LIMIT).unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let mut whole: serde_json::Value = serde_json::from_slice(&fs::read(&recording).unwrap()).unwrap();
    let (code, err) = merged(&whole);
    assert_eq!(code, Some(0), "{err}");
    let columns = &mut whole["runs"][0]["flows"][0]["series"]["columns"];
    let column = columns[0]["name"].as_str().unwrap().to_owned();
    columns[0]["values"].as_array_mut().unwrap().pop().unwrap();
    let (code, err) = merged(&whole);
    assert!(code == Some(2) && err.contains(&format!("column `{column}` has")), "{code:?} {err}");
}
