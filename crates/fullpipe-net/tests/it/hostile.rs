//! Many hostile peers against the server, `get` and `test`. Each test is bounded in time and prints
//! its counts; the attacked side keeps serving, keeps its files and holds nothing afterwards.

use crate::common;
use crate::common::{PATIENCE, Running, patient, until};
use fullpipe_kernel::socket;
use fullpipe_net::client::{self, ClientError, Config};
use fullpipe_net::get::{self, GetError, Request, Target};
use fullpipe_net::iperf3::{Cookie, Params, Protocol, Results, State};
use fullpipe_net::server::{self, Limits};
use fullpipe_testing::{check_repeatedly, own_test};
use fullpipe_units::Rate;
use nix::{libc, setsockopt_impl, sockopt_impl};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A small generator (xorshift64): the same seed makes the same attack.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

fn impatient() -> Limits {
    Limits {
        handshake: Duration::from_millis(400),
        idle: Duration::from_millis(600),
        bytes: Some(1 << 20),
        seconds: 3,
        ..Limits::default()
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// What a misbehaving HTTP client sends.
const SENT: [&str; 16] = [
    "",
    "GET / HT",
    "GET /download?size=1m HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /download?size=1m&rate=8kbit HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /download?size=1m&rate=1bit HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /download?size=99999999999999999999g&cc=\u{1b}[2J HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nless",
    "PUT /upload?rate=8kbit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n0123456789",
    "PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18446744073709551615\r\n\r\n",
    "PUT /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
    "PUT /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdef\r\n",
    "PUT /upload HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    "HEAD /download HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\nGET /x HTTP/1.0\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: localhost\r\nRange: bytes=9999999999999999999999-\r\nExpect: everything\r\n\r\n",
    "DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\nDELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
];

/// What it does next.
const MANNERS: [&str; 6] = ["leaves", "resets", "half-closes", "drips", "never reads", "floods"];

fn rude(address: SocketAddr, dice: &mut Dice) -> std::io::Result<usize> {
    let (sent, manner) = (SENT[dice.roll(SENT.len())], dice.roll(MANNERS.len()));
    let mut socket = connect(address)?;
    if MANNERS[manner] == "drips" {
        for byte in sent.bytes().take(5) {
            socket.write_all(&[byte])?;
            std::thread::sleep(Duration::from_millis(30));
        }
    } else {
        socket.write_all(sent.as_bytes())?;
    }
    match MANNERS[manner] {
        "resets" => socket::reset_on_close(&socket)?,
        "half-closes" => {
            socket.shutdown(Shutdown::Write)?;
            while socket.read(&mut [0; 65_536])? > 0 {}
        }
        "never reads" => std::thread::sleep(Duration::from_millis(100)),
        "floods" => {
            for _ in 0..20 {
                socket.write_all(sent.repeat(10).as_bytes())?;
            }
        }
        _ => {}
    }
    Ok(manner)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// A good client is served; retried, since a stalled machine may exceed the short timeouts.
fn serves(server: &Running) {
    let request =
        Request { timeout: PATIENCE, ..Request::new(format!("http://{}/download?size=100000", server.v4())) };
    check_repeatedly("a good client is served", || {
        match get::get(&request, &AtomicBool::new(false), &mut |_| {}).map(|d| d.bytes) {
            Ok(100_000) => Ok(()),
            other => Err(format!("{other:?}: {:?}", server.events().last())),
        }
    });
}

fn calm(server: &Running) {
    until("connections are left", || server.handle.connections() == 0);
}

/// No descriptors are held beyond `before`. Earlier tests may release some in the meantime.
fn lets_go(before: usize) {
    until("descriptors are left", || descriptors() <= before);
}

/// Tests run one at a time, because they count the resources of the process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn misbehaving_http_clients_hold_no_resources() {
    let _alone = alone();
    let server = Running::start(server::Config { limits: impatient(), ..Default::default() });
    serves(&server);
    calm(&server);
    let before = descriptors();
    let (clients, tally) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let deadline = Instant::now() + Duration::from_secs(10);
    // The machine's speed decides how many there are, with a minimum.
    let enough = |clients: usize| clients >= 1_500 || (clients >= 300 && Instant::now() >= deadline);
    std::thread::scope(|s| {
        for seed in 1..=12 {
            let (clients, tally, address) = (&clients, &tally, server.v4());
            s.spawn(move || {
                let mut dice = Dice::new(seed);
                while !enough(clients.fetch_add(1, Relaxed)) {
                    let outcome = rude(address, &mut dice).map_or("was cut off", |manner| MANNERS[manner]);
                    *tally.lock().unwrap().entry(outcome).or_insert(0) += 1;
                }
            });
        }
        serves(&server);
    });
    calm(&server);
    serves(&server);
    calm(&server);
    lets_go(before);
    let (lines, after) = (server.events().len(), descriptors());
    println!(
        "rude HTTP clients: {:?}; descriptors {before} → {after}; {lines} lines logged",
        tally.lock().unwrap()
    );
}

/// A control connection after the parameter exchange.
fn begin(address: SocketAddr, params: &Params) -> std::io::Result<(TcpStream, Cookie)> {
    let mut control = connect(address)?;
    let cookie = Cookie::random()?;
    control.write_all(cookie.as_bytes())?;
    control.read_exact(&mut [0])?;
    let text = params.to_json().to_string();
    control.write_all(&(text.len() as u32).to_be_bytes())?;
    control.write_all(text.as_bytes())?;
    control.read_exact(&mut [0])?;
    Ok((control, cookie))
}

/// A client's part of a test with one stream of datagrams until it runs.
fn begin_udp(address: SocketAddr, params: &Params) -> (TcpStream, UdpSocket) {
    let (mut control, _) = begin(address, params).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(&fullpipe_net::iperf3::HELLO).unwrap();
    socket.recv(&mut [0; 64]).unwrap();
    control.read_exact(&mut [0; 2]).unwrap();
    (control, socket)
}

#[test]
fn one_test_cannot_exhaust_the_servers_descriptors() {
    let _alone = alone();
    let server = Running::start(server::Config { limits: patient(), ..Default::default() });
    serves(&server);
    calm(&server);
    let before = descriptors();
    let (mut control, cookie) = begin(server.v4(), &Params { parallel: 2, ..Params::default() }).unwrap();
    let mut held: Vec<TcpStream> = Vec::new();
    for n in 0..400 {
        let mut stream = connect(server.v4()).unwrap();
        let _ = stream.write_all(cookie.as_bytes());
        // Most are closed immediately.
        if n < 2 || n % 4 == 0 {
            held.push(stream);
        }
        if n == 1 {
            let mut begun = [0; 2];
            control.read_exact(&mut begun).unwrap();
            assert_eq!(begun, [State::TestStart.byte(), State::TestRunning.byte()]);
        }
    }
    // Excess streams are closed, each of them.
    for mut stream in &held[2..] {
        let end = stream.read(&mut [0]);
        assert!(!matches!(&end, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock), "held");
    }
    serves(&server);
    // The control connection and two streams.
    until("more connections are held than the test has", || server.handle.connections() <= 3);
    let refusals = server.events().iter().filter(|e| e.kind == "stream_refused").count();
    println!(
        "400 streams of a test of 2: {} connections held, {refusals} line logged",
        server.handle.connections()
    );
    assert_eq!(refusals, 1);
    drop((control, held));
    calm(&server);
    lets_go(before);

    // Streams that are closed while others are still expected.
    drop(server);
    let server = Running::start(server::Config { limits: patient(), ..Default::default() });
    let before = descriptors();
    let (_control, cookie) = begin(server.v4(), &Params { parallel: 100, ..Params::default() }).unwrap();
    for _ in 0..50 {
        connect(server.v4()).unwrap().write_all(cookie.as_bytes()).unwrap();
    }
    assert!(server.event("test_failed")["reason"].as_str().unwrap().contains("closed before the test began"));
    calm(&server);
    // Except the control connection here.
    lets_go(before + 1);
}

#[test]
fn a_client_that_drips_after_its_end_is_notified_of_a_server_stop() {
    let _alone = alone();
    let server = Running::start(server::Config { limits: patient(), ..Default::default() });
    let params = Params { bytes: 1 << 30, seconds: 0, ..Params::default() };
    let (mut control, cookie) = begin(server.v4(), &params).unwrap();
    let mut stream = connect(server.v4()).unwrap();
    stream.write_all(cookie.as_bytes()).unwrap();
    control.read_exact(&mut [0; 2]).unwrap();
    control.write_all(&[State::TestEnd.byte()]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            // More often than the server's drain timeout.
            while !done.load(Relaxed) && stream.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        server.handle.stop();
        let mut state = [0];
        let end = control.read_exact(&mut state).map(|()| state);
        done.store(true, Relaxed);
        assert_eq!(end.unwrap(), [State::ServerTerminate.byte()]);
    });
    println!("a client that drips after its end: notified of the server's stop");
}

#[test]
fn one_address_cannot_use_all_connections() {
    let _alone = alone();
    let limits = Limits { connections: 40, connections_per_address: 20, ..patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    let crowd: Vec<TcpStream> = (0..100).filter_map(|_| connect(server.v4()).ok()).collect();
    until("most are not refused", || server.events().iter().filter(|e| e.kind == "refused").count() >= 50);
    assert_eq!(server.handle.connections(), 20);
    // Another local address is still served.
    let mut socket = socket::tcp(server.v4()).unwrap();
    socket::bind(&socket, SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    socket::connect_timeout(&socket, server.v4(), PATIENCE).unwrap();
    socket.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    println!(
        "{} connections from one address: 20 held, the rest refused; another address served",
        crowd.len()
    );
}

#[test]
fn a_udp_client_that_exceeds_its_rate_is_stopped() {
    let _alone = alone();
    let limits = Limits { rate: Some(Rate::from_bytes_per_sec(100_000)), ..patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    let udp = |rate| Params { protocol: Protocol::Udp, rate, block: 1000, ..Params::default() };
    let config =
        Config { params: udp(0), block_chosen: true, ..Config::new("127.0.0.1", server.address.port()) };
    let error = client::run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(matches!(error, ClientError::Refused(_)), "{error}");
    drop(server);
    let limits = Limits { rate: Some(Rate::from_bytes_per_sec(100_000)), ..patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    // Requests 80 kB/s and sends as fast as possible.
    let (_control, socket) = begin_udp(server.v4(), &udp(640_000));
    let (deadline, mut sent) = (Instant::now() + PATIENCE, 0_u64);
    while server.events().iter().all(|e| e.kind != "test_failed") {
        assert!(Instant::now() < deadline, "{sent} bytes");
        for _ in 0..20 {
            sent += socket.send(&[0; 1000]).unwrap_or(0) as u64;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("a UDP client of at most 100 kB/s was stopped after sending {sent} bytes");
    assert!(server.event("test_failed")["reason"].as_str().unwrap().contains("sends more than"));
}

/// An extension message.
fn extension(text: &str) -> Vec<u8> {
    let mut bytes = vec![State::Extension.byte()];
    bytes.extend((text.len() as u32).to_be_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

/// A server's part of a test until the client connects its streams.
fn until_streams(listener: &TcpListener) -> TcpStream {
    let (mut control, _) = listener.accept().unwrap();
    control.read_exact(&mut [0; 37]).unwrap();
    control.write_all(&[State::ParamExchange.byte()]).unwrap();
    let mut length = [0; 4];
    control.read_exact(&mut length).unwrap();
    control.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize]).unwrap();
    control.write_all(&extension(r#"{"version":"1"}"#)).unwrap();
    control.write_all(&[State::CreateStreams.byte()]).unwrap();
    control
}

#[test]
fn messages_without_end_neither_hold_a_client_nor_keep_it_from_an_interrupt() {
    let _alone = alone();
    let config = |listener: &TcpListener| Config {
        idle_probes: 0,
        ..Config::new("127.0.0.1", listener.local_addr().unwrap().port())
    };
    // The beginning of a message while the test runs. Without a check for the interrupt the client
    // would fail with a timeout.
    let breaking_off = |said: &[u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let interrupt = AtomicBool::new(false);
        std::thread::scope(|s| {
            let client = s.spawn(|| client::run(&config(&listener), &interrupt, &mut |_| {}));
            let mut control = until_streams(&listener);
            let _connections = [listener.accept().unwrap(), listener.accept().unwrap()];
            control.write_all(&[State::TestStart.byte(), State::TestRunning.byte()]).unwrap();
            control.write_all(said).unwrap();
            // Until it reads the rest.
            std::thread::sleep(Duration::from_millis(500));
            interrupt.store(true, Relaxed);
            let result = client.join().unwrap();
            assert!(matches!(result, Err(ClientError::Interrupted)), "{said:?}: {result:?}");
        });
    };
    // Complete messages instead of the next step.
    let talking = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        std::thread::scope(|s| {
            let client = s.spawn(|| client::run(&config(&listener), &AtomicBool::new(false), &mut |_| {}));
            let mut control = until_streams(&listener);
            let _connections = [listener.accept().unwrap(), listener.accept().unwrap()];
            let report = extension(r#"{"seconds":0.0,"sockets":[]}"#);
            let mut reports = 0;
            // Far fewer than are accepted.
            while !client.is_finished() && reports < 2000 && control.write_all(&report).is_ok() {
                reports += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            let result = client.join().unwrap().map(|_| ()).unwrap_err().to_string();
            assert!(result.contains("timed out"), "{result}");
            reports
        })
    };
    // Reports before the results, as in the queue of a slow path.
    let late = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        std::thread::scope(|s| {
            let config = Config { params: Params { seconds: 1, ..Params::default() }, ..config(&listener) };
            let client = s.spawn(move || client::run(&config, &AtomicBool::new(false), &mut |_| {}));
            let mut control = until_streams(&listener);
            let _connections = [listener.accept().unwrap(), listener.accept().unwrap()];
            control.write_all(&[State::TestStart.byte(), State::TestRunning.byte()]).unwrap();
            let mut state = [0];
            control.read_exact(&mut state).unwrap();
            assert_eq!(state, [State::TestEnd.byte()]);
            // Longer than the server may be silent.
            for _ in 0..25 {
                std::thread::sleep(Duration::from_secs(1));
                control.write_all(&extension(r#"{"seconds":1.0,"sockets":[]}"#)).unwrap();
            }
            control.write_all(&[State::ServerTerminate.byte()]).unwrap();
            let result = client.join().unwrap();
            assert!(matches!(result, Err(ClientError::Stopped)), "{result:?}");
        });
    };
    let report = extension(&" ".repeat(200));
    let refusal = [State::ServerError.byte(), 0, 0, 0];
    let reports = std::thread::scope(|s| {
        s.spawn(late);
        let talking = s.spawn(talking);
        for said in [&report[..3], &report[..100], &refusal] {
            breaking_off(said);
        }
        talking.join().unwrap()
    });
    assert!(reports < 2000, "{reports} messages were read");
    println!("a client was neither held by {reports} messages nor kept from an interrupt");
}

sockopt_impl!(
    /// A socket's filter program.
    SocketFilter,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_ATTACH_FILTER,
    libc::sock_fprog
);

/// Drops all packets that arrive for a socket, so that its peer gets no answer at all.
fn vanish(socket: &impl std::os::fd::AsFd) {
    let mut drop_all = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
    let program = libc::sock_fprog { len: 1, filter: &raw mut drop_all };
    nix::sys::socket::setsockopt(socket, SocketFilter, &program).unwrap();
}

#[test]
fn a_test_of_datagrams_ends_soon_after_its_client_has_vanished() {
    let _alone = alone();
    let limits = Limits { idle: Duration::from_secs(8), ..patient() };
    let server = Running::start(server::Config { limits, ..Default::default() });
    let params = Params {
        protocol: Protocol::Udp,
        reverse: true,
        rate: 800_000,
        block: 1000,
        seconds: 3600,
        ..Params::default()
    };
    let (control, socket) = begin_udp(server.v4(), &params);
    vanish(&control);
    vanish(&socket);
    let began = Instant::now();
    // Sending would go on for an hour.
    until("the test ends", || server.events().iter().any(|e| e.kind == "test_failed"));
    println!("a test of datagrams ended {:?} after its client had vanished", began.elapsed());
}

#[test]
fn a_stranger_does_not_end_a_server_of_one_test() {
    let _alone = alone();
    let limits = Limits { handshake: Duration::from_millis(400), ..patient() };
    let server = Running::start(server::Config { limits, one_off: true, ..Default::default() });
    // Silence after the cookie, and parameters that are none.
    let mut stranger = connect(server.v4()).unwrap();
    stranger.write_all(Cookie::random().unwrap().as_bytes()).unwrap();
    let mut other = connect(server.v4()).unwrap();
    other.write_all(Cookie::random().unwrap().as_bytes()).unwrap();
    other.read_exact(&mut [0]).unwrap();
    other.write_all(&[0, 0, 0, 2, b'{', b']']).unwrap();
    until("both are refused", || server.events().iter().filter(|e| e.kind == "test_failed").count() == 2);
    let config = Config {
        params: Params { seconds: 1, ..Params::default() },
        ..Config::new("127.0.0.1", server.address.port())
    };
    client::run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap();
    println!("two strangers did not end a server of one test");
}

#[test]
fn an_interrupted_client_opens_no_further_streams() {
    let _alone = alone();
    // A server that accepts a test and its first connections, and answers no probe.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let params = Params { parallel: 128, ..Params::default() };
    let config = Config { params, ..Config::new("127.0.0.1", listener.local_addr().unwrap().port()) };
    let interrupt = AtomicBool::new(false);
    std::thread::scope(|s| {
        let client = s.spawn(|| client::run(&config, &interrupt, &mut |_| {}));
        let mut control = until_streams(&listener);
        // The connection of the probes; the echo never comes.
        let (mut probes, _) = listener.accept().unwrap();
        probes.read_exact(&mut [0; 38]).unwrap();
        interrupt.store(true, Relaxed);
        let began = Instant::now();
        let result = client.join().unwrap();
        assert!(matches!(result, Err(ClientError::Interrupted)), "{result:?}");
        // The timeout of an echo is five seconds.
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        let mut state = [0];
        control.read_exact(&mut state).unwrap();
        assert_eq!(state, [State::ClientTerminate.byte()]);
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "a stream was connected");
    });
    println!("an interrupted client: no further streams, and a message to the server");
}

/// Responses of a malicious web server; `true` repeats the last piece endlessly.
fn answers() -> Vec<(&'static str, Vec<Vec<u8>>, bool)> {
    let head = |text: &str| format!("HTTP/1.1 {text}\r\n\r\n").into_bytes();
    vec![
        ("says nothing", vec![], false),
        ("speaks another protocol", vec![b"SSH-2.0-x\r\n\r\n".to_vec()], false),
        ("sends zeros", vec![vec![0; 4096]], true),
        (
            "sends a head without end",
            vec![b"HTTP/1.1 200 OK\r\n".to_vec(), b"X: yyyyyyyyyyyyyyy\r\n".to_vec()],
            true,
        ),
        ("sends interim answers without end", vec![head("100 Continue")], true),
        ("redirects in a circle", vec![head("302 Found\r\nLocation: /again\r\nContent-Length: 0")], false),
        ("redirects to a file", vec![head("302 Found\r\nLocation: file:///etc/passwd")], false),
        ("redirects to nowhere", vec![head("302 Found")], false),
        (
            "sends an unrequested part",
            vec![head("206 P\r\nContent-Range: bytes 0-2/3\r\nContent-Length: 3"), b"abc".to_vec()],
            false,
        ),
        ("breaks off", vec![head("200 OK\r\nContent-Length: 100"), b"abc".to_vec()], false),
        (
            "announces two lengths",
            vec![head("200 OK\r\nContent-Length: 3\r\nContent-Length: 4"), b"abcd".to_vec()],
            false,
        ),
        (
            "announces a length and chunks",
            vec![head("200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked"), b"abc".to_vec()],
            false,
        ),
        (
            "announces more than there is",
            vec![head("200 OK\r\nContent-Length: 18446744073709551615"), vec![0; 1000]],
            false,
        ),
        ("announces an invalid number", vec![head("200 OK\r\nContent-Length: -1")], false),
        (
            "wraps its chunks",
            vec![head("200 OK\r\nTransfer-Encoding: chunked"), b"3\r\nabc\r\nFFFFFFFFFFFFFFFF\r\nx".to_vec()],
            false,
        ),
        (
            "sends trailers without end",
            vec![
                head("200 OK\r\nTransfer-Encoding: chunked"),
                b"0\r\n".to_vec(),
                b"T: uuuuuuuuuuuuuuuuuuuuuuuu\r\n".to_vec(),
            ],
            true,
        ),
        (
            "sends an endless chunk line",
            vec![head("200 OK\r\nTransfer-Encoding: chunked"), b"1;xxxxxxxxxxxxxxxxxxxxxxxxxx".to_vec()],
            true,
        ),
        (
            "writes to the terminal",
            vec![head("500 \u{1b}[2J\u{9b}2J"), "\u{1b}]0;x\u{7}\u{202e}".as_bytes().to_vec()],
            false,
        ),
    ]
}

#[test]
fn malicious_web_servers_cannot_damage_files_or_hang_a_download() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (file, began) = (folder.path().join("file"), Instant::now());
    let mut tally = BTreeMap::new();
    for resume in [false, true] {
        for (what, said, without_end) in answers() {
            std::fs::write(&file, "precious").unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            std::thread::spawn(move || {
                for _ in 0..25 {
                    let Ok((mut socket, _)) = listener.accept() else { return };
                    let _ = socket.set_write_timeout(Some(Duration::from_secs(5)));
                    let _ = socket.read(&mut [0; 4096]);
                    for piece in &said {
                        let _ = socket.write_all(piece);
                    }
                    while without_end && said.last().is_some_and(|piece| socket.write_all(piece).is_ok()) {}
                }
            });
            let request = Request {
                target: Target::File(file.clone()),
                resume,
                force: !resume,
                timeout: Duration::from_secs(2),
                ..Request::new(format!("http://127.0.0.1:{port}/x"))
            };
            let asked = Instant::now();
            let error =
                get::get(&request, &AtomicBool::new(false), &mut |_| {}).map(|d| d.bytes).unwrap_err();
            let text = error.to_string();
            assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{what}: {text:?}");
            assert!(asked.elapsed() < PATIENCE, "{what}: {text}");
            assert_eq!(std::fs::read(&file).unwrap(), b"precious", "{what}: {text}");
            for rest in ["file.part", "file.part.json"] {
                let _ = std::fs::remove_file(folder.path().join(rest));
            }
            let kind = match error {
                GetError::Url(_) => "led nowhere",
                GetError::NotHttp(_) => "was not HTTP",
                GetError::Broken { .. } => "broke off",
                GetError::Status { .. } => "refused",
                GetError::Changed { .. } => "had another version",
                _ => "else",
            };
            *tally.entry(kind).or_insert(0) += 1;
        }
    }
    println!(
        "malicious web servers: {tally:?} in {:.1} s; the file was never touched",
        began.elapsed().as_secs_f64()
    );
}

/// A measuring server that sends random states and texts.
fn liar(listener: &TcpListener, dice: &mut Dice) -> std::io::Result<()> {
    let (mut control, _) = listener.accept()?;
    control.set_read_timeout(Some(Duration::from_millis(100)))?;
    control.set_write_timeout(Some(Duration::from_secs(2)))?;
    listener.set_nonblocking(true)?;
    let states = [9, 10, 1, 2, 13, 14, 255, 254, 64, 11, 0x77];
    let results = Results::default()
        .to_json()
        .to_string()
        .replace("[]", "[{\"id\":1,\"bytes\":1e18,\"jitter\":0,\"errors\":-1,\"packets\":0}]");
    let texts = [
        "{}",
        "{\"version\":\"\u{9b}2J\"}",
        "{\"version\":\"1\",\"challenge\":\"x\"}",
        "{\"seconds\":1e308,\"sockets\":[[1,{}]]}",
        "[[[[",
        results.as_str(),
    ];
    // Half of them begin correctly.
    let mut script: Vec<usize> = if dice.roll(2) == 0 { vec![0, 1, 2, 3] } else { Vec::new() };
    script.extend((0..dice.roll(12)).map(|_| dice.roll(states.len())));
    for step in script {
        control.write_all(&[states[step]])?;
        if dice.roll(3) > 0 {
            let text = texts[dice.roll(texts.len())];
            let length = if dice.roll(8) == 0 { u32::MAX } else { text.len() as u32 };
            control.write_all(&length.to_be_bytes())?;
            control.write_all(text.as_bytes())?;
        }
        let _ = (control.read(&mut [0; 4096]), listener.accept());
    }
    Ok(())
}

#[test]
fn lying_measuring_servers_only_end_the_test() {
    let _alone = alone();
    let (began, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(15));
    let before = descriptors();
    let tally = Mutex::new(BTreeMap::new());
    std::thread::scope(|s| {
        for seed in 1..=8 {
            let tally = &tally;
            s.spawn(move || {
                let mut dice = Dice::new(seed);
                while Instant::now() < deadline {
                    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                    let port = listener.local_addr().unwrap().port();
                    let mut theirs = Dice::new(dice.roll(1 << 40) as u64 + 1);
                    let lying = std::thread::spawn(move || liar(&listener, &mut theirs));
                    let params = Params { bytes: 100_000, seconds: 0, ..Params::default() };
                    let config = Config { params, ..Config::new("127.0.0.1", port) };
                    let asked = Instant::now();
                    let outcome = match client::run(&config, &AtomicBool::new(false), &mut |_| {}) {
                        Ok(_) => "believed",
                        Err(ClientError::Control(_)) => "said what does not belong",
                        Err(ClientError::Stalled(_)) => "stalled",
                        Err(_) => "refused",
                    };
                    assert!(asked.elapsed() < PATIENCE, "{outcome}");
                    let _ = lying.join();
                    *tally.lock().unwrap().entry(outcome).or_insert(0) += 1;
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    let tests: usize = tally.values().sum();
    println!("{tests} lying measuring servers: {tally:?} in {:.1} s", began.elapsed().as_secs_f64());
    assert!(tests >= 8);
    lets_go(before);
}

/// Set when this program is run with a small disk.
const SMALL_DISK: &str = "FULLPIPE_TEST_SMALL_DISK";

#[test]
fn a_full_disk_loses_neither_the_file_nor_received_data() {
    if let Some(disk) = std::env::var_os(SMALL_DISK) {
        return on_a_small_disk(disk.as_ref());
    }
    let _alone = alone();
    let disk = tempfile::tempdir().unwrap();
    // In its own mount namespace, so that the disk disappears with the process.
    let script = format!("mount -t tmpfs -o size=256k none {0} && exec \"$@\"", disk.path().display());
    let mut command = Command::new("unshare");
    let name = own_test!(a_full_disk_loses_neither_the_file_nor_received_data);
    command.args(["-rm", "sh", "-c", &script, "sh"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(SMALL_DISK, disk.path());
    match Command::new("unshare").args(["-rm", "true"]).status() {
        Ok(status) if status.success() => {}
        _ => {
            assert!(std::env::var_os("CI").is_none(), "no user namespaces");
            eprintln!("SKIPPED: this machine lets no one make user namespaces (unshare -rm)");
            return;
        }
    }
    let (code, out, err) = common::run(command, PATIENCE);
    assert_eq!(code, 0, "{out}{err}");
    print!(
        "{}",
        out.lines().filter(|l| l.starts_with("disk full")).map(|l| format!("{l}\n")).collect::<String>()
    );
}

fn on_a_small_disk(disk: &std::path::Path) {
    let server = Running::start(server::Config::default());
    let file = disk.join("file");
    std::fs::write(&file, "precious").unwrap();
    let request = |size| Request {
        target: Target::File(file.clone()),
        force: true,
        ..Request::new(format!("http://{}/download?size={size}", server.v4()))
    };
    let fetch = |request: &Request| get::get(request, &AtomicBool::new(false), &mut |_| {});
    let error = fetch(&request(1_000_000)).map(|d| d.bytes).unwrap_err();
    assert!(matches!(error, GetError::File { .. }) && error.to_string().contains("No space left"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let part = std::fs::metadata(disk.join("file.part")).unwrap().len();
    // With free space, the download resumes where it stopped.
    let remounted = Command::new("mount").args(["-o", "remount,size=4m"]).arg(disk).status().unwrap();
    assert!(remounted.success());
    let resumed = fetch(&Request { resume: true, ..request(1_000_000) }).unwrap();
    assert_eq!((resumed.resumed_at, resumed.bytes), (part, 1_000_000 - part));
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 1_000_000);
    println!("disk full after {part} bytes: the file was untouched, and the download went on from there");
}
