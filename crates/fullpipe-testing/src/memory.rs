//! Counts the memory of a test program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Counts the bytes in use. A program that measures memory makes it its global allocator.
pub struct CountingAllocator;

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let in_use = IN_USE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(in_use, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Held by each test that measures memory, which is that of the whole process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory that is allocated after [`MemoryUse::start`].
pub struct MemoryUse {
    before: usize,
}

impl MemoryUse {
    /// Starts to measure.
    ///
    /// # Panics
    /// If [`CountingAllocator`] is not the global allocator: every bound would hold.
    pub fn start() -> MemoryUse {
        let before = IN_USE.load(Relaxed);
        assert!(before > 0, "CountingAllocator is not the global allocator of this program");
        PEAK.store(before, Relaxed);
        MemoryUse { before }
    }

    /// The additional bytes in use.
    pub fn bytes(&self) -> usize {
        IN_USE.load(Relaxed).saturating_sub(self.before)
    }

    /// The maximum of the additional memory, in MiB.
    pub fn peak_mib(&self) -> usize {
        PEAK.load(Relaxed).saturating_sub(self.before) >> 20
    }
}
