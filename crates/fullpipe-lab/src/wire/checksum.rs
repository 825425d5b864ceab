//! The Internet checksum (RFC 1071).

/// The one's-complement sum of `bytes` as big-endian 16-bit words on top of `start`, folded to 16
/// bits and not complemented. The last odd byte counts as the high half of a word.
pub(super) fn sum(start: u32, bytes: &[u8]) -> u16 {
    let mut total = u64::from(start);
    let mut words = bytes.chunks_exact(2);
    for word in &mut words {
        total += u64::from(u16::from_be_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        total += u64::from(*last) << 8;
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1): what stands in the checksum field
/// of a packet whose checksum is still to be completed. `addresses` are source and destination as
/// in the IP header, of either version; `length` is that of transport header and payload.
pub(super) fn pseudo_header(addresses: &[u8], protocol: u8, length: u32) -> u16 {
    sum(u32::from(protocol) + (length >> 16) + (length & 0xffff), addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_1071_example_has_its_published_sum() {
        assert_eq!(sum(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn an_odd_byte_is_padded_with_zero() {
        assert_eq!(sum(0, &[0x12]), 0x1200);
        assert_eq!(sum(0xffff, &[0x00, 0x01]), 1);
    }
}
