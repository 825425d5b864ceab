//! `fullpipe probe run`: a site's node.

use super::metrics;
use crate::confined::confine;
use crate::failure::Failure;
use crate::secret;
use fullpipe_kernel::confine::{Capability, Confinement, FileAccess, become_user};
use fullpipe_kernel::signals;
use fullpipe_live::export::{Page, Pages, Server, Settings};
use fullpipe_mesh::clock;
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::node::{self, Config, Event, Handle, Node, Sockets, StartError};
use fullpipe_mesh::record::{SiteId, TransferError};
use fullpipe_mesh::report::{Report, page};
use fullpipe_mesh::store::Store;
use fullpipe_report::{About, escape_html};
use nix::unistd::{Gid, Uid, User};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Run this site of a mesh: send to all others, be sent to by them, and keep what each transfer came to
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    member: super::Member,
    /// Address to take transfers and probes at [default: all, IPv4 and IPv6]
    #[arg(short = 'B', long, value_name = "IP")]
    bind: Option<IpAddr>,
    /// Serve metrics for Prometheus at this address, and a page of the last day
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// File with a bearer token in its first line, which whoever asks for metrics must show
    #[arg(long, value_name = "FILE", requires = "listen", value_hint = clap::ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// User to become once the ports are open [default: the store's owner, or nobody, where root starts it]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Also say what arrives, and not only what is wrong
    #[arg(long)]
    verbose: bool,
}

