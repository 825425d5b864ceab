//! The spacing of arriving data, which shows whether a path carries packets one after the other or
//! in bunches.

use fullpipe_units::{Span, Time};

/// Mantissa bits of a bin: four bins per octave.
const SHIFT: u32 = 50;
/// The lowest bin: rates below 256 bytes per second, and gaps below 256 ns.
const LOWEST: usize = ((1023 + 8) << 2) as usize;
/// Number of bins: up to 4 TB/s, and gaps up to 73 minutes.
const BINS: usize = 34 * 4;

/// Sums over logarithmic bins.
#[derive(Clone, Debug, Default)]
struct Sums(Vec<f32>);

impl Sums {
    #[inline]
    fn add(&mut self, value: f64, weight: f64) {
        // The upper bits of a positive number are its logarithm.
        let bin = ((value.to_bits() >> SHIFT) as usize).saturating_sub(LOWEST).min(BINS - 1);
        if self.0.len() <= bin {
            self.0.resize(bin + 1, 0.0);
        }
        self.0[bin] += weight as f32;
    }

    /// Lower bound of a bin.
    fn bound(bin: usize) -> f64 {
        f64::from_bits(((bin + LOWEST) as u64) << SHIFT)
    }

    /// Share of the weight of values from `from` on.
    fn share_from(&self, from: f64) -> f64 {
        let (mut above, mut all) = (0.0, 0.0);
        for (bin, weight) in self.0.iter().enumerate() {
            all += f64::from(*weight);
            if Self::bound(bin) >= from {
                above += f64::from(*weight);
            }
        }
        if all > 0.0 { above / all } else { 0.0 }
    }

    /// The value below which half of the weight is.
    fn median(&self) -> Option<f64> {
        let mut left = self.0.iter().map(|w| f64::from(*w)).sum::<f64>() / 2.0;
        let bin = self.0.iter().position(|w| {
            left -= f64::from(*w);
            left < 0.0
        })?;
        Some(Self::bound(bin) * 1.09)
    }
}

/// Gaps between arrivals, and the rate of each: the bytes that arrive at its end, divided by its
/// length.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spacing {
    last: Option<Time>,
    /// Bytes of each rate.
    rates: Sums,
    /// Time in gaps of each length.
    gaps: Sums,
}

impl Spacing {
    /// Adds the arrival of `bytes` at `at`.
    #[inline]
    pub(super) fn add(&mut self, at: Time, bytes: u64) {
        if let Some(last) = self.last.replace(at) {
            let gap = at.since(last).as_nanos().max(1) as f64;
            self.rates.add(bytes as f64 * 1e9 / gap, bytes as f64);
            self.gaps.add(gap, gap);
        }
    }

    /// Share of the bytes that arrived at `rate` bytes per second or faster.
    pub(crate) fn share_at(&self, rate: f64) -> f64 {
        self.rates.share_from(rate)
    }

    /// The length of a gap that contains half of the time.
    pub(crate) fn usual_gap(&self) -> Option<Span> {
        self.gaps.median().map(|ns| Span::from_nanos(ns as u64))
    }

    /// Bytes of memory, approximately.
    pub(super) fn memory(&self) -> usize {
        (self.rates.0.capacity() + self.gaps.0.capacity()) * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 1000 bytes, `count` at a time, 10 µs apart, every `every` microseconds.
    fn packets(count: u64, every: u64) -> Spacing {
        let mut spacing = Spacing::default();
        for n in 0..500 {
            for k in 0..count {
                spacing.add(Time::from_nanos((n * every + k * 10) * 1000), 1000);
            }
        }
        spacing
    }

    #[test]
    fn bunched_packets_arrive_faster_than_their_path() {
        // 1 MB/s in both cases.
        let (even, bunched) = (packets(1, 1000), packets(10, 10_000));
        assert_eq!((even.share_at(3e6), even.share_at(0.5e6)), (0.0, 1.0));
        assert!((bunched.share_at(3e6) - 0.9).abs() < 0.01, "{}", bunched.share_at(3e6));
        let gaps = [even, bunched].map(|s| s.usual_gap().unwrap().as_secs_f64());
        assert!((gaps[0] / 1e-3 - 1.0).abs() < 0.1 && (gaps[1] / 1e-2 - 1.0).abs() < 0.1, "{gaps:?}");
    }

    #[test]
    fn extremes_are_in_the_outermost_bins() {
        let mut spacing = Spacing::default();
        assert_eq!((spacing.share_at(1.0), spacing.usual_gap()), (0.0, None));
        for at in [0, 0, u64::MAX / 2] {
            spacing.add(Time::from_nanos(at), u64::MAX);
        }
        assert!(spacing.share_at(1e6) > 0.9 && spacing.usual_gap().is_some());
        assert!(spacing.memory() <= 4 * BINS * size_of::<f32>());
    }
}
