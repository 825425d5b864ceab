//! What a path does beyond a constant rate with a drop-tail queue, used alone: the candidates'
//! simulations assume no more than that unless it is found here.

use super::Observation;
use crate::connection::Step;
use crate::quantity;
use fullpipe_experiment::statistics;
use fullpipe_sim::End;
use fullpipe_units::{Rate, Span};

/// Share of the bytes that arrive at several times the rate of the path, from which on they arrive
/// in bunches. On paths without bunching it is below 1 %.
const MIN_BUNCHED: f64 = 0.04;
/// That many times the rate.
const BUNCHED_RATE: f64 = 4.0;
/// The same for packet pairs that show a faster link than the connection was given.
const MIN_FASTER: f64 = 0.08;
const FASTER_RATE: f64 = 1.7;
/// Noise of the RTT, in milliseconds and as a multiple of a segment's time, that no queue makes.
const MIN_NOISE_S: f64 = 0.000_7;
const MIN_NOISE_SEGMENTS: f64 = 2.2;

/// A delivery rate below this share of the usual highest one, while a queue stands,
const LOWER_RATE: f64 = 0.86;
/// or this if data arrives in bunches,
const LOWER_BUNCHED_RATE: f64 = 0.7;
/// in this share of the time, is not that of a constant path used alone.
const MIN_LOWER: f64 = 0.04;
/// Minimum number of such windows.
const MIN_LOWER_WINDOWS: usize = 4;
/// Deviation within which a rate counts as constant.
const SAME_RATE: f64 = 0.05;

/// A rate that changes more often is not reported as one that changes, but as one that varies.
const MAX_LEVELS: usize = 16;

/// Minimum number of marks.
const MIN_MARKS: u64 = 3;
/// Minimum number of moments of loss to judge what a queue drops.
const MIN_LOSSES: usize = 5;
/// A queue is full if its delay is this share of the longest.
const FULL_SHARE: f64 = 0.7;
/// Queueing delay at which queues begin to drop early; random losses also occur at an empty queue.
const MIN_EARLY_WAIT_S: f64 = 0.0015;
/// Mean rank of their queueing delays among those of all data, 0.5 if losses are random,
const MIN_LOSS_RANK: f64 = 0.62;
/// and standard errors by which losses avoid an empty queue if they are not random.
const MIN_LOSS_ERRORS: f64 = 3.0;

/// Changes of the rate that the path gave the connection.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RateChanges {
    /// Since when, and the rate of the payload.
    pub(crate) levels: Vec<(Span, Rate)>,
    /// Whether each rate was constant for some time, as on a link whose rate changes.
    steps: bool,
    low: Rate,
    high: Rate,
    /// The rate of each window, as `levels`.
    pub(crate) windows: Vec<(Span, Rate)>,
}

/// Data or ACKs that arrive in bunches or with varying delays.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Bunches {
    /// Time between bunches.
    pub(crate) gap: Span,
    /// Share of the bytes that arrived in bunches; zero if only the RTT varied.
    share: f64,
    /// Usual change of the RTT from one interval to the next.
    pub(crate) noise: Span,
}

/// A queue that does not drop only when it is full.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum EarlyQueue {
    /// It marks packets: their number.
    Marks(u64),
    /// It drops at this queueing delay, of this longest one.
    Drops(Span, Span),
}

/// All conditions.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) rates: Option<RateChanges>,
    pub(crate) bunches: Option<Bunches>,
    /// Packet pairs at several times the rate of the connection: their share.
    pub(crate) faster: Option<f64>,
    pub(crate) queue: Option<EarlyQueue>,
    /// Since when and for how long data that left the queue was lost.
    pub(crate) losses: Vec<(Span, Span)>,
    /// Whether the RTT varies too much to call a controller unlike all known ones.
    pub(crate) is_uneven: bool,
    /// Every measured number.
    pub(crate) raw: Vec<(&'static str, f64)>,
}

