//! Small segments that wait for the acknowledgment of the one before: Nagle's algorithm (RFC 896,
//! RFC 9293 §3.7.4), in Linux in Minshall's variant (`tcp_minshall_check()`).

use super::Half;
use fullpipe_experiment::connection::SmallWrites;
use fullpipe_units::{Span, Time};

/// A sender with Nagle's algorithm sends the next small segment as soon as the acknowledgment arrives.
/// A capture at the sender delays that by its scheduling only;
const MAX_DELAY: Span = Span::from_millis(1);
/// elsewhere it varies by a part of the RTT (1/n), but at most by five times as much.
const JITTER_PART: u64 = 8;
/// A receiver that delays its acknowledgment does so for 40 ms in Linux (`TCP_DELACK_MIN`) and 200 ms
/// in others; a smaller delay is jitter.
const MIN_ACK_DELAY: Span = Span::from_millis(20);
/// The minimum number of small segments that waited: a single one can be chance.
const MIN_HELD: u64 = 3;
/// The same if all waited for a delayed acknowledgment, and
const MIN_DELAYED: u64 = 2;
/// the minimum part of all small segments (1/n). In a pair of writes, only the second waits.
const HELD_PART: u64 = 3;

/// The small segments of a direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Small {
    /// End and time of the last one.
    end: u64,
    at: Time,
    /// When its acknowledgment arrived without data from the peer, and whether it was delayed.
    acked: Option<(Time, bool)>,
    count: u64,
    held: SmallWrites,
}

impl Half {
    /// The small segments that waited, if that was not chance.
    pub(in crate::connection) fn small_writes(&self) -> Option<SmallWrites> {
        let small = self.small.as_ref()?;
        let SmallWrites { held, delayed_acks, .. } = small.held;
        let enough = held >= MIN_HELD || delayed_acks >= MIN_DELAYED;
        (enough && held * HELD_PART >= small.count).then(|| small.held.clone())
    }

    /// The last bytes of a write are sent at `at`, up to `end`: they do not fill a segment. Call it
    /// before the data is added.
    pub(super) fn add_small(&mut self, end: u64, at: Time, (rtt, at_sender): (Option<Span>, bool)) {
        if end <= self.next {
            return;
        }
        let small = self.small.get_or_insert_default();
        small.count += 1;
        let jitter = if at_sender {
            MAX_DELAY
        } else {
            (rtt.unwrap_or(Span::ZERO) / JITTER_PART).clamp(MAX_DELAY, MAX_DELAY * 5)
        };
        if let Some((acked, delayed)) = small.acked
            && self.last_data == small.at
            && at.since(acked) <= jitter
        {
            let waited = at.since(small.at);
            small.held.held += 1;
            small.held.delayed_acks += u64::from(delayed);
            small.held.waited += waited;
            // Otherwise the pause after a pushed segment records it.
            if !self.short {
                let until = self.idle.map_or(at, |idle| idle.clamp(small.at, at));
                self.bins.add_time(small.at, until, |bin, t| bin.short += t);
            }
        }
        (small.end, small.at, small.acked) = (end, at, None);
    }

    /// An acknowledgment up to `ack` arrives at `now`. `bare`: without data.
    #[inline]
    pub(super) fn acknowledge_small(&mut self, ack: u64, bare: bool, now: Time, rtt: Option<Span>) {
        if let Some(small) = &mut self.small
            && (self.una + 1..=ack).contains(&small.end)
        {
            let delayed = rtt.is_some_and(|rtt| now.since(small.at) >= rtt + MIN_ACK_DELAY);
            small.acked = bare.then_some((now, delayed));
        }
    }
}
