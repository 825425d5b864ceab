//! Which flow is to be woken next: a tournament tree over the flows. Looking is O(1), a change is
//! O(log n) at most and ends as soon as it loses; for one flow it is a single comparison.

use fullpipe_cc::Time;

#[derive(Debug)]
pub(crate) struct Wakes {
    /// Leaves: the wake time of each flow.
    times: Vec<Time>,
    /// Winners: `tree[1]` is the flow that wakes first; node `i` has the children `2i` and `2i+1`, the
    /// leaves follow on the nodes.
    tree: Vec<u32>,
    first: Time,
}

impl Wakes {
    /// `flows` flows that never wake.
    pub fn new(flows: usize) -> Self {
        let leaves = flows.max(1).next_power_of_two();
        let mut tree = vec![0; 2 * leaves];
        for (i, leaf) in tree[leaves..].iter_mut().enumerate() {
            *leaf = i as u32;
        }
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node];
        }
        Wakes { times: vec![Time::NEVER; leaves], tree, first: Time::NEVER }
    }

    /// When the first wakes.
    #[inline]
    pub fn first(&self) -> Time {
        self.first
    }

    /// Which it is; of several the lowest.
    pub fn first_flow(&self) -> usize {
        self.tree[1] as usize
    }

    /// Flow `flow` wakes at `at`, if it would not have earlier: a wake that has become too early is
    /// cheaper to sleep through than to move at each ACK.
    #[inline]
    pub fn no_later(&mut self, flow: usize, at: Time) {
        if at < self.times[flow] {
            self.set(flow, at);
        }
    }

    /// Flow `flow` wakes at `at`.
    pub fn set(&mut self, flow: usize, at: Time) {
        self.times[flow] = at;
        let mut node = (self.times.len() + flow) / 2;
        while node >= 1 {
            let (a, b) = (self.tree[2 * node], self.tree[2 * node + 1]);
            let winner = if self.times[b as usize] < self.times[a as usize] { b } else { a };
            if self.tree[node] == winner && winner != flow as u32 {
                break;
            }
            self.tree[node] = winner;
            node /= 2;
        }
        self.first = self.times[self.tree[1] as usize];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_first(n in 1usize..40, sets in prop::collection::vec((0usize..40, 0u64..50), 1..200)) {
            let mut wakes = Wakes::new(n);
            let mut times = vec![Time::NEVER; n];
            for (flow, at) in sets {
                let (flow, at) = (flow % n, Time::from_nanos(at));
                if at.as_nanos() % 3 == 0 {
                    wakes.no_later(flow, at);
                    times[flow] = times[flow].min(at);
                } else {
                    wakes.set(flow, at);
                    times[flow] = at;
                }
                let first = (0..n).min_by_key(|&f| times[f]).unwrap();
                prop_assert_eq!((wakes.first(), wakes.first_flow()), (times[first], first));
            }
        }
    }
}
