//! `fullpipe export`: the host's own connections as metrics.

use super::host::Target;
use crate::confined::confine;
use crate::failure::Failure;
use crate::secret;
use fullpipe_host::host::Host;
use fullpipe_host::journal::Store;
use fullpipe_host::status;
use fullpipe_kernel::confine::{Capability, Confinement, FileAccess};
use fullpipe_kernel::{facts, signals};
use fullpipe_live::export::{
    By, Classes, Family, Metric, Page, Pages, Sample, Server, Settings, Stopper, Tally, Tls,
};
use fullpipe_live::{Filter, LookError, Reader};
use fullpipe_units::Span;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::Uid;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Export the host's connections as metrics for Prometheus: rates, round trips, queues, losses, limits, BBR's beliefs
///
/// Counted by controller and class, never by connection: at most 2000 series whatever the load. Nothing is changed, and
/// no root is needed: what root's rights are not needed for is given up. The units, dashboard and alert rules are in the
/// packaging folder of the source.
#[derive(clap::Args)]
pub struct Args {
    /// Address to listen on; port 0 takes a free one and says which
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9411")]
    listen: SocketAddr,
    /// Time between two looks; a scrape gets the last one
    #[arg(long, value_name = "TIME", default_value = "5s")]
    interval: Span,
    /// Only connections that this filter wants, as for `fullpipe watch`
    #[arg(long, value_name = "FILTER", default_value = "")]
    only: String,
    /// A class by a filter, such as `london=dst 10.1.0.0/16`; may be repeated, the first that fits counts
    #[arg(long = "class", value_name = "NAME=FILTER")]
    classes: Vec<Class>,
    /// How connections are told apart that no class takes
    #[arg(long, value_enum, value_name = "WHAT", default_value = "port")]
    by: What,
    /// Ports that are told apart, the own one before the other end's
    #[arg(long, value_name = "PORTS", value_delimiter = ',', default_value = "22,80,443")]
    ports: Vec<u16>,
    /// File with a bearer token in its first line, which scrapers must show
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Certificate in PEM, with those up to the authority: TLS only
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = clap::ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,
    /// Private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    Port,
    Unit,
    Container,
}

#[derive(Clone)]
struct Class(String, Filter);

impl FromStr for Class {
    type Err = String;
    fn from_str(text: &str) -> Result<Class, String> {
        let Some((name, filter)) = text.split_once('=').filter(|(name, _)| !name.trim().is_empty()) else {
            return Err("write NAME=FILTER, for example 'web=sport = :443'".to_owned());
        };
        let filter = Filter::parse(filter.trim()).map_err(|e| e.to_string())?;
        Ok(Class(name.trim().to_owned(), filter))
    }
}

/// Between two looks at files, journal and namespaces: they change seldom.
const HOST_EVERY: Duration = Duration::from_secs(60);
/// A shorter time between two looks would only make the host busy.
const SHORTEST: Span = Span::from_millis(100);

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.interval < SHORTEST {
            return Err(Failure::usage(
                "--interval: at least 100ms: each look goes through all sockets of the host",
            ));
        }
        let only = Filter::parse(&self.only).map_err(Failure::usage)?;
        let by = match self.by {
            What::Port => By::Port(self.ports),
            What::Unit => By::Unit,
            What::Container => By::Container,
        };
        let classes =
            Classes::new(self.classes.into_iter().map(|Class(name, filter)| (name, filter)).collect(), by);
        let mut reader = Reader::open(only).map_err(impossible)?;
        #[cfg(feature = "ebpf")]
        {
            reader = reader.with_beliefs(Box::new(super::beliefs::Loaded::at_once()));
        }
        let asks_for_owners = classes.asks_for_owners() || reader.filter().asks_for_owners();
        if !classes.asks_for_owners() {
            reader = reader.without_owners();
        }
        let settings = Settings {
            token: self.token_file.as_deref().map(secret::read).transpose()?,
            tls: self.tls_cert.zip(self.tls_key).map(|(certificate, key)| Tls { certificate, key }),
        };
        let (host, store) = self.target.open()?;
        let host = HostMetrics { host, store, known: Vec::new(), at: None, complained: false };
        let server = Server::bind(self.listen, &settings).map_err(Failure::usage)?;
        let address = server.address().map_err(|e| Failure::Impossible(e.to_string()))?;
        // Before there is another thread, which would go on as it was.
        confined(asks_for_owners)?;

        let (stop, stopper) = (Arc::new(AtomicBool::new(false)), server.stopper());
        let flag = Arc::clone(&stop);
        signals::on_termination(move || {
            flag.store(true, Relaxed);
            stopper.stop();
        })
        .map_err(|e| Failure::Impossible(e.to_string()))?;

        let mut exported = Exported { reader, tally: Tally::new(classes), host, pages: Pages::default() };
        // What a first scrape gets is whole.
        exported.tally.add(&exported.reader.look().map_err(impossible)?);
        exported.publish();
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        eprintln!("metrics at {scheme}://{address}/metrics");
        if !address.ip().is_loopback() && settings.token.is_none() {
            eprintln!("note: whoever reaches {address} may read them; --token-file asks for a token");
        }
        exported.serve(server, Duration::from(self.interval), &stop)
    }
}

