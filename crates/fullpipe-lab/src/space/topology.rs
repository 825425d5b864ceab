//! The topology: two ends with the emulator between them.
//!
//! ```text
//! client namespace        emulator's namespace        server namespace
//!   path0 ───────── veth ── toclient   toserver ── veth ───────── path0
//!   198.18.0.1              (no addresses: AF_PACKET)             198.18.0.2
//!   2001:2::1                                                     2001:2::2
//! ```
//! The addresses are those reserved for benchmarks (RFC 2544, RFC 5180). Hardware addresses are
//! fixed and known to both ends, so no ARP or neighbour discovery crosses the path.
//!
//! A shell in a shell has no server's end of its own: its emulator sends on `path0` of the outer
//! shell's client ([`Outer`](super::Outer)), and its client has the next address, 198.18.1.1.

use super::end::End;
use super::sysctl::Sysctls;
use crate::LabError;
use crate::emulator::Attachment;
use crate::flow::Connection;
use fullpipe_kernel::rtnetlink::{NewInterface, Rtnetlink};
use nix::errno::Errno;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// Index of the client's end.
pub(crate) const CLIENT: usize = 0;
/// Index of the server's end.
pub(crate) const SERVER: usize = 1;

const NEAR: [&str; 2] = ["toclient", "toserver"];
const MAC: [[u8; 6]; 2] = [[2, b'f', b'p', 0, 0, 1], [2, b'f', b'p', 0, 0, 2]];

/// Most addresses of an end: one for every combination of initial window and ECN that the flows
/// use, because the kernel keeps those per route.
pub(super) const MAX_ADDRESSES: usize = 16;

/// Linux's default limit of receive buffers since 6.16 (`tcp_rmem[2]`).
const SHIPPED_BUFFER: u64 = 32 << 20;

/// Name of an end's interface.
pub(super) const PATH: &str = "path0";

/// The purpose of a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Flows of a scenario, which use several addresses.
    Scenario,
    /// Programs: each end has one address, so that programs reply from the address that was
    /// contacted. The client's has this number, which is 0 in the outermost shell; inside, the
    /// server is the outermost one's.
    Shell(usize),
}

/// One end's addresses, and its peers'.
struct EndAddresses {
    end: usize,
    own: Range<usize>,
    others: Range<usize>,
    /// Prefix lengths of its networks, IPv4 and IPv6.
    prefixes: (u8, u8),
}

impl Use {
    fn addresses(self) -> Vec<EndAddresses> {
        let one =
            |end, own: usize, others| EndAddresses { end, own: own..own + 1, others, prefixes: (16, 96) };
        let scenario =
            |end| EndAddresses { end, own: 0..MAX_ADDRESSES, others: 0..MAX_ADDRESSES, prefixes: (24, 112) };
        match self {
            Use::Scenario => vec![scenario(CLIENT), scenario(SERVER)],
            Use::Shell(0) => vec![one(CLIENT, 0, 0..1), one(SERVER, 0, 0..MAX_ADDRESSES)],
            Use::Shell(place) => vec![one(CLIENT, place, 0..1)],
        }
    }
}

/// The addresses of the ends.
pub(crate) struct Addresses;

impl Addresses {
    /// The IPv4 address of end `end`; the one with this number, of [`MAX_ADDRESSES`].
    pub(crate) const fn v4(end: usize, number: usize) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, number as u8, end as u8 + 1)
    }

    /// The IPv6 address of end `end`; the one with this number, of [`MAX_ADDRESSES`].
    pub(crate) const fn v6(end: usize, number: usize) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, number as u16, end as u16 + 1)
    }
}

/// The namespaces and interfaces of a lab. The caller's thread must be in the emulator's namespace.
pub(crate) struct Topology {
    /// The client and the server; the client only, where the server is an outer lab's.
    pub(crate) ends: Vec<End>,
    /// Numbers of the emulator's interfaces towards them.
    near: Vec<u32>,
    netlink: Rtnetlink,
    /// Whether the kernel has IPv6 and the MTU allows it.
    pub(crate) ipv6: bool,
    /// Settings that could not be changed.
    pub(crate) refused: Vec<String>,
}

