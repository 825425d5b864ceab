//! The way of a frame through the parser and the cutter in one call, for tests with arbitrary bytes.

use super::{Frame, MAX_HEADERS, VnetHeader};
use fullpipe_path::Ecn;

/// Reads `bytes` as a virtio header and a frame, and cuts `count` segments from `first` on out of it, as the
/// emulator does with what a packet socket gives it. Whether it is traffic of a path.
///
/// # Panics
/// If the piece reaches beyond the frame: a mistake in this crate, whatever the bytes are.
#[doc(hidden)]
pub fn read_and_cut(bytes: &[u8], first: u16, count: u16) -> bool {
    let Some((vnet, frame)) = bytes.split_first_chunk() else { return false };
    let Some(parsed) = Frame::parse(VnetHeader::decode(vnet), frame) else { return false };
    let _ = parsed.highest_received(frame);
    let first = first.min(parsed.segments() - 1);
    let count = count.clamp(1, parsed.segments() - first);
    let (_, length, range) = parsed.piece(frame, (first, count), Ecn::Ce, &mut [0; MAX_HEADERS]);
    assert!(length <= frame.len() && range.end <= frame.len(), "a piece beyond its frame");
    true
}
