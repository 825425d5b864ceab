//! Datagrams of iperf 2, and the server's final report.

use super::{
    EXTEND, LENGTH, SEQUENCE_64, UDP_AVOID1, UDP_TESTS, VERSION1, VERSION2, bytes_of, is_payload, word,
};
use super::{HEADER_LEN, Mode, OUR_VERSION, PEER_DETECT, RUN_NOW};

/// Number and time of a datagram.
const NUMBER_LEN: usize = 16;
/// Length of a report, with the extensions that this implementation leaves 0.
const REPORT_LEN: usize = NUMBER_LEN + 40 + 60 + 12;

/// A datagram of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its number; the last one's is negated on the wire.
    pub number: u64,
    /// Whether the sender has ended, and waits for the report.
    pub is_last: bool,
    /// Send time at the sender's clock, µs.
    pub sent_us: u64,
}

impl Datagram {
    /// Reads the number and time. Clients before 2.0.10 send numbers of 32 bits (`wide` is false).
    pub fn parse(bytes: &[u8], wide: bool) -> Option<Datagram> {
        if bytes.len() < if wide { NUMBER_LEN } else { 12 } {
            return None;
        }
        let low = word(bytes, 0);
        let number = if wide {
            (u64::from(word(bytes, 3)) << 32 | u64::from(low)) as i64
        } else {
            i64::from(low as i32)
        };
        let sent_us = u64::from(word(bytes, 1)) * 1_000_000 + u64::from(word(bytes, 2));
        Some(Datagram { number: number.unsigned_abs(), is_last: number < 0, sent_us })
    }

    /// Writes it to the beginning of `bytes`, which are at least 16.
    pub fn write(self, bytes: &mut [u8]) {
        let number = if self.is_last { (self.number as i64).wrapping_neg() as u64 } else { self.number };
        let (seconds, us) = ((self.sent_us / 1_000_000) as u32, (self.sent_us % 1_000_000) as u32);
        let head: [u8; NUMBER_LEN] = bytes_of(&[number as u32, seconds, us, (number >> 32) as u32]);
        bytes[..NUMBER_LEN].copy_from_slice(&head);
    }

    /// As [`write`](Self::write), with the header that follows the number in every datagram, as far
    /// as there is room.
    pub(crate) fn write_with_header(self, bytes: &mut [u8]) {
        let mut words = [0_u32; HEADER_LEN / 4];
        let length = (NUMBER_LEN + HEADER_LEN) as u32;
        words[0] = EXTEND | SEQUENCE_64 | LENGTH | length << 1;
        (words[1], words[9], words[10]) = (1, OUR_VERSION.0, OUR_VERSION.1);
        let header: [u8; HEADER_LEN] = bytes_of(&words);
        for (to, from) in bytes.iter_mut().skip(NUMBER_LEN).zip(header) {
            *to = from;
        }
        self.write(bytes);
    }

    /// If this is the first datagram of an iperf 2 client: whether its numbers have 64 bits, and its
    /// direction.
    pub fn opening(bytes: &[u8]) -> Option<(bool, Mode)> {
        let (flags, us) = (word(bytes, 4), word(bytes, 2));
        let known = EXTEND | UDP_TESTS | SEQUENCE_64 | VERSION1 | VERSION2 | PEER_DETECT | UDP_AVOID1;
        let is_new = bytes.len() > NUMBER_LEN + 24
            && flags & (EXTEND | SEQUENCE_64 | LENGTH) == EXTEND | SEQUENCE_64 | LENGTH
            && flags & !(known | LENGTH | 0xffff) == 0;
        let is_old = bytes.len() > 44 && is_payload(bytes);
        if us >= 1_000_000 || !is_new && !is_old {
            return None;
        }
        let wide = is_new;
        if Datagram::parse(bytes, wide)?.is_last {
            return None;
        }
        let flags = if is_new { flags } else { word(bytes, 3) };
        let mode = match () {
            () if is_new && flags & VERSION2 != 0 && word(bytes, 12) & 0x0800_0000 != 0 => Mode::FullDuplex,
            () if is_new && flags & VERSION2 != 0 => Mode::Reverse,
            () if flags & VERSION1 == 0 => Mode::Forward,
            () if flags & RUN_NOW != 0 => Mode::Dual,
            () => Mode::TradeOff,
        };
        Some((wide, mode))
    }
}

/// What a server counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Bytes received.
    pub bytes: u64,
    /// Seconds from the first to the last datagram.
    pub seconds: f64,
    /// Lost datagrams.
    pub lost: u64,
    /// Datagrams out of order.
    pub out_of_order: u64,
    /// Datagrams sent, by the highest number.
    pub datagrams: u64,
    /// Jitter in seconds.
    pub jitter: f64,
}

