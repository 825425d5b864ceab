//! What a mesh knows of the path of a direction.

use super::on_the_wire;
use crate::record::{ControllerId, History, Measured, Outcome, Pair};
use crate::simulate::State;
use fullpipe_experiment::statistics;
use fullpipe_net::compare::median;
use fullpipe_path::{BernoulliSpec, Limit, LinkSpec, LossSpec};
use fullpipe_units::{Bytes, Fraction, Span};
use serde::Serialize;

/// The newest transfers of a controller and minutes of probes that count: what was four hours ago may have been another path.
const NEWEST: usize = 240;
/// A transfer may take this part of a period, unless the mesh file says otherwise.
const LIMIT: u64 = 3;
/// A queue that nobody was seen to stand in still holds a few packets.
const LEAST_QUEUE: Span = Span::from_micros(500);

/// What was measured of a direction, of the newest four hours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Found {
    /// Which direction.
    pub pair: Pair,
    /// The least round trip.
    pub min_rtt: Span,
    /// The best rate that the path was seen to give: payload, bit/s.
    pub best_bps: f64,
    /// By how much round trips under load were longer.
    pub queue: Span,
    /// The share of probes that did not arrive: loss without load.
    pub loss: f64,
    /// Bytes of a transfer.
    pub size: u64,
    /// How often.
    pub every: Span,
    /// Each controller, in the order of the mesh.
    pub controllers: Vec<Observed>,
}

/// What a controller came to: medians over its transfers.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Observed {
    /// The controller.
    pub name: String,
    /// Transfers that arrived.
    pub transfers: usize,
    /// Goodput, bit/s; of transfers that all take too long, what the longest would be.
    pub goodput_bps: f64,
    /// The share of segments sent again.
    pub retransmitted: f64,
    /// Round trip at the end of a transfer.
    pub rtt: Span,
    /// The share of its time that the receiver's window held it up.
    pub window_limited: f64,
    /// The share that its own buffer did.
    pub buffer_limited: f64,
    /// Processor time of the sender over the time of the transfer.
    pub cpu: f64,
}

/// What the records tell of a direction; none without a transfer that arrived.
pub fn found(history: &History, pair: Pair) -> Option<Found> {
    let mut min_rtt: Option<Span> = None;
    let mut least = |rtt: Span| min_rtt = Some(min_rtt.map_or(rtt, |least| least.min(rtt)));
    let (mut sent, mut lost) = (0u64, 0u64);
    for minute in history.minutes.iter().rev().filter(|minute| minute.pair == pair).take(NEWEST) {
        if let Some(rtt) = minute.rtt {
            least(rtt.min);
        }
        if minute.arrived > 0 {
            sent += u64::from(minute.sent);
            lost += u64::from(minute.sent.saturating_sub(minute.arrived));
        }
    }
    let of = |controller: ControllerId| -> Vec<&Measured> {
        let own = history.transfers.iter().rev().filter(|t| t.pair == pair && t.controller == controller);
        own.filter_map(|transfer| transfer.outcome.done()).take(NEWEST).collect()
    };
    let all: Vec<Vec<&Measured>> = (0..history.controllers.len()).map(|cc| of(cc as ControllerId)).collect();
    let size = all.iter().flatten().map(|done| done.bytes).max()?;
    for done in all.iter().flatten() {
        least(done.min_rtt);
    }
    let min_rtt = min_rtt?.max(Span::from_micros(10));
    let best = |done: &&Measured| {
        let goodput = done.goodput().as_bits_per_sec_f64();
        done.delivery_rate.map_or(goodput, |rate| rate.as_bits_per_sec_f64().max(goodput))
    };
    let best_bps = all.iter().map(|of| quantile(of.iter().map(best).collect(), 0.9)).fold(0.0, f64::max);
    let loaded = |of: &Vec<&Measured>| quantile(of.iter().map(|done| done.rtt.as_secs_f64()).collect(), 0.9);
    let loaded = Span::from_secs_f64(all.iter().map(loaded).fold(0.0, f64::max));
    let slowest = size as f64 * 8.0 * LIMIT as f64 / history.period.as_secs_f64().max(1e-3);
    let observed = |(name, of): (&String, &Vec<&Measured>)| {
        let middle =
            |what: &dyn Fn(&Measured) -> f64| median(&of.iter().map(|done| what(done)).collect::<Vec<_>>());
        Observed {
            name: name.clone(),
            transfers: of.len(),
            goodput_bps: if of.is_empty() {
                slowest
            } else {
                middle(&|done| done.goodput().as_bits_per_sec_f64())
            },
            retransmitted: middle(&Measured::retransmitted_share),
            rtt: Span::from_secs_f64(middle(&|done| done.rtt.as_secs_f64())),
            window_limited: middle(&|done| f64::from(done.receive_window_limited)),
            buffer_limited: middle(&|done| f64::from(done.send_buffer_limited)),
            cpu: middle(&|done| done.cpu.as_secs_f64() / done.duration.as_secs_f64().max(1e-9)),
        }
    };
    Some(Found {
        pair,
        min_rtt,
        best_bps,
        queue: (loaded.max(min_rtt) - min_rtt).max(LEAST_QUEUE),
        loss: if sent == 0 { 0.0 } else { lost as f64 / sent as f64 },
        size,
        every: history.period.max(Span::from_millis(1)),
        controllers: history.controllers.iter().zip(&all).map(observed).collect(),
    })
}

fn quantile(mut all: Vec<f64>, q: f64) -> f64 {
    statistics::quantile(&mut all, q).unwrap_or(0.0)
}

impl Found {
    /// The path that follows from it.
    pub(crate) fn state(&self) -> State {
        let loss = (self.loss > 0.0).then(|| random_loss(self.loss));
        let forward = LinkSpec {
            rate: Some(on_the_wire(self.best_bps)),
            delay: self.min_rtt / 2,
            queue: Some(Limit::Time(self.queue).into()),
            loss,
            ..LinkSpec::default()
        };
        self.over(forward)
    }

    /// The same transfers over another link there.
    pub(crate) fn over(&self, forward: LinkSpec) -> State {
        let reverse = LinkSpec { delay: self.min_rtt - self.min_rtt / 2, ..LinkSpec::default() };
        State {
            forward,
            reverse,
            size: Bytes(self.size),
            every: self.every,
            limit: self.every / LIMIT,
            receive_buffer: None,
        }
    }
}

/// This share of packets, each for itself.
pub(super) fn random_loss(share: f64) -> LossSpec {
    let share = Fraction::from_billionths((share.clamp(0.0, 1.0) * 1e9) as u32);
    LossSpec::Bernoulli(BernoulliSpec { share })
}

impl Outcome {
    /// What a transfer that arrived told.
    pub fn done(&self) -> Option<&Measured> {
        match self {
            Outcome::Done(done) => Some(done),
            Outcome::Failed(_) => None,
        }
    }
}
