//! Reassembles IP fragments as far as the headers of what they carry: the rest is only counted.

use super::ip::{Fragment, IpPacket};
use fullpipe_units::{Span, Time};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// Packets of which fragments are missing. A further one evicts the oldest.
const MAX_PENDING: usize = 1024;
/// Bytes of a reassembled packet: headers of several tunnels and of TCP.
const MAX_HEAD: usize = 256;
/// Fragments start at multiples of this.
const UNIT: usize = 8;
/// Separate ranges of a packet. Fragments that arrive in order make one.
const MAX_RANGES: usize = 64;
/// How long fragments are awaited: `ipfrag_time` of Linux.
const TIMEOUT: Span = Span::from_secs(30);
/// Largest payload of an IP packet.
const MAX_PAYLOAD: u32 = 65_535;

const TCP: u8 = 6;

/// Numbers of fragments that make no packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Incomplete {
    /// Fragments of TCP.
    pub tcp: u64,
    /// Fragments of other protocols.
    pub other: u64,
}

/// A reassembled packet.
pub(super) struct Whole {
    /// IP header, without options, and the captured begin of the payload.
    pub bytes: Vec<u8>,
    /// Length of the packet.
    pub length: usize,
    /// Fragments that it was made of.
    pub fragments: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    identification: u32,
    /// IPv6 ignores the protocol of all but the first fragment (RFC 8200 §4.5).
    protocol: u8,
}

struct Pending {
    number: u64,
    since: Time,
    protocol: u8,
    traffic_class: u8,
    ttl: u8,
    /// Sorted, disjoint, not adjacent.
    ranges: Vec<(u32, u32)>,
    total: Option<u32>,
    fragments: u64,
    /// Fragments overlapped or contradict each other: hosts discard the packet (RFC 5722; Linux
    /// for IPv4, too).
    is_invalid: bool,
    head: [u8; MAX_HEAD],
    /// Which units of the head were captured.
    captured: u32,
    /// A unit that was captured in part, and its bytes.
    partial: (usize, usize),
}

/// Fragments whose packets are not complete. Takes at most about 1 MB.
#[derive(Default)]
pub(super) struct Fragments {
    pending: HashMap<Key, Pending>,
    /// Keys in the order of their first fragments.
    order: BTreeMap<u64, Key>,
    next: u64,
    /// Fragments of packets that were given up.
    pub incomplete: Incomplete,
}

impl Fragments {
    /// Adds a fragment. Returns the packet if it is complete.
    pub fn add(&mut self, packet: &IpPacket<'_>, fragment: Fragment, at: Time) -> Option<Whole> {
        self.expire(at);
        let IpPacket { source, destination, .. } = *packet;
        let protocol = if source.is_ipv4() { packet.protocol } else { 0 };
        let key = Key { source, destination, identification: fragment.identification, protocol };
        if !self.pending.contains_key(&key) {
            if self.pending.len() >= MAX_PENDING {
                self.evict();
            }
            self.order.insert(self.next, key);
            self.pending.insert(key, Pending::new(self.next, at, packet.protocol));
            self.next += 1;
        }
        let pending = self.pending.get_mut(&key)?;
        pending.add(packet, fragment);
        let whole = pending.whole(&key)?;
        self.order.remove(&pending.number);
        self.pending.remove(&key);
        Some(whole)
    }

    /// Gives up all packets.
    pub fn finish(&mut self) {
        while self.evict() {}
    }

    fn expire(&mut self, now: Time) {
        while let Some(key) = self.order.first_key_value().map(|(_, key)| key)
            && self.pending.get(key).is_none_or(|p| now > p.since && now.since(p.since) > TIMEOUT)
        {
            self.evict();
        }
    }

    /// Gives up the oldest packet. Returns false if there is none.
    fn evict(&mut self) -> bool {
        let Some((_, key)) = self.order.pop_first() else { return false };
        if let Some(pending) = self.pending.remove(&key) {
            if pending.protocol == TCP {
                self.incomplete.tcp += pending.fragments;
            } else {
                self.incomplete.other += pending.fragments;
            }
        }
        true
    }
}

