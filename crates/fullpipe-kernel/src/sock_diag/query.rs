//! Queries: which sockets, and which of their attributes.

use super::SOCK_DIAG_BY_FAMILY;
use crate::netlink::Request;
use std::ops::BitOr;

/// `struct inet_diag_req_v2`.
const REQUEST: usize = 56;

/// Address family of sockets. IPv6 sockets may have IPv4 connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// Both families.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];
}

/// A set of TCP states (`TCPF_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct States(u32);

impl States {
    /// Established.
    pub const ESTABLISHED: States = States(1 << 1);
    /// Listening.
    pub const LISTENING: States = States(1 << 10);
    /// From the first SYN to the last ACK: all but listening, `TIME_WAIT` and closed, which have no
    /// counters.
    pub const CONNECTED: States = States(0xfff & !(1 << 6) & !(1 << 7) & !(1 << 10));
}

impl BitOr for States {
    type Output = States;
    fn bitor(self, other: States) -> States {
        States(self.0 | other.0)
    }
}

/// A set of attributes to return per socket (`INET_DIAG_*`). The control group ID is always
/// included if the kernel supports it (Linux 5.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extensions(u8);

impl Extensions {
    /// Addresses, state, queues and names only.
    pub const NONE: Extensions = Extensions(0);
    /// `TCP_INFO`.
    pub const INFO: Extensions = Extensions(1 << 1);
    /// The congestion controller's state (`TCP_CC_INFO`); this bit also selects those of BBR and
    /// DCTCP.
    pub const VEGASINFO: Extensions = Extensions(1 << 2);
    /// Name of the congestion controller.
    pub const CONG: Extensions = Extensions(1 << 3);
    /// Memory usage and limits.
    pub const SKMEMINFO: Extensions = Extensions(1 << 6);
    /// All of these.
    pub const ALL: Extensions = Extensions(1 << 1 | 1 << 2 | 1 << 3 | 1 << 6);
}

impl BitOr for Extensions {
    type Output = Extensions;
    fn bitor(self, other: Extensions) -> Extensions {
        Extensions(self.0 | other.0)
    }
}

/// A query for the sockets of one network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// TCP states.
    pub states: States,
    /// Attributes to return.
    pub extensions: Extensions,
    /// Local port, if restricted.
    pub local_port: Option<u16>,
    /// Remote port, if restricted.
    pub remote_port: Option<u16>,
}

impl Default for Query {
    /// All attributes of all connected sockets.
    fn default() -> Self {
        Query { states: States::CONNECTED, extensions: Extensions::ALL, local_port: None, remote_port: None }
    }
}

impl Query {
    pub(super) fn request(&self, family: Family) -> Request {
        let mut body = [0; REQUEST];
        body[0] = (if family == Family::V4 { libc::AF_INET } else { libc::AF_INET6 }) as u8;
        body[1] = libc::IPPROTO_TCP as u8;
        body[2] = self.extensions.0;
        body[4..8].copy_from_slice(&self.states.0.to_ne_bytes());
        // struct inet_diag_sockid: a port of zero is any.
        body[8..10].copy_from_slice(&self.local_port.unwrap_or(0).to_be_bytes());
        body[10..12].copy_from_slice(&self.remote_port.unwrap_or(0).to_be_bytes());
        Request::new(SOCK_DIAG_BY_FAMILY, 0, &body)
    }
}
