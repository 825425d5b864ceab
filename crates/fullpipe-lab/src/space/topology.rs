//! Two ends, and between them only the emulator.
//!
//! ```text
//! client namespace        emulator's namespace        server namespace
//!   path0 ───────── veth ── toclient   toserver ── veth ───────── path0
//!   198.18.0.1              (no addresses: AF_PACKET)             198.18.0.2
//!   2001:2::1                                                     2001:2::2
//! ```
//! The addresses are those set aside for benchmarks (RFC 2544, RFC 5180). Hardware addresses are fixed and
//! known to both ends, so no ARP or neighbour discovery crosses the path.
//!
//! A shell in a shell has no server's end of its own: its emulator sends on what is `path0` for the client of the
//! shell around it ([`Outer`](super::Outer)), and its client has the next address, 198.18.1.1.

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

/// Number of the client among the ends.
pub(crate) const CLIENT: usize = 0;
/// Number of the server.
pub(crate) const SERVER: usize = 1;

const NEAR: [&str; 2] = ["toclient", "toserver"];
const MAC: [[u8; 6]; 2] = [[2, b'f', b'p', 0, 0, 1], [2, b'f', b'p', 0, 0, 2]];

/// How many addresses an end may have: one for every combination of initial window and
/// ECN that the flows use, because the kernel keeps those per route.
pub(super) const MOST_ADDRESSES: usize = 16;

/// The limit of receive buffers that Linux ships with since 6.16 (`tcp_rmem[2]`).
const SHIPPED_BUFFER: u64 = 32 << 20;

/// The name of an end's interface.
pub(super) const PATH: &str = "path0";

/// What a topology is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Flows of a scenario, which use several addresses.
    Scenario,
    /// Programs: an end has one address, so that any program answers from the one it was asked at. The client's has
    /// this number, which is 0 outside of other shells; inside, the server is the outermost one's.
    Shell(usize),
}

/// One end's addresses, and those that it knows of the other.
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
        let scenario = |end| EndAddresses {
            end,
            own: 0..MOST_ADDRESSES,
            others: 0..MOST_ADDRESSES,
            prefixes: (24, 112),
        };
        match self {
            Use::Scenario => vec![scenario(CLIENT), scenario(SERVER)],
            Use::Shell(0) => vec![one(CLIENT, 0, 0..1), one(SERVER, 0, 0..MOST_ADDRESSES)],
            Use::Shell(place) => vec![one(CLIENT, place, 0..1)],
        }
    }
}

/// The addresses of the ends.
pub(crate) struct Addresses;

impl Addresses {
    /// The IPv4 address of end `end`; the one with this number, of [`MOST_ADDRESSES`].
    pub(crate) const fn v4(end: usize, number: usize) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, number as u8, end as u8 + 1)
    }

    /// The IPv6 address of end `end`; the one with this number, of [`MOST_ADDRESSES`].
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
    /// Settings that could not be made.
    pub(crate) refused: Vec<String>,
}

