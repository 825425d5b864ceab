//! Responsiveness under load: the server's resources over HTTP/2 and HTTP/1.1 with TLS, and the client.

use crate::common;
use crate::common::{PATIENCE, Running, free_port, have, patient, until};
use crate::tls;
use crate::tls::{END_HEADERS, HEADERS, Raw, Secured, frame, silent_after};
use fullpipe_net::rpm::{
    self, Configuration, Direction, Parameters, Plan, RpmError, Trust, configuration_url,
};
use fullpipe_net::server::{Config, Limits};
use fullpipe_units::Rate;
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

fn server() -> Secured {
    Secured::start(Config { limits: patient(), ..Config::default() })
}

/// Short intervals: the algorithm does not depend on their duration.
fn quick(secured: &Secured) -> rpm::Config {
    let url = configuration_url("127.0.0.1", secured.server.address.port()).unwrap();
    let parameters = Parameters { interval_s: 0.1, time_limit_s: 1.5, ..Parameters::default() };
    rpm::Config { trust: Trust::Any, parameters, ..rpm::Config::new(url) }
}

/// With the usual intervals: a stalled machine may complete no probe in four short ones.
fn patiently(config: &rpm::Config) -> rpm::Config {
    rpm::Config { parameters: Parameters::default(), ..config.clone() }
}

fn measure(config: &rpm::Config) -> Result<rpm::Outcome, RpmError> {
    let run = |config: &rpm::Config| rpm::run(config, &AtomicBool::new(false), &mut |_, _| {});
    match run(config) {
        Err(RpmError::NoProbes { .. }) => run(&patiently(config)),
        result => result,
    }
}

fn curl(secured: &Secured, arguments: &[&str], path: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["-sSk", "--max-time", "100"]).args(arguments);
    command.arg(format!("https://127.0.0.1:{}{path}", secured.server.address.port()));
    let (_, out, err) = common::run(command, PATIENCE);
    assert!(err.is_empty(), "{err}");
    out
}

#[test]
fn both_directions_are_measured_with_the_chosen_controller() {
    let secured = server();
    let outcome = measure(&rpm::Config { controller: Some("reno".to_owned()), ..quick(&secured) }).unwrap();
    assert!(outcome.idle.rpm > 0.0);
    let directions: Vec<_> = outcome.directions.iter().map(|one| one.direction).collect();
    assert_eq!(directions, [Direction::Download, Direction::Upload]);
    for one in &outcome.directions {
        let found = &one.responsiveness;
        assert!((found.rpm * 2.0 - found.foreign_rpm - found.self_rpm).abs() < 1e-6 * found.rpm, "{one:?}");
        assert!(one.goodput_bps > 0.0 && one.foreign_probes > 0 && one.self_probes > 0, "{one:?}");
        assert_eq!(one.controller.as_deref(), Some("reno"));
        assert!(one.connections <= 16 && one.intervals.len() <= 16, "{one:?}");
    }
    let (download, upload) = (secured.server.event("download"), secured.server.event("upload"));
    assert_eq!((download["controller"].as_str(), upload["path"].as_str()), (Some("reno"), Some("/upload")));
    until("connections are left", || secured.server.handle.connections() == 0);
}

#[test]
fn certificates_are_checked_by_authority_or_by_fingerprint() {
    let secured = server();
    let trusting = |trust| measure(&rpm::Config { trust, ..quick(&secured) });
    let digits: String =
        Sha256::digest(&secured.certificate).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(secured.server.event("listening")["certificate_sha256"], digits.as_str());
    assert!(trusting(Trust::Pinned(digits.parse().unwrap())).is_ok());
    for trust in [Trust::Authorities, Trust::Pinned("0".repeat(64).parse().unwrap())] {
        let error = trusting(trust).unwrap_err();
        assert!(error.is_certificate(), "{error:?}");
    }
}

