//! Compact records of one direction in half an hour, from which reports are made.
//!
//! A store has its records twice: as rows with every detail, and as chunks with what a report needs.
//! A day of 64 sites is 1.2 GB of rows and 0.2 GB of chunks. A chunk has each transfer and minute by
//! itself, so a report of any time span, and with any number of steps, is made from chunks.

use crate::message::{TRANSFER_ERRORS, number_of};
use crate::record::{Minute, Outcome, Transfer, TransferError};
use crate::wire::{Malformed, Reader};

/// The time span of a chunk, milliseconds.
pub const CHUNK_MS: i64 = 1_800_000;
/// Maximum transfers of a chunk: twice those of eight controllers with a period of one second.
/// Further ones are not in reports.
pub const MAX_CHUNK_TRANSFERS: usize = 32_768;
/// Maximum probe minutes of a chunk.
pub const MAX_CHUNK_MINUTES: usize = 4096;
/// Maximum bytes of a chunk.
pub const MAX_CHUNK_BYTES: usize = 1 << 20;

/// What a report needs of a transfer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TransferSample {
    /// Start time, milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The period number.
    pub period: i64,
    /// The controller: in a chunk by its id in the store, elsewhere as an index into the names.
    pub controller: u32,
    /// The result.
    pub result: Result<Throughput, TransferError>,
}

/// The figures of a completed transfer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Throughput {
    /// Goodput, bit/s.
    pub goodput_bps: f32,
    /// Retransmitted share, 0 to 1.
    pub retransmitted: f32,
}

/// What a report needs of a minute of probes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MinuteSample {
    /// Start time, milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// Requests sent.
    pub sent: u16,
    /// Requests that reached the peer.
    pub arrived: u16,
    /// RTTs in milliseconds: minimum, median, 95th percentile.
    pub rtt_ms: Option<[f32; 3]>,
}

impl TransferSample {
    /// The sample of a transfer by a controller with this id.
    pub fn new(transfer: &Transfer, controller: u32) -> TransferSample {
        let result = match &transfer.outcome {
            Outcome::Done(done) => Ok(Throughput {
                goodput_bps: done.goodput().as_bits_per_sec_f64() as f32,
                retransmitted: done.retransmitted_share() as f32,
            }),
            Outcome::Failed(error) => Err(*error),
        };
        TransferSample { at_ms: transfer.at_ms, period: transfer.period, controller, result }
    }
}

impl From<&Minute> for MinuteSample {
    fn from(minute: &Minute) -> MinuteSample {
        let rtt_ms =
            minute.rtt.map(|rtt| [rtt.min, rtt.p50, rtt.p95].map(|span| span.as_millis_f64() as f32));
        MinuteSample { at_ms: minute.at_ms, sent: minute.sent, arrived: minute.arrived, rtt_ms }
    }
}

/// The samples of one direction, by time.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Samples {
    /// Transfers.
    pub transfers: Vec<TransferSample>,
    /// Minutes of probes.
    pub minutes: Vec<MinuteSample>,
}

impl Samples {
    /// Sorts by time; samples of the same time stay in their order.
    pub fn sort(&mut self) {
        self.transfers.sort_by_key(|sample| sample.at_ms);
        self.minutes.sort_by_key(|sample| sample.at_ms);
    }

