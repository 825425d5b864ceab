//! The packets that the endpoint sent: what is in flight, acknowledged and lost.

use fullpipe_cc::{Sampler, Stamp};
use fullpipe_units::{Rate, Span, Time};
use std::collections::BTreeMap;

/// Packet-number space and path, and number of a packet.
pub(super) type Number = (u64, u64);

/// The packet-number space of 0-RTT and 1-RTT packets on the first path; those of Initial and Handshake
/// packets precede it, those of other paths follow.
const DATA_SPACE: u64 = 2;

/// Bytes of a packet whose size is unknown.
const PACKET_BYTES: u64 = 1500;
/// Packets declared lost that a late acknowledgment may still find.
const MAX_LOST: usize = 16_384;

#[derive(Clone, Copy, Debug)]
struct Sent {
    bytes: u64,
    stamp: Stamp,
}

/// What an acknowledgment covers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acked {
    pub(super) bytes: u64,
    /// Since the newest of its packets was sent.
    pub(super) rtt: Option<Span>,
    /// The delivery-rate sample, and whether the application limited it.
    pub(super) rate: Option<(Rate, bool)>,
}

/// The packets of a connection.
#[derive(Clone, Debug)]
pub(super) struct Packets {
    outstanding: BTreeMap<Number, Sent>,
    lost: BTreeMap<Number, Sent>,
    sampler: Sampler,
    most: usize,
    /// Bytes in flight.
    pub(super) inflight: u64,
    /// Packets sent, of these packets that count as in flight, and the bytes of all.
    pub(super) sent: u64,
    pub(super) counted: u64,
    pub(super) sent_bytes: u64,
    pub(super) largest: u64,
    /// Packets declared lost.
    pub(super) lost_count: u64,
    /// Of these, packets that arrived.
    pub(super) spurious: u64,
    /// Whether an acknowledgment was logged.
    pub(super) has_acks: bool,
    /// Whether 1-RTT packets were acknowledged.
    is_handshake_over: bool,
}

impl Packets {
    /// At most `most` packets are in flight; older ones are forgotten.
    pub(super) fn new(most: usize) -> Self {
        Packets {
            outstanding: BTreeMap::new(),
            lost: BTreeMap::new(),
            sampler: Sampler::new(),
            most,
            inflight: 0,
            sent: 0,
            counted: 0,
            sent_bytes: 0,
            largest: 0,
            lost_count: 0,
            spurious: 0,
            has_acks: false,
            is_handshake_over: false,
        }
    }

    /// Bytes of a full packet, as far as they are known.
    pub(super) fn packet_bytes(&self) -> u64 {
        if self.largest > 0 { self.largest } else { PACKET_BYTES }
    }

    /// Bytes acknowledged.
    pub(super) fn delivered(&self) -> u64 {
        self.sampler.delivered()
    }

    /// A packet was sent. `counts`: whether it counts as in flight.
    pub(super) fn on_sent(&mut self, at: Time, number: Option<Number>, bytes: u64, counts: bool) {
        self.sent += 1;
        self.sent_bytes = self.sent_bytes.saturating_add(bytes);
        self.largest = self.largest.max(bytes);
        self.counted += u64::from(counts);
        let is_discarded = |number: &Number| self.is_handshake_over && number.0 < DATA_SPACE;
        let Some(number) = number.filter(|n| counts && !is_discarded(n)) else { return };
        let stamp = self.sampler.on_sent(at, bytes, self.inflight);
        self.inflight = self.inflight.saturating_add(bytes);
        if let Some(earlier) = self.outstanding.insert(number, Sent { bytes, stamp }) {
            self.inflight = self.inflight.saturating_sub(earlier.bytes);
        }
        if self.outstanding.len() > self.most
            && let Some((_, oldest)) = self.outstanding.pop_first()
        {
            self.inflight = self.inflight.saturating_sub(oldest.bytes);
        }
    }

