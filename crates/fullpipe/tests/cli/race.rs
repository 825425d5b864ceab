//! `fullpipe race` and `fullpipe run`.

use crate::command::{fullpipe, json, refusal, run, stdout, text};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn goodput(results: &Value, cc: &str) -> f64 {
    let runs = results["runs"].as_array().unwrap();
    let run = runs.iter().find(|r| r["cc"] == cc).unwrap_or_else(|| panic!("no run of {cc}"));
    run["summary"]["goodput_bps"].as_f64().unwrap()
}

#[test]
fn default_race_has_five_controllers_and_bbr_beats_cubic() {
    let results = json(&["race", "--json"]);
    assert_eq!(results["schema"], "fullpipe/recording/1");
    let names: Vec<&str> =
        results["runs"].as_array().unwrap().iter().map(|r| r["cc"].as_str().unwrap()).collect();
    assert_eq!(names, ["bbr", "bbr3", "cubic", "hybla", "reno"]);
    // The README's claim for 100 Mbit/s, 100 ms, 1 BDP and 1 % loss.
    assert!(goodput(&results, "bbr") >= 85e6, "{}", goodput(&results, "bbr"));
    assert!(goodput(&results, "cubic") <= 4e6, "{}", goodput(&results, "cubic"));
    for run in results["runs"].as_array().unwrap() {
        assert_eq!(run["engine"], "sim");
        assert_eq!(run["valid"], true);
        assert_eq!(run["flows"].as_array().unwrap().len(), 1);
        for part in [&run["summary"], &run["flows"][0]["summary"]] {
            for key in ["duration_s", "goodput_bps", "utilization", "packets_sent", "packets_retransmitted"] {
                assert!(part[key].is_number(), "{key}");
            }
            assert!(part["rtt_ms"]["p99"].is_number() && part["queue_ms"]["max"].is_number());
            assert!(part.get("completion_s").is_some() && part["packets_lost"].is_number());
        }
    }
}

#[test]
fn the_table_in_a_pipe_is_plain_text_with_a_conclusion() {
    let short = ["race", "--duration", "10s"];
    let output = fullpipe(&short).env("COLUMNS", "80").output().unwrap();
    let table = text(&output.stdout);
    assert!(!table.contains('\x1b') && table.contains("p99") && table.contains('▁'), "{table}");
    assert!(table.lines().all(|l| l.chars().count() <= 80), "{table}");
    assert!(table.contains("bbr carried") && table.contains("times cubic's"), "{table}");
    assert!(text(&output.stderr).is_empty(), "no progress bar in a pipe: {}", text(&output.stderr));
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_one_core_and_on_all() {
    let args = |jobs| {
        [
            "race",
            "bbr",
            "cubic",
            "--duration",
            "5s",
            "--repeats",
            "3",
            "--seed",
            "7",
            "--json",
            "--jobs",
            jobs,
        ]
    };
    let one = stdout(&args("1"));
    assert_eq!(one, stdout(&args("4")));
    assert_eq!(one, stdout(&args("4")));
    let seeds: Vec<u64> = serde_json::from_str::<Value>(&one).unwrap()["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["seed"].as_u64().unwrap())
        .collect();
    assert_eq!(seeds, [7, 8, 9, 7, 8, 9]);
    assert_ne!(
        one,
        stdout(&["race", "bbr", "cubic", "--duration", "5s", "--repeats", "3", "--seed", "8", "--json"])
    );
}

#[test]
fn a_shared_path_reports_fairness() {
    let results = json(&[
        "race",
        "bbr",
        "cubic",
        "--together",
        "--flows",
        "2",
        "--loss",
        "0",
        "--duration",
        "10s",
        "--json",
    ]);
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0]["flows"].as_array().unwrap().len(), 4);
    let fairness = results["fairness"].as_f64().unwrap();
    assert!((0.25..=1.0).contains(&fairness), "{fairness}");
    let table = stdout(&["race", "bbr", "cubic", "--together", "--loss", "0", "--duration", "10s"]);
    assert!(table.contains("Sharing the path") && table.contains("Jain"), "{table}");
}

