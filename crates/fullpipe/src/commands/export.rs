//! `fullpipe export`: the host's connections as Prometheus metrics.

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
    Classes, Family, GroupBy, Metric, Page, Pages, Sample, Server, Settings, Stopper, Tally, Tls,
};
use fullpipe_live::{Filter, Reader, SampleError};
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

/// Export this host's connections as Prometheus metrics
///
/// Rates, RTTs, queueing, losses, limits and BBR's model, by controller and class, never by
/// connection: at most 2000 series at any load. Changes nothing and needs no root; drops unneeded
/// root privileges. A systemd unit, a dashboard and alert rules are in the packaging directory of
/// the source.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe export --by unit")]
pub struct Args {
    /// Address to listen on; port 0 selects a free one and prints it
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:9411")]
    listen: SocketAddr,
    /// Time between samples; a scrape returns the latest
    #[arg(long, value_name = "TIME", default_value = "5s")]
    interval: Span,
    /// Connections to export, as for `fullpipe watch` [default: all]
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    only: String,
    /// Class of connections, such as `london=dst 10.1.0.0/16`; may be repeated, the first match
    /// applies
    #[arg(long = "class", value_name = "NAME=FILTER")]
    classes: Vec<Class>,
    /// Property that gives a class to connections that match no --class
    #[arg(long, value_enum, value_name = "PROPERTY", default_value = "port")]
    by: Property,
    /// Ports that get a class of their own with --by port; the local port is looked up first, then
    /// the remote one
    #[arg(long, value_name = "PORTS", value_delimiter = ',', default_value = "22,80,443")]
    ports: Vec<u16>,
    /// File with a bearer token in its first line, which scrapers must present
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// TLS certificate chain in PEM; serves HTTPS only
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = clap::ValueHint::FilePath)]
    tls_cert: Option<PathBuf>,
    /// TLS private key in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    tls_key: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Property {
    /// Local or remote port
    Port,
    /// systemd unit
    Unit,
    /// Container
    Container,
}

#[derive(Clone)]
struct Class(String, Filter);

impl FromStr for Class {
    type Err = String;
    fn from_str(text: &str) -> Result<Class, String> {
        let Some((name, filter)) = text.split_once('=').filter(|(name, _)| !name.trim().is_empty()) else {
            return Err("expected NAME=FILTER, for example 'web=sport = :443'".to_owned());
        };
        let filter = Filter::parse(filter.trim()).map_err(|e| e.to_string())?;
        Ok(Class(name.trim().to_owned(), filter))
    }
}

/// Time between reads of files, journal and namespaces, which change rarely.
const HOST_INTERVAL: Duration = Duration::from_secs(60);
/// Sampling more often would mostly load the host.
const MIN_INTERVAL: Span = Span::from_millis(100);

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.interval < MIN_INTERVAL {
            return Err(Failure::usage(
                "--interval must be at least 100ms, since each sample reads all sockets of the host",
            ));
        }
        let only = Filter::parse(&self.only).map_err(Failure::usage)?;
        let by = match self.by {
            Property::Port => GroupBy::Port(self.ports),
            Property::Unit => GroupBy::Unit,
            Property::Container => GroupBy::Container,
        };
        let classes =
            Classes::new(self.classes.into_iter().map(|Class(name, filter)| (name, filter)).collect(), by);
        let mut reader = Reader::open(only).map_err(impossible)?;
        #[cfg(feature = "ebpf")]
        {
            reader = reader.with_models(Box::new(super::beliefs::Loaded::preloaded()));
        }
        let needs_owners = classes.needs_owners() || reader.filter().needs_owners();
        if !classes.needs_owners() {
            reader = reader.without_owners();
        }
        let settings = Settings {
            token: self.token_file.as_deref().map(secret::read).transpose()?,
            tls: self.tls_cert.zip(self.tls_key).map(|(certificate, key)| Tls { certificate, key }),
        };
        let (host, store) = self.target.open()?;
        let host = HostMetrics { host, store, families: Vec::new(), read_at: None, has_warned: false };
        let server = Server::bind(self.listen, &settings).map_err(Failure::usage)?;
        let address = server.address().map_err(|e| Failure::Impossible(e.to_string()))?;
        // Before other threads are started, since those would keep the privileges.
        drop_privileges(needs_owners)?;

        let (stop, stopper) = (Arc::new(AtomicBool::new(false)), server.stopper());
        let flag = Arc::clone(&stop);
        signals::on_termination(move || {
            flag.store(true, Relaxed);
            stopper.stop();
        })
        .map_err(|e| Failure::Impossible(e.to_string()))?;

        let mut exporter = Exporter { reader, tally: Tally::new(classes), host, pages: Pages::default() };
        // The first scrape gets a complete page.
        exporter.tally.add(&exporter.reader.sample().map_err(impossible)?);
        exporter.publish();
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        eprintln!("metrics at {scheme}://{address}/metrics");
        if !address.ip().is_loopback() && settings.token.is_none() {
            eprintln!(
                "note: the metrics are readable by any host that reaches {address}; --token-file requires \
                 a token"
            );
        }
        exporter.serve(server, Duration::from(self.interval), &stop)
    }
}

/// Samples the connections and publishes the pages that scrapes get.
struct Exporter {
    reader: Reader,
    tally: Tally,
    host: HostMetrics,
    pages: Pages,
}

