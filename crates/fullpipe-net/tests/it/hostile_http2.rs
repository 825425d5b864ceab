//! Hostile HTTP/2 clients: each is bounded, counted in the log and closed, and the server keeps
//! serving. Each test prints its counts.

use crate::common::{patient, until};
use crate::tls;
use crate::tls::{
    CONTINUATION, END_HEADERS, GOAWAY, HEADERS, PING, RST_STREAM, Raw, SETTINGS, Secured, frame,
};
use fullpipe_net::server::{Config, Limits};
use fullpipe_testing::own_test;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Tests run one at a time, because they measure the memory of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// More memory than a flood may take on the server. Most of a flood of `MAX_SENT` bytes would exceed it.
const MAX_MEMORY: u64 = 48 << 20;
/// Bytes that an attack sends at most.
const MAX_SENT: usize = 256 << 20;

/// Resident memory of this process.
fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn server() -> Secured {
    Secured::start(Config { limits: patient(), ..Config::default() })
}

/// A good client is served.
fn serves(secured: &Secured) {
    let mut raw = Raw::connect(secured, &[]);
    assert!(raw.send(&Raw::get(1, "/small")));
    assert_eq!(raw.body(1).map(|body| body.len()), Some(1));
}

/// Sends what `attack` makes until the server closes the connection. Returns the bytes sent.
fn flood(secured: &Secured, settings: &[(u16, u32)], mut attack: impl FnMut(u32) -> Vec<u8>) -> usize {
    let before = memory();
    let mut raw = Raw::connect(secured, settings);
    let (mut sent, mut most) = (0, before);
    for turn in 0.. {
        let bytes = attack(turn);
        sent += bytes.len();
        if !raw.send(&bytes) || !raw.discard() {
            break;
        }
        most = most.max(memory());
        assert!(sent < MAX_SENT, "the connection is still open after {sent} bytes");
    }
    assert!(most - before < MAX_MEMORY, "{} bytes of memory for {sent} sent", most - before);
    serves(secured);
    until("connections are left", || secured.server.handle.connections() == 0);
    sent
}

/// Waits for a failed connection with this reason in the log.
fn counted(secured: &Secured, reason: &str) {
    until(reason, || {
        let events = secured.server.events();
        events.iter().any(|event| event.kind == "http_failed" && event.to_string().contains(reason))
    });
}

#[test]
fn rapid_resets_end_the_connection() {
    let _alone = alone();
    let secured = server();
    for path in ["/small", "/large"] {
        secured.server.forget_events();
        let mut requests = 0;
        let sent = flood(&secured, &[], |turn| {
            let mut bytes = Vec::new();
            for i in 0..100 {
                let stream = (turn * 100 + i) * 2 + 1;
                bytes.extend(Raw::get(stream, path));
                bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
                requests += 1;
            }
            bytes
        });
        println!("rapid resets of {path}: {requests} requests, {sent} bytes, then closed");
        let events = secured.server.events();
        assert!(events.iter().any(|event| event.kind == "http_failed"), "{events:?}");
    }
}