#[test]
fn a_sweep_of_a_hundred_runs_works() {
    let results = json(&[
        "race",
        "bbr",
        "cubic",
        "--sweep",
        "loss=0,0.01%,0.1%,1%,5%",
        "--repeats",
        "10",
        "--duration",
        "2s",
        "--json",
    ]);
    let runs = results["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 100);
    assert_eq!(runs[0]["label"], "bbr, loss 0, seed 1");
    assert_eq!(runs[99]["label"], "cubic, loss 5%, seed 10");
}

#[test]
fn every_report_format_replaces_an_existing_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("r.html"), "old").unwrap();
    let forms = ["r.html", "r.json", "r.csv", "r.png", "r.svg", "r.qlog", "r.sqlog"].map(path);
    let mut args = vec!["race", "bbr", "cubic", "--duration", "3s"];
    for form in &forms {
        args.extend(["--out", form]);
    }
    let output = run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).matches("wrote ").count(), forms.len());
    let beginning = |path: &str| String::from_utf8_lossy(&std::fs::read(path).unwrap()[..15]).into_owned();
    let starts = [
        "<!doctype html>",
        "{\"schema\":\"full",
        "run,label,engin",
        "\u{fffd}PNG",
        "<svg",
        "{\"qlog_version\"",
        "\x1e{",
    ];
    for (form, start) in forms.iter().zip(starts) {
        assert!(beginning(form).starts_with(start), "{form}: {}", beginning(form));
    }
    let recording: Value = serde_json::from_slice(&std::fs::read(&forms[1]).unwrap()).unwrap();
    let rows = recording["runs"][0]["flows"][0]["series"]["t_s"].as_array().unwrap();
    assert!(rows.len() > 250, "the file has the time series: {} rows", rows.len());
    let page = std::fs::read_to_string(&forms[0]).unwrap();
    assert!(page.contains("fullpipe race bbr cubic --duration 3s") && page.contains("seed 1"));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), forms.len(), "{left:?}");
}

#[test]
fn unwritable_reports_are_rejected_before_anything_runs() {
    let started = Instant::now();
    // Running it would take minutes.
    let e = refusal(&["race", "--duration", "3000s", "--repeats", "50", "--out", "/no/such/dir/r.html"]);
    assert!(e.contains("/no/such/dir/r.html") && e.contains("does not exist"), "{e}");
    let e = refusal(&["race", "--duration", "3000s", "--repeats", "50", "--out", "/tmp"]);
    assert!(e.contains("/tmp") && e.contains(".html"), "{e}");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn usage_errors_name_the_place_reason_and_remedy() {
    for (args, words) in [
        (&["race", "cubik"][..], &["unknown controller `cubik`", "`cubic`"][..]),
        (&["race", "cubic:hystrat=off"], &["hystrat", "hystart"]),
        (&["race", "--rate", "100"], &["--rate", "100mbit"]),
        (&["race", "--rtt", "-5ms"], &["--rtt", "-5ms", "negative"]),
        (&["race", "--loss", "150%"], &["--loss", "between 0% and 100%"]),
        (&["race", "--queue", "red"], &["red", "fq-codel"]),
        (&["race", "--sweep", "rtt"], &["--sweep", "KEY=A,B"]),
        (&["race", "--sweep", "path.rrt=1ms,2ms"], &["rrt", "rtt"]),
        (&["race", "--duration", "1h", "--sample", "1us"], &["sample"]),
        (&["race", "--jobs", "0"], &["fullpipe: ", "--jobs"]),
        (&["race", "--threads", "0"], &["fullpipe: ", "--threads"]),
        (&["race", "--rate", "0"], &["rate must be greater than 0"]),
        (&["race", "--duration", "0s"], &["duration: ", "got 0s"]),
        (&["race", "bbr:"], &["`bbr:`", "KEY=VALUE"]),
        (&["run", "/no/such/file.toml"], &["cannot read /no/such/file.toml: no such file"]),
        (&["rase"], &["fullpipe: ", "help: ", "race"]),
    ] {
        let e = refusal(args);
        for word in words {
            assert!(e.contains(word), "{args:?} should speak of {word}: {e}");
        }
        assert!(!e.contains("panicked"), "{e}");
    }
}

fn scenario(dir: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn checks_of_a_scenario_determine_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let file = |bound: &str| {
        format!(
            "title = \"a small path\"\nduration = \"5s\"\n[path]\nrate = \"10mbit\"\nrtt = \"20ms\"\n\
             [[flow]]\ncc = \"bbr\"\n[[check]]\ngoodput = \"{bound}\"\n"
        )
    };
    let good = scenario(dir.path(), "good.toml", file(">= 8mbit"));
    let table = stdout(&["run", &good]);
    assert!(table.contains("bbr carried 9."), "{table}");
    let bad = scenario(dir.path(), "bad.toml", file(">= 80mbit"));
    let output = run(&["run", &bad]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("check failed: bbr"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("1 of 1 checks failed"), "{}", text(&output.stderr));
    let results = text(&run(&["run", &bad, "--json"]).stdout);
    let results: Value = serde_json::from_str(&results).unwrap();
    assert_eq!(results["runs"][0]["checks"][0]["passed"], false);
}

#[test]
fn scenario_errors_show_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = scenario(
        dir.path(),
        "s.toml",
        "duration = \"5s\"\n[path]\nrate = \"10mb\"\n[[flow]]\ncc = \"bbr\"\n",
    );
    let e = refusal(&["run", &path]);
    assert!(e.contains("s.toml:3:8") && e.contains("^^^^^^"), "{e}");
    let path = scenario(dir.path(), "t.toml", "[path]\nrate = \"10mbit\"\n[[flow]]\ncc = \"cubik\"\n");
    let e = refusal(&["run", &path]);
    assert!(e.contains("t.toml:4:6") && e.contains("`cubic`"), "{e}");
    let path = scenario(dir.path(), "binary.toml", b"duration = \"5s\"\ntitle = \"\xff\xfe\"\n");
    let e = refusal(&["run", &path]);
    assert!(e.contains("binary.toml:2") && e.contains("UTF-8"), "{e}");
    let e = refusal(&["run", &dir.path().display().to_string()]);
    assert!(e.contains("is a directory, expected a scenario file"), "{e}");
    let path = scenario(dir.path(), "empty.toml", "");
    let e = refusal(&["run", &path]);
    assert!(e.contains("the table [path] is missing") && e.contains("fullpipe schema scenario"), "{e}");
}

#[test]
fn the_scenario_in_a_recording_reproduces_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let first = json(&[
        "race",
        "bbr",
        "--duration",
        "4s",
        "--loss",
        "0.5%",
        "--buffer",
        "64k",
        "--seed",
        "9",
        "--json",
    ]);
    let file = first["runs"][0]["provenance"]["scenario"].as_str().unwrap();
    let path = scenario(dir.path(), "again.toml", file);
    let again = json(&["run", &path, "--json"]);
    assert_eq!(first, again);
}

