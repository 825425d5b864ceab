//! `fullpipe trace` of small files: what it reports of the file itself, and logs that fullpipe
//! writes.

use crate::program::fullpipe;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// A pcapng file: a TCP segment in VXLAN, an ESP packet, a UDP packet, and a USB packet.
fn file() -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = 12 + body.len().next_multiple_of(4);
        let mut out = [kind.to_le_bytes(), (length as u32).to_le_bytes()].concat();
        out.extend(body);
        out.resize(length - 4, 0);
        out.extend((length as u32).to_le_bytes());
        out
    };
    let ipv4 = |protocol: u8, payload: &[u8]| {
        let length = (20 + payload.len() as u16).to_be_bytes();
        let ends = [64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        [&[0x45, 0][..], &length, &[0, 1, 0x40, 0], &ends, payload].concat()
    };
    let ethernet = |packet: &[u8]| [&[0; 12][..], &[8, 0], packet].concat();
    let udp = |port: u16, payload: &[u8]| [&[0, 9][..], &port.to_be_bytes(), &[0, 0, 0, 0], payload].concat();
    let segment =
        [&[0x0f, 0xa0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 16, 0, 99, 0, 0, 0, 0][..], &[7; 100]].concat();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &ethernet(&ipv4(6, &segment))].concat();
    let packets = [
        (0_u32, ethernet(&ipv4(17, &udp(4789, &vxlan)))),
        (0, ethernet(&ipv4(50, &[1; 40]))),
        (0, ethernet(&ipv4(17, &udp(53, &[1; 40])))),
        (1, vec![0; 64]),
    ];
    let section = [0x1a2b_3c4d_u32, 1, u32::MAX, u32::MAX];
    let mut out = block(0x0a0d_0d0a, &section.map(u32::to_le_bytes).concat());
    for link in [1_u32, 189] {
        out.extend(block(1, &[link, 0].map(u32::to_le_bytes).concat()));
    }
    for (interface, frame) in packets {
        let length = frame.len() as u32;
        let head = [interface, 0, 1000, length, length];
        out.extend(block(6, &[&head.map(u32::to_le_bytes).concat()[..], &frame].concat()));
    }
    out
}

fn trace(path: &Path, args: &[&str]) -> Output {
    fullpipe().arg("trace").arg(path).args(args).output().unwrap()
}

#[test]
fn facts_of_the_file_are_in_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.pcapng");
    let whole = file();
    // The last block is damaged.
    std::fs::write(&path, [&whole[..], &[6, 0, 0, 0, 60, 0, 0, 0]].concat()).unwrap();
    let printed = String::from_utf8(trace(&path, &[]).stdout).unwrap();
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "4 packets, 1 of TCP, 2 of other protocols, 1 with unsupported link types",
        "TCP packets in tunnels: 1 in VXLAN.",
        "Not read: link type USB (189), 1 packet.",
        "Not read: ESP, 1 packet.",
        "The file is damaged at byte",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let json: Value = serde_json::from_slice(&trace(&path, &["--json"]).stdout).unwrap();
    let facts = &json["captures"][0];
    assert_eq!(facts["name"], path.display().to_string());
    for (field, n) in [("packets", 4), ("tcp", 1), ("other", 2)] {
        assert_eq!(facts[field], n, "{field}: {facts}");
    }
    assert_eq!(facts["tunnels"], serde_json::json!([{"name": "VXLAN", "packets": 1}]));
    assert_eq!(facts["unread"][0]["link_type"], 189);
    assert_eq!((&facts["unread"][1]["name"], &facts["unread"][1]["packets"]), (&"ESP".into(), &1.into()));
    assert!(facts["unread"][1]["hint"].as_str().unwrap().contains("tcpdump"), "{facts}");
    assert_eq!(facts["damage"]["offset"], whole.len() as u64);
    assert_eq!(json["connections"].as_array().unwrap().len(), 1);
}

