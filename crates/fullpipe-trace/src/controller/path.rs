//! The path that a capture shows, as a scenario to play candidates on.

use super::Seen;
use crate::connection::Step;
use crate::text;
use fullpipe_experiment::scenario::{FlowSpec, HEADER_BYTES, PathSpec, Scenario};
use fullpipe_path::{Limit, LossSpec};
use fullpipe_sim::{End, Receiving};
use fullpipe_units::{Bytes, Fraction, Rate, Span};

/// So much of a connection is played at most: enough for any habit to show.
const LONGEST: Span = Span::from_secs(40);
/// So many packets of it at most, whatever its rate.
const MOST_PACKETS: u64 = 400_000;

/// What is assumed of a path and of what the ends added to it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Guess {
    /// Of the bottleneck, headers included.
    pub(crate) rate: Rate,
    pub(crate) rtprop: Span,
    /// Of the bottleneck's queue, in bytes; with what it was concluded from.
    pub(crate) buffer: u64,
    /// Whether it was seen to overflow.
    pub(crate) overflows: bool,
    /// Share of the segments that were lost while there was room in the queue.
    pub(crate) loss: f64,
    /// In segments.
    pub(crate) initial_window: u32,
    /// Whether that was seen, and not only that it was as many at least.
    pub(crate) began: bool,
    /// The receiver's window, if that was ever full.
    pub(crate) receive_window: Option<u64>,
    /// What its receiver did, where its windows are known.
    pub(crate) receiving: Vec<Receiving>,
    pub(crate) mss: u32,
    /// How much of the connection is played.
    pub(crate) duration: Span,
}

/// A loss belongs to a full queue if this share of the longest wait was seen shortly before it.
const FULL: f64 = 0.7;
/// A queue that never overflowed is taken to hold so many times what was seen in it,
const UNSEEN: f64 = 3.0;
/// and at least this many bandwidth-delay products.
const ROOM: f64 = 2.0;

/// An answer may come so many times later than it could.
const LATE: f64 = 1.25;
/// Steps for which a queue is full, at most that is asked for.
const LASTING: usize = 3;
/// For as long at least data arrives at what is called a rate, in seconds,
const SHORTEST: f64 = 0.05;
/// and that is more than another if it is so many times as much.
const MORE: f64 = 1.15;

/// A path on which nothing waits longer than this share of its round trip is not full,
const NO_QUEUE: f64 = 0.1;
/// and is taken to carry so many times as much.
const WIDER: u64 = 4;

/// Share of the segments lost one here, one there: what is lost together, in a queue that overflowed and in the repair
/// of that, counts as no more than chance would allow.
fn scattered(rounds: &[(f64, f64)]) -> f64 {
    let sent = rounds.iter().map(|r| r.0).sum::<f64>().max(1.0);
    let mut share = rounds.iter().map(|r| r.1).sum::<f64>() / sent;
    for _ in 0..8 {
        let by_chance = rounds.iter().map(|(sent, again)| {
            let mean = share * sent;
            again.min(mean + 3.0 * mean.sqrt() + 1.0)
        });
        share = by_chance.sum::<f64>() / sent;
    }
    share
}

/// What the path carried for a round trip, headers included, where that is more than BtlBw: a path that was filled for moments only, and
/// beside which BtlBw is what its sender sent.
fn carried(seen: &Seen<'_>, steps: &[Step], waits: &[Option<f64>]) -> Option<Rate> {
    let (rtt, rate) = (seen.rtprop.as_secs_f64(), seen.rate.as_bytes_per_sec() as f64);
    let width = seen.course.steps().width().as_secs_f64();
    // Long enough that what was held back for a moment and came at once makes no rate.
    let window = rtt.max(SHORTEST).max(20.0 * f64::from(seen.mss) / rate);
    let n = (window / width).ceil() as usize;
    let arrived: Vec<f64> = steps
        .windows(n)
        .map(|w| w.iter().map(|s| f64::from(s.arrived)).sum::<f64>() / (n as f64 * width))
        .collect();
    let most = arrived.iter().copied().fold(0.0, f64::max);
    // What a path carries at most, its sender keeps to, or it lets data wait there.
    let at_rate = |a: f64| (1.0 / MORE..MORE).contains(&(a / rate));
    let mut waited: Vec<f64> = Vec::new();
    let mut kept = 0;
    for (_, wait) in arrived.iter().zip(waits.get(n - 1..).unwrap_or_default()).filter(|(a, _)| at_rate(**a))
    {
        kept += 1;
        waited.extend(wait);
    }
    waited.sort_by(f64::total_cmp);
    let usual = waited.get(waited.len() / 2).copied().unwrap_or(0.0);
    let is_the_paths = kept * 2 > arrived.len() || usual > NO_QUEUE / 2.0 * rtt;
    (most > MORE * rate && !is_the_paths).then(|| {
        let headers = seen.wire_rate.as_bytes_per_sec() as f64 / rate;
        Rate::from_bytes_per_sec((most * headers) as u64)
    })
}