#[test]
fn ctrl_c_reports_the_finished_runs_of_a_sweep() {
    let args = ["race", "bbr", "--repeats", "5000", "--duration", "20s", "--json", "--jobs", "2"];
    let child = fullpipe(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Long enough for some runs on a busy machine, far too short for all.
    std::thread::sleep(Duration::from_secs(8));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("of 5000 runs"), "{}", text(&output.stderr));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    let finished = results["runs"].as_array().unwrap().len();
    assert!((1..5000).contains(&finished), "{finished}");
}

#[test]
fn lists_accept_commas_spaces_or_both() {
    let results = |list: &[&str]| {
        let mut args = vec!["race"];
        args.extend(list);
        args.extend(["--duration", "1s", "--json"]);
        json(&args)["runs"].clone()
    };
    let spaced = results(&["bbr", "cubic:hystart=off", "reno"]);
    assert_eq!(spaced.as_array().unwrap().len(), 3);
    for list in [
        &["bbr,cubic:hystart=off,reno"][..],
        &["bbr, cubic:hystart=off", "reno"],
        &["bbr,cubic:hystart=off reno"],
    ] {
        assert_eq!(results(list), spaced, "{list:?}");
    }
    let cases = ["exiting-drain-based-on-inflight", "exiting-drain-based-on-time"];
    assert_eq!(stdout(&["conformance", &cases.join(",")]), stdout(&["conformance", cases[0], cases[1]]));
    let set = ["beta_percent=70", "headroom_percent=15"];
    let repeated = stdout(&["conformance", cases[0], "--set", set[0], "--set", set[1]]);
    assert_eq!(stdout(&["conformance", cases[0], "--set", &set.join(",")]), repeated);
    let logs = tempfile::tempdir().unwrap();
    let varied = |args: &[&str]| {
        let mut command = fullpipe(&["conformance", cases[1], "--logs"]);
        command.arg(logs.path()).args(args);
        let output = command.output().unwrap();
        (output.status.code(), output.stdout)
    };
    let failed = varied(&["--set", "drain_rounds=1"]);
    assert_eq!(failed.0, Some(1));
    assert_eq!(varied(&["--cc", "bbr3:drain_rounds=1"]), failed);
    assert_eq!(varied(&["--cc", "bbr3:variant=letter,drain_rounds=1"]).0, Some(1));
    assert!(refusal(&["figure", "fig8,nosuch"]).contains("no figure `nosuch`"));
}

#[test]
fn conformance_names_the_draft_and_the_reviewed_commit() {
    use fullpipe_cc::bbr::v3::{DRAFT_COMMIT, DRAFT_REVISION};
    let case = "exiting-drain-based-on-inflight";
    let text = stdout(&["conformance", case]);
    let line = format!("cases of {DRAFT_REVISION}, pseudocode reviewed at {}", &DRAFT_COMMIT[..7]);
    assert_eq!(text.lines().last(), Some(line.as_str()));
    let report = json(&["conformance", case, "--json"]);
    assert_eq!(report["draft"], DRAFT_REVISION);
    assert_eq!(report["draft_commit"], DRAFT_COMMIT);
}

