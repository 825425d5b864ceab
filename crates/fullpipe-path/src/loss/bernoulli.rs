//! Independent loss with one probability.

use fullpipe_units::{Fraction, Time};
use serde::{Deserialize, Serialize};

use super::{LossKind, LossModel};
use crate::build::LinkError;
use crate::random::Stream;

/// Every packet is lost with probability `share`, independently of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BernoulliSpec {
    /// The probability, `1%` or `0.01`.
    pub share: Fraction,
}

impl LossKind for BernoulliSpec {
    const ABOUT: &'static str = "every packet with the same probability, independently";
    type Model = Bernoulli;

    fn build(&self, random: Stream) -> Result<Bernoulli, LinkError> {
        Ok(Bernoulli::new(self.share, random))
    }

    fn mean(&self) -> Option<f64> {
        Some(self.share.as_f64())
    }
}

/// Draws the distance to the next loss, so a packet that survives costs a decrement.
pub(crate) struct Bernoulli {
    share: Fraction,
    survivors: u64,
    random: Stream,
}

impl Bernoulli {
    pub fn new(share: Fraction, mut random: Stream) -> Self {
        let survivors = random.failures_before_success(share.as_f64());
        Bernoulli { share, survivors, random }
    }

    /// Changes the share. Independent trials have no memory, so the distance is drawn anew.
    pub fn set_share(&mut self, share: Fraction) {
        if share != self.share {
            self.share = share;
            self.survivors = self.random.failures_before_success(share.as_f64());
        }
    }
}

impl LossModel for Bernoulli {
    #[inline]
    fn loses(&mut self, _: Time) -> bool {
        if self.survivors > 0 {
            self.survivors -= 1;
            return false;
        }
        self.survivors = self.random.failures_before_success(self.share.as_f64());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    fn losses(model: &mut Bernoulli, packets: usize) -> Vec<usize> {
        (0..packets).filter(|_| model.loses(Time::ZERO)).collect()
    }

    #[test]
    fn the_configured_share_is_lost() {
        for share in [0.5, 0.1, 0.01, 0.001] {
            let spec = BernoulliSpec { share: share.to_string().parse().unwrap() };
            let n = 1_000_000;
            let lost = losses(&mut spec.build(stream(1)).unwrap(), n).len() as f64;
            let deviation = (n as f64 * share * (1.0 - share)).sqrt();
            assert!((lost - n as f64 * share).abs() < 4.0 * deviation, "{share}: {lost}");
        }
    }

    #[test]
    fn losses_are_independent() {
        // After a loss the next packet is lost as often as any other.
        let mut model = Bernoulli::new("20%".parse().unwrap(), stream(2));
        let lost = losses(&mut model, 500_000);
        let pairs = lost.windows(2).filter(|w| w[1] == w[0] + 1).count();
        let share = pairs as f64 / lost.len() as f64;
        assert!((share - 0.2).abs() < 0.01, "{share}");
    }

    #[test]
    fn none_and_all_are_exact() {
        assert!(losses(&mut Bernoulli::new(Fraction::ZERO, stream(3)), 100_000).is_empty());
        assert_eq!(losses(&mut Bernoulli::new(Fraction::ONE, stream(3)), 1000).len(), 1000);
    }

    #[test]
    fn a_changed_share_applies_at_once() {
        let mut model = Bernoulli::new(Fraction::ZERO, stream(4));
        assert!(!model.loses(Time::ZERO));
        model.set_share(Fraction::ONE);
        assert!(model.loses(Time::ZERO));
        model.set_share(Fraction::ZERO);
        assert!(!model.loses(Time::ZERO));
    }
}
