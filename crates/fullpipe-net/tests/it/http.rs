//! The server's HTTP side against clients that leave, stall or send ambiguous framing.

use crate::common::{PATIENCE, Running, patient, until};
use fullpipe_net::server::{self, Limits};
use fullpipe_units::Rate;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn connect(server: &Running) -> TcpStream {
    let socket = TcpStream::connect(server.v4()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The server's response until it closes.
fn exchange(server: &Running, request: &str) -> String {
    let mut socket = connect(server);
    socket.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "{request}: no end of it");
        match socket.read(&mut piece) {
            Ok(n @ 1..) => answer.extend_from_slice(&piece[..n]),
            // Reads are interrupted when the process is stopped (signal(7)).
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn start(limits: Limits) -> Running {
    Running::start(server::Config { limits, ..Default::default() })
}

/// Clients do not delay a server stop: with limits longer than the wait, only the stop can end
/// them.
fn stops_with_open_connections(server: &Running) {
    server.handle.stop();
    server.event("stopped");
    until("connections outlive their server", || server.handle.connections() == 0);
}

#[test]
fn abandoned_slow_requests_release_their_permits() {
    let server = start(Limits { clients: 24, ..patient() });
    // One address gets a quarter.
    let slow: Vec<TcpStream> = (0..6)
        .map(|n| {
            let mut socket = connect(&server);
            let request = match n % 2 {
                0 => "GET /download?size=1g&rate=8kbit HTTP/1.1\r\nHost: localhost\r\n\r\n",
                _ => {
                    "PUT /upload?rate=8kbit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\nExpect: \
                        100-continue\r\n\r\n"
                }
            };
            socket.write_all(request.as_bytes()).unwrap();
            // Each has its permit before the next request.
            let mut status = [0; 12];
            socket.read_exact(&mut status).unwrap();
            assert!([b"HTTP/1.1 200", b"HTTP/1.1 100"].contains(&&status), "{n}: {status:?}");
            if n % 2 == 1 {
                socket.write_all(b"abcdefgh").unwrap();
            }
            socket
        })
        .collect();
    let busy = "GET /download?size=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(exchange(&server, busy).starts_with("HTTP/1.1 503"));
    drop(slow);
    until("the permits were not released", || exchange(&server, busy).starts_with("HTTP/1.1 200"));
    until("connections left", || server.handle.connections() == 0);
}

#[test]
fn a_slow_transfer_ends_at_the_time_limit_and_with_the_server() {
    let server = start(Limits { seconds: 1, ..patient() });
    let slow = "GET /download?size=1g&rate=8kbit HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert!(exchange(&server, slow).starts_with("HTTP/1.1 200"));
    assert_eq!(server.event("download")["error"], "the time limit was exceeded");

    let server = start(patient());
    let upload =
        "PUT /upload?rate=8kbit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nabcdefgh";
    let held: Vec<TcpStream> = [slow, upload, slow, upload]
        .iter()
        .map(|request| {
            let mut socket = connect(&server);
            socket.write_all(request.as_bytes()).unwrap();
            socket
        })
        .collect();
    until("not connected", || server.handle.connections() == held.len());
    std::thread::sleep(Duration::from_millis(500));
    stops_with_open_connections(&server);
}

#[test]
fn a_rate_at_which_a_transfer_would_be_ended_is_refused() {
    let server = start(Limits::default());
    for rate in ["1bit", "0", "8bit", "7992bit"] {
        let answer = exchange(
            &server,
            &format!("GET /download?size=1g&rate={rate} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        );
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("at least 8000 bit/s"), "{answer}");
    }
}

#[test]
fn a_low_rate_is_accepted_if_the_places_share_a_low_maximum_rate() {
    // 20 bytes per second for each of 256 places, of which half is the least rate.
    let server = start(Limits { rate: Some(Rate::from_bytes_per_sec(5120)), ..Limits::default() });
    let answer = |rate| {
        let head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        exchange(&server, &format!("GET /download?size=10&rate={rate} {head}"))
    };
    for (rate, status) in [("1kbit", "200"), ("160bit", "200"), ("152bit", "400"), ("0", "400")] {
        assert!(answer(rate).starts_with(&format!("HTTP/1.1 {status} ")), "{rate}: {}", answer(rate));
    }
}

#[test]
fn a_client_that_does_not_read_is_dropped_and_does_not_delay_a_stop() {
    let server = start(Limits { idle: Duration::from_millis(400), ..patient() });
    let mut socket = connect(&server);
    socket.write_all(b"GET /download?size=1g HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(server.event("download")["error"].as_str().unwrap().contains("no progress"));

    let server = start(patient());
    let mut socket = connect(&server);
    socket.write_all(b"GET /download?size=1g HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    stops_with_open_connections(&server);
}

#[test]
fn a_half_closed_client_gets_its_response() {
    let server = start(Limits::default());
    let mut socket = connect(&server);
    socket.write_all(b"GET /download?size=300000&rate=2mbit HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    assert!(answer.len() > 300_000, "{}", answer.len());
}

#[test]
fn oversized_uploads_are_refused_in_any_framing() {
    let server = start(Limits { bytes: Some(10), ..Limits::default() });
    let chunked = "PUT /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in
        ["B\r\n", "8\r\nabcdefgh\r\n3\r\n", "8\r\nabcdefgh\r\nFFFFFFFFFFFFFFF8\r\n", "FFFFFFFFFFFFFFFF\r\n"]
    {
        let answer = exchange(&server, &format!("{chunked}{body}"));
        assert!(
            answer.starts_with("HTTP/1.1 413 ") && answer.contains("at most 10 bytes"),
            "{body:?}: {answer}"
        );
    }
    let long = exchange(&server, "PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n");
    assert!(long.starts_with("HTTP/1.1 413 "), "{long}");
    for body in ["x\r\n", "3\r\nabcd\r\n0\r\n\r\n", "\r\n", "-1\r\n", "3 \r\nabc\r\n0\r\n\r\n"] {
        let answer = exchange(&server, &format!("{chunked}{body}"));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer}");
    }
    let good = exchange(
        &server,
        &format!("{chunked}5;x=y\r\nabcde\r\n5\r\nfghij\r\n0\r\nT: x\r\n\r\nGET / HTTP/1.0\r\n\r\n"),
    );
    assert!(good.contains("\"bytes\":10,") && good.contains("fullpipe serve"), "{good}");
}

#[test]
fn a_paced_upload_in_small_chunks_keeps_to_the_rate() {
    let server = start(Limits { rate: Some(Rate::from_bytes_per_sec(100_000)), ..Limits::default() });
    let mut request =
        "PUT /upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            .to_owned();
    request.push_str(&format!("64\r\n{}\r\n", "a".repeat(100)).repeat(500));
    let began = Instant::now();
    let answer = exchange(&server, &(request + "0\r\n\r\n"));
    assert!(answer.contains("\"bytes\":50000,"), "{answer}");
    // 50 kB at 100 kB/s, minus the permitted lag.
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
}

/// A server at 100 kB/s.
fn slow_server(secret: Option<&str>) -> Running {
    let limits = Limits { rate: Some(Rate::from_bytes_per_sec(100_000)), ..patient() };
    Running::start(server::Config { limits, secret: secret.map(str::to_owned), ..Default::default() })
}

#[test]
fn chunk_framing_is_paced_and_bounded() {
    let server = slow_server(None);
    let mut request =
        "PUT /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    request.push_str(&format!("1;{}\r\nx\r\n", "e".repeat(1000)).repeat(100));
    let began = Instant::now();
    let answer = exchange(&server, &request);
    assert!(answer.contains("more chunk framing than data"), "{answer}");
    // 64 kB of framing.
    assert!(began.elapsed() >= Duration::from_millis(450), "{:?}", began.elapsed());
    let small =
        "PUT /upload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = exchange(&server, &format!("{small}{}0\r\n\r\n", "1\r\nx\r\n".repeat(2000)));
    assert!(answer.contains("\"bytes\":2000,"), "chunks of a byte: {answer}");
}

#[test]
fn pages_and_refusals_are_paced() {
    for secret in [None, Some("secret")] {
        let server = slow_server(secret);
        let page = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n";
        let began = Instant::now();
        let answer =
            exchange(&server, &format!("{}{page}Connection: close\r\n\r\n", format!("{page}\r\n").repeat(5)));
        let paced = Duration::from_secs_f64(answer.len() as f64 / 100_000.0 - 0.2);
        assert!(
            answer.len() > 60_000 && began.elapsed() >= paced,
            "{} in {:?}",
            answer.len(),
            began.elapsed()
        );
    }
}

#[test]
fn small_transfers_one_after_the_other_keep_to_the_rate() {
    let server = slow_server(None);
    let download = "GET /download?size=1000 HTTP/1.1\r\nHost: localhost\r\n";
    let upload = "PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n";
    let close = "Connection: close\r\n\r\n";
    let body = "b".repeat(1000);
    let downloads = format!("{}{download}{close}", format!("{download}\r\n").repeat(59));
    let uploads = format!("{}{upload}{close}{body}", format!("{upload}\r\n{body}").repeat(59));
    for requests in [downloads, uploads] {
        let began = Instant::now();
        exchange(&server, &requests);
        assert!(began.elapsed() >= Duration::from_millis(500), "60 kB in {:?}", began.elapsed());
        // On connections of their own.
        let began = Instant::now();
        for _ in 0..20 {
            exchange(&server, &format!("GET /download?size=5000 HTTP/1.1\r\nHost: localhost\r\n{close}"));
        }
        assert!(began.elapsed() >= Duration::from_millis(900), "100 kB in {:?}", began.elapsed());
    }
}

#[test]
fn data_after_a_refusal_is_hardly_read() {
    let server =
        start(Limits { bytes: Some(10), rate: Some(Rate::from_bytes_per_sec(100_000)), ..patient() });
    let mut socket = connect(&server);
    socket
        .write_all(b"PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n")
        .unwrap();
    let (block, mut written) = ([0; 65_536], 0);
    while let Ok(n) = socket.write(&block) {
        written += n;
    }
    // What the socket buffers of both ends take, at most.
    assert!(written < 20_000_000, "{written}");
}

#[test]
fn a_dripping_upload_is_ended() {
    let server = start(Limits { idle: Duration::from_millis(400), ..patient() });
    for framing in ["Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n99\r\n"] {
        let mut socket = connect(&server);
        socket.write_all(format!("PUT /upload HTTP/1.1\r\nHost: localhost\r\n{framing}").as_bytes()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while socket.write_all(b"x").is_ok() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(100));
        }
        let error = server.event("upload")["error"].to_string();
        assert!(error.contains("bytes in 400ms, less than 200") || error.contains("no progress"), "{error}");
    }
}

#[test]
fn pages_of_other_sites_get_and_give_nothing() {
    let server = start(patient());
    let from = |site: &str, path: &str| {
        let fields = format!("Host: localhost\r\nSec-Fetch-Site: {site}\r\nConnection: close\r\n\r\n");
        exchange(&server, &format!("GET {path} HTTP/1.1\r\n{fields}"))
    };
    for path in ["/download?size=10", "/transfer/x", "/upload"] {
        assert!(from("cross-site", path).starts_with("HTTP/1.1 403 "), "{path}");
        assert!(!from("same-origin", path).starts_with("HTTP/1.1 403 "), "{path}");
    }
    // Browsers send no Sec-Fetch-Site to plain-HTTP addresses other than loopback.
    for (other, own) in [
        ("Origin: http://127.0.0.1:18099", "Origin: http://localhost"),
        ("Origin: null", "Origin: http://localhost:80"),
        ("Referer: http://evil.example/", "Referer: http://localhost/"),
        ("Referer: about:srcdoc", "Referer: about:blank"),
    ] {
        let post = |field: &str| {
            let fields =
                format!("Host: localhost\r\n{field}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab");
            exchange(&server, &format!("POST /upload HTTP/1.1\r\n{fields}"))
        };
        assert!(post(other).starts_with("HTTP/1.1 403 "), "{other}");
        assert!(post(own).contains("\"bytes\":2,"), "{own}");
    }
    let answer = from("none", "/download?size=10");
    assert!(answer.contains("\r\nCross-Origin-Resource-Policy: same-origin\r\n"), "{answer}");
}

#[test]
fn names_of_other_machines_are_refused_by_loopback() {
    let server = start(patient());
    let get = |host: &str| {
        let fields = format!("Host: {host}\r\nAccept: text/html\r\nConnection: close\r\n\r\n");
        exchange(&server, &format!("GET / HTTP/1.1\r\n{fields}"))
    };
    for host in ["evil.example", "evil.example:5201", "127.0.0.1.evil.example"] {
        assert!(get(host).starts_with("HTTP/1.1 421 "), "{host}");
    }
    for host in ["localhost", "127.0.0.1:5201", "[::1]:5201"] {
        assert!(get(host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    assert!(exchange(&server, "GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_client_with_the_secret_may_use_any_name() {
    let server = Running::start(server::Config {
        limits: patient(),
        secret: Some("secret".to_owned()),
        ..Default::default()
    });
    let get = |more: &str| {
        let fields = format!("Host: proxy.example\r\n{more}Connection: close\r\n\r\n");
        exchange(&server, &format!("GET /download?size=10 HTTP/1.1\r\n{fields}"))
    };
    assert!(get("").starts_with("HTTP/1.1 401 "));
    assert!(get("Authorization: Bearer secre\r\n").starts_with("HTTP/1.1 401 "));
    assert!(get("Authorization: Bearer secret\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn unknown_parameters_are_refused_with_the_known_ones() {
    let server = start(patient());
    for (request, known) in [
        ("GET /download?bytes=1000", "unknown parameter \"bytes\"; /download has size, cc, rate, time"),
        ("GET /download?Size=1k", "unknown parameter \"Size\""),
        ("PUT /upload?size=1k", "unknown parameter \"size\"; /upload has cc, rate"),
    ] {
        let answer =
            exchange(&server, &format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(known), "{answer}");
    }
}

#[test]
fn ambiguous_messages_are_refused_and_never_split_into_requests() {
    let server = start(Limits::default());
    for (start, fields) in [
        ("PUT /upload", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"),
        ("PUT /upload", "Content-Length: 0\r\nContent-Length: 0\r\n"),
        ("PUT /upload", "Content-Length: 0, 0\r\n"),
        ("PUT /upload", "Content-Length: +0\r\n"),
        ("GET /", "Content-Length: 27\r\n"),
        ("GET /", "Transfer-Encoding: chunked\r\n"),
        ("HEAD /", "Content-Length: 27\r\n"),
        ("GET /", "Host: other\r\n"),
    ] {
        let request = format!(
            "{start} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
        );
        let answer = exchange(&server, &request);
        assert!(answer.starts_with("HTTP/1.1 400 "), "{fields:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{fields:?}: {answer}");
    }
    let unknown =
        exchange(&server, "PUT /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n");
    assert!(unknown.starts_with("HTTP/1.1 501 "), "{unknown}");
}

#[test]
fn head_responses_have_no_body_and_honour_connection_close() {
    let server = start(Limits::default());
    for target in ["/", "/download?size=1000", "/nothing", "/download?size=x", "/transfer/none"] {
        let answer = exchange(
            &server,
            &format!("HEAD {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
        );
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Connection: close"), "{head}");
        assert_eq!(body, "", "{target}");
    }
    let two = "HEAD /download?size=9 HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.0\r\n\r\n";
    assert_eq!(exchange(&server, two).matches("HTTP/1.1 200").count(), 2);
}

#[test]
fn if_range_selects_the_version() {
    let server = start(Limits::default());
    let ask = |condition: &str| {
        exchange(&server, &format!("GET /download?size=100 HTTP/1.0\r\nRange: bytes=90-\r\n{condition}\r\n"))
    };
    let part = ask("");
    let tag = part.lines().find_map(|l| l.strip_prefix("ETag: ")).unwrap().to_owned();
    assert!(
        part.starts_with("HTTP/1.1 206") && ask(&format!("If-Range: {tag}\r\n")).starts_with("HTTP/1.1 206")
    );
    assert!(ask("If-Range: \"other\"\r\n").starts_with("HTTP/1.1 200"));
}
