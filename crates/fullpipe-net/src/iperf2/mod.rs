//! The messages of iperf 2: the header of a client, the numbers of its datagrams, and the report
//! that a server returns over UDP.
//!
//! Versions before 2.0.10 send a header only for tests with a connection back, newer ones for all;
//! `include/payloads.h` of iperf 2 defines the fields, all in network order. Every connection of a
//! test has its own header; there is no control connection, and TCP servers return no counts.

mod datagram;

pub use datagram::{Datagram, Report};

use std::time::Duration;

/// The header begins with flags; the first version has six words.
const V1_LEN: usize = 24;
/// The first version and the extension of 2.0.10.
pub const HEADER_LEN: usize = V1_LEN + 36;
/// Length of an answer to a client that asks for the server's version.
pub const ACK_LEN: usize = 28;
/// The port of iperf 2.
pub const PORT: u16 = 5001;

const VERSION1: u32 = 0x8000_0000;
const EXTEND: u32 = 0x4000_0000;
const UDP_TESTS: u32 = 0x2000_0000;
const KEY_CHECK: u32 = 0x1000_0000;
const SEQUENCE_64: u32 = 0x0800_0000;
const VERSION2: u32 = 0x0400_0000;
const PEER_DETECT: u32 = 0x0200_0000;
const UDP_AVOID1: u32 = 0x0100_0000;
const BOUNCE_BACK: u32 = 0x0080_0000;
const LENGTH: u32 = 0x0001_0000;
const LENGTH_MASK: u32 = 0x0000_fffe;
const RUN_NOW: u32 = 1;

const ISOCHRONOUS: u16 = 0x0001;
const TRIP_TIMES: u16 = 0x0010;
const REVERSE: u16 = 0x0400;
const FULL_DUPLEX: u16 = 0x0800;
const BURSTS: u16 = 0x2000;

/// Who sends, and over which connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The client.
    #[default]
    Forward,
    /// The server (`-R`).
    Reverse,
    /// Both over one connection (`--full-duplex`).
    FullDuplex,
    /// The client, and at the same time the server over a connection back (`-d`).
    Dual,
    /// The client, and then the server over a connection back (`-r`).
    TradeOff,
}

impl Mode {
    /// For logs.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Forward => "forward",
            Mode::Reverse => "reverse",
            Mode::FullDuplex => "full-duplex",
            Mode::Dual => "dual",
            Mode::TradeOff => "trade-off",
        }
    }
}

/// When a sender stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// After this time, in units of 10 ms on the wire.
    Time(Duration),
    /// After this many bytes; clients truncate them to 31 bits.
    Bytes(u64),
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Direction.
    pub mode: Mode,
    /// Connections of the test.
    pub threads: u32,
    /// The client's port for a connection back.
    pub port: u16,
    /// Bytes per write or datagram; 0 for the server's default.
    pub block: u32,
    /// When a sender stops.
    pub amount: Amount,
    /// Rate of a sender in bit/s; 0 for no limit.
    pub rate: u64,
    /// The client's version, such as `2.1.8`; versions before 2.0.10 send none.
    pub version: Option<String>,
    /// Whether the client, or the servers of its time, expect [`ack`].
    pub wants_ack: bool,
}

/// Why a header is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unsupported(pub &'static str);

