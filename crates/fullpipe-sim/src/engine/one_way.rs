//! One direction of the path, with what is recorded of it.

use super::queueing::Queueing;
use crate::error::SimError;
use crate::recorder::LinkRecorder;
use crate::segment::Segment;
use fullpipe_cc::Time;
use fullpipe_experiment::scenario::{Direction, Scenario};
use fullpipe_path::{Change, LinkStats, Outcome, Packet, Path};

/// A path that remembers when something happens on it next: asking costs more than all else when
/// only the other direction has changed.
pub(crate) struct TimedPath {
    path: Path<Segment>,
    next: Time,
    /// Something has changed since `next` was asked for.
    changed: bool,
}

impl TimedPath {
    fn new(path: Path<Segment>) -> Self {
        TimedPath { next: path.next_event(), path, changed: false }
    }

    /// A packet enters.
    #[inline]
    pub fn push(&mut self, now: Time, packet: Packet<Segment>) {
        self.changed = true;
        self.path.push(now, packet);
    }

    /// When something happens on it next.
    #[inline]
    pub fn next(&mut self) -> Time {
        if self.changed {
            self.changed = false;
            self.next = self.path.next_event();
        }
        self.next
    }
}

/// One direction of the path with what is recorded of it.
pub(super) struct OneWay {
    pub path: TimedPath,
    queueing: Queueing,
    recorders: Vec<LinkRecorder>,
}

impl OneWay {
    /// The direction `direction` of the scenario's path, its chances drawn from `seed`.
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

    /// Does everything that is due by `now` and reports it, each with what is known of waiting times.
    #[inline]
    pub fn advance(&mut self, now: Time, sink: &mut impl FnMut(Time, Outcome<Segment>, &Queueing)) {
        self.queueing.observe(&self.path.path);
        let queueing = &self.queueing;
        self.path.path.advance(now, &mut |at, outcome| sink(at, outcome, queueing));
        self.path.changed = true;
    }

    /// Applies a change to a link.
    pub fn apply(&mut self, now: Time, change: &Change) {
        self.path.path.apply(now, change);
        self.path.changed = true;
    }

    /// What each link counted.
    #[cfg(test)]
    pub fn stats(&self) -> impl Iterator<Item = &LinkStats> {
        self.path.path.stats()
    }

    /// Adds a row to each link's series.
    pub fn sample(&mut self, now: Time) {
        for (recorder, stats) in self.recorders.iter_mut().zip(self.path.path.stats()) {
            recorder.sample(now, stats);
        }
    }

    /// What each link leaves behind: its recorder and what it counted.
    pub fn into_recorders(self) -> impl Iterator<Item = (LinkRecorder, LinkStats)> {
        let stats: Vec<LinkStats> = self.path.path.stats().cloned().collect();
        self.recorders.into_iter().zip(stats)
    }
}
