//! Finds TCP in what the fast path of [`Segment::parse`] does not read: other link types, tunnels
//! and fragments.

use super::data::Data;
use super::fragments::{Fragments, Incomplete};
use super::ip::{Fragment, IpPacket};
use super::layers::{AUTHENTICATION, Layer, Next, Tunnel, Unread, inner_link};
use super::link::{Link, OtherLink};
use super::segment::{Segment, SkipReason};
use super::{tunnels, wireless};
use crate::input::Frame;

/// Headers of tunnels, one inside the other, that are followed.
const MAX_TUNNELS: usize = 4;
/// Headers of all kinds that are followed.
const MAX_HEADERS: usize = 32;

/// Counts of what was found outside the fast path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EncapsulationCounts {
    tunnels: [u64; Tunnel::ALL.len()],
    unread: [u64; Unread::ALL.len()],
}

impl EncapsulationCounts {
    /// TCP packets per kind of their outermost tunnel, without kinds that did not occur.
    pub fn tunnels(&self) -> impl Iterator<Item = (Tunnel, u64)> + '_ {
        Tunnel::ALL.into_iter().zip(self.tunnels).filter(|(_, n)| *n > 0)
    }

    /// Packets per kind that was not read, without kinds that did not occur.
    pub fn unread(&self) -> impl Iterator<Item = (Unread, u64)> + '_ {
        Unread::ALL.into_iter().zip(self.unread).filter(|(_, n)| *n > 0)
    }
}

/// The result for one frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Tcp,
    /// A fragment that waits for others, and is counted later.
    Held,
    Short,
    Unread(Unread),
    Other,
}

/// Finds TCP segments in frames that [`Segment::parse`] does not read.
///
/// Memory: the headers of up to 1024 packets of which fragments are missing, about 1 MB.
#[derive(Default)]
pub struct Decapsulator {
    fragments: Fragments,
    segments: Vec<Segment>,
    counts: EncapsulationCounts,
    /// Fragments of reassembled TCP packets, without one of each.
    reassembled: u64,
    /// Fragments of other reassembled packets, without one of each.
    reassembled_other: u64,
}

/// What a frame was counted as, if it has no TCP segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Skipped {
    Other,
    Short,
    /// It has segments, or waits for other fragments.
    No,
}

impl Decapsulator {
    /// Reads a frame that the fast path skipped for `reason`.
    pub(crate) fn add(&mut self, frame: &Frame<'_>, reason: SkipReason) -> Skipped {
        self.segments.clear();
        if reason == SkipReason::Short {
            return Skipped::Short;
        }
        if reason == SkipReason::NotTcp && is_plain(frame) {
            return Skipped::Other;
        }
        let data = Data { bytes: frame.bytes, length: frame.length as usize };
        let mut walk = Walk { decapsulator: self, frame, headers: 0 };
        let found = walk.follow(Layer::Link(frame.link), data, 0, None);
        match found {
            _ if !self.segments.is_empty() => Skipped::No,
            Found::Tcp | Found::Held => Skipped::No,
            Found::Short => Skipped::Short,
            Found::Other => Skipped::Other,
            Found::Unread(kind) => {
                self.counts.unread[kind as usize] += 1;
                Skipped::Other
            }
        }
    }

    /// The segments of the latest frame.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Ends reading: packets of which fragments are missing stay incomplete.
    pub(crate) fn finish(mut self) -> DecapsulatorCounts {
        self.fragments.finish();
        DecapsulatorCounts {
            encapsulation: self.counts,
            reassembled: self.reassembled,
            reassembled_other: self.reassembled_other,
            incomplete: self.fragments.incomplete,
        }
    }
}

/// All counts of a [`Decapsulator`].
pub(crate) struct DecapsulatorCounts {
    pub encapsulation: EncapsulationCounts,
    /// Fragments of TCP packets beyond the first of each.
    pub reassembled: u64,
    /// The same of packets without TCP.
    pub reassembled_other: u64,
    pub incomplete: Incomplete,
}

