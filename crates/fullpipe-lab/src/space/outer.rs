//! The shell around this one, if there is one: this shell's path then extends its path.

use super::topology::{Addresses, CLIENT, MAX_ADDRESSES, PATH};
use crate::LabError;
use crate::emulator::Attachment;
use fullpipe_kernel::packets::filter::{Instruction, jump_unless, op, statement};
use fullpipe_kernel::rtnetlink::Rtnetlink;
use nix::ifaddrs::getifaddrs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The client's end of an outer lab, in which this process runs.
pub(crate) struct Outer {
    /// The number of this shell's client address.
    pub(crate) place: usize,
    /// The attachment of this shell's emulator in the server's direction.
    pub(crate) attachment: Attachment,
    /// While this is open, no other shell can extend the same path.
    pub(crate) claim: UnixDatagram,
}

impl Outer {
    /// The client's end that the calling thread is in, for packets of up to `mtu` bytes; `None`
    /// outside of labs and at a server's end.
    ///
    /// # Errors
    /// The path cannot be extended: another shell extends it already, its MTU differs, or the
    /// nesting is too deep.
    pub(crate) fn here(mtu: u32) -> Result<Option<Self>, LabError> {
        let fail = |e: io::Error| LabError::failed("cannot inspect the outer shell", e);
        let Some(depth) = depth().map_err(fail)? else { return Ok(None) };
        let mut netlink = Rtnetlink::open().map_err(fail)?;
        let index = netlink.index(PATH).map_err(fail)?;
        let theirs = netlink.link(index).map_err(fail)?.mtu;
        if mtu != theirs {
            return Err(LabError::Input(format!(
                "the outer shell has packets of up to {theirs} bytes, this one of {mtu}: --mtu {theirs} \
                 (`mtu` in a scenario), or a --server and so a path of its own"
            )));
        }
        if std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").is_ok_and(|text| text.trim() == "1") {
            return Err(LabError::Impossible(
                "the network of the shell around this one forwards packets and would answer ours \
                 (net.ipv4.ip_forward=1, because /proc/sys is read-only here): give this one a --server \
                 and so a path of its own"
                    .to_owned(),
            ));
        }
        let place = depth + 1;
        if place >= MAX_ADDRESSES {
            return Err(LabError::Input(format!(
                "shells nest to a depth of {MAX_ADDRESSES}: put the delays and losses of several into \
                 one, or give this one a --server and so a path of its own"
            )));
        }
        let name = SocketAddr::from_abstract_name("fullpipe-lab-prolongs").map_err(fail)?;
        let claim = UnixDatagram::bind_addr(&name).map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => LabError::Input(
                "another shell extends the outer shell's path already: nest one in the other, or give \
                 this one a --server and so a path of its own"
                    .to_owned(),
            ),
            _ => fail(e),
        })?;
        let attachment = Attachment::here(index)?;
        attachment.filter(&not_for(depth))?;
        Ok(Some(Outer { place, attachment, claim }))
    }
}

/// The number of this network namespace's client address, if it is a client's end.
fn depth() -> io::Result<Option<usize>> {
    let addresses = getifaddrs()?.filter(|a| a.interface_name == PATH).filter_map(|a| a.address);
    let mut own = addresses.filter_map(|a| a.as_sockaddr_in().map(|a| a.ip()));
    Ok(own.find_map(|own| (0..MAX_ADDRESSES).find(|&number| own == Addresses::v4(CLIENT, number))))
}

/// A filter for IPv4 and IPv6 packets that are not for the client with this number: those are for
/// this shell, or one inside it.
fn not_for(client: usize) -> [Instruction; 9] {
    let half = |at| statement(op::LOAD_HALF, at);
    let byte = |at| statement(op::LOAD_BYTE, at);
    let unless_equal = |k, skip| jump_unless(op::IS_EQUAL, k, skip);
    let go_on = |skip| statement(op::JUMP, skip);
    let give = |k| statement(op::RETURN, k);
    // The EtherTypes of both.
    let (ipv4, ipv6) = (0x0800, 0x86dd);
    // `Addresses` puts the number into the third byte of IPv4 addresses and the seventh 16-bit group of
    // IPv6 ones.
    let (ethernet, v4, v6) = (14, 16 + 2, 24 + 12);
    [
        half(12),
        unless_equal(ipv4, 2),
        byte(ethernet + v4),
        go_on(2),
        unless_equal(ipv6, 2),
        half(ethernet + v6),
        unless_equal(client as u32, 1),
        give(0),
        give(u32::MAX),
    ]
}