#[test]
fn a_comparison_alternates_and_gives_intervals() {
    let secured = server();
    let config = rpm::Config { directions: vec![Direction::Download], ..quick(&secured) };
    let controllers = vec!["reno".to_owned(), "cubic".to_owned()];
    let run = |config: rpm::Config| {
        let plan = Plan::new(config, controllers.clone(), None, 2, 1).unwrap();
        let mut order = Vec::new();
        let mut begun = |round: usize, name: &str| order.push(format!("{round}{name}"));
        let comparison = plan.run(&AtomicBool::new(false), &mut begun, &mut |_, _| {});
        (comparison, order)
    };
    let (comparison, order) = match run(config.clone()) {
        (Err(error), _) if matches!(error.source, RpmError::NoProbes { .. }) => run(patiently(&config)),
        result => result,
    };
    let comparison = comparison.unwrap();
    assert_eq!(order, ["0reno", "0cubic", "1cubic", "1reno"]);
    let used =
        |runs: &[rpm::Outcome]| runs.iter().all(|run| run.directions[0].controller == Some("reno".into()));
    assert!(used(&comparison.runs[0]) && !used(&comparison.runs[1]));
    let [reno, cubic] = &comparison.controllers[..] else { panic!("{:?}", comparison.controllers) };
    assert_eq!((reno.controller.as_str(), cubic.controller.as_str()), ("reno", "cubic"));
    assert!(reno.rpm.low <= reno.rpm.median && reno.rpm.median <= reno.rpm.high);
    assert_eq!(comparison.contrasts.len(), 1);
}

#[test]
fn an_interrupt_ends_a_measurement() {
    let secured = server();
    let error = rpm::run(&quick(&secured), &AtomicBool::new(true), &mut |_, _| {}).unwrap_err();
    assert!(matches!(error, RpmError::Interrupted), "{error:?}");
    let port = free_port();
    let url = configuration_url("127.0.0.1", port).unwrap();
    let error = measure(&rpm::Config::new(url)).unwrap_err();
    assert!(matches!(error, RpmError::Connect { .. }), "{error:?}");
}

#[test]
fn curl_gets_the_resources_over_http2_and_http1() {
    if !have("curl") {
        return;
    }
    let secured = server();
    for version in ["--http2", "--http1.1"] {
        let body = curl(&secured, &[version], "/.well-known/nq?cc=reno");
        let configuration = Configuration::parse(body.as_bytes()).unwrap();
        assert!(configuration.chooses("reno") && !configuration.chooses("cubic"), "{body}");
        assert_eq!(configuration.large.path(), "/large");
        let format = "%{http_version} %{size_download} %{content_type}";
        let small = curl(&secured, &[version, "-o", "/dev/null", "-w", format], "/small");
        let number = if version == "--http2" { "2" } else { "1.1" };
        assert_eq!(small, format!("{number} 1 application/octet-stream"));
        let large = curl(&secured, &[version, "-I"], "/large");
        assert!(large.contains("200"), "{large}");
        let upload = curl(&secured, &[version, "--data-binary", "0123456789"], "/upload");
        assert!(upload.contains("\"bytes\":10,"), "{upload}");
        for (path, arguments, text) in [
            ("/none", &[version][..], "not found"),
            ("/large?size=1", &[version], "unknown parameter"),
            ("/small?cc=nosuch", &[version], "cc: "),
            ("/small", &[version, "-X", "DELETE"], "only GET and HEAD"),
            ("/small", &[version, "-H", "Sec-Fetch-Site: cross-site"], "pages of other sites"),
            ("/small", &[version, "-H", "Host: example.org"], "this name does not belong"),
        ] {
            let answer = curl(&secured, arguments, path);
            assert!(answer.contains(text), "{path}: {answer}");
        }
    }
}

#[test]
fn a_request_without_the_secret_is_refused() {
    let secured =
        Secured::start(Config { secret: Some("word".to_owned()), limits: patient(), ..Config::default() });
    let error = measure(&quick(&secured)).unwrap_err();
    assert!(matches!(error, RpmError::Status { status: 401, .. }), "{error:?}");
    assert!(measure(&rpm::Config { secret: Some("word".to_owned()), ..quick(&secured) }).is_ok());
}

#[test]
fn other_protocols_get_one_clear_sentence() {
    let secured = server();
    let mut plain = TcpStream::connect(secured.server.v4()).unwrap();
    plain.write_all(b"GET /.well-known/nq HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("responsiveness tests need TLS: use https:// (`fullpipe rpm`)\n"), "{answer}");
    let mut cleartext = TcpStream::connect(secured.server.v4()).unwrap();
    cleartext.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    let reason = secured.server.event("connection_failed")["reason"].to_string();
    assert_eq!(reason, "\"the client speaks HTTP/2 without TLS: use https://\"");
}

/// The error of a measurement with a server that speaks no HTTP/2.
fn error_of(port: u16, connect_timeout: Duration) -> String {
    let url = configuration_url("localhost", port).unwrap();
    measure(&rpm::Config { trust: Trust::Any, connect_timeout, ..rpm::Config::new(url) })
        .unwrap_err()
        .to_string()
}

#[test]
fn a_server_that_does_not_answer_ends_the_measurement() {
    // Nothing, and the settings with which HTTP/2 begins.
    for answer in [&b""[..], b"\0\0\0\x04\0\0\0\0\0"] {
        let port = silent_after(answer);
        // On a busy machine the handshake itself may take long.
        let error = [300, 3_000, 30_000]
            .map(Duration::from_millis)
            .into_iter()
            .map(|timeout| error_of(port, timeout))
            .find(|error| !error.ends_with(": timed out"));
        let error = error.expect("a handshake within 30 s");
        assert!(error.contains("/.well-known/nq: no answer within "), "{error}");
    }
}

#[test]
fn a_server_of_another_protocol_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        // As iperf3 does after any cookie.
        socket.read_exact(&mut [0; 37]).unwrap();
        socket.write_all(b"\x09").unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let error = error_of(port, PATIENCE);
    assert_eq!(error, format!("127.0.0.1:{port} does not speak TLS"));
    server.join().unwrap();
}

