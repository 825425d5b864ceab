//! The arrivals of a window.

use super::super::one_way::OneWay;
use crate::segment::Segment;
use fullpipe_cc::Time;
use fullpipe_path::Packet;

/// A packet that arrives in a window.
#[derive(Clone)]
pub(super) struct Arrival {
    pub at: Time,
    /// Its number among the window's arrivals from this direction.
    pub number: u32,
    pub packet: Packet<Segment>,
}

/// The arrivals of a window from one direction, by flow.
pub(super) struct Arrivals {
    sorted: Vec<Arrival>,
    /// Where those of each flow end.
    ends: Vec<u32>,
}

impl Arrivals {
    pub fn new(flows: usize) -> Self {
        Arrivals { sorted: Vec::new(), ends: vec![0; flows] }
    }

    /// Collects the arrivals from `way` until `until`.
    pub fn collect(&mut self, way: &OneWay, until: Time) {
        let arrivals = || way.propagating().take_while(|&(at, _)| at <= until);
        self.ends.fill(0);
        let mut count = 0;
        for (_, packet) in arrivals() {
            self.ends[packet.flow as usize] += 1;
            count += 1;
        }
        let mut sum = 0;
        for end in &mut self.ends {
            let begin = sum;
            sum += *end;
            *end = begin;
        }
        let Some((at, packet)) = arrivals().next() else { return self.sorted.clear() };
        self.sorted.resize(count, Arrival { at, number: 0, packet: packet.clone() });
        for (number, (at, packet)) in (0..).zip(arrivals()) {
            let place = &mut self.ends[packet.flow as usize];
            self.sorted[*place as usize] = Arrival { at, number, packet: packet.clone() };
            *place += 1;
        }
    }

    /// The arrivals for `flow`.
    #[inline]
    pub fn for_flow(&self, flow: usize) -> &[Arrival] {
        let begin = if flow == 0 { 0 } else { self.ends[flow - 1] };
        &self.sorted[begin as usize..self.ends[flow] as usize]
    }
}
