//! s2n-quic connections as a transport of the simulator: `bbr3@s2n` is fullpipe's controller in
//! s2n-quic, `s2n/bbr` one of its own.

mod connection;
mod endpoint;
mod frames;
mod judge;
mod observed;

pub use judge::*;

use crate::tls;
use connection::{Connection, Options};
use endpoint::{Driven, Io, Slot};
use frames::{Frames, Progress};
use fullpipe_cc::{CONTROLLERS, ControllerSpec, registry};
use fullpipe_experiment::recording::TransportFacts;
use fullpipe_experiment::scenario::{App, Fault, FlowSpec};
use fullpipe_quic_s2n::Endpoint;
use fullpipe_sim::{DATAGRAM_HEADER_BYTES, Opening, Transport, Transports};
use fullpipe_testing::Random;
use observed::{Handle, Inspect, Observing};
use s2n_quic::provider::congestion_controller::{Bbr, Cubic};
use s2n_quic::provider::limits::Limits;
use s2n_quic::provider::random;
use s2n_quic::{Client, Server};
use s2n_quic_core::inet::{IpV4Address, SocketAddress};
use s2n_quic_core::recovery::congestion_controller as s2n;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Version of s2n-quic; a test compares it with the lock file.
pub const VERSION: &str = "1.91.0";

/// Receive window in bytes by default: more than any path's.
const DEFAULT_RECEIVE_WINDOW: u64 = 256 << 20;

/// Packets of the first window (RFC 9002 §7.2), as both kinds of controllers have it.
const INITIAL_WINDOW: u32 = 10;

/// Sizes of packets in bytes, IP header included: what QUIC needs, and what s2n-quic can send.
const MTUS: std::ops::RangeInclusive<u32> = 1228..=65_535;

/// s2n-quic as [`Transports`] of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct S2n;

/// s2n-quic's own controllers.
const OWN: [&str; 2] = ["bbr", "cubic"];

/// The controller of a flow.
enum Contender<'a> {
    /// fullpipe's.
    Ours(&'a str),
    /// s2n-quic's.
    Own(&'a str),
}

fn contender(cc: &str) -> Option<Contender<'_>> {
    if let Some(name) = cc.strip_suffix("@s2n") {
        return registry::find(name).map(|_| Contender::Ours(name));
    }
    cc.strip_prefix("s2n/").filter(|name| OWN.contains(name)).map(Contender::Own)
}

impl Transports for S2n {
    fn names(&self) -> Vec<String> {
        let ours = CONTROLLERS.iter().map(|about| format!("{}@s2n", about.name));
        ours.chain(OWN.iter().map(|name| format!("s2n/{name}"))).collect()
    }

