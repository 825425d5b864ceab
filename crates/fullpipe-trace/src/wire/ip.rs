//! IP headers outside the fast path: tunnels and fragments.

use super::data::Data;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of IPv6 extension headers.
const MAX_EXTENSIONS: usize = 16;

/// An IP packet up to its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct IpPacket<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// The payload, without trailing bytes of the link.
    pub payload: Data<'a>,
    pub fragment: Option<Fragment>,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub ttl: u8,
}

/// What a packet's header says about its fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fragment {
    pub identification: u32,
    /// Bytes before it.
    pub offset: u32,
    /// Whether there are more after it.
    pub more: bool,
}

impl<'a> IpPacket<'a> {
    /// `None` if the header is truncated or malformed.
    pub fn parse(packet: Data<'a>) -> Option<Self> {
        match packet.bytes.first()? >> 4 {
            4 => Self::v4(packet),
            6 => Self::v6(packet),
            _ => None,
        }
    }

    fn v4(packet: Data<'a>) -> Option<Self> {
        let header: &[u8; 20] = packet.bytes.first_chunk()?;
        let header_length = usize::from(header[0] & 0xf) * 4;
        // Length 0: segmentation offload fills it in later.
        let total = match usize::from(packet.half(2)?) {
            0 => packet.length,
            total => total,
        };
        if header_length < 20 || total < header_length {
            return None;
        }
        let word = packet.half(6)?;
        let (more, offset) = (word & 0x2000 != 0, u32::from(word & 0x1fff) * 8);
        let fragment = (more || offset > 0).then_some(Fragment {
            identification: u32::from(packet.half(4)?),
            offset,
            more,
        });
        let address = |at: usize| header[at..].first_chunk().map(|a| Ipv4Addr::from(*a).into());
        Some(IpPacket {
            source: address(12)?,
            destination: address(16)?,
            protocol: header[9],
            payload: packet.first(total).skip(header_length)?,
            fragment,
            traffic_class: header[1],
            ttl: header[8],
        })
    }

    fn v6(packet: Data<'a>) -> Option<Self> {
        let header: &[u8; 40] = packet.bytes.first_chunk()?;
        let mut payload = match usize::from(packet.half(4)?) {
            0 => packet,
            length => packet.first(40 + length),
        }
        .skip(40)?;
        let mut protocol = header[6];
        let mut fragment = None;
        for _ in 0..MAX_EXTENSIONS {
            let skipped = match protocol {
                // Hop by hop, routing, destination, mobility, HIP and shim6.
                0 | 43 | 60 | 135 | 139 | 140 => 8 * (1 + usize::from(payload.byte(1)?)),
                44 => {
                    let word = payload.half(2)?;
                    let (more, offset) = (word & 1 != 0, u32::from(word & 0xfff8));
                    if more || offset > 0 {
                        fragment = Some(Fragment { identification: payload.word(4)?, offset, more });
                    }
                    8
                }
                _ => break,
            };
            protocol = payload.byte(0)?;
            payload = payload.skip(skipped)?;
            // What follows is a part of the packet.
            if fragment.is_some() {
                break;
            }
        }
        let address = |at: usize| header[at..].first_chunk().map(|a| Ipv6Addr::from(*a).into());
        Some(IpPacket {
            source: address(8)?,
            destination: address(24)?,
            protocol,
            payload,
            fragment,
            traffic_class: (packet.half(0)? >> 4 & 0xff) as u8,
            ttl: header[7],
        })
    }
}
