//! FQ-CoDel (RFC 8290): flows hashed into queues that take turns by bytes, CoDel in each.

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use super::codel::{Control, Law};
use super::fair::{Fair, MIN_QUANTUM, slot};
use super::fifo::Fifo;
use super::{Backlog, Discipline, QueueContext, QueueKind, Verdicts};
use crate::build::LinkError;
use crate::limit::{Capacity, Limit};
use crate::{DropCause, Packet};

/// Fair queueing with CoDel in each queue, RFC 8290.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FqCodelSpec {
    /// Largest backlog of all queues together.
    pub limit: Limit,
    /// Number of queues that flows are hashed into, 1 to 65536.
    pub flows: u32,
    /// Bytes per turn of a queue (default: one MTU; at least 256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<u32>,
    /// Acceptable standing delay.
    pub target: Span,
    /// How long the delay may exceed the target before the first drop.
    pub interval: Span,
    /// Mark ECN-capable packets instead of dropping them.
    pub ecn: bool,
    /// Mark every ECN-capable packet that has waited longer than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ce_threshold: Option<Span>,
}

impl Default for FqCodelSpec {
    /// As in RFC 8290 §5.2 and Linux `sch_fq_codel`.
    fn default() -> Self {
        FqCodelSpec {
            limit: Limit::Packets(10_240),
            flows: 1024,
            quantum: None,
            target: Span::from_millis(5),
            interval: Span::from_millis(100),
            ecn: true,
            ce_threshold: None,
        }
    }
}

/// Checks the parameters that the hashed fair queues share.
pub(super) fn check(flows: u32, quantum: Option<u32>) -> Result<(), LinkError> {
    if !(1..=65_536).contains(&flows) {
        return Err(LinkError::new("flows", format!("{flows} queues are not possible: write 1 to 65536")));
    }
    match quantum {
        Some(quantum) if quantum < MIN_QUANTUM => Err(LinkError::new(
            "quantum",
            format!("{quantum} bytes are too few: write at least {MIN_QUANTUM}"),
        )),
        _ => Ok(()),
    }
}

impl QueueKind for FqCodelSpec {
    const ABOUT: &'static str = "FQ-CoDel (RFC 8290): per-flow queues served round-robin, CoDel on each";
    type Queue<T> = FqCodel<T>;

    fn build<T>(&self, mut ctx: QueueContext) -> Result<FqCodel<T>, LinkError> {
        let FqCodelSpec { limit, flows, quantum, target, interval, ecn, ce_threshold } = *self;
        check(flows, quantum)?;
        let mut fair = Fair::new(quantum.unwrap_or(ctx.mtu));
        for _ in 0..flows {
            fair.add((Fifo::default(), Control::default()), 0);
        }
        Ok(FqCodel {
            fair,
            slots: flows as usize,
            seed: ctx.random.bits(),
            capacity: ctx.capacity(limit),
            law: Law { target, interval, ecn, ce_threshold, mtu: ctx.mtu },
        })
    }
}

/// Packets that are dropped at a time from the largest queue when the limit is reached, so that it
/// is searched rarely (Linux `drop_batch_size`).
const DROP_BATCH: u32 = 64;

/// The queues.
pub(crate) struct FqCodel<T> {
    fair: Fair<(Fifo<T>, Control)>,
    slots: usize,
    seed: u64,
    capacity: Capacity,
    law: Law,
}

impl<T> FqCodel<T> {
    /// Drops half of the largest queue from its head, at most a batch.
    fn drop_from_largest(&mut self, verdicts: &mut Verdicts<T>) {
        let sizes = self.fair.queues().map(|(fifo, _)| fifo.bytes());
        let Some((largest, size)) = sizes.enumerate().max_by_key(|&(i, size)| (size, std::cmp::Reverse(i)))
        else {
            return;
        };
        self.fair.change(largest, |(fifo, control)| {
            let (mut dropped, mut bytes) = (0, 0);
            while let Some((_, packet)) = fifo.pop() {
                bytes += u64::from(packet.bytes);
                dropped += 1;
                verdicts.drop(packet, DropCause::QueueFull);
                if dropped >= DROP_BATCH || bytes >= size / 2 {
                    break;
                }
            }
            control.also_dropped(dropped);
        });
    }
}

