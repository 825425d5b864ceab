//! A packet socket, before and under its ring.

use super::filter::Instruction;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SetSockOpt, SockFlag, SockType, SockaddrLike, bind, getsockopt, setsockopt,
    socket,
};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Options of packet sockets (packet(7)), which nix has not got.
pub(super) mod option {
    use super::*;

    sockopt_impl!(
        /// The program that says what is kept.
        Filter,
        SetOnly,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        libc::sock_fprog
    );
    sockopt_impl!(
        /// How the ring is laid out, of `tpacket_versions`.
        Version,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_VERSION,
        libc::c_int
    );
    sockopt_impl!(
        /// A ring of frames (`TPACKET_V2`).
        Frames,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_RX_RING,
        libc::tpacket_req
    );
    sockopt_impl!(
        /// A ring of blocks (`TPACKET_V3`).
        Blocks,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_RX_RING,
        libc::tpacket_req3
    );
    sockopt_impl!(
        /// A virtio header goes before each frame.
        VnetHeader,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_VNET_HDR,
        bool
    );
    sockopt_impl!(
        /// What is sent is not received.
        IgnoreOutgoing,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_IGNORE_OUTGOING,
        bool
    );
    sockopt_impl!(
        /// What is sent waits in no queueing discipline.
        QdiscBypass,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_QDISC_BYPASS,
        bool
    );
    // Of `TPACKET_V3` there would be a third number, which the kernel leaves out of a shorter structure.
    sockopt_impl!(
        /// What came and what did not fit, since it was asked for last.
        Statistics,
        GetOnly,
        libc::SOL_PACKET,
        libc::PACKET_STATISTICS,
        libc::tpacket_stats
    );
}

/// What passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounts {
    /// Packets that the filter program kept.
    pub packets: u64,
    /// Of these, dropped because the ring was full: they were seen by nobody.
    pub dropped: u64,
}

/// A packet socket that receives nothing yet. It belongs to the network namespace in which it was opened, whoever uses it
/// afterwards.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// One for whole frames, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` where the kernel has no packet sockets.
    pub fn raw() -> io::Result<Self> {
        PacketSocket::open(SockType::Raw)
    }

    /// One for packets from their network header on, so that every kind of interface looks alike.
    pub(super) fn cooked() -> io::Result<Self> {
        PacketSocket::open(SockType::Datagram)
    }

    /// Without a protocol: nothing is received before the filter is there and the ring is.
    fn open(kind: SockType) -> io::Result<Self> {
        Ok(PacketSocket(socket(AddressFamily::Packet, kind, SockFlag::SOCK_CLOEXEC, None)?))
    }

    /// Keeps of each packet what `program` says.
    ///
    /// # Errors
    /// `EINVAL` for what is no program.
    pub fn filter(&self, program: &[Instruction]) -> io::Result<()> {
        let mut code: Vec<libc::sock_filter> = program
            .iter()
            .map(|i| libc::sock_filter { code: i.code, jt: i.if_true, jf: i.if_false, k: i.k })
            .collect();
        self.set(option::Filter, &libc::sock_fprog { len: code.len() as u16, filter: code.as_mut_ptr() })
    }

    pub(super) fn set<O: SetSockOpt>(&self, option: O, value: &O::Val) -> io::Result<()> {
        Ok(setsockopt(&self.0, option, value)?)
    }

    /// Begins to receive, all protocols: at the interface with this index, or at all with 0.
    pub(super) fn bind(&self, index: u32) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
            sll_ifindex: index as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and length describe `address`, of the family that is asked for.
        let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(length)) };
        // Its family is the one that is asked for.
        let address = address.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(bind(self.0.as_raw_fd(), &address)?)
    }

    /// What passed since this was asked last; nothing where the kernel does not tell.
    pub(super) fn take_counts(&self) -> PacketCounts {
        getsockopt(&self.0, option::Statistics).map_or(PacketCounts::default(), |now| PacketCounts {
            packets: now.tp_packets.into(),
            dropped: now.tp_drops.into(),
        })
    }

    /// Another descriptor of the same socket.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
