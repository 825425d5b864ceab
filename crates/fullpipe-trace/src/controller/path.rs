//! Estimates the path of a connection, as a scenario for the candidates.

use super::Observation;
use super::conditions::{Conditions, EarlyQueue};
use crate::connection::Step;
use crate::quantity;
use fullpipe_experiment::scenario::{FlowSpec, HEADER_BYTES, PathSpec, Scenario};
use fullpipe_path::{
    AggregateSpec, CodelSpec, Distribution, JitterSpec, Limit, LossSpec, PieSpec, QueueSpec, ScheduledChange,
};
use fullpipe_sim::{End, ReceiverBehaviour};
use fullpipe_units::{Bytes, Fraction, Rate, Span};

/// Maximum simulated time: enough for all features.
const MAX_DURATION: Span = Span::from_secs(40);
/// Maximum number of simulated packets at the measured rate,
const MAX_PACKETS: u64 = 400_000;
/// and as a multiple of that at the estimated rate of the path.
const MAX_PACKETS_FACTOR: u64 = 16;

/// The estimated path and endpoint behaviour.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PathEstimate {
    /// Rate of the bottleneck, headers included.
    pub(crate) rate: Rate,
    pub(crate) rtprop: Span,
    /// Size of the bottleneck's queue, in bytes.
    pub(crate) buffer: u64,
    /// Whether the queue overflowed.
    pub(crate) overflows: bool,
    /// Share of the segments lost while the queue had room.
    pub(crate) loss: f64,
    /// Initial congestion window in segments.
    pub(crate) initial_window: u32,
    /// Whether the initial window was observed, rather than assumed.
    pub(crate) initial_window_seen: bool,
    /// Receive window, if it was ever full.
    pub(crate) receive_window: Option<u64>,
    /// Behaviour of the receiver, if its windows are known.
    pub(crate) receiving: Vec<ReceiverBehaviour>,
    pub(crate) mss: u32,
    /// Simulated time.
    pub(crate) duration: Span,
    /// Later rates of the bottleneck.
    pub(crate) schedule: Vec<ScheduledChange>,
    pub(crate) delivery: Delivery,
    /// A queue that drops or marks before it is full.
    pub(crate) early: Option<QueueSpec>,
    /// Whether it marks.
    pub(crate) marks: bool,
}

/// How the path delivers packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// One after the other.
    Even,
    /// Bunches of packets that waited for at most this time.
    Bunches(Span),
    /// With random delays of this standard deviation.
    Jitter(Span),
}

/// A loss is a queue drop if the queueing delay shortly before was this share of the maximum.
const FULL_SHARE: f64 = 0.7;
/// The assumed size of a queue that never overflowed is this multiple of its longest length,
const QUEUE_MARGIN: f64 = 3.0;
/// and at least this many bandwidth-delay products.
const MIN_QUEUE_BDP: f64 = 2.0;

/// Factor by which an acknowledgment may be delayed.
const MAX_ACK_DELAY: f64 = 1.25;
/// Maximum number of steps for which a full queue has to last.
const MAX_FULL_STEPS: usize = 3;
/// Minimum time over which an arrival rate is measured, in seconds.
const MIN_RATE_WINDOW_S: f64 = 0.05;
/// Ratio from which one rate is higher than another.
const HIGHER_RATIO: f64 = 1.15;

/// A path whose queueing delay stays below this share of the RTT is not full,
const MAX_IDLE_QUEUE: f64 = 0.1;
/// and is assumed to have this multiple of the measured rate.
const UNFILLED_FACTOR: u64 = 4;

/// Share of the segments lost at random. Losses in bursts, as with a queue overflow, count only as
/// far as chance allows.
fn random_loss(rounds: &[(f64, f64)]) -> f64 {
    let sent = rounds.iter().map(|r| r.0).sum::<f64>().max(1.0);
    let mut share = rounds.iter().map(|r| r.1).sum::<f64>() / sent;
    for _ in 0..8 {
        let capped = rounds.iter().map(|(sent, again)| {
            let mean = share * sent;
            again.min(mean + 3.0 * mean.sqrt() + 1.0)
        });
        share = capped.sum::<f64>() / sent;
    }
    share
}

