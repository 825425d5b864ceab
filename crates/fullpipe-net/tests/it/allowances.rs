//! The rate of an address, the bytes of a test and the least rate of a transfer, whatever the
//! protocol, the direction and the number of connections.

use crate::common::{NEVER, PATIENCE, Running, patient, until};
use fullpipe_net::client::{self, Config};
use fullpipe_net::iperf3::{Cookie, HELLO, Params, Protocol, State, extension};
use fullpipe_net::server::{self, Limits};
use fullpipe_testing::check_repeatedly;
use fullpipe_units::Rate;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// 1 Mbit/s.
const BYTES_PER_SECOND: u64 = 125_000;

fn start(limits: Limits) -> Running {
    Running::start(server::Config { limits, ..Default::default() })
}

/// How long an attacker waits for an answer.
const SHORT: Duration = Duration::from_secs(1);

fn connect(server: &Running, patience: Duration) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(server.v4())?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(patience))?;
    Ok(socket)
}

/// A test up to its data phase.
struct Test {
    control: TcpStream,
    cookie: Cookie,
    tcp: Vec<TcpStream>,
    udp: Vec<UdpSocket>,
}

fn test(server: &Running, params: &Params) -> std::io::Result<Test> {
    test_with(server, params, 0, PATIENCE)
}

/// A test of an attacker, who does not wait for long.
fn short_test(server: &Running, params: &Params) -> std::io::Result<Test> {
    test_with(server, params, 0, SHORT)
}

/// With parameters that are longer by some spaces.
fn test_with(server: &Running, params: &Params, padding: usize, patience: Duration) -> std::io::Result<Test> {
    let (mut control, cookie) = (connect(server, patience)?, Cookie::random()?);
    control.write_all(cookie.as_bytes())?;
    control.read_exact(&mut [0])?;
    let text = params.to_json().to_string() + &" ".repeat(padding);
    control.write_all(&(text.len() as u32).to_be_bytes())?;
    control.write_all(text.as_bytes())?;
    let mut state = [0];
    control.read_exact(&mut state)?;
    if state[0] == State::Extension.byte() {
        let mut length = [0; 4];
        control.read_exact(&mut length)?;
        control.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize])?;
        control.read_exact(&mut state)?;
    }
    let (mut tcp, mut udp) = (Vec::new(), Vec::new());
    for _ in 0..params.streams() {
        if params.protocol == Protocol::Tcp {
            let mut stream = connect(server, patience)?;
            stream.write_all(cookie.as_bytes())?;
            tcp.push(stream);
        } else {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(server.v4())?;
            socket.set_read_timeout(Some(patience))?;
            socket.send(&HELLO)?;
            socket.recv(&mut [0; 64])?;
            udp.push(socket);
        }
    }
    control.read_exact(&mut [0; 2])?;
    Ok(Test { control, cookie, tcp, udp })
}

/// What arrives until nothing does for 50 ms, or until the end.
fn arriving(socket: &TcpStream, end: Instant) -> u64 {
    arriving_within(socket, end, Duration::from_millis(50))
}

