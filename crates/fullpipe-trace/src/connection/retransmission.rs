//! Why data was sent again.

use fullpipe_units::Span;

/// What a sender knew as it sent data again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// Later data had been acknowledged selectively, or three duplicate ACKs had come.
    pub(super) overtaken: bool,
    /// It was the first data not acknowledged.
    pub(super) first: bool,
    /// It was the last data sent.
    pub(super) last: bool,
    /// It was sent again before.
    pub(super) repeated: bool,
    /// A time-out was being repaired, and this belonged to it.
    pub(super) after_timeout: bool,
    /// Since anything was sent or acknowledged.
    pub(super) silence: Span,
    /// Smoothed round-trip time, if known.
    pub(super) srtt: Option<Span>,
}

/// Why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Fast,
    TailLoss,
    Timeout,
}

/// Linux's least variance in a retransmission time-out (`tcp_rto_min`: 200 ms on top of srtt), less a clock tick at
/// 100 Hz; other stacks wait longer.
const LEAST_RTO_BEYOND_RTT: Span = Span::from_millis(190);

/// Why data was sent again under `c`.
pub(super) fn cause(c: &Circumstances) -> Cause {
    let srtt = c.srtt.unwrap_or(Span::ZERO);
    let waited = c.silence >= srtt + LEAST_RTO_BEYOND_RTT;
    if c.overtaken && !(waited && c.first) {
        return if c.after_timeout && !c.first { Cause::Timeout } else { Cause::Fast };
    }
    // RFC 8985 §7.2: a probe waits two round trips, and 200 ms more for a single packet's delayed ACK; it is sent
    // once, and only of the last data.
    if c.last && !c.repeated && !c.after_timeout && c.silence >= srtt {
        return Cause::TailLoss;
    }
    if waited || c.after_timeout { Cause::Timeout } else { Cause::Fast }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Circumstances = Circumstances {
        overtaken: false,
        first: true,
        last: false,
        repeated: false,
        after_timeout: false,
        silence: Span::ZERO,
        srtt: Some(Span::from_millis(100)),
    };

    #[test]
    fn data_that_was_overtaken_is_fast() {
        assert_eq!(cause(&Circumstances { overtaken: true, ..QUIET }), Cause::Fast);
    }

    #[test]
    fn the_last_data_is_probed_once_and_then_times_out() {
        let probe = Circumstances { last: true, silence: Span::from_millis(210), ..QUIET };
        assert_eq!(cause(&probe), Cause::TailLoss);
        let again = Circumstances { repeated: true, silence: Span::from_millis(420), ..probe };
        assert_eq!(cause(&again), Cause::Timeout);
    }

    #[test]
    fn a_lost_retransmission_times_out_though_later_data_was_acknowledged() {
        let c = Circumstances { overtaken: true, repeated: true, silence: Span::from_millis(310), ..QUIET };
        assert_eq!(cause(&c), Cause::Timeout);
    }
}
