//! Packets in order of arrival, each with its time: the building block of the other disciplines.

use std::collections::VecDeque;

use fullpipe_units::Time;

use super::Backlog;
use crate::Packet;

/// A FIFO without a limit.
pub(super) struct Fifo<T> {
    packets: VecDeque<(Time, Packet<T>)>,
    bytes: u64,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Fifo { packets: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Fifo<T> {
    pub fn push(&mut self, at: Time, packet: Packet<T>) {
        self.bytes += u64::from(packet.bytes);
        self.packets.push_back((at, packet));
    }

    /// Removes the oldest packet; returns it with its arrival time.
    pub fn pop(&mut self) -> Option<(Time, Packet<T>)> {
        let (at, packet) = self.packets.pop_front()?;
        self.bytes -= u64::from(packet.bytes);
        Some((at, packet))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn backlog(&self) -> Backlog {
        Backlog { bytes: self.bytes, packets: self.packets.len() }
    }
}
