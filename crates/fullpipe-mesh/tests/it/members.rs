//! Members and strangers that do what they like with a node: they harm themselves only.

use fullpipe_mesh::clock::SystemClock;
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::hello::{
    HEAD_LEN, Head, Hello, Purpose, Reply, SessionKeys, head, verify_welcome, welcome,
};
use fullpipe_mesh::key::Keys;
use fullpipe_mesh::message::{Message, Row, Table};
use fullpipe_mesh::node::{Config, Event, Handle, Node, Sockets, collect};
use fullpipe_mesh::record::{Minute, Pair};
use fullpipe_mesh::store::Store;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Timeout for events that occur much sooner or never.
const PATIENCE: Duration = Duration::from_secs(120);
/// Sites by their place in the mesh file; lab is the node.
const SITES: [&str; 3] = ["lab", "sea", "sky"];

/// A node of lab; sea and sky are whatever a test does in their name.
struct Lab {
    mesh: Mesh,
    keys: Keys,
    handle: Handle,
    events: Arc<Mutex<Vec<Event>>>,
    runs: Option<thread::JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

fn address(site: usize) -> IpAddr {
    format!("127.0.0.{}", site + 1).parse().unwrap()
}

fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let is_free = |site| {
            TcpListener::bind((address(site), port)).is_ok() && UdpSocket::bind((address(site), port)).is_ok()
        };
        if (0..SITES.len()).all(is_free) {
            return port;
        }
    }
}

impl Lab {
    /// `more` is added to the table `[mesh]`; the store has so many minutes.
    fn start(more: &str, minutes: i64) -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut text = format!("[mesh]\nname = 'm'\nkey_file = 'k'\nport = {port}\n{more}\n");
        for (site, name) in SITES.iter().enumerate() {
            text += &format!("[[site]]\nname = '{name}'\naddress = '{}'\n", address(site));
        }
        let mesh = Mesh::parse("m.toml", &text).unwrap();
        let mut store = Store::open(directory.path(), SITES, ["cubic"]).unwrap();
        for minute in 0..minutes {
            let pair = Pair { from: 0, to: 1 };
            let at_ms = minute * 60_000;
            let minute = Minute { at_ms, pair, sent: 60, arrived: 60, answered: 60, rtt: None };
            store.add(&Row::Minute(minute)).unwrap();
        }
        drop(store);
        let keys = Keys::generate().unwrap();
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let log = Arc::clone(&events);
        let config = Config {
            mesh: mesh.clone(),
            site: 0,
            keys: keys.clone(),
            store: directory.path().to_owned(),
            clock: Box::new(SystemClock::default()),
            log: Box::new(move |event| log.lock().unwrap().push(event.clone())),
        };
        let sockets = Sockets::bind(&mesh, 0, Some(address(0))).unwrap();
        let node = Node::open(config, sockets).unwrap();
        let handle = node.handle();
        let runs = Some(thread::spawn(move || node.run().unwrap()));
        Lab { mesh, keys, handle, events, runs, _directory: directory }
    }

    fn hello(&self, from: usize, purpose: Purpose) -> Hello {
        let nonce = [7; 32];
        Hello { mesh: "m".into(), from: SITES[from].into(), to: "lab".into(), purpose, nonce }
    }

    /// Connects as one of the sites; `None` if the node closes the connection.
    fn member(&self, from: usize, purpose: Purpose) -> Option<Member> {
        let stream = TcpStream::connect((address(0), self.mesh.sites[0].port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let hello = self.hello(from, purpose);
        (&stream).write_all(&hello.to_bytes()).ok()?;
        let Reply::Welcome { nonce, proof } = Reply::parse(&read_body(&stream).ok()?).ok()? else {
            return None;
        };
        let key = self.keys.pair("m", "lab", SITES[from]).unwrap();
        let keys = verify_welcome(&hello, &key, &nonce, &proof).unwrap();
        let mut member = Member { stream, keys };
        member.send(&Message::Ready).ok()?;
        (member.receive().ok()? == Message::Ready).then_some(member)
    }

    fn transfers(&self, from: usize) -> Member {
        self.member(from, Purpose::Transfers("cubic".into())).unwrap()
    }

    /// Answers the connections of lab to another site, each in a thread.
    fn pretend(&self, site: usize, with: impl Fn(Hello, Member) + Clone + Send + 'static) {
        let listener = TcpListener::bind((address(site), self.mesh.sites[site].port)).unwrap();
        let key = self.keys.pair("m", "lab", SITES[site]).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let Ok(hello) = read_body(&stream).map(|body| Hello::parse(&body).unwrap()) else {
                    continue;
                };
                let (reply, keys) = welcome(&hello, &key, [9; 32]);
                (&stream).write_all(&reply.to_bytes()).unwrap();
                let mut member = Member { stream, keys };
                assert_eq!(member.receive().unwrap(), Message::Ready);
                member.send(&Message::Ready).unwrap();
                let with = with.clone();
                thread::spawn(move || with(hello, member));
            }
        });
    }

    fn count(&self, wanted: impl Fn(&Event) -> bool) -> usize {
        self.events.lock().unwrap().iter().filter(|event| wanted(event)).count()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.handle.stop();
        let ran = self.runs.take().unwrap().join();
        assert!(ran.is_ok() || thread::panicking());
    }
}

