//! What limited a direction, and when: concluded once its RTprop and BtlBw are known.

use super::bins::{Bin, Bins};
use crate::text;
use fullpipe_experiment::connection::{Interval, LimitShare, Limitation, Limits};
use fullpipe_units::{Rate, Span, Time};

/// What is known of the whole direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub(super) start: Time,
    pub(super) first_data: Time,
    pub(super) last: Time,
    pub(super) mss: u64,
    pub(super) rtprop: Option<Span>,
    pub(super) btlbw: Option<Rate>,
}

/// The path is full where at least this share of BtlBw is delivered.
const FULL: f64 = 0.93;
/// A queue of this share of RTprop and of this many segments at BtlBw says so too.
const QUEUE: f64 = 0.10;
const QUEUE_SEGMENTS: u64 = 6;
/// In flight hardly changes: within this share, for this many round trips, without a loss.
const CONSTANT: f64 = 0.04;
const CONSTANT_ROUNDS: usize = 12;

/// One stretch of about a round trip.
struct Round {
    from: Time,
    to: Time,
    bin: Bin,
}

/// What limited the direction whose series these are.
pub(super) fn limits(bins: &Bins, whole: &Whole) -> Limits {
    if whole.last <= whole.first_data {
        return Limits::default();
    }
    let rounds = rounds(bins, whole);
    let policed = policer(&rounds, whole);
    let constant = constant(&rounds, whole);
    let mut spent = [Span::ZERO; Limitation::ALL.len()];
    let mut intervals: Vec<Interval> = Vec::new();
    for (i, round) in rounds.iter().enumerate() {
        let length = round.to.since(round.from);
        let idle = round.bin.idle.min(length);
        let closed = round.bin.closed.min(length - idle);
        let short = round.bin.short.min(length - idle - closed);
        let rest = length - idle - closed - short;
        let by_path = path(round, whole, policed, constant[i]);
        let parts =
            [(Limitation::Application, idle + short), (Limitation::ReceiveWindow, closed), (by_path, rest)];
        for (by, time) in parts {
            spent[by as usize] += time;
        }
        // Drawn is what held longest in the round.
        if let Some((by, _)) = parts.into_iter().max_by_key(|(_, time)| *time) {
            let (from, to) = (round.from.since(whole.start), round.to.since(whole.start));
            match intervals.last_mut() {
                Some(last) if last.by == by => last.to = to,
                _ => intervals.push(Interval { from, to, by }),
            }
        }
    }
    let total: Span = spent.iter().fold(Span::ZERO, |a, b| a + *b);
    if total.is_zero() {
        return Limits::default();
    }
    let share = |by: Limitation| spent[by as usize].as_secs_f64() / total.as_secs_f64();
    let mut shares: Vec<LimitShare> = Limitation::ALL
        .iter()
        .map(|&by| LimitShare { by, share: share(by) })
        .filter(|s| s.share > 0.0)
        .collect();
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    let words = words(&shares, whole);
    Limits { shares, intervals, words }
}

/// Fewer segments than this in a stretch tell its rate by more than five per cent too little or too much.
const SEGMENTS: u64 = 20;

/// Stretches of a round trip each, or of a bin or of what 20 segments take where that is longer.
fn rounds(bins: &Bins, whole: &Whole) -> Vec<Round> {
    let few = whole.btlbw.map_or(Span::ZERO, |rate| rate.time_to_send(SEGMENTS * whole.mss));
    let rtt = whole.rtprop.unwrap_or(Span::from_millis(50)).max(bins.width()).max(few);
    let each = rtt.as_nanos().div_ceil(bins.width().as_nanos()).max(1) as usize;
    let mut rounds = Vec::new();
    for (i, (count, bin)) in bins.by(each).into_iter().enumerate() {
        let start = bins.start() + bins.width() * ((i * each) as u64);
        let from = start.max(whole.first_data);
        let to = (start + bins.width() * count as u64).min(whole.last);
        if from < to {
            rounds.push(Round { from, to, bin });
        }
    }
    rounds
}