/// The way through the headers of one frame.
struct Walk<'a, 'f> {
    decapsulator: &'a mut Decapsulator,
    frame: &'a Frame<'f>,
    headers: usize,
}

impl Walk<'_, '_> {
    /// Follows headers from `layer` on, `depth` tunnels deep. `outer` is the outermost tunnel.
    fn follow(
        &mut self,
        mut layer: Layer,
        mut data: Data<'_>,
        mut depth: usize,
        mut outer: Option<Tunnel>,
    ) -> Found {
        loop {
            self.headers += 1;
            if self.headers > MAX_HEADERS {
                return Found::Unread(Unread::TooDeep);
            }
            let mut next = step(layer, data);
            if let Some(Next::Ip(packet)) = next {
                if let Some(fragment) = packet.fragment {
                    return self.reassemble(&packet, fragment, depth, outer);
                }
                if packet.protocol == TCP {
                    return self.segment(data, outer);
                }
                if packet.protocol == AUTHENTICATION && self.segment(data, outer) == Found::Tcp {
                    return Found::Tcp;
                }
                next = tunnels::after_ip(packet.protocol, packet.payload);
            }
            match next {
                None | Some(Next::Ip(_)) => return Found::Other,
                Some(Next::Unread(kind)) => return Found::Unread(kind),
                Some(Next::Layer(next, rest)) => (layer, data) = (next, rest),
                Some(Next::Aggregate(rest)) => return self.aggregate(rest, depth, outer),
                Some(Next::Tunnel(tunnel, next, rest)) => {
                    depth += 1;
                    if depth > MAX_TUNNELS {
                        return Found::Unread(Unread::TooDeep);
                    }
                    outer.get_or_insert(tunnel);
                    (layer, data) = (next, rest);
                }
            }
        }
    }

    /// Adds a fragment, and follows the packet that it completes.
    fn reassemble(
        &mut self,
        packet: &IpPacket<'_>,
        fragment: Fragment,
        depth: usize,
        outer: Option<Tunnel>,
    ) -> Found {
        if packet.source.is_ipv4() && !may_carry_tcp(packet.protocol) {
            return Found::Other;
        }
        let Some(whole) = self.decapsulator.fragments.add(packet, fragment, self.frame.at) else {
            return Found::Held;
        };
        let inner = Data { bytes: &whole.bytes, length: whole.length };
        let found = self.follow(Layer::Ip, inner, depth, outer);
        let rest = whole.fragments - 1;
        if found == Found::Tcp {
            self.decapsulator.reassembled += rest;
        } else {
            self.decapsulator.reassembled_other += rest;
        }
        found
    }

    /// Follows each frame of an A-MSDU (IEEE 802.11 §9.3.2.2.2): two addresses, length, LLC.
    fn aggregate(&mut self, mut data: Data<'_>, depth: usize, outer: Option<Tunnel>) -> Found {
        const HEADER: usize = 14;
        let mut result = Found::Other;
        while let Some(length) = data.half(12).map(usize::from)
            && let Some(frame) = data.skip(HEADER)
            && length > 0
            && self.headers < MAX_HEADERS
        {
            let found = self.follow(Layer::Llc, frame.first(length), depth, outer);
            if result != Found::Tcp {
                result = found;
            }
            match data.skip((HEADER + length).next_multiple_of(4)) {
                Some(rest) => data = rest,
                None => break,
            }
        }
        result
    }

    /// Adds the segment in an IP packet that is known to be TCP.
    fn segment(&mut self, packet: Data<'_>, outer: Option<Tunnel>) -> Found {
        let length = u32::try_from(packet.length).unwrap_or(u32::MAX);
        let inner = Frame { link: Link::Raw, length, bytes: packet.bytes, ..*self.frame };
        match Segment::parse(&inner) {
            Ok(segment) => {
                self.decapsulator.segments.push(segment);
                if let Some(tunnel) = outer {
                    self.decapsulator.counts.tunnels[tunnel as usize] += 1;
                }
                Found::Tcp
            }
            Err(SkipReason::Short) => Found::Short,
            Err(SkipReason::NotTcp | SkipReason::Fragment) => Found::Other,
        }
    }
}

