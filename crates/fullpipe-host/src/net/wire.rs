//! Netlink messages as bytes: a socket, the header (RFC 3549 §2.2), attributes.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;

pub const NLM_F_REQUEST: u16 = 0x1;
pub const NLM_F_ACK: u16 = 0x4;
pub const NLM_F_DUMP: u16 = 0x300;
pub const NLM_F_REPLACE: u16 = 0x100;
pub const NLM_F_EXCL: u16 = 0x200;
pub const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP_INTR: u16 = 0x10;
const HEADER: usize = 16;
/// The bits of an attribute's type that say "nested" and "network byte order".
const TYPE_MASK: u16 = 0x3fff;

/// A request under construction.
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    pub fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
        bytes[8..12].copy_from_slice(&1u32.to_ne_bytes());
        bytes.extend_from_slice(body);
        Request { bytes }
    }

    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        put_attribute(&mut self.bytes, kind, value);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
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
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// Sends `request` and collects the bodies of the answers of type `answer`; an acknowledgement ends it too.
pub fn exchange(protocol: u32, request: Request, answer: u16) -> io::Result<Vec<Vec<u8>>> {
    let mut attempts = 0;
    let bytes = request.finish();
    loop {
        match exchange_once(protocol, &bytes, answer) {
            // The table changed under the dump: ask again for one consistent picture.
            Err(e) if e.kind() == io::ErrorKind::Interrupted && attempts < 10 => attempts += 1,
            other => return other,
        }
    }
}

fn exchange_once(protocol: u32, request: &[u8], answer: u16) -> io::Result<Vec<Vec<u8>>> {
    let protocol = std::num::NonZeroU32::new(protocol).map(rustix::net::Protocol::from_raw);
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    rustix::net::sendto(&socket, request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let dump = u16::from_ne_bytes([request[6], request[7]]) & NLM_F_DUMP == NLM_F_DUMP;
    let acknowledged = u16::from_ne_bytes([request[6], request[7]]) & NLM_F_ACK != 0;
    let mut bodies = Vec::new();
    let mut interrupted = false;
    let mut buffer = vec![0u8; 1 << 17];
    loop {
        let (length, _) = rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        for message in Messages(&buffer[..length]) {
            interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_DONE if interrupted => return Err(io::ErrorKind::Interrupted.into()),
                NLMSG_DONE => return Ok(bodies),
                NLMSG_ERROR => {
                    return match error_of(message.body) {
                        0 => Ok(bodies),
                        code => Err(io::Error::from_raw_os_error(code)),
                    };
                }
                kind if kind == answer => bodies.push(message.body.to_vec()),
                _ => {}
            }
        }
        if !dump && !acknowledged && !bodies.is_empty() {
            return Ok(bodies);
        }
    }
}

fn error_of(body: &[u8]) -> i32 {
    body.get(..4).map_or(5, |b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]).wrapping_neg())
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    body: &'a [u8],
}

/// The messages of one datagram.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let length = u32_at(self.0, 0)? as usize;
        let body = self.0.get(HEADER..length)?;
        let message = Message { kind: u16_at(self.0, 4)?, flags: u16_at(self.0, 6)?, body };
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// The attributes of a message, in order; ends at the first that does not fit.
#[derive(Clone, Copy)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// The value of the first attribute of this type.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.into_iter().find(|(k, _)| *k == kind).map(|(_, v)| v)
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

pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Text up to its NUL.
pub fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The bytes that [`hex`] wrote; nothing if `text` is not such digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attributes_are_read_back_as_they_were_written() {
        let mut bytes = Vec::new();
        put_attribute(&mut bytes, 1, b"mq\0");
        put_attribute(&mut bytes, 2 | 0x8000, &7u32.to_ne_bytes());
        let all: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(all, [(1, &b"mq\0"[..]), (2, &7u32.to_ne_bytes()[..])]);
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in Messages(&bytes) {
                let _ = Attributes(message.body).count();
            }
            let _ = Attributes(&bytes).count();
        }

        #[test]
        fn hexadecimal_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            prop_assert_eq!(unhex(&hex(&bytes)), Some(bytes));
        }
    }
}
