//! The state of every outstanding segment: a ring indexed by segment number. Each operation is O(1)
//! amortised per segment, with any number in flight: runs of SACKed segments are skipped by
//! compressed jumps, loss detection never revisits a segment that is decided, and lost segments
//! queue up for retransmission.

use crate::segment::MAX_SACK_BLOCKS;
use fullpipe_cc::{Span, Stamp, Time};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Selectively acknowledged.
const SACKED: u8 = 1;
/// Marked lost, and not retransmitted since.
const LOST: u8 = 2;
/// Retransmitted at least once.
const RETRANSMITTED: u8 = 4;
/// The connection was application-limited when it was last sent.
const APP_LIMITED: u8 = 8;
/// Marked lost, whether or not it has been retransmitted since.
const DEEMED_LOST: u8 = 16;

/// A segment that was sent and is not acknowledged cumulatively. One cache line: thousands are in
/// flight.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(crate) struct Entry {
    // The connection's state at its last transmission: a `Stamp`, where 30 bits of bytes in flight suffice.
    sent_at: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    lost: u64,
    tx_in_flight: u32,
    /// Low bits of the number of the transmission.
    id: u32,
    /// Low bits of the byte position in the stream.
    offset: u32,
    /// For a SACKed segment, distance to the next segment that may not be SACKed.
    skip: u32,
    /// Payload bytes.
    pub len: u16,
    flags: u8,
}

impl Entry {
    fn new(len: u16, offset: u64, stamp: &Stamp, flags: u8) -> Self {
        debug_assert!(stamp.tx_in_flight <= u64::from(u32::MAX));
        Entry {
            sent_at: stamp.sent_at,
            delivered: stamp.delivered,
            delivered_at: stamp.delivered_at,
            first_sent_at: stamp.first_sent_at,
            lost: stamp.lost,
            tx_in_flight: stamp.tx_in_flight as u32,
            id: stamp.id as u32,
            offset: offset as u32,
            skip: 0,
            len,
            flags: if stamp.app_limited { flags | APP_LIMITED } else { flags & !APP_LIMITED },
        }
    }

    /// The connection's state at its last transmission.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        Stamp {
            sent_at: self.sent_at,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            lost: self.lost,
            tx_in_flight: u64::from(self.tx_in_flight),
            app_limited: self.is(APP_LIMITED),
            id: u64::from(self.id),
        }
    }

    /// When it was last sent.
    #[inline]
    pub fn sent_at(&self) -> Time {
        self.sent_at
    }

    pub fn was_retransmitted(&self) -> bool {
        self.flags & RETRANSMITTED != 0
    }

    /// Marked lost, and not retransmitted since.
    pub fn is_lost(&self) -> bool {
        self.is(LOST)
    }

    fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Counted as in flight: neither arrived nor lost.
    fn is_out(&self) -> bool {
        self.flags & (SACKED | LOST) == 0
    }

    /// Counted as a retransmission in flight.
    fn is_resent(&self) -> bool {
        self.flags & (SACKED | LOST | RETRANSMITTED) == RETRANSMITTED
    }

    /// Its last transmission.
    #[inline]
    pub fn sent(&self) -> Transmission {
        Transmission { at: self.sent_at, id: self.id }
    }
}

/// A transmission: its time, and its number, which orders transmissions at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Transmission {
    pub at: Time,
    pub id: u32,
}

impl Transmission {
    /// Later than all others.
    const LAST: Transmission = Transmission { at: Time::NEVER, id: 0 };

    /// Whether this one was before `other`. The numbers wrap around, long after the time has
    /// changed.
    #[inline]
    pub fn is_before(self, other: Transmission) -> bool {
        self.at < other.at || self.at == other.at && (other.id.wrapping_sub(self.id) as i32) > 0
    }
}