impl Guess {
    /// What `seen` says of its path.
    pub(crate) fn of(seen: &Seen<'_>) -> Self {
        let rtt = seen.rtprop.as_secs_f64();
        let steps: Vec<Step> = seen.course.steps().all().copied().collect();
        let width = seen.course.steps().width().as_secs_f64();
        let waits: Vec<Option<f64>> = steps
            .iter()
            .map(|s| (s.samples > 0).then(|| (s.rtt_sum as f64 / f64::from(s.samples) / 1e6 - rtt).max(0.0)))
            .collect();
        // A queue that is full is full for longer than a few steps; what a host held back is late all at once.
        let shown: Vec<f64> = waits.iter().flatten().copied().collect();
        let lasting = ((rtt / width / 2.0) as usize).clamp(2, LASTING);
        let longest =
            shown.windows(lasting).map(|w| w.iter().copied().fold(f64::MAX, f64::min)).fold(0.0, f64::max);
        let per_segment = f64::from(seen.mss + HEADER_BYTES) / seen.wire_rate.as_bytes_per_sec() as f64;
        let queued = longest > 4.0 * per_segment;
        // What left beside a loss waited as long as the queue was: at the sender that is known once it has been answered, at the receiver
        // as it arrives.
        let told_after = |wait: f64| if seen.end == End::Sender { rtt + wait } else { 0.0 };
        let slack = 2.0 * width + 2.0 * per_segment;
        let step_at = |after: f64| (after / width).floor().max(0.0) as usize;
        let (first, last) =
            (step_at(told_after(FULL * longest) - slack), step_at(LATE * told_after(longest) + slack));
        let early = if seen.end == End::Sender { 0 } else { step_at(slack) };
        // Where so much is repaired that no round trip is measured, it is still what it was.
        let full: Vec<bool> = (0..steps.len())
            .scan(false, |was, i| {
                let around = (i + first).saturating_sub(early)..(i + last + 1).min(steps.len());
                let around = waits.get(around).unwrap_or_default();
                let beside = around.iter().flatten().copied().reduce(f64::max);
                *was = beside.map_or(*was, |most| queued && most >= FULL * longest);
                Some(*was)
            })
            .collect();
        let overflowed: u64 =
            (0..).zip(&steps).filter(|(i, _): &(usize, _)| full[*i]).map(|(_, s)| u64::from(s.lost)).sum();
        // Each round trip, or each in which the queue was not full: what was sent in it, and lost, in segments.
        let each = ((rtt / width).round() as usize).max(1);
        let rounds = |also_full: bool| -> Vec<(f64, f64)> {
            let round = (0..steps.len()).step_by(each).map(|i| {
                let these = (i..(i + each).min(steps.len())).filter(|i| also_full || !full[*i]);
                these.fold((0.0, 0.0), |(sent, lost), i| {
                    (sent + f64::from(steps[i].sent) / f64::from(seen.mss), lost + f64::from(steps[i].lost))
                })
            });
            round.collect()
        };
        let beside = rounds(false);
        let loss = scattered(&beside);
        let random = (loss * beside.iter().map(|r| r.0).sum::<f64>()) as u64;
        let overflows = overflowed * 4 > random && overflowed > 2;
        // A queue that never overflowed lost nothing, however full it was.
        let loss = if overflows { loss } else { scattered(&rounds(true)) };
        // Where nothing ever waited, the path carries more than was ever sent.
        let filled = longest > f64::max(NO_QUEUE * rtt, 3.0 * per_segment);
        let rate = if !filled {
            Rate::from_bytes_per_sec(seen.wire_rate.as_bytes_per_sec() * WIDER)
        } else {
            carried(seen, &steps, &waits).unwrap_or(seen.wire_rate)
        };
        let queue = longest * rate.as_bytes_per_sec() as f64;
        let bdp = rtt * rate.as_bytes_per_sec() as f64;
        let buffer = if overflows { queue } else { (queue * UNSEEN).max(bdp * ROOM) };
        let packets = Span::from_secs_f64(MOST_PACKETS as f64 * per_segment);
        let (initial_window, began) = initial_window(seen);
        Guess {
            rate,
            rtprop: seen.rtprop,
            buffer: (buffer as u64).max(4 * u64::from(seen.mss + HEADER_BYTES)),
            overflows,
            loss,
            initial_window,
            began,
            receive_window: seen.receive_window,
            receiving: seen.course.receiving().to_vec(),
            mss: seen.mss,
            duration: seen.active.min(LONGEST).min(packets),
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        let loss = match self.loss {
            l if l < 1e-5 => "no random loss".to_owned(),
            l => format!("{:.2} % random loss", l * 100.0),
        };
        format!(
            "each candidate was played on {}, {}, a queue of {}{}, {loss}, an initial window of {} segments",
            text::rate(self.rate),
            text::span(self.rtprop),
            text::bytes(self.buffer),
            if self.overflows { "" } else { " (it was never seen full)" },
            self.initial_window
        )
    }

    /// A bulk flow of `cc` on it.
    pub(crate) fn scenario(&self, cc: &str) -> Scenario {
        let mut path = PathSpec::bottleneck(self.rate, self.rtprop, Limit::Bytes(self.buffer));
        if self.loss > 0.0 {
            let share = Fraction::from_billionths((self.loss.min(0.5) * 1e9) as u32);
            path.forward[0].loss = Some(LossSpec::from(share));
        }
        let mut flow = FlowSpec::bulk(cc);
        flow.initial_window = self.initial_window;
        // Kernels leave segmentation to the device.
        flow.tso = Some(true);
        flow.receive_buffer = self.receive_window.map(|w| Bytes(2 * w));
        let mut scenario = Scenario::new(path, vec![flow]);
        scenario.duration = self.duration + self.rtprop;
        scenario.mtu = self.mss + HEADER_BYTES;
        scenario.sample = scenario.duration;
        scenario
    }
}

/// Linux's (RFC 6928).
pub(crate) const INITIAL_WINDOW: u32 = 10;

/// Segments that left before anything was answered, and whether these were all that a first window allowed.
fn initial_window(seen: &Seen<'_>) -> (u32, bool) {
    let mss = u64::from(seen.mss);
    // An application that has less to send ends with a part of a segment.
    match seen.course.opening().filter(|bytes| seen.whole && bytes.is_multiple_of(mss)) {
        Some(bytes) => ((bytes / mss).clamp(1, 200) as u32, true),
        None => (INITIAL_WINDOW, false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated;
    use super::*;
    use fullpipe_experiment::connection::{Heading, Point};
    use fullpipe_sim::{Controllers, End};

    /// What `cc`, with a first window of `segments`, shows of a path of 10 Mbit/s at `end`.
    fn guess(cc: &str, segments: u32, rtt: Span, end: End) -> Guess {
        let path = PathSpec::bottleneck(Rate::from_bits_per_sec(10_000_000), rtt, Limit::Bytes(60_000));
        let mut flow = FlowSpec::bulk(cc);
        flow.initial_window = segments;
        let mut scenario = Scenario::new(path, vec![flow]);
        scenario.duration = rtt * 60 + Span::from_secs(2);
        scenario.sample = scenario.duration;
        let at = if end == End::Sender { Point::Client } else { Point::Server };
        let traced = simulated(&scenario, 1, &Controllers::new(), end, Some(at)).unwrap().unwrap();
        let seen = Seen::of(&traced, Heading::ToServer).unwrap();
        Guess::of(&seen)
    }

    #[test]
    fn the_first_window_is_what_left_before_anything_was_answered() {
        for end in [End::Sender, End::Receiver] {
            for segments in [1, 4, 10, 32] {
                let g = guess("reno", segments, Span::from_millis(100), end);
                assert_eq!((g.initial_window, g.began), (segments, true), "{end:?}");
            }
        }
    }

    #[test]
    fn a_first_window_that_fills_the_path_is_seen_whole_at_the_receiver_too() {
        for end in [End::Sender, End::Receiver] {
            let g = guess("reno", 32, Span::from_millis(10), end);
            assert_eq!((g.initial_window, g.began), (32, true), "{end:?}");
        }
    }
}
