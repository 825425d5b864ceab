//! The normal distribution.

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Cumulative distribution function of the standard normal distribution.
pub fn cumulative(z: f64) -> f64 {
    libm::erfc(-z / std::f64::consts::SQRT_2) / 2.0
}

/// Quantile function: the inverse of [`cumulative`], by bisection.
pub fn quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    // 60 bisections of an interval of 80 reach the precision of f64.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if cumulative(middle) < p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// Seeded standard normal random numbers (Box and Muller 1958).
#[derive(Debug)]
pub struct Normal(Pcg64Mcg);

impl Normal {
    /// A generator with `seed`.
    pub fn new(seed: u64) -> Self {
        Normal(Pcg64Mcg::seed_from_u64(seed))
    }

    /// A uniform number in (0, 1].
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 1.0) / (1u64 << 53) as f64
    }

    /// The next normal number.
    pub fn draw(&mut self) -> f64 {
        let (a, b) = (self.uniform(), self.uniform());
        libm::sqrt(-2.0 * libm::log(a)) * libm::cos(std::f64::consts::TAU * b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_tables() {
        for (p, z) in
            [(0.5, 0.0), (0.8, 0.841_621_233_6), (0.975, 1.959_963_984_5), (0.001, -3.090_232_306_2)]
        {
            assert!((quantile(p) - z).abs() < 1e-9, "{p}");
        }
        assert!((cumulative(1.0) - 0.841_344_746_1).abs() < 1e-9);
    }

    #[test]
    fn random_numbers_are_normal() {
        let mut normal = Normal::new(3);
        let n = 100_000;
        let all: Vec<f64> = (0..n).map(|_| normal.draw()).collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        let variance = all.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        let beyond = all.iter().filter(|x| x.abs() > 1.96).count();
        // Four standard deviations of each.
        assert!(mean.abs() < 0.013 && (variance - 1.0).abs() < 0.018 && (4720..5280).contains(&beyond));
    }
}
