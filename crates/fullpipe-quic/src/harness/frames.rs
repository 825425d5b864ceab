//! Finds STREAM frames in the plain text of a packet (RFC 9000 §19).

use std::ops::Range;

/// The first unidirectional stream that the client opens (RFC 9000 §2.1).
pub const FIRST_CLIENT_STREAM: u64 = 2;

/// Calls `each` with the number and the range of bytes of every STREAM frame in `frames`. Stops at
/// a frame that it does not know.
pub fn for_each_stream(frames: &[u8], mut each: impl FnMut(u64, Range<u64>)) {
    let mut rest = Cursor { bytes: frames };
    while let Some(kind) = rest.varint() {
        let known = match kind {
            // PADDING, PING, HANDSHAKE_DONE, IMMEDIATE_ACK.
            0x00 | 0x01 | 0x1e | 0x1f => Some(()),
            0x02 | 0x03 => rest.ack(kind == 0x03),
            // RESET_STREAM, ACK_FREQUENCY's fields; STOP_SENDING; limits and blocked.
            0x04 => rest.varints(3),
            0x05 | 0x11 | 0x15 => rest.varints(2),
            0x06 => rest.varint().and_then(|_| rest.sized()),
            0x07 => rest.sized(),
            0x08..=0x0f => rest.stream(kind).map(|(stream, range)| each(stream, range)),
            0x10 | 0x12..=0x14 | 0x16 | 0x17 | 0x19 => rest.varints(1),
            // NEW_CONNECTION_ID: two numbers, the identifier, a token.
            0x18 => rest.varints(2).and_then(|()| rest.skip_byte_sized()).and_then(|()| rest.skip(16)),
            // PATH_CHALLENGE, PATH_RESPONSE.
            0x1a | 0x1b => rest.skip(8),
            0xaf => rest.varints(4),
            _ => None,
        };
        if known.is_none() {
            return;
        }
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
}

impl Cursor<'_> {
    /// A variable-length integer (RFC 9000 §16).
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let first = *self.bytes.first()?;
        let len = 1 << (first >> 6);
        let (own, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(own[1..].iter().fold(u64::from(first & 0x3f), |n, &byte| n << 8 | u64::from(byte)))
    }

    fn varints(&mut self, count: u64) -> Option<()> {
        (0..count).try_for_each(|_| self.varint().map(drop))
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// A length and as many bytes.
    fn sized(&mut self) -> Option<()> {
        let len = self.varint()?;
        self.skip(len)
    }

    fn skip_byte_sized(&mut self) -> Option<()> {
        let len = *self.bytes.first()?;
        self.skip(1 + u64::from(len))
    }

    /// Largest, delay, ranges, the first range, then gap and length of each, then ECN counts.
    fn ack(&mut self, ecn: bool) -> Option<()> {
        self.varints(2)?;
        let ranges = self.varint()?;
        self.varints(1 + 2 * ranges.min(self.bytes.len() as u64) + if ecn { 3 } else { 0 })
    }

    fn stream(&mut self, kind: u64) -> Option<(u64, Range<u64>)> {
        let stream = self.varint()?;
        let offset = if kind & 0x04 != 0 { self.varint()? } else { 0 };
        let len = if kind & 0x02 != 0 { self.varint()? } else { self.bytes.len() as u64 };
        self.skip(len)?;
        Some((stream, offset..offset + len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams(frames: &[u8]) -> Vec<(u64, Range<u64>)> {
        let mut found = Vec::new();
        for_each_stream(frames, |stream, range| found.push((stream, range)));
        found
    }

    #[test]
    fn stream_frames_are_found_behind_other_frames() {
        let mut frames = vec![0x01, 0x00];
        frames.extend([0x03, 0x40, 0x64, 5, 1, 2, 3, 4, 0, 0, 1]); // ACK of two ranges with ECN counts
        frames.extend([0x10, 0x80, 0, 1, 0]); // MAX_DATA
        frames.extend([0x0e, 2, 0x41, 0x00, 3, 9, 9, 9]); // bytes 256..259 of stream 2
        frames.extend([0x18, 1, 0, 8]);
        frames.extend([7; 8 + 16]); // NEW_CONNECTION_ID
        frames.extend([0x08, 6, 9, 9]); // the rest of the packet: bytes 0..2 of stream 6
        assert_eq!(streams(&frames), [(2, 256..259), (6, 0..2)]);
    }

    #[test]
    fn truncated_and_unknown_frames_end_the_search() {
        assert_eq!(streams(&[0x0e, 2, 0x41]), []);
        assert_eq!(streams(&[0x0e, 2, 1, 5, 0]), []);
        assert_eq!(streams(&[0x30, 0x08, 2, 1]), []);
        assert_eq!(streams(&[0x02, 1, 0, 0xff]), []);
        assert_eq!(streams(&[0x08, 2, 1, 0x02, 0xff]), [(2, 0..3)]);
    }
}
