//! The measuring commands on paths of known properties: kernel TCP in the lab.

use crate::lab;
use crate::program::{fullpipe, output_within};
use fullpipe_testing::{Attempt, check_claim, failed_checks};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const FULLPIPE: &str = env!("CARGO_BIN_EXE_fullpipe");
const SERVER: &str = "198.18.0.2";

/// Runs `client`, a shell command line, on a path with `fullpipe serve` at the other end, two at a
/// time: each takes a quarter of a processor. `None` if the lab is not possible on this machine.
fn in_the_lab(path: &[&str], before_serving: &str, client: &str) -> Option<Output> {
    static TURNS: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let turn = &TURNS[NEXT.fetch_add(1, Ordering::Relaxed) % TURNS.len()];
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    let server = format!("sh -c '{before_serving} exec {FULLPIPE} serve --log /dev/null'");
    let mut command = fullpipe();
    command.args(["lab", "shell"]).args(path).args(["--server", &server, "--", "sh", "-c", client]);
    let output = output_within(&mut command, Duration::from_secs(150)).expect("it did not end in time");
    if lab::is_missing(&output) {
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(output)
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The lab's reasons why the measurement is invalid.
fn doubts(output: &Output) -> Vec<String> {
    let printed = String::from_utf8_lossy(&output.stderr);
    printed.lines().filter_map(|line| line.trim().strip_prefix("INVALID: ").map(str::to_owned)).collect()
}

/// Runs `client` on a path until `wrong` finds nothing in its JSON output.
fn shows_in_json(
    claim: &str,
    path: &[&str],
    before_serving: &str,
    client: &str,
    wrong: impl Fn(&Value) -> Vec<String>,
) {
    check_claim(claim, || {
        let output = in_the_lab(path, before_serving, client)?;
        let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
        Some(Attempt { disturbances: doubts(&output), failures: wrong(&json) })
    });
}

#[test]
fn bbr_is_significantly_faster_than_cubic_at_one_percent_loss() {
    let client = format!("{FULLPIPE} test {SERVER} --compare bbr,cubic --rounds 6 -t 2 --json");
    let path = ["--rate", "100mbit", "--rtt", "100ms", "--loss", "1%"];
    shows_in_json("bbr is faster than cubic at 1 % loss", &path, "", &client, |json| {
        let verdict = &json["verdicts"][0];
        failed_checks([
            (verdict["kind"] == "faster", format!("{verdict:#}")),
            (verdict["ratio"]["low"].as_f64().unwrap() > 1.0, format!("{verdict:#}")),
            (verdict["words"].as_str().unwrap().starts_with("bbr is "), format!("{verdict:#}")),
        ])
    });
}

#[test]
fn advice_for_a_lossy_path_is_the_exact_command() {
    // Every namespace may use Reno as its default, but not every one BBR.
    let client = format!(
        "echo reno > /proc/sys/net/ipv4/tcp_congestion_control; {FULLPIPE} advise {SERVER} -t 2 --json; \
         echo code $? >&2"
    );
    let path = ["--rate", "100mbit", "--rtt", "100ms", "--loss", "1%"];
    shows_in_json("bbr is advised at 1 % loss", &path, "", &client, |json| {
        let advice = &json["advice"];
        let text = |name: &str| advice[name].as_str().unwrap_or_default().to_owned();
        let may = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
            .is_ok_and(|allowed| allowed.split_ascii_whitespace().any(|name| name == "bbr"));
        let reported = if may {
            advice["kind"] == "apply"
                && text("command").contains("fullpipe apply bbr")
                && text("command_for_destination").ends_with("--to 198.18.0.2/32")
        } else {
            advice["kind"] == "blocked" && text("text").contains("cannot be enabled here")
        };
        failed_checks([
            (json["schema"] == "fullpipe/advise/1", format!("{json:#}")),
            (json["comparison"]["baseline"] == "reno", format!("{json:#}")),
            (json["doctor"]["findings"].as_array().is_some_and(|f| f.len() > 10), format!("{json:#}")),
            (
                text("text").starts_with("bbr is significantly faster than reno on this path"),
                format!("{advice:#}"),
            ),
            (reported, format!("{advice:#}")),
        ])
    });
}

#[test]
fn no_relevant_difference_on_a_clean_short_path() {
    let client = format!("{FULLPIPE} test {SERVER} --compare bbr,cubic --rounds 6 -t 2 --json");
    // Short enough that both fill it at once; the queue is large enough for CUBIC's overshoot.
    let path = ["--rate", "50mbit", "--rtt", "4ms", "--buffer", "100ms"];
    shows_in_json("bbr and cubic are alike on a clean short path", &path, "", &client, |json| {
        let verdict = &json["verdicts"][0];
        let words = verdict["words"].as_str().unwrap();
        failed_checks([
            (verdict["kind"] == "same", format!("{verdict:#}")),
            (words.contains("no relevant difference in goodput"), words.to_owned()),
        ])
    });
}

#[test]
fn a_small_receive_buffer_is_diagnosed_with_its_size() {
    let client = format!("{FULLPIPE} diagnose {SERVER} -t 3 -C cubic");
    let shrink = "echo 4096 65536 131072 > /proc/sys/net/ipv4/tcp_rmem;";
    check_claim("a small receive buffer is found", || {
        let output = in_the_lab(&["--rate", "100mbit", "--rtt", "60ms"], shrink, &client)?;
        let text = stdout(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        // 8 streams use 8 windows; the rate at 60 ms needs a larger buffer than the given 131072
        // bytes.
        let needed = text.split("at the receiver to at least ").nth(1).map_or("", |rest| rest);
        let needed: u64 =
            needed.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let wrong = failed_checks([
            (text.contains("limited by the receiver's window"), text.clone()),
            (
                text.contains("net.ipv4.tcp_rmem is 4096 65536 131072"),
                format!("the value that is too small: {text}"),
            ),
            ((400_000..4_000_000).contains(&needed), format!("{needed} is needed: {text}")),
        ]);
        Some(Attempt { disturbances: doubts(&output), failures: wrong })
    });
}

#[test]
fn diagnose_distinguishes_a_full_path_from_lossy_congestion_control() {
    let client = format!("{FULLPIPE} diagnose {SERVER} -t 3 -C cubic --json");
    let limit = |limit: &'static str| {
        move |json: &Value| failed_checks([(json["limit"] == limit, format!("not by {limit}: {json:#}"))])
    };
    let path = ["--rate", "20mbit", "--rtt", "20ms", "--buffer", "100ms"];
    shows_in_json("a full path is found", &path, "", &client, limit("path"));
    let path = ["--rate", "100mbit", "--rtt", "60ms", "--loss", "1%"];
    shows_in_json("lossy congestion control is found", &path, "", &client, limit("congestion_control"));
}

#[test]
fn reverse_tests_report_the_sending_socket() {
    let client = format!("{FULLPIPE} test {SERVER} -R -t 2 -C reno --json");
    let path = ["--rate", "20mbit", "--rtt", "40ms"];
    shows_in_json("the sender's socket is seen", &path, "", &client, |json| {
        let stream = &json["intervals"][1]["streams"][0];
        assert_eq!(stream["fullpipe"]["controller"], "reno", "{stream:#}");
        let latency = &json["fullpipe"]["latency"];
        assert_eq!(latency["source"], "probes");
        failed_checks([
            (stream["rtt"].as_f64().unwrap() >= 40_000.0, format!("{stream:#}")),
            (stream["snd_cwnd"].as_f64().unwrap() > 50_000.0, format!("{stream:#}")),
            ((0.040..0.080).contains(&latency["idle"].as_f64().unwrap()), format!("{latency:#}")),
        ])
    });
}

#[test]
fn wget_curl_and_get_agree_within_three_percent() {
    for program in ["wget", "curl"] {
        if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
            assert!(std::env::var_os("CI").is_none(), "{program} is not installed");
            eprintln!("SKIPPED: {program} is not installed");
            return;
        }
    }
    let url = format!("http://{SERVER}:5201/download?size=20MB&cc=cubic");
    let client = format!(
        "curl -s -o /dev/null -w '%{{speed_download}}\\n' '{url}'; \
         wget -O /dev/null --report-speed=bits '{url}' 2>&1 | grep -o '([0-9.,]* [KMG]b/s)'; \
         {FULLPIPE} get --discard --json '{url}'"
    );
    let path = ["--rate", "40mbit", "--rtt", "6ms", "--buffer", "60ms"];
    check_claim("wget, curl and get agree", || {
        let output = in_the_lab(&path, "", &client)?;
        let text = stdout(&output);
        let mut lines = text.splitn(3, '\n');
        let curl: f64 = lines.next().unwrap().parse::<f64>().unwrap() * 8.0;
        let wget = lines.next().unwrap().trim_matches(['(', ')']).to_owned();
        let wget: f64 =
            wget.strip_suffix(" Mb/s").unwrap_or_else(|| panic!("{text}")).parse::<f64>().unwrap() * 1e6;
        let json: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(json["controller"], "cubic");
        let ours = json["bits_per_second"].as_f64().unwrap();
        // wget prints three digits.
        let agree = [curl, wget].iter().all(|theirs| (ours / theirs - 1.0).abs() < 0.03);
        let wrong = failed_checks([(agree, format!("curl {curl}, wget {wget}, get {ours}"))]);
        Some(Attempt { disturbances: doubts(&output), failures: wrong })
    });
}