impl<T> Discipline<T> for FqCodel<T> {
    fn enqueue(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        let flow = slot(packet.flow, self.seed, self.slots);
        self.fair.change(flow, |(fifo, _)| fifo.push(at, packet));
        if self.fair.activate(flow) {
            *self.fair.credit(flow) = self.fair.quantum();
        }
        // The packet itself may go, if its queue is the largest; a single one always stays.
        while self.fair.backlog().packets > 1 && !self.capacity.holds(self.fair.backlog()) {
            self.drop_from_largest(verdicts);
        }
    }

    fn dequeue(&mut self, at: Time, verdicts: &mut Verdicts<T>) -> Option<Packet<T>> {
        self.fair.dequeue(|(fifo, control)| control.dequeue(at, &self.law, fifo, verdicts), |_| ())
    }

    fn backlog(&self) -> Backlog {
        self.fair.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Run, queue_alone};

    fn fq(text: &str) -> Run {
        queue_alone(&toml::from_str::<FqCodelSpec>(text).unwrap())
    }

    #[test]
    fn flows_take_turns_by_bytes() {
        let mut run = fq("");
        for _ in 0..100 {
            run.enqueue(0, 1, 1500);
        }
        for _ in 0..300 {
            run.enqueue(0, 2, 500);
        }
        let mut bytes = [0; 3];
        for _ in 0..200 {
            let packet = run.dequeue_packet(0).unwrap();
            bytes[packet.flow as usize] += packet.bytes;
        }
        assert!(bytes[1].abs_diff(bytes[2]) <= 1500, "{bytes:?}");
    }

    #[test]
    fn a_sparse_flow_precedes_a_standing_queue() {
        let mut run = fq("");
        for _ in 0..100 {
            run.enqueue(0, 1, 1500);
        }
        run.dequeue(0);
        run.dequeue(0);
        let sparse = run.enqueue(1, 2, 100);
        assert_eq!(run.dequeue(1), Some(sparse));
    }

    #[test]
    fn a_full_buffer_is_freed_at_the_head_of_the_largest_queue() {
        let mut run = fq("limit = '100p'");
        for _ in 0..95 {
            run.enqueue(0, 1, 1500);
        }
        for _ in 0..6 {
            run.enqueue(0, 2, 1500);
        }
        // Half of 95 packets: 48 reach half the bytes.
        let dropped = run.dropped();
        assert_eq!(dropped.len(), 48);
        assert!(
            dropped.iter().enumerate().all(|(i, &(n, cause))| n == i as u32 && cause == DropCause::QueueFull)
        );
        assert_eq!((run.packets(), run.bytes()), (53, 53 * 1500));
    }

    #[test]
    fn codel_drops_only_in_the_standing_queue() {
        let mut run = fq("ecn = false");
        let mut sparse_dropped = 0;
        // 1 packet per millisecond leaves; flow 1 sends 1.5, flow 2 one in 20 ms.
        for now in 0..3000u64 {
            run.enqueue(now * 1000, 1, 1500);
            if now % 2 == 0 {
                run.enqueue(now * 1000 + 500, 1, 1500);
            }
            if now % 20 == 0 {
                run.enqueue(now * 1000, 2, 100);
            }
            run.dequeue(now * 1000);
            sparse_dropped = run.dropped_of_flow(2);
        }
        assert!(run.dropped_of_flow(1) > 20);
        assert_eq!(sparse_dropped, 0);
        assert!(run.dropped().iter().all(|&(_, cause)| cause == DropCause::Aqm));
    }

    #[test]
    fn one_packet_larger_than_the_limit_passes() {
        let mut run = fq("limit = '1 bytes'");
        run.enqueue(0, 1, 1500);
        assert_eq!((run.dropped().len(), run.dequeue(0)), (0, Some(0)));
        assert_eq!(run.dequeue(0), None);
    }

    #[test]
    fn impossible_numbers_are_refused() {
        assert_eq!(check(0, None).unwrap_err().key, "flows");
        assert_eq!(check(65_537, None).unwrap_err().key, "flows");
        assert_eq!(check(1, Some(255)).unwrap_err().key, "quantum");
        assert!(check(65_536, Some(256)).is_ok());
    }
}
