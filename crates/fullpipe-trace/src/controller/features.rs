//! Numbers that describe how a sender behaves. They are computed in the same way for the captured
//! connection and for the simulated candidates.

use crate::connection::Trajectory;
use fullpipe_experiment::statistics;
use fullpipe_units::{Rate, Span};

/// A number that describes a sender; NaN if a connection does not show it.
pub(super) struct Feature {
    /// Name in the evidence: "`name`: 0.52 observed, 0.50 for reno, 0.98 for bbr".
    pub(super) name: &'static str,
    /// How the number is displayed.
    pub(super) format: Format,
    /// Standard error between a capture and a simulation of its own controller on the estimated
    /// path: 1.5 times the root mean square over simulated captures (`examples/confusion.rs
    /// residuals 1 40`), and at least 0.06, since kernels, timers and offloads differ from the
    /// simulation.
    pub(super) error: f64,
}

/// How the value of a feature is displayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// A base-2 logarithm of a ratio.
    Ratio,
    /// A base-2 logarithm of a count plus one, shown as the count.
    Count,
    /// A plain number.
    Plain,
}

impl Format {
    /// Formats a value.
    pub(super) fn show(self, v: f64) -> String {
        if v.is_nan() {
            return "not observed".to_owned();
        }
        match self {
            Format::Ratio => format!("×{:.2}", v.exp2()),
            Format::Count => format!("{:.1}", v.exp2() - 1.0),
            Format::Plain => format!("{v:.2}"),
        }
    }
}

const fn feature(name: &'static str, format: Format, error: f64) -> Feature {
    Feature { name, format, error }
}

use Format::{Count, Plain, Ratio};

/// All features, in the order of [`Features`].
pub(super) const FEATURES: [Feature; 37] = [
    feature("round trips to half of the first peak of inflight", Count, 0.3),
    feature("round trips to the first peak of inflight", Count, 0.27),
    feature("first peak of inflight / BDP", Ratio, 0.3),
    feature("inflight after the first peak / peak", Ratio, 0.19),
    feature("inflight eight round trips after the first peak / peak", Ratio, 0.33),
    feature("inflight p5 / BDP", Ratio, 0.21),
    feature("inflight p25 / BDP", Ratio, 0.16),
    feature("inflight p50 / BDP", Ratio, 0.16),
    feature("inflight p75 / BDP", Ratio, 0.14),
    feature("inflight p95 / BDP", Ratio, 0.22),
    feature("RTT p10 / RTprop", Ratio, 0.06),
    feature("RTT p50 / RTprop", Ratio, 0.06),
    feature("RTT p90 / RTprop", Ratio, 0.06),
    feature("rate p10 / BtlBw", Ratio, 0.12),
    feature("rate p50 / BtlBw", Ratio, 0.13),
    feature("rate p90 / BtlBw", Ratio, 0.09),
    feature("change of inflight per round trip", Plain, 0.06),
    feature("change of rate per round trip", Plain, 0.06),
    feature("autocorrelation of the rate, lag 1 round trip", Plain, 0.18),
    feature("autocorrelation of the rate, lag 2 round trips", Plain, 0.06),
    feature("autocorrelation of the rate, lag 4 round trips", Plain, 0.06),
    feature("autocorrelation of the rate, lag 8 round trips", Plain, 0.06),
    feature("autocorrelation of inflight, lag 2 round trips", Plain, 0.06),
    feature("autocorrelation of inflight, lag 8 round trips", Plain, 0.1),
    feature("autocorrelation of inflight, lag 32 round trips", Plain, 0.1),
    feature("dips to a few packets per ten seconds", Count, 0.09),
    feature("dips to half per ten seconds", Count, 0.33),
    feature("seconds between dips", Count, 0.67),
    feature("inflight after / before losses (median)", Ratio, 0.08),
    feature("inflight after / before losses (lower quartile)", Ratio, 0.07),
    feature("inflight after / before losses (upper quartile)", Ratio, 0.11),
    feature("loss events per ten seconds", Count, 0.26),
    feature("retransmitted data per mille", Count, 0.44),
    feature("growth of inflight per round trip without losses, segments", Plain, 0.06),
    feature("share of the growth in the first half between losses", Plain, 0.1),
    feature("seconds between losses", Count, 0.13),
    feature("difference of inflight at the same times", Plain, 0.2),
];

