//! An AF_PACKET socket on one interface: a ring of received frames in memory shared with the kernel
//! (`TPACKET_V2`), and sending.
//!
//! The ring and not a plain socket, because a plain socket's buffer is bounded by `net.core.rmem_max`, on
//! most machines 208 kB: three super-packets.

use crate::LabError;
use crate::wire::{VNET_LEN, VnetHeader};
use nix::errno::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A block is what the kernel allocates at once; frames do not straddle blocks.
const BLOCK: usize = 1 << 20;
/// Room for the largest super-packet (64 KiB) and the kernel's header before it.
const FRAME: usize = 69_904;
/// What a block holds.
pub(crate) const FRAMES_PER_BLOCK: usize = BLOCK / FRAME;

/// The header of one frame in the ring.
type Header = libc::tpacket2_hdr;

/// A received frame, still in the ring.
pub(crate) struct Received<'a> {
    /// Ethernet frame.
    pub(crate) frame: &'a [u8],
    /// Its virtio header.
    pub(crate) vnet: VnetHeader,
    /// When the kernel got it, nanoseconds of `CLOCK_REALTIME`.
    pub(crate) realtime: u64,
}

/// A packet socket and the interface that it is for. The socket belongs to the network namespace in which it was
/// opened, whoever uses it afterwards.
pub(crate) struct Attachment {
    socket: OwnedFd,
    index: u32,
}

impl Attachment {
    /// For interface `index` of the calling thread's network namespace.
    pub(crate) fn here(index: u32) -> Result<Self, LabError> {
        // SAFETY: takes plain numbers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            let e = io::Error::last_os_error();
            return Err(LabError::Impossible(format!(
                "cannot open a packet socket ({e}): the kernel needs CONFIG_PACKET (as root: `modprobe af_packet`), \
                 the container must not forbid AF_PACKET, and inside a `fullpipe lab shell` it takes the \
                 CAP_NET_RAW that programs get there"
            )));
        }
        // SAFETY: a descriptor that the kernel has just given us.
        Ok(Attachment { socket: unsafe { OwnedFd::from_raw_fd(fd) }, index })
    }

    /// Leaves out what the kernel's filter program `code` gives 0 for.
    pub(crate) fn filter(&self, code: &[libc::sock_filter]) -> Result<(), LabError> {
        let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_ptr().cast_mut() };
        option(&self.socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
            .map_err(|e| LabError::failed("cannot filter what a packet socket receives", e))
    }
}

