//! What happens to a connection between two decisions.

use fullpipe_cc::{Ack, Lost, Sent};
use fullpipe_units::Span;

/// What a policy is told of a step: amounts are of the step, all else is as it is at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// How long it was.
    pub duration: Span,
    /// Payload bytes sent, retransmissions included.
    pub sent: u64,
    /// Payload bytes newly acknowledged, cumulatively or selectively.
    pub acked: u64,
    /// Payload bytes marked lost.
    pub lost: u64,
    /// ACKs that came.
    pub acks: u64,
    /// Packets reported as marked Congestion Experienced.
    pub marks: u64,
    /// Mean of the round-trip times measured; none if none was.
    pub rtt: Option<Span>,
    /// Least round-trip time of the connection.
    pub min_rtt: Option<Span>,
    /// Payload bytes in flight.
    pub inflight: u64,
    /// Congestion window in bytes.
    pub cwnd: u64,
}

/// Adds up what a controller is told, until it is asked.
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
    /// How many there were.
    pub rtts: u64,
    /// The least of them.
    pub rtt_min: Option<Span>,
    /// The greatest.
    pub rtt_max: Option<Span>,
    /// Time-outs.
    pub timeouts: u64,
}

impl StepTotals {
    /// A packet left.
    pub fn on_send(&mut self, sent: &Sent) {
        self.sent += sent.bytes;
    }

    /// One was marked lost.
    pub fn on_lost(&mut self, lost: &Lost) {
        self.lost += lost.bytes;
    }

    /// An ACK came.
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

    /// The mean of the round-trip times, if there were any.
    pub fn rtt_mean(&self) -> Option<Span> {
        let mean = self.rtt_sum.checked_div(u128::from(self.rtts))?;
        Some(Span::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// What it comes to as a step of that length.
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
    fn amounts_add_up_and_round_trips_are_averaged() {
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
