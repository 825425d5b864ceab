//! Determines what limited a direction and when, from its RTprop and BtlBw.

use super::bins::{Bin, Bins};
use crate::quantity;
use fullpipe_experiment::connection::{Interval, LimitShare, Limitation, Limits, SmallWrites};
use fullpipe_units::{Rate, Span, Time};

/// Properties of the whole direction.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    pub(super) start: Time,
    pub(super) first_data: Time,
    pub(super) last: Time,
    pub(super) mss: u64,
    pub(super) rtprop: Option<Span>,
    pub(super) btlbw: Option<Rate>,
    /// Number and total time of zero windows.
    pub(super) zero_windows: (u64, Span),
    pub(super) small_writes: Option<SmallWrites>,
}

/// Share of BtlBw from which the path counts as full.
pub(crate) const FULL_SHARE: f64 = 0.93;
/// A queueing delay of this share of RTprop plus this many segments at BtlBw also means a full
/// path.
pub(crate) const QUEUE_SHARE: f64 = 0.10;
pub(crate) const QUEUE_SEGMENTS: u64 = 6;
/// Inflight counts as constant within this share, for this many round trips without loss.
const CONSTANT_SHARE: f64 = 0.04;
const CONSTANT_ROUNDS: usize = 12;
/// Rounds at one rate that show that the path was full (as BBR's Startup: `full_bw_cnt`).
const MIN_FULL_ROUNDS: usize = 3;
/// Segments that a sender can have in flight without any acknowledgment (RFC 6928 §2).
const INITIAL_WINDOW_SEGMENTS: u64 = 10;
/// The smallest initial window (RFC 5681 §3.1).
const MIN_WINDOW_SEGMENTS: u64 = 2;
/// Minimum share of the time that is put into words.
const MIN_SHARE: f64 = 0.1;

/// An interval of about a round trip.
struct Round {
    from: Time,
    to: Time,
    bin: Bin,
}

/// Determines the limits of a direction from its time series.
pub(super) fn limits(bins: &Bins, summary: &Summary) -> Limits {
    if summary.last <= summary.first_data {
        return Limits::default();
    }
    let rounds = rounds(bins, summary);
    let policed = policer(&rounds, summary);
    let constant = constant(&rounds, summary);
    let judged = Judged::new(&rounds, summary);
    let mut unknown = Span::ZERO;
    let mut spent = [Span::ZERO; Limitation::ALL.len()];
    let mut intervals: Vec<Interval> = Vec::new();
    for (i, round) in rounds.iter().enumerate() {
        let length = round.to.since(round.from);
        let idle = round.bin.idle.min(length);
        let closed = round.bin.closed.min(length - idle);
        let short = round.bin.short.min(length - idle - closed);
        let rest = length - idle - closed - short;
        let by_path = judged.keep(path(round, summary, policed, constant[i]), round);
        let parts = [
            (Some(Limitation::Application), idle + short),
            (Some(Limitation::ReceiveWindow), closed),
            (by_path, rest),
        ];
        for (by, time) in parts {
            match by {
                Some(by) => spent[by as usize] += time,
                None => unknown += time,
            }
        }
        // Plots show the longest limitation of the round.
        if let Some((Some(by), _)) = parts.into_iter().max_by_key(|(_, time)| *time) {
            let (from, to) = (round.from.since(summary.start), round.to.since(summary.start));
            match intervals.last_mut() {
                Some(last) if last.by == by && last.to == from => last.to = to,
                _ => intervals.push(Interval { from, to, by }),
            }
        }
    }
    let total: Span = spent.iter().fold(unknown, |a, b| a + *b);
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
    let mut words = describe(&shares, summary);
    let unknown = unknown.as_secs_f64() / total.as_secs_f64();
    if unknown >= MIN_SHARE {
        words.push(format!("the capture does not show what limited {:.0} % of the time", unknown * 100.0));
    }
    Limits { shares, intervals, words }
}

/// What the whole direction shows. A few segments look the same whatever limited them.
struct Judged {
    /// Whether the path was full for several rounds: a rate that only grows is highest once.
    has_plateau: bool,
    has_losses: bool,
    /// Whether the sender waited for ACKs with more than an initial window.
    has_flights: bool,
    mss: u64,
}