    /// Encodes the samples of a chunk, sorted by time.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + 12 * self.transfers.len() + 20 * self.minutes.len());
        out.push(VERSION);
        write_number(&mut out, self.transfers.len() as u64);
        write_number(&mut out, self.minutes.len() as u64);
        let (mut offset, mut period) = (0, 0i64);
        for sample in &self.transfers {
            let tag = match sample.result {
                Ok(Throughput { retransmitted: 0.0, .. }) => CLEAN,
                Ok(_) => RETRANSMITTED,
                Err(error) => FIRST_ERROR + number_of(error),
            };
            out.push(tag);
            write_offset(&mut out, &mut offset, sample.at_ms);
            let step = sample.period.wrapping_sub(period);
            period = sample.period;
            write_number(&mut out, ((step << 1) ^ (step >> 63)) as u64);
            write_number(&mut out, sample.controller.into());
            if let Ok(Throughput { goodput_bps, retransmitted }) = sample.result {
                out.extend(goodput_bps.to_le_bytes());
                if tag == RETRANSMITTED {
                    out.extend(retransmitted.to_le_bytes());
                }
            }
        }
        let mut offset = 0;
        for sample in &self.minutes {
            write_offset(&mut out, &mut offset, sample.at_ms);
            write_number(&mut out, (u64::from(sample.sent) << 1) | u64::from(sample.rtt_ms.is_some()));
            write_number(&mut out, sample.arrived.into());
            sample.rtt_ms.iter().flatten().for_each(|ms| out.extend(ms.to_le_bytes()));
        }
        out
    }

    /// Appends the samples of a chunk, whose time span has this number.
    ///
    /// # Errors
    /// If the bytes are not a chunk; some of its samples may have been appended.
    pub fn append(&mut self, span: i64, bytes: &[u8]) -> Result<(), Malformed> {
        let start = i128::from(span) * i128::from(CHUNK_MS);
        let mut r = Reader(bytes);
        if bytes.len() > MAX_CHUNK_BYTES || r.u8()? != VERSION {
            return Err(Malformed);
        }
        let (transfers, minutes) = (read_number(&mut r)?, read_number(&mut r)?);
        if transfers > MAX_CHUNK_TRANSFERS as u64 || minutes > MAX_CHUNK_MINUTES as u64 {
            return Err(Malformed);
        }
        let (mut offset, mut period) = (0, 0i64);
        for _ in 0..transfers {
            let tag = r.u8()?;
            let at_ms = read_offset(&mut r, &mut offset, start)?;
            let step = read_number(&mut r)?;
            period = period.wrapping_add((step >> 1) as i64 ^ -((step & 1) as i64));
            let controller = u32::try_from(read_number(&mut r)?).map_err(|_| Malformed)?;
            let result = match tag {
                CLEAN => Ok(Throughput { goodput_bps: read_figure(&mut r)?, retransmitted: 0.0 }),
                RETRANSMITTED => {
                    Ok(Throughput { goodput_bps: read_figure(&mut r)?, retransmitted: read_figure(&mut r)? })
                }
                other => Err(*TRANSFER_ERRORS.get(usize::from(other - FIRST_ERROR)).ok_or(Malformed)?),
            };
            self.transfers.push(TransferSample { at_ms, period, controller, result });
        }
        let mut offset = 0;
        for _ in 0..minutes {
            let at_ms = read_offset(&mut r, &mut offset, start)?;
            let (sent, arrived) = (read_number(&mut r)?, read_number(&mut r)?);
            let rtt_ms = match sent & 1 {
                0 => None,
                _ => Some([read_figure(&mut r)?, read_figure(&mut r)?, read_figure(&mut r)?]),
            };
            let count = |n: u64| u16::try_from(n).map_err(|_| Malformed);
            self.minutes.push(MinuteSample {
                at_ms,
                sent: count(sent >> 1)?,
                arrived: count(arrived)?,
                rtt_ms,
            });
        }
        r.end()
    }

    /// Limits the samples to those of a chunk; the first ones stay.
    pub(crate) fn truncate(&mut self) {
        self.transfers.truncate(MAX_CHUNK_TRANSFERS);
        self.minutes.truncate(MAX_CHUNK_MINUTES);
    }
}

const VERSION: u8 = 1;
/// Tags of a transfer: completed without and with retransmissions, or failed.
const CLEAN: u8 = 0;
const RETRANSMITTED: u8 = 1;
const FIRST_ERROR: u8 = 2;

/// Writes seven bits per byte, the lowest first.
fn write_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

#[inline]
fn read_number(r: &mut Reader<'_>) -> Result<u64, Malformed> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let byte = r.u8()?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(Malformed);
        }
        n |= bits << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err(Malformed)
}

/// Writes a time as the difference to the previous one.
fn write_offset(out: &mut Vec<u8>, previous: &mut i64, at_ms: i64) {
    let offset = at_ms.rem_euclid(CHUNK_MS);
    write_number(out, (offset - *previous).max(0) as u64);
    *previous = offset;
}

/// Reads a time. The first and the last chunk are longer than the time that can be represented.
#[inline]
fn read_offset(r: &mut Reader<'_>, offset: &mut i64, start: i128) -> Result<i64, Malformed> {
    let step = read_number(r)?;
    if step >= CHUNK_MS as u64 {
        return Err(Malformed);
    }
    *offset += step as i64;
    if *offset >= CHUNK_MS {
        return Err(Malformed);
    }
    i64::try_from(start + i128::from(*offset)).map_err(|_| Malformed)
}

