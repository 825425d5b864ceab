//! One interface's frames: a ring of those that came in (`TPACKET_V2`), and sending.
//!
//! The ring and not a plain socket, because a plain socket's buffer is bounded by `net.core.rmem_max`, on most machines
//! 208 kB: three super-packets.

use super::ring::{BLOCK, Ring};
use super::socket::{PacketSocket, option};
use nix::errno::Errno;
use nix::sys::socket::SetSockOpt;
use nix::sys::uio::writev;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use thiserror::Error;

/// Room for the largest super-packet (64 KiB) and the kernel's header before it; a multiple of 16 (`TPACKET_ALIGNMENT`).
const FRAME: usize = 69_904;
/// What a block of a port's ring, 1 MiB, holds.
pub const FRAMES_PER_BLOCK: usize = BLOCK / FRAME;

/// Length of the virtio header that goes with a frame (`struct virtio_net_hdr`), in bytes.
pub const VNET_LEN: usize = 10;

/// A frame received, still in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its virtio header: checksums that are not computed yet, and into what it is to be cut.
    pub vnet: &'a [u8; VNET_LEN],
    /// Ethernet frame.
    pub frame: &'a [u8],
    /// When the kernel got it, nanoseconds of `CLOCK_REALTIME`.
    pub realtime: u64,
}