impl Conditions {
    /// Whether the simulated paths lack something.
    pub(crate) fn is_plain(&self) -> bool {
        self.rates.is_none() && self.bunches.is_none() && self.faster.is_none() && self.queue.is_none()
    }

    /// Each condition, and the evidence for it.
    pub(crate) fn evidence(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        if let Some(b) = self.bunches {
            let how = if b.share > 0.0 {
                format!("{:.0} % of the data, with gaps of {}", b.share * 100.0, quantity::span(b.gap))
            } else {
                format!("the RTT changes by {} from one moment to the next", quantity::span(b.noise))
            };
            all.push(("data or ACKs were bunched or delayed unevenly", how));
        }
        if let Some(r) = &self.rates {
            let between = format!(
                "{} to {} delivered while a queue stood",
                quantity::rate(r.low),
                quantity::rate(r.high)
            );
            all.push(if r.steps {
                let changes = r.levels.len().saturating_sub(1).max(1);
                ("the rate of the path changed", format!("{changes} times, {between}"))
            } else {
                ("other traffic shared the path, or its rate varied", between)
            });
        }
        if let Some(share) = self.faster {
            let how =
                format!("{:.0} % of the data arrived faster than the rate of the connection", share * 100.0);
            all.push(("other traffic shared the path", how));
        }
        match self.queue {
            Some(EarlyQueue::Marks(n)) => all.push(("the queue marked packets", format!("{n} marks (ECN)"))),
            Some(EarlyQueue::Drops(at, longest)) => all.push((
                "the queue dropped before it was full (AQM)",
                format!("at a delay of {}, its longest was {}", quantity::span(at), quantity::span(longest)),
            )),
            None => {}
        }
        all
    }

    /// The limits of a comparison on such a path.
    pub(super) fn limits(&self) -> Limits {
        let reason = self.evidence().first().map(|e| e.0);
        match reason {
            None => {
                let reason = self.is_uneven.then_some("the RTT varies");
                Limits { named: 1.3, reason, ..Limits::USUAL }
            }
            Some(_) if self.bunches.is_some() => {
                Limits { unlike: 1.6, named: 1.6, reductions: 2.0, reason, ..Limits::USUAL }
            }
            Some(_) if self.rates.as_ref().is_some_and(|r| r.steps) => {
                Limits { named: 1.3, reason, ..Limits::USUAL }
            }
            Some(_) if self.rates.is_some() || self.faster.is_some() => {
                // No simulation shows how the other flows would have reacted, so the true controller is
                // farther away, and the lead of one is more often chance.
                Limits { unlike: 1.9, named: 1.9, independence: 0.15, reason, ..Limits::USUAL }
            }
            Some(_) => Limits { reason, ..Limits::USUAL },
        }
    }
}

/// What a candidate needs to be named. Set so that at least 95 % of the names are right on simulated
/// paths of each family with known controllers, and that few unknown ones get a name
/// (`examples/confusion.rs families`).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Limits {
    /// Distance of an unknown controller (root mean square, in standard errors).
    pub(super) unlike: f64,
    /// Maximum distance of the candidate.
    pub(super) named: f64,
    /// Maximum distance of its reductions after losses.
    pub(super) reductions: f64,
    /// Weight of a feature relative to an independent one, as features are correlated.
    pub(super) independence: f64,
    /// What the path did, if candidates were simulated on it as it was seen.
    pub(super) reason: Option<&'static str>,
}

impl Limits {
    const USUAL: Limits =
        Limits { unlike: 1.5, named: 1.5, reductions: f64::MAX, independence: 0.25, reason: None };
}

/// The measurements of an observation.
struct Series<'a> {
    observed: &'a Observation<'a>,
    steps: Vec<Step>,
    /// Queueing delay of each step in seconds.
    waits: Vec<Option<f64>>,
    width: f64,
    rtt: f64,
    rate: f64,
    segment: f64,
}

