//! The stacks by name.

use super::crypto::Progress;
use super::log::SharedLog;
use super::pair::{EndOptions, Inspect, Pair, PairOptions};
use fullpipe_cc::{Rate, Snapshot, Time};
use fullpipe_experiment::recording::TransportFacts;
use fullpipe_experiment::scenario::{Fault, FlowSpec};
use fullpipe_sim::{DATAGRAM_HEADER_BYTES, Opening, Transport, TransportEnd, Transports};
use std::sync::Arc;
use std::time::Instant;

/// Versions of the stacks; a test compares them with the lock file.
const NOQ_VERSION: &str = "1.4.0";
const QUINN_VERSION: &str = "0.11.19";

/// The QUIC stacks as [`Transports`] of a simulation.
#[derive(Clone, Copy, Default, Debug)]
pub struct Stacks;

/// A stack's own controller: only its metrics are known.
struct Own;

impl Inspect for Own {
    fn snapshot(&self) -> Option<Snapshot> {
        None
    }

    fn state(&self) -> Option<&'static str> {
        None
    }

    fn delivery_rate(&self) -> Option<Rate> {
        None
    }

    fn departure(&self) -> (Time, u64) {
        (Time::ZERO, u64::MAX)
    }
}

impl Transports for Stacks {
    fn names(&self) -> Vec<String> {
        ["noq/cubic", "noq/reno", "noq/bbr3", "quinn/cubic", "quinn/reno", "quinn/bbr"]
            .map(str::to_owned)
            .into()
    }

    fn facts(&self, flow: &FlowSpec) -> TransportFacts {
        let (name, version) = match flow.cc.split('/').next() {
            Some("noq") => ("noq-proto", NOQ_VERSION),
            _ => ("quinn-proto", QUINN_VERSION),
        };
        TransportFacts {
            cc: flow.cc.clone(),
            name: name.to_owned(),
            version: version.to_owned(),
            // Their BBRs draw from the system's entropy.
            repeatable: !matches!(flow.cc.as_str(), "noq/bbr3" | "quinn/bbr"),
            receive_window: flow.receive_buffer.map(|bytes| bytes.0),
            notes: Vec::new(),
        }
    }

    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn Transport>, Fault> {
        let flow = opening.flow;
        let payload = (opening.mtu - DATAGRAM_HEADER_BYTES) as u16;
        let window = flow.receive_buffer.map(|b| b.0);
        let options = EndOptions {
            payload,
            min_payload: payload,
            mtu_discovery: false,
            receive_window: window,
            send_window: flow.send_buffer.map_or(64 << 20, |b| b.0),
            seed: opening.seed,
        };
        let pair_options = PairOptions { ecn: flow.ecn, held: false, datagram: payload.into() };
        let initial_window = u64::from(flow.initial_window) * u64::from(payload);
        let base = Instant::now();
        let log = SharedLog::default();
        let progress = Arc::new(Progress::default());
        let (stack, name) = flow.cc.split_once('/').unwrap_or_default();
        macro_rules! pair {
            ($stack:ident) => {{
                use super::$stack::{End, Observing, own_controller};
                let inner = own_controller(name, initial_window)
                    .ok_or_else(|| Fault::new("cc", format!("unknown controller `{}`", flow.cc)))?;
                let factory = Arc::new(Observing { inner, log: log.clone(), base });
                let sender = End::new(TransportEnd::Sender, &options, Some(factory), Some(progress.clone()));
                let receiver = End::new(TransportEnd::Receiver, &options, None, None);
                Box::new(Pair::new(base, sender, receiver, log, Box::new(Own), progress, pair_options))
            }};
        }
        Ok(match stack {
            "noq" => pair!(noq),
            "quinn" => pair!(quinn),
            _ => return Err(Fault::new("cc", format!("unknown stack `{stack}`"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
