//! Processes acknowledgments as the sender of the data does.

use super::{Ack, Half};
use crate::connection::flight::Sent;
use crate::connection::receiving::Acknowledgment;
use crate::sequence::{ORIGIN, later, unwrap};
use crate::wire::Flags;
use fullpipe_experiment::connection::MarkKind;
use fullpipe_units::{Span, Time};

/// The data that an acknowledgment newly covers.
#[derive(Default)]
struct Acknowledged {
    bytes: u64,
    /// The last sent of the segments that were sent once.
    newest: Option<Sent>,
    /// Whether some segments were sent more than once.
    ambiguous: bool,
}

impl Acknowledged {
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
    /// Processes an acknowledgment that reaches the sender at `now`. Returns the RTT between the
    /// place of capture and the receiver, if this ACK gives a sample.
    pub(in crate::connection) fn process_ack(
        &mut self,
        a: &Ack,
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
        // Beyond any window: of another connection, or damaged.
        if ack > self.next + (1 << 30) || ack + (1 << 31) < self.una {
            return None;
        }
        self.counts.acks += 1;
        let before = self.flight.outstanding();
        let arrived_before = self.counts.new_bytes - before.min(self.counts.new_bytes);
        let moves = ack.saturating_sub(self.una);
        let advances = moves > 0;
        let holes = !a.sack.blocks().is_empty();
        let mut acked = Acknowledged::default();
        self.sampler.begin_ack();
        self.acknowledge_probe(ack, now);
        self.acknowledge_small(ack, a.bare, now, rtt);
        let fin_acked = advances && self.process_cumulative(a, ack, now, mss, &mut acked);
        if holes {
            self.process_sack(a, ack, now, mss, &mut acked);
        }
        if a.flags.has(Flags::ECE) && !a.flags.has(Flags::SYN) {
            self.counts.ecn.echoes += 1;
        }
        // The ACK of a FIN alone may follow long after the data: the FIN waits for the application.
        let is_progress = moves > u64::from(fin_acked);
        if is_progress || acked.bytes > 0 {
            self.last_progress = now;
            self.last_answer = Some(now);
        }
        if advances {
            self.duplicates = 0;
        } else if a.bare && ack == self.una && before > 0 {
            self.duplicates += 1;
        }
        let edge = self.edge;
        self.update_window(a, ack, scale, fin_acked);
        self.update_zero_window(a, ack, now);
        if advances || a.bare {
            self.mark(a.at, ack, self.una, MarkKind::Ack);
        }
        if let Some(new) = self.edge.filter(|_| self.edge != edge) {
            self.mark(a.at, new, new, MarkKind::Window);
        }
        let acknowledgment = scale.filter(|_| !a.flags.has(Flags::SYN)).map(|scale| {
            let window = u64::from(a.window) << scale;
            Acknowledgment { arrived: arrived_before, moves, window, hole: holes }
        });
        self.record_arrival(now, acked.bytes, acknowledgment, mss);
        let sample = self.sampler.finish_ack(now, rtt);
        if let Some(rate) = sample.rate
            && !sample.app_limited
        {
            self.rates.add(rate.as_bytes_per_sec() as f64, acked.bytes as f64);
        }
        // Karn's algorithm: for retransmitted data, the acknowledged transmission is ambiguous.
        acked.newest.filter(|_| !acked.ambiguous).map(|s| a.at.since(s.at))
    }

    /// Processes the cumulative acknowledgment. Returns whether it covers the FIN.
    #[inline]
    fn process_cumulative(
        &mut self,
        a: &Ack,
        ack: u64,
        now: Time,
        mss: u32,
        acked: &mut Acknowledged,
    ) -> bool {
        let fin_acked = self.fin.is_some_and(|fin| ack == fin + 1);
        let data_end = if fin_acked { ack - 1 } else { ack };
        if data_end > self.next {
            self.counts.missed_bytes += data_end - self.next;
            self.missed.add(self.next, data_end, (a.at, a.echo), None);
            self.next = data_end;
        }
        let (sampler, eifel) = (&mut self.sampler, &mut self.counts.eifel);
        self.flight.acknowledge(ack, |s| {
            // RFC 3522 §3.2: an ACK that echoes an earlier timestamp than the retransmission's acknowledges
            // the original.
            if s.times > 1 && matches!((a.echo, s.value), (Some(e), Some(v)) if later(v, e)) {
                *eifel += s.len().div_ceil(u64::from(mss.max(1)));
            }
            sampler.on_acked(now, s.len(), &s.stamp);
            acked.add(s);
        });
        self.una = ack;
        let (missed, bytes) = (&mut self.missed, &mut self.counts.missed_bytes);
        self.holes.acknowledge(ack, |hole| {
            *bytes += hole.end - hole.seq;
            missed.add(hole.seq, hole.end, (a.at, a.echo), Some(hole.at));
        });
        fin_acked
    }

    /// Processes SACK blocks, DSACK included.
    fn process_sack(&mut self, a: &Ack, ack: u64, now: Time, mss: u32, acked: &mut Acknowledged) {
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
            // RFC 2883 §4: the first block reports a duplicate if it is below the ACK or inside the second
            // block.
            if i == 0 && (to <= ack || inside()) {
                self.counts.dsack += (to - from).div_ceil(u64::from(mss.max(1)));
                continue;
            }
            list[n] = (from, to);
            n += 1;
        }
        let sampler = &mut self.sampler;
        self.flight.apply_sack(&list[..n], |s| {
            sampler.on_acked(now, s.len(), &s.stamp);
            acked.add(s);
        });
        for &(from, to) in &list[..n] {
            self.mark(a.at, from, to, MarkKind::Sack);
        }
    }

    /// Adds `bytes` newly acknowledged bytes to the time series.
    #[inline]
    fn record_arrival(&mut self, now: Time, bytes: u64, acknowledgment: Option<Acknowledgment>, mss: u32) {
        let bin = self.bins.at(now);
        bin.acked += bytes;
        if let Some(edge) = self.edge {
            bin.window = edge.saturating_sub(self.una);
        }
        if let Some(trajectory) = &mut self.trajectory {
            let step = trajectory.at(now);
            step.arrived = step.arrived.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
            trajectory.acknowledged(now, bytes);
            if let Some(acknowledgment) = acknowledgment {
                trajectory.receiver_acks(acknowledgment, mss);
            }
        }
    }
}
