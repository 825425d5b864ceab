//! What a sender does as numbers that can be compared: each is taken from what was seen and from what each candidate
//! did on the same path, in the same way.

use crate::connection::Course;
use fullpipe_experiment::statistics;
use fullpipe_units::{Rate, Span};

/// A number that tells something of a sender; NaN where a connection does not show it.
pub(super) struct Habit {
    /// In the words of a sentence: "`name`: 0.52 seen, 0.50 from reno, 0.98 from bbr".
    pub(super) name: &'static str,
    /// How the number is written.
    pub(super) form: Form,
    /// How far a capture is from a simulation of its own controller on the path that was estimated from it: half as much
    /// again as the root mean square over simulated captures (`examples/confusion.rs residuals 1 40`), and at least
    /// 0.06, since kernels, timers and offloads do what no simulation does.
    pub(super) error: f64,
}

/// How a habit's number is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// A base-2 logarithm of a ratio.
    Doublings,
    /// A base-2 logarithm of a count or an amount, shown as that.
    Logarithm,
    /// A plain number.
    Plain,
}

impl Form {
    /// `v` as a person reads it.
    pub(super) fn show(self, v: f64) -> String {
        if v.is_nan() {
            return "not seen".to_owned();
        }
        match self {
            Form::Doublings => format!("×{:.2}", v.exp2()),
            Form::Logarithm => format!("{:.1}", v.exp2() - 1.0),
            Form::Plain => format!("{v:.2}"),
        }
    }
}

const fn habit(name: &'static str, form: Form, error: f64) -> Habit {
    Habit { name, form, error }
}

use Form::{Doublings, Logarithm, Plain};

/// All of them, in the order of [`Habits`].
pub(super) const HABITS: [Habit; 36] = [
    habit("round trips until half of its first peak was in flight", Logarithm, 0.3),
    habit("round trips to its first peak", Logarithm, 0.27),
    habit("in flight at its first peak, against the BDP", Doublings, 0.3),
    habit("in flight after the first peak, against it", Doublings, 0.19),
    habit("in flight eight round trips after the first peak, against it", Doublings, 0.33),
    habit("in flight 5 % of the time at most, against the BDP", Doublings, 0.21),
    habit("in flight a quarter of the time at most, against the BDP", Doublings, 0.16),
    habit("in flight half of the time at most, against the BDP", Doublings, 0.16),
    habit("in flight three quarters of the time at most, against the BDP", Doublings, 0.14),
    habit("in flight 95 % of the time at most, against the BDP", Doublings, 0.22),
    habit("round-trip time 10 % of the time at most, against RTprop", Doublings, 0.06),
    habit("median round-trip time against RTprop", Doublings, 0.06),
    habit("round-trip time 90 % of the time at most, against RTprop", Doublings, 0.06),
    habit("rate 10 % of the time at most, against BtlBw", Doublings, 0.12),
    habit("median rate against BtlBw", Doublings, 0.13),
    habit("rate 90 % of the time at most, against BtlBw", Doublings, 0.09),
    habit("change of what is in flight from one round trip to the next", Plain, 0.06),
    habit("change of rate from one round trip to the next", Plain, 0.06),
    habit("likeness of the rate to that a round trip before", Plain, 0.18),
    habit("likeness of the rate to that two round trips before", Plain, 0.06),
    habit("likeness of the rate to that four round trips before", Plain, 0.06),
    habit("likeness of the rate to that eight round trips before", Plain, 0.06),
    habit("likeness of what is in flight to that two round trips before", Plain, 0.06),
    habit("likeness of what is in flight to that eight round trips before", Plain, 0.1),
    habit("likeness of what is in flight to that 32 round trips before", Plain, 0.1),
    habit("dips to a few packets, each ten seconds", Logarithm, 0.09),
    habit("dips to half, each ten seconds", Logarithm, 0.33),
    habit("seconds between dips", Logarithm, 0.67),
    habit("in flight after losses, against before (median)", Doublings, 0.08),
    habit("in flight after losses, against before (lower quarter)", Doublings, 0.07),
    habit("in flight after losses, against before (upper quarter)", Doublings, 0.11),
    habit("times with losses, each ten seconds", Logarithm, 0.26),
    habit("data sent again, in thousandths", Logarithm, 0.44),
    habit("segments more in flight each round trip, without losses", Plain, 0.06),
    habit("growth in the first half of the time between losses", Plain, 0.1),
    habit("seconds from loss to loss", Logarithm, 0.13),
];

