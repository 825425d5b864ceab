//! Link types, up to the IP packet.

/// Supported link types with their LINKTYPE numbers (tcpdump.org/linktypes.html).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Ethernet (1), with any number of VLAN tags.
    Ethernet,
    /// BSD loopback: an address family of four bytes in host order (0) or network order (108).
    Loopback,
    /// An IP packet without link header (12, 14, 101, 228, 229).
    Raw,
    /// Linux "cooked", version 1 (113).
    Cooked,
    /// Linux "cooked", version 2 (276).
    Cooked2,
    /// A link type whose frames [`Segment::parse`](super::Segment::parse) does not read:
    /// [`Decapsulator`](super::Decapsulator) does.
    Other(OtherLink),
}

/// Link types that take more than a fixed header before the IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtherLink {
    /// SLIP of BSD/OS: direction and compressed header in 16 bytes (8).
    Slip,
    /// PPP with or without address and control bytes (9, 50, 166).
    Ppp,
    /// PPP after a byte that gives the direction (204).
    PppDirection,
    /// PPPoE session without Ethernet header (51).
    Pppoe,
    /// Cisco's HDLC (104), also after a byte that gives the direction (205).
    CiscoHdlc {
        /// Bytes before the header.
        before: usize,
    },
    /// Frame relay (107), also after a byte that gives the direction (206).
    FrameRelay {
        /// Bytes before the header.
        before: usize,
    },
    /// IEEE 802.11 (105).
    Dot11,
    /// IEEE 802.11 after a Prism header (119).
    Prism,
    /// IEEE 802.11 after a radiotap header (127).
    Radiotap,
    /// Per-packet information (192).
    Ppi,
    /// Packets of Linux's netfilter log (239).
    Nflog,
    /// Apple's PKTAP (258, 149).
    Pktap,
    /// Ethernet after so many bytes of the capturing device (240, 274).
    EthernetAfter(usize),
    /// MPLS without link header (219).
    Mpls,
}

/// EtherTypes of VLAN tags: 802.1Q, 802.1ad, and older QinQ.
const VLAN: [u16; 4] = [0x8100, 0x88a8, 0x9100, 0x9200];

impl Link {
    /// The link type with a LINKTYPE number.
    pub fn from_linktype(n: i32) -> Option<Self> {
        Some(match n {
            0 | 108 => Link::Loopback,
            1 => Link::Ethernet,
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            113 => Link::Cooked,
            276 => Link::Cooked2,
            _ => Link::Other(OtherLink::from_linktype(n)?),
        })
    }

    /// The IP packet in `frame`; `None` for other protocols and truncated frames.
    #[inline]
    pub fn ip(self, frame: &[u8]) -> Option<&[u8]> {
        match self {
            Link::Ethernet => tagged(frame, 12),
            Link::Cooked => tagged(frame, 14),
            Link::Cooked2 => {
                // The protocol is first, then 18 bytes of interface and address.
                let protocol = ether_type(frame, 0)?;
                if VLAN.contains(&protocol) {
                    tagged(frame, 22)
                } else {
                    untagged(protocol, frame.get(20..)?)
                }
            }
            Link::Raw => Some(frame),
            // Address families differ between systems (AF_INET6 is 10, 24, 28 or 30); use the version in the
            // packet.
            Link::Loopback => frame.get(4..),
            Link::Other(_) => None,
        }
    }

    /// EtherType and payload of a frame, or no EtherType if the payload is an IP packet. `None` for
    /// link types without EtherType and truncated frames.
    pub(super) fn payload(self, frame: &[u8]) -> Option<(Option<u16>, &[u8])> {
        let (at, after) = match self {
            Link::Ethernet => (12, 14),
            Link::Cooked => (14, 16),
            Link::Cooked2 => (0, 20),
            Link::Raw => return Some((None, frame)),
            Link::Loopback => return Some((None, frame.get(4..)?)),
            Link::Other(_) => return None,
        };
        Some((Some(ether_type(frame, at)?), frame.get(after..)?))
    }
}

