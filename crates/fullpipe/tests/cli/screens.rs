//! Output fits the terminal: no line is longer, and no word is broken. Without a terminal,
//! `COLUMNS` sets the width.

use crate::image::{host, write};
use crate::program::fullpipe;
use std::path::Path;

/// The tested widths.
const WIDTHS: [usize; 3] = [80, 100, 140];

/// The output of a command on stdout and stderr at this width.
fn screen(args: &[&str], width: usize) -> String {
    let mut command = fullpipe();
    command.args(args).env("COLUMNS", width.to_string()).env("NO_COLOR", "1");
    let output = command.output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// Fails if a line is too long, unless it is `excused`.
fn fits(args: &[&str], width: usize, excused: &dyn Fn(&str) -> bool) -> String {
    let text = screen(args, width);
    assert!(!text.is_empty(), "{args:?} shows nothing");
    for line in text.lines().filter(|line| !excused(line)) {
        let long = line.chars().count();
        assert!(long <= width, "{args:?} at {width}: a line of {long}:\n{line}\nof\n{text}");
    }
    text
}

/// The words are the same at every width: none is broken or missing.
fn same_words(args: &[&str], excused: &dyn Fn(&str) -> bool) {
    let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let shown = WIDTHS.map(|width| words(&fits(args, width, excused)));
    assert!(shown.iter().all(|one| *one == shown[0]), "{args:?}: {shown:?}");
}

fn none(_: &str) -> bool {
    false
}

/// A path or address is one word, and may be longer than the line.
fn a_long_word(line: &str) -> bool {
    line.split_ascii_whitespace().any(|word| word.len() > 45)
}

/// The subcommands that a help page lists.
fn subcommands(help: &str) -> Vec<String> {
    // The program's own list has several headings, a command's has one.
    let listed = match help.split("Commands:\n").nth(1) {
        Some(listed) => listed.split("\n\n").next().unwrap_or_default(),
        None if help.contains("Utilities:\n") => help.split("Options:\n").next().unwrap_or_default(),
        None => "",
    };
    let names = listed.lines().filter_map(|line| {
        let name = line.strip_prefix("  ")?;
        (!name.starts_with(' ')).then(|| name.split(' ').next().unwrap_or_default().to_owned())
    });
    names.filter(|name| name != "help" && !name.is_empty()).collect()
}

fn help_of(path: &[String], seen: &mut usize) {
    let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
    for option in ["-h", "--help"] {
        args.push(option);
        same_words(&args, &none);
        args.pop();
    }
    *seen += 1;
    args.push("-h");
    for name in subcommands(&screen(&args, 140)) {
        help_of(&[path, &[name]].concat(), seen);
    }
}

#[test]
fn help_of_every_command_fits_the_terminal() {
    let mut seen = 0;
    help_of(&[], &mut seen);
    let least = if cfg!(feature = "ebpf") { 45 } else { 18 };
    assert!(seen >= least, "only {seen} pages of help were found");
}

#[test]
fn lists_and_tables_of_simulated_runs_fit_the_terminal() {
    for args in [
        &["figure"][..],
        &["conformance", "--list"],
        &["conformance", "exiting-drain-based-on-inflight"],
        &["conformance", "nosuch"],
        &["race", "nosuch"],
        &["race", "--loss", "1"],
    ] {
        same_words(args, &none);
    }
    for args in [
        &["race", "bbr", "bbr3", "cubic", "hybla", "reno", "--duration", "3s"][..],
        &["race", "bbr", "cubic:hystart=off", "--together", "--loss", "0", "--duration", "3s"],
        &["race", "bbr", "cubic", "--sweep", "loss=0.1%,1%", "--sweep", "rtt=10ms,20ms", "--duration", "1s"],
        &["race", "bbr", "cubic", "--repeats", "2", "--duration", "1s"],
    ] {
        for width in WIDTHS {
            fits(args, width, &none);
        }
    }
}

#[test]
fn figures_fit_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for width in WIDTHS {
        let text = fits(&["figure", "fig2", "--out", out], width, &|line| line.starts_with("wrote "));
        assert!(text.contains("published:"), "{text}");
    }
}

