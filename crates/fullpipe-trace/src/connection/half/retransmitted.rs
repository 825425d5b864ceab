//! Data that is not new: retransmitted, reordered, written late by the capture, or captured twice.

use super::Half;
use super::data::Data;
use crate::connection::flight::Sent;
use crate::connection::holes::Filled;
use crate::connection::late::{Missed, max_disorder};
use crate::connection::retransmission::{Cause, Circumstances, cause};
use crate::sequence::later;
use fullpipe_experiment::connection::MarkKind;
use fullpipe_units::{Span, Time};

impl Half {
    /// Adds data of which not all is new.
    pub(super) fn add_overlapping(&mut self, d: &Data) {
        let new_from = d.end.min(self.next).max(d.seq);
        let known_to = self.una.clamp(d.seq, new_from);
        let parts = self.flight.parts(known_to, new_from);
        if known_to == d.seq && new_from == d.end && is_copy(d, &parts) {
            self.remove_copy(d);
            return;
        }
        let mut repeated = 0;
        // Data below the acknowledgment had arrived: its ACK was lost, or the retransmission is spurious.
        if known_to > d.seq {
            self.add_acknowledged(d.seq, known_to, d, &mut repeated);
        }
        for (from, to, known) in parts {
            match known {
                Some(sent) => {
                    self.add_retransmission(from, to, d, Some(sent), &mut repeated);
                    let stamp = self.sampler.on_sent(d.at, to - from, self.flight.outstanding());
                    self.flight.retransmit((from, to), d.captured_at, stamp, d.value, d.id);
                }
                None => {
                    self.add_new(from, to, d);
                    self.fill_hole(from, to, d);
                }
            }
        }
        if d.end > new_from {
            self.add_new(new_from, d.end, d);
        }
    }

    /// Counts `d`, a copy of data in flight, as a packet that was captured twice.
    fn remove_copy(&mut self, d: &Data) {
        let counts = &mut self.counts;
        counts.duplicates += 1;
        counts.packets -= 1;
        counts.data_packets -= 1;
        counts.segments = counts.segments.saturating_sub(d.segments(d.seq, d.end));
        counts.bytes_sent -= d.end - d.seq;
    }

    /// Adds `from..to`, which was acknowledged before it was captured.
    fn add_acknowledged(&mut self, from: u64, to: u64, d: &Data, repeated: &mut u64) {
        let disorder = max_disorder(d.rtt);
        let mut written_late = false;
        let mut now = from;
        while now < to
            && let Some(part) = self.missed.remove((now, to), (d.at, d.value), disorder)
        {
            if part.seq > now {
                self.add_retransmission(now, part.seq, d, None, repeated);
            }
            self.add_late(&part, d);
            now = part.end;
            written_late = true;
        }
        if now < to {
            self.add_retransmission(now, to, d, None, repeated);
        }
        self.counts.misordered += u64::from(written_late && d.captured_at == d.at);
    }

