//! The path of a direction as estimated from its records.

use super::wire_rate;
use crate::record::{ControllerId, History, Measurement, Outcome, Pair};
use crate::simulate::State;
use fullpipe_experiment::statistics;
use fullpipe_net::compare::median;
use fullpipe_path::{BernoulliSpec, Limit, LinkSpec, LossSpec};
use fullpipe_units::{Bytes, Fraction, Span};
use serde::Serialize;

/// The newest transfers per controller and probe minutes that are used: older ones may belong to
/// another path.
pub const ESTIMATION_RECORDS: usize = 240;
/// The default time limit of a transfer is the period divided by this.
const DEFAULT_LIMIT_DIVISOR: u64 = 3;
/// The smallest queue: a few packets always fit.
const MIN_QUEUE: Span = Span::from_micros(500);

/// Measurements of a direction over the newest four hours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PathEstimate {
    /// The direction.
    pub pair: Pair,
    /// Minimum RTT.
    pub min_rtt: Span,
    /// The best goodput or delivery rate observed, bit/s.
    pub best_bps: f64,
    /// Queueing delay: loaded RTT minus minimum RTT.
    pub queue: Span,
    /// Probe loss share: loss without load.
    pub loss: f64,
    /// Bytes per transfer.
    pub size: u64,
    /// Time between transfers.
    pub every: Span,
    /// Statistics per controller, in the order of the mesh.
    pub controllers: Vec<ControllerStats>,
}

/// Medians over a controller's transfers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ControllerStats {
    /// Controller name.
    pub name: String,
    /// Completed transfers.
    pub transfers: usize,
    /// Goodput, bit/s. If all transfers time out, the goodput at the time limit.
    pub goodput_bps: f64,
    /// Retransmitted share, 0 to 1.
    pub retransmitted: f64,
    /// RTT at the end of a transfer.
    pub rtt: Span,
    /// Share of time limited by the receiver's window.
    pub window_limited: f64,
    /// Share of time limited by the send buffer.
    pub buffer_limited: f64,
    /// The sender's CPU time divided by transfer time.
    pub cpu: f64,
}

/// Estimates the path of a direction; `None` without a completed transfer.
pub fn estimate_path(history: &History, pair: Pair) -> Option<PathEstimate> {
    let mut min_rtt: Option<Span> = None;
    let mut least = |rtt: Span| min_rtt = Some(min_rtt.map_or(rtt, |least| least.min(rtt)));
    let (mut sent, mut lost) = (0u64, 0u64);
    for minute in history.minutes.iter().rev().filter(|minute| minute.pair == pair).take(ESTIMATION_RECORDS) {
        if let Some(rtt) = minute.rtt {
            least(rtt.min);
        }
        if minute.arrived > 0 {
            sent += u64::from(minute.sent);
            lost += u64::from(minute.sent.saturating_sub(minute.arrived));
        }
    }
    let of = |controller: ControllerId| -> Vec<&Measurement> {
        let own = history.transfers.iter().rev().filter(|t| t.pair == pair && t.controller == controller);
        own.filter_map(|transfer| transfer.outcome.done()).take(ESTIMATION_RECORDS).collect()
    };
    let all: Vec<Vec<&Measurement>> =
        (0..history.controllers.len()).map(|cc| of(cc as ControllerId)).collect();
    let size = all.iter().flatten().map(|done| done.bytes).max()?;
    for done in all.iter().flatten() {
        least(done.min_rtt);
    }
    let min_rtt = min_rtt?.max(Span::from_micros(10));
    let best = |done: &&Measurement| {
        let goodput = done.goodput().as_bits_per_sec_f64();
        done.delivery_rate.map_or(goodput, |rate| rate.as_bits_per_sec_f64().max(goodput))
    };
    let best_bps = all.iter().map(|of| quantile(of.iter().map(best).collect(), 0.9)).fold(0.0, f64::max);
    let loaded =
        |of: &Vec<&Measurement>| quantile(of.iter().map(|done| done.rtt.as_secs_f64()).collect(), 0.9);
    let loaded = Span::from_secs_f64(all.iter().map(loaded).fold(0.0, f64::max));
    let slowest = size as f64 * 8.0 * DEFAULT_LIMIT_DIVISOR as f64 / history.period.as_secs_f64().max(1e-3);
    let observed = |(name, of): (&String, &Vec<&Measurement>)| {
        let middle = |what: &dyn Fn(&Measurement) -> f64| {
            median(&of.iter().map(|done| what(done)).collect::<Vec<_>>())
        };
        ControllerStats {
            name: name.clone(),
            transfers: of.len(),
            goodput_bps: if of.is_empty() {
                slowest
            } else {
                middle(&|done| done.goodput().as_bits_per_sec_f64())
            },
            retransmitted: middle(&Measurement::retransmitted_share),
            rtt: Span::from_secs_f64(middle(&|done| done.rtt.as_secs_f64())),
            window_limited: middle(&|done| f64::from(done.receive_window_limited)),
            buffer_limited: middle(&|done| f64::from(done.send_buffer_limited)),
            cpu: middle(&|done| done.cpu.as_secs_f64() / done.duration.as_secs_f64().max(1e-9)),
        }
    };
    Some(PathEstimate {
        pair,
        min_rtt,
        best_bps,
        queue: (loaded.max(min_rtt) - min_rtt).max(MIN_QUEUE),
        loss: if sent == 0 { 0.0 } else { lost as f64 / sent as f64 },
        size,
        every: history.period.max(Span::from_millis(1)),
        controllers: history.controllers.iter().zip(&all).map(observed).collect(),
    })
}

fn quantile(mut all: Vec<f64>, q: f64) -> f64 {
    statistics::quantile(&mut all, q).unwrap_or(0.0)
}

impl PathEstimate {
    /// The simulated path for this estimate.
    pub(crate) fn state(&self) -> State {
        let loss = (self.loss > 0.0).then(|| random_loss(self.loss));
        let forward = LinkSpec {
            rate: Some(wire_rate(self.best_bps)),
            delay: self.min_rtt / 2,
            queue: Some(Limit::Time(self.queue).into()),
            loss,
            ..LinkSpec::default()
        };
        self.with_forward_link(forward)
    }

    /// The same transfers over another forward link.
    pub(crate) fn with_forward_link(&self, forward: LinkSpec) -> State {
        let reverse = LinkSpec { delay: self.min_rtt - self.min_rtt / 2, ..LinkSpec::default() };
        State {
            forward,
            reverse,
            size: Bytes(self.size),
            every: self.every,
            limit: self.every / DEFAULT_LIMIT_DIVISOR,
            receive_buffer: None,
        }
    }
}

/// Independent random loss with this share.
pub(super) fn random_loss(share: f64) -> LossSpec {
    let share = Fraction::from_billionths((share.clamp(0.0, 1.0) * 1e9) as u32);
    LossSpec::Bernoulli(BernoulliSpec { share })
}

impl Outcome {
    /// The measurements of a completed transfer.
    pub fn done(&self) -> Option<&Measurement> {
        match self {
            Outcome::Done(done) => Some(done),
            Outcome::Failed(_) => None,
        }
    }
}
