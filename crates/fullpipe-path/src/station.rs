//! A queue and the server behind it.

use fullpipe_units::{Rate, Time};

use crate::Packet;
use crate::queue::{Backlog, Queue, Verdicts};
use crate::rate::Server;

/// A queue with a server: one packet is in service while the others wait.
pub(crate) struct Station<T> {
    queue: Queue<T>,
    server: Server,
    /// Whether a packet waits or is in service.
    busy: bool,
    /// When the packet in service leaves. If packets wait and none is in service (a trace between
    /// two opportunities), when the next one is chosen. [`Time::NEVER`] if nothing waits.
    due: Time,
    /// The packet in service, if the queue chooses packets. Drop-tail, which nearly all links have,
    /// keeps it at its head until it leaves, which saves a move.
    chosen: Option<Packet<T>>,
}

impl<T> Station<T> {
    pub fn new(queue: Queue<T>, server: Server) -> Self {
        Station { queue, server, busy: false, due: Time::NEVER, chosen: None }
    }

    /// When [`Station::step`] is due.
    #[inline]
    pub fn next(&self) -> Time {
        self.due
    }

    /// Whether no packet waits or is in service.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.busy
    }

    /// Whether the server's rate can be changed.
    pub fn has_rate(&self) -> bool {
        matches!(self.server, Server::Constant(_))
    }

    /// Bytes that wait or are in service.
    pub fn backlog(&self) -> u64 {
        self.queue.backlog().bytes + self.in_service().map_or(0, u64::from)
    }

    /// The packets that wait.
    #[inline(always)]
    pub fn waiting(&self) -> Backlog {
        if let Queue::DropTail(queue) = &self.queue {
            return queue.waiting();
        }
        self.queue.backlog()
    }

    /// Adds a packet; everything before `at` has been processed.
    #[inline(always)]
    pub fn push(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        if let Queue::DropTail(queue) = &mut self.queue {
            if !self.busy {
                self.busy = true;
                self.due = self.server.serve(at, packet.bytes);
            }
            queue.push(packet, verdicts);
            return;
        }
        self.queue.enqueue(at, packet, verdicts);
        if !self.busy {
            self.start(at, verdicts);
        }
    }

    /// Processes the event at [`Station::next`]; returns the packet that leaves.
    #[inline(always)]
    pub fn step(&mut self, verdicts: &mut Verdicts<T>) -> Option<Packet<T>> {
        let now = self.due;
        if let Queue::DropTail(queue) = &mut self.queue {
            let left = queue.pop();
            match queue.first() {
                Some(bytes) => self.due = self.server.serve(now, bytes),
                None => (self.busy, self.due) = (false, Time::NEVER),
            }
            return left;
        }
        self.choose_next(now, verdicts)
    }

    #[inline(never)]
    fn choose_next(&mut self, now: Time, verdicts: &mut Verdicts<T>) -> Option<Packet<T>> {
        let left = self.chosen.take();
        if left.is_some() {
            self.start(now, verdicts);
        } else {
            self.choose(now, verdicts);
        }
        left
    }

    /// Changes the rate at `now`, also for the rest of the packet in service.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        let in_service = self.in_service().map(|bytes| (self.due, bytes));
        if let Some(departs) = self.server.set_rate(now, rate, in_service) {
            self.due = departs;
        }
    }

    /// Length of the packet in service.
    fn in_service(&self) -> Option<u32> {
        match &self.queue {
            Queue::DropTail(queue) => queue.first(),
            _ => self.chosen.as_ref().map(|packet| packet.bytes),
        }
    }

    /// Starts service of the next packet; the server is free from `ready` on.
    fn start(&mut self, ready: Time, verdicts: &mut Verdicts<T>) {
        (self.busy, self.due) = (self.queue.backlog().packets > 0, Time::NEVER);
        if self.busy {
            let start = self.server.next_start(ready);
            if start > ready {
                self.due = start;
            } else {
                self.choose(start, verdicts);
            }
        }
    }

    fn choose(&mut self, now: Time, verdicts: &mut Verdicts<T>) {
        self.chosen = self.queue.dequeue(now, verdicts);
        self.busy = self.chosen.is_some();
        self.due = match &self.chosen {
            Some(packet) => self.server.serve(now, packet.bytes),
            None => Time::NEVER,
        };
    }
}
