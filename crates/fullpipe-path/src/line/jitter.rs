//! Delay that varies from packet to packet.

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::random::Stream;

/// Random deviation of the delay. Written as a time (`"5ms"`: uniform) or as a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JitterSpec {
    /// Uniform: the largest deviation to either side. Normal and Pareto: the standard deviation.
    pub spread: Span,
    /// Distribution of the deviation.
    #[serde(default)]
    pub distribution: Distribution,
    /// Whether packets may overtake one another. Otherwise an early packet waits for its
    /// predecessor, which increases the mean delay.
    #[serde(default)]
    pub reorder: bool,
}

impl From<Span> for JitterSpec {
    fn from(spread: Span) -> Self {
        JitterSpec { spread, distribution: Distribution::Uniform, reorder: false }
    }
}

/// Distribution of the deviation from the mean delay; the mean of each is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Uniform between −spread and +spread.
    #[default]
    Uniform,
    /// Normal with standard deviation `spread`.
    Normal,
    /// A short minimum and a long tail: Pareto of shape 3 with standard deviation `spread`.
    Pareto,
}

/// Draws deviations.
pub(crate) struct Jitter {
    spread: f64,
    distribution: Distribution,
    random: Stream,
}

impl Jitter {
    pub fn new(spec: &JitterSpec, random: Stream) -> Self {
        Jitter { spread: spec.spread.as_nanos() as f64, distribution: spec.distribution, random }
    }

    /// When a packet that departed at `departed` arrives, with mean delay `delay`; never before it
    /// departed.
    pub fn arrival(&mut self, departed: Time, delay: Span) -> Time {
        let deviation = (self.deviate() * self.spread) as i64;
        let delayed = departed + delay;
        let shifted = if deviation < 0 {
            delayed - Span::from_nanos(deviation.unsigned_abs())
        } else {
            delayed + Span::from_nanos(deviation.unsigned_abs())
        };
        shifted.max(departed)
    }

    fn deviate(&mut self) -> f64 {
        match self.distribution {
            Distribution::Uniform => 2.0 * self.random.unit() - 1.0,
            Distribution::Normal => self.random.normal(),
            Distribution::Pareto => {
                // x = u^(−1/3) has the mean 3/2 and the variance 3/4.
                let x = libm::cbrt(1.0 / self.random.positive_unit());
                (x - 1.5) / libm::sqrt(0.75)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    /// Mean and standard deviation of the delay in milliseconds, and its extremes.
    fn moments(distribution: Distribution) -> (f64, f64, f64, f64) {
        let spec = JitterSpec { spread: Span::from_millis(5), distribution, reorder: false };
        let mut jitter = Jitter::new(&spec, stream(1));
        let departed = Time::ZERO + Span::from_secs(1);
        let ms: Vec<f64> = (0..200_000)
            .map(|_| jitter.arrival(departed, Span::from_millis(100)).since(departed).as_millis_f64())
            .collect();
        let mean = ms.iter().sum::<f64>() / ms.len() as f64;
        let variance = ms.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / ms.len() as f64;
        let (low, high) = ms.iter().fold((f64::MAX, 0f64), |(l, h), &v| (l.min(v), h.max(v)));
        (mean, variance.sqrt(), low, high)
    }

    #[test]
    fn uniform_deviations_fill_the_spread() {
        let (mean, deviation, low, high) = moments(Distribution::Uniform);
        assert!(
            (mean - 100.0).abs() < 0.05 && (deviation - 5.0 / 3f64.sqrt()).abs() < 0.05,
            "{mean} {deviation}"
        );
        assert!((95.0..95.01).contains(&low) && (104.99..=105.0).contains(&high), "{low} {high}");
    }

    #[test]
    fn normal_deviations_have_the_spread_as_standard_deviation() {
        let (mean, deviation, ..) = moments(Distribution::Normal);
        assert!((mean - 100.0).abs() < 0.05 && (deviation - 5.0).abs() < 0.05, "{mean} {deviation}");
    }

    #[test]
    fn pareto_deviations_have_a_minimum_and_a_long_tail() {
        let (mean, _, low, high) = moments(Distribution::Pareto);
        // The third moment is infinite: the sample's deviation converges too slowly to be tested.
        assert!((mean - 100.0).abs() < 0.1, "{mean}");
        let minimum = 100.0 - 5.0 * 0.5 / 0.75f64.sqrt();
        assert!((low - minimum).abs() < 0.01, "{low} {minimum}");
        assert!(high > 200.0, "{high}");
    }

    #[test]
    fn no_packet_arrives_before_it_departed() {
        let spec =
            JitterSpec { spread: Span::from_secs(100), distribution: Distribution::Normal, reorder: true };
        let mut jitter = Jitter::new(&spec, stream(1));
        let departed = Time::ZERO + Span::from_secs(1);
        assert!((0..1000).all(|_| jitter.arrival(departed, Span::from_millis(1)) >= departed));
    }
}
