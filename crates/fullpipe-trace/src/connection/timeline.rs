//! Time series in bounded memory.

use fullpipe_units::{Span, Time};

/// The data of one interval.
pub(crate) trait Interval: Copy {
    /// An interval without events.
    const EMPTY: Self;

    /// Merges two consecutive intervals.
    fn merge(self, later: &Self) -> Self;
}

/// Consecutive equal intervals, as in a long silence.
#[derive(Clone, Debug)]
struct Run<T> {
    first: usize,
    count: usize,
    of: T,
}

/// Intervals whose width doubles when there are too many. Memory depends on the events, not on the
/// time.
#[derive(Clone, Debug)]
pub(crate) struct Timeline<T> {
    start: Time,
    width: Span,
    max_intervals: usize,
    /// Runs without gaps.
    runs: Vec<Run<T>>,
    /// Start and end of the last interval, which gets most events.
    latest: (Time, Time),
}

impl<T: Interval> Timeline<T> {
    /// A time series from `start` with at most `max_intervals` intervals, initially a millisecond
    /// wide.
    pub(crate) fn new(start: Time, max_intervals: usize) -> Self {
        Timeline {
            start,
            width: Span::from_millis(1),
            max_intervals: max_intervals.max(2),
            runs: Vec::new(),
            latest: (start, start),
        }
    }

    /// The interval that contains `at`.
    #[inline]
    pub(crate) fn at(&mut self, at: Time) -> &mut T {
        let place = if self.is_latest(at) { self.runs.len() - 1 } else { self.run_at(at) };
        &mut self.runs[place].of
    }

    #[inline]
    fn is_latest(&self, at: Time) -> bool {
        (self.latest.0..self.latest.1).contains(&at)
    }

    /// Index of a run with only the interval that contains `at`.
    fn run_at(&mut self, at: Time) -> usize {
        let mut index = self.index(at);
        while index >= self.max_intervals {
            self.halve();
            index = self.index(at);
        }
        let place = self.isolate(index);
        if place + 1 == self.runs.len() {
            let begins = self.start + self.width * index as u64;
            self.latest = (begins, begins + self.width);
        }
        place
    }

    /// Index of a run with only the interval `index`; splits or appends runs.
    fn isolate(&mut self, index: usize) -> usize {
        let end = self.count();
        if index >= end {
            if index > end {
                self.runs.push(Run { first: end, count: index - end, of: T::EMPTY });
            }
            self.runs.push(Run { first: index, count: 1, of: T::EMPTY });
            return self.runs.len() - 1;
        }
        let place = self.runs.partition_point(|run| run.first + run.count <= index);
        let Run { first, count, of } = self.runs[place];
        let parts = [(first, index - first), (index, 1), (index + 1, first + count - index - 1)];
        let parts =
            parts.into_iter().filter(|(_, count)| *count > 0).map(|(first, count)| Run { first, count, of });
        self.runs.splice(place..=place, parts);
        place + usize::from(index > first)
    }

    #[inline]
    fn index(&self, at: Time) -> usize {
        usize::try_from(at.since(self.start).as_nanos() / self.width.as_nanos()).unwrap_or(usize::MAX)
    }

    fn halve(&mut self) {
        self.width = self.width * 2;
        self.latest = (self.start, self.start);
        let mut runs: Vec<Run<T>> = Vec::with_capacity(self.runs.len());
        let mut push = |count: usize, of: T| {
            let first = runs.last().map_or(0, |run| run.first + run.count);
            if count > 0 {
                runs.push(Run { first, count, of });
            }
        };
        // The first of a pair whose second is in the next run.
        let mut odd: Option<T> = None;
        for Run { mut count, of, .. } in self.runs.drain(..) {
            if let Some(before) = odd.take() {
                push(1, before.merge(&of));
                count -= 1;
            }
            push(count / 2, of.merge(&of));
            odd = (count % 2 == 1).then_some(of);
        }
        if let Some(last) = odd {
            push(1, last);
        }
        self.runs = runs;
    }

    /// Distributes the time `from..to` over its intervals.
    #[inline]
    pub(crate) fn add_time(&mut self, from: Time, to: Time, mut on: impl FnMut(&mut T, Span)) {
        if to <= from {
            return;
        }
        // Extend the series first, as that may change the width.
        self.at(to);
        let from = from.max(self.start);
        if self.is_latest(from)
            && self.is_latest(to)
            && let Some(last) = self.runs.last_mut()
        {
            on(&mut last.of, to.since(from));
            return;
        }
        let (begin, end) = (self.index(from), self.index(to));
        let mut place = self.isolate(begin);
        while let Some(run) = self.runs.get_mut(place)
            && run.first <= end
        {
            let starts = self.start + self.width * run.first as u64;
            let spent = (starts + self.width).min(to).since(starts.max(from));
            on(&mut run.of, spent);
            place += 1;
        }
    }