const TCP: u8 = 6;

/// Whether fragments of an IPv4 protocol are reassembled. Those of IPv6 always are: later fragments
/// need not name the protocol.
fn may_carry_tcp(protocol: u8) -> bool {
    matches!(protocol, TCP | 4 | 17 | 41 | 47 | 97 | 137)
}

/// Whether a frame has a whole IP packet of a protocol that carries no TCP: the most common case.
fn is_plain(frame: &Frame<'_>) -> bool {
    let Some(packet) = frame.link.ip(frame.bytes) else { return false };
    let (protocol, payload) = match packet {
        [0x45, _, _, _, _, _, 0 | 0x40, 0, _, protocol, ..] => (*protocol, packet.get(20..)),
        [0x60..=0x6f, _, _, _, _, _, protocol, ..] => (*protocol, packet.get(40..)),
        _ => return false,
    };
    match (protocol, payload) {
        (17, Some([a, b, c, d, ..])) => {
            !tunnels::is_udp_tunnel(u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]))
        }
        _ => false,
    }
}

/// Reads one header.
fn step<'a>(layer: Layer, data: Data<'a>) -> Option<Next<'a>> {
    match layer {
        Layer::Link(Link::Other(link)) => wireless::after_link(link, data).or_else(|| after_link(link, data)),
        Layer::Link(link) => {
            let (ether_type, payload) = link.payload(data.bytes)?;
            let rest = data.skip(data.bytes.len() - payload.len())?;
            Some(Next::Layer(ether_type.map_or(Layer::Ip, Layer::EtherType), rest))
        }
        Layer::EtherType(number) => after_ether_type(number, data),
        Layer::Ip => IpPacket::parse(data).map(Next::Ip),
        Layer::Mpls => tunnels::after_mpls(data),
        Layer::Ppp => tunnels::after_ppp(data),
        Layer::Pppoe => Some(Next::Layer(Layer::Ppp, data.skip(6)?)),
        Layer::Llc => after_llc(data),
        Layer::Dot11 => wireless::after_dot11(data),
    }
}

/// Reads the header of a link without radio.
fn after_link<'a>(link: OtherLink, data: Data<'a>) -> Option<Next<'a>> {
    let (layer, skipped) = match link {
        OtherLink::Slip => (Layer::Ip, 16),
        OtherLink::Ppp => {
            // Cisco's HDLC is recognised by its address (RFC 1547 §4.3.1); pppd writes the direction
            // instead of the address.
            if matches!(data.byte(0)?, 0x0f | 0x8f) {
                return after_link(OtherLink::CiscoHdlc { before: 0 }, data);
            }
            (Layer::Ppp, if data.byte(0)? < 2 && data.byte(1)? == 3 { 2 } else { 0 })
        }
        OtherLink::PppDirection => (Layer::Ppp, 1),
        OtherLink::Pppoe => (Layer::Pppoe, 0),
        OtherLink::CiscoHdlc { before } => (Layer::EtherType(data.half(before + 2)?), before + 4),
        OtherLink::FrameRelay { before } => return tunnels::after_frame_relay(data.skip(before)?),
        OtherLink::Nflog => return after_nflog(data),
        OtherLink::Pktap => return after_pktap(data),
        OtherLink::EthernetAfter(n) => (Layer::Link(Link::Ethernet), n),
        OtherLink::Mpls => (Layer::Mpls, 0),
        OtherLink::Dot11 | OtherLink::Prism | OtherLink::Radiotap | OtherLink::Ppi => return None,
    };
    Some(Next::Layer(layer, data.skip(skipped)?))
}