fn read_body(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut start = [0; HEAD_LEN];
    stream.read_exact(&mut start)?;
    let Ok(Head::Current(length)) = head(&start) else { panic!("{start:?}") };
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

struct Member {
    stream: TcpStream,
    keys: SessionKeys,
}

impl Member {
    fn send(&mut self, message: &Message) -> io::Result<()> {
        self.stream.write_all(&self.keys.seal(&message.to_bytes()))
    }

    fn receive(&mut self) -> io::Result<Message> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::from(u16::from_be_bytes(length))];
        self.stream.read_exact(&mut frame)?;
        Ok(Message::parse(self.keys.open(&frame).unwrap()).unwrap())
    }

    fn ask(&mut self, message: &Message) -> io::Result<Message> {
        self.send(message)?;
        self.receive()
    }

    /// Offers a transfer until it is accepted; the other answer otherwise.
    fn offer(&mut self, bytes: u64) -> Message {
        let began = Instant::now();
        loop {
            match self.ask(&Message::Offer { bytes, limit_ms: u32::MAX }).unwrap() {
                Message::Busy if began.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(100)),
                answer => return answer,
            }
        }
    }
}

#[test]
fn a_member_that_falls_silent_does_not_keep_the_line() {
    let lab = Lab::start("period = '1h'\nlimit = '4s'\nsize = '64k'\ncontrollers = ['cubic']", 0);
    let (mut sea, mut sky) = (lab.transfers(1), lab.transfers(2));
    // A limit of 49 days and not one byte.
    assert_eq!(sea.offer(64 << 10), Message::Accept);
    let began = Instant::now();
    assert_eq!(sky.offer(64 << 10), Message::Accept);
    println!("the other member was served after {:?}", began.elapsed());
    sky.stream.write_all(&vec![0; 64 << 10]).unwrap();
    assert_eq!(sky.receive().unwrap(), Message::Received { bytes: 64 << 10 });
    assert!(sea.receive().is_err(), "the silent one is disconnected");
    // Now one byte at a time: up to the local limit, whatever the member says.
    let mut sea = lab.transfers(1);
    assert_eq!(sea.offer(64 << 10), Message::Accept);
    let mut drip = sea.stream.try_clone().unwrap();
    thread::spawn(move || {
        while drip.write_all(&[0]).is_ok() {
            thread::sleep(Duration::from_millis(200));
        }
    });
    assert_eq!(sky.offer(64 << 10), Message::Accept);
    // The thread ends.
    let _ = sea.stream.shutdown(Shutdown::Both);
}