/// The highest arrival rate over a round trip, headers included, if it exceeds BtlBw: the path was
/// filled for moments only, and BtlBw is the rate of the sender.
fn peak_rate(observed: &Observation<'_>, steps: &[Step], waits: &[Option<f64>]) -> Option<Rate> {
    let (rtt, rate) = (observed.rtprop.as_secs_f64(), observed.rate.as_bytes_per_sec() as f64);
    let width = observed.trajectory.steps().width().as_secs_f64();
    // Long enough that data delivered in a burst does not make a rate.
    let window = rtt.max(MIN_RATE_WINDOW_S).max(20.0 * f64::from(observed.mss) / rate);
    let n = (window / width).ceil() as usize;
    let arrived: Vec<f64> = steps
        .windows(n)
        .map(|w| w.iter().map(|s| f64::from(s.arrived)).sum::<f64>() / (n as f64 * width))
        .collect();
    let most = arrived.iter().copied().fold(0.0, f64::max);
    // At the rate of the path, senders stay for long, or data queues.
    let at_rate = |a: f64| (1.0 / HIGHER_RATIO..HIGHER_RATIO).contains(&(a / rate));
    let mut waited: Vec<f64> = Vec::new();
    let mut kept = 0;
    for (_, wait) in arrived.iter().zip(waits.get(n - 1..).unwrap_or_default()).filter(|(a, _)| at_rate(**a))
    {
        kept += 1;
        waited.extend(wait);
    }
    waited.sort_by(f64::total_cmp);
    let usual = waited.get(waited.len() / 2).copied().unwrap_or(0.0);
    let is_the_paths = kept * 2 > arrived.len() || usual > MAX_IDLE_QUEUE / 2.0 * rtt;
    (most > HIGHER_RATIO * rate && !is_the_paths).then(|| {
        let headers = observed.wire_rate.as_bytes_per_sec() as f64 / rate;
        Rate::from_bytes_per_sec((most * headers) as u64)
    })
}

impl PathEstimate {
    /// Estimates the path of an observation.
    pub(crate) fn new(observed: &Observation<'_>) -> Self {
        let rtt = observed.rtprop.as_secs_f64();
        let steps: Vec<Step> = observed.trajectory.steps().all().copied().collect();
        let width = observed.trajectory.steps().width().as_secs_f64();
        let waits: Vec<Option<f64>> = steps
            .iter()
            .map(|s| (s.samples > 0).then(|| (s.rtt_sum as f64 / f64::from(s.samples) / 1e6 - rtt).max(0.0)))
            .collect();
        // A full queue lasts for several steps; data delayed by a host is late all at once.
        let shown: Vec<f64> = waits.iter().flatten().copied().collect();
        let lasting = ((rtt / width / 2.0) as usize).clamp(2, MAX_FULL_STEPS);
        let longest =
            shown.windows(lasting).map(|w| w.iter().copied().fold(f64::MAX, f64::min)).fold(0.0, f64::max);
        let per_segment =
            f64::from(observed.mss + HEADER_BYTES) / observed.wire_rate.as_bytes_per_sec() as f64;
        let queued = longest > 4.0 * per_segment;
        // Data sent next to a loss waited in the full queue. The sender knows that when it is acknowledged,
        // the receiver when it arrives.
        let visible_after = |wait: f64| if observed.end == End::Sender { rtt + wait } else { 0.0 };
        let slack = 2.0 * width + 2.0 * per_segment;
        let step_at = |after: f64| (after / width).floor().max(0.0) as usize;
        let (first, last) = (
            step_at(visible_after(FULL_SHARE * longest) - slack),
            step_at(MAX_ACK_DELAY * visible_after(longest) + slack),
        );
        let early = if observed.end == End::Sender { 0 } else { step_at(slack) };
        // During long recoveries without RTT samples, the state is unchanged.
        let full: Vec<bool> = (0..steps.len())
            .scan(false, |was, i| {
                let around = (i + first).saturating_sub(early)..(i + last + 1).min(steps.len());
                let around = waits.get(around).unwrap_or_default();
                let beside = around.iter().flatten().copied().reduce(f64::max);
                *was = beside.map_or(*was, |most| queued && most >= FULL_SHARE * longest);
                Some(*was)
            })
            .collect();
        let overflowed: u64 =
            (0..).zip(&steps).filter(|(i, _): &(usize, _)| full[*i]).map(|(_, s)| u64::from(s.lost)).sum();
        // Segments sent and lost per round trip; optionally only of those with room in the queue.
        let each = ((rtt / width).round() as usize).max(1);
        let rounds = |also_full: bool| -> Vec<(f64, f64)> {
            let round = (0..steps.len()).step_by(each).map(|i| {
                let these = (i..(i + each).min(steps.len())).filter(|i| also_full || !full[*i]);
                these.fold((0.0, 0.0), |(sent, lost), i| {
                    (
                        sent + f64::from(steps[i].sent) / f64::from(observed.mss),
                        lost + f64::from(steps[i].lost),
                    )
                })
            });
            round.collect()
        };
        let beside = rounds(false);
        let loss = random_loss(&beside);
        let random = (loss * beside.iter().map(|r| r.0).sum::<f64>()) as u64;
        let overflows = overflowed * 4 > random && overflowed > 2;
        // A queue that never overflowed dropped nothing.
        let loss = if overflows { loss } else { random_loss(&rounds(true)) };
        // Without queueing delay, the path is faster than the sender.
        let filled = longest > f64::max(MAX_IDLE_QUEUE * rtt, 3.0 * per_segment);
        let rate = if !filled {
            Rate::from_bytes_per_sec(observed.wire_rate.as_bytes_per_sec().saturating_mul(UNFILLED_FACTOR))
        } else {
            peak_rate(observed, &steps, &waits).unwrap_or(observed.wire_rate)
        };
        let queue = longest * rate.as_bytes_per_sec() as f64;
        let bdp = rtt * rate.as_bytes_per_sec() as f64;
        let buffer = if overflows { queue } else { (queue * QUEUE_MARGIN).max(bdp * MIN_QUEUE_BDP) };
        let packets = Span::from_secs_f64(MAX_PACKETS as f64 * per_segment);
        let bytes = MAX_PACKETS * MAX_PACKETS_FACTOR * u64::from(observed.mss + HEADER_BYTES);
        let packets = packets.min(rate.time_to_send(bytes));
        let (initial_window, initial_window_seen) = initial_window(observed);
        PathEstimate {
            rate,
            rtprop: observed.rtprop,
            buffer: (buffer as u64).max(4 * u64::from(observed.mss + HEADER_BYTES)),
            overflows,
            loss,
            initial_window,
            initial_window_seen,
            receive_window: observed.receive_window,
            receiving: observed.trajectory.receiving().to_vec(),
            mss: observed.mss,
            duration: observed.active.min(MAX_DURATION).min(packets),
            schedule: Vec::new(),
            delivery: Delivery::Even,
            early: None,
            marks: false,
        }
    }