/// All segments in [`una`](Self::una)`..`[`nxt`](Self::nxt).
#[derive(Debug)]
pub(crate) struct Scoreboard {
    ring: Box<[Entry]>,
    una: u64,
    nxt: u64,
    una_bytes: u64,
    nxt_bytes: u64,
    inflight: u64,
    sacked: u64,
    lost: u64,
    deemed_lost: u64,
    /// Retransmissions in flight.
    resent: u64,
    /// One past the highest segment that was SACKed.
    fack: u64,
    /// The original of every segment below is decided: acknowledged, lost or retransmitted.
    undecided: u64,
    /// Low bits of the numbers of lost originals, in sequence order; outdated entries are skipped when
    /// met.
    lost_originals: VecDeque<u32>,
    /// Lost retransmissions, lowest first.
    lost_again: BinaryHeap<Reverse<u64>>,
    /// Retransmissions in order of sending: low bits of the segment's number, and the stamp's id;
    /// outdated ones are skipped when met.
    retransmissions: VecDeque<(u32, u32)>,
    /// The blocks of the latest ACK, most of which the next one repeats (`recv_sack_cache`).
    reported: [(u64, u64); MAX_SACK_BLOCKS],
}

impl Scoreboard {
    pub fn new() -> Self {
        Scoreboard {
            ring: vec![Entry::default(); 16].into_boxed_slice(),
            una: 0,
            nxt: 0,
            una_bytes: 0,
            nxt_bytes: 0,
            inflight: 0,
            sacked: 0,
            lost: 0,
            deemed_lost: 0,
            resent: 0,
            fack: 0,
            undecided: 0,
            lost_originals: VecDeque::new(),
            lost_again: BinaryHeap::new(),
            retransmissions: VecDeque::new(),
            reported: [(0, 0); MAX_SACK_BLOCKS],
        }
    }

    /// First segment not acknowledged.
    pub fn una(&self) -> u64 {
        self.una
    }

    /// Next segment to be sent for the first time.
    pub fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Bytes acknowledged cumulatively.
    pub fn una_bytes(&self) -> u64 {
        self.una_bytes
    }

    /// Bytes sent for the first time.
    pub fn nxt_bytes(&self) -> u64 {
        self.nxt_bytes
    }

    /// Payload bytes in flight: sent, not arrived, not lost.
    pub fn inflight(&self) -> u64 {
        self.inflight
    }

    /// Segments sent and not acknowledged cumulatively.
    pub fn outstanding(&self) -> u64 {
        self.nxt - self.una
    }

    /// Bytes of the outstanding segments.
    pub fn outstanding_bytes(&self) -> u64 {
        self.nxt_bytes - self.una_bytes
    }

    /// Outstanding segments that are SACKed.
    pub fn sacked(&self) -> u64 {
        self.sacked
    }

    /// Segments marked lost that wait for retransmission.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Segments marked lost that have not arrived, retransmitted or not (`lost_out`).
    pub fn deemed_lost(&self) -> u64 {
        self.deemed_lost
    }

    /// Retransmissions in flight.
    pub fn resent(&self) -> u64 {
        self.resent
    }

    /// Whether a retransmitted segment is still outstanding (`tcp_any_retrans_done`).
    pub fn any_retransmitted(&self) -> bool {
        self.resent > 0 || self.una < self.nxt && self.at(self.una).was_retransmitted()
    }

    /// One past the highest segment that was SACKed.
    pub fn fack(&self) -> u64 {
        self.fack
    }

    fn at(&self, seq: u64) -> &Entry {
        &self.ring[seq as usize & (self.ring.len() - 1)]
    }

    fn at_mut(&mut self, seq: u64) -> &mut Entry {
        let mask = self.ring.len() - 1;
        &mut self.ring[seq as usize & mask]
    }

    /// The segment `seq`, which must be outstanding.
    pub fn get(&self, seq: u64) -> &Entry {
        debug_assert!((self.una..self.nxt).contains(&seq));
        self.at(seq)
    }

    /// Byte position at which the segment `seq` begins, which is outstanding or next.
    pub fn start_of(&self, seq: u64) -> u64 {
        if seq == self.nxt {
            return self.nxt_bytes;
        }
        // Less than 2³² bytes are outstanding.
        let ahead = self.at(seq).offset.wrapping_sub(self.una_bytes as u32);
        self.una_bytes + u64::from(ahead)
    }

    /// A new segment of `len` bytes has been sent.
    pub fn push(&mut self, len: u16, stamp: Stamp) {
        debug_assert!(self.outstanding() < u64::from(u32::MAX));
        if self.outstanding() as usize == self.ring.len() {
            self.grow();
        }
        let offset = self.nxt_bytes;
        *self.at_mut(self.nxt) = Entry::new(len, offset, &stamp, 0);
        self.nxt += 1;
        self.nxt_bytes += u64::from(len);
        self.inflight += u64::from(len);
    }