    /// Adds data that the capture wrote behind its acknowledgment.
    fn add_late(&mut self, part: &Missed, d: &Data) {
        let bytes = part.end - part.seq;
        self.counts.missed_bytes = self.counts.missed_bytes.saturating_sub(bytes);
        self.counts.new_bytes += bytes;
        // It arrived before: for the delivery rate it counts now.
        let stamp = self.sampler.on_sent(d.at, bytes, self.flight.outstanding());
        self.sampler.on_acked(d.at, bytes, &stamp);
        let bin = self.bins.at(d.at);
        bin.new_bytes += bytes;
        bin.acked += bytes;
        if let Some(trajectory) = &mut self.trajectory {
            let step = trajectory.at(d.at);
            step.arrived = step.arrived.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
        self.forget_missing(part.seq, part.end, part.hole_at, d);
        self.mark(d.at, part.seq, part.end, MarkKind::Data);
    }

    /// Subtracts the segments counted as missing since `hole_at`: the capture wrote them late.
    fn forget_missing(&mut self, from: u64, to: u64, hole_at: Option<Time>, d: &Data) {
        if let Some(at) = hole_at {
            let bin = self.bins.at(at);
            bin.missing = bin.missing.saturating_sub(d.segments(from, to));
        }
    }

    /// Counts the retransmission of `from..to`, which was in flight as `sent` or acknowledged.
    /// `repeated`: bytes that the packet retransmits before them; several small segments are
    /// retransmitted as one.
    fn add_retransmission(&mut self, from: u64, to: u64, d: &Data, sent: Option<Sent>, repeated: &mut u64) {
        let before = *repeated;
        *repeated += to - from;
        let (at, segments) = (d.at, d.segments(0, *repeated) - d.segments(0, before));
        let circumstances = Circumstances {
            loss_detected: self.flight.highest_sacked() > to || self.duplicates >= 3,
            first: from <= self.una,
            last: to >= self.next,
            repeated: sent.is_some_and(|s| s.times > 1),
            after_timeout: self.timeout > from,
            silence: at.since(self.last_progress.max(self.last_data)),
            srtt: self.srtt,
        };
        let counts = &mut self.counts.retransmissions;
        counts.segments += segments;
        counts.bytes += to - from;
        match cause(&circumstances) {
            Cause::Fast => counts.fast += segments,
            Cause::TailLoss => counts.tail_loss += segments,
            Cause::Timeout => {
                counts.timeout += segments;
                self.timeout = self.next;
            }
        }
        self.recovery = self.recovery.max(self.next);
        self.add_loss(at, segments, sent.map_or(at, |s| s.at));
        self.mark(at, from, to, MarkKind::Retransmission);
    }

    /// Records that `segments`, lost at `lost`, are retransmitted at `at`.
    fn add_loss(&mut self, at: Time, segments: u64, lost: Time) {
        self.bins.at(at).retransmitted += segments;
        if let Some(trajectory) = &mut self.trajectory {
            let segments = u32::try_from(segments).unwrap_or(u32::MAX);
            let step = trajectory.at(at);
            step.retransmitted = step.retransmitted.saturating_add(segments);
            let step = trajectory.at(lost);
            step.lost = step.lost.saturating_add(segments);
        }
    }

    /// Handles data that later data overtook: reordered, or retransmitted after a loss before the
    /// place of capture.
    fn fill_hole(&mut self, from: u64, to: u64, d: &Data) {
        let Some(Filled { hole, lost_repairs }) =
            self.holes.fill(from, to, d.at, d.rtt.unwrap_or(Span::ZERO))
        else {
            return;
        };
        let (at, segments) = (d.at, d.segments(from, to));
        let waited = at.since(hole.at);
        // Its ACK, which may not have reached the sender yet, was captured before it.
        if to <= self.acked_here && waited <= max_disorder(d.rtt) {
            self.counts.misordered += u64::from(d.captured_at == d.at);
            self.forget_missing(from, to, Some(hole.at), d);
            return;
        }
        // Sent after the data that overtook it, by its timestamp; without timestamps, retransmissions take
        // half a round trip.
        let sent_later = match (d.value, hole.value) {
            (Some(this), Some(that)) => later(this, that),
            _ => waited * 2 > d.rtt.unwrap_or(Span::from_millis(6)),
        };
        if sent_later {
            self.counts.filled_late += segments;
            self.counts.filled_late_bytes += to - from;
            let lost = segments.saturating_mul(u64::from(lost_repairs));
            self.counts.lost_retransmissions = self.counts.lost_retransmissions.saturating_add(lost);
            self.add_loss(at, segments, hole.at);
            self.mark(at, from, to, MarkKind::Retransmission);
        } else {
            let r = &mut self.counts.reordering;
            r.segments += segments;
            r.extent_bytes = r.extent_bytes.max(self.next - to);
            r.extent = r.extent.max(waited);
        }
    }
}

/// Whether `d` is a copy of the packets in `parts`: all of them were captured too recently for a
/// retransmission.
fn is_copy(d: &Data, parts: &[(u64, u64, Option<Sent>)]) -> bool {
    parts.iter().all(|(_, _, known)| {
        known.is_some_and(|sent| {
            let is_early = d.rtt.is_some_and(|rtt| d.at.since(sent.at) * 2 < rtt);
            let is_other = d.id != sent.id && d.id != 0 && sent.id != 0;
            is_early && sent.value == d.value && !is_other
        })
    })
}