    /// Bytes of memory, approximately.
    pub(crate) fn memory(&self) -> usize {
        self.runs.capacity() * size_of::<Run<T>>()
    }

    /// Start of the first interval.
    pub(crate) fn start(&self) -> Time {
        self.start
    }

    /// Width of an interval.
    pub(crate) fn width(&self) -> Span {
        self.width
    }

    /// Number of intervals.
    pub(crate) fn count(&self) -> usize {
        self.runs.last().map_or(0, |run| run.first + run.count)
    }

    /// All intervals.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.runs.iter().flat_map(|run| std::iter::repeat_n(&run.of, run.count))
    }

    /// Merges groups of `each` intervals; returns the size and the data of each group. The last
    /// group may be smaller.
    pub(crate) fn grouped(&self, each: usize) -> Vec<(usize, T)> {
        let mut together: Vec<(usize, T)> = Vec::with_capacity(self.count().div_ceil(each.max(1)));
        for one in self.all() {
            match together.last_mut() {
                Some((count, all)) if *count < each => {
                    *count += 1;
                    *all = all.merge(one);
                }
                _ => together.push((1, *one)),
            }
        }
        together
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Bins;

    #[test]
    fn intervals_double_their_width_and_keep_sums() {
        let mut bins = Bins::new(Time::ZERO, 4);
        for ms in 0..37 {
            bins.at(Time::ZERO + Span::from_millis(ms)).sent += 1;
        }
        assert!(bins.count() <= 4);
        assert_eq!(bins.width(), Span::from_millis(16));
        assert_eq!(bins.grouped(1).iter().map(|(_, b)| b.sent).sum::<u64>(), 37);
    }

    #[test]
    fn time_is_distributed_over_its_intervals() {
        let mut bins = Bins::new(Time::ZERO, 8);
        let at = |us| Time::ZERO + Span::from_micros(us);
        bins.add_time(at(500), at(2_250), |b, t| b.idle += t);
        let idle: Vec<u64> = bins.grouped(1).iter().map(|(_, b)| b.idle.as_micros()).collect();
        assert_eq!(idle, [500, 1000, 250]);
    }

    /// A reference implementation without runs.
    struct Plain {
        width: u64,
        bins: Vec<(u64, u64)>,
    }

    impl Plain {
        fn room(&mut self, us: u64) {
            while us / self.width >= 16 {
                self.width *= 2;
                self.bins = self
                    .bins
                    .chunks(2)
                    .map(|two| two.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)))
                    .collect();
            }
            let count = (us / self.width) as usize + 1;
            self.bins.resize(self.bins.len().max(count), (0, 0));
        }
    }

    #[test]
    fn runs_equal_the_reference() {
        let mut seed = 1u64;
        let mut random = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        for _ in 0..2000 {
            let mut bins = Bins::new(Time::ZERO, 16);
            let mut plain = Plain { width: 1000, bins: Vec::new() };
            let at = |us| Time::ZERO + Span::from_micros(us);
            let mut now = 0;
            for _ in 0..random(30) {
                let from = now - random(now.min(20_000) + 1);
                now += random(3) * random(9_000);
                if random(2) == 0 {
                    bins.at(at(now)).sent += 1;
                    plain.room(now);
                    plain.bins[(now / plain.width) as usize].0 += 1;
                } else {
                    bins.add_time(at(from), at(now), |b, t| b.idle += t);
                    plain.room(if from < now { now } else { 0 });
                    for us in from..now {
                        plain.bins[(us / plain.width) as usize].1 += 1;
                    }
                }
            }
            let found: Vec<_> = bins.grouped(1).iter().map(|(_, b)| (b.sent, b.idle.as_micros())).collect();
            if !found.is_empty() {
                assert_eq!(found, plain.bins);
            }
            let each = 1 + random(5) as usize;
            let sums: Vec<_> =
                found.chunks(each).map(|c| (c.len(), c.iter().map(|b| b.1).sum::<u64>())).collect();
            assert_eq!(
                bins.grouped(each).iter().map(|(n, b)| (*n, b.idle.as_micros())).collect::<Vec<_>>(),
                sums
            );
        }
    }

    #[test]
    fn long_silence_needs_no_memory() {
        let mut bins = Bins::new(Time::ZERO, 512);
        let at = |s| Time::ZERO + Span::from_secs(s);
        for s in (0..10_000).step_by(1000) {
            bins.at(at(s)).sent += 1;
            bins.add_time(at(s), at(s + 999), |b, t| b.idle += t);
        }
        assert!(bins.count() > 256, "{}", bins.count());
        assert!(bins.runs.len() <= 40, "{}", bins.runs.len());
    }
}