    #[cold]
    fn grow(&mut self) {
        let mut larger = vec![Entry::default(); self.ring.len() * 2].into_boxed_slice();
        let mask = larger.len() - 1;
        for seq in self.una..self.nxt {
            larger[seq as usize & mask] = *self.at(seq);
        }
        self.ring = larger;
    }

    /// The segment `seq` has been retransmitted.
    pub fn retransmitted(&mut self, seq: u64, stamp: Stamp) {
        let e = self.at_mut(seq);
        let (was_lost, was_resent) = (e.is(LOST), e.is_resent());
        let len = u64::from(e.len);
        *e = Entry::new(e.len, u64::from(e.offset), &stamp, e.flags & !LOST | RETRANSMITTED);
        self.resent += u64::from(!was_resent);
        // A probe repeats a segment that still counts as in flight; only one copy counts.
        if was_lost {
            self.lost -= 1;
            self.inflight += len;
        }
        self.retransmissions.push_back((seq as u32, stamp.id as u32));
    }

    /// The lowest segment at or above `seq` that is not SACKed; [`nxt`](Self::nxt) if all are.
    fn next_unsacked(&mut self, seq: u64) -> u64 {
        let mut end = seq;
        while end < self.nxt && self.at(end).is(SACKED) {
            end += u64::from(self.at(end).skip);
        }
        let mut s = seq;
        while s < end {
            let e = self.at_mut(s);
            let step = u64::from(e.skip);
            e.skip = (end - s) as u32;
            s += step;
        }
        end
    }

    /// Processes the SACK blocks of an ACK: calls `newly` for every segment in them not reported
    /// before.
    pub fn sack(&mut self, blocks: &[(u64, u64)], mut newly: impl FnMut(u64, &Entry)) {
        for &(start, end) in blocks {
            // The receiver never reneges.
            let known = self.reported.iter().find(|known| (known.0..=known.1).contains(&start));
            self.sack_range(known.map_or(start, |known| known.1), end, &mut newly);
        }
        for (reported, block) in self.reported.iter_mut().zip(blocks) {
            *reported = (block.0, block.1.min(self.nxt));
        }
    }

    fn sack_range(&mut self, start: u64, end: u64, newly: &mut impl FnMut(u64, &Entry)) {
        let end = end.min(self.nxt);
        let mut seq = start.max(self.una);
        if seq >= end {
            return;
        }
        seq = self.next_unsacked(seq);
        while seq < end {
            let e = self.at_mut(seq);
            let before = *e;
            e.flags = e.flags & !(LOST | DEEMED_LOST) | SACKED;
            e.skip = 1;
            newly(seq, &before);
            self.leave(&before);
            self.sacked += 1;
            seq += 1;
            if seq < end {
                seq = self.next_unsacked(seq);
            }
        }
        self.fack = self.fack.max(end);
    }

    /// A segment that was not SACKed has arrived.
    #[inline]
    fn leave(&mut self, e: &Entry) {
        if e.is(LOST) {
            self.lost -= 1;
        } else {
            self.inflight -= u64::from(e.len);
        }
        self.resent -= u64::from(e.is_resent());
        self.deemed_lost -= u64::from(e.is(DEEMED_LOST));
    }

    /// Everything below `ack` has arrived: calls `newly` for every segment not reported before.
    pub fn ack(&mut self, ack: u64, mut newly: impl FnMut(u64, &Entry)) {
        let ack = ack.min(self.nxt);
        let mut seq = self.una;
        while seq < ack {
            let e = self.at(seq);
            if e.is(SACKED) {
                let end = self.next_unsacked(seq).min(ack);
                self.sacked -= end - seq;
                seq = end;
                continue;
            }
            let e = *e;
            newly(seq, &e);
            self.leave(&e);
            seq += 1;
        }
        if ack > self.una {
            self.una = ack;
            self.una_bytes = self.start_of(ack);
            self.undecided = self.undecided.max(ack);
            self.fack = self.fack.max(ack);
        }
    }

