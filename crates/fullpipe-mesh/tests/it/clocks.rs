//! The wall clock of a running node is set: the node keeps running and its budget stays valid.

use fullpipe_mesh::clock::{Clock, Moment, SystemClock};
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::key::Keys;
use fullpipe_mesh::node::{Config, Handle, Node, Sockets};
use fullpipe_mesh::record::{Outcome, TransferError};
use fullpipe_mesh::store::Store;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Timeout for events that occur much sooner or never.
const PATIENCE: Duration = Duration::from_secs(120);
const HOUR_MS: i64 = 3_600_000;
/// Noon of 1 January 2026, UTC: far from the end of a day.
const NOON_MS: i64 = 1_767_268_800_000;

/// An adjustable wall clock with the host's monotonic clock.
#[derive(Clone, Default)]
struct AdjustableClock {
    host: Arc<SystemClock>,
    set_by_ms: Arc<AtomicI64>,
}

impl Clock for AdjustableClock {
    fn now(&self) -> Moment {
        let steady = self.host.now().steady;
        Moment { wall_ms: NOON_MS + steady.as_millis() as i64 + self.set_by_ms.load(Relaxed), steady }
    }
}

fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let free = |ip: &str| TcpListener::bind((ip, port)).is_ok() && UdpSocket::bind((ip, port)).is_ok();
        if free("127.0.0.1") && free("127.0.0.2") {
            return port;
        }
    }
}

fn node(mesh: &Mesh, site: u16, keys: &Keys, store: &Path, clock: &AdjustableClock) -> Node {
    std::fs::create_dir(store).unwrap();
    let address = mesh.sites[usize::from(site)].address.parse().unwrap();
    let sockets = Sockets::bind(mesh, site, Some(address)).unwrap();
    let config = Config {
        mesh: mesh.clone(),
        site,
        keys: keys.clone(),
        store: store.to_owned(),
        clock: Box::new(clock.clone()),
        log: Box::new(|_| ()),
    };
    Node::open(config, sockets).unwrap()
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "no {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Completed transfers, and those refused by the sender's budget.
fn counts(handle: &Handle) -> (u64, u64) {
    let tally = handle.tally();
    let mut all = (0, 0);
    for pair in tally.transfers.values() {
        all.0 += pair.done;
        all.1 += pair.failed.get(&TransferError::SenderBudget).copied().unwrap_or(0);
    }
    all
}

#[test]
fn setting_the_clock_neither_stops_a_node_nor_renews_its_budget() {
    let directory = tempfile::tempdir().unwrap();
    let keys = Keys::generate().unwrap();
    let text = format!(
        "[mesh]\nname = 'm'\nkey_file = 'k'\nport = {}\nperiod = '1s'\nsize = '64k'\ncontrollers = \
            ['cubic']\n\
         [[site]]\nname = 'lab'\naddress = '127.0.0.1'\nbudget = '6m/day'\n\
         [[site]]\nname = 'sea'\naddress = '127.0.0.2'\n",
        free_port()
    );
    let mesh = Mesh::parse("m.toml", &text).unwrap();
    let (clock, right) = (AdjustableClock::default(), AdjustableClock::default());
    let lab = node(&mesh, 0, &keys, &directory.path().join("lab"), &clock);
    let sea = node(&mesh, 1, &keys, &directory.path().join("sea"), &right);
    let (handle, other) = (lab.handle(), sea.handle());
    std::thread::scope(|scope| {
        // Stop the nodes even if the test fails.
        struct Ends<'a>([&'a Handle; 2]);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.iter().for_each(|handle| handle.stop());
            }
        }
        let ends = Ends([&handle, &other]);
        scope.spawn(|| lab.run().unwrap());
        scope.spawn(|| sea.run().unwrap());
        until("transfer", || counts(&handle).0 > 1 && counts(&other).0 > 1);
        let mut spent = handle.tally().spent;
        // An hour ahead, two hours back, years ahead, before 1970, and correct again.
        for set_by_ms in [HOUR_MS, -2 * HOUR_MS, 100_000 * HOUR_MS, -NOON_MS - HOUR_MS, 0] {
            clock.set_by_ms.store(set_by_ms, Relaxed);
            let (to, from) = (counts(&handle).0, counts(&other).0);
            until("transfers after the clock was set", || {
                counts(&handle).0 > to + 1 && counts(&other).0 > from + 1
            });
            // Unused parts of reservations are released in the meantime.
            let now = handle.tally().spent;
            assert!(now + (1 << 20) > spent, "{now} bytes after {spent}");
            spent = now;
        }
        until("end of the budget", || counts(&handle).1 > 1);
        for days in [2, -2, 400, 0] {
            clock.set_by_ms.store(days * 24 * HOUR_MS, Relaxed);
            let (arrived, refused) = counts(&handle);
            until("records of a spent budget", || counts(&handle).1 > refused + 1);
            assert_eq!(counts(&handle).0, arrived, "{days} days on");
        }
        let tally = handle.tally();
        assert!(tally.spent <= tally.budget, "{tally:?}");
        drop(ends);
    });
    let store = Store::read(&directory.path().join("lab")).unwrap();
    assert_eq!(store.integrity_error().unwrap(), None);
    let history = store.history(i64::MIN..i64::MAX).unwrap();
    let mut periods: Vec<i64> = history.transfers.iter().map(|t| t.period).collect();
    let records = periods.len();
    periods.dedup();
    assert_eq!(periods.len(), records, "a record a period");
    assert!(history.transfers.iter().any(|t| matches!(t.outcome, Outcome::Done(_))));
}