#[inline]
fn read_figure(r: &mut Reader<'_>) -> Result<f32, Malformed> {
    let figure = f32::from_le_bytes(r.array()?);
    if figure.is_finite() && figure >= 0.0 { Ok(figure) } else { Err(Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples() -> impl Strategy<Value = (i64, Samples)> {
        let result = prop_oneof![
            3 => (0f32..1e12, prop_oneof![Just(0f32), 0f32..1.0]).prop_map(|(goodput_bps, retransmitted)| {
                Ok(Throughput { goodput_bps, retransmitted })
            }),
            1 => prop::sample::select(TRANSFER_ERRORS.to_vec()).prop_map(Err),
        ];
        let at = 0..CHUNK_MS;
        let transfer = (at.clone(), any::<i64>(), any::<u32>(), result).prop_map(
            |(at_ms, period, controller, result)| TransferSample { at_ms, period, controller, result },
        );
        let rtt = prop::option::of(prop::array::uniform3(0f32..1e6));
        let minute = (at, 0..32_768u16, any::<u16>(), rtt)
            .prop_map(|(at_ms, sent, arrived, rtt_ms)| MinuteSample { at_ms, sent, arrived, rtt_ms });
        let ends = [i64::MIN, i64::MAX].map(|at_ms| at_ms.div_euclid(CHUNK_MS));
        let span = prop_oneof![-2_000_000..2_000_000i64, prop::sample::select(ends.to_vec())];
        (span, prop::collection::vec(transfer, 0..40), prop::collection::vec(minute, 0..40)).prop_map(
            |(span, transfers, minutes)| {
                let mut samples = Samples { transfers, minutes };
                let start = i128::from(span) * i128::from(CHUNK_MS);
                let at =
                    |offset: i64| (start + i128::from(offset)).clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                samples.transfers.iter_mut().for_each(|sample| sample.at_ms = at(sample.at_ms));
                samples.minutes.iter_mut().for_each(|sample| sample.at_ms = at(sample.at_ms));
                samples.sort();
                (span, samples)
            },
        )
    }

    proptest! {
        #[test]
        fn samples_round_trip((span, samples) in samples()) {
            let mut read = Samples::default();
            prop_assert_eq!(read.append(span, &samples.to_bytes()), Ok(()));
            prop_assert_eq!(read, samples);
        }

        #[test]
        fn malformed_chunks_are_refused(
            (span, samples) in samples(),
            at in 0..200usize,
            with in any::<u8>(),
        ) {
            let mut bytes = samples.to_bytes();
            let whole = bytes.clone();
            prop_assert!(Samples::default().append(span, &bytes[..bytes.len() - 1]).is_err());
            let at = at % bytes.len();
            bytes[at] ^= with;
            let mut read = Samples::default();
            if read.append(span, &bytes).is_ok() {
                prop_assert!(read.transfers.is_sorted_by_key(|sample| sample.at_ms));
            }
            bytes = whole;
            bytes.push(with);
            prop_assert!(Samples::default().append(span, &bytes).is_err());
        }
    }

    #[test]
    fn times_that_cannot_be_represented_are_refused() {
        let at = |at_ms| MinuteSample { at_ms, sent: 60, arrived: 60, rtt_ms: None };
        let chunk = |offset| Samples { minutes: vec![at(offset)], ..Samples::default() }.to_bytes();
        for (end, next) in [(i64::MIN, -1), (i64::MAX, 1)] {
            let (span, offset) = (end.div_euclid(CHUNK_MS), end.rem_euclid(CHUNK_MS));
            let mut samples = Samples::default();
            assert_eq!(samples.append(span, &chunk(offset)), Ok(()));
            assert_eq!(samples.minutes, [at(end)]);
            assert_eq!(samples.append(span, &chunk(offset + next)), Err(Malformed));
            assert_eq!(samples.append(end, &chunk(0)), Err(Malformed));
        }
    }

    #[test]
    fn a_chunk_of_many_samples_is_within_its_bound() {
        let sample = |n: usize| TransferSample {
            at_ms: n as i64,
            period: if n.is_multiple_of(2) { i64::MIN / 2 } else { i64::MAX / 2 },
            controller: u32::MAX,
            result: Ok(Throughput { goodput_bps: 1.0, retransmitted: 1.0 }),
        };
        let minute =
            |n: usize| MinuteSample { at_ms: n as i64, sent: 9999, arrived: 9999, rtt_ms: Some([1.0; 3]) };
        let samples = Samples {
            transfers: (0..MAX_CHUNK_TRANSFERS).map(sample).collect(),
            minutes: (0..MAX_CHUNK_MINUTES).map(minute).collect(),
        };
        assert!(samples.to_bytes().len() <= MAX_CHUNK_BYTES);
    }
}