impl Report {
    /// As the answer to a last datagram.
    pub fn to_bytes(self) -> [u8; REPORT_LEN] {
        let mut words = [0_u32; REPORT_LEN / 4];
        let high = |n: u64| (n >> 32) as u32;
        let fraction = |s: f64| (s.fract() * 1e6) as u32;
        words[4] = VERSION1 | SEQUENCE_64;
        (words[5], words[6]) = (high(self.bytes), self.bytes as u32);
        (words[7], words[8]) = (self.seconds as u32, fraction(self.seconds));
        (words[9], words[10], words[11]) =
            (self.lost as u32, self.out_of_order as u32, self.datagrams as u32);
        (words[12], words[13]) = (self.jitter as u32, fraction(self.jitter));
        (words[29], words[30], words[31]) = (high(self.lost), high(self.out_of_order), high(self.datagrams));
        bytes_of(&words)
    }

    /// Reads a server's answer.
    pub fn parse(bytes: &[u8]) -> Option<Report> {
        let flags = word(bytes, 4);
        if bytes.len() < NUMBER_LEN + 40 || flags & VERSION1 == 0 {
            return None;
        }
        let wide = flags & SEQUENCE_64 != 0 && bytes.len() >= REPORT_LEN;
        let both = |low: usize, high: usize| {
            u64::from(word(bytes, low)) | if wide { u64::from(word(bytes, high)) << 32 } else { 0 }
        };
        let time = |whole: usize| f64::from(word(bytes, whole)) + f64::from(word(bytes, whole + 1)) / 1e6;
        Some(Report {
            bytes: u64::from(word(bytes, 5)) << 32 | u64::from(word(bytes, 6)),
            seconds: time(7),
            lost: both(9, 29),
            out_of_order: both(10, 30),
            datagrams: both(11, 31),
            jitter: time(12),
        })
    }

    /// The line of iperf 2.
    pub fn line(&self) -> String {
        let share = self.lost as f64 * 100.0 / self.datagrams.max(1) as f64;
        format!(
            "{}  {:.3} ms {}/{} ({share:.2}%)",
            super::line(self.bytes, self.seconds),
            self.jitter * 1e3,
            self.lost,
            self.datagrams
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(number: i64, flags: u32, upper: u32) -> Vec<u8> {
        let mut bytes = vec![0; 1470];
        let words = [0, 0, 0, 0, flags, 1, 5001, 0, 0, 0xffff_ff9c, 0, 0, upper, 0x20001, 0x80003];
        bytes[..60].copy_from_slice(&bytes_of::<60>(&words));
        let is_last = number < 0;
        Datagram { number: number.unsigned_abs(), is_last, sent_us: 1_700_000_000_000_001 }.write(&mut bytes);
        bytes
    }

    #[test]
    fn datagrams_of_stock_clients_are_recognised() {
        for (flags, upper, mode) in [
            (0x4801_0098, 0, Mode::Forward),
            (0x6c01_0098, 0x0400_0000, Mode::Reverse),
            (0x6c01_0098, 0x0808_0000, Mode::FullDuplex),
            (0xc801_0099, 0, Mode::Dual),
            (0xc801_0098, 0, Mode::TradeOff),
        ] {
            assert_eq!(Datagram::opening(&captured(1, flags, upper)), Some((true, mode)));
        }
        // Version 2.0.5: a number of 32 bits, no header, digits.
        let mut old = b"0123456789".repeat(147);
        old[..16].copy_from_slice(&bytes_of::<16>(&[0, 1_700_000_000, 5, 0]));
        assert_eq!(Datagram::opening(&old), Some((false, Mode::Forward)));
        // The end of an earlier test, a hello of iperf3, DNS, noise.
        assert_eq!(Datagram::opening(&captured(-9, 0x4801_0098, 0)), None);
        for other in [&[0x36, 0x37, 0x38, 0x39][..], &[0; 600], &[0xff; 1470], b"", b"0123456789"] {
            assert_eq!(Datagram::opening(other), None);
        }
    }

    #[test]
    fn the_last_datagram_has_a_negative_number() {
        let last = Datagram::parse(&captured(-0x1_0000_0002, 0, 0), true).unwrap();
        assert_eq!((last.number, last.is_last, last.sent_us), (0x1_0000_0002, true, 1_700_000_000_000_001));
        let mut most = vec![0xff; 16];
        most[12] = 0x80;
        assert!(Datagram::parse(&most, true).is_some() && Datagram::parse(&most[..15], true).is_none());
        assert!(Datagram::parse(&most[..12], false).is_some_and(|one| one.is_last && one.number == 1));
    }

    #[test]
    fn reports_survive_a_round_trip() {
        let report = Report {
            bytes: 1 << 40,
            seconds: 10.25,
            lost: 1 << 33,
            out_of_order: 7,
            datagrams: 1 << 34,
            jitter: 0.000_25,
        };
        assert_eq!(Report::parse(&report.to_bytes()), Some(report));
        assert_eq!(Report::parse(&report.to_bytes()[..56]).map(|short| short.lost), Some(0));
        assert_eq!(Report::parse(&[0xff; 55]), None);
        let report = Report { bytes: 131_000, seconds: 1.0, lost: 1, datagrams: 90, ..report };
        assert_eq!(report.line(), "0.0000-1.0000 sec  128 KBytes  1.05 Mbits/sec  0.250 ms 1/90 (1.11%)");
    }
}
