//! Closed receive windows, their probes (RFC 9293 §3.8.6.1), and keep-alives (§3.8.4).

use super::{Ack, Half};
use crate::sequence::unwrap;
use crate::wire::{Flags, Segment};
use fullpipe_units::{Span, Time};

/// Minimum silence before a keep-alive without data: shorter than any keep-alive interval, and longer
/// than packets are out of order in a capture.
const MIN_KEEP_ALIVE_SILENCE: Span = Span::from_millis(500);

/// Whether data that is sent this long after the window opened was waiting for it, if the RTT is
/// unknown.
const UNKNOWN_RTT: Span = Span::from_millis(50);

impl Half {
    /// Handles a segment without payload. One that repeats an acknowledged sequence number asks for
    /// an acknowledgment: it is a window probe or a keep-alive.
    #[inline]
    pub(in crate::connection) fn add_empty(&mut self, s: &Segment, at: Time) {
        if self.begun && s.seq != self.next as u32 && s.flags.0 & (Flags::SYN | Flags::FIN | Flags::RST) == 0
        {
            self.add_repeated(s.seq, at);
        }
    }

    fn add_repeated(&mut self, seq: u32, at: Time) {
        if unwrap(self.next, seq) + 1 != self.una {
            return;
        }
        if self.is_window_closed() {
            self.add_probe(None);
        } else if self.next == self.una && at.since(self.last_data) >= MIN_KEEP_ALIVE_SILENCE {
            self.counts.keep_alives += 1;
        }
    }

    /// Whether the data `seq..end` is a probe of a closed window or a keep-alive, and neither new data
    /// nor retransmitted. Linux probes without data, BSD and Windows with the next byte.
    #[inline]
    pub(super) fn is_probe(&mut self, seq: u64, end: u64) -> bool {
        if end != seq + 1 {
            return false;
        }
        let repeats = end == self.una;
        if self.is_window_closed() && (repeats || seq == self.next || seq == self.una) {
            self.add_probe(Some(seq).filter(|seq| *seq == self.next));
            return true;
        }
        if repeats {
            self.counts.keep_alives += 1;
        }
        repeats
    }

    fn is_window_closed(&self) -> bool {
        self.zero_window.as_ref().is_some_and(|zero| zero.period.is_some())
    }

    /// Adds a probe, which has a new `byte` or none.
    fn add_probe(&mut self, byte: Option<u64>) {
        self.counts.window.probes += 1;
        if let Some(zero) = &mut self.zero_window {
            zero.probe = byte.or(zero.probe);
            if let Some(period) = &mut zero.period {
                period.probed = true;
            }
        }
    }

    /// Counts the byte of a probe as data if `ack` covers it: the receiver had space for it.
    #[inline]
    pub(super) fn acknowledge_probe(&mut self, ack: u64, now: Time) {
        if let Some(zero) = &mut self.zero_window
            && let Some(byte) = zero.probe.take_if(|byte| *byte < ack)
            && byte == self.next
        {
            self.next += 1;
            self.counts.new_bytes += 1;
            self.counts.bytes_sent += 1;
            self.bins.at(now).new_bytes += 1;
        }
    }

    /// Starts or ends a period with a closed window.
    #[inline]
    pub(super) fn update_zero_window(&mut self, a: &Ack, ack: u64, now: Time) {
        if a.window == 0 || self.zero_window.is_some() {
            self.change_zero_window(a, ack, now);
        }
    }

    fn change_zero_window(&mut self, a: &Ack, ack: u64, now: Time) {
        // The window of a reset has no meaning; nor has one after all data.
        let is_over = self.fin.is_some_and(|fin| self.una > fin);
        if a.flags.0 & (Flags::SYN | Flags::RST) != 0 || ack < self.una {
            return;
        }
        match (self.is_window_closed(), a.window == 0 && !is_over) {
            (false, true) => {
                self.counts.window.zero += 1;
                self.zero_window.get_or_insert_default().start(now);
            }
            (true, false) => self.end_zero_window(now),
            _ => {}
        }
    }

    fn end_zero_window(&mut self, until: Time) {
        let Some(zero) = &mut self.zero_window else { return };
        let Some(period) = zero.period.take() else { return };
        let window = &mut self.counts.window;
        let length = until.since(period.since);
        window.zero_total += length;
        window.zero_longest = window.zero_longest.max(length);
        if period.probed {
            self.record_zero_window(period.recorded, until);
        } else {
            zero.undecided = Some((period.recorded, until));
        }
    }

    /// Data is sent at `at`: if soon after the window opened, it had waited for that.
    #[inline]
    pub(super) fn decide_zero_window(&mut self, at: Time, rtt: Option<Span>) {
        if let Some(zero) = &mut self.zero_window
            && let Some((from, until)) = zero.undecided.take()
            && at.since(until) <= rtt.unwrap_or(UNKNOWN_RTT)
        {
            self.record_zero_window(from, until);
        }
    }

    /// Records `from..until`, in which the sender waited for a closed window. It is neither idle
    /// time nor part of the last moment of sending.
    fn record_zero_window(&mut self, from: Time, until: Time) {
        if self.first_data.is_none() || until <= from {
            return;
        }
        if let Some(since) = self.idle.filter(|since| *since < until) {
            self.bins.add_time(since, from, |bin, t| bin.idle += t);
            self.idle = Some(until);
        }
        if let Some(moment) = self.moment.as_mut().filter(|moment| moment.since < until) {
            if moment.full {
                self.bins.add_time(moment.since, from, |bin, t| bin.closed += t);
            }
            moment.since = until;
        }
        self.bins.add_time(from, until, |bin, t| bin.closed += t);
        if let Some(zero) = &mut self.zero_window {
            zero.end = Some(until);
        }
    }

    /// End of the last period in which the sender waited for the window.
    pub(in crate::connection) fn zero_window_end(&self) -> Option<Time> {
        self.zero_window.as_ref().and_then(|zero| zero.end)
    }

    /// Ends the capture with the last packet of the connection at `last`, or at `end` if the sender
    /// waits for a closed window.
    pub(in crate::connection) fn finish_zero_window(&mut self, last: Time, end: Time) {
        let period = self.zero_window.as_ref().and_then(|zero| zero.period);
        self.end_zero_window(if period.is_some_and(|period| period.probed) { end } else { last });
    }
}
