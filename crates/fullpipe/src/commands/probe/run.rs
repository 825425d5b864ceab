//! `fullpipe probe run`: the node of a site.

use super::metrics;
use super::report::REPORT_RECORDS;
use crate::confined::confine;
use crate::failure::Failure;
use crate::secret;
use fullpipe_kernel::confine::{Capability, Confinement, FileAccess, become_user};
use fullpipe_kernel::signals;
use fullpipe_live::export::{Page, Pages, Server, Settings};
use fullpipe_mesh::clock;
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::live::LiveChanges;
use fullpipe_mesh::node::{self, Config, Event, Handle, Node, Sockets, StartError};
use fullpipe_mesh::record::{SiteId, TransferError};
use fullpipe_mesh::report::{DetectedChanges, Report, Summary, page};
use fullpipe_mesh::store::{Directory, Store, StoreError};
use fullpipe_report::{About, escape_html};
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Run this site's probe
///
/// Sends to all other sites, receives from them, and records every transfer.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    member: super::Member,
    /// Address to receive transfers and probes on [default: all IPv4 and IPv6 addresses]
    #[arg(short = 'B', long, value_name = "IP")]
    bind: Option<IpAddr>,
    /// Address and port to serve HTTP at: Prometheus metrics at /metrics, a report on the last 24
    /// hours at / [default: no server]
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// File with a bearer token in its first line, which scrapers must present
    #[arg(long, value_name = "FILE", requires = "listen", value_hint = clap::ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// User to switch to once the ports are open [default: the store's owner or `nobody`, if
    /// started by root]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Log successful transfers too, not only failures
    #[arg(long)]
    verbose: bool,
}