impl Judged {
    fn new(rounds: &[Round], summary: &Summary) -> Judged {
        let sent: u64 = rounds.iter().map(|r| r.bin.new_bytes.max(r.bin.acked)).sum();
        let most = rounds.iter().map(|r| r.bin.inflight).max().unwrap_or_default();
        let full = rounds.iter().filter(|r| path(r, summary, false, false) == Limitation::Bandwidth);
        Judged {
            has_plateau: full.count() >= MIN_FULL_ROUNDS,
            has_losses: rounds.iter().any(|r| r.bin.retransmitted > 0),
            has_flights: summary.rtprop.is_some() && sent > most.max(INITIAL_WINDOW_SEGMENTS * summary.mss),
            mss: summary.mss,
        }
    }

    /// `by`, the limitation of `round`, if that is known.
    fn keep(&self, by: Limitation, round: &Round) -> Option<Limitation> {
        // Without losses, no congestion window is smaller. Rounds that only wait for ACKs have no sample.
        let is_tiny = (1..MIN_WINDOW_SEGMENTS * self.mss).contains(&round.bin.inflight);
        let is_known = match by {
            Limitation::Bandwidth => self.has_plateau,
            Limitation::CongestionWindow => self.has_losses || self.has_flights && !is_tiny,
            _ => true,
        };
        is_known.then_some(by)
    }
}

/// Minimum number of segments of a round, for a rate within 5 %.
const MIN_SEGMENTS: u64 = 20;

/// Splits the series into rounds of an RTT, or longer if a bin or 20 segments take longer.
fn rounds(bins: &Bins, summary: &Summary) -> Vec<Round> {
    let few = summary.btlbw.map_or(Span::ZERO, |rate| rate.time_to_send(MIN_SEGMENTS * summary.mss));
    let rtt = summary.rtprop.unwrap_or(Span::from_millis(50)).max(bins.width()).max(few);
    let each = rtt.as_nanos().div_ceil(bins.width().as_nanos()).max(1) as usize;
    let mut rounds = Vec::new();
    for (i, (count, bin)) in bins.grouped(each).into_iter().enumerate() {
        let start = bins.start() + bins.width() * ((i * each) as u64);
        let from = start.max(summary.first_data);
        let to = (start + bins.width() * count as u64).min(summary.last);
        if from < to {
            rounds.push(Round { from, to, bin });
        }
    }
    rounds
}

