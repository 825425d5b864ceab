//! Data that is not new: sent again, overtaken on the way, or captured twice.

use super::Half;
use super::passing::Passing;
use crate::connection::flight::Sent;
use crate::connection::holes::Filled;
use crate::connection::retransmission::{Cause, Circumstances, cause};
use crate::sequence::later;
use fullpipe_experiment::connection::MarkKind;
use fullpipe_units::{Span, Time};

impl Half {
    /// Data not all of which is new.
    pub(super) fn overlapping(&mut self, p: &Passing) {
        let new_from = p.end.min(self.next).max(p.seq);
        // Below what is acknowledged it has arrived already: the ACK was lost, or the sender was wrong.
        let known_to = self.una.clamp(p.seq, new_from);
        if known_to > p.seq {
            // Unless the capture missed it and the ACK overtook it.
            self.sent_again(p.seq, known_to, p, None);
        }
        for (from, to, known) in self.flight.parts(known_to, new_from) {
            match known {
                Some(sent) => {
                    let doubled =
                        p.rtt.is_some_and(|rtt| p.at.since(sent.at) * 2 < rtt) && sent.value == p.value;
                    if doubled {
                        self.counts.doubled += 1;
                        self.counts.segments = self.counts.segments.saturating_sub(p.segments(from, to));
                        self.counts.bytes_sent -= to - from;
                        continue;
                    }
                    self.sent_again(from, to, p, Some(sent));
                    let stamp = self.sampler.on_sent(p.at, to - from, self.flight.outstanding());
                    self.flight.again(from, to, p.passed, stamp, p.value);
                }
                None => {
                    self.fresh(from, to, p);
                    self.filled(from, to, p);
                }
            }
        }
        if p.end > new_from {
            self.fresh(new_from, p.end, p);
        }
    }

    /// The part from `from` to `to` passes again, which was in flight as `sent`, or had been acknowledged.
    fn sent_again(&mut self, from: u64, to: u64, p: &Passing, sent: Option<Sent>) {
        let (at, segments) = (p.at, p.segments(from, to));
        let circumstances = Circumstances {
            overtaken: self.flight.highest_sacked() > to || self.duplicates >= 3,
            first: from <= self.una,
            last: to >= self.next,
            repeated: sent.is_some_and(|s| s.times > 1),
            after_timeout: self.timeout > from,
            silence: at.since(self.last_progress.max(self.last_data)),
            srtt: self.srtt,
        };
        let again = &mut self.counts.again;
        again.segments += segments;
        again.bytes += to - from;
        match cause(&circumstances) {
            Cause::Fast => again.fast += segments,
            Cause::TailLoss => again.tail_loss += segments,
            Cause::Timeout => {
                again.timeout += segments;
                self.timeout = self.next;
            }
        }
        self.recovery = self.recovery.max(self.next);
        self.repaired(at, segments, sent.map_or(at, |s| s.at));
        self.mark(at, from, to, MarkKind::Retransmission);
    }

    /// Of what should have passed at `lost`, `segments` pass now.
    fn repaired(&mut self, at: Time, segments: u64, lost: Time) {
        self.bins.at(at).retransmitted += segments;
        if let Some(course) = &mut self.course {
            let segments = u32::try_from(segments).unwrap_or(u32::MAX);
            let step = course.at(at);
            step.again = step.again.saturating_add(segments);
            let step = course.at(lost);
            step.lost = step.lost.saturating_add(segments);
        }
    }

    /// Data passes that later data had passed before: overtaken on the way, or sent again after the first was lost.
    fn filled(&mut self, from: u64, to: u64, p: &Passing) {
        let Some(Filled { hole, again }) = self.holes.fill(from, to, p.at, p.rtt.unwrap_or(Span::ZERO))
        else {
            return;
        };
        let (at, segments) = (p.at, p.segments(from, to));
        let waited = at.since(hole.at);
        // Sent after what passed it: its clock says so; without clocks, nothing is sent again within half a round trip.
        let sent_later = match (p.value, hole.value) {
            (Some(this), Some(that)) => later(this, that),
            _ => waited * 2 > p.rtt.unwrap_or(Span::from_millis(6)),
        };
        if sent_later {
            self.counts.filled_late += segments;
            self.counts.filled_late_bytes += to - from;
            self.counts.lost_again += segments * u64::from(again);
            self.repaired(at, segments, hole.at);
            self.mark(at, from, to, MarkKind::Retransmission);
        } else {
            let r = &mut self.counts.reordering;
            r.segments += segments;
            r.extent_bytes = r.extent_bytes.max(self.next - to);
            r.extent = r.extent.max(waited);
        }
    }
}
