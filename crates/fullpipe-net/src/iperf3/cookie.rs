//! The random text that identifies the connections of a test.

use super::Malformed;
use std::fmt;

/// Bytes of a cookie on the wire: 36 characters and a zero.
pub const COOKIE_LEN: usize = 37;

/// iperf3's alphabet for cookies.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// How a cookie begins. iperf 2 servers take the first bytes for the flags of a header, and fail for
/// some: with these they expect no header, and answer at once (`HEADER_V2PEERDETECT`).
const FIRST: u8 = b'2';

/// The first bytes of every connection of a test.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie([u8; COOKIE_LEN]);

impl Cookie {
    /// A random cookie from the system's random source.
    ///
    /// # Errors
    /// If the system's random source fails.
    pub fn random() -> std::io::Result<Cookie> {
        let mut random = [0; COOKIE_LEN - 1];
        getrandom::fill(&mut random).map_err(|e| std::io::Error::other(e.to_string()))?;
        let mut bytes = [0; COOKIE_LEN];
        for (byte, r) in bytes.iter_mut().zip(random) {
            *byte = ALPHABET[usize::from(r % 32)];
        }
        bytes[0] = FIRST;
        Ok(Cookie(bytes))
    }

    /// Parses a cookie: printable characters and a closing zero, as iperf3 and its
    /// reimplementations send.
    ///
    /// # Errors
    /// If the bytes are of another protocol.
    pub fn parse(bytes: [u8; COOKIE_LEN]) -> Result<Cookie, Malformed> {
        let text = &bytes[..COOKIE_LEN - 1];
        let printable = text.iter().all(|b| b.is_ascii_graphic());
        if printable && bytes[COOKIE_LEN - 1] == 0 {
            Ok(Cookie(bytes))
        } else {
            Err(Malformed("the first 37 bytes are not an iperf3 cookie".to_owned()))
        }
    }

    /// The encoded cookie.
    pub fn as_bytes(&self) -> &[u8; COOKIE_LEN] {
        &self.0
    }
}

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &b in &self.0[..COOKIE_LEN - 1] {
            write!(f, "{}", char::from(b))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_accepted_by_its_own_parser_and_differs_every_time() {
        let (a, b) = (Cookie::random().unwrap(), Cookie::random().unwrap());
        assert_eq!(Cookie::parse(*a.as_bytes()), Ok(a));
        assert_ne!(a, b);
    }

    #[test]
    fn other_protocols_are_not_cookies() {
        let mut tls = [0; COOKIE_LEN];
        tls[..3].copy_from_slice(&[0x16, 0x03, 0x01]);
        assert!(Cookie::parse(tls).is_err());
        assert!(Cookie::parse([b'a'; COOKIE_LEN]).is_err(), "no closing zero");
    }
}