#[test]
fn floods_of_control_frames_end_the_connection() {
    let _alone = alone();
    let secured = server();
    let attacks: [(&str, Vec<u8>); 4] = [
        ("settings", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("empty settings", frame(SETTINGS, 0, 0, &[])),
        ("pings", frame(PING, 0, 0, &[7; 8])),
        ("priorities", frame(2, 0, 3, &[0, 0, 0, 0, 16])),
    ];
    for (name, one) in attacks {
        secured.server.forget_events();
        let sent = flood(&secured, &[], |_| one.repeat(1000));
        println!("{name}: {sent} bytes, then closed");
        counted(&secured, "are plausible");
    }
}

#[test]
fn headers_without_end_are_refused() {
    let _alone = alone();
    let secured = server();
    // A literal field with a name of its own, of 16 kB.
    let mut field = vec![0, 1, b'x', 0x7f, 0x81, 0x7f];
    field.resize(field.len() + 16_384, b'a');
    let field = &field[..16_384];
    let sent = flood(&secured, &[], |turn| {
        let first = frame(HEADERS, 1, 1, &Raw::block(0x82, "/small"));
        if turn == 0 { first } else { frame(CONTINUATION, 0, 1, field) }
    });
    println!("large CONTINUATION frames: {sent} bytes, then closed");
    let sent = flood(&secured, &[], |turn| {
        let first = frame(HEADERS, 1, 1, &Raw::block(0x82, "/small"));
        if turn == 0 { first } else { frame(CONTINUATION, 0, 1, &[]).repeat(1000) }
    });
    println!("empty CONTINUATION frames: {sent} bytes, then closed");
}

#[test]
fn huge_headers_are_refused_and_not_kept() {
    let _alone = alone();
    let secured = server();
    let mut raw = Raw::connect(&secured, &[]);
    let mut block = Raw::block(0x82, "/small");
    // Without indexing: four fields of 8 kB.
    for _ in 0..4 {
        block.extend([0, 1, b'x', 0x7f, 0x81, 0x3f]);
        block.extend([b'a'; 8192]);
    }
    let mut bytes = frame(HEADERS, 1, 1, &block[..16_384]);
    bytes.extend(frame(CONTINUATION, 0, 1, &block[16_384..32_768]));
    bytes.extend(frame(CONTINUATION, END_HEADERS, 1, &block[32_768..]));
    raw.send(&bytes);
    let mut answers = Vec::new();
    while let Some((kind, _, stream, payload)) = raw.frame() {
        if kind == HEADERS && stream == 1 {
            // Status 431 as a literal of the static table's field 8.
            answers.push(payload);
            break;
        }
        if kind == GOAWAY || kind == RST_STREAM {
            answers.push(payload);
            break;
        }
    }
    println!("huge headers: {answers:?}");
    assert_eq!(answers.len(), 1);
    serves(&secured);
}

#[test]
fn slow_readers_lose_their_places() {
    let _alone = alone();
    let idle = Duration::from_millis(600);
    let limits = Limits { idle, clients: 64, ..Limits::default() };
    let secured = Secured::start(Config { limits, ..Config::default() });
    let before = memory();
    // One without a window, one that never reads, one that gives a byte at a time.
    let mut closed: Vec<Raw> = vec![Raw::connect(&secured, &[(4, 0)])];
    let mut unread = Raw::connect(&secured, &[(4, 0x7fff_ffff)]);
    unread.send(&frame(8, 0, 0, &0x7000_0000_u32.to_be_bytes()));
    let mut dripping = Raw::connect(&secured, &[(4, 0)]);
    for raw in closed.iter_mut().chain([&mut unread, &mut dripping]) {
        for stream in [1, 3, 5] {
            raw.send(&Raw::get(stream, "/large"));
        }
    }
    let mut drops = 0;
    while dripping.send(&frame(8, 0, 1, &1_u32.to_be_bytes())) && dripping.discard() {
        drops += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("slow readers: {drops} windows of a byte, then closed");
    closed.iter_mut().for_each(Raw::closed);
    unread.closed();
    let slow = |event: &fullpipe_net::server::Event| event.to_string().contains("less than");
    until("they are counted", || secured.server.events().iter().filter(|event| slow(event)).count() >= 3);
    until("connections are left", || secured.server.handle.connections() == 0);
    assert!(memory().saturating_sub(before) < MAX_MEMORY);
    serves(&secured);
}

/// Idle connections of the other process: port, certificate and number.
const IDLE: &str = "FULLPIPE_IDLE";

/// The client of the next test, if it runs as that.
#[test]
fn idle_client() {
    let Ok(arguments) = std::env::var(IDLE) else { return };
    fullpipe_net::server::raise_descriptor_limit().unwrap();
    let mut arguments = arguments.split(' ');
    let mut next = || arguments.next().unwrap();
    let (port, count, digits): (u16, usize, _) = (next().parse().unwrap(), next().parse().unwrap(), next());
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    let certificate: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    let address = ([127, 0, 0, 1], port).into();
    let open = || {
        let stream = tls::connect(address, certificate.clone().into(), "h2");
        let mut raw = Raw::over(stream, &[]);
        raw.send(&Raw::get(1, "/small"));
        assert!(raw.body(1).is_some());
        raw
    };
    let held: Vec<Raw> = (0..count).map(|_| open()).collect();
    println!("open");
    // Until the parent has measured.
    let _ = std::io::stdin().read_line(&mut String::new());
    drop(held);
}

/// A thousand, or as many as `FULLPIPE_IDLE_CONNECTIONS` says.
#[test]
fn idle_connections_take_little_memory() {
    let _alone = alone();
    let count = std::env::var("FULLPIPE_IDLE_CONNECTIONS").map_or(1000, |n| n.parse().unwrap());
    fullpipe_net::server::raise_descriptor_limit().unwrap();
    let limits = Limits { connections: count + 10, connections_per_address: count + 10, ..patient() };
    let secured = Secured::start(Config { limits, ..Config::default() });
    serves(&secured);
    let before = memory();
    let digits: String = secured.certificate.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", own_test!(idle_client), "--nocapture"])
        .env(IDLE, format!("{} {count} {digits}", secured.server.address.port()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let is_open = lines.by_ref().map_while(Result::ok).any(|line| line.ends_with("open"));
    assert!(is_open, "the client failed");
    let each = memory().saturating_sub(before) / count as u64;
    println!("{count} idle connections: {each} bytes each");
    assert!(secured.server.handle.connections() >= count);
    serves(&secured);
    drop(client.stdin.take());
    assert!(client.wait().unwrap().success());
    until("connections are left", || secured.server.handle.connections() == 0);
    // h2 allocates 24 KB for its frames.
    assert!(each <= 40_000, "{each}");
}

#[test]
fn a_crowd_of_streams_is_bounded() {
    let _alone = alone();
    let secured = server();
    let before = memory();
    let mut raw = Raw::connect(&secured, &[(4, 0)]);
    // Each is answered and none can be sent: those beyond the maximum are refused, or the whole
    // connection is, which may happen before the refusals were sent.
    for stream in 0..600 {
        raw.send(&Raw::get(stream * 2 + 1, "/small"));
    }
    let (mut refused, mut ended) = (0, false);
    while refused < 600 - 256 && !ended {
        match raw.frame() {
            Some((RST_STREAM, ..)) => refused += 1,
            Some((GOAWAY, ..)) | None => ended = true,
            Some(_) => {}
        }
    }
    println!("600 streams without a window: {refused} refused, connection ended: {ended}");
    assert!(refused == 600 - 256 || ended, "{refused}");
    assert!(memory().saturating_sub(before) < MAX_MEMORY);
    serves(&secured);
}
