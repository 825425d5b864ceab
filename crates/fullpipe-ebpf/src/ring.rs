//! Records that a loaded controller's programs write to a ring buffer.

use crate::error::{Error, Result};
use crate::loader::Loaded;
use bytemuck::Pod;
use libbpf_rs::{Map, MapCore, MapFlags, RingBuffer, RingBufferBuilder};

/// Hands the records in the ring buffer `name` to `each`, as long as `wait` waits for them and those that are
/// there then. Gives how many found the ring full so far, which the programs count first in their `.data.counts`.
///
/// # Errors
/// When the object has no such ring, or the kernel refuses.
pub(crate) fn read<R: Pod>(
    loaded: &Loaded,
    name: &str,
    mut each: impl FnMut(&R),
    wait: impl FnOnce(&RingBuffer<'_>),
) -> Result<u64> {
    let records = map(loaded, name)?;
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&records, |bytes| {
            if bytes.len() == size_of::<R>() {
                each(&bytemuck::pod_read_unaligned(bytes));
            }
            0
        })
        .map_err(unreadable)?;
    let ring = builder.build().map_err(unreadable)?;
    wait(&ring);
    let _ = ring.consume_raw();
    let [missed] = counts(loaded)?;
    Ok(missed)
}

/// The first words of what a loaded object's programs count in their `.data.counts`.
///
/// # Errors
/// When the object counts nothing, or the kernel refuses.
pub(crate) fn counts<const N: usize>(loaded: &Loaded) -> Result<[u64; N]> {
    let bytes =
        map(loaded, ".data.counts")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
    let bytes = bytes.unwrap_or_default();
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    Ok(std::array::from_fn(|_| words.next().unwrap_or(0)))
}

/// The map whose name ends so: libbpf puts the object's in front of some.
fn map<'a>(loaded: &'a Loaded, name: &str) -> Result<Map<'a>> {
    let found = loaded.object().maps().find(|map| map.name().to_string_lossy().ends_with(name));
    found.ok_or_else(|| Error::Malformed(format!("the object has no map {name}")))
}

fn unreadable(error: libbpf_rs::Error) -> Error {
    Error::impossible(format!("the ring buffer cannot be read: {error}"), "Linux 5.8 or newer")
}
