//! Which sockets, and what of them.

use super::SOCK_DIAG_BY_FAMILY;
use crate::netlink::Request;
use std::ops::BitOr;

/// `struct inet_diag_req_v2`.
const REQUEST: usize = 56;

/// Whether sockets speak IPv4 or IPv6. IPv6's may have connections of IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// One after the other is all.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];
}

/// States of connections (`TCPF_*`), as a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct States(u32);

impl States {
    /// Established.
    pub const ESTABLISHED: States = States(1 << 1);
    /// Waiting for connections.
    pub const LISTENING: States = States(1 << 10);
    /// From the first SYN to the last ACK: all but listening, `TIME_WAIT` and closed, which have no figures.
    pub const CONNECTED: States = States(0xfff & !(1 << 6) & !(1 << 7) & !(1 << 10));
}

impl BitOr for States {
    type Output = States;
    fn bitor(self, other: States) -> States {
        States(self.0 | other.0)
    }
}

/// What the kernel is to tell of each socket (`INET_DIAG_*`), as a set. The id of its control group it tells always,
/// if it was built to know (since Linux 5.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extensions(u8);

impl Extensions {
    /// Addresses, state, queues and names only.
    pub const NONE: Extensions = Extensions(0);
    /// `TCP_INFO`.
    pub const INFO: Extensions = Extensions(1 << 1);
    /// What its controller believes (`TCP_CC_INFO`): under this bit BBR and DCTCP answer too.
    pub const VEGASINFO: Extensions = Extensions(1 << 2);
    /// Its controller's name.
    pub const CONG: Extensions = Extensions(1 << 3);
    /// Its memory and the limits of it.
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

/// A question about the sockets of one network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query {
    /// In which states.
    pub states: States,
    /// What of them.
    pub extensions: Extensions,
    /// Only with this port at their own end.
    pub local_port: Option<u16>,
    /// Only with this port at the other end.
    pub remote_port: Option<u16>,
}

impl Default for Query {
    /// Everything of whatever is connected.
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
