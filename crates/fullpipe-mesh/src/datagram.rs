//! UDP probes: a request and its reply, of equal length.
//!
//! A reply is never longer than its request, so that a site cannot be used as an amplifier, and
//! peers without a key get no reply.

use crate::key::{PairKey, digest, mac};
use crate::wire::{Malformed, Reader, Writer};
use subtle::ConstantTimeEq;

/// Bytes of a datagram's payload.
pub const DATAGRAM_LEN: usize = 128;
/// Minutes for which a reply reports received requests.
pub const MINUTES: usize = 4;
const MAGIC: &[u8; 4] = b"fpm1";
const TAG_LEN: usize = 16;

/// The direction of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A request.
    Request,
    /// A reply.
    Reply,
}

/// A UDP probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Request or reply.
    pub kind: Kind,
    /// The run of the requesting node; it increases with every start.
    pub epoch: u64,
    /// The request's sequence number, counted from 1.
    pub number: u64,
    /// The minute the request belongs to, since the epoch began.
    pub minute: u32,
    /// The requester's timestamp, opaque to the replier.
    pub stamp: u64,
    /// In a reply: requests received in this minute, the minute before, and so on.
    pub arrived: [u16; MINUTES],
}

/// The short form of a site's name, in clear text; it only selects the key. The datagram itself is
/// authenticated.
pub type Name = [u8; 8];

/// The short form of a site's name in a mesh.
pub fn name(mesh: &str, site: &str) -> Name {
    let hash = digest(format!("{mesh}\n{site}").as_bytes());
    let mut name = [0; 8];
    name.copy_from_slice(&hash[..8]);
    name
}

/// The probe key of a pair.
pub(crate) fn key(pair: &PairKey) -> [u8; 32] {
    pair.derive("small probes", &[])
}

impl Datagram {
    /// Encodes the datagram from `from` to `to`, with its authentication tag.
    pub fn to_bytes(&self, from: Name, to: Name, key: &[u8; 32]) -> [u8; DATAGRAM_LEN] {
        let mut w = Writer::default();
        w.bytes(MAGIC).u8(u8::from(self.kind == Kind::Reply)).bytes(&from).bytes(&to);
        w.u64(self.epoch).u64(self.number).u32(self.minute).u64(self.stamp);
        for n in self.arrived {
            w.u16(n);
        }
        let mut bytes = [0; DATAGRAM_LEN];
        bytes[..w.0.len()].copy_from_slice(&w.0);
        let seal = mac(key, &[&bytes[..DATAGRAM_LEN - TAG_LEN]]);
        bytes[DATAGRAM_LEN - TAG_LEN..].copy_from_slice(&seal[..TAG_LEN]);
        bytes
    }

    /// The sender and receiver that a datagram names, before authentication.
    ///
    /// # Errors
    /// If the bytes are not a datagram.
    pub fn peek_names(bytes: &[u8]) -> Result<(Name, Name), Malformed> {
        let mut r = Reader(bytes);
        if bytes.len() != DATAGRAM_LEN || r.read_bytes(MAGIC.len())? != MAGIC {
            return Err(Malformed);
        }
        r.u8()?;
        Ok((r.array()?, r.array()?))
    }

    /// Decodes a datagram and verifies its tag with `key`.
    ///
    /// # Errors
    /// If the datagram is malformed or its tag is wrong.
    pub fn open(bytes: &[u8], key: &[u8; 32]) -> Result<Datagram, Malformed> {
        Datagram::peek_names(bytes)?;
        let (whole, seal) = bytes.split_at(DATAGRAM_LEN - TAG_LEN);
        if !bool::from(mac(key, &[whole])[..TAG_LEN].ct_eq(seal)) {
            return Err(Malformed);
        }
        let mut r = Reader(whole);
        r.read_bytes(MAGIC.len())?;
        let kind = match r.u8()? {
            0 => Kind::Request,
            1 => Kind::Reply,
            _ => return Err(Malformed),
        };
        r.read_bytes(2 * size_of::<Name>())?;
        let (epoch, number, minute, stamp) = (r.u64()?, r.u64()?, r.u32()?, r.u64()?);
        let mut arrived = [0; MINUTES];
        for n in &mut arrived {
            *n = r.u16()?;
        }
        Ok(Datagram { kind, epoch, number, minute, stamp, arrived })
    }
}

