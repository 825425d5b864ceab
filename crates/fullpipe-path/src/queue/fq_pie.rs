//! FQ-PIE after Linux `sch_fq_pie`: flows hashed into queues that take turns by bytes, PIE in
//! each.

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use super::fair::{Fair, slot};
use super::fifo::Fifo;
use super::fq_codel::check;
use super::pie::{Control, Law, PieSpec};
use super::{Backlog, Discipline, QueueContext, QueueKind, Verdicts};
use crate::Packet;
use crate::build::LinkError;
use crate::limit::{Capacity, Limit};
use crate::random::Stream;

/// Fair queueing with PIE in each queue.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FqPieSpec {
    /// Largest backlog of all queues together.
    pub limit: Limit,
    /// Number of queues that flows are hashed into, 1 to 65536.
    pub flows: u32,
    /// Bytes per turn of a queue (default: one MTU; at least 256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<u32>,
    /// Target delay.
    pub target: Span,
    /// How often the probability is adjusted, at least 100 µs.
    pub tupdate: Span,
    /// Weight of the deviation from the target, per second.
    pub alpha: f64,
    /// Weight of the change of the delay, per second.
    pub beta: f64,
    /// Mark ECN-capable packets instead of dropping them, while the probability is below 10 %.
    pub ecn: bool,
    /// Drop small packets less often, in proportion to their length.
    pub bytemode: bool,
}

impl Default for FqPieSpec {
    /// As in Linux.
    fn default() -> Self {
        let PieSpec { target, tupdate, alpha, beta, ecn, bytemode, .. } = PieSpec::default();
        FqPieSpec {
            limit: Limit::Packets(10_240),
            flows: 1024,
            quantum: None,
            target,
            tupdate,
            alpha,
            beta,
            ecn,
            bytemode,
        }
    }
}

impl QueueKind for FqPieSpec {
    const ABOUT: &'static str = "FQ-PIE (Linux fq_pie): per-flow queues served round-robin, PIE on each";
    type Queue<T> = FqPie<T>;

    fn build<T>(&self, mut ctx: QueueContext) -> Result<FqPie<T>, LinkError> {
        let FqPieSpec { limit, flows, quantum, target, tupdate, alpha, beta, ecn, bytemode } = *self;
        check(flows, quantum)?;
        let law = PieSpec { limit, target, tupdate, alpha, beta, ecn, bytemode }.law(ctx.mtu)?;
        let mut fair = Fair::new(quantum.unwrap_or(ctx.mtu));
        for _ in 0..flows {
            fair.add((Fifo::default(), Control::new(&law)), 0);
        }
        Ok(FqPie {
            fair,
            slots: flows as usize,
            seed: ctx.random.bits(),
            capacity: ctx.capacity(limit),
            law,
            random: ctx.random,
        })
    }
}

/// The queues.
pub(crate) struct FqPie<T> {
    fair: Fair<(Fifo<T>, Control)>,
    slots: usize,
    seed: u64,
    capacity: Capacity,
    law: Law,
    random: Stream,
}

impl<T> Discipline<T> for FqPie<T> {
    fn enqueue(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        let flow = slot(packet.flow, self.seed, self.slots);
        let before = self.fair.backlog();
        let has_room = self.capacity.has_room_or_empty(before, packet.bytes);
        self.fair.change(flow, |(fifo, control)| {
            control.enqueue(at, &self.law, &mut self.random, has_room, fifo, packet, verdicts);
        });
        if self.fair.backlog() != before && self.fair.activate(flow) {
            *self.fair.credit(flow) = self.fair.quantum();
        }
    }

    fn dequeue(&mut self, at: Time, _: &mut Verdicts<T>) -> Option<Packet<T>> {
        self.fair.dequeue(|(fifo, control)| control.dequeue(at, &self.law, fifo), |_| ())
    }

    fn backlog(&self) -> Backlog {
        self.fair.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DropCause;
    use crate::testing::queue_alone;

    #[test]
    fn flows_take_turns_and_the_aggressive_one_is_dropped() {
        let mut run = queue_alone(&FqPieSpec::default());
        let mut bytes = [0u64; 3];
        // One packet leaves in a millisecond; flow 1 sends four, flow 2 two in five milliseconds.
        for now in 0..20_000u64 {
            for i in 0..4 {
                run.enqueue(now * 1000 + i, 1, 1500);
            }
            if now % 5 < 2 {
                run.enqueue(now * 1000, 2, 1500);
            }
            if let Some(packet) = run.dequeue_packet(now * 1000 + 900) {
                bytes[packet.flow as usize] += u64::from(packet.bytes);
            }
        }
        let share = bytes[2] as f64 / (bytes[1] + bytes[2]) as f64;
        assert!((share - 0.4).abs() < 0.01, "flow 2 gets all it asks for: {share}");
        assert_eq!(run.dropped_of_flow(2), 0);
        assert!(run.dropped_of_flow(1) > 10_000);
    }

    #[test]
    fn a_full_buffer_drops_arriving_packets() {
        let mut run = queue_alone(&FqPieSpec { limit: Limit::Packets(3), ..FqPieSpec::default() });
        for flow in 0..5 {
            run.enqueue(0, flow, 1500);
        }
        assert_eq!(run.dropped(), [(3, DropCause::QueueFull), (4, DropCause::QueueFull)]);
        assert_eq!((run.packets(), run.bytes()), (3, 4500));
    }
}
