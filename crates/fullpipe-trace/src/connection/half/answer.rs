//! An acknowledgment reaches its sender.

use super::{Answer, Half};
use crate::connection::flight::Sent;
use crate::connection::receiving::Acknowledgment;
use crate::sequence::{ORIGIN, later, unwrap};
use crate::wire::Flags;
use fullpipe_experiment::connection::MarkKind;
use fullpipe_units::{Span, Time};

/// What an acknowledgment shows to have arrived.
#[derive(Default)]
struct Arrival {
    bytes: u64,
    /// The latest to leave of what was sent once.
    newest: Option<Sent>,
    /// Whether some was sent more than once.
    ambiguous: bool,
}

impl Arrival {
    #[inline]
    fn add(&mut self, s: &Sent) {
        self.bytes += s.len();
        if s.times > 1 {
            self.ambiguous = true;
        } else if self.newest.is_none_or(|n| (s.at, s.seq) > (n.at, n.seq)) {
            self.newest = Some(*s);
        }
    }
}

impl Half {
    /// An acknowledgment reaches the data's sender at `now`. Gives the time from the place of capture to the receiver
    /// and back, if this ACK shows it.
    pub(in crate::connection) fn answer(
        &mut self,
        a: &Answer,
        now: Time,
        scale: Option<u8>,
        mss: u32,
        rtt: Option<Span>,
    ) -> Option<Span> {
        if !self.begun {
            self.begun = true;
            let at = ORIGIN + u64::from(a.ack);
            (self.first, self.next, self.una) = (at, at, at);
        }
        let ack = unwrap(self.una, a.ack);
        // Further than any window allows: another connection's, or nonsense.
        if ack > self.next + (1 << 30) || ack + (1 << 31) < self.una {
            return None;
        }
        self.counts.acks += 1;
        let before = self.flight.outstanding();
        let had_arrived = self.counts.fresh - before.min(self.counts.fresh);
        let moves = ack.saturating_sub(self.una);
        let advances = moves > 0;
        let holes = !a.sack.blocks().is_empty();
        let mut arrival = Arrival::default();
        self.sampler.begin_ack();
        let fin_acked = advances && self.acknowledged(a, ack, now, mss, &mut arrival);
        if holes {
            self.selected(a, ack, now, mss, &mut arrival);
        }
        if a.flags.has(Flags::ECE) && !a.flags.has(Flags::SYN) {
            self.counts.ecn.echoes += 1;
        }
        if advances || arrival.bytes > 0 {
            self.last_progress = now;
            self.last_answer = Some(now);
        }
        if advances {
            self.duplicates = 0;
        } else if a.bare && ack == self.una && before > 0 {
            self.duplicates += 1;
        }
        let edge = self.edge;
        self.window(a, ack, scale, fin_acked);
        if advances || a.bare {
            self.mark(a.at, ack, self.una, MarkKind::Ack);
        }
        if let Some(new) = self.edge.filter(|_| self.edge != edge) {
            self.mark(a.at, new, new, MarkKind::Window);
        }
        let told = scale.filter(|_| !a.flags.has(Flags::SYN)).map(|scale| {
            let window = u64::from(a.window) << scale;
            Acknowledgment { arrived: had_arrived, moves, window, hole: holes }
        });
        self.arrives(now, arrival.bytes, told, mss);
        let sample = self.sampler.finish_ack(now, rtt);
        if let Some(rate) = sample.rate
            && !sample.app_limited
        {
            self.rates.add(rate.as_bytes_per_sec() as f64, arrival.bytes as f64);
        }
        // Karn: data that was sent twice does not say which sending was acknowledged.
        arrival.newest.filter(|_| !arrival.ambiguous).map(|s| a.at.since(s.at))
    }

    /// Everything below `ack` has arrived. Gives whether that is all there will be.
    #[inline]
    fn acknowledged(&mut self, a: &Answer, ack: u64, now: Time, mss: u32, arrival: &mut Arrival) -> bool {
        let fin_acked = self.fin.is_some_and(|fin| ack == fin + 1);
        let data_end = if fin_acked { ack - 1 } else { ack };
        if data_end > self.next {
            self.counts.unseen += data_end - self.next;
            self.next = data_end;
        }
        let (sampler, eifel) = (&mut self.sampler, &mut self.counts.eifel);
        self.flight.acknowledge(ack, |s| {
            // RFC 3522 §3.2: the ACK of a retransmission that echoes an earlier time answers the first sending.
            if s.times > 1 && matches!((a.echo, s.value), (Some(e), Some(v)) if later(v, e)) {
                *eifel += s.len().div_ceil(u64::from(mss.max(1)));
            }
            sampler.on_acked(now, s.len(), &s.stamp);
            arrival.add(s);
        });
        self.una = ack;
        self.counts.unseen += self.holes.acknowledge(ack);
        fin_acked
    }

    /// Blocks above `ack` have arrived, or one below it twice.
    fn selected(&mut self, a: &Answer, ack: u64, now: Time, mss: u32, arrival: &mut Arrival) {
        let blocks = a.sack.blocks();
        let mut list = [(0, 0); 4];
        let mut n = 0;
        for (i, &(from, to)) in blocks.iter().enumerate() {
            let (from, to) = (unwrap(self.una, from), unwrap(self.una, to));
            if from >= to || to > self.next || to - from > 1 << 30 {
                continue;
            }
            let inside = || {
                blocks.get(1).is_some_and(|&(a, b)| {
                    let (a, b) = (unwrap(self.una, a), unwrap(self.una, b));
                    a <= from && to <= b
                })
            };
            // RFC 2883 §4: the first block tells of a duplicate if it is below the ACK or inside the second.
            if i == 0 && (to <= ack || inside()) {
                self.counts.dsack += (to - from).div_ceil(u64::from(mss.max(1)));
                continue;
            }
            list[n] = (from, to);
            n += 1;
        }
        let sampler = &mut self.sampler;
        self.flight.select(&list[..n], |s| {
            sampler.on_acked(now, s.len(), &s.stamp);
            arrival.add(s);
        });
        for &(from, to) in &list[..n] {
            self.mark(a.at, from, to, MarkKind::Sack);
        }
    }

    /// What an acknowledgment of so many new bytes adds to what happened over time.
    #[inline]
    fn arrives(&mut self, now: Time, bytes: u64, told: Option<Acknowledgment>, mss: u32) {
        let bin = self.bins.at(now);
        bin.acked += bytes;
        if let Some(edge) = self.edge {
            bin.window = edge.saturating_sub(self.una);
        }
        if let Some(course) = &mut self.course {
            let step = course.at(now);
            step.arrived = step.arrived.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
            if let Some(told) = told {
                course.acknowledges(told, mss);
            }
        }
    }
}
