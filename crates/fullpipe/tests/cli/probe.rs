//! `fullpipe probe`: nodes of a mesh on loopback, each a process with its own address.

use crate::hub::{Hub, Way, address};
use crate::sites::{Mesh, Node, TIMEOUT, accounted, done, failed, in_a_network};
use fullpipe_mesh::message::{Row, Table};
use fullpipe_mesh::record::{History, Minute, Outcome, Pair, TransferError};
use fullpipe_mesh::store::{Directory, Source, Store};
use fullpipe_testing::own_test;
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Runs `tc` with these arguments on the loopback of this network.
fn shape(words: &str) {
    let mut command = Command::new("tc");
    let output = command.arg("qdisc").args(words.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "tc qdisc {words}: {output:?}");
}

/// An invalid peer that handles each connection by `with`.
fn pretender(address: String, with: impl Fn(TcpStream) + Send + 'static) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            with(stream);
        }
    });
}

#[test]
fn three_sites_exchange_transfers_and_keep_records() {
    let mesh = Mesh::new(&["lab", "sea", "sky"], "period = '3s'\nsize = '256k'");
    let checked = mesh.run(&["check", &mesh.path("mesh.toml")]);
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && text.contains("3 sites, 6 directed pairs"), "{text}");
    let nodes: Vec<Node> = mesh.names.iter().map(|name| mesh.node(name)).collect();
    for name in &mesh.names {
        mesh.until(name, "three periods", |h| done(h) >= 4 * 3 + 4);
    }
    for node in nodes {
        node.stop();
    }
    for name in &mesh.names {
        mesh.whole(name);
        let history = mesh.history(name);
        accounted(&history, name, 2);
        let measured = history.transfers.iter().find_map(|t| match &t.outcome {
            Outcome::Done(m) => Some(m.clone()),
            Outcome::Failed(_) => None,
        });
        let m = measured.unwrap();
        assert!(m.bytes == 256 << 10 && m.segments > 0 && !m.duration.is_zero() && !m.rtt.is_zero(), "{m:?}");
        assert!(!history.minutes.is_empty());
        for minute in &history.minutes {
            assert!(minute.sent >= minute.arrived && minute.arrived >= minute.answered && minute.sent > 0);
        }
        assert!(history.minutes.iter().any(|m| m.answered > 0), "{:?}", history.minutes);
        // The node that ends first aborts transfers from others; on a busy machine, some have no slot.
        let lost = history.transfers.len() - done(&history);
        let expected =
            [TransferError::Broken, TransferError::Refused, TransferError::Busy, TransferError::TooSlow];
        let ended: usize = expected.iter().map(|error| failed(&history, *error)).sum();
        assert_eq!(ended, lost, "{:?}", history.transfers);
        println!("{name}: {} transfers arrived, {lost} not", done(&history));
    }
}

/// Root may give away a directory that no other user may write, but not because a link of another
/// user leads to it.
#[test]
fn root_does_not_follow_a_link_of_another_user_to_a_store() {
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: only root can change owners");
        return;
    }
    let mesh = Mesh::new(&["lab", "sea"], "period = '2s'\nsize = '64k'");
    let (target, link) = (mesh.path("target"), mesh.path("link"));
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
    for store in [link.clone(), format!("{link}/new")] {
        let run = mesh.run(&[
            "run",
            &mesh.path("mesh.toml"),
            "--site",
            "lab",
            "--store",
            &store,
            "-B",
            "127.0.0.1",
        ]);
        let printed = String::from_utf8_lossy(&run.stderr);
        assert!(
            run.status.code() == Some(2) && printed.contains("a symbolic link of another user"),
            "{run:?}"
        );
    }
    assert_eq!(std::fs::metadata(&target).unwrap().uid(), 0);
    assert!(std::fs::read_dir(&target).unwrap().next().is_none());
}

