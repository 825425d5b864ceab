//! Fair queueing after Linux `sch_fq`: one queue per flow, without hash collisions, and deficit
//! round robin by bytes. Pacing is up to the sender here.

use std::collections::HashMap;

use fullpipe_units::{Span, Time};
use serde::{Deserialize, Serialize};

use super::fair::{Fair, MIN_QUANTUM, Waiting};
use super::fifo::Fifo;
use super::fq_codel::check;
use super::{Backlog, Discipline, QueueContext, QueueKind, Verdicts};
use crate::build::LinkError;
use crate::limit::{Capacity, Limit};
use crate::{DropCause, Packet};

/// Fair queueing, one queue for each flow.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FqSpec {
    /// Largest backlog of all flows together.
    pub limit: Limit,
    /// Largest backlog of one flow.
    pub flow_limit: Limit,
    /// Bytes per turn of a flow (default: two MTUs; at least 256).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantum: Option<u32>,
    /// Bytes of a flow's first turn (default: ten MTUs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_quantum: Option<u32>,
}

impl Default for FqSpec {
    /// As in Linux: 10 000 packets, 100 per flow.
    fn default() -> Self {
        FqSpec {
            limit: Limit::Packets(10_000),
            flow_limit: Limit::Packets(100),
            quantum: None,
            initial_quantum: None,
        }
    }
}

impl QueueKind for FqSpec {
    const ABOUT: &'static str = "fair queueing (Linux fq): per-flow queues, served round-robin by bytes";
    type Queue<T> = Fq<T>;

    fn build<T>(&self, ctx: QueueContext) -> Result<Fq<T>, LinkError> {
        check(1, self.quantum)?;
        if let Some(quantum) = self.initial_quantum
            && quantum < MIN_QUANTUM
        {
            return Err(LinkError::new(
                "initial_quantum",
                format!("{quantum} bytes are too few: write at least {MIN_QUANTUM}"),
            ));
        }
        Ok(Fq {
            fair: Fair::new(self.quantum.unwrap_or(ctx.mtu.saturating_mul(2))),
            index: HashMap::new(),
            initial: self.initial_quantum.unwrap_or(ctx.mtu.saturating_mul(10)),
            capacity: ctx.capacity(self.limit),
            flow_capacity: ctx.capacity(self.flow_limit),
        })
    }
}

/// How long a flow must be idle before it gets a new quantum (Linux `flow_refill_delay`).
const REFILL_DELAY: Span = Span::from_millis(40);

/// A flow's packets, and since when it has had none.
struct Own<T> {
    fifo: Fifo<T>,
    silent_since: Time,
}

impl<T> Waiting for Own<T> {
    fn backlog(&self) -> Backlog {
        self.fifo.backlog()
    }
}

/// The flows.
pub(crate) struct Fq<T> {
    fair: Fair<Own<T>>,
    index: HashMap<u32, usize>,
    initial: u32,
    capacity: Capacity,
    flow_capacity: Capacity,
}

impl<T> Discipline<T> for Fq<T> {
    fn enqueue(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        if !self.capacity.has_room_or_empty(self.fair.backlog(), packet.bytes) {
            verdicts.drop(packet, DropCause::QueueFull);
            return;
        }
        let flow = *self
            .index
            .entry(packet.flow)
            .or_insert_with(|| self.fair.add(Own { fifo: Fifo::default(), silent_since: at }, self.initial));
        let own = self.fair.queue(flow);
        if !self.flow_capacity.has_room_or_empty(own.fifo.backlog(), packet.bytes) {
            verdicts.drop(packet, DropCause::QueueFull);
            return;
        }
        let rested = at.since(own.silent_since) > REFILL_DELAY;
        self.fair.change(flow, |own| own.fifo.push(at, packet));
        if self.fair.activate(flow) && rested {
            let quantum = self.fair.quantum();
            let credit = self.fair.credit(flow);
            *credit = (*credit).max(quantum);
        }
    }

    fn dequeue(&mut self, at: Time, _: &mut Verdicts<T>) -> Option<Packet<T>> {
        self.fair.dequeue(|own| own.fifo.pop().map(|(_, packet)| packet), |own| own.silent_since = at)
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
        queue_alone(&toml::from_str::<FqSpec>(text).unwrap())
    }

    /// Flows of the next `n` packets that leave.
    fn leave(run: &mut Run, n: usize) -> Vec<u32> {
        (0..n).filter_map(|_| run.dequeue_packet(0)).map(|p| p.flow).collect()
    }

    #[test]
    fn a_flow_starts_with_ten_packets_and_continues_with_two_per_turn() {
        let mut run = fq("");
        for _ in 0..50 {
            run.enqueue(0, 7, 1500);
        }
        for _ in 0..50 {
            run.enqueue(0, 9, 1500);
        }
        let mut expected = [vec![7; 10], vec![9; 10]].concat();
        for _ in 0..5 {
            expected.extend([7, 7, 9, 9]);
        }
        assert_eq!(leave(&mut run, 40), expected);
    }

    #[test]
    fn a_thousand_flows_never_share_a_queue() {
        let mut run = fq("initial_quantum = 1500\nquantum = 1500");
        for _ in 0..2 {
            for flow in 0..1000u32 {
                run.enqueue(0, flow.wrapping_mul(0x0101_0101), 1500);
            }
        }
        let first: Vec<u32> = leave(&mut run, 1000);
        assert_eq!(first, leave(&mut run, 1000), "each once, then each again");
    }

    #[test]
    fn one_flow_cannot_fill_the_buffer() {
        let mut run = fq("");
        for _ in 0..200 {
            run.enqueue(0, 1, 1500);
        }
        assert_eq!(run.dropped().len(), 100);
        run.enqueue(0, 2, 1500);
        assert_eq!(run.dropped().len(), 100);
        let mut run = fq("limit = '10p'");
        for flow in 0..20 {
            run.enqueue(0, flow, 1500);
        }
        assert_eq!(run.dropped(), (10..20).map(|n| (n, DropCause::QueueFull)).collect::<Vec<_>>());
    }

    #[test]
    fn a_flow_that_was_idle_gets_a_new_quantum() {
        for (pause, fresh) in [(39_000, false), (41_000, true)] {
            let mut run = fq("");
            // It leaves 100 bytes of its first ten packets of credit.
            for i in 0..10 {
                run.enqueue(0, 1, if i == 0 { 1400 } else { 1500 });
            }
            assert_eq!(leave(&mut run, 11).len(), 10);
            for _ in 0..50 {
                run.enqueue(pause, 2, 1500);
            }
            run.dequeue(pause);
            run.enqueue(pause, 1, 1500);
            run.enqueue(pause, 1, 1500);
            // Flow 2 is new and has ten packets of credit, then flow 1: one packet on the 100
            // bytes, or two on a quantum.
            let order: Vec<u32> = (0..12).filter_map(|_| run.dequeue_packet(pause)).map(|p| p.flow).collect();
            assert_eq!(order[8..10], [2, 1]);
            assert_eq!(order[10] == 1, fresh, "{pause}: {order:?}");
        }
    }
}
