//! A site's node: sends to all peers with each controller, receives, and stores its records.
//!
//! Threads, mostly idle: one per outgoing connection, one per incoming connection, one for UDP
//! probes, one for routes, one for store maintenance. They share `Shared`.

mod bucket;
mod event;
mod ledger;
mod line;
mod probes;
mod pull;
mod receiver;
mod routes;
mod sender;
mod stop;
mod tally;

pub use event::Event;
pub use pull::{PullError, PullSummary, collect, copy, delivery_delay};
pub use tally::{PairTally, ProbeTally, Tally};

use crate::budget::{Budget, BudgetError};
use crate::clock::{Clock, Moment, Timetable};
use crate::file::Mesh;
use crate::key::{KeyError, Keys, PairKey};
use crate::message::Row;
use crate::record::{ControllerId, SiteId};
use crate::schedule::Schedule;
use crate::store::{Store, StoreError};
use bucket::Bucket;
use fullpipe_kernel::socket;
use ledger::Ledger;
use line::Line;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use stop::{Stop, lock};

/// Maximum addresses of a host that are tried.
const MAX_ADDRESSES: usize = 4;
/// Stack size of the node's threads: they need little more than a read buffer.
const STACK_SIZE: usize = 256 << 10;
/// Interval between deletions of expired records.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(3600);
/// Interval between updates of the store's chunks.
const CHUNK_INTERVAL: Duration = Duration::from_secs(30);
/// A store of expired records shrinks by this part of its rows in each hour.
const DELETION_HOURS: u64 = 100;
/// Maximum rows of each table that are deleted, or added to chunks, while the store is locked.
const PIECE_ROWS: u32 = 5_000;
/// Pause between two pieces.
const PIECE_PAUSE: Duration = Duration::from_millis(2);

/// Configuration of a node.
pub struct Config {
    /// The mesh.
    pub mesh: Mesh,
    /// The node's site.
    pub site: SiteId,
    /// The node's keys.
    pub keys: Keys,
    /// Directory for records and the budget file.
    pub store: PathBuf,
    /// Source of time.
    pub clock: Box<dyn Clock>,
    /// Receives events.
    pub log: Box<dyn Fn(&Event) + Send + Sync>,
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A key is missing.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The budget file cannot be opened.
    #[error("{}: {source}", path.display())]
    Budget {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: BudgetError,
    },
    /// The port cannot be bound.
    #[error("cannot listen on port {port}: {source}")]
    Listen {
        /// The port.
        port: u16,
        /// The cause.
        source: io::Error,
    },
    /// A thread cannot be created.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// The sockets of a node, created before privileges are dropped.
#[derive(Debug)]
pub struct Sockets {
    listener: TcpListener,
    probes: UdpSocket,
}

impl Sockets {
    /// Binds the port of a site, TCP and UDP.
    ///
    /// # Errors
    /// If the port is in use.
    pub fn bind(mesh: &Mesh, site: SiteId, bind: Option<IpAddr>) -> Result<Sockets, StartError> {
        let port = mesh.sites[usize::from(site)].port;
        // Without IPv6 there is no dual-stack socket.
        let any = if has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = SocketAddr::new(bind.unwrap_or(any), port);
        let open = || -> io::Result<Sockets> {
            let listener = socket::tcp(address)?;
            // Connections of the previous run may still be in TIME_WAIT.
            setsockopt(&listener, sockopt::ReuseAddr, &true)?;
            bind_to(&listener, address)?;
            let listener = socket::listen(listener)?;
            let probes = socket::udp(address)?;
            bind_to(&probes, address)?;
            Ok(Sockets { listener, probes })
        };
        open().map_err(|source| StartError::Listen { port, source })
    }
}

fn has_ipv6() -> bool {
    socket::udp((Ipv6Addr::UNSPECIFIED, 0).into()).is_ok()
}

/// Binds a socket; the unspecified IPv6 address includes IPv4.
fn bind_to(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() {
        setsockopt(socket, sockopt::Ipv6V6Only, &false)?;
    }
    socket::bind(socket, address)
}

/// State shared by the threads of a node.
struct Shared {
    mesh: Mesh,
    site: SiteId,
    /// By site; `None` for the node's own site.
    keys: Vec<Option<PairKey>>,
    schedule: Schedule,
    clock: Box<dyn Clock>,
    timetable: Mutex<Timetable>,
    line: Line,
    ledger: Ledger,
    store: Mutex<RecordStore>,
    tally: Mutex<Tally>,
    /// The last address at which each site was reached.
    addresses: Mutex<Vec<Option<SocketAddr>>>,
    /// Rate limits per site.
    quotas: Mutex<Vec<Quota>>,
    /// When a rejected connection was last logged.
    rejection_logged: Mutex<Option<Instant>>,
    /// Sites whose route is to be traced.
    routes: Mutex<Vec<Option<Instant>>>,
    stop: Stop,
    log: Box<dyn Fn(&Event) + Send + Sync>,
}

/// Rate limits for one site over all its connections.
#[derive(Clone)]
struct Quota {
    /// Transfers: one period's worth, plus as many that were late.
    transfers: Bucket,
    /// Messages of any kind.
    messages: Bucket,
    /// Attempts to provide records.
    pushes: Bucket,
}

impl Quota {
    fn new(mesh: &Mesh, now: Moment) -> Quota {
        let of_a_period = mesh.controllers.len() as f64;
        Quota {
            transfers: Bucket::new(of_a_period / mesh.period.as_secs_f64(), 2.0 * of_a_period, now.steady),
            messages: Bucket::new(20.0, 100.0, now.steady),
            pushes: Bucket::new(2.0 / pull::sync_interval(mesh).as_secs_f64(), 4.0, now.steady),
        }
    }
}

/// The store and the number of failed writes.
struct RecordStore {
    store: Store,
    /// Records lost since the last successful write.
    lost: u64,
}

/// A node that is ready to run.
pub struct Node {
    shared: Arc<Shared>,
    sockets: Sockets,
    epoch: u64,
}

/// Stops a node from another thread and reads its counters.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Makes [`Node::run`] return.
    pub fn stop(&self) {
        self.0.stop.stop();
    }