/// The owner of a store exchanges a file for a link while root changes the owners.
#[test]
fn files_exchanged_for_links_meanwhile_do_not_change_the_owner_of_the_links_target() {
    const NOBODY: u32 = 65534;
    if !nix::unistd::Uid::effective().is_root() {
        println!("SKIPPED: only root can change owners");
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "root's").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (next, budget) = (folder.path().join("next"), folder.path().join("budget"));
    std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let directory = Directory::open(folder.path(), 0o700).unwrap();
    let is_done = AtomicBool::new(false);
    let owner = |path: &std::path::Path| std::fs::metadata(path).unwrap().uid();
    let mut changes = 0;
    std::thread::scope(|scope| {
        let exchanging = scope.spawn(|| {
            (0..3000).for_each(|_| {
                std::fs::write(&next, "").unwrap();
                std::fs::rename(&next, &budget).unwrap();
                std::os::unix::fs::symlink(&secret, &next).unwrap();
                std::fs::rename(&next, &budget).unwrap();
            });
            is_done.store(true, Ordering::Relaxed);
        });
        while !is_done.load(Ordering::Relaxed) {
            directory.give_to(NOBODY.into(), NOBODY.into()).unwrap();
            assert_eq!(owner(&secret), 0, "after {changes} changes");
            changes += 1;
        }
        exchanging.join().unwrap();
    });
    assert!(changes > 0);
    std::fs::remove_file(&budget).unwrap();
    std::fs::write(&budget, "").unwrap();
    directory.give_to(NOBODY.into(), NOBODY.into()).unwrap();
    assert_eq!(owner(&budget), NOBODY);
}

#[test]
fn every_kind_of_invalid_peer_has_its_failure_state() {
    let names = ["lab", "absent", "silent", "other", "later", "leaves", "web", "poor"];
    let mesh = Mesh::new(&names, "period = '2s'\nsize = '64k'\ncontrollers = ['cubic', 'nosuch']");
    let port = mesh.port;
    let silent = TcpListener::bind(("127.0.0.3", port)).unwrap();
    // Another key, and a budget of zero.
    mesh.write("other.toml", "period = '2s'\nsize = '64k'\ncontrollers = ['cubic']");
    let other = mesh.path("other.key");
    assert!(mesh.run(&["key", "--out", &other]).status.success());
    let _other = mesh.node_with("other", "other.toml", &["--key-file", &other]);
    pretender(format!("127.0.0.5:{port}"), |mut stream| {
        let _ = stream.write_all(b"fpmesh\x00\x09\x00\x03abc");
    });
    pretender(format!("127.0.0.6:{port}"), drop);
    pretender(format!("127.0.0.7:{port}"), |mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    mesh.write("poor.toml", "period = '2s'\nsize = '64k'\ncontrollers = ['cubic']\nbudget = '300k/day'");
    let _poor = mesh.node_with("poor", "poor.toml", &[]);
    let lab = mesh.node("lab");
    let expected = [
        ("absent", TransferError::Refused),
        ("silent", TransferError::Unreachable),
        ("other", TransferError::NotAMember),
        ("later", TransferError::Version),
        ("leaves", TransferError::Broken),
        ("web", TransferError::NotAMember),
        ("poor", TransferError::ReceiverBudget),
    ];
    for (name, error) in expected {
        let is = |history: &History| {
            let at = |name: &str| history.sites.iter().position(|s| s == name).unwrap() as u16;
            let of = |cc: u16| {
                let wanted = Outcome::Failed(if cc == 0 { error } else { TransferError::NoSuchController });
                history
                    .transfers
                    .iter()
                    .any(|t| t.pair.to == at(name) && t.controller == cc && t.outcome == wanted)
            };
            of(0) && of(1)
        };
        mesh.until("lab", &format!("{name}: {error:?}"), is);
    }
    drop(silent);
    let printed = lab.stop();
    assert!(printed.contains("to other with cubic: not a member"), "{printed}");
    accounted(&mesh.history("lab"), "lab", 7);
    println!("{} states", expected.len() + 1);
}

#[test]
fn every_kind_of_bad_path_has_its_failure_state() {
    in_a_network(own_test!(inside_a_bad_path), 5 * TIMEOUT);
}

#[test]
#[ignore = "runs in a network of its own"]
fn inside_a_bad_path() {
    let mesh =
        Mesh::new(&["lab", "sea"], "period = '9s'\nlimit = '4s'\nsize = '1m'\ncontrollers = ['cubic']");
    let _sea = mesh.node("sea");
    let lab = mesh.node("lab");
    let mut seen = 0;
    let mut until = |error: TransferError, shape: &dyn Fn()| {
        mesh.until("lab", &format!("{error:?}"), |h| {
            shape();
            failed(h, error) > 0
        });
        seen += 1;
    };
    mesh.until("lab", "transfer", |h| done(h) > 0);
    let mtu = Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status().unwrap();
    assert!(mtu.success());
    // Packets larger than the bucket are dropped: a path for small packets only.
    shape("replace dev lo root tbf rate 50mbit burst 700 limit 300000");
    until(TransferError::MtuBlackHole, &|| {});
    shape("replace dev lo root tbf rate 600kbit burst 3000 limit 300000");
    until(TransferError::TooSlow, &|| {});
    // Cut during each transfer, and restored before the next.
    until(TransferError::Stalled, &|| {
        if is_sending_to_the_second() {
            std::thread::sleep(Duration::from_millis(1500));
            shape("replace dev lo root tbf rate 600kbit burst 30 limit 300000");
            std::thread::sleep(Duration::from_secs(5));
            shape("replace dev lo root tbf rate 600kbit burst 3000 limit 300000");
        }
    });
    shape("del dev lo root");
    let before = done(&mesh.history("lab"));
    mesh.until("lab", "transfer again", |h| done(h) > before);
    lab.stop();
    println!("probe: {seen} states of a path");
}

/// Whether a connection to 127.0.0.2 has unsent bytes.
fn is_sending_to_the_second() -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().skip(1).any(|line| {
        // `rem_address`, and `tx_queue:rx_queue` in hexadecimal digits.
        let words: Vec<&str> = line.split_whitespace().collect();
        let waiting = u64::from_str_radix(&words[4][..8], 16).unwrap();
        words[2].starts_with("0200007F:") && waiting > 20_000
    })
}

