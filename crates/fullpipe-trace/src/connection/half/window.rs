//! The receive window, and whether it limits the sender.

use super::{Ack, Half};
use crate::connection::trajectory::AckInfo;
use crate::sequence::unwrap;
use crate::wire::Flags;
use fullpipe_units::Time;

/// A sender with segmentation offload may wait until this part of the window is open
/// (`tcp_tso_should_defer()`, `tcp_tso_win_divisor`).
const TSO_WINDOW_DIVISOR: u64 = 3;

/// Data with the same echoed timestamp, which the sender sent with the same knowledge.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendMoment {
    echo: u32,
    /// Capture time of the first of it.
    pub(super) since: Time,
    /// Whether the last of it filled the receive window.
    pub(super) full: bool,
}

impl Half {
    /// Whether the receive window limits the sender.
    #[inline]
    pub(super) fn is_closed(&mut self, mss: u64) -> bool {
        let Some(edge) = self.edge else { return false };
        let room = edge.saturating_sub(self.next);
        let mss = self.worth_sending(mss);
        // With segmentation offload, a sender leaves a small window unused.
        self.closed = room < mss || self.closed && room < edge.saturating_sub(self.una) / TSO_WINDOW_DIVISOR;
        self.closed
    }

    /// The space in the window from which a sender uses it: a segment, or half of the largest window
    /// (RFC 9293 §3.8.6.2.1), which on a loopback interface is less.
    fn worth_sending(&self, mss: u64) -> u64 {
        let current = self.edge.map_or(0, |edge| edge.saturating_sub(self.una));
        match self.counts.window.max_bytes.unwrap_or_default().max(current) {
            0 => mss,
            most => mss.min(most / 2),
        }
    }

    /// Records data up to `end` that was sent under the receive window `window`. The packets of one
    /// moment arrive one after another; the last of them shows whether the window was full
    /// until the next moment.
    pub(super) fn record_sent_under(
        &mut self,
        echo: u32,
        window: Option<(u64, u64)>,
        end: u64,
        (at, mss): (Time, u64),
    ) {
        let worth = self.worth_sending(mss);
        let full = self.holes.is_empty() && window.is_some_and(|(edge, _)| edge < end + worth);
        if let (true, Some(trajectory), Some((_, window))) = (full, &mut self.trajectory, window) {
            trajectory.record_full_window(window);
        }
        match self.moment {
            Some(moment) if moment.echo == echo => self.moment = Some(SendMoment { full, ..moment }),
            before => {
                if let Some(before) = before.filter(|m| m.full) {
                    self.bins.add_time(before.since, at, |bin, t| bin.closed += t);
                }
                self.moment = Some(SendMoment { echo, since: at, full });
            }
        }
    }

    /// Records an acknowledgment with the timestamp `value` at the place of capture.
    pub(in crate::connection) fn ack_passes(&mut self, value: u32, a: &Ack, scale: Option<u8>) {
        self.uses_sack |= !a.sack.blocks().is_empty();
        let window = scale.map(|scale| {
            let window = u64::from(a.window) << scale;
            (unwrap(self.una, a.ack) + window, window)
        });
        if let Some(trajectory) = &mut self.trajectory {
            trajectory.ack_passes(value, AckInfo { at: a.at, window }, self.counts.new_bytes);
        }
    }

    /// Updates the receive window from an acknowledgment.
    #[inline]
    pub(super) fn update_window(&mut self, a: &Ack, ack: u64, scale: Option<u8>, fin_acked: bool) {
        // The window of a SYN is not scaled (RFC 7323 §2.2), that of a reset has no meaning.
        if a.flags.has(Flags::RST) {
            return;
        }
        let shift = if a.flags.has(Flags::SYN) { 0 } else { scale.unwrap_or(0) };
        let window = u64::from(a.window) << shift;
        let edge = ack + window;
        if ack >= self.una && (scale.is_some() || a.flags.has(Flags::SYN)) {
            self.edge = Some(self.edge.map_or(edge, |e| if window == 0 { edge } else { e.max(edge) }));
        }
        if a.flags.has(Flags::SYN) || fin_acked {
            return;
        }
        let w = &mut self.counts.window;
        w.scale_unknown |= scale.is_none();
        w.min_bytes = Some(w.min_bytes.map_or(window, |m| m.min(window)));
        w.max_bytes = Some(w.max_bytes.map_or(window, |m| m.max(window)));
    }
}