/// The limitation of a round without application or receive window limit.
fn path(round: &Round, summary: &Summary, policed: bool, constant: bool) -> Limitation {
    let length = round.to.since(round.from);
    let delivered = Rate::from_bytes_in(round.bin.acked.max(round.bin.new_bytes), length);
    let (Some(btlbw), Some(rtprop)) = (summary.btlbw, summary.rtprop) else {
        return Limitation::CongestionWindow;
    };
    let rate = delivered.as_bytes_per_sec() as f64;
    let busy = length - round.bin.idle.min(length);
    let fills =
        rate * length.as_secs_f64() >= FULL_SHARE * btlbw.as_bytes_per_sec() as f64 * busy.as_secs_f64();
    let slack =
        rtprop.as_secs_f64() * QUEUE_SHARE + btlbw.time_to_send(QUEUE_SEGMENTS * summary.mss).as_secs_f64();
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

/// Detects a policer. A token bucket drops packets above its rate without queueing: there are
/// losses in several rounds, a constant delivery rate between losses, and no queue before them
/// (Flach et al., SIGCOMM 2016, §2).
fn policer(rounds: &[Round], summary: &Summary) -> bool {
    let (Some(btlbw), Some(rtprop)) = (summary.btlbw, summary.rtprop) else { return false };
    let lossy: Vec<&Round> = rounds.iter().filter(|r| r.bin.retransmitted + r.bin.missing > 0).collect();
    let sent: u64 = rounds.iter().map(|r| r.bin.sent).sum();
    let retransmitted: u64 = rounds.iter().map(|r| r.bin.retransmitted * summary.mss).sum();
    // Policed connections lose a fifth of their data on average (§3); a few per cent are random loss.
    if lossy.len() < 4 || retransmitted * 20 < sent {
        return false;
    }
    let queued = rounds.iter().filter(|r| {
        r.bin.rtt_min != Span::MAX
            && r.bin.rtt_min.as_secs_f64() > rtprop.as_secs_f64() * (1.0 + 2.0 * QUEUE_SHARE)
    });
    if queued.count() * 10 > rounds.len() {
        return false;
    }
    let at_rate = lossy.iter().filter(|r| {
        let rate = Rate::from_bytes_in(r.bin.acked, r.to.since(r.from)).as_bytes_per_sec() as f64;
        (rate / btlbw.as_bytes_per_sec() as f64 - 1.0).abs() < 0.25
    });
    at_rate.count() * 2 > lossy.len()
}

/// Rounds in which inflight was constant at its maximum without losses. That is a send buffer; a
/// congestion window would be larger at other times.
fn constant(rounds: &[Round], summary: &Summary) -> Vec<bool> {
    let mut constant = vec![false; rounds.len()];
    let most = rounds.iter().map(|r| r.bin.inflight).max().unwrap_or_default();
    let mut from = 0;
    while from < rounds.len() {
        let level = rounds[from].bin.inflight;
        let near =
            |v: u64| v.abs_diff(level) as f64 <= (level as f64 * CONSTANT_SHARE).max(summary.mss as f64);
        let still = |r: &Round| near(r.bin.inflight) && r.bin.retransmitted == 0 && r.bin.missing == 0;
        let run = rounds[from..].iter().take_while(|r| still(r)).count();
        if run >= CONSTANT_ROUNDS && level > 2 * summary.mss && near(most) {
            constant[from..from + run].fill(true);
        }
        from += run.max(1);
    }
    constant
}

fn describe(shares: &[LimitShare], summary: &Summary) -> Vec<String> {
    let Some(most) = shares.first() else { return Vec::new() };
    let zero_windows = summary.zero_windows.1;
    let small_writes = summary.small_writes.as_ref().map_or(Span::ZERO, |small| small.waited);
    let whole = summary.last.since(summary.first_data).as_secs_f64();
    let is_most = |part: Span, s: &LimitShare| part.as_secs_f64() * 2.0 >= s.share * whole;
    let percent = |s: &LimitShare| format!("{:.0} %", s.share * 100.0);
    let sentence = |s: &LimitShare| {
        let of = percent(s);
        match s.by {
            Limitation::Application if is_most(small_writes, s) => {
                let delayed = match &summary.small_writes {
                    Some(small) if small.delayed_acks > 0 => {
                        format!(", {} of {} for a delayed ACK", small.delayed_acks, small.held)
                    }
                    _ => String::new(),
                };
                format!(
                    "{of} of the time the application was the limit: small writes waiting for ACKs \
                     (Nagle){delayed}; combine them into larger writes, or set TCP_NODELAY"
                )
            }
            Limitation::Application => {
                format!(
                    "{of} of the time the sending application had no data to send: the network was not the \
                     limit"
                )
            }
            Limitation::ReceiveWindow if is_most(zero_windows, s) => {
                let (times, total) = summary.zero_windows;
                let windows = quantity::count(times, "zero window");
                format!(
                    "{of} of the time the receive window was full ({windows}, total {}): the receiving \
                     application reads too slowly, or not at all",
                    quantity::span(total)
                )
            }
            Limitation::ReceiveWindow => format!(
                "{of} of the time the receive window was full: the receiving application reads too slowly, \
                 or its receive buffer is too small for this path"
            ),
            Limitation::SendBuffer => format!(
                "{of} of the time the data in flight was constant without losses: the send buffer or a \
                 window clamp is too small for this path"
            ),
            Limitation::CongestionWindow => format!(
                "{of} of the time the congestion window was the limit: the connection was in slow start, or \
                 had backed off after losses"
            ),
            Limitation::Bandwidth => match summary.btlbw {
                Some(rate) => format!("{of} of the time the path was full, at {}", quantity::rate(rate)),
                None => format!("{of} of the time the path was full"),
            },
            Limitation::Policer => format!(
                "{of} of the time packets above a fixed rate were dropped without queueing: a policer"
            ),
            Limitation::Pacing => format!("{of} of the time the sender's pacing rate was the limit"),
        }
    };
    let mut words = vec![sentence(most)];
    words.extend(shares.iter().skip(1).filter(|s| s.share >= MIN_SHARE).map(sentence));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(10);
    const RATE: Rate = Rate::from_bytes_per_sec(1_000_000);

    fn summary(seconds: u64) -> Summary {
        Summary {
            start: Time::ZERO,
            first_data: Time::ZERO,
            last: Time::ZERO + Span::from_secs(seconds),
            mss: 1000,
            rtprop: Some(RTT),
            btlbw: Some(RATE),
            zero_windows: (0, Span::ZERO),
            small_writes: None,
        }
    }

    /// Bins of a millisecond, each set by `of`.
    fn bins(seconds: u64, of: impl Fn(u64, &mut Bin)) -> Bins {
        let mut bins = Bins::new(Time::ZERO, 8192);
        for ms in 0..seconds * 1000 {
            of(ms, bins.at(Time::ZERO + Span::from_millis(ms)));
        }
        bins
    }

    #[test]
    fn full_path_differs_from_small_window() {
        let full = limits(&bins(1, |ms, b| (b.acked, b.inflight) = (1000, 20_000 + ms * 40)), &summary(1));
        assert_eq!(full.dominant().map(|l| l.by), Some(Limitation::Bandwidth), "{full:?}");
        let held = limits(&bins(1, |ms, b| (b.acked, b.inflight) = (300, 3_000 + ms * 40)), &summary(1));
        assert_eq!(held.dominant().map(|l| l.by), Some(Limitation::CongestionWindow), "{held:?}");
    }

    #[test]
    fn rate_that_only_grows_does_not_show_a_full_path() {
        let short = Summary { last: Time::ZERO + Span::from_millis(80), mss: 100, ..summary(1) };
        let growing = bins(1, |ms, b| (b.acked, b.inflight) = (1000 >> 7_u64.saturating_sub(ms / 10), 2000));
        let found = limits(&growing, &short);
        assert_eq!(found.share(Limitation::Bandwidth), 0.0, "{found:?}");
        assert!(found.words.iter().any(|words| words.contains("does not show what limited")), "{found:?}");
    }

    #[test]
    fn shares_cover_the_whole_time_and_intervals_have_no_gaps() {
        let half = Span::from_micros(500);
        let found = limits(
            &bins(1, |ms, b| {
                (b.acked, b.inflight) = (1000, 10_000);
                if ms < 500 { b.idle = half } else { b.closed = half * 2 }
            }),
            &summary(1),
        );
        let sum: f64 = found.shares.iter().map(|s| s.share).sum();
        assert!((sum - 1.0).abs() < 1e-9);
        assert!((found.share(Limitation::Application) - 0.25).abs() < 0.01, "{found:?}");
        assert!((found.share(Limitation::ReceiveWindow) - 0.5).abs() < 0.01, "{found:?}");
        assert!(found.intervals.windows(2).all(|w| w[0].to == w[1].from));
        assert_eq!(found.intervals.last().unwrap().to, Span::from_secs(1));
    }

    #[test]
    fn losses_without_queue_at_a_constant_rate_are_a_policer() {
        let drops = |ms: u64, b: &mut Bin| {
            (b.acked, b.sent, b.rtt_min, b.rtt_count) = (1000, 1200, RTT, 1);
            b.retransmitted = u64::from(ms.is_multiple_of(5));
        };
        let found = limits(&bins(2, drops), &summary(2));
        assert_eq!(found.dominant().map(|l| l.by), Some(Limitation::Policer), "{found:?}");
        // The same with a queue is a full link.
        let queued = |ms: u64, b: &mut Bin| {
            drops(ms, b);
            b.rtt_min = RTT * if ms < 20 { 1 } else { 2 };
        };
        let found = limits(&bins(2, queued), &summary(2));
        assert_eq!(found.dominant().map(|l| l.by), Some(Limitation::Bandwidth), "{found:?}");
    }

    #[test]
    fn constant_inflight_is_a_send_buffer() {
        let found = limits(&bins(1, |_, b| (b.acked, b.inflight) = (300, 3_000)), &summary(1));
        assert_eq!(found.dominant().map(|l| l.by), Some(Limitation::SendBuffer), "{found:?}");
    }
}
