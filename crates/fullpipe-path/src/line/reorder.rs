//! Packets that take longer than those behind them.

use fullpipe_units::{Fraction, Span, Time};
use serde::{Deserialize, Serialize};

use crate::loss::{Bernoulli, LossModel};
use crate::random::Stream;

/// Some packets take longer and are overtaken by those behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReorderSpec {
    /// Share of packets that take longer.
    pub share: Fraction,
    /// By how much.
    pub by: Span,
}

/// Chooses the packets.
pub(crate) struct Reorder {
    late: Bernoulli,
    by: Span,
}

impl Reorder {
    pub fn new(spec: &ReorderSpec, random: Stream) -> Self {
        Reorder { late: Bernoulli::new(spec.share, random), by: spec.by }
    }

    /// How much longer the next packet takes, if it is one of them.
    pub fn delays(&mut self) -> Option<Span> {
        self.late.loses(Time::ZERO).then_some(self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    #[test]
    fn that_share_of_packets_takes_longer() {
        let mut reorder = Reorder::new(&toml::from_str("share = '10%'\nby = '3ms'").unwrap(), stream(1));
        let late = (0..100_000).filter_map(|_| reorder.delays()).collect::<Vec<_>>();
        // Four standard deviations of the binomial distribution: 4·sqrt(n·p·(1 − p)).
        assert!(late.len().abs_diff(10_000) < 380, "{}", late.len());
        assert!(late.iter().all(|&by| by == Span::from_millis(3)));
    }
}