    /// Whether the node was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.0.stop.is_stopped()
    }

    /// Sleeps for `time`; returns `false` early if the node stops.
    pub fn sleep(&self, time: Duration) -> bool {
        self.0.stop.sleep(time)
    }

    /// Counters since the start.
    pub fn tally(&self) -> Tally {
        let mut tally = lock(&self.0.tally).clone();
        (tally.spent, tally.budget) = self.0.ledger.spent(self.0.clock.now());
        tally
    }
}

impl Node {
    /// Opens the store and the budget.
    ///
    /// # Errors
    /// [`StartError`] says what is missing.
    pub fn open(config: Config, sockets: Sockets) -> Result<Node, StartError> {
        let Config { mesh, site, keys, store: path, clock, log } = config;
        let now = clock.now();
        let own = &mesh.sites[usize::from(site)];
        let keys = mesh.sites.iter().enumerate().map(|(i, other)| {
            (i != usize::from(site)).then(|| keys.pair(&mesh.name, &own.name, &other.name)).transpose()
        });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        let budget = Budget::open(&path, own.budget, now);
        let budget = budget.map_err(|source| StartError::Budget { path: path.clone(), source })?;
        let names = mesh.sites.iter().map(|s| s.name.as_str());
        let mut store = Store::open(&path, names, mesh.controllers.iter().map(String::as_str))?;
        store.set_period(mesh.period)?;
        let epoch = store.next_epoch(now.wall_ms.max(0) as u64)?;
        let sites = mesh.sites.len();
        let shared = Shared {
            schedule: Schedule::new(&mesh),
            timetable: Mutex::new(Timetable::new(mesh.period, now)),
            line: Line::new(mesh.together, site, sites, mesh.period.into(), mesh.limit.into()),
            ledger: Ledger::new(budget, sites, now),
            store: Mutex::new(RecordStore { store, lost: 0 }),
            tally: Mutex::new(Tally::new(&mesh, site)),
            addresses: Mutex::new(vec![None; sites]),
            quotas: Mutex::new(vec![Quota::new(&mesh, now); sites]),
            rejection_logged: Mutex::default(),
            routes: Mutex::new(vec![None; sites]),
            stop: Stop::default(),
            mesh,
            site,
            keys,
            clock,
            log,
        };
        Ok(Node { shared: Arc::new(shared), sockets, epoch })
    }