/// The values of all features of a connection.
pub(super) type Features = [f64; FEATURES.len()];

/// Measurements of a round trip.
#[derive(Clone, Copy, Debug)]
struct Round {
    inflight: f64,
    sent: f64,
    rtt: f64,
    lost: bool,
    again: f64,
}

/// Minimum number of segments of a round.
const MIN_ROUND_SEGMENTS: u64 = 10;

/// Round trips in which the first peak is searched.
const OPENING_ROUNDS: usize = 60;
/// Round trips without a higher value that make a peak.
const PEAK_ROUNDS: usize = 6;

/// Computes the features of `trajectory` on a path of `rate` (payload) and `rtprop` with segments
/// of `mss` bytes. `sent_here`: captured at the sender. `from_start`: captured from the handshake
/// on.
pub(super) fn features(
    trajectory: &Trajectory,
    rtprop: Span,
    rate: Rate,
    mss: u32,
    sent_here: bool,
    from_start: bool,
) -> Features {
    // Rounds of few segments would make one more or less a feature.
    let few = rate.time_to_send(MIN_ROUND_SEGMENTS * u64::from(mss));
    let step = trajectory.steps().width();
    let width = rtprop.max(step).max(few);
    let each = (width.as_nanos() + step.as_nanos() / 2) / step.as_nanos();
    let length = (step * each).as_secs_f64();
    let bdp = (rate.as_bytes_per_sec() as f64 * rtprop.as_secs_f64()).max(f64::from(mss));
    let rounds = rounds(trajectory, each as usize, sent_here);
    let mut all = [f64::NAN; FEATURES.len()];
    let (first, rest) = opening(&rounds, length, bdp, from_start);
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
    all[16] = mean_change(&inflight);
    all[17] = mean_change(&rates);
    for (place, lag) in (18..).zip([1, 2, 4, 8]) {
        all[place] = autocorrelation(&rates, lag);
    }
    for (place, lag) in (22..).zip([2, 8, 32]) {
        all[place] = autocorrelation(&inflight, lag);
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

/// Index of the feature that compares two connections moment by moment, which [`features`] leaves out.
pub(super) const SAME_TIMES: usize = 36;

/// Mean difference of the data in flight of two connections at the same times, as a base-2 logarithm.
pub(super) fn difference(a: &Trajectory, b: &Trajectory, rtprop: Span, sent_here: bool) -> f64 {
    let length = a.steps().width().max(b.steps().width()).max(rtprop).as_nanos();
    let [a, b] = [a, b].map(|t| {
        let each = (length / t.steps().width().as_nanos().max(1)).max(1);
        rounds(t, each as usize, sent_here).into_iter().map(|r| r.inflight).collect::<Vec<f64>>()
    });
    let both: Vec<f64> =
        a.iter().zip(&b).filter(|(a, b)| **a > 0.0 && **b > 0.0).map(|(a, b)| (a / b).log2().abs()).collect();
    both.iter().sum::<f64>() / both.len() as f64
}

fn rounds(trajectory: &Trajectory, each: usize, sent_here: bool) -> Vec<Round> {
    let mut before = 0.0;
    let mut rtt_before = f64::NAN;
    let rounds = trajectory.steps().grouped(each.max(1)).into_iter().map(|(_, step)| {
        let level = if sent_here { step.inflight } else { step.reported_inflight };
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
            lost: step.retransmitted > 0,
            again: f64::from(step.retransmitted),
        }
    });
    rounds.collect()
}

/// The features of the opening, and the round in which it ended.
fn opening(rounds: &[Round], length: f64, bdp: f64, from_start: bool) -> ([f64; 5], usize) {
    if !from_start {
        return ([f64::NAN; 5], 0);
    }
    let (mut peak, mut at) = (0.0, 0);
    for (i, r) in rounds.iter().enumerate().take(OPENING_ROUNDS) {
        if r.inflight > peak * 1.02 {
            (peak, at) = (r.inflight, i);
        } else if i >= at + PEAK_ROUNDS && r.inflight < peak {
            break;
        }
    }
    if peak <= 0.0 || at + 12 > rounds.len() {
        return ([f64::NAN; 5], at);
    }
    let half = rounds.iter().position(|r| r.inflight >= peak / 2.0).unwrap_or(0);
    // With a full queue, round trips take longer than the minimum.
    let over = round_after(rounds, at, length, PEAK_ROUNDS).min(rounds.len() - PEAK_ROUNDS);
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

/// The round that is `trips` actual round trips after `from`.
fn round_after(rounds: &[Round], from: usize, length: f64, trips: usize) -> usize {
    let mut passed = 0.0;
    let mut i = from;
    while passed < trips as f64 - 1e-9 && i < rounds.len() {
        passed += if rounds[i].rtt > length { length / rounds[i].rtt } else { 1.0 };
        i += 1;
    }
    i
}

/// The rounds in which inflight becomes `low` compared with its median in the surrounding seconds.
fn dips(rounds: &[Round], length: f64, low: impl Fn(f64, f64) -> bool) -> Vec<usize> {
    // A dip of BBR lasts 200 ms and a round trip: take the median over a few seconds.
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

/// The features of the reaction to losses, and of the growth between them.
fn losses(rounds: &[Round], length: f64, mss: u32, all: &mut Features) {
    // Consecutive losses are one event.
    let mut events: Vec<(usize, usize)> = Vec::new();
    for (i, _) in rounds.iter().enumerate().filter(|(_, r)| r.lost) {
        match events.last_mut() {
            Some((_, to)) if i <= *to + 2 => *to = i,
            _ => events.push((i, i)),
        }
    }
    let level = |from: usize, to: usize| {
        median(rounds[from.min(rounds.len())..to.min(rounds.len())].iter().map(|r| r.inflight).collect())
    };
    let reductions: Vec<f64> = events
        .iter()
        .filter(|(from, to)| *from >= 3 && to + 3 < rounds.len())
        .map(|(from, to)| (level(to + 1, to + 4) / level(from - 3, *from)).log2().clamp(-5.0, 5.0))
        .filter(|v| v.is_finite())
        .collect();
    for (place, q) in (28..).zip([0.5, 0.25, 0.75]) {
        all[place] = quantile(&reductions, q);
    }
    let seconds = rounds.len() as f64 * length;
    all[31] = (1.0 + events.len() as f64 * 10.0 / seconds).log2();
    let (again, sent) = rounds.iter().fold((0.0, 0.0), |(a, s), r| (a + r.again, s + r.sent));
    all[32] = (1.0 + again * f64::from(mss) * 1000.0 / f64::max(sent, 1.0)).log2();
    let ends = events.iter().map(|(from, _)| *from).skip(1).chain([rounds.len()]);
    let mut growth = Vec::new();
    let mut bends = Vec::new();
    let mut gaps = Vec::new();
    let begins = events.iter().map(|(_, to)| to + 2);
    let whole = events.is_empty().then_some((0, rounds.len()));
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

/// The `q` quantile; NaN without values.
fn quantile(values: &[f64], q: f64) -> f64 {
    statistics::quantile(&mut values.to_vec(), q).unwrap_or(f64::NAN)
}

/// The median: one of the values, the higher of two in the middle; NaN without values.
fn median(mut values: Vec<f64>) -> f64 {
    statistics::quantile(&mut values, 0.5).unwrap_or(f64::NAN)
}

/// Mean absolute change between neighbours.
fn mean_change(values: &[f64]) -> f64 {
    let changes = values.windows(2).map(|w| (w[1] - w[0]).abs());
    changes.sum::<f64>() / values.len().saturating_sub(1) as f64
}

/// Correlation with the values `lag` earlier; NaN for constant values.
fn autocorrelation(values: &[f64], lag: usize) -> f64 {
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
    fn full_queue_makes_round_trips_longer() {
        let round = |rtt| Round { inflight: 1.0, sent: 1.0, rtt, lost: false, again: 0.0 };
        let mut rounds = vec![round(0.1); 40];
        assert_eq!(round_after(&rounds, 3, 0.1, 6), 9);
        rounds[..20].fill(round(0.3));
        assert_eq!(round_after(&rounds, 2, 0.1, 6), 20);
        // A round longer than the RTT counts as one round trip, and so does one without samples.
        rounds.fill(round(0.02));
        rounds[10] = round(f64::NAN);
        assert_eq!(round_after(&rounds, 8, 0.1, 6), 14);
    }
}