#[test]
fn file_of_unsupported_links_only_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usb.pcap");
    let mut bytes = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 189].map(u32::to_le_bytes).concat();
    bytes.extend([1_u32, 0, 4, 4, 7].map(u32::to_le_bytes).concat());
    std::fs::write(&path, bytes).unwrap();
    let refused = trace(&path, &["--json"]);
    let printed = String::from_utf8(refused.stderr).unwrap();
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!refused.status.success());
    assert!(printed.contains("1 packet with the unsupported link type USB (189)"), "{printed}");
    assert!(printed.contains("tcpdump -y NAME") && printed.contains("editcap -C"), "{printed}");
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Runs a race and returns its log's path, in a format.
fn race(folder: &Path, cc: &str, path: &[&str], format: &str) -> std::path::PathBuf {
    let out = folder.join(format!("{}.{format}", cc.replace([':', '='], "-")));
    let recording = folder.join("race.json");
    let run = fullpipe()
        .args(["race", cc])
        .args(path)
        .arg("--out")
        .arg(&out)
        .arg("--out")
        .arg(&recording)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    out
}

/// The values of a column at the times at which they change.
fn changes(flow: &Value, name: &str) -> Vec<(u64, f64)> {
    let series = &flow["series"];
    let columns = series["columns"].as_array().unwrap();
    let column = columns.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    let times = series["t_s"].as_array().unwrap();
    let mut changes: Vec<(u64, f64)> = Vec::new();
    for (t, v) in times.iter().zip(column["values"].as_array().unwrap()) {
        let Some(v) = v.as_f64() else { continue };
        // A log has nanoseconds, and whole bytes and bits per second.
        let v = if name.ends_with("_ms") { v } else { v.round() };
        if changes.last().is_none_or(|(_, last)| *last != v) {
            changes.push(((t.as_f64().unwrap() * 1e9).round() as u64, v));
        }
    }
    changes
}

#[test]
fn log_that_fullpipe_writes_is_read_back_with_the_same_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = ["--rate", "50mbit", "--rtt", "40ms", "--loss", "1%", "--duration", "6s"];
    for format in ["qlog", "sqlog"] {
        let log = race(folder.path(), "bbr3", &path, format);
        let written = json(&std::fs::read(folder.path().join("race.json")).unwrap());
        let back = folder.path().join("back.json");
        let read = trace(&log, &["--out", back.to_str().unwrap(), "--json"]);
        assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
        let back = json(&std::fs::read(&back).unwrap());
        let [written, back] = [&written, &back].map(|r| &r["runs"][0]["flows"][0]);
        for name in [
            "rtt_ms",
            "srtt_ms",
            "min_rtt_ms",
            "cwnd_bytes",
            "inflight_bytes",
            "pacing_bps",
            "bw_bps",
            "lost_packets",
        ] {
            let [expected, found] = [written, back].map(|flow| changes(flow, name));
            // The log has no row before the first loss.
            let zero = |c: Vec<(u64, f64)>| c.into_iter().filter(|(_, v)| name != "lost_packets" || *v > 0.0);
            assert_eq!(
                zero(found).collect::<Vec<_>>(),
                zero(expected).collect::<Vec<_>>(),
                "{format}: {name}"
            );
        }
        let list = |flow: &Value, name: &str| {
            let items = flow[name].as_array().unwrap();
            let time = |v: &Value| (v["at_s"].as_f64().unwrap() * 1e9).round() as u64;
            let what = |v: &Value| v.get("state").or(v.get("kind")).unwrap().as_str().unwrap().to_owned();
            items.iter().map(|v| (time(v), what(v))).collect::<Vec<_>>()
        };
        for name in ["states", "events"] {
            assert_eq!(list(back, name), list(written, name), "{format}: {name}");
        }
        assert_eq!((&back["cc"], &back["start_s"]), (&written["cc"], &written["start_s"]));
        let record = &json(&read.stdout)["connections"][0];
        let lost = changes(written, "lost_packets").last().map(|(_, lost)| *lost);
        assert_eq!(record["log"]["lost"].as_f64(), lost);
        assert_eq!(record["to_server"]["sender"]["name"], "bbr3");
    }
}

