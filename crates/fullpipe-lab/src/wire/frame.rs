//! An Ethernet frame of an end: one packet, or a super-packet of several segments.
//!
//! The path decides about each segment separately, as a real link would. Surviving segments are
//! sent in as few frames as possible, because every frame costs a system call. [`Frame::piece`]
//! writes the headers of such a frame: those of the super-packet, with the sequence number,
//! lengths, identification, flags and checksums that `tcp_gso_segment` and `inet_gso_segment` would
//! set. The transport checksum stays "to be completed" (`NEEDS_CSUM`), so no payload byte is read.

use super::checksum;
use super::vnet::{Gso, NEEDS_CSUM, VnetHeader};
use fullpipe_path::Ecn;

const ETHERNET: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const CWR: u8 = 0x80;

/// The most bytes of headers that [`Frame::piece`] writes: Ethernet, IPv4 and TCP with all options.
pub(crate) const MAX_HEADERS: usize = ETHERNET + 60 + 60;

/// The transport inside a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    /// TCP, with the fields that the emulator uses.
    Tcp {
        /// Sequence number of the first payload byte.
        seq: u32,
        /// Acknowledgement number; meaningful with the ACK flag, which all but the first SYN carry.
        ack: u32,
        /// Whether it carries nothing but an acknowledgement: no payload, SYN, FIN or RST.
        pure_ack: bool,
    },
    /// UDP.
    Udp,
    /// Anything else, among them later IP fragments.
    Other,
}

/// The parsed headers of a frame; its bytes are stored separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// Ethernet, IP and transport headers, bytes; the payload starts here.
    headers: u16,
    /// Where the transport header starts.
    transport: u16,
    /// Payload bytes in all segments together.
    payload: u32,
    /// Payload bytes of each segment but the last, ≥ 1.
    segment: u32,
    /// How many segments, ≥ 1.
    segments: u16,
    ipv6: bool,
    /// The ECN codepoint that its sender set.
    pub ecn: Ecn,
    /// The transport.
    pub protocol: Protocol,
    /// Source and destination port, 0 without ports.
    pub ports: (u16, u16),
    /// A hash of addresses, protocol and ports.
    pub flow_hash: u32,
    vnet: VnetHeader,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn ecn_from_bits(bits: u8) -> Ecn {
    match bits & 3 {
        1 => Ecn::Ect1,
        2 => Ecn::Ect0,
        3 => Ecn::Ce,
        _ => Ecn::NotEct,
    }
}

fn ecn_bits(ecn: Ecn) -> u8 {
    match ecn {
        Ecn::NotEct => 0,
        Ecn::Ect1 => 1,
        Ecn::Ect0 => 2,
        Ecn::Ce => 3,
    }
}

/// FNV-1a.
fn hash(parts: &[&[u8]]) -> u32 {
    parts
        .iter()
        .flat_map(|p| p.iter())
        .fold(0x811c_9dc5, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193))
}

/// The parsed IP header of a frame.
struct Ip<'a> {
    ipv6: bool,
    /// Its length, bytes.
    header: usize,
    /// Header and what follows it, bytes.
    total: usize,
    /// The transport's number.
    next: u8,
    ecn: Ecn,
    addresses: &'a [u8],
    /// Whether it is a fragment other than the first.
    fragment: bool,
}

impl<'a> Ip<'a> {
    /// Reads the header of a whole packet of IPv4 or IPv6 in an Ethernet frame.
    fn parse(frame: &'a [u8]) -> Option<Self> {
        let ipv6 = match be16(frame, 12)? {
            0x0800 => false,
            0x86dd => true,
            _ => return None,
        };
        let bytes = &frame[ETHERNET..];
        let ip = if ipv6 { Ip::v6(bytes)? } else { Ip::v4(bytes)? };
        // A length field of zero is a jumbo super-packet, which ends do not send at our device's limit.
        (ip.header <= ip.total && ip.total <= bytes.len()).then_some(ip)
    }

    fn v4(ip: &'a [u8]) -> Option<Self> {
        let header = usize::from(ip.first()? & 15) * 4;
        if ip[0] >> 4 != 4 || header < 20 || ip.len() < header {
            return None;
        }
        Some(Ip {
            ipv6: false,
            header,
            total: usize::from(be16(ip, 2)?),
            next: ip[9],
            ecn: ecn_from_bits(ip[1]),
            addresses: &ip[12..20],
            fragment: be16(ip, 6)? & 0x1fff != 0,
        })
    }

