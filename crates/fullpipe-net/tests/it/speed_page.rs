//! The speed test page at `/`: its contents, limits, secret and results.

use crate::common;
use crate::common::{PATIENCE, Running};
use fullpipe_net::server::{self, Limits};
use fullpipe_testing::{View, Visit, visit};
use fullpipe_units::Rate;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

/// Head and body of the response to a request for `/` with these fields.
fn root(server: &Running, method: &str, fields: &str) -> (String, String) {
    let mut socket = TcpStream::connect(server.v4()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "{method} / HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn browsers_get_the_page_and_programs_the_list() {
    let server = Running::start(server::Config::default());
    let (head, body) = root(&server, "GET", "Accept: */*\r\n");
    assert!(head.contains("text/plain") && body.contains("/download?size="), "{head}");
    let (head, body) = root(&server, "GET", BROWSER);
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/html") && body.ends_with("</html>\n"));
    // No external resources, by reference or by policy.
    let policy = head.lines().find(|l| l.starts_with("Content-Security-Policy: ")).unwrap();
    for part in [
        "default-src 'none'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'none'",
        "base-uri 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    for foreign in ["https://", "src=", "@import", "url("] {
        assert!(!body.contains(foreign), "{foreign}");
    }
    let outside: Vec<&str> = body.split("http://").skip(1).filter_map(|rest| rest.get(..9)).collect();
    assert!(outside.iter().all(|u| *u == "www.w3.or" || *u == "HOST:PORT"), "{outside:?}");
    let (head, body) = root(&server, "HEAD", BROWSER);
    assert!(head.contains("text/html") && body.is_empty());
}

#[test]
fn without_the_secret_the_page_is_a_401_that_reveals_nothing() {
    let secret = || server::Config { secret: Some("s3cret".into()), ..Default::default() };
    let server = Running::start(secret());
    let (head, refused) = root(&server, "GET", BROWSER);
    assert!(head.starts_with("HTTP/1.1 401 ") && head.contains("WWW-Authenticate: Bearer"), "{head}");
    server.event("http_refused");
    let open = Running::start(server::Config::default());
    let (_, page) = root(&open, "GET", BROWSER);
    assert_eq!(refused, page, "the same for everyone");
    let (head, body) = root(&server, "GET", "Accept: */*\r\n");
    assert!(head.starts_with("HTTP/1.1 401 ") && !body.contains("<html"), "{head}");
    // All other resources require the secret.
    let mut socket = TcpStream::connect(server.v4()).unwrap();
    write!(socket, "GET /download HTTP/1.1\r\nHost: localhost\r\n{BROWSER}Connection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 ") && !answer.contains("<html"), "{answer}");
}

/// Fills in the form, starts the test, waits for its end and returns the displayed values.
fn reader(fields: &str) -> String {
    format!(
        r##"(async () => {{
            const byId = (id) => document.getElementById(id);
            for (const [id, value] of Object.entries({fields})) byId(id).value = value;
            byId("go").click();
            const test = () => document.documentElement.dataset.test;
            while (test() !== "done" && test() !== "failed") await new Promise((r) => setTimeout(r, 50));
            const text = (id) => byId(id).textContent;
            const all = (what) => [...document.querySelectorAll("#plot-rtt " + what)];
            const heights = (e) => e.getAttribute("points").split(" ").map((p) => +p.split(",")[1]);
            return {{
                end: test(), verdict: text("verdict"), state: text("state"), button: text("go"),
                goodput: [text("goodput-a"), text("goodput-b")],
                loaded: [text("loaded-a"), text("loaded-b")], idle: text("idle"),
                rpm: [text("rpm-a"), text("rpm-b")],
                drawn: {{
                    rules: all(".rule").map((e) => +e.getAttribute("y1")),
                    labels: all("text").map((e) => e.textContent),
                    heights: ["a", "b"].map((side) => all("polyline." + side).flatMap(heights)),
                }},
                again: [text("again-a"), text("again-b")],
                lines: ["plot-rate", "plot-rtt"]
                    .map((id) => document.querySelectorAll("#" + id + " polyline").length),
                secret: !byId("secret-label").hidden,
                wide: document.documentElement.scrollWidth - innerWidth,
                foreign: performance.getEntriesByType("resource")
                    .filter((e) => !e.name.startsWith(location.origin)).length,
            }};
        }})()"##
    )
}

/// The mean of the fastest 95 % of the RTTs as the plot shows them, in ms, and its maximum error: a
/// point is drawn to a tenth of a pixel.
fn drawn_mean(drawn: &serde_json::Value, side: usize) -> (f64, f64) {
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let (bottom, top) = (number(&drawn["rules"][0]), number(&drawn["rules"][2]));
    // The labels of both axes alternate.
    let high: f64 = drawn["labels"][4].as_str().unwrap().parse().unwrap();
    let heights = drawn["heights"][side].as_array().unwrap().iter().map(number);
    let mut times: Vec<f64> = heights.map(|y| (bottom - y) / (bottom - top) * high).collect();
    times.sort_by(f64::total_cmp);
    times.truncate((times.len() * 95).div_ceil(100));
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    (mean, 0.05 / (bottom - top) * high)
}

