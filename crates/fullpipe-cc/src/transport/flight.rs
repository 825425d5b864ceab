//! The packets in flight, for stacks that do not keep a [`Stamp`] with each.

use crate::sampler::Stamp;
use alloc::collections::VecDeque;
use fullpipe_units::Time;

/// A packet in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Its packet number.
    pub number: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The stamp of [`SendController::on_sent`](crate::SendController::on_sent).
    pub stamp: Stamp,
}

/// The packets in flight in the order in which they were sent, for stacks whose callbacks carry a
/// packet's number instead of a caller's data.
///
/// Stacks forget packets silently: keys are discarded, or a probe of the MTU is lost. Such stale
/// entries cost memory and make [`oldest`](Self::oldest) useless, so discard them: after the losses
/// of an event, whatever was sent two round-trip times before the newest acknowledged packet is
/// resolved ([`discard_sent_before`](Self::discard_sent_before); RFC 9002 §6.1 declares it lost
/// after 9/8).
///
/// Finding a packet takes logarithmic time.
///
/// ```
/// use fullpipe_cc::{Flight, Packet, Stamp};
///
/// let mut flight = Flight::new();
/// for number in 0..10 {
///     flight.push(Packet { number, bytes: 1200, stamp: Stamp::default() });
/// }
/// assert_eq!(flight.remove(4).unwrap().bytes, 1200);
/// assert_eq!(flight.remove(4), None);
/// assert_eq!(flight.discard_below(3), 3 * 1200);
/// assert_eq!((flight.oldest(), flight.len(), flight.bytes()), (Some(3), 6, 6 * 1200));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Flight {
    entries: VecDeque<Entry>,
    packets: usize,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    packet: Packet,
    gone: bool,
}

impl Flight {
    /// No packets.
    pub fn new() -> Self {
        Flight::default()
    }

    /// Adds a packet that was just sent.
    pub fn push(&mut self, packet: Packet) {
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(packet.bytes);
        self.entries.push_back(Entry { packet, gone: false });
    }

    /// Removes packet `number`. Numbers must increase from packet to packet: one list for each
    /// packet number space. `None` if it is not in flight.
    pub fn remove(&mut self, number: u64) -> Option<Packet> {
        let i = self.entries.partition_point(|e| e.packet.number < number);
        self.entries.get(i).filter(|e| e.packet.number == number && !e.gone)?;
        self.remove_at(i)
    }

    /// Removes the packet `number` sent at `sent_at`, for stacks whose packet number spaces start
    /// at zero each and are not reported.
    pub fn remove_sent(&mut self, number: u64, sent_at: Time) -> Option<Packet> {
        let first = self.entries.partition_point(|e| e.packet.stamp.sent_at < sent_at);
        let same = self.entries.range(first..).take_while(|e| e.packet.stamp.sent_at == sent_at);
        let (i, _) = (first..).zip(same).find(|(_, e)| e.packet.number == number && !e.gone)?;
        self.remove_at(i)
    }

    fn remove_at(&mut self, i: usize) -> Option<Packet> {
        let entry = self.entries.get_mut(i)?;
        entry.gone = true;
        let packet = entry.packet;
        self.packets -= 1;
        self.bytes = self.bytes.saturating_sub(packet.bytes);
        while self.entries.front().is_some_and(|e| e.gone) {
            self.entries.pop_front();
        }
        Some(packet)
    }

    /// Discards the packets with numbers below `number`; returns their bytes, for
    /// [`on_packet_discarded`](crate::SendController::on_packet_discarded). Numbers must increase.
    pub fn discard_below(&mut self, number: u64) -> u64 {
        self.discard_while(|packet| packet.number < number)
    }

    /// Discards the packets sent before `at`; returns their bytes.
    pub fn discard_sent_before(&mut self, at: Time) -> u64 {
        self.discard_while(|packet| packet.stamp.sent_at < at)
    }

    fn discard_while(&mut self, stale: impl Fn(&Packet) -> bool) -> u64 {
        let before = self.bytes;
        while let Some(&Entry { packet, gone }) = self.entries.front() {
            if !gone && !stale(&packet) {
                break;
            }
            self.entries.pop_front();
            if !gone {
                self.packets -= 1;
                self.bytes = self.bytes.saturating_sub(packet.bytes);
            }
        }
        before - self.bytes
    }

    /// The packets in flight, in the order in which they were sent.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Packet> {
        self.entries.iter().filter(|e| !e.gone).map(|e| &e.packet)
    }

    /// The number of the oldest packet in flight.
    pub fn oldest(&self) -> Option<u64> {
        self.entries.front().map(|e| e.packet.number)
    }

    /// How many packets are in flight.
    pub fn len(&self) -> usize {
        self.packets
    }

    /// Whether nothing is in flight.
    pub fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// The bytes in flight.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Forgets all packets: the connection moved to another path.
    pub fn clear(&mut self) {
        *self = Flight::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Span;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn packet(number: u64, sent_ms: u64) -> Packet {
        let sent_at = Time::ZERO + Span::from_millis(sent_ms);
        Packet { number, bytes: 1000 + number, stamp: Stamp { sent_at, ..Stamp::default() } }
    }

    #[test]
    fn time_distinguishes_equal_numbers_of_several_spaces() {
        let mut flight = Flight::new();
        for (number, ms) in [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3)] {
            flight.push(packet(number, ms));
        }
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        assert_eq!(flight.remove_sent(1, at(2)), Some(packet(1, 2)));
        assert_eq!(flight.remove_sent(1, at(2)), None);
        assert_eq!(flight.remove_sent(0, at(3)), Some(packet(0, 3)));
        assert_eq!(flight.remove_sent(1, at(1)), None);
        assert_eq!(flight.discard_sent_before(at(3)), 2000);
        assert_eq!(flight.iter().copied().collect::<Vec<_>>(), [packet(1, 3)]);
        flight.clear();
        assert_eq!((flight.is_empty(), flight.bytes(), flight.oldest()), (true, 0, None));
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_plain_list(calls in prop::collection::vec((0u8..8, 0u64..40), 1..200)) {
            let (mut flight, mut list, mut next) = (Flight::new(), Vec::<Packet>::new(), 0);
            for (call, n) in calls {
                match call {
                    0..4 => {
                        next += 1 + n % 3;
                        flight.push(packet(next, next / 4));
                        list.push(packet(next, next / 4));
                    }
                    4..7 => {
                        let number = next.saturating_sub(n);
                        let found = list.iter().position(|p| p.number == number);
                        prop_assert_eq!(flight.remove(number), found.map(|i| list.remove(i)));
                    }
                    _ => {
                        let below = next.saturating_sub(n);
                        let bytes: u64 = list.iter().filter(|p| p.number < below).map(|p| p.bytes).sum();
                        list.retain(|p| p.number >= below);
                        prop_assert_eq!(flight.discard_below(below), bytes);
                    }
                }
                prop_assert_eq!(flight.iter().copied().collect::<Vec<_>>(), list.clone());
                prop_assert_eq!(flight.len(), list.len());
                prop_assert_eq!(flight.oldest(), list.first().map(|p| p.number));
                prop_assert_eq!(flight.bytes(), list.iter().map(|p| p.bytes).sum::<u64>());
            }
        }
    }
}
