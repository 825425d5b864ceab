//! Small probes: a question and its answer, of the same length.
//!
//! An answer is never longer than its question, so that nobody gets a site to send more than was sent to it; and neither says
//! anything to who has no key.

use crate::key::{PairKey, digest, mac};
use crate::wire::{Malformed, Reader, Writer};
use subtle::ConstantTimeEq;

/// Bytes of a datagram's payload.
pub const LENGTH: usize = 128;
/// Minutes of which an answer tells how many questions arrived.
pub const MINUTES: usize = 4;
const MAGIC: &[u8; 4] = b"fpm1";
const SEAL: usize = 16;

/// Whether it asks or answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It asks.
    Question,
    /// It answers.
    Answer,
}

/// A small probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Which it is.
    pub kind: Kind,
    /// Which run of the asking node: later ones have greater numbers.
    pub epoch: u64,
    /// Of the question, counted from 1.
    pub number: u64,
    /// The minute that it counts to, since the epoch began.
    pub minute: u32,
    /// The asking node's time, which only it understands.
    pub stamp: u64,
    /// In an answer: how many questions of this minute arrived, of the one before, and so on.
    pub arrived: [u16; MINUTES],
}

/// By which a datagram says from whom to whom it is; what is between two sites is sealed, this only finds the key.
pub type Name = [u8; 8];

/// The short form of a site's name in a mesh.
pub fn name(mesh: &str, site: &str) -> Name {
    let hash = digest(format!("{mesh}\n{site}").as_bytes());
    let mut name = [0; 8];
    name.copy_from_slice(&hash[..8]);
    name
}

/// The key for small probes of a pair.
pub(crate) fn key(pair: &PairKey) -> [u8; 32] {
    pair.derive("small probes", &[])
}

impl Datagram {
    /// From `from` to `to`, sealed.
    pub fn to_bytes(&self, from: Name, to: Name, key: &[u8; 32]) -> [u8; LENGTH] {
        let mut w = Writer::default();
        w.bytes(MAGIC).u8(u8::from(self.kind == Kind::Answer)).bytes(&from).bytes(&to);
        w.u64(self.epoch).u64(self.number).u32(self.minute).u64(self.stamp);
        for n in self.arrived {
            w.u16(n);
        }
        let mut bytes = [0; LENGTH];
        bytes[..w.0.len()].copy_from_slice(&w.0);
        let seal = mac(key, &[&bytes[..LENGTH - SEAL]]);
        bytes[LENGTH - SEAL..].copy_from_slice(&seal[..SEAL]);
        bytes
    }

    /// From whom to whom a datagram claims to be.
    ///
    /// # Errors
    /// When it is none.
    pub fn claims(bytes: &[u8]) -> Result<(Name, Name), Malformed> {
        let mut r = Reader(bytes);
        if bytes.len() != LENGTH || r.take(MAGIC.len())? != MAGIC {
            return Err(Malformed);
        }
        r.u8()?;
        Ok((r.array()?, r.array()?))
    }

    /// Opens one that is sealed with `key`.
    ///
    /// # Errors
    /// When it is not.
    pub fn open(bytes: &[u8], key: &[u8; 32]) -> Result<Datagram, Malformed> {
        Datagram::claims(bytes)?;
        let (whole, seal) = bytes.split_at(LENGTH - SEAL);
        if !bool::from(mac(key, &[whole])[..SEAL].ct_eq(seal)) {
            return Err(Malformed);
        }
        let mut r = Reader(whole);
        r.take(MAGIC.len())?;
        let kind = match r.u8()? {
            0 => Kind::Question,
            1 => Kind::Answer,
            _ => return Err(Malformed),
        };
        r.take(2 * size_of::<Name>())?;
        let (epoch, number, minute, stamp) = (r.u64()?, r.u64()?, r.u32()?, r.u64()?);
        let mut arrived = [0; MINUTES];
        for n in &mut arrived {
            *n = r.u16()?;
        }
        Ok(Datagram { kind, epoch, number, minute, stamp, arrived })
    }
}