/// Time between updates of the metrics.
const UPDATE_INTERVAL: Duration = Duration::from_secs(5);

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (mesh, site, keys) = self.member.read()?;
        let settings =
            Settings { token: self.token_file.as_deref().map(secret::read).transpose()?, tls: None };
        let sockets = Sockets::bind(&mesh, site, self.bind).map_err(failure)?;
        let metrics = self.listen.map(|address| Server::bind(address, &settings)).transpose();
        let metrics = metrics.map_err(Failure::usage)?;
        let directory = prepare_store(&self.member.store, self.user.as_deref())?;
        let store = directory.path().to_owned();
        // Before the store is opened, so that its files are those of this directory, and before other
        // threads are started, since those would keep the privileges.
        drop_privileges(&directory)?;

        let config = Config {
            mesh: mesh.clone(),
            site,
            keys,
            store: store.clone(),
            clock: Box::new(clock::SystemClock::default()),
            log: Box::new(log(self.verbose)),
        };
        let node = Node::open(config, sockets).map_err(failure)?;
        let (handle, stopping) = (node.handle(), node.handle());
        signals::on_termination(move || stopping.stop()).map_err(|e| Failure::Impossible(e.to_string()))?;
        let Some(server) = metrics else { return node.run().map_err(failure) };
        let address = server.address().map_err(|e| Failure::Impossible(e.to_string()))?;
        eprintln!("metrics at http://{address}/metrics, report on the last day at http://{address}/");
        let stopper = server.stopper();
        let live = Arc::new(LiveChanges::new(&mesh, site, store.clone()));
        let (name, changes) = (mesh.name.clone(), Arc::clone(&live));
        let pages = Pages::default().with_front(move || last_day(&store, &name, &changes).into_bytes());
        publish(&pages, &mesh, site, &handle);
        std::thread::scope(|scope| {
            let update = || {
                while handle.sleep(UPDATE_INTERVAL) {
                    publish(&pages, &mesh, site, &handle);
                }
                stopper.stop();
            };
            let serve = || {
                let served = server.run(&pages);
                handle.stop();
                served
            };
            let served = Builder::new().spawn_scoped(scope, update).and_then(|_| {
                Builder::new().spawn_scoped(scope, || live.run(now_ms, |time| handle.sleep(time)))?;
                Builder::new().spawn_scoped(scope, serve)
            });
            // What has started ends with the node.
            let served = served.inspect_err(|_| handle.stop());
            let served = served.map_err(|e| Failure::Impossible(format!("cannot start a thread: {e}")))?;
            let ran = node.run().map_err(failure);
            handle.stop();
            match served.join() {
                Ok(served) => ran.and(served.map_err(|e| Failure::Impossible(e.to_string()))),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// Records that are dated later than this after the present are not in the page.
pub(super) const MAX_CLOCK_DIFFERENCE_MS: i64 = 600_000;

/// The wall clock, milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// The report on the last day as a page, or on a shorter time for more records than those of 64
/// sites; or the reason why the store cannot be read.
fn last_day(store: &Path, mesh: &str, live: &LiveChanges) -> String {
    let now = now_ms();
    // Clocks differ; but a member's records of tomorrow must not displace those of today.
    let day = now - 86_400_000..now.saturating_add(MAX_CLOCK_DIFFERENCE_MS);
    let render = |store: Store| {
        let mut records = store.load_compact(day, REPORT_RECORDS)?;
        records.limit_names()?;
        let summary = Summary::new(records)?;
        // Right after the start, none have been looked for.
        let detected = live.detected(&summary.head);
        let detected =
            detected.unwrap_or(DetectedChanges { from_ms: Some(now), ..DetectedChanges::default() });
        let report = Report::from_summary(&summary, detected);
        let about = About { title: format!("Mesh {mesh}"), command: String::new() };
        Ok(page(&summary, &report, &about))
    };
    Store::read(store).and_then(render).unwrap_or_else(|e: StoreError| {
        format!("<!doctype html><title>fullpipe probe</title><p>{}", escape_html(&e.to_string()))
    })
}

fn publish(pages: &Pages, mesh: &Mesh, site: SiteId, handle: &Handle) {
    pages.publish(Page::render(&metrics::families(mesh, site, &handle.tally())));
}

fn failure(error: StartError) -> Failure {
    match error {
        StartError::Key(_) => Failure::usage(error),
        _ => Failure::Impossible(error.to_string()),
    }
}

/// Time between messages that transfers queue.
const QUEUED_MESSAGE_INTERVAL: Duration = Duration::from_secs(3600);

/// Logs events on stderr. Of consecutive equal failures, logs the first and the recovery.
fn log(verbose: bool) -> impl Fn(&Event) + Send + Sync {
    /// What has been logged.
    #[derive(Default)]
    struct Logged {
        /// The last failure by receiver and controller.
        troubles: HashMap<(String, String), TransferError>,
        queued: Option<Instant>,
    }
    let logged: Mutex<Logged> = Mutex::default();
    move |event| {
        let mut logged = logged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Logged { troubles, queued } = &mut *logged;
        let is_new = match event {
            Event::Failed { to, controller, error } => {
                troubles.insert((to.clone(), controller.clone()), *error) != Some(*error)
            }
            Event::Done { to, controller, .. } => {
                troubles.remove(&(to.clone(), controller.clone())).is_some()
            }
            Event::Late { .. } => {
                let is_new = queued.is_none_or(|at| at.elapsed() >= QUEUED_MESSAGE_INTERVAL);
                if is_new {
                    *queued = Some(Instant::now());
                }
                is_new
            }
            _ => true,
        };
        if is_new || verbose {
            eprintln!("{event}");
        }
    }
}

/// Creates the directory of the store if needed. If started by root, switches to the user who owns
/// it.
fn prepare_store(path: &Path, user: Option<&str>) -> Result<Directory, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::usage(format!("--store {}: {e}", path.display()));
    let directory = Directory::open(path, 0o700).map_err(|e| failed(&e))?;
    if !Uid::effective().is_root() && user.is_none() {
        return Ok(directory);
    }
    let owner = directory.owner().as_raw();
    let found = match user {
        Some(name) => User::from_name(name),
        None if owner != 0 => User::from_uid(Uid::from_raw(owner)),
        None => User::from_name("nobody"),
    };
    let name = user.unwrap_or("the user to run as");
    let found = match found {
        Ok(Some(found)) => (found.uid, found.gid),
        // An owner without a name is valid.
        Ok(None) if user.is_none() && owner != 0 => (Uid::from_raw(owner), Gid::from_raw(owner)),
        Ok(None) => return Err(Failure::usage(format!("--user {name}: unknown user"))),
        Err(e) => return Err(Failure::usage(format!("--user {name}: {e}"))),
    };
    let (uid, gid) = found;
    // In a user namespace without other users, neither is possible.
    let impossible = |e: &std::io::Error| {
        matches!(e.raw_os_error().map(Errno::from_raw), Some(Errno::EPERM | Errno::EINVAL))
    };
    if let Err(e) = directory.give_to(uid, gid).and_then(|()| become_user(uid, gid)) {
        if !impossible(&e) {
            return Err(failed(&e));
        }
        if user.is_some() {
            return Err(Failure::usage(format!("--user {name}: cannot switch to this user: {e}")));
        }
        // In a user namespace that maps no other user, root has no privileges outside.
        eprintln!("note: still running as root: {e}");
    }
    Ok(directory)
}

/// Drops everything but the store, the network, and name resolution.
fn drop_privileges(store: &Directory) -> Result<(), Failure> {
    let readable = ["/etc", "/run/systemd/resolve", "/proc/sys/net/ipv4"].map(Path::new);
    let confinement = Confinement {
        // For controllers that only root may use.
        capabilities: &[Capability::NetAdmin],
        access: FileAccess::Peer { readable: &readable, writable: &[&store.descriptor_path()] },
        connect: &[],
    };
    confine(&confinement)
}

pub(super) fn own_site(mesh: &Mesh) -> Result<SiteId, Failure> {
    let local: Vec<usize> =
        (0..mesh.sites.len()).filter(|i| node::is_local(&mesh.sites[*i].address)).collect();
    match local[..] {
        [one] => Ok(one as SiteId),
        [] => Err(Failure::usage(
            "no site has an address of this machine: name this site with --site (always needed behind NAT)",
        )),
        _ => Err(Failure::usage("several sites have addresses of this machine: name this site with --site")),
    }
}
