//! Linux's policy of acknowledging: every second full segment, at once where the sender needs to
//! know, at the latest after a delay, and compressed while a hole is open (`__tcp_ack_snd_check`,
//! `tcp_event_data_recv`, `tcp_enter_quickack_mode`).

use super::reassembly::Arrival;

use fullpipe_cc::{Span, Time};

/// ACKs sent at once at the start of a connection and after an idle period (`TCP_MAX_QUICKACKS`).
const QUICK_ACKS: u32 = 16;
/// Shortest and usual delay of an ACK (`TCP_ATO_MIN`, `TCP_DELACK_MIN`).
const MIN_DELAY: Span = Span::from_millis(40);
/// Longest delay of an ACK (`TCP_DELACK_MAX`).
const MAX_DELAY: Span = Span::from_millis(200);
/// Duplicate ACKs sent singly before compression starts (`TCP_FASTRETRANS_THRESH`).
const SINGLE_DUPLICATES: u32 = 3;
/// Most ACKs that one compressed ACK replaces (`tcp_comp_sack_nr`).
const MAX_COMPRESSED: u32 = 44;
/// Longest delay of a compressed ACK (`tcp_comp_sack_delay_ns`); it is at most a 20th of the RTT.
const MAX_COMPRESSION_DELAY: Span = Span::from_millis(1);

/// The state of the policy.
#[derive(Debug)]
pub(crate) struct AckPolicy {
    smss: u64,
    /// In-order segments per ACK.
    segments_per_ack: u32,
    /// ACKs still to be sent at once.
    quick: u32,
    /// The delay (`icsk_ack.ato`).
    delay: Span,
    last_data: Option<Time>,
    /// Bytes in order up to which an ACK has been sent.
    acked_bytes: u64,
    delayed_until: Time,
    compressed_until: Time,
    compressed: u32,

    duplicates: u32,
    duplicates_at: u64,
}

impl AckPolicy {
    pub fn new(smss: u32) -> Self {
        AckPolicy {
            smss: u64::from(smss),
            segments_per_ack: 2,
            quick: QUICK_ACKS,
            delay: MIN_DELAY,
            last_data: None,
            acked_bytes: 0,
            delayed_until: Time::NEVER,
            compressed_until: Time::NEVER,
            compressed: 0,

            duplicates: 0,
            duplicates_at: 0,
        }
    }

    /// Sets how many in-order segments are acknowledged together.
    #[inline]
    pub fn set_segments_per_ack(&mut self, segments: u32) {
        self.segments_per_ack = segments.max(1);
    }

    /// Ends the quick ACKs at the start of the connection.
    pub fn end_quick_acks(&mut self) {
        self.quick = 0;
    }

    /// Whether an ACK is held back (`tp->compressed_ack`).
    pub fn holds_ack(&self) -> bool {
        self.compressed > 0
    }

    /// When an ACK is due at the latest.
    pub fn due(&self) -> Time {
        self.delayed_until.min(self.compressed_until)
    }

    /// Sends the next ACK at once because the window grows (`tcp_grow_window`).
    pub fn on_window_growth(&mut self) {
        self.quick |= 1;
    }

    /// Data arrived and changed the receive queue, which is now in order up to `next_bytes`.
    /// Returns whether to acknowledge at once.
    #[inline]
    pub fn on_data(
        &mut self,
        now: Time,
        arrival: Arrival,
        next_bytes: u64,
        has_hole: bool,
        marked: bool,
        rtt: Option<Span>,
    ) -> bool {
        self.adapt(now, rtt);
        if marked {
            self.quick = self.quick.max(2);
        }
        let at_once = match arrival {
            Arrival::Duplicate => {
                self.quick = QUICK_ACKS;
                true
            }
            Arrival::InOrder { filled } => filled,
            Arrival::Beyond => false,
        };
        if at_once
            || self.quick > 0
            || next_bytes - self.acked_bytes > self.smss * u64::from(self.segments_per_ack - 1)
        {
            return true;
        }
        if !has_hole {
            if self.delayed_until == Time::NEVER {
                self.delayed_until = now + self.delay;
            }
            return false;
        }
        if self.compressed >= MAX_COMPRESSED {
            return true;
        }
        if self.duplicates_at != next_bytes {
            self.duplicates_at = next_bytes;
            self.duplicates = 0;
        }
        if self.duplicates < SINGLE_DUPLICATES {
            self.duplicates += 1;
            return true;
        }
        self.compressed += 1;
        if self.compressed_until == Time::NEVER {
            self.compressed_until = now + (rtt.unwrap_or(Span::ZERO) / 20).min(MAX_COMPRESSION_DELAY);
        }
        false
    }