    fn v6(ip: &'a [u8]) -> Option<Self> {
        if ip.len() < 40 || ip[0] >> 4 != 6 {
            return None;
        }
        Some(Ip {
            ipv6: true,
            header: 40,
            total: 40 + usize::from(be16(ip, 4)?),
            next: ip[6],
            ecn: ecn_from_bits(ip[1] >> 4),
            addresses: &ip[8..40],
            fragment: false,
        })
    }
}

/// The parsed transport header of a packet.
struct Transport {
    protocol: Protocol,
    /// Its length, bytes.
    header: usize,
    /// Source and destination port, 0 without ports.
    ports: (u16, u16),
}

impl Transport {
    /// Reads `body`, what follows the IP header.
    fn parse(ip: &Ip<'_>, body: &[u8]) -> Option<Self> {
        let ports = || Some((be16(body, 0)?, be16(body, 2)?));
        Some(match ip.next {
            TCP if !ip.fragment && body.len() >= 20 => {
                let header = usize::from(body[12] >> 4) * 4;
                if header < 20 || header > body.len() {
                    return None;
                }
                let flags = body[13];
                let pure_ack = body.len() == header && flags & (SYN | FIN | RST) == 0 && flags & ACK != 0;
                let (seq, ack) = (be32(body, 4)?, be32(body, 8)?);
                Transport { protocol: Protocol::Tcp { seq, ack, pure_ack }, header, ports: ports()? }
            }
            UDP if !ip.fragment && body.len() >= 8 => {
                Transport { protocol: Protocol::Udp, header: 8, ports: ports()? }
            }
            _ => Transport { protocol: Protocol::Other, header: 0, ports: (0, 0) },
        })
    }
}

/// Payload bytes per segment, ≥ 1, of a frame with this virtio header and `payload` bytes. `None`
/// for an unsupported kind of super-packet, which would enter the path as one huge packet.
fn segment_of(vnet: &VnetHeader, protocol: Protocol, payload: u32) -> Option<u32> {
    match (vnet.gso, protocol) {
        (Gso::None, _) => Some(payload.max(1)),
        (Gso::TcpV4 | Gso::TcpV6, Protocol::Tcp { .. }) | (Gso::Udp, Protocol::Udp)
            if vnet.gso_size > 0 && vnet.flags & NEEDS_CSUM != 0 =>
        {
            Some(u32::from(vnet.gso_size))
        }
        _ => None,
    }
}

impl Frame {
    /// Parses the headers of `frame`. `None` if it is not a whole unicast IP packet: other frames
    /// (neighbour discovery, group membership) are not traffic of the path.
    pub(crate) fn parse(vnet: VnetHeader, frame: &[u8]) -> Option<Frame> {
        if frame.first()? & 1 != 0 {
            return None;
        }
        let ip = Ip::parse(frame)?;
        let start = ETHERNET + ip.header;
        let body = &frame[start..ETHERNET + ip.total];
        let transport = Transport::parse(&ip, body)?;
        let payload = (body.len() - transport.header) as u32;
        let segment = segment_of(&vnet, transport.protocol, payload)?;
        let segments = u16::try_from(payload.div_ceil(segment).max(1)).ok()?;
        let ports = transport.ports;
        let both_ports = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        Some(Frame {
            headers: (start + transport.header) as u16,
            transport: start as u16,
            payload,
            segment,
            segments,
            ipv6: ip.ipv6,
            ecn: ip.ecn,
            protocol: transport.protocol,
            ports,
            flow_hash: hash(&[ip.addresses, &[ip.next], &both_ports]),
            vnet,
        })
    }

    /// How many segments it holds, ≥ 1.
    pub(crate) fn segments(&self) -> u16 {
        self.segments
    }

    /// Length of segment `index` on the path: IP header, transport header and payload.
    pub(crate) fn l3_bytes(&self, index: u16) -> u32 {
        u32::from(self.headers) - ETHERNET as u32 + self.payload_of(index, 1)
    }

    /// Payload bytes of all segments.
    pub(crate) fn payload(&self) -> u32 {
        self.payload
    }

    /// Payload bytes in `count` segments from `first` on.
    pub(crate) fn payload_of(&self, first: u16, count: u16) -> u32 {
        self.offset(u32::from(first) + u32::from(count)) - self.offset(first.into())
    }

    /// Where in the payload segment `index` begins; its end for those behind the last.
    fn offset(&self, index: u32) -> u32 {
        (index * self.segment).min(self.payload)
    }

