//! Shared by the tests: a fullpipe server in this process and iperf3 in others, always with a time
//! limit.

use fullpipe_net::server::{Config, Event, Handle, Limits, Server};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Timeout for events that must occur. It distinguishes a hang from slow progress: no test may
/// depend on a fast or unloaded machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Longer than [`PATIENCE`]: for timeouts that must not expire during a test.
pub const NEVER: Duration = Duration::from_secs(1200);

/// Limits that no stall of this machine exceeds.
pub fn patient() -> Limits {
    Limits { handshake: NEVER, idle: NEVER, ..Limits::default() }
}

/// Waits until the condition holds.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A fullpipe server on a free port, stopped on drop.
pub struct Running {
    pub address: SocketAddr,
    pub iperf2_address: Option<SocketAddr>,
    pub handle: Handle,
    events: Arc<Mutex<Vec<Event>>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(config: Config) -> Running {
        let events = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&events);
        Running::bind(config, events, move |e| log.lock().unwrap().push(e.clone()))
    }

    /// A server whose events are discarded, so that its own memory can be measured.
    pub fn without_events(config: Config) -> Running {
        Running::bind(config, Arc::default(), |_| {})
    }

    fn bind(
        config: Config,
        events: Arc<Mutex<Vec<Event>>>,
        log: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Running {
        let server = Server::bind(Config { port: 0, ..config }, log).unwrap();
        let (address, iperf2_address) = (server.address(), server.iperf2_address());
        let handle = server.handle();
        let thread = std::thread::spawn(move || server.run().unwrap());
        Running { address, iperf2_address, handle, events, thread: Some(thread) }
    }

    pub fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Its loopback address.
    pub fn v4(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.address.port()))
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub fn forget_events(&self) {
        self.events.lock().unwrap().clear();
    }

    /// Waits for an event of this kind and returns it as JSON.
    pub fn event(&self, kind: &str) -> serde_json::Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.events().iter().rfind(|e| e.kind == kind) {
                return event.to_json();
            }
            assert!(Instant::now() < deadline, "no event `{kind}` among {:?}", self.events());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A child process that is killed on drop.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port without a listener.
pub fn free_port() -> u16 {
    TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port()
}

/// Whether a program is installed. In CI its absence is a failure.
pub fn have(program: &str) -> bool {
    let there =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !there {
        assert!(std::env::var_os("CI").is_none(), "{program} is not installed");
        eprintln!("SKIPPED: {program} is not installed");
    }
    there
}

/// Whether this machine has IPv6 on its loopback interface.
pub fn have_ipv6() -> bool {
    let there = TcpListener::bind((IpAddr::V6(Ipv6Addr::LOCALHOST), 0)).is_ok();
    if !there {
        assert!(std::env::var_os("CI").is_none(), "no IPv6 on the loopback interface");
        eprintln!("SKIPPED: no IPv6 on the loopback interface");
    }
    there
}

/// A stock server for one test.
pub fn iperf3_server() -> (Process, u16) {
    let port = free_port();
    let mut child = Command::new("iperf3")
        .args(["-s", "-1", "--forceflush", "-p", &port.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "iperf3 -s did not start");
    }
    // Its output must be read, or it blocks.
    std::thread::spawn(move || {
        let _ = lines.read_to_end(&mut Vec::new());
    });
    (Process(child), port)
}

/// Runs a program to completion, or fails after `limit`.
pub fn run(mut command: Command, limit: Duration) -> (i32, String, String) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = Process(child);
    let (mut out, mut err) = (child.0.stdout.take().unwrap(), child.0.stderr.take().unwrap());
    let out = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let err = std::thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).map(|_| text)
    });
    let deadline = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "{command:?} took more than {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    (status.code().unwrap_or(-1), out.join().unwrap().unwrap(), err.join().unwrap().unwrap())
}