    /// RACK loss detection (RFC 8985 §6.2 step 5): a segment is lost if it was sent before the
    /// newest delivered one, `newest`, and at least `window` ago. Calls `lost` for each;
    /// returns when the last segment in doubt will be lost.
    pub fn detect(
        &mut self,
        now: Time,
        newest: Transmission,
        window: Span,
        mut lost: impl FnMut(u64, &Entry),
    ) -> Option<Time> {
        let mut doubt: Option<Time> = None;
        while self.undecided < self.nxt {
            let seq = self.undecided;
            let e = self.at(seq);
            if e.is(SACKED) {
                self.undecided = self.next_unsacked(seq);
                continue;
            }
            if !e.is(LOST | RETRANSMITTED) {
                if !e.sent().is_before(newest) {
                    break;
                }
                if e.sent_at + window > now {
                    doubt = Some(self.last_original_before(newest, seq));
                    break;
                }
                self.mark_lost(seq, &mut lost);
            }
            self.undecided = seq + 1;
        }
        while let Some(&(low, id)) = self.retransmissions.front() {
            if let Some(seq) = self.current(low, id) {
                let e = self.at(seq);
                if !e.sent().is_before(newest) {
                    break;
                }
                if e.sent_at + window > now {
                    doubt = doubt.max(self.last_retransmission_before(newest));
                    break;
                }
                self.mark_lost(seq, &mut lost);
            }
            self.retransmissions.pop_front();
        }
        doubt.map(|sent_at| sent_at + window)
    }

    /// When the last outstanding original that was sent before `newest` was sent; `first` is one of
    /// them.
    fn last_original_before(&mut self, newest: Transmission, first: u64) -> Time {
        let mut last = self.at(first).sent_at;
        let mut seq = self.next_unsacked(first + 1);
        while seq < self.nxt {
            let e = self.at(seq);
            if !e.is(LOST | RETRANSMITTED) {
                if !e.sent().is_before(newest) {
                    break;
                }
                last = e.sent_at;
            }
            seq = self.next_unsacked(seq + 1);
        }
        last
    }

    /// When the last retransmission in flight that was sent before `newest` was sent.
    fn last_retransmission_before(&self, newest: Transmission) -> Option<Time> {
        let current = self.retransmissions.iter().filter_map(|&(low, id)| self.current(low, id));
        let sent = current.map(|seq| self.at(seq).sent());
        sent.take_while(|sent| sent.is_before(newest)).last().map(|sent| sent.at)
    }

    /// The outstanding segment whose number has these low bits.
    #[inline]
    fn outstanding_with(&self, low: u32) -> Option<u64> {
        // Fewer than 2³² segments are outstanding.
        let ahead = u64::from(low.wrapping_sub(self.una as u32));
        (ahead < self.outstanding()).then_some(self.una + ahead)
    }

    /// The segment whose number has the low bits `low`, if its retransmission `id` is its latest
    /// transmission, and in flight.
    fn current(&self, low: u32, id: u32) -> Option<u64> {
        self.outstanding_with(low).filter(|&seq| self.at(seq).id == id && self.at(seq).is_out())
    }

    fn mark_lost(&mut self, seq: u64, lost: &mut impl FnMut(u64, &Entry)) {
        let e = self.at_mut(seq);
        debug_assert!(e.is_out());
        let anew = !e.is(DEEMED_LOST);
        e.flags |= LOST | DEEMED_LOST;
        lost(seq, e);
        let (len, again) = (u64::from(e.len), e.is(RETRANSMITTED));
        self.deemed_lost += u64::from(anew);
        self.inflight -= len;
        self.lost += 1;
        self.resent -= u64::from(again);
        if again {
            self.lost_again.push(Reverse(seq));
        } else {
            self.lost_originals.push_back(seq as u32);
        }
    }

    /// The retransmission timer expired: the first segment is lost, and everything sent at least
    /// `rtt` ago (Linux `tcp_timeout_mark_lost`).
    pub fn mark_timed_out(&mut self, now: Time, rtt: Span, mut lost: impl FnMut(u64, &Entry)) {
        if self.una < self.nxt && self.at(self.una).is_out() {
            self.mark_lost(self.una, &mut lost);
        }
        self.detect(now, Transmission::LAST, rtt, lost);
    }

