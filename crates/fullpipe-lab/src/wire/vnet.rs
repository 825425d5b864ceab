//! `struct virtio_net_hdr` (`include/uapi/linux/virtio_net.h`): the kernel's description of
//! checksums that it has not computed and super-packets that it has not segmented.

use fullpipe_kernel::packets::VNET_LEN;

/// The transport checksum holds only the sum of the pseudo-header; the device that puts the packet
/// on a wire completes it (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
pub(crate) const NEEDS_CSUM: u8 = 1;

/// How a super-packet is segmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gso {
    /// Not at all: an ordinary packet.
    None,
    /// TCP segments over IPv4.
    TcpV4,
    /// TCP segments over IPv6.
    TcpV6,
    /// UDP datagrams of equal length (`UDP_SEGMENT`).
    Udp,
    /// A kind that this version does not know.
    Other(u8),
}

/// The header, in native byte order as the kernel writes it for AF_PACKET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VnetHeader {
    /// [`NEEDS_CSUM`] and others.
    pub flags: u8,
    /// How to segment the packet.
    pub gso: Gso,
    /// The first segment carries CWR, the others must not (RFC 3168).
    pub gso_ecn: bool,
    /// Ethernet, IP and transport headers together, bytes.
    pub hdr_len: u16,
    /// Payload bytes of each segment.
    pub gso_size: u16,
    /// Where the checksummed part starts.
    pub csum_start: u16,
    /// Where in that part the checksum is.
    pub csum_offset: u16,
}

const GSO_ECN: u8 = 0x80;

impl VnetHeader {
    /// Reads the header.
    pub(crate) fn decode(b: &[u8; VNET_LEN]) -> Self {
        let word = |i: usize| u16::from_ne_bytes([b[i], b[i + 1]]);
        let gso = match b[1] & !GSO_ECN {
            0 => Gso::None,
            1 => Gso::TcpV4,
            4 => Gso::TcpV6,
            5 => Gso::Udp,
            other => Gso::Other(other),
        };
        VnetHeader {
            flags: b[0],
            gso,
            gso_ecn: b[1] & GSO_ECN != 0,
            hdr_len: word(2),
            gso_size: word(4),
            csum_start: word(6),
            csum_offset: word(8),
        }
    }

    /// The header as the kernel reads it.
    pub(crate) fn encode(&self) -> [u8; VNET_LEN] {
        let gso = match self.gso {
            Gso::None => 0,
            Gso::TcpV4 => 1,
            Gso::TcpV6 => 4,
            Gso::Udp => 5,
            Gso::Other(other) => other,
        };
        let mut b = [0; VNET_LEN];
        b[0] = self.flags;
        b[1] = gso | if self.gso_ecn { GSO_ECN } else { 0 };
        b[2..4].copy_from_slice(&self.hdr_len.to_ne_bytes());
        b[4..6].copy_from_slice(&self.gso_size.to_ne_bytes());
        b[6..8].copy_from_slice(&self.csum_start.to_ne_bytes());
        b[8..10].copy_from_slice(&self.csum_offset.to_ne_bytes());
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn written_data_is_read_back(bytes in proptest::array::uniform10(any::<u8>())) {
            let header = VnetHeader::decode(&bytes);
            prop_assert_eq!(header.encode(), bytes);
        }
    }
}