    /// A handle to the node.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Runs until stopped.
    ///
    /// # Errors
    /// If threads cannot be created or the listening socket fails.
    pub fn run(self) -> Result<(), StartError> {
        let Node { shared, sockets, epoch } = self;
        let port = shared.own().port;
        let listen = |source| StartError::Listen { port, source };
        sockets.listener.set_nonblocking(true).map_err(listen)?;
        shared.log(&Event::Started { site: shared.own().name.clone(), port });
        thread::scope(|scope| {
            let shared = &*shared;
            let started = (|| -> io::Result<()> {
                let named = |name: String| thread::Builder::new().name(name).stack_size(STACK_SIZE);
                for peer in shared.peers() {
                    for controller in 0..shared.mesh.controllers.len() as ControllerId {
                        let name = format!("to {}", shared.name(peer));
                        named(name).spawn_scoped(scope, move || sender::run(shared, peer, controller))?;
                    }
                }
                let probes = &sockets.probes;
                named("probes".into()).spawn_scoped(scope, move || probes::run(shared, probes, epoch))?;
                named("routes".into()).spawn_scoped(scope, move || routes::run(shared))?;
                named("store".into()).spawn_scoped(scope, move || shared.upkeep())?;
                if let Some(collector) = shared.mesh.collector {
                    named("records".into())
                        .spawn_scoped(scope, move || pull::sync_with_collector(shared, collector))?;
                }
                Ok(())
            })();
            let ran = match started {
                Ok(()) => receiver::listen(shared, scope, &sockets.listener).map_err(listen),
                Err(e) => Err(StartError::Thread(e)),
            };
            // Stop all threads, however the node ended.
            shared.stop.stop();
            ran
        })?;
        shared.ledger.close();
        shared.log(&Event::Stopped);
        Ok(())
    }
}

impl Shared {
    fn own(&self) -> &crate::file::Site {
        &self.mesh.sites[usize::from(self.site)]
    }

    fn name(&self, site: SiteId) -> &str {
        self.mesh.sites.get(usize::from(site)).map_or("?", |s| &s.name)
    }

    fn peers(&self) -> impl Iterator<Item = SiteId> + use<> {
        let own = self.site;
        (0..self.mesh.sites.len() as SiteId).filter(move |id| *id != own)
    }

    fn log(&self, event: &Event) {
        (self.log)(event);
    }

    fn now(&self) -> Moment {
        self.clock.now()
    }

    /// The number of the period, and how much of it has passed.
    fn period(&self) -> (i64, Duration) {
        lock(&self.timetable).at(self.clock.now())
    }

    /// Takes a token from one of a site's buckets; `false` if none is left.
    fn allows(&self, peer: SiteId, bucket: impl FnOnce(&mut Quota) -> &mut Bucket) -> bool {
        let now = self.now().steady;
        lock(&self.quotas).get_mut(usize::from(peer)).is_some_and(|quota| bucket(quota).try_take(now))
    }

    /// Waits until a site may send another message; `false` when the node stops. A flood of a
    /// member waits in its own connections.
    fn wait_for_message_quota(&self, peer: SiteId) -> bool {
        while !self.allows(peer, |quota| &mut quota.messages) {
            if !self.stop.sleep(Duration::from_millis(100)) {
                return false;
            }
        }
        true
    }

    fn key(&self, peer: SiteId) -> Option<&PairKey> {
        self.keys.get(usize::from(peer))?.as_ref()
    }

    /// Stores a record. The first failure of a series is logged, and the number of lost records
    /// after recovery.
    fn store_row(&self, row: &Row) {
        let mut records = lock(&self.store);
        match records.store.add(row) {
            Ok(()) => {
                let lost = std::mem::take(&mut records.lost);
                drop(records);
                if lost > 0 {
                    self.log(&Event::StoreRecovered { lost });
                }
            }
            Err(e) => {
                records.lost += 1;
                let first = records.lost == 1;
                drop(records);
                lock(&self.tally).lost += 1;
                if first {
                    self.log(&Event::StoreFailed { reason: e.to_string() });
                }
            }
        }
    }

    /// The addresses of a site: resolved again, or the last one that worked if resolution fails.
    fn resolve(&self, peer: SiteId) -> Vec<SocketAddr> {
        let site = &self.mesh.sites[usize::from(peer)];
        let resolved = (site.address.as_str(), site.port).to_socket_addrs();
        match resolved.map(|all| all.take(MAX_ADDRESSES).collect::<Vec<_>>()) {
            Ok(all) if !all.is_empty() => all,
            _ => lock(&self.addresses)[usize::from(peer)].into_iter().collect(),
        }
    }

    /// Remembers the address at which a site was reached.
    fn reached(&self, peer: SiteId, address: SocketAddr) {
        lock(&self.addresses)[usize::from(peer)] = Some(address);
    }