/// What limits a round in which the sender had data and the receiver room.
fn path(round: &Round, whole: &Whole, policed: bool, constant: bool) -> Limitation {
    let length = round.to.since(round.from);
    let delivered = Rate::from_bytes_in(round.bin.acked.max(round.bin.fresh), length);
    let (Some(btlbw), Some(rtprop)) = (whole.btlbw, whole.rtprop) else {
        return Limitation::CongestionWindow;
    };
    let rate = delivered.as_bytes_per_sec() as f64;
    let busy = length - round.bin.idle.min(length);
    let fills = rate * length.as_secs_f64() >= FULL * btlbw.as_bytes_per_sec() as f64 * busy.as_secs_f64();
    let slack = rtprop.as_secs_f64() * QUEUE + btlbw.time_to_send(QUEUE_SEGMENTS * whole.mss).as_secs_f64();
    let queue =
        round.bin.rtt_min != Span::MAX && round.bin.rtt_min.as_secs_f64() > rtprop.as_secs_f64() + slack;
    match (fills || queue, policed) {
        (true, true) => Limitation::Policer,
        (true, false) => Limitation::Bandwidth,
        (false, true) if round.bin.retransmitted > 0 => Limitation::Policer,
        (false, _) if constant => Limitation::SendBuffer,
        (false, _) => Limitation::CongestionWindow,
    }
}

/// A token bucket drops what exceeds its rate and lets nothing wait: losses in several rounds, a delivery rate that
/// does not change from loss to loss, and no queue before them (Flach et al., SIGCOMM 2016, §2).
fn policer(rounds: &[Round], whole: &Whole) -> bool {
    let (Some(btlbw), Some(rtprop)) = (whole.btlbw, whole.rtprop) else { return false };
    let lossy: Vec<&Round> = rounds.iter().filter(|r| r.bin.retransmitted + r.bin.missing > 0).collect();
    let sent: u64 = rounds.iter().map(|r| r.bin.sent).sum();
    let again: u64 = rounds.iter().map(|r| r.bin.retransmitted * whole.mss).sum();
    // Policed connections lose a fifth of their data on average (§3); random loss of a few per cent is not policing.
    if lossy.len() < 4 || again * 20 < sent {
        return false;
    }
    let waits = rounds.iter().filter(|r| {
        r.bin.rtt_min != Span::MAX && r.bin.rtt_min.as_secs_f64() > rtprop.as_secs_f64() * (1.0 + 2.0 * QUEUE)
    });
    if waits.count() * 10 > rounds.len() {
        return false;
    }
    let at_rate = lossy.iter().filter(|r| {
        let rate = Rate::from_bytes_in(r.bin.acked, r.to.since(r.from)).as_bytes_per_sec() as f64;
        (rate / btlbw.as_bytes_per_sec() as f64 - 1.0).abs() < 0.25
    });
    at_rate.count() * 2 > lossy.len()
}

/// In which rounds the amount in flight stood still while nothing was lost, at what it ever was at most: a buffer is a bound,
/// where a congestion window that stands still for a while was or will be greater.
fn constant(rounds: &[Round], whole: &Whole) -> Vec<bool> {
    let mut stands = vec![false; rounds.len()];
    let most = rounds.iter().map(|r| r.bin.inflight).max().unwrap_or_default();
    let mut from = 0;
    while from < rounds.len() {
        let level = rounds[from].bin.inflight;
        let near = |v: u64| v.abs_diff(level) as f64 <= (level as f64 * CONSTANT).max(whole.mss as f64);
        let still = |r: &Round| near(r.bin.inflight) && r.bin.retransmitted == 0 && r.bin.missing == 0;
        let run = rounds[from..].iter().take_while(|r| still(r)).count();
        if run >= CONSTANT_ROUNDS && level > 2 * whole.mss && near(most) {
            stands[from..from + run].fill(true);
        }
        from += run.max(1);
    }
    stands
}

