//! The measurement: load, probes and the algorithm's clock.

use super::algorithm::{Algorithm, ForeignProbe, Step};
use super::outcome::{Direction, DirectionOutcome, Idle, Interval, Outcome, Rating};
use super::transport::{Connection, Target, Upload, checked, exchange, host, milliseconds};
use super::{Config, Configuration, RpmError};
use crate::compare::median;
use crate::printable;
use fullpipe_kernel::{socket, tcp_info};
use http_body_util::BodyExt;
use hyper::Method;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use url::Url;

/// Interval for noticing an interrupt, and for adapting to the rate.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Probes of the idle path.
const IDLE_PROBES: usize = 5;
/// Probes in flight, in seconds of the maximum rate: more would only fill the path.
const MAX_PROBES_S: f64 = 2.0;

/// Measures. `progress` is called after each interval.
///
/// # Errors
/// If the server cannot be reached or has no configuration object, if a load-generating connection
/// ends, if no probe completes, or if interrupted.
pub fn run(
    config: &Config,
    interrupt: &AtomicBool,
    progress: &mut dyn FnMut(Direction, &Interval),
) -> Result<Outcome, RpmError> {
    // Probes must not wait for the load's thread.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(RpmError::System)?;
    let result = runtime.block_on(async {
        tokio::select! {
            result = measure(config, progress) => result,
            () = interrupted(interrupt) => Err(RpmError::Interrupted),
        }
    });
    // The resolver cannot be interrupted.
    runtime.shutdown_background();
    result
}

async fn interrupted(interrupt: &AtomicBool) {
    while !interrupt.load(Relaxed) {
        sleep(POLL_INTERVAL).await;
    }
}

async fn measure(
    config: &Config,
    progress: &mut dyn FnMut(Direction, &Interval),
) -> Result<Outcome, RpmError> {
    let (configuration, reached) = configure(config).await?;
    let target = match &configuration.test_endpoint {
        Some(endpoint) => {
            let port = configuration.large.port_or_known_default().unwrap_or(443);
            first_reached(config, &configuration.large, resolve(endpoint, port).await?).await?.0
        }
        None if configuration.large.origin() == config.url.origin() => {
            new_target(config, &configuration.large, reached)?
        }
        None => {
            let port = configuration.large.port_or_known_default().unwrap_or(443);
            let addresses = resolve(&host(&configuration.large), port).await?;
            first_reached(config, &configuration.large, addresses).await?.0
        }
    };
    let idle = idle(&target, &configuration.small).await?;
    let mut directions = Vec::new();
    for &direction in &config.directions {
        let run = Run::new(config, &target, &configuration, direction);
        directions.push(run.measure(progress).await?);
    }
    Ok(Outcome {
        schema: Outcome::SCHEMA,
        url: config.url.to_string(),
        address: target.address.to_string(),
        parameters: config.parameters.clone(),
        idle,
        directions,
    })
}

