//! Peers that close, stall or send garbage at every step: the other end reports the failure and
//! keeps serving others.

use crate::common::{PATIENCE, Running, free_port, patient, until};
use fullpipe_kernel::socket;
use fullpipe_net::client::{self, ClientError, Config};
use fullpipe_net::iperf3::{Cookie, HELLO, Params, Protocol, Results, State, StreamResults};
use fullpipe_net::server::{self, Limits};
use fullpipe_testing::check_repeatedly;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How a client misbehaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Closes everything.
    Leave,
    /// Resets everything.
    Reset,
    /// Stalls.
    Stall,
    /// Violates the protocol.
    Garbage,
}

/// The steps of a client; the fault occurs after the given number of them.
const STEPS: [&str; 11] = [
    "connecting",
    "half a cookie",
    "a cookie",
    "a length",
    "half the parameters",
    "the parameters",
    "one stream of two",
    "half a stream's cookie",
    "all streams",
    "some data",
    "the end, half the results",
];

/// Short timeouts for stalling peers; on slow machines they may also hit good clients.
fn impatient() -> server::Config {
    let limits = Limits {
        handshake: Duration::from_millis(300),
        idle: Duration::from_millis(400),
        ..Limits::default()
    };
    server::Config { limits, ..Default::default() }
}

fn lasting() -> server::Config {
    server::Config { limits: patient(), ..Default::default() }
}

fn read(mut socket: &TcpStream, buffer: &mut [u8]) -> std::io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.read_exact(buffer)
}