#[test]
fn transfers_without_a_free_slot_are_recorded_and_do_not_block() {
    in_a_network(own_test!(inside_a_crowd), 3 * TIMEOUT);
}

#[test]
#[ignore = "runs in a network of its own"]
fn inside_a_crowd() {
    // Twelve transfers of half a second that exclude each other do not fit into four seconds.
    let names = ["lab", "sea", "sky"];
    let mesh = Mesh::new(&names, "period = '4s'\nlimit = '2s'\nsize = '128k'");
    shape("add dev lo root tbf rate 2mbit burst 70000 latency 500ms");
    let nodes = names.map(|name| mesh.node(name));
    let mut none = 0;
    for name in names {
        // A transfer without a slot is recorded, and the next period is independent.
        let seen = mesh.until(name, "no turn", |h| failed(h, TransferError::Busy) > 0);
        let before = done(&seen);
        none += failed(&mesh.until(name, "transfer after it", |h| done(h) > before + 1), TransferError::Busy);
    }
    nodes.into_iter().for_each(|node| drop(node.stop()));
    for name in names {
        accounted(&mesh.history(name), name, 2);
    }
    let reported = mesh.run(&["report", &mesh.path("lab"), "--no-simulation"]);
    assert!(reported.status.success(), "{reported:?}");
    println!("probe: {none} transfers had no turn");
}

#[test]
fn a_firewall_for_replies_only_shows_in_one_direction() {
    in_a_network(own_test!(inside_a_firewall), 3 * TIMEOUT);
}

#[test]
#[ignore = "runs in networks of its own"]
fn inside_a_firewall() {
    let way = |from: usize, to: usize| Way { answers_only: (from, to) == (1, 0), ..Way::plain(50, 5, 0.0) };
    let Some(hub) = Hub::new(2, way) else { return };
    let mesh = Mesh::at(&["lab", "sea"], address, "period = '7s'\nsize = '64k'\ncontrollers = ['cubic']");
    let nodes = [0, 1].map(|i| mesh.node_in(mesh.names[i], "mesh.toml", &[], Some(hub.network(i))));
    let sea = mesh.until("sea", "unreachable", |h| failed(h, TransferError::Unreachable) > 1);
    let lab = mesh.until("lab", "transfers", |h| done(h) > 1);
    nodes.into_iter().for_each(|node| drop(node.stop()));
    assert_eq!((done(&sea), failed(&lab, TransferError::Unreachable)), (0, 0));
    accounted(&mesh.history("sea"), "sea", 1);
    println!("probe: {} transfers out, {} not in", done(&lab), failed(&sea, TransferError::Unreachable));
}

