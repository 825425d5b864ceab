//! The stacks by name.

use super::crypto::Progress;
use super::pair::{EndOptions, Pair, PairOptions, Rebinding};
use fullpipe_cc::{ControllerSpec, registry};
use fullpipe_experiment::recording::TransportFacts;
use fullpipe_experiment::scenario::{Fault, FlowSpec};
use fullpipe_sim::{DATAGRAM_HEADER_BYTES, Opening, Transport, TransportEnd, Transports};
use std::sync::Arc;
use std::time::Instant;

/// Versions of the stacks; a test compares them with the lock file.
const NOQ_VERSION: &str = "1.4.0";
const QUINN_VERSION: &str = "0.11.19";

/// Receive window in bytes of a stream by default, in both stacks: 100 ms at 100 Mbit/s.
const DEFAULT_RECEIVE_WINDOW: u64 = 1_250_000;
/// The UDP payload that every path of QUIC must carry (RFC 9000 §14).
const MIN_PAYLOAD: u32 = 1200;
/// The longest UDP payload over IPv4.
const MAX_PAYLOAD: u32 = 65_507;

/// The QUIC stacks as [`Transports`] of a simulation.
///
/// `noq/bbr3` is a stack's own controller, `bbr3@noq` fullpipe's in that stack.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stacks;

/// What a connection does or meets that a scenario does not describe.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// Whether packets start at 1200 bytes, the stack probes for the MTU, and falls back when large
    /// packets no longer pass. Otherwise packets have the path's MTU from the start.
    pub mtu_discovery: bool,
    /// When the receiving end sees the sending end at another port.
    pub rebinding: Option<Rebinding>,
}

/// A stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stack {
    Noq,
    Quinn,
}

impl Stack {
    const ALL: [Stack; 2] = [Stack::Noq, Stack::Quinn];

    fn name(self) -> &'static str {
        match self {
            Stack::Noq => "noq",
            Stack::Quinn => "quinn",
        }
    }

    /// The crate and its version.
    fn library(self) -> (&'static str, &'static str) {
        match self {
            Stack::Noq => ("noq-proto", NOQ_VERSION),
            Stack::Quinn => ("quinn-proto", QUINN_VERSION),
        }
    }

    /// Its own controllers, and whether the same seed gives the same bytes: the BBRs draw from the
    /// system's entropy.
    fn own_controllers(self) -> &'static [(&'static str, bool)] {
        match self {
            Stack::Noq => &[("bbr3", false), ("cubic", true), ("reno", true)],
            Stack::Quinn => &[("bbr", false), ("cubic", true), ("reno", true)],
        }
    }
}

/// The controller of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Contender<'a> {
    stack: Stack,
    /// Its name in fullpipe or in the stack.
    name: &'a str,
    ours: bool,
    repeatable: bool,
}

/// The controller that `cc` names.
fn contender(cc: &str) -> Option<Contender<'_>> {
    let stack = |wanted: &str| Stack::ALL.into_iter().find(|stack| stack.name() == wanted);
    if let Some((name, wanted)) = cc.split_once('@') {
        registry::find(name)?;
        return Some(Contender { stack: stack(wanted)?, name, ours: true, repeatable: true });
    }
    let (wanted, name) = cc.split_once('/')?;
    let stack = stack(wanted)?;
    let &(_, repeatable) = stack.own_controllers().iter().find(|(own, _)| *own == name)?;
    Some(Contender { stack, name, ours: false, repeatable })
}

impl Transports for Stacks {
    fn names(&self) -> Vec<String> {
        let ours = |stack: Stack| {
            fullpipe_cc::CONTROLLERS.iter().map(move |about| format!("{}@{}", about.name, stack.name()))
        };
        let own = |stack: Stack| {
            stack.own_controllers().iter().map(move |(name, _)| format!("{}/{name}", stack.name()))
        };
        Stack::ALL.into_iter().flat_map(|stack| ours(stack).chain(own(stack))).collect()
    }

