//! A histogram with constant time per sample: bucket widths double every 128 buckets, so that
//! quantiles are accurate to 0.4 %. Minimum and maximum are exact.

use super::{Quantiles, QueueQuantiles};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Buckets in each doubling.
const SUB: u64 = 128;
const SUB_BITS: u32 = SUB.trailing_zeros();

/// Samples buffered before they are counted: with many flows every access to the counts is a cache
/// miss. As many as fit one cache line with the other fields.
const PENDING: usize = 23;

/// Samples that are kept one by one before they are counted by octave: of thousands of flows most
/// have few samples, and an octave takes as much memory as twice this number.
const MAX_SINGLE: usize = 128;

/// A histogram of values in nanoseconds. Only octaves in use take memory.
///
/// ```
/// use fullpipe_experiment::recording::Histogram;
///
/// let mut rtts = Histogram::default();
/// for ms in 1..=100 {
///     rtts.add(ms * 1_000_000);
/// }
/// rtts.flush();
/// assert_eq!(rtts.rtt_ms().min, Some(1.0));
/// assert!((rtts.rtt_ms().p95.unwrap() - 95.0).abs() < 0.4);
/// ```
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Histogram {
    min: u64,
    max: u64,
    buffered: u16,
    pending: [u16; PENDING],
    counts: Counts,
    count: u64,
}

/// The counted samples.
#[derive(Clone, Debug)]
enum Counts {
    /// The bucket of each sample.
    Single(Vec<u16>),
    /// The number of samples in each bucket.
    Octaves(Vec<Option<Box<Octave>>>),
}

type Octave = [u32; SUB as usize];

/// Adding a sample touches a single cache line.
const _: () = assert!(std::mem::offset_of!(Histogram, counts) == 64);

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            min: u64::MAX,
            max: 0,
            buffered: 0,
            pending: [0; PENDING],
            counts: Counts::Single(Vec::new()),
            count: 0,
        }
    }
}

/// Whether both have the same samples, as far as buckets distinguish them.
impl PartialEq for Histogram {
    fn eq(&self, other: &Self) -> bool {
        let flushed = |histogram: &Histogram| {
            let mut own = histogram.clone();
            own.flush();
            (own.min, own.max, own.buckets())
        };
        flushed(self) == flushed(other)
    }
}

impl Histogram {
    /// Adds a sample.
    #[inline]
    pub fn add(&mut self, value: u64) {
        self.extend(value);
        self.pending[usize::from(self.buffered)] = place(value);
        self.buffered += 1;
        if usize::from(self.buffered) == PENDING {
            self.flush();
        }
    }

    /// Counts the buffered samples. Call it before reading quantiles.
    // Inlined together with its callees, so that it is optimised within the engine's crate.
    #[inline]
    pub fn flush(&mut self) {
        for i in 0..usize::from(std::mem::take(&mut self.buffered)) {
            self.count(self.pending[i], 1);
        }
    }

