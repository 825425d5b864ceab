//! A site's node: it sends to all others by each controller, is sent to, and keeps what it saw.
//!
//! Threads, each of which waits most of the time: one for each connection that the node keeps to another site, one for each that it
//! is called on, one for small probes, one for routes, one for the store's upkeep. What they share is `Shared`.

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
pub use pull::{PullError, Pulled, collect, copy};
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

/// Addresses of a host that are tried.
const MOST_ADDRESSES: usize = 4;
/// Threads of a node do little: what they need of a stack is a block to read into.
const STACK: usize = 256 << 10;
/// Between two looks for records that are too old.
const UPKEEP: Duration = Duration::from_secs(3600);
/// Records of each kind that go at once: an hour's of a mesh of the largest size.
const FORGET: u32 = 40_000;

/// What a node is to do.
pub struct Config {
    /// The mesh.
    pub mesh: Mesh,
    /// Which of its sites this is.
    pub site: SiteId,
    /// Its keys.
    pub keys: Keys,
    /// A directory of its own, for records and the budget's account.
    pub store: PathBuf,
    /// What time it is.
    pub clock: Box<dyn Clock>,
    /// Gets what happens.
    pub log: Box<dyn Fn(&Event) + Send + Sync>,
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A key is missing.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The budget's account.
    #[error("{}: {source}", path.display())]
    Budget {
        /// The directory.
        path: PathBuf,
        /// What.
        source: BudgetError,
    },
    /// Its port.
    #[error("cannot listen on port {port}: {source}")]
    Listen {
        /// Which.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// The sockets of a node, which are made before it gives up its privileges.
#[derive(Debug)]
pub struct Sockets {
    listener: TcpListener,
    probes: UdpSocket,
}

impl Sockets {
    /// Listens on the port of a site, TCP and UDP.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn bind(mesh: &Mesh, site: SiteId, bind: Option<IpAddr>) -> Result<Sockets, StartError> {
        let port = mesh.sites[usize::from(site)].port;
        // Without IPv6 there is no address of both kinds.
        let any = if has_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = SocketAddr::new(bind.unwrap_or(any), port);
        let open = || -> io::Result<Sockets> {
            let listener = socket::tcp(address)?;
            // Connections of the run before may still be closing.
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

/// Binds a socket to an address, with those of IPv4 if it is any.
fn bind_to(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    if address.is_ipv6() {
        setsockopt(socket, sockopt::Ipv6V6Only, &false)?;
    }
    socket::bind(socket, address)
}

/// What the threads of a node share.
struct Shared {
    mesh: Mesh,
    site: SiteId,
    /// By site; none for itself.
    keys: Vec<Option<PairKey>>,
    schedule: Schedule,
    clock: Box<dyn Clock>,
    timetable: Mutex<Timetable>,
    line: Line,
    ledger: Ledger,
    store: Mutex<Keeper>,
    tally: Mutex<Tally>,
    /// Where sites were reached last.
    addresses: Mutex<Vec<Option<SocketAddr>>>,
    /// What sites may ask of this one.
    quotas: Mutex<Vec<Quota>>,
    /// When a caller that was not let in was told of.
    told: Mutex<Option<Instant>>,
    /// Sites whose route is to be asked for.
    routes: Mutex<Vec<Option<Instant>>>,
    stop: Stop,
    log: Box<dyn Fn(&Event) + Send + Sync>,
}

/// What one site may ask of this one, over all its connections: whoever calls decides how often.
#[derive(Clone)]
struct Quota {
    /// Transfers: what a period has, and as many again that were late.
    transfers: Bucket,
    /// Messages of any kind.
    messages: Bucket,
}

impl Quota {
    fn new(mesh: &Mesh, now: Moment) -> Quota {
        let of_a_period = mesh.controllers.len() as f64;
        Quota {
            transfers: Bucket::new(of_a_period / mesh.period.as_secs_f64(), 2.0 * of_a_period, now.steady),
            messages: Bucket::new(20.0, 100.0, now.steady),
        }
    }
}

/// The store, and whether it takes what it is given.
struct Keeper {
    store: Store,
    /// Records that were lost since it last took one.
    lost: u64,
}

/// A node that was started.
pub struct Node {
    shared: Arc<Shared>,
    sockets: Sockets,
    epoch: u64,
}

/// Ends a node from another thread, and tells what it has seen.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Makes [`Node::run`] return.
    pub fn stop(&self) {
        self.0.stop.stop();
    }

    /// Whether it was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.0.stop.is_stopped()
    }

    /// Sleeps for so long, or until the node ends; says whether it goes on.
    pub fn sleep(&self, time: Duration) -> bool {
        self.0.stop.sleep(time)
    }

    /// What it has seen since it started.
    pub fn tally(&self) -> Tally {
        let mut tally = lock(&self.0.tally).clone();
        (tally.spent, tally.budget) = self.0.ledger.spent(self.0.clock.now());
        tally
    }
}

impl Node {
    /// Opens store and budget.
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
            line: Line::new(mesh.together),
            ledger: Ledger::new(budget),
            store: Mutex::new(Keeper { store, lost: 0 }),
            tally: Mutex::new(Tally::new(&mesh, site)),
            addresses: Mutex::new(vec![None; sites]),
            quotas: Mutex::new(vec![Quota::new(&mesh, now); sites]),
            told: Mutex::default(),
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

    /// To end it, and to ask it.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Runs until it is stopped.
    ///
    /// # Errors
    /// When the system gives no threads, or the listening socket fails.
    pub fn run(self) -> Result<(), StartError> {
        let Node { shared, sockets, epoch } = self;
        let port = shared.own().port;
        let listen = |source| StartError::Listen { port, source };
        sockets.listener.set_nonblocking(true).map_err(listen)?;
        shared.log(&Event::Started { site: shared.own().name.clone(), port });
        thread::scope(|scope| {
            let shared = &*shared;
            let started = (|| -> io::Result<()> {
                let named = |name: String| thread::Builder::new().name(name).stack_size(STACK);
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
                        .spawn_scoped(scope, move || pull::give_and_take(shared, collector))?;
                }
                Ok(())
            })();
            let ran = match started {
                Ok(()) => receiver::listen(shared, scope, &sockets.listener).map_err(listen),
                Err(e) => Err(StartError::Thread(e)),
            };
            // However it ended, nothing of it goes on.
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

    /// Takes from what a site may ask; says whether there was any left.
    fn may(&self, peer: SiteId, what: impl FnOnce(&mut Quota) -> &mut Bucket) -> bool {
        let now = self.now().steady;
        lock(&self.quotas).get_mut(usize::from(peer)).is_some_and(|quota| what(quota).take(now))
    }

    fn key(&self, peer: SiteId) -> Option<&PairKey> {
        self.keys.get(usize::from(peer))?.as_ref()
    }

    /// Keeps a record. Where that fails it is said once, and what was lost when it works again.
    fn keep(&self, row: &Row) {
        let mut keeper = lock(&self.store);
        match keeper.store.add(row) {
            Ok(()) => {
                let lost = std::mem::take(&mut keeper.lost);
                drop(keeper);
                if lost > 0 {
                    self.log(&Event::Kept { lost });
                }
            }
            Err(e) => {
                keeper.lost += 1;
                let first = keeper.lost == 1;
                drop(keeper);
                lock(&self.tally).lost += 1;
                if first {
                    self.log(&Event::NotKept { reason: e.to_string() });
                }
            }
        }
    }

    /// Where a site is to be reached: asked anew, or where it was last if nobody answers.
    fn resolve(&self, peer: SiteId) -> Vec<SocketAddr> {
        let site = &self.mesh.sites[usize::from(peer)];
        let asked = (site.address.as_str(), site.port).to_socket_addrs();
        match asked.map(|all| all.take(MOST_ADDRESSES).collect::<Vec<_>>()) {
            Ok(all) if !all.is_empty() => all,
            _ => lock(&self.addresses)[usize::from(peer)].into_iter().collect(),
        }
    }

    /// Where a site has been reached.
    fn reached(&self, peer: SiteId, address: SocketAddr) {
        lock(&self.addresses)[usize::from(peer)] = Some(address);
    }

    /// Asks for the route to a site, some time.
    fn wants_route(&self, peer: SiteId) {
        if let Some(wanted) = lock(&self.routes).get_mut(usize::from(peer)) {
            wanted.get_or_insert_with(Instant::now);
        }
    }

    /// Tells of a caller that was not let in; of a crowd of them one a second, for they decide how many there are.
    fn rejected(&self, from: IpAddr, reason: String) {
        let mut told = lock(&self.told);
        if told.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
            *told = Some(Instant::now());
            drop(told);
            self.log(&Event::Rejected { from, reason });
        }
    }

    fn upkeep(&self) {
        loop {
            let oldest = self.now().wall_ms - i64::from(self.mesh.retention_days) * 86_400_000;
            // A failure is the disk's, and told when a record cannot be kept.
            let _ = lock(&self.store).store.forget(oldest, FORGET);
            if !self.stop.sleep(UPKEEP) {
                return;
            }
        }
    }
}

/// Whether an address is this machine's.
pub fn is_local(address: &str) -> bool {
    let Ok(mut all) = (address, 0).to_socket_addrs() else { return false };
    // What is not a host's own cannot be bound to.
    all.any(|a| !a.ip().is_unspecified() && UdpSocket::bind(a).is_ok())
}