impl Topology {
    /// Builds what `what_for` takes, with packets of up to `mtu` bytes.
    pub(crate) fn build(mtu: u32, what_for: Use) -> Result<Self, LabError> {
        let fail = |what: &'static str| move |e: io::Error| LabError::failed(what, e);
        let mut netlink = Rtnetlink::open().map_err(fail("cannot open a netlink socket"))?;
        let new_end =
            || End::new().map_err(|e| LabError::Impossible(format!("cannot make a network namespace ({e})")));
        let addresses = what_for.addresses();
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

    /// What the emulator is to stand between: our ends, or our client and what lies `beyond`. The caller's thread
    /// must be in the emulator's namespace.
    pub(crate) fn attach(&self, beyond: Option<Attachment>) -> Result<[Attachment; 2], LabError> {
        let client = Attachment::here(self.near[CLIENT])?;
        Ok([client, beyond.map_or_else(|| Attachment::here(self.near[SERVER]), Ok)?])
    }

    /// Makes connections from end `end` to the other end's address with this number start with
    /// `initial_window` packets, and ask for ECN if `ecn`.
    pub(crate) fn set_route(
        &self,
        end: usize,
        number: usize,
        initial_window: u32,
        ecn: bool,
    ) -> Result<(), LabError> {
        if number >= MOST_ADDRESSES {
            return Err(LabError::Input(format!(
                "the lab knows at most {MOST_ADDRESSES} combinations of initial window and ECN in one scenario"
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

    /// Bounds the buffers of all sockets as the flows ask for it: by the namespace's limits, up to which
    /// windows tune themselves, where the largest is asked for; by the socket's own where less is.
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
                    "some flows of one direction have `auto_tuning` and others have not: the kernel knows it for all of an end's at once"
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
            // Without a limit of the scenario's the window must not hold a sender back while it tunes itself, either. Nor may it
            // begin with all there is: as long as a window grows, `tcp_grow_window()` has each packet acknowledged by itself, and
            // the receiver of a gigabyte would do so to the end.
            let mut asked = receivers().map(|c| c.spec.first_receive_buffer);
            let first_asked = asked.next().flatten();
            if asked.any(|other| other != first_asked) {
                return Err(LabError::Input(
                    "flows of one direction differ in `first_receive_buffer`: the kernel knows it for all of an end's at once".to_owned(),
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

    /// Sets `net.<name>` (with slashes) of an end's namespace, or notes that it is refused.
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

    /// Has an end's kernel hold nothing back to make larger bursts of it (`tcp_tso_should_defer`), where its flows ask for that.
    pub(crate) fn never_defer(&mut self, connections: &[Connection]) -> Result<(), LabError> {
        for end in [CLIENT, SERVER] {
            let mut asked =
                connections.iter().filter(|c| c.sending_end() == end).map(|c| c.spec.tso == Some(false));
            let Some(first) = asked.next() else { continue };
            if asked.any(|other| other != first) {
                return Err(LabError::Input(
                    "some flows of one direction have `tso = false` and others have not: the kernel knows it for all of an end's at once"
                        .to_owned(),
                ));
            }
            if first {
                // Any part of the window is enough then: a hundredth.
                self.set(end, "ipv4/tcp_tso_win_divisor", "100")?;
            }
        }
        Ok(())
    }

    /// Packets that either end's kernel threw away because their checksum was wrong.
    pub(crate) fn checksum_errors(&self) -> u64 {
        let errors = |end: &End| {
            end.inside(|| {
                let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
                Ok(count_checksum_errors(&text))
            })
        };
        self.ends.iter().map(|end| errors(end).unwrap_or_default()).sum()
    }

    /// The path is gone: sockets that their programs left with something unsent give up at their next
    /// retransmission. By default they would keep trying, and with them their namespaces, for minutes.
    pub(crate) fn forsake(&self) -> Result<(), LabError> {
        self.ends.iter().try_for_each(|end| {
            end.inside(|| {
                Sysctls::default().set("ipv4/tcp_orphan_retries", "1");
                Ok(())
            })
        })
    }

    /// Packets that the emulator's interfaces dropped: none of the path's doing.
    pub(crate) fn dropped_by_interfaces(&mut self) -> u64 {
        self.near.iter().map(|&i| self.netlink.link(i).unwrap_or_default().dropped).sum()
    }
}

/// Sets up one end; runs inside it. Gives the settings that were refused.
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
    // What is for a shell inside this one passes by the kernel.
    sysctl.set("ipv4/ip_forward", "0");
    if ipv6 {
        sysctl.set("ipv6/conf/all/forwarding", "0");
    }
    // A connection must not start with what an earlier one learned of the path.
    sysctl.set("ipv4/tcp_no_metrics_save", "1");
    // Buffers must not be what limits a flow on a long, fast path, unless the scenario says so.
    let most = max_buffer();
    sysctl.set("ipv4/tcp_rmem", &format!("4096 131072 {most}"));
    sysctl.set("ipv4/tcp_wmem", &format!("4096 65536 {most}"));
    let gid = nix::unistd::getegid();
    sysctl.set("ipv4/ping_group_range", &format!("{gid} {gid}"));
    Ok(sysctl.refused)
}

/// What a receive buffer begins with that shall not limit: from there it outgrows a slow start that doubles, as all but Hybla's do.
pub const INITIAL_BUFFER: u64 = 1 << 20;

/// The most a TCP buffer may grow to: an eighth of the machine's memory, at least what Linux ships with
/// and at most the kernel's own bound on windows (1 GiB).
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
