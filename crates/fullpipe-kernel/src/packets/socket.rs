//! Packet sockets and their options.

use super::filter::Instruction;
use nix::sys::socket::{
    AddressFamily, LinkAddr, SetSockOpt, SockFlag, SockType, SockaddrLike, bind, getsockopt, setsockopt,
    socket,
};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Options of packet sockets (packet(7)) that nix lacks.
pub(super) mod option {
    use super::*;

    sockopt_impl!(
        /// Filter program.
        Filter,
        SetOnly,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        libc::sock_fprog
    );
    sockopt_impl!(
        /// Layout of the ring (`tpacket_versions`).
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
        /// Prefix each frame with a virtio header.
        VnetHeader,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_VNET_HDR,
        bool
    );
    sockopt_impl!(
        /// Do not receive outgoing packets.
        IgnoreOutgoing,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_IGNORE_OUTGOING,
        bool
    );
    sockopt_impl!(
        /// Bypass queueing disciplines when sending.
        QdiscBypass,
        SetOnly,
        libc::SOL_PACKET,
        libc::PACKET_QDISC_BYPASS,
        bool
    );
    // With `TPACKET_V3` there is a third counter, which the kernel omits from this shorter structure.
    sockopt_impl!(
        /// Received and dropped packets since the last call.
        Statistics,
        GetOnly,
        libc::SOL_PACKET,
        libc::PACKET_STATISTICS,
        libc::tpacket_stats
    );
}

/// Packet counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounts {
    /// Packets that passed the filter program.
    pub packets: u64,
    /// Packets among these dropped because the ring was full.
    pub dropped: u64,
}

/// A packet socket that does not receive yet. It belongs to the network namespace in which it was
/// opened.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// A socket for whole frames, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` on kernels without packet sockets.
    pub fn raw() -> io::Result<Self> {
        PacketSocket::open(SockType::Raw)
    }

    /// A socket for packets without their link-layer header, uniform across interface types.
    pub(super) fn cooked() -> io::Result<Self> {
        PacketSocket::open(SockType::Datagram)
    }

    /// Without a protocol, so that nothing is received before filter and ring are set up.
    fn open(kind: SockType) -> io::Result<Self> {
        Ok(PacketSocket(socket(AddressFamily::Packet, kind, SockFlag::SOCK_CLOEXEC, None)?))
    }

    /// Attaches a filter program.
    ///
    /// # Errors
    /// `EINVAL` for an invalid program.
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

    /// Starts to receive all protocols on the interface with this index, 0 for all.
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
        // SAFETY: pointer and length describe `address`, of the expected family.
        let address = unsafe { LinkAddr::from_raw((&raw const address).cast(), Some(length)) };
        // Cannot fail: the family is AF_PACKET.
        let address = address.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(bind(self.0.as_raw_fd(), &address)?)
    }

    /// Packet counts since the last call; zero if the kernel does not report them.
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