    /// Where in sequence space the data in `count` segments from `first` on begin and end; none
    /// without data.
    pub(crate) fn sequence_of(&self, first: u16, count: u16) -> Option<(u32, u32)> {
        let Protocol::Tcp { seq, .. } = self.protocol else { return None };
        let start = seq.wrapping_add(self.offset(first.into()));
        let payload = self.payload_of(first, count);
        (payload > 0).then(|| (start, start.wrapping_add(payload)))
    }

    /// The highest sequence number that this TCP acknowledgement reports: the maximum of the
    /// cumulative acknowledgement and the right edges of its SACK blocks (RFC 2018).
    pub(crate) fn highest_received(&self, frame: &[u8]) -> Option<u32> {
        let Protocol::Tcp { ack, .. } = self.protocol else { return None };
        let mut highest = ack;
        let mut options = frame.get(usize::from(self.transport) + 20..usize::from(self.headers))?;
        while let [kind, rest @ ..] = options {
            options = match (*kind, rest) {
                (0, _) | (_, []) => break,
                (1, _) => rest,
                (kind, [length, ..]) => {
                    let Some(body) = options.get(2..usize::from(*length)) else { break };
                    if kind == 5 {
                        for block in body.chunks_exact(8) {
                            let right = u32::from_be_bytes([block[4], block[5], block[6], block[7]]);
                            if right.wrapping_sub(highest) < 1 << 31 {
                                highest = right;
                            }
                        }
                    }
                    &options[usize::from(*length)..]
                }
            };
        }
        Some(highest)
    }

    /// Writes the virtio header and the headers of a frame that carries `count` segments from
    /// `first` on, marked `ecn`, into `headers`; gives the virtio header, the length of the
    /// headers, and where in `frame` the payload lies.
    pub(crate) fn piece(
        &self,
        frame: &[u8],
        (first, count): (u16, u16),
        ecn: Ecn,
        headers: &mut [u8; MAX_HEADERS],
    ) -> (VnetHeader, usize, std::ops::Range<usize>) {
        let length = usize::from(self.headers);
        let h = &mut headers[..length];
        h.copy_from_slice(&frame[..length]);
        let payload = self.payload_of(first, count);
        let start = length + self.offset(first.into()) as usize;
        let range = start..start + payload as usize;
        let whole = first == 0 && count == self.segments;
        if whole && ecn == self.ecn {
            return (self.vnet, length, range);
        }
        self.write_ip(h, first, payload, ecn);
        let mut vnet = self.vnet;
        if !whole {
            match self.protocol {
                Protocol::Tcp { seq, .. } => self.write_tcp(h, first, count, seq),
                Protocol::Udp => {
                    let t = usize::from(self.transport);
                    let udp = 8 + payload as u16;
                    h[t + 4..t + 6].copy_from_slice(&udp.to_be_bytes());
                }
                Protocol::Other => {}
            }
            self.write_pseudo_header(h, payload);
            vnet.hdr_len = self.headers;
            vnet.gso_ecn &= first == 0;
            if count == 1 {
                (vnet.gso, vnet.gso_ecn, vnet.gso_size) = (Gso::None, false, 0);
            }
        }
        (vnet, length, range)
    }

