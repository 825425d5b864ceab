//! Builder for netlink messages.

use super::{HEADER, NESTED};

/// A request to the kernel.
#[derive(Clone, Debug)]
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of this type; `body` is the protocol header before the attributes.
    pub fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(body);
        Request { bytes }
    }

    /// Appends an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        put_attribute(&mut self.bytes, kind, value);
        self
    }

    /// Appends an attribute that contains the attributes appended by `inner`.
    pub fn nested(&mut self, kind: u16, inner: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.attribute(kind | NESTED, &[]);
        inner(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Appends raw bytes: the header inside some nested attributes.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The complete message, with additional `flags`.
    pub(crate) fn finish(mut self, sequence: u32, flags: u16) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        let flags = u16::from_ne_bytes([self.bytes[6], self.bytes[7]]) | flags;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// Appends an attribute, padded to four bytes.
pub fn put_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    bytes.extend_from_slice(&((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A NUL-terminated string.
pub fn c_string(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
