//! Why a path performs as it does: the nearest simulated path.

use super::estimate::random_loss;
use super::{PathEstimate, TRANSFERS, simulated, wire_rate};
use crate::record::Measurement;
use crate::simulate::{Simulate, State};
use fullpipe_net::compare::median;
use fullpipe_path::{Limit, LinkSpec, PolicerSpec};
use fullpipe_units::{Bytes, Rate, Span};
use serde::Serialize;

/// What limits a path.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Cause {
    /// The bottleneck's rate, with a deep enough buffer.
    Rate {
        /// The bottleneck's wire rate, bit/s.
        bps: f64,
    },
    /// Random loss.
    RandomLoss {
        /// Loss share, 0 to 1.
        share: f64,
    },
    /// A bottleneck buffer of much less than one BDP.
    ShallowBuffer {
        /// Buffer size in BDPs.
        bdp: f64,
    },
    /// A policer.
    Policer {
        /// Policed rate on the wire, bit/s.
        bps: f64,
        /// Burst size, bytes.
        burst: u64,
    },
    /// The receiver's window.
    ReceiveWindow {
        /// Bytes in flight.
        bytes: u64,
    },
    /// The sender's application or CPU.
    Sender {
        /// CPU time divided by transfer time.
        cpu: f64,
    },
}

/// A cause with its evidence.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Diagnosis {
    /// The cause.
    pub cause: Cause,
    /// Distance between the simulated path and the measurements: root mean square over the figures,
    /// in units of the difference between two simulations. Below 1 the paths are indistinguishable.
    pub distance: f64,
    /// The distance of a path with only a rate and a buffer.
    pub plain_distance: f64,
    /// The evidence, as text.
    pub evidence: Vec<String>,
}

impl Cause {
    /// A description of the cause.
    pub fn description(&self) -> String {
        match self {
            Cause::Rate { bps } => {
                format!("a bottleneck of {}", fullpipe_presentation::numbers::rate(*bps))
            }
            Cause::RandomLoss { share } => {
                format!("random loss of about {}", fullpipe_presentation::numbers::percent(*share))
            }
            Cause::ShallowBuffer { bdp } => format!("a shallow buffer, about {bdp:.2} BDP"),
            Cause::Policer { bps, .. } => {
                format!("a policer at about {}", fullpipe_presentation::numbers::rate(*bps))
            }
            Cause::ReceiveWindow { bytes } => {
                format!(
                    "the receiver's window, about {} kB (net.ipv4.tcp_rmem at the receiver)",
                    bytes / 1000
                )
            }
            Cause::Sender { .. } => "the sender: its application or CPU".to_owned(),
        }
    }
}

/// Buffers below this many BDPs hold loss-based controllers back.
const SHALLOW_BDP: f64 = 0.35;

/// The figures of a controller that are compared.
struct Figures {
    goodput_bps: f64,
    retransmitted: f64,
    /// Loaded RTT divided by minimum RTT.
    stretch: f64,
    window_limited: f64,
}

