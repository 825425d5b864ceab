//! Reordering: packets that are delayed and overtaken by later ones.

use fullpipe_units::{Fraction, Span, Time};
use serde::{Deserialize, Serialize};

use crate::loss::{Bernoulli, LossModel};
use crate::random::Stream;

/// Delays some packets so that later ones overtake them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReorderSpec {
    /// Share of packets that are delayed.
    pub share: Fraction,
    /// Extra delay.
    pub by: Span,
}

/// Selects the packets.
pub(crate) struct Reorder {
    late: Bernoulli,
    by: Span,
}

impl Reorder {
    pub fn new(spec: &ReorderSpec, random: Stream) -> Self {
        Reorder { late: Bernoulli::new(spec.share, random), by: spec.by }
    }

    /// Extra delay of the next packet, if it is selected.
    pub fn delays(&mut self) -> Option<Span> {
        self.late.loses(Time::ZERO).then_some(self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    #[test]
    fn the_configured_share_of_packets_is_delayed() {
        let mut reorder = Reorder::new(&toml::from_str("share = '10%'\nby = '3ms'").unwrap(), stream(1));
        let late = (0..100_000).filter_map(|_| reorder.delays()).collect::<Vec<_>>();
        // Four standard deviations of the binomial distribution: 4·sqrt(n·p·(1 − p)).
        assert!(late.len().abs_diff(10_000) < 380, "{}", late.len());
        assert!(late.iter().all(|&by| by == Span::from_millis(3)));
    }
}
