//! Parses and segments a frame in one call, for fuzz tests.

use super::{Frame, MAX_HEADERS, VnetHeader};
use fullpipe_path::Ecn;

/// Parses `bytes` as a virtio header and a frame, and extracts `count` segments from `first` on, as
/// the emulator does with frames of a packet socket. Returns whether it is traffic of a path.
///
/// # Panics
/// If the piece reaches beyond the frame, which would be a bug in this crate, whatever the bytes.
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