impl Exporter {
    /// Serves the pages, refreshed at intervals of `every`, until `stop` is set.
    fn serve(mut self, server: Server, every: Duration, stop: &AtomicBool) -> Result<(), Failure> {
        let (stopper, pages) = (server.stopper(), self.pages.clone());
        std::thread::scope(|scope| {
            let serve = || {
                let served = server.run(&pages);
                stop.store(true, Relaxed);
                served
            };
            let served = std::thread::Builder::new().spawn_scoped(scope, serve);
            let served = served.map_err(|e| Failure::Impossible(format!("cannot start a thread: {e}")))?;
            // If refreshing panics, stale pages must not be served any longer.
            let _stops = StopOnDrop(&stopper);
            let mut next = Instant::now() + every;
            while !stop.load(Relaxed) {
                let left = next.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    std::thread::sleep(left.min(Duration::from_millis(100)));
                    continue;
                }
                self.sample();
                // Counted from its end, so that a sample that takes longer than the interval is not followed
                // at once.
                next = Instant::now() + every;
            }
            match served.join() {
                Ok(served) => served.map_err(|e| Failure::Impossible(e.to_string())),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    fn sample(&mut self) {
        match self.reader.sample() {
            Ok(snapshot) => self.tally.add(&snapshot),
            // A kernel that is short of memory may answer later again; the failure is counted.
            Err(_) => self.tally.count_failure(),
        }
        self.publish();
    }

    fn publish(&mut self) {
        let mut families = self.tally.families();
        families.extend(self.host.families());
        families.push(cpu_time());
        self.pages.publish(Page::render(&families));
    }
}

/// Drops everything but reading: capabilities, writing, executing, ports, and the system calls for
/// them. Reports what this kernel cannot restrict.
fn drop_privileges(needs_owners: bool) -> Result<(), Failure> {
    let confinement = if needs_owners {
        let capabilities = &[Capability::DacReadSearch, Capability::SysPtrace];
        Confinement { capabilities, access: FileAccess::Processes, connect: &[] }
    } else if Uid::effective().is_root() {
        Confinement { capabilities: &[], access: FileAccess::Host, connect: &[] }
    } else {
        // A service manager grants this to another user so that the journal can be read.
        Confinement { capabilities: &[Capability::DacReadSearch], access: FileAccess::Host, connect: &[] }
    };
    confine(&confinement)
}

/// Stops the server when dropped.
struct StopOnDrop<'a>(&'a Stopper);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The processor time that the exporter uses.
fn cpu_time() -> Family {
    let used = getrusage(UsageWho::RUSAGE_SELF);
    let seconds = used.map_or(0.0, |u| (u.user_time() + u.system_time()).num_microseconds() as f64 / 1e6);
    Metric::counter("fullpipe_exporter_cpu_seconds", "Processor time used by this exporter.", "seconds")
        .family([Sample::number(Vec::new(), seconds)])
}

const DEFAULT: Metric =
    Metric::gauge("fullpipe_host_default_controller", "Default congestion controller.", "");
const AVAILABLE: Metric = Metric::gauge(
    "fullpipe_host_available_controller",
    "Congestion controllers available in the kernel.",
    "",
);
const READABLE: Metric = Metric::gauge(
    "fullpipe_host_readable",
    "Whether the journal is readable; once a change is applied, only root can read it.",
    "",
);
const APPLIED: Metric =
    Metric::gauge("fullpipe_host_applied", "Whether changes made by fullpipe are applied or incomplete.", "");
const CONSISTENT: Metric =
    Metric::gauge("fullpipe_host_consistent", "Whether journal, boot files and kernel agree.", "");
const DRIFT: Metric =
    Metric::gauge("fullpipe_host_drift", "Number of settings that differ from what fullpipe applied.", "");

/// The state of the host, read at long intervals.
struct HostMetrics {
    host: Box<dyn Host>,
    store: Store,
    families: Vec<Family>,
    read_at: Option<Instant>,
    has_warned: bool,
}

impl HostMetrics {
    fn families(&mut self) -> Vec<Family> {
        if self.read_at.is_none_or(|at| at.elapsed() >= HOST_INTERVAL) {
            self.read_at = Some(Instant::now());
            self.families = self.read();
        }
        self.families.clone()
    }

    fn read(&mut self) -> Vec<Family> {
        let status = status::status(&*self.host, &self.store);
        let default = match &status {
            Ok(status) => status.live.clone(),
            Err(_) => facts::default_controller().ok(),
        };
        let named = |controller| Sample::number(vec![("controller", controller)], 1.0);
        let number = |value| [Sample::number(Vec::new(), value)];
        let available = facts::available_controllers().unwrap_or_default();
        let mut families = vec![
            DEFAULT.family(default.into_iter().map(named)),
            AVAILABLE.family(available.into_iter().map(named)),
            READABLE.family(number(f64::from(u8::from(status.is_ok())))),
        ];
        match status {
            Ok(status) => {
                families.extend([
                    APPLIED.family(number(f64::from(u8::from(status.phase.is_some())))),
                    CONSISTENT.family(number(f64::from(u8::from(status.consistent)))),
                    DRIFT.family(number(status.drift.len() as f64)),
                ]);
            }
            Err(e) if !self.has_warned => {
                self.has_warned = true;
                eprintln!("note: changes made by fullpipe on this host are not exported: {e}");
            }
            Err(_) => {}
        }
        families
    }
}

fn impossible(e: SampleError) -> Failure {
    Failure::Impossible(e.to_string())
}