/// A connection's numbers.
pub(super) type Habits = [f64; HABITS.len()];

/// What was in flight and sent in a round trip.
#[derive(Clone, Copy, Debug)]
struct Round {
    inflight: f64,
    sent: f64,
    rtt: f64,
    lost: bool,
    again: f64,
}

/// Segments that a round is made of at least.
const FEW: u64 = 10;

/// Round trips after which a first peak is looked for no longer.
const OPENING: usize = 60;
/// Round trips that a peak must stand to be one.
const STANDS: usize = 6;

/// The numbers of `course`, where a path of `rate` (payload) and `rtprop` carries segments of `mss` bytes. `sent_here`
/// if it was seen at the sender; `whole` if from its beginning.
pub(super) fn habits(
    course: &Course,
    rtprop: Span,
    rate: Rate,
    mss: u32,
    sent_here: bool,
    whole: bool,
) -> Habits {
    // Where a round trip is a few segments, one more or less would be a habit.
    let few = rate.time_to_send(FEW * u64::from(mss));
    let step = course.steps().width();
    let width = rtprop.max(step).max(few);
    let each = (width.as_nanos() + step.as_nanos() / 2) / step.as_nanos();
    let length = (step * each).as_secs_f64();
    let bdp = (rate.as_bytes_per_sec() as f64 * rtprop.as_secs_f64()).max(f64::from(mss));
    let rounds = rounds(course, each as usize, sent_here);
    let mut all = [f64::NAN; HABITS.len()];
    let (first, rest) = opening(&rounds, length, bdp, whole);
    all[..5].copy_from_slice(&first);
    let steady = &rounds[rest.min(rounds.len())..];
    if steady.len() < 8 {
        return all;
    }
    let logs =
        |of: &dyn Fn(&Round) -> f64| steady.iter().map(of).filter(|v| v.is_finite()).collect::<Vec<f64>>();
    let inflight = logs(&|r| (r.inflight.max(f64::from(mss)) / bdp).log2());
    let rtt = logs(&|r| (r.rtt / rtprop.as_secs_f64()).log2());
    let capacity = rate.as_bytes_per_sec() as f64 * length;
    let rates = logs(&|r| ((r.sent + 0.02 * capacity) / capacity).log2());
    for (place, q) in (5..).zip([0.05, 0.25, 0.5, 0.75, 0.95]) {
        all[place] = quantile(&inflight, q);
    }
    for (place, q) in (10..).zip([0.1, 0.5, 0.9]) {
        all[place] = quantile(&rtt, q);
        all[place + 3] = quantile(&rates, q);
    }
    all[16] = wobble(&inflight);
    all[17] = wobble(&rates);
    for (place, lag) in (18..).zip([1, 2, 4, 8]) {
        all[place] = likeness(&rates, lag);
    }
    for (place, lag) in (22..).zip([2, 8, 32]) {
        all[place] = likeness(&inflight, lag);
    }
    let seconds = steady.len() as f64 * length;
    let few = dips(steady, length, |level, usual| {
        level < (0.25 * usual).max(6.0 * f64::from(mss)) && level < 0.5 * usual
    });
    let half = dips(steady, length, |level, usual| level < 0.62 * usual);
    all[25] = (1.0 + few.len() as f64 * 10.0 / seconds).log2();
    all[26] = (1.0 + half.len() as f64 * 10.0 / seconds).log2();
    all[27] = (1.0 + median(half.windows(2).map(|w| (w[1] - w[0]) as f64 * length).collect())).log2();
    losses(steady, length, mss, &mut all);
    all
}