impl Topology {
    /// Builds the topology for a purpose, with packets of up to `mtu` bytes.
    pub(crate) fn build(mtu: u32, purpose: Use) -> Result<Self, LabError> {
        let fail = |what: &'static str| move |e: io::Error| LabError::failed(what, e);
        let mut netlink = Rtnetlink::open().map_err(fail("cannot open a netlink socket"))?;
        let new_end =
            || End::new().map_err(|e| LabError::Impossible(format!("cannot make a network namespace ({e})")));
        let addresses = purpose.addresses();
        let ends = addresses.iter().map(|_| new_end()).collect::<Result<Vec<End>, LabError>>()?;
        let mut near = Vec::new();
        let mut ipv6 = mtu >= 1280;
        for (i, end) in ends.iter().enumerate() {
            let here = NewInterface { name: NEAR[i], mac: [2, b'f', b'p', 1, 0, i as u8], namespace: None };
            let there = NewInterface { name: PATH, mac: MAC[i], namespace: Some(end.as_fd()) };
            netlink.add_veth(&here, &there, mtu).map_err(|e| match e.raw_os_error() {
                Some(code) if code == Errno::EOPNOTSUPP as i32 => LabError::Impossible(
                    "the kernel has no veth interfaces: as root, `modprobe veth` \
                     (CONFIG_VETH; in Debian's cloud kernels it is in the package linux-image-amd64)"
                        .to_owned(),
                ),
                _ => LabError::failed("cannot make a veth pair", e),
            })?;
            let index = netlink.index(NEAR[i]).map_err(fail("a new interface is not there"))?;
            ipv6 &= netlink.disable_ipv6_autoconf(index).is_ok();
            netlink.up(index).map_err(fail("cannot switch an interface on"))?;
            near.push(index);
        }
        let mut refused = Vec::new();
        for (end, addresses) in ends.iter().zip(&addresses) {
            refused.append(&mut end.inside(|| configure(addresses, ipv6))?);
        }
        refused.sort();
        refused.dedup();
        Ok(Topology { ends, near, netlink, ipv6, refused })
    }

    /// Attaches the emulator to its two sides: both ends, or the client and `beyond`. The caller's
    /// thread must be in the emulator's namespace.
    pub(crate) fn attach(&self, beyond: Option<Attachment>) -> Result<[Attachment; 2], LabError> {
        let client = Attachment::here(self.near[CLIENT])?;
        Ok([client, beyond.map_or_else(|| Attachment::here(self.near[SERVER]), Ok)?])
    }

    /// Sets the initial window, in packets, and ECN of connections from end `end` to the other
    /// end's address with this number.
    pub(crate) fn set_route(
        &self,
        end: usize,
        number: usize,
        initial_window: u32,
        ecn: bool,
    ) -> Result<(), LabError> {
        if number >= MAX_ADDRESSES {
            return Err(LabError::Input(format!(
                "the lab knows at most {MAX_ADDRESSES} combinations of initial window and ECN in one scenario"
            )));
        }
        self.ends[end].inside(|| {
            let what = "cannot set the initial window of a route";
            let mut netlink = Rtnetlink::open().map_err(|e| LabError::failed(what, e))?;
            let index = netlink.index(PATH).map_err(|e| LabError::failed(what, e))?;
            let mut route = |address| netlink.add_host_route(index, address, initial_window, ecn);
            route(Addresses::v4(1 - end, number).into()).map_err(|e| LabError::failed(what, e))?;
            if self.ipv6 {
                route(Addresses::v6(1 - end, number).into()).map_err(|e| LabError::failed(what, e))?;
            }
            Ok(())
        })
    }