fn word(bytes: &[u8], index: usize) -> u32 {
    bytes.get(index * 4..index * 4 + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// The length of the header that begins with `first`, if it is one of a TCP client. No iperf3
/// cookie and no request of HTTP begins so.
pub fn header_len(first: &[u8]) -> Option<usize> {
    let flags = word(first, 0);
    let known = VERSION1 | EXTEND | KEY_CHECK | VERSION2 | PEER_DETECT | LENGTH | LENGTH_MASK | RUN_NOW;
    if flags == BOUNCE_BACK {
        return Some(V1_LEN);
    }
    if first.len() < 4 || flags & !known != 0 || flags & (VERSION1 | EXTEND) == 0 {
        return None;
    }
    Some(header_len_by_flags(flags))
}

fn header_len_by_flags(flags: u32) -> usize {
    match ((flags & LENGTH_MASK) >> 1) as usize {
        // The first version has words that overlap with the length: servers read at most 256 bytes.
        length @ V1_LEN..=256 if flags & LENGTH != 0 => length,
        _ if flags & (VERSION2 | EXTEND) != 0 => HEADER_LEN,
        _ => V1_LEN,
    }
}

/// Whether `bytes` end with the payload of iperf 2: the digits in a circle.
pub fn is_payload(bytes: &[u8]) -> bool {
    let is_next = |a: u8, b: u8| a.is_ascii_digit() && b == if a == b'9' { b'0' } else { a + 1 };
    bytes.windows(2).rev().take_while(|pair| is_next(pair[0], pair[1])).count() >= 8
}

impl Header {
    /// A test of a client without a header.
    pub fn absent() -> Header {
        Header {
            mode: Mode::Forward,
            threads: 1,
            port: 0,
            block: 0,
            amount: Amount::Time(Duration::ZERO),
            rate: 0,
            version: None,
            wants_ack: false,
        }
    }

    /// Reads a TCP client's header; what the length leaves out is 0.
    ///
    /// # Errors
    /// If the test needs more than its header.
    pub fn parse(bytes: &[u8]) -> Result<Header, Unsupported> {
        let flags = word(bytes, 0);
        let extended = flags & EXTEND != 0;
        let upper = if extended { (word(bytes, 8) >> 16) as u16 } else { 0 };
        if flags & BOUNCE_BACK != 0 {
            return Err(Unsupported("bounce-back tests are not supported"));
        }
        if flags & KEY_CHECK != 0 {
            return Err(Unsupported("permit keys are not supported"));
        }
        let mode = match () {
            () if flags & VERSION2 != 0 && upper & FULL_DUPLEX != 0 => Mode::FullDuplex,
            () if flags & VERSION2 != 0 && upper & REVERSE != 0 => Mode::Reverse,
            () if flags & (VERSION1 | VERSION2) != VERSION1 => Mode::Forward,
            () if flags & RUN_NOW != 0 => Mode::Dual,
            () => Mode::TradeOff,
        };
        if upper & (TRIP_TIMES | ISOCHRONOUS | BURSTS) != 0
            && matches!(mode, Mode::Reverse | Mode::FullDuplex)
        {
            return Err(Unsupported(
                "trip times, frames and bursts are not supported where the server sends",
            ));
        }
        // The upper 24 bits of the rate are shifted by 8.
        let rate =
            if extended { u64::from(word(bytes, 12)) | u64::from(word(bytes, 13) >> 8) << 32 } else { 0 };
        Ok(Header {
            mode,
            threads: word(bytes, 1),
            port: word(bytes, 2) as u16,
            block: word(bytes, 3),
            amount: Amount::parse(word(bytes, 5)),
            rate,
            version: extended.then(|| version(word(bytes, 9), word(bytes, 10))).flatten(),
            wants_ack: flags & PEER_DETECT != 0 || extended && flags & VERSION2 == 0,
        })
    }

    /// As iperf 2.1 writes it.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let (flags, upper) = match self.mode {
            // Without this flag, servers send an answer that was not asked for.
            Mode::Forward => (VERSION2, 0),
            Mode::Reverse => (VERSION2, REVERSE),
            Mode::FullDuplex => (VERSION2, FULL_DUPLEX),
            Mode::Dual => (VERSION1 | RUN_NOW, 0),
            Mode::TradeOff => (VERSION1, 0),
        };
        let mut words = [0_u32; HEADER_LEN / 4];
        let flags = if self.wants_ack { flags | PEER_DETECT } else { flags };
        words[0] = flags | EXTEND | LENGTH | (HEADER_LEN as u32) << 1;
        (words[1], words[2], words[3]) = (self.threads, self.port.into(), self.block);
        words[5] = self.amount.to_word();
        words[8] = u32::from(upper) << 16;
        (words[9], words[10]) = (OUR_VERSION.0, OUR_VERSION.1);
        (words[12], words[13]) = (self.rate as u32, ((self.rate >> 32) as u32) << 8);
        bytes_of(&words)
    }
}

/// The version of the protocol that this implementation speaks: 2.1.8.
const OUR_VERSION: (u32, u32) = (0x0002_0001, 0x0008_0003);

