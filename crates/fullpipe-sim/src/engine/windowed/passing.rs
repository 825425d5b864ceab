//! A window in one direction of the path.

use super::super::flows::Flows;
use super::super::one_way::{OneWay, Outlet};
use super::super::queueing::Queueing;
use super::pushes::{Merge, recycle};
use crate::segment::{Kind, NO_SACK, Segment};
use fullpipe_cc::{Span, Time};
use fullpipe_path::{Outcome, Packet};

/// What the path did to packets that concerns their flows, until it is passed on to them: the other
/// direction may be processed at the same time.
#[derive(Default)]
pub(super) struct Outcomes {
    dropped: Vec<Dropped>,
    /// Data packets that were delivered, by flow, and the queueing delay then.
    queued: Vec<(u32, Span)>,
}

/// What the flow of a dropped packet needs of it: when thousands of flows start, the path drops most
/// packets of a window.
enum Dropped {
    Data { flow: u32, sent_at: Time },
    Ack { flow: u32, sack: u32 },
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
            Outcome::Dropped(Packet { flow, data, .. }, _) => match data.kind {
                Kind::Data => self.dropped.push(Dropped::Data { flow, sent_at: data.stamp }),
                Kind::Ack if data.detail != NO_SACK => {
                    self.dropped.push(Dropped::Ack { flow, sack: data.detail });
                }
                // Flows with datagrams have no windows.
                _ => {}
            },
        }
    }

    /// Passes them on to `flows`.
    pub fn deliver(&mut self, flows: &mut Flows) {
        for dropped in &self.dropped {
            match *dropped {
                Dropped::Data { flow, sent_at } => {
                    flows.connections[flow as usize].recorder.on_dropped(sent_at);
                }
                Dropped::Ack { flow, sack } => {
                    flows.sacks.of_flow(flow as usize).remove(sack);
                }
            }
        }
        for &(flow, queued) in &self.queued {
            flows.connections[flow as usize].recorder.on_queued(queued);
        }
        recycle(&mut self.dropped);
        recycle(&mut self.queued);
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
