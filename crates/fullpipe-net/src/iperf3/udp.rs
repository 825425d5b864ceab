//! UDP datagrams: a hello each way, then a timestamp and a sequence number in front of every block.

/// The client's hello, a 32-bit word in the byte order of nearly all machines.
pub const HELLO: [u8; 4] = 0x3637_3839_u32.to_le_bytes();
/// The server's reply.
pub const HELLO_REPLY: [u8; 4] = 0x3938_3736_u32.to_le_bytes();
/// The reply of servers before 3.11.
pub const HELLO_REPLY_OLD: [u8; 4] = 987_654_321_u32.to_le_bytes();
/// The hello of clients before 3.11.
const HELLO_OLD: [u8; 4] = 123_456_789_u32.to_le_bytes();

/// Minimum datagram: a timestamp in two words and a 64-bit counter.
pub const MIN_UDP_BLOCK: usize = 16;
/// Maximum IPv4 datagram.
pub const MAX_UDP_BLOCK: usize = 65_535 - 8 - 20;

/// The header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpHeader {
    /// The sender's wall clock, microseconds.
    pub sent_us: u64,
    /// Counted from 1.
    pub number: u64,
}

impl UdpHeader {
    /// Whether a datagram is a client's hello.
    pub fn is_hello(datagram: &[u8]) -> bool {
        datagram == HELLO || datagram == HELLO_OLD
    }

    /// Parses a datagram's header; `None` if too short.
    pub fn parse(datagram: &[u8], wide: bool) -> Option<UdpHeader> {
        let word = |at: usize| {
            datagram.get(at..at + 4).map(|b| u64::from(u32::from_be_bytes([b[0], b[1], b[2], b[3]])))
        };
        let number = if wide { word(8)? << 32 | word(12)? } else { word(8)? };
        Some(UdpHeader { sent_us: word(0)? * 1_000_000 + word(4)?, number })
    }

    /// Writes the header of a datagram of at least [`MIN_UDP_BLOCK`] bytes. Seconds and narrow
    /// counters wrap at 2³².
    pub fn write(self, datagram: &mut [u8], wide: bool) {
        datagram[..4].copy_from_slice(&((self.sent_us / 1_000_000) as u32).to_be_bytes());
        datagram[4..8].copy_from_slice(&((self.sent_us % 1_000_000) as u32).to_be_bytes());
        if wide {
            datagram[8..16].copy_from_slice(&self.number.to_be_bytes());
        } else {
            datagram[8..12].copy_from_slice(&(self.number as u32).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_hello_reads_9876_on_the_wire() {
        assert_eq!(&HELLO, b"9876");
        assert_eq!(&HELLO_REPLY, b"6789");
        assert!(UdpHeader::is_hello(b"9876") && !UdpHeader::is_hello(b"98765"));
    }

    proptest! {
        #[test]
        fn headers_round_trip(sent_us in 0u64..4_000_000_000_000_000, number in 0u64..1 << 32, wide: bool) {
            let header = UdpHeader { sent_us, number };
            let mut datagram = [0; MIN_UDP_BLOCK];
            header.write(&mut datagram, wide);
            prop_assert_eq!(UdpHeader::parse(&datagram, wide), Some(header));
        }

        #[test]
        fn short_datagrams_have_no_header(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            prop_assert_eq!(UdpHeader::parse(&bytes, false), None);
        }
    }
}
