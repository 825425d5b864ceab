//! Seeded randomness: a separate stream for every element of every link, so that adding one element
//! does not change the numbers of another.
//!
//! Logarithms come from `libm` and not from the platform: results are the same on every machine.

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

use crate::build::{BuildContext, Direction};

/// The stream of one element.
#[derive(Clone, Debug)]
pub(crate) struct Stream(Pcg64Mcg);

/// One step of the SplitMix64 generator: spreads related seeds over all 64 bits.
fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream of `element` (the key of a scenario file) in link `link`.
    pub fn new(ctx: &BuildContext, link: usize, element: &str) -> Self {
        let direction = u64::from(ctx.direction == Direction::Reverse);
        let place = (link as u64) << 1 | direction;
        let name = element.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // Mixed one after another: in a sum, seed 1 of link 2 could equal seed 2 of link 1.
        let high = mix(mix(mix(ctx.seed) ^ place) ^ name);
        Stream(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(mix(high))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1), a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in (0, 1]: safe to take the logarithm of.
    pub fn positive_unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Number of failures before the first success of trials with probability `p`: one draw for a
    /// whole run of packets. `u64::MAX` for `p` = 0.
    pub fn failures_before_success(&mut self, p: f64) -> u64 {
        if p >= 1.0 {
            return 0;
        }
        if p <= 0.0 {
            return u64::MAX;
        }
        // The inverse of the geometric distribution function.
        (libm::log(self.positive_unit()) / libm::log1p(-p)) as u64
    }

    /// Standard normal (Box and Muller; the second value of the pair is not kept, so the number
    /// of draws a packet costs does not depend on its predecessors).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(-2.0 * libm::log(self.positive_unit()));
        radius * libm::cos(core::f64::consts::TAU * self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::{Rate, Span};

    fn ctx(seed: u64, direction: Direction) -> BuildContext {
        BuildContext { base_rtt: Span::ZERO, bottleneck: Rate::MAX, mtu: 1500, seed, direction }
    }

    #[test]
    fn every_element_of_every_link_has_a_stream_of_its_own() {
        let mut firsts = Vec::new();
        for seed in 0..4 {
            for direction in [Direction::Forward, Direction::Reverse] {
                for link in 0..4 {
                    for element in ["loss", "jitter", "queue"] {
                        firsts.push(Stream::new(&ctx(seed, direction), link, element).bits());
                    }
                }
            }
        }
        let n = firsts.len();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), n);
    }

    #[test]
    fn gaps_between_successes_have_the_geometric_mean() {
        let mut s = Stream::new(&ctx(1, Direction::Forward), 0, "test");
        for p in [0.5, 0.1, 0.001] {
            let n = 200_000;
            let sum: u64 = (0..n).map(|_| s.failures_before_success(p)).sum();
            let mean = sum as f64 / f64::from(n);
            let expected = (1.0 - p) / p;
            // Standard error of the mean: sqrt(1 - p) / p / sqrt(n).
            assert!((mean - expected).abs() < 4.0 / p / f64::from(n).sqrt(), "p {p}: {mean} {expected}");
        }
        assert_eq!(s.failures_before_success(0.0), u64::MAX);
        assert_eq!(s.failures_before_success(1.0), 0);
    }

    #[test]
    fn normal_values_have_mean_zero_and_variance_one() {
        let mut s = Stream::new(&ctx(2, Direction::Forward), 0, "test");
        let values: Vec<f64> = (0..100_000).map(|_| s.normal()).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
    }
}
