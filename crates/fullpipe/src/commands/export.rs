//! `fullpipe export`: the host's own connections as metrics.

use super::host::Target;
use crate::confined::confine;
use crate::failure::Failure;
use crate::secret;
use fullpipe_host::host::Host;
use fullpipe_host::journal::Store;
use fullpipe_host::status;
use fullpipe_kernel::confine::{Capability, Confinement, Sight};
use fullpipe_kernel::{facts, signals};
use fullpipe_live::export::{By, Classes, Family, Kind, Page, Pages, Server, Settings, Stopper, Tally, Tls};
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
        let mut host = HostMetrics { host, store, known: Vec::new(), at: None, complained: false };
        let server = Server::bind(self.listen, &settings).map_err(Failure::usage)?;
        let address = server.address().map_err(|e| Failure::Impossible(e.to_string()))?;
        // Before there is another thread, which would go on as it was.
        confined(asks_for_owners)?;

        let (stop, stopper, ends) = (Arc::new(AtomicBool::new(false)), server.stopper(), server.stopper());
        let flag = Arc::clone(&stop);
        signals::on_termination(move || {
            flag.store(true, Relaxed);
            stopper.stop();
        })
        .map_err(|e| Failure::Impossible(e.to_string()))?;

        let mut tally = Tally::new(classes);
        let pages = Pages::default();
        // What a first scrape gets is whole.
        tally.add(&reader.look().map_err(impossible)?);
        publish(&pages, &tally, &mut host);
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        eprintln!("metrics at {scheme}://{address}/metrics");
        if !address.ip().is_loopback() && settings.token.is_none() {
            eprintln!("note: whoever reaches {address} may read them; --token-file asks for a token");
        }
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let served = server.run(&pages);
                stop.store(true, Relaxed);
                served
            });
            // Nobody shall be served what is never renewed again.
            let _renewed = Ends(&ends);
            let every = Duration::from(self.interval);
            let mut next = Instant::now() + every;
            while !stop.load(Relaxed) {
                let left = next.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    std::thread::sleep(left.min(Duration::from_millis(100)));
                    continue;
                }
                match reader.look() {
                    Ok(snapshot) => tally.add(&snapshot),
                    // A kernel that is short of memory for a moment answers again later; the count tells of it.
                    Err(_) => tally.failed(),
                }
                publish(&pages, &tally, &mut host);
                // After it: a look that takes longer than the interval must not be followed by another at once.
                next = Instant::now() + every;
            }
            match served.join() {
                Ok(served) => served.map_err(|e| Failure::Impossible(e.to_string())),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// Gives up all but looking: capabilities, writing, programs, ports, and the system calls for them. What this kernel has no
/// means for is said.
fn confined(asks_for_owners: bool) -> Result<(), Failure> {
    let confinement = if asks_for_owners {
        let capabilities = &[Capability::DacReadSearch, Capability::SysPtrace];
        Confinement { capabilities, sight: Sight::Processes }
    } else if Uid::effective().is_root() {
        Confinement { capabilities: &[], sight: Sight::Host }
    } else {
        // Whoever gives another user this means the journal to be read.
        Confinement { capabilities: &[Capability::DacReadSearch], sight: Sight::Host }
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

fn publish(pages: &Pages, tally: &Tally, host: &mut HostMetrics) {
    let mut families = tally.families();
    families.extend(host.families());
    families.push(own_time());
    pages.publish(Page::of(&families));
}

/// What the exporter costs.
fn own_time() -> Family {
    let used = getrusage(UsageWho::RUSAGE_SELF);
    let seconds = used.map_or(0.0, |u| (u.user_time() + u.system_time()).num_microseconds() as f64 / 1e6);
    let mut family = Family::gauge(
        "fullpipe_exporter_cpu_seconds",
        "Processor time of this exporter.",
        "seconds",
        seconds,
    );
    family.kind = Kind::Counter;
    family
}

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
        let mut families = Vec::new();
        let named = |name: &str, help, controllers: &mut dyn Iterator<Item = String>| {
            controllers.fold(Family::empty(name, help, "", Kind::Gauge), |family, controller| {
                family.and(vec![("controller", controller)], 1.0)
            })
        };
        let status = status::status(&*self.host, &self.store);
        let default = match &status {
            Ok(status) => status.live.clone(),
            Err(_) => facts::default_controller().ok(),
        };
        families.push(named(
            "fullpipe_host_default_controller",
            "The default congestion controller.",
            &mut default.into_iter(),
        ));
        families.push(named(
            "fullpipe_host_available_controller",
            "Congestion controllers that the kernel has loaded.",
            &mut facts::available_controllers().unwrap_or_default().into_iter(),
        ));
        let readable = f64::from(u8::from(status.is_ok()));
        let help =
            "Whether what fullpipe changed here may be read: once something is in force, by root only.";
        families.push(Family::gauge("fullpipe_host_readable", help, "", readable));
        match status {
            Ok(status) => {
                let in_force = f64::from(u8::from(status.phase.is_some()));
                let consistent = f64::from(u8::from(status.consistent));
                let drift = status.drift.len() as f64;
                let gauges = [
                    (
                        "fullpipe_host_applied",
                        "Whether fullpipe has something in force or half-done.",
                        in_force,
                    ),
                    ("fullpipe_host_consistent", "Whether journal, boot files and kernel agree.", consistent),
                    ("fullpipe_host_drift", "Settings that are not as fullpipe left them.", drift),
                ];
                families.extend(gauges.map(|(name, help, value)| Family::gauge(name, help, "", value)));
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
