//! `fullpipe report` of connection records, on a terminal and as a page.

use crate::program;
use std::fs;
use std::process::Output;

fn report(args: &[&str]) -> Output {
    program::fullpipe().arg("report").args(args).output().unwrap()
}

/// The record of a download, as `fullpipe records` writes it.
fn line(number: u32, controller: &str, again: u32) -> String {
    serde_json::json!({
        "schema": "fullpipe/connection/1", "number": number, "client": format!("192.0.2.{number}:50000"),
        "server": "10.0.0.1:443", "start_s": 1_790_000_000.0 + f64::from(number), "duration_s": 2.5,
        "opening": { "handshake": "seen" }, "closing": "closed", "vantage": { "point": "server" },
        "to_client": {
            "bytes": 1_000_000, "segments": 700, "rtprop_ms": 40.0, "retransmissions": { "segments": again },
        },
        "socket": { "sends": "to_client", "controller": controller, "busy_s": 2.0 },
    })
    .to_string()
}

#[test]
fn records_are_reported_as_tables_and_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let records: Vec<String> =
        (1..=100).map(|n| if n % 4 == 0 { line(n, "cubic", 35) } else { line(n, "bbr", 7) }).collect();
    fs::write(&path, records.join("\n") + "\n{\"number\":1,\"cli").unwrap();
    let page = dir.path().join("closed.html");
    let output = report(&[path.to_str().unwrap(), "--out", page.to_str().unwrap()]);
    let (text, printed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("skipping the last line"), "{printed}");
    for by in ["by controller", "by prefix", "by port", "by hour"] {
        assert!(text.contains(by), "{text}");
    }
    let row =
        |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    let cells: Vec<&str> = row("bbr").split_whitespace().collect();
    assert_eq!(cells[1], "75", "{text}");
    // 7 and 35 of 700 segments; 8 Mbit in two seconds.
    assert!(
        row("bbr").contains("1.00") && row("cubic").contains("5.00") && row("192.0.2.0/24").contains("100"),
        "{text}"
    );
    assert!(row("bbr").contains("Mbit/s"), "{text}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("By controller") && html.contains("<svg") && !html.contains("<script"), "{html}");

    let output = report(&[path.to_str().unwrap(), "--by", "port"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("by port") && !text.contains("by controller"), "{text}");
}

#[test]
fn invalid_records_are_rejected_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("closed.jsonl");
    let file = path.to_str().unwrap();
    for (text, printed) in [
        (line(1, "bbr", 0) + "\nno record\n", "line 2"),
        ("{\"schema\":\"fullpipe/watch/1\",\"connections\":[]}\n".to_owned(), "fullpipe/watch/1"),
        ("\u{7f}ELF".to_owned(), "contains no records"),
        ("PAR1 and no more".to_owned(), "closed.jsonl"),
    ] {
        fs::write(&path, text).unwrap();
        let output = report(&[file]);
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && reported.contains(printed), "{reported}");
    }
    let output = report(&["/no/such/file"]);
    assert_eq!(output.status.code(), Some(2));
    let output = report(&[file, "--out", "x.csv"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(".html"));
    // Control sequences in names are escaped.
    fs::write(&path, line(1, "\u{1b}[2Jbbr", 0)).unwrap();
    let output = report(&[file]);
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("\u{1b}[2J"));
}

/// A short race as a recording.
fn recorded(dir: &std::path::Path, name: &str, cc: &str) -> String {
    let path = dir.join(name).to_str().unwrap().to_owned();
    let race =
        ["race", cc, "--duration", "2s", "--rate", "20mbit", "--rtt", "20ms", "--loss", "0", "--out", &path];
    assert!(program::fullpipe().args(race).output().unwrap().status.success());
    path
}

#[test]
fn recordings_are_converted_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (recorded(dir.path(), "before.json", "cubic"), recorded(dir.path(), "after.json", "bbr"));
    let page = dir.path().join("both.html");
    let output = report(&[&a, &b, "--out", page.to_str().unwrap()]);
    let (text, printed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{printed}");
    assert!(text.contains("before: cubic") && text.contains("after: bbr"), "{text}");
    assert!(fs::read_to_string(&page).unwrap().contains("before: cubic"));
    // A single recording is unchanged.
    let again = dir.path().join("again.json");
    assert!(report(&[&a, "--out", again.to_str().unwrap()]).status.success());
    assert_eq!(fs::read(&a).unwrap(), fs::read(&again).unwrap());

    let refused = |args: &[&str], why: &str| {
        let output = report(args);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && printed.contains(why), "{printed}");
    };
    let records = dir.path().join("closed.jsonl");
    fs::write(&records, line(1, "bbr", 0)).unwrap();
    refused(&[&a, records.to_str().unwrap()], "cannot be mixed in one report");
    let broken = dir.path().join("broken.json");
    fs::write(&broken, &fs::read_to_string(&a).unwrap()[..500]).unwrap();
    refused(&[broken.to_str().unwrap()], "not a recording that this version reads");
    refused(&[&a, "--by", "port"], "--by");
    fs::write(&broken, "{\"schema\":\"fullpipe/recording/1\",\"runs\":[").unwrap();
    fs::File::options().append(true).open(&broken).unwrap().set_len((1 << 30) + 1).unwrap();
    refused(&[broken.to_str().unwrap()], "larger than 1024 MiB");
    let other = dir.path().join("bad.toml");
    fs::write(&other, "\n[path]\n").unwrap();
    refused(&[other.to_str().unwrap()], "is not a recording (.json) or a record file (.jsonl, .parquet)");
    refused(&["/no/such.jsonl"], "cannot read /no/such.jsonl: no such file");
    refused(&[dir.path().to_str().unwrap()], "is a directory, expected a recording or a record file");
}