/// The secret is sent to the server that the user named only.
fn new_target(config: &Config, url: &Url, address: SocketAddr) -> Result<Target, RpmError> {
    Target::new(
        url,
        address,
        &config.trust,
        config.controller.as_deref(),
        config.connect_timeout,
        config.secret.as_deref().filter(|_| url.origin() == config.url.origin()),
    )
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, RpmError> {
    // A server may name it.
    let failed = |source| RpmError::Resolve { host: printable::line(host).into_owned(), source };
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await.map_err(failed)?.collect();
    if addresses.is_empty() {
        return Err(failed(io::Error::new(io::ErrorKind::NotFound, "the host has no address")));
    }
    Ok(addresses)
}

/// The first address that accepts a connection, with that connection.
async fn first_reached(
    config: &Config,
    url: &Url,
    addresses: Vec<SocketAddr>,
) -> Result<(Target, Connection), RpmError> {
    let mut last = None;
    for address in addresses {
        let target = new_target(config, url, address)?;
        match target.connect().await {
            Ok(connection) => return Ok((target, connection)),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| RpmError::Url(format!("{url}: the host has no address"))))
}

/// Fetches the configuration object.
async fn configure(config: &Config) -> Result<(Configuration, SocketAddr), RpmError> {
    let mut url = config.url.clone();
    if let Some(name) = &config.controller {
        // Servers that do not choose controllers ignore it or refuse it.
        url.query_pairs_mut().append_pair("cc", name);
    }
    let port = url.port_or_known_default().unwrap_or(443);
    let (target, mut connection) = first_reached(config, &url, resolve(&host(&url), port).await?).await?;
    let body = answered(&target, &url, exchange(&mut connection.sender, &target, &url)).await?;
    let configuration = Configuration::parse(&body)
        .map_err(|source| RpmError::Configuration { url: url.to_string(), source })?;
    let sends = config.directions.contains(&Direction::Download);
    if let Some(name) = config.controller.as_deref().filter(|name| sends && !configuration.chooses(name)) {
        return Err(RpmError::NoChoice { url: url.to_string(), controller: name.to_owned() });
    }
    Ok((configuration, target.address))
}

/// The answer to a request before there is load: a silent server must not hold the user up. Under
/// load the time limit of the direction applies.
async fn answered<T>(
    target: &Target,
    url: &Url,
    answer: impl Future<Output = Result<T, RpmError>>,
) -> Result<T, RpmError> {
    let late = |_| RpmError::http(url, format!("no answer within {:?}", target.timeout));
    timeout(target.timeout, answer).await.map_err(late)?
}

/// Probes before there is load.
async fn idle(target: &Target, url: &Url) -> Result<Idle, RpmError> {
    let mut round_trips = Vec::new();
    for _ in 0..IDLE_PROBES {
        let probe = answered(target, url, foreign(target, url)).await?;
        round_trips.push((probe.tcp_ms + probe.tls_ms.unwrap_or(0.0) + probe.http_ms) / 3.0);
    }
    let rtt_ms = median(&round_trips);
    Ok(Idle { rtt_ms, rpm: 60_000.0 / rtt_ms })
}

/// A probe on a connection of its own.
async fn foreign(target: &Target, url: &Url) -> Result<ForeignProbe, RpmError> {
    let mut connection = target.connect().await?;
    let began = Instant::now();
    exchange(&mut connection.sender, target, url).await?;
    let http_ms = milliseconds(began.elapsed());
    Ok(ForeignProbe { tcp_ms: connection.tcp_ms, tls_ms: Some(connection.tls_ms), http_ms })
}

/// A load-generating connection.
#[derive(Default)]
struct Load {
    /// Bytes of the body that were received, or given to HTTP.
    bytes: Arc<AtomicU64>,
    connection: OnceLock<Connection>,
    controller: OnceLock<String>,
}

impl Load {
    /// Bytes that arrived at the other end.
    fn transferred(&self, direction: Direction) -> u64 {
        let bytes = self.bytes.load(Relaxed);
        match direction {
            Direction::Download => bytes,
            Direction::Upload => {
                let unacked = self.connection.get().map_or(0, |one| socket::unacked(&one.socket));
                bytes.saturating_sub(unacked)
            }
        }
    }

    /// Loads the path until the connection ends, which is an error.
    async fn run(self: Arc<Self>, target: Target, url: Url, direction: Direction) -> RpmError {
        let failed = match direction {
            Direction::Download => self.receive(&target, &url).await,
            Direction::Upload => self.send(&target, &url).await,
        };
        RpmError::Load(Box::new(
            failed.err().unwrap_or_else(|| RpmError::http(&url, "the server ended the transfer".to_owned())),
        ))
    }

    async fn receive(&self, target: &Target, url: &Url) -> Result<(), RpmError> {
        let connection = target.connect().await?;
        let mut sender = connection.sender.clone();
        let request = target.request(Method::GET, url, Upload::Nothing)?;
        let response = sender.send_request(request).await.map_err(|e| RpmError::hyper(url, &e))?;
        let response = checked(url, response).await?;
        if let Some(name) = response.headers().get("x-fullpipe-controller") {
            let name = String::from_utf8_lossy(name.as_bytes());
            let _ = self.controller.set(printable::line(&name).into_owned());
        }
        let _ = self.connection.set(connection);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| RpmError::hyper(url, &e))?;
            self.bytes.fetch_add(frame.data_ref().map_or(0, |data| data.len() as u64), Relaxed);
        }
        Ok(())
    }

    async fn send(&self, target: &Target, url: &Url) -> Result<(), RpmError> {
        let connection = target.connect().await?;
        let mut sender = connection.sender.clone();
        let _ = self.controller.set(tcp_info::controller(&connection.socket).map_err(RpmError::System)?);
        let body = Upload::Endless { unsent: Arc::clone(&connection.unsent), bytes: Arc::clone(&self.bytes) };
        let _ = self.connection.set(connection);
        let request = target.request(Method::POST, url, body)?;
        let response = sender.send_request(request).await.map_err(|e| RpmError::hyper(url, &e))?;
        checked(url, response).await.map(drop)
    }
}