/// Reads what an EtherType announces.
fn after_ether_type<'a>(number: u16, data: Data<'a>) -> Option<Next<'a>> {
    let (layer, skipped) = match number {
        0x0800 | 0x86dd => (Layer::Ip, 0),
        // VLAN tags, and the tag of a switch port (802.1BR): the next EtherType is after them.
        0x8100 | 0x88a8 | 0x9100 | 0x9200 => (Layer::EtherType(data.half(2)?), 4),
        0x8926 => (Layer::EtherType(data.half(4)?), 6),
        // DSA tags of switches with an EtherType: two reserved bytes, the tag, the next EtherType.
        0xdada => (Layer::EtherType(data.half(6)?), 8),
        0x8847 | 0x8848 => return Some(Next::Tunnel(Tunnel::Mpls, Layer::Mpls, data)),
        0x8864 => (Layer::Pppoe, 0),
        0x880b => (Layer::Ppp, 0),
        0x6558 => (Layer::Link(Link::Ethernet), 0),
        0x88e7 => return Some(Next::Tunnel(Tunnel::Backbone, Layer::Link(Link::Ethernet), data.skip(4)?)),
        0x88e5 => return Some(Next::Unread(Unread::MacSec)),
        // A length (IEEE 802.3 §3.2.6).
        ..=1500 => (Layer::Llc, 0),
        _ => return None,
    };
    Some(Next::Layer(layer, data.skip(skipped)?))
}

/// Reads an LLC header: SNAP, or IP's own service access point.
fn after_llc<'a>(data: Data<'a>) -> Option<Next<'a>> {
    let (layer, skipped) = match *data.bytes.first_chunk::<3>()? {
        [0xaa, 0xaa, 0x03] => match *data.skip(3)?.bytes.first_chunk::<3>()? {
            // RFC 1042, and IEEE 802.1H for bridges.
            [0, 0, 0] | [0, 0, 0xf8] => match data.half(6)? {
                ..=1500 => return None,
                number => (Layer::EtherType(number), 8),
            },
            _ => return None,
        },
        [0x06, 0x06, 0x03] => (Layer::Ip, 3),
        _ => return None,
    };
    Some(Next::Layer(layer, data.skip(skipped)?))
}

/// Finds the payload among the attributes of a packet logged by netfilter: length and type in the
/// order of the host, padded to four bytes.
fn after_nflog<'a>(data: Data<'a>) -> Option<Next<'a>> {
    const PAYLOAD: u16 = 9;
    const MAX_ATTRIBUTES: usize = 32;
    let mut rest = data.skip(4)?;
    for _ in 0..MAX_ATTRIBUTES {
        let (mut length, mut kind) = (rest.half(0)?.swap_bytes(), rest.half(2)?.swap_bytes());
        if usize::from(length) > rest.length || kind & 0xff == 0 && kind != 0 {
            (length, kind) = (length.swap_bytes(), kind.swap_bytes());
        }
        let length = usize::from(length);
        if length < 4 {
            return None;
        }
        if kind & 0x7fff == PAYLOAD {
            return Some(Next::Layer(Layer::Ip, rest.first(length.min(rest.length)).skip(4)?));
        }
        rest = rest.skip(length.next_multiple_of(4))?;
    }
    None
}

/// Reads Apple's PKTAP header: its length, 1 for a packet, and the link type of the packet, in the
/// order of the host.
fn after_pktap<'a>(data: Data<'a>) -> Option<Next<'a>> {
    const MIN_LENGTH: u32 = 108;
    let [mut length, mut kind, mut link] = [data.word(0)?, data.word(4)?, data.word(8)?].map(u32::swap_bytes);
    if length > 0xffff {
        [length, kind, link] = [length, kind, link].map(u32::swap_bytes);
    }
    if length < MIN_LENGTH || kind != 1 {
        return None;
    }
    inner_link(link, data.skip(length as usize)?)
}
