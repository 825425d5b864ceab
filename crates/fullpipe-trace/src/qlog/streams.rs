//! The data of streams.

use std::collections::HashMap;

/// The data of streams in one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    ends: HashMap<u64, u64>,
    /// Bytes, each once.
    pub(super) bytes: u64,
    pub(super) frames: u64,
}

impl Streams {
    /// Adds a frame; the ends of at most `most` streams are kept.
    pub(super) fn add(&mut self, id: u64, offset: u64, length: u64, most: usize) {
        self.frames += 1;
        let end = offset.saturating_add(length);
        let known = self.ends.get(&id).copied();
        if known.is_none() && self.ends.len() >= most {
            self.bytes = self.bytes.saturating_add(length);
            return;
        }
        let known = known.unwrap_or(0);
        // What is below the highest offset is retransmitted; a gap may be filled later.
        self.bytes = self.bytes.saturating_add(end.saturating_sub(known.max(offset)));
        self.ends.insert(id, known.max(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmitted_bytes_count_once_and_memory_is_bounded() {
        let mut streams = Streams::default();
        for (id, offset, length) in
            [(0, 0, 100), (0, 100, 100), (0, 50, 100), (4, 0, 10), (8, 0, 5), (8, 0, 5)]
        {
            streams.add(id, offset, length, 2);
        }
        // The third stream is beyond the bound: its bytes count each time.
        assert_eq!((streams.bytes, streams.frames, streams.ends.len()), (220, 6, 2));
        streams.add(4, u64::MAX, u64::MAX, 2);
    }
}
