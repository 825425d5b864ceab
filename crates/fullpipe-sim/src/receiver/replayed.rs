//! A receiver that replays the observed behaviour of another: its window and how often it
//! acknowledged.

/// The behaviour of an observed receiver from a point of its stream on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceiverBehaviour {
    /// Bytes that had arrived, in order or beyond a hole.
    pub from: u64,
    /// Advertised window in bytes.
    pub window: u64,
    /// In-order segments per ACK.
    pub segments_per_ack: u32,
}

/// The observed behaviour, and the position in it.
#[derive(Debug)]
pub(super) struct ReplayedReceiver {
    behaviour: Vec<ReceiverBehaviour>,
    position: usize,
    edge: u64,
}

impl ReplayedReceiver {
    /// `None` if `behaviour` is empty.
    pub fn new(behaviour: &[ReceiverBehaviour]) -> Option<Self> {
        let first = behaviour.first()?;
        Some(ReplayedReceiver { behaviour: behaviour.to_vec(), position: 0, edge: first.window })
    }

    /// The behaviour after `arrived` bytes.
    #[inline]
    pub fn at(&mut self, arrived: u64) -> ReceiverBehaviour {
        while self.behaviour.get(self.position + 1).is_some_and(|next| next.from <= arrived) {
            self.position += 1;
        }
        self.behaviour[self.position]
    }

    /// The right edge to advertise with `next_bytes` received in order; it never moves back.
    #[inline]
    pub fn edge(&mut self, next_bytes: u64, arrived: u64) -> u64 {
        let window = self.at(arrived).window;
        self.edge = self.edge.max(next_bytes + window);
        self.edge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_behaviour_applies_from_its_first_byte_on() {
        let entry = |from, window, segments_per_ack| ReceiverBehaviour { from, window, segments_per_ack };
        let mut replayed =
            ReplayedReceiver::new(&[entry(0, 1000, 1), entry(500, 3000, 2), entry(9000, 100, 2)]).unwrap();
        assert_eq!((replayed.edge(0, 0), replayed.at(0).segments_per_ack), (1000, 1));
        assert_eq!((replayed.edge(499, 499), replayed.at(499).segments_per_ack), (1499, 1));
        assert_eq!((replayed.edge(500, 500), replayed.at(500).segments_per_ack), (3500, 2));
        assert_eq!(replayed.edge(8999, 8999), 11_999);
        assert_eq!(replayed.edge(9000, 9000), 11_999, "never back");
        assert_eq!(replayed.edge(20_000, 20_000), 20_100);
        assert_eq!(replayed.edge(20_000, 30_000), 20_100, "beyond a hole");
        assert!(ReplayedReceiver::new(&[]).is_none());
    }
}