/// One interface's packet socket.
pub(crate) struct Port {
    socket: OwnedFd,
    ring: NonNull<u8>,
    blocks: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone and is unmapped when it is dropped; nothing in it is
// tied to the thread that made it.
unsafe impl Send for Port {}

fn option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
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

impl Port {
    /// Starts to receive at an interface, into `blocks` MiB of ring.
    pub(crate) fn open(attachment: Attachment, blocks: usize) -> Result<Self, LabError> {
        let Attachment { socket, index } = attachment;
        let set = |name: i32, value: i32, what: &str| {
            option(&socket, libc::SOL_PACKET, name, &value).map_err(|e| {
                LabError::Impossible(format!(
                    "the kernel's packet sockets lack {what} ({e}): Linux 4.20 or later has it"
                ))
            })
        };
        set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32, "TPACKET_V2")?;
        set(libc::PACKET_VNET_HDR, 1, "PACKET_VNET_HDR")?;
        set(libc::PACKET_IGNORE_OUTGOING, 1, "PACKET_IGNORE_OUTGOING")?;
        set(libc::PACKET_QDISC_BYPASS, 1, "PACKET_QDISC_BYPASS")?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME as u32,
            tp_frame_nr: (blocks * FRAMES_PER_BLOCK) as u32,
        };
        let no_memory = |e: io::Error| {
            LabError::Impossible(format!(
                "no memory for a ring of {blocks} MiB ({e}): free some, or raise the container's limit"
            ))
        };
        option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(no_memory)?;
        // SAFETY: a new shared mapping of the ring just made, of its whole size, at an address of the
        // kernel's choosing.
        let ring = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                blocks * BLOCK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                0,
            )
        };
        let ring = if ring == libc::MAP_FAILED { None } else { NonNull::new(ring.cast()) };
        let ring = ring.ok_or_else(|| no_memory(io::Error::last_os_error()))?;
        let port = Port { socket, ring, blocks, next: 0 };
        port.bind(index)?;
        Ok(port)
    }

    fn bind(&self, index: u32) -> Result<(), LabError> {
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
        if result == 0 {
            Ok(())
        } else {
            Err(LabError::failed("cannot bind a packet socket", io::Error::last_os_error()))
        }
    }

    fn header(&self, index: usize) -> *mut Header {
        let offset = index / FRAMES_PER_BLOCK * BLOCK + index % FRAMES_PER_BLOCK * FRAME;
        // SAFETY: `index` is below the number of frames, so the frame lies inside the mapping; frames are
        // aligned to 16 bytes (TPACKET_ALIGNMENT).
        unsafe { self.ring.as_ptr().add(offset).cast() }
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the status word of a frame inside the mapping, which lives as long as `self`; kernel and
        // program hand the frame to each other by it, so all access is atomic.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header(index)).tp_status) }
    }

    /// Whether a frame waits.
    pub(crate) fn ready(&self) -> bool {
        self.status(self.next).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Hands the next frame that waits to `take`; false if none does.
    pub(crate) fn receive(&mut self, take: impl FnOnce(Option<Received<'_>>)) -> bool {
        if !self.ready() {
            return false;
        }
        let header = self.header(self.next);
        // SAFETY: the status says that the frame is ours until we give it back below, and the acquiring
        // load that what the kernel wrote is visible.
        let h = unsafe { &*header };
        let (start, length) = (usize::from(h.tp_mac), h.tp_snaplen as usize);
        let whole = h.tp_snaplen == h.tp_len && start >= VNET_LEN && start + length <= FRAME;
        take(whole.then(|| {
            // SAFETY: inside this frame of the ring by the check above; ours as above.
            let bytes = unsafe {
                std::slice::from_raw_parts(header.cast::<u8>().add(start - VNET_LEN), VNET_LEN + length)
            };
            Received {
                frame: &bytes[VNET_LEN..],
                vnet: VnetHeader::decode(bytes).unwrap_or(VnetHeader::PLAIN),
                realtime: u64::from(h.tp_sec) * 1_000_000_000 + u64::from(h.tp_nsec),
            }
        }));
        self.status(self.next).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % (self.blocks * FRAMES_PER_BLOCK);
        true
    }

    /// A way to send on this interface that another thread may own.
    pub(crate) fn sender(&self) -> Result<Sender, LabError> {
        self.socket.try_clone().map(Sender).map_err(|e| LabError::failed("cannot share a packet socket", e))
    }

    /// Frames dropped because the ring was full, since the last call.
    pub(crate) fn take_drops(&self) -> u64 {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: pointer and length describe `stats`, which outlives the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        };
        if result == 0 { u64::from(stats.tp_drops) } else { 0 }
    }
}

/// The sending half of a [`Port`].
pub(crate) struct Sender(OwnedFd);

impl Sender {
    /// Sends one frame: a virtio header, headers, and payload.
    ///
    /// # Errors
    /// `ENOBUFS` and its like when the kernel drops it.
    pub(crate) fn send(&self, vnet: &VnetHeader, headers: &[u8], payload: &[u8]) -> Result<(), Errno> {
        let vnet = vnet.encode();
        let part = |b: &[u8]| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() };
        let parts = [part(&vnet), part(headers), part(payload)];
        loop {
            // SAFETY: the three parts describe slices that outlive the call; the kernel only reads them.
            let sent = unsafe { libc::writev(self.0.as_raw_fd(), parts.as_ptr(), parts.len() as i32) };
            match Errno::result(sent) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `open`, of the same size; no slice of it outlives a call of `receive`.
        unsafe { libc::munmap(self.ring.as_ptr().cast(), self.blocks * BLOCK) };
    }
}
