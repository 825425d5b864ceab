//! What flows send in a window, in the order in which it enters the path.

use super::super::one_way::Outlet;
use super::Ties;
use crate::segment::Segment;
use fullpipe_cc::Time;
use fullpipe_path::Packet;

/// The place of a packet among those that enter a path at the same time: first those sent on the
/// arrival of a packet, in the order of those arrivals, then those sent by timers, in the order of
/// the flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank(u32);

impl Rank {
    /// A window has fewer arrivals, and a run fewer flows.
    const TIMER: u32 = 1 << 31;
    /// Behind all packets.
    const LAST: Rank = Rank(u32::MAX);

    /// Of what is sent on the `n`-th arrival of the window.
    pub fn arrival(n: u32) -> Self {
        debug_assert!(n < Self::TIMER);
        Rank(n)
    }

    /// Of what `flow` sends for a timer.
    pub fn timer(flow: usize) -> Self {
        Rank(Self::TIMER | flow as u32)
    }

    pub fn is_timer(self) -> bool {
        self.0 & Self::TIMER != 0
    }
}

/// What some of the flows send on one direction of the path in a window.
pub(super) struct Pushes {
    /// Of the packets that are added now.
    pub rank: Rank,
    packets: Vec<Packet<Segment>>,
    /// When and in which order they enter the path: time, rank and index of each.
    order: Vec<(Time, Rank, u32)>,
    /// Buffers for sorting.
    sorted: Vec<(Time, Rank, u32)>,
    ends: Vec<u32>,
    gathered: Vec<Packet<Segment>>,
}

impl Outlet for Pushes {
    #[inline]
    fn push(&mut self, at: Time, packet: Packet<Segment>) {
        self.order.push((at, self.rank, self.packets.len() as u32));
        self.packets.push(packet);
    }
}

impl Pushes {
    pub fn new() -> Self {
        Pushes {
            rank: Rank(0),
            packets: Vec::new(),
            order: Vec::new(),
            sorted: Vec::new(),
            ends: Vec::new(),
            gathered: Vec::new(),
        }
    }

    pub fn clear(&mut self) {
        recycle(&mut self.packets);
        recycle(&mut self.gathered);
        recycle(&mut self.order);
        recycle(&mut self.sorted);
        recycle(&mut self.ends);
    }

    /// Sorts what was sent after `begin` and until `end`.
    pub fn sort(&mut self, begin: Time, end: Time, ties: Ties) {
        match ties {
            Ties::Kept => self.sort_by_buckets(begin, end),
            #[cfg(test)]
            Ties::Reversed => self
                .order
                .sort_unstable_by_key(|&(at, rank, i)| (at, rank.is_timer(), std::cmp::Reverse(rank), i)),
            #[cfg(test)]
            Ties::ByThread => self.sort_by_buckets(begin, end),
        }
    }

    /// Distributes the packets over as many short intervals of time, and sorts those.
    fn sort_by_buckets(&mut self, begin: Time, end: Time) {
        let Pushes { order, ends, sorted, .. } = self;
        let Some(&first) = order.first() else { return };
        let most = order.len().next_power_of_two() as u64;
        let shift = (end.since(begin).as_nanos() / most).checked_ilog2().map_or(0, |log| log + 1);
        let bucket = |at: Time| (at.since(begin).as_nanos() >> shift) as usize;
        ends.clear();
        ends.resize(bucket(end) + 1, 0);
        for &(at, ..) in order.iter() {
            ends[bucket(at)] += 1;
        }
        let mut sum = 0;
        for end in ends.iter_mut() {
            (*end, sum) = (sum, sum + *end);
        }
        sorted.clear();
        sorted.resize(order.len(), first);
        for &push in order.iter() {
            let place = &mut ends[bucket(push.0)];
            sorted[*place as usize] = push;
            *place += 1;
        }
        let mut begin = 0;
        for &end in ends.iter() {
            sorted[begin..end as usize].sort_unstable();
            begin = end as usize;
        }
        std::mem::swap(order, sorted);
    }

