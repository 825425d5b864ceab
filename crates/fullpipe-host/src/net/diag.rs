//! TCP sockets by sock_diag: which controller each uses, what it knows, and what holds it back.

use super::wire::{self, Attributes, Request, text_of, u32_at, u64_at};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const NETLINK_SOCK_DIAG: u32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u32 = 1;
const INET_DIAG_INFO: u16 = 2;
/// The bit through which the kernel also answers with BBRINFO (`bbr_get_info`).
const INET_DIAG_VEGASINFO: u16 = 3;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_BBRINFO: u16 = 16;
/// `struct inet_diag_msg`.
const MESSAGE: usize = 72;

/// What BBR says about a connection (`struct tcp_bbr_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BbrState {
    /// 1, or what a later BBR states about itself (3).
    pub version: u8,
    /// Estimated bottleneck bandwidth, bytes per second.
    pub bandwidth: u64,
    /// Least round-trip time, microseconds.
    pub min_rtt_us: u32,
    /// Pacing gain, 1/256.
    pub pacing_gain: u32,
    /// Window gain, 1/256.
    pub cwnd_gain: u32,
}

/// An established TCP socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpSocket {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// Its controller.
    pub controller: String,
    /// Microseconds during which it had something to send.
    #[serde(default)]
    pub busy_us: u64,
    /// Of these, stopped by the receiver's window.
    #[serde(default)]
    pub receive_limited_us: u64,
    /// Of these, stopped by this end's send buffer.
    #[serde(default)]
    pub send_limited_us: u64,
    /// BBR's own account, if it runs BBR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bbr: Option<BbrState>,
}

impl TcpSocket {
    /// Whether both ends are on this machine.
    pub fn is_loopback(&self) -> bool {
        self.peer.ip().to_canonical().is_loopback() || self.peer.ip() == self.local.ip()
    }
}

/// The established sockets of this network namespace.
pub fn sockets() -> io::Result<Vec<TcpSocket>> {
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        let mut body = [0u8; 56];
        body[0] = family;
        body[1] = IPPROTO_TCP;
        body[2] =
            [INET_DIAG_INFO, INET_DIAG_VEGASINFO, INET_DIAG_CONG].iter().fold(0, |b, e| b | 1 << (e - 1));
        body[4..8].copy_from_slice(&(1u32 << TCP_ESTABLISHED).to_ne_bytes());
        let request = Request::new(SOCK_DIAG_BY_FAMILY, wire::NLM_F_DUMP, &body);
        let bodies = wire::exchange(NETLINK_SOCK_DIAG, request, SOCK_DIAG_BY_FAMILY)?;
        found.extend(bodies.iter().filter_map(|b| parse_socket(b)));
    }
    Ok(found)
}

/// Reads a `struct inet_diag_msg` and its attributes.
pub fn parse_socket(body: &[u8]) -> Option<TcpSocket> {
    let family = *body.first()?;
    let attributes = Attributes(body.get(MESSAGE..)?);
    let end = |port: usize, address: usize| {
        let port = u16::from_be_bytes([*body.get(port)?, *body.get(port + 1)?]);
        let ip: IpAddr = match family {
            AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(body.get(address..address + 4)?).ok()?).into(),
            AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(body.get(address..address + 16)?).ok()?).into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    };
    // struct tcp_info: tcpi_busy_time, tcpi_rwnd_limited, tcpi_sndbuf_limited (since 4.10).
    let info = attributes.get(INET_DIAG_INFO).unwrap_or_default();
    Some(TcpSocket {
        local: end(4, 8)?,
        peer: end(6, 24)?,
        controller: text_of(attributes.get(INET_DIAG_CONG).unwrap_or_default()),
        busy_us: u64_at(info, 168).unwrap_or(0),
        receive_limited_us: u64_at(info, 176).unwrap_or(0),
        send_limited_us: u64_at(info, 184).unwrap_or(0),
        bbr: attributes.get(INET_DIAG_BBRINFO).and_then(parse_bbr),
    })
}

fn parse_bbr(info: &[u8]) -> Option<BbrState> {
    // v1's structure has 20 bytes; v3's goes on and keeps its version in a byte at 39.
    let version = info.get(39).copied().filter(|&v| v != 0).unwrap_or(1);
    Some(BbrState {
        version,
        bandwidth: u64::from(u32_at(info, 0)?) | u64::from(u32_at(info, 4)?) << 32,
        min_rtt_us: u32_at(info, 8)?,
        pacing_gain: u32_at(info, 12)?,
        cwnd_gain: u32_at(info, 16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_length_of_bbrs_account_tells_its_version() {
        let mut v3 = vec![0u8; 52];
        v3[0] = 7;
        v3[39] = 3;
        assert_eq!(parse_bbr(&v3).map(|b| (b.version, b.bandwidth)), Some((3, 7)));
        assert_eq!(parse_bbr(&v3[..20]).map(|b| b.version), Some(1));
        assert_eq!(parse_bbr(&v3[..19]), None);
    }

    proptest! {
        #[test]
        fn no_message_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse_socket(&bytes);
        }
    }
}