fn words(shares: &[LimitShare], whole: &Whole) -> Vec<String> {
    let Some(most) = shares.first() else { return Vec::new() };
    let percent = |s: &LimitShare| format!("{:.0} %", s.share * 100.0);
    let told = |s: &LimitShare| {
        let of = percent(s);
        match s.by {
            Limitation::Application => {
                format!(
                    "{of} of the time the sending program had nothing to send: the network was not what held it up"
                )
            }
            Limitation::ReceiveWindow => format!(
                "{of} of the time the receiver would not take more: its program reads too slowly, or its receive buffer is too small for this path"
            ),
            Limitation::SendBuffer => format!(
                "{of} of the time the amount under way stood still without any loss: the sender's buffer, or a window fixed by its owner, is too small for this path"
            ),
            Limitation::CongestionWindow => format!(
                "{of} of the time the sender held itself back below what the path carries: it was still starting, or its congestion control had slowed down after losses"
            ),
            Limitation::Bandwidth => match whole.btlbw {
                Some(rate) => format!(
                    "{of} of the time the path was full: it carries {}, and no sender can get more out of it",
                    text::rate(rate)
                ),
                None => format!("{of} of the time the path was full"),
            },
            Limitation::Policer => format!(
                "{of} of the time something on the way dropped whatever went beyond a fixed rate: a policer, not a queue"
            ),
        }
    };
    let mut words = vec![told(most)];
    words.extend(shares.iter().skip(1).filter(|s| s.share >= 0.1).map(told));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(10);
    const RATE: Rate = Rate::from_bytes_per_sec(1_000_000);

    fn whole(seconds: u64) -> Whole {
        Whole {
            start: Time::ZERO,
            first_data: Time::ZERO,
            last: Time::ZERO + Span::from_secs(seconds),
            mss: 1000,
            rtprop: Some(RTT),
            btlbw: Some(RATE),
        }
    }

    /// A second in which each millisecond's bin is what `of` makes of it.
    fn bins(seconds: u64, of: impl Fn(u64, &mut Bin)) -> Bins {
        let mut bins = Bins::new(Time::ZERO, 8192);
        for ms in 0..seconds * 1000 {
            of(ms, bins.at(Time::ZERO + Span::from_millis(ms)));
        }
        bins
    }

    #[test]
    fn a_full_path_is_told_from_a_small_window() {
        let full = limits(&bins(1, |ms, b| (b.acked, b.inflight) = (1000, 20_000 + ms * 40)), &whole(1));
        assert_eq!(full.dominant().map(|l| l.by), Some(Limitation::Bandwidth), "{full:?}");
        let held = limits(&bins(1, |ms, b| (b.acked, b.inflight) = (300, 3_000 + ms * 40)), &whole(1));
        assert_eq!(held.dominant().map(|l| l.by), Some(Limitation::CongestionWindow), "{held:?}");
    }

    #[test]
    fn shares_are_of_the_whole_time_and_intervals_leave_no_gap() {
        let half = Span::from_micros(500);
        let found = limits(
            &bins(1, |ms, b| {
                (b.acked, b.inflight) = (1000, 10_000);
                if ms < 500 { b.idle = half } else { b.closed = half * 2 }
            }),
            &whole(1),
        );
        let sum: f64 = found.shares.iter().map(|s| s.share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        assert!((found.share(Limitation::Application) - 0.25).abs() < 0.01, "{found:?}");
        assert!((found.share(Limitation::ReceiveWindow) - 0.5).abs() < 0.01, "{found:?}");
        assert!(found.intervals.windows(2).all(|w| w[0].to == w[1].from));
        assert_eq!(found.intervals.last().unwrap().to, Span::from_secs(1));
    }

    #[test]
    fn losses_without_a_queue_at_a_constant_rate_are_a_policer() {
        let drops = |ms: u64, b: &mut Bin| {
            (b.acked, b.sent, b.rtt_min, b.rtt_count) = (1000, 1200, RTT, 1);
            b.retransmitted = u64::from(ms.is_multiple_of(5));
        };
        let found = limits(&bins(2, drops), &whole(2));
        assert_eq!(found.dominant().map(|l| l.by), Some(Limitation::Policer), "{found:?}");
        // The same behind a queue is a full link that overflows.
        let queued = |ms: u64, b: &mut Bin| {
            drops(ms, b);
            b.rtt_min = RTT * if ms < 20 { 1 } else { 2 };
        };
        let found = limits(&bins(2, queued), &whole(2));
        assert_eq!(found.dominant().map(|l| l.by), Some(Limitation::Bandwidth), "{found:?}");
    }

    #[test]
    fn what_stands_still_in_flight_is_a_buffer() {
        let found = limits(&bins(1, |_, b| (b.acked, b.inflight) = (300, 3_000)), &whole(1));
        assert_eq!(found.dominant().map(|l| l.by), Some(Limitation::SendBuffer), "{found:?}");
    }
}