    fn facts(&self, flow: &FlowSpec) -> TransportFacts {
        let Some(contender) = contender(&flow.cc) else {
            return TransportFacts { cc: flow.cc.clone(), ..TransportFacts::default() };
        };
        let (name, version) = contender.stack.library();
        TransportFacts {
            cc: flow.cc.clone(),
            name: name.to_owned(),
            version: version.to_owned(),
            repeatable: contender.repeatable,
            receive_window: Some(flow.receive_buffer.map_or(DEFAULT_RECEIVE_WINDOW, |bytes| bytes.0)),
            notes: notes(contender).map(str::to_owned).into(),
        }
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Transport>, Fault> {
        self.open_with(opening, Options::default())
    }
}

impl Stacks {
    /// [`Transports::open`] with more options.
    ///
    /// # Errors
    /// As of [`Transports::open`].
    pub fn open_with(&self, opening: &Opening<'_>, extra: Options) -> Result<Box<dyn Transport>, Fault> {
        let flow = opening.flow;
        let contender = contender(&flow.cc).ok_or_else(|| {
            Fault::new("cc", format!("unknown controller `{}`", flow.cc))
                .help(format!("known over QUIC: {}", self.names().join(", ")))
        })?;
        check(opening, contender)?;
        let options = end_options(opening, extra)?;
        let spec = contender.ours.then(|| spec(flow, contender.name)).transpose()?;
        Ok(match contender.stack {
            Stack::Noq => noq(opening, contender, spec, options),
            Stack::Quinn => quinn(opening, contender, spec, options),
        })
    }
}

/// How the flow is paced, and what differs from what users of the stack get.
fn notes(contender: Contender<'_>) -> [&'static str; 2] {
    let pacing = match (contender.ours, contender.stack) {
        (true, Stack::Noq) => "paced by noq at the controller's rate",
        (true, Stack::Quinn) => "paced by fullpipe: quinn takes no rate, and paces by the window alone",
        (false, Stack::Noq) => "paced by noq",
        (false, Stack::Quinn) => "paced by quinn at 1.25 windows per round trip",
    };
    [pacing, "without encryption, MTU discovery and idle timeout"]
}

/// The specification of one of fullpipe's controllers with the flow's settings.
fn spec(flow: &FlowSpec, name: &str) -> Result<ControllerSpec, Fault> {
    let values: Vec<String> = flow.settings.values().map(ToString::to_string).collect();
    let keys = flow.settings.keys().map(String::as_str);
    let settings: Vec<(&str, &str)> = keys.zip(values.iter().map(String::as_str)).collect();
    ControllerSpec::new(name, &settings).map_err(|error| Fault::new("settings", error.to_string()))
}

/// Checks that the flow asks for nothing that QUIC does not support.
fn check(opening: &Opening<'_>, contender: Contender<'_>) -> Result<(), Fault> {
    let flow = opening.flow;
    let stack = contender.stack.name();
    if !contender.ours && !flow.settings.is_empty() {
        let reason = format!("`{}` is {stack}'s own controller and has no settings", flow.cc);
        return Err(Fault::new("settings", reason)
            .help(format!("use one of fullpipe's controllers in the stack, such as `bbr3@{stack}`")));
    }
    if !contender.ours && contender.stack == Stack::Quinn && flow.initial_window < 2 {
        let reason = "quinn sends only while its window exceeds a packet, and would never start";
        return Err(Fault::new("initial_window", reason.to_owned()).help("use at least 2"));
    }
    opening.check("QUIC", &[])
}

fn end_options(opening: &Opening<'_>, extra: Options) -> Result<EndOptions, Fault> {
    let flow = opening.flow;
    let payload = opening.mtu.saturating_sub(DATAGRAM_HEADER_BYTES);
    if !(MIN_PAYLOAD..=MAX_PAYLOAD).contains(&payload) {
        let (min, max) = (MIN_PAYLOAD + DATAGRAM_HEADER_BYTES, MAX_PAYLOAD + DATAGRAM_HEADER_BYTES);
        let reason = format!("QUIC needs an MTU of {min} to {max} bytes, but it is {}", opening.mtu);
        return Err(Fault::new("cc", reason).help("change `mtu`"));
    }
    let payload = payload as u16;
    let receive_window = flow.receive_buffer.map(|bytes| bytes.0);
    // By default it never limits, as TCP's: what the receive window allows fits twice.
    let send_window = 2 * receive_window.unwrap_or(DEFAULT_RECEIVE_WINDOW);
    Ok(EndOptions {
        payload,
        min_payload: if extra.mtu_discovery { MIN_PAYLOAD as u16 } else { payload },
        mtu_discovery: extra.mtu_discovery,
        rebinding: extra.rebinding,
        receive_window,
        send_window: flow.send_buffer.map_or(send_window, |bytes| bytes.0),
        seed: opening.seed,
    })
}

macro_rules! open {
    ($stack:ident) => {
        /// A connection of this stack.
        fn $stack(
            opening: &Opening<'_>,
            contender: Contender<'_>,
            spec: Option<ControllerSpec>,
            options: EndOptions,
        ) -> Box<dyn Transport> {
            use super::$stack::{End, Observing, Source, own_controller};
            use crate::$stack::Factory;

            let flow = opening.flow;
            let initial_window = u64::from(flow.initial_window) * u64::from(options.payload);
            let ours = spec
                .map(|spec| Factory::new(spec).with_seed(opening.seed).with_initial_window(initial_window));
            let ecn = flow.ecn && ours.as_ref().is_none_or(|factory| factory.claims_ecn(options.payload));
            let held = contender.ours && contender.stack == Stack::Quinn;
            let source = match ours {
                Some(factory) if held => Source::Ours(factory.paced_by_caller()),
                Some(factory) => Source::Ours(factory),
                None => Source::Own(own_controller(contender.name, initial_window)),
            };
            let base = Instant::now();
            let progress = Arc::new(Progress::default());
            let (factory, controller) = Observing::new(source, base);
            let sender = End::new(TransportEnd::Sender, &options, Some(factory), Some(progress.clone()));
            // The stacks' default, though ten packets whatever their size: quinn's receiving end sends
            // no ACKs while a packet of the handshake fills its window.
            let answering = own_controller("cubic", 10 * u64::from(options.payload));
            let receiver = End::new(TransportEnd::Receiver, &options, Some(answering), None);
            let options = PairOptions { ecn, held, datagram: options.payload.into() };
            Box::new(Pair::new(base, sender, receiver, controller, progress, options))
        }
    };
}

open!(noq);
open!(quinn);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_window_that_would_never_open_is_refused() {
        for (cc, accepted) in [("quinn/cubic", false), ("noq/cubic", true), ("cubic@quinn", true)] {
            let flow = FlowSpec { initial_window: 1, ..FlowSpec::bulk(cc) };
            let opened = Stacks.open(&Opening { flow: &flow, mtu: 1500, seed: 1 });
            assert_eq!(opened.is_ok(), accepted, "{cc}");
        }
    }

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock = include_str!("../../../../Cargo.lock").replace("\r\n", "\n");
        for (name, version) in [("noq-proto", NOQ_VERSION), ("quinn-proto", QUINN_VERSION)] {
            assert!(
                lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")),
                "{name} {version}"
            );
        }
    }
}
