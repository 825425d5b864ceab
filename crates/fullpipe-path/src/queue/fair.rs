//! Deficit round robin with new and old flows (RFC 8290 §4.2), shared by the fair queues.
//!
//! A flow that starts to send precedes all that have been sending, for one quantum, so sparse flows
//! do not wait behind bulk flows. A flow whose queue runs empty passes through the list of old
//! flows once, so that it cannot become new again by pausing for a packet.

use std::collections::VecDeque;

use super::Backlog;
use super::fifo::Fifo;
use crate::Packet;

/// A flow's queue.
pub(super) trait Waiting {
    fn backlog(&self) -> Backlog;
}

impl<T, C> Waiting for (Fifo<T>, C) {
    fn backlog(&self) -> Backlog {
        self.0.backlog()
    }
}

/// The flows, their order, and their total backlog.
pub(super) struct Fair<Q> {
    flows: Vec<Flow<Q>>,
    backlog: Backlog,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    quantum: i64,
}

struct Flow<Q> {
    queue: Q,
    /// Bytes that it may still send in this turn.
    credit: i64,
    listed: bool,
}

/// Smallest quantum, as in Linux. It bounds the number of turns that one packet needs.
pub(super) const MIN_QUANTUM: u32 = 256;

impl<Q> Fair<Q> {
    pub fn new(quantum: u32) -> Self {
        let quantum = i64::from(quantum.max(MIN_QUANTUM));
        Fair {
            flows: Vec::new(),
            backlog: Backlog::default(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum,
        }
    }

    /// Adds a flow with `credit`; returns its index.
    pub fn add(&mut self, queue: Q, credit: u32) -> usize {
        self.flows.push(Flow { queue, credit: i64::from(credit), listed: false });
        self.flows.len() - 1
    }

    pub fn queue(&self, flow: usize) -> &Q {
        &self.flows[flow].queue
    }

    pub fn queues(&self) -> impl Iterator<Item = &Q> {
        self.flows.iter().map(|flow| &flow.queue)
    }

    pub fn quantum(&self) -> i64 {
        self.quantum
    }

    pub fn credit(&mut self, flow: usize) -> &mut i64 {
        &mut self.flows[flow].credit
    }

    /// A packet arrived for `flow`; returns whether the flow was added to the new flows.
    pub fn activate(&mut self, flow: usize) -> bool {
        if self.flows[flow].listed {
            return false;
        }
        self.flows[flow].listed = true;
        self.new.push_back(flow as u32);
        true
    }

    /// The flow whose turn it is.
    fn turn(&mut self) -> Option<usize> {
        loop {
            let list = if self.new.is_empty() { &mut self.old } else { &mut self.new };
            let first = *list.front()?;
            let flow = &mut self.flows[first as usize];
            if flow.credit > 0 {
                return Some(first as usize);
            }
            flow.credit += self.quantum;
            list.pop_front();
            self.old.push_back(first);
        }
    }

    /// The flow whose turn it is has sent `bytes`.
    fn sent(&mut self, flow: usize, bytes: u32) {
        self.flows[flow].credit -= i64::from(bytes);
    }

    /// The flow whose turn it is has nothing to send; returns whether it was removed from the
    /// lists.
    fn empty(&mut self) -> bool {
        if let Some(flow) = self.new.pop_front() {
            if !self.old.is_empty() {
                self.old.push_back(flow);
                return false;
            }
            self.flows[flow as usize].listed = false;
        } else if let Some(flow) = self.old.pop_front() {
            self.flows[flow as usize].listed = false;
        }
        true
    }
}

impl<Q: Waiting> Fair<Q> {
    /// Total backlog of all flows.
    pub fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Modifies a flow's queue, and updates the total backlog.
    pub fn change<R>(&mut self, flow: usize, change: impl FnOnce(&mut Q) -> R) -> R {
        let queue = &mut self.flows[flow].queue;
        let before = queue.backlog();
        let result = change(queue);
        self.backlog.replace(before, queue.backlog());
        result
    }

    /// Removes the next packet. `take` dequeues from the flow whose turn it is; `silent` is called
    /// for each flow that had none and was removed from the lists.
    pub fn dequeue<T>(
        &mut self,
        mut take: impl FnMut(&mut Q) -> Option<Packet<T>>,
        mut silent: impl FnMut(&mut Q),
    ) -> Option<Packet<T>> {
        loop {
            let flow = self.turn()?;
            if let Some(packet) = self.change(flow, &mut take) {
                self.sent(flow, packet.bytes);
                return Some(packet);
            }
            if self.empty() {
                silent(&mut self.flows[flow].queue);
            }
        }
    }
}

/// Spreads flow numbers, which may be small and dense, over `slots`, differently for each `seed`.
pub(super) fn slot(flow: u32, seed: u64, slots: usize) -> usize {
    let z = (u64::from(flow) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (((z >> 32) * slots as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_share_by_bytes_and_not_by_packets() {
        let mut fair = Fair::new(1500);
        let sizes = [1500, 300, 64];
        for _ in sizes {
            let flow = fair.add((), 1500);
            fair.activate(flow);
        }
        let mut sent = [0u64; 3];
        for _ in 0..60_000 {
            let flow = fair.turn().unwrap();
            fair.sent(flow, sizes[flow]);
            sent[flow] += u64::from(sizes[flow]);
        }
        let (low, high) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        assert!(high - low <= 3000, "{sent:?}");
    }

    #[test]
    fn a_new_flow_goes_first_for_one_quantum() {
        let mut fair = Fair::new(1500);
        let bulk = fair.add((), 1500);
        fair.activate(bulk);
        assert_eq!(fair.turn(), Some(bulk));
        fair.sent(bulk, 1500);
        assert_eq!(fair.turn(), Some(bulk), "now among the old");
        fair.sent(bulk, 1000);
        let sparse = fair.add((), 1500);
        assert!(fair.activate(sparse));
        assert!(!fair.activate(sparse));
        assert_eq!(fair.turn(), Some(sparse));
        fair.sent(sparse, 1500);
        assert_eq!(fair.turn(), Some(bulk));
    }

    #[test]
    fn a_flow_that_ran_empty_joins_the_old_flows() {
        let mut fair = Fair::new(1500);
        let (bulk, sparse) = (fair.add((), 1500), fair.add((), 1500));
        fair.activate(bulk);
        assert_eq!(fair.turn(), Some(bulk));
        fair.sent(bulk, 1500);
        fair.activate(sparse);
        assert_eq!(fair.turn(), Some(sparse));
        // It sends 100 bytes, then has nothing. The bulk flow is still on the list of new ones.
        fair.sent(sparse, 100);
        assert_eq!(fair.turn(), Some(sparse));
        assert!(!fair.activate(sparse));
        assert!(!fair.empty(), "still listed, behind the old flows");
        assert_eq!(fair.turn(), Some(bulk));
    }

    #[test]
    fn numbers_spread_over_the_slots() {
        let mut used = [0; 64];
        for flow in 0..6400 {
            used[slot(flow, 7, 64)] += 1;
        }
        assert!(used.iter().all(|&n| (50..200).contains(&n)), "{used:?}");
        assert!((0..100).any(|flow| slot(flow, 1, 64) != slot(flow, 2, 64)));
        assert_eq!(slot(u32::MAX, u64::MAX, 1), 0);
    }
}