    /// The delay follows the gaps between arrivals. After a pause longer than a timeout the sender
    /// is in slow start again and gets quick ACKs.
    fn adapt(&mut self, now: Time, rtt: Option<Span>) {
        if let Some(last) = self.last_data {
            let gap = now.since(last);
            if gap <= MIN_DELAY / 2 {
                self.delay = self.delay / 2 + MIN_DELAY / 2;
            } else if gap < self.delay {
                self.delay = self.delay / 2 + gap;
            } else if gap > rtt.unwrap_or(Span::ZERO) + Span::from_millis(200) {
                self.quick = QUICK_ACKS;
            }
            self.delay = self.delay.clamp(MIN_DELAY, MAX_DELAY);
        }
        self.last_data = Some(now);
    }

    /// An ACK is sent that covers `next_bytes`.
    #[inline]
    pub fn on_sent(&mut self, next_bytes: u64) {
        self.quick = self.quick.saturating_sub(1);
        self.acked_bytes = next_bytes;
        self.delayed_until = Time::NEVER;
        self.compressed_until = Time::NEVER;
        self.compressed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_ORDER: Arrival = Arrival::InOrder { filled: false };
    const BEYOND: Arrival = Arrival::Beyond;

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::from_millis(n)
    }

    fn warmed_up() -> (AckPolicy, u64) {
        let mut p = AckPolicy::new(1000);
        let mut bytes = 0;
        for _ in 0..QUICK_ACKS {
            bytes += 1000;
            assert!(
                p.on_data(ms(0), IN_ORDER, bytes, false, false, None),
                "the first are acknowledged singly"
            );
            p.on_sent(bytes);
        }
        (p, bytes)
    }

    #[test]
    fn every_second_segment_is_acknowledged_and_a_lone_one_after_40_ms() {
        let (mut p, bytes) = warmed_up();
        assert!(!p.on_data(ms(1), IN_ORDER, bytes + 1000, false, false, None));
        assert_eq!(p.due(), ms(41));
        assert!(p.on_data(ms(2), IN_ORDER, bytes + 2000, false, false, None));
        p.on_sent(bytes + 2000);
        assert_eq!(p.due(), Time::NEVER);
    }

    #[test]
    fn beyond_a_hole_three_go_singly_and_the_rest_in_one() {
        let (mut p, bytes) = warmed_up();
        let rtt = Some(Span::from_millis(100));
        for _ in 0..3 {
            assert!(p.on_data(ms(1), BEYOND, bytes, true, false, rtt));
            p.on_sent(bytes);
        }
        for _ in 0..MAX_COMPRESSED {
            assert!(!p.on_data(ms(1), BEYOND, bytes, true, false, rtt));
        }
        assert_eq!(p.due(), ms(2));
        assert!(p.on_data(ms(1), BEYOND, bytes, true, false, rtt));
        p.on_sent(bytes);
        assert!(p.on_data(ms(1), Arrival::InOrder { filled: true }, bytes + 500, false, false, rtt));
    }

    #[test]
    fn after_a_pause_acks_are_quick_again() {
        let (mut p, bytes) = warmed_up();
        assert!(p.on_data(ms(900), IN_ORDER, bytes + 1000, false, false, Some(Span::from_millis(40))));
    }
}