#[test]
fn a_member_cannot_spend_what_others_are_guaranteed() {
    let more = "period = '1h'\nlimit = '4s'\nsize = '64k'\ncontrollers = ['cubic']\nbudget = '3m/day'";
    let lab = Lab::start(more, 5000);
    let mut sea = lab.member(1, Purpose::Collect).unwrap();
    assert!(matches!(sea.receive().unwrap(), Message::Catalog { .. }));
    let mut pieces = 0;
    loop {
        // The same records, again and again.
        match sea.ask(&Message::Request { table: Table::Minutes, after: 0 }).unwrap() {
            Message::Rows(rows) if !rows.is_empty() => pieces += 1,
            answer => {
                assert_eq!(answer, Message::BudgetSpent, "after {pieces} pieces");
                break;
            }
        }
        assert!(pieces < 200, "{:?}", lab.handle.tally());
    }
    assert!(sea.receive().is_err(), "then the connection is closed");
    assert_eq!(lab.transfers(1).offer(64 << 10), Message::BudgetSpent);
    let mut sky = lab.transfers(2);
    assert_eq!(sky.offer(64 << 10), Message::Accept);
    sky.stream.write_all(&vec![0; 64 << 10]).unwrap();
    assert_eq!(sky.receive().unwrap(), Message::Received { bytes: 64 << 10 });
    println!("{pieces} pieces, {} bytes of {}", lab.handle.tally().spent, lab.handle.tally().budget);
}

#[test]
fn failing_pushes_are_throttled() {
    let more = "period = '1h'\nlimit = '4s'\nsize = '64k'\ncontrollers = ['cubic']\ncollector = 'lab'";
    let lab = Lab::start(more, 0);
    let names = || vec!["elsewhere".to_owned()];
    let push = |site| {
        let mut member = lab.member(site, Purpose::Push).unwrap();
        let catalog = Message::Catalog { store: 1, sites: names(), controllers: names() };
        // Until the node has closed the connection.
        member.send(&catalog).is_ok() && member.receive().is_ok()
    };
    assert!(!(0..50).any(|_| push(1)));
    let failures =
        |name: &str| lab.count(|event| matches!(event, Event::SyncFailed { site, .. } if site == name));
    assert!((1..10).contains(&failures("sea")), "{} failures", failures("sea"));
    // Each member has its own limit.
    let mut sky = lab.member(2, Purpose::Push).unwrap();
    let sites = SITES.map(str::to_owned).to_vec();
    let catalog = Message::Catalog { store: 1, sites, controllers: vec!["cubic".into()] };
    assert!(matches!(sky.ask(&catalog).unwrap(), Message::Request { .. }));
}

#[test]
fn a_member_that_reconnects_again_and_again_binds_few_threads() {
    let lab = Lab::start("period = '1h'\nlimit = '4s'\nsize = '64k'\ncontrollers = ['cubic']", 0);
    // Threads of connections.
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        tasks
            .filter(|task| std::fs::read(task.path().join("comm")).is_ok_and(|name| name == b"from\n"))
            .count()
    };
    let (mut most, mut refused) = (0, 0);
    for _ in 0..400 {
        // A message for which the member has to wait, and the next connection in the meantime.
        match lab.member(1, Purpose::Transfers("cubic".into())) {
            Some(mut sea) => drop((sea.send(&Message::Ping(1)), sea.send(&Message::Ping(2)))),
            None => refused += 1,
        }
        most = most.max(threads());
    }
    println!("{most} threads, {refused} connections refused");
    assert!(most < 100, "{most} threads");
    // Another member is not affected.
    assert_eq!(lab.transfers(2).ask(&Message::Ping(3)).unwrap(), Message::Pong(3));
}