/// Received requests of one site: replay window and counts by minute.
#[derive(Clone, Debug, Default)]
pub struct ProbeCounter {
    epoch: u64,
    /// The greatest sequence number received.
    number: u64,
    /// A replay window of the last 64 numbers, the greatest in the lowest bit.
    window: u64,
    minute: u32,
    arrived: [u16; MINUTES],
}

impl ProbeCounter {
    /// Records a request. Returns the counts to reply with, or `None` for a replayed or outdated
    /// request.
    pub fn record(&mut self, request: &Datagram) -> Option<[u16; MINUTES]> {
        if request.epoch < self.epoch {
            return None;
        }
        if request.epoch > self.epoch {
            *self = ProbeCounter { epoch: request.epoch, minute: request.minute, ..ProbeCounter::default() };
        }
        if request.number > self.number {
            let ahead = request.number - self.number;
            self.window = if ahead < 64 { self.window << ahead } else { 0 } | 1;
            self.number = request.number;
        } else {
            let behind = self.number - request.number;
            if behind >= 64 || self.window >> behind & 1 == 1 {
                return None;
            }
            self.window |= 1 << behind;
        }
        if request.minute > self.minute {
            let ahead = (request.minute - self.minute) as usize;
            self.arrived.rotate_right(ahead.min(MINUTES) % MINUTES);
            self.arrived[..ahead.min(MINUTES)].fill(0);
            self.minute = request.minute;
        }
        if let Some(count) = self.arrived.get_mut((self.minute - request.minute) as usize) {
            *count = count.saturating_add(1);
        }
        // Counts relative to the request's minute.
        let mut counts = [0; MINUTES];
        let behind = (self.minute - request.minute) as usize;
        for (counts, count) in counts.iter_mut().zip(self.arrived.iter().skip(behind)) {
            *counts = *count;
        }
        Some(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(number: u64, minute: u32) -> Datagram {
        let kind = Kind::Request;
        Datagram { kind, epoch: 5, number, minute, stamp: 77, arrived: [0; MINUTES] }
    }

    #[test]
    fn a_request_is_counted_once_in_its_minute() {
        let mut received = ProbeCounter::default();
        assert_eq!(received.record(&request(1, 0)), Some([1, 0, 0, 0]));
        assert_eq!(received.record(&request(3, 0)), Some([2, 0, 0, 0]));
        assert_eq!(received.record(&request(3, 0)), None, "replayed");
        assert_eq!(received.record(&request(4, 1)), Some([1, 2, 0, 0]));
        assert_eq!(received.record(&request(2, 0)), Some([3, 0, 0, 0]), "reordered");
        assert_eq!(received.record(&request(5, 3)), Some([1, 0, 1, 3]));
        assert_eq!(received.record(&request(70, 9)), Some([1, 0, 0, 0]));
        assert_eq!(received.record(&request(6, 9)), None, "outside the replay window");
        assert_eq!(received.record(&Datagram { epoch: 4, ..request(99, 9) }), None, "from an earlier run");
        assert_eq!(received.record(&Datagram { epoch: 6, ..request(1, 0) }), Some([1, 0, 0, 0]));
    }

    #[test]
    fn a_wrong_key_or_a_modified_byte_fails_authentication() {
        let (from, to) = (name("m", "lab"), name("m", "sea"));
        let bytes = request(9, 2).to_bytes(from, to, &[3; 32]);
        assert_eq!(Datagram::peek_names(&bytes), Ok((from, to)));
        assert_eq!(Datagram::open(&bytes, &[3; 32]), Ok(request(9, 2)));
        assert_eq!(Datagram::open(&bytes, &[4; 32]), Err(Malformed));
        for at in 0..DATAGRAM_LEN {
            let mut changed = bytes;
            changed[at] ^= 0x20;
            assert_eq!(Datagram::open(&changed, &[3; 32]), Err(Malformed), "{at}");
        }
        assert_eq!(Datagram::open(&bytes[1..], &[3; 32]), Err(Malformed));
    }

    proptest! {
        #[test]
        fn arbitrary_numbers_never_panic(
            all in proptest::collection::vec((0u64..4, any::<u64>(), any::<u32>()), 0..50)
            ) {
            let mut received = ProbeCounter::default();
            for (epoch, number, minute) in all {
                received.record(&Datagram { epoch, ..request(number, minute) });
            }
        }
    }
}
