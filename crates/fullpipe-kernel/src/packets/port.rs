//! Frames of one interface: a receive ring (`TPACKET_V2`), and sending.
//!
//! A ring, because the buffer of a plain socket is bounded by `net.core.rmem_max`, by default 208
//! kB: three super-packets.

use super::ring::{BLOCK, Ring};
use super::socket::{PacketSocket, option};
use nix::errno::Errno;
use nix::sys::socket::SetSockOpt;
use nix::sys::uio::writev;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thiserror::Error;

/// Slot for the largest super-packet (64 KiB) and the kernel's header; a multiple of 16
/// (`TPACKET_ALIGNMENT`).
const SLOT: usize = 69_904;
/// Frames per block of a port's ring (1 MiB).
pub const FRAMES_PER_BLOCK: usize = BLOCK / SLOT;

/// Length of the virtio header of a frame (`struct virtio_net_hdr`), in bytes.
pub const VNET_LEN: usize = 10;

/// A received frame, still in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Virtio header: pending checksum and segmentation offloads.
    pub vnet: &'a [u8; VNET_LEN],
    /// Ethernet frame.
    pub frame: &'a [u8],
    /// Receive timestamp, nanoseconds of `CLOCK_REALTIME`.
    pub realtime: u64,
}

/// An error when opening a port.
#[derive(Debug, Error)]
pub enum PortError {
    /// The kernel lacks a socket option (older than Linux 4.20).
    #[error("packet sockets of this kernel lack {option}: {error}")]
    MissingOption {
        /// The option's name.
        option: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// The ring cannot be allocated.
    #[error("cannot allocate a packet ring: {0}")]
    NoRing(io::Error),
    /// The interface does not exist or is down.
    #[error("cannot bind a packet socket: {0}")]
    NotBound(io::Error),
}

/// Receives the frames of one interface, and sends frames on it.
pub struct Port {
    // Declared first, so that it is unmapped before the socket closes.
    ring: Ring,
    socket: PacketSocket,
    frames: usize,
    next: usize,
}

impl Port {
    /// Starts to receive on the interface with this index, into a ring of `blocks` MiB,
    /// [`FRAMES_PER_BLOCK`] frames each.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn open(socket: PacketSocket, index: u32, blocks: usize) -> Result<Self, PortError> {
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        require(&socket, "TPACKET_V2", option::Version, &version)?;
        require(&socket, "PACKET_VNET_HDR", option::VnetHeader, &true)?;
        require(&socket, "PACKET_IGNORE_OUTGOING", option::IgnoreOutgoing, &true)?;
        require(&socket, "PACKET_QDISC_BYPASS", option::QdiscBypass, &true)?;
        let frames = blocks * FRAMES_PER_BLOCK;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: SLOT as u32,
            tp_frame_nr: frames as u32,
        };
        socket.set(option::Frames, &request).map_err(PortError::NoRing)?;
        let ring = Ring::map(&socket, blocks, true).map_err(PortError::NoRing)?;
        socket.bind(index).map_err(PortError::NotBound)?;
        Ok(Port { ring, socket, frames, next: 0 })
    }

    /// Offset of the next slot in the ring. It starts with the frame's header, and that with the
    /// status word.
    #[inline]
    fn next_offset(&self) -> usize {
        self.next / FRAMES_PER_BLOCK * BLOCK + self.next % FRAMES_PER_BLOCK * SLOT
    }

    /// Whether a frame is available.
    #[inline]
    pub fn ready(&self) -> bool {
        self.ring.is_filled(self.next_offset())
    }

    /// Passes the next frame to `handler`, `None` for a truncated one; false if no frame is
    /// available.
    #[inline]
    pub fn receive(&mut self, handler: impl FnOnce(Option<Frame<'_>>)) -> bool {
        let offset = self.next_offset();
        if !self.ring.is_filled(offset) {
            return false;
        }
        let slot = self.ring.at(offset, SLOT).cast_const();
        // SAFETY: a slot inside the ring, aligned for its header (`TPACKET_ALIGNMENT`). Its status says
        // that this process owns it until it is released below, and the kernel's writes are
        // visible.
        let h = unsafe { &*slot.cast::<libc::tpacket2_hdr>() };
        let (start, length) = (usize::from(h.tp_mac), h.tp_snaplen as usize);
        let whole = h.tp_snaplen == h.tp_len && start >= VNET_LEN && start + length <= SLOT;
        handler(whole.then(|| {
            // SAFETY: inside this slot by the check above; owned as above.
            let (vnet, frame) = unsafe {
                let frame = slot.add(start);
                (&*frame.sub(VNET_LEN).cast(), std::slice::from_raw_parts(frame, length))
            };
            let realtime = u64::from(h.tp_sec) * 1_000_000_000 + u64::from(h.tp_nsec);
            Frame { vnet, frame, realtime }
        }));
        self.ring.release(offset);
        self.next = (self.next + 1) % self.frames;
        true
    }

    /// A sender for this interface, usable from another thread.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn sender(&self) -> io::Result<Sender> {
        self.socket.share().map(Sender)
    }

    /// Frames dropped because the ring was full, since the last call.
    pub fn take_drops(&self) -> u64 {
        self.socket.take_counts().dropped
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn require<O: SetSockOpt>(
    socket: &PacketSocket,
    name: &'static str,
    option: O,
    value: &O::Val,
) -> Result<(), PortError> {
    socket.set(option, value).map_err(|error| PortError::MissingOption { option: name, error })
}

/// The sending half of a [`Port`].
#[derive(Debug)]
pub struct Sender(OwnedFd);

impl Sender {
    /// Sends one frame: a virtio header, headers, and payload.
    ///
    /// # Errors
    /// `ENOBUFS` and similar when the kernel drops it.
    #[inline]
    pub fn send(&self, vnet: &[u8; VNET_LEN], headers: &[u8], payload: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(vnet), IoSlice::new(headers), IoSlice::new(payload)];
        loop {
            match writev(&self.0, &parts) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::filter::{Instruction, jump_if, op, statement};
    use crate::packets::{Capture, PacketCounts};
    use crate::rtnetlink::{NewInterface, Rtnetlink};
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use nix::sched::{CloneFlags, unshare};
    use std::thread;
    use std::time::Duration;

    /// With an EtherType for local experiments (IEEE 802).
    const HEADERS: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];

    /// A program that keeps `k` bytes of frames with that EtherType.
    fn only_ours(k: u32) -> [Instruction; 4] {
        [
            statement(op::LOAD_HALF, 12),
            jump_if(op::IS_EQUAL, 0x88b5, 1),
            statement(op::RETURN, 0),
            statement(op::RETURN, k),
        ]
    }

    /// Both ends of a veth pair, in a network namespace of this thread; `None` without root.
    fn veth_pair() -> Option<[u32; 2]> {
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            println!("SKIPPED: needs root");
            return None;
        }
        let mut kernel = Rtnetlink::open().unwrap();
        let end = |name, last| NewInterface { name, mac: [2, 0, 0, 0, 0, last], namespace: None };
        kernel.add_veth(&end("one", 1), &end("other", 2), 1500).unwrap();
        Some(["one", "other"].map(|name| {
            let index = kernel.index(name).unwrap();
            kernel.up(index).unwrap();
            index
        }))
    }

    /// A port with a ring of one block.
    fn port(index: u32, program: &[Instruction]) -> Port {
        let socket = PacketSocket::raw().unwrap();
        socket.filter(program).unwrap();
        Port::open(socket, index, 1).unwrap()
    }

    /// Payload of the next frame after the test headers; `None` for a truncated one.
    fn next(port: &mut Port) -> Option<Vec<u8>> {
        let waits = poll(&mut [PollFd::new(port.as_fd(), PollFlags::POLLIN)], PollTimeout::from(10_000_u16));
        assert_eq!(waits, Ok(1));
        let mut payload = None;
        let received = port.receive(|received| {
            payload = received.map(|r| {
                assert_eq!((r.vnet, &r.frame[..HEADERS.len()]), (&[0; VNET_LEN], &HEADERS[..]));
                assert!(r.realtime > 0);
                r.frame[HEADERS.len()..].to_vec()
            });
        });
        assert!(received);
        payload
    }

    #[test]
    fn frames_arrive_at_the_other_end() {
        let test = thread::spawn(|| {
            let Some([one, other]) = veth_pair() else { return };
            let (one, mut other) = (port(one, &only_ours(u32::MAX)), port(other, &only_ours(u32::MAX)));
            let sender = one.sender().unwrap();
            assert!(!other.receive(|_| unreachable!()), "nothing was sent");
            // More than the ring holds, so that it wraps around.
            for n in 0..3 * FRAMES_PER_BLOCK as u8 {
                sender.send(&[0; VNET_LEN], &HEADERS, &[n; 100]).unwrap();
                assert_eq!(next(&mut other), Some(vec![n; 100]));
            }
            assert!(!one.ready(), "outgoing frames are not received");
            for _ in 0..FRAMES_PER_BLOCK + 3 {
                sender.send(&[0; VNET_LEN], &HEADERS, &[7; 100]).unwrap();
            }
            while other.take_drops() == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(next(&mut other), Some(vec![7; 100]), "the oldest frames are kept");
        });
        test.join().unwrap();
    }

    #[test]
    fn truncated_frames_are_not_passed_on() {
        let test = thread::spawn(|| {
            let Some([one, other]) = veth_pair() else { return };
            let (one, mut other) = (port(one, &only_ours(0)), port(other, &only_ours(60)));
            let sender = one.sender().unwrap();
            sender.send(&[0; VNET_LEN], &HEADERS, &[1; 100]).unwrap();
            assert_eq!(next(&mut other), None);
            sender.send(&[0; VNET_LEN], &HEADERS, &[2; 46]).unwrap();
            assert_eq!(next(&mut other), Some(vec![2; 46]));
        });
        test.join().unwrap();
    }

    #[test]
    fn captures_start_at_the_network_header() {
        let test = thread::spawn(|| {
            let Some([one, other]) = veth_pair() else { return };
            let keep = [statement(op::RETURN, 10)];
            let mut packets = Capture::open(Some("other"), &keep).unwrap();
            drop(port(other, &keep));
            let sender = port(one, &only_ours(0)).sender().unwrap();
            sender.send(&[0; VNET_LEN], &HEADERS, &[3; 100]).unwrap();
            let mut seen = Vec::new();
            while seen.is_empty() {
                let mut handler = |p: crate::packets::Packet<'_>| {
                    if p.bytes == [3; 10] {
                        seen.push(p.length);
                    }
                };
                packets.poll(Duration::from_secs(1), &mut handler).unwrap();
            }
            assert_eq!(seen, [100]);
            let counts = packets.counts();
            assert!(counts.packets >= 1 && counts == PacketCounts { dropped: 0, ..counts });
            assert_eq!(packets.counts(), counts, "counts are cumulative");
        });
        test.join().unwrap();
    }
}
