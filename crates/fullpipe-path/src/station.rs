//! A queue and the server behind it.

use fullpipe_units::{Rate, Time};

use crate::Packet;
use crate::queue::{Queue, Verdicts};
use crate::rate::Server;

/// One packet is served while the others wait.
pub(crate) struct Station<T> {
    queue: Queue<T>,
    server: Server,
    in_service: Option<Packet<T>>,
    /// When the packet in service has left.
    departs: Time,
    /// When the next packet will be chosen, if nothing is served although something waits (a
    /// trace between two opportunities).
    chooses: Time,
}

impl<T> Station<T> {
    pub fn new(queue: Queue<T>, server: Server) -> Self {
        Station { queue, server, in_service: None, departs: Time::NEVER, chooses: Time::NEVER }
    }

    /// When [`Station::step`] has something to do.
    pub fn next(&self) -> Time {
        self.departs.min(self.chooses)
    }

    /// Whether nothing waits and nothing is served.
    pub fn is_empty(&self) -> bool {
        self.in_service.is_none() && self.chooses == Time::NEVER
    }

    /// Whether the server has a rate that can be changed.
    pub fn has_rate(&self) -> bool {
        matches!(self.server, Server::Constant(_))
    }

    /// Bytes that wait or are being sent.
    pub fn backlog(&self) -> u64 {
        self.queue.bytes() + self.in_service.as_ref().map_or(0, |packet| u64::from(packet.bytes))
    }

    /// Bytes and packets that wait.
    pub fn waiting(&self) -> (u64, usize) {
        (self.queue.bytes(), self.queue.packets())
    }

    /// Takes a packet in; everything before `at` has been done.
    pub fn push(&mut self, at: Time, packet: Packet<T>, verdicts: &mut Verdicts<T>) {
        if self.in_service.is_some() || self.chooses != Time::NEVER {
            self.queue.enqueue(at, packet, verdicts);
        } else if self.queue.chooses() {
            self.queue.enqueue(at, packet, verdicts);
            self.start(at, verdicts);
        } else {
            self.serve(at, packet);
        }
    }

    /// Does what is due at [`Station::next`]; the packet that has left.
    pub fn step(&mut self, verdicts: &mut Verdicts<T>) -> Option<Packet<T>> {
        let now = self.next();
        self.chooses = Time::NEVER;
        self.departs = Time::NEVER;
        let left = self.in_service.take();
        if left.is_some() {
            self.start(now, verdicts);
        } else {
            self.choose(now, verdicts);
        }
        left
    }

    /// Changes the rate at `now`, also for the rest of the packet in service.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        let in_service = self.in_service.as_ref().map(|p| (self.departs, p.bytes));
        if let Some(departs) = self.server.set_rate(now, rate, in_service) {
            self.departs = departs;
        }
    }

    fn start(&mut self, ready: Time, verdicts: &mut Verdicts<T>) {
        if self.queue.packets() == 0 {
            return;
        }
        let start = self.server.next_start(ready);
        if start > ready && self.queue.chooses() {
            self.chooses = start;
        } else {
            self.choose(start, verdicts);
        }
    }

    fn choose(&mut self, now: Time, verdicts: &mut Verdicts<T>) {
        if let Some(packet) = self.queue.dequeue(now, verdicts) {
            self.serve(now, packet);
        }
    }

    fn serve(&mut self, ready: Time, packet: Packet<T>) {
        self.departs = self.server.serve(ready, packet.bytes);
        self.in_service = Some(packet);
    }
}