/// A completed probe.
enum Probed {
    Foreign(Result<ForeignProbe, RpmError>),
    OnLoad(Result<f64, RpmError>),
}

/// The measurement of one direction.
struct Run<'a> {
    config: &'a Config,
    target: &'a Target,
    configuration: &'a Configuration,
    direction: Direction,
    algorithm: Algorithm,
    loads: Vec<Arc<Load>>,
    /// The tasks of the loads, which end with errors only.
    loading: JoinSet<RpmError>,
    probing: JoinSet<()>,
    results: (UnboundedSender<Probed>, UnboundedReceiver<Probed>),
    random: Pcg64Mcg,
    /// Completed foreign and self probes, and failed ones.
    probes: [u64; 3],
    intervals: Vec<Interval>,
}

impl<'a> Run<'a> {
    fn new(
        config: &'a Config,
        target: &'a Target,
        configuration: &'a Configuration,
        direction: Direction,
    ) -> Run<'a> {
        Run {
            config,
            target,
            configuration,
            direction,
            algorithm: Algorithm::new(config.parameters.clone()),
            loads: Vec::new(),
            loading: JoinSet::new(),
            probing: JoinSet::new(),
            results: unbounded_channel(),
            // Which connection is probed need not be secret.
            random: Pcg64Mcg::seed_from_u64(1),
            probes: [0; 3],
            intervals: Vec::new(),
        }
    }

    async fn measure(
        mut self,
        progress: &mut dyn FnMut(Direction, &Interval),
    ) -> Result<DirectionOutcome, RpmError> {
        let parameters = self.config.parameters.clone();
        let span = Duration::from_secs_f64(parameters.interval_s);
        let (began, mut transferred) = (Instant::now(), 0);
        let mut last_end = began;
        self.open(self.algorithm.connections());
        loop {
            self.interval(began + span * (self.algorithm.intervals() as u32 + 1)).await?;
            let now: u64 = self.loads.iter().map(|load| load.transferred(self.direction)).sum();
            // A connection's unacknowledged bytes may grow by more than it has sent.
            let bytes = now.saturating_sub(transferred);
            transferred = transferred.max(now);
            let (connections, elapsed) = (self.algorithm.connections(), last_end.elapsed());
            last_end = Instant::now();
            let rpm = self.algorithm.current().map(|current| current.rpm);
            let step = self.algorithm.end_interval(bytes, elapsed);
            let goodput_bps = bytes as f64 * 8.0 / elapsed.as_secs_f64().max(1e-9);
            let interval = Interval { goodput_bps, connections, rpm };
            progress(self.direction, &interval);
            self.intervals.push(interval);
            match step {
                Step::Finish => break,
                Step::Open(_) if began.elapsed().as_secs_f64() >= parameters.time_limit_s => break,
                Step::Open(more) => self.open(more),
            }
        }
        self.outcome(began.elapsed().as_secs_f64())
    }

    /// Opens load-generating connections.
    fn open(&mut self, count: usize) {
        let url = match self.direction {
            Direction::Download => &self.configuration.large,
            Direction::Upload => &self.configuration.upload,
        };
        for _ in 0..count {
            let load = Arc::new(Load::default());
            self.loads.push(Arc::clone(&load));
            self.loading.spawn(load.run(self.target.clone(), url.clone(), self.direction));
        }
    }

    /// Probes until the end of an interval.
    async fn interval(&mut self, end: Instant) -> Result<(), RpmError> {
        // Foreign and self probes alternate.
        let gap = 0.5 / self.algorithm.probe_rate().max(1e-9);
        let gap = Duration::from_secs_f64(gap.min(1e6));
        let probes = self.algorithm.probe_rate() > 0.0;
        let (mut next, mut is_foreign) = (Instant::now(), true);
        let (mut adapt, mut before) = (Instant::now() + POLL_INTERVAL, self.positions());
        loop {
            tokio::select! {
                () = sleep_until(end.into()) => return Ok(()),
                () = sleep_until(next.into()), if probes => {
                    self.probe(is_foreign);
                    is_foreign = !is_foreign;
                    // Probes that are late are not made up for in a burst.
                    next = (next + gap).max(Instant::now());
                }
                () = sleep_until(adapt.into()), if self.direction == Direction::Upload => {
                    before = self.limit_unsent(&before);
                    adapt = Instant::now() + POLL_INTERVAL;
                }
                Some(probed) = self.results.1.recv() => self.record(probed),
                Some(ended) = self.loading.join_next() => {
                    return Err(ended.unwrap_or_else(|e| RpmError::System(io::Error::other(e))));
                }
            }
        }
    }

    fn positions(&self) -> Vec<u64> {
        self.loads.iter().map(|load| load.transferred(self.direction)).collect()
    }

    /// Adapts what each sending connection holds unsent to its rate since `before`.
    fn limit_unsent(&self, before: &[u64]) -> Vec<u64> {
        let now = self.positions();
        for ((load, before), now) in self.loads.iter().zip(before).zip(&now) {
            if let Some(connection) = load.connection.get() {
                let rate = now.saturating_sub(*before) as f64 / POLL_INTERVAL.as_secs_f64();
                connection.unsent.adapt(&connection.socket, rate);
            }
        }
        now
    }

    fn probe(&mut self, is_foreign: bool) {
        while self.probing.try_join_next().is_some() {}
        if self.probing.len() as f64 >= MAX_PROBES_S * self.config.parameters.probes_per_second {
            return;
        }
        let (target, url) = (self.target.clone(), self.configuration.small.clone());
        let results = self.results.0.clone();
        if is_foreign {
            self.probing.spawn(async move {
                let _ = results.send(Probed::Foreign(foreign(&target, &url).await));
            });
            return;
        }
        // Those that transfer data: the others are not load.
        let active: Vec<_> = self.loads.iter().filter_map(|load| load.connection.get()).collect();
        if active.is_empty() {
            return;
        }
        let mut sender = active[(self.random.next_u64() % active.len() as u64) as usize].sender.clone();
        self.probing.spawn(async move {
            let began = Instant::now();
            let answer = exchange(&mut sender, &target, &url).await;
            let _ = results.send(Probed::OnLoad(answer.map(|_| milliseconds(began.elapsed()))));
        });
    }

    fn record(&mut self, probed: Probed) {
        match probed {
            Probed::Foreign(Ok(probe)) => {
                self.algorithm.add_foreign(probe);
                self.probes[0] += 1;
            }
            Probed::OnLoad(Ok(ms)) => {
                self.algorithm.add_self(ms);
                self.probes[1] += 1;
            }
            Probed::Foreign(Err(_)) | Probed::OnLoad(Err(_)) => self.probes[2] += 1,
        }
    }

    fn outcome(self, seconds: f64) -> Result<DirectionOutcome, RpmError> {
        let Some(responsiveness) = self.algorithm.current() else {
            let kind = if self.probes[1] == 0 { "probe under load" } else { "probe" };
            return Err(RpmError::NoProbes { direction: self.direction, kind, seconds });
        };
        let (goodput_confidence, confidence) = self.algorithm.confidence();
        Ok(DirectionOutcome {
            direction: self.direction,
            responsiveness,
            rating: Rating::new(responsiveness.rpm),
            confidence,
            goodput_bps: self.algorithm.goodput_bps(),
            goodput_confidence,
            controller: self.loads.iter().find_map(|load| load.controller.get().cloned()),
            connections: self.algorithm.connections(),
            foreign_probes: self.probes[0],
            self_probes: self.probes[1],
            failed_probes: self.probes[2],
            seconds,
            intervals: self.intervals,
        })
    }
}
