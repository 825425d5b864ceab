//! Bytes of a packet.

/// Captured bytes of a packet, and its length on the link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data<'a> {
    pub bytes: &'a [u8],
    pub length: usize,
}

impl<'a> Data<'a> {
    /// All after the first `n` bytes, if these were captured.
    pub fn skip(self, n: usize) -> Option<Self> {
        Some(Data { bytes: self.bytes.get(n..)?, length: self.length.saturating_sub(n) })
    }

    /// The first `n` bytes, as far as there are so many.
    pub fn first(self, n: usize) -> Self {
        Data { bytes: &self.bytes[..self.bytes.len().min(n)], length: n }
    }

    pub fn byte(self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    pub fn half(self, at: usize) -> Option<u16> {
        self.bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
    }

    pub fn word(self, at: usize) -> Option<u32> {
        self.bytes.get(at..)?.first_chunk().map(|b| u32::from_be_bytes(*b))
    }
}