    /// Packets of a space were acknowledged.
    pub(super) fn on_acked(
        &mut self,
        at: Time,
        space: u64,
        ranges: impl IntoIterator<Item = (u64, u64)>,
        min_rtt: Option<Span>,
    ) -> Acked {
        self.has_acks = true;
        self.sampler.begin_ack();
        let mut acked = Acked::default();
        let mut newest = None;
        let mut found = Vec::new();
        for (from, to) in ranges {
            if from > to {
                continue;
            }
            let range = (space, from)..=(space, to);
            if !self.lost.is_empty() {
                found.extend(self.lost.range(range.clone()).map(|(n, _)| *n));
                for number in found.drain(..) {
                    let Some(sent) = self.lost.remove(&number) else { continue };
                    self.spurious += 1;
                    self.sampler.on_spurious_loss(sent.bytes);
                    self.sampler.on_acked(at, sent.bytes, &sent.stamp);
                    acked.bytes = acked.bytes.saturating_add(sent.bytes);
                }
            }
            found.extend(self.outstanding.range(range).map(|(n, _)| *n));
            for number in found.drain(..) {
                let Some(sent) = self.outstanding.remove(&number) else { continue };
                self.inflight = self.inflight.saturating_sub(sent.bytes);
                self.sampler.on_acked(at, sent.bytes, &sent.stamp);
                acked.bytes = acked.bytes.saturating_add(sent.bytes);
                newest = newest.max(Some(sent.stamp.sent_at));
            }
        }
        if space >= DATA_SPACE && acked.bytes > 0 && !self.is_handshake_over {
            self.end_handshake();
        }
        let sample = self.sampler.finish_ack(at, min_rtt);
        acked.rtt = newest.map(|sent_at| at.since(sent_at)).filter(|rtt| !rtt.is_zero());
        acked.rate = sample.rate.filter(|_| sample.has_packet).map(|rate| (rate, sample.app_limited));
        acked
    }

    /// The peer has the keys of 1-RTT packets: what it has not acknowledged of Initial and Handshake
    /// packets is no longer in flight (RFC 9002 §6.4).
    fn end_handshake(&mut self) {
        self.is_handshake_over = true;
        let later = self.outstanding.split_off(&(DATA_SPACE, 0));
        for sent in std::mem::replace(&mut self.outstanding, later).into_values() {
            self.inflight = self.inflight.saturating_sub(sent.bytes);
            self.sampler.on_discarded(sent.bytes);
        }
    }

    /// A packet was declared lost; without a number only its loss counts.
    pub(super) fn on_lost(&mut self, number: Option<Number>) {
        self.lost_count = self.lost_count.saturating_add(1);
        let Some(number) = number else { return };
        if let Some(sent) = self.outstanding.remove(&number) {
            self.inflight = self.inflight.saturating_sub(sent.bytes);
            self.sampler.on_lost(sent.bytes);
            self.lost.insert(number, sent);
        }
        if self.lost.len() > MAX_LOST.min(self.most) {
            self.lost.pop_first();
        }
    }

    /// The log calls the loss of a packet spurious.
    pub(super) fn on_spurious(&mut self, number: Option<Number>) {
        // Its acknowledgment may be logged as well.
        match number {
            Some(number) if self.has_acks && self.lost.remove(&number).is_none() => {}
            _ => self.spurious += 1,
        }
    }

    /// What is in flight is all that the application had.
    pub(super) fn mark_app_limited(&mut self) {
        self.sampler.mark_app_limited(self.inflight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Time {
        Time::from_nanos(n * 1_000_000)
    }

    #[test]
    fn late_acknowledgment_makes_a_loss_spurious_once() {
        let mut packets = Packets::new(100);
        (0..10).for_each(|n| packets.on_sent(ms(n), Some((2, n)), 1200, true));
        packets.on_lost(Some((2, 3)));
        assert_eq!((packets.inflight, packets.lost_count, packets.spurious), (9 * 1200, 1, 0));
        let acked = packets.on_acked(ms(40), 2, [(0, 9)], None);
        assert_eq!((acked.bytes, acked.rtt, packets.spurious), (10 * 1200, Some(Span::from_millis(31)), 1));
        packets.on_spurious(Some((2, 3)));
        packets.on_acked(ms(41), 2, [(0, 9)], None);
        assert_eq!((packets.spurious, packets.inflight, packets.delivered()), (1, 0, 10 * 1200));
    }

    #[test]
    fn packets_of_the_handshake_leave_flight_with_the_first_ack_of_data() {
        let mut packets = Packets::new(100);
        (0..2).for_each(|space| packets.on_sent(ms(0), Some((space, 0)), 1200, true));
        packets.on_sent(ms(1), Some((2, 0)), 1000, true);
        packets.on_acked(ms(2), 0, [(0, 0)], None);
        assert_eq!(packets.inflight, 2200);
        packets.on_acked(ms(3), 2, [(0, 0)], None);
        assert_eq!((packets.inflight, packets.counted), (0, 3));
        packets.on_sent(ms(4), Some((1, 1)), 1200, true);
        packets.on_sent(ms(4), Some((6, 1)), 800, true);
        assert_eq!(packets.inflight, 800);
    }

    #[test]
    fn spaces_are_apart_and_memory_is_bounded() {
        let mut packets = Packets::new(10);
        packets.on_sent(ms(0), Some((0, 1)), 1200, true);
        packets.lost_count = u64::MAX;
        packets.on_lost(None);
        assert_eq!(packets.on_acked(ms(1), 2, [(0, u64::MAX)], None).bytes, 0);
        (0..1000).for_each(|n| packets.on_sent(ms(n), Some((2, n)), 1000, true));
        assert_eq!((packets.outstanding.len(), packets.inflight), (10, 10_000));
    }
}
