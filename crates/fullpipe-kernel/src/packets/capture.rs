//! Packet capture by a ring of blocks (`TPACKET_V3`), which the kernel hands over with all packets
//! in them.

use super::filter::Instruction;
use super::ring::{BLOCK, Ring};
use super::socket::{PacketCounts, PacketSocket, option};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

/// Blocks of the ring: 32 MiB, the headers of 100 000 packets.
const BLOCKS: usize = 32;
/// Timeout after which a partial block is handed over, in milliseconds.
const RETIRE_TIMEOUT_MS: u32 = 20;
/// Offset of the address in a packet: after `tpacket3_hdr`, aligned (`TPACKET_ALIGN`).
const ADDRESS_OFFSET: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);
/// Offset of the block header, version 1.
const HEADER_OFFSET: usize = offset_of!(libc::tpacket_block_desc, hdr);
/// Offset of the status word in a block.
const STATUS_OFFSET: usize = HEADER_OFFSET + offset_of!(libc::tpacket_hdr_v1, block_status);

/// A captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Kernel timestamp, nanoseconds since 1970.
    pub at: u64,
    /// Its bytes from the IP header on, up to the length kept by the filter program.
    pub bytes: &'a [u8],
    /// Original length in bytes.
    pub length: u32,
}

/// Captures the packets of one or all interfaces.
pub struct Capture {
    // Declared first, so that it is unmapped before the socket closes.
    ring: Ring,
    socket: PacketSocket,
    next: usize,
    counts: PacketCounts,
}

impl Capture {
    /// Starts a capture on `interface` of this network namespace, or on all interfaces, with the
    /// filter `program`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` for an unknown interface, `ENOMEM` if the ring of 32
    /// MiB cannot be allocated.
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
            tp_retire_blk_tov: RETIRE_TIMEOUT_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.set(option::Blocks, &request)?;
        let ring = Ring::map(&socket, BLOCKS, false)?;
        socket.bind(index)?;
        Ok(Capture { ring, socket, next: 0, counts: PacketCounts::default() })
    }

    /// Waits up to `timeout` for packets and passes each to `handler`, in order. Packets on the
    /// loopback interface are reported once.
    ///
    /// # Errors
    /// When the interface went down or was removed. A signal ends the wait early without an error.
    pub fn poll(&mut self, timeout: Duration, mut handler: impl FnMut(Packet<'_>)) -> io::Result<()> {
        if !self.is_ready() {
            let wait = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX);
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
            self.read_block(&mut handler);
            self.ring.release(self.next * BLOCK + STATUS_OFFSET);
            self.next = (self.next + 1) % BLOCKS;
        }
        Ok(())
    }

    /// The pending error of the socket.
    fn socket_error(&self) -> io::Error {
        match nix::sys::socket::getsockopt(&self.socket, nix::sys::socket::sockopt::SocketError) {
            Ok(e) if e != 0 => io::Error::from_raw_os_error(e),
            Ok(_) => Errno::ENETDOWN.into(),
            Err(e) => e.into(),
        }
    }

    fn is_ready(&self) -> bool {
        self.ring.is_filled(self.next * BLOCK + STATUS_OFFSET)
    }

    /// Passes each packet of the next block, owned by this process, to `handler`.
    fn read_block(&self, handler: &mut impl FnMut(Packet<'_>)) {
        let start = self.ring.at(self.next * BLOCK, BLOCK).cast_const();
        // SAFETY: a block inside the ring, page-aligned. Its status says that this process owns it until it
        // is released, and the kernel's writes are visible.
        let (bytes, header) = unsafe {
            let header: *const libc::tpacket_hdr_v1 = start.add(HEADER_OFFSET).cast();
            (std::slice::from_raw_parts(start, BLOCK), *header)
        };
        let mut offset = header.offset_to_first_pkt as usize;
        for _ in 0..header.num_pkts {
            let Some(packet) =
                bytes.get(offset..).filter(|p| p.len() > ADDRESS_OFFSET + size_of::<libc::sockaddr_ll>())
            else {
                return;
            };
            // SAFETY: within the block by the check above, and plain C structures valid for any bit pattern.
            let (h, address) = unsafe {
                (
                    packet.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned(),
                    packet.as_ptr().add(ADDRESS_OFFSET).cast::<libc::sockaddr_ll>().read_unaligned(),
                )
            };
            // On the loopback interface, each packet is seen both outgoing and incoming.
            let is_duplicate =
                address.sll_hatype == libc::ARPHRD_LOOPBACK && address.sll_pkttype == libc::PACKET_OUTGOING;
            let start = usize::from(h.tp_net);
            if let (false, Some(bytes)) = (is_duplicate, packet.get(start..start + h.tp_snaplen as usize)) {
                let at = u64::from(h.tp_sec) * 1_000_000_000 + u64::from(h.tp_nsec);
                handler(Packet { at, bytes, length: h.tp_len });
            }
            if h.tp_next_offset == 0 {
                return;
            }
            offset += h.tp_next_offset as usize;
        }
    }

    /// Packet counts since the start of the capture.
    pub fn counts(&mut self) -> PacketCounts {
        let now = self.socket.take_counts();
        self.counts.packets += now.packets;
        self.counts.dropped += now.dropped;
        self.counts
    }
}