/// Between two renewals of the metrics.
const RENEWED: Duration = Duration::from_secs(5);

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (mesh, site, keys) = self.member.read()?;
        let settings =
            Settings { token: self.token_file.as_deref().map(secret::read).transpose()?, tls: None };
        let sockets = Sockets::bind(&mesh, site, self.bind).map_err(failure)?;
        let metrics = self.listen.map(|address| Server::bind(address, &settings)).transpose();
        let metrics = metrics.map_err(Failure::usage)?;
        let store = own_directory(&self.member.store, self.user.as_deref())?;

        let config = Config {
            mesh: mesh.clone(),
            site,
            keys,
            store: store.clone(),
            clock: Box::new(clock::SystemClock::default()),
            log: Box::new(log(self.verbose)),
        };
        let node = Node::open(config, sockets).map_err(failure)?;
        // Before there is another thread, which would go on as it was.
        confined(&store)?;
        let (handle, ends) = (node.handle(), node.handle());
        signals::on_termination(move || ends.stop()).map_err(|e| Failure::Impossible(e.to_string()))?;
        let Some(server) = metrics else { return node.run().map_err(failure) };
        let address = server.address().map_err(|e| Failure::Impossible(e.to_string()))?;
        eprintln!("metrics at http://{address}/metrics, what the last day was like at http://{address}/");
        let stopper = server.stopper();
        let name = mesh.name.clone();
        let pages = Pages::default().with_front(move || last_day(&store, &name).into_bytes());
        publish(&pages, &mesh, site, &handle);
        std::thread::scope(|scope| {
            let renews = || {
                while handle.sleep(RENEWED) {
                    publish(&pages, &mesh, site, &handle);
                }
                stopper.stop();
            };
            scope.spawn(renews);
            let served = scope.spawn(|| {
                let served = server.run(&pages);
                handle.stop();
                served
            });
            let ran = node.run().map_err(failure);
            handle.stop();
            match served.join() {
                Ok(served) => ran.and(served.map_err(|e| Failure::Impossible(e.to_string()))),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// The newest day of the store as a page; if it cannot be read, why.
fn last_day(store: &Path, mesh: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let from = i64::try_from(now.as_millis()).unwrap_or(i64::MAX) - 86_400_000;
    match Store::read(store).and_then(|store| store.history(from..i64::MAX)) {
        Ok(history) => {
            let about = About { title: format!("Mesh {mesh}"), command: String::new() };
            page(&history, &Report::new(&history, false), &about)
        }
        Err(e) => format!("<!doctype html><title>fullpipe probe</title><p>{}", escape_html(&e.to_string())),
    }
}

fn publish(pages: &Pages, mesh: &Mesh, site: SiteId, handle: &Handle) {
    pages.publish(Page::of(&metrics::families(mesh, site, &handle.tally())));
}

fn failure(error: StartError) -> Failure {
    match error {
        StartError::Key(_) => Failure::usage(error),
        _ => Failure::Impossible(error.to_string()),
    }
}

/// Between two times that it is said that transfers queue.
const QUEUED_EVERY: Duration = Duration::from_secs(3600);

/// Events on stderr. Of a row of failures the first is said, and that it is over.
fn log(verbose: bool) -> impl Fn(&Event) + Send + Sync {
    /// What is known already.
    #[derive(Default)]
    struct Said {
        /// By receiver and controller.
        troubles: HashMap<(String, String), TransferError>,
        queued: Option<Instant>,
    }
    let said: Mutex<Said> = Mutex::default();
    move |event| {
        let mut said = said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Said { troubles, queued } = &mut *said;
        let news = match event {
            Event::Failed { to, controller, error } => {
                troubles.insert((to.clone(), controller.clone()), *error) != Some(*error)
            }
            Event::Done { to, controller, .. } => {
                troubles.remove(&(to.clone(), controller.clone())).is_some()
            }
            Event::Late { .. } => {
                let news = queued.is_none_or(|at| at.elapsed() >= QUEUED_EVERY);
                if news {
                    *queued = Some(Instant::now());
                }
                news
            }
            _ => true,
        };
        if news || verbose {
            eprintln!("{event}");
        }
    }
}

/// The directory of the store, made if there is none; and, where root runs this, whoever it belongs to is become.
fn own_directory(path: &Path, user: Option<&str>) -> Result<PathBuf, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::usage(format!("--store {}: {e}", path.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| failed(&e))?;
    let path = path.canonicalize().map_err(|e| failed(&e))?;
    if !Uid::effective().is_root() && user.is_none() {
        return Ok(path);
    }
    let owner = std::fs::metadata(&path).map_err(|e| failed(&e))?.uid();
    let found = match user {
        Some(name) => User::from_name(name),
        None if owner != 0 => User::from_uid(Uid::from_raw(owner)),
        None => User::from_name("nobody"),
    };
    let named = user.unwrap_or("the user to run as");
    let found = match found {
        Ok(Some(found)) => (found.uid, found.gid),
        // An owner without a name is one all the same.
        Ok(None) if user.is_none() && owner != 0 => (Uid::from_raw(owner), Gid::from_raw(owner)),
        Ok(None) => return Err(Failure::usage(format!("--user {named}: there is no such user"))),
        Err(e) => return Err(Failure::usage(format!("--user {named}: {e}"))),
    };
    let (uid, gid) = found;
    let give = || -> std::io::Result<()> {
        chown(&path, Some(uid.as_raw()), Some(gid.as_raw()))?;
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                chown(entry.path(), Some(uid.as_raw()), Some(gid.as_raw()))?;
            }
        }
        Ok(())
    };
    if let Err(e) = give().and_then(|()| become_user(uid, gid)) {
        if user.is_some() {
            return Err(Failure::usage(format!("--user {named}: cannot become it: {e}")));
        }
        // In a user namespace with no other user, root is nobody outside.
        eprintln!("note: it stays root: {e}");
    }
    Ok(path)
}

/// Gives up all but its store, its network, and looking up hosts.
fn confined(store: &Path) -> Result<(), Failure> {
    let readable = ["/etc", "/run/systemd/resolve", "/proc/sys/net/ipv4"].map(Path::new);
    let confinement = Confinement {
        // For controllers that are kept from users.
        capabilities: &[Capability::NetAdmin],
        access: FileAccess::Peer { readable: &readable, writable: &[store] },
    };
    confine(&confinement)
}

pub(super) fn own_site(mesh: &Mesh) -> Result<SiteId, Failure> {
    let local: Vec<usize> =
        (0..mesh.sites.len()).filter(|i| node::is_local(&mesh.sites[*i].address)).collect();
    match local[..] {
        [one] => Ok(one as SiteId),
        [] => Err(Failure::usage(
            "no site's address is this machine's: --site NAME says which it is (behind a translated address it always has to)",
        )),
        _ => Err(Failure::usage(
            "the addresses of several sites are this machine's: --site NAME says which it is",
        )),
    }
}