    #[inline]
    fn extend(&mut self, value: u64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds `times` samples to a bucket.
    #[inline]
    fn count(&mut self, bucket: u16, times: u32) {
        self.count += u64::from(times);
        if let Counts::Octaves(octaves) = &mut self.counts
            && let Some(Some(counts)) = octaves.get_mut(usize::from(bucket) / SUB as usize)
        {
            let count = &mut counts[usize::from(bucket) % SUB as usize];
            *count = count.saturating_add(times);
            return;
        }
        self.counts.add(bucket, times);
    }

    /// The non-empty buckets in ascending order, and the number of samples in each.
    fn buckets(&self) -> Vec<(u16, u32)> {
        match &self.counts {
            Counts::Single(samples) => {
                let mut sorted = samples.clone();
                sorted.sort_unstable();
                sorted.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
            }
            Counts::Octaves(octaves) => {
                let opened = octaves.iter().enumerate().filter_map(|(i, counts)| Some((i, counts.as_ref()?)));
                let all = opened.flat_map(|(octave, counts)| {
                    let first = octave as u16 * SUB as u16;
                    (first..).zip(counts.iter().copied())
                });
                all.filter(|&(_, n)| n > 0).collect()
            }
        }
    }

    /// Adds the samples of `other`, which must be flushed.
    pub fn merge(&mut self, other: &Histogram) {
        for (bucket, times) in other.buckets() {
            self.count(bucket, times);
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Number of samples, including buffered ones.
    pub fn len(&self) -> u64 {
        self.count + u64::from(self.buffered)
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The minimum.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// The maximum.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// The `q`-quantile.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        let bucket = self.buckets().into_iter().find(|&(_, n)| {
            seen += u64::from(n);
            seen >= rank
        });
        Some(bucket.map_or(self.max, |(bucket, _)| middle(bucket).clamp(self.min, self.max)))
    }

    /// Round-trip times, in milliseconds.
    pub fn rtt_ms(&self) -> Quantiles {
        let q = |q| self.quantile(q).map(in_ms);
        Quantiles { min: self.min().map(in_ms), p50: q(0.50), p95: q(0.95), p99: q(0.99) }
    }

    /// Times in a queue, in milliseconds.
    pub fn queue_ms(&self) -> QueueQuantiles {
        let q = |q| self.quantile(q).map(in_ms);
        QueueQuantiles { p50: q(0.50), p95: q(0.95), max: self.max().map(in_ms) }
    }
}

impl Counts {
    #[inline(never)]
    fn add(&mut self, bucket: u16, times: u32) {
        if let Counts::Single(samples) = self {
            if times == 1 && samples.len() < MAX_SINGLE {
                samples.push(bucket);
                return;
            }
            let samples = std::mem::take(samples);
            *self = Counts::Octaves(Vec::new());
            samples.into_iter().for_each(|bucket| self.add(bucket, 1));
        }
        if let Counts::Octaves(octaves) = self {
            let octave = usize::from(bucket) / SUB as usize;
            if octaves.len() <= octave {
                octaves.resize(octave + 1, None);
            }
            let counts = octaves[octave].get_or_insert_with(|| Box::new([0; SUB as usize]));
            let count = &mut counts[usize::from(bucket) % SUB as usize];
            *count = count.saturating_add(times);
        }
    }
}

fn in_ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// The serialised form: a value within each non-empty bucket, with its count.
#[derive(Serialize, Deserialize)]
struct Serialised {
    min_ns: u64,
    max_ns: u64,
    counts: Vec<(u64, u32)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut own = self.clone();
        own.flush();
        let counts = own.buckets().into_iter().map(|(bucket, n)| (middle(bucket), n));
        Serialised { min_ns: own.min, max_ns: own.max, counts: counts.collect() }.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let Serialised { min_ns, max_ns, counts } = Serialised::deserialize(d)?;
        let mut histogram = Histogram::default();
        for (value, times) in counts {
            histogram.count(place(value), times);
        }
        (histogram.min, histogram.max) = (min_ns, max_ns);
        Ok(histogram)
    }
}

/// The bucket of a value: octave 0 holds the values below `SUB` exactly; octave `k` those below
/// `SUB·2^k`.
#[inline]
fn place(value: u64) -> u16 {
    let bits = u64::BITS - value.leading_zeros();
    let octave = bits.saturating_sub(SUB_BITS);
    // The bits after the leading one select the bucket within the octave.
    let sub = if octave == 0 { value } else { (value >> (octave - 1)) - SUB };
    (u64::from(octave) * SUB + sub) as u16
}

/// The middle of a bucket.
fn middle(bucket: u16) -> u64 {
    let (octave, sub) = (u64::from(bucket) / SUB, u64::from(bucket) % SUB);
    if octave == 0 {
        return sub;
    }
    let width = 1u64 << (octave - 1);
    (SUB << (octave - 1)) + sub * width + width / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn empty_histogram_has_no_quantiles() {
        let h = Histogram::default();
        assert_eq!((h.min(), h.quantile(0.5), h.max()), (None, None, None));
    }

    proptest! {
        #[test]
        fn quantile_is_within_half_a_percent(mut values in prop::collection::vec(
            prop_oneof![0u64..300, 0u64..1 << 40, any::<u64>()], 1..400), q in 0.0f64..=1.0) {
            let mut h = Histogram::default();
            let (a, b) = values.split_at(values.len() / 2);
            a.iter().for_each(|&v| h.add(v));
            let mut other = Histogram::default();
            b.iter().for_each(|&v| other.add(v));
            h.flush();
            other.flush();
            h.merge(&other);
            values.sort_unstable();
            let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let (exact, got) = (values[rank - 1] as f64, h.quantile(q).unwrap() as f64);
            prop_assert!((got - exact).abs() <= exact * 0.005 + 0.5, "{got} for {exact}");
            prop_assert_eq!(h.min(), values.first().copied());
            prop_assert_eq!(h.max(), values.last().copied());
            let written = serde_json::to_string(&h).unwrap();
            let read: Histogram = serde_json::from_str(&written).unwrap();
            prop_assert_eq!((read.min, read.max, read.count), (h.min, h.max, h.count));
            prop_assert_eq!(&read, &h);
        }
    }
}