/// What is looked at, and what a scrape gets of it.
struct Exported {
    reader: Reader,
    tally: Tally,
    host: HostMetrics,
    pages: Pages,
}

impl Exported {
    /// Hands the pages out, renewed `every` so often, until it is to `stop`.
    fn serve(mut self, server: Server, every: Duration, stop: &AtomicBool) -> Result<(), Failure> {
        let (ends, pages) = (server.stopper(), self.pages.clone());
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let served = server.run(&pages);
                stop.store(true, Relaxed);
                served
            });
            // Nobody shall be served what is never renewed again.
            let _renewed = Ends(&ends);
            let mut next = Instant::now() + every;
            while !stop.load(Relaxed) {
                let left = next.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    std::thread::sleep(left.min(Duration::from_millis(100)));
                    continue;
                }
                self.look();
                // After it: a look that takes longer than the interval must not be followed by another at once.
                next = Instant::now() + every;
            }
            match served.join() {
                Ok(served) => served.map_err(|e| Failure::Impossible(e.to_string())),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn look(&mut self) {
        match self.reader.look() {
            Ok(snapshot) => self.tally.add(&snapshot),
            // A kernel that is short of memory for a moment answers again later; the count tells of it.
            Err(_) => self.tally.failed(),
        }
        self.publish();
    }

    fn publish(&mut self) {
        let mut families = self.tally.families();
        families.extend(self.host.families());
        families.push(own_time());
        self.pages.publish(Page::of(&families));
    }
}

/// Gives up all but looking: capabilities, writing, programs, ports, and the system calls for them. What this kernel has no
/// means for is said.
fn confined(asks_for_owners: bool) -> Result<(), Failure> {
    let confinement = if asks_for_owners {
        let capabilities = &[Capability::DacReadSearch, Capability::SysPtrace];
        Confinement { capabilities, access: FileAccess::Processes }
    } else if Uid::effective().is_root() {
        Confinement { capabilities: &[], access: FileAccess::Host }
    } else {
        // Whoever gives another user this means the journal to be read.
        Confinement { capabilities: &[Capability::DacReadSearch], access: FileAccess::Host }
    };
    confine(&confinement)
}

/// Ends the server when it goes.
struct Ends<'a>(&'a Stopper);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What the exporter costs.
fn own_time() -> Family {
    let used = getrusage(UsageWho::RUSAGE_SELF);
    let seconds = used.map_or(0.0, |u| (u.user_time() + u.system_time()).num_microseconds() as f64 / 1e6);
    Metric::counter("fullpipe_exporter_cpu_seconds", "Processor time of this exporter.", "seconds")
        .of([Sample::number(Vec::new(), seconds)])
}

const DEFAULT: Metric =
    Metric::gauge("fullpipe_host_default_controller", "The default congestion controller.", "");
const AVAILABLE: Metric = Metric::gauge(
    "fullpipe_host_available_controller",
    "Congestion controllers that the kernel has loaded.",
    "",
);
const READABLE: Metric = Metric::gauge(
    "fullpipe_host_readable",
    "Whether what fullpipe changed here may be read: once something is in force, by root only.",
    "",
);
const APPLIED: Metric =
    Metric::gauge("fullpipe_host_applied", "Whether fullpipe has something in force or half-done.", "");
const CONSISTENT: Metric =
    Metric::gauge("fullpipe_host_consistent", "Whether journal, boot files and kernel agree.", "");
const DRIFT: Metric =
    Metric::gauge("fullpipe_host_drift", "Settings that are not as fullpipe left them.", "");

/// Where the host stands, looked at now and then.
struct HostMetrics {
    host: Box<dyn Host>,
    store: Store,
    known: Vec<Family>,
    at: Option<Instant>,
    complained: bool,
}

impl HostMetrics {
    fn families(&mut self) -> Vec<Family> {
        if self.at.is_none_or(|at| at.elapsed() >= HOST_EVERY) {
            self.at = Some(Instant::now());
            self.known = self.look();
        }
        self.known.clone()
    }

    fn look(&mut self) -> Vec<Family> {
        let status = status::status(&*self.host, &self.store);
        let default = match &status {
            Ok(status) => status.live.clone(),
            Err(_) => facts::default_controller().ok(),
        };
        let named = |controller| Sample::number(vec![("controller", controller)], 1.0);
        let number = |value| [Sample::number(Vec::new(), value)];
        let available = facts::available_controllers().unwrap_or_default();
        let mut families = vec![
            DEFAULT.of(default.into_iter().map(named)),
            AVAILABLE.of(available.into_iter().map(named)),
            READABLE.of(number(f64::from(u8::from(status.is_ok())))),
        ];
        match status {
            Ok(status) => {
                families.extend([
                    APPLIED.of(number(f64::from(u8::from(status.phase.is_some())))),
                    CONSISTENT.of(number(f64::from(u8::from(status.consistent)))),
                    DRIFT.of(number(status.drift.len() as f64)),
                ]);
            }
            Err(e) if !self.complained => {
                self.complained = true;
                eprintln!("note: what fullpipe changed on this host is not exported: {e}");
            }
            Err(_) => {}
        }
        families
    }
}

fn impossible(e: LookError) -> Failure {
    Failure::Impossible(e.to_string())
}
