//! Other protocols, recognised by their first bytes, so that an error names what the peer is.

use crate::iperf2;

/// The protocol that begins with these bytes, if it is one that is often met on a wrong port.
pub(crate) fn protocol(first: &[u8]) -> Option<&'static str> {
    // A TLS record: handshake or alert, version 3.x (RFC 8446 section 5.1).
    if matches!(first, [0x15 | 0x16, 3, ..]) {
        return Some("TLS");
    }
    if first.starts_with(b"SSH-") {
        return Some("SSH");
    }
    if first.starts_with(b"PRI ") {
        return Some("HTTP/2");
    }
    // Servers answer an invalid request with a status line or with a page alone.
    if first.starts_with(b"HTTP") || first.starts_with(b"<!DOC") {
        return Some("HTTP");
    }
    // The answer of an iperf 2 server to what it took for a header.
    if first.starts_with(&iperf2::ack()[..8]) {
        return Some("iperf 2");
    }
    // A payload without a header, or with one in front of it.
    (iperf2::is_payload(first) || iperf2::header_len(first).is_some()).then_some("iperf 2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_recognised_by_their_first_bytes() {
        for (first, name) in [
            (&[0x16, 3, 1, 2, 0, 1][..], "TLS"),
            (&[0x15, 3, 3, 0, 2], "TLS"),
            (b"SSH-2.0-OpenSSH_10.0", "SSH"),
            (b"HTTP/1.1 400 Bad Request", "HTTP"),
            (b"PRI * HTTP/2.0", "HTTP/2"),
            (b"0123456789012345678901234567890123456", "iperf 2"),
            (b"\x40\0\0\0\0\0\0\x01\0\0\x13\x89\0\0\0\0\0\0\0\0\0\0\0\x0045678901234567", "iperf 2"),
        ] {
            assert_eq!(protocol(first), Some(name), "{first:?}");
        }
        for first in
            [&b"\x09"[..], b"abcdefghijklmnop0123456", b"", b"\x16", b"77777777777777777777777777777"]
        {
            assert_eq!(protocol(first), None, "{first:?}");
        }
    }
}
