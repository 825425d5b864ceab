//! Totals of a connection between two decisions.

use fullpipe_cc::{Ack, Lost, Sent};
use fullpipe_units::Span;

/// A step between two decisions: counts over the step, and state at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Its length.
    pub duration: Span,
    /// Payload bytes sent, retransmissions included.
    pub sent: u64,
    /// Payload bytes newly acknowledged, cumulatively or selectively.
    pub acked: u64,
    /// Payload bytes marked lost.
    pub lost: u64,
    /// ACKs received.
    pub acks: u64,
    /// Packets reported as marked Congestion Experienced.
    pub marks: u64,
    /// Mean round-trip time; `None` without a sample.
    pub rtt: Option<Span>,
    /// Minimum round-trip time of the connection.
    pub min_rtt: Option<Span>,
    /// Payload bytes in flight.
    pub inflight: u64,
    /// Congestion window in bytes.
    pub cwnd: u64,
}

/// Accumulates the events of a connection until the next decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StepTotals {
    /// Payload bytes sent.
    pub sent: u64,
    /// Payload bytes acknowledged.
    pub acked: u64,
    /// Payload bytes marked lost.
    pub lost: u64,
    /// ACKs.
    pub acks: u64,
    /// Packets reported as marked.
    pub marks: u64,
    /// Sum of the round-trip times in nanoseconds.
    pub rtt_sum: u128,
    /// Number of round-trip times.
    pub rtts: u64,
    /// Their minimum.
    pub rtt_min: Option<Span>,
    /// Their maximum.
    pub rtt_max: Option<Span>,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

impl StepTotals {
    /// Records a packet sent.
    pub fn on_send(&mut self, sent: &Sent) {
        self.sent += sent.bytes;
    }

    /// Records a packet marked lost.
    pub fn on_lost(&mut self, lost: &Lost) {
        self.lost += lost.bytes;
    }

    /// Records an ACK.
    pub fn on_ack(&mut self, ack: &Ack) {
        self.acked += ack.newly_acked;
        self.acks += 1;
        self.marks += u64::from(ack.ce_count);
        if let Some(rtt) = ack.rtt {
            self.rtt_sum += u128::from(rtt.as_nanos());
            self.rtts += 1;
            self.rtt_min = Some(self.rtt_min.map_or(rtt, |least| least.min(rtt)));
            self.rtt_max = Some(self.rtt_max.map_or(rtt, |most| most.max(rtt)));
        }
    }

    /// The mean round-trip time, if there are samples.
    pub fn rtt_mean(&self) -> Option<Span> {
        let mean = self.rtt_sum.checked_div(u128::from(self.rtts))?;
        Some(Span::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// The totals as a step of the given length.
    pub fn step(&self, duration: Span, min_rtt: Option<Span>, inflight: u64, cwnd: u64) -> Step {
        let StepTotals { sent, acked, lost, acks, marks, .. } = *self;
        Step { duration, sent, acked, lost, acks, marks, rtt: self.rtt_mean(), min_rtt, inflight, cwnd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Time;

    #[test]
    fn counts_add_up_and_round_trips_are_averaged() {
        let mut totals = StepTotals::default();
        for (bytes, rtt) in [(1000, Some(40)), (2000, None), (3000, Some(50))] {
            let rtt = rtt.map(Span::from_millis);
            totals.on_ack(&Ack { newly_acked: bytes, ce_count: 1, rtt, ..Ack::at(Time::ZERO) });
        }
        let step = totals.step(Span::from_millis(45), None, 7, 9);
        assert_eq!((step.acked, step.acks, step.marks), (6000, 3, 3));
        assert_eq!(step.rtt, Some(Span::from_millis(45)));
        assert_eq!(
            (totals.rtt_min, totals.rtt_max),
            (Some(Span::from_millis(40)), Some(Span::from_millis(50)))
        );
        assert_eq!(StepTotals::default().rtt_mean(), None);
    }
}
