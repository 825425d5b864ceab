//! The flow with the earliest timer: a four-way tournament tree over the flows. Reading it is O(1);
//! an update is O(log n) at most and stops as soon as a match's winner stays the same. With many
//! flows the winner is unpredictable, so it is found without branches.

use fullpipe_cc::Time;

/// Entries per match: half a cache line.
pub(crate) const MATCH: usize = 4;

#[derive(Debug)]
pub(crate) struct Wakes {
    /// Per round, the wake times of its entrants: first the flows, in matches of `4i..4i+4`, then
    /// the winners of those matches, and so on until one match is left.
    rounds: Vec<Box<[Match]>>,
    first: Time,
    first_flow: usize,
}

/// The wake times of one match.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Match([Time; MATCH]);

impl Match {
    const EMPTY: Match = Match([Time::NEVER; MATCH]);

    /// The winner's time.
    #[inline(always)]
    fn first(&self) -> Time {
        let [a, b, c, d] = self.0;
        a.min(b).min(c.min(d))
    }

    /// The winner's index; the lowest of equal times.
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
            rounds.push(vec![Match::EMPTY; entrants].into_boxed_slice());
        }
        Wakes { rounds, first: Time::NEVER, first_flow: 0 }
    }

    /// The earliest wake time.
    #[inline]
    pub fn first(&self) -> Time {
        self.first
    }

    /// The flow that wakes then; the lowest of several.
    #[inline]
    pub fn first_flow(&self) -> usize {
        self.first_flow
    }

    /// Divides the wake times into those of `flows` flows each, a multiple of [`MATCH`].
    /// [`first`](Self::first) is valid again after [`rebuild`](Self::rebuild).
    pub fn parts(&mut self, flows: usize) -> impl Iterator<Item = PartOfWakes<'_>> + Send {
        debug_assert!(flows.is_multiple_of(MATCH));
        self.rounds[0].chunks_mut(flows / MATCH).map(PartOfWakes)
    }

    /// Finds the earliest flow after any number of changes to [`parts`](Self::parts).
    pub fn rebuild(&mut self) {
        for round in 1..self.rounds.len() {
            let (below, above) = self.rounds.split_at_mut(round);
            for (i, meeting) in below[round - 1].iter().enumerate() {
                above[0][i / MATCH].0[i % MATCH] = meeting.first();
            }
        }
        self.find_first();
    }

    /// Lets `flow` wake at `at`, unless it wakes earlier anyway: a wake that has become unnecessary
    /// is cheaper to ignore when it comes than to move with each ACK.
    #[inline]
    pub fn no_later(&mut self, flow: usize, at: Time) {
        if at < self.rounds[0][flow / MATCH].0[flow % MATCH] {
            self.set(flow, at);
        }
    }

    /// Sets the wake time of `flow`.
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
        self.find_first();
    }

    #[inline(always)]
    fn find_first(&mut self) {
        let mut place = 0;
        for round in self.rounds.iter().rev() {
            place = place * MATCH + round[place].winner();
        }
        self.first_flow = place;
        self.first = self.rounds[0][place / MATCH].0[place % MATCH];
    }
}

/// The wake times of some flows.
pub(crate) struct PartOfWakes<'a>(&'a mut [Match]);

impl PartOfWakes<'_> {
    /// When its `i`-th flow wakes.
    #[inline]
    pub fn due(&self, i: usize) -> Time {
        self.0[i / MATCH].0[i % MATCH]
    }

    /// Sets the wake time of its `i`-th flow.
    #[inline]
    pub fn put(&mut self, i: usize, at: Time) {
        self.0[i / MATCH].0[i % MATCH] = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_earliest_flow_is_found(
            n in 1usize..40, sets in prop::collection::vec((0usize..40, 0u64..50), 1..200),
        ) {
            let mut wakes = Wakes::new(n);
            let mut times = vec![Time::NEVER; n];
            for (flow, at) in sets {
                let (flow, at) = (flow % n, Time::from_nanos(at));
                if at.as_nanos() % 7 == 0 {
                    let part = flow / MATCH / 2;
                    wakes.parts(2 * MATCH).nth(part).unwrap().put(flow % (2 * MATCH), at);
                    wakes.rebuild();
                    times[flow] = at;
                } else if at.as_nanos() % 3 == 0 {
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
