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
            _ => return None,
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
        }
    }
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