    /// The losses were spurious: segments that were marked and not yet retransmitted count as in
    /// flight. Returns their number.
    pub fn unmark_lost(&mut self) -> u64 {
        let unmarked = self.lost;
        if self.deemed_lost > 0 {
            let mut resent = Vec::new();
            let mut seq = self.una;
            while seq < self.nxt {
                seq = self.next_unsacked(seq);
                if seq == self.nxt {
                    break;
                }
                let e = self.at_mut(seq);
                let (len, was_lost) = (u64::from(e.len), e.is(LOST));
                e.flags &= !(LOST | DEEMED_LOST);
                if e.is(RETRANSMITTED) {
                    resent.push((e.sent_at, e.id, seq));
                }
                if was_lost {
                    self.inflight += len;
                    self.resent += u64::from(self.at(seq).is(RETRANSMITTED));
                }
                seq += 1;
            }
            resent.sort_unstable();
            self.retransmissions = resent.into_iter().map(|(_, id, seq)| (seq as u32, id)).collect();
            self.lost = 0;
            self.deemed_lost = 0;
            self.undecided = self.una;
        }
        self.lost_originals.clear();
        self.lost_again.clear();
        unmarked
    }

    /// The lowest segment that waits for retransmission.
    #[inline]
    pub fn next_lost(&mut self) -> Option<u64> {
        if self.lost == 0 {
            self.lost_originals.clear();
            self.lost_again.clear();
            return None;
        }
        self.lowest_lost()
    }

