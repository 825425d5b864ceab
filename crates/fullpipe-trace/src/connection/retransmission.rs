//! Classifies the cause of retransmissions.

use fullpipe_units::Span;

/// The state of a sender at a retransmission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// Later data was SACKed, or three duplicate ACKs arrived.
    pub(super) loss_detected: bool,
    /// First unacknowledged data.
    pub(super) first: bool,
    /// Last data sent.
    pub(super) last: bool,
    /// Retransmitted before.
    pub(super) repeated: bool,
    /// Part of the recovery from a timeout.
    pub(super) after_timeout: bool,
    /// Time since data was last sent or acknowledged.
    pub(super) silence: Span,
    /// Smoothed RTT, if known.
    pub(super) srtt: Option<Span>,
}

/// Cause of a retransmission.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Fast,
    TailLoss,
    Timeout,
}

/// Minimum retransmission timeout beyond srtt in Linux (`tcp_rto_min`: 200 ms), less a clock tick
/// at 100 Hz; other stacks wait longer.
const MIN_RTO_BEYOND_SRTT: Span = Span::from_millis(190);

/// Classifies a retransmission.
pub(super) fn cause(c: &Circumstances) -> Cause {
    let srtt = c.srtt.unwrap_or(Span::ZERO);
    let waited = c.silence >= srtt + MIN_RTO_BEYOND_SRTT;
    if c.loss_detected && !(waited && c.first) {
        return if c.after_timeout && !c.first { Cause::Timeout } else { Cause::Fast };
    }
    // RFC 8985 §7.2: a probe waits two RTTs, plus 200 ms for the delayed ACK of a single packet; it is
    // sent once and repeats the last data only.
    if c.last && !c.repeated && !c.after_timeout && c.silence >= srtt {
        return Cause::TailLoss;
    }
    if waited || c.after_timeout { Cause::Timeout } else { Cause::Fast }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Circumstances = Circumstances {
        loss_detected: false,
        first: true,
        last: false,
        repeated: false,
        after_timeout: false,
        silence: Span::ZERO,
        srtt: Some(Span::from_millis(100)),
    };

    #[test]
    fn detected_losses_are_fast_retransmissions() {
        assert_eq!(cause(&Circumstances { loss_detected: true, ..QUIET }), Cause::Fast);
    }

    #[test]
    fn last_data_is_probed_once_before_the_timeout() {
        let probe = Circumstances { last: true, silence: Span::from_millis(210), ..QUIET };
        assert_eq!(cause(&probe), Cause::TailLoss);
        let again = Circumstances { repeated: true, silence: Span::from_millis(420), ..probe };
        assert_eq!(cause(&again), Cause::Timeout);
    }

    #[test]
    fn lost_retransmission_times_out_despite_later_acknowledgments() {
        let c =
            Circumstances { loss_detected: true, repeated: true, silence: Span::from_millis(310), ..QUIET };
        assert_eq!(cause(&c), Cause::Timeout);
    }
}
