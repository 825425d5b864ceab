//! Looking on: a ring of blocks (`TPACKET_V3`), each of which the kernel hands over with all the packets in it.

use super::filter::Instruction;
use super::ring::{BLOCK, Ring};
use super::socket::{PacketCounts, PacketSocket, option};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

/// Blocks of the ring: 32 MiB, a hundred thousand packets' headers.
const BLOCKS: usize = 32;
/// A block that is not full is handed over after this, in milliseconds.
const RETIRE: u32 = 20;
/// What the kernel puts before a packet: `tpacket3_hdr`, to its alignment (`TPACKET_ALIGN`), and then the address.
const ADDRESS_AT: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);
/// Where in a block its header is, of version 1, the only one that there is.
const HEADER_AT: usize = offset_of!(libc::tpacket_block_desc, hdr);
/// Where in a block its status word is.
const STATUS_AT: usize = HEADER_AT + offset_of!(libc::tpacket_hdr_v1, block_status);

/// A packet that passed.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When the kernel saw it, in nanoseconds since 1970.
    pub at: u64,
    /// Its bytes from the IP header on, as many as the filter program kept.
    pub bytes: &'a [u8],
    /// How many there were.
    pub length: u32,
}

/// Looks at the packets of an interface, or of all.
pub struct Capture {
    // Is unmapped before the socket is closed.
    ring: Ring,
    socket: PacketSocket,
    next: usize,
    passed: PacketCounts,
}

impl Capture {
    /// Begins to look at `interface` of this network namespace, or at all of them, through the filter `program`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` where there is no such interface, `ENOMEM` where there is no room for the
    /// ring of 32 MiB.
    pub fn open(interface: Option<&str>, program: &[Instruction]) -> io::Result<Self> {
        let index = match interface {
            Some(name) => nix::net::if_::if_nametoindex(name)?,
            None => 0,
        };
        let socket = PacketSocket::cooked()?;
        socket.filter(program)?;
        socket.set(option::Version, &(libc::tpacket_versions::TPACKET_V3 as i32))?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCKS * BLOCK / 2048) as u32,
            tp_retire_blk_tov: RETIRE,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(option::Blocks, &request)?;
        let ring = Ring::map(&socket, BLOCKS, false)?;
        socket.bind(index)?;
        Ok(Capture { ring, socket, next: 0, passed: PacketCounts::default() })
    }

    /// Waits for packets, for `at_most`, and hands each that is there to `take`, in the order in which they passed. What
    /// passes through the loopback interface does so once.
    ///
    /// # Errors
    /// When the interface went down, or away. An interrupting signal ends the wait early and is none.
    pub fn poll(&mut self, at_most: Duration, mut take: impl FnMut(Packet<'_>)) -> io::Result<()> {
        if !self.is_ready() {
            let wait = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
            let mut sockets = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut sockets, wait) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let failed = sockets[0].revents().is_some_and(|r| r.contains(PollFlags::POLLERR));
            if failed && !self.is_ready() {
                return Err(self.socket_error());
            }
        }
        while self.is_ready() {
            self.block(&mut take);
            self.ring.release(self.next * BLOCK + STATUS_AT);
            self.next = (self.next + 1) % BLOCKS;
        }
        Ok(())
    }

    /// The error that the socket has.
    fn socket_error(&self) -> io::Error {
        match nix::sys::socket::getsockopt(&self.socket, nix::sys::socket::sockopt::SocketError) {
            Ok(e) if e != 0 => io::Error::from_raw_os_error(e),
            Ok(_) => Errno::ENETDOWN.into(),
            Err(e) => e.into(),
        }
    }

    fn is_ready(&self) -> bool {
        self.ring.is_filled(self.next * BLOCK + STATUS_AT)
    }

    /// Hands each packet of the next block, which is ours, to `take`.
    fn block(&self, take: &mut impl FnMut(Packet<'_>)) {
        let start = self.ring.at(self.next * BLOCK, BLOCK).cast_const();
        // SAFETY: a block inside the ring, aligned to a page. Its status says that it is ours until it is given back, and what the
        // kernel wrote is visible.
        let (bytes, header) = unsafe {
            let header: *const libc::tpacket_hdr_v1 = start.add(HEADER_AT).cast();
            (std::slice::from_raw_parts(start, BLOCK), *header)
        };
        let mut offset = header.offset_to_first_pkt as usize;
        for _ in 0..header.num_pkts {
            let Some(packet) =
                bytes.get(offset..).filter(|p| p.len() > ADDRESS_AT + size_of::<libc::sockaddr_ll>())
            else {
                return;
            };
            // SAFETY: within the block by the check above, and plain C structures of which every value is valid.
            let (h, address) = unsafe {
                (
                    packet.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned(),
                    packet.as_ptr().add(ADDRESS_AT).cast::<libc::sockaddr_ll>().read_unaligned(),
                )
            };
            // The loopback interface sends what it then receives.
            let twice =
                address.sll_hatype == libc::ARPHRD_LOOPBACK && address.sll_pkttype == libc::PACKET_OUTGOING;
            let start = usize::from(h.tp_net);
            if let (false, Some(bytes)) = (twice, packet.get(start..start + h.tp_snaplen as usize)) {
                let at = u64::from(h.tp_sec) * 1_000_000_000 + u64::from(h.tp_nsec);
                take(Packet { at, bytes, length: h.tp_len });
            }
            if h.tp_next_offset == 0 {
                return;
            }
            offset += h.tp_next_offset as usize;
        }
    }

    /// What has passed so far.
    pub fn counts(&mut self) -> PacketCounts {
        let now = self.socket.take_counts();
        self.passed.packets += now.packets;
        self.passed.dropped += now.dropped;
        self.passed
    }
}