fn open(server: &Running, fields: &str, view: View<'_>) -> Option<Visit> {
    visit(&format!("http://{}/", server.v4()), &reader(fields), view)
}

const PHONE: View<'_> = View { width: 390, height: 844, dark: false, picture: None };

/// The picture file, if pictures of the page are requested (`scripts/pictures`).
fn picture(name: &str) -> Option<PathBuf> {
    std::env::var_os("FULLPIPE_PICTURES").map(|dir| PathBuf::from(dir).join(name))
}

#[test]
fn the_page_compares_two_controllers_in_turn() {
    // A rate that any machine sustains: the server's limit dominates.
    let limits = Limits { rate: Some(Rate::from_bits_per_sec(40_000_000)), ..common::patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    for (name, width, dark) in [("speed.png", 1100, false), ("speed-phone.png", 390, true)] {
        let picture = picture(name);
        let view = View { width, height: 800, dark, picture: picture.as_deref() };
        let fields = r#"{a: "reno", b: "cubic", seconds: 2, rounds: 2}"#;
        let Some(Visit { value, errors: complaints }) = open(&server, fields, view) else { return };
        assert!(complaints.is_empty(), "{complaints:?}");
        assert_eq!(
            (value["end"].as_str(), value["button"].as_str()),
            (Some("done"), Some("Start")),
            "{value:#}"
        );
        let figure = |v: &serde_json::Value| v.as_str().unwrap().parse::<f64>().unwrap_or(f64::NAN);
        for side in 0..2 {
            let goodput = figure(&value["goodput"][side]);
            // At most the server's limit; a stalled machine reaches less.
            assert!(goodput > 0.1 && goodput < 48.0, "{value:#}");
            let (loaded, rpm) = (figure(&value["loaded"][side]), figure(&value["rpm"][side]));
            assert!(loaded > 0.0 && figure(&value["again"][side]) >= 0.0, "{value:#}");
            let (mean, error) = drawn_mean(&value["drawn"], side);
            assert!((60_000.0 / rpm - mean).abs() <= error + 0.01 * mean, "{mean} ± {error}: {value:#}");
        }
        assert!(figure(&value["idle"]) > 0.0, "{value:#}");
        assert_eq!(value["lines"], serde_json::json!([4, 4]), "a line for each round of each");
        let verdict = value["verdict"].as_str().unwrap();
        assert!(
            verdict.contains("reno") && verdict.contains("cubic") && verdict.contains(" RPM, "),
            "{verdict}"
        );
        assert!(value["wide"].as_i64().unwrap() <= 0, "{width}: the page is wider than the window");
        assert_eq!(value["foreign"], 0);
    }
    let used: Vec<_> = server
        .events()
        .iter()
        .filter(|e| e.kind == "download")
        .map(|e| e.to_json()["controller"].clone())
        .collect();
    assert_eq!(used[..4], ["reno", "cubic", "cubic", "reno"], "in turn, in changing order");
}

#[test]
fn the_page_asks_for_the_secret_and_respects_the_limits() {
    let limits = Limits {
        rate: Some(Rate::from_bits_per_sec(20_000_000)),
        bytes: Some(1_000_000),
        ..common::patient()
    };
    let config = server::Config { secret: Some("s3cret".into()), limits, ..Default::default() };
    let server = Running::start(config);
    let form = |secret| format!(r#"{{a: "reno", b: "cubic", seconds: 2, rounds: 1, secret: "{secret}"}}"#);
    let Some(Visit { value, .. }) = open(&server, &form(""), PHONE) else { return };
    assert_eq!((value["end"].as_str(), value["secret"].as_bool()), (Some("failed"), Some(true)), "{value:#}");
    assert!(value["verdict"].as_str().unwrap().contains("requires a secret"), "{value:#}");
    let value = open(&server, &form("wrong"), PHONE).unwrap().value;
    assert!(value["verdict"].as_str().unwrap().contains("Wrong secret"), "{value:#}");
    assert!(server.events().iter().all(|e| e.kind != "download"));
    let value = open(&server, &form("s3cret"), PHONE).unwrap().value;
    assert_eq!(value["end"], "done", "{value:#}");
    let sizes = server
        .events()
        .iter()
        .filter(|e| e.kind == "download")
        .map(|e| e.to_json()["bytes"].clone())
        .collect::<Vec<_>>();
    assert_eq!(sizes, [1_000_000, 1_000_000]);
}

#[test]
fn a_missing_controller_shows_the_server_error() {
    let server = Running::start(server::Config::default());
    let fields = r#"{a: "nosuch", b: "cubic", seconds: 1, rounds: 1}"#;
    let Some(Visit { value, .. }) = open(&server, fields, PHONE) else { return };
    assert_eq!(value["end"], "failed");
    let verdict = value["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("Server error: cc: ") && verdict.contains("nosuch"), "{verdict}");
    assert_eq!(value["button"], "Start");
}