fn arriving_within(mut socket: &TcpStream, end: Instant, patience: Duration) -> u64 {
    socket.set_read_timeout(Some(patience)).unwrap();
    let (mut buffer, mut bytes) = (vec![0; 65_536], 0);
    while Instant::now() < end {
        match socket.read(&mut buffer) {
            Ok(n @ 1..) => bytes += n as u64,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    bytes
}

fn reverse(parallel: u32) -> Params {
    Params { reverse: true, parallel, ..Params::default() }
}

/// The first block of one test after the other.
fn first_blocks(server: &Running, end: Instant) -> u64 {
    let mut bytes = 0;
    while Instant::now() < end {
        let params = Params { rate: 1, block: 1 << 20, ..reverse(8) };
        if let Ok(test) = short_test(server, &params) {
            bytes += test.tcp.iter().map(|stream| arriving(stream, end)).sum::<u64>();
        }
    }
    bytes
}

/// The first datagram of one test after the other.
fn first_datagrams(server: &Running, end: Instant) -> u64 {
    let (mut bytes, mut datagram) = (0, vec![0; 65_536]);
    while Instant::now() < end {
        let params = Params { protocol: Protocol::Udp, rate: 1, block: 65_507, ..reverse(8) };
        if let Ok(test) = short_test(server, &params) {
            for socket in &test.udp {
                socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                bytes += socket.recv(&mut datagram).unwrap_or(0) as u64;
            }
        }
    }
    bytes
}

fn with_reports() -> Params {
    let extension = extension::Request { version: 1, report_ms: 1, abort: false };
    Params { extension: Some(extension), ..reverse(32) }
}

/// Reports as often as possible, of streams that are not read.
fn reports(server: &Running, end: Instant) -> u64 {
    let test = test(server, &with_reports()).unwrap();
    let mut bytes = 0;
    while Instant::now() < end {
        bytes += arriving(&test.control, end);
    }
    bytes
}

/// Probes without pause over two connections.
fn echoes(server: &Running, end: Instant) -> u64 {
    let test = test(server, &reverse(1)).unwrap();
    let mut opening = *test.cookie.as_bytes();
    *opening.last_mut().unwrap() = extension::ECHO_MARK;
    let echoes = [connect(server, PATIENCE).unwrap(), connect(server, PATIENCE).unwrap()];
    std::thread::scope(|s| {
        for mut echo in &echoes {
            s.spawn(move || {
                echo.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
                let _ = echo.write_all(&opening);
                while Instant::now() < end {
                    let _ = echo.write(&[0; 4096]);
                }
            });
        }
        let read = echoes.each_ref().map(|echo| {
            s.spawn(move || {
                let mut bytes = 0;
                while Instant::now() < end {
                    bytes += arriving(echo, end);
                }
                bytes
            })
        });
        read.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Long request heads, counted by their answers.
fn heads(server: &Running, end: Instant) -> u64 {
    let fields: String = (0..50).map(|n| format!("X{n}: {}\r\n", "a".repeat(240))).collect();
    let head = format!("HEAD /download?size=0 HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    let socket = connect(server, PATIENCE).unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let answers = std::thread::scope(|s| {
        s.spawn(|| {
            let mut sent = 0;
            while Instant::now() < end {
                sent += (&socket).write(&head.as_bytes()[sent % head.len()..]).unwrap_or(0);
            }
        });
        let (mut text, mut buffer) = (Vec::new(), [0; 65_536]);
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        while Instant::now() < end {
            let n = (&socket).read(&mut buffer).unwrap_or(0);
            text.extend_from_slice(&buffer[..n]);
        }
        String::from_utf8_lossy(&text).matches("HTTP/1.1 200").count()
    });
    (answers * head.len()) as u64
}

/// The speed test page and small downloads, each over a connection of its own, at 20 of them.
fn pages(server: &Running, end: Instant) -> u64 {
    let requests = ["/ HTTP/1.1\r\nAccept: text/html", "/download?size=5000 HTTP/1.1", "/unknown HTTP/1.1"];
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..20)
            .map(|n| {
                s.spawn(move || {
                    let mut bytes = 0;
                    while Instant::now() < end {
                        let mut socket = connect(server, PATIENCE).unwrap();
                        let request = requests[n % requests.len()];
                        let fields = "Host: localhost\r\nConnection: close\r\n\r\n";
                        let _ = socket.write_all(format!("GET {request}\r\n{fields}").as_bytes());
                        while let n @ 1.. = arriving_within(&socket, end, Duration::from_millis(500)) {
                            bytes += n;
                        }
                    }
                    bytes
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Parameters of tests that are left at once.
fn parameters(server: &Running, end: Instant) -> u64 {
    let mut bytes = 0;
    while Instant::now() < end {
        if test_with(server, &Params::default(), 7000, SHORT).is_ok() {
            bytes += 7000;
        }
    }
    bytes
}

/// Datagrams without pause in one test after the other, as far as the server counts them.
fn datagrams(server: &Running, end: Instant) -> u64 {
    let mut tests = 0;
    while Instant::now() < end {
        let params = Params { protocol: Protocol::Udp, rate: 900_000, block: 1000, ..Params::default() };
        let Ok(mut test) = short_test(server, &params) else { continue };
        tests += 1;
        test.control.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        while Instant::now() < end && test.control.read(&mut [0]).is_err() {
            for _ in 0..50 {
                let _ = test.udp[0].send(&[0; 1000]);
            }
        }
    }
    // Each may be ahead by a second of the rate, which the next one has to wait for.
    tests * BYTES_PER_SECOND
}

#[test]
fn nothing_exceeds_the_rate_of_an_address() {
    type Attack = fn(&Running, Instant) -> u64;
    let attacks: [(&str, Attack, u64); 8] = [
        ("first blocks", first_blocks, 0),
        ("first datagrams", first_datagrams, 65_507),
        ("reports", reports, 0),
        ("echoes", echoes, 0),
        ("heads", heads, 0),
        ("pages", pages, 0),
        ("parameters", parameters, 0),
        ("datagrams", datagrams, 2 * BYTES_PER_SECOND),
    ];
    let mut excess = Vec::new();
    for (name, attack, block) in attacks {
        let rate = Some(Rate::from_bytes_per_sec(BYTES_PER_SECOND));
        let server = start(Limits { rate, ..patient() });
        let began = Instant::now();
        let bytes = attack(&server, began + Duration::from_millis(1500));
        let elapsed = began.elapsed().as_secs_f64();
        // Messages may be ahead of the rate by 100 ms, and reports by 250 ms.
        let most = BYTES_PER_SECOND as f64 * (elapsed + 0.4) + block as f64;
        println!("{name}: {bytes} bytes in {elapsed:.2} s, at most {most:.0}");
        if bytes as f64 > most || bytes == 0 {
            excess.push((name, bytes));
        }
    }
    assert!(excess.is_empty(), "{excess:?}");
}

#[test]
fn good_clients_reach_the_maximum_rate() {
    let rate = Rate::from_bits_per_sec(20_000_000);
    let tcp = |parallel| Params { seconds: 2, parallel, ..Params::default() };
    let udp = Params { protocol: Protocol::Udp, rate: 20_000_000, block: 1200, ..tcp(1) };
    for params in [
        tcp(1),
        tcp(4),
        Params { reverse: true, ..tcp(1) },
        Params { bidirectional: true, ..tcp(2) },
        udp.clone(),
        Params { reverse: true, ..udp },
    ] {
        check_repeatedly("a good client reaches the rate", || {
            let server = start(Limits { rate: Some(rate), ..patient() });
            let config = Config {
                block_chosen: params.protocol == Protocol::Udp,
                params: params.clone(),
                ..Config::new("127.0.0.1", server.address.port())
            };
            let outcome = client::run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap();
            let directions = [params.client_sends(), params.server_sends()];
            for sends in [true, false].into_iter().zip(directions).filter(|(_, is)| *is).map(|(s, _)| s) {
                let sum = outcome.sum(sends).unwrap();
                let share = sum.delivered().0 as f64 * 8.0 / 2.0 / rate.as_bits_per_sec_f64();
                // What a receiver has not read yet is queued at the end.
                if !(0.95..1.2).contains(&share) {
                    return Err(format!("{share:.3} of the rate: {params:?}"));
                }
            }
            Ok(())
        });
    }
}

#[test]
fn no_test_transfers_more_than_the_maximum_bytes() {
    const MAX: u64 = 1_000_000;
    let server = start(Limits { bytes: Some(MAX), ..patient() });
    let refused = |count: usize| {
        until("the test was not ended", || {
            server.events().iter().filter(|e| e.kind == "test_failed").count() == count
        });
        assert_eq!(server.event("test_failed")["reason"], format!("more than {MAX} bytes"));
    };
    let bidirectional = Params { bidirectional: true, reverse: false, ..reverse(2) };
    // With small buffers the streams cannot send until they are read.
    let slow = Params { window: 16_384, ..reverse(4) };
    for (n, params) in [reverse(1), slow, bidirectional].into_iter().enumerate() {
        let test = test(&server, &params).unwrap();
        if params.window > 0 {
            std::thread::sleep(Duration::from_millis(500));
        }
        // Nothing is sent, so that only one direction exceeds its limit.
        let bytes: u64 = std::thread::scope(|s| {
            let threads: Vec<_> = test
                .tcp
                .iter()
                .map(|mut stream| s.spawn(move || std::io::copy(&mut stream, &mut std::io::sink()).unwrap()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(bytes, MAX, "{params:?}");
        refused(n + 1);
    }
    let params = Params { protocol: Protocol::Udp, block: 1200, rate: 200_000_000, ..reverse(2) };
    let udp = test(&server, &params).unwrap();
    refused(4);
    let mut bytes = 0;
    for socket in &udp.udp {
        socket.set_nonblocking(true).unwrap();
        while let Ok(n) = socket.recv(&mut [0; 2000]) {
            bytes += n as u64;
        }
    }
    assert!(bytes > 0 && bytes <= MAX, "{bytes}");
    let mut forward = test(&server, &Params::default()).unwrap();
    let (block, mut sent) = ([0; 4096], 0);
    while let Ok(n) = forward.tcp[0].write(&block) {
        sent += n as u64;
    }
    refused(5);
    assert!(sent >= MAX, "{sent}");
}

#[test]
fn a_test_below_the_maximum_bytes_is_not_ended() {
    let server = start(Limits { bytes: Some(4_000_000), ..patient() });
    // Nothing is read, so that only what the sockets buffer is sent.
    let mut test = test(&server, &Params { window: 16_384, ..reverse(8) }).unwrap();
    // The limits are checked four times per second.
    std::thread::sleep(Duration::from_millis(600));
    test.control.write_all(&[State::TestEnd.byte()]).unwrap();
    let mut state = [0];
    test.control.read_exact(&mut state).unwrap();
    assert_eq!(state[0], State::ExchangeResults.byte(), "{:?}", server.events());
}

#[test]
fn a_test_ends_before_its_last_message_has_waited_for_the_rate() {
    check_repeatedly("the seconds of a test", || {
        let server = start(Limits { rate: Some(Rate::from_bytes_per_sec(100_000)), ..patient() });
        let params = Params { protocol: Protocol::Udp, rate: 800_000, block: 1000, ..Params::default() };
        let mut test = test(&server, &params).unwrap();
        // Ahead of the rate by 0.8 s, for which the next message waits.
        for _ in 0..80 {
            test.udp[0].send(&[0; 1000]).unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
        test.control.write_all(&[State::TestEnd.byte()]).unwrap();
        test.control.read_exact(&mut [0]).unwrap();
        let results = fullpipe_net::iperf3::Results::default().to_json().to_string();
        test.control.write_all(&(results.len() as u32).to_be_bytes()).unwrap();
        test.control.write_all(results.as_bytes()).unwrap();
        // Without reading the server's results, closing would end the test as failed.
        let mut length = [0; 4];
        test.control.read_exact(&mut length).unwrap();
        let mut theirs = vec![0; u32::from_be_bytes(length) as usize];
        test.control.read_exact(&mut theirs).unwrap();
        let seconds = {
            drop(test);
            server.event("test_finished")["seconds"].as_f64().unwrap()
        };
        if seconds < 0.5 { Ok(()) } else { Err(format!("{seconds} s")) }
    });
}

/// The speed test page measures latency beside its download.
#[test]
fn small_answers_go_ahead_of_transfers() {
    check_repeatedly("the answer to HEAD beside downloads", || {
        let server = start(Limits { rate: Some(Rate::from_bytes_per_sec(100_000)), ..patient() });
        let busy: Vec<_> = (0..40)
            .map(|_| {
                let mut socket = connect(&server, PATIENCE).unwrap();
                socket.write_all(b"GET /download HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                socket.read_exact(&mut [0; 600]).unwrap();
                socket
            })
            .collect();
        let mut page = connect(&server, PATIENCE).unwrap();
        let mut least = PATIENCE;
        for _ in 0..3 {
            let began = Instant::now();
            page.write_all(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            page.read_exact(&mut [0]).unwrap();
            least = least.min(began.elapsed());
            arriving(&page, Instant::now() + SHORT);
            page.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        drop(busy);
        // In the order of arrival it waits for a packet of each, half a second.
        if least < Duration::from_millis(250) { Ok(()) } else { Err(format!("{least:?}")) }
    });
}

#[test]
fn tests_below_the_least_rate_release_their_places() {
    let server = start(Limits { idle: Duration::from_millis(800), ..patient() });
    let slow = |rate, reverse| Params { rate, block: 16, reverse, ..Params::default() };
    let udp = |params| Params { protocol: Protocol::Udp, ..params };
    for params in [slow(0, false), slow(400, true), udp(slow(400, false)), udp(slow(400, true))] {
        let test = test(&server, &params).unwrap();
        let ended = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                // 160 bytes per second.
                while !params.reverse && !ended.load(Relaxed) {
                    for mut stream in &test.tcp {
                        let _ = stream.write(&[0; 16]);
                    }
                    for socket in &test.udp {
                        let _ = socket.send(&[0; 16]);
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            until("the test was not ended", || server.events().iter().any(|e| e.kind == "test_failed"));
            ended.store(true, Relaxed);
        });
        let reason = server.event("test_failed")["reason"].to_string();
        assert!(
            reason.contains("bytes in 800ms, less than 400") || reason.contains("no progress"),
            "{reason}"
        );
        let _ = test.control.shutdown(Shutdown::Both);
        until("connections are left", || server.handle.connections() == 0);
        server.forget_events();
    }
}

#[test]
fn a_clients_results_are_bounded_by_its_streams() {
    let server = start(patient());
    for (parallel, length, accepted) in [(1, 4_608, true), (1, 4_609, false), (4, 1 << 20, false)] {
        let mut test = test(&server, &Params { parallel, ..Params::default() }).unwrap();
        test.control.write_all(&[State::TestEnd.byte()]).unwrap();
        test.control.read_exact(&mut [0]).unwrap();
        let results = fullpipe_net::iperf3::Results::default().to_json().to_string();
        let _ = test.control.write_all(&u32::to_be_bytes(length));
        if accepted {
            let text = results.clone() + &" ".repeat(length as usize - results.len());
            test.control.write_all(text.as_bytes()).unwrap();
        }
        let mut answer = [0];
        test.control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[0] == State::ServerError.byte(), !accepted, "{length}");
    }
}

/// The limits of one address leave the others theirs.
#[test]
fn a_busy_address_does_not_slow_down_another() {
    let rate = Some(Rate::from_bytes_per_sec(BYTES_PER_SECOND));
    let server = start(Limits { rate, handshake: NEVER, ..patient() });
    let download = |from: [u8; 4], size: usize| {
        let socket = fullpipe_kernel::socket::tcp(server.v4()).unwrap();
        fullpipe_kernel::socket::bind(&socket, SocketAddr::from((from, 0))).unwrap();
        fullpipe_kernel::socket::connect_timeout(&socket, server.v4(), PATIENCE).unwrap();
        let head = format!("GET /download?size={size} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        (&socket).write_all(head.as_bytes()).unwrap();
        socket
    };
    let busy: Vec<_> = (0..8).map(|_| download([127, 0, 0, 1], 10_000_000)).collect();
    until("no download has begun", || server.handle.connections() == busy.len());
    let mut number = 1;
    check_repeatedly("a download beside those of another address", || {
        let began = Instant::now();
        number += 1;
        let mut answer = Vec::new();
        download([127, 0, 0, number], 50_000).read_to_end(&mut answer).unwrap();
        assert!(answer.len() > 50_000);
        // Alone 0.4 s, and 3.6 s if it had to share.
        let elapsed = began.elapsed();
        if elapsed < Duration::from_secs(3) { Ok(()) } else { Err(format!("{elapsed:?}")) }
    });
    drop(busy);
}