    /// Moves the sorted packets together, so that the thread that passes them to the path reads
    /// memory in order.
    pub fn gather(&mut self) {
        let Pushes { packets, order, gathered, .. } = self;
        gathered.clear();
        gathered.extend(order.iter_mut().zip(0..).map(|((.., i), place)| {
            let packet = packets[*i as usize].clone();
            *i = place;
            packet
        }));
        std::mem::swap(packets, gathered);
    }
}

/// Buffers of fewer items are kept as they are.
const SMALL: usize = 1 << 14;

/// Empties a buffer for the next window, and frees most of it if it is much larger than this window
/// needed: when all flows start at once, they send more than ever after.
pub(super) fn recycle<T>(buffer: &mut Vec<T>) {
    let used = buffer.len().max(SMALL);
    buffer.clear();
    if buffer.capacity() / 4 > used {
        buffer.shrink_to(2 * used);
    }
}

/// The packets of several [`Pushes`] in the order in which they enter the path.
pub(super) struct Merge<'a> {
    all: Vec<&'a Pushes>,
    /// Of each, when and in which order its next packet enters the path, and its place.
    next: Vec<(Time, Rank, usize)>,
    /// Which of them has the first packet, and when and in which order that one enters.
    first: usize,
    at: Time,
    rank: Rank,
    #[cfg(test)]
    ties: Ties,
}

impl<'a> Merge<'a> {
    pub fn new(
        pushes: impl Iterator<Item = &'a Pushes>,
        #[cfg_attr(not(test), expect(unused_variables))] ties: Ties,
    ) -> Self {
        let all: Vec<&Pushes> = pushes.filter(|pushes| !pushes.order.is_empty()).collect();
        let next = all.iter().map(|pushes| head(pushes, 0)).collect();
        let mut merge = Merge {
            all,
            next,
            first: 0,
            at: Time::NEVER,
            rank: Rank::LAST,
            #[cfg(test)]
            ties,
        };
        merge.find_first();
        merge
    }

    /// When the first packet enters; [`Time::NEVER`] if there is none.
    #[inline]
    pub fn at(&self) -> Time {
        self.at
    }

    /// Whether a timer sent the first packet.
    #[inline]
    pub fn is_timer(&self) -> bool {
        self.rank.is_timer()
    }

    /// Removes and returns the first packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet<Segment>> {
        let pushes = self.all.get(self.first)?;
        let place = self.next[self.first].2;
        let &(.., i) = pushes.order.get(place)?;
        let packet = pushes.packets[i as usize].clone();
        // Loads a later packet into the processor's caches.
        if let Some(&(.., later)) = pushes.order.get(place + 8) {
            std::hint::black_box(pushes.packets[later as usize].bytes);
        }
        self.next[self.first] = head(pushes, place + 1);
        self.find_first();
        Some(packet)
    }

    #[inline]
    fn find_first(&mut self) {
        let mut first = (Time::NEVER, Rank::LAST);
        for (i, &(at, rank, _)) in self.next.iter().enumerate() {
            if (at, rank) < first {
                (first, self.first) = ((at, rank), i);
            }
        }
        #[cfg(test)]
        if matches!(self.ties, Ties::ByThread) {
            let order = |&(_, (at, rank, _)): &(usize, &(Time, Rank, usize))| (*at, rank.is_timer());
            if let Some((i, &(at, rank, _))) = self.next.iter().enumerate().min_by_key(order) {
                (first, self.first) = ((at, rank), i);
            }
        }
        (self.at, self.rank) = first;
    }
}

/// When and in which order the packet at `place` enters the path, and that place.
#[inline]
fn head(pushes: &Pushes, place: usize) -> (Time, Rank, usize) {
    pushes.order.get(place).map_or((Time::NEVER, Rank::LAST, place), |&(at, rank, _)| (at, rank, place))
}