fn bytes_of<const N: usize>(words: &[u32]) -> [u8; N] {
    let mut bytes = [0; N];
    for (four, word) in bytes.chunks_exact_mut(4).zip(words) {
        four.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// The answer to a client that asks for the server's version.
pub fn ack() -> [u8; ACK_LEN] {
    const KIND: u32 = 2;
    bytes_of(&[KIND, ACK_LEN as u32, 0, OUR_VERSION.0, OUR_VERSION.1, 0, 0])
}

/// The version of a server that answers.
pub fn server_version(answer: &[u8; ACK_LEN]) -> Option<String> {
    answer.starts_with(&ack()[..4]).then(|| version(word(answer, 3), word(answer, 4))).flatten()
}

/// `2.1.8` from two words of 16-bit parts; a release of 0 digits is none.
fn version(upper: u32, lower: u32) -> Option<String> {
    (upper != 0).then(|| format!("{}.{}.{}", upper >> 16, upper & 0xffff, lower >> 16))
}

impl Amount {
    fn parse(word: u32) -> Amount {
        match word as i32 {
            time @ ..0 => Amount::Time(Duration::from_millis(u64::from(time.unsigned_abs()) * 10)),
            bytes => Amount::Bytes(bytes as u64),
        }
    }

    fn to_word(self) -> u32 {
        match self {
            Amount::Time(time) => ((time.as_millis() / 10).min(1 << 31) as u32).wrapping_neg(),
            Amount::Bytes(bytes) => bytes.min(i32::MAX as u64) as u32,
        }
    }
}

/// A line of iperf 2's report.
pub fn line(bytes: u64, seconds: f64) -> String {
    let rate = bytes as f64 * 8.0 / seconds.max(1e-9);
    let (bytes, byte_unit) = scaled(bytes as f64, 1024.0);
    let (rate, rate_unit) = scaled(rate, 1000.0);
    format!("0.0000-{seconds:.4} sec  {bytes} {byte_unit}Bytes  {rate} {rate_unit}bits/sec")
}

/// Three digits and the unit's prefix.
fn scaled(value: f64, base: f64) -> (String, &'static str) {
    let mut value = value;
    let mut prefixes = ["", "K", "M", "G"].into_iter();
    let mut prefix = prefixes.next().unwrap_or_default();
    while value >= base
        && let Some(next) = prefixes.next()
    {
        (value, prefix) = (value / base, next);
    }
    let text = match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    (text, prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// As captured from iperf 2.1.8 with `-t 1` and the options of the mode.
    fn captured(flags: u32, upper: u32) -> Vec<u8> {
        bytes(&[flags, 3, 5001, 0, 0, 0xffff_ff9c, 0, 0, upper, 0x20001, 0x80003, 0, 0x00a0_0000, 0, 0])
    }

    #[test]
    fn headers_of_stock_clients_are_read() {
        for (flags, upper, mode, wants_ack) in [
            (0x4001_0078, 0, Mode::Forward, true),
            (0x4401_0078, 0x0400_0000, Mode::Reverse, false),
            (0x4401_0078, 0x0800_0000, Mode::FullDuplex, false),
            (0xc001_0079, 0, Mode::Dual, true),
            (0xc001_0078, 0, Mode::TradeOff, true),
            (0x4601_0078, 0, Mode::Forward, true),
        ] {
            let captured = captured(flags, upper);
            assert_eq!(header_len(&captured[..4]), Some(HEADER_LEN));
            let header = Header::parse(&captured[..HEADER_LEN]).unwrap();
            assert_eq!((header.mode, header.wants_ack), (mode, wants_ack), "{flags:#x}");
            assert_eq!((header.threads, header.port, header.rate), (3, 5001, 10_485_760));
            assert_eq!(header.amount, Amount::Time(Duration::from_secs(1)));
            assert_eq!(header.version.as_deref(), Some("2.1.8"));
        }
        let old = bytes(&[0x8000_0001, 1, 5001, 0, 0, 0x0010_0000]);
        assert_eq!(header_len(&old), Some(24));
        let header = Header::parse(&old).unwrap();
        assert_eq!((header.mode, header.version), (Mode::Dual, None));
        assert_eq!((header.amount, header.wants_ack), (Amount::Bytes(1 << 20), false));
    }

    #[test]
    fn other_protocols_are_no_headers() {
        for first in [
            &b"GET /"[..],
            b"POST",
            b"PUT ",
            b"HEAD",
            b"PRI ",
            b"SSH-",
            b"abcd",
            b"2345",
            b"0123",
            b"\x16\x03\x01\x02",
            b"\xff\xff\xff\xff",
            b"\0\0\0\0",
            b"@",
            b"",
        ] {
            assert_eq!(header_len(first), None, "{first:?}");
        }
    }

    #[test]
    fn headers_survive_a_round_trip() {
        for mode in [Mode::Forward, Mode::Reverse, Mode::FullDuplex, Mode::Dual, Mode::TradeOff] {
            for amount in [Amount::Bytes(5), Amount::Time(Duration::from_secs(10))] {
                let header =
                    Header { mode, amount, rate: 1 << 35, port: 6001, threads: 4, ..Header::absent() };
                let read = Header::parse(&header.to_bytes()).unwrap();
                assert_eq!(header_len(&header.to_bytes()), Some(HEADER_LEN));
                let rest = Header { version: None, wants_ack: false, ..read };
                assert_eq!(server_version(&ack()).as_deref(), Some("2.1.8"));
                assert_eq!(rest, header);
            }
        }
    }

    #[test]
    fn tests_that_need_more_than_a_header_are_named() {
        let refused = |words: &[u32]| Header::parse(&bytes(words)).unwrap_err().0;
        assert_eq!(header_len(&bytes(&[0x0080_0000])), Some(24));
        assert!(refused(&[0x0080_0000, 100]).contains("bounce-back"));
        assert!(refused(&[0x5001_0078]).contains("permit keys"));
        assert!(refused(&[0x4401_0078, 1, 5001, 0, 0, 1, 0, 0, 0x0410_0000]).contains("trip times"));
        assert!(Header::parse(&[]).is_ok_and(|header| header.mode == Mode::Forward));
    }

    #[test]
    fn reports_have_the_form_of_iperf_2() {
        assert_eq!(line(1 << 30, 10.0), "0.0000-10.0000 sec  1.00 GBytes  859 Mbits/sec");
        assert_eq!(line(131_072, 1.0), "0.0000-1.0000 sec  128 KBytes  1.05 Mbits/sec");
        assert_eq!(line(0, 0.0), "0.0000-0.0000 sec  0.00 Bytes  0.00 bits/sec");
    }
}