    /// Lengths, identification, mark and header checksum.
    fn write_ip(&self, h: &mut [u8], first: u16, payload: u32, ecn: Ecn) {
        let ip = ETHERNET;
        let total = u32::from(self.headers) - ETHERNET as u32 + payload;
        if self.ipv6 {
            h[ip + 1] = h[ip + 1] & !0x30 | ecn_bits(ecn) << 4;
            h[ip + 4..ip + 6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
            return;
        }
        h[ip + 1] = h[ip + 1] & !3 | ecn_bits(ecn);
        h[ip + 2..ip + 4].copy_from_slice(&(total as u16).to_be_bytes());
        let id = u16::from_be_bytes([h[ip + 4], h[ip + 5]]).wrapping_add(first);
        h[ip + 4..ip + 6].copy_from_slice(&id.to_be_bytes());
        h[ip + 10..ip + 12].fill(0);
        // An unfragmented IPv4 header ends where the transport starts.
        let sum = !checksum::sum(0, &h[ip..usize::from(self.transport)]);
        h[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }

    /// Sequence number and flags: FIN and PSH belong to the last segment, CWR to the first.
    fn write_tcp(&self, h: &mut [u8], first: u16, count: u16, seq: u32) {
        let t = usize::from(self.transport);
        let seq = seq.wrapping_add(u32::from(first) * self.segment);
        h[t + 4..t + 8].copy_from_slice(&seq.to_be_bytes());
        if first + count != self.segments {
            h[t + 13] &= !(FIN | PSH);
        }
        if first != 0 {
            h[t + 13] &= !CWR;
        }
    }

    /// The checksum field of a packet still to be completed: the sum over the pseudo-header.
    fn write_pseudo_header(&self, h: &mut [u8], payload: u32) {
        if self.vnet.flags & NEEDS_CSUM == 0 {
            return;
        }
        let t = usize::from(self.transport);
        let (protocol, at) = match self.protocol {
            Protocol::Tcp { .. } => (TCP, t + 16),
            Protocol::Udp => (UDP, t + 6),
            Protocol::Other => return,
        };
        let length = u32::from(self.headers) - u32::from(self.transport) + payload;
        let addresses = if self.ipv6 { ETHERNET + 8..ETHERNET + 40 } else { ETHERNET + 12..ETHERNET + 20 };
        let sum = checksum::pseudo_header(&h[addresses], protocol, length);
        h[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::read_and_cut;
    use proptest::prelude::*;

    /// A super-packet as the kernel hands it over: checksum field holding the pseudo-header's sum.
    fn super_packet(
        ipv6: bool,
        tcp: bool,
        payload: usize,
        segment: u16,
        options: usize,
        flags: u8,
    ) -> (VnetHeader, Vec<u8>) {
        let transport = if tcp { 20 + options * 4 } else { 8 };
        let ip = if ipv6 { 40 } else { 20 };
        let mut f = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        f.extend_from_slice(if ipv6 { &[0x86, 0xdd] } else { &[8, 0] });
        let (protocol, length) = (if tcp { TCP } else { UDP }, (transport + payload) as u16);
        if ipv6 {
            f.extend_from_slice(&[0x60, 0x20, 0, 0]);
            f.extend_from_slice(&length.to_be_bytes());
            f.extend_from_slice(&[protocol, 64]);
            f.extend((0..32).map(|i| i * 7));
        } else {
            f.extend_from_slice(&[0x45, 2]);
            f.extend_from_slice(&(20 + length).to_be_bytes());
            f.extend_from_slice(&[0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
            let sum = !checksum::sum(0, &f[14..34]);
            f[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let start = f.len();
        f.extend_from_slice(&[0x4e, 0x20, 0x4e, 0x21]);
        if tcp {
            f.extend_from_slice(&0xffff_f000_u32.to_be_bytes());
            f.extend_from_slice(&77_u32.to_be_bytes());
            f.extend_from_slice(&[((transport / 4) as u8) << 4, flags, 1, 2, 0, 0, 0, 0]);
            f.extend(std::iter::repeat_n(1, options * 4));
        } else {
            f.extend_from_slice(&length.to_be_bytes());
            f.extend_from_slice(&[0, 0]);
        }
        let addresses = if ipv6 { 22..54 } else { 26..34 };
        let sum = checksum::pseudo_header(&f[addresses], protocol, length.into());
        let at = start + if tcp { 16 } else { 6 };
        f[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        f.extend((0..payload).map(|i| (i * 31 % 251) as u8));
        let gso = match (payload > usize::from(segment), tcp, ipv6) {
            (false, ..) => Gso::None,
            (true, false, _) => Gso::Udp,
            (true, true, false) => Gso::TcpV4,
            (true, true, true) => Gso::TcpV6,
        };
        let vnet = VnetHeader {
            flags: NEEDS_CSUM,
            gso,
            gso_ecn: flags & CWR != 0 && gso != Gso::None && tcp,
            hdr_len: (14 + ip + transport) as u16,
            gso_size: if gso == Gso::None { 0 } else { segment },
            csum_start: (14 + ip) as u16,
            csum_offset: if tcp { 16 } else { 6 },
        };
        (vnet, f)
    }

    /// Puts the checksum in as the device at the end of the path would, and checks it as the
    /// receiver does.
    fn complete_and_verify(frame: &Frame, mut packet: Vec<u8>) {
        let t = usize::from(frame.transport);
        let at = t + usize::from(frame.vnet.csum_offset);
        let sum = !checksum::sum(0, &packet[t..]);
        packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        let addresses = if frame.ipv6 { 22..54 } else { 26..34 };
        let protocol = packet[if frame.ipv6 { 20 } else { 23 }];
        let pseudo = checksum::pseudo_header(&packet[addresses], protocol, (packet.len() - t) as u32);
        assert_eq!(checksum::sum(pseudo.into(), &packet[t..]), 0xffff, "transport checksum");
        if !frame.ipv6 {
            assert_eq!(checksum::sum(0, &packet[14..t]), 0xffff, "IP checksum");
            assert_eq!(usize::from(be16(&packet, 16).unwrap()), packet.len() - 14);
        }
    }

    proptest! {
        #[test]
        fn pieces_carry_what_segmentation_would(
            ipv6: bool, tcp: bool, payload in 0usize..20_000, segment in 1u16..3000, options in 0usize..=10,
            flags in any::<u8>(), cuts in proptest::collection::vec(1u16..9, 1..40), mark: bool,
        ) {
            // SYN and RST do not come in super-packets, nor do acknowledgements without the ACK flag.
            let flags = flags & !(SYN | RST) | ACK;
            let segment = segment.max((payload / 60) as u16);
            let (vnet, bytes) = super_packet(ipv6, tcp, payload, segment, options, flags);
            let frame = Frame::parse(vnet, &bytes).unwrap();
            prop_assert_eq!(u32::from(frame.segments()), (payload as u32).div_ceil(segment.into()).max(1));
            let (mut first, mut carried, mut on_path) = (0, Vec::new(), 0);
            for cut in cuts.into_iter().cycle() {
                if first == frame.segments() {
                    break;
                }
                let count = cut.min(frame.segments() - first);
                let ecn = if mark { Ecn::Ce } else { frame.ecn };
                let mut headers = [0; MAX_HEADERS];
                let (vnet, length, range) = frame.piece(&bytes, (first, count), ecn, &mut headers);
                let packet = [&headers[..length], &bytes[range.clone()]].concat();
                let again = Frame::parse(vnet, &packet).unwrap();
                prop_assert_eq!(again.segments(), count);
                prop_assert_eq!(again.ecn, ecn);
                prop_assert_eq!(again.flow_hash, frame.flow_hash);
                if let (Protocol::Tcp { seq, .. }, Protocol::Tcp { seq: start, .. }) =
                    (again.protocol, frame.protocol)
                {
                    prop_assert_eq!(seq, start.wrapping_add(carried.len() as u32));
                    let last = first + count == frame.segments();
                    let flag = packet[usize::from(frame.transport) + 13];
                    prop_assert_eq!(flag & (FIN | PSH), if last { flags & (FIN | PSH) } else { 0 });
                    prop_assert_eq!(flag & CWR, if first == 0 { flags & CWR } else { 0 });
                }
                if !ipv6 {
                    prop_assert_eq!(be16(&packet, 18).unwrap(), 0xfffe_u16.wrapping_add(first));
                }
                complete_and_verify(&frame, packet);
                carried.extend_from_slice(&bytes[range]);
                on_path += (first..first + count).map(|i| frame.l3_bytes(i)).sum::<u32>();
                first += count;
            }
            prop_assert_eq!(&carried[..], &bytes[bytes.len() - payload..]);
            let headers = (bytes.len() - payload - 14) as u32;
            prop_assert_eq!(on_path, payload as u32 + headers * u32::from(frame.segments()));
        }

        #[test]
        fn no_bytes_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), first in 0u16..4, count in 1u16..4,
        ) {
            let _ = read_and_cut(&bytes, first, count);
        }

        #[test]
        fn no_damaged_packet_panics(
            ipv6: bool, tcp: bool, payload in 0usize..5000, at in 0usize..90, byte: u8, cut in 0usize..6000,
            first in 0u16..4, count in 1u16..4,
        ) {
            let (vnet, mut bytes) = super_packet(ipv6, tcp, payload, 1448, 3, ACK);
            if let Some(b) = bytes.get_mut(at) {
                *b = byte;
            }
            bytes.truncate(cut);
            let _ = read_and_cut(&[&vnet.encode()[..], &bytes].concat(), first, count);
        }
    }

    #[test]
    fn the_right_edge_of_the_newest_sack_block_counts() {
        let (vnet, mut bytes) = super_packet(false, true, 0, 1448, 10, ACK);
        let options = 54;
        bytes[options..options + 20]
            .copy_from_slice(&[1, 1, 5, 18, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0]);
        let frame = Frame::parse(vnet, &bytes).unwrap();
        assert_eq!(frame.highest_received(&bytes), Some(0x400));
        bytes[options + 3] = 255;
        assert_eq!(frame.highest_received(&bytes), Some(77), "a length beyond the header ends the options");
    }

    #[test]
    fn traffic_outside_the_path_is_ignored() {
        let (vnet, bytes) = super_packet(true, true, 100, 1448, 3, ACK);
        let mut multicast = bytes.clone();
        multicast[0] |= 1;
        assert_eq!(Frame::parse(vnet, &multicast), None);
        let mut arp = bytes;
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(Frame::parse(vnet, &arp), None);
    }
}