#[test]
fn controllers_that_share_a_slot_start_together() {
    let mesh = Mesh::new(&["lab", "sea"], "period = '8s'\nsize = '64k'\ntogether = true");
    let nodes = ["lab", "sea"].map(|name| mesh.node(name));
    // Otherwise, they would start two seconds apart.
    let together = |h: &History| {
        let done = || h.transfers.iter().filter(|t| matches!(t.outcome, Outcome::Done(_)));
        done().any(|a| {
            done().any(|b| {
                a.period == b.period && a.controller < b.controller && a.at_ms.abs_diff(b.at_ms) < 1000
            })
        })
    };
    mesh.until("lab", "two at once", together);
    mesh.until("sea", "two at once", together);
    nodes.into_iter().for_each(|node| drop(node.stop()));
}

#[test]
fn a_killed_node_loses_at_most_the_transfer_in_progress() {
    let names = ["lab", "sea", "sky"];
    let mesh = Mesh::new(&names, "period = '1s'\nsize = '64k'");
    let mut nodes: Vec<Node> = names.iter().map(|name| mesh.node(name)).collect();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut kept_before = [0; 3];
    let kills = 12;
    for _ in 0..kills {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let at = (random >> 20) as usize % names.len();
        mesh.until(names[at], "new transfers", |h| h.transfers.len() > kept_before[at]);
        std::thread::sleep(Duration::from_millis(random % 2000));
        nodes[at].signal(Signal::SIGKILL);
        nodes[at].child.wait().unwrap();
        mesh.whole(names[at]);
        let reported =
            nodes[at].log().lines().filter(|line| line.starts_with("to ") && !line.contains("late")).count();
        let kept = mesh.history(names[at]).transfers.len();
        let lost = (kept_before[at] + reported).saturating_sub(kept);
        assert!(lost <= 1, "{reported} were reported of and {} kept", kept - kept_before[at]);
        kept_before[at] = kept;
        nodes[at] = mesh.node(names[at]);
    }
    for (name, node) in names.iter().zip(nodes) {
        mesh.until(name, "transfer after all that", |h| done(h) > 4);
        node.stop();
        mesh.whole(name);
    }
    println!("{kills} nodes were killed");
}

#[test]
fn restarts_do_not_exceed_the_budget() {
    let mesh = Mesh::new(&["lab", "sea"], "period = '1s'\nsize = '128k'");
    mesh.write("poor.toml", "period = '1s'\nsize = '128k'\nbudget = '3m/day'");
    let _sea = mesh.node("sea");
    let mut lab = mesh.node_with("lab", "poor.toml", &[]);
    for _ in 0..3 {
        let before = mesh.history("lab").transfers.len();
        mesh.until("lab", "a few transfers", |h| h.transfers.len() > before + 2);
        lab.signal(Signal::SIGKILL);
        lab.child.wait().unwrap();
        lab = mesh.node_with("lab", "poor.toml", &[]);
    }
    mesh.until("lab", "spent budget", |h| failed(h, TransferError::SenderBudget) > 4);
    let sea = mesh.until("sea", "spent budget", |h| failed(h, TransferError::ReceiverBudget) > 1);
    lab.stop();
    let moved = |h: &History| {
        let done = h.transfers.iter().map(|t| match &t.outcome {
            Outcome::Done(m) => m.bytes,
            Outcome::Failed(_) => 0,
        });
        done.sum::<u64>()
    };
    // Bytes sent and received by lab in one day.
    let all = moved(&mesh.history("lab")) + moved(&sea);
    assert!((1 << 20..3 << 20).contains(&all), "{all} bytes");
    println!("{all} bytes of payload within a budget of {}", 3 << 20);
}

#[test]
fn a_full_disk_is_reported_and_old_records_stay() {
    in_a_network(own_test!(inside_a_small_disk), 2 * TIMEOUT);
}

