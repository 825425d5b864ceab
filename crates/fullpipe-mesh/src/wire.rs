//! Encoding of values in messages: big-endian numbers and length-prefixed text.

/// Encodes a message.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub Vec<u8>);

/// A malformed message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("malformed message")]
pub struct Malformed;

impl Writer {
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u8(&mut self, n: u8) -> &mut Self {
        self.bytes(&[n])
    }

    pub fn u16(&mut self, n: u16) -> &mut Self {
        self.bytes(&n.to_be_bytes())
    }

    pub fn u32(&mut self, n: u32) -> &mut Self {
        self.bytes(&n.to_be_bytes())
    }

    pub fn u64(&mut self, n: u64) -> &mut Self {
        self.bytes(&n.to_be_bytes())
    }

    pub fn i64(&mut self, n: i64) -> &mut Self {
        self.bytes(&n.to_be_bytes())
    }

    /// Writes at most 255 bytes of the text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        let bytes = text.as_bytes();
        let bytes = &bytes[..bytes.len().min(255)];
        self.u8(bytes.len() as u8).bytes(bytes)
    }
}

/// Decodes a message.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn read_bytes(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.read_bytes(N)?.try_into().map_err(|_| Malformed)
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[n]| n)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    pub fn i64(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let n = self.u8()?;
        std::str::from_utf8(self.read_bytes(n.into())?).map_err(|_| Malformed)
    }

    /// Fails if bytes are left.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}