#[test]
fn host_commands_fit_the_terminal() {
    // A plan shows file contents unwrapped.
    let of_a_file = |line: &str| line.starts_with("       +") || line.starts_with("       -");
    let root = host();
    let r = root.path();
    let at = r.to_str().unwrap();
    let on = |words: &str| {
        let args: Vec<&str> = words.split(' ').chain(["--root", at]).collect();
        same_words(&args, &of_a_file);
    };
    for command in [
        "doctor",
        "doctor -v --rate 10gbit --rtt 300ms",
        "doctor bbr3",
        "doctor hybla",
        "plan --rate 1gbit --rtt 200ms",
    ] {
        on(command);
    }
    for command in [
        "plan nosuch",
        "plan hybla",
        "plan bbr3",
        "plan cubic --qdisc fq_pie",
        "plan --replace eth7",
        "confirm",
    ] {
        on(command);
    }
    on("status");
    // Each command changes the state for the next.
    for (command, width) in [("apply", 80), ("apply", 100), ("apply --rate 1gbit --rtt 200ms", 140)] {
        let args: Vec<&str> = command.split(' ').chain(["--root", at]).collect();
        fits(&args, width, &none);
    }
    on("status");
    on("doctor");
    on("apply cubic");
    write(r, "etc/sysctl.d/99-zz-fullpipe.conf", "net.ipv4.tcp_congestion_control = reno\n");
    on("status");
    on("revert");
    fits(&["revert", "--force", "--root", at], 80, &none);
    on("revert");
}

/// A seed file of the fuzz targets.
#[cfg(feature = "full")]
fn seed(name: &str) -> String {
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    at.to_str().unwrap().to_owned()
}

#[cfg(feature = "full")]
#[test]
fn capture_and_split_reports_fit_the_terminal() {
    let (one, several) =
        (seed("trace_capture/pcap"), seed("trace_capture/f5f13594e5c49483cc534774260cfe06fb8e7739"));
    let split = seed("split_lines/two-arms.jsonl");
    for width in WIDTHS {
        let reported = fits(&["trace", &one], width, &a_long_word);
        assert!(reported.contains("limited by       application 100 %"), "{reported}");
        let reported = fits(&["trace", &several, "--controllers"], width, &a_long_word);
        assert!(reported.contains("10.0.0.1:36768") && reported.contains("--conn N"), "{reported}");
        fits(&["trace", &one, &several], width, &a_long_word);
        let reported = fits(&["split", "report", &split], width, &none);
        assert!(reported.contains("have not closed"), "{reported}");
    }
    // A name stays with its description at any width.
    let narrow = screen(&["trace", &one], 80);
    let hanging = narrow.lines().filter(|line| line.starts_with("                     ")).count();
    assert!(hanging >= 3, "{narrow}");
}

#[test]
fn reports_of_recordings_fit_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a.json", "b.json"].map(|name| folder.path().join(name).display().to_string());
    for (file, seed) in files.iter().zip(["1", "2"]) {
        screen(&["race", "bbr", "cubic", "--duration", "2s", "--seed", seed, "--out", file], 80);
    }
    for width in WIDTHS {
        let reported = fits(&["report", &files[0]], width, &none);
        assert!(reported.contains("goodput") && reported.contains("Both are right"), "{reported}");
        fits(&["report", &files[0], &files[1]], width, &none);
    }
}

#[cfg(feature = "full")]
#[test]
fn reports_on_this_machine_fit_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records.jsonl");
    for args in [
        &["doctor", "-v"][..],
        &["status"],
        &["cc", "list"],
        &["cc", "status"],
        &["cc", "settings", "bbr3"],
        &["cc", "load", "nosuch"],
        &["self-test", "simulator,reports,host,apply"],
        &["watch", "--once", "--interval", "100ms"],
        &["records", "/nonexistent/x.jsonl"],
        &["records", records.to_str().unwrap(), "--for", "200ms"],
        &["split", "needs"],
        &["split", "status"],
        &["split", "calibrate", "--shares", "10%,50%", "--repeats", "2"],
    ] {
        // These are slow, so only the narrowest width is tested.
        fits(args, 80, &a_long_word);
    }
}

#[cfg(feature = "full")]
#[test]
fn mesh_reports_fit_the_terminal() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mesh");
    let (mesh, paths) = (examples.join("mesh.toml"), examples.join("wide-area.toml"));
    let (mesh, paths) = (mesh.to_str().unwrap(), paths.to_str().unwrap());
    for width in [80, 140] {
        fits(&["probe", "simulate", mesh, paths, "--duration", "30min", "--no-simulation"], width, &none);
        fits(&["probe", "check", mesh], width, &none);
    }
}