    fn facts(&self, flow: &FlowSpec) -> TransportFacts {
        TransportFacts {
            cc: flow.cc.clone(),
            name: "s2n-quic".to_owned(),
            version: VERSION.to_owned(),
            repeatable: true,
            receive_window: Some(receive_window(flow)),
            notes: vec!["paced by s2n-quic, up to 1 ms ahead".to_owned(), "without MTU discovery".to_owned()],
        }
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Transport>, Fault> {
        let flow = opening.flow;
        check(opening)?;
        let unknown = || {
            Fault::new("cc", format!("unknown controller `{}`", flow.cc))
                .help(format!("known over s2n-quic: {}", S2n.names().join(", ")))
        };
        match contender(&flow.cc).ok_or_else(unknown)? {
            Contender::Ours(name) => {
                let endpoint = Endpoint::new(spec(flow, name)?).with_seed(opening.seed);
                connect(opening, endpoint)
            }
            Contender::Own("bbr") => connect(opening, Bbr::default()),
            Contender::Own(_) => connect(opening, Cubic::default()),
        }
    }
}

/// Checks the name of a controller and its settings.
///
/// # Errors
/// What is unknown or invalid.
pub fn check_controller(cc: &str, settings: &[(String, String)]) -> Result<(), String> {
    match contender(cc) {
        Some(Contender::Ours(name)) => {
            let settings: Vec<(&str, &str)> =
                settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            ControllerSpec::new(name, &settings).map(drop).map_err(|error| error.to_string())
        }
        Some(Contender::Own(_)) if !settings.is_empty() => {
            Err(format!("`{cc}` is s2n-quic's own controller and has no settings"))
        }
        Some(Contender::Own(_)) => Ok(()),
        None => Err(format!("unknown controller `{cc}`; known are: {}", S2n.names().join(", "))),
    }
}

fn receive_window(flow: &FlowSpec) -> u64 {
    flow.receive_buffer.map_or(DEFAULT_RECEIVE_WINDOW, |bytes| bytes.0)
}

/// The specification of one of fullpipe's controllers with the flow's settings.
fn spec(flow: &FlowSpec, name: &str) -> Result<ControllerSpec, Fault> {
    let values: Vec<String> = flow.settings.values().map(ToString::to_string).collect();
    let keys = flow.settings.keys().map(String::as_str);
    let settings: Vec<(&str, &str)> = keys.zip(values.iter().map(String::as_str)).collect();
    ControllerSpec::new(name, &settings).map_err(|error| Fault::new("settings", error.to_string()))
}

/// Checks that the flow asks for nothing that the harness does not support.
fn check(opening: &Opening<'_>) -> Result<(), Fault> {
    let flow = opening.flow;
    if !MTUS.contains(&opening.mtu) {
        let (min, max) = MTUS.into_inner();
        let reason = format!("QUIC needs an MTU of {min} to {max} bytes, but it is {}", opening.mtu);
        return Err(Fault::new("cc", reason).help("change `mtu`"));
    }
    let requests = matches!(flow.app, App::RequestResponse { .. });
    let own = matches!(contender(&flow.cc), Some(Contender::Own(_)));
    let more = [
        ("settings", own && !flow.settings.is_empty(), "s2n-quic's own controllers have none"),
        ("app", requests, "the receiving end sends no requests"),
        ("initial_window", flow.initial_window != INITIAL_WINDOW, "it is 10 packets"),
    ];
    opening.check("s2n-quic", &more)
}

fn address(last: u8, port: u16) -> SocketAddress {
    SocketAddress::IpV4(IpV4Address::new([10, 0, 0, last]).with_port(port))
}

/// A connection whose sending end is controlled by `controllers`.
fn connect<E>(opening: &Opening<'_>, controllers: E) -> Result<Box<dyn Transport>, Fault>
where
    E: s2n::Endpoint,
    E::CongestionController: Inspect,
{
    let start = || start(opening, controllers);
    let connection =
        start().map_err(|error| Fault::new("cc", format!("s2n-quic does not start: {error}")))?;
    Ok(Box::new(connection))
}

fn start<E>(opening: &Opening<'_>, controllers: E) -> Result<Connection, Box<dyn std::error::Error>>
where
    E: s2n::Endpoint,
    E::CongestionController: Inspect,
{
    let (here, there) = (address(1, 4433), address(2, 4433));
    let mtu = u16::try_from(opening.mtu)?;
    let (near, far) = (Slot::default(), Slot::default());
    let (controller, progress) = (Handle::default(), Arc::<Progress>::default());
    let client = Client::builder()
        .with_io(Io { slot: near.clone(), local: here, remote: there, mtu })?
        .with_tls(tls::client())?
        .with_limits(limits(opening.flow)?)?
        .with_random(Seeded::new(!opening.seed))?
        .with_event(Frames(progress.clone()))?
        .with_congestion_controller(Observing::new(controllers, controller.clone()))?
        .start()?;
    let server = Server::builder()
        .with_io(Io { slot: far.clone(), local: there, remote: here, mtu })?
        .with_tls(tls::server())?
        .with_limits(limits(opening.flow)?)?
        .with_random(Seeded::new(opening.seed))?
        .start()?;
    let options = Options { ecn: opening.flow.ecn, datagram: u64::from(opening.mtu - DATAGRAM_HEADER_BYTES) };
    let (sender, receiver) = (started(&near)?, started(&far)?);
    Ok(Connection::new((client, sender), (server, receiver), there.into(), controller, progress, options))
}

fn started(slot: &Slot) -> Result<Box<dyn Driven>, &'static str> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or("no endpoint")
}

fn limits(flow: &FlowSpec) -> Result<Limits, Box<dyn std::error::Error>> {
    let window = receive_window(flow);
    let send_buffer = flow.send_buffer.map_or(DEFAULT_RECEIVE_WINDOW, |bytes| bytes.0);
    Ok(Limits::new()
        .with_data_window(window)?
        .with_unidirectional_data_window(window)?
        .with_max_send_buffer_size(u32::try_from(send_buffer).unwrap_or(u32::MAX))?
        .with_max_handshake_duration(Duration::from_secs(600))?
        .with_max_idle_timeout(Duration::from_secs(600))?)
}

/// A source of random numbers for s2n-quic: the same seed skips the same packet numbers.
pub struct Seeded(Random);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Seeded(Random::new(seed))
    }
}

impl random::Generator for Seeded {
    fn public_random_fill(&mut self, dest: &mut [u8]) {
        for chunk in dest.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.draw().to_le_bytes()[..chunk.len()]);
        }
    }

    fn private_random_fill(&mut self, dest: &mut [u8]) {
        self.public_random_fill(dest);
    }
}

impl random::Provider for Seeded {
    type Generator = Self;
    type Error = std::convert::Infallible;

    fn start(self) -> Result<Self, Self::Error> {
        Ok(self)
    }
}
