//! A connection's access link, between its sender and the path.

use super::one_way::Outlet;
use crate::recorder::LinkRecorder;
use crate::segment::Segment;
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::recording::LinkRecording;
use fullpipe_experiment::scenario::AccessSpec;
use fullpipe_path::{Outcome, Packet, Path};
use std::fmt;

/// The access link and its recorder.
pub(crate) struct Access {
    spec: AccessSpec,
    link: Path<Segment>,
    recorder: LinkRecorder,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Access {
    /// The link that was built from `spec`.
    pub fn new(spec: AccessSpec, link: Path<Segment>) -> Self {
        Access { spec, link, recorder: LinkRecorder::new() }
    }

    /// Queues a packet of the sender.
    pub fn push(&mut self, now: Time, packet: Packet<Segment>) {
        self.link.push(now, packet);
    }

    /// Time of its next event.
    pub fn next(&self) -> Time {
        self.link.next_event()
    }

    /// Passes packets that leave it by `now` on to `path`; calls `dropped` for those that it drops.
    pub fn pass_on(&mut self, now: Time, path: &mut impl Outlet, dropped: &mut impl FnMut(&Packet<Segment>)) {
        self.link.advance(now, &mut |_, outcome| match outcome {
            Outcome::Delivered(packet) => path.push(now, packet),
            Outcome::Dropped(packet, _) => dropped(&packet),
        });
    }

    /// How long a packet of `bytes` takes on an empty link.
    pub fn alone(&self, bytes: u32) -> Span {
        self.spec.unloaded_delay(bytes)
    }

    /// Its counters.
    #[cfg(test)]
    pub fn stats(&self) -> impl Iterator<Item = &fullpipe_path::LinkStats> {
        self.link.stats()
    }

    /// Adds a row to its time series.
    pub fn sample(&mut self, now: Time) {
        for stats in self.link.stats() {
            self.recorder.sample(now, stats);
        }
    }

    /// Its recording, as that of the flow `label`.
    pub fn finish(self, label: &str) -> Option<LinkRecording> {
        let stats = self.link.stats().next()?;
        Some(self.recorder.finish(format!("access of {label}"), stats))
    }
}