fn rounds(course: &Course, each: usize, sent_here: bool) -> Vec<Round> {
    let mut before = 0.0;
    let mut rtt_before = f64::NAN;
    let rounds = course.steps().by(each.max(1)).into_iter().map(|(_, step)| {
        let level = if sent_here { step.inflight } else { step.told };
        if level > 0 {
            before = f64::from(level);
        }
        if step.samples > 0 {
            rtt_before = step.rtt_sum as f64 / f64::from(step.samples) / 1e6;
        }
        Round {
            inflight: before,
            sent: f64::from(step.sent),
            rtt: rtt_before,
            lost: step.again > 0,
            again: f64::from(step.again),
        }
    });
    rounds.collect()
}

/// How it began, and after which round that was over.
fn opening(rounds: &[Round], length: f64, bdp: f64, whole: bool) -> ([f64; 5], usize) {
    if !whole {
        return ([f64::NAN; 5], 0);
    }
    let (mut peak, mut at) = (0.0, 0);
    for (i, r) in rounds.iter().enumerate().take(OPENING) {
        if r.inflight > peak * 1.02 {
            (peak, at) = (r.inflight, i);
        } else if i >= at + STANDS && r.inflight < peak {
            break;
        }
    }
    if peak <= 0.0 || at + 12 > rounds.len() {
        return ([f64::NAN; 5], at);
    }
    let half = rounds.iter().position(|r| r.inflight >= peak / 2.0).unwrap_or(0);
    // With a queue that is full a round trip takes longer than the shortest.
    let over = after(rounds, at, length, STANDS).min(rounds.len() - STANDS);
    let low = rounds[at + 1..=over].iter().map(|r| r.inflight).fold(f64::MAX, f64::min);
    let later = median(rounds[over..over + 5].iter().map(|r| r.inflight).collect());
    let numbers = [
        (1.0 + half as f64).log2(),
        (1.0 + at as f64).log2(),
        (peak / bdp).log2(),
        (low / peak).log2().max(-5.0),
        (later / peak).log2().max(-5.0),
    ];
    (numbers, over)
}

/// Where so many round trips as they were then, not the shortest, are over since `from`.
fn after(rounds: &[Round], from: usize, length: f64, trips: usize) -> usize {
    let mut passed = 0.0;
    let mut i = from;
    while passed < trips as f64 - 1e-9 && i < rounds.len() {
        passed += if rounds[i].rtt > length { length / rounds[i].rtt } else { 1.0 };
        i += 1;
    }
    i
}

/// In which rounds what is in flight begins to be `low` beside what it usually is around then.
fn dips(rounds: &[Round], length: f64, low: impl Fn(f64, f64) -> bool) -> Vec<usize> {
    // A dip of BBR lasts 200 ms and a round trip: what is usual is seen over a few seconds.
    let reach = ((1.5 / length) as usize).clamp(8, 400);
    let mut found = Vec::new();
    let mut inside = false;
    let mut usual = f64::NAN;
    for i in 0..rounds.len() {
        if i % (reach / 4).max(1) == 0 {
            let from = i.saturating_sub(reach);
            let to = (i + reach).min(rounds.len());
            usual = median(rounds[from..to].iter().map(|r| r.inflight).collect());
        }
        let now = low(rounds[i].inflight, usual);
        if now && !inside {
            found.push(i);
        }
        inside = now;
    }
    found
}