    /// The paths to simulate under these conditions.
    pub(crate) fn variants(&self, conditions: &Conditions) -> Vec<PathEstimate> {
        if conditions.is_plain() {
            return vec![self.clone()];
        }
        let headers = f64::from(self.mss + HEADER_BYTES) / f64::from(self.mss);
        let on_the_wire =
            |rate: Rate| Rate::from_bytes_per_sec((rate.as_bytes_per_sec() as f64 * headers) as u64);
        let with_rates = |rates: &[(Span, Rate)]| PathEstimate {
            rate: rates.first().map_or(self.rate, |r| on_the_wire(r.1)),
            schedule: rates
                .iter()
                .skip(1)
                .map(|(at, rate)| ScheduledChange {
                    at: *at,
                    rate: Some(on_the_wire(*rate)),
                    ..ScheduledChange::default()
                })
                .collect(),
            ..self.clone()
        };
        let changes = conditions.rates.as_ref();
        let levels = with_rates(changes.map_or(&[], |c| &c.levels));
        let marks = matches!(conditions.queue, Some(EarlyQueue::Marks(_)));
        let mut paths = match conditions.queue {
            None => vec![levels],
            Some(_) => [
                QueueSpec::Codel(CodelSpec { ecn: marks, ..CodelSpec::default() }),
                QueueSpec::Pie(PieSpec { ecn: marks, ..PieSpec::default() }),
            ]
            .map(|queue| PathEstimate { early: Some(queue), marks, loss: 0.0, ..levels.clone() })
            .into(),
        };
        if !marks {
            // What fills the queue is not all known, but what was lost is.
            paths.push(with_rates(changes.map_or(&[], |c| &c.windows)).with_losses(&conditions.losses));
        }
        let Some(bunches) = conditions.bunches else { return paths };
        let each = [Delivery::Bunches(bunches.gap), Delivery::Jitter(bunches.gap / 2)];
        let delivered = |path: &PathEstimate| each.map(|delivery| PathEstimate { delivery, ..path.clone() });
        paths.iter().flat_map(delivered).collect()
    }

    /// This path with these losses only: since when, and for how long, what leaves the queue is lost.
    fn with_losses(mut self, losses: &[(Span, Span)]) -> PathEstimate {
        let change = |at: Span, billionths: u32| ScheduledChange {
            at,
            loss: Some(Fraction::from_billionths(billionths)),
            ..ScheduledChange::default()
        };
        let mut end = Span::ZERO;
        for (i, (at, length)) in losses.iter().enumerate() {
            let from = (*at).max(end);
            self.schedule.push(change(from, 1_000_000_000));
            end = from + *length;
            if losses.get(i + 1).is_none_or(|next| next.0 > end) {
                self.schedule.push(change(end, 0));
            }
        }
        self.schedule.sort_by_key(|c| c.at);
        PathEstimate { buffer: self.buffer.saturating_mul(2), loss: 0.0, ..self }
    }