impl Figures {
    /// Differences in units of the scatter between simulations of the same path (about two of three
    /// are within 1).
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

/// Diagnoses what limits a direction.
pub fn diagnose(path: &PathEstimate, simulate: Simulate) -> Diagnosis {
    let busiest = path.controllers.iter().map(|observed| observed.cpu).fold(0.0, f64::max);
    let waiting = path.controllers.iter().map(|observed| observed.buffer_limited).fold(0.0, f64::max);
    let distances: Vec<(Cause, f64)> = candidates(path)
        .into_iter()
        .filter_map(|(cause, state)| Some((cause, distance(path, &state, simulate)?)))
        .collect();
    let nearest = distances.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let plain = distances.iter().filter(|(cause, _)| matches!(cause, Cause::Rate { .. })).map(|(_, d)| *d);
    let plain_distance = plain.fold(f64::INFINITY, f64::min);
    let (mut cause, distance) = match nearest {
        // Prefer the plain path where it fits nearly as well.
        Some((_, distance)) if plain_distance <= (distance * 1.15).max(0.7) => {
            (Cause::Rate { bps: path.best_bps }, plain_distance)
        }
        Some((cause, distance)) => (cause.clone(), *distance),
        None => (Cause::Rate { bps: path.best_bps }, f64::INFINITY),
    };
    let held = path.controllers.iter().map(|observed| observed.window_limited).fold(0.0, f64::max);
    let sender = busiest > 0.8 || waiting > 0.3 || matches!(cause, Cause::ReceiveWindow { .. }) && held < 0.1;
    if sender {
        cause = Cause::Sender { cpu: busiest };
    }
    Diagnosis { evidence: evidence(path, &cause), cause, distance, plain_distance }
}

/// The candidate paths.
fn candidates(path: &PathEstimate) -> Vec<(Cause, State)> {
    let best = path.best_bps;
    let carried = path.controllers.iter().map(|observed| observed.goodput_bps).fold(0.0, f64::max).max(1e3);
    let rate = wire_rate(best);
    let link = |rate: Rate, queue: Limit| LinkSpec {
        rate: Some(rate),
        delay: path.min_rtt / 2,
        queue: Some(queue.into()),
        ..LinkSpec::default()
    };
    let queue = Limit::Time(path.queue);
    let mut all = Vec::new();
    let deep = path.queue.as_secs_f64() / path.min_rtt.as_secs_f64();
    let as_measured =
        if deep < SHALLOW_BDP { Cause::ShallowBuffer { bdp: deep } } else { Cause::Rate { bps: best } };
    all.push((as_measured, path.with_forward_link(link(rate, queue))));
    for queue in [Limit::Bdp(1.0), Limit::Bdp(2.0)] {
        all.push((Cause::Rate { bps: best }, path.with_forward_link(link(rate, queue))));
    }
    let losses = [path.loss, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2];
    for share in losses.into_iter().filter(|share| *share > 1e-4) {
        for queue in [queue, Limit::Bdp(1.0)] {
            let lossy = LinkSpec { loss: Some(random_loss(share)), ..link(rate, queue) };
            all.push((Cause::RandomLoss { share }, path.with_forward_link(lossy)));
        }
    }
    for bdp in [0.02, 0.04, 0.08, 0.16, 0.3] {
        all.push((Cause::ShallowBuffer { bdp }, path.with_forward_link(link(rate, Limit::Bdp(bdp)))));
    }
    // The link behind a policer or a window is faster by an unknown factor.
    let behind = wire_rate((carried * 5.0).max(best));
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
        all.push((Cause::Policer { bps, burst }, path.with_forward_link(policed)));
    }
    let in_flight = carried / 8.0 * path.min_rtt.as_secs_f64();
    // Between half and all of a receive buffer is offered as window.
    for times in [1.1, 1.5, 2.1, 2.6] {
        let state = path.with_forward_link(link(behind, Limit::Bdp(1.0)));
        let receive_buffer = Some(Bytes((in_flight * times).max(8_000.0) as u64));
        all.push((Cause::ReceiveWindow { bytes: in_flight as u64 }, State { receive_buffer, ..state }));
    }
    all
}

/// The distance of a path from the measurements; `None` if the simulator lacks a controller.
fn distance(path: &PathEstimate, state: &State, simulate: Simulate) -> Option<f64> {
    let mut all = Vec::new();
    for (nth, observed) in path.controllers.iter().enumerate() {
        let outcomes = state.transfers(simulated(&observed.name), TRANSFERS, nth as u64, simulate).ok()?;
        let done: Vec<&Measurement> = outcomes.iter().filter_map(|outcome| outcome.done()).collect();
        let middle = |what: &dyn Fn(&Measurement) -> f64| {
            median(&done.iter().map(|done| what(done)).collect::<Vec<_>>())
        };
        let slowest = path.size as f64 * 8.0 / state.limit.as_secs_f64().max(1e-3);
        let stretch = |rtt: f64| (rtt / path.min_rtt.as_secs_f64()).max(1.0);
        let would = Figures {
            goodput_bps: if done.is_empty() {
                slowest
            } else {
                middle(&|d| d.goodput().as_bits_per_sec_f64())
            },
            retransmitted: middle(&Measurement::retransmitted_share),
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
        // Without completed transfers only goodput is comparable.
        all.extend(
            if observed.transfers == 0 || done.is_empty() { &each[..1] } else { &each[..] }
                .iter()
                .map(|d| d * d),
        );
    }
    (!all.is_empty()).then(|| (all.iter().sum::<f64>() / all.len() as f64).sqrt())
}

fn evidence(path: &PathEstimate, cause: &Cause) -> Vec<String> {
    let span = |span: Span| fullpipe_presentation::numbers::millis(span.as_millis_f64());
    let mut all: Vec<String> = path
        .controllers
        .iter()
        .map(|observed| {
            format!(
                "{}: goodput {}, retr {}, RTT {} under load ({} idle)",
                observed.name,
                fullpipe_presentation::numbers::rate(observed.goodput_bps),
                crate::analysis::Quantity::ProbesLost.format(observed.retransmitted),
                span(observed.rtt),
                span(path.min_rtt)
            )
        })
        .collect();
    if path.loss > 0.0 {
        all.push(format!(
            "{} of the probes are lost, even without load",
            fullpipe_presentation::numbers::percent(path.loss)
        ));
    }
    if matches!(cause, Cause::ReceiveWindow { .. }) {
        let held = path.controllers.iter().map(|observed| observed.window_limited).fold(0.0, f64::max);
        all.push(format!(
            "limited by the receiver's window for {} of the time",
            fullpipe_presentation::numbers::percent(held)
        ));
    }
    if let Cause::Sender { cpu } = cause {
        all.push(format!(
            "the sender's CPU is busy for {} of a transfer",
            fullpipe_presentation::numbers::percent(*cpu)
        ));
    }
    all
}