#[cfg(feature = "net")]
mod measured {
    use super::*;
    use crate::program::Serving;
    use std::io::BufRead;

    /// `fullpipe serve` on the loopback, and its port.
    fn serve() -> (Serving, impl BufRead, String) {
        let (serving, log) = Serving::start(&["--bind", "127.0.0.1"]);
        let line = &serving.first;
        assert!(line.starts_with("serve: listening"), "{line}");
        let port = line.split("127.0.0.1:").nth(1).unwrap().split('"').next().unwrap().to_owned();
        (serving, log, port)
    }

    #[test]
    fn measurements_fit_and_server_log_lines_are_prefixed() {
        let (mut serving, log, port) = serve();
        for width in WIDTHS {
            for options in [
                &["-t", "1", "-P", "2", "--bidir", "-i", "0.5"][..],
                &["-n", "1m", "-R"],
                &["-t", "1", "-u", "-b", "2M", "-R"],
                &["-n", "1m", "-C", "bbr3"],
                &["--compare", "cubic,reno", "--rounds", "1", "-n", "200k"],
            ] {
                fits(&[&["test", "127.0.0.1", "-p", &port], options].concat(), width, &none);
            }
            let url = format!("127.0.0.1:{port}/download?size=200k");
            fits(&["get", "--discard", &url], width, &none);
        }
        fits(&["diagnose", "127.0.0.1", "-p", &port, "-t", "1"], 80, &none);
        let _ = serving.child.kill();
        let all: Vec<String> = log.lines().map_while(Result::ok).collect();
        assert!(all.len() > 10 && all.iter().all(|line| line.starts_with("serve: ")), "{all:?}");
    }

    #[test]
    fn streams_are_numbered_and_reports_written_repeatedly() {
        let (_serving, _log, port) = serve();
        let folder = tempfile::tempdir().unwrap();
        let files = ["a.json", "b.csv", "c.html"].map(|name| folder.path().join(name));
        let mut args = vec!["test", "127.0.0.1", "-p", &port, "-t", "1", "-P", "3"];
        for file in &files {
            args.extend(["--out", file.to_str().unwrap()]);
        }
        let text = screen(&args, 100);
        for stream in ["→1", "→2", "→3", "→all"] {
            assert!(text.contains(stream), "{stream}: {text}");
        }
        assert!(!text.contains("→4") && files.iter().all(|file| file.is_file()), "{text}");
        let compared = |list: &[&str]| {
            let mut args = vec!["test", "127.0.0.1", "-p", &port, "-n", "100k", "--rounds", "1", "--json"];
            list.iter().for_each(|one| args.extend(["--compare", one]));
            let text = screen(&args, 100);
            let json = &text[text.find("{\n").unwrap_or_default()..];
            let json: serde_json::Value =
                serde_json::Deserializer::from_str(json).into_iter().next().unwrap().unwrap();
            json["arms"].as_array().or_else(|| json["controllers"].as_array()).map(Vec::len)
        };
        assert_eq!(compared(&["cubic,reno"]), Some(2));
        assert_eq!(compared(&["cubic", "reno"]), Some(2));
        assert_eq!(compared(&["cubic, reno"]), Some(2));
    }

    #[test]
    fn a_directory_url_is_saved_as_index_html_without_overwriting() {
        let (_serving, _log, port) = serve();
        let folder = tempfile::tempdir().unwrap();
        let get = |more: &[&str]| {
            let url = format!("127.0.0.1:{port}/");
            let mut command = fullpipe();
            command.args(["get", &url]).args(more).current_dir(folder.path()).output().unwrap()
        };
        assert!(get(&[]).status.success());
        let index = folder.path().join("index.html");
        let came = std::fs::read(&index).unwrap();
        assert!(!came.is_empty());
        std::fs::write(&index, "mine").unwrap();
        let refused = get(&[]);
        let reported = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && reported.contains("--force"), "{reported}");
        assert_eq!(std::fs::read(&index).unwrap(), b"mine");
        assert!(get(&["--force"]).status.success());
        assert_eq!(std::fs::read(&index).unwrap(), came);
    }
}