    /// Limits the buffers of all sockets to those of the flows: by the namespace's limits, up to
    /// which windows tune themselves, for the largest; by socket options for smaller ones.
    pub(crate) fn bound_buffers(&mut self, connections: &mut [Connection]) -> Result<(), LabError> {
        for end in [CLIENT, SERVER] {
            let most = max_buffer();
            let limit = |asked: Vec<Option<u64>>| {
                asked.into_iter().map(|b| b.unwrap_or(most)).max().unwrap_or(most).min(most)
            };
            let receivers = || connections.iter().filter(|c| c.sending_end() != end);
            let tuned = receivers().filter(|c| c.spec.auto_tuning).count();
            if tuned > 0 && tuned < receivers().count() {
                return Err(LabError::Input(
                    "some flows of one direction have `auto_tuning` and others do not: the kernel has \
                     one setting per end"
                        .to_owned(),
                ));
            }
            let shipped = (tuned > 0).then_some(SHIPPED_BUFFER);
            let receive =
                limit(receivers().map(|c| c.spec.receive_buffer.map(|b| b.0).or(shipped)).collect());
            let send = limit(
                connections
                    .iter()
                    .filter(|c| c.sending_end() == end)
                    .map(|c| c.spec.send_buffer.map(|b| b.0))
                    .collect(),
            );
            // Without a limit in the scenario, the window must not limit a sender while it tunes itself. It
            // must not start at the maximum either: while a window grows, `tcp_grow_window()`
            // makes the receiver acknowledge each packet, which the receiver of a gigabyte would
            // do to the end.
            let mut asked = receivers().map(|c| c.spec.first_receive_buffer);
            let first_asked = asked.next().flatten();
            if asked.any(|other| other != first_asked) {
                return Err(LabError::Input(
                    "flows of one direction differ in `first_receive_buffer`: the kernel has one \
                     setting per end"
                        .to_owned(),
                ));
            }
            let first = match first_asked {
                Some(first) => first.0,
                None if receive == most && tuned == 0 => INITIAL_BUFFER,
                None => 131_072,
            };
            let first = first.min(receive);
            self.set(end, "ipv4/tcp_rmem", &format!("4096 {first} {receive}"))?;
            self.set(end, "ipv4/tcp_wmem", &format!("4096 {} {send}", send.min(65_536)))?;
            for c in connections.iter_mut() {
                if c.sending_end() == end {
                    c.send_buffer = c.spec.send_buffer.map(|b| b.0).filter(|b| *b < send);
                } else {
                    c.receive_buffer = c.spec.receive_buffer.map(|b| b.0).filter(|b| *b < receive);
                }
            }
        }
        Ok(())
    }

    /// Sets `net.<name>` (with slashes) in an end's namespace, or records that it was refused.
    fn set(&mut self, end: usize, name: &str, value: &str) -> Result<(), LabError> {
        let mut refused = self.ends[end].inside(|| {
            let mut sysctl = Sysctls::default();
            sysctl.set(name, value);
            Ok(sysctl.refused)
        })?;
        self.refused.append(&mut refused);
        self.refused.sort();
        self.refused.dedup();
        Ok(())
    }

    /// Stops an end's kernel from deferring data for larger bursts (`tcp_tso_should_defer`), if its
    /// flows ask for that.
    pub(crate) fn never_defer(&mut self, connections: &[Connection]) -> Result<(), LabError> {
        for end in [CLIENT, SERVER] {
            let mut asked =
                connections.iter().filter(|c| c.sending_end() == end).map(|c| c.spec.tso == Some(false));
            let Some(first) = asked.next() else { continue };
            if asked.any(|other| other != first) {
                return Err(LabError::Input(
                    "some flows of one direction have `tso = false` and others do not: the kernel has \
                     one setting per end"
                        .to_owned(),
                ));
            }
            if first {
                // Then a hundredth of the window is enough to send.
                self.set(end, "ipv4/tcp_tso_win_divisor", "100")?;
            }
        }
        Ok(())
    }

    /// Packets that either end's kernel dropped because of a wrong checksum.
    pub(crate) fn checksum_errors(&self) -> u64 {
        let errors = |end: &End| {
            end.inside(|| {
                let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
                Ok(count_checksum_errors(&text))
            })
        };
        self.ends.iter().map(|end| errors(end).unwrap_or_default()).sum()
    }

