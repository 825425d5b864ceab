//! Loss of listed packets, for tests.

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use super::{LossKind, LossModel};
use crate::build::LinkError;
use crate::random::Stream;

/// Exactly the listed packets are lost; the three lists combine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListSpec {
    /// Packets by their number at this point of the path, counted from 1.
    pub packets: Vec<u64>,
    /// Times after each of which the next packet is lost.
    pub times: Vec<Span>,
    /// Every `every`-th packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
}

impl LossKind for ListSpec {
    const ABOUT: &'static str = "exactly the packets named by number, time or period";
    type Model = List;

    fn build(&self, _: Stream) -> Result<List, LinkError> {
        if self.packets.contains(&0) {
            return Err(LinkError::new("packets", "packets are counted from 1"));
        }
        if self.every == Some(0) {
            return Err(LinkError::new("every", "write the period in packets, at least 1"));
        }
        if self.packets.is_empty() && self.times.is_empty() && self.every.is_none() {
            return Err(LinkError::new("kind", "a list needs `packets`, `times` or `every`"));
        }
        let (mut packets, mut times) = (self.packets.clone(), self.times.clone());
        // The next one is at the end.
        packets.sort_unstable_by(|a, b| b.cmp(a));
        packets.dedup();
        times.sort_unstable_by(|a, b| b.cmp(a));
        Ok(List { packets, times, every: self.every, passed: 0 })
    }

    fn mean(&self) -> Option<f64> {
        Some(self.every.map_or(0.0, |n| 1.0 / n.max(1) as f64))
    }
}

/// The rest of the list, latest first.
pub(crate) struct List {
    packets: Vec<u64>,
    times: Vec<Span>,
    every: Option<u64>,
    passed: u64,
}

impl LossModel for List {
    fn loses(&mut self, at: Time) -> bool {
        self.passed += 1;
        let mut lost = self.every.is_some_and(|n| self.passed.is_multiple_of(n));
        if self.packets.last() == Some(&self.passed) {
            self.packets.pop();
            lost = true;
        }
        // One packet per time, even if several times fall into a gap between packets.
        if !lost && self.times.last().is_some_and(|&t| t <= at.since(Time::ZERO)) {
            self.times.pop();
            lost = true;
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stream;

    fn lost(text: &str, packets: u64) -> Vec<u64> {
        let mut model = toml::from_str::<ListSpec>(text).unwrap().build(stream(0)).unwrap();
        (1..=packets).filter(|&i| model.loses(Time::ZERO + Span::from_millis(i))).collect()
    }

    #[test]
    fn exactly_the_named_packets_are_lost() {
        assert_eq!(lost("packets = [7, 2, 3, 2]", 20), [2, 3, 7]);
        assert_eq!(lost("every = 6", 20), [6, 12, 18]);
        assert_eq!(lost("times = ['4.5ms', '4.6ms', '1s']", 20), [5, 6]);
        assert_eq!(lost("packets = [1]\nevery = 10", 20), [1, 10, 20]);
    }

    #[test]
    fn empty_lists_are_refused() {
        let wrong = |text: &str| toml::from_str::<ListSpec>(text).unwrap().build(stream(0)).err().unwrap();
        assert!(wrong("packets = [0]").reason.contains("from 1"));
        assert_eq!(wrong("every = 0").key, "every");
        assert!(wrong("").reason.contains("`packets`"));
    }
}
