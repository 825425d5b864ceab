//! Parses an IP packet as a TCP segment.

use super::options::{Sack, TcpOptions};
use crate::input::Frame;
use etherparse::{IpNumber, LaxIpSlice};
use fullpipe_units::Time;
use std::net::SocketAddr;

/// The ECN field of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Not-ECT.
    #[default]
    NotCapable,
    /// ECT(0) or ECT(1).
    Capable,
    /// CE: congestion experienced.
    Marked,
}

/// TCP flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Synchronise.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
    /// Congestion echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;

    /// Whether `flag` is set.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// What distinguishes a packet from its retransmission, and is the same in a second capture of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// IPv4 identification. 0: none, as in IPv6 and atomic datagrams (RFC 6864 §4.1).
    pub id: u16,
    /// TTL or hop limit, which each router decreases.
    pub ttl: u8,
}

/// A TCP segment, or several merged by an offload.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Segment {
    /// When it was captured, since 1970.
    pub at: Time,
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// Sequence number of the first byte.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Flags.
    pub flags: Flags,
    /// Window field, not scaled.
    pub window: u16,
    /// Payload bytes according to the IP header; the capture may have fewer.
    pub payload: u32,
    /// Bytes of the IP and TCP headers.
    pub headers: u16,
    /// Options, as far as captured.
    pub options: TcpOptions,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// Identification and TTL of the IP header.
    pub identity: Identity,
}

/// Why a frame was skipped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SkipReason {
    /// Another protocol.
    NotTcp,
    /// A fragment: a [`Decapsulator`](super::Decapsulator) waits for the others.
    Fragment,
    /// Truncated or malformed.
    Short,
}

/// Longest packet: twice as much as Linux's offloads merge (`GSO_MAX_SIZE`). A packet without a
/// length in its header has that of the capture, which can be any number.
const MAX_PACKET_BYTES: usize = 1 << 20;

impl Segment {
    /// Parses the segment in `frame`.
    ///
    /// # Errors
    /// The frame has no TCP segment.
    #[inline]
    pub fn parse(frame: &Frame<'_>) -> Result<Self, SkipReason> {
        let packet = frame.link.ip(frame.bytes).ok_or(SkipReason::NotTcp)?;
        let before = frame.bytes.len() - packet.len();
        let on_link = (frame.length as usize).saturating_sub(before);
        let (ip, _) = LaxIpSlice::from_slice(packet).map_err(|_| SkipReason::Short)?;
        let payload = ip.payload();
        if payload.ip_number != IpNumber::TCP {
            return Err(SkipReason::NotTcp);
        }
        if ip.is_fragmenting_payload() {
            return Err(SkipReason::Fragment);
        }
        let tcp = payload.payload;
        let ip_headers = tcp.as_ptr().addr().saturating_sub(packet.as_ptr().addr());
        let (ip_length, bits) = match &ip {
            LaxIpSlice::Ipv4(v4) => (usize::from(v4.header().total_len()), v4.header().ecn().value()),
            LaxIpSlice::Ipv6(v6) => {
                let length = usize::from(v6.header().payload_length());
                (if length == 0 { 0 } else { length + 40 }, packet[1] >> 4 & 3)
            }
        };
        // Length 0: segmentation offload fills it in later, or the packet is a jumbogram.
        let total = if ip_length == 0 { on_link } else { ip_length };
        let fixed: &[u8; 20] = tcp.first_chunk().ok_or(SkipReason::Short)?;
        let tcp_header = usize::from(fixed[12] >> 4) * 4;
        let headers = ip_headers + tcp_header;
        if tcp_header < 20 || total < headers || total > MAX_PACKET_BYTES {
            return Err(SkipReason::Short);
        }
        let port = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let identity = match &ip {
            LaxIpSlice::Ipv4(v4) => Identity { id: v4.header().identification(), ttl: v4.header().ttl() },
            LaxIpSlice::Ipv6(v6) => Identity { id: 0, ttl: v6.header().hop_limit() },
        };
        // Built in place: copying an enum of both address types stalls the processor.
        let (from, to): (SocketAddr, SocketAddr) = match &ip {
            LaxIpSlice::Ipv4(v4) => {
                let header = v4.header();
                ((header.source_addr(), port(0)).into(), (header.destination_addr(), port(2)).into())
            }
            LaxIpSlice::Ipv6(v6) => {
                let header = v6.header();
                ((header.source_addr(), port(0)).into(), (header.destination_addr(), port(2)).into())
            }
        };
        Ok(Segment {
            at: frame.at,
            from,
            to,
            seq: word(4),
            ack: word(8),
            flags: Flags(fixed[13]),
            window: port(14),
            payload: (total - headers) as u32,
            headers: headers.min(usize::from(u16::MAX)) as u16,
            options: TcpOptions::parse(&tcp[20..tcp_header.min(tcp.len())]),
            ecn: match bits {
                0 => Ecn::NotCapable,
                3 => Ecn::Marked,
                _ => Ecn::Capable,
            },
            identity,
        })
    }

    /// SACK blocks.
    #[inline]
    pub fn sack(&self) -> &Sack {
        &self.options.sack
    }
}
