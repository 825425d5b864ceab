//! TCP sockets for the doctor: controller, BBR's state, and limits.

use fullpipe_kernel::sock_diag::{Query, SockDiag, States};
use fullpipe_kernel::tcp_info::CcInfo;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;

/// BBR's state of a connection (`struct tcp_bbr_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BbrState {
    /// 1, or the version that a later BBR reports (3).
    pub version: u8,
    /// Estimated bottleneck bandwidth, bytes per second.
    pub bandwidth: u64,
    /// Minimum round-trip time, microseconds.
    pub min_rtt_us: u32,
    /// Pacing gain, 1/256.
    pub pacing_gain: u32,
    /// Window gain, 1/256.
    pub cwnd_gain: u32,
}

/// An established TCP socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TcpSocket {
    /// Local address.
    pub local: SocketAddr,
    /// Remote address.
    pub peer: SocketAddr,
    /// Its controller.
    pub controller: String,
    /// Microseconds with data to send.
    #[serde(default)]
    pub busy_us: u64,
    /// Of these, limited by the receiver's window.
    #[serde(default)]
    pub receive_limited_us: u64,
    /// Of these, limited by the local send buffer.
    #[serde(default)]
    pub send_limited_us: u64,
    /// BBR's state, if it uses BBR.
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
///
/// # Errors
/// The kernel does not answer, or its table keeps changing.
pub fn sockets() -> io::Result<Vec<TcpSocket>> {
    let query = Query { states: States::ESTABLISHED, ..Query::default() };
    let found = SockDiag::open()?.collect(&query, |_| true)?;
    Ok(found.into_iter().map(TcpSocket::from).collect())
}

impl From<fullpipe_kernel::sock_diag::TcpSocket> for TcpSocket {
    fn from(socket: fullpipe_kernel::sock_diag::TcpSocket) -> Self {
        let us = |time: Option<fullpipe_units::Span>| time.map_or(0, |t| t.as_micros());
        let info = socket.info.as_ref();
        TcpSocket {
            local: socket.local,
            peer: socket.remote,
            controller: socket.controller.unwrap_or_default(),
            busy_us: us(info.and_then(|i| i.busy_time)),
            receive_limited_us: us(info.and_then(|i| i.rwnd_limited)),
            send_limited_us: us(info.and_then(|i| i.sndbuf_limited)),
            bbr: socket.cc_info.and_then(|info| match info {
                CcInfo::Bbr(bbr) => Some(BbrState {
                    version: bbr.version(),
                    bandwidth: bbr.bw.as_bytes_per_sec(),
                    min_rtt_us: bbr.min_rtt.as_micros() as u32,
                    pacing_gain: bbr.pacing_gain.as_256ths(),
                    cwnd_gain: bbr.cwnd_gain.as_256ths(),
                }),
                _ => None,
            }),
        }
    }
}