#[test]
fn nothing_long_is_read_before_a_peer_has_proven_its_key() {
    let lab = Lab::start("period = '1h'\nlimit = '4s'\nsize = '64k'\ncontrollers = ['cubic']", 0);
    let stream = TcpStream::connect((address(0), lab.mesh.sites[0].port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A stranger that knows the names.
    (&stream).write_all(&lab.hello(1, Purpose::Collect).to_bytes()).unwrap();
    read_body(&stream).unwrap();
    (&stream).write_all(&[0xff, 0xff]).unwrap();
    assert!(!matches!((&stream).read(&mut [0; 1]), Ok(1)), "the connection is closed");
    let rejected =
        |event: &Event, why: &str| matches!(event, Event::Rejected { reason, .. } if reason.contains(why));
    // At its first two bytes, and not after a timeout.
    let began = Instant::now();
    while lab.count(|event| rejected(event, "")) == 0 {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(lab.count(|event| rejected(event, "sea has a different key")), 1, "{:?}", lab.events);
    // A member does not send long messages either where none are expected.
    let mut sea = lab.transfers(1);
    assert_eq!(sea.ask(&Message::Ping(1)).unwrap(), Message::Pong(1));
    let _ = sea.send(&Message::Catalog { store: 1, sites: vec!["x".repeat(200); 100], controllers: vec![] });
    assert!(sea.receive().is_err());
}

/// A site that answers until it is offered a transfer.
#[test]
fn a_receiver_that_falls_silent_does_not_keep_the_line() {
    let more = "period = '20s'\nlimit = '2s'\nsize = '64k'\ncontrollers = ['cubic']";
    let lab = Lab::start(more, 0);
    let (silent, asked) = std::sync::mpsc::channel();
    lab.pretend(1, move |_, mut member| {
        while let Ok(message) = member.receive() {
            if let Message::Ping(n) = message {
                member.send(&Message::Pong(n)).unwrap();
            } else {
                silent.send(()).unwrap();
            }
        }
    });
    let mut sky = lab.transfers(2);
    for _ in 0..2 {
        // The line is held while lab waits for the answer.
        asked.recv_timeout(PATIENCE).unwrap();
        let began = Instant::now();
        assert_eq!(sky.offer(64 << 10), Message::Accept);
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        sky.stream.write_all(&vec![0; 64 << 10]).unwrap();
        assert_eq!(sky.receive().unwrap(), Message::Received { bytes: 64 << 10 });
    }
}

#[test]
fn a_member_that_provides_records_without_end_is_left() {
    let more = "period = '1h'\nlimit = '4s'\nsize = '64k'\ncontrollers = ['cubic']\nretention_days = 1";
    let lab = Lab::start(more, 0);
    lab.pretend(1, |hello, mut member| {
        if hello.purpose != Purpose::Collect {
            return;
        }
        let sites = SITES.map(str::to_owned).to_vec();
        member.send(&Message::Catalog { store: 1, sites, controllers: vec!["cubic".into()] }).unwrap();
        while let Ok(Message::Request { table, after }) = member.receive() {
            // The same minute under one id after the other.
            let pair = Pair { from: 1, to: 0 };
            let minute = Minute { at_ms: 60_000, pair, sent: 60, arrived: 60, answered: 60, rtt: None };
            let rows = |n: u64| (1..=n).map(|i| (after + i, Row::Minute(minute.clone()))).collect();
            let rows = if table == Table::Minutes { rows(1000) } else { Vec::new() };
            if member.send(&Message::Rows(rows)).is_err() {
                return;
            }
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path(), SITES, ["cubic"]).unwrap();
    let error = collect(&lab.mesh, 0, 1, &lab.keys, &mut store, 60_000).unwrap_err().to_string();
    assert!(error.contains("more minutes of probes than its node can have recorded"), "{error}");
    assert_eq!(store.history(i64::MIN..i64::MAX).unwrap().minutes.len(), 1);
}