/// A controller that follows the draft passes; one constant changed, a check fails.
#[test]
fn log_shows_whether_the_controller_follows_the_draft() {
    let folder = tempfile::tempdir().unwrap();
    let clean =
        ["--rate", "50mbit", "--rtt", "40ms", "--loss", "0.05%", "--buffer", "2bdp", "--duration", "20s"];
    let lossy = ["--rate", "50mbit", "--rtt", "40ms", "--loss", "1%", "--duration", "20s"];
    for (setting, path, failed) in [
        ("", &lossy[..], None),
        ("", &clean, None),
        (":beta_percent=50", &lossy, Some("response to loss (Beta)")),
        (":probe_rtt_interval_ms=3000", &clean, Some("interval of ProbeRTT")),
        (":probe_rtt_duration_ms=50", &clean, Some("length of ProbeRTT")),
        (":probe_rtt_duration_ms=600", &clean, Some("length of ProbeRTT")),
        (":probe_rtt_cwnd_gain=0.8", &clean, Some("window of ProbeRTT")),
        (":probe_max_rounds=10", &clean, Some("time between probes (DOWN and CRUISE)")),
        (":full_bw_rounds=1", &clean, Some("end of Startup")),
        (":startup_pacing_gain=2", &clean, Some("pacing gain in Startup")),
        (":drain_pacing_gain=0.9", &clean, Some("pacing gain in Drain")),
        (":probe_down_pacing_gain=0.75", &clean, Some("pacing gain in ProbeBW_DOWN")),
        (":probe_cruise_pacing_gain=1.1", &clean, Some("pacing gain in ProbeBW_CRUISE")),
        (":probe_up_pacing_gain=1.5", &clean, Some("pacing gain in ProbeBW_UP")),
        (":pacing_margin_percent=3", &clean, Some("pacing gain in ProbeBW_REFILL")),
    ] {
        let log = race(folder.path(), &format!("bbr3{setting}"), path, "sqlog");
        let read = trace(&log, &["--json"]);
        assert_eq!(read.status.code(), Some(i32::from(failed.is_some())), "bbr3{setting}");
        let printed = String::from_utf8_lossy(&read.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            failed
                .is_none_or(|failed| printed.contains("failed: connection 1: ") && printed.contains(failed)),
            "bbr3{setting}: {printed}"
        );
        let checks = &json(&read.stdout)["connections"][0]["log"]["checks"];
        let all = checks.as_array().unwrap();
        let found: Vec<&str> =
            all.iter().filter(|c| c["result"] == "failed").map(|c| c["check"].as_str().unwrap()).collect();
        assert!(failed.is_none_or(|failed| found.contains(&failed)), "bbr3{setting}: {checks:#}");
        let passed = all.iter().filter(|c| c["result"] == "passed").count();
        assert!(passed >= 12 || failed.is_some(), "bbr3{setting}: {checks:#}");
    }
}

/// The names of the cases are those of `fullpipe conformance`.
#[test]
fn checks_of_logs_name_cases_that_exist() {
    let folder = tempfile::tempdir().unwrap();
    let path = ["--rate", "20mbit", "--rtt", "20ms", "--loss", "1%", "--duration", "20s"];
    let log = race(folder.path(), "bbr3", &path, "qlog");
    let record = &json(&trace(&log, &["--json"]).stdout)["connections"][0];
    let listed = fullpipe().args(["conformance", "--list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let cases = record["log"]["checks"].as_array().unwrap().iter();
    let cases: Vec<&str> = cases
        .flat_map(|c| c["cases"].as_array().into_iter().flatten())
        .map(|c| c.as_str().unwrap())
        .collect();
    assert!(cases.len() >= 3, "{cases:?}");
    for case in cases {
        assert!(listed.contains(case), "{case}");
    }
}

/// A log has no packets to plot: the file would be empty.
#[test]
fn xplot_of_a_log_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let log =
        race(folder.path(), "cubic", &["--rate", "20mbit", "--rtt", "20ms", "--duration", "1s"], "qlog");
    let [page, plot] = ["x.html", "x.xpl"].map(|name| folder.path().join(name));
    let refused = trace(&log, &["--out", page.to_str().unwrap(), "--out", plot.to_str().unwrap()]);
    let printed = String::from_utf8_lossy(&refused.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains("x.xpl: xplot shows the packets of a capture"), "{printed}");
    assert!(!page.exists() && !plot.exists());
}
