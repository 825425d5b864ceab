//! Memory that the kernel fills and the program empties, slot after slot.

use super::socket::PacketSocket;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// What the kernel allocates at once. No slot lies across two of them.
pub(super) const BLOCK: usize = 1 << 20;

/// The ring of a packet socket.
pub(super) struct Ring {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is unmapped when it is dropped; nothing in it is tied to the thread
// that made it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `blocks` blocks that `socket` was given; all of its pages at once if `populated`.
    pub(super) fn map(socket: &PacketSocket, blocks: usize, populated: bool) -> io::Result<Self> {
        let length = blocks * BLOCK;
        let size = NonZeroUsize::new(length).ok_or(io::ErrorKind::InvalidInput)?;
        let mut flags = MapFlags::MAP_SHARED;
        flags.set(MapFlags::MAP_POPULATE, populated);
        // SAFETY: a new mapping at an address of the kernel's choosing.
        let start =
            unsafe { mmap(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags, socket, 0) }?;
        Ok(Ring { start: start.cast(), length })
    }

    /// Where the `length` bytes from `offset` on are.
    ///
    /// # Panics
    /// If they are not all in the ring.
    #[inline]
    pub(super) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset + length <= self.length, "a slot beyond the ring");
        // SAFETY: inside the mapping by the check above.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Whether the slot whose status word is at `offset` is the program's to read; what the kernel wrote there is then visible.
    #[inline]
    pub(super) fn is_filled(&self, offset: usize) -> bool {
        self.status(offset).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Gives the slot back to the kernel.
    #[inline]
    pub(super) fn release(&self, offset: usize) {
        self.status(offset).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    #[inline]
    fn status(&self, offset: usize) -> &AtomicU32 {
        let word: *mut u32 = self.at(offset, size_of::<u32>()).cast();
        debug_assert!(word.is_aligned());
        // SAFETY: a word inside the mapping, which lives as long as `self`, aligned as every status word is; kernel and program
        // hand the slot to each other by it, so all access is atomic.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `of`, of the same size; whoever has a pointer into it has the ring, too.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}
