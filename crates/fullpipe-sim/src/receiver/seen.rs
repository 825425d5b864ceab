//! A receiver that does what one was seen to do: how much it allowed and how often it acknowledged, as its data came in.

/// What a receiver did once so much of its data had arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receiving {
    /// How many bytes had arrived, in order or beyond a hole.
    pub from: u64,
    /// How much it allowed beyond what it acknowledged, in bytes.
    pub window: u64,
    /// In-order segments that it acknowledged at once, each time.
    pub each: u32,
}

/// Stretches of what was seen, and where the connection is in them.
#[derive(Debug)]
pub(super) struct SeenReceiver {
    stretches: Vec<Receiving>,
    now: usize,
    edge: u64,
}

impl SeenReceiver {
    /// None of nothing.
    pub fn new(stretches: &[Receiving]) -> Option<Self> {
        let first = stretches.first()?;
        Some(SeenReceiver { stretches: stretches.to_vec(), now: 0, edge: first.window })
    }

    /// What holds now that `arrived` bytes have.
    #[inline]
    pub fn at(&mut self, arrived: u64) -> Receiving {
        while self.stretches.get(self.now + 1).is_some_and(|next| next.from <= arrived) {
            self.now += 1;
        }
        self.stretches[self.now]
    }

    /// The right edge to tell where `next_bytes` of them are in order; it never moves back.
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
    fn each_stretch_holds_from_its_first_byte_on() {
        let of = |from, window, each| Receiving { from, window, each };
        let mut seen = SeenReceiver::new(&[of(0, 1000, 1), of(500, 3000, 2), of(9000, 100, 2)]).unwrap();
        assert_eq!((seen.edge(0, 0), seen.at(0).each), (1000, 1));
        assert_eq!((seen.edge(499, 499), seen.at(499).each), (1499, 1));
        assert_eq!((seen.edge(500, 500), seen.at(500).each), (3500, 2));
        assert_eq!(seen.edge(8999, 8999), 11_999);
        assert_eq!(seen.edge(9000, 9000), 11_999, "never back");
        assert_eq!(seen.edge(20_000, 20_000), 20_100);
        assert_eq!(seen.edge(20_000, 30_000), 20_100, "beyond a hole");
        assert!(SeenReceiver::new(&[]).is_none());
    }
}