    /// Description for the evidence.
    pub(crate) fn description(&self) -> String {
        let loss = match self.loss {
            l if l < 1e-5 => "no random loss".to_owned(),
            l => format!("{:.2} % random loss", l * 100.0),
        };
        format!(
            "candidates simulated on {}, {}, a queue of {}{}, {loss}, initial window {} segments",
            quantity::rate(self.rate),
            quantity::span(self.rtprop),
            quantity::bytes(self.buffer),
            if self.overflows { "" } else { " (never full)" },
            self.initial_window
        )
    }

    /// A bulk flow of `cc` on this path.
    pub(crate) fn scenario(&self, cc: &str, end: End) -> Scenario {
        let mut path = PathSpec::bottleneck(self.rate, self.rtprop, Limit::Bytes(self.buffer));
        if self.loss > 0.0 || self.schedule.iter().any(|c| c.loss.is_some()) {
            let share = Fraction::from_billionths((self.loss.min(0.5) * 1e9) as u32);
            path.forward[0].loss = Some(LossSpec::from(share));
        }
        path.forward[0].schedule.clone_from(&self.schedule);
        if let Some(queue) = &self.early {
            path.forward[0].queue = Some(queue.clone());
        }
        // The data is bunched before the receiver's capture, and data or ACKs before the sender's.
        let bunched = if end == End::Receiver { &mut path.forward[0] } else { &mut path.reverse[0] };
        match self.delivery {
            Delivery::Even => {}
            Delivery::Bunches(hold) => {
                bunched.aggregate = Some(AggregateSpec { hold: Some(hold), ..AggregateSpec::default() });
            }
            Delivery::Jitter(spread) => {
                bunched.delay += spread * 2;
                bunched.jitter = Some(JitterSpec { distribution: Distribution::Normal, ..spread.into() });
            }
        }
        let mut flow = FlowSpec::bulk(cc);
        flow.ecn = self.marks;
        flow.initial_window = self.initial_window;
        // Kernels use segmentation offload.
        flow.tso = Some(true);
        flow.receive_buffer = self.receive_window.map(|w| Bytes(2 * w));
        let mut scenario = Scenario::new(path, vec![flow]);
        scenario.duration = self.duration + self.rtprop;
        scenario.mtu = self.mss + HEADER_BYTES;
        scenario.sample = scenario.duration;
        scenario
    }
}

/// Default initial window of Linux (RFC 6928), in segments.
pub(crate) const INITIAL_WINDOW: u32 = 10;

/// Segments sent before the first acknowledgment, and whether they filled the initial window.
fn initial_window(observed: &Observation<'_>) -> (u32, bool) {
    let mss = u64::from(observed.mss);
    // An application with less data ends with a partial segment.
    match observed.trajectory.opening().filter(|bytes| observed.from_start && bytes.is_multiple_of(mss)) {
        Some(bytes) => ((bytes / mss).clamp(1, 200) as u32, true),
        None => (INITIAL_WINDOW, false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulate_capture;
    use super::*;
    use fullpipe_experiment::connection::{Heading, Point};
    use fullpipe_sim::{Controllers, End};

    /// The estimate for `cc` with an initial window of `segments` on a path of 10 Mbit/s, captured
    /// at `end`.
    fn estimate(cc: &str, segments: u32, rtt: Span, end: End) -> PathEstimate {
        let path = PathSpec::bottleneck(Rate::from_bits_per_sec(10_000_000), rtt, Limit::Bytes(60_000));
        let mut flow = FlowSpec::bulk(cc);
        flow.initial_window = segments;
        let mut scenario = Scenario::new(path, vec![flow]);
        scenario.duration = rtt * 60 + Span::from_secs(2);
        scenario.sample = scenario.duration;
        let at = if end == End::Sender { Point::Client } else { Point::Server };
        let traced = simulate_capture(&scenario, 1, &Controllers::new(), end, Some(at)).unwrap().unwrap();
        let observed = Observation::new(&traced, Heading::ToServer).unwrap();
        PathEstimate::new(&observed)
    }

    #[test]
    fn initial_window_is_the_data_before_the_first_acknowledgment() {
        for end in [End::Sender, End::Receiver] {
            for segments in [1, 4, 10, 32] {
                let g = estimate("reno", segments, Span::from_millis(100), end);
                assert_eq!((g.initial_window, g.initial_window_seen), (segments, true), "{end:?}");
            }
        }
    }

    #[test]
    fn initial_window_that_fills_the_path_is_observed_at_both_ends() {
        for end in [End::Sender, End::Receiver] {
            let g = estimate("reno", 32, Span::from_millis(10), end);
            assert_eq!((g.initial_window, g.initial_window_seen), (32, true), "{end:?}");
        }
    }
}