/// Why there is no port.
#[derive(Debug, Error)]
pub enum PortError {
    /// The kernel does not know an option: it is older than Linux 4.20.
    #[error("the kernel's packet sockets lack {option}: {error}")]
    MissingOption {
        /// The option's name.
        option: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// There is no memory for the ring.
    #[error("no memory for a ring: {0}")]
    NoRing(io::Error),
    /// The interface is not there, or down.
    #[error("cannot bind a packet socket: {0}")]
    NotBound(io::Error),
}

/// Takes the frames that come in at one interface, and sends others out there.
pub struct Port {
    // Is unmapped before the socket is closed.
    ring: Ring,
    socket: PacketSocket,
    frames: usize,
    next: usize,
}

impl Port {
    /// Begins to receive at the interface with this index, into `blocks` MiB of ring, [`FRAMES_PER_BLOCK`] frames each.
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
            tp_frame_size: FRAME as u32,
            tp_frame_nr: frames as u32,
        };
        socket.set(option::Frames, &request).map_err(PortError::NoRing)?;
        let ring = Ring::map(&socket, blocks, true).map_err(PortError::NoRing)?;
        socket.bind(index).map_err(PortError::NotBound)?;
        Ok(Port { ring, socket, frames, next: 0 })
    }

    /// Where in the ring the next frame is, or will be. It begins with its header, and that with the status word.
    #[inline]
    fn here(&self) -> usize {
        self.next / FRAMES_PER_BLOCK * BLOCK + self.next % FRAMES_PER_BLOCK * FRAME
    }

    /// Whether a frame waits.
    #[inline]
    pub fn ready(&self) -> bool {
        self.ring.is_filled(self.here())
    }

    /// Hands the next frame that waits to `take`, nothing in place of one that is not whole; false if none waits.
    #[inline]
    pub fn receive(&mut self, take: impl FnOnce(Option<Frame<'_>>)) -> bool {
        let here = self.here();
        if !self.ring.is_filled(here) {
            return false;
        }
        let slot = self.ring.at(here, FRAME).cast_const();
        // SAFETY: a frame inside the ring, aligned as its header is (`TPACKET_ALIGNMENT`). Its status says that it is ours until
        // it is given back below, and what the kernel wrote is visible.
        let h = unsafe { &*slot.cast::<libc::tpacket2_hdr>() };
        let (start, length) = (usize::from(h.tp_mac), h.tp_snaplen as usize);
        let whole = h.tp_snaplen == h.tp_len && start >= VNET_LEN && start + length <= FRAME;
        take(whole.then(|| {
            // SAFETY: inside this frame by the check above; ours as above.
            let (vnet, frame) = unsafe {
                let frame = slot.add(start);
                (&*frame.sub(VNET_LEN).cast(), std::slice::from_raw_parts(frame, length))
            };
            let realtime = u64::from(h.tp_sec) * 1_000_000_000 + u64::from(h.tp_nsec);
            Frame { vnet, frame, realtime }
        }));
        self.ring.release(here);
        self.next = (self.next + 1) % self.frames;
        true
    }

    /// A way to send on this interface that another thread may own.
    ///
    /// # Errors
    /// When the process may open no more files.
    pub fn sender(&self) -> io::Result<Sender> {
        self.socket.share().map(Sender)
    }

    /// Frames dropped because the ring was full, since this was asked last.
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
    /// `ENOBUFS` and its like when the kernel drops it.
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

    /// Of a protocol that nobody speaks (IEEE 802, local experiments).
    const HEADERS: [u8; 14] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];

    /// Keeps `k` bytes of frames of that protocol.
    fn only_ours(k: u32) -> [Instruction; 4] {
        [
            statement(op::LOAD_HALF, 12),
            jump_if(op::IS_EQUAL, 0x88b5, 1),
            statement(op::RETURN, 0),
            statement(op::RETURN, k),
        ]
    }

    /// Both ends of a cable, in a network namespace that goes with the thread; `None` where that cannot be had.
    fn cable() -> Option<[u32; 2]> {
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

    /// A port with the smallest ring.
    fn port(index: u32, program: &[Instruction]) -> Port {
        let socket = PacketSocket::raw().unwrap();
        socket.filter(program).unwrap();
        Port::open(socket, index, 1).unwrap()
    }

    /// What the next frame carries behind our headers; `None` for one that is not whole.
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
    fn what_one_end_sends_the_other_receives() {
        let test = thread::spawn(|| {
            let Some([one, other]) = cable() else { return };
            let (one, mut other) = (port(one, &only_ours(u32::MAX)), port(other, &only_ours(u32::MAX)));
            let sender = one.sender().unwrap();
            assert!(!other.receive(|_| unreachable!()), "nothing was sent");
            // More than a ring holds, and so once around.
            for n in 0..3 * FRAMES_PER_BLOCK as u8 {
                sender.send(&[0; VNET_LEN], &HEADERS, &[n; 100]).unwrap();
                assert_eq!(next(&mut other), Some(vec![n; 100]));
            }
            assert!(!one.ready(), "what is sent is not received");
            for _ in 0..FRAMES_PER_BLOCK + 3 {
                sender.send(&[0; VNET_LEN], &HEADERS, &[7; 100]).unwrap();
            }
            while other.take_drops() == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(next(&mut other), Some(vec![7; 100]), "those that came first are kept");
        });
        test.join().unwrap();
    }

    #[test]
    fn a_frame_that_is_cut_short_is_not_given() {
        let test = thread::spawn(|| {
            let Some([one, other]) = cable() else { return };
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
    fn who_looks_on_sees_packets_from_their_network_header_on() {
        let test = thread::spawn(|| {
            let Some([one, other]) = cable() else { return };
            let keep = [statement(op::RETURN, 10)];
            let mut packets = Capture::open(Some("other"), &keep).unwrap();
            drop(port(other, &keep));
            let sender = port(one, &only_ours(0)).sender().unwrap();
            sender.send(&[0; VNET_LEN], &HEADERS, &[3; 100]).unwrap();
            let mut seen = Vec::new();
            while seen.is_empty() {
                let mut take = |p: crate::packets::Packet<'_>| {
                    if p.bytes == [3; 10] {
                        seen.push(p.length);
                    }
                };
                packets.poll(Duration::from_secs(1), &mut take).unwrap();
            }
            assert_eq!(seen, [100]);
            let passed = packets.counts();
            assert!(passed.packets >= 1 && passed == PacketCounts { dropped: 0, ..passed });
            assert_eq!(packets.counts(), passed, "what was told is not told twice, nor forgotten");
        });
        test.join().unwrap();
    }
}
