//! Recognises packets that were captured twice: by a mirror port that copies both directions of a
//! port, a bridge, or a capture on all interfaces. A second capture of a packet has the IPv4
//! identification of the first; a retransmission has a new one.

use crate::wire::{Flags, Segment};
use fullpipe_units::{Span, Time};

/// Times are kept in units of 2ⁿ ns.
const TIME_SHIFT: u32 = 10;
/// Packets per set: a table with several ages better than one that overwrites at once.
const WAYS: usize = 4;
/// Sets of a table at first, and at most (16 kB).
const MIN_SETS: usize = 4;
const MAX_SETS: usize = 256;
/// A copy that took another path in the network, as its TTL shows, is at most that much later.
const MAX_ROUTED_DELAY: Span = Span::from_millis(100);
/// A copy is at most that much later if the RTT is unknown: no retransmission is that early
/// (`TCP_RTO_MIN` is 200 ms).
const MAX_DELAY: Span = Span::from_millis(100);
/// A retransmission that soon would need an RTT as short.
const MIN_RTT: Span = Span::from_millis(1);
/// The same for data without identification, where nothing else tells a copy from a
/// retransmission.
const MIN_RTT_WITHOUT_ID: Span = Span::from_micros(100);

/// A packet of the recent past.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    /// Hash of its header; 0 in an empty place.
    hash: u32,
    /// Capture time in units of 1024 ns, modulo 2³².
    at: u32,
    id: u16,
    ttl: u8,
}

/// A packet with the header of an earlier one: a copy of it, or a retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspect {
    delay: Span,
    is_routed: bool,
    is_identified: bool,
}

/// The recent packets of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Doubles {
    /// In each set the latest first.
    sets: Vec<[Recent; WAYS]>,
    /// Different packets in succession, and those of them with one identification.
    packets: u32,
    repeated_ids: u32,
    last: Recent,
}

impl Doubles {
    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        self.sets.capacity() * size_of::<[Recent; WAYS]>()
    }

    /// Records `s`, captured at `at`. Returns the earlier packet that it may be a copy of.
    #[inline]
    pub(super) fn record(&mut self, s: &Segment, at: Time) -> Option<Suspect> {
        let at = (at.as_nanos() >> TIME_SHIFT) as u32;
        let mut new = Recent { hash: hash(s), at, id: s.identity.id, ttl: s.identity.ttl };
        if new.hash != self.last.hash {
            self.packets = self.packets.saturating_add(1);
            self.repeated_ids += u32::from(new.id == self.last.id);
            self.last = new;
        }
        new.id = self.identification(s);
        let place = place(&new, self.sets.len());
        match self.sets.get_mut(place) {
            Some(set) if is_old(&set[WAYS - 1], at) => {
                let before = set.iter().find(|r| r.hash == new.hash && r.id == new.id).copied();
                if before.is_none() {
                    set.copy_within(..WAYS - 1, 1);
                    set[0] = new;
                }
                before.map(|before| suspect(&before, &new))
            }
            _ => self.record_crowded(new),
        }
    }

    /// Records a packet whose set is full of young packets.
    fn record_crowded(&mut self, new: Recent) -> Option<Suspect> {
        loop {
            let sets = self.sets.len();
            if let Some(set) = self.sets.get_mut(place(&new, sets)) {
                if let Some(before) = set.iter().find(|r| r.hash == new.hash && r.id == new.id) {
                    return Some(suspect(before, &new));
                }
                if sets >= MAX_SETS || is_old(&set[WAYS - 1], new.at) {
                    set.copy_within(..WAYS - 1, 1);
                    set[0] = new;
                    return None;
                }
            }
            self.grow();
        }
    }

    /// Records that `s`, captured at `at`, was no copy of the packet with the same header.
    pub(super) fn replace(&mut self, s: &Segment, at: Time) {
        let at = (at.as_nanos() >> TIME_SHIFT) as u32;
        let new = Recent { hash: hash(s), at, id: self.identification(s), ttl: s.identity.ttl };
        let sets = self.sets.len();
        let set = self.sets.get_mut(place(&new, sets));
        if let Some(before) =
            set.and_then(|set| set.iter_mut().find(|r| r.hash == new.hash && r.id == new.id))
        {
            *before = new;
        }
    }

    /// The identification of `s`, the latest packet; 0 if the host does not distinguish packets by
    /// it: some have one for all.
    #[inline]
    pub(super) fn identification(&self, s: &Segment) -> u16 {
        if self.repeated_ids <= self.packets / 4 { s.identity.id } else { 0 }
    }

    #[cold]
    fn grow(&mut self) {
        let mut sets = vec![[Recent::default(); WAYS]; (self.sets.len() * 4).max(MIN_SETS)];
        let count = sets.len();
        for recent in self.sets.iter().flatten().filter(|r| r.hash != 0) {
            // The latest come first.
            if let Some(free) =
                sets.get_mut(place(recent, count)).and_then(|s| s.iter_mut().find(|r| r.hash == 0))
            {
                *free = *recent;
            }
        }
        self.sets = sets;
    }
}