    /// The path is gone: makes orphaned sockets with unsent data give up at their next
    /// retransmission. By default they would keep their namespaces alive for minutes.
    pub(crate) fn abandon_sockets(&self) -> Result<(), LabError> {
        self.ends.iter().try_for_each(|end| {
            end.inside(|| {
                Sysctls::default().set("ipv4/tcp_orphan_retries", "1");
                Ok(())
            })
        })
    }

    /// Packets that the emulator's interfaces dropped, outside the emulated path.
    pub(crate) fn dropped_by_interfaces(&mut self) -> u64 {
        self.near.iter().map(|&i| self.netlink.link(i).unwrap_or_default().dropped).sum()
    }
}

/// Sets up one end; runs inside it. Returns the settings that were refused.
fn configure(addresses: &EndAddresses, ipv6: bool) -> Result<Vec<String>, LabError> {
    let fail = |e: io::Error| LabError::failed("cannot set up an end of the path", e);
    let mut netlink = Rtnetlink::open().map_err(fail)?;
    let loopback = netlink.index("lo").map_err(fail)?;
    netlink.up(loopback).map_err(fail)?;
    let index = netlink.index(PATH).map_err(fail)?;
    if ipv6 {
        netlink.disable_ipv6_autoconf(index).map_err(fail)?;
    }
    netlink.up(index).map_err(fail)?;
    let EndAddresses { end, own, others, prefixes } = addresses;
    let other = 1 - end;
    for number in own.clone() {
        netlink.add_address(index, Addresses::v4(*end, number).into(), prefixes.0).map_err(fail)?;
        if ipv6 {
            netlink.add_address(index, Addresses::v6(*end, number).into(), prefixes.1).map_err(fail)?;
        }
    }
    for number in others.clone() {
        netlink.add_neighbour(index, Addresses::v4(other, number).into(), MAC[other]).map_err(fail)?;
        if ipv6 {
            netlink.add_neighbour(index, Addresses::v6(other, number).into(), MAC[other]).map_err(fail)?;
        }
    }
    let mut sysctl = Sysctls::default();
    // The kernel must ignore packets for a shell inside this one.
    sysctl.set("ipv4/ip_forward", "0");
    if ipv6 {
        sysctl.set("ipv6/conf/all/forwarding", "0");
    }
    // A connection must not start with metrics of an earlier one.
    sysctl.set("ipv4/tcp_no_metrics_save", "1");
    // Buffers must not limit a flow on a long, fast path, unless the scenario says so.
    let most = max_buffer();
    sysctl.set("ipv4/tcp_rmem", &format!("4096 131072 {most}"));
    sysctl.set("ipv4/tcp_wmem", &format!("4096 65536 {most}"));
    let gid = nix::unistd::getegid();
    sysctl.set("ipv4/ping_group_range", &format!("{gid} {gid}"));
    Ok(sysctl.refused)
}

/// Initial receive buffer that does not limit a flow: from there it outgrows any slow start that
/// doubles per round trip, as all but Hybla's do.
pub const INITIAL_BUFFER: u64 = 1 << 20;

/// Largest TCP buffer: an eighth of the machine's memory, at least Linux's default and at most the
/// kernel's bound on windows (1 GiB).
pub fn max_buffer() -> u64 {
    let memory = nix::sys::sysinfo::sysinfo().map_or(0, |s| s.ram_total());
    (memory / 8).clamp(6 << 20, 1 << 30)
}

/// The sum of all `InCsumErrors` in `/proc/net/snmp`: lines in pairs, names and values.
fn count_checksum_errors(snmp: &str) -> u64 {
    let lines: Vec<&str> = snmp.lines().collect();
    let pairs =
        lines.chunks_exact(2).flat_map(|pair| pair[0].split_whitespace().zip(pair[1].split_whitespace()));
    pairs.filter(|(name, _)| *name == "InCsumErrors").filter_map(|(_, n)| n.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_errors_of_all_protocols_count() {
        let snmp = "Tcp: InSegs InCsumErrors\nTcp: 100 2\nUdp: InCsumErrors\nUdp: 3\n";
        assert_eq!(count_checksum_errors(snmp), 5);
        assert_eq!(count_checksum_errors(""), 0);
    }
}