impl OtherLink {
    fn from_linktype(n: i32) -> Option<Self> {
        Some(match n {
            8 => OtherLink::Slip,
            9 | 50 | 166 => OtherLink::Ppp,
            51 => OtherLink::Pppoe,
            104 => OtherLink::CiscoHdlc { before: 0 },
            105 => OtherLink::Dot11,
            107 => OtherLink::FrameRelay { before: 0 },
            119 => OtherLink::Prism,
            127 => OtherLink::Radiotap,
            149 | 258 => OtherLink::Pktap,
            192 => OtherLink::Ppi,
            204 => OtherLink::PppDirection,
            205 => OtherLink::CiscoHdlc { before: 1 },
            206 => OtherLink::FrameRelay { before: 1 },
            219 => OtherLink::Mpls,
            239 => OtherLink::Nflog,
            240 => OtherLink::EthernetAfter(4),
            274 => OtherLink::EthernetAfter(8),
            _ => return None,
        })
    }
}

/// Name of a link type that is not read, as `tcpdump -L` and Wireshark print it.
pub fn link_type_name(n: i32) -> Option<&'static str> {
    Some(match n {
        3 => "AX.25",
        6 => "token ring",
        7 => "ARCNET",
        10 => "FDDI",
        11 => "ATM (RFC 1483)",
        117 => "pflog",
        118 => "Cisco IOS",
        123 => "ATM (SunATM)",
        143 => "DOCSIS",
        147..=162 => "user-defined",
        163 => "802.11 with AVS header",
        165 => "BACnet",
        178 => "Juniper Ethernet",
        187 | 201 => "Bluetooth HCI",
        189 | 220 | 249 => "USB",
        190 | 227 => "CAN",
        195 | 230 => "802.15.4",
        197 => "ERF",
        199 => "ipmb",
        242 => "IP over InfiniBand",
        247 => "InfiniBand",
        252 => "Wireshark upper PDU",
        253 => "netlink",
        271 => "vsock",
        283 => "802.15.4 TAP",
        _ => return None,
    })
}

#[inline]
fn ether_type(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?))
}

/// The IP packet after the EtherType at `at` and all VLAN tags.
#[inline]
fn tagged(frame: &[u8], mut at: usize) -> Option<&[u8]> {
    loop {
        let protocol = ether_type(frame, at)?;
        if !VLAN.contains(&protocol) {
            return untagged(protocol, frame.get(at + 2..)?);
        }
        at += 4;
    }
}

#[inline]
fn untagged(protocol: u16, packet: &[u8]) -> Option<&[u8]> {
    match protocol {
        0x0800 | 0x86dd => Some(packet),
        // PPPoE session: six bytes, then PPP's protocol.
        0x8864 => matches!(ether_type(packet, 6)?, 0x0021 | 0x0057).then(|| packet.get(8..))?,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_vlan_tags_are_skipped() {
        let mut frame = vec![0; 12];
        for tag in [0x88a8_u16, 0x8100, 0x8100] {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        frame.extend(0x0800_u16.to_be_bytes());
        frame.extend(b"ip");
        assert_eq!(Link::Ethernet.ip(&frame), Some(&b"ip"[..]));
        assert_eq!(Link::Ethernet.ip(&frame[..frame.len() - 3]), None);
    }

    #[test]
    fn cooked_versions_differ_in_the_position_of_the_protocol() {
        let mut one = vec![0; 14];
        one.extend([0x86, 0xdd, 0x60]);
        assert_eq!(Link::Cooked.ip(&one), Some(&[0x60][..]));
        let mut two = vec![0x08, 0x00];
        two.extend([0; 18]);
        two.push(0x45);
        assert_eq!(Link::Cooked2.ip(&two), Some(&[0x45][..]));
    }
}
