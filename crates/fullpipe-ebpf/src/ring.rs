//! Reads records from a BPF ring buffer.

use crate::error::{Error, Result};
use bytemuck::Pod;
use libbpf_rs::{AsRawLibbpf, Map, MapCore, MapFlags, Object, RingBuffer, RingBufferBuilder};
use std::cell::Cell;
use std::time::Duration;

/// A ring buffer being read.
///
/// Each read consumes only the records present at its start: libbpf reads until the ring is empty,
/// which never happens if programs write faster than this reads.
pub(crate) struct Ring<'a> {
    ring: RingBuffer<'a>,
    /// Records that the current read may still consume.
    left: &'a Cell<u64>,
    /// Bytes per record in the ring.
    record: u64,
}

impl Ring<'_> {
    /// Waits up to `timeout` for records, then consumes those present when called, at least one.
    pub(crate) fn wait(&self, timeout: Duration) {
        self.left.set(self.available().max(1));
        // libbpf reports signals and an early end of the read as errors; neither matters here.
        let _ = self.ring.poll_raw(timeout);
    }

    /// Consumes the records present now.
    pub(crate) fn consume(&self) {
        let available = self.available();
        if available > 0 {
            self.left.set(available);
            let _ = self.ring.consume_raw();
        }
    }

    /// Records in the ring.
    fn available(&self) -> u64 {
        // SAFETY: the buffer lives as long as `self.ring`; its ring 0, which was added when it was built,
        // as long as it.
        let bytes = unsafe {
            libbpf_sys::ring__avail_data_size(libbpf_sys::ring_buffer__ring(
                self.ring.as_libbpf_object().as_ptr(),
                0,
            ))
        };
        bytes as u64 / self.record
    }
}

/// `BPF_RINGBUF_HDR_SZ` (linux/bpf.h), before each record.
const HEADER: usize = 8;

/// Passes the records of the ring buffer `name` to `each` while `wait` runs, then those still
/// present. Returns how many records were dropped because the ring was full, which the programs
/// count first in their `.data.counts`.
///
/// # Errors
/// If the object has no such ring, or the kernel refuses.
pub(crate) fn read<R: Pod>(
    object: &Object,
    name: &str,
    each: impl FnMut(&R),
    wait: impl FnOnce(&Ring<'_>),
) -> Result<u64> {
    follow(object, name, each, wait)?;
    let [dropped] = counts(object)?;
    Ok(dropped)
}

/// As [`read`], for programs that count elsewhere.
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
            // This record is consumed in any case (libbpf's ringbuf_process_ring); a negative value ends the
            // read.
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

/// The first words of a loaded object's `.data.counts`.
///
/// # Errors
/// If the object has no counts, or the kernel refuses.
pub(crate) fn counts<const N: usize>(object: &Object) -> Result<[u64; N]> {
    let bytes =
        map(object, ".data.counts")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
    let bytes = bytes.unwrap_or_default();
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    Ok(std::array::from_fn(|_| words.next().unwrap_or(0)))
}

/// The map whose name ends with `name`: libbpf prefixes some with the object's name.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>> {
    let found = object.maps().find(|map| map.name().to_string_lossy().ends_with(name));
    found.ok_or_else(|| Error::Malformed(format!("the object has no map {name}")))
}

pub(crate) fn unreadable(error: libbpf_rs::Error) -> Error {
    Error::impossible(format!("the ring buffer cannot be read: {error}"), "Linux 5.8 or newer")
}