/// Reads until the server closes. Reads with a timeout are interrupted when the process is stopped
/// (signal(7)).
fn until_closed(socket: &mut TcpStream) -> std::io::Result<()> {
    loop {
        match socket.read(&mut [0; 4096]) {
            Ok(0) => return Ok(()),
            Err(e) if e.kind() != std::io::ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
    }
}

/// Plays a client up to `step` and then misbehaves. Errors are ignored: the server may be faster.
fn misbehave(address: SocketAddr, step: usize, fault: Fault, params: &Params) {
    let _ = try_to_misbehave(address, step, fault, params);
}

fn try_to_misbehave(address: SocketAddr, step: usize, fault: Fault, params: &Params) -> std::io::Result<()> {
    let mut control = TcpStream::connect(address)?;
    let mut streams: Vec<TcpStream> = Vec::new();
    let cookie = Cookie::random()?;
    let text = params.to_json().to_string();
    for at in 1..=step {
        match at {
            1 => control.write_all(&cookie.as_bytes()[..20])?,
            2 => {
                control.write_all(&cookie.as_bytes()[20..])?;
                read(&control, &mut [0])?;
            }
            3 => control.write_all(&(text.len() as u32).to_be_bytes())?,
            4 => control.write_all(&text.as_bytes()[..text.len() / 2])?,
            5 => {
                control.write_all(&text.as_bytes()[text.len() / 2..])?;
                read(&control, &mut [0])?;
            }
            6 => {
                let mut stream = TcpStream::connect(address)?;
                stream.write_all(cookie.as_bytes())?;
                streams.push(stream);
            }
            7 => {
                let mut stream = TcpStream::connect(address)?;
                stream.write_all(&cookie.as_bytes()[..9])?;
                streams.push(stream);
            }
            8 => {
                streams[1].write_all(&cookie.as_bytes()[9..])?;
                read(&control, &mut [0; 2])?;
            }
            9 if !params.reverse => streams[0].write_all(&[0x5a; 100_000])?,
            9 => read(&streams[0], &mut [0; 100_000])?,
            _ => {
                control.write_all(&[State::TestEnd.byte()])?;
                control.write_all(&[0, 0, 1, 0, b'{', b'"'])?;
            }
        }
    }
    match fault {
        Fault::Leave => {}
        Fault::Reset => {
            for connection in streams.iter().chain([&control]) {
                socket::reset_on_close(connection)?;
            }
        }
        Fault::Garbage => {
            control.write_all(&[0x99; 64])?;
            for stream in &mut streams {
                let _ = stream.write_all(&[0x99; 64]);
            }
            // Wait for a reply; if the bytes were part of a text, there is none.
            control.set_read_timeout(Some(Duration::from_millis(300)))?;
            let _ = control.read_exact(&mut [0; 64]);
        }
        // Until the server closes.
        Fault::Stall => {
            control.set_read_timeout(Some(PATIENCE))?;
            until_closed(&mut control)?;
        }
    }
    Ok(())
}

fn two_streams(reverse: bool) -> Params {
    Params { parallel: 2, reverse, ..Params::default() }
}

/// A good client transfers every byte.
fn serve_one(server: &Running) -> Result<(), String> {
    let params = Params { bytes: 1 << 20, seconds: 0, ..Params::default() };
    let config = Config { params, extensions: false, ..Config::new("127.0.0.1", server.address.port()) };
    let outcome = client::run(&config, &AtomicBool::new(false), &mut |_| {});
    let outcome = outcome.map_err(|e| format!("{e}: {:?}", server.events()))?;
    assert_eq!(outcome.sum(true).unwrap().received, Some(1 << 20));
    Ok(())
}

fn still_serves(server: &Running) {
    serve_one(server).unwrap();
}

fn all_gone(server: &Running) {
    until("connections are left", || server.handle.connections() == 0);
}

#[test]
fn the_server_survives_every_fault_at_every_step() {
    let server = Running::start(lasting());
    for reverse in [false, true] {
        let params = two_streams(reverse);
        for fault in [Fault::Leave, Fault::Reset, Fault::Garbage] {
            for step in 0..STEPS.len() {
                misbehave(server.v4(), step, fault, &params);
            }
            still_serves(&server);
        }
    }
    all_gone(&server);
    still_serves(&server);
}

#[test]
fn the_server_survives_stalls_at_every_step() {
    let server = Running::start(impatient());
    for reverse in [false, true] {
        let params = two_streams(reverse);
        // Stalls take time: run all steps concurrently.
        std::thread::scope(|s| {
            for step in 0..STEPS.len() {
                let params = &params;
                let address = server.v4();
                s.spawn(move || misbehave(address, step, Fault::Stall, params));
            }
            check_repeatedly("a client beside those that stall", || serve_one(&server));
        });
    }
    all_gone(&server);
    check_repeatedly("a client after those that stalled", || serve_one(&server));
}

#[test]
fn a_fault_does_not_disturb_the_others() {
    // Two identical clients, one on a server with faults and one on a server without.
    let (beside, apart) = (Running::start(lasting()), Running::start(lasting()));
    let moved = [const { AtomicU64::new(0) }; 2];
    let (end, most) = (AtomicBool::new(false), 20_000_000);
    let rounds = std::thread::scope(|s| {
        for (server, moved) in [&beside, &apart].into_iter().zip(&moved) {
            let params = Params { seconds: 3600, rate: 80_000_000, ..Params::default() };
            let interval = Duration::from_millis(100);
            let config = Config { params, interval, ..Config::new("127.0.0.1", server.address.port()) };
            let end = &end;
            s.spawn(move || {
                let outcome = client::run(&config, end, &mut |interval| {
                    moved.fetch_add(interval.streams[0].bytes, Relaxed);
                });
                // Stop the other client as well.
                end.store(true, Relaxed);
                assert!(matches!(outcome, Err(ClientError::Interrupted)), "{outcome:?}");
            });
        }
        let mut rounds = 0;
        while !end.load(Relaxed) && moved[1].load(Relaxed) < most {
            for step in 0..STEPS.len() {
                misbehave(beside.v4(), step, Fault::Garbage, &two_streams(true));
            }
            rounds += 1;
        }
        end.store(true, Relaxed);
        rounds
    });
    let [beside, apart] = moved.map(AtomicU64::into_inner);
    assert!(
        rounds > 0 && beside * 2 > apart,
        "{beside} bytes beside {rounds} rounds of faults, {apart} without"
    );
}

#[test]
fn a_client_that_stops_reading_is_dropped() {
    let limits = Limits { idle: impatient().limits.idle, ..patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    misbehave(server.v4(), 9, Fault::Stall, &two_streams(true));
    let failed = server.event("test_failed");
    let reason = failed["reason"].as_str().unwrap();
    assert!(reason.contains("no progress") || reason.contains("less than"), "{failed}");
    all_gone(&server);
}

#[test]
fn absurd_parameters_get_a_reason_and_an_error_number() {
    let server = Running::start(lasting());
    let cases: [(&[u8], &str); 6] = [
        (b"{\"tcp\":true,\"time\":-1}", "`time`"),
        (b"{\"tcp\":true,\"parallel\":1000000}", "`parallel`"),
        (b"{\"tcp\":true,\"len\":1e99}", "`len`"),
        (b"{\"tcp\":tru", "not JSON"),
        (b"[1,2,3]", "expected a JSON object"),
        (b"{\"tcp\":true,\"fullpipe\":7}", "`fullpipe`"),
    ];
    for (text, reason) in cases {
        let mut control = TcpStream::connect(server.v4()).unwrap();
        control.write_all(Cookie::random().unwrap().as_bytes()).unwrap();
        read(&control, &mut [0]).unwrap();
        control.write_all(&(text.len() as u32).to_be_bytes()).unwrap();
        control.write_all(text).unwrap();
        let mut answer = [0; 9];
        read(&control, &mut answer).unwrap();
        assert_eq!(answer[..5], [State::ServerError.byte(), 0, 0, 0, 114], "{reason}");
        drop(control);
        all_gone(&server);
        let logged = server.event("test_failed");
        assert!(logged["reason"].as_str().unwrap().contains(reason), "{logged}");
    }
}

#[test]
fn an_oversized_text_is_refused_by_its_length() {
    let server = Running::start(lasting());
    let mut control = TcpStream::connect(server.v4()).unwrap();
    control.write_all(Cookie::random().unwrap().as_bytes()).unwrap();
    read(&control, &mut [0]).unwrap();
    control.write_all(&u32::MAX.to_be_bytes()).unwrap();
    let mut answer = [0];
    read(&control, &mut answer).unwrap();
    assert_eq!(answer[0], State::ServerError.byte());
    assert!(
        server.event("test_failed")["reason"]
            .as_str()
            .unwrap()
            .contains("announced a text of 4294967295 bytes")
    );
}

#[test]
fn other_protocols_are_refused() {
    let server = Running::start(impatient());
    for opening in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
        &[0; 37],
    ] {
        let mut socket = TcpStream::connect(server.v4()).unwrap();
        let _ = socket.write_all(opening);
        let mut answer = Vec::new();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let end = socket.read_to_end(&mut answer);
        assert!(!matches!(&end, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock), "{opening:?}: held");
        assert_eq!(answer, b"", "{opening:?}");
    }
    let half_a_request_then_silence = || {
        let mut socket = TcpStream::connect(server.v4()).unwrap();
        let _ = socket.write_all(b"GET /download HTT");
        let mut answer = String::new();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = socket.read_to_string(&mut answer);
        if answer.starts_with("HTTP/1.1 408") { Ok(()) } else { Err(format!("{answer:?}")) }
    };
    check_repeatedly("half a request is answered by 408", half_a_request_then_silence);
    check_repeatedly("a client after strangers", || serve_one(&server));

    let server = Running::start(lasting());
    for head in [
        &b"GET / HTTP/9.9\r\n\r\n"[..],
        b"GET \xff\xfe HTTP/1.1\r\n\r\n",
        b"PUT /upload HTTP/1.1\r\n\r\n",
        &b"GET /".repeat(6000),
    ] {
        let mut socket = TcpStream::connect(server.v4()).unwrap();
        let _ = socket.write_all(head);
        let mut answer = String::new();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = socket.read_to_string(&mut answer);
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    still_serves(&server);
}

#[test]
fn stray_datagrams_and_hellos_without_a_test_are_ignored() {
    let server = Running::start(lasting());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for datagram in [&HELLO[..], &[], &[0x99; 1400], &HELLO] {
        socket.send_to(datagram, server.v4()).unwrap();
    }
    let params =
        Params { protocol: Protocol::Udp, seconds: 1, rate: 10_000_000, block: 1200, ..Params::default() };
    let config = Config { params, block_chosen: true, ..Config::new("127.0.0.1", server.address.port()) };
    check_repeatedly("datagrams beside stray ones", || {
        let outcome = client::run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap();
        // Of 1042 per second.
        let packets = outcome.sum(true).unwrap().packets;
        if packets > 500 { Ok(()) } else { Err(format!("{packets} datagrams")) }
    });
}

#[test]
fn a_secret_is_required_and_sufficient() {
    let server = Running::start(server::Config { secret: Some("hunter2".into()), ..lasting() });
    let go = |secret: Option<&str>, extensions| {
        let params = Params { bytes: 1 << 20, seconds: 0, ..Params::default() };
        let config = Config {
            params,
            secret: secret.map(str::to_owned),
            extensions,
            ..Config::new("127.0.0.1", server.address.port())
        };
        client::run(&config, &AtomicBool::new(false), &mut |_| {})
    };
    assert!(go(Some("hunter2"), true).is_ok());
    assert!(matches!(go(None, true), Err(ClientError::SecretWanted)));
    let wrong = go(Some("hunter3"), true).unwrap_err().to_string();
    assert!(wrong.contains("secret"), "{wrong}");
    assert!(matches!(go(None, false), Err(ClientError::Refused(_))), "as a stock client");
}

#[test]
fn only_allowed_networks_get_an_answer() {
    let server = Running::start(server::Config { allow: vec!["192.0.2.0/24".parse().unwrap()], ..lasting() });
    let config = Config::new("127.0.0.1", server.address.port());
    assert!(client::run(&config, &AtomicBool::new(false), &mut |_| {}).is_err());
    assert_eq!(server.event("refused")["reason"], "address not allowed");
}

/// Why a server refuses a test.
fn refusal(server: &Running) -> ClientError {
    let config = Config::new("127.0.0.1", server.address.port());
    client::run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap_err()
}

#[test]
fn a_full_server_reports_busy() {
    let limits = Limits { clients: 0, ..patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    let error = refusal(&server);
    assert!(matches!(error, ClientError::Busy), "{error}");
}

#[test]
fn a_client_with_its_results_leaves_its_place_to_the_next() {
    let limits = Limits { clients: 1, ..patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    let mut control = TcpStream::connect(server.v4()).unwrap();
    let cookie = Cookie::random().unwrap();
    let expect = |state: State| {
        let mut byte = [0];
        read(&control, &mut byte).unwrap();
        assert_eq!(byte, [state.byte()]);
    };
    let send_text = |text: String| {
        (&control).write_all(&[&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()).unwrap();
    };
    (&control).write_all(cookie.as_bytes()).unwrap();
    expect(State::ParamExchange);
    send_text(Params::default().to_json().to_string());
    expect(State::CreateStreams);
    let mut stream = TcpStream::connect(server.v4()).unwrap();
    stream.write_all(cookie.as_bytes()).unwrap();
    expect(State::TestStart);
    expect(State::TestRunning);
    stream.write_all(&[0x5a; 100_000]).unwrap();
    assert!(matches!(refusal(&server), ClientError::Busy), "while the data flows");
    (&control).write_all(&[State::TestEnd.byte()]).unwrap();
    expect(State::ExchangeResults);
    send_text(Results::default().to_json().to_string());
    let mut length = [0; 4];
    read(&control, &mut length).unwrap();
    read(&control, &mut vec![0; u32::from_be_bytes(length) as usize]).unwrap();
    expect(State::DisplayResults);
    // It has not said yet that it is done.
    still_serves(&server);
    control.write_all(&[State::IperfDone.byte()]).unwrap();
    all_gone(&server);
}

/// A test without a practical end.
fn without_end() -> Params {
    Params { seconds: 3600, rate: 1_000_000, ..Params::default() }
}

#[test]
fn a_stopping_server_notifies_its_clients() {
    let server = Running::start(lasting());
    let config = Config { params: without_end(), ..Config::new("127.0.0.1", server.address.port()) };
    let handle = server.handle.clone();
    let result = std::thread::scope(|s| {
        let running = s.spawn(|| client::run(&config, &AtomicBool::new(false), &mut |_| {}));
        server.event("test_started");
        handle.stop();
        running.join().unwrap()
    });
    assert!(matches!(result, Err(ClientError::Stopped)), "{result:?}");
}

#[test]
fn an_interrupted_client_notifies_the_server() {
    let server = Running::start(lasting());
    let interrupt = AtomicBool::new(false);
    let config = Config { params: without_end(), ..Config::new("127.0.0.1", server.address.port()) };
    let result = std::thread::scope(|s| {
        let running = s.spawn(|| client::run(&config, &interrupt, &mut |_| {}));
        server.event("test_started");
        interrupt.store(true, Relaxed);
        running.join().unwrap()
    });
    assert!(matches!(result, Err(ClientError::Interrupted)), "{result:?}");
    assert_eq!(server.event("test_failed")["reason"], "the client terminated the test");
}

/// A server that follows the protocol for some steps and then sends `last`.
fn bad_server(steps: usize, last: &'static [u8]) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut control, _) = listener.accept().unwrap();
        let go = |control: &mut TcpStream| -> std::io::Result<()> {
            read(control, &mut [0; 37])?;
            let mut streams = Vec::new();
            for step in 1..=steps {
                match step {
                    1 => {
                        control.write_all(&[State::ParamExchange.byte()])?;
                        let mut length = [0; 4];
                        read(control, &mut length)?;
                        read(control, &mut vec![0; u32::from_be_bytes(length) as usize])?;
                    }
                    2 => {
                        control.write_all(&[State::CreateStreams.byte()])?;
                        streams.push(listener.accept()?.0);
                    }
                    3 => control.write_all(&[State::TestStart.byte(), State::TestRunning.byte()])?,
                    4 => read(control, &mut [0])?,
                    _ => control.write_all(&[State::ExchangeResults.byte()])?,
                }
            }
            control.write_all(last)
        };
        let _ = go(&mut control);
    });
    port
}

#[test]
fn the_client_survives_every_fault_of_a_server() {
    for steps in 0..=5 {
        for last in [&b""[..], b"\x77", &[254, 0, 0, 0, 5, 0, 0, 0, 0], &[255], &[11]] {
            let params = Params { bytes: 1000, seconds: 0, ..Params::default() };
            let config = Config { params, ..Config::new("127.0.0.1", bad_server(steps, last)) };
            let result = client::run(&config, &AtomicBool::new(false), &mut |_| {});
            let error = result.expect_err("a test without results").to_string();
            assert!(!error.is_empty());
            if steps == 0 && last.len() == 9 {
                assert!(error.contains("longer than the server allows"), "{error}");
            }
        }
    }
    let no_listener = Config::new("127.0.0.1", free_port());
    assert!(matches!(
        client::run(&no_listener, &AtomicBool::new(false), &mut |_| {}),
        Err(ClientError::Connect { .. })
    ));
    let nowhere = Config::new("no-such-host.invalid", 1);
    assert!(matches!(
        client::run(&nowhere, &AtomicBool::new(false), &mut |_| {}),
        Err(ClientError::Resolve { .. })
    ));
}

#[test]
fn absurd_results_from_a_client_are_refused() {
    let server = Running::start(lasting());
    let params = two_streams(false);
    let mut results = Results::default();
    results.streams.push(StreamResults { id: u64::MAX, ..StreamResults::default() });
    misbehave(server.v4(), 10, Fault::Leave, &params);
    assert!(
        Results::parse(results.to_json().to_string().as_bytes()).is_err(),
        "beyond what a double can hold"
    );
    still_serves(&server);
}
