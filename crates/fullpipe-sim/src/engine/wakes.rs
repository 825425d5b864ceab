//! Which flow is to be woken next: a tournament of fours over the flows. Looking is O(1), a change is
//! O(log n) at most and ends as soon as it loses; for one flow it is a single comparison. Who wins is
//! as good as random with many flows: it is found without branches.

use fullpipe_cc::Time;

/// How many meet in one match: half a line of cache.
const MATCH: usize = 4;

#[derive(Debug)]
pub(crate) struct Wakes {
    /// The wake time of each flow, and of the winners of each round: of the match of flows `4i..4i+4`, of
    /// the match of four such winners, and so on until one is left.
    rounds: Vec<Box<[Match]>>,
    first: Time,
    first_flow: usize,
}

/// The times of those who meet.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Match([Time; MATCH]);

impl Match {
    const NOBODY: Match = Match([Time::NEVER; MATCH]);

    /// The winner's time.
    #[inline(always)]
    fn first(&self) -> Time {
        let [a, b, c, d] = self.0;
        a.min(b).min(c.min(d))
    }

    /// Which one wins; of several the lowest.
    #[inline(always)]
    fn winner(&self) -> usize {
        let [a, b, c, d] = self.0;
        let (low, high) = (usize::from(b < a), 2 + usize::from(d < c));
        if c.min(d) < a.min(b) { high } else { low }
    }
}

impl Wakes {
    /// `flows` flows that never wake.
    pub fn new(flows: usize) -> Self {
        let mut rounds = Vec::new();
        let mut entrants = flows.max(1);
        while entrants > 1 || rounds.is_empty() {
            entrants = entrants.div_ceil(MATCH);
            rounds.push(vec![Match::NOBODY; entrants].into_boxed_slice());
        }
        Wakes { rounds, first: Time::NEVER, first_flow: 0 }
    }

    /// When the first wakes.
    #[inline]
    pub fn first(&self) -> Time {
        self.first
    }

    /// Which it is; of several the lowest.
    #[inline]
    pub fn first_flow(&self) -> usize {
        self.first_flow
    }

    /// Flow `flow` wakes at `at`, if it would not have earlier: a wake that has become too early is
    /// cheaper to sleep through than to move at each ACK.
    #[inline]
    pub fn no_later(&mut self, flow: usize, at: Time) {
        if at < self.rounds[0][flow / MATCH].0[flow % MATCH] {
            self.set(flow, at);
        }
    }

    /// Flow `flow` wakes at `at`.
    pub fn set(&mut self, flow: usize, at: Time) {
        let (mut place, mut time) = (flow, at);
        for round in &mut self.rounds {
            let meeting = &mut round[place / MATCH];
            let before = meeting.first();
            meeting.0[place % MATCH] = time;
            time = meeting.first();
            place /= MATCH;
            if time == before {
                break;
            }
        }
        let mut place = 0;
        for round in self.rounds.iter().rev() {
            place = place * MATCH + round[place].winner();
        }
        self.first_flow = place;
        self.first = self.rounds[0][place / MATCH].0[place % MATCH];
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
