//! A FIFO with a limit, as in most routers.

use std::collections::VecDeque;

use fullpipe_units::Time;
use serde::{Deserialize, Serialize};

use super::{Backlog, Discipline, QueueContext, QueueKind, Verdicts};
use crate::build::LinkError;
use crate::limit::{Capacity, Limit};
use crate::{DropCause, Packet};

/// First in, first out; drops arriving packets when full.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DropTailSpec {
    /// Largest queue. The packet in service does not count, so an idle link accepts any packet.
    pub limit: Limit,
}

impl Default for DropTailSpec {
    /// One bandwidth-delay product.
    fn default() -> Self {
        DropTailSpec { limit: Limit::Bdp(1.0) }
    }
}

impl QueueKind for DropTailSpec {
    const ABOUT: &'static str = "first in, first out; drops arriving packets when full";
    type Queue<T> = DropTail<T>;

    fn build<T>(&self, ctx: QueueContext) -> Result<DropTail<T>, LinkError> {
        Ok(DropTail { packets: VecDeque::new(), bytes: 0, capacity: ctx.capacity(self.limit) })
    }
}

/// The packet in service, followed by those that wait.
pub(crate) struct DropTail<T> {
    packets: VecDeque<Packet<T>>,
    bytes: u64,
    capacity: Capacity,
}

impl<T> DropTail<T> {
    /// Length of the packet in service.
    #[inline(always)]
    pub fn first(&self) -> Option<u32> {
        self.packets.front().map(|packet| packet.bytes)
    }

    #[inline(always)]
    pub fn waiting(&self) -> Backlog {
        let bytes = self.bytes - self.first().map_or(0, u64::from);
        Backlog { bytes, packets: self.packets.len().saturating_sub(1) }
    }

    #[inline(always)]
    pub fn push(&mut self, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        let is_sent = self.packets.is_empty();
        if is_sent || self.capacity.has_room(self.waiting(), packet.bytes) {
            self.bytes += u64::from(packet.bytes);
            self.packets.push_back(packet);
        } else {
            verdicts.drop(packet, DropCause::QueueFull);
        }
    }

    /// Removes the packet in service.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Packet<T>> {
        let packet = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.bytes);
        Some(packet)
    }
}

impl<T> Discipline<T> for DropTail<T> {
    fn enqueue(&mut self, _: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        self.push(packet, verdicts);
    }

    fn dequeue(&mut self, _: Time, _: &mut Verdicts<T>) -> Option<Packet<T>> {
        self.pop()
    }

    fn backlog(&self) -> Backlog {
        self.waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, queue_alone};

    fn run(limit: &str, sizes: &[u32]) -> Run {
        let mut run = queue_alone(&DropTailSpec { limit: limit.parse().unwrap() });
        for &bytes in sizes {
            run.enqueue(0, 0, bytes);
        }
        run
    }

    #[test]
    fn bytes_are_the_limit_and_the_last_one_in_is_dropped() {
        // The first is being sent.
        let run = run("3000 bytes", &[9000, 1500, 1000, 501, 500, 1]);
        assert_eq!(run.dropped(), [(3, DropCause::QueueFull), (5, DropCause::QueueFull)]);
        assert_eq!((run.bytes(), run.packets()), (3000, 3));
    }

    #[test]
    fn packets_are_the_limit_whatever_their_length() {
        let run = run("2p", &[1, 1, 65_535, 1]);
        assert_eq!(run.dropped(), [(3, DropCause::QueueFull)]);
    }

    #[test]
    fn an_idle_link_accepts_any_packet() {
        let mut run = run("0 bytes", &[1500, 1]);
        assert_eq!(run.dropped(), [(1, DropCause::QueueFull)]);
        assert_eq!((run.dequeue(0), run.dequeue(0)), (Some(0), None));
    }

    #[test]
    fn the_first_in_is_the_first_out() {
        let mut run = run("1m", &[1; 100]);
        assert_eq!((0..100).filter_map(|_| run.dequeue(0)).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
        assert_eq!((run.dequeue(0), run.bytes()), (None, 0));
    }
}