/// What is done about losses, and between them.
fn losses(rounds: &[Round], length: f64, mss: u32, all: &mut Habits) {
    // Losses that follow each other at once are one occasion.
    let mut occasions: Vec<(usize, usize)> = Vec::new();
    for (i, _) in rounds.iter().enumerate().filter(|(_, r)| r.lost) {
        match occasions.last_mut() {
            Some((_, to)) if i <= *to + 2 => *to = i,
            _ => occasions.push((i, i)),
        }
    }
    let level = |from: usize, to: usize| {
        median(rounds[from.min(rounds.len())..to.min(rounds.len())].iter().map(|r| r.inflight).collect())
    };
    let answers: Vec<f64> = occasions
        .iter()
        .filter(|(from, to)| *from >= 3 && to + 3 < rounds.len())
        .map(|(from, to)| (level(to + 1, to + 4) / level(from - 3, *from)).log2().clamp(-5.0, 5.0))
        .filter(|v| v.is_finite())
        .collect();
    for (place, q) in (28..).zip([0.5, 0.25, 0.75]) {
        all[place] = quantile(&answers, q);
    }
    let seconds = rounds.len() as f64 * length;
    all[31] = (1.0 + occasions.len() as f64 * 10.0 / seconds).log2();
    let (again, sent) = rounds.iter().fold((0.0, 0.0), |(a, s), r| (a + r.again, s + r.sent));
    all[32] = (1.0 + again * f64::from(mss) * 1000.0 / f64::max(sent, 1.0)).log2();
    let ends = occasions.iter().map(|(from, _)| *from).skip(1).chain([rounds.len()]);
    let mut growth = Vec::new();
    let mut bends = Vec::new();
    let mut gaps = Vec::new();
    let begins = occasions.iter().map(|(_, to)| to + 2);
    let whole = occasions.is_empty().then_some((0, rounds.len()));
    for (from, to) in begins.zip(ends).chain(whole).filter(|(from, to)| from + 6 <= *to) {
        let n = (to - from) / 3;
        let (a, b, c) = (
            level(from, from + n.min(3)),
            level(from + (to - from) / 2 - 1, from + (to - from) / 2 + 2),
            level(to - n.min(3), to),
        );
        growth.push(((c - a) / f64::from(mss) / (to - from) as f64).asinh());
        if c > a * 1.1 {
            bends.push(((b - a) / (c - a)).clamp(-1.0, 2.0));
        }
        gaps.push((to - from) as f64 * length);
    }
    all[33] = median(growth);
    all[34] = median(bends);
    all[35] = (1.0 + median(gaps)).log2();
}

/// The `q` quantile; NaN of nothing.
fn quantile(values: &[f64], q: f64) -> f64 {
    statistics::quantile(&mut values.to_vec(), q).unwrap_or(f64::NAN)
}

/// One of the values, the higher of two in the middle; NaN of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    statistics::quantile(&mut values, 0.5).unwrap_or(f64::NAN)
}

/// Mean change from each to the next.
fn wobble(values: &[f64]) -> f64 {
    let changes = values.windows(2).map(|w| (w[1] - w[0]).abs());
    changes.sum::<f64>() / values.len().saturating_sub(1) as f64
}

/// Correlation with the values `lag` before; NaN where nothing varies.
fn likeness(values: &[f64], lag: usize) -> f64 {
    if values.len() < lag * 3 {
        return f64::NAN;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let power = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    if power / (values.len() as f64) < 1e-6 {
        return f64::NAN;
    }
    let with = values.windows(lag + 1).map(|w| (w[0] - mean) * (w[lag] - mean)).sum::<f64>();
    with / power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_with_a_full_queue_is_a_longer_one() {
        let round = |rtt| Round { inflight: 1.0, sent: 1.0, rtt, lost: false, again: 0.0 };
        let mut rounds = vec![round(0.1); 40];
        assert_eq!(after(&rounds, 3, 0.1, 6), 9);
        rounds[..20].fill(round(0.3));
        assert_eq!(after(&rounds, 2, 0.1, 6), 20);
        // A stretch that is longer than the round trip stands for one, and so does one of which nothing is known.
        rounds.fill(round(0.02));
        rounds[10] = round(f64::NAN);
        assert_eq!(after(&rounds, 8, 0.1, 6), 14);
    }
}