/// Whether no copy of `r` is expected any more at `at`.
#[inline]
fn is_old(r: &Recent, at: u32) -> bool {
    r.hash == 0 || u64::from(at.wrapping_sub(r.at)) << TIME_SHIFT >= MAX_DELAY.as_nanos()
}

fn suspect(before: &Recent, new: &Recent) -> Suspect {
    Suspect {
        delay: Span::from_nanos(u64::from(new.at.wrapping_sub(before.at)) << TIME_SHIFT),
        is_routed: before.ttl != new.ttl,
        is_identified: new.id != 0,
    }
}

/// The set of a packet. Identifications increase: multiples of the golden ratio spread them evenly.
#[inline]
fn place(r: &Recent, sets: usize) -> usize {
    let spread = if r.id == 0 { r.hash } else { u32::from(r.id).wrapping_mul(0x9e37_79b9) };
    (spread >> 16) as usize & sets.wrapping_sub(1)
}

/// Hash of what a second capture of a packet has in common with the first. Routers may change the
/// ECN field and the MSS in between.
#[inline]
fn hash(s: &Segment) -> u32 {
    let (value, echo) = s.options.timestamps.unwrap_or_default();
    let sack = s.sack().blocks().first().map_or(0, |&(from, to)| u64::from(from ^ to.rotate_left(16)));
    let numbers = u64::from(s.seq) << 32 | u64::from(s.ack);
    let sizes = u64::from(s.payload) << 24 | u64::from(s.window) << 8 | u64::from(s.flags.0);
    let times = u64::from(value) << 32 | u64::from(echo);
    let mixed = numbers.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ sizes.wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_left(21)
        ^ (times ^ sack << 13).wrapping_mul(0x1656_67b1_9e37_79f9).rotate_left(43);
    // 0 is that of empty places.
    (mixed ^ mixed >> 32) as u32 | 1
}

impl Suspect {
    /// Whether `s` is a copy. `rtt`: the minimum RTT, if known; `min_rtt`: a lower bound of it.
    pub(super) fn is_copy(&self, s: &Segment, rtt: Option<Span>, min_rtt: Option<Span>) -> bool {
        let delay = self.delay;
        if self.is_identified {
            let most = if self.is_routed { MAX_ROUTED_DELAY } else { MIN_RTT };
            return delay < rtt.unwrap_or(MAX_DELAY).max(most);
        }
        // A retransmission is not earlier than an RTT after the first transmission.
        let is_early = |most: Span| min_rtt.map_or(delay < most, |rtt| delay * 2 < rtt);
        if s.flags.has(Flags::SYN) {
            return delay < MAX_DELAY;
        }
        if self.is_routed {
            return is_early(MIN_RTT * 10);
        }
        // Duplicate ACKs are alike and follow each other at once.
        (s.payload > 0 || s.flags.has(Flags::FIN)) && is_early(MIN_RTT_WITHOUT_ID)
    }
}
