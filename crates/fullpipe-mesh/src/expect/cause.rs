//! Why a path gives what it gives: the simulated path that comes nearest.

use super::found::random_loss;
use super::{Found, TRANSFERS, on_the_wire, simulated};
use crate::record::Measured;
use crate::simulate::State;
use fullpipe_net::compare::median;
use fullpipe_path::{Limit, LinkSpec, PolicerSpec};
use fullpipe_units::{Bytes, Rate, Span};
use serde::Serialize;

/// What makes a path give what it gives.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cause {
    /// Its rate, with a buffer that is deep enough: nothing else.
    Rate {
        /// Of the bottleneck, bit/s on the wire.
        bps: f64,
    },
    /// Packets are lost without congestion.
    RandomLoss {
        /// This share.
        share: f64,
    },
    /// The buffer before the bottleneck holds less than a BDP by far.
    ShallowBuffer {
        /// In BDPs.
        bdp: f64,
    },
    /// Somebody drops what is above a rate.
    Policer {
        /// That rate, bit/s on the wire.
        bps: f64,
        /// What passes above it at once, bytes.
        burst: u64,
    },
    /// The receiver's window is full before the path is.
    ReceiveWindow {
        /// What was in flight, bytes.
        bytes: u64,
    },
    /// The sender has nothing to send, or no processor to send it with.
    Sender {
        /// Processor time over the time of a transfer.
        cpu: f64,
    },
}

/// A cause, and what speaks for it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Diagnosis {
    /// The cause.
    pub cause: Cause,
    /// How far such a path is from what was measured: root mean square over figures, in units of what two simulations differ by. Below 1 it
    /// is the same path as far as anybody can tell.
    pub distance: f64,
    /// The same for a path that only has a rate and a buffer.
    pub plain_distance: f64,
    /// What speaks for it, in words.
    pub evidence: Vec<String>,
}

impl Cause {
    /// In words.
    pub fn said(&self) -> String {
        match self {
            Cause::Rate { bps } => {
                format!("a bottleneck of {}, and nothing else", fullpipe_report::rate(*bps))
            }
            Cause::RandomLoss { share } => {
                format!("random loss of about {}", fullpipe_report::percent(*share))
            }
            Cause::ShallowBuffer { bdp } => format!("a shallow buffer, about {bdp:.2} BDP"),
            Cause::Policer { bps, .. } => format!("a policer at about {}", fullpipe_report::rate(*bps)),
            Cause::ReceiveWindow { bytes } => {
                format!("the receiver's window, about {} kB (net.ipv4.tcp_rmem there)", bytes / 1000)
            }
            Cause::Sender { .. } => "the sender itself: its application or processor".to_owned(),
        }
    }
}

/// A buffer of fewer BDPs holds loss-based controllers down.
const SHALLOW: f64 = 0.35;

/// The figures of a controller that are compared.
struct Figures {
    goodput_bps: f64,
    retransmitted: f64,
    /// Round trip under load over the least.
    stretch: f64,
    window_limited: f64,
}

impl Figures {
    /// Simulated transfers of the same path differ by less than these in two of three cases.
    fn distance(&self, other: &Figures) -> [f64; 4] {
        let log = |a: f64, b: f64, floor: f64| ((a + floor) / (b + floor)).ln();
        [
            log(self.goodput_bps, other.goodput_bps, 1e3) / 0.15,
            log(self.retransmitted, other.retransmitted, 2e-3) / 0.5,
            log(self.stretch, other.stretch, 0.0) / 0.1,
            (self.window_limited - other.window_limited) / 0.25,
        ]
    }
}

/// Why a direction gives what it gives.
pub fn diagnose(found: &Found) -> Diagnosis {
    let busiest = found.controllers.iter().map(|observed| observed.cpu).fold(0.0, f64::max);
    let waiting = found.controllers.iter().map(|observed| observed.buffer_limited).fold(0.0, f64::max);
    let distances: Vec<(Cause, f64)> = candidates(found)
        .into_iter()
        .filter_map(|(cause, state)| Some((cause, distance(found, &state)?)))
        .collect();
    let nearest = distances.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let plain = distances.iter().filter(|(cause, _)| matches!(cause, Cause::Rate { .. })).map(|(_, d)| *d);
    let plain_distance = plain.fold(f64::INFINITY, f64::min);
    let (mut cause, distance) = match nearest {
        // What needs no cause beside the rate gets none.
        Some((_, distance)) if plain_distance <= (distance * 1.15).max(0.7) => {
            (Cause::Rate { bps: found.best_bps }, plain_distance)
        }
        Some((cause, distance)) => (cause.clone(), *distance),
        None => (Cause::Rate { bps: found.best_bps }, f64::INFINITY),
    };
    let held = found.controllers.iter().map(|observed| observed.window_limited).fold(0.0, f64::max);
    let sender = busiest > 0.8 || waiting > 0.3 || matches!(cause, Cause::ReceiveWindow { .. }) && held < 0.1;
    if sender {
        cause = Cause::Sender { cpu: busiest };
    }
    Diagnosis { evidence: evidence(found, &cause), cause, distance, plain_distance }
}

