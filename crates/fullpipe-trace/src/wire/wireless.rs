//! IEEE 802.11 data frames, and the headers that drivers put before them.

use super::data::Data;
use super::layers::{Layer, Next, Unread, inner_link};
use super::link::OtherLink;

/// Reads the header of a capturing driver. `None` for other links.
pub(super) fn after_link<'a>(link: OtherLink, data: Data<'a>) -> Option<Next<'a>> {
    match link {
        OtherLink::Dot11 => Some(Next::Layer(Layer::Dot11, data)),
        OtherLink::Radiotap => after_radiotap(data),
        // The length of the header is its second word, in the order of the host.
        OtherLink::Prism => {
            let word = data.word(4)?;
            let length = word.swap_bytes().min(word);
            Some(Next::Layer(Layer::Dot11, data.skip(length as usize)?))
        }
        // Version, flags, length and link type, all little-endian.
        OtherLink::Ppi => {
            let length = usize::from(data.half(2)?.swap_bytes());
            if length < 8 {
                return None;
            }
            inner_link(data.word(4)?.swap_bytes(), data.skip(length)?)
        }
        _ => None,
    }
}

/// Reads radiotap's header, and of its fields the flags (radiotap.org).
fn after_radiotap(data: Data<'_>) -> Option<Next<'_>> {
    const PADDED: u8 = 0x20;
    const BAD_FCS: u8 = 0x40;
    let length = usize::from(data.half(2)?.swap_bytes());
    if data.byte(0)? != 0 || length < 8 {
        return None;
    }
    let frame = data.skip(length)?;
    let present = |at: usize| data.word(at).map(u32::swap_bytes);
    let fields = present(4)?;
    // A bitmap with its highest bit set is followed by another.
    let mut at = 8;
    let mut more = fields;
    while more & 1 << 31 != 0 && at < length {
        more = present(at)?;
        at += 4;
    }
    if fields & 1 != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let flags = if fields & 2 != 0 && at < length { data.byte(at)? } else { 0 };
    if flags & BAD_FCS != 0 {
        return None;
    }
    if flags & PADDED != 0 {
        return after_dot11_padded(frame);
    }
    Some(Next::Layer(Layer::Dot11, frame))
}

/// Reads the header of a frame without padding.
pub(super) fn after_dot11(data: Data<'_>) -> Option<Next<'_>> {
    dot11(data, 1)
}

/// Reads the header of a frame padded to four bytes.
fn after_dot11_padded(data: Data<'_>) -> Option<Next<'_>> {
    dot11(data, 4)
}

/// Reads an 802.11 header of data frames (IEEE 802.11 §9.3.2.1), which is padded to a multiple of
/// `alignment`.
fn dot11(data: Data<'_>, alignment: usize) -> Option<Next<'_>> {
    let (first, flags) = (data.byte(0)?, data.byte(1)?);
    let is_data = first & 0x0f == 0x08;
    let is_null = first & 0x40 != 0;
    if !is_data || is_null {
        return None;
    }
    if flags & 0x40 != 0 {
        return Some(Next::Unread(Unread::EncryptedDot11));
    }
    // Later fragments of a frame have no LLC header, the first has no whole packet.
    if flags & 0x04 != 0 || data.half(22)? & 0x0f00 != 0 {
        return None;
    }
    let mut header = if flags & 3 == 3 { 30 } else { 24 };
    let mut is_aggregate = false;
    if first & 0x80 != 0 {
        is_aggregate = data.byte(header)? & 0x80 != 0;
        // With HT control.
        header += if flags & 0x80 != 0 { 6 } else { 2 };
    }
    let rest = data.skip(header.next_multiple_of(alignment))?;
    Some(if is_aggregate { Next::Aggregate(rest) } else { Next::Layer(Layer::Llc, rest) })
}