#[test]
#[ignore = "mounts a small disk"]
fn inside_a_small_disk() {
    let mesh = Mesh::new(&["lab", "sea"], "period = '1s'\nsize = '16k'");
    let disk = mesh.path("lab");
    std::fs::create_dir(&disk).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none", &disk]).status().unwrap();
    assert!(mounted.success());
    let _sea = mesh.node("sea");
    let lab = mesh.node("lab");
    mesh.until("lab", "transfers", |h| done(h) > 3);
    let mut filler = std::fs::File::create(mesh.path("lab/filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    lab.says("the disk is full");
    let before = mesh.history("lab");
    assert!(done(&before) > 3);
    // It keeps sending and counting bytes.
    let reported = |node: &Node| node.log().lines().filter(|line| line.starts_with("to sea")).count();
    let sent = reported(&lab);
    let began = Instant::now();
    while reported(&lab) < sent + 4 {
        assert!(began.elapsed() < TIMEOUT, "{}", lab.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(filler);
    std::fs::remove_file(mesh.path("lab/filler")).unwrap();
    lab.says("storing records again");
    let after = mesh.until("lab", "new records", |h| done(h) > done(&before));
    assert!(after.transfers.starts_with(&before.transfers), "old records stay");
    lab.stop();
    mesh.whole("lab");
    println!("probe: {} records before the disk was full, {} after", done(&before), done(&after));
}

#[test]
fn strangers_bind_neither_memory_nor_slots() {
    let mesh = Mesh::new(&["lab", "sea"], "period = '2s'\nsize = '64k'");
    let lab = mesh.node("lab");
    let address = format!("127.0.0.1:{}", mesh.port);
    let floods = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut idle = Vec::new();
    for i in 0..400 {
        if let Ok(mut stream) = TcpStream::connect(&address) {
            let _ = match i % 4 {
                0 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n"),
                1 => stream.write_all(b"fpmesh\x00\x01\xff\xff"),
                2 => stream.write_all(b"fpmesh\x00\x01\x01\x00"),
                _ => Ok(()),
            };
            idle.push(stream);
        }
        for length in [0, 1, 128, 1400] {
            let _ = floods.send_to(&vec![b'f'; length], &address);
        }
    }
    // A member is served once the strangers have timed out.
    let sea = mesh.node("sea");
    mesh.until("sea", "transfers", |h| done(h) > 3);
    mesh.until("lab", "transfers", |h| done(h) > 3);
    floods.set_nonblocking(true).unwrap();
    assert!(floods.recv(&mut [0; 2000]).is_err(), "strangers are not answered");
    let memory = lab.memory_kb();
    assert!(memory < 50 << 10, "{memory} kB");
    drop(idle);
    sea.stop();
    let printed = lab.stop();
    assert!(printed.contains("rejected connection from 127.0.0.1"), "{printed}");
    println!("{memory} kB beside 400 strangers");
}

#[test]
fn records_are_collected_exported_and_counted() {
    let mesh = Mesh::new(&["lab", "sea", "sky"], "period = '2s'\nsize = '64k'\ncollector = 'sky'");
    let nodes: Vec<Node> = ["sea", "sky"].iter().map(|name| mesh.node(name)).collect();
    let lab = mesh.node_with("lab", "mesh.toml", &["--listen", "127.0.0.1:0"]);
    mesh.until("lab", "transfers", |h| done(h) > 4);
    let (file, store, all) = (mesh.path("mesh.toml"), mesh.path("lab"), mesh.path("all"));
    let collect = || mesh.run(&["collect", &file, "--site", "lab", "--store", &store, "--into", &all]);
    let first = collect();
    assert!(first.status.success(), "{first:?}");
    let pulled = mesh.history("all").transfers.len();
    let senders = |h: &History| {
        let mut senders: Vec<&str> =
            h.transfers.iter().map(|t| h.sites[usize::from(t.pair.from)].as_str()).collect();
        senders.sort_unstable();
        senders.dedup();
        senders.join(" ")
    };
    assert_eq!(senders(&mesh.history("all")), "lab sea sky");
    mesh.until("sea", "more", |h| done(h) > 12);
    assert!(collect().status.success());
    let history = mesh.history("all");
    assert!(history.transfers.len() > pulled, "the second time brings what is new");
    let mut keys: Vec<_> = history.transfers.iter().map(|t| (t.pair, t.controller, t.period)).collect();
    let with_twins = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), with_twins, "nothing twice");
    // The other records are collected from the nodes.
    mesh.until("sky", "others' records", |h| senders(h) == "lab sea sky");

    for (what, out) in [("transfers", "t.csv"), ("minutes", "m.parquet"), ("routes", "r.csv")] {
        let out = mesh.path(out);
        let exported = mesh.run(&["export", &all, "--what", what, "--out", &out]);
        assert!(exported.status.success(), "{exported:?}");
        assert!(std::fs::metadata(&out).unwrap().len() > 10, "{out}");
    }
    let csv = std::fs::read_to_string(mesh.path("t.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + history.transfers.len());

    lab.says("metrics at");
    let printed = lab.log();
    let address = printed.split("metrics at http://").nth(1).unwrap().split("/metrics").next().unwrap();
    let get = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    };
    let front = get("/");
    assert!(front.contains("<!doctype html>") && front.contains("2 paths"), "{front}");
    let page = get("/metrics");
    for series in [
        "fullpipe_probe_transfers_done_total{from=\"lab\",to=\"sea\",controller=\"bbr\"}",
        "fullpipe_probe_up{from=\"lab\",to=\"sky\",controller=\"cubic\"} 1",
        "fullpipe_probe_spent_bytes",
    ] {
        assert!(page.contains(series), "{series}: {page}");
    }
    lab.stop();
    nodes.into_iter().for_each(|node| drop(node.stop()));
    // A site that is down does not block the records of others.
    let none = collect();
    assert_eq!(none.status.code(), Some(1), "{none:?}");
}

/// A store of lab with so many minutes, the newest of now, which are not in chunks.
fn minutes_without_chunks(mesh: &Mesh, minutes: i64) {
    let directory = mesh.directory.path().join("lab");
    std::fs::create_dir(&directory).unwrap();
    let mut store = Store::open(&directory, mesh.names.iter().copied(), ["cubic", "bbr"]).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let source = Source {
        site: "lab".into(),
        store: 1,
        sites: mesh.names.iter().map(|name| (*name).to_owned()).collect(),
        controllers: Vec::new(),
    };
    let minute = |nth: i64| {
        let (at_ms, pair) = (now - (minutes - nth) * 1000, Pair { from: 0, to: 1 });
        Row::Minute(Minute { at_ms, pair, sent: 60, arrived: 60, answered: 60, rtt: None })
    };
    let rows: Vec<Row> = (0..minutes).map(minute).collect();
    store.import(&source, Table::Minutes, &rows, 1, None).unwrap();
}

/// A site that sends records of tomorrow must not hide those of others.
#[test]
fn a_record_of_tomorrow_does_not_displace_those_of_today() {
    let mesh = Mesh::new(&["lab", "sea"], "period = '1h'\nsize = '64k'");
    minutes_without_chunks(&mesh, 100);
    let mut store =
        Store::open(&mesh.directory.path().join("lab"), ["lab", "sea"], ["cubic", "bbr"]).unwrap();
    let tomorrow = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64 + 80_000_000;
    let pair = Pair { from: 1, to: 0 };
    let minute = Minute { at_ms: tomorrow, pair, sent: 60, arrived: 60, answered: 60, rtt: None };
    store.add(&Row::Minute(minute)).unwrap();
    let reported = mesh.run(&["report", &mesh.path("lab"), "--no-simulation", "--last", "1h"]);
    let printed = String::from_utf8_lossy(&reported.stdout);
    assert!(reported.status.success() && printed.contains("2 paths"), "{reported:?}");
}

/// The probes of lab in the chunks of its store and in its rows.
fn counted(mesh: &Mesh) -> [usize; 2] {
    let store = Store::read(&mesh.directory.path().join("lab")).unwrap();
    let mut minutes = 0;
    let records = store.load_compact(i64::MIN..i64::MAX, u64::MAX).unwrap();
    records.visit(&mut |_, samples| minutes += samples.minutes.len()).unwrap();
    // The snapshot ends.
    drop(records);
    [minutes, store.history(i64::MIN..i64::MAX).unwrap().minutes.len()]
}

/// A node that is asked to end while it makes chunks, looks for changes and renders a page does not
/// finish the chunks first.
#[test]
fn a_node_that_makes_chunks_ends_at_once() {
    const ROWS: u64 = 200_000;
    let mesh = Mesh::new(&["lab", "sea"], "period = '1h'\nsize = '64k'");
    minutes_without_chunks(&mesh, ROWS as i64);
    let lab = mesh.node_with("lab", "mesh.toml", &["--listen", "127.0.0.1:0"]);
    let log = lab.log();
    let address = log.split_once("metrics at http://").and_then(|(_, rest)| rest.split_once('/')).unwrap().0;
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let left = || Store::read(&mesh.directory.path().join("lab")).unwrap().count_unchunked_rows().unwrap();
    let began = Instant::now();
    while left() >= ROWS && began.elapsed() < TIMEOUT {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Nothing happens between the count and the signal.
    lab.signal(Signal::SIGSTOP);
    let before = left();
    lab.signal(Signal::SIGTERM);
    lab.signal(Signal::SIGCONT);
    lab.ended();
    let after = left();
    println!("ended {} rows later, with {after} to go", before.saturating_sub(after));
    // Pieces have 5000 rows.
    assert!(before < ROWS && before.saturating_sub(after) <= 4 * 5000, "{before} rows before, {after} after");
    assert!(after > 0, "all chunks were made");
    mesh.whole("lab");
    assert_eq!(counted(&mesh)[0], counted(&mesh)[1]);
}

#[test]
fn a_node_that_is_killed_while_it_makes_chunks_loses_nothing() {
    let mesh = Mesh::new(&["lab", "sea"], "period = '1h'\nsize = '64k'");
    minutes_without_chunks(&mesh, 100_000);
    let unchunked =
        || Store::read(&mesh.directory.path().join("lab")).unwrap().count_unchunked_rows().unwrap();
    let (mut kills, mut before) = (0, 100_000);
    while unchunked() > 0 && kills < 6 {
        let mut lab = mesh.node("lab");
        let began = Instant::now();
        while unchunked() >= before && began.elapsed() < TIMEOUT {
            std::thread::sleep(Duration::from_millis(7));
        }
        lab.signal(Signal::SIGKILL);
        lab.child.wait().unwrap();
        (kills, before) = (kills + 1, unchunked());
        mesh.whole("lab");
        let [chunks, rows] = counted(&mesh);
        assert!(chunks == rows && rows >= 100_000, "{chunks} in chunks, {rows} rows");
    }
    assert!(kills > 1, "a node made all chunks before it was killed");
    println!("{kills} nodes were killed, {} rows to go", unchunked());
}

#[test]
fn excess_and_future_records_of_a_member_are_bounded() {
    let names = ["lab", "sea", "sky"];
    let mesh = Mesh::new(&names, "period = '1h'\nsize = '64k'\nretention_days = 1");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let craft = |from: u16, times: &mut dyn Iterator<Item = i64>| {
        let directory = mesh.directory.path().join(names[usize::from(from)]);
        std::fs::create_dir(&directory).unwrap();
        let mut store = Store::open(&directory, names, ["cubic", "bbr"]).unwrap();
        for at_ms in times {
            // Two of each minute to each receiver.
            let pair = Pair { from, to: if at_ms % 4 < 2 { 0 } else { 3 - from } };
            store
                .add(&Row::Minute(Minute { at_ms, pair, sent: 60, arrived: 60, answered: 60, rtt: None }))
                .unwrap();
        }
    };
    // One day of probes to two sites has 2880 minutes.
    craft(1, &mut (0..8000).map(|i| now / 60_000 * 60_000 + (i / 4 - 1500) * 60_000 + i % 4));
    craft(2, &mut [now, now + 365 * 86_400_000, now - 3 * 86_400_000, now + 1].into_iter());
    // A node keeps records for longer than the others.
    mesh.write("long.toml", "period = '1h'\nsize = '64k'\nretention_days = 30");
    let nodes = [mesh.node("sea"), mesh.node_with("sky", "long.toml", &[])];
    craft(0, &mut std::iter::empty());
    let (file, store, all) = (mesh.path("mesh.toml"), mesh.path("lab"), mesh.path("all"));
    let collected = mesh.run(&["collect", &file, "--site", "lab", "--store", &store, "--into", &all]);
    let printed = String::from_utf8_lossy(&collected.stderr);
    assert_eq!(collected.status.code(), Some(1), "{collected:?}");
    assert!(
        printed
            .contains("sea: the site sent more minutes of probes than its node can have recorded in 1 days"),
        "{printed}"
    );
    assert!(
        printed.contains("sky: skipping 2 records dated in the future or before the retention"),
        "{printed}"
    );
    let history = mesh.history("all");
    let of = |name: &str| {
        history.minutes.iter().filter(|m| history.sites[usize::from(m.pair.from)] == name).count()
    };
    assert!((2880..=2 * 2880 + 1000).contains(&of("sea")), "{}", of("sea"));
    assert!(of("sky") >= 2 && history.minutes.iter().all(|m| m.at_ms.abs_diff(now) <= 2 * 86_400_000));
    // Skipped records are not requested again.
    let again = mesh.run(&["collect", &file, "--site", "lab", "--store", &store, "--into", &all]);
    assert!(!String::from_utf8_lossy(&again.stderr).contains("dated in the future"), "{again:?}");
    nodes.into_iter().for_each(|node| drop(node.stop()));
}

#[test]
fn a_site_gets_only_its_own_keys_and_readable_keys_are_rejected() {
    let mesh = Mesh::new(&["lab", "sea"], "period = '2s'\nsize = '64k'");
    let (file, ring) = (mesh.path("mesh.toml"), mesh.path("sea.keys"));
    assert!(mesh.run(&["key", &file, "--site", "sea", "--out", &ring]).status.success());
    // It resolves lab's name after it has dropped privileges.
    let named = std::fs::read_to_string(&file).unwrap().replace("'127.0.0.1'", "'localhost'");
    std::fs::write(mesh.path("named.toml"), named).unwrap();
    let sea = mesh.node_with("sea", "named.toml", &["--key-file", &ring]);
    let lab = mesh.node("lab");
    mesh.until("sea", "transfers", |h| done(h) > 1);
    mesh.until("lab", "transfers", |h| done(h) > 1);
    let second = mesh.run(&["run", &file, "--site", "lab", "--store", &mesh.path("lab"), "-B", "127.0.0.9"]);
    let printed = String::from_utf8_lossy(&second.stderr);
    assert!(second.status.code() == Some(3) && printed.contains("another node uses this store"), "{printed}");
    sea.stop();
    lab.stop();
    let wrong = mesh.run(&["run", &file, "--site", "lab", "--key-file", &ring, "--store", &mesh.path("lab")]);
    let printed = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && printed.contains("belong to site sea"), "{printed}");
    std::fs::set_permissions(mesh.path("mesh.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = mesh.run(&["run", &file, "--site", "lab", "--store", &mesh.path("lab")]);
    let printed = String::from_utf8_lossy(&open.stderr);
    assert!(open.status.code() == Some(2) && printed.contains("chmod 600"), "{printed}");
    let whom = mesh.run(&["run", &file, "--site", "lap", "--store", &mesh.path("lab")]);
    let printed = String::from_utf8_lossy(&whom.stderr);
    assert!(whom.status.code() == Some(2) && printed.contains("did you mean `lab`?"), "{printed}");
}

#[test]
fn endless_files_and_foreign_stores_are_rejected() {
    let mesh = Mesh::new(&["lab", "sea"], "period = '2s'\nsize = '64k'");
    let pipe = mesh.path("pipe");
    nix::unistd::mkfifo(pipe.as_str(), nix::sys::stat::Mode::S_IRUSR).unwrap();
    let (file, store, table) = (mesh.path("mesh.toml"), mesh.path("lab"), mesh.path("t.csv"));
    for args in [
        vec!["check", &pipe],
        vec!["check", "/dev/zero"],
        vec!["run", &file, "--site", "lab", "--store", &store, "--key-file", &pipe],
        vec!["simulate", &file, &pipe],
        vec!["report", &pipe],
        vec!["export", &pipe, "--out", &table],
    ] {
        let output = mesh.run(&args);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2), "{args:?}: {output:?}");
        assert!(printed.contains("not a regular file"), "{args:?}: {printed}");
    }
}

#[test]
fn a_simulated_mesh_is_reported_and_errors_show_their_place() {
    let mesh = Mesh::new(&["lab", "sea"], "size = '1m'");
    let (file, paths, page) = (mesh.path("mesh.toml"), mesh.path("paths.toml"), mesh.path("day.html"));
    std::fs::write(&paths, "pool = 4\n[all]\nrate = '50mbit'\ndelay = '10ms'\n").unwrap();
    let reported =
        mesh.run(&["simulate", &file, &paths, "--duration", "30min", "--no-simulation", "--out", &page]);
    let printed = String::from_utf8_lossy(&reported.stdout);
    assert!(reported.status.success() && printed.contains("2 sites, 2 paths"), "{reported:?}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("<!doctype html>"));
    std::fs::write(&paths, "[all]\nrat = '50mbit'\n").unwrap();
    let wrong = mesh.run(&["simulate", &file, &paths]);
    let printed = String::from_utf8_lossy(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && printed.contains("paths.toml:2:1"), "{printed}");
}
