//! Ring memory shared with the kernel, slot by slot.

use super::socket::PacketSocket;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Allocation unit of the ring; no slot crosses a block boundary.
pub(super) const BLOCK: usize = 1 << 20;

/// The ring of a packet socket.
pub(super) struct Ring {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is unmapped when it is dropped; nothing in it
// is tied to the thread that made it.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of `blocks` blocks of `socket`, prefaulting its pages if `populated`.
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

    /// Pointer to `length` bytes at `offset`.
    ///
    /// # Panics
    /// If they are not all in the ring.
    #[inline]
    pub(super) fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset + length <= self.length, "a slot beyond the ring");
        // SAFETY: inside the mapping by the check above.
        unsafe { self.start.as_ptr().add(offset) }
    }

    /// Whether the slot with its status word at `offset` is owned by the process; the kernel's
    /// writes are then visible.
    #[inline]
    pub(super) fn is_filled(&self, offset: usize) -> bool {
        self.status(offset).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Returns the slot to the kernel.
    #[inline]
    pub(super) fn release(&self, offset: usize) {
        self.status(offset).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }

    #[inline]
    fn status(&self, offset: usize) -> &AtomicU32 {
        let word: *mut u32 = self.at(offset, size_of::<u32>()).cast();
        debug_assert!(word.is_aligned());
        // SAFETY: a word inside the mapping, which lives as long as `self`, aligned as every status word
        // is; kernel and process transfer ownership of the slot by it, so all access is atomic.
        unsafe { AtomicU32::from_ptr(word) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, of the same size; pointers into it do not outlive the ring.
        let _ = unsafe { munmap(self.start.cast(), self.length) };
    }
}