#[test]
fn the_limits_of_transfers_hold_over_http2() {
    let limits = Limits { bytes: Some(1_000_000), clients: 4, ..patient() };
    let secured = Secured::start(Config { limits, ..Config::default() });
    let mut raw = Raw::connect(&secured, &[(4, 10_000_000)]);
    // The connection's window.
    raw.send(&frame(8, 0, 0, &10_000_000_u32.to_be_bytes()));
    raw.send(&Raw::get(1, "/large"));
    assert_eq!(raw.body(1).map(|body| body.len()), Some(1_000_000));
    // One place of an address is taken by a transfer that waits for its body.
    raw.send(&frame(HEADERS, END_HEADERS, 3, &Raw::block(0x83, "/upload")));
    until("the first has no place", || {
        let mut other = Raw::connect(&secured, &[]);
        other.send(&Raw::get(1, "/large"));
        let refused = other.body(1).is_some_and(|body| body.starts_with(b"too many clients"));
        drop(other);
        refused
    });
}

#[test]
fn the_rate_of_an_address_holds_over_http2() {
    let rate = Rate::from_bytes_per_sec(500_000);
    let limits = Limits { rate: Some(rate), bytes: Some(300_000), ..patient() };
    let secured = Secured::start(Config { limits, ..Config::default() });
    let began = Instant::now();
    let mut raw = Raw::connect(&secured, &[(4, 10_000_000)]);
    raw.send(&frame(8, 0, 0, &10_000_000_u32.to_be_bytes()));
    for stream in [1, 3] {
        raw.send(&Raw::get(stream, "/large"));
        assert_eq!(raw.body(stream).map(|body| body.len()), Some(300_000));
    }
    // 600 kB at 500 kB/s take 1.2 s; a tenth of a second may be ahead.
    assert!(began.elapsed() >= Duration::from_millis(1000), "{:?}", began.elapsed());
    let mut body = frame(HEADERS, END_HEADERS, 5, &Raw::block(0x83, "/upload"));
    body.extend((0..18).flat_map(|i| frame(tls::DATA, u8::from(i == 17), 5, &[0; 16_384])));
    let sent = Instant::now();
    raw.send(&body);
    assert!(raw.body(5).is_some_and(|body| body.starts_with(b"{\"bits_per_second\":")));
    assert!(sent.elapsed() >= Duration::from_millis(400), "{:?}", sent.elapsed());
}

#[test]
fn unused_connections_end_and_silent_handshakes_too() {
    let limits = Limits {
        handshake: Duration::from_millis(300),
        idle: Duration::from_millis(600),
        ..Limits::default()
    };
    let secured = Secured::start(Config { limits, ..Config::default() });
    let mut idle = Raw::connect(&secured, &[]);
    let mut silent = TcpStream::connect(secured.server.v4()).unwrap();
    silent.write_all(&[0x16, 3, 1, 2, 0]).unwrap();
    idle.closed();
    silent.read_to_end(&mut Vec::new()).unwrap();
    let failed =
        |event: &fullpipe_net::server::Event| event.to_string().contains("timed out in the TLS handshake");
    until("the handshake is logged", || secured.server.events().iter().any(failed));
    until("connections are left", || secured.server.handle.connections() == 0);
}

#[test]
fn a_stop_ends_connections_with_tls() {
    let secured = server();
    let mut raw = Raw::connect(&secured, &[]);
    raw.send(&Raw::get(1, "/small"));
    assert_eq!(raw.body(1).map(|body| body.len()), Some(1));
    let Secured { server, .. } = secured;
    drop::<Running>(server);
    raw.closed();
}