/// The paths that are tried.
fn candidates(found: &Found) -> Vec<(Cause, State)> {
    let best = found.best_bps;
    let carried = found.controllers.iter().map(|observed| observed.goodput_bps).fold(0.0, f64::max).max(1e3);
    let rate = on_the_wire(best);
    let link = |rate: Rate, queue: Limit| LinkSpec {
        rate: Some(rate),
        delay: found.min_rtt / 2,
        queue: Some(queue.into()),
        ..LinkSpec::default()
    };
    let queue = Limit::Time(found.queue);
    let mut all = Vec::new();
    let deep = found.queue.as_secs_f64() / found.min_rtt.as_secs_f64();
    let as_seen = if deep < SHALLOW { Cause::ShallowBuffer { bdp: deep } } else { Cause::Rate { bps: best } };
    all.push((as_seen, found.over(link(rate, queue))));
    for queue in [Limit::Bdp(1.0), Limit::Bdp(2.0)] {
        all.push((Cause::Rate { bps: best }, found.over(link(rate, queue))));
    }
    let losses = [found.loss, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2];
    for share in losses.into_iter().filter(|share| *share > 1e-4) {
        for queue in [queue, Limit::Bdp(1.0)] {
            let lossy = LinkSpec { loss: Some(random_loss(share)), ..link(rate, queue) };
            all.push((Cause::RandomLoss { share }, found.over(lossy)));
        }
    }
    for bdp in [0.02, 0.04, 0.08, 0.16, 0.3] {
        all.push((Cause::ShallowBuffer { bdp }, found.over(link(rate, Limit::Bdp(bdp)))));
    }
    // What is behind a policer or a window is quicker; by how much is not seen.
    let behind = on_the_wire((carried * 5.0).max(best));
    for (times, burst) in
        [(1.0, 32_000), (1.0, 120_000), (1.0, 500_000), (0.8, 120_000), (0.8, 500_000), (0.9, 2_000_000)]
    {
        let bps = carried * times * 1500.0 / 1448.0;
        let policer = PolicerSpec {
            rate: Rate::from_bits_per_sec(bps as u64),
            burst: Bytes(burst),
            initial: None,
            from: None,
        };
        let policed = LinkSpec { policer: Some(policer), ..link(behind, Limit::Bdp(1.0)) };
        all.push((Cause::Policer { bps, burst }, found.over(policed)));
    }
    let in_flight = carried / 8.0 * found.min_rtt.as_secs_f64();
    // Of a receive buffer, from half to all is offered as window.
    for times in [1.1, 1.5, 2.1, 2.6] {
        let state = found.over(link(behind, Limit::Bdp(1.0)));
        let receive_buffer = Some(Bytes((in_flight * times).max(8_000.0) as u64));
        all.push((Cause::ReceiveWindow { bytes: in_flight as u64 }, State { receive_buffer, ..state }));
    }
    all
}

/// How far a path is from what was measured; none of a controller that the simulator has not.
fn distance(found: &Found, state: &State) -> Option<f64> {
    let mut all = Vec::new();
    for (nth, observed) in found.controllers.iter().enumerate() {
        let outcomes = state.transfers(simulated(&observed.name), TRANSFERS, nth as u64).ok()?;
        let done: Vec<&Measured> = outcomes.iter().filter_map(|outcome| outcome.done()).collect();
        let middle =
            |what: &dyn Fn(&Measured) -> f64| median(&done.iter().map(|done| what(done)).collect::<Vec<_>>());
        let slowest = found.size as f64 * 8.0 / state.limit.as_secs_f64().max(1e-3);
        let stretch = |rtt: f64| (rtt / found.min_rtt.as_secs_f64()).max(1.0);
        let would = Figures {
            goodput_bps: if done.is_empty() {
                slowest
            } else {
                middle(&|d| d.goodput().as_bits_per_sec_f64())
            },
            retransmitted: middle(&Measured::retransmitted_share),
            stretch: stretch(middle(&|d| d.rtt.as_secs_f64())),
            window_limited: middle(&|d| f64::from(d.receive_window_limited)),
        };
        let was = Figures {
            goodput_bps: observed.goodput_bps,
            retransmitted: observed.retransmitted,
            stretch: stretch(observed.rtt.as_secs_f64()),
            window_limited: observed.window_limited,
        };
        let each = would.distance(&was);
        // Of what did not arrive only that is known.
        all.extend(
            if observed.transfers == 0 || done.is_empty() { &each[..1] } else { &each[..] }
                .iter()
                .map(|d| d * d),
        );
    }
    (!all.is_empty()).then(|| (all.iter().sum::<f64>() / all.len() as f64).sqrt())
}

fn evidence(found: &Found, cause: &Cause) -> Vec<String> {
    let span = |span: Span| fullpipe_report::millis(span.as_millis_f64());
    let mut all: Vec<String> = found
        .controllers
        .iter()
        .map(|observed| {
            format!(
                "{} carries {}, sends {} again, and its round trip under load is {} ({} without)",
                observed.name,
                fullpipe_report::rate(observed.goodput_bps),
                crate::see::Quantity::ProbesLost.figure(observed.retransmitted),
                span(observed.rtt),
                span(found.min_rtt)
            )
        })
        .collect();
    if found.loss > 0.0 {
        all.push(format!(
            "{} of the probes do not arrive, load or not",
            fullpipe_report::percent(found.loss)
        ));
    }
    if matches!(cause, Cause::ReceiveWindow { .. }) {
        let held = found.controllers.iter().map(|observed| observed.window_limited).fold(0.0, f64::max);
        all.push(format!(
            "the receiver's window holds it up for {} of the time",
            fullpipe_report::percent(held)
        ));
    }
    if let Cause::Sender { cpu } = cause {
        all.push(format!(
            "the sender's processor is busy for {} of a transfer",
            fullpipe_report::percent(*cpu)
        ));
    }
    all
}