    fn lowest_lost(&mut self) -> Option<u64> {
        let mut original = None;
        while let Some(&low) = self.lost_originals.front() {
            original = self.outstanding_with(low).filter(|&seq| self.waits(seq));
            if original.is_some() {
                break;
            }
            self.lost_originals.pop_front();
        }
        while self.lost_again.peek().is_some_and(|&Reverse(s)| !self.waits(s)) {
            self.lost_again.pop();
        }
        let again = self.lost_again.peek().map(|&Reverse(s)| s);
        match (original, again) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn waits(&self, seq: u64) -> bool {
        seq >= self.una && self.at(seq).is(LOST)
    }

    /// The last segment that is not SACKed: the one that a tail loss probe retransmits.
    pub fn last_unsacked(&self) -> Option<u64> {
        (self.una..self.nxt).rev().find(|&seq| !self.at(seq).is(SACKED))
    }

    /// When the first outstanding segment was last sent.
    pub fn head_sent_at(&self) -> Option<Time> {
        (self.una < self.nxt).then(|| self.at(self.una).sent_at)
    }

    /// Bytes that are SACKed.
    #[cfg(test)]
    pub fn sacked_bytes(&self) -> u64 {
        (self.una..self.nxt).map(|seq| self.at(seq)).filter(|e| e.is(SACKED)).map(|e| u64::from(e.len)).sum()
    }

    /// Segments in flight.
    #[cfg(test)]
    pub fn out(&self) -> u64 {
        (self.una..self.nxt).filter(|&seq| self.at(seq).is_out()).count() as u64
    }

    /// Inflight, sacked, lost, resent and deemed lost: the running totals, and a recount.
    #[cfg(test)]
    pub fn audit(&self) -> [(u64, u64, u64, u64, u64); 2] {
        let mut totals = (0, 0, 0, 0, 0);
        for seq in self.una..self.nxt {
            let e = self.at(seq);
            totals.0 += if e.is_out() { u64::from(e.len) } else { 0 };
            totals.1 += u64::from(e.is(SACKED));
            totals.2 += u64::from(e.is(LOST));
            totals.3 += u64::from(e.is_resent());
            totals.4 += u64::from(e.is(DEEMED_LOST));
        }
        [(self.inflight, self.sacked, self.lost, self.resent, self.deemed_lost), totals]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::from_millis(n)
    }

    /// `n` segments of 1000 bytes, one a millisecond.
    fn sent(n: u64) -> Scoreboard {
        let mut b = Scoreboard::new();
        for i in 0..n {
            b.push(1000, Stamp { sent_at: ms(i), id: i, ..Stamp::default() });
        }
        b
    }

    fn sack(b: &mut Scoreboard, start: u64, end: u64) -> Vec<u64> {
        let mut newly = Vec::new();
        b.sack(&[(start, end)], |seq, _| newly.push(seq));
        newly
    }

    fn detect(b: &mut Scoreboard, now: Time, newest: (Time, u32), window: Span) -> (Vec<u64>, Option<Time>) {
        let mut lost = Vec::new();
        let doubt =
            b.detect(now, Transmission { at: newest.0, id: newest.1 }, window, |seq, _| lost.push(seq));
        (lost, doubt)
    }

    #[test]
    fn a_segment_is_reported_once() {
        let mut b = sent(10);
        assert_eq!(sack(&mut b, 3, 5), [3, 4]);
        assert_eq!(sack(&mut b, 2, 7), [2, 5, 6]);
        assert!(sack(&mut b, 2, 7).is_empty());
        let mut acked = Vec::new();
        b.ack(8, |seq, _| acked.push(seq));
        assert_eq!(acked, [0, 1, 7]);
        assert_eq!((b.una(), b.una_bytes(), b.inflight(), b.sacked()), (8, 8000, 2000, 0));
    }

    #[test]
    fn segments_sent_before_the_newest_delivered_are_lost_after_the_window() {
        let mut b = sent(10);
        sack(&mut b, 5, 6);
        let window = Span::from_millis(100);
        let newest = (ms(5), 5);
        assert_eq!(detect(&mut b, ms(101), newest, window), (vec![0, 1], Some(ms(104))));
        assert_eq!(detect(&mut b, ms(104), newest, window), (vec![2, 3, 4], None));
        assert_eq!((b.inflight(), b.lost()), (4000, 5));
        assert_eq!(b.next_lost(), Some(0));
    }

    /// RFC 8985 §6.2 step 5: the transmission times of the segments in doubt count, not that of the
    /// newest delivered one, which may be a much later retransmission.
    #[test]
    fn the_reordering_timer_depends_on_the_last_segment_in_doubt() {
        let mut b = sent(10);
        b.retransmitted(0, Stamp { sent_at: ms(3000), id: 100, ..Stamp::default() });
        b.ack(1, |_, _| {});
        let window = Span::from_millis(3500);
        let (lost, timer) = detect(&mut b, ms(3100), (ms(3000), 100), window);
        assert_eq!((lost, timer), (vec![], Some(ms(3509))));
        // A later retransmission stays in doubt for longer; one sent after the newest is not in doubt.
        b.retransmitted(4, Stamp { sent_at: ms(2000), id: 90, ..Stamp::default() });
        b.retransmitted(5, Stamp { sent_at: ms(3050), id: 101, ..Stamp::default() });
        assert_eq!(detect(&mut b, ms(3100), (ms(3000), 100), window), (vec![], Some(ms(5500))));
    }

    #[test]
    fn a_lost_retransmission_is_detected_and_sent_first() {
        let mut b = sent(10);
        sack(&mut b, 5, 6);
        detect(&mut b, ms(200), (ms(5), 5), Span::from_millis(50));
        for seq in 0..3 {
            assert_eq!(b.next_lost(), Some(seq));
            b.retransmitted(seq, Stamp { sent_at: ms(200 + seq), id: 100 + seq, ..Stamp::default() });
        }
        // The retransmission of 2 arrives, those of 0 and 1 were sent before it.
        sack(&mut b, 2, 3);
        let (lost, _) = detect(&mut b, ms(300), (ms(202), 102), Span::from_millis(50));
        assert_eq!(lost, [6, 7, 8, 9, 0, 1]);
        assert_eq!(b.next_lost(), Some(0));
        let [kept, fresh] = b.audit();
        assert_eq!(kept, fresh);
    }

    #[test]
    fn segment_stays_lost_until_it_arrives_or_the_loss_is_undone() {
        let mut b = sent(10);
        sack(&mut b, 5, 6);
        detect(&mut b, ms(200), (ms(5), 5), Span::from_millis(50));
        assert_eq!((b.lost(), b.deemed_lost()), (5, 5));
        b.retransmitted(0, Stamp { sent_at: ms(200), id: 100, ..Stamp::default() });
        b.retransmitted(1, Stamp { sent_at: ms(201), id: 101, ..Stamp::default() });
        assert_eq!((b.lost(), b.deemed_lost()), (3, 5));
        b.ack(1, |_, _| {});
        assert_eq!((b.lost(), b.deemed_lost()), (3, 4));
        b.unmark_lost();
        assert_eq!((b.lost(), b.deemed_lost()), (0, 0));
        let [kept, fresh] = b.audit();
        assert_eq!(kept, fresh);
    }

    #[test]
    fn a_timeout_marks_the_first_segment_and_those_older_than_a_round_trip() {
        let mut b = sent(10);
        let mut lost = Vec::new();
        b.mark_timed_out(ms(50), Span::from_millis(46), |seq, _| lost.push(seq));
        assert_eq!(lost, [0, 1, 2, 3, 4]);
        b.unmark_lost();
        assert_eq!((b.inflight(), b.next_lost()), (10_000, None));
    }

    #[test]
    fn the_ring_grows_with_the_window() {
        let mut b = sent(50);
        b.ack(40, |_, _| {});
        for i in 50..500 {
            b.push(1000, Stamp { id: i, ..Stamp::default() });
        }
        assert_eq!(b.outstanding(), 460);
        assert!((40..500).all(|seq| b.get(seq).stamp().id == seq && b.start_of(seq) == seq * 1000));
    }

    proptest! {
        /// Whatever a receiver repeats, omits or invents, each segment is newly reported once.
        #[test]
        fn each_segment_is_newly_reported_once(
            reports in prop::collection::vec(
                (0u64..30, prop::collection::vec((0u64..60, 0u64..30), 1..4), any::<bool>()), 1..60,
            ),
        ) {
            let mut b = Scoreboard::new();
            let (mut reported, mut last) = (std::collections::BTreeSet::new(), Vec::new());
            for (sent, blocks, again) in reports {
                (0..sent).for_each(|n| b.push(1000, Stamp { id: n, ..Stamp::default() }));
                let mut blocks: Vec<_> =
                    blocks.into_iter().map(|(a, n)| (b.una() + a, b.una() + a + n)).collect();
                if again {
                    blocks.truncate(1);
                    blocks.extend(&last);
                    blocks.truncate(MAX_SACK_BLOCKS);
                }
                let mut newly = std::collections::BTreeSet::new();
                b.sack(&blocks, |seq, _| assert!(newly.insert(seq), "{seq} twice in one report"));
                let of = |&(start, end): &(u64, u64)| start.max(b.una())..end.min(b.nxt());
                let expected = blocks.iter().flat_map(of).filter(|seq| !reported.contains(seq)).collect();
                prop_assert_eq!(&newly, &expected);
                reported.extend(newly);
                if again {
                    b.ack(b.una() + sent / 2, |_, _| {});
                }
                last = blocks;
            }
        }

        /// After any events the totals match a recount, and every lost segment is offered for retransmission.
        #[test]
        fn totals_match_a_recount(ops in prop::collection::vec((0u8..7, 0u64..200, 1u64..40), 1..200)) {
            let mut b = Scoreboard::new();
            let (mut now, mut id) = (0, 0);
            for (op, a, n) in ops {
                now += 1;
                match op {
                    0 | 1 => for _ in 0..n {
                        id += 1;
                        b.push(700 + (id % 700) as u16, Stamp { sent_at: ms(now), id, ..Stamp::default() });
                    },
                    2 => b.sack(&[(b.una() + a, b.una() + a + n)], |_, _| {}),
                    3 => b.ack(b.una() + a.min(n), |_, _| {}),
                    4 => {
                        let newest = Transmission { at: ms(now - 1), id: id as u32 };
                        b.detect(ms(now), newest, Span::from_millis(a % 20), |_, _| {});
                    }
                    5 if a % 4 == 0 => { b.unmark_lost(); }
                    5 => b.mark_timed_out(ms(now), Span::from_millis(a), |_, _| {}),
                    _ => for _ in 0..n {
                        let Some(seq) = b.next_lost() else { break };
                        id += 1;
                        b.retransmitted(seq, Stamp { sent_at: ms(now), id, ..Stamp::default() });
                    },
                }
                let [kept, fresh] = b.audit();
                prop_assert_eq!(kept, fresh);
                prop_assert_eq!(b.next_lost().is_some(), b.lost() > 0);
                prop_assert!(b.una_bytes() <= b.nxt_bytes());
            }
        }
    }
}
