//! Packets as they pass an interface, for who looks on: a packet socket with a ring in memory shared with the kernel
//! (`TPACKET_V3`, packet(7)), bounded, and with what did not fit counted.
//!
//! Frames are given from their IP header on (`SOCK_DGRAM`), so that every kind of interface looks alike; a filter program
//! says how much of each is kept. Nothing of the host is changed, and nothing is left behind.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What the kernel hands over at once.
const BLOCK: usize = 1 << 20;
/// Blocks of the ring: 32 MiB, a hundred thousand packets' headers.
const BLOCKS: usize = 32;
/// A block that is not full is handed over after this, in milliseconds.
const RETIRE: u32 = 20;
/// What the kernel puts before a packet: `tpacket3_hdr`, to its alignment (`TPACKET_ALIGN`), and then the address.
const ADDRESS_AT: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);

/// One instruction of a filter program (classic BPF, as in `linux/filter.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to pass over if a comparison holds.
    pub if_true: u8,
    /// The same if not.
    pub if_false: u8,
    /// Operand.
    pub k: u32,
}

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

/// What passed while one looked on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Packets that the filter program kept.
    pub packets: u64,
    /// Of these, dropped because the ring was full: they were seen by nobody.
    pub dropped: u64,
}

/// Looks at the packets of an interface, or of all.
pub struct Packets {
    socket: OwnedFd,
    ring: NonNull<u8>,
    next: usize,
    passed: Passed,
}

// SAFETY: the mapping belongs to this value alone and is unmapped when it is dropped; nothing in it is tied to the thread
// that made it.
unsafe impl Send for Packets {}

impl Packets {
    /// Begins to look at `interface` of this network namespace, or at all of them, through the filter `program`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` where there is no such interface, `ENOMEM` where there is no room for the
    /// ring of 32 MiB.
    pub fn of(interface: Option<&str>, program: &[Instruction]) -> io::Result<Self> {
        let index = match interface {
            Some(name) => nix::net::if_::if_nametoindex(name)?,
            None => 0,
        };
        // No protocol: nothing is received before the filter is there and the ring is.
        // SAFETY: takes plain numbers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that the kernel has just given us.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let code: Vec<libc::sock_filter> = program
            .iter()
            .map(|i| libc::sock_filter { code: i.code, jt: i.if_true, jf: i.if_false, k: i.k })
            .collect();
        let filter = libc::sock_fprog { len: code.len() as u16, filter: code.as_ptr().cast_mut() };
        set(&socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        let version = libc::tpacket_versions::TPACKET_V3 as i32;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: 2048,
            tp_frame_nr: (BLOCKS * BLOCK / 2048) as u32,
            tp_retire_blk_tov: RETIRE,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        // SAFETY: a new shared mapping of the ring just made, of its whole size, at an address of the kernel's choosing.
        let ring = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCKS * BLOCK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        let ring = if ring == libc::MAP_FAILED { None } else { NonNull::new(ring.cast()) };
        let ring = ring.ok_or_else(io::Error::last_os_error)?;
        let packets = Packets { socket, ring, next: 0, passed: Passed::default() };
        packets.bind(index)?;
        Ok(packets)
    }

    fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: an all-zero `sockaddr_ll` is a valid value of that C structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        // SAFETY: pointer and length describe `address`, which outlives the call.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for packets, for `at_most`, and hands each that is there to `take`, in the order in which they passed. What
    /// passes through the loopback interface does so once.
    ///
    /// # Errors
    /// When the interface went down, or away. An interrupting signal ends the wait early and is none.
    pub fn look(&mut self, at_most: Duration, mut take: impl FnMut(Packet<'_>)) -> io::Result<()> {
        if !self.is_ready() {
            let wait = PollTimeout::try_from(at_most).unwrap_or(PollTimeout::MAX);
            let mut sockets = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut sockets, wait) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
            let failed = sockets[0].revents().is_some_and(|r| r.contains(PollFlags::POLLERR));
            if failed && !self.is_ready() {
                return Err(self.trouble());
            }
        }
        while self.is_ready() {
            self.block(&mut take);
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % BLOCKS;
        }
        Ok(())
    }

    /// The error that the socket has.
    fn trouble(&self) -> io::Error {
        match nix::sys::socket::getsockopt(&self.socket, nix::sys::socket::sockopt::SocketError) {
            Ok(e) if e != 0 => io::Error::from_raw_os_error(e),
            Ok(_) => io::Error::from_raw_os_error(libc::ENETDOWN),
            Err(e) => e.into(),
        }
    }

    fn here(&self) -> *mut u8 {
        // SAFETY: `next` is below the number of blocks, so the block lies inside the mapping.
        unsafe { self.ring.as_ptr().add(self.next * BLOCK) }
    }

    fn header(&self) -> *mut libc::tpacket_hdr_v1 {
        let block: *mut libc::tpacket_block_desc = self.here().cast();
        // SAFETY: the beginning of a block inside the mapping, which is aligned to a page; version 1 is the only one there is.
        unsafe { (&raw mut (*block).hdr).cast() }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the status word of a block inside the mapping, which lives as long as `self`; kernel and program hand the
        // block to each other by it, so all access is atomic.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header()).block_status) }
    }

    fn is_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    fn block(&self, take: &mut impl FnMut(Packet<'_>)) {
        // SAFETY: the status says that the block is ours until it is given back, and the acquiring load that what the kernel
        // wrote is visible.
        let (bytes, header) =
            unsafe { (std::slice::from_raw_parts(self.here().cast_const(), BLOCK), *self.header()) };
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
    pub fn passed(&mut self) -> Passed {
        let mut now = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: pointer and length describe `now`, which outlives the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut now).cast(),
                &raw mut length,
            )
        };
        // The kernel counts from the last time it was asked.
        if result == 0 {
            self.passed.packets += u64::from(now.tp_packets);
            self.passed.dropped += u64::from(now.tp_drops);
        }
        self.passed
    }
}

impl Drop for Packets {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `of`, of the same size; no slice of it outlives a call of `look`.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), BLOCKS * BLOCK) };
    }
}

fn set<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, a plain number or C structure that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
