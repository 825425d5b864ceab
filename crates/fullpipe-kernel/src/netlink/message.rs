//! Messages and attributes as views over the kernel's bytes (RFC 3549 §2.2).

use super::HEADER;

/// The bits of an attribute's type that are not "nested" and "network byte order".
const TYPE_MASK: u16 = 0x3fff;

/// One message of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_flags`.
    pub flags: u16,
    /// Sequence number of the request that it answers.
    pub sequence: u32,
    /// Payload after the header.
    pub body: &'a [u8],
}

/// Messages of one datagram; ends at the first truncated one.
#[derive(Clone, Copy, Debug)]
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32_at(self.0, 0)? as usize;
        let body = self.0.get(HEADER..length)?;
        let message = Message {
            kind: u16_at(self.0, 4)?,
            flags: u16_at(self.0, 6)?,
            sequence: u32_at(self.0, 8)?,
            body,
        };
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// Attributes of a message, in order; ends at the first truncated one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The value of the first attribute of this type.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(k, _)| *k == kind).map(|(_, v)| v)
    }

    /// The attributes inside the first attribute of this type; empty if absent.
    pub fn nested(self, kind: u16) -> Attributes<'a> {
        Attributes(self.get(kind).unwrap_or_default())
    }

    /// The value of the first attribute of this type as `u32`.
    pub fn u32(self, kind: u16) -> Option<u32> {
        u32_at(self.get(kind)?, 0)
    }

    /// The value of the first attribute of this type as `u64`.
    pub fn u64(self, kind: u16) -> Option<u64> {
        u64_at(self.get(kind)?, 0)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & TYPE_MASK;
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// The native-endian `u16` at an offset.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The native-endian `u32` at an offset.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The native-endian `u64` at an offset.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Text up to the first NUL.
pub fn parse_c_string(bytes: &[u8]) -> String {
    let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::{NESTED, Request, put_attribute};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attributes_round_trip() {
        let mut bytes = Vec::new();
        put_attribute(&mut bytes, 1, b"mq\0");
        put_attribute(&mut bytes, 2 | NESTED, &7u32.to_ne_bytes());
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(all, [(1, &b"mq\0"[..]), (2, &7u32.to_ne_bytes()[..])]);
        assert_eq!(Attributes(&bytes).u32(2), Some(7));
        assert_eq!(Attributes(&bytes).u64(2), None, "shorter than its type");
    }

    #[test]
    fn requests_round_trip() {
        let mut request = Request::new(18, 0x500, &[1, 2, 3, 4]);
        request.attribute(3, b"path0\0").nested(26, |r| {
            r.attribute(8, &[1]);
        });
        let bytes = request.finish(7, 1);
        let mut messages = Messages(&bytes);
        let message = messages.next().unwrap();
        assert_eq!((message.kind, message.flags, message.sequence), (18, 0x501, 7));
        assert_eq!(message.body[..4], [1, 2, 3, 4]);
        let attributes = Attributes(&message.body[4..]);
        assert_eq!(attributes.get(3).map(parse_c_string).as_deref(), Some("path0"));
        assert_eq!(attributes.nested(26).get(8), Some(&[1][..]));
        assert_eq!(messages.next(), None);
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in Messages(&bytes) {
                let _ = Attributes(message.body).count();
            }
            prop_assert!(Attributes(&bytes).count() <= bytes.len() / 4);
        }

        #[test]
        fn every_message_of_a_datagram_is_found(bodies in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..30), 0..8))
        {
            let mut datagram = Vec::new();
            for body in &bodies {
                datagram.extend(Request::new(20, 0, body).finish(1, 0));
                datagram.resize(datagram.len().next_multiple_of(4), 0);
            }
            let found: Vec<Vec<u8>> = Messages(&datagram).map(|m| m.body.to_vec()).collect();
            prop_assert_eq!(found, bodies);
        }
    }
}
