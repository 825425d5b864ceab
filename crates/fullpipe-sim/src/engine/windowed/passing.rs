//! A window in one direction of the path.

use super::super::flows::Flows;
use super::super::one_way::{OneWay, Outlet};
use super::super::queueing::Queueing;
use super::pushes::Merge;
use crate::segment::{Kind, Segment};
use fullpipe_cc::{Span, Time};
use fullpipe_path::{Outcome, Packet};

/// What the path did to packets that concerns their flows, until it is passed on to them: the other
/// direction may be processed at the same time.
#[derive(Default)]
pub(super) struct Outcomes {
    dropped: Vec<Packet<Segment>>,
    /// Data packets that were delivered, by flow, and the queueing delay then.
    queued: Vec<(u32, Span)>,
}

impl Outcomes {
    #[inline]
    fn add(&mut self, outcome: Outcome<Segment>, queueing: &Queueing) {
        match outcome {
            Outcome::Delivered(packet) => {
                if let (Queueing::Observed(queued), Kind::Data) = (queueing, packet.data.kind) {
                    self.queued.push((packet.flow, *queued));
                }
            }
            Outcome::Dropped(packet, _) => self.dropped.push(packet),
        }
    }

    /// Passes them on to `flows`.
    pub fn deliver(&mut self, flows: &mut Flows) {
        for packet in self.dropped.drain(..) {
            flows.on_dropped(&packet);
        }
        for (flow, queued) in self.queued.drain(..) {
            flows.connections[flow as usize].recorder.on_queued(queued);
        }
    }
}

/// What enters one direction of the path in a window, and what the path does to it.
pub(super) struct Passing<'a> {
    pub pushes: Merge<'a>,
    pub outcomes: &'a mut Outcomes,
    /// In one step of the sequential engine the forward direction delivers first, then the reverse
    /// one, which the answers to those deliveries have already entered.
    pub answers_first: bool,
}

impl Passing<'_> {
    /// Makes the sequential engine's calls to `way` until `until`, at `steps` times at most.
    pub fn pass_on(&mut self, way: &mut OneWay, until: Time, steps: usize) {
        for _ in 0..steps {
            let now = self.pushes.at().min(way.path.next());
            if now > until {
                break;
            }
            if self.answers_first {
                self.enter(way, now, false);
            }
            if way.path.next() <= now {
                way.advance(now, &mut |_, outcome, queueing| self.outcomes.add(outcome, queueing));
            }
            self.enter(way, now, true);
        }
    }

    /// Lets what is sent until `now` enter the path: all of it, or only answers.
    #[inline]
    fn enter(&mut self, way: &mut OneWay, now: Time, timers: bool) {
        while self.pushes.at() <= now
            && (timers || !self.pushes.is_timer())
            && let (at, Some(packet)) = (self.pushes.at(), self.pushes.pop())
        {
            way.path.push(at, packet);
        }
    }
}