#[test]
fn rates_accept_iperf3_notation() {
    let goodput = |rate: &str| {
        json(&["race", "reno", "--rate", rate, "--loss", "0", "--duration", "2s", "--json"])["runs"].clone()
    };
    assert_eq!(goodput("10M"), goodput("10mbit"));
    assert!(refusal(&["race", "reno", "--rate", "10"]).contains("needs a unit"));
}

#[test]
fn a_controller_given_as_a_case_gets_a_hint() {
    let reported = refusal(&["conformance", "cubic"]);
    assert!(reported.contains("use --cc cubic") && !reported.contains("there are"), "{reported}");
    assert!(refusal(&["conformance", "nosuch"]).contains("the cases are:"));
}

#[test]
fn a_range_sweep_prints_one_csv_row_per_run() {
    let args = [
        "race",
        "bbr",
        "cubic",
        "--duration",
        "2s",
        "--sweep",
        "loss=0.1%..10% log 3",
        "--out=-.summary.csv",
    ];
    let text = stdout(&args);
    let lines: Vec<&str> = text.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 1 + 2 * 3, "{text}");
    assert!(lines[0].starts_with("run,label,engine,cc,seed,valid,loss,duration_s,goodput_bps"), "{text}");
    for loss in ["0.1%", "1%", "10%"] {
        assert_eq!(
            lines.iter().filter(|line| line.contains(&format!(",{loss},"))).count(),
            2,
            "{loss}: {text}"
        );
    }
    let json: serde_json::Value =
        serde_json::from_str(&stdout(&["race", "bbr", "--duration", "1s", "--out", "-"])).unwrap();
    assert!(json["runs"][0]["flows"][0]["series"].is_object(), "with its time series");
    let e = refusal(&["race", "bbr", "--json", "--out", "-"]);
    assert!(e.contains("takes one report"), "{e}");
    let e = refusal(&["race", "bbr", "--out=-.docx"]);
    assert!(e.contains("-.docx") && e.contains("summary.csv"), "{e}");
    let e = refusal(&["race", "bbr", "--sweep", "loss=1%..2%"]);
    assert!(e.contains("FROM..TO log N"), "{e}");
}

#[test]
fn repeats_are_reported_as_means_with_intervals() {
    let text = stdout(&["race", "bbr", "cubic", "--duration", "3s", "--repeats", "5"]);
    assert!(text.contains("bbr × 5") && text.contains("cubic × 5") && text.contains('±'), "{text}");
}

/// A document of this repository.
fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// Following the README must give the output that it shows.
#[test]
fn readme_and_first_tutorial_match_the_output_of_race() {
    let readme = document("README.md");
    let race = stdout(&["race"]);
    assert!(readme.contains(race.trim_end()), "README.md does not show this:\n{race}");
    // Shown without its first lines and last column.
    let line = "race bbr cubic:hystart=off bbr3 --rate 20mbit --rtt 60ms --loss 0 --duration 10s --together";
    let tutorial = document("docs/tutorials/first-race.md");
    let (_, shown) = tutorial.split_once(line).unwrap();
    let shown = shown.split("```").next().unwrap();
    let printed = stdout(&line.split(' ').collect::<Vec<_>>());
    for shown in shown.lines().filter(|line| !line.is_empty()) {
        assert!(printed.lines().any(|line| line.starts_with(shown)), "{shown:?} is not in\n{printed}");
    }
}

#[cfg(feature = "ebpf")]
#[test]
fn the_split_chapter_matches_the_output_of_calibrate() {
    let printed = stdout(&["split", "calibrate"]);
    assert!(
        document("docs/explanation/split-statistics.md").contains(printed.trim_end()),
        "docs/explanation/split-statistics.md does not show this:\n{printed}"
    );
}

/// Every controller has a section in the reference, and every setting a row with its default.
#[test]
fn the_reference_lists_every_setting_and_its_default() {
    let page = document("docs/reference/controllers.md");
    for controller in fullpipe_cc::registry::CONTROLLERS {
        let name = controller.name;
        let section = page.split("\n## ").find(|s| s.split([' ', '\n']).next() == Some(name));
        let section = section.unwrap_or_else(|| panic!("{name} has no section"));
        for setting in controller.settings {
            let row = section.lines().find(|line| line.starts_with(&format!("| `{}` |", setting.key)));
            let row = row.unwrap_or_else(|| panic!("{name}: `{}` has no row", setting.key));
            let default = row.split(" | ").nth(2).unwrap();
            assert_eq!(default, setting.default, "{name}: {row}");
        }
    }
}