impl Pending {
    fn new(number: u64, since: Time, protocol: u8) -> Self {
        Pending {
            number,
            since,
            protocol,
            traffic_class: 0,
            ttl: 0,
            ranges: Vec::new(),
            total: None,
            fragments: 0,
            is_invalid: false,
            head: [0; MAX_HEAD],
            captured: 0,
            partial: (0, 0),
        }
    }

    fn add(&mut self, packet: &IpPacket<'_>, fragment: Fragment) {
        self.fragments += 1;
        let length = packet.payload.length as u64;
        let end = u64::from(fragment.offset).saturating_add(length);
        if self.is_invalid || end > u64::from(MAX_PAYLOAD) {
            self.is_invalid = true;
            return;
        }
        let (from, to) = (fragment.offset, end as u32);
        if fragment.more {
            // Only the last has any length.
            self.is_invalid |= length == 0 || !length.is_multiple_of(UNIT as u64);
        } else {
            let last = self.ranges.last().map_or(0, |r| r.1);
            self.is_invalid |= self.total.is_some_and(|total| total != to) || last > to;
            self.total = Some(to);
        }
        self.is_invalid |= self.total.is_some_and(|total| to > total);
        if self.is_invalid || !self.insert(from, to) {
            return;
        }
        if from == 0 {
            self.protocol = packet.protocol;
            self.traffic_class |= packet.traffic_class;
            self.ttl = packet.ttl;
        }
        // A mark of any fragment counts for the packet (RFC 3168 §5.3).
        if packet.traffic_class & 3 == 3 {
            self.traffic_class |= 3;
        }
        self.copy(from as usize, packet.payload.bytes);
    }

    /// Adds a range. Returns false for a duplicate and for a range that overlaps others.
    fn insert(&mut self, from: u32, to: u32) -> bool {
        let at = self.ranges.partition_point(|r| r.1 < from);
        let Some(next) = self.ranges.get_mut(at).filter(|r| r.0 <= to) else {
            self.is_invalid |= self.ranges.len() >= MAX_RANGES;
            if !self.is_invalid {
                self.ranges.insert(at, (from, to));
            }
            return !self.is_invalid;
        };
        if next.0 <= from && to <= next.1 {
            return false;
        }
        if to == next.0 {
            next.0 = from;
        } else if from == next.1 {
            next.1 = to;
        } else {
            self.is_invalid = true;
            return false;
        }
        let joined = *next;
        if let Some(after) = self.ranges.get(at + 1).copied() {
            if after.0 < joined.1 {
                self.is_invalid = true;
                return false;
            }
            if after.0 == joined.1 {
                self.ranges[at].1 = after.1;
                self.ranges.remove(at + 1);
            }
        }
        true
    }

    /// Keeps what belongs to the head.
    fn copy(&mut self, from: usize, bytes: &[u8]) {
        let Some(place) = self.head.get_mut(from..) else { return };
        let n = place.len().min(bytes.len());
        place[..n].copy_from_slice(&bytes[..n]);
        let first = from / UNIT;
        (first..first + n / UNIT).for_each(|unit| self.captured |= 1 << unit);
        if !n.is_multiple_of(UNIT) {
            self.partial = (first + n / UNIT, n % UNIT);
        }
    }

    /// The packet, if it is complete.
    fn whole(&self, key: &Key) -> Option<Whole> {
        let total = self.total.filter(|total| !self.is_invalid && self.ranges == [(0, *total)])?;
        let units = self.captured.trailing_ones() as usize;
        let head = units * UNIT + if self.partial.0 == units { self.partial.1 } else { 0 };
        let mut bytes = Vec::with_capacity(40 + head);
        match (key.source, key.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let length = u16::try_from(20 + total).ok()?;
                bytes.extend([0x45, self.traffic_class]);
                bytes.extend(length.to_be_bytes());
                bytes.extend((key.identification as u16).to_be_bytes());
                bytes.extend([0, 0, self.ttl, self.protocol, 0, 0]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let length = u16::try_from(total).ok()?;
                bytes.extend([0x60 | self.traffic_class >> 4, self.traffic_class << 4, 0, 0]);
                bytes.extend(length.to_be_bytes());
                bytes.extend([self.protocol, self.ttl]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
            }
            _ => return None,
        }
        let length = bytes.len() + total as usize;
        bytes.extend(&self.head[..head]);
        Some(Whole { bytes, length, fragments: self.fragments })
    }
}