/// What has come of one site's questions: which were new, and how many in which minute.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    epoch: u64,
    /// The greatest number heard.
    number: u64,
    /// The 64 up to it, the greatest in the lowest bit.
    seen: u64,
    minute: u32,
    arrived: [u16; MINUTES],
}

impl Heard {
    /// Counts a question; gives what to answer, or none if it was heard before: then somebody plays it again.
    pub fn count(&mut self, question: &Datagram) -> Option<[u16; MINUTES]> {
        if question.epoch < self.epoch {
            return None;
        }
        if question.epoch > self.epoch {
            *self = Heard { epoch: question.epoch, minute: question.minute, ..Heard::default() };
        }
        if question.number > self.number {
            let ahead = question.number - self.number;
            self.seen = if ahead < 64 { self.seen << ahead } else { 0 } | 1;
            self.number = question.number;
        } else {
            let behind = self.number - question.number;
            if behind >= 64 || self.seen >> behind & 1 == 1 {
                return None;
            }
            self.seen |= 1 << behind;
        }
        if question.minute > self.minute {
            let ahead = (question.minute - self.minute) as usize;
            self.arrived.rotate_right(ahead.min(MINUTES) % MINUTES);
            self.arrived[..ahead.min(MINUTES)].fill(0);
            self.minute = question.minute;
        }
        if let Some(count) = self.arrived.get_mut((self.minute - question.minute) as usize) {
            *count = count.saturating_add(1);
        }
        // As seen from the question's minute.
        let mut told = [0; MINUTES];
        let behind = (self.minute - question.minute) as usize;
        for (told, count) in told.iter_mut().zip(self.arrived.iter().skip(behind)) {
            *told = *count;
        }
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn question(number: u64, minute: u32) -> Datagram {
        let kind = Kind::Question;
        Datagram { kind, epoch: 5, number, minute, stamp: 77, arrived: [0; MINUTES] }
    }

    #[test]
    fn a_question_is_counted_once_and_in_its_minute() {
        let mut heard = Heard::default();
        assert_eq!(heard.count(&question(1, 0)), Some([1, 0, 0, 0]));
        assert_eq!(heard.count(&question(3, 0)), Some([2, 0, 0, 0]));
        assert_eq!(heard.count(&question(3, 0)), None, "played again");
        assert_eq!(heard.count(&question(4, 1)), Some([1, 2, 0, 0]));
        assert_eq!(heard.count(&question(2, 0)), Some([3, 0, 0, 0]), "overtaken by two");
        assert_eq!(heard.count(&question(5, 3)), Some([1, 0, 1, 3]));
        assert_eq!(heard.count(&question(70, 9)), Some([1, 0, 0, 0]));
        assert_eq!(heard.count(&question(6, 9)), None, "too old to be told from one that is played again");
        assert_eq!(heard.count(&Datagram { epoch: 4, ..question(99, 9) }), None, "of an earlier run");
        assert_eq!(heard.count(&Datagram { epoch: 6, ..question(1, 0) }), Some([1, 0, 0, 0]));
    }

    #[test]
    fn what_is_sealed_with_another_key_or_changed_is_not_opened() {
        let (from, to) = (name("m", "lab"), name("m", "sea"));
        let bytes = question(9, 2).to_bytes(from, to, &[3; 32]);
        assert_eq!(Datagram::claims(&bytes), Ok((from, to)));
        assert_eq!(Datagram::open(&bytes, &[3; 32]), Ok(question(9, 2)));
        assert_eq!(Datagram::open(&bytes, &[4; 32]), Err(Malformed));
        for at in 0..LENGTH {
            let mut changed = bytes;
            changed[at] ^= 0x20;
            assert_eq!(Datagram::open(&changed, &[3; 32]), Err(Malformed), "{at}");
        }
        assert_eq!(Datagram::open(&bytes[1..], &[3; 32]), Err(Malformed));
    }

    proptest! {
        #[test]
        fn no_numbers_upset_the_count(all in proptest::collection::vec((0u64..4, any::<u64>(), any::<u32>()), 0..50)) {
            let mut heard = Heard::default();
            for (epoch, number, minute) in all {
                heard.count(&Datagram { epoch, ..question(number, minute) });
            }
        }
    }
}
