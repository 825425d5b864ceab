//! One direction of the path and its recorders.

use super::queueing::Queueing;
use crate::error::SimError;
use crate::recorder::LinkRecorder;
use crate::segment::Segment;
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::scenario::{Direction, Scenario};
use fullpipe_path::{Change, LinkStats, Outcome, Packet, Path};

/// Where an end sends its packets.
pub(crate) trait Outlet {
    /// Adds a packet.
    fn push(&mut self, now: Time, packet: Packet<Segment>);
}

impl Outlet for TimedPath {
    #[inline]
    fn push(&mut self, now: Time, packet: Packet<Segment>) {
        self.changed = true;
        // The packet may leave a server at once, which is not processed yet.
        self.ran_to = Time::from_nanos(now.as_nanos().saturating_sub(1));
        self.path.push(now, packet);
    }
}

/// A path that caches the time of its next event: querying it dominates the cost of an event that
/// only concerns the other direction.
pub(crate) struct TimedPath {
    path: Path<Segment>,
    next: Time,
    /// Whether the path has changed since `next` was computed.
    changed: bool,
    /// Everything inside the path has been processed up to this time.
    ran_to: Time,
}

impl TimedPath {
    fn new(path: Path<Segment>) -> Self {
        TimedPath { next: path.next_event(), path, changed: false, ran_to: Time::ZERO }
    }

    /// Time of its next event.
    #[inline]
    pub fn next(&mut self) -> Time {
        if self.changed {
            self.changed = false;
            self.next = self.path.next_event();
        }
        self.next
    }

    /// The last time for which everything that the path delivers by then is in propagation already,
    /// or nothing; `delay` is the shortest propagation delay of its last link.
    pub fn known_until(&mut self, delay: Span) -> Time {
        let before_next = Time::from_nanos(self.next().as_nanos().saturating_sub(1));
        before_next.max(self.ran_to + delay)
    }
}

/// One direction of the path and its recorders.
pub(super) struct OneWay {
    pub path: TimedPath,
    queueing: Queueing,
    recorders: Vec<LinkRecorder>,
}

impl OneWay {
    /// The given direction of the scenario's path, with everything random drawn from `seed`.
    pub fn new(scenario: &Scenario, direction: Direction, seed: u64) -> Result<Self, SimError> {
        let links = scenario.path.links(direction);
        let context = scenario.path.context(direction, scenario.mtu, seed);
        let name = match direction {
            Direction::Forward => "forward",
            Direction::Reverse => "reverse",
        };
        let path = Path::new(links, &context).map_err(|error| SimError::Path { direction: name, error })?;
        let changed = scenario.triggers.iter().any(|t| t.then.direction == direction);
        let queueing = Queueing::new(links, &path, scenario.mtu, changed);
        let recorders = links.iter().map(|_| LinkRecorder::new()).collect();
        Ok(OneWay { path: TimedPath::new(path), queueing, recorders })
    }

    /// Processes everything due by `now` and passes each outcome to `sink` with the queueing model.
    #[inline]
    pub fn advance(&mut self, now: Time, sink: &mut impl FnMut(Time, Outcome<Segment>, &Queueing)) {
        self.queueing.observe(&self.path.path);
        let queueing = &self.queueing;
        self.path.path.advance(now, &mut |at, outcome| sink(at, outcome, queueing));
        self.path.changed = true;
        self.path.ran_to = self.path.ran_to.max(now);
    }

    /// The packets on their way to the far end and their arrival times, as far as those are final.
    pub fn propagating(&self) -> impl Iterator<Item = (Time, &Packet<Segment>)> {
        self.path.path.propagating()
    }

    /// The model of the queueing delay, unless it depends on when it is asked.
    pub fn constant_queueing(&self) -> Option<&Queueing> {
        Some(&self.queueing).filter(|queueing| matches!(queueing, Queueing::Transit { .. }))
    }

    /// Applies a change to a link.
    pub fn apply(&mut self, now: Time, change: &Change) {
        self.path.path.apply(now, change);
        self.path.changed = true;
    }

    /// The counters of each link.
    #[cfg(test)]
    pub fn stats(&self) -> impl Iterator<Item = &LinkStats> {
        self.path.path.stats()
    }

    /// Adds a row to each link's time series.
    pub fn sample(&mut self, now: Time) {
        for (recorder, stats) in self.recorders.iter_mut().zip(self.path.path.stats()) {
            recorder.sample(now, stats);
        }
    }

    /// The recorder and the counters of each link.
    pub fn into_recorders(self) -> impl Iterator<Item = (LinkRecorder, LinkStats)> {
        let stats: Vec<LinkStats> = self.path.path.stats().cloned().collect();
        self.recorders.into_iter().zip(stats)
    }
}