fn quantile(values: &[f64], q: f64) -> f64 {
    statistics::quantile(&mut values.to_vec(), q).unwrap_or(f64::NAN)
}

impl Series<'_> {
    fn at_sender(&self) -> bool {
        self.observed.end == End::Sender
    }

    /// Usual change of the RTT, beyond a trend, from one step to the next, in seconds.
    fn noise(&self) -> f64 {
        let second: Vec<f64> =
            self.waits.windows(3).filter_map(|w| Some((w[0]? - 2.0 * w[1]? + w[2]?).abs())).collect();
        quantile(&second, 0.5)
    }

    fn bunches(&self, raw: &mut Vec<(&'static str, f64)>) -> Option<Bunches> {
        let spacing = self.observed.trajectory.spacing(self.at_sender());
        let share = spacing.share_at(BUNCHED_RATE * self.rate);
        let noise = self.noise();
        let gap = spacing.usual_gap().unwrap_or_default();
        raw.extend([
            ("fast", share),
            ("noise_ms", noise * 1e3),
            ("noise_segments", noise / self.segment),
            ("gap_ms", gap.as_millis_f64()),
        ]);
        let is_bunched = share > MIN_BUNCHED;
        let is_noisy = !self.at_sender() && noise > MIN_NOISE_S && noise > MIN_NOISE_SEGMENTS * self.segment;
        (is_bunched || is_noisy).then(|| Bunches {
            gap,
            share: if is_bunched { share } else { 0.0 },
            noise: Span::from_secs_f64(noise.max(0.0)),
        })
    }

    /// Delivery rates of windows in which a queue stood, each with the step at its centre.
    fn busy(&self, bunches: Option<Bunches>) -> Vec<(usize, f64)> {
        let bunch = bunches.map_or(0.0, |b| b.gap.as_secs_f64().max(b.noise.as_secs_f64()));
        let length = self.rtt.max(0.05).max(20.0 * self.segment).max(10.0 * bunch);
        let n = (length / self.width).ceil().max(1.0) as usize;
        let floor = (0.1 * self.rtt).max(4.0 * self.segment).max(0.002).max(1.5 * bunch);
        let hop = (n / 2).max(1);
        let mut busy = Vec::new();
        for from in (0..self.steps.len().saturating_sub(n)).step_by(hop) {
            let mut waits = self.waits[from..from + n].iter().flatten().peekable();
            if waits.peek().is_none() || waits.any(|w| *w < floor) {
                continue;
            }
            let bytes = self.steps[from..from + n]
                .iter()
                .map(|s| f64::from(if self.at_sender() { s.arrived } else { s.sent }))
                .sum::<f64>();
            busy.push((from + n / 2, bytes / (n as f64 * self.width)));
        }
        busy
    }

    fn rates(
        &self,
        busy: &[(usize, f64)],
        bunched: bool,
        raw: &mut Vec<(&'static str, f64)>,
    ) -> Option<RateChanges> {
        let rates: Vec<f64> = busy.iter().map(|b| b.1).collect();
        let (low, high) = (quantile(&rates, 0.05), quantile(&rates, 0.9));
        // Bunches make the rate of a window uneven.
        let limit = if bunched { LOWER_BUNCHED_RATE } else { LOWER_RATE };
        let lower = rates.iter().filter(|r| **r < limit * high).count();
        let share = lower as f64 / rates.len().max(1) as f64;
        raw.extend([
            ("busy", rates.len() as f64),
            ("busy_low", low / self.rate),
            ("busy_high", high / self.rate),
            ("lower", share),
        ]);
        if lower < MIN_LOWER_WINDOWS || share < MIN_LOWER {
            return None;
        }
        // A new level begins with two windows that differ from the current one.
        let mut levels: Vec<(usize, Vec<f64>)> = Vec::new();
        let differs = |a: f64, b: f64| (a / b).ln().abs() > 1.5 * SAME_RATE;
        for (i, &(step, rate)) in busy.iter().enumerate() {
            let next = busy.get(i + 1).map_or(rate, |n| n.1);
            match levels.last_mut() {
                Some((_, level)) => {
                    let now = quantile(level, 0.5);
                    if !differs(rate, now) {
                        level.push(rate);
                    } else if differs(next, now) {
                        levels.push((step, vec![rate]));
                    }
                }
                None => levels.push((step, vec![rate])),
            }
        }
        let lasting = levels.iter().filter(|(_, l)| l.len() >= 6).map(|(_, l)| l.len()).sum::<usize>();
        raw.push(("lasting", lasting as f64 / rates.len() as f64));
        let bytes = |rate: f64| Rate::from_bytes_per_sec(rate.max(1.0) as u64);
        let leaves = if self.at_sender() { 0.5 } else { 1.0 } * self.rtt;
        let at = |step: usize| Span::from_secs_f64(step as f64 * self.width + leaves);
        Some(RateChanges {
            steps: lasting * 10 > rates.len() * 8 && levels.len() <= MAX_LEVELS,
            levels: levels.iter().map(|(step, level)| (at(*step), bytes(quantile(level, 0.5)))).collect(),
            low: bytes(low),
            high: bytes(high),
            windows: busy.iter().map(|(step, rate)| (at(*step), bytes(*rate))).collect(),
        })
    }

    /// When data was lost, as simulated time at which it leaves the queue, and for how long: as many
    /// packets as were lost pass in that time.
    fn losses(&self, busy: &[(usize, f64)]) -> Vec<(Span, Span)> {
        let lost = self.steps.iter().enumerate().filter(|(_, s)| s.lost > 0);
        lost.map(|(i, s)| {
            let seen = if self.at_sender() { self.delayed(i).unwrap_or(i) } else { i };
            let wait = if self.at_sender() { self.waits[seen].unwrap_or(0.0) } else { 0.0 };
            let before = busy.partition_point(|(step, _)| *step <= seen).saturating_sub(1);
            let rate = busy.get(before).map_or(self.rate, |b| b.1).max(self.rate / 50.0);
            let length = f64::from(s.lost) * f64::from(self.observed.mss) / rate;
            (Span::from_secs_f64(i as f64 * self.width + self.rtt + wait), Span::from_secs_f64(length))
        })
        .collect()
    }

    /// The step in which the sender learns of the queue that data of step `i` met.
    fn delayed(&self, i: usize) -> Option<usize> {
        (i + 1..self.steps.len()).find(|j| {
            self.waits[*j].is_some_and(|w| (j - i) as f64 * self.width >= self.rtt + w - self.width)
        })
    }

    /// Share of the data that arrived faster than the connection's rate.
    fn faster(&self, raw: &mut Vec<(&'static str, f64)>) -> Option<f64> {
        let share = self.observed.trajectory.spacing(self.at_sender()).share_at(FASTER_RATE * self.rate);
        raw.push(("faster", share));
        Some(share).filter(|share| *share > MIN_FASTER)
    }

    /// Queueing delay that data of step `i` met.
    fn wait_of(&self, i: usize) -> Option<f64> {
        let j = if self.at_sender() { self.delayed(i)? } else { i };
        let near = &self.waits[j.saturating_sub(1)..(j + 2).min(self.waits.len())];
        near.iter().flatten().copied().reduce(f64::max)
    }

    fn queue(&self, raw: &mut Vec<(&'static str, f64)>) -> Option<EarlyQueue> {
        let (marked, echoes) = self.observed.marks;
        let marks = marked.max(echoes);
        raw.push(("marks", marks as f64));
        if marks >= MIN_MARKS {
            return Some(EarlyQueue::Marks(marks));
        }
        let longest = self.waits.iter().flatten().copied().fold(0.0, f64::max);
        // How much data met each queueing delay below that of a full queue, and which was lost.
        let met = self.steps.iter().enumerate().filter(|(_, s)| s.sent > 0 || s.lost > 0);
        let mut all: Vec<(f64, f64, bool)> =
            met.filter_map(|(i, s)| Some((self.wait_of(i)?, f64::from(s.sent), s.lost > 0))).collect();
        let losses = all.iter().filter(|a| a.2).count();
        all.retain(|a| a.0 < FULL_SHARE * longest);
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total = all.iter().map(|a| a.1).sum::<f64>().max(1.0);
        let (mut below, mut early, mut ranks) = (0.0, Vec::new(), 0.0);
        for (wait, sent, is_lost) in &all {
            if *is_lost {
                early.push(*wait);
                ranks += (below + sent / 2.0) / total;
            }
            below += sent;
        }
        let mean = ranks / early.len().max(1) as f64;
        let errors = (mean - 0.5) * (12.0 * early.len() as f64).sqrt();
        raw.extend([
            ("losses", losses as f64),
            ("early", early.len() as f64),
            ("early_rank", mean),
            ("early_errors", errors),
            ("longest_ms", longest * 1e3),
            ("early_wait_ms", quantile(&early, 0.5) * 1e3),
        ]);
        let is_early = early.len() >= MIN_LOSSES
            && early.len() * 4 > losses
            && errors > MIN_LOSS_ERRORS
            && mean > MIN_LOSS_RANK
            && quantile(&early, 0.1) > MIN_EARLY_WAIT_S;
        let span = Span::from_secs_f64;
        is_early.then(|| EarlyQueue::Drops(span(quantile(&early, 0.5)), span(longest)))
    }
}

/// Measures the conditions of an observation.
pub(super) fn measure(observed: &Observation<'_>) -> Conditions {
    let steps: Vec<Step> = observed.trajectory.steps().all().copied().collect();
    let rtt = observed.rtprop.as_secs_f64();
    let rate = observed.rate.as_bytes_per_sec() as f64;
    let wait = |s: &Step| (s.rtt_sum as f64 / f64::from(s.samples) / 1e6 - rtt).max(0.0);
    let series = Series {
        waits: steps.iter().map(|s| (s.samples > 0).then(|| wait(s))).collect(),
        steps,
        width: observed.trajectory.steps().width().as_secs_f64(),
        rtt,
        rate,
        segment: f64::from(observed.mss) / rate,
        observed,
    };
    let mut raw = vec![("rtt_ms", rtt * 1e3), ("segment_ms", series.segment * 1e3)];
    let bunches = series.bunches(&mut raw);
    let busy = series.busy(bunches);
    let rates = series.rates(&busy, bunches.is_some(), &mut raw);
    let faster = series.faster(&mut raw).filter(|_| bunches.is_none());
    // Without a constant rate and delay, a full queue is not known by its delay.
    let is_known = bunches.is_none() && rates.is_none();
    let queue = series.queue(&mut raw).filter(|q| is_known || matches!(q, EarlyQueue::Marks(_)));
    let noise = series.noise();
    let is_uneven = noise > MIN_NOISE_S && noise > series.segment;
    Conditions { rates, bunches, faster, queue, losses: series.losses(&busy), is_uneven, raw }
}

#[cfg(test)]
mod tests {
    use super::super::simulate_capture;
    use super::*;
    use fullpipe_experiment::connection::Heading;
    use fullpipe_experiment::scenario::{AckFrequency, FlowSpec, PathSpec, Scenario};
    use fullpipe_path::{AggregateSpec, CodelSpec, LossSpec, QueueSpec, ScheduledChange};
    use fullpipe_sim::Controllers;
    use fullpipe_units::Fraction;

    /// The conditions of a path of 10 Mbit/s and 40 ms, changed by `change`, with `cc` captured at both
    /// ends.
    fn conditions(cc: &str, change: impl Fn(&mut Scenario)) -> [Conditions; 2] {
        let rate = Rate::from_bits_per_sec(10_000_000);
        let path = PathSpec::bottleneck(rate, Span::from_millis(40), "1bdp".parse().unwrap());
        let mut scenario = Scenario::new(path, vec![FlowSpec::bulk(cc)]);
        scenario.duration = Span::from_secs(8);
        scenario.sample = scenario.duration;
        change(&mut scenario);
        [End::Sender, End::Receiver].map(|end| {
            let traced = simulate_capture(&scenario, 1, &Controllers::new(), end, None).unwrap().unwrap();
            measure(&Observation::new(&traced, Heading::ToServer).unwrap())
        })
    }

    #[test]
    fn constant_path_with_a_drop_tail_queue_has_no_conditions() {
        for cc in ["bbr", "bbr3", "cubic", "reno", "hybla"] {
            for loss in [0, 1_000_000, 10_000_000] {
                let lossy = |s: &mut Scenario| {
                    s.path.forward[0].loss = Some(LossSpec::from(Fraction::from_billionths(loss)));
                };
                for found in conditions(cc, lossy) {
                    assert!(found.is_plain() && found.evidence().is_empty(), "{cc}, loss {loss}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn changed_rate_is_found_with_its_times() {
        let halved = |s: &mut Scenario| {
            s.path.forward[0].schedule.push(ScheduledChange {
                at: Span::from_secs(4),
                rate: Some(Rate::from_bits_per_sec(5_000_000)),
                ..ScheduledChange::default()
            });
        };
        for cc in ["bbr", "cubic", "reno"] {
            for found in conditions(cc, halved) {
                let rates = found.rates.as_ref().unwrap_or_else(|| panic!("{cc}: {found:?}"));
                assert!(rates.steps, "{cc}: {rates:?}");
                let ratio = rates.low.as_bits_per_sec_f64() / rates.high.as_bits_per_sec_f64();
                assert!((ratio - 0.5).abs() < 0.05, "{cc}: {rates:?}");
                let from = rates.levels.iter().find(|l| l.1.as_bytes_per_sec() < 900_000).unwrap().0;
                assert!(from.as_secs_f64() > 3.8 && from.as_secs_f64() < 4.6, "{cc}: {rates:?}");
            }
        }
    }

    #[test]
    fn other_traffic_is_found() {
        for other in ["cubic", "bbr"] {
            for found in conditions("reno", |s| s.flows.push(FlowSpec::bulk(other))) {
                assert!(found.rates.is_some() || found.faster.is_some(), "{other}: {found:?}");
                assert!(found.bunches.is_none(), "{other}: {found:?}");
            }
        }
    }

    #[test]
    fn bunched_packets_are_found_but_not_delayed_acks() {
        let hold = AggregateSpec { hold: Some(Span::from_millis(6)), ..AggregateSpec::default() };
        for found in conditions("cubic", |s| s.path.forward[0].aggregate = Some(hold)) {
            let bunches = found.bunches.unwrap_or_else(|| panic!("{found:?}"));
            assert!((4.0..9.0).contains(&bunches.gap.as_millis_f64()), "{bunches:?}");
        }
        // Acknowledgments of several packets each are no bunches.
        let seldom = AckFrequency { ack_eliciting_threshold: 7, ..AckFrequency::default() };
        for found in conditions("cubic", |s| s.flows[0].ack_frequency = Some(seldom)) {
            assert_eq!(found.bunches, None);
        }
    }

    #[test]
    fn marks_and_early_drops_are_found() {
        let codel = |ecn| {
            move |s: &mut Scenario| {
                s.path.forward[0].queue = Some(QueueSpec::Codel(CodelSpec { ecn, ..CodelSpec::default() }));
                s.flows[0].ecn = ecn;
            }
        };
        for found in conditions("reno", codel(true)) {
            assert!(matches!(found.queue, Some(EarlyQueue::Marks(n)) if n >= MIN_MARKS), "{found:?}");
        }
        for found in conditions("reno", codel(false)) {
            assert!(matches!(found.queue, Some(EarlyQueue::Drops(..))), "{found:?}");
        }
    }
}