    /// Whether a peer was last reached at this address, or has it in the mesh file.
    fn is_address_of_peer(&self, ip: IpAddr) -> bool {
        lock(&self.addresses).iter().flatten().any(|known| known.ip().to_canonical() == ip.to_canonical())
    }

    /// Requests a route trace to a site.
    fn request_route(&self, peer: SiteId) {
        if let Some(wanted) = lock(&self.routes).get_mut(usize::from(peer)) {
            wanted.get_or_insert_with(Instant::now);
        }
    }

    /// Logs a rejected connection, at most one per second: peers decide how many there are.
    fn rejected(&self, from: IpAddr, reason: String) {
        let mut logged = lock(&self.rejection_logged);
        if logged.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
            *logged = Some(Instant::now());
            drop(logged);
            self.log(&Event::Rejected { from, reason });
        }
    }

    /// Deletes expired records and updates chunks, in pieces between which others use the store.
    fn upkeep(&self) {
        let mut deleted_at: Option<Duration> = None;
        loop {
            // A disk failure is reported when a record cannot be stored.
            let now = self.now();
            if deleted_at.is_none_or(|at| now.steady.saturating_sub(at) >= UPKEEP_INTERVAL) {
                deleted_at = Some(now.steady);
                let oldest = now.wall_ms - i64::from(self.mesh.retention_days) * 86_400_000;
                let stored = lock(&self.store).store.largest_table_rows().unwrap_or(0);
                let most = deletable_rows(self.rows_per_hour(), stored);
                let piece = most.min(PIECE_ROWS);
                self.in_pieces(most.div_ceil(piece), |store| Ok(store.delete_older_than(oldest, piece)? > 0));
            }
            self.in_pieces(u32::MAX, |store| store.update_chunks(PIECE_ROWS));
            if !self.stop.sleep(CHUNK_INTERVAL) {
                return;
            }
        }
    }

    /// Rows of a table that the store gets in an hour, at most.
    fn rows_per_hour(&self) -> u32 {
        let others = self.mesh.sites.len().saturating_sub(1);
        let senders = if self.mesh.collector == Some(self.site) { self.mesh.sites.len() } else { 1 };
        let periods = 3600.0 / self.mesh.period.as_secs_f64();
        let transfers = periods * self.mesh.controllers.len() as f64;
        ((others * senders) as f64 * transfers.max(60.0)).ceil().max(1.0) as u32
    }

    /// Repeats a piece of work on the store while it returns `true`, at most `most` times.
    fn in_pieces(&self, most: u32, piece: impl Fn(&mut Store) -> Result<bool, StoreError>) {
        for _ in 0..most {
            let more = piece(&mut lock(&self.store).store);
            // The pause lets other threads lock the store.
            if !matches!(more, Ok(true)) || !self.stop.sleep(PIECE_PAUSE) {
                return;
            }
        }
    }
}

/// Rows of a table that are deleted in an hour, at most, so that a wrong clock does not delete
/// everything at once: twice as many as the store gets, or more of a large store, whose mesh file had
/// a longer retention or a shorter period before.
fn deletable_rows(rows_per_hour: u32, stored: u64) -> u32 {
    let share = u32::try_from(stored / DELETION_HOURS).unwrap_or(u32::MAX);
    rows_per_hour.saturating_mul(2).max(share)
}

/// Whether an address belongs to this machine.
pub fn is_local(address: &str) -> bool {
    let Ok(mut all) = (address, 0).to_socket_addrs() else { return false };
    // Only local addresses can be bound.
    all.any(|a| !a.ip().is_unspecified() && UdpSocket::bind(a).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_store_is_deleted_within_weeks_and_not_at_once() {
        assert_eq!([0, 5000].map(|stored| deletable_rows(60, stored)), [120, 120]);
        // A year of records, of which a week is to be kept.
        let (rows_per_hour, week) = (60, 7 * 24 * 60);
        let (mut stored, mut hours) = (52 * week, 0);
        assert!(u64::from(deletable_rows(rows_per_hour, stored)) < stored / 50);
        while stored > 2 * week {
            stored += u64::from(rows_per_hour);
            stored -= u64::from(deletable_rows(rows_per_hour, stored));
            hours += 1;
        }
        assert!(hours < 4 * 7 * 24, "{hours} hours");
        assert_eq!(deletable_rows(u32::MAX, u64::MAX), u32::MAX);
    }
}
