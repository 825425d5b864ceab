//! Records that programs write to a ring buffer.

use crate::error::{Error, Result};
use bytemuck::Pod;
use libbpf_rs::{AsRawLibbpf, Map, MapCore, MapFlags, Object, RingBuffer, RingBufferBuilder};
use std::cell::Cell;
use std::time::Duration;

/// A loaded object's ring buffer while it is read.
///
/// Each look at it takes what is there at that moment and no more: left to itself libbpf reads until the ring is
/// empty, and against programs that write faster than this reads that is never.
pub(crate) struct Ring<'a> {
    ring: RingBuffer<'a>,
    /// How many records the present look may still take.
    left: &'a Cell<u64>,
    /// Bytes that a record takes in the ring.
    record: u64,
}

impl Ring<'_> {
    /// Waits up to `most` for records, then takes those that were there when this was called, at least one.
    pub(crate) fn wait(&self, most: Duration) {
        self.left.set(self.available().max(1));
        // A signal interrupts the wait, and a look that ends before the ring is empty is an error to libbpf: neither is here.
        let _ = self.ring.poll_raw(most);
    }

    /// Takes the records that are there now.
    pub(crate) fn consume(&self) {
        let available = self.available();
        if available > 0 {
            self.left.set(available);
            let _ = self.ring.consume_raw();
        }
    }

    /// How many records the ring holds.
    fn available(&self) -> u64 {
        // SAFETY: the buffer lives as long as `self.ring`; its ring 0, which was added when it was built, as long as it.
        let bytes = unsafe {
            libbpf_sys::ring__avail_data_size(libbpf_sys::ring_buffer__ring(
                self.ring.as_libbpf_object().as_ptr(),
                0,
            ))
        };
        bytes as u64 / self.record
    }
}

/// `BPF_RINGBUF_HDR_SZ` (linux/bpf.h), in front of each record.
const HEADER: usize = 8;

/// Hands the records in the ring buffer `name` to `each`: those that come while `wait` waits for them, and those that
/// are there then. Gives how many found the ring full so far, which the programs count first in their `.data.counts`.
///
/// # Errors
/// When the object has no such ring, or the kernel refuses.
pub(crate) fn read<R: Pod>(
    object: &Object,
    name: &str,
    each: impl FnMut(&R),
    wait: impl FnOnce(&Ring<'_>),
) -> Result<u64> {
    follow(object, name, each, wait)?;
    let [missed] = counts(object)?;
    Ok(missed)
}

/// The same of programs that count elsewhere.
///
/// # Errors
/// As [`read`].
pub(crate) fn follow<R: Pod>(
    object: &Object,
    name: &str,
    mut each: impl FnMut(&R),
    wait: impl FnOnce(&Ring<'_>),
) -> Result<()> {
    let records = map(object, name)?;
    let left = Cell::new(0u64);
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&records, |bytes| {
            if bytes.len() == size_of::<R>() {
                each(&bytemuck::pod_read_unaligned(bytes));
            }
            left.set(left.get().saturating_sub(1));
            // This record is taken in any case (libbpf's ringbuf_process_ring); a negative number ends the look.
            if left.get() == 0 { -(nix::errno::Errno::ECANCELED as i32) } else { 0 }
        })
        .map_err(unreadable)?;
    // Records begin at multiples of eight bytes (kernel/bpf/ringbuf.c, __bpf_ringbuf_reserve).
    let record = (size_of::<R>() + HEADER).next_multiple_of(8) as u64;
    let ring = Ring { ring: builder.build().map_err(unreadable)?, left: &left, record };
    wait(&ring);
    ring.consume();
    Ok(())
}

/// The first words of what a loaded object's programs count in their `.data.counts`.
///
/// # Errors
/// When the object counts nothing, or the kernel refuses.
pub(crate) fn counts<const N: usize>(object: &Object) -> Result<[u64; N]> {
    let bytes =
        map(object, ".data.counts")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
    let bytes = bytes.unwrap_or_default();
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    Ok(std::array::from_fn(|_| words.next().unwrap_or(0)))
}

/// The map whose name ends so: libbpf puts the object's in front of some.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>> {
    let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
    found.ok_or_else(|| Error::Malformed(format!("the object has no map {name}")))
}

pub(crate) fn unreadable(error: libbpf_rs::Error) -> Error {
    Error::impossible(format!("the ring buffer cannot be read: {error}"), "Linux 5.8 or newer")
}
